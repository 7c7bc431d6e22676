//! Why a job is where it is, on the wire: a sentence for people, the facts for programs.

use serde::{Deserialize, Serialize};
use tidegate_core::ids::{GroupKey, JobId, QueueName, WorkerId};
use tidegate_core::job::Priority;
use tidegate_core::registry::Limiter;
use tidegate_core::time::Timestamp;
use tidegate_core::why;

use crate::jobs::{DeadLetter, ErrorEntry};
use crate::parks::Park;
use crate::{Problem, Time};

/// Why a job is where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Why {
    /// In words: the cause, the number, what happens next.
    #[cfg_attr(feature = "openapi", schema(example = "Delayed; starts in 1 m 30 s."))]
    pub sentence: String,
    /// The cause.
    pub because: Cause,
    /// Its queue.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub queue: QueueName,
    /// Its priority.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Priority))]
    pub priority: Priority,
    /// When it is expected to start, where that can be computed.
    pub expected_start: Option<Time>,
    /// Counted attempts, the running one included.
    pub attempt: u32,
    /// Attempts it has in all.
    pub max_attempts: u32,
    /// The dead letter whose place it took, if it was recovered.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub recovered_from: Option<JobId>,
    /// It could run, and no worker is known to serve its queue: none said so that is alive, and nothing of it ran within the last minute.
    #[serde(default)]
    pub unserved: bool,
    /// The server's time.
    pub now: Time,
}

/// What keeps a job from running now, or what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Cause {
    /// Waits for other jobs.
    Blocked {
        /// How many it still waits for.
        open: u32,
        /// How many there were.
        total: u32,
        /// Some of those it still waits for.
        #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
        jobs: Vec<JobId>,
        /// One of them that is dead and must be recovered first.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
        dead: Option<JobId>,
    },
    /// Enqueued for later.
    Delayed,
    /// An attempt failed; the next one is planned.
    Retry {
        /// Number of the next attempt.
        next_attempt: u32,
        /// The failure.
        error: Option<ErrorEntry>,
    },
    /// The handler put it off.
    Snoozed {
        /// Why.
        reason: String,
        /// How often so far.
        times: u32,
    },
    /// One or more parks cover it. The one that ends last comes first.
    Parked {
        /// The parks.
        parks: Vec<Park>,
    },
    /// Its group runs as many as it may.
    GroupFull {
        /// The group.
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        group: GroupKey,
        /// Running now.
        running: u32,
        /// Allowed.
        limit: u32,
    },
    /// Its kind runs as many as it may.
    KindFull {
        /// Running now.
        running: u32,
        /// Allowed.
        limit: u32,
    },
    /// Its queue runs as many as it may.
    QueueFull {
        /// Allowed.
        limit: u32,
    },
    /// Its queue started as many in the window as it may.
    Limited {
        /// The limiter.
        #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Limiter))]
        limiter: Limiter,
        /// When the next start is allowed.
        free_at: Time,
    },
    /// Its process died while it ran; it waits to run alone.
    Suspect {
        /// Lone stalls so far.
        lone_stalls: u32,
    },
    /// Others come first.
    Behind {
        /// Jobs of higher priority in the queue.
        higher: u64,
        /// Older jobs of its own lane.
        older: u64,
    },
    /// It is next.
    Next,
    /// It runs.
    Running {
        /// Who runs it.
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        worker: WorkerId,
        /// Since when.
        since: Time,
        /// Until when the lease holds.
        lease_until: Time,
        /// Whether a cancel was asked for.
        cancel_requested: bool,
    },
    /// Done.
    Completed {
        /// When.
        at: Time,
    },
    /// Called off.
    Cancelled {
        /// When.
        at: Time,
        /// By whom and why, if known.
        note: Option<String>,
    },
    /// Given up.
    Dead {
        /// When.
        at: Time,
        /// The letter.
        letter: DeadLetter,
    },
}

impl Why {
    /// The explanation at this time.
    pub fn new(why: why::Why, now: Timestamp) -> Self {
        Self {
            sentence: why.sentence(now),
            because: why.cause.into(),
            queue: why.queue,
            priority: why.priority,
            expected_start: why.expected_start.map(Time),
            attempt: why.attempt,
            max_attempts: why.max_attempts,
            recovered_from: why.recovered_from,
            unserved: why.unserved,
            now: Time(now),
        }
    }
}

impl TryFrom<Why> for why::Why {
    type Error = Problem;
    fn try_from(why: Why) -> Result<Self, Problem> {
        Ok(Self {
            cause: why.because.try_into()?,
            queue: why.queue,
            priority: why.priority,
            expected_start: why.expected_start.map(|t| t.0),
            attempt: why.attempt,
            max_attempts: why.max_attempts,
            recovered_from: why.recovered_from,
            unserved: why.unserved,
        })
    }
}

impl From<why::Cause> for Cause {
    fn from(cause: why::Cause) -> Self {
        use why::Cause as C;
        match cause {
            C::Blocked { open, total, jobs, dead } => Self::Blocked { open, total, jobs, dead },
            C::Delayed => Self::Delayed,
            C::Retry { next_attempt, error } => Self::Retry { next_attempt, error: error.map(Into::into) },
            C::Snoozed { reason, times } => Self::Snoozed { reason, times },
            C::Parked { parks } => Self::Parked { parks: parks.into_iter().map(Into::into).collect() },
            C::GroupFull { group, running, limit } => Self::GroupFull { group, running, limit },
            C::KindFull { running, limit } => Self::KindFull { running, limit },
            C::QueueFull { limit } => Self::QueueFull { limit },
            C::Limited { limiter, free_at } => Self::Limited { limiter, free_at: Time(free_at) },
            C::Suspect { lone_stalls } => Self::Suspect { lone_stalls },
            C::Behind { higher, older } => Self::Behind { higher, older },
            C::Next => Self::Next,
            C::Running { worker, since, lease_until, cancel_requested } => {
                Self::Running { worker, since: Time(since), lease_until: Time(lease_until), cancel_requested }
            }
            C::Completed { at } => Self::Completed { at: Time(at) },
            C::Cancelled { at, note } => Self::Cancelled { at: Time(at), note },
            C::Dead { at, letter } => Self::Dead { at: Time(at), letter: letter.into() },
        }
    }
}

impl TryFrom<Cause> for why::Cause {
    type Error = Problem;
    fn try_from(cause: Cause) -> Result<Self, Problem> {
        use Cause as C;
        Ok(match cause {
            C::Blocked { open, total, jobs, dead } => Self::Blocked { open, total, jobs, dead },
            C::Delayed => Self::Delayed,
            C::Retry { next_attempt, error } => Self::Retry { next_attempt, error: error.map(Into::into) },
            C::Snoozed { reason, times } => Self::Snoozed { reason, times },
            C::Parked { parks } => {
                Self::Parked { parks: parks.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()? }
            }
            C::GroupFull { group, running, limit } => Self::GroupFull { group, running, limit },
            C::KindFull { running, limit } => Self::KindFull { running, limit },
            C::QueueFull { limit } => Self::QueueFull { limit },
            C::Limited { limiter, free_at } => Self::Limited { limiter, free_at: free_at.0 },
            C::Suspect { lone_stalls } => Self::Suspect { lone_stalls },
            C::Behind { higher, older } => Self::Behind { higher, older },
            C::Next => Self::Next,
            C::Running { worker, since, lease_until, cancel_requested } => {
                Self::Running { worker, since: since.0, lease_until: lease_until.0, cancel_requested }
            }
            C::Completed { at } => Self::Completed { at: at.0 },
            C::Cancelled { at, note } => Self::Cancelled { at: at.0, note },
            C::Dead { at, letter } => Self::Dead { at: at.0, letter: letter.into() },
        })
    }
}
