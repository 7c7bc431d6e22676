//! Alerts that a kind names in the registry: rules about that kind, in force while the registry has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::rule::{Rule, RulePatch, check_all};
use super::shipped::{of_every_kind, shipped};
use super::{MAX_RULES, Scope};
use crate::limits;
use crate::near::nearest;

/// Alerts of a kind by name, with what it says of each: a name alone is the rule that ships. Written as a list of names or as a
/// table of rules.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KindAlerts(BTreeMap<String, RulePatch>);

impl KindAlerts {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads a list of names, or a table.
    pub fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Array(list) => {
                let name = |v: &Value| v.as_str().map(|name| (name.to_owned(), RulePatch::default()));
                let names: Option<BTreeMap<_, _>> = list.iter().map(name).collect();
                names.map(Self).ok_or_else(|| "a list of alerts has names alone".to_owned())
            }
            Value::Object(table) => {
                let rule = |(name, v): (&String, &Value)| match RulePatch::deserialize(v) {
                    Ok(patch) => Ok((name.clone(), patch)),
                    Err(e) => Err(format!("{name}: {e}")),
                };
                table.iter().map(rule).collect::<Result<_, _>>().map(Self)
            }
            _ => Err("it should be a list of names, or a table of rules".into()),
        }
    }

    /// Everything that is wrong with them.
    pub(crate) fn faults(&self, timeout_ms: i64) -> Vec<String> {
        if self.0.len() > limits::MAX_KIND_LIST {
            return vec![format!("it must have at most {} entries", limits::MAX_KIND_LIST)];
        }
        let known = shipped();
        let fault = |(name, patch): (&String, &RulePatch)| match rule(name, patch, "kind", timeout_ms, &known) {
            Ok(rule) => check_all(&[rule]).into_iter().next().map(|why| why.replacen("rules.", "", 1)),
            Err(why) => Some(format!("{name}: {why}")),
        };
        self.0.iter().filter_map(fault).collect()
    }
}

impl Serialize for KindAlerts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.values().all(|patch| *patch == RulePatch::default()) {
            return serializer.collect_seq(self.0.keys());
        }
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KindAlerts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(&Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// The rule that a kind means.
fn rule(name: &str, patch: &RulePatch, kind: &str, timeout_ms: i64, known: &[Rule]) -> Result<Rule, String> {
    if patch.on.is_some() {
        return Err("`on` is the kind itself: leave it out".into());
    }
    let general = of_every_kind(timeout_ms);
    let base = known.iter().chain(&general).find(|r| r.id == name).cloned();
    if base.is_none() && patch.condition.is_none() {
        let names = known.iter().filter(|r| r.condition.scope() == Scope::Kind).chain(&general);
        let names: Vec<&str> = names.map(|r| r.id.as_str()).collect();
        let near = nearest(name, names.iter().copied())
            .map_or_else(|| format!("; there are {}", names.join(", ")), |n| format!("; did you mean `{n}`?"));
        return Err(format!("there is no such rule{near}; a rule of one's own needs a `condition`"));
    }
    let rule = patch.clone().over(name, base)?;
    if rule.condition.scope() != Scope::Kind {
        return Err(format!("`{}` is not a reading of kinds", rule.condition.reading()));
    }
    Ok(Rule { on: vec![kind.to_owned()], ..rule })
}

/// The rules of a server together with those of the kinds. What a kind says goes first: it holds for that kind.
pub fn in_force<'k>(
    rules: &[Rule],
    kinds: impl IntoIterator<Item = (&'k str, i64, &'k KindAlerts)>,
) -> Vec<Rule> {
    let mut all = vec![];
    for (kind, timeout_ms, alerts) in kinds {
        for (name, patch) in &alerts.0 {
            let told = rules.iter().any(|r| {
                r.id == *name && r.condition.scope() == Scope::Kind && r.is_about(kind) && *patch == RulePatch::default()
            });
            // What another version of the program wrote may not be known here.
            let Ok(rule) = rule(name, patch, kind, timeout_ms, rules) else { continue };
            if !told && all.len() < MAX_RULES {
                all.push(rule);
            }
        }
    }
    all.extend_from_slice(rules);
    all
}
