//! What the demo saw with its own eyes: ids that were acknowledged, runs that ended, how long jobs waited. The
//! verdicts compare this with what the store says; neither is taken from the other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::ids::JobId;
use tidegate_core::job::Priority;
use tidegate_core::time::Timestamp;

use super::scenario::TENANTS;

/// Events kept for the screen.
const EVENTS_KEPT: usize = 5;

/// A sum and a count of waits.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    sum_ms: AtomicI64,
    count: AtomicU64,
}

impl Waits {
    fn add(&self, ms: i64) {
        self.sum_ms.fetch_add(ms.max(0), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// The mean; `None` if nobody waited yet.
    pub(crate) fn mean_ms(&self) -> Option<f64> {
        let count = self.count.load(Ordering::Relaxed);
        (count > 0).then(|| self.sum_ms.load(Ordering::Relaxed) as f64 / count as f64)
    }
}

/// A number that remembers its largest value.
#[derive(Debug, Default)]
pub(crate) struct Peak {
    now: AtomicI64,
    most: AtomicI64,
}

impl Peak {
    fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    /// The largest value.
    pub(crate) fn most(&self) -> i64 {
        self.most.load(Ordering::SeqCst)
    }
}

/// One tenant.
#[derive(Debug, Default)]
pub(crate) struct TenantTally {
    /// Acknowledged jobs.
    pub(crate) enqueued: AtomicU64,
    /// Runs that ended well.
    pub(crate) done: AtomicU64,
    /// Waits of its jobs of medium priority in `billing`, from enqueue to first start.
    pub(crate) waits: Waits,
    /// Running in `billing`.
    pub(crate) running: Peak,
}

/// Everything seen.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    acknowledged: Mutex<Vec<JobId>>,
    events: Mutex<VecDeque<(Timestamp, String)>>,
    /// By place in [`TENANTS`].
    pub(crate) tenants: [TenantTally; TENANTS.len()],
    /// Waits of ordinary tenants in `billing`, by priority.
    pub(crate) by_priority: [Waits; Priority::ALL.len()],
    /// Runs that ended well.
    pub(crate) done: AtomicU64,
    /// Attempts that failed and are tried again.
    pub(crate) retried: AtomicU64,
    /// Jobs put off by their handler.
    pub(crate) snoozed: AtomicU64,
    /// Enqueues under a key that was taken.
    pub(crate) duplicates_sent: AtomicU64,
    /// Of those, answered with the existing job.
    pub(crate) duplicates_kept: AtomicU64,
    /// Completions tried under a lost lease.
    pub(crate) stale_tried: AtomicU64,
    /// Of those, refused.
    pub(crate) stale_refused: AtomicU64,
    /// Running in `reports`.
    pub(crate) reports_running: Peak,
    /// Whether the parked tenant must not start anything.
    pub(crate) park_holds: AtomicBool,
    /// How long that was.
    pub(crate) park_judged_ms: AtomicU64,
    /// Starts of the parked tenant all the same.
    pub(crate) started_while_parked: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Plain data: a panic elsewhere leaves nothing half done in it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Reads a counter.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Ledger {
    /// The store has acknowledged this job.
    pub(crate) fn acknowledge(&self, id: JobId, tenant: Option<usize>) {
        lock(&self.acknowledged).push(id);
        if let Some(tally) = tenant.and_then(|t| self.tenants.get(t)) {
            count(&tally.enqueued);
        }
    }

    /// How many were acknowledged.
    pub(crate) fn enqueued(&self) -> u64 {
        lock(&self.acknowledged).len() as u64
    }

    /// All acknowledged ids.
    pub(crate) fn ids(&self) -> Vec<JobId> {
        lock(&self.acknowledged).clone()
    }

    /// Something worth a line.
    pub(crate) fn event(&self, now: Timestamp, text: impl Into<String>) {
        let mut events = lock(&self.events);
        events.push_back((now, text.into()));
        while events.len() > EVENTS_KEPT {
            events.pop_front();
        }
    }

    /// The latest events, oldest first.
    pub(crate) fn events(&self) -> Vec<(Timestamp, String)> {
        lock(&self.events).iter().cloned().collect()
    }

    /// A job starts for the first time in `billing`. The noisy and the parked tenant are special: they wait for reasons
    /// of their own.
    pub(crate) fn waited(&self, tenant: usize, priority: Priority, special: bool, ms: i64) {
        if !special {
            self.by_priority[usize::from(priority.level() - 1)].add(ms);
        }
        if priority == Priority::Medium
            && let Some(tally) = self.tenants.get(tenant)
        {
            tally.waits.add(ms);
        }
    }
}

/// Counts a run while it lasts, also if the handler is aborted.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Peak);

impl<'a> Inside<'a> {
    /// Enters.
    pub(crate) fn new(peak: &'a Peak) -> Self {
        peak.enter();
        Self(peak)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
