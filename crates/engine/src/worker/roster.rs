//! Handlers that did not end with their first step, so that they can be told to stop.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::ids::{JobId, LeaseId, Seq};
use tidegate_store::params::Ticket;

use crate::gates::permit::Held;
use crate::{Context, StopReason};

/// Cancels remembered for runs that are about to be entered; the heartbeat tells of older ones.
const CANCELS_KEPT: usize = 256;

#[derive(Default)]
pub(crate) struct Roster {
    inner: Mutex<Inner>,
    /// Number of cancels heard, so that a run is entered without a look at the list when there were none meanwhile.
    heard: AtomicU64,
}

#[derive(Default)]
struct Inner {
    /// By ticket: a job whose lease was lost may be here twice.
    runs: BTreeMap<Ticket, Context>,
    cancels: VecDeque<JobId>,
    stopped: Option<StopReason>,
}

impl Roster {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of cancels heard so far; hand it to [`enter`](Self::enter).
    pub(crate) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Acquire)
    }

    /// Enters a run that began when `heard` cancels had been heard.
    pub(crate) fn enter(&self, cx: &Context, heard: u64) {
        let mut inner = self.inner();
        inner.runs.insert(cx.job().ticket, cx.clone());
        let cancelled = self.heard() != heard && inner.cancels.contains(&cx.id());
        let stop = if cancelled { Some(StopReason::Cancelled) } else { inner.stopped };
        drop(inner);
        if let Some(reason) = stop {
            cx.stop(reason);
        }
    }

    pub(crate) fn leave(&self, cx: &Context) {
        self.inner().runs.remove(&cx.job().ticket);
    }

    /// What the runs are admitted for and have not settled.
    pub(crate) fn permits(&self) -> Vec<Arc<Held>> {
        self.inner().runs.values().flat_map(|cx| cx.permits().clone()).collect()
    }

    /// A job should stop. False if no such run is entered.
    pub(crate) fn cancel(&self, id: JobId) -> bool {
        let runs: Vec<Context> = {
            let mut inner = self.inner();
            inner.cancels.truncate(CANCELS_KEPT - 1);
            inner.cancels.push_front(id);
            self.heard.fetch_add(1, Ordering::AcqRel);
            inner.runs.values().filter(|cx| cx.id() == id).cloned().collect()
        };
        for cx in &runs {
            cx.stop(StopReason::Cancelled);
        }
        !runs.is_empty()
    }

    /// Jobs of a lease should stop.
    pub(crate) fn cancel_held(&self, lease: LeaseId, jobs: &[Seq]) {
        let wanted = |cx: &Context| cx.job().ticket.lease == lease && jobs.contains(&cx.job().ticket.seq);
        self.stop_where(wanted, StopReason::Cancelled);
    }

    /// Runs whose lease is lost should stop. How many there are.
    pub(crate) fn stop_lost(&self) -> usize {
        self.stop_where(|cx| cx.lease().is_lost(), StopReason::LeaseLost)
    }

    /// Every run should stop, and those that are entered later too.
    pub(crate) fn stop_all(&self, reason: StopReason) {
        self.inner().stopped = Some(reason);
        self.stop_where(|_| true, reason);
    }

    fn stop_where(&self, wanted: impl Fn(&Context) -> bool, reason: StopReason) -> usize {
        let runs: Vec<Context> = self.inner().runs.values().filter(|cx| wanted(cx)).cloned().collect();
        for cx in &runs {
            cx.stop(reason);
        }
        runs.len()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::job::Priority;
    use tidegate_core::time::Timestamp;

    use super::super::sample;
    use super::*;

    fn run(n: i64) -> Context {
        let (job, lease) = sample::claimed(n, Priority::Medium);
        Context::new(job, lease, Timestamp(0))
    }

    #[test]
    fn a_cancel_between_start_and_entry_is_not_missed() {
        let (roster, cx, other) = (Roster::default(), run(1), run(2));
        let heard = roster.heard();
        assert!(!roster.cancel(cx.id()), "it has not been entered yet");
        roster.enter(&cx, heard);
        roster.enter(&other, heard);
        assert_eq!((cx.stop_reason(), other.stop_reason()), (Some(StopReason::Cancelled), None));
        let later = run(1);
        roster.enter(&later, roster.heard());
        assert_eq!(later.stop_reason(), None, "an old cancel says nothing about a new run");
    }

    #[test]
    fn a_stop_of_all_reaches_those_that_come_later() {
        let (roster, early, late, gone) = (Roster::default(), run(1), run(2), run(3));
        roster.enter(&early, 0);
        roster.enter(&gone, 0);
        roster.leave(&gone);
        roster.stop_all(StopReason::Shutdown);
        roster.enter(&late, 0);
        let reasons = [&early, &late, &gone].map(Context::stop_reason);
        assert_eq!(reasons, [Some(StopReason::Shutdown), Some(StopReason::Shutdown), None]);
    }
}
