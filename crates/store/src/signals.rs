//! Wake-ups inside one process: that there may be work, and that a running job should stop.

use tidegate_core::ids::JobId;
use tokio::sync::{broadcast, watch};

/// Cancels that a slow listener may lag behind; it learns the rest with its next heartbeat.
const CANCELS_KEPT: usize = 1_024;

/// Channels a store signals on after a commit. A signal is a hint: whoever misses one finds out by its next claim or
/// heartbeat.
#[derive(Debug, Clone)]
pub struct Signals {
    work: watch::Sender<u64>,
    cancels: broadcast::Sender<JobId>,
}

impl Default for Signals {
    fn default() -> Self {
        Self { work: watch::Sender::new(0), cancels: broadcast::Sender::new(CANCELS_KEPT) }
    }
}

impl Signals {
    /// Says that a claim may now find something it did not find before.
    pub fn work(&self) {
        self.work.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Says that a running job should be cancelled.
    pub fn cancel(&self, job: JobId) {
        // Nobody listening is fine: the heartbeat tells them.
        let _ = self.cancels.send(job);
    }

    /// Waits for work. Register before looking, or a wake-up between the two is lost.
    pub fn on_work(&self) -> watch::Receiver<u64> {
        self.work.subscribe()
    }

    /// Whether anybody waits for work.
    pub fn awaited(&self) -> bool {
        self.work.receiver_count() > 0
    }

    /// Hears of jobs to be cancelled.
    pub fn on_cancel(&self) -> broadcast::Receiver<JobId> {
        self.cancels.subscribe()
    }
}
