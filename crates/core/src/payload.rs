//! Payloads: one JSON value, kept as the text that was sent, checked once at the door.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

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

    /// Whether both are the same text, but for space between its parts.
    pub fn is_same(&self, other: &Self) -> bool {
        self == other || without_space(&self.0).eq(without_space(&other.0))
    }

    /// Fingerprint of the text without the space between its parts.
    pub fn fingerprint(&self) -> Fingerprint {
        let text: Vec<u8> = without_space(&self.0).collect();
        let hash = Sha256::digest(&text);
        Fingerprint(hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect())
    }
}

/// What a payload is known again by: 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(Box<str>);

/// The bytes of JSON text without the space between its parts.
fn without_space(json: &str) -> impl Iterator<Item = u8> {
    let (mut in_string, mut escaped) = (false, false);
    json.bytes().filter(move |b| {
        if in_string {
            in_string = escaped || *b != b'"';
            escaped = !escaped && *b == b'\\';
            return true;
        }
        in_string = *b == b'"';
        !b.is_ascii_whitespace()
    })
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

    #[test]
    fn a_payload_is_known_again_but_for_space_between_its_parts() {
        let sent = Payload::trusted(r#"{"a":[1, "b \" c\\"],"d":{}}"#);
        let spaced = Payload::trusted(" {\n\"a\" : [1,\"b \\\" c\\\\\"] , \"d\":{ }}");
        assert!(sent.is_same(&spaced));
        assert_eq!(sent.fingerprint(), spaced.fingerprint());
        for other in [
            r#"{"a":[1,"b \" c\\"]}"#,
            r#"{"a":[1,"b\" c\\"],"d":{}}"#,
            r#"{"a":[1,"b \"  c\\"],"d":{}}"#,
            r#"{"a":[1,"b \" c\\"],"d":{},"e":null}"#,
            r#"{"d":{},"a":[1,"b \" c\\"]}"#,
        ] {
            let other = Payload::trusted(other);
            assert!(!sent.is_same(&other), "{}", other.as_str());
            assert_ne!(sent.fingerprint(), other.fingerprint(), "{}", other.as_str());
        }
        assert_eq!(
            serde_json::to_string(&Payload::trusted("{}").fingerprint()).unwrap(),
            "\"44136fa355b3678a1146ad16f7e8649e\"",
            "stored: it must not change"
        );
    }
}
