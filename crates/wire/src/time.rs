//! Points in time on the wire.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tidegate_core::time::Timestamp;

/// A point in time, written as RFC 3339 in UTC with milliseconds: `2026-11-15T07:30:00.000Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub Timestamp);

impl From<Timestamp> for Time {
    fn from(t: Timestamp) -> Self {
        Self(t)
    }
}

impl From<Time> for Timestamp {
    fn from(t: Time) -> Self {
        t.0
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Time {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let time: jiff::Timestamp = s.parse().map_err(|_| {
            let given: String = s.chars().take(40).collect();
            format!("{given:?} is not a point in time (expected RFC 3339, such as 2026-11-15T07:30:00Z)")
        })?;
        Ok(Self(Timestamp(time.as_millisecond())))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = Time;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a point in time as RFC 3339 text")
            }
            fn visit_str<E: de::Error>(self, s: &str) -> Result<Time, E> {
                s.parse().map_err(E::custom)
            }
        }
        d.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_survives_its_text_form_to_the_millisecond() {
        for ms in [0, 1, 1_763_000_000_123, 2_078_000_000_000] {
            let text = serde_json::to_string(&Time(Timestamp(ms))).unwrap();
            assert!(text.ends_with("Z\""), "{text}");
            assert_eq!(serde_json::from_str::<Time>(&text).unwrap().0, Timestamp(ms));
        }
        assert_eq!("2026-11-15T09:30:00+02:00".parse::<Time>(), "2026-11-15T07:30:00Z".parse());
        for bad in ["", "soon", "2026-13-01", "1763000000000", "2026-11-15 25:00:00Z"] {
            assert!(bad.parse::<Time>().is_err(), "{bad}");
        }
    }
}
