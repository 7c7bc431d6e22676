//! One job as text, from flags or from a row of a file, into a checked job.

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::codes;
use tidegate_core::ids::{JobId, UniqueKey};
use tidegate_core::job::{OnConflict, Unique, UniqueScope};
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::time::Timestamp;
use tidegate_core::trace::TraceParent;
use tidegate_store::params::NewJob;

use crate::commands::queues::policy;
use crate::error::{Failure, Result};
use crate::parse;

/// A job as somebody wrote it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Spec {
    pub(super) kind: Option<String>,
    pub(super) data: Option<Box<RawValue>>,
    pub(super) queue: Option<String>,
    pub(super) tenant: Option<String>,
    pub(super) group: Option<String>,
    pub(super) priority: Option<String>,
    pub(super) delay: Option<String>,
    pub(super) at: Option<String>,
    pub(super) timeout: Option<String>,
    pub(super) max_attempts: Option<u32>,
    pub(super) retry: Option<String>,
    pub(super) unique: Option<String>,
    pub(super) unique_while: Option<String>,
    pub(super) on_conflict: Option<String>,
    pub(super) id: Option<String>,
    pub(super) after: Vec<String>,
    pub(super) on_dead: Option<String>,
    pub(super) traceparent: Option<String>,
}

impl Spec {
    /// The checked job. `kind` is for a job that names none; `fallback_id` makes the id of a job that has none of its own
    /// and says whether that id may be in the store already.
    pub(super) fn build(
        &self,
        kind: Option<&str>,
        payload: Payload,
        fallback_id: impl FnOnce() -> (JobId, bool),
        now: Timestamp,
    ) -> Result<NewJob> {
        let kind = self.kind.as_deref().or(kind).ok_or_else(|| {
            Failure::new(codes::INVALID_REQUEST, "a job names no kind")
                .hint("give every job a \"kind\", or name one: tidegate enqueue KIND --from FILE")
        })?;
        let own = self.id.as_deref().map(parse::job_id).transpose()?;
        let (id, may_exist) = own.map_or_else(fallback_id, |id| (id, true));
        let mut job = NewJob::new(id, parse::name(kind)?, payload);
        job.id_may_exist = may_exist;
        job.queue = parse::optional_name(self.queue.as_deref())?;
        job.tenant = parse::optional_name(self.tenant.as_deref())?;
        job.group = parse::optional_name(self.group.as_deref())?;
        job.priority = self.priority.as_deref().map(parse::word).transpose()?;
        job.run_at = self.run_at(now)?;
        job.timeout_ms = self.timeout.as_deref().map(parse::span).transpose()?;
        job.max_attempts = self.max_attempts;
        job.retry = self.retry.as_deref().map(policy).transpose()?;
        job.unique = self.unique()?;
        job.after = self.after.iter().map(|id| parse::job_id(id)).collect::<Result<_>>()?;
        job.on_dead = self.on_dead.as_deref().map(parse::word).transpose()?.unwrap_or_default();
        job.trace = self.traceparent.as_deref().map(trace).transpose()?;
        Ok(job)
    }

    fn run_at(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        let run_at = match (&self.delay, &self.at) {
            (Some(_), Some(_)) => {
                return Err(Failure::new(codes::INVALID_TIME, "a job names both a delay and a time"));
            }
            (Some(delay), None) => Some(now.plus_ms(parse::span(delay)?)),
            (None, Some(at)) => Some(parse::instant(at)?),
            (None, None) => None,
        };
        match run_at {
            Some(t) if t.since(now) > limits::MAX_DELAY_MS => {
                let named = self.delay.as_ref().or(self.at.as_ref()).map_or("", String::as_str);
                Err(Failure::new(codes::INVALID_TIME, format!("{named:?} is more than ten years ahead")))
            }
            other => Ok(other),
        }
    }

    fn unique(&self) -> Result<Option<Unique>> {
        let Some(key) = &self.unique else { return Ok(None) };
        let scope = match self.unique_while.as_deref() {
            None | Some("running") => UniqueScope::PendingOrRunning,
            Some("pending") => UniqueScope::Pending,
            Some(span) => UniqueScope::PeriodMs(parse::span(span)?),
        };
        let on_conflict = match self.on_conflict.as_deref() {
            None | Some("keep") => OnConflict::Keep,
            Some("replace") => OnConflict::Replace,
            Some("hasten") => OnConflict::Hasten,
            Some(other) => {
                let shown: String = other.chars().take(40).collect();
                return Err(Failure::new(
                    codes::INVALID_REQUEST,
                    format!("{shown:?} is not a conflict mode"),
                )
                .hint("use keep, replace or hasten"));
            }
        };
        Ok(Some(Unique { key: UniqueKey::new(key)?, scope, on_conflict }))
    }
}

fn trace(text: &str) -> Result<String> {
    let context = text.parse::<TraceParent>();
    Ok(context.map_err(|e| Failure::new(codes::INVALID_REQUEST, e.to_string()))?.to_string())
}
