//! Points in time and spans, in milliseconds.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// A wall-clock instant in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This instant plus `ms` milliseconds.
    #[must_use]
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this instant; negative if it is later.
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(t) => write!(f, "{t:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

/// A span of time, written `250ms`, `30s`, `1h 30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Millis(pub i64);

/// A span that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a span of time (expected something like 250ms, 30s, 5m, 1h 30m, 7d)")]
pub struct InvalidSpan {
    given: String,
}

impl FromStr for Millis {
    type Err = InvalidSpan;
    fn from_str(s: &str) -> Result<Self, InvalidSpan> {
        let refuse = || InvalidSpan { given: s.chars().take(40).collect() };
        let text = s.trim();
        // Days are always 24 hours here; jiff's plain durations stop at hours.
        if let Some(days) = text.strip_suffix('d').and_then(|d| d.trim().parse::<u32>().ok()) {
            return Ok(Self(i64::from(days) * 86_400_000));
        }
        let span: SignedDuration = text.parse().map_err(|_| refuse())?;
        if span.is_negative() {
            return Err(refuse());
        }
        i64::try_from(span.as_millis()).map(Self).map_err(|_| refuse())
    }
}

impl fmt::Display for Millis {
    /// Short for people: `0.2 s`, `12 s`, `4 m`, `3 h 5 m`, `2 d`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.max(0);
        let text = match ms {
            0 => "0 s".to_owned(),
            1..10_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
            10_000..60_000 => format!("{} s", ms / 1_000),
            60_000..3_600_000 if ms % 60_000 < 1_000 => format!("{} m", ms / 60_000),
            60_000..600_000 => format!("{} m {} s", ms / 60_000, ms % 60_000 / 1_000),
            600_000..3_600_000 => format!("{} m", ms / 60_000),
            3_600_000..86_400_000 => format!("{} h {} m", ms / 3_600_000, ms % 3_600_000 / 60_000),
            _ => format!("{} d {} h", ms / 86_400_000, ms % 86_400_000 / 3_600_000),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_shown() {
        for (text, ms) in [("250ms", 250), ("2s", 2_000), ("1h 30m", 5_400_000), ("7d", 604_800_000)] {
            assert_eq!(text.parse::<Millis>().unwrap(), Millis(ms));
        }
        for bad in ["", "-2s", "soon", "1e9s", "9999999999999h"] {
            assert!(bad.parse::<Millis>().is_err(), "{bad}");
        }
        assert_eq!(Millis(240).to_string(), "0.2 s");
        assert_eq!(Millis(12_345).to_string(), "12 s");
        assert_eq!(Millis(240_000).to_string(), "4 m");
    }
}
