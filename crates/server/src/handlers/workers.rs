//! Who is alive, and what they are asked to do.

use tidegate_core::codes;
use tidegate_core::ids::WorkerId;
use tidegate_core::limits;
use tidegate_store::params::{Record, Shelf};
use tidegate_wire::workers::{AnnounceReply, DrainRequest, Note, NoteRequest, Notes};
use tidegate_wire::{Problem, ProblemBody};

use crate::call::{Answer, Call, none, ok};

/// How long an order to drain holds: long enough for a worker to hear of it with its next announcement, and too short to
/// meet the next process of that name. The same as `tidegate workers drain` gives it.
const ORDER_TTL_MS: i64 = 60_000;

/// Who is alive.
#[utoipa::path(
    get, path = "/v1/workers", tag = "workers", operation_id = "workers",
    responses((status = 200, body = Notes), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn list(call: Call) -> Answer {
    notes(&call, Shelf::Workers).await
}

/// What workers are asked to do.
#[utoipa::path(
    get, path = "/v1/orders", tag = "workers", operation_id = "orders",
    responses((status = 200, body = Notes), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn orders(call: Call) -> Answer {
    notes(&call, Shelf::Orders).await
}

async fn notes(call: &Call, of: Shelf) -> Answer {
    call.query()?.end()?;
    let records = call.done(call.store().records(of, call.now).await)?;
    ok(&Notes { notes: records.into_iter().map(Note::from).collect() })
}

/// Says that a worker is alive.
#[utoipa::path(
    put, path = "/v1/workers/{key}", tag = "workers", operation_id = "announce",
    description = "Says that a worker is alive, and returns what it is asked to do. Say it again before `ttl_ms` are over.",
    params(("key" = String, Path, example = "mailer-1")),
    request_body(content = NoteRequest, example = json!({
        "about": {"host": "web-1", "pid": 4711, "version": "0.1.0", "queues": ["billing"], "concurrency": 50, "running": 3},
        "ttl_ms": 30000
    })),
    responses((status = 200, body = AnnounceReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn announce(call: Call) -> Answer {
    let key = put(&call, Shelf::Workers).await?;
    let orders = call.done(call.store().records(Shelf::Orders, call.now).await)?;
    let order = orders.into_iter().find(|o| o.key == key).map(|o| Note::from(o).about);
    ok(&AnnounceReply { order })
}

/// Tells a worker something.
#[utoipa::path(
    put, path = "/v1/orders/{key}", tag = "workers", operation_id = "put_order",
    description = "Leaves an order for a worker, who gets it with its next announcement.",
    params(("key" = String, Path, example = "mailer-1")),
    request_body(content = NoteRequest, example = json!({"about": {"order": "drain", "by": "ada"}, "ttl_ms": 3_600_000})),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn put_order(call: Call) -> Answer {
    put(&call, Shelf::Orders).await?;
    none()
}

async fn put(call: &Call, shelf: Shelf) -> Result<String, Problem> {
    let key = key(call)?;
    let request: NoteRequest = call.json()?;
    let body = request.about.checked(limits::MAX_RECORD_BYTES, "/about")?.as_str().to_owned();
    if !body.starts_with('{') {
        return Err(Problem::invalid("`about` must be a JSON object").at("/about"));
    }
    let ttl = request.ttl_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX).min(limits::MAX_DELAY_MS));
    let record = Record { shelf, key: key.clone(), body, expires: ttl.map(|ms| call.now.plus_ms(ms)) };
    call.done(call.store().put_record(record, call.now).await)?;
    Ok(key)
}

fn key(call: &Call) -> Result<String, Problem> {
    Ok(call.param::<WorkerId>("key")?.as_str().to_owned())
}

/// Says that a worker has gone.
#[utoipa::path(
    delete, path = "/v1/workers/{key}", tag = "workers", operation_id = "leave",
    params(("key" = String, Path, example = "mailer-1")),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn leave(call: Call) -> Answer {
    delete(&call, Shelf::Workers).await
}

/// Withdraws an order.
#[utoipa::path(
    delete, path = "/v1/orders/{key}", tag = "workers", operation_id = "delete_order",
    params(("key" = String, Path, example = "mailer-1")),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn delete_order(call: Call) -> Answer {
    delete(&call, Shelf::Orders).await
}

async fn delete(call: &Call, of: Shelf) -> Answer {
    let key = key(call)?;
    if call.done(call.store().delete_record(of, key.clone()).await)? { none() } else { Err(no_worker(&key)) }
}

fn no_worker(key: &str) -> Problem {
    Problem::new(codes::WORKER_NOT_FOUND, format!("nothing is known of worker `{key}`"))
}

/// Asks a worker to end.
#[utoipa::path(
    post, path = "/v1/workers/{key}/drain", tag = "workers", operation_id = "drain",
    description = "Asks a worker to take no more jobs and to end when what it has is done.",
    params(("key" = String, Path, example = "mailer-1")),
    request_body(content = Option<DrainRequest>),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn drain(call: Call) -> Answer {
    let key = key(&call)?;
    let request: DrainRequest = call.json_or_default()?;
    let alive = call.done(call.store().records(Shelf::Workers, call.now).await)?;
    if !alive.iter().any(|r| r.key == key) {
        return Err(no_worker(&key));
    }
    let body = serde_json::json!({ "order": "drain", "by": call.by(request.by), "at": call.now.to_string() });
    let expires = Some(call.now.plus_ms(ORDER_TTL_MS));
    call.done(
        call.store()
            .put_record(Record { shelf: Shelf::Orders, key, body: body.to_string(), expires }, call.now)
            .await,
    )?;
    none()
}
