//! Shapes of types that live in other crates, for the `OpenAPI` document alone. Tests compare each with what it stands
//! for.

use utoipa::openapi::schema::{Object, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{KnownFormat, RefOr, Schema, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use crate::{Json, Time};

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some("A point in time: RFC 3339, UTC, milliseconds"))
            .examples([serde_json::json!("2026-11-15T07:30:00.000Z")])
            .into()
    }
}

impl ToSchema for Time {}

impl PartialSchema for Json {
    fn schema() -> RefOr<Schema> {
        let mut any = Object::new();
        any.schema_type = SchemaType::AnyValue;
        any.description = Some("Any JSON value".into());
        RefOr::T(Schema::Object(any))
    }
}

impl ToSchema for Json {}

macro_rules! names {
    ($(#[$doc:meta])* $type:ident: $style:tt { $($(#[$vdoc:meta])* $variant:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize, ToSchema)]
        #[serde(rename_all = $style)]
        pub enum $type { $($(#[$vdoc])* $variant),* }
    };
}

names!(
    /// Where a job stands.
    State: "snake_case" {
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
);
names!(
    /// Importance of a job.
    Priority: "snake_case" {
        /// 1
        Critical,
        /// 2
        High,
        /// 3, the default
        Medium,
        /// 4
        Low,
    }
);
names!(
    /// What kind of failure it was; decides the retry policy.
    Category: "SCREAMING_SNAKE_CASE" {
        /// The provider said: too many requests.
        TransientRateLimit,
        /// The network failed, or the error is not known to be anything else.
        TransientNetwork,
        /// The provider failed (5xx).
        TransientServer,
        /// A dependency is down or its breaker is open.
        ResourceUnavailable,
        /// Grant revoked or invalid: a person must reauthorize.
        PermanentAuth,
        /// Set up wrongly on our side.
        PermanentConfig,
        /// Not allowed to do this.
        PermanentPermission,
        /// The payload or the request can never work.
        InvalidInput,
        /// The handler failed or panicked.
        LogicError,
        /// The process died or ran out of memory.
        SystemFailure,
        /// A write whose effect is unknown.
        AmbiguousWrite,
    }
);
names!(
    /// Why a scheduled job is scheduled.
    ScheduledBecause: "snake_case" {
        /// It was enqueued for later.
        Delay,
        /// An attempt failed.
        Retry,
        /// The handler put it off.
        Snooze,
        /// It waits for a gate.
        Gate,
    }
);
names!(
    /// Review status of a dead letter.
    Review: "snake_case" {
        /// Nobody has looked at it.
        PendingReview,
        /// A person settled it.
        ManualResolved,
        /// Tidegate settled it.
        AutoResolved,
        /// Given up.
        Abandoned,
    }
);
names!(
    /// How a dead letter was settled.
    Resolution: "snake_case" {
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
);
names!(
    /// Why there is no further attempt.
    DeadReason: "snake_case" {
        /// The attempts are used up.
        AttemptsUsed,
        /// The category is permanent.
        Permanent,
        /// The policy's lists of codes exclude it.
        NotRetryable,
        /// The process died three times while only this job was suspect.
        Poison,
        /// It was snoozed too often.
        SnoozedTooOften,
        /// A job that it waited for did not complete.
        Dependency,
    }
);
names!(
    /// What becomes of a job when one that it waits for ends dead or cancelled.
    OnDead: "snake_case" {
        /// It is dead, too.
        Fail,
        /// As if it had completed.
        Ignore,
        /// It waits until the dead job is recovered and completes.
        Wait,
    }
);
names!(
    /// What an enqueue did.
    EnqueueOutcome: "snake_case" {
        /// A new job.
        Created,
        /// A job with this key or id exists; it was left alone.
        Kept,
        /// The existing job has the new payload.
        Replaced,
        /// The existing job runs sooner or with higher priority.
        Hastened,
    }
);
names!(
    /// What an enqueue does when its unique key is taken.
    OnConflict: "snake_case" {
        /// Leave the existing job alone and return it.
        Keep,
        /// Give the existing job the new payload, if it has not started.
        Replace,
        /// Raise the existing job's priority and bring its time forward, if it is not running.
        Hasten,
    }
);
names!(
    /// How a delay is spread.
    Jitter: "snake_case" {
        /// Anywhere from 0 to the delay.
        Full,
        /// Half the delay, plus anywhere from 0 to the other half.
        Equal,
        /// The delay, plus up to a tenth.
        PlusTenth,
        /// Exactly the delay.
        None,
    }
);

/// How long a unique key is held.
#[derive(Debug, serde::Serialize, serde::Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UniqueScope {
    /// Until the first claim.
    Pending,
    /// Until the job is finished.
    PendingOrRunning,
    /// For this many milliseconds from the enqueue.
    PeriodMs(i64),
}

/// A unique key with its rules.
#[derive(Debug, serde::Serialize, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Unique {
    /// The key; unique among jobs of the same kind.
    pub key: String,
    /// How long it is held.
    pub scope: UniqueScope,
    /// What happens when it is taken.
    #[schema(required = false)]
    pub on_conflict: OnConflict,
}

/// How the delay grows with the number of failures.
#[derive(Debug, serde::Serialize, serde::Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Backoff {
    /// `base × factor^n`, at most `cap`.
    Exponential {
        /// Delay after the first failure.
        base_ms: i64,
        /// Growth per failure.
        factor: f64,
        /// Largest delay.
        cap_ms: i64,
    },
    /// The same delay each time.
    Fixed {
        /// The delay.
        delay_ms: i64,
    },
    /// `step × (n + 1)`, at most `cap`.
    Linear {
        /// Delay after the first failure, and growth per failure.
        step_ms: i64,
        /// Largest delay.
        cap_ms: i64,
    },
    /// At once.
    Immediate,
    /// Never again.
    None,
}

/// A retry policy. `max_attempts` is the total, the first attempt included.
#[derive(Debug, serde::Serialize, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// Attempts in all.
    #[schema(minimum = 1, maximum = 100, example = 5)]
    pub max_attempts: u32,
    /// Growth of the delay.
    pub backoff: Backoff,
    /// Spread of the delay.
    pub jitter: Jitter,
    /// If not empty, only failures with one of these codes are tried again.
    #[serde(default)]
    pub retry_on: Vec<String>,
    /// Failures with one of these codes are never tried again.
    #[serde(default)]
    pub no_retry_on: Vec<String>,
}

/// At most `max` starts in any window of `per_ms`.
#[derive(Debug, serde::Serialize, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limiter {
    /// Starts allowed in a window.
    pub max: u32,
    /// Length of the window.
    pub per_ms: i64,
}

/// How long finished jobs are kept: whichever bound is reached first.
#[derive(Debug, serde::Serialize, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Completed and cancelled jobs kept.
    pub count: u64,
    /// How long they are kept.
    pub age_ms: i64,
}

/// Settings of a queue. What is not given has its default.
#[derive(Debug, serde::Serialize, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueSettings {
    /// Jobs of this queue running at a time, over all workers.
    pub concurrency: Option<u32>,
    /// Jobs of this queue running at a time in one worker.
    pub worker_concurrency: Option<u32>,
    /// Jobs of one group running at a time.
    pub group_concurrency: Option<u32>,
    /// Starts per window.
    pub limiter: Option<Limiter>,
    /// Ready jobs beyond which enqueue is refused.
    pub max_ready: Option<u64>,
    /// Ready jobs of one tenant beyond which enqueue is refused.
    pub max_ready_per_tenant: Option<u64>,
    /// Share of a worker that serves several queues.
    #[schema(required = false, minimum = 1, maximum = 100, example = 1)]
    pub weight: u32,
    /// Time within which ageing brings the lowest priority level with the highest.
    #[schema(required = false, example = 600_000)]
    pub max_wait_ms: i64,
    /// What is kept of finished jobs.
    #[schema(required = false)]
    pub retention: Retention,
    /// Retry policy where neither the job, its kind nor the failure's category has one.
    #[schema(required = false)]
    pub retry: RetryPolicy,
    /// Name of that policy: `retry` follows it when the registry changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// Settings of a kind. What is not given has its default.
#[derive(Debug, serde::Serialize, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KindSettings {
    /// Queue its jobs go to.
    #[schema(example = "billing")]
    pub queue: String,
    /// What it does, for people.
    #[schema(required = false)]
    pub description: String,
    /// Priority of its jobs.
    #[schema(required = false)]
    pub priority: Priority,
    /// Timeout of one attempt.
    #[schema(required = false, example = 30_000)]
    pub timeout_ms: i64,
    /// Cap on attempts over all categories.
    pub max_attempts: Option<u32>,
    /// Its own retry policy; wins over the categories'.
    pub retry: Option<RetryPolicy>,
    /// Name of that policy: `retry` follows it when the registry changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The API its jobs call.
    pub connector: Option<String>,
    /// Its jobs running at a time, over all workers and queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// What is kept of its completed and cancelled jobs, if that is less than its queue keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// What its payloads must look like: JSON Schema, as far as `docs/guides/registry.md` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub schema: Option<serde_json::Value>,
    /// Events that enqueue it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
    /// Categories of its failures by their code.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub failures: std::collections::BTreeMap<String, Category>,
    /// Alerts that watch it: a list of names, or a table of rules as in the alerts file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Json>)]
    pub alerts: Option<serde_json::Value>,
    /// When it runs by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub schedule: Option<serde_json::Value>,
    /// A document describes it: a handler that registers itself leaves it as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub managed: bool,
    /// Which document that is, by where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
}

names!(
    /// What becomes of a tick while an earlier run is not finished.
    Overlap: "snake_case" {
        /// It is skipped.
        Skip,
        /// It waits until that run is finished.
        Queue,
        /// It runs beside it.
        Allow,
    }
);
names!(
    /// What a put did to a schedule.
    ScheduleChange: "snake_case" {
        /// It is new.
        Created,
        /// It has other settings than before.
        Changed,
        /// It is what it was.
        Unchanged,
    }
);
names!(
    /// Why a tick was skipped.
    SkipReason: "snake_case" {
        /// Nobody was there to fire it, and it is not made up for.
        Missed,
        /// An earlier run was not finished.
        Overlap,
        /// The schedule was paused.
        Paused,
        /// The schedule was changed before it could run.
        Edited,
        /// A schedule that it waits for did not complete its run that day.
        After,
        /// As many runs or ticks wait already as may.
        Full,
        /// Its job was refused.
        Refused,
    }
);

/// What becomes of ticks that nobody was there to fire.
#[derive(Debug, serde::Serialize, serde::Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// They are skipped.
    Skip,
    /// The newest of them runs.
    RunOnce,
    /// The newest of them run, up to this many.
    RunAll(u32),
}

/// Settings of a schedule. Exactly one of `cron`, `every` and `at` says when.
#[derive(Debug, serde::Serialize, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSettings {
    /// A cron expression: five fields, six with seconds first, or `@daily` and its kind.
    #[schema(example = "1 0 * * *")]
    pub cron: Option<String>,
    /// An interval.
    #[schema(example = "5m")]
    pub every: Option<String>,
    /// Once, at this time: with an offset, or by the clock of `zone`.
    #[schema(example = "2026-12-24T18:00")]
    pub at: Option<String>,
    /// IANA name of the time zone whose clock counts; UTC if it is not named.
    #[schema(example = "America/Sao_Paulo")]
    pub zone: Option<String>,
    /// One tick of the interval; the others are counted from it.
    pub anchor: Option<String>,
    /// What becomes of a tick while an earlier run is not finished.
    #[schema(required = false)]
    pub overlap: Overlap,
    /// What becomes of ticks that nobody was there to fire.
    #[schema(required = false)]
    pub missed: Missed,
    /// A tick that is late by more than this was missed; one minute if it is not named.
    #[schema(example = "1m")]
    pub grace: Option<String>,
    /// Each run is put off by up to this, always by the same for the same tick.
    #[schema(example = "30s")]
    pub jitter: Option<String>,
    /// Schedules whose run of the same day must have completed before.
    #[schema(required = false)]
    pub after: Vec<String>,
    /// Payload of its jobs; `{}` if it is not named.
    pub payload: Option<Json>,
    /// Whose its jobs are.
    pub tenant: Option<String>,
    /// Group of its jobs.
    pub group: Option<String>,
    /// Priority of its jobs, if other than their kind's.
    pub priority: Option<Priority>,
    /// What it is for, in a sentence.
    #[schema(required = false)]
    pub description: String,
}

/// One job for each date of a range.
#[derive(Debug, serde::Serialize, serde::Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Backfill {
    /// Kind of the jobs.
    #[schema(example = "daily-feature-aggregation")]
    pub kind: String,
    /// The first date.
    #[schema(example = "2026-10-18")]
    pub from: String,
    /// The last date.
    #[schema(example = "2026-11-14")]
    pub to: String,
    /// Time between two jobs; five seconds if it is not named.
    #[schema(example = "5s")]
    pub stagger: Option<String>,
    /// Payload of the jobs, an object; each gets its date.
    pub payload: Option<Json>,
    /// Field of the payload that gets the date; `date` if it is not named.
    pub field: Option<String>,
    /// Dates that were filled under another label are filled again.
    pub label: Option<String>,
}
