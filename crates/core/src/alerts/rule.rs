//! Rules: what is wrong when, and who is told.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Condition, DEFAULT_REPEAT_MS, MAX_MESSAGE_BYTES, MAX_RULES, Severity};
use crate::limits::MAX_DELAY_MS;
use crate::time::Millis;

/// Longest id of a rule or a channel.
const MAX_ID: usize = 64;
/// Shortest time between two repeats: a channel is no ticker.
const SHORTEST_REPEAT_MS: i64 = 60_000;

/// A rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name.
    pub id: String,
    /// When it is wrong.
    pub condition: Condition,
    /// How long that must last, in milliseconds.
    pub for_ms: i64,
    /// How bad it is.
    pub severity: Severity,
    /// Who is told: names of channels. One that is not set up is the log.
    pub channels: Vec<String>,
    /// What they are told.
    pub message: String,
    /// After how long they are told again; 0: never.
    pub repeat_ms: i64,
    /// What to do: a page below `docs/runbooks`.
    pub runbook: String,
    /// Names of the queues, kinds or domains that it is about; empty: all.
    #[serde(default)]
    pub on: Vec<String>,
    /// Fewer samples of the first reading say nothing.
    #[serde(default)]
    pub least_samples: u64,
    /// Whether it is evaluated.
    pub enabled: bool,
}

impl Rule {
    /// Whether it is about the queue, kind or domain of this name; of the whole, the name is empty.
    pub fn is_about(&self, name: &str) -> bool {
        self.on.is_empty() || self.on.iter().any(|on| on == name)
    }
}

/// What a file says of a rule: a shipped one is changed, another one is made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RulePatch {
    /// When it is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// How long that must last, such as `5m`.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<String>,
    /// How bad it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// Who is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<Vec<String>>,
    /// What they are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// After how long they are told again, such as `4h`; `0s`: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runbook: Option<String>,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Vec<String>>,
    /// Fewer samples say nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_samples: Option<u64>,
    /// Whether it is evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

impl RulePatch {
    /// What is wrong with the units of its condition.
    pub(super) fn misfits(&self) -> Vec<String> {
        self.condition.as_ref().map(Condition::faults).unwrap_or_default()
    }

    /// Reads rules by name: those that could be read, and everything that could not.
    pub fn read_all(rules: &Map<String, Value>) -> (BTreeMap<String, Self>, Vec<String>) {
        let (mut read, mut wrong) = (BTreeMap::new(), vec![]);
        for (name, rule) in rules {
            match Self::deserialize(rule) {
                Ok(patch) => drop(read.insert(name.clone(), patch)),
                Err(error) => wrong.extend(unreadable(name, rule, &error.to_string())),
            }
        }
        (read, wrong)
    }

    /// The rule, whole.
    pub(super) fn over(self, id: &str, base: Option<Rule>) -> Result<Rule, String> {
        let span = |text: &str| text.parse::<Millis>().map(|m| m.0).map_err(|e| e.to_string());
        let mut rule = match (base, &self.condition) {
            (Some(base), _) => base,
            (None, None) => return Err("a rule of one's own needs a `condition`".into()),
            (None, Some(condition)) => Rule {
                id: id.to_owned(),
                message: format!("{{where}}: {} is {{value}} ({condition})", condition.reading()),
                condition: condition.clone(),
                for_ms: 0,
                severity: Severity::Warning,
                channels: vec!["log".into()],
                repeat_ms: DEFAULT_REPEAT_MS,
                runbook: "README.md".into(),
                on: vec![],
                least_samples: 0,
                enabled: true,
            },
        };
        if let Some(text) = &self.lasts {
            rule.for_ms = span(text)?;
        }
        if let Some(text) = &self.repeat {
            rule.repeat_ms = span(text)?;
        }
        rule.condition = self.condition.unwrap_or(rule.condition);
        rule.severity = self.severity.unwrap_or(rule.severity);
        rule.channels = self.channels.unwrap_or(rule.channels);
        rule.message = self.message.unwrap_or(rule.message);
        rule.runbook = self.runbook.unwrap_or(rule.runbook);
        rule.on = self.on.unwrap_or(rule.on);
        rule.least_samples = self.least_samples.unwrap_or(rule.least_samples);
        rule.enabled = self.enabled.unwrap_or(rule.enabled);
        Ok(rule)
    }
}

/// Everything that cannot be read of a rule: its fields one by one, because a mistake in one says nothing of the others.
fn unreadable(name: &str, rule: &Value, whole: &str) -> Vec<String> {
    let fields = rule.as_object().into_iter().flatten();
    let wrong = fields.filter_map(|(field, value)| {
        let alone = Value::Object(std::iter::once((field.clone(), value.clone())).collect());
        Some(format!("{name}.{field}: {}", RulePatch::deserialize(&alone).err()?))
    });
    let wrong: Vec<String> = wrong.collect();
    if wrong.is_empty() { vec![format!("{name}: {whole}")] } else { wrong }
}

/// Shipped rules with what a file says of them. Errors name the rule.
pub fn merged(base: Vec<Rule>, file: BTreeMap<String, RulePatch>) -> Result<Vec<Rule>, Vec<String>> {
    let mut rules = base;
    let mut wrong = vec![];
    for (id, patch) in file {
        wrong.extend(patch.misfits().into_iter().map(|why| format!("rules.{id}.condition: {why}")));
        let place = rules.iter().position(|r| r.id == id);
        match patch.over(&id, place.map(|n| rules[n].clone())) {
            Ok(rule) => match place {
                Some(n) => rules[n] = rule,
                None => rules.push(rule),
            },
            Err(why) => wrong.push(format!("rules.{id}: {why}")),
        }
    }
    wrong.extend(check_all(&rules));
    if wrong.is_empty() { Ok(rules) } else { Err(wrong) }
}

/// Everything that is wrong with rules.
pub fn check_all(rules: &[Rule]) -> Vec<String> {
    let mut wrong = vec![];
    if rules.len() > MAX_RULES {
        wrong.push(format!("{} rules; at most {MAX_RULES}", rules.len()));
    }
    for (n, rule) in rules.iter().enumerate() {
        let mut say = |what: &str| wrong.push(format!("rules.{}: {what}", rule.id));
        if rules[..n].iter().any(|other| other.id == rule.id) {
            say("is there twice");
        }
        if !is_id(&rule.id) {
            say("a name has 1 to 64 letters, digits, `_`, `-` or `.`");
        }
        if rule.channels.is_empty() || !rule.channels.iter().all(|c| is_id(c)) {
            say("`channels` must name at least one");
        }
        if rule.message.trim().is_empty() || rule.message.len() > MAX_MESSAGE_BYTES {
            say("`message` has 1 to 1,024 bytes");
        }
        if !(0..=MAX_DELAY_MS).contains(&rule.for_ms) {
            say("`for` is too long");
        }
        if rule.repeat_ms != 0 && !(SHORTEST_REPEAT_MS..=MAX_DELAY_MS).contains(&rule.repeat_ms) {
            say("`repeat` is 0s (never) or a minute and more");
        }
        if rule.runbook.len() > 200 || rule.runbook.contains(char::is_whitespace) {
            say("`runbook` is the name of a page");
        }
    }
    wrong
}

fn is_id(text: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    (1..=MAX_ID).contains(&text.len()) && text.bytes().all(fine)
}
