//! What a worker does about gates beside its handlers: gives back permits of runs that ended, tells the store what was admitted,
//! renews what is held.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::gates::{Admission, Call, LeaseEnd, Micros, Outcome, Permit, Renewal, Target};
use tidegate_gates::Gates;
use tidegate_store::gates::{Admissions, call_up};
use tidegate_store::params::Ticket;
use tidegate_telemetry::Runs;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use super::permit::Held;
use crate::Tidegate;

/// Permits that are settled or renewed at the same time.
const TOGETHER: usize = 64;
/// Permits that wait to be given back; more lapse by themselves.
const MOST_BACK: usize = 100_000;

/// Where handlers leave what concerns their permits.
pub(crate) struct GateDesk {
    tide: Tidegate,
    /// Where refusals are recorded, if traces are.
    runs: Option<Arc<Runs>>,
    /// How long the first in a line waits in place.
    pub(crate) patience: Duration,
    /// How long a permit lasts without renewal.
    pub(crate) lease: Micros,
    /// Those who wait in place keep a slot of the worker: not more than this.
    pub(crate) in_place: Semaphore,
    /// Permits to be settled.
    back: Mutex<Vec<(Permit, Outcome)>>,
    admissions: Admissions,
    bell: Notify,
}

impl std::fmt::Debug for GateDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateDesk").finish_non_exhaustive()
    }
}

impl GateDesk {
    pub(crate) fn new(
        tide: Tidegate,
        runs: Option<Arc<Runs>>,
        patience: Duration,
        lease_ms: i64,
        slots: usize,
    ) -> Arc<Self> {
        let in_place = Semaphore::new((slots / 4).max(1));
        let lease = lease_ms.saturating_mul(1_000);
        Arc::new(Self {
            tide,
            runs,
            patience,
            lease,
            in_place,
            back: Mutex::default(),
            admissions: Admissions::default(),
            bell: Notify::new(),
        })
    }

    fn back(&self) -> MutexGuard<'_, Vec<(Permit, Outcome)>> {
        self.back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The backend's time; that of the test where time is virtual.
    pub(crate) fn now(&self) -> Option<Micros> {
        self.tide.clock().is_virtual().then(|| self.tide.now().0 * 1_000)
    }

    /// The same, whoever says it.
    pub(crate) fn clock(&self, gates: &dyn Gates) -> Micros {
        self.now().unwrap_or_else(|| gates.clock())
    }

    /// The gates have answered: if the job was admitted, others of its scope may be claimed; and it may be the turn of one that was put
    /// off.
    pub(crate) fn answered(&self, call: &Call, admission: &Admission) {
        if self.admissions.add(call.target.domain(), &call.holder, admission) {
            self.bell.notify_one();
        }
    }

    /// A gate refused a call of this run.
    pub(crate) fn refused(&self, ticket: Ticket, gate: &str, target: &Target) {
        if let Some(runs) = &self.runs {
            runs.refused(ticket, gate, target);
        }
    }

    /// A permit is to be settled.
    pub(crate) fn give_back(&self, permit: Permit, outcome: Outcome) {
        let mut back = self.back();
        if back.len() >= MOST_BACK {
            tracing::warn!(
                domain = permit.target.domain(),
                "a permit is left to lapse: too many wait to be given back"
            );
            return;
        }
        back.push((permit, outcome));
        drop(back);
        self.bell.notify_one();
    }

    /// Waits until there is something to do.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// Does what is there to be done. True if there was something.
    pub(crate) async fn run_once(self: &Arc<Self>) -> bool {
        let back = std::mem::take(&mut *self.back());
        for some in back.chunks(TOGETHER) {
            let mut tasks = JoinSet::new();
            for (permit, outcome) in some {
                let (desk, permit, outcome) = (self.clone(), permit.clone(), outcome.clone());
                tasks.spawn(async move { desk.settle(&permit, &outcome).await });
            }
            while tasks.join_next().await.is_some() {}
        }
        // One batch a round: what is to be given back does not wait for all that come meanwhile.
        let store = self.tide.store();
        let told = self.admissions.tell_some(|news| news.send(&**store, self.tide.now())).await;
        if told {
            self.bell.notify_one();
        }
        told || !back.is_empty()
    }

    /// Settles a permit. If that cannot be done it lapses with its lease.
    pub(crate) async fn settle(&self, permit: &Permit, outcome: &Outcome) {
        let Some(keeper) = self.tide.keeper() else { return };
        match keeper.backend.settle(self.now(), permit, outcome).await {
            Ok(settled) => {
                if settled.state == LeaseEnd::Gone {
                    tracing::debug!(domain = permit.target.domain(), holder = %permit.holder, "a permit had lapsed");
                }
                call_up(&**self.tide.store(), permit.target.domain(), &settled.woken, self.tide.now()).await;
            }
            Err(error) => {
                let code = error.code();
                tracing::warn!(%code, domain = permit.target.domain(), "a permit could not be settled and lapses: {error}");
            }
        }
    }

    /// Makes permits last longer; those that have lapsed are marked.
    pub(crate) async fn renew(self: &Arc<Self>, held: Vec<Arc<Held>>) {
        let Some(keeper) = self.tide.keeper() else { return };
        for some in held.chunks(TOGETHER) {
            let mut tasks = JoinSet::new();
            for held in some.iter().filter(|h| h.is_open()).cloned() {
                let (keeper, now) = (keeper.clone(), self.now());
                tasks.spawn(async move {
                    match keeper.backend.renew(now, &held.permit).await {
                        Ok(Renewal::Renewed { .. }) => {}
                        Ok(Renewal::Gone) if !held.is_open() => {}
                        Ok(Renewal::Gone) => {
                            held.lose();
                            let (domain, holder) = (held.permit.target.domain(), held.permit.holder);
                            tracing::warn!(domain, %holder, "a permit has lapsed while its call runs");
                        }
                        Err(error) => {
                            tracing::warn!(code = %error.code(), "a permit was not renewed: {error}");
                        }
                    }
                });
            }
            while tasks.join_next().await.is_some() {}
        }
    }
}
