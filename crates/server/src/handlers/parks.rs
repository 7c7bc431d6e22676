//! Parks and groups. A restricted caller sees and makes parks of its own group alone, and ends those that it made: who made
//! one is bound to its key.

use std::collections::BTreeMap;

use tidegate_core::codes;
use tidegate_core::ids::GroupKey;
use tidegate_core::job::{self, ParkScope};
use tidegate_wire::parks::{Group, Groups, Park, ParkQuery, ParkRequest, Parks, Pause, Resume};
use tidegate_wire::{Problem, ProblemBody};

use crate::call::{Answer, Call, none, ok};

pub(crate) fn no_park(scope: &ParkScope, by: &str) -> Problem {
    Problem::new(codes::PARK_NOT_FOUND, format!("there is no park of {scope} by {by:?}"))
}

fn group_of(scope: &ParkScope) -> Option<&GroupKey> {
    match scope {
        ParkScope::Group(group) | ParkScope::GroupOnConnector(group, _) => Some(group),
        ParkScope::Queue(_) | ParkScope::Connector(_) => None,
    }
}

pub(super) fn sees(call: &Call, scope: &ParkScope) -> bool {
    call.caller.tenant().is_none() || group_of(scope).is_some_and(|g| call.caller.sees_group(g))
}

/// Refuses a scope that is not the caller's to stop.
fn check(call: &Call, scope: &ParkScope) -> Result<(), Problem> {
    if sees(call, scope) {
        return Ok(());
    }
    Err(Problem::new(codes::NOT_ALLOWED, format!("a key of one tenant cannot stop or resume {scope}")))
}

async fn visible(call: &Call) -> Result<Vec<job::Park>, Problem> {
    let parks = call.done(call.store().parks().await)?;
    Ok(parks.into_iter().filter(|p| sees(call, &p.scope)).collect())
}

/// All parks.
#[utoipa::path(
    get, path = "/v1/parks", tag = "parks", operation_id = "parks",
    responses((status = 200, body = Parks), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.query()?.end()?;
    ok(&Parks { parks: visible(&call).await?.into_iter().map(Park::from).collect() })
}

/// Stops a scope.
#[utoipa::path(
    put, path = "/v1/parks", tag = "parks", operation_id = "park",
    description = "Adds a park, or replaces the one of the same scope and owner.",
    request_body(content = ParkRequest, example = json!({
        "scope": {"group": "acme", "connector": "shopify"}, "pause": {"by": "ada", "reason": "their shop moves", "for_ms": 600_000}
    })),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn put(call: Call) -> Answer {
    let mut request: ParkRequest = call.json()?;
    request.pause.by = Some(call.by(request.pause.by));
    let park = request.into_park(call.caller.name(), call.now)?;
    add(&call, park).await
}

async fn add(call: &Call, park: job::Park) -> Answer {
    check(call, &park.scope)?;
    call.done(call.store().park(park, call.now).await)?;
    none()
}

/// Removes a park.
#[utoipa::path(
    delete, path = "/v1/parks", tag = "parks", operation_id = "unpark",
    description = "Removes a park; those of others stay.",
    params(
        ("queue" = Option<String>, Query), ("group" = Option<String>, Query), ("connector" = Option<String>, Query),
        ("by" = Option<String>, Query, description = "Whose park; the name of the key if not given"),
    ),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn delete(call: Call) -> Answer {
    let ParkQuery { scope, by } = ParkQuery::from_query(call.query_text())?;
    remove(&call, scope.into_scope()?, by).await
}

async fn remove(call: &Call, scope: ParkScope, by: Option<String>) -> Answer {
    check(call, &scope)?;
    let by = call.by(by);
    let there = call.done(call.store().unpark(scope.clone(), by.clone(), call.now).await)?;
    if there { none() } else { Err(no_park(&scope, &by)) }
}

/// Groups that are stopped.
#[utoipa::path(
    get, path = "/v1/groups", tag = "parks", operation_id = "groups",
    description = "Groups that are stopped, with what stops them.",
    responses((status = 200, body = Groups), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn groups(call: Call) -> Answer {
    call.query()?.end()?;
    let mut groups: BTreeMap<GroupKey, Vec<Park>> = BTreeMap::new();
    for park in visible(&call).await? {
        if let Some(group) = group_of(&park.scope).cloned() {
            groups.entry(group).or_default().push(park.into());
        }
    }
    ok(&Groups { groups: groups.into_iter().map(|(name, parks)| Group { name, parks }).collect() })
}

/// Pauses a group.
#[utoipa::path(
    post, path = "/v1/groups/{group}/pause", tag = "parks", operation_id = "pause_group",
    params(("group" = String, Path, example = "acme")),
    request_body(content = Option<Pause>, example = json!({"by": "ada", "reason": "they asked for it"})),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn pause_group(call: Call) -> Answer {
    let scope = ParkScope::Group(call.param("group")?);
    let mut pause: Pause = call.json_or_default()?;
    pause.by = Some(call.by(pause.by));
    let park = pause.into_park(scope, call.caller.name(), call.now)?;
    add(&call, park).await
}

/// Resumes a group.
#[utoipa::path(
    post, path = "/v1/groups/{group}/resume", tag = "parks", operation_id = "resume_group",
    description = "Ends a pause; those of others stay.",
    params(("group" = String, Path, example = "acme")),
    request_body(content = Option<Resume>),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn resume_group(call: Call) -> Answer {
    let scope = ParkScope::Group(call.param("group")?);
    let resume: Resume = call.json_or_default()?;
    remove(&call, scope, resume.by).await
}
