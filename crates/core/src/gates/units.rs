//! Time and cost as exact integers, below 2^53 so that Lua's numbers and ours agree.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::time::Millis;

/// An instant or a span in microseconds.
pub type Micros = i64;

/// One second.
pub const SECOND: Micros = 1_000_000;
/// Largest product that any gate computes; sums of two stay below 2^53.
pub(super) const MAX_PRODUCT: i64 = 1 << 52;
/// How soon to come back where the time is only an estimate and has come.
pub(super) const SOON: Micros = 1_000;
/// Nano points in a milli point.
pub(super) const NANO: i64 = 1_000_000;

/// Milli points in a point.
const MILLI: f64 = 1_000.0;
/// Most points in any cost, capacity or level: four times this in nano points is still exact.
const MAX_POINTS: f64 = 1_000_000.0;

/// `a / b` rounded up, for `a >= 0`, `b > 0`.
pub(super) fn ceil_div(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}

/// How often `each` fits into what is free, and at most `most`; a division takes as long as asking a gate, and is not needed where it
/// fits that often.
#[inline]
pub(super) fn fits(free: i64, each: i64, most: i64) -> i64 {
    match most.checked_mul(each) {
        Some(all) if all <= free => most,
        _ => most.min(free.max(0) / each),
    }
}

/// A cost or a level, kept in milli points; written as a number of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Points(pub i64);

impl Points {
    /// One point: the cost of a call that names none.
    pub const ONE: Self = Self(1_000);
    /// The largest cost or capacity.
    pub const MAX: Self = Self(MAX_POINTS as i64 * 1_000);

    /// Whole points.
    pub const fn whole(points: u32) -> Self {
        Self(points as i64 * 1_000)
    }

    /// From a number of points; `None` if it is not finite or too large either way.
    pub fn from_f64(points: f64) -> Option<Self> {
        (points.is_finite() && points.abs() <= MAX_POINTS).then(|| Self((points * MILLI).round() as i64))
    }

    /// As a number of points.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / MILLI
    }
}

impl std::fmt::Display for Points {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 % 1_000 == 0 { write!(f, "{}", self.0 / 1_000) } else { write!(f, "{:.1}", self.as_f64()) }
    }
}

impl Serialize for Points {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() { s.serialize_f64(self.as_f64()) } else { s.serialize_i64(self.0) }
    }
}

impl<'de> Deserialize<'de> for Points {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if !d.is_human_readable() {
            return i64::deserialize(d).map(Self);
        }
        let given = f64::deserialize(d)?;
        Self::from_f64(given).ok_or_else(|| {
            serde::de::Error::custom(format!("{given} is no number of points (at most {MAX_POINTS})"))
        })
    }
}

/// A span in configuration: written `250ms`, `30s`, `5m`; kept in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span(pub Micros);

impl Span {
    /// So many seconds.
    pub const fn secs(n: i64) -> Self {
        Self(n * SECOND)
    }

    /// So many milliseconds.
    pub const fn millis(n: i64) -> Self {
        Self(n * 1_000)
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&show_span(self.0))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("{}ms", self.0 / 1_000))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let Millis(ms) = text.parse().map_err(serde::de::Error::custom)?;
        ms.checked_mul(1_000)
            .filter(|us| *us < MAX_PRODUCT)
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom(format!("{text:?} is too long a span")))
    }
}

/// A span for people: `0.24 s`, `12 s`, `4 m`.
pub(super) fn show_span(us: Micros) -> String {
    match us.max(0) {
        0 => "0 s".into(),
        us @ 1..10_000 => format!("{:.1} ms", us as f64 / 1e3),
        us @ 10_000..10_000_000 => format!("{:.2} s", us as f64 / 1e6),
        us => Millis(us / 1_000).to_string(),
    }
}
