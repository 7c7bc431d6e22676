//! What goes into store operations and what comes out.

mod letters;
mod records;
mod schedules;

use serde::{Deserialize, Serialize};
use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::{
    ConnectorName, GroupKey, JobId, KindName, LeaseId, ProcessId, QueueName, Seq, TenantId, WorkerId,
};
use tidegate_core::job::{
    Dependency, Job, OnConflict, OnDead, Park, ParkScope, Priority, Review, State, Unique, UniqueScope,
};
use tidegate_core::letters::Cause;
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::registry::{Counts, Difference, Document, KindSettings, Left, Problem, QueueSettings};
use tidegate_core::retry::RetryPolicy;
use tidegate_core::schedule::{BackfillRun, RunOf};
use tidegate_core::time::Timestamp;

pub use self::letters::{
    CauseQuery, CauseView, Causes, ProcessLetters, ProcessedLetters, Reauthorized, Recover, Recovered,
    Resolve,
};
pub use self::records::{Record, Shelf};
pub use self::schedules::{PutSchedule, ScheduleChange, ScheduleView, TickQuery};

/// A job to be enqueued. What is `None` comes from its kind.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    /// Its id, made by the caller so that an enqueue can be sent again after a lost reply.
    pub id: JobId,
    /// Whether a job with this id may exist: it was given by the user, or this is sent again. Fresh random ids skip
    /// that look-up.
    pub id_may_exist: bool,
    /// Its kind; must be registered.
    pub kind: KindName,
    /// Queue other than the kind's.
    pub queue: Option<QueueName>,
    /// Whose it is.
    pub tenant: Option<TenantId>,
    /// Group other than the tenant.
    pub group: Option<GroupKey>,
    /// What to do.
    pub payload: Payload,
    /// Importance.
    pub priority: Option<Priority>,
    /// Not before this time.
    pub run_at: Option<Timestamp>,
    /// Timeout of one attempt.
    pub timeout_ms: Option<i64>,
    /// Cap on attempts.
    pub max_attempts: Option<u32>,
    /// Its own retry policy.
    pub retry: Option<RetryPolicy>,
    /// Unique key.
    pub unique: Option<Unique>,
    /// Trace context to hand to the handler.
    pub trace: Option<String>,
    /// Jobs that it waits for: stored ones, or others of the same enqueue.
    pub after: Vec<JobId>,
    /// What becomes of it when one of them ends dead or cancelled.
    pub on_dead: OnDead,
}

impl NewJob {
    /// A job with everything else from its kind.
    pub fn new(id: JobId, kind: KindName, payload: Payload) -> Self {
        Self {
            id,
            id_may_exist: false,
            kind,
            queue: None,
            tenant: None,
            group: None,
            payload,
            priority: None,
            run_at: None,
            timeout_ms: None,
            max_attempts: None,
            retry: None,
            unique: None,
            trace: None,
            after: vec![],
            on_dead: OnDead::Fail,
        }
    }

    /// A job of a backfill: the only one of its date for a while.
    pub fn of_backfill(id: JobId, kind: KindName, run: &BackfillRun, now: Timestamp) -> Self {
        let scope = UniqueScope::PeriodMs(limits::BACKFILL_PERIOD_MS);
        Self {
            run_at: (run.delay_ms > 0).then(|| now.plus_ms(run.delay_ms)),
            unique: Some(Unique { key: run.key.clone(), scope, on_conflict: OnConflict::Keep }),
            ..Self::new(id, kind, run.payload.clone())
        }
    }
}

/// What an enqueue did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnqueueOutcome {
    /// A new job.
    Created,
    /// A job with this key or id exists; it was left alone.
    Kept,
    /// The existing job has the new payload.
    Replaced,
    /// The existing job runs sooner or with higher priority.
    Hastened,
}

/// Reply to one enqueued job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enqueued {
    /// The job: the new one, or the one that holds the key.
    pub id: JobId,
    /// What was done.
    pub outcome: EnqueueOutcome,
}

/// A worker asks for jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Who asks.
    pub worker: WorkerId,
    /// The process it runs in.
    pub process: ProcessId,
    /// Queues it serves, each with the most it takes from it now.
    pub queues: Vec<(QueueName, u32)>,
    /// Most jobs in all.
    pub max: u32,
    /// How long the lease holds without a heartbeat.
    pub lease_ms: i64,
    /// Now.
    pub now: Timestamp,
}

/// Proof of holding a job: a write is applied only while this lease holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ticket {
    /// The lease.
    pub lease: LeaseId,
    /// The job.
    pub seq: Seq,
}

/// A job handed to a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedJob {
    /// Proof of holding it.
    pub ticket: Ticket,
    /// Its id.
    pub id: JobId,
    /// Its queue.
    pub queue: QueueName,
    /// Its kind.
    pub kind: KindName,
    /// Whose it is.
    pub tenant: Option<TenantId>,
    /// Its group.
    pub group: GroupKey,
    /// The API it calls.
    pub connector: Option<ConnectorName>,
    /// What to do.
    pub payload: Payload,
    /// Importance.
    pub priority: Priority,
    /// This attempt, from 1.
    pub attempt: u32,
    /// Timeout of this attempt.
    pub timeout_ms: i64,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// Since when it could have run.
    pub ready_at: Timestamp,
    /// Trace context.
    pub trace: Option<String>,
    /// The schedule that it is a run of.
    pub schedule: Option<RunOf>,
    /// How many jobs it waited for: [`dependencies`](crate::Jobs::dependencies) has their results.
    pub dependencies: u32,
}

/// Jobs that a job waits, or waited, for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dependencies {
    /// Some of them, in the order in which they were stored. What was erased is not among them.
    pub jobs: Vec<Dependency>,
    /// Where to go on; `None`: that was all.
    pub next: Option<u32>,
}

/// Reply to a claim.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Claimed {
    /// The lease, if anything was claimed.
    pub lease: Option<GrantedLease>,
    /// The jobs it covers.
    pub jobs: Vec<ClaimedJob>,
    /// When a claim may find something without a signal: a delay, a park, a limiter or a lease that ends then.
    pub next_wakeup: Option<Timestamp>,
}

/// What a claim that waited got.
#[derive(Debug, Clone, PartialEq)]
pub struct Stood {
    /// The jobs, or none.
    pub claimed: Claimed,
    /// No later than the lease was granted: it holds for its length from then on at least.
    pub since: tokio::time::Instant,
}

/// A lease as handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedLease {
    /// Its number.
    pub id: LeaseId,
    /// When it ends without a heartbeat.
    pub until: Timestamp,
}

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Done, with an optional result.
    Complete(Option<Payload>),
    /// Failed; the retry rules decide what follows.
    Fail(Failure),
    /// Put off without spending an attempt.
    Snooze {
        /// Until when.
        until: Timestamp,
        /// Why.
        reason: String,
        /// Park this scope until then, in the same write.
        park: Option<ParkScope>,
        /// The domain whose gates refused the job. Waiting for a gate is not counted, and its park ends when the first
        /// of the scope's jobs may come back.
        gate: Option<ConnectorName>,
    },
    /// Given back without spending an attempt, as at shutdown.
    Release,
    /// The handler stopped because it was asked to.
    Cancel,
}

/// One settled attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Settlement {
    /// Proof of holding the job.
    pub ticket: Ticket,
    /// What became of it.
    pub outcome: Outcome,
}

/// Settled attempts.
#[derive(Debug, Clone, PartialEq)]
pub struct Settle {
    /// The attempts.
    pub settlements: Vec<Settlement>,
    /// Now.
    pub now: Timestamp,
    /// For jitter.
    pub seed: u64,
}

/// Reply to one settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// Applied; the job is in this state now.
    Applied(State),
    /// Applied; the job runs again at this time.
    Again(Timestamp),
    /// Refused: the lease no longer holds the job.
    Stale,
}

/// Reply to the heartbeat of one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// The lease.
    pub lease: LeaseId,
    /// When it ends without another heartbeat; `None` if it is lost.
    pub until: Option<Timestamp>,
    /// Jobs of it that should be cancelled.
    pub cancel: Vec<Seq>,
}

/// What a handler reports while it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Proof of holding the job.
    pub ticket: Ticket,
    /// Progress from 0 to 1, with a note.
    pub progress: Option<(f64, String)>,
    /// Log lines.
    pub log: Vec<String>,
}

/// A person or the program asks to cancel a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelJob {
    /// The job.
    pub id: JobId,
    /// By whom and why, for the record.
    pub note: String,
    /// Whether those who wait for it are cancelled, too, and those who wait for them.
    pub cascade: bool,
    /// Now.
    pub now: Timestamp,
}

/// Reply to a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelReply {
    /// It will not run.
    Cancelled,
    /// It runs; its handler is told.
    Requested,
    /// It was finished already.
    AlreadyFinished(State),
    /// Others who waited for it will not run, either.
    Cascaded {
        /// Whether it runs, and its handler is told.
        running: bool,
        /// How many others.
        others: u32,
    },
}

impl CancelReply {
    /// What became of the job itself, and how many others were cancelled with it.
    pub fn parts(self) -> (Self, u32) {
        match self {
            Self::Cascaded { running, others } => {
                (if running { Self::Requested } else { Self::Cancelled }, others)
            }
            alone => (alone, 0),
        }
    }

    /// The same with so many others.
    #[must_use]
    pub fn with_others(self, others: u32) -> Self {
        match self {
            Self::Cancelled if others > 0 => Self::Cascaded { running: false, others },
            Self::Requested if others > 0 => Self::Cascaded { running: true, others },
            same => same,
        }
    }
}

/// Which jobs to find. Empty fields do not restrict. Newest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobQuery {
    /// In one of these states.
    pub states: Vec<State>,
    /// In this queue.
    pub queue: Option<QueueName>,
    /// Of this kind.
    pub kind: Option<KindName>,
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// Of this group.
    pub group: Option<GroupKey>,
    /// Enqueued at or after.
    pub created_from: Option<Timestamp>,
    /// Enqueued before.
    pub created_before: Option<Timestamp>,
    /// With this text in payload or errors.
    pub text: Option<String>,
    /// Dead letters with this review status.
    pub review: Option<Review>,
    /// Dead letters that died of this.
    pub cause: Option<Cause>,
    /// Dead letters of this category.
    pub category: Option<Category>,
    /// That call this API.
    pub connector: Option<ConnectorName>,
    /// Most jobs to return.
    pub limit: usize,
    /// Go on after this one.
    pub cursor: Option<Seq>,
}

impl JobQuery {
    /// Whether a job fits. The one definition of what a search means; backends may look at fewer rows, never accept
    /// more.
    pub fn matches(&self, job: &Job) -> bool {
        let is = |want: bool| want;
        is(self.states.is_empty() || self.states.contains(&job.state))
            && is(self.queue.as_ref().is_none_or(|q| *q == job.queue))
            && is(self.kind.as_ref().is_none_or(|k| *k == job.kind))
            && is(self.tenant.as_ref().is_none_or(|t| job.tenant.as_ref() == Some(t)))
            && is(self.group.as_ref().is_none_or(|g| *g == job.group))
            && is(self.created_from.is_none_or(|t| job.created_at >= t))
            && is(self.created_before.is_none_or(|t| job.created_at < t))
            && is(self.review.is_none_or(|r| job.dead.as_ref().is_some_and(|d| d.review == r)))
            && is(self.cause.is_none_or(|c| job.dead.as_ref().is_some_and(|d| d.cause == Some(c))))
            && is(self.category.is_none_or(|c| job.dead.as_ref().is_some_and(|d| d.category == c)))
            && is(self.connector.as_ref().is_none_or(|c| job.connector.as_ref() == Some(c)))
            && self.text.as_ref().is_none_or(|text| {
                job.payload.as_str().contains(text)
                    || job.errors.iter().any(|e| e.message.contains(text) || e.code.contains(text))
            })
    }
}

impl JobQuery {
    /// Whether only dead letters can fit.
    pub fn wants_letters(&self) -> bool {
        self.review.is_some() || self.cause.is_some() || self.category.is_some()
    }

    /// A part of a letter as it is stored, which every letter that fits has.
    pub fn in_letter(&self) -> Option<String> {
        let cause = self.cause.map(|c| format!("\"cause\":\"{c}\""));
        let category = || self.category.map(|c| format!("\"category\":\"{}\"", c.as_str()));
        let review = || self.review.map(|r| format!("\"review\":\"{}\"", r.as_str()));
        cause.or_else(category).or_else(review)
    }
}

/// A page of jobs.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Page {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Where to go on; `None`: that was all.
    pub next: Option<Seq>,
}

/// A queue as people see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueView {
    /// Its name.
    pub name: QueueName,
    /// Its settings.
    pub settings: QueueSettings,
    /// Jobs that wait for others.
    pub blocked: u64,
    /// Ready jobs.
    pub ready: u64,
    /// Scheduled jobs.
    pub scheduled: u64,
    /// Running jobs.
    pub running: u64,
    /// Completed jobs kept.
    pub completed: u64,
    /// Dead jobs kept.
    pub dead: u64,
    /// Cancelled jobs kept.
    pub cancelled: u64,
    /// When the oldest ready job became ready.
    pub oldest_ready: Option<Timestamp>,
    /// Jobs completed in the last minute.
    pub completed_last_minute: u64,
    /// Attempts that failed in the last minute.
    pub failed_last_minute: u64,
    /// How long the attempts that ended in the last minute took together.
    pub run_ms_last_minute: u64,
    /// Jobs taken back from dead workers that have not run since.
    pub stalled: u64,
    /// Pauses and other parks of the queue itself.
    pub parks: Vec<Park>,
    /// Groups with ready jobs that are parked.
    pub parked_groups: u64,
}

/// A kind as people see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindView {
    /// Its name.
    pub name: KindName,
    /// Its settings.
    pub settings: KindSettings,
}

/// What the registry is to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// As a document says; what it does not name stays.
    Document(Box<Document>),
    /// As it was from this version on.
    Version(u64),
}

/// Changes the registry, all of it or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Apply {
    /// What it is to be.
    pub wanted: Wanted,
    /// Who says so.
    pub by: String,
    /// Where the document came from.
    pub source: String,
    /// Only say what would change.
    pub dry_run: bool,
    /// Now.
    pub now: Timestamp,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Applied {
    /// The version that was made; `None` if nothing was changed.
    pub version: Option<u64>,
    /// What differs, or would.
    pub changes: Vec<Difference>,
    /// How many of what differs.
    #[serde(default)]
    pub changed: Counts,
    /// Entries of the document that were as wanted.
    pub unchanged: u64,
    /// How many of what was as wanted.
    #[serde(default)]
    pub as_wanted: Counts,
    /// Entries of the registry that the document does not name.
    pub left_alone: u64,
    /// The first of them, and whose they are.
    #[serde(default)]
    pub left: Vec<Left>,
}

/// A document that was refused, for the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedDocument {
    /// Who sent it.
    pub by: String,
    /// Where it came from.
    pub source: String,
    /// Hash of its text.
    pub hash: String,
    /// What was wrong with it.
    pub problems: Vec<Problem>,
}

/// What upkeep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Advanced {
    /// Scheduled jobs that became ready.
    pub promoted: u64,
    /// Jobs taken from expired leases.
    pub rescued: u64,
    /// Schedules that were looked at because something of them was due.
    pub fired: u64,
    /// When there is something to do again.
    pub next_wakeup: Option<Timestamp>,
}

/// Erase a tenant's jobs, a bounded number of rows at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erase {
    /// Whose.
    pub tenant: TenantId,
    /// Go on after this one.
    pub after: Seq,
    /// Rows to look at.
    pub scan: usize,
    /// Now.
    pub now: Timestamp,
}

/// What an erase did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Erased {
    /// Jobs erased.
    pub erased: u64,
    /// Where to go on; `None`: all is erased.
    pub next: Option<Seq>,
}

/// Counts over the whole store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// Jobs that wait for others.
    pub blocked: u64,
    /// Ready jobs.
    pub ready: u64,
    /// Scheduled jobs.
    pub scheduled: u64,
    /// Running jobs.
    pub running: u64,
    /// Completed jobs kept.
    pub completed: u64,
    /// Dead jobs kept.
    pub dead: u64,
    /// Cancelled jobs kept.
    pub cancelled: u64,
    /// Writes refused since the store was opened because their lease was lost.
    pub stale_refused: u64,
    /// Schedules that are in force.
    pub schedules: u64,
    /// When the next of them is to be looked at; if that has passed, it is late.
    pub next_tick: Option<Timestamp>,
}
