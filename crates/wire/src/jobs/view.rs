//! Everything known about a job, both ways.

use serde::{Deserialize, Serialize};
use tidegate_core::failure::{self, Category};
use tidegate_core::ids::{ConnectorName, GroupKey, JobId, KindName, QueueName, TenantId, WorkerId};
use tidegate_core::job::{self, OnDead, Priority, Resolution, Review, ScheduledBecause, State, Unique};
use tidegate_core::letters::Cause;
use tidegate_core::retry::{DeadReason, RetryPolicy};

use crate::schedules::RunOf;
use crate::{Json, Lease, Time};

/// Everything known about a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Job {
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "job_01JCQ5V9N0E4T8GQ6W2Y3K7MZB"))]
    pub id: JobId,
    /// Its queue.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub queue: QueueName,
    /// Its kind.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub kind: KindName,
    /// Whose it is.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenant: Option<TenantId>,
    /// Key of fairness, group limits and parks; empty if it has none.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub group: GroupKey,
    /// The API it calls.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub connector: Option<ConnectorName>,
    /// What to do.
    pub payload: Json,
    /// Importance.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Priority))]
    pub priority: Priority,
    /// Where it stands.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::State))]
    pub state: State,
    /// When it was enqueued.
    pub created_at: Time,
    /// When it may run, or could have.
    pub run_at: Time,
    /// Why it is scheduled, if it is.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::ScheduledBecause>))]
    pub scheduled_because: Option<ScheduledBecause>,
    /// Why it was snoozed, if it was.
    pub snooze_reason: Option<String>,
    /// Counted attempts, the running one included.
    pub attempt: u32,
    /// Attempts in all, if capped by the job or its kind.
    pub max_attempts: Option<u32>,
    /// Timeout of one attempt.
    pub timeout_ms: i64,
    /// Its own retry policy.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::RetryPolicy>))]
    pub retry: Option<RetryPolicy>,
    /// Its unique key.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Unique>))]
    pub unique: Option<Unique>,
    /// The lease, while it runs.
    pub held: Option<Held>,
    /// Progress reported last.
    pub progress: Option<Progress>,
    /// Log lines kept.
    pub log: Vec<LogLine>,
    /// Errors kept.
    pub errors: Vec<ErrorEntry>,
    /// Times it was snoozed.
    pub snoozes: u32,
    /// Times its process died while only this job was suspect.
    pub lone_stalls: u32,
    /// Result, once completed; missing if it completed without one.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "Json::given")]
    pub result: Option<Json>,
    /// When it was finished.
    pub finished_at: Option<Time>,
    /// Dead-letter side, if it is dead.
    pub dead: Option<DeadLetter>,
    /// The dead job it took the place of.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub recovered_from: Option<JobId>,
    /// Trace context (W3C): what came with the enqueue, or the span that was recorded of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The schedule that it is a run of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<RunOf>,
    /// What it waits for, or waited for, if it was enqueued so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
}

/// What a job waits for, or waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Waits {
    /// Jobs in all; `/v1/jobs/{id}/dependencies` lists them.
    pub total: u32,
    /// Those that it still waits for.
    pub open: u32,
    /// What becomes of it when one of them ends dead or cancelled.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::OnDead))]
    pub on_dead: OnDead,
}

/// The lease a running job is held under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Held {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: Lease,
    /// Who holds it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub worker: WorkerId,
    /// Since when.
    pub since: Time,
    /// Until when, if no heartbeat comes.
    pub until: Time,
    /// Whether a cancel was asked for.
    pub cancel_requested: bool,
}

/// Progress that a handler reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Progress {
    /// From 0 to 1.
    pub fraction: f64,
    /// What is going on.
    pub note: String,
    /// When it was reported.
    pub at: Time,
}

/// A line that a handler logged with its job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogLine {
    /// When.
    pub at: Time,
    /// What.
    pub line: String,
}

/// One entry of a job's error history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorEntry {
    /// The attempt that failed.
    pub attempt: u32,
    /// When.
    pub at: Time,
    /// What kind of failure.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Category))]
    pub category: Category,
    /// Short code.
    pub code: String,
    /// What happened.
    pub message: String,
}

/// The dead-letter side of a dead job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetter {
    /// Category of the last failure.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Category))]
    pub category: Category,
    /// Why there was no further attempt.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::DeadReason))]
    pub reason: DeadReason,
    /// Code of the last failure.
    pub code: String,
    /// Message of the last failure.
    pub message: String,
    /// Where the review stands.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Review))]
    pub review: Review,
    /// How it was settled.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Resolution>))]
    pub resolution: Option<Resolution>,
    /// By whom.
    pub resolved_by: Option<String>,
    /// When.
    pub resolved_at: Option<Time>,
    /// The job that took its place.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub recovered_as: Option<JobId>,
    /// Fingerprint of what it died of: the same for all that died of the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "7c9e6679f3b1a2d4"))]
    pub cause: Option<Cause>,
    /// When the first of its line of recoveries died, if it is not the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_died_at: Option<Time>,
    /// How often one of its line was run again without a person.
    #[serde(default)]
    pub auto_retries: u32,
    /// When its tenant was last asked to authorize again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Time>,
}

impl From<job::Job> for Job {
    fn from(j: job::Job) -> Self {
        Self {
            id: j.id,
            queue: j.queue,
            kind: j.kind,
            tenant: j.tenant,
            group: j.group,
            connector: j.connector,
            payload: j.payload.into(),
            priority: j.priority,
            state: j.state,
            created_at: j.created_at.into(),
            run_at: j.run_at.into(),
            scheduled_because: j.scheduled_because,
            snooze_reason: j.snooze_reason,
            attempt: j.attempt,
            max_attempts: j.max_attempts,
            timeout_ms: j.timeout_ms,
            retry: j.retry,
            unique: j.unique,
            held: j.held.map(Held::from),
            progress: j.progress.map(Progress::from),
            log: j.log.into_iter().map(LogLine::from).collect(),
            errors: j.errors.into_iter().map(ErrorEntry::from).collect(),
            snoozes: j.snoozes,
            lone_stalls: j.lone_stalls,
            result: j.result.map(Json::from),
            finished_at: j.finished_at.map(Time),
            dead: j.dead.map(DeadLetter::from),
            recovered_from: j.recovered_from,
            traceparent: j.trace,
            schedule: j.schedule.map(RunOf::from),
            waits: j.waits.map(Into::into),
        }
    }
}

impl From<Job> for job::Job {
    fn from(j: Job) -> Self {
        Self {
            id: j.id,
            queue: j.queue,
            kind: j.kind,
            tenant: j.tenant,
            group: j.group,
            connector: j.connector,
            payload: j.payload.trusted(),
            priority: j.priority,
            state: j.state,
            created_at: j.created_at.into(),
            run_at: j.run_at.into(),
            scheduled_because: j.scheduled_because,
            snooze_reason: j.snooze_reason,
            attempt: j.attempt,
            max_attempts: j.max_attempts,
            timeout_ms: j.timeout_ms,
            retry: j.retry,
            unique: j.unique,
            held: j.held.map(Into::into),
            progress: j.progress.map(Into::into),
            log: j.log.into_iter().map(Into::into).collect(),
            errors: j.errors.into_iter().map(Into::into).collect(),
            snoozes: j.snoozes,
            lone_stalls: j.lone_stalls,
            result: j.result.map(Json::trusted),
            finished_at: j.finished_at.map(Into::into),
            dead: j.dead.map(Into::into),
            recovered_from: j.recovered_from,
            trace: j.traceparent,
            schedule: j.schedule.map(Into::into),
            waits: j.waits.map(Into::into),
        }
    }
}

/// Both ways between a type of the wire and its twin, field by field.
macro_rules! twins {
    ($wire:ident, $core:ty { $($same:ident),* } times { $($time:ident),* } maybe { $($maybe:ident),* }) => {
        impl From<$core> for $wire {
            fn from(t: $core) -> Self {
                Self { $($same: t.$same.into(),)* $($time: t.$time.into(),)* $($maybe: t.$maybe.map(Into::into)),* }
            }
        }
        impl From<$wire> for $core {
            fn from(t: $wire) -> Self {
                Self { $($same: t.$same.into(),)* $($time: t.$time.into(),)* $($maybe: t.$maybe.map(Into::into)),* }
            }
        }
    };
}

impl From<Lease> for tidegate_core::ids::LeaseId {
    fn from(lease: Lease) -> Self {
        lease.0
    }
}

twins!(Held, job::Held { lease, worker, cancel_requested } times { since, until } maybe {});
twins!(Waits, job::Waits { total, open, on_dead } times {} maybe {});
twins!(Progress, job::Progress { fraction, note } times { at } maybe {});
twins!(LogLine, job::LogLine { line } times { at } maybe {});
twins!(ErrorEntry, failure::ErrorEntry { attempt, category, code, message } times { at } maybe {});
twins!(
    DeadLetter,
    job::DeadLetter {
        category, reason, code, message, review, resolution, resolved_by, recovered_as, cause, auto_retries
    } times {} maybe { resolved_at, first_died_at, asked_at }
);
