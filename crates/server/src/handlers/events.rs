//! The event stream.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Method};
use axum::response::Response;
use tidegate_core::codes;
use tidegate_store::feed::EventId;
use tidegate_wire::ProblemBody;
use tidegate_wire::events::JobEvent;

use super::jobs::too_many_waiting;
use crate::audience::Filter;
use crate::call::{Answer, Call};
use crate::connection::Streams;
use crate::stream;

/// Follows what happens to jobs.
#[utoipa::path(
    get, path = "/v1/events", tag = "events", operation_id = "events",
    description = "Server-sent events: what happens to jobs, from now on or after `Last-Event-ID`. Each message has an \
                   `id`, an `event` (`enqueued`, `started`, `completed`, `retry`, `snoozed`, `released`, `stalled`, \
                   `dead`, `cancelled`) and `data`. A message `gap` says that some events are no longer to be had: look at \
                   the jobs themselves.",
    params(
        ("queue" = Option<String>, Query), ("kind" = Option<String>, Query), ("tenant" = Option<String>, Query),
        ("job" = Option<String>, Query),
        ("Last-Event-ID" = Option<String>, Header, description = "Go on after this event"),
    ),
    responses(
        (status = 200, body = JobEvent, content_type = "text/event-stream", example = json!(
            "id: 19a8f-12-0\nevent: completed\ndata: {\"event\":\"completed\",\"at\":\"2026-11-15T07:30:00.000Z\",\"id\":\"job_01JCQ5V9N0E4T8GQ6W2Y3K7MZB\",\"queue\":\"billing\",\"kind\":\"invoice.send\"}\n\n"
        )),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn stream(call: Call) -> Answer {
    let mut query = call.query()?;
    let mut filter = Filter {
        queue: query.parse("queue", codes::INVALID_NAME)?,
        kind: query.parse("kind", codes::INVALID_NAME)?,
        tenant: query.parse("tenant", codes::INVALID_NAME)?,
        job: query.parse("job", codes::INVALID_NAME)?,
    };
    query.end()?;
    if let Some(own) = call.caller.tenant() {
        if filter.tenant.as_ref().is_some_and(|t| t != own) {
            let detail = format!("a key of tenant `{own}` sees that tenant's events alone");
            return Err(tidegate_wire::Problem::new(codes::NOT_ALLOWED, detail).at("?tenant"));
        }
        filter.tenant = Some(own.clone());
    }
    // Who asks for the head alone would never read a stream, and hold it until it is cut off.
    let head_alone = call.parts.method == Method::HEAD;
    let mut response = if head_alone {
        Response::new(Body::empty())
    } else {
        let place = Arc::clone(&call.app.streams).try_acquire_owned().map_err(|_| too_many_waiting())?;
        let key = call.caller.key.as_ref().map(|k| k.id.clone());
        let mut response =
            Response::new(Body::new(stream::start(&call.app, filter, key, last_event(&call), place)));
        response.extensions_mut().insert(Streams);
        response
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that collect answers would hold events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// The event after which the client goes on. An id that this server cannot read is one from elsewhere: a gap.
fn last_event(call: &Call) -> Option<EventId> {
    let given = call.parts.headers.get("last-event-id")?.to_str().unwrap_or_default();
    if given.is_empty() {
        return None;
    }
    Some(given.parse().unwrap_or(EventId { origin: u64::MAX, commit: u64::MAX, place: u32::MAX }))
}
