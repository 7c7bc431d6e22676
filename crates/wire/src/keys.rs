//! API keys on the wire, and who one is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tidegate_core::ids::TenantId;

use crate::Time;

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Role {
    /// Everything, keys included.
    Admin,
    /// Look at everything, control jobs, queues, parks and dead letters; no keys.
    Operator,
    /// Enqueue, and look at what was enqueued.
    Producer,
    /// Claim, settle, heartbeat, report, register kinds, look at what it holds.
    Worker,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Operator, Self::Producer, Self::Worker];

    /// Stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Producer => "producer",
            Self::Worker => "worker",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|r| r.as_str() == s).ok_or_else(|| {
            format!("{s:?} is not a role (expected {})", Self::ALL.map(Self::as_str).join(", "))
        })
    }
}

/// Make a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewKey {
    /// What it is for, for people.
    #[cfg_attr(feature = "openapi", schema(example = "shop backend"))]
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// The tenant it is restricted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenant: Option<TenantId>,
}

/// A key as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Key {
    /// Its id: the middle part of the key.
    #[cfg_attr(feature = "openapi", schema(example = "4f1c2a90b7d3"))]
    pub id: String,
    /// What it is for.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// The tenant it is restricted to.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenant: Option<TenantId>,
    /// When it was made.
    pub created_at: Time,
    /// Last four characters of its secret.
    pub last_four: String,
    /// When it was revoked.
    pub revoked_at: Option<Time>,
}

/// A key that was just made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreatedKey {
    /// The key.
    pub key: Key,
    /// What to send as `authorization: Bearer …`. It is shown this once and kept nowhere.
    #[cfg_attr(feature = "openapi", schema(example = "tg_4f1c2a90b7d3_…"))]
    pub secret: String,
}

impl fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedKey").field("key", &self.key).finish_non_exhaustive()
    }
}

/// All keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Keys {
    /// The keys, the oldest first.
    pub keys: Vec<Key>,
}

/// What the server is, and who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct About {
    /// Version of the server.
    pub version: String,
    /// The server's time.
    pub now: Time,
    /// The key that was sent; `null` where none is needed.
    pub key: Option<Key>,
    /// What is wrong with the gates' backend, if something is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gates: Option<String>,
}
