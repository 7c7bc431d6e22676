//! What a handler knows about its run, and what it can say while it runs.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::codes;
use tidegate_core::failure::{Category, cut};
use tidegate_core::ids::{ConnectorName, GroupKey, JobId, KindName, QueueName, TenantId};
use tidegate_core::job::{Dependency, ParkScope, Priority};
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::schedule::RunOf;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{ClaimedJob, Report};
use tokio::sync::Notify;

use crate::gates::GateCall;
use crate::gates::permit::Held;
use crate::span::within;
use crate::worker::lease::Lease;
use crate::{Error, Failure, IntoSpan, Outcome, Result, Tidegate};

/// Most bytes of results that a handler gets at once.
const DEPENDENCY_BYTES: usize = 64 << 20;

/// Why a handler is asked to stop.
///
/// ```
/// # fn example(cx: tidegate::Context) {
/// if cx.stop_reason() == Some(tidegate::StopReason::Shutdown) {
///     // put what was done so far somewhere safe
/// }
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Somebody cancelled the job.
    Cancelled,
    /// Its timeout has passed.
    TimedOut,
    /// Its lease is lost: another worker may have the job, no write will be accepted.
    LeaseLost,
    /// The worker shuts down and has waited as long as it may.
    Shutdown,
}

impl StopReason {
    const ALL: [Self; 4] = [Self::Cancelled, Self::TimedOut, Self::LeaseLost, Self::Shutdown];
}

/// A handler's view of its run. Cheap to clone. The lease is kept alive by the worker; a handler need not do it.
///
/// ```
/// use tidegate::{Context, Job, Outcome, done};
/// # #[derive(serde::Serialize, serde::Deserialize, Job)] struct Export { pages: u32 }
/// async fn export(job: Export, cx: Context) -> Outcome {
///     for page in 0..job.pages {
///         if cx.is_cancelled() {
///             break;
///         }
///         cx.progress(f64::from(page) / f64::from(job.pages), "exporting").await?;
///     }
///     done()
/// }
/// ```
#[derive(Clone)]
pub struct Context(Arc<Run>);

struct Run {
    job: ClaimedJob,
    lease: Arc<Lease>,
    started: Timestamp,
    /// 0, or the reason's place in [`StopReason::ALL`] plus one. The first reason stays.
    stop: AtomicU8,
    bell: Notify,
    /// What this run is admitted for and has not settled.
    permits: Mutex<Vec<Arc<Held>>>,
    /// Calls that asked in this run.
    calls: AtomicU32,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $type:ty = |$job:ident| $value:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// ```
            #[doc = concat!("# fn example(cx: tidegate::Context) { let _ =")]
            #[doc = concat!("cx.", stringify!($name), "()")]
            /// # ; }
            /// ```
            pub fn $name(&self) -> $type {
                let $job = &self.0.job;
                $value
            }
        )*
    };
}

impl Context {
    pub(crate) fn new(job: ClaimedJob, lease: Arc<Lease>, started: Timestamp) -> Self {
        Self(Arc::new(Run {
            job,
            lease,
            started,
            stop: AtomicU8::new(0),
            bell: Notify::new(),
            permits: Mutex::default(),
            calls: AtomicU32::new(0),
        }))
    }

    fields! {
        /// Id of the job.
        id: JobId = |job| job.id;
        /// Its kind.
        kind: &KindName = |job| &job.kind;
        /// Its queue.
        queue: &QueueName = |job| &job.queue;
        /// What to do, as JSON text.
        payload: &Payload = |job| &job.payload;
        /// Whose it is.
        tenant: Option<&TenantId> = |job| job.tenant.as_ref();
        /// Its key of fairness, limits and parks.
        group: &GroupKey = |job| &job.group;
        /// The API it calls, if its kind names one.
        connector: Option<&ConnectorName> = |job| job.connector.as_ref();
        /// Its importance.
        priority: Priority = |job| job.priority;
        /// This attempt, from 1. Snoozes and lost processes do not count.
        attempt: u32 = |job| job.attempt;
        /// When it was enqueued.
        created_at: Timestamp = |job| job.created_at;
        /// The trace that this run is part of, as a `traceparent` to hand on: the run's own span if it is recorded, otherwise what came with
        /// the enqueue.
        traceparent: Option<&str> = |job| job.trace.as_deref();
        /// The schedule that it is a run of, and when the run was planned.
        schedule: Option<&RunOf> = |job| job.schedule.as_ref();
    }

    /// When this attempt times out.
    ///
    /// ```
    /// # fn example(cx: tidegate::Context) {
    /// let left_ms = cx.deadline().since(cx.now());
    /// # }
    /// ```
    pub fn deadline(&self) -> Timestamp {
        self.0.started.plus_ms(self.0.job.timeout_ms)
    }

    /// The time by which the worker lives.
    ///
    /// ```
    /// # fn example(cx: tidegate::Context) {
    /// assert!(cx.now() < cx.deadline());
    /// # }
    /// ```
    pub fn now(&self) -> Timestamp {
        self.tide().now()
    }

    /// The handle that the worker was made from, to enqueue more jobs.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Next;
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// cx.tide().enqueue(Next).tenant("acme").await?;
    /// # tidegate::done() }
    /// ```
    pub fn tide(&self) -> &Tidegate {
        self.0.lease.tide()
    }

    /// Reports progress from 0 to 1. Durable when it returns; an error if the lease is lost.
    ///
    /// ```
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// cx.progress(0.5, "rendered").await?;
    /// # tidegate::done() }
    /// ```
    pub async fn progress(&self, fraction: f64, note: impl Into<String>) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            let why = format!("progress goes from 0 to 1, as in progress(0.5, \"half\"), not {fraction}");
            return Err(Error::new(codes::INVALID_REQUEST, why));
        }
        self.report(Some((fraction, cut(note.into(), limits::MAX_NOTE_BYTES))), vec![]).await
    }

    /// The jobs that this one waited for, with their results, in the order in which they were stored. Jobs that nothing is
    /// known of any more are left out. Up to 64 MiB of results; more are read page by page with
    /// [`Jobs::dependencies`](crate::store::Jobs::dependencies).
    ///
    /// ```
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// for part in cx.dependencies().await? {
    ///     println!("{} {:?}", part.id, part.result.map(|r| r.as_str().to_owned()));
    /// }
    /// # tidegate::done() }
    /// ```
    pub async fn dependencies(&self) -> Result<Vec<Dependency>> {
        let job = self.job();
        let (mut all, mut bytes, mut skip) = (vec![], 0, (job.dependencies > 0).then_some(0));
        while let Some(from) = skip {
            let page = limits::MAX_DEPENDENCY_PAGE;
            let found =
                self.lease().tide().store().dependencies(job.id, Some(job.ticket), from, page).await?;
            let results = found.jobs.iter().filter_map(|d| d.result.as_ref());
            bytes += results.map(|r| r.as_str().len()).sum::<usize>();
            if bytes > DEPENDENCY_BYTES {
                let why = "the results of what it waited for have more than 64 MiB; read them page by page";
                return Err(Error::new(codes::TOO_LARGE, why));
            }
            all.extend(found.jobs);
            skip = found.next;
        }
        Ok(all)
    }

    /// Keeps lines with the job in one write: the last hundred stay, each up to 1 KiB. Durable when it returns.
    ///
    /// ```
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// cx.log_lines(["connected", "the printer answered"]).await?;
    /// # tidegate::done() }
    /// ```
    pub async fn log_lines<S: Into<String>>(&self, lines: impl IntoIterator<Item = S>) -> Result<()> {
        let lines: Vec<String> =
            lines.into_iter().map(|line| cut(line.into(), limits::MAX_NOTE_BYTES)).collect();
        let last = lines.len().saturating_sub(limits::MAX_LOG_LINES);
        self.report(None, lines.into_iter().skip(last).collect()).await
    }

    /// Keeps a line with the job: the last hundred stay, each up to 1 KiB. Durable when it returns.
    ///
    /// ```
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// cx.log("the printer answered").await?;
    /// # tidegate::done() }
    /// ```
    pub async fn log(&self, line: impl Into<String>) -> Result<()> {
        self.report(None, vec![cut(line.into(), limits::MAX_NOTE_BYTES)]).await
    }

    async fn report(&self, progress: Option<(f64, String)>, log: Vec<String>) -> Result<()> {
        let report = Report { ticket: self.0.job.ticket, progress, log };
        let kept = self.tide().store().report(vec![report], self.now()).await?;
        if kept.first() == Some(&true) {
            return Ok(());
        }
        self.stop(StopReason::LeaseLost);
        Err(Error::new(codes::STALE_LEASE, format!("the lease of {} is lost", self.id())))
    }

    /// Puts the job off without spending an attempt. Return it from the handler, or use `?` on it.
    ///
    /// ```
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// return cx.snooze("5m", "the shop is closed");
    /// # }
    /// ```
    pub fn snooze(&self, span: impl IntoSpan, reason: impl Into<String>) -> Outcome {
        let ms = within("a snooze", span, 0..=limits::MAX_DELAY_MS).map_err(|e| bad_snooze(&e))?;
        self.put_off(self.now().plus_ms(ms), reason.into(), None)
    }

    /// Puts the job off until a time, and parks a scope until then in the same write: no other job of that scope
    /// starts before. For a gate that refused everybody, not only this job.
    ///
    /// ```
    /// use tidegate::ParkScope;
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// let until = cx.now().plus_ms(30_000);
    /// return cx.snooze_and_park(ParkScope::Group(cx.group().clone()), until, "budget used up");
    /// # }
    /// ```
    pub fn snooze_and_park(&self, scope: ParkScope, until: Timestamp, reason: impl Into<String>) -> Outcome {
        if until.since(self.now()) > limits::MAX_DELAY_MS {
            let why = format!("{until} is more than ten years ahead");
            return Err(bad_snooze(&Error::new(codes::INVALID_TIME, why)));
        }
        self.put_off(until, reason.into(), Some(scope))
    }

    #[expect(clippy::unused_self, reason = "snoozes belong to a run")]
    fn put_off(&self, until: Timestamp, reason: String, park: Option<ParkScope>) -> Outcome {
        Err(Failure::snoozed(until, cut(reason, limits::MAX_NOTE_BYTES), park))
    }

    /// A call to an API whose gates are asked first: refine it with the builder's methods, then await its `admit`. See
    /// [`Tidegate::gates`](crate::Tidegate::gates).
    ///
    /// ```
    /// use tidegate::gates::Answer;
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Sync;
    /// # async fn call() -> Result<u32, std::io::Error> { Ok(42) }
    /// async fn sync(_: Sync, cx: tidegate::Context) -> tidegate::Outcome {
    ///     let permit = cx.gate("shopify").cost(52).admit().await?;
    ///     let actual = call().await?;
    ///     permit.settle(Answer::ok().cost(actual)).await?;
    ///     tidegate::done()
    /// }
    /// ```
    pub fn gate(&self, connector: impl Into<String>) -> GateCall {
        GateCall::new(self.clone(), connector.into())
    }

    /// Whether the handler should stop, for whatever reason.
    ///
    /// ```
    /// # fn example(cx: tidegate::Context) {
    /// while !cx.is_cancelled() { /* one more piece */ break }
    /// # }
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.stop_reason().is_some()
    }

    /// Waits until the handler should stop, for whatever reason. What has not ended a grace period later is aborted.
    ///
    /// ```
    /// # async fn work() {}
    /// # async fn example(cx: tidegate::Context) -> tidegate::Outcome {
    /// tokio::select! {
    ///     () = work() => tidegate::done(),
    ///     () = cx.cancelled() => Err(tidegate::Failure::logic("STOPPED", "asked to stop")),
    /// }
    /// # }
    /// ```
    pub async fn cancelled(&self) {
        loop {
            let mut rung = std::pin::pin!(self.0.bell.notified());
            // Registered before looking, or a stop between the two is missed.
            rung.as_mut().enable();
            if self.is_cancelled() {
                return;
            }
            rung.await;
        }
    }

    /// Whether the lease is lost: another worker may have the job, so effects must stop.
    ///
    /// ```
    /// # fn example(cx: tidegate::Context) {
    /// assert!(!cx.lease_lost());
    /// # }
    /// ```
    pub fn lease_lost(&self) -> bool {
        self.stop_reason() == Some(StopReason::LeaseLost) || self.0.lease.is_lost()
    }

    /// Why the handler should stop; `None`: it should not.
    ///
    /// ```
    /// # fn example(cx: tidegate::Context) {
    /// assert_eq!(cx.stop_reason(), None);
    /// # }
    /// ```
    pub fn stop_reason(&self) -> Option<StopReason> {
        match self.0.stop.load(Ordering::Acquire) {
            0 => self.0.lease.is_lost().then_some(StopReason::LeaseLost),
            n => StopReason::ALL.get(usize::from(n) - 1).copied(),
        }
    }

    /// Asks the handler to stop. The first reason stays.
    /// A number that grows from run to run: whoever runs this job after the lease was lost has a larger one. Hand it to
    /// a system that can refuse writers with a smaller number than it has seen, and a run that woke up too late can do no
    /// harm there either.
    ///
    /// ```
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Ping;
    /// async fn ping(_: Ping, cx: tidegate::Context) -> tidegate::Outcome {
    ///     tidegate::done_with(cx.fencing_token())
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// # let tide = tidegate::Tidegate::memory();
    /// # tide.enqueue(Ping).await?;
    /// # tidegate::Worker::new(&tide).handle(ping).run_until_idle().await?;
    /// # Ok(()) }
    /// ```
    pub fn fencing_token(&self) -> i64 {
        self.job().ticket.lease.0
    }

    pub(crate) fn stop(&self, reason: StopReason) {
        let place = StopReason::ALL.iter().position(|r| *r == reason).unwrap_or_default();
        let _first_wins =
            self.0.stop.compare_exchange(0, place as u8 + 1, Ordering::AcqRel, Ordering::Acquire);
        self.0.bell.notify_waiters();
    }

    pub(crate) fn job(&self) -> &ClaimedJob {
        &self.0.job
    }

    /// What this run is admitted for and has not settled.
    pub(crate) fn permits(&self) -> MutexGuard<'_, Vec<Arc<Held>>> {
        self.0.permits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of the next call that asks.
    pub(crate) fn next_call(&self) -> u32 {
        self.0.calls.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.0.lease
    }
}

fn bad_snooze(error: &Error) -> Failure {
    Failure::new(
        Category::LogicError,
        error.code.id,
        format!("the snooze is not acceptable: {}", error.detail),
    )
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let job = &self.0.job;
        write!(f, "Context({} {} attempt {})", job.id, job.kind, job.attempt)
    }
}
