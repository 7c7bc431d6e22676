//! What a server knows of how things are: whether the store can be written to, counts of queues, who works, what the gates say.
//! Asked once for everybody: `/health`, `/metrics` and the alerts.

mod exposition;
mod gather;
mod health;
mod kinds;
mod probe;
mod readings;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::alerts::Severity;
use tidegate_core::time::Timestamp;

pub(crate) use self::exposition::exposition;
use self::gather::{Scan, Snapshot, Worker};
pub(crate) use self::health::judge;
use self::kinds::Kinds;
pub(crate) use self::kinds::follow_kinds;
pub(crate) use self::probe::probe;
use crate::mint::Mint;

/// What a server watches.
#[derive(Debug)]
pub(crate) struct Watch {
    /// This run of the process.
    process: u64,
    began: Timestamp,
    probed: probe::Probed,
    /// The newest snapshot; one asks, the others wait for it.
    newest: tokio::sync::Mutex<Option<Arc<Snapshot>>>,
    scan: tokio::sync::Mutex<Option<Arc<Scan>>>,
    kinds: Kinds,
    /// Workers that were there, with the end of their announcement; and when they were found to be gone.
    workers: Mutex<BTreeMap<String, Known>>,
    firing: Mutex<Vec<(String, Severity)>>,
    /// Requests for metrics so far, so that tests can see that they are cheap.
    scrapes: AtomicU64,
}

#[derive(Debug, Clone)]
struct Known {
    worker: Worker,
    expires: Timestamp,
    gone_at: Option<Timestamp>,
}

impl Watch {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            process: Mint::random().seed(),
            began: now,
            probed: probe::Probed::default(),
            newest: tokio::sync::Mutex::default(),
            scan: tokio::sync::Mutex::default(),
            kinds: Kinds::default(),
            workers: Mutex::default(),
            firing: Mutex::default(),
            scrapes: AtomicU64::new(0),
        }
    }

    /// This run of the process.
    pub(crate) fn process(&self) -> u64 {
        self.process
    }

    /// Whether the store could be written to, as far as is known.
    pub(crate) fn is_writable(&self) -> bool {
        self.probed.is_fine()
    }

    /// Rules with open incidents, once for each.
    pub(crate) fn set_firing(&self, firing: Vec<(String, Severity)>) {
        *lock(&self.firing) = firing;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
