//! Payloads: one JSON value, kept as the text that was sent, checked once at the door.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits;

/// A payload or result that was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPayload {
    /// Larger than its bound.
    #[error("it has {bytes} bytes, at most {max} are allowed")]
    TooLarge {
        /// Size of what was sent.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// Nested too deep.
    #[error("it is nested deeper than {} levels", limits::MAX_PAYLOAD_DEPTH)]
    TooDeep,
}

/// Checked JSON text. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Payload(Arc<str>);

impl Payload {
    /// Accepts text that is known to be JSON, if it fits size and depth.
    pub fn from_json_text(text: impl Into<Arc<str>>, max: usize) -> Result<Self, InvalidPayload> {
        let text = text.into();
        if text.len() > max {
            return Err(InvalidPayload::TooLarge { bytes: text.len(), max });
        }
        if depth(&text) > limits::MAX_PAYLOAD_DEPTH {
            return Err(InvalidPayload::TooDeep);
        }
        Ok(Self(text))
    }

    /// Text that a store kept; it was checked when it came in.
    pub fn trusted(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Payloads can hold personal data: debug output shows the size alone.
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

/// Depth of nesting of JSON text, without recursion.
pub fn depth(json: &str) -> usize {
    let (mut now, mut most, mut in_string, mut escaped) = (0usize, 0usize, false, false);
    for b in json.bytes() {
        if in_string {
            match b {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
        } else {
            match b {
                b'"' => in_string = true,
                b'[' | b'{' => {
                    now += 1;
                    most = most.max(now);
                }
                b']' | b'}' => now = now.saturating_sub(1),
                _ => {}
            }
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_and_depth_are_bounded() {
        let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
        assert_eq!(depth(&deep), 1_000);
        assert_eq!(Payload::from_json_text(deep, 1 << 20), Err(InvalidPayload::TooDeep));
        assert_eq!(depth(r#"{"a":"[[[\"[[","b":[{}]}"#), 3);
        assert!(Payload::from_json_text(format!("\"{}\"", "x".repeat(100)), 50).is_err());
    }
}
