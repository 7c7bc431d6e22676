//! Payloads and results on the wire: JSON inside JSON, neither parsed nor written anew.

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use serde_json::value::RawValue;
use tidegate_core::codes;
use tidegate_core::limits;
use tidegate_core::payload::{self, InvalidPayload, Payload};

use crate::Problem;

/// Any JSON value, kept as the text that was sent. Its size and depth are checked by [`Json::checked`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(Payload);

impl Json {
    /// The payload, if it is not larger than `max` and not nested too deep. `pointer` says where it was.
    pub fn checked(self, max: usize, pointer: &str) -> Result<Payload, Problem> {
        let (bytes, text) = (self.0.as_str().len(), self.0.as_str());
        let wrong = if bytes > max {
            InvalidPayload::TooLarge { bytes, max }
        } else if payload::depth(text) > limits::MAX_PAYLOAD_DEPTH {
            InvalidPayload::TooDeep
        } else {
            return Ok(self.0);
        };
        Err(Problem::new(codes::INVALID_PAYLOAD, format!("the payload is not acceptable: {wrong}"))
            .at(pointer))
    }

    /// The payload, from a server that checked it.
    pub fn trusted(self) -> Payload {
        self.0
    }

    /// Reads a field that is there: `null` is a value like any other.
    pub(crate) fn given<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Self>, D::Error> {
        Self::deserialize(d).map(Some)
    }

    /// `null`.
    pub fn null() -> Self {
        Self(Payload::trusted("null"))
    }
}

impl From<Payload> for Json {
    fn from(payload: Payload) -> Self {
        Self(payload)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.0.as_str()).map_err(ser::Error::custom)?;
        raw.serialize(s)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(d)?;
        Ok(Self(Payload::trusted(raw.get())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settlements::Settlement;

    #[test]
    fn json_passes_through_as_it_was_written() {
        let text = r#"{"b": [1.50, 1e400], "a":"\u00e9"}"#;
        let json: Json = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&json).unwrap(), text);
    }

    #[test]
    fn a_result_of_null_is_a_result() {
        let read = |text: &str| serde_json::from_str::<Settlement>(text).unwrap().result;
        assert_eq!(read(r#"{"ticket":"tkt_1_2","outcome":"complete","result":null}"#), Some(Json::null()));
        assert_eq!(read(r#"{"ticket":"tkt_1_2","outcome":"complete"}"#), None);
    }
}
