//! What all requests of a server share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_core::codes::{self, Code, Fault};
use tidegate_core::time::Timestamp;
use tidegate_store::gates::Admissions;
use tidegate_store::{Error, Store};
use tidegate_telemetry::Telemetry;
use tidegate_wire::Problem;
use tokio::sync::{Semaphore, watch};

use crate::alerts::AlertSettings;
use crate::hub::Hub;
use crate::keys::KeyRing;
use crate::mint::Mint;
use crate::portion::Portion;
use crate::pulse::Pulse;
use crate::rate::Rates;
use crate::repeats::Repeats;
use crate::tasks::Tasks;
use crate::turnstile::Turnstile;
use crate::watch::Watch;
use crate::{Clock, Limits, ServerGates};

/// How far a server is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Serves.
    Serving,
    /// Takes no more connections; what waits is answered, what is under way may end.
    Draining,
}

pub(crate) struct App {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) gates: Option<ServerGates>,
    /// Of remote workers' jobs, on their way to the store.
    pub(crate) admissions: Admissions,
    pub(crate) clock: Clock,
    pub(crate) mint: Mint,
    pub(crate) limits: Limits,
    pub(crate) keys: KeyRing,
    pub(crate) rates: Option<Rates>,
    /// Memory for bodies, in KiB.
    pub(crate) bodies: Arc<Semaphore>,
    pub(crate) long_polls: Semaphore,
    /// Attempts settled since the pruner last looked.
    pub(crate) settled: AtomicU64,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) turnstile: Turnstile,
    pub(crate) hub: Arc<Hub>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) pulse: Pulse,
    pub(crate) portion: Portion,
    pub(crate) repeats: Repeats,
    pub(crate) alerts: Arc<AlertSettings>,
    /// Time between two runs of the processor of dead letters.
    pub(crate) letters_every_ms: i64,
    pub(crate) watch: Watch,
    /// Traces, if they are recorded.
    pub(crate) telemetry: Option<Telemetry>,
}

impl App {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now().plus_ms(self.store.clock_ahead_ms())
    }

    /// Waits until the server is on its way out.
    pub(crate) async fn draining(&self) {
        let mut phase = self.phase.subscribe();
        // The sender lives as long as `self`.
        let _ = phase.wait_for(|p| *p >= Phase::Draining).await;
    }

    /// A store's error as a problem. What failed inside is logged under an incident and not told.
    pub(crate) fn problem(&self, error: Error) -> Problem {
        match error.code.fault {
            Fault::Usage | Fault::NotFound | Fault::State => {
                let full = error.code == codes::QUEUE_FULL;
                let problem = Problem::from(error);
                if full { problem.retry_after_ms(1_000) } else { problem }
            }
            Fault::Ours | Fault::Unreachable => self.incident(error.code, &error.detail),
        }
    }

    /// A failure that is not the caller's, logged under an id that the answer names.
    pub(crate) fn incident(&self, code: Code, detail: &str) -> Problem {
        let incident = self.mint.incident();
        if code.fault == Fault::Ours {
            tracing::error!(%code, %incident, "a request failed: {detail}");
        } else {
            tracing::warn!(%code, %incident, "a request could not be done: {detail}");
        }
        let mut problem = Problem::new(code, code.title);
        problem.incident = Some(incident);
        if code.fault == Fault::Unreachable { problem.retry_after_ms(1_000) } else { problem }
    }
}
