//! The API described: what `/openapi.json` serves. Tests compare it with the table of routes.

use tidegate_wire::schema;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi, ToSchema};

use crate::handlers::{
    alerts, dead, events, gates, jobs, keys, kinds, meta, parks, publish, queues, registry, schedules, work,
    workers,
};

/// One of something, or an array of them.
#[derive(Debug, serde::Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum OneOrMany<T> {
    #[expect(unused, reason = "a shape for the document")]
    One(T),
    #[expect(unused, reason = "a shape for the document")]
    Many(Vec<T>),
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tidegate",
        description = "Durable background jobs that stay inside what other people's APIs allow.\n\n\
            Times are RFC 3339 in UTC; spans are milliseconds and their names end in `_ms`; ids are strings. Unknown \
            fields are refused. Errors are problems (RFC 9457) with a stable `code`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        meta::live, meta::ready, meta::health, meta::metrics, meta::openapi, meta::error_page, meta::about,
        jobs::enqueue, jobs::search, jobs::get, jobs::why, jobs::dependencies, jobs::cancel, jobs::run_now, jobs::reprioritise,
        queues::list, queues::ensure, queues::get, queues::put, queues::pause, queues::resume, queues::settings,
        kinds::list, kinds::get, kinds::put,
        registry::get, registry::put, registry::history, registry::version, registry::rollback, registry::refuse,
        parks::list, parks::put, parks::delete, parks::groups, parks::pause_group, parks::resume_group,
        schedules::list, schedules::get, schedules::put, schedules::delete, schedules::pause, schedules::resume,
        schedules::run, schedules::ticks, schedules::next, schedules::backfill,
        dead::list, dead::causes, dead::process, dead::recover, dead::reauthorized, dead::resolve, dead::erase, dead::totals,
        work::claim, work::settle, work::heartbeat, work::report,
        gates::admit, gates::renew, gates::settle, gates::cancel, gates::list, gates::settings, gates::get, gates::act,
        gates::traces, gates::slo,
        alerts::list, alerts::rules, alerts::silences, alerts::silence, alerts::unsilence, alerts::test,
        workers::list, workers::announce, workers::leave, workers::drain, workers::orders, workers::put_order,
        workers::delete_order,
        events::stream, publish::publish,
        keys::create, keys::list, keys::revoke,
    ),
    components(schemas(schema::State, schema::Category)),
    security(("key" = [])),
    modifiers(&Key, &Unreachable),
)]
struct Document;

/// The key as a bearer token. A server without keys needs none.
struct Key;

impl Modify for Key {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An API key, `tg_…`. A server on loopback without any key needs none."))
            .build();
        openapi.components.get_or_insert_default().add_security_scheme("key", SecurityScheme::Http(scheme));
    }
}

/// The document.
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

/// What any route answers that asks the store: the store may be out of reach.
struct Unreachable;

impl Modify for Unreachable {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        for item in openapi.paths.paths.values_mut() {
            let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                let responses = &mut operation.responses.responses;
                if let Some(refused) = responses.get("4XX").cloned() {
                    responses.entry("5XX".into()).or_insert(refused);
                }
            }
        }
    }
}
