//! Alerts: rules as data, and the pure step from readings to what somebody is told.
//!
//! - [`READINGS`]: what can be asked, by name; [`Readings`] is what was measured.
//! - [`Rule`]: a [`Condition`] over readings, how long it must hold, how bad it is, where it is told. [`shipped`] has the defaults;
//!   the gates' come from [`crate::slo`].
//! - [`evaluate`]: rules, readings, the [`Incident`]s that are known, silences and `now` in; changed incidents and [`Telling`]s out.
//!
//! An incident fires only from what was kept before, so processes that share a store agree on its number; a telling's
//! [`key`](Telling::key) is then the same for all of them, and whoever is first tells.

mod condition;
mod evaluate;
mod kinds;
mod message;
mod readings;
mod rule;
mod shipped;

use serde::{Deserialize, Serialize};

pub use self::condition::Condition;
pub use self::evaluate::{Book, Evaluated, Incident, Phase, Telling, What, evaluate};
pub use self::kinds::{KindAlerts, in_force};
pub use self::message::{Filled, fill};
pub use self::readings::{
    READINGS, ReadingName, Readings, Scope, Target, is_target, known, table as readings_table,
};
pub use self::rule::{Rule, RulePatch, check_all, merged};
pub use self::shipped::{shipped, table};
use crate::time::Timestamp;

/// Most rules.
pub const MAX_RULES: usize = 500;
/// Most kinds of a registry that have alerts: their letters and results take a search each.
pub const MAX_WATCHED_KINDS: usize = 50;
/// Most incidents that are open or about to be; further ones have to wait for a place.
pub const MAX_INCIDENTS: usize = 1_000;
/// Longest message, filled in.
pub const MAX_MESSAGE_BYTES: usize = 1_024;
/// Longest silence: what is silent for longer is a rule to be switched off.
pub const MAX_SILENCE_MS: i64 = 30 * 24 * 3_600_000;
/// What is no longer measured is over after this long: its queue is gone, or its gates are.
pub const UNMEASURED_MS: i64 = 5 * 60_000;
/// Repeat where a rule does not say.
pub const DEFAULT_REPEAT_MS: i64 = 4 * 3_600_000;
/// How long the record of an incident that is over is kept: while it is, the next one has the next number.
pub const KEPT_MS: i64 = 30 * 24 * 3_600_000;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Look at it today.
    Warning,
    /// Look at it now.
    Error,
    /// Get up.
    Critical,
}

impl Severity {
    /// All, the least first.
    pub const ALL: [Self; 4] = [Self::Info, Self::Warning, Self::Error, Self::Critical];

    /// Its name; those who are paged know the same ones.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
        }
    }
}

/// Somebody does not want to hear of it for a while. What is not said matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Silence {
    /// The rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The target, such as `queue:billing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// When it ends.
    pub until: Timestamp,
    /// Who.
    pub by: String,
    /// Why.
    pub why: String,
}

impl Silence {
    /// Whether it is in force for this.
    pub fn covers(&self, rule: &str, target: &str, now: Timestamp) -> bool {
        now < self.until
            && self.rule.as_deref().is_none_or(|r| r == rule)
            && self.target.as_deref().is_none_or(|t| t == target)
    }
}
