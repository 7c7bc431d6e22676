//! A flock as a store. Each operation says how many ways to the rows it may need, whatever the size of its batch.

use async_trait::async_trait;
use tidegate_core::gates::Room;
use tidegate_core::ids::{ConnectorName, JobId, KindName, LeaseId, QueueName, ScheduleName, Seq};
use tidegate_core::job::{Job, Park, ParkScope, Priority, State};
use tidegate_core::letters::PAGE;
use tidegate_core::limits;
use tidegate_core::registry::{Document, KindSettings, QueueSettings, Version, VersionInfo};
use tidegate_core::schedule::TickEntry;
use tidegate_core::time::Timestamp;
use tidegate_core::why::Why;
use tidegate_store::machine::Machine;
use tidegate_store::params::{
    Advanced, Applied, Apply, Beat, CancelJob, CancelReply, CauseQuery, Causes, Claim, Claimed, Dependencies,
    Enqueued, Erase, Erased, JobQuery, KindView, NewJob, Page, ProcessLetters, ProcessedLetters, PutSchedule,
    QueueView, Reauthorized, Recover, Recovered, RefusedDocument, Report, Resolve, ScheduleChange,
    ScheduleView, Settle, Settled, TickQuery, Ticket, Totals,
};
use tidegate_store::{
    Feed, Jobs, Letters, Registry, Result, Schedules, Signals, Store, Upkeep, Versions, served,
};

use super::Flock;

/// Jobs of expired leases; due jobs, what they are, and what is due next.
const ADVANCE: u32 = 4 + TOLD;

/// Of one job that is named by its id: find it, read it.
const ONE_JOB: u32 = 2;

/// Those who wait for what was finished: who they are, what they are, and those of them that die; once for each level of
/// a flow that dies.
const TOLD: u32 = 3 * LEVELS;
const LEVELS: u32 = 8;

/// What is due next, if that changed.
const DUE: u32 = 1;

#[async_trait]
impl Jobs for Flock {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>> {
        // Ids and keys; the jobs that have them; the line of a dead job that is waited for.
        let line = if jobs.iter().any(|job| !job.after.is_empty()) { 4 } else { 0 };
        self.with(Some(now), 2 + DUE + line, |m, now| m.enqueue(jobs, now))
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.with(Some(claim.now), ADVANCE + 1, |m, now| m.claim(Claim { now, ..claim }))
    }

    async fn settle(&self, settle: Settle) -> Result<Vec<Settled>> {
        self.with(Some(settle.now), 1 + TOLD, |m, now| m.settle(Settle { now, ..settle }))
    }

    async fn heartbeat(&self, leases: Vec<LeaseId>, now: Timestamp) -> Result<Vec<Beat>> {
        self.with(Some(now), 0, |m, now| m.heartbeat(leases, now))
    }

    async fn admitted(&self, jobs: Vec<(JobId, Room)>, now: Timestamp) -> Result<()> {
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
        // Who waits for it, level by level; all of them.
        let cascade = if cancel.cascade { 2 * LEVELS + 1 } else { 0 };
        self.with(Some(cancel.now), ONE_JOB + DUE + TOLD + cascade, |m, now| {
            m.cancel(CancelJob { now, ..cancel })
        })
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

    async fn dependencies(
        &self,
        id: JobId,
        _held: Option<Ticket>,
        skip: u32,
        limit: usize,
    ) -> Result<Dependencies> {
        // The job, its edges, what they lead from; one way for each job of which only something is kept.
        self.with(None, ONE_JOB + 2 + limit as u32, |m, _| m.dependencies(id, skip, limit))
    }

    async fn why(&self, id: JobId, now: Timestamp) -> Result<Why> {
        let why = self.with(None, ONE_JOB + 3, |m, clock| m.why(id, now.max(clock)))?;
        Ok(served::confirmed(self, why, now).await)
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
        // The letters; who waits for them and what they waited for; the lines of those.
        self.with(Some(now), 2 + 2 + 8, |m, now| m.recover(letters, now))
    }

    async fn resolve(&self, resolve: Resolve) -> Result<()> {
        self.with(Some(resolve.now), ONE_JOB, |m, now| m.resolve(Resolve { now, ..resolve }))
    }

    async fn reauthorized(
        &self,
        letters: Vec<Reauthorized>,
        by: String,
        now: Timestamp,
    ) -> Result<Vec<Recovered>> {
        self.with(Some(now), 2 + 2 + 8, |m, now| m.reauthorized(letters, &by, now))
    }

    async fn process_letters(&self, process: ProcessLetters) -> Result<ProcessedLetters> {
        // Where it stands, the page, its marks, its letters, who waits; what each new job of a subscriber looks up.
        let reads = 4 + 2 + 8 + 2 * PAGE as u32;
        self.with(Some(process.now), reads, |m, now| m.process_letters(ProcessLetters { now, ..process }))
    }

    async fn causes(&self, query: CauseQuery) -> Result<Causes> {
        self.with(None, 2, |m, _| {
            let Some(filter) = m.cause_filter(&query) else { return Ok(Causes::default()) };
            let (rows, total) = m.rows_mut().causes(filter);
            m.describe_causes(rows, total)
        })
    }
}

#[async_trait]
impl Schedules for Flock {
    async fn put_schedule(&self, put: PutSchedule) -> Result<ScheduleChange> {
        self.with(Some(put.now), 0, |m, now| m.put_schedule(PutSchedule { now, ..put }))
    }

    async fn delete_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<bool> {
        self.with(Some(now), 0, |m, now| m.delete_schedule(&name, now))
    }

    async fn pause_schedule(&self, name: ScheduleName, by: String, now: Timestamp) -> Result<ScheduleView> {
        self.with(Some(now), 0, |m, now| m.pause_schedule(&name, by, now))
    }

    async fn resume_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<ScheduleView> {
        self.with(Some(now), 0, |m, now| m.resume_schedule(&name, now))
    }

    async fn run_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<JobId> {
        self.with(Some(now), 0, |m, now| m.run_schedule(&name, now))
    }

    async fn schedules(&self) -> Result<Vec<ScheduleView>> {
        self.with(None, 0, |m, _| m.schedules())
    }

    async fn schedule(&self, name: ScheduleName) -> Result<Option<ScheduleView>> {
        self.with(None, 0, |m, _| m.schedule(&name))
    }

    async fn schedule_ticks(&self, query: TickQuery) -> Result<Vec<TickEntry>> {
        self.with(None, 1, |m, _| m.schedule_ticks(&query))
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
        // that is; the same for the dead. Who waits for them.
        self.with(Some(now), 1 + 4 * kinds + 5 * queues + 4 + TOLD, |m, now| m.prune(limit, now))
    }

    async fn erase(&self, erase: Erase) -> Result<Erased> {
        self.with(Some(erase.now), 4 + TOLD + DUE, |m, now| m.erase(&Erase { now, ..erase }))
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

tidegate_store::forward!(Records for Flock: |store| &store.notes);

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
