//! The leases a worker holds: how many jobs of each are not settled yet, until when it holds, and whether it is lost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::ids::LeaseId;
use tokio::time::Instant;

use crate::Tidegate;
use crate::gates::GateDesk;

/// One lease, shared by the runs it covers.
pub(crate) struct Lease {
    tide: Tidegate,
    gates: Arc<GateDesk>,
    lost: AtomicBool,
}

impl Lease {
    pub(crate) fn tide(&self) -> &Tidegate {
        &self.tide
    }

    /// Where its runs leave what concerns their permits.
    pub(crate) fn gates(&self) -> &Arc<GateDesk> {
        &self.gates
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

struct Entry {
    lease: Arc<Lease>,
    /// Jobs that are not settled yet.
    open: usize,
    /// When it ends without a heartbeat, by our own monotonic clock.
    until: Instant,
}

/// All leases of a worker. Touched once per claimed batch, settled batch and heartbeat, never per job.
pub(crate) struct Ledger {
    gates: Arc<GateDesk>,
    entries: Mutex<BTreeMap<LeaseId, Entry>>,
}

impl Ledger {
    pub(crate) fn new(gates: Arc<GateDesk>) -> Self {
        Self { gates, entries: Mutex::default() }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new lease over `open` jobs.
    pub(crate) fn add(&self, id: LeaseId, open: usize, until: Instant, tide: Tidegate) -> Arc<Lease> {
        let lease = Arc::new(Lease { tide, gates: self.gates.clone(), lost: AtomicBool::new(false) });
        self.entries().insert(id, Entry { lease: lease.clone(), open, until });
        lease
    }

    /// Jobs of these leases are settled, or will never be.
    pub(crate) fn settled(&self, leases: impl IntoIterator<Item = LeaseId>) {
        let mut entries = self.entries();
        // Jobs of one lease come in a row: one look-up for each run of equals.
        let mut leases = leases.into_iter().peekable();
        while let Some(id) = leases.next() {
            let mut count = 1;
            while leases.next_if_eq(&id).is_some() {
                count += 1;
            }
            if let Some(entry) = entries.get_mut(&id) {
                entry.open = entry.open.saturating_sub(count);
                if entry.open == 0 {
                    entries.remove(&id);
                }
            }
        }
    }

    /// Leases to be kept alive.
    pub(crate) fn alive(&self) -> Vec<LeaseId> {
        self.entries().iter().filter(|(_, e)| !e.lease.is_lost()).map(|(id, _)| *id).collect()
    }

    pub(crate) fn extended(&self, id: LeaseId, until: Instant) {
        if let Some(entry) = self.entries().get_mut(&id) {
            entry.until = until;
        }
    }

    /// Marks a lease as lost. True if it was not before.
    pub(crate) fn lose(&self, id: LeaseId) -> bool {
        self.entries().get(&id).is_some_and(|e| !e.lease.lost.swap(true, Ordering::AcqRel))
    }

    /// Marks leases as lost whose time is over although nobody could be asked. True if there were any.
    pub(crate) fn lose_overdue(&self, now: Instant) -> bool {
        let entries = self.entries();
        let overdue = entries.values().filter(|e| e.until <= now);
        overdue.filter(|e| !e.lease.lost.swap(true, Ordering::AcqRel)).count() > 0
    }

    /// Whether the lease is lost or gone.
    pub(crate) fn is_lost(&self, id: LeaseId) -> bool {
        self.entries().get(&id).is_none_or(|e| e.lease.is_lost())
    }
}
