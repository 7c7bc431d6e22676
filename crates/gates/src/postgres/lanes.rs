//! Operations that wait, by partition. A partition is worked on by one worker of this process at a time; what comes
//! meanwhile waits in its lane and goes into the next transaction together.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_core::gates::Partition;
use tokio::sync::Semaphore;

use super::job::Job;

/// Most operations in one transaction.
pub(super) const BATCH: usize = 256;
/// Most operations that wait in this process: beyond, callers are told at once instead of after a time-out.
const PENDING: usize = 20_000;
/// How long the state of a partition that is not used is remembered. Far less than an unused partition is kept.
const REMEMBERED: Duration = Duration::from_mins(5);
/// Most states that are remembered.
const STATES: usize = 10_000;

/// Names a partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LaneKey {
    pub(super) domain: Box<str>,
    pub(super) part: Box<str>,
    /// How the domain was split when it was named: under other settings it names nothing.
    pub(super) split: u8,
}

/// A state as this process last wrote it: if the mark is still the row's, it need not be read.
#[derive(Debug)]
pub(super) struct Remembered {
    pub(super) mark: i64,
    pub(super) layout: i64,
    pub(super) state: Partition,
}

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Box<dyn Job>>,
    /// A worker is at it, or will be.
    busy: bool,
    remembered: Option<(Box<Remembered>, Instant)>,
}

#[derive(Default)]
struct Inner {
    lanes: HashMap<LaneKey, Lane>,
    /// Lanes with something to do and nobody at them, the longest waiting first.
    ready: VecDeque<LaneKey>,
    pending: usize,
}

/// All lanes of a process.
pub(super) struct Lanes {
    inner: Mutex<Inner>,
    /// As many permits as lanes are ready.
    count: Semaphore,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self { inner: Mutex::default(), count: Semaphore::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an operation into its lane; gives it back if too many wait.
    pub(super) fn push(&self, key: LaneKey, job: Box<dyn Job>) -> Result<(), Box<dyn Job>> {
        let mut inner = self.lock();
        if inner.pending >= PENDING {
            return Err(job);
        }
        inner.pending += 1;
        let lane = inner.lanes.entry(key.clone()).or_default();
        lane.waiting.push_back(job);
        if !std::mem::replace(&mut lane.busy, true) {
            inner.ready.push_back(key);
            self.count.add_permits(1);
        }
        Ok(())
    }

    /// Waits for a lane with something to do.
    pub(super) async fn next(&self) -> LaneKey {
        loop {
            if let Ok(permit) = self.count.acquire().await {
                permit.forget();
            }
            if let Some(key) = self.lock().ready.pop_front() {
                return key;
            }
        }
    }

    /// Takes operations out of a lane: at most so many.
    pub(super) fn take(&self, key: &LaneKey, most: usize) -> Vec<Box<dyn Job>> {
        let mut inner = self.lock();
        let Some(lane) = inner.lanes.get_mut(key) else { return Vec::new() };
        let count = lane.waiting.len().min(most);
        let jobs: Vec<_> = lane.waiting.drain(..count).collect();
        inner.pending -= jobs.len();
        jobs
    }

    /// The state that is remembered.
    pub(super) fn remembered(&self, key: &LaneKey) -> Option<Box<Remembered>> {
        self.lock().lanes.get_mut(key)?.remembered.take().map(|(state, _)| state)
    }

    /// The worker is done with a lane; it goes to the end of those that are ready if more has come.
    pub(super) fn done(&self, key: LaneKey, state: Option<Box<Remembered>>) {
        let mut inner = self.lock();
        let keep = inner.lanes.len() <= STATES;
        let Some(lane) = inner.lanes.get_mut(&key) else { return };
        lane.remembered = state.filter(|_| keep).map(|s| (s, Instant::now()));
        if !lane.waiting.is_empty() {
            inner.ready.push_back(key);
            self.count.add_permits(1);
        } else if lane.remembered.is_none() {
            inner.lanes.remove(&key);
        } else {
            lane.busy = false;
        }
    }

    /// Forgets the state of a partition that is gone.
    pub(super) fn forget(&self, key: &LaneKey) {
        let mut inner = self.lock();
        if inner.lanes.get(key).is_some_and(|lane| !lane.busy) {
            inner.lanes.remove(key);
        }
    }

    /// Forgets states that were not used for a while.
    pub(super) fn forget_old(&self) {
        let old = |at: &Instant| at.elapsed() > REMEMBERED;
        self.lock()
            .lanes
            .retain(|_, lane| lane.busy || lane.remembered.as_ref().is_some_and(|(_, at)| !old(at)));
    }
}
