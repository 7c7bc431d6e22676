//! Kinds.

use tidegate_core::codes;
use tidegate_core::ids::KindName;
use tidegate_core::registry::KindSettings;
use tidegate_wire::keys::Role;
use tidegate_wire::registry::{Kind, Kinds};
use tidegate_wire::{Problem, ProblemBody, nearest, schema};

use crate::call::{Answer, Call, none, ok};

/// All kinds.
#[utoipa::path(
    get, path = "/v1/kinds", tag = "kinds", operation_id = "kinds",
    responses((status = 200, body = Kinds), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.query()?.end()?;
    let kinds = call.done(call.store().kinds().await)?;
    ok(&Kinds { kinds: kinds.into_iter().map(Kind::from).collect() })
}

/// One kind.
#[utoipa::path(
    get, path = "/v1/kinds/{name}", tag = "kinds", operation_id = "kind",
    params(("name" = String, Path, example = "invoice.send")),
    responses((status = 200, body = Kind), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn get(call: Call) -> Answer {
    let name: KindName = call.param("name")?;
    let mut kinds = call.done(call.store().kinds().await)?;
    if let Some(at) = kinds.iter().position(|k| k.name == name) {
        return ok(&Kind::from(kinds.swap_remove(at)));
    }
    let near = nearest(name.as_str(), kinds.iter().map(|k| k.name.as_str()));
    let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
    Err(Problem::new(codes::UNKNOWN_KIND, format!("kind `{name}` is not registered{near}")))
}

/// Registers a kind.
#[utoipa::path(
    put, path = "/v1/kinds/{name}", tag = "kinds", operation_id = "put_kind",
    description = "Adds a kind or changes its settings. Its queue must exist.",
    params(("name" = String, Path, example = "invoice.send")),
    request_body(content = schema::KindSettings, example = json!({"queue": "billing", "timeout_ms": 30000, "max_attempts": 5})),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn put(call: Call) -> Answer {
    let name: KindName = call.param("name")?;
    let mut settings: KindSettings = call.json()?;
    // What a document described is changed by operators alone: a worker that registers itself leaves it as it is.
    settings.managed &= matches!(call.caller.role(), Role::Admin | Role::Operator);
    settings.check().map_err(|why| Problem::new(codes::INVALID_SETTING, format!("kind {name}: {why}")))?;
    call.done(call.store().put_kind(name, settings).await)?;
    none()
}
