//! Spans of time as people write them.

use std::time::Duration;

use tidegate_core::codes;
use tidegate_core::time::Millis;

use crate::{Error, Result};

/// Anything that says how long: `"2s"`, `"1h 30m"`, a [`Duration`], or [`Millis`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::IntoSpan;
/// assert_eq!("1h 30m".into_span().unwrap().0, 5_400_000);
/// assert_eq!(Duration::from_secs(2).into_span().unwrap().0, 2_000);
/// assert!("-2s".into_span().is_err());
/// ```
pub trait IntoSpan {
    /// The span in milliseconds, or an error with code `TG2005`.
    fn into_span(self) -> Result<Millis>;
}

impl IntoSpan for &str {
    fn into_span(self) -> Result<Millis> {
        Ok(self.parse()?)
    }
}

impl IntoSpan for String {
    fn into_span(self) -> Result<Millis> {
        self.as_str().into_span()
    }
}

impl IntoSpan for Duration {
    fn into_span(self) -> Result<Millis> {
        let whole = self.as_nanos().div_ceil(1_000_000);
        i64::try_from(whole)
            .map(Millis)
            .map_err(|_| Error::new(codes::INVALID_TIME, "the span is longer than any time there is"))
    }
}

impl IntoSpan for Millis {
    fn into_span(self) -> Result<Millis> {
        if self.0 < 0 {
            return Err(Error::new(codes::INVALID_TIME, format!("a span of {} ms is negative", self.0)));
        }
        Ok(self)
    }
}

/// A span inside a range, or an error that names both.
pub(crate) fn within(what: &str, span: impl IntoSpan, range: std::ops::RangeInclusive<i64>) -> Result<i64> {
    let Millis(ms) = span.into_span()?;
    if range.contains(&ms) {
        return Ok(ms);
    }
    let (from, to) = (Millis(*range.start()), Millis(*range.end()));
    Err(Error::new(codes::INVALID_TIME, format!("{what} must be between {from} and {to}")))
}

pub(crate) fn duration(ms: i64) -> Duration {
    Duration::from_millis(ms.max(0) as u64)
}
