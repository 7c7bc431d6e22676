//! When a kind runs by itself. The registry carries what was written; its rules are those of every schedule.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::ScheduleName;
use crate::limits;
use crate::near::nearest;
use crate::schedule::ScheduleSettings;
use crate::schema::{self, Schema};

/// Fields of a schedule, with their place in a kind.
const PLACES: [(&str, &str); 15] = [
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
    ("overlap", "schedule.overlap"),
    ("tenant", "schedule.tenant"),
    ("group", "schedule.group"),
    ("priority", "schedule.priority"),
    ("description", "schedule.description"),
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
        let mut spec = written.clone();
        if let Some(map) = spec.as_object_mut()
            // As the command line calls it.
            && let Some(data) = map.remove("data")
            && map.insert("payload".into(), data).is_some()
        {
            return Err("`data` and `payload` say the same: leave one out".into());
        }
        Ok(Self(spec))
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

    /// Everything that is wrong with it for a kind whose payloads look like this, with its place.
    pub(super) fn faults(&self, schema: Option<&Schema>) -> Vec<(&'static str, String)> {
        let mut faults = vec![];
        let mut rest = self.0.as_object().cloned().unwrap_or_default();
        // One field after the other: a mistake in one says nothing of the others.
        rest.retain(|field, value| match unreadable(field, value) {
            Some(fault) => {
                faults.push(fault);
                false
            }
            None => true,
        });
        for _ in 0..=PLACES.len() {
            // What is there but wrong still says when.
            if !faults.is_empty() && WHEN.iter().all(|field| !rest.contains_key(*field)) {
                rest.insert(WHEN[0].into(), Value::from("1h"));
            }
            let settings = ScheduleSettings::deserialize(&Value::Object(rest.clone()));
            let why = match settings.map_err(|e| e.to_string()).and_then(|settings| settings.compile()) {
                Ok(compiled) => {
                    faults.extend(unfit(compiled.payload.as_str(), schema));
                    break;
                }
                Err(why) => why,
            };
            let place = PLACES.iter().find_map(|(field, place)| {
                Some((*field, *place, why.strip_prefix(field)?.strip_prefix(": ")?.to_owned()))
            });
            let Some((field, place, why)) = place.filter(|(field, ..)| rest.contains_key(*field)) else {
                faults.push(("schedule", why));
                break;
            };
            faults.push((place, why));
            rest.remove(field);
        }
        faults
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

/// Settings that say when; one of them must be there.
const WHEN: [&str; 3] = ["every", "cron", "at"];

/// What is wrong with a field by itself, with its place.
fn unreadable(field: &str, value: &Value) -> Option<(&'static str, String)> {
    let alone = Value::Object(std::iter::once((field.to_owned(), value.clone())).collect());
    let why = ScheduleSettings::deserialize(&alone).err()?.to_string();
    if let Some((_, place)) = PLACES.iter().find(|(known, _)| *known == field) {
        return Some((place, why));
    }
    let known = PLACES.map(|(known, _)| known);
    let near = nearest(field, known).map_or_else(
        || format!("; there are {}", known.join(", ")),
        |near| format!("; did you mean `{near}`?"),
    );
    Some(("schedule", format!("there is no setting `{field}`{near}")))
}

/// A payload that does not fit. What a secret is that is written as it is shown, whoever knows it looks at once it was put back.
fn unfit(payload: &str, schema: Option<&Schema>) -> Option<(&'static str, String)> {
    let payload: Value = serde_json::from_str(payload).ok()?;
    let misfits = schema?.misfits_beside_hidden(&payload);
    if misfits.is_empty() {
        return None;
    }
    Some((PAYLOAD, format!("it does not fit the schema: {}", schema::sentence(&misfits))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_mistake_of_a_schedule_is_told_at_once() {
        let spec = ScheduleSpec(json!({
            "cron": "61 * * * *", "zone": "America/SaoPaulo", "overlap": "skp", "grace": "x", "jitter": 5,
            "priority": "urgent", "overlp": "skip", "after": ["fine"],
        }));
        let mut places: Vec<&str> = spec.faults(None).into_iter().map(|(place, _)| place).collect();
        places.sort_unstable();
        let wrong = ["cron", "grace", "jitter", "overlap", "priority", "zone"];
        let expected: Vec<String> = wrong.iter().map(|field| format!("schedule.{field}")).collect();
        assert_eq!(places[0], "schedule", "one that does not exist");
        assert_eq!(places[1..], expected);
        assert_eq!(ScheduleSpec(json!({ "every": "5m" })).faults(None), []);
        assert_eq!(ScheduleSpec(json!({})).faults(None).len(), 1, "it must say when");
        let data = ScheduleSpec::read(&json!({ "every": "5m", "data": { "n": 1 } })).unwrap();
        assert_eq!(data.0, json!({ "every": "5m", "payload": { "n": 1 } }));
        assert!(ScheduleSpec::read(&json!({ "every": "5m", "data": 1, "payload": 1 })).is_err());
    }
}
