//! The handle that everything else is reached from.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tidegate_core::codes;
use tidegate_core::failure::cut;
use tidegate_core::ids::{ConnectorName, EventName, JobId, KindName, TenantId};
use tidegate_core::job::Job as JobView;
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::registry::KindSettings;
use tidegate_core::time::Timestamp;
use tidegate_core::why::Why;
use tidegate_store::letters::{Grant, reauthorize};
use tidegate_store::params::{CancelJob, CancelReply, Enqueued, NewJob, Recovered};
use tidegate_store::{MemoryStore, Store};
use tidegate_telemetry::Telemetry;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::enqueue::{Enqueue, IntoPayload, many};
use crate::flow::Flow;
use crate::gates::Keeper;
use crate::mint::Mint;
use crate::span::duration;
use crate::{Error, IntoSpan, Job, Result, Schedule};

/// Longest time that the end waits for the last spans to be sent.
const LAST_SPANS: Duration = Duration::from_secs(3);
/// Shortest and longest time between two looks at a job that is waited for.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// A store of jobs, and the way to put jobs into it. Cheap to clone.
///
/// ```
/// use tidegate::{Context, Job, Outcome, Tidegate, Worker, done};
///
/// #[derive(serde::Serialize, serde::Deserialize, Job)]
/// struct Greet { name: String }
///
/// async fn greet(job: Greet, _: Context) -> Outcome {
///     tidegate::done_with(format!("hello {}", job.name))
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
/// let tide = Tidegate::memory();
/// let job = tide.enqueue(Greet { name: "you".into() }).await?;
/// Worker::new(&tide).handle(greet).run_until_idle().await?;
/// let result = tide.job(job.id).await?.and_then(|job| job.result);
/// assert_eq!(result.unwrap().as_str(), "\"hello you\"");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Tidegate {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    clock: Clock,
    mint: Mint,
    /// Kinds that this handle has registered, by their name in the code.
    registered: RwLock<HashMap<&'static str, KindName>>,
    /// Its gates, if it has any.
    gates: RwLock<Option<Arc<Keeper>>>,
    /// Traces, if they are recorded.
    telemetry: OnceLock<Telemetry>,
    /// Counts settled batches, so that whoever waits for a job looks again.
    settled: watch::Sender<u64>,
}

impl Tidegate {
    /// Opens the embedded store in a directory, which is made if it does not exist. One process owns it at a time.
    ///
    /// ```no_run
    /// # async fn example() -> tidegate::Result<()> {
    /// let tide = tidegate::Tidegate::open("data").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "sqlite")]
    pub async fn open(path: impl AsRef<std::path::Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            tidegate_store_sqlite::SqliteStore::open(path, Clock::System.now())
        })
        .await
        .map_err(|e| Error::new(codes::INTERNAL, format!("opening the store failed: {e}")))?;
        Ok(Self::with_store(Arc::new(opened?)))
    }

    /// A store in memory: gone when the last clone is.
    ///
    /// ```
    /// let tide = tidegate::Tidegate::memory();
    /// ```
    pub fn memory() -> Self {
        Self::with_store(Arc::new(MemoryStore::new()))
    }

    /// Any store.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::{Tidegate, store::MemoryStore};
    /// let tide = Tidegate::with_store(Arc::new(MemoryStore::new()));
    /// ```
    pub fn with_store(store: Arc<dyn Store>) -> Self {
        Self::with_parts(store, Clock::System, Mint::random())
    }

    pub(crate) fn with_parts(store: Arc<dyn Store>, clock: Clock, mint: Mint) -> Self {
        let (registered, gates, settled) = (RwLock::default(), RwLock::default(), watch::Sender::new(0));
        let telemetry = OnceLock::new();
        Self { inner: Arc::new(Inner { store, clock, mint, registered, gates, telemetry, settled }) }
    }

    /// Records traces from now on: of what this handle and its clones enqueue, and of what workers made from them run. Said once; a second
    /// one changes nothing.
    ///
    /// ```
    /// use tidegate::{Telemetry, TelemetryOptions, Tidegate};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// let options = TelemetryOptions { service_name: "billing".into(), sample: 0.1, ..Default::default() };
    /// # #[cfg(feature = "otlp")] {
    /// let telemetry = Telemetry::otlp("http://127.0.0.1:4318", &options).map_err(std::io::Error::other).unwrap();
    /// let tide = Tidegate::memory().with_telemetry(telemetry);
    /// # }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_telemetry(self, telemetry: Telemetry) -> Self {
        // The first one stays: spans of one program go one way.
        let _ = self.inner.telemetry.set(telemetry);
        self
    }

    /// The traces that this handle records, if it does: how many spans were sent and dropped.
    ///
    /// ```
    /// assert!(tidegate::Tidegate::memory().telemetry().is_none());
    /// ```
    pub fn telemetry(&self) -> Option<&Telemetry> {
        self.inner.telemetry.get()
    }

    /// Stores jobs, in a span for each if they are traced.
    pub(crate) async fn store_jobs(&self, mut new: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>> {
        let Some(telemetry) = self.telemetry() else { return Ok(self.store().enqueue(new, now).await?) };
        let enqueueing = telemetry.enqueueing(&mut new, self.store().clock_ahead_ms());
        let result = self.store().enqueue(new, now).await;
        telemetry.enqueued(enqueueing, result.as_deref().map_err(|e| e.code.id));
        Ok(result?)
    }

    /// Sends the spans that wait, for a moment: a collector that is away must not hold up the end.
    pub(crate) async fn flush_traces(&self) {
        if let Some(telemetry) = self.telemetry() {
            telemetry.flush(LAST_SPANS).await;
        }
    }

    /// The store: queues, parks, dead letters, searches and upkeep are its methods.
    ///
    /// ```
    /// use tidegate::store::params::JobQuery;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// let tide = tidegate::Tidegate::memory();
    /// let page = tide.store().search(JobQuery { limit: 10, ..JobQuery::default() }).await?;
    /// assert!(page.jobs.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// The time by which this handle lives: that of its store, which processes on several machines share.
    ///
    /// ```
    /// assert!(tidegate::Tidegate::memory().now().0 > 0);
    /// ```
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now().plus_ms(self.inner.store.clock_ahead_ms())
    }

    /// Finishes what is under way and lets go of the files. Later calls are refused with `TG5004`.
    ///
    /// ```no_run
    /// # async fn example(tide: tidegate::Tidegate) -> tidegate::Result<()> {
    /// tide.close().await
    /// # }
    /// ```
    pub async fn close(&self) -> Result<()> {
        self.flush_traces().await;
        Ok(self.store().close().await?)
    }

    /// Enqueues a job: refine it with the builder's methods, then await it. The kind is registered on first use.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Greet { name: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// let job = tide.enqueue(Greet { name: "you".into() }).tenant("acme").delay("2s").await?;
    /// assert_eq!(tide.job(job.id).await?.unwrap().group.as_str(), "acme");
    /// # Ok(()) }
    /// ```
    pub fn enqueue<J: Job>(&self, payload: J) -> Enqueue {
        Enqueue::typed(self.clone(), &payload)
    }

    /// Enqueues a job of a kind that is registered, with JSON as a value or as text.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Greet { name: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// tide.register::<Greet>().await?;
    /// tide.enqueue_json("greet", r#"{"name":"you"}"#).await?;
    /// tide.enqueue_json("greet", serde_json::json!({ "name": "me" })).await?;
    /// # Ok(()) }
    /// ```
    pub fn enqueue_json(&self, kind: &str, payload: impl IntoPayload) -> Enqueue {
        Enqueue::untyped(self.clone(), kind, payload)
    }

    /// Enqueues many jobs in one durable commit: all of them, or none. At most 10,000.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Greet { name: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// let names = ["ada", "grace"];
    /// let jobs = tide.enqueue_many(names.map(|n| tide.enqueue(Greet { name: n.into() }).tenant(n))).await?;
    /// assert_eq!(jobs.len(), 2);
    /// # Ok(()) }
    /// ```
    pub async fn enqueue_many(&self, jobs: impl IntoIterator<Item = Enqueue>) -> Result<Vec<Enqueued>> {
        // Collected before the first await, so that the iterator need not be `Send`.
        let jobs: Vec<Enqueue> = jobs.into_iter().take(limits::MAX_ENQUEUE_BATCH + 1).collect();
        many(self, jobs).await
    }

    /// Puts a schedule: say when with the builder's methods, then await it. One whose times stay the same goes on where it was, so
    /// that a program can put its schedules whenever it starts. Workers and servers fire them, each tick once.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Clean {}
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// use tidegate::ScheduleChange;
    /// let put = || tide.schedule("clean", Clean {}).cron("0 3 * * *", "America/Sao_Paulo");
    /// assert_eq!(put().await?, ScheduleChange::Created);
    /// assert_eq!(put().await?, ScheduleChange::Unchanged);
    /// # Ok(()) }
    /// ```
    pub fn schedule<J: Job>(&self, name: impl AsRef<str>, payload: J) -> Schedule {
        Schedule::new(self.clone(), name.as_ref(), &payload)
    }

    /// Begins a flow: jobs that wait for each other, enqueued together.
    ///
    /// ```
    /// # let tide = tidegate::Tidegate::memory();
    /// let mut flow = tide.flow();
    /// # let _ = flow.add(tide.enqueue_json("k", "1"));
    /// ```
    pub fn flow(&self) -> Flow {
        Flow::new(self.clone())
    }

    /// Enqueues a batch, and a job that runs when all of it is completed, in one commit. The last answer is that job's; its
    /// handler sees the results with [`Context::dependencies`](crate::Context::dependencies).
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Resize { image: u32 }
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Publish;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// let images = (0..3).map(|image| tide.enqueue(Resize { image }));
    /// let jobs = tide.batch(images, tide.enqueue(Publish)).await?;
    /// assert_eq!(jobs.len(), 4);
    /// # Ok(()) }
    /// ```
    pub async fn batch(
        &self,
        jobs: impl IntoIterator<Item = Enqueue>,
        then: Enqueue,
    ) -> Result<Vec<Enqueued>> {
        let mut flow = self.flow();
        let ids: Vec<JobId> =
            jobs.into_iter().take(limits::MAX_ENQUEUE_BATCH).map(|job| flow.add(job)).collect();
        flow.add(then.after(ids));
        flow.enqueue().await
    }

    /// Registers a kind and its queue. Handlers and typed enqueues do it by themselves.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Greet { name: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// tide.register::<Greet>().await?;
    /// assert_eq!(tide.store().kinds().await?[0].name.as_str(), "greet");
    /// # Ok(()) }
    /// ```
    pub async fn register<J: Job>(&self) -> Result<()> {
        self.ensure_kind(J::KIND, J::settings).await.map(|_| ())
    }

    /// Everything known about a job.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// let tide = tidegate::Tidegate::memory();
    /// let unknown = "job_01JD0000000000000000000000".parse()?;
    /// assert!(tide.job(unknown).await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        Ok(self.store().get(id).await?)
    }

    /// Waits until a job is finished, at most this long, and returns it as it is then, finished or not.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Greet { name: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// let job = tide.enqueue(Greet { name: "you".into() }).await?;
    /// let seen = tide.wait(job.id, "20ms").await?; // nobody works here
    /// assert!(!seen.state.is_final());
    /// # Ok(()) }
    /// ```
    pub async fn wait(&self, id: JobId, timeout: impl IntoSpan) -> Result<JobView> {
        let end = Instant::now() + duration(timeout.into_span()?.0.min(limits::MAX_DELAY_MS));
        let mut settled = self.inner.settled.subscribe();
        let mut pause = LOOK_AGAIN.0;
        loop {
            settled.mark_unchanged();
            let job = self
                .job(id)
                .await?
                .ok_or_else(|| Error::new(codes::JOB_NOT_FOUND, format!("there is no job {id}")))?;
            let now = Instant::now();
            if job.state.is_final() || now >= end {
                return Ok(job);
            }
            // A worker of this handle says when it settled something; others are found by looking again.
            let next = (now + pause).min(end);
            tokio::select! {
                _ = settled.changed() => tokio::time::sleep_until((now + LOOK_AGAIN.0).min(end)).await,
                () = tokio::time::sleep_until(next) => pause = (pause * 2).min(LOOK_AGAIN.1),
            }
        }
    }

    /// Cancels a job: at once if it waits, by telling its handler if it runs. The note says by whom and why.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Greet { name: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// let job = tide.enqueue(Greet { name: "you".into() }).await?;
    /// let reply = tide.cancel(job.id, "ada: sent twice").await?;
    /// assert_eq!(reply, tidegate::CancelReply::Cancelled);
    /// # Ok(()) }
    /// ```
    pub async fn cancel(&self, id: JobId, note: impl Into<String>) -> Result<CancelReply> {
        let note = cut(note.into(), limits::MAX_NOTE_BYTES);
        let reply = self.store().cancel(CancelJob { id, note, cascade: false, now: self.now() }).await?;
        self.say_settled();
        Ok(reply)
    }

    /// Cancels a job and those who wait for it, and those who wait for them, in one step: up to 10,000. For a tenant's job,
    /// that tenant's alone.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Greet { name: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// let first = tide.enqueue(Greet { name: "you".into() }).await?;
    /// let second = tide.enqueue(Greet { name: "me".into() }).after([first.id]).await?;
    /// tide.cancel_flow(first.id, "ada: not needed").await?;
    /// assert_eq!(tide.job(second.id).await?.unwrap().state, tidegate::State::Cancelled);
    /// # Ok(()) }
    /// ```
    pub async fn cancel_flow(&self, id: JobId, note: impl Into<String>) -> Result<CancelReply> {
        let note = cut(note.into(), limits::MAX_NOTE_BYTES);
        let reply = self.store().cancel(CancelJob { id, note, cascade: true, now: self.now() }).await?;
        self.say_settled();
        Ok(reply)
    }

    /// Why a job is where it is; [`Why::sentence`] says it in words.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Greet { name: String }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// let job = tide.enqueue(Greet { name: "you".into() }).delay("90s").await?;
    /// let why = tide.why(job.id).await?.sentence(tide.now());
    /// assert!(why.starts_with("Delayed; starts in"), "{why}");
    /// # Ok(()) }
    /// ```
    pub async fn why(&self, id: JobId) -> Result<Why> {
        Ok(self.store().why(id, self.now()).await?)
    }

    /// The gates that handlers ask, if there are any.
    pub(crate) fn keeper(&self) -> Option<Arc<Keeper>> {
        self.inner.gates.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn keep_gates(&self, keeper: Keeper) {
        *self.inner.gates.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(keeper));
    }

    /// Says that something happened: every kind that subscribes to it (`on` in the registry) gets a job with this payload, all of them
    /// in one commit or none. Refused if nobody subscribes.
    ///
    /// ```no_run
    /// # async fn example(tide: tidegate::Tidegate) -> tidegate::Result<()> {
    /// tide.publish("member.joined", &serde_json::json!({ "member_id": 7 })).await?;
    /// # Ok(()) }
    /// ```
    pub async fn publish(&self, event: &str, payload: &impl serde::Serialize) -> Result<Vec<Enqueued>> {
        let kinds = tidegate_store::subscribers(&**self.store(), &EventName::new(event)?).await?;
        let text = serde_json::to_string(payload)
            .map_err(|e| Error::new(codes::INVALID_PAYLOAD, format!("the payload cannot be written: {e}")))?;
        let payload = Payload::from_json_text(text, limits::MAX_PAYLOAD_BYTES)
            .map_err(|e| Error::new(codes::INVALID_PAYLOAD, e.to_string()))?;
        let now = self.now();
        let jobs = kinds.into_iter().map(|kind| NewJob::new(self.mint().job_id(now), kind, payload.clone()));
        self.store_jobs(jobs.collect(), now).await
    }

    /// A tenant has authorized again: its dead letters of category `PERMANENT_AUTH` run again as new jobs. Returns how many.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// assert_eq!(tide.reauthorized("acme", Some("shopify")).await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn reauthorized(&self, tenant: &str, connector: Option<&str>) -> Result<u64> {
        let connector = connector.map(ConnectorName::new).transpose()?;
        let grant = Grant { tenant: Some(TenantId::new(tenant)?), connector, kind: None };
        let (mut recovered, mut after) = (0, None);
        loop {
            let now = self.now();
            let mint = || Some(self.mint().job_id(now));
            let page = reauthorize(&**self.store(), &grant, after, "library", mint, now).await?;
            let new = page.letters.iter().filter(|(_, became)| matches!(became, Recovered::As(_)));
            recovered += new.count() as u64;
            after = page.next;
            if after.is_none() {
                return Ok(recovered);
            }
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.inner.clock
    }

    pub(crate) fn mint(&self) -> &Mint {
        &self.inner.mint
    }

    /// Tells whoever waits for a job to look again.
    pub(crate) fn say_settled(&self) {
        self.inner.settled.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// The name of a kind that this handle registered before.
    pub(crate) fn registered(&self, kind: &'static str) -> Option<KindName> {
        self.inner.registered.read().unwrap_or_else(PoisonError::into_inner).get(kind).cloned()
    }

    /// Registers a kind unless this handle has done so before.
    pub(crate) async fn ensure_kind(
        &self,
        kind: &'static str,
        settings: fn() -> Result<KindSettings>,
    ) -> Result<KindName> {
        if let Some(name) = self.registered(kind) {
            return Ok(name);
        }
        let name = KindName::new(kind)?;
        self.put_kind(name.clone(), settings()?).await?;
        self.inner.registered.write().unwrap_or_else(PoisonError::into_inner).insert(kind, name.clone());
        Ok(name)
    }

    /// Writes a kind only if it is missing or different: a restart of many workers writes nothing.
    pub(crate) async fn put_kind(&self, name: KindName, settings: KindSettings) -> Result<()> {
        settings.check().map_err(|why| Error::new(codes::INVALID_SETTING, format!("kind {name}: {why}")))?;
        let known = self.store().kinds().await?;
        let known = known.iter().find(|k| k.name == name).map(|k| &k.settings);
        // What a document of the registry says wins over the handler; a policy by its name means what the registry says.
        if known.is_some_and(|k| k.managed || *k == following(&settings, k)) {
            return Ok(());
        }
        self.store().ensure_queue(settings.queue.clone(), self.now()).await?;
        match self.store().put_kind(name, settings).await {
            // A document came in between.
            Err(error) if error.code == codes::KIND_MANAGED => Ok(()),
            done => Ok(done?),
        }
    }
}

/// Settings as the registry would keep them: a policy that both name alike is the one that is kept.
fn following(settings: &KindSettings, kept: &KindSettings) -> KindSettings {
    let mut settings = settings.clone();
    if settings.policy.is_some() && settings.policy == kept.policy {
        settings.retry.clone_from(&kept.retry);
    }
    settings
}

impl fmt::Debug for Tidegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tidegate").finish_non_exhaustive()
    }
}
