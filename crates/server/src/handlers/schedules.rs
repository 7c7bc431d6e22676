//! Schedules. They belong to the operator: a key of one tenant neither sees nor changes them.

use tidegate_core::codes;
use tidegate_core::ids::ScheduleName;
use tidegate_core::limits;
use tidegate_core::schedule::ScheduleSpec;
use tidegate_store::params::{self, NewJob, ScheduleView, TickQuery};
use tidegate_wire::schedules::{
    Backfill, Backfilled, NextRuns, PauseSchedule, PutReply, PutSchedule, RunReply, Schedule, Schedules,
    Tick, Ticks,
};
use tidegate_wire::{Problem, ProblemBody, nearest, schema};

use crate::call::{Answer, Call, none, ok};

/// Lines of a ledger in one answer, where the request names no number.
const PAGE: usize = 100;
/// Runs that are looked ahead, where the request names no number, and at most.
const NEXT: (usize, usize) = (10, 1_000);

async fn missing(call: &Call, name: &ScheduleName) -> Problem {
    let known = call.store().schedules().await.unwrap_or_default();
    let near = nearest(name.as_str(), known.iter().map(|s| s.name.as_str()));
    let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
    Problem::new(codes::SCHEDULE_NOT_FOUND, format!("there is no schedule `{name}`{near}"))
}

async fn named(call: &Call) -> Result<ScheduleView, Problem> {
    let name: ScheduleName = call.param("name")?;
    match call.done(call.store().schedule(name.clone()).await)? {
        Some(schedule) => Ok(schedule),
        None => Err(missing(call, &name).await),
    }
}

/// All schedules.
#[utoipa::path(
    get, path = "/v1/schedules", tag = "schedules", operation_id = "schedules",
    responses((status = 200, body = Schedules), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.query()?.end()?;
    let schedules = call.done(call.store().schedules().await)?;
    ok(&Schedules { schedules: schedules.into_iter().map(Schedule::from).collect() })
}

/// One schedule.
#[utoipa::path(
    get, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "schedule",
    params(("name" = String, Path, example = "daily-missions-assignment")),
    responses((status = 200, body = Schedule), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn get(call: Call) -> Answer {
    ok(&Schedule::from(named(&call).await?))
}

/// Adds a schedule or changes it.
#[utoipa::path(
    put, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "put_schedule",
    description = "Adds a schedule or changes it. One whose times stay the same goes on where it was; one with other times begins now.",
    params(("name" = String, Path, example = "daily-missions-assignment")),
    request_body(content = PutSchedule, example = json!({
        "kind": "daily-missions-assignment", "settings": {"cron": "1 0 * * *", "zone": "America/Sao_Paulo"}
    })),
    responses((status = 200, body = PutReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn put(call: Call) -> Answer {
    let name: ScheduleName = call.param("name")?;
    let PutSchedule { kind, settings } = call.json()?;
    let put = params::PutSchedule { name, spec: ScheduleSpec { kind, settings }, now: call.now };
    ok(&PutReply { outcome: call.done(call.store().put_schedule(put).await)? })
}

/// Deletes a schedule.
#[utoipa::path(
    delete, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "delete_schedule",
    description = "Deletes a schedule and its ledger. Jobs that it enqueued stay.",
    params(("name" = String, Path, example = "daily-missions-assignment")),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn delete(call: Call) -> Answer {
    let name: ScheduleName = call.param("name")?;
    if call.done(call.store().delete_schedule(name.clone(), call.now).await)? {
        return none();
    }
    Err(missing(&call, &name).await)
}

/// Pauses a schedule.
#[utoipa::path(
    post, path = "/v1/schedules/{name}/pause", tag = "schedules", operation_id = "pause_schedule",
    description = "Pauses a schedule: what comes until it is resumed is skipped, and its ledger says so.",
    params(("name" = String, Path, example = "daily-missions-assignment")),
    request_body(content = Option<PauseSchedule>, example = json!({"by": "ada"})),
    responses((status = 200, body = Schedule), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn pause(call: Call) -> Answer {
    let name: ScheduleName = call.param("name")?;
    let PauseSchedule { by } = call.json_or_default()?;
    let by = call.by(by);
    ok(&Schedule::from(call.done(call.store().pause_schedule(name, by, call.now).await)?))
}

/// Goes on with a schedule.
#[utoipa::path(
    post, path = "/v1/schedules/{name}/resume", tag = "schedules", operation_id = "resume_schedule",
    description = "Goes on with a schedule. What came while it was paused is skipped. The rule for missed ticks decides about what nobody had fired before the pause, so that a resume may enqueue a job at once.",
    params(("name" = String, Path, example = "daily-missions-assignment")),
    responses((status = 200, body = Schedule), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn resume(call: Call) -> Answer {
    let name: ScheduleName = call.param("name")?;
    ok(&Schedule::from(call.done(call.store().resume_schedule(name, call.now).await)?))
}

/// Runs a schedule's job now.
#[utoipa::path(
    post, path = "/v1/schedules/{name}/run", tag = "schedules", operation_id = "run_schedule",
    description = "Runs a schedule's job now, outside its times. Refused while an earlier run is not finished, unless its overlap is `allow`.",
    params(("name" = String, Path, example = "daily-missions-assignment")),
    responses((status = 200, body = RunReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn run(call: Call) -> Answer {
    let name: ScheduleName = call.param("name")?;
    ok(&RunReply { job: call.done(call.store().run_schedule(name, call.now).await)? })
}

/// What became of the ticks of a schedule.
#[utoipa::path(
    get, path = "/v1/schedules/{name}/ticks", tag = "schedules", operation_id = "schedule_ticks",
    description = "The ledger of a schedule, newest first: what was fired, how late, how it ended; what was skipped, and why.",
    params(
        ("name" = String, Path, example = "daily-missions-assignment"),
        ("before" = Option<u64>, Query, description = "Lines with smaller numbers than this"),
        ("limit" = Option<usize>, Query, description = "At most so many, up to 1000"),
    ),
    responses((status = 200, body = Ticks), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn ticks(call: Call) -> Answer {
    let name: ScheduleName = call.param("name")?;
    let mut query = call.query()?;
    let before: Option<u64> = query.parse("before", codes::INVALID_REQUEST)?;
    let limit: Option<usize> = query.parse("limit", codes::INVALID_REQUEST)?;
    query.end()?;
    let limit = limit.unwrap_or(PAGE).clamp(1, limits::MAX_PAGE);
    let found = call.done(call.store().schedule_ticks(TickQuery { name, before, limit }).await)?;
    let next = found.last().map(|line| line.no).filter(|no| found.len() == limit && *no > 0);
    ok(&Ticks { ticks: found.into_iter().map(Tick::from).collect(), next })
}

/// When a schedule runs next.
#[utoipa::path(
    get, path = "/v1/schedules/{name}/next", tag = "schedules", operation_id = "schedule_next",
    description = "The next runs that are planned, by UTC and by the clock of the schedule's zone. A paused schedule is taken as if it went on now, and `missed` says which run a resume decides about; a retired one has no runs; a run that nobody fired is `overdue`, and not among them.",
    params(
        ("name" = String, Path, example = "daily-missions-assignment"),
        ("n" = Option<usize>, Query, description = "How many, up to 1000"),
    ),
    responses((status = 200, body = NextRuns), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn next(call: Call) -> Answer {
    let mut query = call.query()?;
    let n: Option<usize> = query.parse("n", codes::INVALID_REQUEST)?;
    query.end()?;
    let next = NextRuns::of(&named(&call).await?, n.unwrap_or(NEXT.0).min(NEXT.1), call.now);
    ok(&next.map_err(|why| Problem::new(codes::INVALID_SCHEDULE, why))?)
}

/// Enqueues a kind for a range of dates.
#[utoipa::path(
    post, path = "/v1/backfills", tag = "schedules", operation_id = "backfill",
    description = "One job for each date, some time apart. A date that was filled under the same label in the last 30 days is left alone.",
    request_body(content = schema::Backfill, example = json!({
        "kind": "daily-feature-aggregation", "from": "2026-10-18", "to": "2026-11-14", "payload": {"backfill": true}
    })),
    responses((status = 200, body = Backfilled), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn backfill(call: Call) -> Answer {
    let Backfill(backfill) = call.json()?;
    let runs = backfill.runs().map_err(|why| Problem::new(codes::INVALID_REQUEST, why))?;
    let job = |run| NewJob::of_backfill(call.app.mint.job_id(call.now), backfill.kind.clone(), run, call.now);
    let jobs = runs.iter().map(job).collect();
    let replies = call.done(call.store().enqueue(jobs, call.now).await)?;
    ok(&Backfilled::new(runs.iter().map(|run| run.date.to_string()), &replies))
}
