//! The registry as a whole, its history, and events, on the wire.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_core::ids::{EventName, GroupKey, JobId, KindName, TenantId};
use tidegate_core::registry::{Counts, Difference, Left, Outcome, Problem as Mistake, VersionInfo};
use tidegate_store::params;

use crate::{Json, Time};

/// The registry as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RegistryReply {
    /// Queues, kinds and policies, in the form that can be put again.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub document: Value,
}

/// What became of a document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AppliedReply {
    /// The version that was made; `null` if nothing was changed.
    pub version: Option<u64>,
    /// What differs, or would.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub changes: Vec<Difference>,
    /// How many of what differs: queues, kinds, schedules, policies, categories, platforms.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub changed: Counts,
    /// Entries of the document that were as wanted.
    pub unchanged: u64,
    /// How many of what was as wanted.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub as_wanted: Counts,
    /// Entries of the registry that the document does not name.
    pub left_alone: u64,
    /// The first of them: `what` each is, its `name`, and the `document` that has it.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub left: Vec<Left>,
}

impl From<params::Applied> for AppliedReply {
    fn from(a: params::Applied) -> Self {
        let params::Applied { version, changes, changed, unchanged, as_wanted, left_alone, left } = a;
        Self { version, changes, changed, unchanged, as_wanted, left_alone, left }
    }
}

impl From<AppliedReply> for params::Applied {
    fn from(a: AppliedReply) -> Self {
        let AppliedReply { version, changes, changed, unchanged, as_wanted, left_alone, left } = a;
        Self { version, changes, changed, unchanged, as_wanted, left_alone, left }
    }
}

/// An entry of the registry's history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VersionEntry {
    /// Its number; refused documents have one too.
    pub number: u64,
    /// When.
    pub at: Time,
    /// Who sent it.
    pub by: String,
    /// Where it came from.
    pub source: String,
    /// `applied` or `refused`.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "applied"))]
    pub outcome: Outcome,
    /// Hash of the registry from then on; of a refused document, of its text.
    pub hash: String,
    /// What it changed, the first of them.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub changes: Vec<Difference>,
    /// How many it changed.
    pub changed: u64,
    /// Why it was refused.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub problems: Vec<Mistake>,
}

impl From<VersionInfo> for VersionEntry {
    fn from(v: VersionInfo) -> Self {
        let VersionInfo { number, at, by, source, outcome, hash, changes, changed, problems } = v;
        Self { number, at: Time(at), by, source, outcome, hash, changes, changed, problems }
    }
}

impl From<VersionEntry> for VersionInfo {
    fn from(v: VersionEntry) -> Self {
        let VersionEntry { number, at, by, source, outcome, hash, changes, changed, problems } = v;
        Self { number, at: at.0, by, source, outcome, hash, changes, changed, problems }
    }
}

/// The registry's history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct History {
    /// The newest first.
    pub versions: Vec<VersionEntry>,
}

/// A version with its document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VersionReply {
    /// All but the document.
    pub info: VersionEntry,
    /// The whole registry from then on; `null` for a refused document.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub document: Option<Value>,
}

/// Go back to a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RollbackRequest {
    /// Its number.
    #[cfg_attr(feature = "openapi", schema(example = 7))]
    pub version: u64,
    /// Only say what would change.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub dry_run: bool,
    /// Who says so, if not the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A document that was refused elsewhere, for the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RefusalRequest {
    /// Who sent it, if not the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Where it came from.
    pub source: String,
    /// Hash of its text.
    pub hash: String,
    /// What was wrong with it.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub problems: Vec<Mistake>,
}

/// The number of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NumberReply {
    /// The number.
    pub number: u64,
}

/// Something that happened: every kind that subscribes to it gets a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PublishRequest {
    /// What happened.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "member.joined"))]
    pub event: EventName,
    /// The payload of every job: any JSON, `null` if not given.
    #[serde(default = "Json::null")]
    #[cfg_attr(feature = "openapi", schema(required = false, example = json!({"member_id": 7})))]
    pub payload: Json,
    /// Whose the jobs are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "acme"))]
    pub tenant: Option<TenantId>,
    /// Group other than the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub group: Option<GroupKey>,
}

/// The jobs of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PublishReply {
    /// One for each subscribed kind, by name.
    pub jobs: Vec<PublishedJob>,
}

/// One job of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PublishedJob {
    /// The kind.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub kind: KindName,
    /// The job.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: JobId,
    /// What was done.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::EnqueueOutcome))]
    pub outcome: params::EnqueueOutcome,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_older_server_says_of_a_document_is_understood() {
        let reply = r#"{"version": 3, "changes": [], "unchanged": 2, "left_alone": 1}"#;
        let reply: AppliedReply = serde_json::from_str(reply).unwrap();
        let applied = params::Applied::from(reply);
        assert_eq!((applied.version, applied.unchanged, applied.left_alone), (Some(3), 2, 1));
        assert_eq!((applied.changed, applied.left.len()), (Counts::default(), 0));
    }
}
