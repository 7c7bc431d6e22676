//! Why an attempt failed, as a closed set of categories (J18).

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::time::Timestamp;

/// What kind of failure it was; decides the retry policy and what a person has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Category {
    /// The provider said: too many requests.
    TransientRateLimit,
    /// The network failed, or the error is not known to be anything else.
    TransientNetwork,
    /// The provider failed (5xx).
    TransientServer,
    /// A dependency is down or its breaker is open.
    ResourceUnavailable,
    /// Grant revoked or invalid: a person must reauthorize.
    PermanentAuth,
    /// Set up wrongly on our side.
    PermanentConfig,
    /// Not allowed to do this.
    PermanentPermission,
    /// The payload or the request can never work.
    InvalidInput,
    /// The handler failed or panicked.
    LogicError,
    /// The process died or ran out of memory.
    SystemFailure,
    /// A write whose effect is unknown (J24).
    AmbiguousWrite,
}

impl Category {
    /// Every category.
    pub const ALL: [Self; 11] = [
        Self::TransientRateLimit,
        Self::TransientNetwork,
        Self::TransientServer,
        Self::ResourceUnavailable,
        Self::PermanentAuth,
        Self::PermanentConfig,
        Self::PermanentPermission,
        Self::InvalidInput,
        Self::LogicError,
        Self::SystemFailure,
        Self::AmbiguousWrite,
    ];

    /// Stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TransientRateLimit => "TRANSIENT_RATE_LIMIT",
            Self::TransientNetwork => "TRANSIENT_NETWORK",
            Self::TransientServer => "TRANSIENT_SERVER",
            Self::ResourceUnavailable => "RESOURCE_UNAVAILABLE",
            Self::PermanentAuth => "PERMANENT_AUTH",
            Self::PermanentConfig => "PERMANENT_CONFIG",
            Self::PermanentPermission => "PERMANENT_PERMISSION",
            Self::InvalidInput => "INVALID_INPUT",
            Self::LogicError => "LOGIC_ERROR",
            Self::SystemFailure => "SYSTEM_FAILURE",
            Self::AmbiguousWrite => "AMBIGUOUS_WRITE",
        }
    }

    /// The category with this stable name.
    pub fn parse(s: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.as_str().eq_ignore_ascii_case(s))
    }
}

/// A failed attempt, as the worker reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure it was.
    pub category: Category,
    /// Short stable code for `retry_on` and `no_retry_on`, such as `ETIMEDOUT`.
    pub code: String,
    /// What happened, for people. Must hold no secret.
    pub message: String,
    /// When the server said to come back.
    pub retry_at: Option<Timestamp>,
}

impl Failure {
    /// A failure without a server-named delay. Code and message are cut to their bounds.
    pub fn new(category: Category, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            category,
            code: cut(code.into(), limits::MAX_NAME_BYTES),
            message: cut(message.into(), limits::MAX_ERROR_BYTES),
            retry_at: None,
        }
    }
}

/// One entry of a job's error history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorEntry {
    /// The attempt that failed.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// What kind of failure.
    pub category: Category,
    /// Short code.
    pub code: String,
    /// What happened.
    pub message: String,
}

/// Cuts text to at most `max` bytes at a character boundary, and shows that it was cut.
pub fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        let end = (0..=max.saturating_sub(3)).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_categories_match_their_json() {
        for c in Category::ALL {
            assert_eq!(serde_json::to_string(&c).unwrap(), format!("\"{}\"", c.as_str()));
            assert_eq!(Category::parse(c.as_str()), Some(c));
        }
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        let cut = cut("ä".repeat(100), 10);
        assert!(cut.len() <= 10 && cut.ends_with('…'), "{cut}");
    }
}
