//! Jobs on the wire: enqueueing, looking, finding, controlling.

use serde::{Deserialize, Serialize};
use tidegate_core::codes;
use tidegate_core::failure::Category;
use tidegate_core::ids::{GroupKey, JobId, KindName, QueueName, TenantId};
use tidegate_core::job::{self, OnDead, Priority, Review, State, Unique};
use tidegate_core::limits;
use tidegate_core::retry::RetryPolicy;
use tidegate_core::time::Timestamp;
use tidegate_core::trace::TraceParent;
use tidegate_store::params;

use crate::query::{Query, Writer};
use crate::settlements::one_time;
use crate::{Cursor, Json, Problem, Time};

mod view;
pub use view::{DeadLetter, ErrorEntry, Held, Job, LogLine, Progress, Waits};

/// A job to be enqueued. What is not given comes from its kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EnqueueJob {
    /// Its id, if the caller makes ids; the same job sent again under the same id is stored once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub id: Option<JobId>,
    /// Its kind; must be registered.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "invoice.send"))]
    pub kind: KindName,
    /// What to do: any JSON, `null` if not given.
    #[serde(default = "Json::null")]
    #[cfg_attr(feature = "openapi", schema(required = false, example = json!({"order": 7})))]
    pub payload: Json,
    /// Queue other than the kind's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub queue: Option<QueueName>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "acme"))]
    pub tenant: Option<TenantId>,
    /// Group other than the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub group: Option<GroupKey>,
    /// Importance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Priority>))]
    pub priority: Option<Priority>,
    /// Not before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Time>,
    /// The same as a span from now; not with `run_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<i64>,
    /// Timeout of one attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    /// Cap on attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Its own retry policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::RetryPolicy>))]
    pub retry: Option<RetryPolicy>,
    /// Unique key: at most one job of the kind under it at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Unique>))]
    pub unique: Option<Unique>,
    /// Trace context (W3C) to go on with; wins over the header of the request.
    #[serde(default, alias = "trace", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    )]
    pub traceparent: Option<String>,
    /// Jobs that it waits for: stored ones, or others of the same request by the ids that it gives them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub after: Vec<JobId>,
    /// What becomes of it when one of them ends dead or cancelled; `fail` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::OnDead>))]
    pub on_dead: Option<OnDead>,
}

impl EnqueueJob {
    /// The request of somebody for whom it is `now`. Its time goes as a span: the clocks of two machines differ.
    pub fn new(job: params::NewJob, now: Timestamp) -> Self {
        Self {
            id: Some(job.id),
            kind: job.kind,
            payload: job.payload.into(),
            queue: job.queue,
            tenant: job.tenant,
            group: job.group,
            priority: job.priority,
            run_at: None,
            delay_ms: job.run_at.map(|t| t.since(now).max(0)),
            timeout_ms: job.timeout_ms,
            max_attempts: job.max_attempts,
            retry: job.retry,
            unique: job.unique,
            traceparent: job.trace,
            on_dead: (!job.after.is_empty()).then_some(job.on_dead),
            after: job.after,
        }
    }

    /// The job at this time. `fresh` is its id if the caller made none.
    pub fn into_new_job(
        self,
        fresh: impl FnOnce() -> JobId,
        now: Timestamp,
    ) -> Result<params::NewJob, Problem> {
        let run_at = one_time(self.run_at, self.delay_ms, ("run_at", "delay_ms"), now)?;
        let payload = self.payload.checked(limits::MAX_PAYLOAD_BYTES, "/payload")?;
        let trace = self.traceparent.map(|text| text.parse::<TraceParent>()).transpose();
        let trace = trace.map_err(|e| Problem::invalid(e.to_string()).at("/traceparent"))?;
        Ok(params::NewJob {
            // An id from outside may have been used before, whatever its sender believes.
            id_may_exist: self.id.is_some(),
            id: self.id.unwrap_or_else(fresh),
            kind: self.kind,
            queue: self.queue,
            tenant: self.tenant,
            group: self.group,
            payload,
            priority: self.priority,
            run_at,
            timeout_ms: self.timeout_ms,
            max_attempts: self.max_attempts,
            retry: self.retry,
            unique: self.unique,
            trace: trace.map(|t| t.to_string()),
            after: self.after,
            on_dead: self.on_dead.unwrap_or_default(),
        })
    }
}

/// Reply to one enqueued job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Enqueued {
    /// The job: the new one, or the one that holds the key.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "job_01JCQ5V9N0E4T8GQ6W2Y3K7MZB"))]
    pub id: JobId,
    /// What was done.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::EnqueueOutcome))]
    pub outcome: params::EnqueueOutcome,
}

impl From<params::Enqueued> for Enqueued {
    fn from(e: params::Enqueued) -> Self {
        Self { id: e.id, outcome: e.outcome }
    }
}

impl From<Enqueued> for params::Enqueued {
    fn from(e: Enqueued) -> Self {
        Self { id: e.id, outcome: e.outcome }
    }
}

/// A page of jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobPage {
    /// The jobs, the newest first.
    pub jobs: Vec<Job>,
    /// Where to go on; `null`: that was all. A page may be short and yet not the last.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub next: Option<Cursor>,
}

impl From<params::Page> for JobPage {
    fn from(page: params::Page) -> Self {
        Self { jobs: page.jobs.into_iter().map(Job::from).collect(), next: page.next.map(Cursor) }
    }
}

impl From<JobPage> for params::Page {
    fn from(page: JobPage) -> Self {
        Self { jobs: page.jobs.into_iter().map(Into::into).collect(), next: page.next.map(|c| c.0) }
    }
}

/// Jobs of a page if the request does not say.
pub const DEFAULT_PAGE: usize = 50;

/// A search as a query string.
pub fn search_to_query(q: &params::JobQuery) -> String {
    let states: Vec<&str> = q.states.iter().map(|s| s.as_str()).collect();
    Writer::default()
        .with("state", (!states.is_empty()).then(|| states.join(",")))
        .with("queue", q.queue.as_ref())
        .with("kind", q.kind.as_ref())
        .with("tenant", q.tenant.as_ref())
        .with("group", q.group.as_ref())
        .with("created_from", q.created_from.map(Time))
        .with("created_before", q.created_before.map(Time))
        .with("text", q.text.as_ref())
        .with("review", q.review.map(Review::as_str))
        .with("cause", q.cause)
        .with("category", q.category.map(Category::as_str))
        .with("connector", q.connector.as_ref())
        .with("limit", Some(q.limit))
        .with("cursor", q.cursor.map(Cursor))
        .end()
}

/// The search of a query string.
pub fn search_from_query(text: &str) -> Result<params::JobQuery, Problem> {
    let mut q = Query::new(text)?;
    let bad = codes::INVALID_REQUEST;
    let states = match q.take("state")? {
        None => vec![],
        Some(list) => list
            .split(',')
            .map(|s| s.trim().parse::<State>().map_err(|e| Problem::new(bad, e).at("?state")))
            .collect::<Result<_, _>>()?,
    };
    let review = match q.take("review")? {
        None => None,
        Some(name) => Some(review(&name).ok_or_else(|| {
            let known = REVIEWS.map(Review::as_str).join(", ");
            Problem::new(bad, format!("not a review status (expected {known})")).at("?review")
        })?),
    };
    let category = match q.take("category")? {
        None => None,
        Some(name) => Some(Category::parse(&name).ok_or_else(|| {
            let known = Category::ALL.map(Category::as_str).join(", ");
            Problem::new(bad, format!("not a category (expected {known})")).at("?category")
        })?),
    };
    let query = params::JobQuery {
        states,
        review,
        category,
        cause: q.parse("cause", bad)?,
        connector: q.parse("connector", codes::INVALID_NAME)?,
        queue: q.parse("queue", codes::INVALID_NAME)?,
        kind: q.parse("kind", codes::INVALID_NAME)?,
        tenant: q.parse("tenant", codes::INVALID_NAME)?,
        group: q.parse("group", codes::INVALID_NAME)?,
        created_from: q.parse::<Time>("created_from", codes::INVALID_TIME)?.map(|t| t.0),
        created_before: q.parse::<Time>("created_before", codes::INVALID_TIME)?.map(|t| t.0),
        text: q.take("text")?.map(std::borrow::Cow::into_owned),
        limit: q.parse("limit", bad)?.unwrap_or(DEFAULT_PAGE),
        cursor: q.parse::<Cursor>("cursor", bad)?.map(|c| c.0),
    };
    q.end()?;
    if !(1..=limits::MAX_PAGE).contains(&query.limit) {
        let detail = format!("limit must be between 1 and {}", limits::MAX_PAGE);
        return Err(Problem::new(bad, detail).at("?limit"));
    }
    Ok(query)
}

const REVIEWS: [Review; 4] =
    [Review::PendingReview, Review::ManualResolved, Review::AutoResolved, Review::Abandoned];

fn review(name: &str) -> Option<Review> {
    REVIEWS.into_iter().find(|r| r.as_str() == name)
}

/// Cancel a job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CancelRequest {
    /// By whom and why, for the record.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(example = "ada: sent twice"))]
    pub note: String,
    /// Whether those who wait for it are cancelled, too, and those who wait for them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cascade: bool,
}

/// A job that another one waits, or waited, for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Dependency {
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: JobId,
    /// Where it stands.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::State))]
    pub state: State,
    /// Its result, once completed; missing if it completed without one.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "Json::given")]
    pub result: Option<Json>,
    /// Code of what it died of, if it is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// Jobs that a job waits, or waited, for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DependencyPage {
    /// Some of them, in the order in which they were stored.
    pub jobs: Vec<Dependency>,
    /// What to skip next; `null`: that was all.
    pub next: Option<u32>,
}

impl From<params::Dependencies> for DependencyPage {
    fn from(page: params::Dependencies) -> Self {
        let job = |d: job::Dependency| Dependency {
            id: d.id,
            state: d.state,
            result: d.result.map(Json::from),
            code: d.code,
        };
        Self { jobs: page.jobs.into_iter().map(job).collect(), next: page.next }
    }
}

impl From<DependencyPage> for params::Dependencies {
    fn from(page: DependencyPage) -> Self {
        let job = |d: Dependency| job::Dependency {
            id: d.id,
            state: d.state,
            result: d.result.map(Json::trusted),
            code: d.code,
        };
        Self { jobs: page.jobs.into_iter().map(job).collect(), next: page.next }
    }
}

/// Reply to a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CancelReply {
    /// What was done.
    pub status: CancelStatus,
    /// With `already_finished`: the state it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::State>))]
    pub state: Option<State>,
    /// With `cascade`: how many who waited for it were cancelled with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<u32>,
}

/// What a cancel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum CancelStatus {
    /// It will not run.
    Cancelled,
    /// It runs; its handler is told.
    Requested,
    /// It was finished already.
    AlreadyFinished,
}

impl From<params::CancelReply> for CancelReply {
    fn from(r: params::CancelReply) -> Self {
        let (status, state) = match r {
            params::CancelReply::Cancelled | params::CancelReply::Cascaded { running: false, .. } => {
                (CancelStatus::Cancelled, None)
            }
            params::CancelReply::Requested | params::CancelReply::Cascaded { running: true, .. } => {
                (CancelStatus::Requested, None)
            }
            params::CancelReply::AlreadyFinished(state) => (CancelStatus::AlreadyFinished, Some(state)),
        };
        let (_, others) = r.parts();
        Self { status, state, others: (others > 0).then_some(others) }
    }
}

impl From<CancelReply> for params::CancelReply {
    fn from(r: CancelReply) -> Self {
        let alone = match r.status {
            CancelStatus::Cancelled => Self::Cancelled,
            CancelStatus::Requested => Self::Requested,
            CancelStatus::AlreadyFinished => Self::AlreadyFinished(r.state.unwrap_or(State::Completed)),
        };
        alone.with_others(r.others.unwrap_or(0))
    }
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateReply {
    /// Where it stands now.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::State))]
    pub state: State,
}

/// Change the priority of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PriorityRequest {
    /// The new one.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Priority))]
    pub priority: Priority,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_survives_its_query_string() {
        let query = params::JobQuery {
            cause: "4f8d504e01ab9d43".parse().ok(),
            category: Some(Category::PermanentAuth),
            connector: Some("shopify".parse().unwrap()),
            states: vec![State::Ready, State::Dead],
            queue: Some("billing".parse().unwrap()),
            kind: Some("a.b".parse().unwrap()),
            tenant: Some("a@b=c".parse().unwrap()),
            group: Some(GroupKey::none()),
            created_from: Some(Timestamp(1_763_000_000_123)),
            created_before: Some(Timestamp(1_763_000_000_999)),
            text: Some("50% & \"more\"".into()),
            review: Some(Review::AutoResolved),
            limit: 7,
            cursor: Some(tidegate_core::ids::Seq(42)),
        };
        let text = search_to_query(&query);
        assert_eq!(search_from_query(&text[1..]).unwrap(), query);
        assert!(search_from_query("limit=0").is_err());
        assert!(search_from_query("limit=1001").is_err());
        assert!(search_from_query("state=redy").is_err());
    }
}
