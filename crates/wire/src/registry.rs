//! Queues and kinds on the wire. Their settings are the same JSON everywhere: spans in milliseconds.

use serde::{Deserialize, Serialize};
use tidegate_core::ids::{KindName, QueueName};
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_store::params;

use crate::parks::Park;
use crate::{Problem, Time};

/// All queues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Queues {
    /// The queues, by name.
    pub queues: Vec<Queue>,
}

/// A queue as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Queue {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: QueueName,
    /// Its settings.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::QueueSettings))]
    pub settings: QueueSettings,
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
    /// When the oldest ready job became ready.
    pub oldest_ready_at: Option<Time>,
    /// Jobs completed in the last minute.
    pub completed_last_minute: u64,
    /// Attempts that failed in the last minute.
    #[serde(default)]
    pub failed_last_minute: u64,
    /// How long the attempts that ended in the last minute took together.
    #[serde(default)]
    pub run_ms_last_minute: u64,
    /// Jobs taken back from dead workers that have not run since.
    #[serde(default)]
    pub stalled: u64,
    /// Pauses and other parks of the queue itself.
    pub parks: Vec<Park>,
    /// Groups with ready jobs that are parked.
    pub parked_groups: u64,
}

impl From<params::QueueView> for Queue {
    fn from(q: params::QueueView) -> Self {
        Self {
            name: q.name,
            settings: q.settings,
            blocked: q.blocked,
            ready: q.ready,
            scheduled: q.scheduled,
            running: q.running,
            completed: q.completed,
            dead: q.dead,
            cancelled: q.cancelled,
            oldest_ready_at: q.oldest_ready.map(Time),
            completed_last_minute: q.completed_last_minute,
            failed_last_minute: q.failed_last_minute,
            run_ms_last_minute: q.run_ms_last_minute,
            stalled: q.stalled,
            parks: q.parks.into_iter().map(Park::from).collect(),
            parked_groups: q.parked_groups,
        }
    }
}

impl TryFrom<Queue> for params::QueueView {
    type Error = Problem;
    fn try_from(q: Queue) -> Result<Self, Problem> {
        Ok(Self {
            name: q.name,
            settings: q.settings,
            blocked: q.blocked,
            ready: q.ready,
            scheduled: q.scheduled,
            running: q.running,
            completed: q.completed,
            dead: q.dead,
            cancelled: q.cancelled,
            oldest_ready: q.oldest_ready_at.map(|t| t.0),
            completed_last_minute: q.completed_last_minute,
            failed_last_minute: q.failed_last_minute,
            run_ms_last_minute: q.run_ms_last_minute,
            stalled: q.stalled,
            parks: q.parks.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            parked_groups: q.parked_groups,
        })
    }
}

/// Settings of all queues, without counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AllSettings {
    /// The queues, by name.
    pub queues: Vec<NamedSettings>,
}

/// A queue with its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NamedSettings {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: QueueName,
    /// Its settings.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::QueueSettings))]
    pub settings: QueueSettings,
}

/// Add a queue with default settings, if it does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EnsureQueue {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "billing"))]
    pub name: QueueName,
}

/// All kinds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Kinds {
    /// The kinds, by name.
    pub kinds: Vec<Kind>,
}

/// A kind as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Kind {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: KindName,
    /// Its settings.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::KindSettings))]
    pub settings: KindSettings,
}

impl From<params::KindView> for Kind {
    fn from(k: params::KindView) -> Self {
        Self { name: k.name, settings: k.settings }
    }
}

impl From<Kind> for params::KindView {
    fn from(k: Kind) -> Self {
        Self { name: k.name, settings: k.settings }
    }
}
