//! How everything is, for whoever asks `/health`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Time;

/// How it is as a whole: the worst that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Status {
    /// As it should be.
    Healthy,
    /// Jobs run, but something lags behind or goes on without help.
    Degraded,
    /// Somebody has to act.
    Unhealthy,
}

/// How a server and what it serves are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// The worst that was found.
    pub status: Status,
    /// Version of the server.
    #[cfg_attr(feature = "openapi", schema(example = "0.1.0"))]
    pub version: String,
    /// `ok`, or `failing`: it does not answer, or cannot be written to.
    #[cfg_attr(feature = "openapi", schema(example = "ok"))]
    pub store: String,
    /// `ok`, or what is wrong with the gates' backend. Absent where there are no gates that processes share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gates: Option<String>,
    /// How late the schedules are. Absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_lag_ms: Option<u64>,
    /// When it was looked at.
    pub last_check: Time,
    /// Queues, workers and dead letters; for operators alone where the server asks for keys.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Details))]
    pub details: Option<Details>,
}

/// What tenants and strangers need not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Details {
    /// Queues by name.
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub queues: BTreeMap<String, QueueHealth>,
    /// Workers by name, those lately lost included.
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub workers: BTreeMap<String, WorkerHealth>,
    /// Dead letters kept.
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub dlq_size: u64,
    /// How long the oldest ready job of all queues has waited.
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub oldest_ready_ms: Option<u64>,
    /// What is wrong, a sentence each.
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub because: Vec<String>,
}

/// How a queue is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueHealth {
    /// `ok`, `backlogged` or `stalled`.
    pub status: QueueStatus,
    /// Ready jobs.
    pub waiting: u64,
    /// Running jobs.
    pub active: u64,
    /// Failed attempts of the last minute, of all that ended: 0 to 1.
    pub error_rate: f64,
    /// How long its oldest ready job has waited.
    pub oldest_ready_ms: Option<u64>,
}

/// How far behind a queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum QueueStatus {
    /// Not.
    Ok,
    /// More than 1,000 jobs wait.
    Backlogged,
    /// More than 5,000 wait although some run.
    Stalled,
}

/// How a worker is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerHealth {
    /// `running`, `paused` (it drains), or `down`.
    pub status: WorkerStatus,
    /// Jobs it runs at most.
    pub concurrency: u64,
    /// Jobs it runs now.
    pub processing: u64,
}

/// Whether a worker works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum WorkerStatus {
    /// It does.
    Running,
    /// It takes no more jobs.
    Paused,
    /// It stopped announcing itself without a farewell.
    Down,
}
