//! The way of every request: key, role, tenant, rate, body, handler.

use std::any::Any;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::http::Method;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::response::Response;
use tidegate_core::codes;
use tidegate_wire::Problem;

use crate::access::Caller;
use crate::app::App;
use crate::body::{self, Held};
use crate::call::{Answer, Call, refusal};
use crate::origin;
use crate::places::Place;
use crate::rate::Sender;
use crate::routes::{ALWAYS, Route};

/// Answers a request to this route.
pub(crate) async fn serve(route: &'static Route, app: Arc<App>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let passed = Guarded(Box::pin(pass(route, &app, parts, body))).await;
    match passed {
        Ok(Ok(response)) => response,
        Ok(Err(problem)) => refusal(&hide(&app, problem)),
        Err(panic) => refusal(&app.incident(codes::INTERNAL, &panic_text(&*panic))),
    }
}

async fn pass(route: &'static Route, app: &Arc<App>, mut parts: Parts, body: axum::body::Body) -> Answer {
    let place = parts.extensions.get::<Arc<Place>>().cloned();
    let caller =
        if route.access.open { Caller::local() } else { admit(app, &parts, place.as_deref()).await? };
    if !route.access.open {
        caller.check(route.access)?;
        if let Some(rates) = &app.rates {
            rates.take(sender(&caller, place.as_deref()), Instant::now())?;
        }
    }
    // What says everything by its path is not asked for more, whatever it announces: a body would be held for nothing.
    let says_all = route.access.open || matches!(parts.method, Method::GET | Method::HEAD);
    let body = if says_all { Held::default() } else { body::read(app, body).await? };
    let params = params(route, &mut parts).await?;
    let call = Call { app: app.clone(), caller, parts, params, body, place, now: app.now() };
    (route.handler)(call).await
}

/// Who sends this, if a key says so or none is needed.
pub(crate) async fn admit(app: &App, parts: &Parts, place: Option<&Place>) -> Result<Caller, Problem> {
    let header = parts.headers.get(AUTHORIZATION).map(|h| h.to_str().unwrap_or_default());
    let token = header
        .and_then(|h| h.split_at_checked(7))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer "))
        .map(|(_, token)| token.trim());
    // While the store is away, what was last known of keys is good enough to be told that it is away.
    let last = |error| match app.keys.last().filter(|_| parts.uri.path() == ALWAYS) {
        Some(last) => Ok(last),
        None => Err(app.problem(error)),
    };
    let mut known = app.keys.known(&*app.store, app.now()).await.or_else(last)?;
    if token.is_some_and(|token| !known.knows(token)) {
        known = app.keys.look_again(&*app.store, app.now()).await.or_else(last)?;
    }
    if !known.any() {
        origin::check(parts, place.map(|p| p.peer.ip()))?;
        return Ok(Caller::local());
    }
    let token = token.ok_or_else(|| Problem::new(codes::NO_KEY, "this server asks for a key"))?;
    Ok(Caller { key: Some(known.find(token)?) })
}

fn sender(caller: &Caller, place: Option<&Place>) -> Sender {
    match &caller.key {
        Some(key) => Sender::Key(key.id.clone()),
        None => Sender::Address(place.map_or(IpAddr::from([127, 0, 0, 1]), |p| p.peer.ip())),
    }
}

async fn params(route: &Route, parts: &mut Parts) -> Result<Vec<(String, String)>, Problem> {
    if !route.path.contains('{') {
        return Ok(vec![]);
    }
    let raw = RawPathParams::from_request_parts(parts, &())
        .await
        .map_err(|_| Problem::invalid("the path is not UTF-8"))?;
    Ok(raw.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// What a handler reports as ours is logged here, and told without its detail.
fn hide(app: &App, problem: Problem) -> Problem {
    if problem.status == 500 && problem.incident.is_none() {
        return app.incident(codes::INTERNAL, &problem.detail);
    }
    problem
}

/// Turns a panic into a value: a defect in one handler must not take its connection's other requests along.
struct Guarded<F>(Pin<Box<F>>);

impl<F: Future> Future for Guarded<F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // After a panic the future is not polled again.
        match std::panic::catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    format!("a handler panicked: {}", text.unwrap_or("no message"))
}
