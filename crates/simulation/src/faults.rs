//! Stores that break a promise on purpose. If the referee did not notice them, its silence would mean nothing.

use std::collections::HashMap;

use tidegate_core::ids::{JobId, KindName, LeaseId, QueueName};
use tidegate_core::job::{Job, OnDead, Park, ParkScope, Priority, State};
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::params::{
    Advanced, Beat, CancelJob, CancelReply, Claim, Claimed, ClaimedJob, EnqueueOutcome, Enqueued, NewJob,
    Outcome, QueueView, Recover, Recovered, Report, Settle, Settled, Settlement,
};

use crate::plane::Plane;

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// It says yes to a completion whose lease was lost.
    AcceptsStaleTickets,
    /// It hands out a job that somebody holds.
    HandsOutTwice,
    /// It acknowledges a job and does not store it.
    LosesAJob,
    /// It forgets leases when it is opened again.
    ForgetsLeases,
    /// It forgets the limiter's window when it is opened again.
    ForgetsTheWindow,
    /// It does not look at limits of queues and groups.
    IgnoresConcurrency,
    /// It takes leases back before their time.
    TakesBackEarly,
    /// Each time it is opened again, a place of each group is gone.
    LeaksPlaces,
    /// It runs at once what was to wait.
    IgnoresDelays,
    /// It runs jobs before those that they wait for.
    IgnoresDependencies,
    /// It runs jobs although what they wait for is dead.
    OutlivesTheDead,
}

impl Defect {
    /// Every defect.
    pub const ALL: [Self; 11] = [
        Self::AcceptsStaleTickets,
        Self::HandsOutTwice,
        Self::LosesAJob,
        Self::ForgetsLeases,
        Self::ForgetsTheWindow,
        Self::IgnoresConcurrency,
        Self::TakesBackEarly,
        Self::LeaksPlaces,
        Self::IgnoresDelays,
        Self::IgnoresDependencies,
        Self::OutlivesTheDead,
    ];
}

/// A store with a defect.
pub struct Broken<P> {
    inner: P,
    defect: Defect,
    settings: HashMap<QueueName, QueueSettings>,
    held: Vec<ClaimedJob>,
    calls: u64,
}

impl<P: Plane> Broken<P> {
    /// Breaks a store.
    pub fn new(inner: P, defect: Defect) -> Self {
        Self { inner, defect, settings: HashMap::new(), held: vec![], calls: 0 }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn each_queue(&mut self, now: Timestamp, change: impl Fn(&mut QueueSettings)) -> Result<()> {
        for (name, settings) in self.settings.clone() {
            let mut changed = settings;
            change(&mut changed);
            self.inner.put_queue(name, changed, now)?;
        }
        Ok(())
    }
}

impl<P: Plane> Plane for Broken<P> {
    fn put_queue(&mut self, name: QueueName, settings: QueueSettings, now: Timestamp) -> Result<()> {
        self.settings.insert(name.clone(), settings.clone());
        self.inner.put_queue(name, settings, now)
    }

    fn put_kind(&mut self, name: KindName, settings: KindSettings) -> Result<()> {
        self.inner.put_kind(name, settings)
    }

    fn enqueue(&mut self, mut jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>> {
        for job in &mut jobs {
            if self.is(Defect::IgnoresDependencies) {
                job.after.clear();
            } else if self.is(Defect::OutlivesTheDead) {
                job.on_dead = OnDead::Ignore;
            }
        }
        let lost = if self.is(Defect::LosesAJob) && jobs.len() > 3 { jobs.pop() } else { None };
        let mut reply = self.inner.enqueue(jobs, now)?;
        reply.extend(lost.map(|job| Enqueued { id: job.id, outcome: EnqueueOutcome::Created }));
        Ok(reply)
    }

    fn claim(&mut self, claim: Claim) -> Result<Claimed> {
        self.calls += 1;
        let now = claim.now;
        if self.is(Defect::TakesBackEarly) {
            self.inner.advance(now.plus_ms(8_000))?;
        }
        if self.is(Defect::IgnoresConcurrency) {
            self.each_queue(now, |s| (s.concurrency, s.group_concurrency) = (None, None))?;
        }
        let mut reply = self.inner.claim(claim)?;
        if self.is(Defect::IgnoresConcurrency) {
            self.each_queue(now, |_| ())?;
        }
        if let (true, Some(lease), Some(other)) = (
            self.is(Defect::HandsOutTwice) && self.calls.is_multiple_of(7),
            reply.lease,
            self.held.last().cloned(),
        ) {
            let mut twice = other;
            twice.ticket.lease = lease.id;
            reply.jobs[0] = twice;
        }
        self.held.extend(reply.jobs.iter().cloned());
        Ok(reply)
    }

    fn settle(&mut self, settle: Settle) -> Result<Vec<Settled>> {
        let outcomes: Vec<Outcome> = settle.settlements.iter().map(|s| s.outcome.clone()).collect();
        let tickets: Vec<_> = settle.settlements.iter().map(|s| s.ticket).collect();
        let now = settle.now;
        let mut reply = self.inner.settle(settle)?;
        for (settled, outcome) in reply.iter_mut().zip(&outcomes) {
            if self.is(Defect::AcceptsStaleTickets)
                && *settled == Settled::Stale
                && matches!(outcome, Outcome::Complete(_))
            {
                *settled = Settled::Applied(State::Completed);
            }
        }
        if self.is(Defect::IgnoresDelays) {
            let again = reply.iter().zip(&tickets).filter(|(r, _)| matches!(r, Settled::Again(_)));
            let put_off: Vec<_> = again.map(|(_, t)| *t).collect();
            for job in self.held.clone().iter().filter(|j| put_off.contains(&j.ticket)) {
                self.inner.run_now(job.id, now)?;
            }
        }
        self.held.retain(|job| !tickets.contains(&job.ticket));
        Ok(reply)
    }

    fn heartbeat(&mut self, leases: Vec<LeaseId>, now: Timestamp) -> Result<Vec<Beat>> {
        self.inner.heartbeat(leases, now)
    }

    fn report(&mut self, reports: Vec<Report>, now: Timestamp) -> Result<Vec<bool>> {
        self.inner.report(reports, now)
    }

    fn cancel(&mut self, cancel: CancelJob) -> Result<CancelReply> {
        self.inner.cancel(cancel)
    }

    fn run_now(&mut self, id: JobId, now: Timestamp) -> Result<State> {
        self.inner.run_now(id, now)
    }

    fn reprioritise(&mut self, id: JobId, priority: Priority, now: Timestamp) -> Result<()> {
        self.inner.reprioritise(id, priority, now)
    }

    fn park(&mut self, park: Park, now: Timestamp) -> Result<()> {
        self.inner.park(park, now)
    }

    fn unpark(&mut self, scope: &ParkScope, by: &str, now: Timestamp) -> Result<bool> {
        self.inner.unpark(scope, by, now)
    }

    fn recover(&mut self, letters: Vec<Recover>, now: Timestamp) -> Result<Vec<Recovered>> {
        self.inner.recover(letters, now)
    }

    fn advance(&mut self, now: Timestamp) -> Result<Advanced> {
        self.inner.advance(now)
    }

    fn queues(&mut self, now: Timestamp) -> Result<Vec<QueueView>> {
        self.inner.queues(now)
    }

    fn get(&mut self, id: JobId) -> Result<Option<Job>> {
        self.inner.get(id)
    }

    fn restart(&mut self, now: Timestamp) -> Result<()> {
        self.inner.restart(now)?;
        if self.is(Defect::ForgetsLeases) {
            let release = |job: &ClaimedJob| Settlement { ticket: job.ticket, outcome: Outcome::Release };
            let settlements = self.held.drain(..).map(|job| release(&job)).collect();
            self.inner.settle(Settle { settlements, now, seed: 0 })?;
        }
        if self.is(Defect::ForgetsTheWindow) {
            self.each_queue(now, |s| s.limiter = None)?;
            self.each_queue(now, |_| ())?;
        }
        if self.is(Defect::LeaksPlaces) {
            for settings in self.settings.values_mut() {
                settings.group_concurrency = settings.group_concurrency.map(|n| n.saturating_sub(1).max(1));
                settings.concurrency = settings.concurrency.map(|n| n.saturating_sub(1).max(1));
            }
            self.each_queue(now, |_| ())?;
        }
        Ok(())
    }
}
