//! What every backend does, by noun.

use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::gates::Room;
use tidegate_core::ids::{ConnectorName, JobId, KindName, LeaseId, QueueName, ScheduleName};
use tidegate_core::job::{Job, Park, ParkScope, Priority, State};
use tidegate_core::registry::{Document, KindSettings, QueueSettings, Version, VersionInfo};
use tidegate_core::schedule::TickEntry;
use tidegate_core::time::Timestamp;
use tidegate_core::why::Why;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::params::{
    Advanced, Applied, Apply, Beat, CancelJob, CancelReply, CauseQuery, Causes, Claim, Claimed, Dependencies,
    Enqueued, Erase, Erased, JobQuery, KindView, NewJob, Page, ProcessLetters, ProcessedLetters, PutSchedule,
    QueueView, Reauthorized, Record, Recover, Recovered, RefusedDocument, Report, Resolve, ScheduleChange,
    ScheduleView, Settle, Settled, Shelf, Stood, TickQuery, Ticket, Totals,
};
use crate::{Feed, Result, Signals};

/// Jobs. Every method is one atomic step; what it returns is durable.
#[async_trait]
pub trait Jobs: Send + Sync {
    /// Stores all of the jobs, or none.
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>>;
    /// Hands out jobs under one lease, within every limit and park.
    async fn claim(&self, claim: Claim) -> Result<Claimed>;
    /// Applies the outcomes of attempts whose lease still holds; refuses the others one by one.
    async fn settle(&self, settle: Settle) -> Result<Vec<Settled>>;
    /// Extends leases.
    async fn heartbeat(&self, leases: Vec<LeaseId>, now: Timestamp) -> Result<Vec<Beat>>;
    /// Gates have admitted these running jobs, and said how many more like each would pass: what was handed out with caution
    /// since a gate refused may now be handed out. A hint; nothing is kept of it.
    async fn admitted(&self, _jobs: Vec<(JobId, Room)>, _now: Timestamp) -> Result<()> {
        Ok(())
    }
    /// A gate says that it is the turn of these jobs: those that wait for the gates of this domain are ready at once, and the
    /// parks of these gates that hold them up end. Others are left alone.
    async fn turn(&self, _jobs: Vec<JobId>, _gate: ConnectorName, _now: Timestamp) -> Result<()> {
        Ok(())
    }
    /// Keeps progress and log lines; false where the lease is lost.
    async fn report(&self, reports: Vec<Report>, now: Timestamp) -> Result<Vec<bool>>;
    /// Cancels a job.
    async fn cancel(&self, cancel: CancelJob) -> Result<CancelReply>;
    /// Makes a scheduled job ready now. Returns its state.
    async fn run_now(&self, id: JobId, now: Timestamp) -> Result<State>;
    /// Changes the priority of a job that is not finished.
    async fn reprioritise(&self, id: JobId, priority: Priority, now: Timestamp) -> Result<()>;
    /// Everything known about a job.
    async fn get(&self, id: JobId) -> Result<Option<Job>>;
    /// Everything known about each of these jobs, as far as they exist, in the same order. A backend that can reads them together, and
    /// those that are finished beside what is being written.
    async fn get_all(&self, ids: Vec<JobId>) -> Result<Vec<Option<Job>>> {
        let mut jobs = Vec::with_capacity(ids.len());
        for id in ids {
            jobs.push(self.get(id).await?);
        }
        Ok(jobs)
    }
    /// Finds jobs.
    async fn search(&self, query: JobQuery) -> Result<Page>;
    /// Jobs that a job waits, or waited, for, with their results: up to `limit`, without the first `skip`. A worker that asks
    /// about a job that it holds shows its ticket, in case that a server wants to see it.
    async fn dependencies(
        &self,
        id: JobId,
        held: Option<Ticket>,
        skip: u32,
        limit: usize,
    ) -> Result<Dependencies>;
    /// Why a job is where it is.
    async fn why(&self, id: JobId, now: Timestamp) -> Result<Why>;
}

/// Queues, kinds and parks.
#[async_trait]
pub trait Registry: Send + Sync {
    /// Adds a queue or changes its settings, live.
    async fn put_queue(&self, name: QueueName, settings: QueueSettings, now: Timestamp) -> Result<()>;
    /// Settings of all queues, by name: cheap enough to ask every second.
    async fn settings(&self) -> Result<Vec<(QueueName, QueueSettings)>>;
    /// Adds a queue with default settings, if it does not exist.
    async fn ensure_queue(&self, name: QueueName, now: Timestamp) -> Result<()>;
    /// Adds a kind or changes its settings. Its queue must exist.
    async fn put_kind(&self, name: KindName, settings: KindSettings) -> Result<()>;
    /// All queues with their counts, by name.
    async fn queues(&self, now: Timestamp) -> Result<Vec<QueueView>>;
    /// All kinds, by name.
    async fn kinds(&self) -> Result<Vec<KindView>>;
    /// Adds a park, or replaces the one of the same scope and owner.
    async fn park(&self, park: Park, now: Timestamp) -> Result<()>;
    /// Removes a park; the others stay. False if there was none.
    async fn unpark(&self, scope: ParkScope, by: String, now: Timestamp) -> Result<bool>;
    /// All parks.
    async fn parks(&self) -> Result<Vec<Park>>;
}

/// The registry as a whole, and its history.
#[async_trait]
pub trait Versions: Send + Sync {
    /// Changes queues, kinds and policies in one step, and keeps a version of what the registry is from then on. If
    /// anything is wrong, nothing changes.
    async fn apply(&self, apply: Apply) -> Result<Applied>;
    /// Keeps in the history that a document was refused. Returns its number.
    async fn refuse(&self, refused: RefusedDocument, now: Timestamp) -> Result<u64>;
    /// Queues, kinds and policies as they are.
    async fn registry(&self) -> Result<Document>;
    /// The newest versions, newest first.
    async fn versions(&self, limit: usize) -> Result<Vec<VersionInfo>>;
    /// A version with its document.
    async fn version(&self, number: u64) -> Result<Option<Version>>;
}

/// Dead letters. Listing them is a search for dead jobs.
#[async_trait]
pub trait Letters: Send + Sync {
    /// Recovers dead letters as new jobs with a fresh attempt budget. Recovering one twice yields one job.
    async fn recover(&self, letters: Vec<Recover>, now: Timestamp) -> Result<Vec<Recovered>>;
    /// Settles a dead letter without running it again.
    async fn resolve(&self, resolve: Resolve) -> Result<()>;
    /// Tenants have authorized again: those of these letters that waited for it run again as new jobs, or are settled.
    async fn reauthorized(
        &self,
        letters: Vec<Reauthorized>,
        by: String,
        now: Timestamp,
    ) -> Result<Vec<Recovered>>;
    /// Looks at the next page of letters that wait for review, if a run of the processor is due. Any number of processes may:
    /// each letter is decided once.
    async fn process_letters(&self, process: ProcessLetters) -> Result<ProcessedLetters>;
    /// Letters that wait for review, counted by what they died of.
    async fn causes(&self, query: CauseQuery) -> Result<Causes>;
}

/// Schedules. Their ticks are fired by [`Upkeep::advance`] and by every claim.
#[async_trait]
pub trait Schedules: Send + Sync {
    /// Adds a schedule or changes it.
    async fn put_schedule(&self, put: PutSchedule) -> Result<ScheduleChange>;
    /// Deletes a schedule and its ledger; jobs that it enqueued stay. False if there is none.
    async fn delete_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<bool>;
    /// Pauses a schedule: what comes until it is resumed is skipped.
    async fn pause_schedule(&self, name: ScheduleName, by: String, now: Timestamp) -> Result<ScheduleView>;
    /// Goes on with a schedule.
    async fn resume_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<ScheduleView>;
    /// Runs a schedule's job now, outside its times.
    async fn run_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<JobId>;
    /// All schedules, by name.
    async fn schedules(&self) -> Result<Vec<ScheduleView>>;
    /// One schedule.
    async fn schedule(&self, name: ScheduleName) -> Result<Option<ScheduleView>>;
    /// What the ledger of a schedule says, newest first.
    async fn schedule_ticks(&self, query: TickQuery) -> Result<Vec<TickEntry>>;
}

/// What keeps the store in shape. Each call does a bounded amount of work.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// Promotes due jobs, takes jobs from expired leases, ends parks, fires schedules.
    async fn advance(&self, now: Timestamp) -> Result<Advanced>;
    /// Deletes up to `limit` finished jobs that are past their retention. Returns how many.
    async fn prune(&self, limit: usize, now: Timestamp) -> Result<u64>;
    /// Erases a tenant's jobs, step by step.
    async fn erase(&self, erase: Erase) -> Result<Erased>;
    /// Counts over the whole store.
    async fn totals(&self) -> Result<Totals>;
}

/// Small durable notes beside the jobs: API keys, who is alive. No job depends on them.
#[async_trait]
pub trait Records: Send + Sync {
    /// Keeps a record, in place of one with the same key, and forgets expired ones of its shelf.
    async fn put_record(&self, record: Record, now: Timestamp) -> Result<()>;
    /// The records of a shelf that have not expired, by key.
    async fn records(&self, shelf: Shelf, now: Timestamp) -> Result<Vec<Record>>;
    /// Forgets a record. False if there was none.
    async fn delete_record(&self, shelf: Shelf, key: String) -> Result<bool>;
}

/// Shortest wait for a time that the store named.
const SHORTEST: Duration = Duration::from_millis(1);

/// How long to wait for a time that the store named.
pub(crate) fn wait_until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::from_millis(at.since(now).max(0) as u64).max(SHORTEST)
}

/// Waits until then, or for ever.
pub(crate) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// A whole store.
#[async_trait]
pub trait Store: Jobs + Registry + Versions + Letters + Schedules + Upkeep + Records {
    /// Where the store signals work and cancels.
    fn signals(&self) -> &Signals;
    /// What happened to jobs.
    fn feed(&self) -> &Feed;
    /// Claims, and if there is nothing to be had, waits for it. Comes back empty when a claim is worth another look, or
    /// when `leave` resolves; a claim that is dropped instead may leave jobs with nobody until their lease ends.
    ///
    /// A backend that hands out a job in the same step that makes it ready does better than this.
    async fn stand(&self, claim: Claim, leave: oneshot::Receiver<()>) -> Result<Stood> {
        // Registered before looking: a wake-up between the two is not lost.
        let mut work = self.signals().on_work();
        let (since, now) = (Instant::now(), claim.now);
        let claimed = self.claim(claim).await?;
        if claimed.jobs.is_empty() {
            let named = claimed.next_wakeup.map(|at| since + wait_until(at, now));
            tokio::select! {
                // The sender lives as long as the store.
                _ = work.changed() => {}
                // Sent or dropped, both mean the same.
                _ = leave => {}
                () = sleep_until(named) => {}
            }
        }
        Ok(Stood { claimed, since })
    }
    /// How far the clock that all processes of this store go by is ahead of this process's own. Whoever reads a clock
    /// for `now` adds it, or processes on machines whose clocks differ would take each other's leases.
    fn clock_ahead_ms(&self) -> i64 {
        0
    }
    /// Finishes what is under way and lets go of the files. Later calls are refused.
    async fn close(&self) -> Result<()>;
}
