//! Dead letters, erasing, totals.

use tidegate_core::codes;
use tidegate_core::ids::{JobId, Seq, TenantId};
use tidegate_core::job::{Job, State};
use tidegate_core::limits;
use tidegate_store::letters::{self, Grant, Granted};
use tidegate_store::params::{Erase, ProcessLetters, Reauthorized, Recover, Resolve};
use tidegate_wire::jobs::{self, JobPage};
use tidegate_wire::letters::{
    Causes, EraseReply, EraseRequest, Processed, ReauthorizedLetter, ReauthorizedReply, ReauthorizedRequest,
    RecoverReply, RecoverRequest, Recovered, RecoveredStatus, ResolveRequest, Totals, causes_from_query,
};
use tidegate_wire::{Cursor, Problem, ProblemBody};

use super::jobs::find;
use crate::call::{Answer, Call, none, ok};

/// Rows looked at by one erase if the request does not say, and at most.
const SCAN: (usize, usize) = (2_000, 10_000);

/// Dead letters.
#[utoipa::path(
    get, path = "/v1/dead", tag = "dead letters", operation_id = "dead",
    description = "Dead letters: the dead jobs of a search, the newest first.",
    params(
        ("queue" = Option<String>, Query), ("kind" = Option<String>, Query), ("tenant" = Option<String>, Query),
        ("group" = Option<String>, Query),
        ("created_from" = Option<String>, Query, format = "date-time"),
        ("created_before" = Option<String>, Query, format = "date-time"),
        ("text" = Option<String>, Query, description = "Text in payload or errors"),
        ("review" = Option<tidegate_wire::schema::Review>, Query),
        ("cause" = Option<String>, Query, description = "Fingerprint of what they died of"),
        ("category" = Option<tidegate_wire::schema::Category>, Query),
        ("connector" = Option<String>, Query),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000), ("cursor" = Option<String>, Query),
    ),
    responses((status = 200, body = JobPage), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn list(call: Call) -> Answer {
    let mut query = jobs::search_from_query(call.query_text())?;
    if !query.states.is_empty() {
        return Err(Problem::invalid("dead letters are dead; `state` cannot be chosen").at("?state"));
    }
    query.states = vec![State::Dead];
    find(&call, query).await
}

/// Recovers dead letters.
#[utoipa::path(
    post, path = "/v1/dead/recover", tag = "dead letters", operation_id = "recover",
    description = "Recovers dead letters as new jobs with a fresh attempt budget. Recovering one twice yields one job.",
    request_body(content = RecoverRequest, example = json!({"ids": ["job_01JCQ5V9N0E4T8GQ6W2Y3K7MZB"]})),
    responses((status = 200, body = RecoverReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn recover(call: Call) -> Answer {
    let request: RecoverRequest = call.json()?;
    if request.ids.is_empty() || request.ids.len() > limits::MAX_ENQUEUE_BATCH {
        let detail = format!("name between 1 and {} dead letters", limits::MAX_ENQUEUE_BATCH);
        return Err(Problem::new(codes::INVALID_BATCH, detail).at("/ids"));
    }
    // Letters of others are not there for a restricted caller.
    let seen: Vec<bool> = if call.caller.tenant().is_none() {
        vec![true; request.ids.len()]
    } else {
        let sees = |job: &Job| call.caller.sees(job.tenant.as_ref());
        call.jobs(request.ids.clone()).await?.iter().map(|job| job.as_ref().is_some_and(sees)).collect()
    };
    let mine = request.ids.iter().zip(&seen).filter(|(_, seen)| **seen);
    let letters: Vec<Recover> =
        mine.map(|(id, _)| Recover { dead: *id, new_id: call.app.mint.job_id(call.now) }).collect();
    let mut replies =
        if letters.is_empty() { vec![] } else { call.done(call.store().recover(letters, call.now).await)? }
            .into_iter();
    let missing = Recovered { status: RecoveredStatus::NotDead, new_id: None };
    let recovered =
        seen.iter().map(|seen| if *seen { replies.next().map_or(missing, Recovered::from) } else { missing });
    ok(&RecoverReply { recovered: recovered.collect() })
}

/// Counts dead letters by cause.
#[utoipa::path(
    get, path = "/v1/dead/causes", tag = "dead letters", operation_id = "deadCauses",
    description = "Dead letters that wait for review, counted by what they died of: errors that differ in numbers, ids, times and \
                   quoted text alone are one cause. `GET /v1/dead?cause=` lists the letters of one.",
    params(
        ("queue" = Option<String>, Query), ("kind" = Option<String>, Query), ("tenant" = Option<String>, Query),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 200),
    ),
    responses((status = 200, body = Causes), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn causes(call: Call) -> Answer {
    let mut query = causes_from_query(call.query_text())?;
    if let Some(own) = call.caller.tenant() {
        if query.tenant.as_ref().is_some_and(|named| named != own) {
            return ok(&Causes { causes: vec![], other: 0, total: 0 });
        }
        query.tenant = Some(own.clone());
    }
    let causes = call.done(call.store().causes(query).await)?;
    ok(&Causes::from(causes))
}

/// Runs the processor.
#[utoipa::path(
    post, path = "/v1/dead/process", tag = "dead letters", operation_id = "processDead",
    description = "Begins a run of the processor of dead letters although none is due, or goes on with the one under way: one page. Send \
                   again while there is `more`.",
    responses((status = 200, body = Processed), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn process(call: Call) -> Answer {
    let process = ProcessLetters { every_ms: call.app.letters_every_ms, at_once: true, now: call.now };
    let page = call.done(call.store().process_letters(process).await)?;
    call.store().feed().meter().count_letters(&page);
    ok(&Processed::from(page))
}

/// A tenant has authorized again.
#[utoipa::path(
    post, path = "/v1/dead/reauthorized", tag = "dead letters", operation_id = "reauthorized",
    description = "A tenant has authorized again: letters of category `PERMANENT_AUTH` that wait for it run again as new jobs, or are settled \
                   with `resolve`. Name the tenant (and connector or kind), or the letters. Send again with `next` as `after` while there is `more`.",
    request_body(content = ReauthorizedRequest, example = json!({"tenant": "acme", "connector": "shopify"})),
    responses((status = 200, body = ReauthorizedReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn reauthorized(call: Call) -> Answer {
    let ReauthorizedRequest { ids, tenant, connector, kind, after, resolve, by } = call.json()?;
    let by = call.by(by);
    let mint = || (!resolve).then(|| call.app.mint.job_id(call.now));
    let filtered = tenant.is_some() || connector.is_some() || kind.is_some();
    let done = match (ids.is_empty(), filtered) {
        (true, true) => {
            let tenant = match call.caller.tenant() {
                Some(own) if tenant.as_ref().is_some_and(|named| named != own) => {
                    return ok(&ReauthorizedReply { letters: vec![], more: false, next: None });
                }
                Some(own) => Some(own.clone()),
                None => tenant,
            };
            let grant = Grant { tenant, connector, kind };
            let after = after.map(|cursor| cursor.0);
            call.done(letters::reauthorize(call.store(), &grant, after, &by, mint, call.now).await)?
        }
        (false, false) if after.is_some() => {
            return Err(Problem::invalid("letters that are named are seen to at once; leave `after` out")
                .at("/after"));
        }
        (false, false) if ids.len() <= limits::MAX_ENQUEUE_BATCH => {
            // Letters of others are not there for a restricted caller.
            let sees = |job: &Job| call.caller.sees(job.tenant.as_ref());
            let found = call.jobs(ids.clone()).await?;
            let seen = ids.iter().zip(&found).filter(|(_, job)| job.as_ref().is_some_and(sees));
            let named: Vec<Reauthorized> =
                seen.map(|(id, _)| Reauthorized { dead: *id, new_id: mint() }).collect();
            let dead: Vec<JobId> = named.iter().map(|letter| letter.dead).collect();
            let replies = if named.is_empty() {
                vec![]
            } else {
                call.done(call.store().reauthorized(named, by, call.now).await)?
            };
            Granted { letters: dead.into_iter().zip(replies).collect(), next: None }
        }
        (false, false) => {
            let detail = format!("name at most {} dead letters", limits::MAX_ENQUEUE_BATCH);
            return Err(Problem::new(codes::INVALID_BATCH, detail).at("/ids"));
        }
        _ => {
            let detail =
                "name either the letters, or the tenant, connector or kind that was authorized again";
            return Err(Problem::invalid(detail));
        }
    };
    let letters = done.letters.into_iter();
    let letters = letters.map(|(dead, became)| ReauthorizedLetter { dead, became: became.into() });
    let next = done.next.map(Cursor);
    ok(&ReauthorizedReply { letters: letters.collect(), more: next.is_some(), next })
}

/// Resolves a dead letter.
#[utoipa::path(
    post, path = "/v1/dead/{id}/resolve", tag = "dead letters", operation_id = "resolve",
    description = "Settles a dead letter without running it again.",
    params(("id" = String, Path)),
    request_body(content = ResolveRequest, example = json!({"resolution": "config_fix", "by": "ada"})),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn resolve(call: Call) -> Answer {
    let id = call.job_id()?;
    let request: ResolveRequest = call.json()?;
    call.check_sees(id).await?;
    let by = call.by(request.by);
    let resolve = Resolve { id, resolution: request.resolution, by, now: call.now };
    call.done(call.store().resolve(resolve).await)?;
    none()
}

/// Erases a tenant.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/erase", tag = "tenants", operation_id = "erase",
    description = "Erases a tenant's jobs, a bounded number of rows at a time. Send again with `after` until `next` is null.",
    params(("tenant" = String, Path, example = "acme")),
    request_body(content = Option<EraseRequest>),
    responses((status = 200, body = EraseReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn erase(call: Call) -> Answer {
    let tenant: TenantId = call.param("tenant")?;
    let request: EraseRequest = call.json_or_default()?;
    if !call.caller.sees(Some(&tenant)) {
        return Err(Problem::new(codes::JOB_NOT_FOUND, format!("there are no jobs of tenant `{tenant}`")));
    }
    let scan = request.scan.unwrap_or(SCAN.0);
    if !(1..=SCAN.1).contains(&scan) {
        return Err(Problem::invalid(format!("scan must be between 1 and {}", SCAN.1)).at("/scan"));
    }
    let after = request.after.map_or(Seq(0), |c| c.0);
    let erased = call.done(call.store().erase(Erase { tenant, after, scan, now: call.now }).await)?;
    ok(&EraseReply::from(erased))
}

/// Counts over the whole store.
#[utoipa::path(
    get, path = "/v1/totals", tag = "tenants", operation_id = "totals",
    responses((status = 200, body = Totals), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn totals(call: Call) -> Answer {
    call.query()?.end()?;
    let totals = call.done(call.store().totals().await)?;
    ok(&Totals::from(totals))
}
