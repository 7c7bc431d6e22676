//! The server itself: alive, ready, healthy, described.

use std::sync::LazyLock;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use tidegate_core::codes;
use tidegate_wire::health::{Health, Status};
use tidegate_wire::keys::About;
use tidegate_wire::{Problem, ProblemBody, nearest};

use crate::access::Access;
use crate::app::Phase;
use crate::call::{Answer, Call, json, ok, short, text};
use crate::gate;
use crate::watch::{exposition, judge};

/// Longest time that `/health` waits for the keys.
const LOOK_AT_KEYS: Duration = Duration::from_secs(1);

/// The process is alive.
#[utoipa::path(get, path = "/live", tag = "server", operation_id = "live", security(()),
    responses((status = 200, body = String, content_type = "text/plain", example = "alive\n")))]
pub(crate) async fn live(_: Call) -> Answer {
    Ok(text("alive\n".into()))
}

/// The server takes requests.
#[utoipa::path(get, path = "/ready", tag = "server", operation_id = "ready", security(()),
    description = "Whether to send requests here: the store answers and can be written to, and the server is not about to stop.",
    responses((status = 200, body = String, content_type = "text/plain", example = "ready\n"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn ready(call: Call) -> Answer {
    if *call.app.phase.borrow() != Phase::Serving {
        return Err(Problem::new(codes::SERVER_STOPPING, codes::SERVER_STOPPING.title).retry_after_ms(1_000));
    }
    if call.app.watch.is_writable() && call.app.pulse.beats(call.store().settings()).await {
        return Ok(text("ready\n".into()));
    }
    Err(Problem::new(codes::STORE_FAILED, codes::STORE_FAILED.title).retry_after_ms(1_000))
}

/// How the server is.
#[utoipa::path(get, path = "/health", tag = "server", operation_id = "health", security(()),
    description = "The worst that was found of store, gates, schedules, queues and workers. Where the server asks for keys, an operator's \
                   key shows queues, workers and dead letters, too.",
    responses((status = 200, body = Health), (status = 503, body = Health)))]
pub(crate) async fn health(call: Call) -> Answer {
    let app = &call.app;
    let snapshot = app.watch.snapshot(app).await;
    let mut health = judge(&snapshot, &app.watch.facts(app));
    if !sees_details(&call).await {
        health.details = None;
    }
    let red = health.status == Status::Unhealthy;
    json(if red { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, &health)
}

/// Names of queues and workers are not for strangers. While the keys cannot be looked at nobody sees them.
async fn sees_details(call: &Call) -> bool {
    let admitted = gate::admit(&call.app, &call.parts, call.place.as_deref());
    match tokio::time::timeout(LOOK_AT_KEYS, admitted).await {
        Ok(Ok(caller)) => caller.check(Access::OPERATE).is_ok(),
        Ok(Err(_)) | Err(_) => false,
    }
}

/// Metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "server", operation_id = "metrics",
    description = "The metrics of this process and of what it shares with others, in the text format of Prometheus.",
    responses((status = 200, body = String, content_type = "text/plain"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn metrics(call: Call) -> Answer {
    let mut response = Response::new(Body::from(exposition(&call.app).await));
    let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, format);
    Ok(response)
}

/// What the server is, and who asks.
#[utoipa::path(get, path = "/v1/about", tag = "server", operation_id = "about",
    responses((status = 200, body = About), (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn about(call: Call) -> Answer {
    let key = call.caller.key.as_deref().cloned();
    let gates = call.app.gates.as_ref().and_then(|gates| gates.backend.health()).filter(|g| !g.is_normal());
    let gates = gates.map(|g| g.sentence().to_owned());
    ok(&About { version: env!("CARGO_PKG_VERSION").into(), now: call.now.into(), key, gates })
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "server", operation_id = "openapi", security(()),
    responses((status = 200, body = Object, content_type = "application/json")))]
pub(crate) async fn openapi(_: Call) -> Answer {
    static TEXT: LazyLock<Bytes> =
        LazyLock::new(|| serde_json::to_vec(&crate::openapi::document()).unwrap_or_default().into());
    let mut response = Response::new(Body::from(TEXT.clone()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// What an error code means.
#[utoipa::path(get, path = "/v1/errors/{code}", tag = "server", operation_id = "error_page", security(()),
    params(("code" = String, Path, example = "TG2009")),
    responses((status = 200, body = String, content_type = "text/plain"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn error_page(call: Call) -> Answer {
    let given = call.text("code");
    let Some(code) = codes::find(given) else {
        let near = nearest(given, codes::ALL.iter().map(|c| c.id));
        let near = near.map_or(String::new(), |n| format!("; did you mean {n}?"));
        return Err(Problem::new(
            codes::CODE_NOT_FOUND,
            format!("there is no error {:?}{near}", short(given)),
        ));
    };
    Ok(text(format!("{}: {}\n\nWhat to do: {}.\n", code.id, code.title, code.hint)))
}
