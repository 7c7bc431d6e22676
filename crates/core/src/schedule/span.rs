//! A span in settings: written `30s`, `5m`, `1h 30m`, kept exactly.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::time::{InvalidSpan, Millis};

/// A span of time in milliseconds, as text in settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(pub i64);

/// Units, largest first.
const UNITS: [(i64, &str); 5] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];

impl FromStr for Span {
    type Err = InvalidSpan;
    fn from_str(text: &str) -> Result<Self, InvalidSpan> {
        text.parse::<Millis>().map(|span| Self(span.0))
    }
}

impl TryFrom<String> for Span {
    type Error = InvalidSpan;
    fn try_from(text: String) -> Result<Self, InvalidSpan> {
        text.parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        span.to_string()
    }
}

impl fmt::Display for Span {
    /// With the largest unit that loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(ms, _)| self.0 % ms == 0 && self.0 != 0);
        let (ms, unit) = unit.copied().unwrap_or((1_000, "s"));
        f.pad(&format!("{}{unit}", self.0 / ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_written_as_it_is_read() {
        for text in ["0s", "250ms", "90s", "5m", "36h", "7d"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        assert_eq!("1h 30m".parse::<Span>().unwrap().to_string(), "90m");
    }
}
