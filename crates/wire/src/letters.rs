//! Dead letters, erasing and totals on the wire. Listing dead letters is a search.

use serde::{Deserialize, Serialize};
use tidegate_core::ids::JobId;
use tidegate_core::job::Resolution;
use tidegate_store::params;

use crate::{Cursor, Time};

/// Recover dead letters as new jobs with a fresh attempt budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecoverRequest {
    /// The dead jobs.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub ids: Vec<JobId>,
}

/// Reply to a recovery: one for each id, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecoverReply {
    /// The replies.
    pub recovered: Vec<Recovered>,
}

/// Reply to one recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Recovered {
    /// What was done.
    pub status: RecoveredStatus,
    /// The job that took its place.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub new_id: Option<JobId>,
}

/// What a recovery did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum RecoveredStatus {
    /// A new job took its place.
    Recovered,
    /// One had taken its place before.
    Already,
    /// There is no such dead letter.
    NotDead,
}

impl From<params::Recovered> for Recovered {
    fn from(r: params::Recovered) -> Self {
        let (status, new_id) = match r {
            params::Recovered::As(id) => (RecoveredStatus::Recovered, Some(id)),
            params::Recovered::Already(id) => (RecoveredStatus::Already, Some(id)),
            params::Recovered::NotDead => (RecoveredStatus::NotDead, None),
        };
        Self { status, new_id }
    }
}

impl From<Recovered> for params::Recovered {
    fn from(r: Recovered) -> Self {
        match (r.status, r.new_id) {
            (RecoveredStatus::Recovered, Some(id)) => Self::As(id),
            (RecoveredStatus::Already, Some(id)) => Self::Already(id),
            (RecoveredStatus::NotDead, _) | (_, None) => Self::NotDead,
        }
    }
}

/// Settle a dead letter without running it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResolveRequest {
    /// How.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Resolution))]
    pub resolution: Resolution,
    /// By whom; the name of the key if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// Erase a tenant's jobs, a bounded number of rows at a time: send again with `after` until `next` is `null`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EraseRequest {
    /// Go on from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub after: Option<Cursor>,
    /// Rows to look at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<usize>,
}

/// What an erase did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EraseReply {
    /// Jobs erased.
    pub erased: u64,
    /// Where to go on; `null`: all is erased.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub next: Option<Cursor>,
}

impl From<params::Erased> for EraseReply {
    fn from(e: params::Erased) -> Self {
        Self { erased: e.erased, next: e.next.map(Cursor) }
    }
}

impl From<EraseReply> for params::Erased {
    fn from(e: EraseReply) -> Self {
        Self { erased: e.erased, next: e.next.map(|c| c.0) }
    }
}

/// Counts over the whole store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Totals {
    /// Jobs that wait for others.
    #[serde(default)]
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
    #[serde(default)]
    pub schedules: u64,
    /// When the next of them is to be looked at; if that has passed, it is late.
    #[serde(default)]
    pub next_tick: Option<Time>,
}

impl From<params::Totals> for Totals {
    fn from(t: params::Totals) -> Self {
        Self {
            blocked: t.blocked,
            ready: t.ready,
            scheduled: t.scheduled,
            running: t.running,
            completed: t.completed,
            dead: t.dead,
            cancelled: t.cancelled,
            stale_refused: t.stale_refused,
            schedules: t.schedules,
            next_tick: t.next_tick.map(Time),
        }
    }
}

impl From<Totals> for params::Totals {
    fn from(t: Totals) -> Self {
        Self {
            blocked: t.blocked,
            ready: t.ready,
            scheduled: t.scheduled,
            running: t.running,
            completed: t.completed,
            dead: t.dead,
            cancelled: t.cancelled,
            stale_refused: t.stale_refused,
            schedules: t.schedules,
            next_tick: t.next_tick.map(|at| at.0),
        }
    }
}
