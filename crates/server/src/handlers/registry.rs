//! The registry as a whole: read, applied, its history, and back.

use axum::http::header::CONTENT_TYPE;
use tidegate_core::codes;
use tidegate_core::limits;
use tidegate_core::registry::{Format, written};
use tidegate_store::offer::{self, Offer, Offered};
use tidegate_store::params::{Apply, RefusedDocument, Wanted};
use tidegate_wire::versions::{
    AppliedReply, History, NumberReply, RefusalRequest, RegistryReply, RollbackRequest, VersionReply,
};
use tidegate_wire::{Problem, ProblemBody};

use crate::call::{Answer, Call, ok, short};

/// The registry as it is.
#[utoipa::path(
    get, path = "/v1/registry", tag = "registry", operation_id = "registry",
    responses((status = 200, body = RegistryReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn get(call: Call) -> Answer {
    let mut query = call.query()?;
    let full = query.parse("full", codes::INVALID_REQUEST)?.unwrap_or(false);
    query.end()?;
    let document = call.done(call.store().registry().await)?;
    ok(&RegistryReply { document: written(&document, full) })
}

/// Applies a document.
#[utoipa::path(
    put, path = "/v1/registry", tag = "registry", operation_id = "put_registry",
    description = "Adds and changes the queues, kinds and policies that a document names, all of them or none; what it does not \
                   name stays. JSON, or TOML with `content-type: application/toml`. A document with a mistake changes nothing, and \
                   history keeps that it was refused. `document` says which document it is; else `source` does.",
    params(
        ("dry_run" = Option<bool>, Query, description = "Only say what would change"),
        ("source" = Option<String>, Query, description = "Where the document came from, for the history; without a name of its own it is known by that"),
        ("by" = Option<String>, Query, description = "Who sends it, if not the key"),
    ),
    request_body(content = Object, example = json!({"queues": {"billing": {"concurrency": 50}}, "kinds": {"invoice.send": {"queue": "billing", "timeout": "30s"}}})),
    responses((status = 200, body = AppliedReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn put(call: Call) -> Answer {
    let mut query = call.query()?;
    let dry_run = query.parse("dry_run", codes::INVALID_REQUEST)?.unwrap_or(false);
    let source = query.take("source")?.map_or_else(|| "api".into(), std::borrow::Cow::into_owned);
    let by = call.by(query.take("by")?.map(std::borrow::Cow::into_owned));
    query.end()?;
    let format = format(&call)?;
    let text = std::str::from_utf8(&call.body.bytes)
        .map_err(|e| Problem::invalid(format!("the body is not UTF-8: byte {} is wrong", e.valid_up_to())))?;
    let offer = Offer { text, format, by: &by, source: &source, dry_run, now: call.now };
    match call.done(offer::offer(call.store(), offer).await)? {
        Offered::Applied(applied) => ok(&AppliedReply::from(applied)),
        Offered::Refused(problems) => {
            let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Err(Problem::new(codes::INVALID_REGISTRY, said.join("\n")))
        }
    }
}

fn format(call: &Call) -> Result<Format, Problem> {
    let given = call.parts.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if given.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case("application/toml")) {
        return Ok(Format::Toml);
    }
    call.check_content_type()?;
    Ok(Format::Json)
}

/// What was applied and refused.
#[utoipa::path(
    get, path = "/v1/registry/history", tag = "registry", operation_id = "registry_history",
    params(("limit" = Option<u32>, Query, description = "At most this many")),
    responses((status = 200, body = History), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn history(call: Call) -> Answer {
    let mut query = call.query()?;
    let most = limits::MAX_REGISTRY_VERSIONS + limits::MAX_REGISTRY_REFUSALS;
    let limit = query.parse("limit", codes::INVALID_REQUEST)?.map_or(most, |n: u32| n as usize);
    query.end()?;
    let versions = call.done(call.store().versions(limit).await)?;
    ok(&History { versions: versions.into_iter().map(Into::into).collect() })
}

/// One version with its document.
#[utoipa::path(
    get, path = "/v1/registry/history/{number}", tag = "registry", operation_id = "registry_version",
    params(("number" = u64, Path, example = 7)),
    responses((status = 200, body = VersionReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn version(call: Call) -> Answer {
    call.query()?.end()?;
    let missing = || {
        let detail = format!("the registry has no version {:?}", short(call.text("number")));
        Problem::new(codes::VERSION_NOT_FOUND, detail)
    };
    let number = call.text("number").parse().map_err(|_| missing())?;
    let found = call.done(call.store().version(number).await)?.ok_or_else(missing)?;
    let document = found.document.map(|d| written(&d, true));
    ok(&VersionReply { info: found.info.into(), document })
}

/// Goes back to a version.
#[utoipa::path(
    post, path = "/v1/registry/rollback", tag = "registry", operation_id = "registry_rollback",
    description = "Makes the registry what it was from a version on, as a new version. Kinds and queues that came later stay, because jobs \
                   may name them, but events and schedules no longer enqueue them.",
    request_body(content = RollbackRequest, example = json!({"version": 7})),
    responses((status = 200, body = AppliedReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn rollback(call: Call) -> Answer {
    let request: RollbackRequest = call.json()?;
    let apply = Apply {
        wanted: Wanted::Version(request.version),
        by: call.by(request.by),
        source: format!("rollback to {}", request.version),
        dry_run: request.dry_run,
        now: call.now,
    };
    ok(&AppliedReply::from(call.done(call.store().apply(apply).await)?))
}

/// Keeps in the history that a document was refused.
#[utoipa::path(
    post, path = "/v1/registry/refusals", tag = "registry", operation_id = "registry_refusal",
    request_body(content = RefusalRequest, example = json!({"source": "registry.toml", "hash": "0", "problems": [{"path": "kinds.x.queue", "what": "it is missing"}]})),
    responses((status = 200, body = NumberReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn refuse(call: Call) -> Answer {
    let request: RefusalRequest = call.json()?;
    let RefusalRequest { by, source, hash, problems } = request;
    let refused = RefusedDocument { by: call.by(by), source, hash, problems };
    ok(&NumberReply { number: call.done(call.store().refuse(refused, call.now).await)? })
}
