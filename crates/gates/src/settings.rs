//! What people write about their gates: the gates of every domain, and which connectors share one. One definition for the
//! library, the server and the command line, as TOML or as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_core::gates::{Gate, GateSet, InvalidGates, Target};

use crate::{Backend, GatesError};

/// Most domains.
const MAX_DOMAINS: usize = 1_000;
/// Longest text of settings.
const MAX_BYTES: usize = 1 << 20;

/// The gates of every domain.
///
/// ```
/// let gates = tidegate_gates::GateSettings::from_toml(r#"
///     [[gates.shopify.gates]]
///     name = "points"
///     per = ["account"]
///     gate.reported = { capacity = 1000, restore_per_s = 50 }
///
///     [connectors]            # both use the gates of `shopify`
///     shopify-bulk = "shopify"
/// "#).unwrap();
/// assert_eq!(gates.domain_of("shopify-bulk"), "shopify");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GateSettings {
    /// The gates, by domain.
    pub gates: BTreeMap<String, GateSet>,
    /// Connectors that use the gates of a domain with another name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub connectors: BTreeMap<String, String>,
}

impl GateSettings {
    /// No domain yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with the gates of one more domain.
    #[must_use]
    pub fn domain(mut self, domain: &str, set: GateSet) -> Self {
        self.gates.insert(domain.into(), set);
        self
    }

    /// The same with a connector that uses the gates of a domain with another name.
    #[must_use]
    pub fn connector(mut self, connector: &str, domain: &str) -> Self {
        self.connectors.insert(connector.into(), domain.into());
        self
    }

    /// Reads and checks TOML.
    pub fn from_toml(text: &str) -> Result<Self, InvalidGates> {
        bounded(text)?;
        let read = toml::Deserializer::parse(text).map_err(|e| unreadable(String::new(), &e.message()))?;
        let read: Result<Self, _> = serde_path_to_error::deserialize(read);
        checked(read.map_err(|e| unreadable(e.path().to_string(), &e.inner().message())))
    }

    /// Reads and checks JSON.
    pub fn from_json(text: &str) -> Result<Self, InvalidGates> {
        bounded(text)?;
        let mut json = serde_json::Deserializer::from_str(text);
        let read: Result<Self, _> = serde_path_to_error::deserialize(&mut json);
        let settings = checked(read.map_err(|e| unreadable(e.path().to_string(), e.inner())))?;
        json.end().map_err(|e| unreadable(String::new(), &e))?;
        Ok(settings)
    }

    /// Says what is wrong, with its path, if anything is.
    pub fn check(&self) -> Result<(), InvalidGates> {
        if self.gates.len() > MAX_DOMAINS {
            return Err(InvalidGates {
                path: "gates".into(),
                problem: format!("there are {} domains", self.gates.len()),
                hint: format!("use at most {MAX_DOMAINS}"),
            });
        }
        for (domain, set) in &self.gates {
            Target::new(domain).map_err(|e| InvalidGates {
                path: format!("gates.{domain}"),
                problem: e.why,
                hint: "name a domain with letters, digits and . _ - : @ + =".into(),
            })?;
            set.check().map_err(|e| InvalidGates { path: format!("gates.{domain}.{}", e.path), ..e })?;
        }
        for (connector, domain) in &self.connectors {
            if !self.gates.contains_key(domain) {
                return Err(InvalidGates {
                    path: format!("connectors.{connector}"),
                    problem: format!("{domain:?} has no gates"),
                    hint: format!("add [[gates.{domain}.gates]], or name a domain that has some"),
                });
            }
        }
        Ok(())
    }

    /// The domain whose gates a connector uses.
    pub fn domain_of<'a>(&'a self, connector: &'a str) -> &'a str {
        self.connectors.get(connector).map_or(connector, String::as_str)
    }

    /// A gate of a domain.
    pub fn gate(&self, domain: &str, name: &str) -> Option<&Gate> {
        self.gates.get(domain)?.gates.iter().find(|g| g.name == name)
    }

    /// Sets the gates of every domain at a backend.
    pub async fn apply(&self, backend: &dyn Backend) -> Result<(), GatesError> {
        self.check()?;
        for (domain, set) in &self.gates {
            backend.configure(domain, set.clone()).await?;
        }
        Ok(())
    }
}

fn bounded(text: &str) -> Result<(), InvalidGates> {
    if text.len() <= MAX_BYTES {
        return Ok(());
    }
    Err(InvalidGates {
        path: "the settings".into(),
        problem: format!("they have {} bytes", text.len()),
        hint: format!("at most {MAX_BYTES} are read"),
    })
}

fn checked(read: Result<GateSettings, InvalidGates>) -> Result<GateSettings, InvalidGates> {
    let settings = read?;
    settings.check()?;
    Ok(settings)
}

fn unreadable(path: String, error: &dyn std::fmt::Display) -> InvalidGates {
    let path = if path.is_empty() || path == "." { "the settings".into() } else { path };
    let problem = error.to_string().trim_end().to_owned();
    InvalidGates { path, problem, hint: "docs/guides/gates.md shows every gate and its settings".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_right_is_refused_with_path_and_hint() {
        let gate = |gate: &str| format!("[[gates.api.gates]]\nname = \"a\"\ngate.{gate}\n");
        for (text, path, says) in [
            (
                gate("smooth = { rate = 0, every = \"1s\", burst = 1 }"),
                "gates.api.gates[0].smooth.rate",
                "0 is not",
            ),
            (
                gate("smooth = { rate = -5, every = \"1s\", burst = 1 }"),
                "gates.api.gates[0].smooth.rate",
                "-5 is not",
            ),
            (
                gate("reported = { capacity = nan, restore_per_s = 1 }"),
                "gates.api.gates[0].reported.capacity",
                "NaN",
            ),
            (
                gate("reported = { capacity = 10, restore_per_s = inf }"),
                "gates.api.gates[0].reported.restore_per_s",
                "inf",
            ),
            (
                gate("smooth = { rate = 9000000, every = \"30d\", burst = 9000000 }"),
                "gates.api.gates[0].smooth.burst",
                "not between",
            ),
            (gate("leaky = {}"), "gates.api.gates[0].gate", "unknown variant `leaky`"),
            (
                gate("slots = { limit = 1 }\n[gates.api.line]\npriorities = { now = 1, soon = 1 }"),
                "gates.api.line.priorities.soon",
                "two names",
            ),
            ("[connectors]\nrest = \"netsuite\"\n".into(), "connectors.rest", "no gates"),
            (
                "[[gates.\"a b\".gates]]\nname = \"x\"\ngate.slots = { limit = 1 }\n".into(),
                "gates.a b",
                "' '",
            ),
        ] {
            let e = GateSettings::from_toml(&text).unwrap_err();
            assert_eq!(e.path, path, "{text}: {e}");
            assert!(e.problem.contains(says) && !e.hint.is_empty(), "{text}: {e}");
        }
        let json = r#"{"gates":{"api":{"gates":[{"name":"a","gate":{"window":{"max":0,"every":"1s"}}}]}}}"#;
        assert_eq!(GateSettings::from_json(json).unwrap_err().path, "gates.api.gates[0].window.max");
    }

    #[test]
    fn toml_and_json_say_the_same() {
        let toml = "[[gates.api.gates]]\nname = \"a\"\nper = [\"tenant\"]\ngate.slots = { limit = 3 }\n";
        let settings = GateSettings::from_toml(toml).unwrap();
        let json = serde_json::to_string(&settings).unwrap();
        assert_eq!(GateSettings::from_json(&json).unwrap(), settings);
    }
}
