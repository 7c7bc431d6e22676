//! Where rows live. The machine decides; these traits only keep. All changes between two commits of the store that
//! implements them become durable together, or not at all.

mod letters;

use serde::{Deserialize, Serialize};
use tidegate_core::failure::{Category, ErrorEntry};
use tidegate_core::ids::{
    JobId, KindName, LeaseId, ProcessId, QueueName, ScheduleName, Seq, TenantId, UniqueKey, WorkerId,
};
use tidegate_core::job::{
    DeadLetter, Dependency, LogLine, OnDead, Park, ParkScope, Progress, ScheduledBecause, State, Unique,
};
use tidegate_core::lanes::{LaneId, LaneKey, QueueId};
use tidegate_core::leases::Lease;
pub use tidegate_core::leases::{KindId, TenantNo};
use tidegate_core::letters::Lineage;
use tidegate_core::payload::{Fingerprint, Payload};
use tidegate_core::policies::Policies;
use tidegate_core::registry::{KindSettings, QueueSettings, Version, VersionInfo};
use tidegate_core::retry::RetryPolicy;
pub use tidegate_core::schedule::RunOf;
use tidegate_core::schedule::{ScheduleSpec, ScheduleState, TickEntry};
use tidegate_core::time::Timestamp;

pub use self::letters::{Candidate, CauseFilter, CauseRow, Finished, LetterRows, READ_TOGETHER};
use crate::{Error, Result};

/// The part of a job that never changes while it lives.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRow {
    /// Its id.
    pub id: JobId,
    /// Its kind.
    pub kind: KindId,
    /// The lane it was enqueued to.
    pub lane: LaneId,
    /// Whose it is.
    pub tenant: Option<TenantNo>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it might run first.
    pub run_at: Timestamp,
    /// Timeout of one attempt.
    pub timeout_ms: i64,
    /// Cap on attempts.
    pub max_attempts: Option<u32>,
    /// What to do.
    pub payload: Payload,
    /// What few jobs have.
    pub extra: Option<Box<JobExtra>>,
}

/// What few jobs have.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JobExtra {
    /// Unique key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<Unique>,
    /// Own retry policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// The dead job it took the place of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered_from: Option<JobId>,
    /// Trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The schedule that it is a run of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<RunOf>,
    /// What it was enqueued to wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Flow>,
    /// What the dead jobs that it took the place of have been through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<Lineage>,
    /// Of the payload as it was sent, where defaults were filled in: what the same job is known again by, whatever becomes of the schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Fingerprint>,
}

/// Internal number of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ScheduleId(pub u32);

/// A schedule as it was stored.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRow {
    /// Its number.
    pub id: ScheduleId,
    /// Its name.
    pub name: ScheduleName,
    /// What it does, and when.
    pub spec: ScheduleSpec,
    /// Where it stands.
    pub state: ScheduleState,
}

/// What a job was enqueued to wait for. The jobs themselves are edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// How many jobs.
    pub total: u32,
    /// What becomes of it when one of them ends dead or cancelled.
    pub on_dead: OnDead,
}

/// A blocked job: enough to decide what becomes of it when a job that it waits for is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockedRow {
    /// How many jobs it still waits for.
    pub open: u32,
    /// What becomes of it when one of them ends dead or cancelled.
    pub on_dead: OnDead,
    /// Not before this time, once it waits for none.
    pub run_at: Option<Timestamp>,
}

/// A blocked job with what it takes to make it ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingRow {
    /// Its number.
    pub seq: Seq,
    /// What it waits for.
    pub blocked: BlockedRow,
    /// The lane in which it was enqueued.
    pub lane: LaneId,
    /// Whose it is.
    pub tenant: Option<TenantNo>,
}

/// How a job that others wait for ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// Completed.
    Completed,
    /// Dead.
    Dead,
    /// Cancelled.
    Cancelled,
    /// It is not stored any more, and they have not been told how it ended, if it did.
    Gone,
    /// It was dead, which they have been told, and is not stored any more.
    Purged,
}

impl End {
    /// In the order of the numbers that rows keep.
    pub const ALL: [Self; 5] = [Self::Completed, Self::Dead, Self::Cancelled, Self::Gone, Self::Purged];
}

/// A job that has ended, which those who wait for it have not been told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UntoldRow {
    /// Its id.
    pub id: JobId,
    /// How it ended.
    pub end: End,
}

/// The part of a job that changes. Most jobs never have one: it appears at the first retry, snooze, stall, progress,
/// replaced payload or changed priority.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StateRow {
    /// Lane other than the one it was enqueued to. Kept in a column of its own.
    #[serde(skip)]
    pub lane: Option<LaneId>,
    /// The last lease that let go of the job: a lease up to this number does not hold it. Column.
    #[serde(skip)]
    pub settled: Option<LeaseId>,
    /// Whether its process died while it ran last. Column.
    #[serde(skip)]
    pub suspect: bool,
    /// Lone stalls so far. Column.
    #[serde(skip)]
    pub lone_stalls: u32,
    /// When it may run, if other than first planned. Column.
    #[serde(skip)]
    pub run_at: Option<Timestamp>,
    /// Why it is scheduled.
    pub because: Option<ScheduledBecause>,
    /// Not before this, as a server said; `hasten` respects it.
    pub not_before: Option<Timestamp>,
    /// Counted failures.
    pub failures: u32,
    /// Counted failures by category.
    pub by_category: Vec<(Category, u32)>,
    /// Times it was snoozed.
    pub snoozes: u32,
    /// Why it was snoozed last.
    pub snooze_reason: Option<String>,
    /// Whether it was ever claimed; a pending-only unique key is never taken again then.
    pub claimed: bool,
    /// Payload in place of the one it was enqueued with.
    pub payload: Option<Payload>,
    /// Progress.
    pub progress: Option<Progress>,
    /// Log lines.
    pub log: Vec<LogLine>,
    /// Errors.
    pub errors: Vec<ErrorEntry>,
    /// Who cancelled it, and why.
    pub cancel_note: Option<String>,
}

/// A finished job.
#[derive(Debug, Clone, PartialEq)]
pub struct DoneRow {
    /// Its queue, for retention.
    pub queue: QueueId,
    /// Completed, dead or cancelled.
    pub state: State,
    /// When.
    pub at: Timestamp,
    /// Counted attempts.
    pub attempt: u32,
    /// Result.
    pub result: Option<Payload>,
    /// Dead-letter side.
    pub letter: Option<Box<DeadLetter>>,
}

/// A lease and the jobs it covered when it was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    /// Its number.
    pub id: LeaseId,
    /// Who holds it.
    pub worker: WorkerId,
    /// In which process.
    pub process: ProcessId,
    /// Since when.
    pub since: Timestamp,
    /// Until when.
    pub until: Timestamp,
    /// Its length.
    pub length_ms: i64,
    /// `None`: an ordinary batch. `Some(exclusive)`: one suspect.
    pub lone: Option<bool>,
    /// Jobs granted. Those settled since are not taken out; see [`StateRow::settled`] and [`DoneRow`].
    pub jobs: Vec<Seq>,
}

impl From<&Lease> for LeaseRow {
    fn from(lease: &Lease) -> Self {
        Self {
            id: lease.id,
            worker: lease.worker.clone(),
            process: lease.process,
            since: lease.since,
            until: lease.until,
            length_ms: lease.length_ms,
            lone: lease.lone.map(|exclusive| exclusive.0),
            jobs: lease.jobs.clone(),
        }
    }
}

/// Who holds a unique key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UniqueRow {
    /// The job.
    pub seq: Seq,
    /// Its id; a key held for a period can outlive the job's row.
    pub id: JobId,
    /// When the key is free whatever becomes of the job.
    pub expires: Option<Timestamp>,
}

/// What a restart needs to know about one stored job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scanned {
    /// The job.
    pub seq: Seq,
    /// The lane it was enqueued to.
    pub lane: LaneId,
    /// Whose it is.
    pub tenant: Option<TenantNo>,
    /// When it might run first.
    pub run_at: Timestamp,
    /// Whether it waits, or waited, for others.
    pub waits: bool,
    /// Where it stands.
    pub stored: Stored,
    /// The changing part, as far as a restart needs it.
    pub state: Option<ScannedState>,
}

/// Columns of a [`StateRow`] that a restart needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScannedState {
    /// Lane other than the one it was enqueued to.
    pub lane: Option<LaneId>,
    /// The last lease that let go of it.
    pub settled: Option<LeaseId>,
    /// Whether it is a suspect.
    pub suspect: bool,
    /// Lone stalls so far.
    pub lone_stalls: u32,
    /// When it may run.
    pub run_at: Option<Timestamp>,
}

/// Where a stored job stands, leases aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// Neither finished nor scheduled: ready, or held by a lease.
    Open,
    /// Scheduled.
    Delayed,
    /// Waits for other jobs.
    Blocked,
    /// Finished, and when.
    Finished(State, Timestamp),
}

/// Names and settings as they were stored.
#[derive(Debug, Default)]
pub struct Names {
    /// Queues.
    pub queues: Vec<(QueueId, QueueName, QueueSettings)>,
    /// Kinds.
    pub kinds: Vec<(KindId, KindName, KindSettings)>,
    /// Tenants.
    pub tenants: Vec<(TenantNo, TenantId)>,
    /// Lanes.
    pub lanes: Vec<(LaneId, LaneKey)>,
    /// Parks.
    pub parks: Vec<Park>,
    /// Starts in the windows of limiters, oldest first for each queue.
    pub starts: Vec<(QueueId, Timestamp, u32)>,
    /// Retry policies of the registry.
    pub policies: Policies,
    /// Last number in the registry's history; 0 if there is none.
    pub version: u64,
}

/// Rows that an operation is about to read one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reads {
    /// With [`JobRows::job`], and perhaps [`JobRows::head`].
    pub jobs: Vec<Seq>,
    /// With [`JobRows::head`] alone.
    pub heads: Vec<Seq>,
    /// With [`JobRows::state`]; all of them have one.
    pub states: Vec<Seq>,
    /// With [`TimeRows::done`]; few may have one.
    pub done: Vec<Seq>,
    /// With [`FlowRows::blocked`]; few may have one.
    pub blocked: Vec<Seq>,
    /// With [`FlowRows::children`]; few may have any.
    pub children: Vec<Seq>,
    /// With [`FlowRows::parents`]; few may have any.
    pub parents: Vec<Seq>,
    /// With [`FlowRows::count_children`]; few may have any.
    pub counts: Vec<Seq>,
}

/// What an operation is about to look up one by one. Most of it may not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LookUps {
    /// With [`JobRows::find_job`].
    pub ids: Vec<JobId>,
    /// With [`ClaimRows::unique`].
    pub keys: Vec<(KindId, UniqueKey)>,
}

/// Rows of jobs.
pub trait JobRows {
    /// Whether reading is a long way, so that it pays to say in advance what is going to be read. The hints are not
    /// even computed otherwise.
    const PREFETCHES: bool = false;
    /// Says what is going to be read. What is fetched now is good until the commit, but for what is written until then.
    fn will_read(&mut self, reads: &Reads) -> Result<()> {
        let _ = reads;
        Ok(())
    }
    /// Says what is going to be looked up.
    fn will_look_up(&mut self, look_ups: &LookUps) -> Result<()> {
        let _ = look_ups;
        Ok(())
    }
    /// Adds a job. An id that exists is an error that ends the commit.
    fn insert_job(&mut self, seq: Seq, row: &JobRow) -> Result<()>;
    /// Reads a job.
    fn job(&mut self, seq: Seq) -> Result<Option<JobRow>>;
    /// Reads some jobs, in the same order; those that are missing are left out.
    fn jobs(&mut self, jobs: &[Seq]) -> Result<Vec<(Seq, JobRow)>> {
        let mut rows = Vec::with_capacity(jobs.len());
        for seq in jobs {
            rows.extend(self.job(*seq)?.map(|row| (*seq, row)));
        }
        Ok(rows)
    }
    /// Lane and tenant of a job, without its payload.
    fn head(&mut self, seq: Seq) -> Result<Option<(LaneId, Option<TenantNo>)>> {
        Ok(self.job(seq)?.map(|row| (row.lane, row.tenant)))
    }
    /// Finds a job by id.
    fn find_job(&mut self, id: JobId) -> Result<Option<Seq>>;
    /// Removes a job with its state and done rows, whichever exist.
    fn delete_job(&mut self, seq: Seq) -> Result<()>;
    /// Reads the changing part.
    fn state(&mut self, seq: Seq) -> Result<Option<StateRow>>;
    /// Writes the changing part.
    fn put_state(&mut self, seq: Seq, row: &StateRow) -> Result<()>;
    /// Jobs of a tenant after `after`, looking at no more than `scan` rows; and the last row looked at, `None` at the end.
    fn jobs_of_tenant(
        &mut self,
        tenant: TenantNo,
        after: Seq,
        scan: usize,
    ) -> Result<(Vec<Seq>, Option<Seq>)>;
    /// The first number that was never reserved for a job. Rows that keep the machine's
    /// [`Position`](crate::machine::Position) with every commit answer from it, and have nothing to reserve.
    fn reserved_seq(&mut self) -> Result<Seq>;
    /// Reserves all numbers below this one. Numbers are reserved in blocks and never used twice, so that a lease row
    /// cannot be mistaken to hold a job that came later.
    fn reserve_seq(&mut self, upto: Seq) -> Result<()>;
    /// Visits every job in order of `seq`.
    fn scan(&mut self, visit: &mut dyn FnMut(Scanned)) -> Result<()>;
}

/// Rows of scheduled and finished jobs.
pub trait TimeRows {
    /// Schedules a job.
    fn delay(&mut self, run_at: Timestamp, seq: Seq) -> Result<()>;
    /// Takes a job off the schedule. False if it was not on it at that time; that is a defect, for the machine asks only
    /// for jobs that are scheduled, and rows that gather what they write may say true unseen and fail the commit instead.
    fn undelay(&mut self, run_at: Timestamp, seq: Seq) -> Result<bool>;
    /// Takes up to `limit` due jobs off the schedule, earliest first.
    fn take_due(&mut self, now: Timestamp, limit: usize) -> Result<Vec<(Timestamp, Seq)>>;
    /// When the next job is due.
    fn next_due(&mut self) -> Result<Option<Timestamp>>;
    /// Marks a job as finished.
    fn insert_done(&mut self, seq: Seq, row: &DoneRow) -> Result<()>;
    /// Reads the mark.
    fn done(&mut self, seq: Seq) -> Result<Option<DoneRow>>;
    /// Changes the dead-letter side.
    fn put_letter(&mut self, seq: Seq, letter: &DeadLetter) -> Result<()>;
    /// The oldest completed or cancelled jobs of a queue.
    fn oldest_done(&mut self, queue: QueueId, limit: usize) -> Result<Vec<(Timestamp, Seq, State)>>;
    /// The oldest dead jobs.
    fn oldest_dead(&mut self, limit: usize) -> Result<Vec<(Timestamp, Seq, QueueId)>>;
}

/// Rows of leases and unique keys.
pub trait ClaimRows {
    /// Writes a lease.
    fn put_lease(&mut self, row: &LeaseRow) -> Result<()>;
    /// Moves the end of a lease.
    fn extend_lease(&mut self, id: LeaseId, until: Timestamp) -> Result<()>;
    /// Removes a lease.
    fn delete_lease(&mut self, id: LeaseId) -> Result<()>;
    /// Reads all leases.
    fn leases(&mut self) -> Result<Vec<LeaseRow>>;
    /// First lease number of this run; larger than any number ever used. Rows that keep the machine's
    /// [`Position`](crate::machine::Position) with every commit answer from it.
    fn first_lease(&mut self) -> Result<LeaseId>;
    /// Who holds a unique key.
    fn unique(&mut self, kind: KindId, key: &UniqueKey) -> Result<Option<UniqueRow>>;
    /// Gives a unique key to a job.
    fn put_unique(&mut self, kind: KindId, key: &UniqueKey, row: UniqueRow) -> Result<()>;
    /// Frees a unique key, if this job holds it.
    fn delete_unique(&mut self, kind: KindId, key: &UniqueKey, seq: Seq) -> Result<()>;
    /// Frees unique keys whose period is over, up to `limit`.
    fn expire_uniques(&mut self, now: Timestamp, limit: usize) -> Result<u64>;
}

/// Rows of jobs that wait for other jobs. An edge leads from a job to one that waits, or waited, for it; it is there for as
/// long as the latter is stored.
pub trait FlowRows {
    /// Adds an edge.
    fn add_edge(&mut self, parent: Seq, child: Seq) -> Result<()>;
    /// Puts an edge in the place of another: the child waits for `to` instead of `from`.
    fn move_edge(&mut self, from: Seq, to: Seq, child: Seq) -> Result<()>;
    /// Removes the edges to a job from these, which are all that it has, and what was kept of those of them that nobody
    /// waits for any more.
    fn drop_edges(&mut self, parents: &[Seq], child: Seq) -> Result<()>;
    /// Who waits, or waited, for a job, in order.
    fn children(&mut self, parent: Seq) -> Result<Vec<Seq>>;
    /// All edges from these jobs, parent and child, in the order of the parents.
    fn edges_from(&mut self, parents: &[Seq]) -> Result<Vec<(Seq, Seq)>> {
        let mut edges = vec![];
        for parent in parents {
            edges.extend(self.children(*parent)?.into_iter().map(|child| (*parent, child)));
        }
        Ok(edges)
    }
    /// How many wait, or waited, for a job; where there are more than [`MAX_DEPENDENTS`](tidegate_core::limits::MAX_DEPENDENTS), that
    /// there are.
    fn count_children(&mut self, parent: Seq) -> Result<u32>;
    /// What a job waits, or waited, for, in order.
    fn parents(&mut self, child: Seq) -> Result<Vec<Seq>>;
    /// Jobs with edges to others that are not finished, or of whose end those who wait have yet to be told ([`End::Purged`] aside, of
    /// which they have), each with how many; and how many edges there are in all.
    fn edges(&mut self) -> Result<(Vec<(Seq, u32)>, u64)>;
    /// Reads a blocked job.
    fn blocked(&mut self, seq: Seq) -> Result<Option<BlockedRow>>;
    /// Writes a blocked job.
    fn put_blocked(&mut self, seq: Seq, row: &BlockedRow) -> Result<()>;
    /// Those of these jobs that are blocked, in the same order, and where they belong.
    fn waiting(&mut self, jobs: &[Seq]) -> Result<Vec<WaitingRow>>
    where
        Self: JobRows,
    {
        let mut waiting = vec![];
        for seq in jobs {
            if let Some(blocked) = self.blocked(*seq)? {
                let missing = || Error::internal(format!("job {} is missing", seq.0));
                let (lane, tenant) = self.head(*seq)?.ok_or_else(missing)?;
                waiting.push(WaitingRow { seq: *seq, blocked, lane, tenant });
            }
        }
        Ok(waiting)
    }
    /// These jobs are not blocked any more.
    fn unblock(&mut self, jobs: &[Seq]) -> Result<()>;
    /// Keeps what others need to know of a job that is about to be deleted, and whose it was.
    fn keep(&mut self, seq: Seq, outcome: &Dependency, tenant: Option<&TenantId>) -> Result<()>;
    /// Forgets up to `limit` of what was kept of a tenant's jobs. Returns how many.
    fn forget_kept(&mut self, tenant: &TenantId, limit: usize) -> Result<u64>;
    /// Forgets what an earlier version kept without saying whose it was, unless it belongs to another tenant than this one: that is
    /// known where jobs of another one wait for it. Up to `limit`; returns how many.
    fn forget_unowned(&mut self, tenant: &TenantId, limit: usize) -> Result<u64> {
        let _ = (tenant, limit);
        Ok(0)
    }
    /// What was kept of a job that was deleted.
    fn kept(&mut self, seq: Seq) -> Result<Option<Dependency>>;
    /// A job has ended, which those who wait for it are told later.
    fn put_untold(&mut self, seq: Seq, row: &UntoldRow) -> Result<()>;
    /// They have been told.
    fn told(&mut self, seq: Seq) -> Result<()>;
    /// All that have ended and of whom others have yet to be told.
    fn untold(&mut self) -> Result<Vec<(Seq, UntoldRow)>>;
}

/// Rows of names, settings, parks and limiter windows.
pub trait NameRows {
    /// Reads everything.
    fn names(&mut self) -> Result<Names>;
    /// Writes a queue.
    fn put_queue(&mut self, id: QueueId, name: &QueueName, settings: &QueueSettings) -> Result<()>;
    /// Writes a kind.
    fn put_kind(&mut self, id: KindId, name: &KindName, settings: &KindSettings) -> Result<()>;
    /// Writes a tenant.
    fn put_tenant(&mut self, id: TenantNo, name: &TenantId) -> Result<()>;
    /// Removes a tenant.
    fn delete_tenant(&mut self, id: TenantNo) -> Result<()>;
    /// Writes a lane.
    fn put_lane(&mut self, id: LaneId, key: &LaneKey) -> Result<()>;
    /// Removes a lane.
    fn delete_lane(&mut self, id: LaneId) -> Result<()>;
    /// Writes a park.
    fn put_park(&mut self, park: &Park) -> Result<()>;
    /// Removes a park.
    fn delete_park(&mut self, scope: &ParkScope, by: &str) -> Result<()>;
    /// Adds starts to the window of a queue's limiter.
    fn add_starts(&mut self, queue: QueueId, at: Timestamp, n: u32) -> Result<()>;
    /// Forgets starts at or before this time.
    fn drop_starts(&mut self, queue: QueueId, upto: Timestamp) -> Result<()>;
}

/// Rows of schedules and of their ledgers.
pub trait ScheduleRows {
    /// Reads all schedules.
    fn schedules(&mut self) -> Result<Vec<ScheduleRow>>;
    /// Writes a schedule.
    fn put_schedule(
        &mut self,
        id: ScheduleId,
        name: &ScheduleName,
        spec: &ScheduleSpec,
        state: &ScheduleState,
    ) -> Result<()>;
    /// Writes where a stored schedule stands.
    fn put_schedule_state(&mut self, id: ScheduleId, state: &ScheduleState) -> Result<()>;
    /// Removes a schedule with its ledger.
    fn delete_schedule(&mut self, id: ScheduleId) -> Result<()>;
    /// Writes a line of the ledger, in place of the line with the same number, or of the one
    /// [`MAX_TICKS_KEPT`](tidegate_core::limits::MAX_TICKS_KEPT) before it.
    fn put_tick(&mut self, id: ScheduleId, entry: &TickEntry) -> Result<()>;
    /// Lines of the ledger with numbers below `before`, newest first.
    fn ticks(&mut self, id: ScheduleId, before: u64, limit: usize) -> Result<Vec<TickEntry>>;
}

/// Rows of the registry's history.
pub trait VersionRows {
    /// Writes the retry policies.
    fn put_policies(&mut self, policies: &Policies) -> Result<()>;
    /// Adds a version, and forgets the oldest with the same outcome so that `keep` are left.
    fn add_version(&mut self, version: &Version, keep: usize) -> Result<()>;
    /// The newest versions, newest first.
    fn versions(&mut self, limit: usize) -> Result<Vec<VersionInfo>>;
    /// A version with its document.
    fn version(&mut self, number: u64) -> Result<Option<Version>>;
}

/// All rows of a store.
pub trait Rows:
    JobRows + TimeRows + ClaimRows + NameRows + ScheduleRows + FlowRows + VersionRows + LetterRows
{
}

impl<T: JobRows + TimeRows + ClaimRows + NameRows + ScheduleRows + FlowRows + VersionRows + LetterRows> Rows
    for T
{
}
