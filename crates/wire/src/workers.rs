//! Who is alive, and what they are asked to do. A worker announces itself again before its announcement ends.

use serde::{Deserialize, Serialize};
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Record, Shelf};

use crate::{Json, Time};

/// A worker or another process says that it is alive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NoteRequest {
    /// What there is to say: a JSON object. Known to people's tools: `host`, `pid`, `version`, `queues`, `concurrency`,
    /// `running`, `started_at`, `draining`; an order has `order` (`drain`) and `by`.
    #[cfg_attr(feature = "openapi", schema(value_type = Object, example = json!({"host": "web-1", "version": "0.1.0", "running": 3})))]
    pub about: Json,
    /// How long it holds; for ever if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(example = 30_000))]
    pub ttl_ms: Option<u64>,
}

impl NoteRequest {
    /// The request of somebody for whom it is `now`.
    pub fn new(body: &str, expires: Option<Timestamp>, now: Timestamp) -> Self {
        let about = tidegate_core::payload::Payload::trusted(body).into();
        Self { about, ttl_ms: expires.map(|t| t.since(now).max(0) as u64) }
    }
}

/// Reply to an announcement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AnnounceReply {
    /// What the worker is asked to do, if anything: `{"order": "drain", "by": "ada"}`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub order: Option<Json>,
}

/// What is known of workers, or what they were asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Notes {
    /// One for each, by key.
    pub notes: Vec<Note>,
}

/// What is known of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Note {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(example = "mailer-1"))]
    pub key: String,
    /// What it said.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub about: Json,
    /// When it is forgotten.
    pub expires_at: Option<Time>,
}

impl From<Record> for Note {
    fn from(r: Record) -> Self {
        let about = tidegate_core::payload::Payload::trusted(r.body).into();
        Self { key: r.key, about, expires_at: r.expires.map(Time) }
    }
}

impl Note {
    /// The record of this shelf.
    pub fn into_record(self, of: Shelf) -> Record {
        let body = self.about.trusted().as_str().to_owned();
        Record { shelf: of, key: self.key, body, expires: self.expires_at.map(|t| t.0) }
    }
}

/// Ask a worker to take no more jobs and to end when what it has is done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DrainRequest {
    /// Who asks; the name of the key if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}
