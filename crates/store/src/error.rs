//! The store's error: a code, a sentence, and what to do next.

use tidegate_core::codes::{self, Code, Fault};
use tidegate_core::ids::InvalidName;
use tidegate_core::payload::InvalidPayload;

/// Result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a store did not do what was asked. Nothing was stored.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{detail}")]
pub struct Error {
    /// Stable code; says whose failure it is and carries a hint.
    pub code: Code,
    /// What went wrong, in a sentence.
    pub detail: String,
}

impl Error {
    /// An error with this code.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    /// The store holds something it should not, or a rule of ours was broken.
    pub fn internal(detail: impl Into<String>) -> Self {
        Self::new(codes::INTERNAL, detail)
    }

    /// Whether the operation alone was refused, and everything is as it was before.
    pub fn is_refusal(&self) -> bool {
        match self.code.fault {
            Fault::Usage | Fault::NotFound | Fault::State => true,
            Fault::Ours | Fault::Unreachable => false,
        }
    }
}

impl From<InvalidName> for Error {
    fn from(e: InvalidName) -> Self {
        Self::new(e.code(), e.to_string())
    }
}

impl From<InvalidPayload> for Error {
    fn from(e: InvalidPayload) -> Self {
        Self::new(codes::INVALID_PAYLOAD, format!("the payload is not acceptable: {e}"))
    }
}
