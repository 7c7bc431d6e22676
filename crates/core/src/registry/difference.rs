//! What a document changes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Document;

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is new.
    Add,
    /// It is different.
    Change,
    /// It goes back to what ships.
    Remove,
}

impl Change {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Change => "change",
            Self::Remove => "remove",
        }
    }
}

/// One queue, kind or policy that is not as a document wants it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// `queue`, `kind`, `schedule`, `policy`, `category` or `platform`.
    pub what: String,
    /// Its name.
    pub name: String,
    /// What becomes of it.
    pub change: Change,
    /// What differs, as (field, now, wanted).
    pub fields: Vec<(String, Value, Value)>,
}

impl Difference {
    /// What becomes of it, in a word. A schedule is not removed: it is retired, and its history stays.
    pub fn verb(&self) -> &'static str {
        match (self.change, self.what.as_str()) {
            (Change::Remove, "schedule") => "retire",
            (change, _) => change.as_str(),
        }
    }
}

/// Where `there` is not as `wanted`. Queues and kinds that `wanted` does not name are left alone; policies too, unless
/// `exactly`.
pub fn differences(there: &Document, wanted: &Document, exactly: bool) -> Vec<Difference> {
    let mut all = vec![];
    let mut compare = |what: &str, name: &str, now: Option<Value>, then: Option<Value>| {
        all.extend(difference(what, name, now, then));
    };
    let json = |value: serde_json::Result<Value>| value.ok();
    for (name, wanted) in &wanted.policies.named {
        let now = there.policies.named.get(name).and_then(|p| json(serde_json::to_value(p)));
        compare("policy", name, now, json(serde_json::to_value(wanted)));
    }
    for (category, wanted) in &wanted.policies.categories {
        let now = there.policies.categories.get(category).and_then(|p| json(serde_json::to_value(p)));
        compare("category", category.as_str(), now, json(serde_json::to_value(wanted)));
    }
    for (name, wanted) in &wanted.policies.platforms {
        let now = there.policies.platforms.get(name).map(|f| serde_json::json!({ "factor": f }));
        compare("platform", name.as_str(), now, Some(serde_json::json!({ "factor": wanted })));
    }
    if exactly {
        for name in there.policies.named.keys().filter(|n| !wanted.policies.named.contains_key(*n)) {
            compare("policy", name, Some(Value::Null), None);
        }
        for c in there.policies.categories.keys().filter(|c| !wanted.policies.categories.contains_key(*c)) {
            compare("category", c.as_str(), Some(Value::Null), None);
        }
        for name in there.policies.platforms.keys().filter(|n| !wanted.policies.platforms.contains_key(*n)) {
            compare("platform", name.as_str(), Some(Value::Null), None);
        }
    }
    for (name, settings) in &wanted.queues {
        let now = there.queues.get(name).and_then(|s| json(serde_json::to_value(s)));
        compare("queue", name.as_str(), now, json(serde_json::to_value(settings)));
    }
    for (name, settings) in &wanted.kinds {
        let now = there.kinds.get(name).and_then(|s| json(serde_json::to_value(s)));
        compare("kind", name.as_str(), now, json(serde_json::to_value(settings)));
    }
    all
}

/// Where one entry is not as it is wanted.
pub fn difference(what: &str, name: &str, now: Option<Value>, then: Option<Value>) -> Option<Difference> {
    let made = |change, fields| Difference { what: what.to_owned(), name: name.to_owned(), change, fields };
    let Some(then) = then else { return Some(made(Change::Remove, vec![])) };
    let Some(now) = now else { return Some(made(Change::Add, vec![])) };
    let (empty, empty_too) = (serde_json::Map::new(), serde_json::Map::new());
    let (now, then) = (now.as_object().unwrap_or(&empty), then.as_object().unwrap_or(&empty_too));
    let mut names: Vec<&String> = now.keys().chain(then.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let value =
        |map: &serde_json::Map<String, Value>, field: &str| map.get(field).cloned().unwrap_or(Value::Null);
    let fields = names.into_iter().map(|field| (field.clone(), value(now, field), value(then, field)));
    let fields: Vec<_> = fields.filter(|(_, now, then)| now != then).collect();
    (!fields.is_empty()).then(|| made(Change::Change, fields))
}
