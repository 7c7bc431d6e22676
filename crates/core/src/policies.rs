//! Retry policies by name, by category of failure and by platform: what ships, and what a registry says instead.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::failure::Category;
use crate::ids::ConnectorName;
use crate::limits;
use crate::retry::RetryPolicy;

/// Platforms whose base delay is multiplied, as shipped (S0 §3.1, J5).
pub const PLATFORMS: [(&str, f64); 1] = [("mercadolibre", 1.5)];

/// What a registry says about retries, where it differs from what ships.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policies {
    /// By name: new ones, and shipped ones that are to be different.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub named: BTreeMap<String, RetryPolicy>,
    /// By category of failure.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<Category, RetryPolicy>,
    /// By connector: what the first delay is multiplied with.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub platforms: BTreeMap<ConnectorName, f64>,
}

impl Policies {
    /// Whether nothing differs from what ships.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.categories.is_empty() && self.platforms.is_empty()
    }

    /// The policy with this name.
    pub fn named(&self, name: &str) -> Option<Cow<'_, RetryPolicy>> {
        match self.named.get(name) {
            Some(own) => Some(Cow::Borrowed(own)),
            None => RetryPolicy::named(name).map(Cow::Owned),
        }
    }

    /// Every name that [`named`](Self::named) knows.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let own = self.named.keys().map(String::as_str);
        RetryPolicy::NAMES.into_iter().filter(|n| !self.named.contains_key(*n)).chain(own)
    }

    /// The policy of a category; `None` where the kind or its queue decides.
    pub fn of_category(&self, category: Category) -> Option<Cow<'_, RetryPolicy>> {
        match self.categories.get(&category) {
            Some(own) => Some(Cow::Borrowed(own)),
            None => RetryPolicy::of_category(category).map(Cow::Owned),
        }
    }

    /// What the first delay is multiplied with when this API is called.
    pub fn factor(&self, connector: Option<&ConnectorName>) -> f64 {
        let Some(connector) = connector else { return 1.0 };
        let shipped = || PLATFORMS.iter().find(|(name, _)| *name == connector.as_str()).map(|(_, f)| *f);
        self.platforms.get(connector).copied().or_else(shipped).unwrap_or(1.0)
    }

    /// Takes over what another one says; what it does not name stays.
    pub fn merge(&mut self, other: &Self) {
        self.named.extend(other.named.iter().map(|(k, v)| (k.clone(), v.clone())));
        self.categories.extend(other.categories.iter().map(|(k, v)| (*k, v.clone())));
        self.platforms.extend(other.platforms.iter().map(|(k, v)| (k.clone(), *v)));
    }

    /// Says what is wrong, if anything.
    pub fn check(&self) -> Result<(), String> {
        if self.named.len() > limits::MAX_POLICIES {
            return Err(format!(
                "{} policies; at most {} are allowed",
                self.named.len(),
                limits::MAX_POLICIES
            ));
        }
        for (name, policy) in &self.named {
            check_name(name)?;
            policy.check().map_err(|why| format!("policy {name}: {why}"))?;
        }
        for (category, policy) in &self.categories {
            policy.check().map_err(|why| format!("category {}: {why}", category.as_str()))?;
        }
        match self.platforms.iter().find(|(_, f)| !FACTOR.contains(*f)) {
            Some((name, _)) => Err(format!("platform {name}: {FACTOR_RULE}")),
            None => Ok(()),
        }
    }
}

/// Factors that are accepted.
pub const FACTOR: std::ops::RangeInclusive<f64> = 0.1..=100.0;
/// In words.
pub const FACTOR_RULE: &str = "a factor must be between 0.1 and 100";

/// Refuses a name that a policy cannot have.
pub fn check_name(name: &str) -> Result<(), String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > limits::MAX_NAME_BYTES || !name.chars().all(fine) || name == "inherit"
    {
        return Err(format!("{name:?} is no name for a policy: letters, digits and _ - . are allowed"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_registry_says_wins_over_what_ships() {
        let mut policies = Policies::default();
        assert_eq!(policies.named("webhook").as_deref(), RetryPolicy::named("webhook").as_ref());
        assert!(policies.named("patient").is_none());
        policies.named.insert("webhook".into(), RetryPolicy::none());
        policies.named.insert("patient".into(), RetryPolicy::standard());
        policies.categories.insert(Category::TransientServer, RetryPolicy::standard());
        assert_eq!(*policies.named("webhook").unwrap(), RetryPolicy::none());
        assert_eq!(policies.names().filter(|n| *n == "webhook").count(), 1);
        assert!(policies.names().any(|n| n == "patient") && policies.names().any(|n| n == "critical"));
        assert_eq!(*policies.of_category(Category::TransientServer).unwrap(), RetryPolicy::standard());
        let meli = ConnectorName::new("mercadolibre").unwrap();
        assert!((policies.factor(Some(&meli)) - 1.5).abs() < f64::EPSILON);
        policies.platforms.insert(meli.clone(), 3.0);
        assert!((policies.factor(Some(&meli)) - 3.0).abs() < f64::EPSILON);
        assert!((policies.factor(None) - 1.0).abs() < f64::EPSILON);
        policies.check().unwrap();
        let stored = serde_json::to_string(&policies).unwrap();
        assert_eq!(serde_json::from_str::<Policies>(&stored).unwrap(), policies);
    }
}
