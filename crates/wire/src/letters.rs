//! Dead letters, erasing and totals on the wire. Listing dead letters is a search.

use serde::{Deserialize, Serialize};
use tidegate_core::failure::Category;
use tidegate_core::ids::{ConnectorName, JobId, KindName, QueueName, TenantId};
use tidegate_core::job::Resolution;
use tidegate_core::{codes, letters, limits};
use tidegate_store::params;

use crate::{Cursor, Problem, Time};

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
    /// It was settled without running again.
    Resolved,
}

impl From<params::Recovered> for Recovered {
    fn from(r: params::Recovered) -> Self {
        let (status, new_id) = match r {
            params::Recovered::As(id) => (RecoveredStatus::Recovered, Some(id)),
            params::Recovered::Already(id) => (RecoveredStatus::Already, Some(id)),
            params::Recovered::NotDead => (RecoveredStatus::NotDead, None),
            params::Recovered::Resolved => (RecoveredStatus::Resolved, None),
        };
        Self { status, new_id }
    }
}

impl From<Recovered> for params::Recovered {
    fn from(r: Recovered) -> Self {
        match (r.status, r.new_id) {
            (RecoveredStatus::Recovered, Some(id)) => Self::As(id),
            (RecoveredStatus::Already, Some(id)) => Self::Already(id),
            (RecoveredStatus::Resolved, _) => Self::Resolved,
            (RecoveredStatus::NotDead, _) | (_, None) => Self::NotDead,
        }
    }
}

/// A tenant has authorized again. Either the letters are named, or whose grant it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReauthorizedRequest {
    /// These letters alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub ids: Vec<JobId>,
    /// Who authorized again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "acme"))]
    pub tenant: Option<TenantId>,
    /// For this API; all if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "shopify"))]
    pub connector: Option<ConnectorName>,
    /// Jobs of this kind; all if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub kind: Option<KindName>,
    /// Go on from here: `next` of the reply before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub after: Option<Cursor>,
    /// Settle the letters instead of running them again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resolve: bool,
    /// Who brings the news; the name of the key if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// What a new grant did. One request looks at a bounded number of letters: send again with `after` while there is `more`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReauthorizedReply {
    /// The letters.
    pub letters: Vec<ReauthorizedLetter>,
    /// Whether there may be more.
    pub more: bool,
    /// Where to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub next: Option<Cursor>,
}

/// What a new grant did to one letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReauthorizedLetter {
    /// The dead job.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub dead: JobId,
    /// What was done.
    #[serde(flatten)]
    pub became: Recovered,
}

/// Letters that wait for review, counted by what they died of, those with most first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Causes {
    /// The causes.
    pub causes: Vec<Cause>,
    /// Letters of other causes.
    pub other: u64,
    /// Letters in all.
    pub total: u64,
}

/// Letters that died of one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LetterCause))]
pub struct Cause {
    /// Fingerprint; `null` for letters of an earlier version that the processor has not looked at.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "4f8d504e01ab9d43"))]
    pub cause: Option<letters::Cause>,
    /// How many wait for review.
    pub count: u64,
    /// When the first of them died.
    pub first_at: Time,
    /// When the last of them died.
    pub last_at: Time,
    /// One of them.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub example: JobId,
    /// Its kind; letters of one cause are of one kind.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub kind: KindName,
    /// Its queue.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub queue: QueueName,
    /// Queues in which they died.
    pub queues: u64,
    /// Its category.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Category))]
    pub category: Category,
    /// Its code.
    pub code: String,
    /// Its message without what differs from one to the next.
    #[cfg_attr(feature = "openapi", schema(example = "order # is locked"))]
    pub message: String,
}

/// Both ways, field by field; those that may be there last.
macro_rules! same {
    ($wire:ty, $params:ty { $($field:ident),* } $(, maybe { $($maybe:ident),* })?) => {
        same!(@one $params => $wire { $($field),* } { $($($maybe),*)? });
        same!(@one $wire => $params { $($field),* } { $($($maybe),*)? });
    };
    (@one $from:ty => $to:ty { $($field:ident),* } { $($maybe:ident),* }) => {
        impl From<$from> for $to {
            fn from(t: $from) -> Self {
                Self { $($field: t.$field.into(),)* $($maybe: t.$maybe.map(Into::into),)* }
            }
        }
    };
}

same!(
    Cause,
    params::CauseView {
        cause,
        count,
        first_at,
        last_at,
        example,
        kind,
        queue,
        queues,
        category,
        code,
        message
    }
);

impl From<params::Causes> for Causes {
    fn from(t: params::Causes) -> Self {
        Self { causes: t.causes.into_iter().map(Cause::from).collect(), other: t.other, total: t.total }
    }
}

impl From<Causes> for params::Causes {
    fn from(t: Causes) -> Self {
        Self {
            causes: t.causes.into_iter().map(params::CauseView::from).collect(),
            other: t.other,
            total: t.total,
        }
    }
}

/// What the processor of dead letters did with a page. Send again while there is `more`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Processed {
    /// Letters that it looked at.
    pub looked_at: u64,
    /// Those that run again as new jobs.
    pub retried: u64,
    /// Those whose tenant was asked to authorize again.
    pub asked: u64,
    /// Those whose tenant was reminded.
    pub reminded: u64,
    /// Those that were given up.
    pub abandoned: u64,
    /// Those that stay for a person to look at, or wait for their tenant.
    pub left: u64,
    /// Those whose request a subscribing kind did not accept; they are among the ones that stay.
    pub refused: u64,
    /// Whether the run goes on with another page.
    pub more: bool,
    /// When the next run begins; the current one, while there is more.
    pub next_run: Option<Time>,
}

same!(
    Processed,
    params::ProcessedLetters { looked_at, retried, asked, reminded, abandoned, left, refused, more },
    maybe { next_run }
);

/// The question about causes as a query string.
pub fn causes_to_query(q: &params::CauseQuery) -> String {
    crate::query::Writer::default()
        .with("queue", q.queue.as_ref())
        .with("kind", q.kind.as_ref())
        .with("tenant", q.tenant.as_ref())
        .with("limit", Some(q.limit))
        .end()
}

/// The question about causes in a query string.
pub fn causes_from_query(text: &str) -> Result<params::CauseQuery, Problem> {
    let mut q = crate::query::Query::new(text)?;
    let query = params::CauseQuery {
        queue: q.parse("queue", codes::INVALID_NAME)?,
        kind: q.parse("kind", codes::INVALID_NAME)?,
        tenant: q.parse("tenant", codes::INVALID_NAME)?,
        limit: q.parse("limit", codes::INVALID_REQUEST)?.unwrap_or(limits::MAX_CAUSES),
    };
    q.end()?;
    if !(1..=limits::MAX_CAUSES).contains(&query.limit) {
        let detail = format!("limit must be between 1 and {}", limits::MAX_CAUSES);
        return Err(Problem::new(codes::INVALID_REQUEST, detail).at("?limit"));
    }
    Ok(query)
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
