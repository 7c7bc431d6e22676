//! The server itself: alive, ready, healthy, described.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;
use tidegate_core::codes;
use tidegate_wire::keys::About;
use tidegate_wire::{Problem, ProblemBody, nearest};

use crate::app::Phase;
use crate::call::{Answer, Call, json, ok, short, text};

/// How the server is.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Health {
    /// `ok`, `degraded` (jobs run, gates go on without their backend), or `failing`.
    #[schema(example = "ok")]
    status: &'static str,
    /// Version of the server.
    version: &'static str,
    /// What the store said.
    #[schema(example = "ok")]
    store: &'static str,
    /// `ok`, or what is wrong with the gates' backend. Absent where there are no gates that processes share.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "ok")]
    gates: Option<&'static str>,
}

/// The process is alive.
#[utoipa::path(get, path = "/live", tag = "server", operation_id = "live", security(()),
    responses((status = 200, body = String, content_type = "text/plain", example = "alive\n")))]
pub(crate) async fn live(_: Call) -> Answer {
    Ok(text("alive\n".into()))
}

/// The server takes requests.
#[utoipa::path(get, path = "/ready", tag = "server", operation_id = "ready", security(()),
    description = "Whether to send requests here: the store answers, and the server is not about to stop.",
    responses((status = 200, body = String, content_type = "text/plain", example = "ready\n"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn ready(call: Call) -> Answer {
    if *call.app.phase.borrow() != Phase::Serving {
        return Err(Problem::new(codes::SERVER_STOPPING, codes::SERVER_STOPPING.title).retry_after_ms(1_000));
    }
    if call.app.pulse.beats(call.store().settings()).await {
        return Ok(text("ready\n".into()));
    }
    Err(Problem::new(codes::STORE_FAILED, codes::STORE_FAILED.title).retry_after_ms(1_000))
}

/// How the server is.
#[utoipa::path(get, path = "/health", tag = "server", operation_id = "health", security(()),
    responses((status = 200, body = Health), (status = 503, body = Health)))]
pub(crate) async fn health(call: Call) -> Answer {
    let fine = call.app.pulse.beats(call.store().settings()).await;
    let gates = call.app.gates.as_ref().and_then(|gates| gates.backend.health());
    let status = match gates {
        _ if !fine => "failing",
        Some(gates) if !gates.is_normal() => "degraded",
        _ => "ok",
    };
    let health = Health {
        status,
        version: env!("CARGO_PKG_VERSION"),
        store: if fine { "ok" } else { "failing" },
        gates: gates.map(|g| if g.is_normal() { "ok" } else { g.sentence() }),
    };
    json(if fine { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &health)
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
