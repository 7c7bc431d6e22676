//! What history knows of the documents of a registry.

use serde::{Deserialize, Serialize};

use super::{Difference, Document, Problem};
use crate::time::Timestamp;

/// What became of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is what holds since.
    Applied,
    /// It changed nothing, because something in it was wrong.
    Refused,
}

impl Outcome {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Refused => "refused",
        }
    }
}

/// An entry of the history, without the document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VersionInfo {
    /// Its number; they grow by one, refused ones included.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// Who sent it.
    pub by: String,
    /// Where it came from: a file's name, `api`, `rollback to 7`.
    pub source: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Hash of the registry as it was from then on; of a refused document, of its text.
    pub hash: String,
    /// What it changed, the first of them.
    #[serde(default)]
    pub changes: Vec<Difference>,
    /// How many it changed.
    #[serde(default)]
    pub changed: u64,
    /// Why it was refused.
    #[serde(default)]
    pub problems: Vec<Problem>,
}

/// An entry of the history.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    /// All but the document.
    pub info: VersionInfo,
    /// The whole registry as it was from then on; none for a refused document.
    pub document: Option<Document>,
}
