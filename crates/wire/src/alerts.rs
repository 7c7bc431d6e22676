//! Alerts on the wire.

use serde::{Deserialize, Serialize};
use tidegate_core::alerts::{Incident, Phase, Rule, Silence};

use crate::Time;

/// Incidents that are open or about to be, the worst first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Alerts {
    /// The incidents.
    pub alerts: Vec<Alert>,
}

/// An incident.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Alert {
    /// The rule.
    #[cfg_attr(feature = "openapi", schema(example = "queue_depth_high"))]
    pub rule: String,
    /// What it is about: `system`, or `queue:`, `kind:` or `domain:` and a name.
    #[cfg_attr(feature = "openapi", schema(example = "queue:billing"))]
    pub target: String,
    /// How many incidents of these two there have been.
    pub number: u64,
    /// `pending` or `firing`.
    pub phase: String,
    /// `info`, `warning`, `error` or `critical`.
    pub severity: String,
    /// Since when.
    pub since: Time,
    /// When somebody was last told.
    pub told_at: Option<Time>,
    /// What they are told.
    pub message: String,
    /// What to do.
    pub runbook: String,
    /// Whether nobody is told for now.
    pub silenced: bool,
}

impl Alert {
    /// An incident as it is shown.
    pub fn new(incident: Incident, silenced: bool) -> Self {
        let phase = match incident.phase {
            Phase::Quiet => "quiet",
            Phase::Pending => "pending",
            Phase::Firing => "firing",
        };
        Self {
            rule: incident.rule,
            target: incident.target,
            number: incident.number,
            phase: phase.into(),
            severity: incident.severity.as_str().into(),
            since: Time(incident.since),
            told_at: incident.told_at.map(Time),
            message: incident.message,
            runbook: incident.runbook,
            silenced,
        }
    }
}

/// Every rule, and where tellings go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Rules {
    /// The rules.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub rules: Vec<Rule>,
    /// The channels.
    pub channels: Vec<ChannelView>,
}

/// A channel, without what is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChannelView {
    /// Its name.
    pub name: String,
    /// `log`, `slack`, `pagerduty` or `webhook`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where it goes: the host alone.
    pub to: Option<String>,
}

/// Silences that have not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Silences {
    /// The silences.
    pub silences: Vec<SilenceView>,
}

/// A silence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SilenceView {
    /// Its id.
    pub id: String,
    /// The rule; all if none.
    pub rule: Option<String>,
    /// The target; all if none.
    pub target: Option<String>,
    /// When it ends.
    pub until: Time,
    /// Who.
    pub by: String,
    /// Why.
    pub why: String,
}

impl SilenceView {
    /// A silence as it is shown.
    pub fn new(id: String, silence: Silence) -> Self {
        let Silence { rule, target, until, by, why } = silence;
        Self { id, rule, target, until: Time(until), by, why }
    }
}

/// Somebody does not want to hear of something for a while. What is not said matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewSilence {
    /// The rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// How long, at most 30 days.
    pub for_ms: u64,
    /// Why.
    pub why: String,
    /// Who; the key's name if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// Try a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TestAlert {
    /// Which.
    pub channel: String,
}

/// A delivery that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TestedAlert {
    /// The job that delivers it; none for the log.
    pub job: Option<String>,
}
