//! Small durable notes beside the jobs.

use serde::{Deserialize, Serialize};
use tidegate_core::time::Timestamp;
use tidegate_core::{codes, limits};

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shelf {
    /// API keys.
    Keys,
    /// Processes that serve or work.
    Workers,
    /// What workers are asked to do.
    Orders,
    /// What is known of alerts.
    Alerts,
    /// Alerts that nobody wants to hear of for a while.
    Silences,
    /// Written to see whether it can be done, and taken back.
    Probes,
}

impl Shelf {
    /// Every shelf.
    pub const ALL: [Self; 6] =
        [Self::Keys, Self::Workers, Self::Orders, Self::Alerts, Self::Silences, Self::Probes];
}

impl Shelf {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Workers => "workers",
            Self::Orders => "orders",
            Self::Alerts => "alerts",
            Self::Silences => "silences",
            Self::Probes => "probes",
        }
    }
}

/// A small durable note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is about.
    pub shelf: Shelf,
    /// Its key.
    pub key: String,
    /// Its content: JSON, as its writer likes it.
    pub body: String,
    /// When it is forgotten.
    pub expires: Option<Timestamp>,
}

impl Record {
    /// Refuses a record that is larger than a note.
    pub fn check(&self) -> crate::Result<()> {
        if self.key.is_empty() || self.key.len() > limits::MAX_UNIQUE_KEY_BYTES {
            let detail = format!("a record's key must have 1 to {} bytes", limits::MAX_UNIQUE_KEY_BYTES);
            return Err(crate::Error::new(codes::INVALID_REQUEST, detail));
        }
        if self.body.len() > limits::MAX_RECORD_BYTES {
            let detail =
                format!("a record of {} bytes; {} are allowed", self.body.len(), limits::MAX_RECORD_BYTES);
            return Err(crate::Error::new(codes::INVALID_REQUEST, detail));
        }
        Ok(())
    }

    /// Whether it is still to be seen.
    pub fn lives(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|at| at > now)
    }
}
