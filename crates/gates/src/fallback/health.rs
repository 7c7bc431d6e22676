//! What others can know: how the backend is, and what was done without it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use super::watch::Cause;

/// How the backend is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendState {
    /// It answers.
    Normal,
    /// It answers late: renewals should be stretched.
    Slow,
    /// It is not asked; this process goes on with its share.
    Away,
    /// It is asked again, and what was admitted without it still counts.
    Returning,
}

/// The health of the gates' backend, as this process sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Health {
    /// How the backend is.
    pub state: BackendState,
    /// Why it is not asked.
    pub because: Option<Cause>,
    /// Processes that share the limits, as far as is known.
    pub processes: u32,
    /// Whether locks are not given out, because the backend may have lost who has them.
    pub locks_closed: bool,
    /// How much longer than usual to wait between two renewals of a permit.
    pub stretch: u32,
}

impl Health {
    /// Whether everything is as it should be.
    pub fn is_normal(&self) -> bool {
        self.state == BackendState::Normal && !self.locks_closed
    }

    /// One sentence.
    pub fn sentence(&self) -> &'static str {
        match (self.state, self.because) {
            (BackendState::Normal, _) if self.locks_closed => {
                "the gates' backend may have lost its state, locks are not given out yet"
            }
            (BackendState::Normal, _) => "the gates' backend answers",
            (BackendState::Slow, _) => "the gates' backend is slow",
            (BackendState::Returning, _) => {
                "the gates' backend is back, what was admitted without it still counts"
            }
            (BackendState::Away, Some(Cause::ReadOnly)) => {
                "the gates' backend refuses to write, gates go on in process with their share"
            }
            (BackendState::Away, Some(Cause::Slow)) => {
                "the gates' backend does not answer in time, gates go on in process with their share"
            }
            (BackendState::Away, Some(Cause::TooLate)) => {
                "the gates' backend answers after `use_by`, gates go on in process with their share"
            }
            (BackendState::Away, Some(Cause::Unreachable) | None) => {
                "the gates' backend is out of reach, gates go on in process with their share"
            }
        }
    }
}

/// How to tell that a backend is out of reach.
#[derive(Debug, Clone, Copy)]
pub struct FallbackOptions {
    /// An answer that takes longer is slow.
    pub slow: Duration,
    /// An answer that takes longer is none.
    pub away: Duration,
    /// How often this process says that it lives.
    pub beat: Duration,
    /// How long a process that has just started gives out no locks: it cannot know whether the backend has just lost
    /// its state, and this is how long others may need to notice.
    pub newcomer: Duration,
}

impl Default for FallbackOptions {
    fn default() -> Self {
        Self {
            slow: Duration::from_millis(500),
            away: Duration::from_secs(2),
            beat: Duration::from_millis(500),
            newcomer: Duration::from_secs(2),
        }
    }
}

/// What was counted since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Calls that the backend admitted.
    pub admitted_by_backend: u64,
    /// Calls that were admitted without it.
    pub admitted_locally: u64,
    /// Answers that a gate is closed while the backend is away.
    pub closed: u64,
    /// Operations that failed.
    pub failures: u64,
    /// Times that the backend went away.
    pub outages: u64,
    /// Times that it came back as another server, or restarted.
    pub losses: u64,
    /// Settlements that were sent after an outage.
    pub settled_late: u64,
    /// Settlements that were too many to keep: their leases lapse.
    pub forgotten: u64,
}

macro_rules! tally {
    ($($name:ident),*) => {
        /// The counters while they count.
        #[derive(Debug, Default)]
        pub(super) struct Tally { $(pub $name: AtomicU64),* }

        impl Tally {
            pub(super) fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed)),* }
            }
        }
    };
}
tally!(admitted_by_backend, admitted_locally, closed, failures, outages, losses, settled_late, forgotten);

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
