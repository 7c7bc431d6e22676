//! What a handler returns.

use serde::Serialize;
use tidegate_core::failure::Category;
use tidegate_core::limits;
use tidegate_core::payload::Payload;

use crate::Failure;

/// What a handler returns: done, or a failure. A snooze travels as the second, so that `?` carries it.
///
/// ```
/// use tidegate::{Context, Job, Outcome, done};
/// # #[derive(serde::Serialize, serde::Deserialize, Job)] struct Ping;
/// async fn ping(_: Ping, cx: Context) -> Outcome {
///     if cx.attempt() > 3 {
///         return cx.snooze("5m", "the other side is slow");
///     }
///     done()
/// }
/// ```
pub type Outcome = Result<Done, Failure>;

/// The job is done, perhaps with a result.
///
/// ```
/// let outcome: tidegate::Outcome = Ok(tidegate::Done::default());
/// assert!(outcome.is_ok());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Done {
    pub(crate) result: Option<Payload>,
}

/// Done, without a result.
///
/// ```
/// assert!(tidegate::done().is_ok());
/// ```
pub fn done() -> Outcome {
    Ok(Done::default())
}

/// Done, with a result that is kept with the job: any value that serialises to at most 256 KiB of JSON.
///
/// ```
/// assert!(tidegate::done_with([1, 2, 3]).is_ok());
/// assert!(tidegate::done_with("x".repeat(1 << 20)).is_err());
/// ```
pub fn done_with(value: impl Serialize) -> Outcome {
    let text = serde_json::to_string(&value)
        .map_err(|e| Failure::new(Category::LogicError, "RESULT_NOT_JSON", e.to_string()))?;
    let result = Payload::from_json_text(text, limits::MAX_RESULT_BYTES).map_err(|e| {
        Failure::new(Category::LogicError, "RESULT_REFUSED", format!("the result is not acceptable: {e}"))
    })?;
    Ok(Done { result: Some(result) })
}

/// Return types of handlers: [`Outcome`], `Result<(), E>` for any error, [`Done`], or nothing at all.
///
/// ```
/// use tidegate::IntoOutcome;
/// assert!(().into_outcome().is_ok());
/// let failed: Result<(), std::fmt::Error> = Err(std::fmt::Error);
/// assert!(failed.into_outcome().is_err());
/// ```
pub trait IntoOutcome {
    /// The outcome.
    fn into_outcome(self) -> Outcome;
}

impl<E: Into<Failure>> IntoOutcome for Result<Done, E> {
    fn into_outcome(self) -> Outcome {
        self.map_err(Into::into)
    }
}

impl<E: Into<Failure>> IntoOutcome for Result<(), E> {
    fn into_outcome(self) -> Outcome {
        self.map(|()| Done::default()).map_err(Into::into)
    }
}

impl IntoOutcome for Done {
    fn into_outcome(self) -> Outcome {
        Ok(self)
    }
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        done()
    }
}
