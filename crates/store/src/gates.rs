//! What gates say about jobs, told to the store: by workers beside it, and by a server for the workers behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::gates::{Admission, Holder, Room};
use tidegate_core::ids::{ConnectorName, JobId};
use tidegate_core::time::Timestamp;

use crate::Jobs;

/// Most admissions that wait to be told. More are not: what was handed out with caution goes on with caution, and whose turn has
/// come asks when it was told to.
const MOST_UNTOLD: usize = 1_000;

/// Jobs that were put off and whose turn has come need not wait for their time.
pub async fn call_up<S: Jobs + ?Sized>(store: &S, domain: &str, woken: &[Holder], now: Timestamp) {
    let jobs: Vec<JobId> = woken.iter().filter_map(Holder::job).collect();
    let Ok(gate) = ConnectorName::new(domain) else { return };
    if !jobs.is_empty() {
        turn(store, jobs, gate, now).await;
    }
}

async fn turn<S: Jobs + ?Sized>(store: &S, jobs: Vec<JobId>, gate: ConnectorName, now: Timestamp) {
    if let Err(error) = store.turn(jobs, gate, now).await {
        tracing::debug!(code = %error.code, "jobs whose turn has come were not woken: {error}");
    }
}

/// What admissions say about jobs, on its way to a store: one batch after the other, so that as many as come while one is told
/// make one more, whatever their number. A permit is to be used soon: whoever has one does not wait for that.
#[derive(Debug, Default)]
pub struct Admissions(Mutex<Untold>);

/// What is told at once.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Jobs that were admitted, and how many more like each would be.
    admitted: Vec<(JobId, Room)>,
    /// Jobs whose turn it is, by gate.
    woken: BTreeMap<ConnectorName, BTreeSet<JobId>>,
}

impl News {
    fn add(&mut self, domain: &str, holder: &Holder, admission: &Admission) {
        if let Admission::Admitted(admitted) = admission
            && self.admitted.len() < MOST_UNTOLD
        {
            self.admitted.extend(holder.job().map(|job| (job, admitted.room)));
        }
        let jobs: BTreeSet<JobId> = admission.woken().iter().filter_map(Holder::job).collect();
        if jobs.is_empty() || self.woken.values().map(BTreeSet::len).sum::<usize>() >= MOST_UNTOLD {
            return;
        }
        if let Ok(gate) = ConnectorName::new(domain) {
            self.woken.entry(gate).or_default().extend(jobs);
        }
    }

    fn is_empty(&self) -> bool {
        self.admitted.is_empty() && self.woken.is_empty()
    }

    /// Tells the store. What cannot be told is left: jobs come back when they were told to.
    pub async fn send<S: Jobs + ?Sized>(self, store: &S, now: Timestamp) {
        if !self.admitted.is_empty()
            && let Err(error) = store.admitted(self.admitted, now).await
        {
            tracing::debug!(code = %error.code, "the store was not told of admissions: {error}");
        }
        for (gate, jobs) in self.woken {
            turn(store, jobs.into_iter().collect(), gate, now).await;
        }
    }
}

#[derive(Debug, Default)]
struct Untold {
    news: News,
    /// Somebody tells, and does not end before everything is told.
    telling: bool,
}

impl Admissions {
    /// Gates have answered a call of this domain. True if nobody tells and there is something: the caller must see to it that
    /// [`Self::tell`] runs.
    #[must_use]
    pub fn add(&self, domain: &str, holder: &Holder, admission: &Admission) -> bool {
        let mut untold = self.lock();
        untold.news.add(domain, holder, admission);
        !untold.news.is_empty() && !std::mem::replace(&mut untold.telling, true)
    }

    /// Tells everything by `send`, also what comes meanwhile. True if there was something.
    pub async fn tell<F: Future<Output = ()>>(&self, send: impl Fn(News) -> F) -> bool {
        let mut told = false;
        while self.tell_some(&send).await {
            told = true;
        }
        told
    }

    /// Tells one batch by `send`. True if there was one: the caller must see to it that this runs again, until there is none.
    pub async fn tell_some<F: Future<Output = ()>>(&self, send: impl FnOnce(News) -> F) -> bool {
        let mut teller = Teller { of: self, ended: false };
        let Some(batch) = teller.next() else { return false };
        send(batch).await;
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
    fn next(&mut self) -> Option<News> {
        let mut untold = self.of.lock();
        if untold.news.is_empty() {
            (untold.telling, self.ended) = (false, true);
            return None;
        }
        untold.telling = true;
        Some(std::mem::take(&mut untold.news))
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
    use std::sync::Arc;

    use tidegate_core::gates::{Admitted, Permit, Points, Target};

    use super::*;

    fn job(n: u128) -> JobId {
        JobId::from_parts(1_763_000_000_000, n)
    }

    fn holder(n: u128) -> Holder {
        Holder::of_job(job(n), 0).unwrap()
    }

    fn admitted(n: u128, woken: Vec<Holder>) -> Admission {
        let permit = Permit {
            target: Arc::new(Target::new("shopify").unwrap()),
            holder: holder(n),
            fence: 1,
            cost: Points::default(),
            admitted_at: 0,
            use_by: 0,
            expires_at: 0,
        };
        Admission::Admitted(Admitted { permit, remaining: 3, room: Room::PLENTY, woken })
    }

    fn add(to: &Admissions, n: u128) -> bool {
        to.add("shopify", &holder(n), &admitted(n, vec![]))
    }

    #[tokio::test]
    async fn what_comes_while_a_batch_is_told_makes_one_more_and_never_more_than_is_kept() {
        let (admissions, batches) = (Admissions::default(), RefCell::new(vec![]));
        assert!(add(&admissions, 0));
        assert!(!add(&admissions, 1), "one tells for all");
        let told = admissions
            .tell(|batch| {
                if batches.borrow().is_empty() {
                    for n in 0..2 * MOST_UNTOLD as u128 {
                        let woken = admitted(n, vec![holder(n + 1), holder(n + 2)]);
                        let tells = admissions.add("shopify", &holder(n), &woken);
                        assert!(!tells, "it is told by the one who tells");
                    }
                }
                let woken = batch.woken.values().map(BTreeSet::len).sum::<usize>();
                batches.borrow_mut().push((batch.admitted.len(), woken));
                std::future::ready(())
            })
            .await;
        assert!(told);
        assert_eq!(*batches.borrow(), [(2, 0), (MOST_UNTOLD, MOST_UNTOLD)]);
        assert!(add(&admissions, 0), "nobody tells any more");
    }

    #[test]
    fn an_admission_of_somebody_else_tells_of_the_jobs_that_it_woke_and_of_nothing_more() {
        let (admissions, somebody) = (Admissions::default(), Holder::new("somebody").unwrap());
        assert!(
            !admissions.add("shopify", &somebody, &admitted(0, vec![somebody])),
            "there is nothing to tell"
        );
        assert!(admissions.add("shopify", &somebody, &admitted(0, vec![somebody, holder(7)])));
        let woken = BTreeMap::from([(ConnectorName::new("shopify").unwrap(), BTreeSet::from([job(7)]))]);
        let news = Teller { of: &admissions, ended: false }.next();
        assert_eq!(news, Some(News { admitted: vec![], woken }));
    }

    #[tokio::test]
    async fn if_the_one_who_tells_is_given_up_the_next_one_tells() {
        let admissions = Admissions::default();
        assert!(add(&admissions, 0));
        let stuck = admissions.tell(|_| std::future::pending());
        assert!(tokio::time::timeout(std::time::Duration::ZERO, stuck).await.is_err());
        assert!(add(&admissions, 1));
        let rest = RefCell::new(News::default());
        let send = |batch| {
            *rest.borrow_mut() = batch;
            std::future::ready(())
        };
        assert!(admissions.tell(send).await);
        assert_eq!(rest.borrow().admitted, [(job(1), Room::PLENTY)]);
    }
}
