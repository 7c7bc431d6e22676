//! Gates: admissions for remote workers, and what operators ask.
//!
//! Permits, waits and views are those of the gates themselves. Their times are microseconds of the gates' clock and costs are
//! points; all of these numbers are below 2^53, so every language reads them exactly. Replies carry that clock's `now_us`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_core::gates::{
    Admission, BreakerOrder, Call, Freed, GateSet, Holder, HolderView, Micros, Outcome, Part, Permit, Points,
    Renewal, ScopeView, Settled, Target, WaiterView,
};
use tidegate_core::ids::ConnectorName;
use tidegate_gates::watched::Trace;
use tidegate_gates::{Change, DomainUsage, GateSettings, GatesReport, Note, Order, Released, Switch};

use crate::Problem;

/// A call asks to be admitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AdmitRequest {
    /// The API that is called; its gates are asked.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "shopify"))]
    pub connector: ConnectorName,
    /// For whom.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// The account or shop.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub account: String,
    /// The class of endpoint.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// Whatever else the provider counts by.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Who asks: the job's id. The same holder asks for the same place and the same permit.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "job_01JD0000000000000000000000"))]
    pub holder: Holder,
    /// Which request of this holder: a repetition has the same number, a new try a higher one. Below 2^53.
    #[serde(default)]
    pub ask: u64,
    /// What the call costs at most, in points.
    #[serde(default = "one")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, example = 52))]
    pub cost: Points,
    /// 1 is the highest; 2 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// How long the permit lasts without renewal; 30 s if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<i64>,
    /// `arrived` of an earlier wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_us: Option<i64>,
    /// Whether a place in line is wanted.
    #[serde(default = "yes")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>))]
    pub place: bool,
    /// Which process asks, for breakers: any number below 2^53.
    #[serde(default)]
    pub process: u64,
}

fn one() -> Points {
    Points::ONE
}

fn yes() -> bool {
    true
}

impl AdmitRequest {
    /// The request for a call.
    pub fn new(call: &Call) -> Result<Self, Problem> {
        let part = |part| call.target.part(part).to_owned();
        let connector = match call.target.part(Part::Connector) {
            "" => call.target.domain(),
            connector => connector,
        };
        Ok(Self {
            connector: ConnectorName::new(connector)?,
            tenant: part(Part::Tenant),
            account: part(Part::Account),
            endpoint: part(Part::Endpoint),
            subject: part(Part::Subject),
            holder: call.holder,
            ask: call.ask,
            cost: call.cost,
            priority: Some(call.priority),
            lease_ms: Some(call.lease / 1_000),
            since_us: call.since,
            place: call.place,
            process: call.process,
        })
    }

    /// The call, in this domain.
    pub fn into_call(self, domain: &str) -> Result<Call, Problem> {
        let mut target = Target::new(domain)?;
        for (part, name, text) in [
            (Part::Connector, "connector", self.connector.as_str()),
            (Part::Tenant, "tenant", &self.tenant),
            (Part::Account, "account", &self.account),
            (Part::Endpoint, "endpoint", &self.endpoint),
            (Part::Subject, "subject", &self.subject),
        ] {
            target = target.with(part, text).map_err(|e| Problem::from(e).at(format!("/{name}")))?;
        }
        let mut call = Call::new(Arc::new(target), self.holder).cost(self.cost);
        call.ask = self.ask & ((1 << 53) - 1);
        call.priority = self.priority.unwrap_or(call.priority);
        call.lease = self.lease_ms.map_or(call.lease, |ms| ms.saturating_mul(1_000));
        call.since = self.since_us;
        call.place = self.place;
        call.process = self.process & ((1 << 53) - 1);
        Ok(call)
    }
}

/// What the gates decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AdmitReply {
    /// `{"admitted": {"permit", "remaining"}}`, `{"wait": {"gate", "because", "retry_at", "position", "arrived"}}` or
    /// `{"refused": {"gate", "because"}}`.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub admission: Admission,
    /// Why it waits or is refused, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(example = "bucket 40 of 100, needs 52, at 50/s: 0.24 s; third in line")
    )]
    pub why: Option<String>,
    /// When to ask again, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<i64>,
    /// The gates' clock.
    pub now_us: Micros,
}

impl AdmitReply {
    /// The reply at this time of the gates' clock.
    pub fn new(admission: Admission, now_us: Micros) -> Self {
        let (why, retry_in_ms) = match &admission {
            Admission::Admitted(_) => (None, None),
            Admission::Wait(wait) => {
                let ms = (wait.retry_at - now_us).max(0).saturating_add(999) / 1_000;
                (Some(wait.explain(now_us)), Some(ms))
            }
            Admission::Refused(refused) => (Some(refused.because.to_string()), None),
        };
        Self { admission, why, retry_in_ms, now_us }
    }
}

/// A permit to be renewed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewRequest {
    /// As it was given.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub permit: Permit,
}

/// Reply to a renewal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenewReply {
    /// `{"renewed": {"expires_at"}}`, or `gone`: it was settled or has lapsed, stop.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::Json))]
    pub renewal: Renewal,
    /// The gates' clock.
    pub now_us: Micros,
}

/// How an admitted call ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettlePermit {
    /// As it was given.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub permit: Permit,
    /// `end` (`"ok"`, `{"throttled": {"retry_after"}}`, `{"failed": "network" | "server" | "timed_out" | "request"}`,
    /// `"abandoned"`, `"unused"`), `actual` cost, `observed` (`level`, `capacity`, `restore_per_s`).
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub outcome: Outcome,
}

/// Reply to a settlement of a permit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettledPermit {
    /// `state`: `released`, `{"quarantined": {"until"}}` or `gone`; who was `woken`; what `changes`.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub settled: Settled,
}

/// Gives up a place in line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CancelWait {
    /// The call's target: `domain`, `connector`, `tenant`, `account`, `endpoint`, `subject`.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub target: Target,
    /// Who waits.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub holder: Holder,
}

/// Reply to a place given up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CancelledWait {
    /// How much was cleared away, and who was woken.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub freed: Freed,
}

/// The settings of all gates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettingsReply {
    /// `gates` by domain, and `connectors` that use another domain's.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub settings: GateSettings,
}

/// All domains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DomainsReply {
    /// One for each: `domain`, `partitions`, `total` (`keys`, `leases`, `quarantined`, `places`), `bytes`.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub domains: Vec<DomainUsage>,
}

/// Everything about a domain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DomainReply {
    /// Its settings, if this server has them.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub settings: Option<GateSet>,
    /// What every gate and key has now.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub scopes: Vec<ScopeView>,
    /// Who holds.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub holders: Vec<HolderView>,
    /// Who waits.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub waiters: Vec<WaiterView>,
    /// Gates that are switched off, since when, by whom and why.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub off: Vec<Switch>,
    /// Breakers that are open for all keys by order, until when, by whom and why.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub orders: Vec<Order>,
    /// What operators changed, the newest last.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub changes: Vec<Change>,
    /// The gates' clock.
    pub now_us: Micros,
}

/// What an operator does to a domain's gates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Act {
    /// End the leases of a holder.
    Release {
        /// Who holds.
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        holder: Holder,
        /// Only say which.
        #[serde(default)]
        dry_run: bool,
    },
    /// Put a waiter first.
    Promote {
        /// Who waits.
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        holder: Holder,
    },
    /// Reset or trip a breaker.
    Breaker {
        /// The gate.
        gate: String,
        /// One key; all that have state if not given.
        #[serde(default)]
        key: Option<String>,
        /// `"reset"`, or `{"trip": {"lasts": microseconds}}`.
        #[cfg_attr(feature = "openapi", schema(value_type = crate::Json))]
        order: BreakerOrder,
    },
    /// Switch a gate off or on.
    Switch {
        /// The gate; all if not given.
        #[serde(default)]
        gate: Option<String>,
        /// Off, or on again.
        off: bool,
    },
    /// Forget everything.
    Clear {
        /// Only say what would go.
        #[serde(default)]
        dry_run: bool,
    },
}

/// Who does what, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActRequest {
    /// What.
    pub act: Act,
    /// Who; the name of the key if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(example = "ada"))]
    pub by: Option<String>,
    /// Why: kept in the record of changes.
    #[cfg_attr(feature = "openapi", schema(example = "the provider has lifted its limit"))]
    pub why: String,
}

impl ActRequest {
    /// An act with its note.
    pub fn new(act: Act, note: Note) -> Self {
        Self { act, by: Some(note.who), why: note.why }
    }
}

/// What an act did, or would do: the field of that act.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Acted {
    /// `leases` that ended, and who was `woken`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub released: Option<Released>,
    /// Whether it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promoted: Option<bool>,
    /// How many breakers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breakers: Option<u32>,
    /// What is off now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<Object>>))]
    pub off: Option<Vec<Switch>>,
    /// What went, or would go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub cleared: Option<DomainUsage>,
    /// More wait for the domain than were called at once: so many, the first. The others come back when they were told. Absent: all
    /// whom it concerns were called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_first: Option<u32>,
}

/// Lives of permits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TracesReply {
    /// The oldest first: `holder`, `target`, `cost`, `priority`, `events` (`at`, `event` and its numbers).
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub traces: Vec<Trace>,
    /// The gates' clock.
    pub now_us: Micros,
}

/// How the gates are doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SloReply {
    /// `verdicts` (`objective`, `domain`, `value`, `samples`, `standing`, `message`), `domains` (`metrics`, `live`), `footprint`
    /// (`bytes`, `keys`), `processes`, `now_us`.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub report: GatesReport,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_survives_the_wire() {
        let target = Target::new("shopify").unwrap().with(Part::Connector, "rest").unwrap();
        let target = target.with(Part::Account, "acme").unwrap();
        let mut call = Call::new(Arc::new(target), Holder::new("job-1#2").unwrap()).cost(Points::whole(52));
        (call.ask, call.priority, call.since, call.process) = (7, 3, Some(1_763_000_000_000_001), 99);
        let json = serde_json::to_string(&AdmitRequest::new(&call).unwrap()).unwrap();
        let read: AdmitRequest = serde_json::from_str(&json).unwrap();
        assert_eq!(read.into_call("shopify").unwrap(), call);
    }

    #[test]
    fn acts_survive_the_wire() {
        let holder = Holder::number(1);
        for act in [
            Act::Release { holder, dry_run: true },
            Act::Promote { holder },
            Act::Breaker { gate: "b".into(), key: None, order: BreakerOrder::Trip { lasts: 5 } },
            Act::Switch { gate: Some("g".into()), off: true },
            Act::Clear { dry_run: false },
        ] {
            let json = serde_json::to_string(&act).unwrap();
            assert_eq!(serde_json::from_str::<Act>(&json).unwrap(), act, "{json}");
        }
    }
}
