//! The one table of routes: what there is, who may use it, what answers. The router is made from it, the checks ask it,
//! and tests walk through it.

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};
use tidegate_core::codes;
use tidegate_wire::Problem;

use crate::access::Access;
use crate::app::App;
use crate::call::{Answer, Call, refusal, short};
use crate::handlers::{
    alerts, dead, events, gates, jobs, keys, kinds, meta, parks, publish, queues, registry, schedules, work,
    workers,
};
use crate::{ServerRoles, gate};

type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A method on a path.
#[derive(Debug)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, with its parameters in braces.
    pub path: &'static str,
    /// Who may use it.
    pub access: Access,
    pub(crate) handler: fn(Call) -> Answering,
}

macro_rules! routes {
    ($($method:ident $path:literal $access:ident => $handler:path;)*) => {
        /// Every route, by path.
        pub const ROUTES: &[Route] = &[$(Route {
            method: Method::$method,
            path: $path,
            access: Access::$access,
            handler: |call| Box::pin($handler(call)),
        }),*];
    };
}

routes! {
    GET    "/live"                        OPEN         => meta::live;
    GET    "/ready"                       OPEN         => meta::ready;
    GET    "/health"                      OPEN         => meta::health;
    GET    "/metrics"                     OPERATE      => meta::metrics;
    GET    "/openapi.json"                OPEN         => meta::openapi;
    GET    "/v1/errors/{code}"            OPEN         => meta::error_page;
    GET    "/v1/about"                    ALL          => meta::about;
    POST   "/v1/jobs"                     ENQUEUE      => jobs::enqueue;
    GET    "/v1/jobs"                     BROWSE       => jobs::search;
    GET    "/v1/jobs/{id}"                LOOK_OR_HOLD => jobs::get;
    GET    "/v1/jobs/{id}/why"            LOOK         => jobs::why;
    GET    "/v1/jobs/{id}/dependencies"   LOOK_OR_HOLD => jobs::dependencies;
    POST   "/v1/jobs/{id}/cancel"         CONTROL      => jobs::cancel;
    POST   "/v1/jobs/{id}/run-now"        CONTROL      => jobs::run_now;
    PUT    "/v1/jobs/{id}/priority"       CONTROL      => jobs::reprioritise;
    GET    "/v1/queues"                   SERVE        => queues::list;
    POST   "/v1/queues"                   SERVE        => queues::ensure;
    GET    "/v1/queues/{name}"            SERVE        => queues::get;
    PUT    "/v1/queues/{name}"            OPERATE      => queues::put;
    POST   "/v1/queues/{name}/pause"      OPERATE      => queues::pause;
    POST   "/v1/queues/{name}/resume"     OPERATE      => queues::resume;
    GET    "/v1/settings"                 ALL          => queues::settings;
    GET    "/v1/kinds"                    ALL          => kinds::list;
    GET    "/v1/kinds/{name}"             ALL          => kinds::get;
    PUT    "/v1/kinds/{name}"             SERVE        => kinds::put;
    GET    "/v1/registry"                 OPERATE      => registry::get;
    PUT    "/v1/registry"                 OPERATE      => registry::put;
    GET    "/v1/registry/history"         OPERATE      => registry::history;
    GET    "/v1/registry/history/{number}" OPERATE     => registry::version;
    POST   "/v1/registry/rollback"        OPERATE      => registry::rollback;
    POST   "/v1/registry/refusals"        OPERATE      => registry::refuse;
    GET    "/v1/parks"                    CONTROL      => parks::list;
    PUT    "/v1/parks"                    CONTROL      => parks::put;
    DELETE "/v1/parks"                    CONTROL      => parks::delete;
    GET    "/v1/groups"                   CONTROL      => parks::groups;
    POST   "/v1/groups/{group}/pause"     CONTROL      => parks::pause_group;
    POST   "/v1/groups/{group}/resume"    CONTROL      => parks::resume_group;
    GET    "/v1/schedules"                OPERATE      => schedules::list;
    GET    "/v1/schedules/{name}"         OPERATE      => schedules::get;
    PUT    "/v1/schedules/{name}"         OPERATE      => schedules::put;
    DELETE "/v1/schedules/{name}"         OPERATE      => schedules::delete;
    POST   "/v1/schedules/{name}/pause"   OPERATE      => schedules::pause;
    POST   "/v1/schedules/{name}/resume"  OPERATE      => schedules::resume;
    POST   "/v1/schedules/{name}/run"     OPERATE      => schedules::run;
    GET    "/v1/schedules/{name}/ticks"   OPERATE      => schedules::ticks;
    GET    "/v1/schedules/{name}/next"    OPERATE      => schedules::next;
    POST   "/v1/backfills"                OPERATE      => schedules::backfill;
    GET    "/v1/dead"                     CONTROL      => dead::list;
    GET    "/v1/dead/causes"              CONTROL      => dead::causes;
    POST   "/v1/dead/process"             OPERATE      => dead::process;
    POST   "/v1/dead/recover"             CONTROL      => dead::recover;
    POST   "/v1/dead/reauthorized"        CONTROL      => dead::reauthorized;
    POST   "/v1/dead/{id}/resolve"        CONTROL      => dead::resolve;
    POST   "/v1/claims"                   WORK         => work::claim;
    POST   "/v1/settlements"              WORK         => work::settle;
    POST   "/v1/heartbeats"               WORK         => work::heartbeat;
    POST   "/v1/reports"                  WORK         => work::report;
    POST   "/v1/admissions"               WORK         => gates::admit;
    POST   "/v1/admissions/renew"         WORK         => gates::renew;
    POST   "/v1/admissions/settle"        WORK         => gates::settle;
    POST   "/v1/admissions/cancel"        WORK         => gates::cancel;
    GET    "/v1/gates"                    OPERATE      => gates::list;
    GET    "/v1/gates/settings"           SERVE        => gates::settings;
    GET    "/v1/gates/{domain}"           OPERATE      => gates::get;
    POST   "/v1/gates/{domain}"           OPERATE      => gates::act;
    GET    "/v1/gates/{domain}/traces"    CONTROL      => gates::traces;
    GET    "/v1/slo"                      OPERATE      => gates::slo;
    GET    "/v1/alerts"                   OPERATE      => alerts::list;
    GET    "/v1/alerts/rules"             OPERATE      => alerts::rules;
    GET    "/v1/alerts/silences"          OPERATE      => alerts::silences;
    POST   "/v1/alerts/silences"          OPERATE      => alerts::silence;
    DELETE "/v1/alerts/silences/{id}"     OPERATE      => alerts::unsilence;
    POST   "/v1/alerts/test"              OPERATE      => alerts::test;
    GET    "/v1/workers"                  OPERATE      => workers::list;
    PUT    "/v1/workers/{key}"            SERVE        => workers::announce;
    DELETE "/v1/workers/{key}"            SERVE        => workers::leave;
    POST   "/v1/workers/{key}/drain"      OPERATE      => workers::drain;
    GET    "/v1/orders"                   SERVE        => workers::orders;
    PUT    "/v1/orders/{key}"             OPERATE      => workers::put_order;
    DELETE "/v1/orders/{key}"             SERVE        => workers::delete_order;
    POST   "/v1/tenants/{tenant}/erase"   ADMIN        => dead::erase;
    GET    "/v1/totals"                   OPERATE      => dead::totals;
    GET    "/v1/events"                   BROWSE       => events::stream;
    POST   "/v1/events"                   ENQUEUE      => publish::publish;
    POST   "/v1/keys"                     ADMIN        => keys::create;
    GET    "/v1/keys"                     ADMIN        => keys::list;
    DELETE "/v1/keys/{id}"                ADMIN        => keys::revoke;
}

/// What every server has, whatever its roles: how it is.
pub(crate) const ALWAYS: &str = "/metrics";

/// The router of the table; without the API alone what needs no key, and the metrics.
pub(crate) fn router(app: &Arc<App>, roles: ServerRoles) -> Router {
    let mut router = Router::new();
    for route in ROUTES.iter().filter(|r| roles.api || r.access.open || r.path == ALWAYS) {
        let app = app.clone();
        let answer = move |request: Request| gate::serve(route, app, request);
        router = router.route(route.path, MethodRouter::new().merge(on(filter(&route.method), answer)));
    }
    router.fallback(unknown).method_not_allowed_fallback(wrong_method)
}

fn filter(method: &Method) -> MethodFilter {
    match *method {
        Method::POST => MethodFilter::POST,
        Method::PUT => MethodFilter::PUT,
        Method::DELETE => MethodFilter::DELETE,
        _ => MethodFilter::GET,
    }
}

async fn unknown(request: Request) -> axum::response::Response {
    refusal(&Problem::new(
        codes::ROUTE_NOT_FOUND,
        format!("there is nothing at {:?}", short(request.uri().path())),
    ))
}

async fn wrong_method(request: Request) -> axum::response::Response {
    let detail =
        format!("{:?} does not know {}", short(request.uri().path()), short(request.method().as_str()));
    refusal(&Problem::new(codes::WRONG_METHOD, detail))
}
