//! What can go wrong apart from a call having to wait.

use tidegate_core::codes::{self, Code};
use tidegate_core::gates::InvalidGates;

/// An operation that could not be done.
#[derive(Debug, thiserror::Error)]
pub enum GatesError {
    /// No gates are configured for this domain.
    #[error("there are no gates for the domain {domain:?}")]
    UnknownDomain {
        /// The domain.
        domain: String,
    },
    /// The domain has no such gate.
    #[error("the domain {domain:?} has no gate {gate:?}")]
    UnknownGate {
        /// The domain.
        domain: String,
        /// The gate.
        gate: String,
    },
    /// There is no backend of this kind, or it is not built in.
    #[error("gates have an address like memory:, redis://… or postgres://…{}", not(scheme))]
    UnknownAddress {
        /// How the address begins; empty if that is not a scheme.
        scheme: String,
    },
    /// The configuration is not acceptable.
    #[error(transparent)]
    Invalid(#[from] InvalidGates),
    /// The address of the backend, or an option in it, is not acceptable.
    #[error("the address of the gates is not acceptable: {problem}; {hint}")]
    Address {
        /// What is wrong with it. Never the address itself: it may hold a password.
        problem: String,
        /// What to write instead.
        hint: String,
    },
    /// New settings would split the domain's state in another way while it is in use.
    #[error("the gates of {domain:?} have other keys in common now, and permits are held under the old ones")]
    InUse {
        /// The domain.
        domain: String,
    },
    /// The backend did not answer, or not in time. The operation may have been done.
    #[error("the gates' backend did not answer: {}", cause(.0.as_ref()))]
    Unreachable(Box<dyn std::error::Error + Send + Sync>),
    /// A server refused, for a reason of its own.
    #[error("{detail}")]
    Refused {
        /// The stable error code.
        code: Code,
        /// What it said.
        detail: String,
    },
    /// The backend holds something it should not.
    #[error("the gates' state cannot be read: {0}")]
    Corrupt(String),
}

/// What an address begins with, where that may be shown.
fn not(scheme: &str) -> String {
    if scheme.is_empty() { String::new() } else { format!(", not {scheme}:") }
}

impl GatesError {
    /// For an address that begins like none of those that are known. Its rest may hold a password.
    #[must_use]
    pub fn unknown_address(address: &str) -> Self {
        let scheme = address.split_once("://").map_or("", |(scheme, _)| scheme);
        let plain = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
        let shown = if scheme.len() <= 40 && scheme.chars().all(plain) { scheme } else { "" };
        Self::UnknownAddress { scheme: shown.into() }
    }

    /// The same, with what was done all the same.
    pub(crate) fn but(self, done: &'static str) -> Self {
        match self {
            Self::Unreachable(why) => Self::Unreachable(Box::new(But { why, done })),
            other => other,
        }
    }

    /// Of an operation that reached no backend: what was done all the same.
    pub fn done_all_the_same(&self) -> Option<&str> {
        let Self::Unreachable(why) = self else { return None };
        why.downcast_ref::<But>().map(|but| but.done)
    }

    /// A bad address: what is wrong, and what to write instead.
    #[cfg(any(feature = "redis", feature = "postgres"))]
    pub(crate) fn address(problem: impl ToString, hint: &str) -> Self {
        Self::Address { problem: problem.to_string(), hint: hint.into() }
    }

    /// The stable error code.
    pub fn code(&self) -> Code {
        match self {
            Self::UnknownDomain { .. } | Self::UnknownGate { .. } => codes::GATE_NOT_FOUND,
            Self::Invalid(e) => e.code(),
            Self::UnknownAddress { .. } | Self::Address { .. } => codes::INVALID_GATES_URL,
            Self::InUse { .. } => codes::GATES_IN_USE,
            Self::Unreachable(_) => codes::GATES_UNREACHABLE,
            Self::Refused { code, .. } => *code,
            Self::Corrupt(_) => codes::CORRUPT,
        }
    }
}

/// An operation that reached no backend, and was not without effect.
#[derive(Debug)]
struct But {
    why: Box<dyn std::error::Error + Send + Sync>,
    done: &'static str,
}

impl std::fmt::Display for But {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", cause(self.why.as_ref()), self.done)
    }
}

impl std::error::Error for But {}

/// What is behind an error, down to the first cause: drivers say "error connecting to server" and keep the reason for themselves.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        behind = error.source();
    }
    text
}
