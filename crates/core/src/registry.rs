//! Settings of queues and kinds, and what makes them acceptable.
//!
//! - [`Document`]: queues, kinds and policies as a file or a request has them, read with the place of every mistake.
//! - [`Reading`]: a document as far as it could be read, and everything that is wrong with it, in one pass.
//! - [`Difference`]: what a document changes; [`Left`]: what it leaves alone; [`Counts`]: how many of what.
//! - [`Identity`]: which document it is, and what it may have been known as before.
//! - [`Version`]: what history knows of one that was applied or refused.

mod difference;
mod document;
mod entries;
mod fields;
mod history;
mod identity;
mod misplaced;
mod order;
mod reading;
mod schedule;
#[cfg(test)]
mod tests;
mod writing;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::difference::{Change, Difference, difference, differences};
pub use self::document::{Document, Format, Problem, hash_of};
pub use self::entries::{Counts, Entry, Left};
pub use self::fields::{join, told};
pub use self::history::{Outcome, Version, VersionInfo};
pub use self::identity::Identity;
pub use self::misplaced::HIDDEN;
pub use self::order::{Order, taken};
pub use self::reading::{Reading, Standing};
pub use self::schedule::ScheduleSpec;
pub use self::writing::written;
use crate::alerts::KindAlerts;
use crate::failure::Category;
use crate::ids::{ConnectorName, EventName, QueueName};
use crate::job::Priority;
use crate::limits;
use crate::payload::Payload;
use crate::retry::RetryPolicy;
use crate::schema::Schema;

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
    /// Name of that policy: `retry` follows it when the registry changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
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
            policy: None,
        }
    }
}

impl QueueSettings {
    /// Says what is wrong with the settings, if anything.
    pub fn check(&self) -> Result<(), String> {
        self.faults().into_iter().next().map_or(Ok(()), |(_, why)| Err(why))
    }

    /// Everything that is wrong with the settings, with the field it is about.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = vec![];
        for (what, value) in [
            ("concurrency", self.concurrency.map(u64::from)),
            ("worker_concurrency", self.worker_concurrency.map(u64::from)),
            ("group_concurrency", self.group_concurrency.map(u64::from)),
            ("max_ready", self.max_ready),
            ("max_ready_per_tenant", self.max_ready_per_tenant),
        ] {
            if value == Some(0) {
                faults.push((what, format!("{what} must be at least 1; pause the queue to stop it")));
            }
        }
        if let Some(l) = self.limiter
            && (!(1..=1_000_000).contains(&l.max) || !(1..=30 * 24 * 3_600_000).contains(&l.per_ms))
        {
            faults.push(("limiter", "limiter must be 1 to 1,000,000 starts per 1 ms to 30 days".into()));
        }
        if !(1..=100).contains(&self.weight) {
            faults.push(("weight", "weight must be between 1 and 100".into()));
        }
        if !(1_000..=limits::MAX_DELAY_MS).contains(&self.max_wait_ms) {
            faults.push(("max_wait_ms", "max_wait must be at least 1 s and at most ten years".into()));
        }
        faults.extend(self.retention.fault());
        faults.extend(self.retry.faults().into_iter().map(|(_, why)| ("retry", format!("retry: {why}"))));
        faults
    }
}

impl Retention {
    fn fault(self) -> Option<(&'static str, String)> {
        (!(0..=limits::MAX_DELAY_MS).contains(&self.age_ms))
            .then(|| ("retention", "retention age must be between 0 and ten years".into()))
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
    /// Name of that policy: `retry` follows it when the registry changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The API its jobs call.
    #[serde(default)]
    pub connector: Option<ConnectorName>,
    /// Its jobs running at a time, over all workers and queues. Holds for jobs enqueued since it was first set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// What is kept of its completed and cancelled jobs, if that is less than its queue keeps. Holds for jobs enqueued since it
    /// was first set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// What its payloads must look like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Schema>,
    /// Events that enqueue it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<EventName>,
    /// Categories of its failures by their code, whatever the handler said.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, Category>,
    /// Alerts that watch it.
    #[serde(default, skip_serializing_if = "KindAlerts::is_empty")]
    pub alerts: KindAlerts,
    /// When it runs by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleSpec>,
    /// A document describes it: a handler that registers itself leaves it as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub managed: bool,
    /// Which document that is: its own name, or where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
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
            policy: None,
            connector: None,
            concurrency: None,
            retention: None,
            schema: None,
            on: vec![],
            failures: BTreeMap::new(),
            alerts: KindAlerts::default(),
            schedule: None,
            managed: false,
            document: None,
        }
    }

    /// Whether its jobs have lanes of their own, so that they are told apart without being looked at.
    pub fn has_own_lanes(&self) -> bool {
        self.concurrency.is_some() || self.retention.is_some()
    }

    /// A payload as people may see it: without secrets.
    pub fn shown(&self, payload: Payload) -> Payload {
        match &self.schema {
            Some(schema) => schema.mask(&payload).unwrap_or(payload),
            None => payload,
        }
    }

    /// The settings as people may see them: without secrets of payloads.
    #[must_use]
    pub fn as_shown(self) -> Self {
        let Some(schema) = self.schema.as_ref().filter(|s| s.has_secrets()) else { return self };
        let schedule = self.schedule.as_ref().map(|s| s.shown(schema));
        Self { schema: Some(schema.shown()), schedule, ..self }
    }

    /// Puts back what was hidden when `old` was shown.
    pub fn reveal(&mut self, old: &Self) {
        let Some(schema) = &old.schema else { return };
        if let (Some(new), Some(old)) = (&mut self.schedule, &old.schedule)
            && let (Some(new), Some(old)) = (new.0.get_mut("payload"), old.0.get("payload"))
        {
            schema.revealed_payload(new, old, self.schema.as_ref());
        }
        self.schema = self.schema.take().map(|new| new.revealed(schema));
    }

    /// Where something is written as it is shown, `***`, that is secret here or was secret in `old`, and was not put back.
    pub fn hidden(&self, old: Option<&Self>) -> Vec<&'static str> {
        let was = old.and_then(|old| old.schema.as_ref());
        let in_schema =
            |schema: &Schema| schema.is_hidden() || was.is_some_and(|was| schema.keeps_mask_of(was));
        let in_payload =
            |schedule: &ScheduleSpec| self.schema.iter().chain(was).any(|schema| schedule.is_hidden(schema));
        let found = [
            ("schema", self.schema.as_ref().is_some_and(in_schema)),
            ("schedule.payload", self.schedule.as_ref().is_some_and(in_payload)),
        ];
        found.into_iter().filter_map(|(field, hidden)| hidden.then_some(field)).collect()
    }

    /// Says what is wrong with the settings, if anything.
    pub fn check(&self) -> Result<(), String> {
        self.faults().into_iter().next().map_or(Ok(()), |(_, why)| Err(why))
    }

    /// Everything that is wrong with the settings, with the field it is about.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = vec![];
        if !(1..=limits::MAX_TIMEOUT_MS).contains(&self.timeout_ms) {
            faults.push(("timeout_ms", "timeout must be between 1 ms and 7 days".into()));
        }
        if self.max_attempts.is_some_and(|n| !(1..=limits::MAX_ATTEMPTS).contains(&n)) {
            faults.push((
                "max_attempts",
                format!("max_attempts must be between 1 and {}", limits::MAX_ATTEMPTS),
            ));
        }
        if self.concurrency == Some(0) {
            faults.push(("concurrency", "concurrency must be at least 1".into()));
        }
        faults.extend(self.retention.and_then(Retention::fault));
        if self.retention.is_some_and(|r| r.count > limits::MAX_KIND_RETENTION) {
            let most = limits::MAX_KIND_RETENTION;
            faults.push(("retention", format!("retention of a kind must keep at most {most} jobs")));
        }
        if self.description.len() > limits::MAX_NOTE_BYTES {
            faults.push((
                "description",
                format!("description must have at most {} bytes", limits::MAX_NOTE_BYTES),
            ));
        }
        for (field, n) in [("on", self.on.len()), ("failures", self.failures.len())] {
            if n > limits::MAX_KIND_LIST {
                faults.push((field, format!("{field} must have at most {} entries", limits::MAX_KIND_LIST)));
            }
        }
        if self.failures.keys().any(|code| code.is_empty() || code.len() > limits::MAX_NAME_BYTES) {
            let most = limits::MAX_NAME_BYTES;
            faults.push(("failures", format!("a name in failures must have 1 to {most} bytes")));
        }
        faults.extend(self.alerts.faults(self.timeout_ms).into_iter().map(|why| ("alerts", why)));
        faults.extend(self.schedule.iter().flat_map(|s| s.faults(self.schema.as_ref())));
        let retry = self.retry.iter().flat_map(RetryPolicy::faults);
        faults.extend(retry.map(|(_, why)| ("retry", format!("retry: {why}"))));
        faults
    }
}
