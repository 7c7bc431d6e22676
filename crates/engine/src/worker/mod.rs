//! A worker: handlers, and the parts that run them.
//!
//! The producer claims jobs and puts them on the desk; drivers take them off and run them (executor); outcomes go
//! through the outbox to the completer. Beside them the heart keeps leases, the rescuer keeps time, the pruner deletes,
//! the memory guard watches, permits are renewed and given back, and the worker's presence is announced. All of them are tasks of one `run` call: dropping that call's future ends them like a
//! crash would, and the leases run out.

mod check;
mod completer;
mod desk;
mod executor;
mod heart;
pub(crate) mod lease;
mod letters;
mod memory;
mod permits;
mod presence;
mod producer;
mod pruner;
mod report;
mod rescuer;
mod rest;
mod roster;
#[cfg(test)]
pub(crate) mod sample;
mod shutdown;

use std::collections::HashMap;
use std::error::Error as StdError;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::codes;
use tidegate_core::failure::Category;
use tidegate_core::ids::{KindName, QueueName, WorkerId};
use tidegate_core::letters::{EVERY_MS, EVERY_RANGE_MS};
use tidegate_core::limits;
use tidegate_core::registry::KindSettings;
use tidegate_telemetry::Runs;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use report::Report;

use self::completer::Outbox;
use self::desk::Desk;
use self::lease::Ledger;
use self::memory::Guard;
use self::report::Tally;
use self::rest::Rest;
use self::roster::Roster;
use self::shutdown::{Crew, Phase, Requests};
use crate::classify::Rule;
use crate::gates::GateDesk;
use crate::handler::Handler;
use crate::span::{duration, within};
use crate::{Context, Error, IntoOutcome, IntoSpan, Job, Result, Tidegate};

/// Handlers at a time where nothing is said.
const DEFAULT_CONCURRENCY: usize = 50;
/// Most handlers at a time in one worker.
const MAX_CONCURRENCY: usize = 100_000;
/// Time between the request to stop and the abort of a handler.
const DEFAULT_GRACE: Duration = Duration::from_secs(5);
/// Time that handlers have to finish at shutdown: 45 s of the 60 s that orchestrators usually give.
const DEFAULT_DRAIN: Duration = Duration::from_secs(45);

/// How long the first in a gate's line waits in place.
const DEFAULT_GATE_PATIENCE: Duration = Duration::from_millis(100);
/// The longest such wait: it keeps a slot of the worker, and its job's timeout runs.
const MAX_GATE_PATIENCE_MS: i64 = 10_000;

/// Runs jobs with the handlers it is given.
///
/// ```
/// use tidegate::{Context, Job, Outcome, Tidegate, Worker, done};
///
/// #[derive(serde::Serialize, serde::Deserialize, Job)]
/// struct Ping;
///
/// async fn ping(_: Ping, cx: Context) -> Outcome {
///     cx.log("pong").await?;
///     done()
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
/// let tide = Tidegate::memory();
/// tide.enqueue(Ping).await?;
/// let report = Worker::new(&tide).handle(ping).concurrency(10).run_until_idle().await?;
/// assert_eq!(report.completed, 1);
/// # Ok(()) }
/// ```
///
/// Handlers are asynchronous: work that blocks a thread belongs into
/// [`spawn_blocking`](tokio::task::spawn_blocking), or it holds up the others.
#[must_use = "a worker does nothing until one of its `run` methods is awaited"]
pub struct Worker {
    tide: Tidegate,
    name: Option<WorkerId>,
    handlers: Vec<Handler>,
    queues: Vec<QueueName>,
    rules: Vec<Rule>,
    concurrency: usize,
    lease_ms: i64,
    grace: Duration,
    drain: Duration,
    memory_limit: Option<u64>,
    gate_patience: Duration,
    letters_every_ms: i64,
    /// The first thing that cannot be right; said at start.
    wrong: Option<Error>,
}

/// What the parts of a running worker share.
pub(crate) struct Shared {
    tide: Tidegate,
    name: WorkerId,
    handlers: HashMap<KindName, Handler>,
    rules: Vec<Rule>,
    queues: Vec<QueueName>,
    until_idle: bool,
    lease_ms: i64,
    letters_every_ms: i64,
    grace: Duration,
    desk: Desk,
    ledger: Ledger,
    gates: Arc<GateDesk>,
    roster: Roster,
    outbox: Outbox,
    memory: Guard,
    rest: Rest,
    tally: Tally,
    phase: watch::Sender<Phase>,
    /// Attempts in traces, if they are recorded.
    runs: Option<Arc<Runs>>,
    /// Somebody asked this worker to drain.
    drain_asked: watch::Sender<bool>,
    /// A handler said that this worker can do no job.
    unfit: watch::Sender<Option<Error>>,
}

impl Worker {
    /// A worker without handlers yet.
    ///
    /// ```
    /// # let tide = tidegate::Tidegate::memory();
    /// let worker = tidegate::Worker::new(&tide).concurrency(8);
    /// ```
    pub fn new(tide: &Tidegate) -> Self {
        Self {
            tide: tide.clone(),
            name: None,
            handlers: vec![],
            queues: vec![],
            rules: vec![],
            concurrency: DEFAULT_CONCURRENCY,
            lease_ms: limits::DEFAULT_LEASE_MS,
            grace: DEFAULT_GRACE,
            drain: DEFAULT_DRAIN,
            memory_limit: None,
            gate_patience: DEFAULT_GATE_PATIENCE,
            letters_every_ms: EVERY_MS,
            wrong: None,
        }
    }

    /// Adds the handler of a kind: an async function of the payload and a [`Context`]. The kind and its queue are
    /// registered when the worker starts.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Ping;
    /// # let tide = tidegate::Tidegate::memory();
    /// async fn ping(_: Ping, _: tidegate::Context) -> Result<(), std::io::Error> {
    ///     Ok(())
    /// }
    /// let worker = tidegate::Worker::new(&tide).handle(ping);
    /// ```
    pub fn handle<J, F, Fut>(mut self, handler: F) -> Self
    where
        J: Job,
        F: Fn(J, Context) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: IntoOutcome,
    {
        self.handlers.push(Handler::new(handler));
        self
    }

    /// Adds a handler of a kind that has no type here: an async function of a [`Context`], which holds the payload as JSON
    /// text. With settings, the kind is registered when the worker starts; without, it must be registered and stays as
    /// it is.
    ///
    /// ```
    /// use tidegate::{Context, KindSettings, QueueName, Tidegate, Worker, done_with};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// let tide = Tidegate::memory();
    /// let settings = KindSettings::new(QueueName::new("default")?);
    /// let worker = Worker::new(&tide).handle_kind("greet", Some(settings.clone()), async |cx: Context| {
    ///     done_with(format!("hello {}", cx.payload().as_str()))
    /// });
    /// # tide.store().ensure_queue(settings.queue.clone(), tide.now()).await?;
    /// # tide.store().put_kind("greet".parse()?, settings).await?;
    /// tide.enqueue_json("greet", r#"{"name":"you"}"#).await?;
    /// assert_eq!(worker.run_until_idle().await?.completed, 1);
    /// # Ok(()) }
    /// ```
    pub fn handle_kind<F, Fut>(
        mut self,
        kind: impl AsRef<str>,
        settings: Option<KindSettings>,
        handler: F,
    ) -> Self
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: IntoOutcome,
    {
        let name = KindName::new(kind).map_err(Error::from);
        self.checked(name, |w, name| w.handlers.push(Handler::untyped(name.as_str(), settings, handler)));
        self
    }

    /// Serves this queue too, beside the queues of its kinds.
    ///
    /// ```
    /// # let tide = tidegate::Tidegate::memory();
    /// let worker = tidegate::Worker::new(&tide).queue("night");
    /// ```
    pub fn queue(mut self, queue: impl AsRef<str>) -> Self {
        let queue = QueueName::new(queue).map_err(Error::from);
        self.checked(queue, |w, queue| w.queues.push(queue));
        self
    }

    /// Handlers at a time; 50 unless said.
    ///
    /// ```
    /// # let tide = tidegate::Tidegate::memory();
    /// let worker = tidegate::Worker::new(&tide).concurrency(200);
    /// ```
    pub fn concurrency(mut self, handlers: usize) -> Self {
        let checked = match handlers {
            1..=MAX_CONCURRENCY => Ok(handlers),
            _ => Err(Error::new(
                codes::INVALID_SETTING,
                "a worker's concurrency must be between 1 and 100,000",
            )),
        };
        self.checked(checked, |w, n| w.concurrency = n);
        self
    }

    /// Its name in leases, in `why` and in `tidegate workers ls`; host and process id unless said.
    ///
    /// ```
    /// # let tide = tidegate::Tidegate::memory();
    /// let worker = tidegate::Worker::new(&tide).name("billing-1");
    /// ```
    pub fn name(mut self, name: impl AsRef<str>) -> Self {
        let name = WorkerId::new(name).map_err(Error::from);
        self.checked(name, |w, name| w.name = Some(name));
        self
    }

    /// How long a lease holds without a heartbeat: 1 s to 1 h, 30 s unless said. A crashed worker's jobs wait this long.
    ///
    /// ```
    /// # let tide = tidegate::Tidegate::memory();
    /// let worker = tidegate::Worker::new(&tide).lease("10s");
    /// ```
    pub fn lease(mut self, lease: impl IntoSpan) -> Self {
        let ms = within("a lease", lease, limits::LEASE_MS);
        self.checked(ms, |w, ms| w.lease_ms = ms);
        self
    }

    /// Time between the request to stop and the abort of a handler; 5 s unless said.
    ///
    /// ```
    /// # let tide = tidegate::Tidegate::memory();
    /// let worker = tidegate::Worker::new(&tide).grace("500ms");
    /// ```
    pub fn grace(mut self, grace: impl IntoSpan) -> Self {
        let ms = within("a grace period", grace, 0..=limits::MAX_TIMEOUT_MS);
        self.checked(ms, |w, ms| w.grace = duration(ms));
        self
    }

    /// Time that handlers have to finish at shutdown; 45 s unless said.
    ///
    /// ```
    /// # let tide = tidegate::Tidegate::memory();
    /// let worker = tidegate::Worker::new(&tide).drain("2m");
    /// ```
    pub fn drain(mut self, drain: impl IntoSpan) -> Self {
        let ms = within("a drain", drain, 0..=limits::MAX_TIMEOUT_MS);
        self.checked(ms, |w, ms| w.drain = duration(ms));
        self
    }

    /// Memory limit of this process in bytes: from 80 % it warns, from 90 % nothing more is claimed until it is below.
    /// The control group's limit unless said, if there is one.
    ///
    /// ```
    /// # let tide = tidegate::Tidegate::memory();
    /// let worker = tidegate::Worker::new(&tide).memory_limit(512 << 20);
    /// ```
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        let checked = match bytes {
            0 => Err(Error::new(codes::INVALID_SETTING, "a memory limit of 0 bytes would stop everything")),
            _ => Ok(bytes),
        };
        self.checked(checked, |w, bytes| w.memory_limit = Some(bytes));
        self
    }

    /// How long a handler waits in place for a gate if it is the first in line, instead of putting its job off; 100 ms unless
    /// said, at most 10 s. A quarter of the worker's slots may wait so.
    ///
    /// ```
    /// # let tide = tidegate::Tidegate::memory();
    /// let worker = tidegate::Worker::new(&tide).gate_patience("500ms");
    /// ```
    pub fn gate_patience(mut self, span: impl IntoSpan) -> Self {
        let ms = within("a patience", span, 0..=MAX_GATE_PATIENCE_MS);
        self.checked(ms, |w, ms| w.gate_patience = duration(ms));
        self
    }

    /// Time between two runs of the processor of dead letters; 15 minutes unless said, from 1 s to a day. Any number of
    /// workers may share a store: each letter is looked at once.
    ///
    /// ```
    /// # let tide = tidegate::Tidegate::memory();
    /// let worker = tidegate::Worker::new(&tide).letters_every("5m");
    /// ```
    pub fn letters_every(mut self, span: impl IntoSpan) -> Self {
        let ms = within("the time between two looks at dead letters", span, EVERY_RANGE_MS);
        self.checked(ms, |w, ms| w.letters_every_ms = ms);
        self
    }

    /// Says the category of errors that come out of handlers through `?`. Rules are asked in their order about the error
    /// and its causes; the first answer counts.
    ///
    /// ```
    /// use tidegate::Category;
    /// # let tide = tidegate::Tidegate::memory();
    /// let worker = tidegate::Worker::new(&tide)
    ///     .classify(|error| error.is::<std::num::ParseIntError>().then_some(Category::InvalidInput));
    /// ```
    pub fn classify<F>(mut self, rule: F) -> Self
    where
        F: Fn(&(dyn StdError + 'static)) -> Option<Category> + Send + Sync + 'static,
    {
        self.rules.push(Box::new(rule));
        self
    }

    fn checked<T>(&mut self, value: Result<T>, set: impl FnOnce(&mut Self, T)) {
        match value {
            Ok(value) => set(self, value),
            Err(error) => self.wrong = self.wrong.take().or(Some(error)),
        }
    }

    /// Whether it would start: the settings can be, and every kind of its queues has exactly one handler. Registers nothing;
    /// running it checks the same.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Ping;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// let worker = tidegate::Worker::new(&tide).handle(async |_: Ping, _| tidegate::done());
    /// worker.check().await?;
    /// assert!(tide.store().kinds().await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn check(&self) -> Result<()> {
        check::fit(self).await.map(drop)
    }

    /// Runs until nothing is left that could run by itself: delayed and retried jobs are waited for, paused ones are
    /// not.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Ping;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// let worker = tidegate::Worker::new(&tide).handle(async |_: Ping, _| tidegate::done());
    /// worker.run_until_idle().await?; // nothing was enqueued
    /// # Ok(()) }
    /// ```
    pub async fn run_until_idle(self) -> Result<Report> {
        self.run_with(true, pending(), pending()).await
    }

    /// Runs until SIGTERM or SIGINT, or until somebody asks it to drain (`tidegate workers drain NAME`), then shuts down in
    /// three acts. A second signal: now.
    ///
    /// ```no_run
    /// # async fn example(worker: tidegate::Worker) -> tidegate::Result<()> {
    /// let report = worker.run().await?;
    /// # Ok(()) }
    /// ```
    pub async fn run(self) -> Result<Report> {
        let mut first = Requests::listen()?;
        let mut second = Requests::listen()?;
        let hurry = async move {
            // This listener hears the first request as well.
            second.next().await;
            second.next().await;
        };
        self.run_with(false, async move { first.next().await }, hurry).await
    }

    /// Runs until a future is ready, then shuts down in three acts.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Ping;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// # tide.enqueue(Ping).await?;
    /// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    /// # stop.send(()).unwrap();
    /// let worker = tidegate::Worker::new(&tide).handle(async |_: Ping, _| tidegate::done());
    /// worker.run_until(async { stopped.await.unwrap_or_default() }).await?;
    /// # Ok(()) }
    /// ```
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<Report> {
        self.run_with(false, stop, pending()).await
    }

    async fn run_with(
        self,
        until_idle: bool,
        stop: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<Report> {
        let drain = self.drain;
        let shared = self.start(until_idle).await?;
        let (mut crew, mut producer) = (Crew::default(), JoinSet::new());
        for driver in 0..drivers() {
            crew.drivers.spawn(executor::drive(shared.clone(), driver));
        }
        crew.completer.spawn(completer::run(shared.clone()));
        crew.services.spawn(heart::run(shared.clone()));
        crew.services.spawn(permits::run(shared.clone()));
        crew.services.spawn(rescuer::run(shared.clone()));
        crew.services.spawn(pruner::run(shared.clone()));
        // Who only does what is there now leaves the letters of it to be looked at.
        if !shared.until_idle {
            crew.services.spawn(letters::run(shared.clone()));
        }
        crew.services.spawn(memory::run(shared.clone()));
        crew.services.spawn(presence::run(shared.clone()));
        producer.spawn(producer::run(shared.clone()));
        let mut hurry = std::pin::pin!(hurry);
        let mut drain_asked = shared.drain_asked.subscribe();
        let mut unfit = shared.unfit.subscribe();
        let ended = tokio::select! {
            ended = producer.join_next() => ended,
            // A worker without one of its parts would only seem to work.
            error = crew.lost() => return Err(error),
            () = stop => None,
            _ = drain_asked.wait_for(|asked| *asked) => None,
            _ = unfit.wait_for(Option::is_some) => None,
        };
        let late = shutdown::perform(&shared, crew, &mut producer, drain, &mut hurry).await?;
        shared.tide.flush_traces().await;
        if let Some(error) = shared.unfit.send_replace(None) {
            return Err(error);
        }
        match ended.or(late) {
            Some(Err(e)) => Err(Error::new(codes::INTERNAL, format!("a part of the worker failed: {e}"))),
            Some(Ok(Err(error))) => Err(error),
            Some(Ok(Ok(()))) | None => Ok(*shared.tally.change()),
        }
    }

    /// Registers the kinds, checks that they and the handlers match, and lays out what the parts share.
    async fn start(self, until_idle: bool) -> Result<Arc<Shared>> {
        let checked = check::handlers(&self).await?;
        let name = self.name.map_or_else(default_name, Ok)?;
        let runs = self.tide.telemetry().map(|t| Arc::new(Runs::new(t.clone(), name.clone())));
        let memory = Guard::new(self.memory_limit, !self.tide.clock().is_virtual());
        memory.run_once();
        let gates = GateDesk::new(
            self.tide.clone(),
            runs.clone(),
            self.gate_patience,
            self.lease_ms,
            self.concurrency,
        );
        let desk = Desk::new(self.concurrency, checked.queues.len(), drivers(), until_idle);
        let mut handlers = HashMap::with_capacity(self.handlers.len());
        for handler in self.handlers {
            handlers.insert(KindName::new(&handler.kind)?, handler);
        }
        Ok(Arc::new(Shared {
            tide: self.tide,
            name,
            handlers,
            rules: self.rules,
            queues: checked.queues,
            until_idle,
            lease_ms: self.lease_ms,
            letters_every_ms: self.letters_every_ms,
            grace: self.grace,
            desk,
            ledger: Ledger::new(gates.clone()),
            gates,
            roster: Roster::default(),
            outbox: Outbox::default(),
            memory,
            rest: Rest::default(),
            tally: Tally::default(),
            phase: watch::Sender::new(Phase::Working),
            runs,
            drain_asked: watch::Sender::new(false),
            unfit: watch::Sender::new(None),
        }))
    }
}

/// One driver per thread of the runtime: more would only wait for each other.
fn drivers() -> usize {
    tokio::runtime::Handle::current().metrics().num_workers().max(1)
}

fn default_name() -> Result<WorkerId> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Ok(WorkerId::new(format!("{}-{}-{number}", crate::presence::host(), std::process::id()))?)
}
