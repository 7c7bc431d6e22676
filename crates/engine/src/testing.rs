//! Tests of handlers without waiting: a store in memory, virtual time, the same order each time.
//!
//! Time stands still until everything waits for it, then it jumps to the next timer. A retry in an hour takes no time at
//! all, and the test says exactly when it came.
//!
//! ```
//! use tidegate::{Context, Failure, Job, Outcome, Worker, done, testing};
//!
//! #[derive(serde::Serialize, serde::Deserialize, Job)]
//! struct Charge { cents: u64 }
//!
//! async fn charge(_: Charge, cx: Context) -> Outcome {
//!     if cx.attempt() == 1 {
//!         return Err(Failure::network("ETIMEDOUT", "the bank did not answer"));
//!     }
//!     done()
//! }
//!
//! testing::block_on(async {
//!     let tide = testing::tide();
//!     let job = tide.enqueue(Charge { cents: 995 }).tenant("acme").delay("1h").await.unwrap();
//!
//!     let report = tide.run(Worker::new(&tide).handle(charge)).await;
//!     assert_eq!((report.completed, report.retried), (1, 1));
//!     assert!(tide.elapsed_ms() >= 3_600_000); // of virtual time
//!
//!     let job = tide.job(job.id).await.unwrap().unwrap();
//!     assert_eq!(job.errors[0].code, "ETIMEDOUT");
//! });
//! ```
//!
//! With tokio's own attribute the same is `#[tokio::test(start_paused = true)]`.

use std::ops::Deref;
use std::sync::Arc;

use tidegate_core::time::Timestamp;
use tidegate_store::{MemoryStore, Store};

use crate::clock::Clock;
use crate::mint::Mint;
use crate::span::duration;
use crate::{IntoSpan, Report, Tidegate, Worker};

/// When virtual time begins: 1 January 2026, 00:00 UTC.
///
/// ```
/// use tidegate::testing;
/// testing::block_on(async { assert_eq!(testing::tide().now(), testing::EPOCH) });
/// ```
pub const EPOCH: Timestamp = Timestamp(1_767_225_600_000);

/// A [`Tidegate`] in memory that lives in virtual time. It is used like one.
///
/// ```
/// use tidegate::testing;
/// testing::block_on(async {
///     let tide = testing::tide();
///     testing::advance("90s").await;
///     assert_eq!(tide.elapsed_ms(), 90_000);
/// });
/// ```
#[derive(Debug, Clone)]
pub struct TestTide {
    tide: Tidegate,
    store: Arc<MemoryStore>,
}

impl TestTide {
    /// Runs a worker until it is idle.
    ///
    /// # Panics
    /// If it could not run.
    ///
    /// ```
    /// # use tidegate::{Worker, testing};
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Ping;
    /// testing::block_on(async {
    ///     let tide = testing::tide();
    ///     tide.enqueue(Ping).await.unwrap();
    ///     let report = tide.run(Worker::new(&tide).handle(async |_: Ping, _| tidegate::done())).await;
    ///     assert_eq!(report.completed, 1);
    /// });
    /// ```
    pub async fn run(&self, worker: Worker) -> Report {
        run(worker).await
    }

    /// Virtual milliseconds since the beginning.
    ///
    /// ```
    /// # use tidegate::testing;
    /// testing::block_on(async { assert_eq!(testing::tide().elapsed_ms(), 0) });
    /// ```
    pub fn elapsed_ms(&self) -> i64 {
        self.now().since(EPOCH)
    }

    /// Rebuilds what the store keeps in memory from its rows, as a restart of the process does.
    ///
    /// # Panics
    /// If the rows contradict each other.
    ///
    /// ```
    /// # use tidegate::testing;
    /// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Ping;
    /// testing::block_on(async {
    ///     let tide = testing::tide();
    ///     let job = tide.enqueue(Ping).await.unwrap();
    ///     tide.restart();
    ///     assert!(tide.job(job.id).await.unwrap().is_some());
    /// });
    /// ```
    pub fn restart(&self) {
        self.store.restart(self.tide.now()).unwrap_or_else(|e| panic!("the store did not come back: {e}"));
    }
}

impl Deref for TestTide {
    type Target = Tidegate;

    fn deref(&self) -> &Tidegate {
        &self.tide
    }
}

/// A fresh one. Call it inside [`block_on`] or a paused tokio test.
///
/// ```
/// use tidegate::testing;
/// testing::block_on(async { let tide = testing::tide(); });
/// ```
pub fn tide() -> TestTide {
    let store = Arc::new(MemoryStore::new());
    TestTide { tide: tide_with(store.clone()), store }
}

/// A [`Tidegate`] over any store that lives in virtual time, for stores that misbehave on purpose.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::{store::MemoryStore, testing};
/// testing::block_on(async { let tide = testing::tide_with(Arc::new(MemoryStore::new())); });
/// ```
pub fn tide_with(store: Arc<dyn Store>) -> Tidegate {
    Tidegate::with_parts(store, Clock::virtual_from(EPOCH), Mint::seeded(1))
}

/// Lets virtual time pass. Everything that comes due meanwhile happens at its own moment.
///
/// # Panics
/// If the span cannot be read.
///
/// ```
/// use tidegate::testing;
/// testing::block_on(async { testing::advance("1h").await });
/// ```
pub async fn advance(span: impl IntoSpan) {
    let span = span.into_span().unwrap_or_else(|e| panic!("{e}"));
    tokio::time::sleep(duration(span.0)).await;
}

/// Runs a worker until it is idle.
///
/// # Panics
/// If it could not run.
///
/// ```
/// # use tidegate::{Worker, testing};
/// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Ping;
/// testing::block_on(async {
///     let tide = testing::tide();
///     let report = testing::run(Worker::new(&tide).handle(async |_: Ping, _| tidegate::done())).await;
///     assert_eq!(report.completed, 0);
/// });
/// ```
pub async fn run(worker: Worker) -> Report {
    worker.run_until_idle().await.unwrap_or_else(|e| panic!("the worker could not run: {e}"))
}

/// Runs a test in virtual time, on one thread.
///
/// # Panics
/// If the test does, or if no runtime can be made.
///
/// ```
/// assert_eq!(tidegate::testing::block_on(async { 6 * 7 }), 42);
/// ```
pub fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap_or_else(|e| panic!("no runtime: {e}")).block_on(test)
}
