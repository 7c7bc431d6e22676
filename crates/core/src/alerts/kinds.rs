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
        let (alerts, wrong) = Self::read_all(value);
        if wrong.is_empty() { Ok(alerts) } else { Err(wrong.join("; ")) }
    }

    /// The same: what could be read, and everything that could not.
    pub(crate) fn read_all(value: &Value) -> (Self, Vec<String>) {
        let (mut alerts, mut wrong) = (Self::default(), vec![]);
        match value {
            Value::Array(list) => match list.iter().map(Value::as_str).collect::<Option<Vec<_>>>() {
                Some(names) => {
                    alerts.0 =
                        names.into_iter().map(|name| (name.to_owned(), RulePatch::default())).collect();
                }
                None => wrong.push("a list of alerts has names alone".into()),
            },
            Value::Object(table) => (alerts.0, wrong) = RulePatch::read_all(table),
            _ => wrong.push("it should be a list of names, or a table of rules".into()),
        }
        (alerts, wrong)
    }

    /// Everything that is wrong with them.
    pub(crate) fn faults(&self, timeout_ms: i64) -> Vec<String> {
        if self.0.len() > limits::MAX_KIND_LIST {
            return vec![format!("it must have at most {} entries", limits::MAX_KIND_LIST)];
        }
        let known = shipped();
        let faults =
            |(name, patch): (&String, &RulePatch)| match rule(name, patch, "kind", timeout_ms, &known) {
                Ok(rule) => check_all(&[rule]).into_iter().map(|why| why.replacen("rules.", "", 1)).collect(),
                Err(why) => vec![format!("{name}: {why}")],
            };
        self.0.iter().flat_map(faults).collect()
    }

    /// What cannot be meant of them, by rule: units that do not fit.
    pub(crate) fn doubts(&self) -> impl Iterator<Item = String> {
        let said = |(name, patch): (&String, &RulePatch)| {
            let name = name.clone();
            patch.misfits().into_iter().map(move |why| format!("{name}.condition: {why}"))
        };
        self.0.iter().flat_map(said)
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
        let near = nearest(name, names.iter().copied()).map_or_else(
            || format!("; there are {}", names.join(", ")),
            |n| format!("; did you mean `{n}`?"),
        );
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
                r.id == *name
                    && r.condition.scope() == Scope::Kind
                    && r.is_about(kind)
                    && *patch == RulePatch::default()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn alerts(value: &Value) -> KindAlerts {
        KindAlerts::read(value).unwrap()
    }

    #[test]
    fn a_kind_names_rules_or_writes_its_own() {
        let rules = shipped();
        let (names, table) =
            (alerts(&json!(["failed", "slow"])), alerts(&json!({"mine": {"condition": "overdue > 1m"}})));
        assert!(names.faults(600_000).is_empty() && table.faults(600_000).is_empty());
        let all = in_force(&rules, [("a", 600_000, &names), ("b", 1_000, &table), ("c", 900_000, &names)]);
        let own: Vec<_> = all
            .iter()
            .take(all.len() - rules.len())
            .map(|r| (r.id.as_str(), r.on[0].as_str(), r.condition.to_string()))
            .collect();
        let expected = [
            ("failed", "a", "dead_letters > 0"),
            ("slow", "a", "longest_run > 8 m"),
            ("mine", "b", "overdue > 1m"),
            ("failed", "c", "dead_letters > 0"),
            ("slow", "c", "longest_run > 12 m"),
        ];
        assert_eq!(own, expected.map(|(id, on, condition)| (id, on, condition.to_owned())));
    }

    #[test]
    fn a_rule_that_is_about_the_kind_already_is_there_once() {
        let rules = shipped();
        let named = alerts(&json!(["aggregation_failed"]));
        assert_eq!(in_force(&rules, [("daily-feature-aggregation", 1, &named)]), rules);
        let other = in_force(&rules, [("nightly", 1, &named)]);
        assert_eq!((other.len(), other[0].on.as_slice()), (rules.len() + 1, &["nightly".to_owned()][..]));
    }

    #[test]
    fn what_cannot_be_a_rule_is_said() {
        for (value, why) in [
            (json!(["faild"]), "faild: there is no such rule; did you mean `failed`?"),
            (json!(["queue_depth_high"]), "queue_depth_high: `waiting` is not a reading of kinds"),
            (json!({"failed": {"on": ["x"]}}), "failed: `on` is the kind itself"),
            (
                json!({"mine": {"condition": "longest_run > 1m", "channels": []}}),
                "mine: `channels` must name",
            ),
        ] {
            let faults = alerts(&value).faults(1_000);
            assert!(faults[0].starts_with(why), "{faults:?}");
        }
        let unitless = alerts(&json!({"mine": {"condition": "longest_run > 60"}}));
        let doubts: Vec<String> = unitless.doubts().collect();
        assert_eq!((unitless.faults(1_000), doubts.len()), (vec![], 1), "one that is kept goes on");
        assert!(doubts[0].starts_with("mine.condition: \"60\" does not fit"), "{doubts:?}");
        for (value, why) in [
            (json!("failed"), "a list of names"),
            (json!([1]), "names alone"),
            (json!({"a": {"x": 1}}), "a.x: unknown field"),
            (json!({"a": 7}), "a: invalid type"),
        ] {
            let error = KindAlerts::read(&value).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn every_rule_that_cannot_be_read_is_told_and_the_others_are_there() {
        let (read, wrong) = KindAlerts::read_all(&json!({
            "failed": { "for": 5, "chanels": ["x"] }, "slow": { "severity": "criticl" }, "mine": { "for": "5m" },
        }));
        let places: Vec<&str> = wrong.iter().filter_map(|why| why.split(':').next()).collect();
        assert_eq!(places, ["failed.chanels", "failed.for", "slow.severity"], "{wrong:?}");
        assert_eq!(read.faults(1_000).len(), 1, "what could be read is looked at, too");
    }

    #[test]
    fn names_alone_are_written_as_a_list() {
        for value in [json!(["failed", "slow"]), json!({"failed": {"for": "5m"}, "slow": {}})] {
            assert_eq!(serde_json::to_value(alerts(&value)).unwrap(), value);
        }
    }
}
