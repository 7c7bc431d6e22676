//! When a kind runs by itself. The registry carries what was written; its rules are those of every schedule.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
        let meant = misspelt_time(&rest);
        // One field after the other: a mistake in one says nothing of the others.
        rest.retain(|field, value| match unreadable(field, value) {
            Some(fault) => {
                faults.push(fault);
                mended(field, value)
            }
            None => true,
        });
        if let Some((field, right)) = meant {
            rest.insert(field.into(), Value::from(right));
        }
        let mut others: Vec<(&'static str, Value)> = vec![];
        for _ in 0..2 * PLACES.len() {
            let settings = ScheduleSettings::deserialize(&Value::Object(rest.clone()));
            let why = match settings.map_err(|e| e.to_string()).and_then(|settings| settings.compile()) {
                Ok(compiled) => {
                    let Some((field, value)) = others.pop() else {
                        faults.extend(unfit(compiled.payload.as_str(), schema));
                        break;
                    };
                    // Where `every` is written, the anchor was looked at with it.
                    rest.retain(|other, _| other != "anchor" && !says_when(other));
                    rest.insert(field.into(), value);
                    continue;
                }
                Err(why) => why,
            };
            let Some((field, place, why)) = placed(&why).filter(|(field, ..)| rest.contains_key(*field))
            else {
                if faults.iter().any(|(_, told)| *told == why) {
                    break;
                }
                faults.push(("schedule", why));
                others = leave_one_time(&mut rest);
                continue;
            };
            faults.push((place, why));
            let stays = rest.get_mut(field).is_some_and(|value| mended(field, value));
            if !stays {
                rest.remove(field);
            }
        }
        faults
    }

    /// What cannot be meant of it, although it can be understood.
    pub(super) fn doubt(&self) -> Option<(&'static str, String)> {
        let settings = self.settings().ok()?;
        settings.compile().ok()?;
        Some(("schedule.jitter", settings.checked().err()?))
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

/// Settings that say when, one of which must be there; each with a value that is right beside any other setting. `every` is first: an
/// anchor goes with it.
const WHEN: [(&str, &str); 3] = [("every", "7d"), ("cron", "@daily"), ("at", "2026-01-01T00:00:00Z")];

fn says_when(field: &str) -> bool {
    WHEN.iter().any(|(known, _)| *known == field)
}

/// Makes a time right: what is there but wrong still says when. False: it is no time.
fn mended(field: &str, value: &mut Value) -> bool {
    let Some((_, right)) = WHEN.iter().find(|(known, _)| *known == field) else { return false };
    *value = Value::from(*right);
    true
}

/// Where nothing says when, the time that a field with another name was meant to be: its name is told, and that is enough.
fn misspelt_time(written: &Map<String, Value>) -> Option<(&'static str, &'static str)> {
    if written.keys().any(|field| says_when(field)) {
        return None;
    }
    let known = PLACES.map(|(known, _)| known);
    let unknown = written.keys().filter(|field| !known.contains(&field.as_str()));
    let mut meant = unknown.filter_map(|field| nearest(field, known));
    meant.find_map(|near| WHEN.into_iter().find(|(field, _)| *field == near))
}

/// Leaves one time, and puts one in where there is none. Returns the others, which are looked at after it.
fn leave_one_time(rest: &mut Map<String, Value>) -> Vec<(&'static str, Value)> {
    let times = WHEN.iter().filter_map(|(field, _)| Some((*field, rest.remove(*field)?)));
    let mut times: Vec<(&'static str, Value)> = times.filter(|(_, value)| !value.is_null()).collect();
    if times.is_empty() {
        let (field, right) = WHEN[0];
        times.push((field, Value::from(right)));
    }
    let (field, value) = times.remove(0);
    rest.insert(field.into(), value);
    times
}

/// The field that a mistake begins with, its place, and the mistake without it.
fn placed(why: &str) -> Option<(&'static str, &'static str, String)> {
    PLACES.iter().find_map(|(field, place)| {
        Some((*field, *place, why.strip_prefix(field)?.strip_prefix(": ")?.to_owned()))
    })
}

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

    /// Places of all mistakes, in the order of their names.
    fn places(written: Value, schema: Option<&Schema>) -> Vec<&'static str> {
        let faults = ScheduleSpec(written).faults(schema);
        let mut places: Vec<&str> = faults.into_iter().map(|(place, _)| place).collect();
        places.sort_unstable();
        places
    }

    #[test]
    fn every_mistake_of_a_schedule_is_told_at_once() {
        let written = json!({
            "cron": "61 * * * *", "zone": "America/SaoPaulo", "overlap": "skp", "grace": "x", "jitter": 5,
            "priority": "urgent", "overlp": "skip", "after": ["fine"],
        });
        let places = places(written, None);
        let wrong = ["cron", "grace", "jitter", "overlap", "priority", "zone"];
        let expected: Vec<String> = wrong.iter().map(|field| format!("schedule.{field}")).collect();
        assert_eq!(places[0], "schedule", "one that does not exist");
        assert_eq!(places[1..], expected);
        assert_eq!(ScheduleSpec(json!({ "every": "5m" })).faults(None), []);
        let long = ScheduleSpec(json!({ "every": "5m", "jitter": "10m" }));
        assert_eq!((long.faults(None), long.doubt().map(|d| d.0)), (vec![], Some("schedule.jitter")));
        assert_eq!(ScheduleSpec(json!({})).faults(None).len(), 1, "it must say when");
        let data = ScheduleSpec::read(&json!({ "every": "5m", "data": { "n": 1 } })).unwrap();
        assert_eq!(data.0, json!({ "every": "5m", "payload": { "n": 1 } }));
        assert!(ScheduleSpec::read(&json!({ "every": "5m", "data": 1, "payload": 1 })).is_err());
    }

    /// That nothing says when is told with the other mistakes, and so are those that come after it.
    #[test]
    fn a_schedule_that_does_not_say_when_is_told_so_beside_its_other_mistakes() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        let schema = Schema::compile(&schema).ok();
        assert!(schema.is_some());
        let all = json!({ "overlap": "skp", "zone": "Mars/Base", "grace": "x", "payload": { "n": "x" } });
        assert_eq!(
            places(all, schema.as_ref()),
            ["schedule", "schedule.grace", "schedule.overlap", "schedule.payload", "schedule.zone"]
        );
        assert_eq!(places(json!({ "zone": "Mars/Base" }), None), ["schedule", "schedule.zone"]);
        assert_eq!(places(json!({ "every": null, "grace": "x" }), None), ["schedule", "schedule.grace"]);
        assert_eq!(places(json!({ "every": "soon", "grace": "x" }), None).len(), 2, "it does say when");
        // Its right name would say when.
        assert_eq!(places(json!({ "crn": "@daily", "grace": "x" }), None), ["schedule", "schedule.grace"]);
    }

    /// Each of several times is looked at, and all that is beside them.
    #[test]
    fn a_schedule_with_two_times_is_told_its_other_mistakes() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        let schema = Schema::compile(&schema).ok();
        let two = json!({ "cron": "@daily", "every": "1h", "grace": "x", "payload": { "n": "x" } });
        assert_eq!(places(two, schema.as_ref()), ["schedule", "schedule.grace", "schedule.payload"]);
        let wrong = json!({ "cron": "61 * * * *", "every": "soon", "at": 5, "anchor": "x" });
        assert_eq!(
            places(wrong, None),
            ["schedule", "schedule.anchor", "schedule.at", "schedule.cron", "schedule.every"]
        );
        let anchored = json!({ "cron": "@daily", "every": "1h", "anchor": "2026-01-01T00:00:00Z" });
        assert_eq!(places(anchored, None), ["schedule"], "the anchor goes with one of them");
    }
}
