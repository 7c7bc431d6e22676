//! A flock as a store. Each operation says how many ways to the rows it may need, whatever the size of its batch.

use async_trait::async_trait;
use tidegate_core::ids::{ConnectorName, JobId, KindName, LeaseId, QueueName, Seq};
use tidegate_core::job::{Job, Park, ParkScope, Priority, State};
use tidegate_core::limits;
use tidegate_core::registry::{Document, KindSettings, QueueSettings, Version, VersionInfo};
use tidegate_core::time::Timestamp;
use tidegate_core::why::Why;
use tidegate_store::machine::Machine;
use tidegate_store::params::{
    Advanced, Applied, Apply, Beat, CancelJob, CancelReply, Claim, Claimed, Enqueued, Erase, Erased,
    JobQuery, KindView, NewJob, Page, QueueView, Record, Recover, Recovered, RefusedDocument, Report,
    Resolve, Settle, Settled, Shelf, Totals,
};
use tidegate_store::{Feed, Jobs, Letters, Records, Registry, Result, Signals, Store, Upkeep, Versions};

use super::Flock;

/// Jobs of expired leases; due jobs, what they are, and what is due next.
const ADVANCE: u32 = 4;

/// Of one job that is named by its id: find it, read it.
const ONE_JOB: u32 = 2;

/// What is due next, if that changed.
const DUE: u32 = 1;

#[async_trait]
impl Jobs for Flock {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>> {
        // Ids and keys; the jobs that have them.
        self.with(Some(now), 2 + DUE, |m, now| m.enqueue(jobs, now))
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.with(Some(claim.now), ADVANCE + 1, |m, now| m.claim(Claim { now, ..claim }))
    }

    async fn settle(&self, settle: Settle) -> Result<Vec<Settled>> {
        self.with(Some(settle.now), 1, |m, now| m.settle(Settle { now, ..settle }))
    }

    async fn heartbeat(&self, leases: Vec<LeaseId>, now: Timestamp) -> Result<Vec<Beat>> {
        self.with(Some(now), 0, |m, now| m.heartbeat(leases, now))
    }

    async fn admitted(&self, jobs: Vec<(JobId, u32)>, now: Timestamp) -> Result<()> {
        self.with(Some(now), 0, |m, now| m.admitted(&jobs, now))
    }

    async fn turn(&self, jobs: Vec<JobId>, gate: ConnectorName, now: Timestamp) -> Result<()> {
        let ways = ONE_JOB * jobs.len() as u32 + DUE;
        self.with(Some(now), ways, |m, now| m.turn(&jobs, &gate, now))
    }

    async fn report(&self, reports: Vec<Report>, now: Timestamp) -> Result<Vec<bool>> {
        self.with(Some(now), 1, |m, now| m.report(reports, now))
    }

    async fn cancel(&self, cancel: CancelJob) -> Result<CancelReply> {
        self.with(Some(cancel.now), ONE_JOB + DUE, |m, now| m.cancel(CancelJob { now, ..cancel }))
    }

    async fn run_now(&self, id: JobId, now: Timestamp) -> Result<State> {
        self.with(Some(now), ONE_JOB + DUE, |m, now| m.run_now(id, now))
    }

    async fn reprioritise(&self, id: JobId, priority: Priority, now: Timestamp) -> Result<()> {
        self.with(Some(now), ONE_JOB, |m, now| m.reprioritise(id, priority, now))
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>> {
        self.with(None, ONE_JOB, |m, _| m.get(id))
    }

    async fn search(&self, query: JobQuery) -> Result<Page> {
        self.with(None, 1, |m, _| {
            let limit = query.limit.clamp(1, limits::MAX_PAGE);
            let candidates = m.rows_mut().jobs_before(query.cursor.unwrap_or(Seq(i64::MAX)))?;
            let mut fit = m.views(&candidates)?;
            fit.retain(|(_, job)| query.matches(job));
            let more = fit.len() > limit;
            fit.truncate(limit);
            let next = fit.last().map(|(seq, _)| *seq).filter(|_| more);
            Ok(Page { jobs: fit.into_iter().map(|(_, job)| job).collect(), next })
        })
    }

    async fn why(&self, id: JobId, now: Timestamp) -> Result<Why> {
        self.with(None, ONE_JOB, |m, clock| m.why(id, now.max(clock)))
    }
}

#[async_trait]
impl Registry for Flock {
    async fn put_queue(&self, name: QueueName, settings: QueueSettings, now: Timestamp) -> Result<()> {
        self.with(Some(now), 0, |m, now| m.put_queue(name, settings, now))
    }

    async fn settings(&self) -> Result<Vec<(QueueName, QueueSettings)>> {
        self.with(None, 0, |m, _| m.settings())
    }

    async fn ensure_queue(&self, name: QueueName, now: Timestamp) -> Result<()> {
        self.with(Some(now), 0, |m, now| m.ensure_queue(name, now))
    }

    async fn put_kind(&self, name: KindName, settings: KindSettings) -> Result<()> {
        self.with(None, 0, |m, _| m.put_kind(name, settings))
    }

    async fn queues(&self, now: Timestamp) -> Result<Vec<QueueView>> {
        self.with(None, 0, |m, clock| m.queues(now.max(clock)))
    }

    async fn kinds(&self) -> Result<Vec<KindView>> {
        self.with(None, 0, |m, _| m.kinds())
    }

    async fn park(&self, park: Park, now: Timestamp) -> Result<()> {
        self.with(Some(now), 0, |m, now| m.park(park, now))
    }

    async fn unpark(&self, scope: ParkScope, by: String, now: Timestamp) -> Result<bool> {
        self.with(Some(now), 0, |m, now| m.unpark(&scope, &by, now))
    }

    async fn parks(&self) -> Result<Vec<Park>> {
        self.with(None, 0, |m, _| m.parks())
    }
}

#[async_trait]
impl Versions for Flock {
    async fn apply(&self, apply: Apply) -> Result<Applied> {
        self.with(Some(apply.now), 1, |m, now| m.apply(Apply { now, ..apply }))
    }

    async fn refuse(&self, refused: RefusedDocument, now: Timestamp) -> Result<u64> {
        self.with(Some(now), 0, |m, now| m.refuse(refused, now))
    }

    async fn registry(&self) -> Result<Document> {
        self.with(None, 0, |m, _| m.registry())
    }

    async fn versions(&self, limit: usize) -> Result<Vec<VersionInfo>> {
        self.with(None, 1, |m, _| m.versions(limit))
    }

    async fn version(&self, number: u64) -> Result<Option<Version>> {
        self.with(None, 1, |m, _| m.version(number))
    }
}

#[async_trait]
impl Letters for Flock {
    async fn recover(&self, letters: Vec<Recover>, now: Timestamp) -> Result<Vec<Recovered>> {
        self.with(Some(now), 2, |m, now| m.recover(letters, now))
    }

    async fn resolve(&self, resolve: Resolve) -> Result<()> {
        self.with(Some(resolve.now), ONE_JOB, |m, now| m.resolve(Resolve { now, ..resolve }))
    }
}

#[async_trait]
impl Upkeep for Flock {
    async fn advance(&self, now: Timestamp) -> Result<Advanced> {
        self.with(Some(now), ADVANCE, Machine::advance)
    }

    async fn prune(&self, limit: usize, now: Timestamp) -> Result<u64> {
        let queues = self.queues(now).await?.len() as u32;
        let kinds = self.kinds().await?.iter().filter(|k| k.settings.retention.is_some()).count() as u32;
        // Keys; for each kind of its own what is over, and what that is; for each queue whether it is over, what is over, and what
        // that is; the same for the dead.
        self.with(Some(now), 1 + 2 * kinds + 3 * queues + 2, |m, now| m.prune(limit, now))
    }

    async fn erase(&self, erase: Erase) -> Result<Erased> {
        self.with(Some(erase.now), 2 + DUE, |m, now| m.erase(&Erase { now, ..erase }))
    }

    async fn totals(&self) -> Result<Totals> {
        let totals = self.with(None, 0, |m, _| m.totals())?;
        // Each process counts what it refused itself.
        let mut guard = self.lock();
        let all = guard.iter_mut().flat_map(|inner| &mut inner.machines).map(Machine::totals);
        let refused: Result<Vec<u64>> = all.map(|t| t.map(|t| t.stale_refused)).collect();
        Ok(Totals { stale_refused: refused?.iter().sum(), ..totals })
    }
}

#[async_trait]
impl Records for Flock {
    async fn put_record(&self, note: Record, now: Timestamp) -> Result<()> {
        self.notes.put_record(note, now).await
    }

    async fn records(&self, of: Shelf, now: Timestamp) -> Result<Vec<Record>> {
        self.notes.records(of, now).await
    }

    async fn delete_record(&self, of: Shelf, key: String) -> Result<bool> {
        self.notes.delete_record(of, key).await
    }
}

#[async_trait]
impl Store for Flock {
    fn signals(&self) -> &Signals {
        &self.signals
    }

    fn feed(&self) -> &Feed {
        &self.feed
    }

    async fn close(&self) -> Result<()> {
        self.lock().take();
        Ok(())
    }
}
