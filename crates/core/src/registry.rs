//! Settings of queues and kinds, and what makes them acceptable.

use serde::{Deserialize, Serialize};

use crate::ids::{ConnectorName, QueueName};
use crate::job::Priority;
use crate::limits;
use crate::retry::RetryPolicy;

/// At most `max` starts in any window of `per_ms`, counted exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limiter {
    /// Starts allowed in a window.
    pub max: u32,
    /// Length of the window.
    pub per_ms: i64,
}

/// How long finished jobs are kept: whichever bound is reached first. Dead letters have their own rule (J19).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Completed and cancelled jobs kept.
    pub count: u64,
    /// How long they are kept.
    pub age_ms: i64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { count: limits::DEFAULT_RETENTION_COUNT, age_ms: limits::DEFAULT_RETENTION_AGE_MS }
    }
}

/// Settings of a queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueSettings {
    /// Jobs of this queue running at a time, over all workers.
    pub concurrency: Option<u32>,
    /// Jobs of this queue running at a time in one worker.
    pub worker_concurrency: Option<u32>,
    /// Jobs of one group running at a time, over all its priorities.
    pub group_concurrency: Option<u32>,
    /// Starts per window.
    pub limiter: Option<Limiter>,
    /// Ready jobs beyond which enqueue is refused.
    pub max_ready: Option<u64>,
    /// Ready jobs of one tenant beyond which enqueue is refused.
    pub max_ready_per_tenant: Option<u64>,
    /// Share of a worker that serves several queues.
    pub weight: u32,
    /// Time within which ageing brings the lowest priority level with the highest.
    pub max_wait_ms: i64,
    /// What is kept of finished jobs.
    pub retention: Retention,
    /// Retry policy where neither the job, its kind nor the failure's category has one.
    pub retry: RetryPolicy,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            concurrency: None,
            worker_concurrency: None,
            group_concurrency: None,
            limiter: None,
            max_ready: None,
            max_ready_per_tenant: None,
            weight: 1,
            max_wait_ms: limits::DEFAULT_MAX_WAIT_MS,
            retention: Retention::default(),
            retry: RetryPolicy::standard(),
        }
    }
}

impl QueueSettings {
    /// Says what is wrong with the settings, if anything.
    pub fn check(&self) -> Result<(), String> {
        let at_least_one = |what: &str, value: Option<u64>| match value {
            Some(0) => Err(format!("{what} must be at least 1; pause the queue to stop it")),
            _ => Ok(()),
        };
        at_least_one("concurrency", self.concurrency.map(u64::from))?;
        at_least_one("worker_concurrency", self.worker_concurrency.map(u64::from))?;
        at_least_one("group_concurrency", self.group_concurrency.map(u64::from))?;
        at_least_one("max_ready", self.max_ready)?;
        at_least_one("max_ready_per_tenant", self.max_ready_per_tenant)?;
        if let Some(l) = self.limiter
            && (!(1..=1_000_000).contains(&l.max) || !(1..=30 * 24 * 3_600_000).contains(&l.per_ms))
        {
            return Err("limiter must be 1 to 1,000,000 starts per 1 ms to 30 days".into());
        }
        if !(1..=100).contains(&self.weight) {
            return Err("weight must be between 1 and 100".into());
        }
        if !(1_000..=limits::MAX_DELAY_MS).contains(&self.max_wait_ms) {
            return Err("max_wait must be at least 1 s and at most ten years".into());
        }
        if !(0..=limits::MAX_DELAY_MS).contains(&self.retention.age_ms) {
            return Err("retention age must be between 0 and ten years".into());
        }
        self.retry.check().map_err(|e| format!("retry: {e}"))
    }
}

/// Settings of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindSettings {
    /// Queue its jobs go to.
    pub queue: QueueName,
    /// What it does, for people.
    #[serde(default)]
    pub description: String,
    /// Priority of its jobs.
    #[serde(default)]
    pub priority: Priority,
    /// Timeout of one attempt.
    #[serde(default = "default_timeout")]
    pub timeout_ms: i64,
    /// Cap on attempts over all categories.
    #[serde(default)]
    pub max_attempts: Option<u32>,
    /// Its own retry policy; wins over the categories'.
    #[serde(default)]
    pub retry: Option<RetryPolicy>,
    /// The API its jobs call.
    #[serde(default)]
    pub connector: Option<ConnectorName>,
}

fn default_timeout() -> i64 {
    limits::DEFAULT_TIMEOUT_MS
}

impl KindSettings {
    /// Settings with the defaults, in this queue.
    pub fn new(queue: QueueName) -> Self {
        Self {
            queue,
            description: String::new(),
            priority: Priority::default(),
            timeout_ms: limits::DEFAULT_TIMEOUT_MS,
            max_attempts: None,
            retry: None,
            connector: None,
        }
    }

    /// Says what is wrong with the settings, if anything.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=limits::MAX_TIMEOUT_MS).contains(&self.timeout_ms) {
            return Err("timeout must be between 1 ms and 7 days".into());
        }
        if self.max_attempts.is_some_and(|n| !(1..=limits::MAX_ATTEMPTS).contains(&n)) {
            return Err(format!("max_attempts must be between 1 and {}", limits::MAX_ATTEMPTS));
        }
        if self.description.len() > limits::MAX_NOTE_BYTES {
            return Err(format!("description must have at most {} bytes", limits::MAX_NOTE_BYTES));
        }
        self.retry.as_ref().map_or(Ok(()), |r| r.check().map_err(|e| format!("retry: {e}")))
    }
}
