//! One request on its way through a handler, and the answers a handler can give.

use std::str::FromStr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::codes;
use tidegate_core::ids::{InvalidName, JobId};
use tidegate_core::job::Job;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;
use tidegate_core::trace::TraceParent;
use tidegate_store::Store;
use tidegate_store::params::{Enqueued, NewJob};
use tidegate_wire::query::Query;
use tidegate_wire::{PROBLEM_CONTENT_TYPE, Problem, read};

use crate::access::Caller;
use crate::app::App;
use crate::body::Held;
use crate::places::Place;

/// Longest idempotency key.
const MAX_IDEMPOTENCY_KEY: usize = 255;

/// What handlers return.
pub(crate) type Answer = Result<Response, Problem>;

/// A request that passed every check, with its body read.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    pub(crate) parts: Parts,
    pub(crate) params: Vec<(String, String)>,
    pub(crate) body: Held,
    /// The connection it came by; none in process.
    pub(crate) place: Option<Arc<Place>>,
    pub(crate) now: Timestamp,
}

impl Call {
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.app.store
    }

    /// The result of a store's operation.
    pub(crate) fn done<T>(&self, result: tidegate_store::Result<T>) -> Result<T, Problem> {
        result.map_err(|e| self.app.problem(e))
    }

    /// A segment of the path, as text.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.params.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }

    /// A segment of the path.
    pub(crate) fn param<T: FromStr<Err = InvalidName>>(&self, name: &str) -> Result<T, Problem> {
        Ok(self.text(name).parse()?)
    }

    pub(crate) fn job_id(&self) -> Result<JobId, Problem> {
        // What cannot be an id is the id of nothing.
        let missing =
            |_| Problem::new(codes::JOB_NOT_FOUND, format!("there is no job {:?}", short(self.text("id"))));
        self.text("id").parse().map_err(missing)
    }

    /// The job of the path, if it is there for the caller.
    pub(crate) async fn job(&self, id: JobId) -> Result<Job, Problem> {
        let job = self.done(self.store().get(id).await)?;
        job.filter(|job| self.caller.sees(job.tenant.as_ref())).ok_or_else(|| no_job(id))
    }

    /// These jobs, as far as they exist, in this order.
    pub(crate) async fn jobs(&self, ids: Vec<JobId>) -> Result<Vec<Option<Job>>, Problem> {
        self.done(self.app.store.get_all(ids).await)
    }

    /// Within which key of the caller's the request is the same as one before, if it says so.
    pub(crate) fn idempotency_key(&self) -> Result<Option<&str>, Problem> {
        let Some(header) = self.parts.headers.get("idempotency-key") else { return Ok(None) };
        let key = header.to_str().unwrap_or_default();
        if key.is_empty() || key.len() > MAX_IDEMPOTENCY_KEY {
            let detail = format!("an idempotency key has 1 to {MAX_IDEMPOTENCY_KEY} visible characters");
            return Err(Problem::invalid(detail));
        }
        Ok(Some(key))
    }

    /// The trace that the request is part of. One that is malformed is ignored, as the standard asks for.
    fn traceparent(&self) -> Option<TraceParent> {
        let mut headers = self.parts.headers.get_all("traceparent").iter();
        let header = headers.next()?;
        // Which of several would be meant is not known.
        headers.next().is_none().then_some(())?;
        header.to_str().ok()?.parse().ok()
    }

    /// Stores jobs, as part of the trace of the request.
    pub(crate) async fn enqueue(&self, mut new: Vec<NewJob>) -> Result<Vec<Enqueued>, Problem> {
        if let Some(context) = self.traceparent() {
            for job in new.iter_mut().filter(|job| job.trace.is_none()) {
                job.trace = Some(context.to_string());
            }
        }
        let Some(telemetry) = &self.app.telemetry else {
            return self.done(self.store().enqueue(new, self.now).await);
        };
        let enqueueing = telemetry.enqueueing(&mut new, self.store().clock_ahead_ms());
        let result = self.store().enqueue(new, self.now).await;
        telemetry.enqueued(enqueueing, result.as_deref().map_err(|e| e.code.id));
        self.done(result)
    }

    /// Refuses if the job is not there for the caller; looks only if the caller is restricted.
    pub(crate) async fn check_sees(&self, id: JobId) -> Result<(), Problem> {
        if self.caller.tenant().is_some() {
            self.job(id).await?;
        }
        Ok(())
    }

    pub(crate) fn query_text(&self) -> &str {
        self.parts.uri.query().unwrap_or_default()
    }

    pub(crate) fn query(&self) -> Result<Query<'_>, Problem> {
        Query::new(self.query_text())
    }

    /// The body.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        self.check_content_type()?;
        read::from_slice(&self.body.bytes)
    }

    /// The body, or the default if there is none.
    pub(crate) fn json_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, Problem> {
        if self.body.bytes.is_empty() { Ok(T::default()) } else { self.json() }
    }

    pub(crate) fn check_content_type(&self) -> Result<(), Problem> {
        let given = self.parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if given == Some(b"application/json") {
            return Ok(());
        }
        let text = given.map(|g| String::from_utf8_lossy(g).to_ascii_lowercase()).unwrap_or_default();
        let (media, rest) = text.split_once(';').unwrap_or((&text, ""));
        let charset = rest.trim().strip_prefix("charset=").map(|c| c.trim_matches('"'));
        if media.trim() == "application/json" && (rest.trim().is_empty() || charset == Some("utf-8")) {
            return Ok(());
        }
        let detail = if text.is_empty() {
            "the request does not say what its body is".to_owned()
        } else {
            format!("{:?} is not JSON in UTF-8", short(&text))
        };
        Err(Problem::new(codes::CONTENT_TYPE, detail))
    }

    /// Lets go of the body: who waits for long must not keep memory that others wait for.
    pub(crate) fn forget_body(&mut self) {
        self.body = Held::default();
    }

    /// Who did it, as the request says or by the name of the key.
    ///
    /// What a restricted caller says of itself is bound to its key: two parks of one scope are told apart by who made
    /// them, and a name alone, even that of a key, can be anybody's.
    pub(crate) fn by(&self, given: Option<String>) -> String {
        let given = given.unwrap_or_else(|| self.caller.name().to_owned());
        let Some(key) = self.caller.key.as_ref().filter(|k| k.tenant.is_some()) else { return given };
        let bond = format!(" (key {})", key.id);
        // As the lists show it, it can be given back.
        if given.ends_with(&bond) {
            return given;
        }
        let name = given.floor_char_boundary(limits::MAX_NAME_BYTES.saturating_sub(bond.len()));
        format!("{}{bond}", &given[..name])
    }
}

/// Text from outside, cut so that it can be shown.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

pub(crate) fn no_job(id: JobId) -> Problem {
    Problem::new(codes::JOB_NOT_FOUND, format!("there is no job {id}"))
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An answer with a body.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let text = serde_json::to_vec(value)
        .map_err(|e| Problem::new(codes::INTERNAL, format!("an answer could not be written: {e}")))?;
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    Ok(response)
}

/// 200 with a body.
pub(crate) fn ok(value: &impl Serialize) -> Answer {
    json(StatusCode::OK, value)
}

/// 204.
#[expect(clippy::unnecessary_wraps, reason = "the last line of handlers, which return an answer")]
pub(crate) fn none() -> Answer {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// Text for people.
pub(crate) fn text(body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// A problem as an answer.
pub(crate) fn refusal(problem: &Problem) -> Response {
    // A problem is made of text and numbers: it can be written.
    let text = serde_json::to_vec(problem).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_CONTENT_TYPE));
    if let Some(ms) = problem.retry_after_ms {
        headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000).max(1)));
    }
    if problem.status == 401 {
        headers.insert(axum::http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
