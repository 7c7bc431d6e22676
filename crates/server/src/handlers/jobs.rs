//! Jobs.

use std::time::Duration;

use axum::http::StatusCode;
use tidegate_core::codes;
use tidegate_core::ids::{JobId, UniqueKey};
use tidegate_core::job::Job;
use tidegate_core::limits;
use tidegate_core::time::Millis;
use tidegate_core::why::Cause;
use tidegate_store::params::{CancelJob, EnqueueOutcome, JobQuery, NewJob, Page};
use tidegate_wire::jobs::{
    self, CancelReply, CancelRequest, DependencyPage, EnqueueJob, Enqueued, JobPage, PriorityRequest,
    StateReply,
};
use tidegate_wire::keys::Role;
use tidegate_wire::why::Why;
use tidegate_wire::{Problem, ProblemBody, Ticket, read};
use tokio::time::Instant;

use super::parks::sees;
use crate::alerts::RESERVED;
use crate::call::{Answer, Call, json, no_job, none, ok};
use crate::mint::idempotent_id;

/// A job that is waited for is looked at this often even if nothing is heard.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Jobs read in one step, and bytes after which a page is long enough: payloads can be large.
const PAGE_STEP: (usize, usize) = (100, 16 << 20);
/// Time after which a page is handed back as far as it is: each step may have looked at many rows for few jobs.
const PAGE_TIME: Duration = Duration::from_millis(500);

/// Enqueues one job or many.
#[utoipa::path(
    post, path = "/v1/jobs", tag = "jobs", operation_id = "enqueue",
    description = "Stores one job, or all jobs of an array, or none. Durable when answered. The same request with the same \
                   `Idempotency-Key` stores them once.",
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "Up to 255 visible characters; within one API key"),
        ("traceparent" = Option<String>, Header, description = "W3C trace context of jobs that have none of their own; one that is malformed is ignored"),
    ),
    request_body(content = crate::openapi::OneOrMany<EnqueueJob>, examples(
        ("one" = (value = json!({"kind": "invoice.send", "payload": {"order": 7}, "tenant": "acme"}))),
        ("many" = (value = json!([{"kind": "invoice.send", "payload": 1}, {"kind": "invoice.send", "payload": 2, "delay_ms": 5000}])))
    )),
    responses(
        (status = 201, description = "At least one new job", body = crate::openapi::OneOrMany<Enqueued>),
        (status = 200, description = "Nothing new: jobs with these keys or ids exist", body = crate::openapi::OneOrMany<Enqueued>),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn enqueue(call: Call) -> Answer {
    call.check_content_type()?;
    let body = &call.body.bytes;
    let many = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
    let jobs: Vec<EnqueueJob> = if many { read::from_slice(body)? } else { vec![read::from_slice(body)?] };
    if jobs.is_empty() || jobs.len() > limits::MAX_ENQUEUE_BATCH {
        let detail = format!(
            "a batch of {} jobs; between 1 and {} are allowed",
            jobs.len(),
            limits::MAX_ENQUEUE_BATCH
        );
        return Err(Problem::new(codes::INVALID_BATCH, detail));
    }
    let key = call.idempotency_key()?;
    let mut new = Vec::with_capacity(jobs.len());
    for (place, job) in jobs.into_iter().enumerate() {
        let job = admit(&call, job, key.map(|key| (key, place)));
        new.push(job.map_err(|p| if many { p.within(format!("/{place}")) } else { p })?);
    }
    check_ids(&call, &new).await?;
    let enqueued = call.enqueue(new).await?;
    let any_new = enqueued.iter().any(|e| e.outcome == EnqueueOutcome::Created);
    let status = if any_new { StatusCode::CREATED } else { StatusCode::OK };
    let replies: Vec<Enqueued> = enqueued.into_iter().map(Enqueued::from).collect();
    match replies.first() {
        Some(one) if !many => json(status, one),
        _ => json(status, &replies),
    }
}

/// The job, if the caller may enqueue it.
pub(super) fn admit(call: &Call, mut job: EnqueueJob, key: Option<(&str, usize)>) -> Result<NewJob, Problem> {
    if job.kind.as_str().starts_with(RESERVED) {
        let detail = format!("kind `{}` is the program's own", job.kind);
        return Err(Problem::new(codes::NOT_ALLOWED, detail).at("/kind"));
    }
    if let Some(own) = call.caller.tenant() {
        let foreign = |what: &str, given: &str| {
            let detail = format!("a key of tenant `{own}` cannot enqueue for {what} `{given}`");
            Problem::new(codes::NOT_ALLOWED, detail).at(format!("/{what}"))
        };
        if let Some(tenant) = job.tenant.as_ref().filter(|t| *t != own) {
            return Err(foreign("tenant", tenant.as_str()));
        }
        if let Some(group) = job.group.as_ref().filter(|g| !call.caller.sees_group(g)) {
            return Err(foreign("group", group.as_str()));
        }
        // Unique keys are shared by all jobs of a kind. A tenant's live in a space of their own, or one tenant could
        // replace another's job: no tenant has a slash in its name.
        if let Some(unique) = &mut job.unique {
            unique.key = UniqueKey::new(format!("{own}/{}", unique.key))
                .map_err(|e| Problem::from(e).at("/unique/key"))?;
        }
        job.tenant = Some(own.clone());
    }
    if let Some((key, place)) = key {
        if job.id.is_some() {
            return Err(
                Problem::invalid("`id` and the header `idempotency-key` exclude each other").at("/id")
            );
        }
        job.id = Some(idempotent_id(call.caller.scope(), key, place));
    }
    job.into_new_job(|| call.app.mint.job_id(call.now), call.now)
}

/// A restricted caller's ids must not be those of others' jobs: the store would answer as if they were its own.
pub(super) async fn check_ids(call: &Call, new: &[NewJob]) -> Result<(), Problem> {
    if call.caller.tenant().is_none() {
        return Ok(());
    }
    let ids = new.iter().filter(|j| j.id_may_exist).map(|j| j.id).collect();
    let foreign = call.jobs(ids).await?.into_iter().flatten().find(|j| !call.caller.sees(j.tenant.as_ref()));
    let Some(foreign) = foreign else { return Ok(()) };
    let detail = format!("job {} exists and is a different job", foreign.id);
    Err(Problem::new(codes::DUPLICATE_ID, detail))
}

/// Finds jobs.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs", operation_id = "search",
    description = "Finds jobs, the newest first. All filters must hold. A page may be short and yet not the last: go on \
                   with `cursor` while `next` is there.",
    params(
        ("state" = Option<String>, Query, description = "One or more states, separated by commas", example = "ready,running"),
        ("queue" = Option<String>, Query), ("kind" = Option<String>, Query), ("tenant" = Option<String>, Query),
        ("group" = Option<String>, Query),
        ("created_from" = Option<String>, Query, description = "Enqueued at or after", format = "date-time"),
        ("created_before" = Option<String>, Query, description = "Enqueued before", format = "date-time"),
        ("text" = Option<String>, Query, description = "Text in payload or errors"),
        ("review" = Option<tidegate_wire::schema::Review>, Query, description = "Dead letters with this review status"),
        ("limit" = Option<u32>, Query, description = "Jobs on the page", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "Where to go on: the `next` of the page before"),
    ),
    responses((status = 200, body = JobPage), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn search(call: Call) -> Answer {
    let query = jobs::search_from_query(call.query_text())?;
    find(&call, query).await
}

/// A page of what the caller may see.
pub(crate) async fn find(call: &Call, mut query: JobQuery) -> Answer {
    if let Some(own) = call.caller.tenant() {
        if query.tenant.as_ref().is_some_and(|t| t != own) {
            return ok(&JobPage { jobs: vec![], next: None });
        }
        query.tenant = Some(own.clone());
    }
    let (wanted, begun) = (query.limit, Instant::now());
    let (mut page, mut bytes) = (Page::default(), 0);
    while page.jobs.len() < wanted {
        query.limit = (wanted - page.jobs.len()).min(PAGE_STEP.0);
        let step = call.done(call.store().search(query.clone()).await)?;
        // The store looked at as many rows as one page may cost: the rest is for the next request.
        let spent = step.jobs.len() < query.limit;
        bytes += step.jobs.iter().map(size).sum::<usize>();
        page.jobs.extend(step.jobs);
        page.next = step.next;
        query.cursor = step.next;
        if spent || step.next.is_none() || bytes >= PAGE_STEP.1 || begun.elapsed() >= PAGE_TIME {
            break;
        }
    }
    ok(&JobPage::from(page))
}

fn size(job: &Job) -> usize {
    job.payload.as_str().len() + job.result.as_ref().map_or(0, |r| r.as_str().len())
}

/// Everything known about a job.
#[utoipa::path(
    get, path = "/v1/jobs/{id}", tag = "jobs", operation_id = "job",
    description = "Everything known about a job. With `wait`, answers when the job is finished, or as it is when the time \
                   is over.",
    params(
        ("id" = String, Path, example = "job_01JCQ5V9N0E4T8GQ6W2Y3K7MZB"),
        ("wait" = Option<String>, Query, description = "How long to wait for its end", example = "30s"),
        ("ticket" = Option<String>, Query, description = "Workers see the jobs that they hold: the ticket proves it"),
    ),
    responses((status = 200, body = jobs::Job), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn get(call: Call) -> Answer {
    let id = call.job_id()?;
    let mut query = call.query()?;
    let wait: Option<Millis> = query.parse("wait", codes::INVALID_TIME)?;
    let ticket: Option<Ticket> = query.parse("ticket", codes::INVALID_REQUEST)?;
    query.end()?;
    let job = match wait {
        Some(Millis(ms)) if ms > 0 => wait_for(&call, id, Duration::from_millis(ms as u64)).await?,
        _ => call.job(id).await?,
    };
    if call.caller.role() == Role::Worker {
        let held = job.held.as_ref().map(|h| h.lease);
        if held.is_none() || ticket.map(|t| t.0.lease) != held {
            return Err(no_job(id));
        }
    }
    ok(&jobs::Job::from(job))
}

async fn wait_for(call: &Call, id: JobId, wait: Duration) -> Result<Job, Problem> {
    let end = Instant::now() + wait.min(call.app.limits.wait);
    let hub = &call.app.hub;
    let _following = hub.follow();
    let mut place = None;
    loop {
        let mut ending = hub.wait_for(id);
        let job = call.job(id).await?;
        if job.state.is_final() || Instant::now() >= end {
            return Ok(job);
        }
        if place.is_none() {
            place = Some(call.app.long_polls.try_acquire().map_err(|_| too_many_waiting())?);
        }
        tokio::select! {
            () = ending.heard() => {}
            () = tokio::time::sleep_until((Instant::now() + LOOK_AGAIN).min(end)) => {}
            () = call.app.draining() => return Ok(job),
        }
    }
}

pub(crate) fn too_many_waiting() -> Problem {
    Problem::new(codes::TOO_MANY_WAITING, "as many requests wait at this server as may").retry_after_ms(1_000)
}

/// Why a job is where it is.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/why", tag = "jobs", operation_id = "why",
    params(("id" = String, Path)),
    responses((status = 200, body = Why), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn why(call: Call) -> Answer {
    call.query()?.end()?;
    let id = call.job_id()?;
    call.check_sees(id).await?;
    let mut why = call.done(call.store().why(id, call.now).await)?;
    if let Cause::Parked { parks } = &mut why.cause {
        // That it is stopped, and until when, is the job's own story. Who stopped all of a queue, and why, is not.
        for park in parks.iter_mut().filter(|p| !sees(&call, &p.scope)) {
            (park.by, park.reason) = ("an operator".into(), "not told to a key of one tenant".into());
        }
    }
    ok(&Why::new(why, call.now))
}

/// Jobs that a job waits, or waited, for.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/dependencies", tag = "jobs", operation_id = "dependencies",
    description = "Jobs that a job waits, or waited, for, with their results. A page ends early after 4 MiB of results.",
    params(
        ("id" = String, Path),
        ("skip" = Option<u32>, Query, description = "Leave out the first: the `next` of the page before"),
        ("limit" = Option<u32>, Query, description = "Jobs on the page", minimum = 1, maximum = 1000),
        ("ticket" = Option<String>, Query, description = "Workers see those of the jobs that they hold: the ticket proves it"),
    ),
    responses(
        (status = 200, body = DependencyPage), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")
    )
)]
pub(crate) async fn dependencies(call: Call) -> Answer {
    let id = call.job_id()?;
    let mut query = call.query()?;
    let bad = codes::INVALID_REQUEST;
    let skip: u32 = query.parse("skip", bad)?.unwrap_or(0);
    let limit: usize = query.parse("limit", bad)?.unwrap_or(jobs::DEFAULT_PAGE);
    let ticket: Option<Ticket> = query.parse("ticket", bad)?;
    query.end()?;
    if !(1..=limits::MAX_DEPENDENCY_PAGE).contains(&limit) {
        let detail = format!("limit must be between 1 and {}", limits::MAX_DEPENDENCY_PAGE);
        return Err(Problem::new(bad, detail).at("?limit"));
    }
    if call.caller.role() == Role::Worker {
        let held = call.job(id).await?.held.map(|h| h.lease);
        if held.is_none() || ticket.map(|t| t.0.lease) != held {
            return Err(no_job(id));
        }
    } else {
        call.check_sees(id).await?;
    }
    let page = call.done(call.store().dependencies(id, None, skip, limit).await)?;
    ok(&DependencyPage::from(page))
}

/// Cancels a job.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/cancel", tag = "jobs", operation_id = "cancel",
    description = "Cancels a job: at once if it waits, by telling its handler if it runs. With `cascade`, also those who wait \
                   for it.",
    params(("id" = String, Path)),
    request_body(content = Option<CancelRequest>),
    responses((status = 200, body = CancelReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn cancel(call: Call) -> Answer {
    let id = call.job_id()?;
    let request: CancelRequest = call.json_or_default()?;
    call.check_sees(id).await?;
    let cascade = request.cascade;
    let note = if request.note.is_empty() { call.caller.name().to_owned() } else { request.note };
    let reply = call.done(call.store().cancel(CancelJob { id, note, cascade, now: call.now }).await)?;
    ok(&CancelReply::from(reply))
}

/// Runs a scheduled job now.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/run-now", tag = "jobs", operation_id = "run_now",
    description = "Makes a scheduled job ready now.",
    params(("id" = String, Path)),
    responses((status = 200, body = StateReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn run_now(call: Call) -> Answer {
    let id = call.job_id()?;
    call.check_sees(id).await?;
    let state = call.done(call.store().run_now(id, call.now).await)?;
    ok(&StateReply { state })
}

/// Changes the priority of a job.
#[utoipa::path(
    put, path = "/v1/jobs/{id}/priority", tag = "jobs", operation_id = "reprioritise",
    params(("id" = String, Path)),
    request_body(content = PriorityRequest, example = json!({"priority": "high"})),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn reprioritise(call: Call) -> Answer {
    let id = call.job_id()?;
    let request: PriorityRequest = call.json()?;
    call.check_sees(id).await?;
    call.done(call.store().reprioritise(id, request.priority, call.now).await)?;
    none()
}
