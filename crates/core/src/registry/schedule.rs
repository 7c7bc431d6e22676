//! When a kind runs by itself. The rules of schedules are theirs; the registry carries what was written and sees to it that
//! it is a table of a sane size.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits;

/// A schedule as it was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScheduleSpec(pub Value);

impl ScheduleSpec {
    /// Takes what was written, or says what is wrong with it.
    pub(super) fn read(written: &Value) -> Result<Self, String> {
        if !written.is_object() {
            return Err("it should be a table".into());
        }
        if written.to_string().len() > limits::MAX_NOTE_BYTES {
            return Err(format!("it should have at most {} bytes", limits::MAX_NOTE_BYTES));
        }
        Ok(Self(written.clone()))
    }
}
