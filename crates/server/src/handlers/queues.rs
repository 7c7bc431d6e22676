//! Queues.

use tidegate_core::codes;
use tidegate_core::ids::QueueName;
use tidegate_core::job::ParkScope;
use tidegate_core::registry::QueueSettings;
use tidegate_wire::parks::{Pause, Resume};
use tidegate_wire::registry::{AllSettings, EnsureQueue, NamedSettings, Queue, Queues};
use tidegate_wire::{Problem, ProblemBody, schema};

use super::parks::no_park;
use crate::call::{Answer, Call, none, ok};

/// All queues with their counts.
#[utoipa::path(
    get, path = "/v1/queues", tag = "queues", operation_id = "queues",
    responses((status = 200, body = Queues), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.query()?.end()?;
    let queues = call.done(call.store().queues(call.now).await)?;
    ok(&Queues { queues: queues.into_iter().map(Queue::from).collect() })
}

/// Adds a queue.
#[utoipa::path(
    post, path = "/v1/queues", tag = "queues", operation_id = "ensure_queue",
    description = "Adds a queue with default settings, if it does not exist.",
    request_body(content = EnsureQueue, example = json!({"name": "billing"})),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn ensure(call: Call) -> Answer {
    let request: EnsureQueue = call.json()?;
    call.done(call.store().ensure_queue(request.name, call.now).await)?;
    none()
}

/// One queue with its counts.
#[utoipa::path(
    get, path = "/v1/queues/{name}", tag = "queues", operation_id = "queue",
    params(("name" = String, Path, example = "billing")),
    responses((status = 200, body = Queue), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn get(call: Call) -> Answer {
    let name: QueueName = call.param("name")?;
    let queues = call.done(call.store().queues(call.now).await)?;
    let queue = queues.into_iter().find(|q| q.name == name).ok_or_else(|| no_queue(&name))?;
    ok(&Queue::from(queue))
}

fn no_queue(name: &QueueName) -> Problem {
    Problem::new(codes::UNKNOWN_QUEUE, format!("queue `{name}` is not registered"))
}

/// Changes a queue.
#[utoipa::path(
    put, path = "/v1/queues/{name}", tag = "queues", operation_id = "put_queue",
    description = "Adds a queue or changes its settings, live. What is not given has its default.",
    params(("name" = String, Path, example = "billing")),
    request_body(content = schema::QueueSettings, example = json!({"concurrency": 50, "limiter": {"max": 30, "per_ms": 1000}})),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn put(call: Call) -> Answer {
    let name: QueueName = call.param("name")?;
    let settings: QueueSettings = call.json()?;
    call.done(call.store().put_queue(name, settings, call.now).await)?;
    none()
}

/// Settings of all queues.
#[utoipa::path(
    get, path = "/v1/settings", tag = "queues", operation_id = "settings",
    description = "Settings of all queues, without counts: cheap enough to ask every second.",
    responses((status = 200, body = AllSettings), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn settings(call: Call) -> Answer {
    call.query()?.end()?;
    let all = call.done(call.store().settings().await)?;
    let queues = all.into_iter().map(|(name, settings)| NamedSettings { name, settings }).collect();
    ok(&AllSettings { queues })
}

/// Pauses a queue.
#[utoipa::path(
    post, path = "/v1/queues/{name}/pause", tag = "queues", operation_id = "pause_queue",
    params(("name" = String, Path, example = "billing")),
    request_body(content = Option<Pause>, example = json!({"by": "ada", "reason": "month end", "for_ms": 3_600_000})),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn pause(call: Call) -> Answer {
    let scope = ParkScope::Queue(call.param("name")?);
    let pause: Pause = call.json_or_default()?;
    let park = pause.into_park(scope, call.caller.name(), call.now)?;
    call.done(call.store().park(park, call.now).await)?;
    none()
}

/// Resumes a queue.
#[utoipa::path(
    post, path = "/v1/queues/{name}/resume", tag = "queues", operation_id = "resume_queue",
    description = "Ends a pause; those of others stay.",
    params(("name" = String, Path, example = "billing")),
    request_body(content = Option<Resume>),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn resume(call: Call) -> Answer {
    let scope = ParkScope::Queue(call.param("name")?);
    let resume: Resume = call.json_or_default()?;
    let by = call.by(resume.by);
    let there = call.done(call.store().unpark(scope.clone(), by.clone(), call.now).await)?;
    if there { none() } else { Err(no_park(&scope, &by)) }
}
