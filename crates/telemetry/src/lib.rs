//! Traces of jobs, from enqueue to completion, for a collector of OpenTelemetry (ADR 0017).
//!
//! - [`Enqueueing`] and [`Runs`] make the spans. They hold names, ids, numbers and codes: nothing of a payload, a result or an error's text can
//!   get into them.
//! - [`Telemetry`] takes spans and never waits: they go into a bounded queue, and a task of its own sends them in batches. What does not fit,
//!   or cannot be sent, is dropped and counted.
//! - An [`Exporter`] sends them: `Telemetry::otlp` over HTTP (feature `otlp`), or one of the program's own.
#![warn(missing_docs)]

mod enqueue;
mod export;
#[cfg(feature = "otlp")]
mod otlp;
mod runs;
mod span;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use enqueue::Enqueueing;
pub use export::{Exporter, NotSent};
pub use runs::Runs;
pub use span::{Event, Kind, Span, Value};

use export::Queue;
use tidegate_core::trace::Sampling;

/// Name of the service where nobody says another.
pub const DEFAULT_SERVICE: &str = "tidegate";

/// How traces are recorded.
///
/// ```
/// let options = tidegate_telemetry::TelemetryOptions { sample: 0.1, ..Default::default() };
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TelemetryOptions {
    /// `service.name` of what is sent.
    pub service_name: String,
    /// The part of all traces that is recorded, from 0 to 1. A job that carries a context is recorded if whoever made that did.
    pub sample: f64,
    /// Spans name the tenant.
    pub tenants: bool,
    /// Spans that wait to be sent; more are dropped.
    pub queue: usize,
}

impl Default for TelemetryOptions {
    fn default() -> Self {
        Self { service_name: DEFAULT_SERVICE.to_owned(), sample: 1.0, tenants: false, queue: 16_384 }
    }
}

/// Records spans and has them sent. Cheap to clone.
#[derive(Clone)]
pub struct Telemetry {
    inner: Arc<Inner>,
}

struct Inner {
    sampling: Sampling,
    tenants: bool,
    queue: Arc<Queue>,
}

/// What became of the spans so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

impl Telemetry {
    /// Sends spans with an exporter of the program's own, from a task of the runtime that this is called in.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use tidegate_telemetry::{Exporter, NotSent, Span, Telemetry, TelemetryOptions};
    ///
    /// struct Printer;
    ///
    /// #[async_trait::async_trait]
    /// impl Exporter for Printer {
    ///     async fn export(&self, spans: &[Span]) -> Result<u64, NotSent> {
    ///         println!("{spans:?}");
    ///         Ok(0)
    ///     }
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let telemetry = Telemetry::new(&TelemetryOptions::default(), Arc::new(Printer));
    /// # }
    /// ```
    pub fn new(options: &TelemetryOptions, exporter: Arc<dyn Exporter>) -> Self {
        let queue = Arc::new(Queue::new(options.queue));
        tokio::spawn(export::run(queue.clone(), exporter));
        let (sampling, tenants) = (Sampling::ratio(options.sample), options.tenants);
        Self { inner: Arc::new(Inner { sampling, tenants, queue }) }
    }

    /// Sends spans to the collector at this URL, as OTLP over HTTP: `/v1/traces` is added to it.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// ```
    /// # use tidegate_telemetry::{Telemetry, TelemetryOptions};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let telemetry = Telemetry::otlp("http://127.0.0.1:4318", &TelemetryOptions::default()).unwrap();
    /// assert!(Telemetry::otlp("127.0.0.1", &TelemetryOptions::default()).is_err());
    /// # }
    /// ```
    #[cfg(feature = "otlp")]
    pub fn otlp(endpoint: &str, options: &TelemetryOptions) -> Result<Self, String> {
        let exporter = otlp::Otlp::new(endpoint, &options.service_name)?;
        Ok(Self::new(options, Arc::new(exporter)))
    }

    pub(crate) fn sampling(&self) -> Sampling {
        self.inner.sampling
    }

    pub(crate) fn names_tenants(&self) -> bool {
        self.inner.tenants
    }

    /// Has a span sent, if there is room.
    pub(crate) fn record(&self, spans: Vec<Span>) {
        self.inner.queue.push(spans);
    }

    /// Spans that a collector took.
    pub fn sent(&self) -> u64 {
        self.inner.queue.counts.sent.load(Ordering::Relaxed)
    }

    /// Spans that were given up: there was no room for them, or nobody took them.
    pub fn dropped(&self) -> u64 {
        self.inner.queue.counts.dropped.load(Ordering::Relaxed)
    }

    /// Waits until what was recorded so far is sent or given up, at most this long. Says whether it was.
    pub async fn flush(&self, longest: Duration) -> bool {
        tokio::time::timeout(longest, self.inner.queue.flushed()).await.is_ok()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry").field("sampling", &self.inner.sampling).finish_non_exhaustive()
    }
}

/// Now in nanoseconds since 1970, by a clock that is so many milliseconds ahead of this machine's. Spans take the time from the machine and
/// not from the engine's clock, which counts milliseconds.
pub(crate) fn now_ns(ahead_ms: i64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u64).saturating_add_signed(ahead_ms.saturating_mul(1_000_000))
}
