//! What gates say about jobs, told to the store: by workers beside it, and by a server for the workers behind it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::gates::Holder;
use tidegate_core::ids::{ConnectorName, JobId};
use tidegate_core::time::Timestamp;

use crate::{Jobs, Result};

/// Most admissions that wait to be told. More are not: what was handed out with caution goes on with caution.
const MOST_UNTOLD: usize = 10_000;

/// Jobs that were put off and whose turn has come need not wait for their time.
pub async fn call_up<S: Jobs + ?Sized>(store: &S, domain: &str, woken: &[Holder], now: Timestamp) {
    let jobs: Vec<JobId> = woken.iter().filter_map(Holder::job).collect();
    let Ok(gate) = ConnectorName::new(domain) else { return };
    if jobs.is_empty() {
        return;
    }
    if let Err(error) = store.turn(jobs, gate, now).await {
        tracing::debug!(code = %error.code, "jobs whose turn has come were not woken: {error}");
    }
}

/// Admissions on their way to a store ([`Jobs::admitted`]): one batch after the other, so that as many as come while one is
/// told make one more, whatever their number.
#[derive(Debug, Default)]
pub struct Admissions(Mutex<Untold>);

#[derive(Debug, Default)]
struct Untold {
    jobs: Vec<(JobId, u32)>,
    /// Somebody tells, and does not end before everything is told.
    telling: bool,
}

impl Admissions {
    /// A job was admitted, and so many more like it would be. True if nobody tells: the caller must see to it that
    /// [`Self::tell`] runs.
    #[must_use]
    pub fn add(&self, job: JobId, remaining: u32) -> bool {
        let mut untold = self.lock();
        if untold.jobs.len() < MOST_UNTOLD {
            untold.jobs.push((job, remaining));
        }
        !std::mem::replace(&mut untold.telling, true)
    }

    /// Tells everything by `send`, also what comes meanwhile. True if there was something.
    pub async fn tell<F: Future<Output = Result<()>>>(&self, send: impl Fn(Vec<(JobId, u32)>) -> F) -> bool {
        let mut told = false;
        while self.tell_some(&send).await {
            told = true;
        }
        told
    }

    /// Tells one batch by `send`. True if there was one: the caller must see to it that this runs again, until there is none.
    pub async fn tell_some<F: Future<Output = Result<()>>>(
        &self,
        send: impl FnOnce(Vec<(JobId, u32)>) -> F,
    ) -> bool {
        let mut teller = Teller { of: self, ended: false };
        let Some(batch) = teller.next() else { return false };
        if let Err(error) = send(batch).await {
            tracing::debug!(code = %error.code, "the store was not told of admissions: {error}");
        }
        teller.ended = true;
        true
    }

    fn lock(&self) -> MutexGuard<'_, Untold> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever tells. If it is given up in the middle, the next one to add something tells the rest.
struct Teller<'a> {
    of: &'a Admissions,
    ended: bool,
}

impl Teller<'_> {
    /// The next batch; without one it has ended, in the same step in which nothing was left.
    fn next(&mut self) -> Option<Vec<(JobId, u32)>> {
        let mut untold = self.of.lock();
        if untold.jobs.is_empty() {
            (untold.telling, self.ended) = (false, true);
            return None;
        }
        untold.telling = true;
        Some(std::mem::take(&mut untold.jobs))
    }
}

impl Drop for Teller<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.of.lock().telling = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn job(n: u128) -> JobId {
        JobId::from_parts(1_763_000_000_000, n)
    }

    #[tokio::test]
    async fn what_comes_while_a_batch_is_told_makes_one_more_and_never_more_than_is_kept() {
        let (admissions, batches) = (Admissions::default(), RefCell::new(vec![]));
        assert!(admissions.add(job(0), 3));
        assert!(!admissions.add(job(1), 2), "one tells for all");
        let told = admissions
            .tell(|batch| {
                if batches.borrow().is_empty() {
                    for n in 0..2 * MOST_UNTOLD {
                        assert!(!admissions.add(job(n as u128), 1), "it is told by the one who tells");
                    }
                }
                batches.borrow_mut().push(batch.len());
                std::future::ready(Ok(()))
            })
            .await;
        assert!(told);
        assert_eq!(*batches.borrow(), [2, MOST_UNTOLD]);
        assert!(admissions.add(job(0), 3), "nobody tells any more");
    }

    #[tokio::test]
    async fn if_the_one_who_tells_is_given_up_the_next_one_tells() {
        let admissions = Admissions::default();
        assert!(admissions.add(job(0), 3));
        let stuck = admissions.tell(|_| std::future::pending());
        assert!(tokio::time::timeout(std::time::Duration::ZERO, stuck).await.is_err());
        assert!(admissions.add(job(1), 3));
        let rest = RefCell::new(vec![]);
        let send = |batch| {
            *rest.borrow_mut() = batch;
            std::future::ready(Ok(()))
        };
        assert!(admissions.tell(send).await);
        assert_eq!(*rest.borrow(), [(job(1), 3)]);
    }
}
