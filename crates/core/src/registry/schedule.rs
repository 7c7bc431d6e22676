//! When a kind runs by itself. The registry carries what was written; its rules are those of every schedule.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::ScheduleName;
use crate::limits;
use crate::schedule::ScheduleSettings;
use crate::schema::{self, Schema};

/// Fields of a schedule that a mistake can be about, with their place in a kind.
const PLACES: [(&str, &str); 10] = [
    ("cron", "schedule.cron"),
    ("every", "schedule.every"),
    ("at", "schedule.at"),
    ("zone", "schedule.zone"),
    ("anchor", "schedule.anchor"),
    ("grace", "schedule.grace"),
    ("jitter", "schedule.jitter"),
    ("missed", "schedule.missed"),
    ("after", "schedule.after"),
    ("payload", PAYLOAD),
];
const PAYLOAD: &str = "schedule.payload";

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
        let most = limits::MAX_SCHEDULE_PAYLOAD_BYTES + limits::MAX_NOTE_BYTES;
        if written.to_string().len() > most {
            return Err(format!("it should have at most {most} bytes"));
        }
        Ok(Self(written.clone()))
    }

    /// The settings that were written.
    pub fn settings(&self) -> Result<ScheduleSettings, String> {
        ScheduleSettings::deserialize(&self.0).map_err(|e| e.to_string())
    }

    /// Schedules that it waits for, as far as that can be read.
    pub fn after(&self) -> Vec<ScheduleName> {
        let written = || {
            let names = self.0.get("after").and_then(Value::as_array).into_iter().flatten();
            names.filter_map(|name| ScheduleName::new(name.as_str()?).ok()).collect()
        };
        self.settings().map_or_else(|_| written(), |settings| settings.after)
    }

    /// What is wrong with it for a kind whose payloads look like this, with its place.
    pub(super) fn fault(&self, schema: Option<&Schema>) -> Option<(&'static str, String)> {
        let compiled = match self.settings().and_then(|settings| settings.compile()) {
            Ok(compiled) => compiled,
            Err(why) => {
                let place = PLACES.iter().find_map(|(field, place)| {
                    Some((*place, why.strip_prefix(field)?.strip_prefix(": ")?.to_owned()))
                });
                return Some(place.unwrap_or(("schedule", why)));
            }
        };
        // What a secret is that is written as it is shown, whoever knows it looks at once it was put back.
        let payload: Value = serde_json::from_str(compiled.payload.as_str()).ok()?;
        let misfits = schema?.misfits_beside_hidden(&payload);
        if misfits.is_empty() {
            return None;
        }
        Some((PAYLOAD, format!("it does not fit the schema: {}", schema::sentence(&misfits))))
    }

    /// Whether a secret of its payload is written as it is shown.
    pub fn is_hidden(&self, schema: &Schema) -> bool {
        self.0.get("payload").is_some_and(|payload| !schema.hidden_in(payload).is_empty())
    }

    /// As people may see it: without secrets of its payload.
    #[must_use]
    pub fn shown(&self, schema: &Schema) -> Self {
        let mut shown = self.clone();
        if let Some(payload) = shown.0.get_mut("payload") {
            *payload = schema.masked(payload);
        }
        shown
    }
}
