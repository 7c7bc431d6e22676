//! What the library answers when it cannot do what was asked.

use std::borrow::Cow;
use std::fmt;

use tidegate_core::codes::{self, Code};
use tidegate_core::ids::InvalidName;
use tidegate_core::payload::InvalidPayload;
use tidegate_core::time::InvalidSpan;

/// Result of a library call.
///
/// ```
/// fn halve(n: u32) -> tidegate::Result<u32> {
///     Ok(n / 2)
/// }
/// assert_eq!(halve(8).unwrap(), 4);
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call did not do what was asked: a stable code, a sentence, and what to do next. Nothing was stored.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let tide = tidegate::Tidegate::memory();
/// let error = tide.enqueue_json("no.such.kind", "{}").await.unwrap_err();
/// assert_eq!(error.code.id, "TG2003");
/// assert!(error.hint.contains("worker"));
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// Stable code; says whose failure it is.
    pub code: Code,
    /// What went wrong, in a sentence.
    pub detail: String,
    /// What to do next.
    pub hint: Cow<'static, str>,
}

impl Error {
    /// An error with this code and the code's own hint.
    ///
    /// ```
    /// let error = tidegate::Error::new(tidegate::codes::INVALID_TIME, "\"soon\" is not a span of time");
    /// assert_eq!(error.hint, tidegate::codes::INVALID_TIME.hint);
    /// ```
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), hint: Cow::Borrowed(code.hint) }
    }

    pub(crate) fn handlers(detail: impl Into<String>) -> Self {
        Self::new(codes::HANDLERS_MISSING, detail)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (hint: {})", self.code, self.detail, self.hint)
    }
}

impl fmt::Debug for Error {
    /// What a `main` that returns this error prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}: {}\n  hint: {}", self.code, self.code.title, self.detail, self.hint)
    }
}

impl From<tidegate_store::Error> for Error {
    fn from(e: tidegate_store::Error) -> Self {
        Self::new(e.code, e.detail)
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

impl From<InvalidSpan> for Error {
    fn from(e: InvalidSpan) -> Self {
        Self::new(codes::INVALID_TIME, e.to_string())
    }
}
