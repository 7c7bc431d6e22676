//! The builder of a job. What cannot be right is remembered and is the answer when the builder is awaited; nothing is
//! stored then.

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use serde_json::value::RawValue;
use tidegate_core::codes;
use tidegate_core::ids::{GroupKey, JobId, KindName, QueueName, TenantId, UniqueKey};
use tidegate_core::job::{OnConflict, OnDead, Priority, Unique, UniqueScope};
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::registry::KindSettings;
use tidegate_core::retry::RetryPolicy;
use tidegate_core::time::Timestamp;
use tidegate_core::trace::TraceParent;
use tidegate_store::params::{Enqueued, NewJob};

use crate::span::within;
use crate::{Error, IntoSpan, Job, Result, Tidegate};

/// A job on its way into the store: refine it, then `.await` it.
///
/// ```
/// use tidegate::Priority;
/// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Greet { name: String }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
/// # let tide = tidegate::Tidegate::memory();
/// tide.enqueue(Greet { name: "you".into() })
///     .tenant("acme")
///     .priority(Priority::High)
///     .unique("greet-you")
///     .delay("10m")
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is enqueued until it is awaited"]
#[derive(Debug)]
pub struct Enqueue {
    tide: Tidegate,
    draft: Result<Draft>,
}

#[derive(Debug)]
struct Draft {
    kind: Kind,
    payload: Payload,
    id: Option<JobId>,
    queue: Option<QueueName>,
    tenant: Option<TenantId>,
    group: Option<GroupKey>,
    priority: Option<Priority>,
    start: Option<Start>,
    timeout_ms: Option<i64>,
    max_attempts: Option<u32>,
    retry: Option<RetryPolicy>,
    unique: Option<Unique>,
    trace: Option<TraceParent>,
    /// Whether its id was just made here, so that no job can have it.
    fresh: bool,
    after: Vec<JobId>,
    on_dead: OnDead,
}

#[derive(Debug)]
enum Kind {
    Known(KindName),
    /// A typed payload: registered when it is first used.
    Typed(&'static str, fn() -> Result<KindSettings>),
}

#[derive(Debug, Clone, Copy)]
enum Start {
    After(i64),
    At(Timestamp),
}

impl Enqueue {
    pub(crate) fn typed<J: Job>(tide: Tidegate, payload: &J) -> Self {
        let text = serde_json::to_string(payload).map_err(|e| {
            Error::new(codes::INVALID_PAYLOAD, format!("the payload of kind {} is no JSON: {e}", J::KIND))
        });
        let kind = || match tide.registered(J::KIND) {
            Some(name) => Kind::Known(name),
            None => Kind::Typed(J::KIND, J::settings),
        };
        let draft = text.and_then(checked).map(|payload| Draft::new(kind(), payload));
        Self { tide, draft }
    }

    pub(crate) fn untyped(tide: Tidegate, kind: &str, payload: impl IntoPayload) -> Self {
        let draft = KindName::new(kind)
            .map_err(Error::from)
            .and_then(|name| Ok(Draft::new(Kind::Known(name), payload.into_payload()?)));
        Self { tide, draft }
    }

    /// Takes a checked value over, or remembers the first thing that cannot be right.
    fn put<T, E: Into<Error>>(mut self, value: Result<T, E>, set: impl FnOnce(&mut Draft, T)) -> Self {
        match (&mut self.draft, value) {
            (Ok(draft), Ok(value)) => set(draft, value),
            (Ok(_), Err(error)) => self.draft = Err(error.into()),
            (Err(_), _) => {}
        }
        self
    }

    /// Whose job it is; also its group, unless [`group`](Self::group) names another.
    ///
    /// ```
    /// # fn example(job: tidegate::Enqueue) -> tidegate::Enqueue {
    /// job.tenant("acme")
    /// # }
    /// ```
    pub fn tenant(self, tenant: impl AsRef<str>) -> Self {
        self.put(TenantId::new(tenant), |d, v| d.tenant = Some(v))
    }

    /// The key of fairness, group limits and parks.
    ///
    /// ```
    /// # fn example(job: tidegate::Enqueue) -> tidegate::Enqueue {
    /// job.tenant("acme").group("acme-eu")
    /// # }
    /// ```
    pub fn group(self, group: impl AsRef<str>) -> Self {
        self.put(GroupKey::new(group), |d, v| d.group = Some(v))
    }

    /// Importance, if other than its kind's.
    ///
    /// ```
    /// # fn example(job: tidegate::Enqueue) -> tidegate::Enqueue {
    /// job.priority(tidegate::Priority::Critical)
    /// # }
    /// ```
    pub fn priority(self, priority: Priority) -> Self {
        self.put(Ok::<_, Error>(priority), |d, v| d.priority = Some(v))
    }

    /// Not before this span has passed: `"2s"` or a [`Duration`](std::time::Duration).
    ///
    /// ```
    /// # fn example(job: tidegate::Enqueue) -> tidegate::Enqueue {
    /// job.delay("1h 30m")
    /// # }
    /// ```
    pub fn delay(self, delay: impl IntoSpan) -> Self {
        let ms = within("a delay", delay, 0..=limits::MAX_DELAY_MS);
        self.put(ms, |d, ms| d.start = Some(Start::After(ms)))
    }

    /// Not before this time; a time that has passed means now.
    ///
    /// ```
    /// # fn example(tide: tidegate::Tidegate, job: tidegate::Enqueue) -> tidegate::Enqueue {
    /// job.at(tide.now().plus_ms(60_000))
    /// # }
    /// ```
    pub fn at(self, time: Timestamp) -> Self {
        let checked = match time {
            Timestamp(..0) => Err(Error::new(codes::INVALID_TIME, format!("{time} is before 1970"))),
            _ => Ok(time),
        };
        self.put(checked, |d, time| d.start = Some(Start::At(time)))
    }

    /// At most one job of its kind with this key is pending or running; enqueueing another returns the first.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Sync;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// let first = tide.enqueue(Sync).unique("acme").await?;
    /// let second = tide.enqueue(Sync).unique("acme").await?;
    /// assert_eq!(first.id, second.id);
    /// # Ok(()) }
    /// ```
    pub fn unique(self, key: impl AsRef<str>) -> Self {
        let (scope, on_conflict) = (UniqueScope::PendingOrRunning, OnConflict::Keep);
        let unique = UniqueKey::new(key).map(|key| Unique { key, scope, on_conflict });
        self.put(unique, |d, v| d.unique = Some(v))
    }

    /// A unique key with its own scope and conflict mode.
    ///
    /// ```
    /// use tidegate::{OnConflict, Unique, UniqueKey, UniqueScope};
    /// # fn example(job: tidegate::Enqueue) -> tidegate::Result<tidegate::Enqueue> {
    /// let key = UniqueKey::new("acme/2026-01-31")?;
    /// Ok(job.unique_with(Unique { key, scope: UniqueScope::PeriodMs(3_600_000), on_conflict: OnConflict::Replace }))
    /// # }
    /// ```
    pub fn unique_with(self, unique: Unique) -> Self {
        let checked = match unique.scope {
            UniqueScope::PeriodMs(ms) if !(1..=limits::MAX_DELAY_MS).contains(&ms) => {
                let why = format!("a unique key is held for between 1 ms and ten years, not {ms} ms");
                Err(Error::new(codes::INVALID_TIME, why))
            }
            _ => Ok(unique),
        };
        self.put(checked, |d, v| d.unique = Some(v))
    }

    /// Timeout of one attempt, if other than its kind's.
    ///
    /// ```
    /// # fn example(job: tidegate::Enqueue) -> tidegate::Enqueue {
    /// job.timeout("5m")
    /// # }
    /// ```
    pub fn timeout(self, timeout: impl IntoSpan) -> Self {
        let ms = within("a timeout", timeout, 1..=limits::MAX_TIMEOUT_MS);
        self.put(ms, |d, ms| d.timeout_ms = Some(ms))
    }

    /// Cap on attempts over all categories, the first included.
    ///
    /// ```
    /// # fn example(job: tidegate::Enqueue) -> tidegate::Enqueue {
    /// job.max_attempts(1)
    /// # }
    /// ```
    pub fn max_attempts(self, attempts: u32) -> Self {
        let checked = if (1..=limits::MAX_ATTEMPTS).contains(&attempts) {
            Ok(attempts)
        } else {
            let why = format!("max_attempts must be between 1 and {}, not {attempts}", limits::MAX_ATTEMPTS);
            Err(Error::new(codes::INVALID_SETTING, why))
        };
        self.put(checked, |d, n| d.max_attempts = Some(n))
    }

    /// Its own retry policy; wins over the kind's and the categories'.
    ///
    /// ```
    /// # fn example(job: tidegate::Enqueue) -> tidegate::Enqueue {
    /// job.retry(tidegate::RetryPolicy::none())
    /// # }
    /// ```
    pub fn retry(self, policy: RetryPolicy) -> Self {
        let checked =
            policy.check().map_err(|why| Error::new(codes::INVALID_SETTING, format!("retry: {why}")));
        self.put(checked, |d, ()| d.retry = Some(policy))
    }

    /// A queue other than its kind's; must be registered.
    ///
    /// ```
    /// # fn example(job: tidegate::Enqueue) -> tidegate::Enqueue {
    /// job.queue("night")
    /// # }
    /// ```
    pub fn queue(self, queue: impl AsRef<str>) -> Self {
        self.put(QueueName::new(queue), |d, v| d.queue = Some(v))
    }

    /// Its id, so that the same enqueue can be sent again without making a second job.
    ///
    /// ```
    /// # fn example(job: tidegate::Enqueue) -> tidegate::Result<tidegate::Enqueue> {
    /// Ok(job.id("job_01JD0000000000000000000000".parse()?))
    /// # }
    /// ```
    pub fn id(self, id: JobId) -> Self {
        self.put(Ok::<_, Error>(id), |d, v| d.id = Some(v))
    }

    /// It waits until these jobs are completed: stored ones, or others of the same [`Flow`](crate::Flow) or
    /// [`enqueue_many`](Tidegate::enqueue_many).
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Greet { name: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// let first = tide.enqueue(Greet { name: "you".into() }).await?;
    /// let second = tide.enqueue(Greet { name: "me".into() }).after([first.id]).await?;
    /// assert_eq!(tide.job(second.id).await?.unwrap().state, tidegate::State::Blocked);
    /// # Ok(()) }
    /// ```
    pub fn after(self, jobs: impl IntoIterator<Item = JobId>) -> Self {
        let jobs: Vec<JobId> = jobs.into_iter().take(limits::MAX_DEPENDENCIES + 1).collect();
        let most = limits::MAX_DEPENDENCIES;
        let checked = if jobs.len() <= most {
            Ok(jobs)
        } else {
            Err(Error::new(codes::INVALID_BATCH, format!("a job waits for at most {most} others")))
        };
        self.put(checked, |d, jobs| d.after.extend(jobs))
    }

    /// What becomes of it when a job that it waits for ends dead or cancelled; [`OnDead::Fail`] if not said.
    ///
    /// ```
    /// # fn example(job: tidegate::Enqueue, first: tidegate::JobId) -> tidegate::Enqueue {
    /// job.after([first]).on_dead(tidegate::OnDead::Wait)
    /// # }
    /// ```
    pub fn on_dead(self, rule: OnDead) -> Self {
        self.put(Ok::<_, Error>(rule), |d, rule| d.on_dead = rule)
    }

    /// Its id: the one it was given, or one that is made now.
    pub(crate) fn with_id(mut self, make: impl FnOnce() -> JobId) -> (Self, JobId) {
        let Ok(draft) = &mut self.draft else {
            // It is refused whatever its id.
            return (self, make());
        };
        let id = *draft.id.get_or_insert_with(|| {
            draft.fresh = true;
            make()
        });
        (self, id)
    }

    /// The trace that it is part of: a `traceparent` as W3C Trace Context says. Its handler gets it with
    /// [`Context::traceparent`](crate::Context::traceparent).
    ///
    /// ```
    /// # fn example(job: tidegate::Enqueue) -> tidegate::Enqueue {
    /// job.traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    /// # }
    /// ```
    pub fn traceparent(self, context: impl AsRef<str>) -> Self {
        let checked = context.as_ref().parse::<TraceParent>();
        let checked = checked.map_err(|e| Error::new(codes::INVALID_REQUEST, e.to_string()));
        self.put(checked, |d, v| d.trace = Some(v))
    }
}

impl IntoFuture for Enqueue {
    type Output = Result<Enqueued>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Enqueued>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let tide = self.tide.clone();
            let replies = many(&tide, vec![self]).await?;
            replies.first().copied().ok_or_else(|| Error::new(codes::INTERNAL, "the store answered nothing"))
        })
    }
}

/// Enqueues jobs in one commit.
pub(crate) async fn many(tide: &Tidegate, jobs: Vec<Enqueue>) -> Result<Vec<Enqueued>> {
    if jobs.is_empty() {
        return Err(Error::new(codes::INVALID_BATCH, "the batch is empty"));
    }
    if jobs.len() > limits::MAX_ENQUEUE_BATCH {
        let why = format!("the batch has more than {} jobs", limits::MAX_ENQUEUE_BATCH);
        return Err(Error::new(codes::INVALID_BATCH, why));
    }
    // Every draft is looked at before the first kind is registered: one bad job and nothing at all is stored.
    let drafts = jobs.into_iter().map(|job| job.draft).collect::<Result<Vec<Draft>>>()?;
    let now = tide.now();
    let mut new = Vec::with_capacity(drafts.len());
    for draft in &drafts {
        draft.run_at(now)?;
    }
    for draft in drafts {
        new.push(draft.into_new(tide, now).await?);
    }
    tide.store_jobs(new, now).await
}

impl Draft {
    fn new(kind: Kind, payload: Payload) -> Self {
        Self {
            kind,
            payload,
            id: None,
            queue: None,
            tenant: None,
            group: None,
            priority: None,
            start: None,
            timeout_ms: None,
            max_attempts: None,
            retry: None,
            unique: None,
            trace: None,
            fresh: false,
            after: vec![],
            on_dead: OnDead::Fail,
        }
    }

    fn run_at(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        match self.start {
            None | Some(Start::After(0)) => Ok(None),
            Some(Start::After(ms)) => Ok(Some(now.plus_ms(ms))),
            Some(Start::At(time)) if time.since(now) > limits::MAX_DELAY_MS => {
                Err(Error::new(codes::INVALID_TIME, format!("{time} is more than ten years ahead")))
            }
            Some(Start::At(time)) => Ok((time > now).then_some(time)),
        }
    }

    async fn into_new(self, tide: &Tidegate, now: Timestamp) -> Result<NewJob> {
        let run_at = self.run_at(now)?;
        let kind = match self.kind {
            Kind::Known(name) => name,
            Kind::Typed(name, settings) => tide.ensure_kind(name, settings).await?,
        };
        Ok(NewJob {
            id: self.id.unwrap_or_else(|| tide.mint().job_id(now)),
            id_may_exist: self.id.is_some() && !self.fresh,
            kind,
            queue: self.queue,
            tenant: self.tenant,
            group: self.group,
            payload: self.payload,
            priority: self.priority,
            run_at,
            timeout_ms: self.timeout_ms,
            max_attempts: self.max_attempts,
            retry: self.retry,
            unique: self.unique,
            trace: self.trace.map(|t| t.to_string()),
            after: self.after,
            on_dead: self.on_dead,
        })
    }
}

/// A payload without a type: a JSON value, or JSON as text.
///
/// ```
/// use tidegate::IntoPayload;
/// assert!(serde_json::json!({ "order": 7 }).into_payload().is_ok());
/// assert!(r#"{"order":7}"#.into_payload().is_ok());
/// assert!("{order: seven".into_payload().is_err());
/// ```
pub trait IntoPayload {
    /// The checked payload, or an error with code `TG2004`.
    fn into_payload(self) -> Result<Payload>;
}

impl IntoPayload for serde_json::Value {
    fn into_payload(self) -> Result<Payload> {
        checked(self.to_string())
    }
}

impl IntoPayload for &str {
    fn into_payload(self) -> Result<Payload> {
        self.to_owned().into_payload()
    }
}

impl IntoPayload for String {
    fn into_payload(self) -> Result<Payload> {
        // Size and depth first: a parser should never meet what they refuse.
        let payload = checked(self)?;
        serde_json::from_str::<&RawValue>(payload.as_str())
            .map_err(|e| Error::new(codes::INVALID_PAYLOAD, format!("the payload is no JSON: {e}")))?;
        Ok(payload)
    }
}

fn checked(text: String) -> Result<Payload> {
    Ok(Payload::from_json_text(text, limits::MAX_PAYLOAD_BYTES)?)
}
