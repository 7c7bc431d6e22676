//! What workers say and hear while they hold jobs: claims, heartbeats, reports. One call each, for many jobs at once.

use serde::{Deserialize, Serialize};
use tidegate_core::ids::{ConnectorName, GroupKey, JobId, KindName, QueueName, TenantId, WorkerId};
use tidegate_core::job::Priority;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;
use tidegate_store::params;

use crate::schedules::RunOf;
use crate::{Json, Lease, Problem, Process, Ticket, Time};

/// A worker asks for jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimRequest {
    /// Who asks; shown in leases and in `why`.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "mailer-1"))]
    pub worker: WorkerId,
    /// The run of its process. Jobs suspected of killing their process run one at a time per process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "00000000000004d2"))]
    pub process: Option<Process>,
    /// Queues it serves.
    pub queues: Vec<ClaimQueue>,
    /// Most jobs in all.
    #[cfg_attr(feature = "openapi", schema(example = 10, minimum = 1))]
    pub max: u32,
    /// How long the lease holds without a heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(example = 30_000))]
    pub lease_ms: Option<i64>,
    /// How long to wait for a job if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(example = 20_000))]
    pub wait_ms: Option<u64>,
}

/// A queue that a worker serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimQueue {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "billing"))]
    pub name: QueueName,
    /// Most jobs of it; as many as in all if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
}

impl ClaimRequest {
    /// The request of a worker that has this claim to make.
    pub fn new(claim: params::Claim, wait_ms: Option<u64>) -> Self {
        let queues = claim.queues.into_iter().map(|(name, max)| ClaimQueue { name, max: Some(max) });
        Self {
            worker: claim.worker,
            process: Some(Process(claim.process)),
            queues: queues.collect(),
            max: claim.max,
            lease_ms: Some(claim.lease_ms),
            wait_ms,
        }
    }

    /// The claim at this time. A worker that names no process is its own.
    pub fn into_claim(self, own_process: impl FnOnce(&WorkerId) -> Process, now: Timestamp) -> params::Claim {
        let max = self.max;
        params::Claim {
            process: self.process.unwrap_or_else(|| own_process(&self.worker)).0,
            worker: self.worker,
            queues: self.queues.into_iter().map(|q| (q.name, q.max.unwrap_or(max))).collect(),
            max,
            lease_ms: self.lease_ms.unwrap_or(limits::DEFAULT_LEASE_MS),
            now,
        }
    }
}

/// Reply to a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimReply {
    /// The lease, if anything was claimed.
    pub lease: Option<GrantedLease>,
    /// The jobs it covers.
    pub jobs: Vec<ClaimedJob>,
    /// When a claim may find something without waiting for it.
    pub next_wakeup: Option<Time>,
    /// The server's time.
    pub now: Time,
}

/// A lease as handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrantedLease {
    /// Its id, for heartbeats.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "lease_17"))]
    pub id: Lease,
    /// When it ends without a heartbeat.
    pub until: Time,
}

/// A job handed to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimedJob {
    /// Proof of holding it; every write about the job carries it.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "tkt_17_4"))]
    pub ticket: Ticket,
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
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
    /// Its group; empty if it has none.
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
    /// This attempt, from 1.
    pub attempt: u32,
    /// Timeout of this attempt.
    pub timeout_ms: i64,
    /// When it was enqueued.
    pub created_at: Time,
    /// Since when it could have run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Time>,
    /// Trace context (W3C), to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// How many jobs it waited for: `/v1/jobs/{id}/dependencies` has their results.
    #[serde(default)]
    pub dependencies: u32,
    /// The schedule that it is a run of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<RunOf>,
}

impl ClaimReply {
    /// The reply at this time.
    pub fn new(claimed: params::Claimed, now: Timestamp) -> Self {
        Self {
            lease: claimed.lease.map(|l| GrantedLease { id: Lease(l.id), until: Time(l.until) }),
            jobs: claimed.jobs.into_iter().map(ClaimedJob::from).collect(),
            next_wakeup: claimed.next_wakeup.map(Time),
            now: Time(now),
        }
    }
}

impl From<ClaimReply> for params::Claimed {
    fn from(reply: ClaimReply) -> Self {
        Self {
            lease: reply.lease.map(|l| params::GrantedLease { id: l.id.0, until: l.until.0 }),
            jobs: reply.jobs.into_iter().map(params::ClaimedJob::from).collect(),
            next_wakeup: reply.next_wakeup.map(|t| t.0),
        }
    }
}

impl From<params::ClaimedJob> for ClaimedJob {
    fn from(job: params::ClaimedJob) -> Self {
        Self {
            ticket: Ticket(job.ticket),
            id: job.id,
            queue: job.queue,
            kind: job.kind,
            tenant: job.tenant,
            group: job.group,
            connector: job.connector,
            payload: job.payload.into(),
            priority: job.priority,
            attempt: job.attempt,
            timeout_ms: job.timeout_ms,
            created_at: job.created_at.into(),
            ready_at: Some(job.ready_at.into()),
            traceparent: job.trace,
            dependencies: job.dependencies,
            schedule: job.schedule.map(RunOf::from),
        }
    }
}

impl From<ClaimedJob> for params::ClaimedJob {
    fn from(job: ClaimedJob) -> Self {
        Self {
            ticket: job.ticket.0,
            id: job.id,
            queue: job.queue,
            kind: job.kind,
            tenant: job.tenant,
            group: job.group,
            connector: job.connector,
            payload: job.payload.trusted(),
            priority: job.priority,
            attempt: job.attempt,
            timeout_ms: job.timeout_ms,
            created_at: job.created_at.into(),
            ready_at: job.ready_at.unwrap_or(job.created_at).into(),
            trace: job.traceparent,
            dependencies: job.dependencies,
            schedule: job.schedule.map(Into::into),
        }
    }
}

/// Extend leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeartbeatRequest {
    /// The leases.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub leases: Vec<Lease>,
}

/// Reply to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeartbeatReply {
    /// One for each lease, in order.
    pub beats: Vec<Beat>,
    /// The server's time.
    pub now: Time,
}

/// Reply to the heartbeat of one lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Beat {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: Lease,
    /// When it ends without another heartbeat; `null` if it is lost.
    pub until: Option<Time>,
    /// Jobs of it that should be cancelled.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub cancel: Vec<Ticket>,
}

impl From<params::Beat> for Beat {
    fn from(beat: params::Beat) -> Self {
        let lease = beat.lease;
        let ticket = |seq| Ticket(params::Ticket { lease, seq });
        let cancel = beat.cancel.into_iter().map(ticket).collect();
        Self { lease: Lease(lease), until: beat.until.map(Time), cancel }
    }
}

impl From<Beat> for params::Beat {
    fn from(beat: Beat) -> Self {
        let cancel = beat.cancel.into_iter().map(|t| t.0.seq).collect();
        Self { lease: beat.lease.0, until: beat.until.map(|t| t.0), cancel }
    }
}

/// What handlers report while they run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReportRequest {
    /// The reports.
    pub reports: Vec<Report>,
}

/// What one handler reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Report {
    /// Proof of holding the job.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "tkt_17_4"))]
    pub ticket: Ticket,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ReportedProgress>,
    /// Log lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReportedProgress {
    /// From 0 to 1.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1, example = 0.5))]
    pub fraction: f64,
    /// What is going on.
    #[serde(default)]
    pub note: String,
}

impl From<params::Report> for Report {
    fn from(r: params::Report) -> Self {
        let progress = r.progress.map(|(fraction, note)| ReportedProgress { fraction, note });
        Self { ticket: Ticket(r.ticket), progress, log: r.log }
    }
}

impl Report {
    /// The report, if it can be true.
    pub fn into_report(self) -> Result<params::Report, Problem> {
        if self.progress.as_ref().is_some_and(|p| !(0.0..=1.0).contains(&p.fraction)) {
            return Err(Problem::invalid("a fraction must be between 0 and 1").at("/progress/fraction"));
        }
        let progress = self.progress.map(|p| (p.fraction, p.note));
        Ok(params::Report { ticket: self.ticket.0, progress, log: self.log })
    }
}

/// Reply to reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReportReply {
    /// For each report, in order, whether it was kept; `false` where the lease is lost.
    pub kept: Vec<bool>,
}
