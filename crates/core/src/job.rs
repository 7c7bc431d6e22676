//! The job model: states and their transitions, priorities, unique keys, parks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::failure::{Category, ErrorEntry, cut};
use crate::ids::{
    ConnectorName, GroupKey, JobId, KindName, LeaseId, QueueName, TenantId, UniqueKey, WorkerId,
};
use crate::letters::{Cause, Lineage, is_zero};
use crate::limits;
use crate::payload::Payload;
use crate::retry::{DeadReason, RetryPolicy};
use crate::schedule::RunOf;
use crate::time::Timestamp;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waits for other jobs.
    Blocked,
    /// Its time has not come: delay, retry or snooze.
    Scheduled,
    /// May run.
    Ready,
    /// Held under a lease.
    Running,
    /// Done.
    Completed,
    /// Given up; a dead letter.
    Dead,
    /// Called off.
    Cancelled,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Blocked,
        Self::Scheduled,
        Self::Ready,
        Self::Running,
        Self::Completed,
        Self::Dead,
        Self::Cancelled,
    ];

    /// Stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the job will not change any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Dead | Self::Cancelled)
    }

    /// Whether there is a transition from here to `next`.
    pub fn may_become(self, next: Self) -> bool {
        TRANSITIONS.iter().any(|(from, to, _)| *from == self && *to == next)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for State {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|k| k.as_str() == s).ok_or_else(|| {
            format!("{s:?} is not a state (expected {})", Self::ALL.map(Self::as_str).join(", "))
        })
    }
}

/// Every transition a job can make, and what makes it. The diagram in the documentation is generated from this.
pub const TRANSITIONS: &[(State, State, &str)] = &[
    (State::Blocked, State::Scheduled, "dependencies done, time ahead"),
    (State::Blocked, State::Ready, "dependencies done"),
    (State::Blocked, State::Dead, "dependency dead"),
    (State::Blocked, State::Cancelled, "cancel"),
    (State::Scheduled, State::Ready, "time has come, or retry now"),
    (State::Scheduled, State::Cancelled, "cancel"),
    (State::Ready, State::Running, "claim"),
    (State::Ready, State::Cancelled, "cancel"),
    (State::Running, State::Completed, "complete"),
    (State::Running, State::Scheduled, "retry or snooze"),
    (State::Running, State::Ready, "lease lost, or released"),
    (State::Running, State::Dead, "attempts used up, permanent failure, or third lone stall"),
    (State::Running, State::Cancelled, "cancel"),
];

/// The state diagram, as Mermaid text.
pub fn state_diagram() -> String {
    let mut text =
        String::from("stateDiagram-v2\n    [*] --> blocked\n    [*] --> scheduled\n    [*] --> ready\n");
    text.extend(TRANSITIONS.iter().map(|(from, to, why)| format!("    {from} --> {to}: {why}\n")));
    text.extend(State::ALL.into_iter().filter(|s| s.is_final()).map(|s| format!("    {s} --> [*]\n")));
    text
}

/// Importance of a job. Smaller is served first; ageing keeps the others from starving.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// 1
    Critical,
    /// 2
    High,
    /// 3, the default
    #[default]
    Medium,
    /// 4
    Low,
}

impl Priority {
    /// Every priority.
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Medium, Self::Low];

    /// Level: 1 is the highest, 4 the lowest.
    pub fn level(self) -> u8 {
        self as u8 + 1
    }

    /// The priority of this level.
    pub fn from_level(level: u8) -> Option<Self> {
        Self::ALL.get(usize::from(level).checked_sub(1)?).copied()
    }

    /// Stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|p| p.as_str() == s || p.level().to_string() == s).ok_or_else(|| {
            format!("{s:?} is not a priority (expected critical, high, medium, low or 1 to 4)")
        })
    }
}

/// How long a unique key is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UniqueScope {
    /// Until the first claim.
    Pending,
    /// Until the job is finished.
    PendingOrRunning,
    /// For this many milliseconds from the enqueue, whatever becomes of the job.
    PeriodMs(i64),
}

/// What an enqueue does when the key is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// Leave the existing job alone and return it.
    #[default]
    Keep,
    /// Give the existing job the new payload, if it has not started.
    Replace,
    /// Raise the existing job's priority and bring its time forward, if it is not running (J23).
    Hasten,
}

/// A unique key with its rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unique {
    /// The key; unique among jobs of the same kind.
    pub key: UniqueKey,
    /// How long it is held.
    pub scope: UniqueScope,
    /// What happens when it is taken.
    #[serde(default)]
    pub on_conflict: OnConflict,
}

/// What a park stops.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkScope {
    /// A queue.
    Queue(QueueName),
    /// A group, in every queue.
    Group(GroupKey),
    /// Everything that calls this API.
    Connector(ConnectorName),
    /// One group's calls of this API.
    GroupOnConnector(GroupKey, ConnectorName),
}

impl ParkScope {
    /// Whether everything of the other one is of this one.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Group(group), Self::GroupOnConnector(of, _)) => group == of,
            (Self::Connector(connector), Self::GroupOnConnector(_, on)) => connector == on,
            _ => self == other,
        }
    }
}

impl fmt::Display for ParkScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(q) => write!(f, "queue {q}"),
            Self::Group(g) => write!(f, "group {g}"),
            Self::Connector(c) => write!(f, "connector {c}"),
            Self::GroupOnConnector(g, c) => write!(f, "group {g} on connector {c}"),
        }
    }
}

/// A stop on a scope. Several can cover the same lane; removing one leaves the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Park {
    /// What is stopped.
    pub scope: ParkScope,
    /// Who stopped it; one park per scope and owner.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When it ends by itself; `None`: when it is removed.
    pub until: Option<Timestamp>,
}

/// Progress that a handler reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// From 0 to 1.
    pub fraction: f64,
    /// What is going on.
    pub note: String,
    /// When it was reported.
    pub at: Timestamp,
}

/// A line that a handler logged with its job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When.
    pub at: Timestamp,
    /// What.
    pub line: String,
}

/// Why a scheduled job is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduledBecause {
    /// It was enqueued for later.
    Delay,
    /// An attempt failed.
    Retry,
    /// The handler put it off.
    Snooze,
    /// It waits for a gate.
    Gate,
}

/// What becomes of a job when one that it waits for ends dead or cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum OnDead {
    /// It is dead, too.
    #[default]
    Fail,
    /// As if it had completed.
    Ignore,
    /// It waits until the dead job is recovered and completes. A cancelled one never comes back: dead, too.
    Wait,
}

impl OnDead {
    /// Every rule.
    pub const ALL: [Self; 3] = [Self::Fail, Self::Ignore, Self::Wait];

    /// Stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Ignore => "ignore",
            Self::Wait => "wait",
        }
    }
}

impl FromStr for OnDead {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|k| k.as_str() == s)
            .ok_or_else(|| format!("{s:?} is no rule for a dead dependency (expected fail, ignore, wait)"))
    }
}

/// What a job waits for, or waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Jobs in all.
    pub total: u32,
    /// Those that it still waits for.
    pub open: u32,
    /// What becomes of it when one of them ends dead or cancelled.
    pub on_dead: OnDead,
}

/// A job that another one waits for, as that one's handler sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dependency {
    /// Its id.
    pub id: JobId,
    /// Where it stands.
    pub state: State,
    /// Its result, once completed.
    pub result: Option<Payload>,
    /// Code of what it died of, if it is dead.
    pub code: Option<String>,
}

/// Review status of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Review {
    /// Nobody has looked at it.
    PendingReview,
    /// A person settled it.
    ManualResolved,
    /// Tidegate settled it.
    AutoResolved,
    /// Given up.
    Abandoned,
}

impl Review {
    /// Stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PendingReview => "pending_review",
            Self::ManualResolved => "manual_resolved",
            Self::AutoResolved => "auto_resolved",
            Self::Abandoned => "abandoned",
        }
    }
}

/// How a dead letter was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// The tenant authorized again.
    Reauthorize,
    /// The configuration was mended.
    ConfigFix,
    /// It was done by hand.
    ManualRefresh,
    /// It was recovered as a new job.
    Recovered,
    /// It was given up.
    Abandoned,
}

impl Resolution {
    /// Those that a person may name.
    pub const BY_HAND: [Self; 4] = [Self::Reauthorize, Self::ConfigFix, Self::ManualRefresh, Self::Abandoned];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reauthorize => "reauthorize",
            Self::ConfigFix => "config_fix",
            Self::ManualRefresh => "manual_refresh",
            Self::Recovered => "recovered",
            Self::Abandoned => "abandoned",
        }
    }
}

impl FromStr for Resolution {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Self::BY_HAND.into_iter().find(|r| r.as_str() == s).ok_or_else(|| {
            let known = Self::BY_HAND.map(Self::as_str).join(", ");
            format!("{s:?} is not a resolution (expected {known})")
        })
    }
}

/// The dead-letter side of a dead job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Category of the last failure.
    pub category: Category,
    /// Why there was no further attempt.
    pub reason: DeadReason,
    /// Code of the last failure.
    pub code: String,
    /// Message of the last failure.
    pub message: String,
    /// Where the review stands.
    pub review: Review,
    /// How it was settled.
    pub resolution: Option<Resolution>,
    /// By whom.
    pub resolved_by: Option<String>,
    /// When.
    pub resolved_at: Option<Timestamp>,
    /// The job that took its place.
    pub recovered_as: Option<JobId>,
    /// Fingerprint of what it died of; letters of earlier versions have none until the processor has looked at them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// When the first of its line of recoveries died, if it is not the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_died_at: Option<Timestamp>,
    /// How often one of its line was run again without a person.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub auto_retries: u32,
    /// When its tenant was last asked to authorize again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Timestamp>,
}

impl DeadLetter {
    /// A letter that nobody has looked at.
    pub fn new(
        category: Category,
        reason: DeadReason,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            category,
            reason,
            code: code.into(),
            message: cut(message.into(), limits::MAX_ERROR_BYTES),
            review: Review::PendingReview,
            resolution: None,
            resolved_by: None,
            resolved_at: None,
            recovered_as: None,
            cause: None,
            first_died_at: None,
            auto_retries: 0,
            asked_at: None,
        }
    }

    /// Says what it died of in common with others, and what its line has been through.
    #[must_use]
    pub fn of_line(mut self, kind: &KindName, lineage: Option<Lineage>) -> Self {
        self.cause = Some(Cause::of(kind.as_str(), self.category, &self.code, &self.message));
        if let Some(lineage) = lineage {
            self.first_died_at = Some(lineage.first_died_at);
            self.auto_retries = lineage.auto_retries;
            self.asked_at = lineage.asked_at;
        }
        self
    }

    /// What its line has been through, for the job that takes its place.
    pub fn lineage(&self, died_at: Timestamp) -> Lineage {
        Lineage {
            first_died_at: self.first_died_at.unwrap_or(died_at).min(died_at),
            auto_retries: self.auto_retries,
            asked_at: self.asked_at,
        }
    }
}

/// The lease a running job is held under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The lease.
    pub lease: LeaseId,
    /// Who holds it.
    pub worker: WorkerId,
    /// Since when.
    pub since: Timestamp,
    /// Until when, if no heartbeat comes.
    pub until: Timestamp,
    /// Whether a cancel was asked for.
    pub cancel_requested: bool,
}

/// Everything known about a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Its queue.
    pub queue: QueueName,
    /// Its kind.
    pub kind: KindName,
    /// Whose it is.
    pub tenant: Option<TenantId>,
    /// Key of fairness, group limits and parks.
    pub group: GroupKey,
    /// The API it calls.
    pub connector: Option<ConnectorName>,
    /// What to do, as JSON text.
    pub payload: Payload,
    /// Importance.
    pub priority: Priority,
    /// Where it stands.
    pub state: State,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it may run, or could have.
    pub run_at: Timestamp,
    /// Why it is scheduled, if it is.
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
    pub retry: Option<RetryPolicy>,
    /// Its unique key.
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
    /// Result, once completed.
    pub result: Option<Payload>,
    /// When it was finished.
    pub finished_at: Option<Timestamp>,
    /// Dead-letter side, if it is dead.
    pub dead: Option<DeadLetter>,
    /// The dead job it took the place of.
    pub recovered_from: Option<JobId>,
    /// Trace context handed in with the enqueue.
    pub trace: Option<String>,
    /// What it waits for, or waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// The schedule that it is a run of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<RunOf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_states_are_final() {
        for from in State::ALL {
            for to in State::ALL {
                assert!(!(from.is_final() && from.may_become(to)), "{from} -> {to}");
            }
        }
    }

    #[test]
    fn priorities_and_levels_match() {
        for p in Priority::ALL {
            assert_eq!(Priority::from_level(p.level()), Some(p));
            assert_eq!(p.as_str().parse::<Priority>(), Ok(p));
        }
        assert_eq!(Priority::from_level(0), None);
        assert!("urgent".parse::<Priority>().is_err());
    }
}
