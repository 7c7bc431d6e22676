//! Configuration of a domain's gates, as it is written by people. [`GateSet::check`] says what is wrong with it, with the
//! path of the setting and what to write instead; [`super::Compiled::new`] turns an accepted one into numbers.

use std::collections::BTreeMap;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::units::{Points, Span};

/// All gates of a domain, and how those wait that cannot pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateSet {
    /// The gates. A call passes all that apply to it, or none.
    pub gates: Vec<Gate>,
    /// How calls wait.
    #[serde(default)]
    pub line: LineSettings,
    /// Shares between tenants; none: first come, first served inside a priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair: Option<Fair>,
    /// How long the slot of a call that lapsed or timed out stays taken, because the provider may still be at it.
    #[serde(default)]
    pub quarantine: Span,
    /// How long after its admission a call may start.
    #[serde(default = "use_by")]
    pub use_by: Span,
}

fn use_by() -> Span {
    Span::millis(50)
}

impl GateSet {
    /// A set with these gates and default settings.
    pub fn of(gates: Vec<Gate>) -> Self {
        Self { gates, line: LineSettings::default(), fair: None, quarantine: Span(0), use_by: use_by() }
    }
}

/// One gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// Its name, once in the set.
    pub name: String,
    /// What it does.
    pub gate: Kind,
    /// Which parts of the target make its key. None: one for the whole domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per: Vec<Part>,
    /// Endpoint classes it applies to. None: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// What it does while its backend is out of reach.
    #[serde(default)]
    pub degraded: Degraded,
    /// Other settings for one key: its parts, joined by `/` in the order connector, tenant, account, endpoint, subject.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, Kind>,
}

impl Gate {
    /// A gate for the whole domain.
    pub fn new(name: &str, gate: Kind) -> Self {
        Self {
            name: name.into(),
            gate,
            per: Vec::new(),
            only: Vec::new(),
            degraded: Degraded::default(),
            overrides: BTreeMap::new(),
        }
    }

    /// The same gate with a key of these parts.
    #[must_use]
    pub fn per(mut self, parts: &[Part]) -> Self {
        self.per = parts.to_vec();
        self
    }

    /// The same gate for these endpoint classes alone.
    #[must_use]
    pub fn only(mut self, endpoints: &[&str]) -> Self {
        self.only = endpoints.iter().map(|e| (*e).to_owned()).collect();
        self
    }
}

/// A part of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The connector.
    Connector,
    /// The tenant.
    Tenant,
    /// The account or shop.
    Account,
    /// The endpoint class.
    Endpoint,
    /// Whatever else the provider counts by, such as the recipient.
    Subject,
}

/// What a gate does while its backend is out of reach (G11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Degraded {
    /// Goes on in process with its share of the limit.
    #[default]
    Local,
    /// Lets everything pass.
    Open,
    /// Lets nothing pass.
    Closed,
}

/// The kinds of gates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A steady rate with a burst: at most burst + rate × T in any window of T.
    Smooth(Smooth),
    /// At most so many in every sliding window.
    Window(Window),
    /// A bucket whose level the provider reports.
    Reported(Reported),
    /// So many at a time.
    Slots(Slots),
    /// One at a time.
    Lock(Lock),
    /// Stops calls to a service that fails.
    Breaker(Breaker),
    /// What one key may use at most.
    Quota(Quota),
}

/// What a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Every call counts one.
    #[default]
    Calls,
    /// Every call counts its cost.
    Cost,
}

/// Settings of [`Kind::Smooth`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Smooth {
    /// So many…
    pub rate: i64,
    /// …in this time.
    pub every: Span,
    /// So many at once after a rest.
    pub burst: i64,
    /// What is counted.
    #[serde(default)]
    pub unit: Unit,
}

/// Settings of [`Kind::Window`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// At most so many…
    pub max: i64,
    /// …in every window of this length.
    pub every: Span,
    /// What is counted.
    #[serde(default)]
    pub unit: Unit,
}

/// Settings of [`Kind::Reported`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reported {
    /// Size of the bucket in points.
    pub capacity: f64,
    /// Points that come back per second.
    pub restore_per_s: f64,
    /// Whether the capacity is known. A guess refuses nothing for ever (G8).
    #[serde(default)]
    pub known: bool,
}

/// Settings of [`Kind::Slots`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slots {
    /// So many at a time.
    pub limit: u32,
    /// Slots kept for a priority (1 is the highest) while it uses fewer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reserved: BTreeMap<u8, u32>,
    /// How often the first in line asks again by itself.
    #[serde(default = "poll")]
    pub poll: Span,
    /// A limit that follows the provider's refusals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<Adaptive>,
}

/// Settings of [`Kind::Lock`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// How often the first in line asks again by itself.
    #[serde(default = "poll")]
    pub poll: Span,
}

impl Default for Lock {
    fn default() -> Self {
        Self { poll: poll() }
    }
}

fn poll() -> Span {
    Span::secs(1)
}

impl Slots {
    /// So many at a time, everything else by default.
    pub fn of(limit: u32) -> Self {
        Self { limit, reserved: BTreeMap::new(), poll: poll(), adaptive: None }
    }
}

/// A limit that rises slowly and falls fast.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adaptive {
    /// Never below.
    pub floor: u32,
    /// Never above.
    pub ceiling: u32,
    /// Share of the limit that is left after a refusal, between 0 and 1.
    #[serde(default = "backoff")]
    pub backoff: f64,
}

fn backoff() -> f64 {
    0.75
}

/// Settings of [`Kind::Breaker`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Breaker {
    /// Failures in the window that open it.
    pub failures: u32,
    /// Instead of a number: the share of failures that opens it, with at least `failures` calls in the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The window.
    pub window: Span,
    /// How long it stays open.
    pub open: Span,
    /// Calls that may try while it is half open, and good answers that close it.
    pub probes: u32,
    /// Time over which the load comes back after it closed.
    pub ramp: Span,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            failures: 5,
            ratio: None,
            window: Span::secs(60),
            open: Span::secs(60),
            probes: 1,
            ramp: Span::secs(8),
        }
    }
}

/// Settings of [`Kind::Quota`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Calls at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Cost in every window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<QuotaCost>,
    /// Live and waiting calls at once that are called hoarding.
    #[serde(default = "hoarding")]
    pub hoarding: u32,
}

fn hoarding() -> u32 {
    100
}

impl Quota {
    /// So many calls at a time.
    pub fn slots(slots: u32) -> Self {
        Self { slots: Some(slots), cost: None, hoarding: hoarding() }
    }
}

/// Cost allowed in every window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaCost {
    /// Points.
    pub max: f64,
    /// The window.
    pub every: Span,
}

/// How calls wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LineSettings {
    /// Priorities that are told apart, 1 to this; 1: plain first come, first served.
    pub levels: u8,
    /// Names of priorities, such as `real-time: 1`.
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub priorities: Names,
    /// Whether waiting improves the order.
    pub ageing: bool,
    /// Time in which ageing brings the lowest priority level with the highest.
    pub max_wait: Span,
    /// Most places in one line.
    pub max: u32,
    /// How long after `retry_at` a place lasts.
    pub grace: Span,
}

impl Default for LineSettings {
    fn default() -> Self {
        Self {
            levels: 4,
            priorities: Names::default(),
            ageing: true,
            max_wait: Span::secs(300),
            max: 10_000,
            grace: Span::secs(2),
        }
    }
}

/// Names of priorities, as given: a name or a number that comes twice is kept for the check to find.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Names(pub Vec<(String, u8)>);

impl Names {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The priority of this name.
    pub fn level(&self, name: &str) -> Option<u8> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, level)| *level)
    }
}

impl Serialize for Names {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().map(|(n, l)| (n, l)))
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Names;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("names of priorities, such as {\"real-time\": 1}")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Names(pairs))
            }
        }
        d.deserialize_map(Pairs)
    }
}

/// Shares between tenants: deficit round robin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fair {
    /// Cost that a tenant may have in the main line at a time.
    pub quantum: Points,
}
