//! Events on the wire: the `data` of one message of the stream. Its `id` is the event's id, its `event` the name of
//! what happened; a message `gap` says that some events are no longer to be had.

use serde::{Deserialize, Serialize};
use tidegate_core::ids::{JobId, KindName, QueueName, TenantId, WorkerId};
use tidegate_core::job::State;
use tidegate_store::feed;

use crate::Time;

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobEvent {
    /// What.
    pub event: EventName,
    /// When.
    pub at: Time,
    /// The job.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: JobId,
    /// Its queue.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub queue: QueueName,
    /// Its kind.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub kind: KindName,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenant: Option<TenantId>,
    /// With `enqueued`: ready, or scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::State>))]
    pub state: Option<State>,
    /// With `started`: who has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub worker: Option<WorkerId>,
    /// With `started`: its attempt, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// With `retry` and `snoozed`: when it runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Time>,
    /// With `retry` and `dead`: code of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// With `reauthorize`: whether that was asked before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<bool>,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum EventName {
    /// It was stored.
    Enqueued,
    /// A worker has it.
    Started,
    /// Done.
    Completed,
    /// It failed and runs again.
    Retry,
    /// Put off without spending an attempt.
    Snoozed,
    /// Given back by its worker.
    Released,
    /// Its worker stopped sending heartbeats.
    Stalled,
    /// It will not be tried again.
    Dead,
    /// Cancelled.
    Cancelled,
    /// It is dead, and its tenant is asked to authorize again.
    Reauthorize,
}

/// Name of the message that announces a gap.
pub const GAP: &str = "gap";

impl EventName {
    /// Stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enqueued => "enqueued",
            Self::Started => "started",
            Self::Completed => "completed",
            Self::Retry => "retry",
            Self::Snoozed => "snoozed",
            Self::Released => "released",
            Self::Stalled => "stalled",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Reauthorize => "reauthorize",
        }
    }
}

impl From<&feed::JobEvent> for JobEvent {
    fn from(e: &feed::JobEvent) -> Self {
        use feed::Happened;
        let mut this = Self {
            event: EventName::Completed,
            at: Time(e.at),
            id: e.id,
            queue: e.queue.clone(),
            kind: e.kind.clone(),
            tenant: e.tenant.clone(),
            state: None,
            worker: None,
            attempt: None,
            run_at: None,
            code: None,
            again: None,
        };
        this.event = match &e.what {
            Happened::Enqueued { state } => {
                this.state = Some(*state);
                EventName::Enqueued
            }
            Happened::Started { worker, attempt } => {
                (this.worker, this.attempt) = (Some(worker.clone()), Some(*attempt));
                EventName::Started
            }
            Happened::Completed => EventName::Completed,
            Happened::Retry { run_at, code } => {
                (this.run_at, this.code) = (Some(Time(*run_at)), Some(code.clone()));
                EventName::Retry
            }
            Happened::Snoozed { run_at } => {
                this.run_at = Some(Time(*run_at));
                EventName::Snoozed
            }
            Happened::Released => EventName::Released,
            Happened::Stalled => EventName::Stalled,
            Happened::Dead { code } => {
                this.code = Some(code.clone());
                EventName::Dead
            }
            Happened::Cancelled => EventName::Cancelled,
            Happened::Reauthorize { again } => {
                this.again = Some(*again);
                EventName::Reauthorize
            }
        };
        this
    }
}

impl JobEvent {
    /// The event as a store's feed has it; `None` if a field is missing that belongs to it.
    pub fn into_event(self) -> Option<feed::JobEvent> {
        use feed::Happened;
        let what = match self.event {
            EventName::Enqueued => Happened::Enqueued { state: self.state? },
            EventName::Started => Happened::Started { worker: self.worker?, attempt: self.attempt? },
            EventName::Completed => Happened::Completed,
            EventName::Retry => Happened::Retry { run_at: self.run_at?.0, code: self.code? },
            EventName::Snoozed => Happened::Snoozed { run_at: self.run_at?.0 },
            EventName::Released => Happened::Released,
            EventName::Stalled => Happened::Stalled,
            EventName::Dead => Happened::Dead { code: self.code? },
            EventName::Cancelled => Happened::Cancelled,
            EventName::Reauthorize => Happened::Reauthorize { again: self.again? },
        };
        let Self { at, id, queue, kind, tenant, .. } = self;
        Some(feed::JobEvent { at: at.0, id, queue, kind, tenant, here: feed::Here(false), what })
    }
}
