//! What a worker does about gates beside its handlers: gives back permits of runs that ended, tells the store what was admitted,
//! renews what is held.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::gates::{Holder, LeaseEnd, Micros, Outcome, Permit, Renewal};
use tidegate_core::ids::{ConnectorName, JobId};
use tidegate_gates::Gates;
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
    /// How long the first in a line waits in place.
    pub(crate) patience: Duration,
    /// How long a permit lasts without renewal.
    pub(crate) lease: Micros,
    /// Those who wait in place keep a slot of the worker: not more than this.
    pub(crate) in_place: Semaphore,
    inner: Mutex<Inner>,
    bell: Notify,
}

#[derive(Default)]
struct Inner {
    /// Permits to be settled.
    back: Vec<(Permit, Outcome)>,
    /// Jobs that were admitted, with how many more would be.
    admitted: Vec<(JobId, u32)>,
}

impl std::fmt::Debug for GateDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateDesk").finish_non_exhaustive()
    }
}

impl GateDesk {
    pub(crate) fn new(tide: Tidegate, patience: Duration, lease_ms: i64, slots: usize) -> Arc<Self> {
        let in_place = Semaphore::new((slots / 4).max(1));
        let lease = lease_ms.saturating_mul(1_000);
        Arc::new(Self { tide, patience, lease, in_place, inner: Mutex::default(), bell: Notify::new() })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The backend's time; that of the test where time is virtual.
    pub(crate) fn now(&self) -> Option<Micros> {
        self.tide.clock().is_virtual().then(|| self.tide.now().0 * 1_000)
    }

    /// The same, whoever says it.
    pub(crate) fn clock(&self, gates: &dyn Gates) -> Micros {
        self.now().unwrap_or_else(|| gates.clock())
    }

    /// A job was admitted: others of its scope may be claimed.
    pub(crate) fn admitted(&self, job: JobId, remaining: u32) {
        self.inner().admitted.push((job, remaining));
        self.bell.notify_one();
    }

    /// A permit is to be settled.
    pub(crate) fn give_back(&self, permit: Permit, outcome: Outcome) {
        let mut inner = self.inner();
        if inner.back.len() >= MOST_BACK {
            tracing::warn!(
                domain = permit.target.domain(),
                "a permit is left to lapse: too many wait to be given back"
            );
            return;
        }
        inner.back.push((permit, outcome));
        drop(inner);
        self.bell.notify_one();
    }

    /// Waits until there is something to do.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// Does what is there to be done. True if there was something.
    pub(crate) async fn run_once(self: &Arc<Self>) -> bool {
        let Inner { back, admitted } = std::mem::take(&mut *self.inner());
        let busy = !(back.is_empty() && admitted.is_empty());
        if !admitted.is_empty()
            && let Err(error) = self.tide.store().admitted(admitted, self.tide.now()).await
        {
            // What was handed out with caution goes on with caution.
            tracing::debug!(code = %error.code, "the store was not told of admissions: {error}");
        }
        for some in back.chunks(TOGETHER) {
            let mut tasks = JoinSet::new();
            for (permit, outcome) in some {
                let (desk, permit, outcome) = (self.clone(), permit.clone(), outcome.clone());
                tasks.spawn(async move { desk.settle(&permit, &outcome).await });
            }
            while tasks.join_next().await.is_some() {}
        }
        busy
    }

    /// Settles a permit. If that cannot be done it lapses with its lease.
    pub(crate) async fn settle(&self, permit: &Permit, outcome: &Outcome) {
        let Some(keeper) = self.tide.keeper() else { return };
        match keeper.backend.settle(self.now(), permit, outcome).await {
            Ok(settled) => {
                if settled.state == LeaseEnd::Gone {
                    tracing::debug!(domain = permit.target.domain(), holder = %permit.holder, "a permit had lapsed");
                }
                self.wake(permit, &settled.woken).await;
            }
            Err(error) => {
                let code = error.code();
                tracing::warn!(%code, domain = permit.target.domain(), "a permit could not be settled and lapses: {error}");
            }
        }
    }

    /// Jobs that were put off and whose turn has come need not wait for their time.
    async fn wake(&self, permit: &Permit, woken: &[Holder]) {
        let jobs: Vec<JobId> = woken.iter().filter_map(job_of).collect();
        let Ok(gate) = ConnectorName::new(permit.target.domain()) else { return };
        if jobs.is_empty() {
            return;
        }
        if let Err(error) = self.tide.store().turn(jobs, gate, self.tide.now()).await {
            tracing::debug!(code = %error.code, "jobs whose turn has come were not woken: {error}");
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

/// The holder of a job's call: the job's id, and from its second call in a run on the number of the call.
pub(crate) fn holder_of(job: JobId, call: u32) -> Option<Holder> {
    let text = if call == 0 { job.to_string() } else { format!("{job}#{call}") };
    Holder::new(text).ok()
}

/// The job that holds, if it is one.
pub(crate) fn job_of(holder: &Holder) -> Option<JobId> {
    holder.as_str().split('#').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_names_its_job() {
        let job = JobId::from_parts(1_763_000_000_000, 7);
        for call in [0, 1, 999] {
            assert_eq!(holder_of(job, call).as_ref().and_then(job_of), Some(job));
        }
        assert_eq!(job_of(&Holder::number(3)), None);
    }
}
