//! Durable background jobs.
//!
//! ```no_run
//! use tidegate::{Context, Job, Outcome, Tidegate, Worker, done};
//!
//! #[derive(serde::Serialize, serde::Deserialize, Job)]
//! #[job(kind = "invoice.send", queue = "billing", timeout = "30s")]
//! struct SendInvoice { order: u64 }
//!
//! async fn send(job: SendInvoice, cx: Context) -> Outcome {
//!     cx.progress(0.5, "rendered").await?;
//!     println!("invoice for {}", job.order);
//!     done()
//! }
//!
//! #[tokio::main]
//! async fn main() -> tidegate::Result<()> {
//!     let tide = Tidegate::open("data").await?;
//!     tide.enqueue(SendInvoice { order: 7 }).tenant("acme").delay("2s").await?;
//!     Worker::new(&tide).handle(send).concurrency(50).run_until_idle().await?;
//!     Ok(())
//! }
//! ```
//!
//! Five names are enough for the first day: [`Tidegate`] holds the store and enqueues, [`Job`] makes a type a payload,
//! a [`Worker`] runs handlers, each with a [`Context`], and a handler returns an [`Outcome`].
//!
//! - What is enqueued is durable when the call returns; what is completed is too.
//! - A handler may run more than once: after a failure as its policy says, and after its process died. It never
//!   completes twice: a write under a lost lease is refused.
//! - `?` works with any error and gives it a category ([`Failure`]), which decides whether and when to try again.
//! - [`Tidegate::open`] works in a directory of this machine; [`Tidegate::connect`] with a server's address makes the same
//!   program one of many.
//! - `tidegate::testing` (feature `testing`) runs handlers in virtual time.
#![warn(missing_docs)]

extern crate self as tidegate;

mod classify;
mod clock;
mod connect;
mod context;
mod enqueue;
mod error;
mod failure;
mod flow;
pub mod gates;
mod handler;
mod job;
mod mint;
mod outcome;
pub mod presence;
mod schedule;
mod span;
#[cfg(feature = "testing")]
pub mod testing;
mod tide;
mod worker;

pub use context::{Context, StopReason};
pub use enqueue::{Enqueue, IntoPayload};
pub use error::{Error, Result};
pub use failure::{Classify, Failure};
pub use flow::Flow;
pub use job::Job;
pub use outcome::{Done, IntoOutcome, Outcome, done, done_with};
pub use schedule::Schedule;
pub use span::IntoSpan;
pub use tide::Tidegate;
pub use tidegate_core::codes;
pub use tidegate_core::failure::Category;
pub use tidegate_core::ids::{
    ConnectorName, GroupKey, JobId, KindName, QueueName, ScheduleName, TenantId, UniqueKey, WorkerId,
};
pub use tidegate_core::job::{
    Dependency, Job as JobView, OnConflict, OnDead, ParkScope, Priority, State, Unique, UniqueScope,
};
pub use tidegate_core::payload::Payload;
pub use tidegate_core::registry::{KindSettings, QueueSettings};
pub use tidegate_core::retry::{Backoff, Jitter, RetryPolicy};
pub use tidegate_core::schedule::{Missed, Overlap, RunOf, ScheduleSettings};
pub use tidegate_core::time::{Millis, Timestamp};
pub use tidegate_core::trace::TraceParent;
pub use tidegate_core::why::Why;
pub use tidegate_macros::Job;
pub use tidegate_store::params::{CancelReply, EnqueueOutcome, Enqueued, ScheduleChange};
pub use tidegate_telemetry::{Telemetry, TelemetryOptions};
pub use worker::{Report, Worker};

/// Traces: what is recorded of enqueues and runs, and an exporter of the program's own.
///
/// ```
/// let options = tidegate::telemetry::TelemetryOptions::default();
/// ```
pub mod telemetry {
    pub use tidegate_telemetry::{Event, Exporter, Kind, NotSent, Span, Telemetry, TelemetryOptions, Value};
}

/// The store behind a [`Tidegate`]: its traits, parameters, and the one in memory.
///
/// ```
/// let store = tidegate::store::MemoryStore::new();
/// ```
pub mod store {
    #[cfg(feature = "remote")]
    pub use tidegate_client::{RemoteGates, RemoteOptions, RemoteStore, Timeouts};
    pub use tidegate_store::{
        Error, Feed, Jobs, Letters, MemoryStore, Records, Registry, Result, Schedules, Signals, Store,
        Upkeep, Versions, feed, params,
    };
    #[cfg(feature = "postgres")]
    pub use tidegate_store_postgres::{PgOptions, PgStore};
    #[cfg(feature = "sqlite")]
    pub use tidegate_store_sqlite::SqliteStore;
}
