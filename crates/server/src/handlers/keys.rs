//! API keys. An admin whose key is restricted to a tenant manages that tenant's keys alone.

use axum::http::StatusCode;
use tidegate_core::codes;
use tidegate_wire::keys::{CreatedKey, Key, Keys, NewKey};
use tidegate_wire::{Problem, ProblemBody};

use crate::call::{Answer, Call, json, none, ok, short};
use crate::keys;

/// Makes a key.
#[utoipa::path(
    post, path = "/v1/keys", tag = "keys", operation_id = "create_key",
    description = "Makes a key. Its secret is in the answer and kept nowhere. With the first key the server asks for keys.",
    request_body(content = NewKey, example = json!({"name": "shop backend", "role": "producer", "tenant": "acme"})),
    responses((status = 201, body = CreatedKey), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn create(call: Call) -> Answer {
    let new: NewKey = call.json()?;
    if !call.caller.sees(new.tenant.as_ref()) {
        let detail = "a key of one tenant makes keys of that tenant alone";
        return Err(Problem::new(codes::NOT_ALLOWED, detail).at("/tenant"));
    }
    let created = call.done(keys::create(call.store(), new, call.now).await)?;
    call.app.keys.forget();
    json(StatusCode::CREATED, &created)
}

/// All keys.
#[utoipa::path(
    get, path = "/v1/keys", tag = "keys", operation_id = "keys",
    responses((status = 200, body = Keys), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.query()?.end()?;
    ok(&Keys { keys: visible(&call).await? })
}

async fn visible(call: &Call) -> Result<Vec<Key>, Problem> {
    let all = call.done(keys::list(call.store(), call.now).await)?;
    Ok(all.into_iter().filter(|k| call.caller.sees(k.tenant.as_ref())).collect())
}

/// Revokes a key.
#[utoipa::path(
    delete, path = "/v1/keys/{id}", tag = "keys", operation_id = "revoke_key",
    description = "Revokes a key: here at once, at other servers of the store within a second.",
    params(("id" = String, Path, example = "4f1c2a90b7d3")),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn revoke(call: Call) -> Answer {
    let id = call.text("id");
    let missing = || Problem::new(codes::KEY_NOT_FOUND, format!("there is no key {:?}", short(id)));
    if !visible(&call).await?.iter().any(|k| k.id == id) {
        return Err(missing());
    }
    let there = call.done(keys::revoke(call.store(), id, call.now).await)?;
    call.app.keys.forget();
    // Streams of the key end with this. If it fails, they hear of it with the next look.
    let _ = call.app.keys.known(call.store(), call.app.now()).await;
    if there { none() } else { Err(missing()) }
}
