//! Messages: `{where}`, `{value}`, `{bar}` and any reading of the target are filled in.

use super::MAX_MESSAGE_BYTES;
use super::readings::{Readings, Target, known};
use super::rule::Rule;
use crate::failure::cut;

/// What goes into a message beside the readings.
#[derive(Debug, Clone, Copy)]
pub struct Filled {
    /// The first reading.
    pub value: f64,
    /// Its bound.
    pub bar: f64,
}

/// The message of a rule about a target. What is not known stays as it is written.
pub fn fill(rule: &Rule, target: &Target, readings: &Readings, filled: Filled) -> String {
    let unit = rule.condition.unit();
    let place = match target.name.as_str() {
        "" => "Tidegate",
        name => name,
    };
    let mut text = String::new();
    let mut rest = rule.message.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        text += before;
        let Some((name, after)) = after.split_once('}') else {
            text.push('{');
            rest = after;
            continue;
        };
        match name {
            "where" | "queue" | "kind" | "domain" | "job_name" => text += place,
            "value" => text += &unit.show(filled.value),
            "bar" => text += &unit.show(filled.bar),
            "rule" => text += &rule.id,
            "severity" => text += rule.severity.as_str(),
            other => {
                let reading = known(other).and_then(|(_, unit)| Some((unit, readings.get(target, other)?)));
                match reading {
                    Some((unit, reading)) => text += &unit.show(reading.value),
                    None => text.extend(["{", other, "}"]),
                }
            }
        }
        rest = after;
    }
    cut(text + rest, MAX_MESSAGE_BYTES)
}
