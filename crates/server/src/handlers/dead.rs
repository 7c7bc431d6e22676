//! Dead letters, erasing, totals.

use tidegate_core::codes;
use tidegate_core::ids::{Seq, TenantId};
use tidegate_core::job::{Job, State};
use tidegate_core::limits;
use tidegate_store::params::{Erase, Recover, Resolve};
use tidegate_wire::jobs::{self, JobPage};
use tidegate_wire::letters::{
    EraseReply, EraseRequest, RecoverReply, RecoverRequest, Recovered, RecoveredStatus, ResolveRequest,
    Totals,
};
use tidegate_wire::{Problem, ProblemBody};

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
