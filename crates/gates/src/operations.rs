//! What an operator asks of the gates (S4's playbooks). Every change says who made it and why.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidegate_core::codes;
use tidegate_core::gates::{
    BreakerOrder, GateSet, Holder, HolderView, Micros, PartitionView, SECOND, ScopeView, WaiterView,
};

use crate::GatesError;

/// Who changes something, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Who.
    pub who: String,
    /// Why.
    pub why: String,
}

/// A gate that is switched off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The gate.
    pub gate: String,
    /// Since when.
    pub at: Micros,
    /// By whom, and why.
    pub note: Note,
}

/// A breaker that an operator has opened for all keys, also for those that come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The gate.
    pub gate: String,
    /// Until when.
    pub until: Micros,
    /// Since when.
    pub at: Micros,
    /// By whom, and why.
    pub note: Note,
}

impl Order {
    /// What an order to all keys leaves standing, if anything.
    pub(crate) fn of(gate: &str, order: BreakerOrder, at: Micros, note: &Note) -> Option<Self> {
        let BreakerOrder::Trip { lasts } = order else { return None };
        Some(Self { gate: gate.into(), until: at + lasts, at, note: note.clone() })
    }
}

/// What operators have said about a domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// Gates that are switched off.
    pub off: Vec<Switch>,
    /// Breakers that are open for all keys.
    pub orders: Vec<Order>,
}

impl Said {
    /// The switch of a gate that is off.
    pub(crate) fn switch_of(&self, gate: &str) -> Option<&Switch> {
        self.off.iter().find(|switch| switch.gate == gate)
    }
}

/// One change that an operator made; the newest are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// When.
    pub at: Micros,
    /// What: `force_release n-7`, `disable slots`.
    pub what: String,
    /// By whom, and why.
    pub note: Note,
}

/// What a forced release did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// The leases.
    pub leases: Vec<HolderView>,
    /// Who was woken.
    pub woken: Vec<Holder>,
}

/// How much state a domain has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainUsage {
    /// The domain.
    pub domain: String,
    /// Parts that its state is split into.
    pub partitions: u32,
    /// What they have together.
    pub total: PartitionView,
    /// About how much memory that takes.
    pub bytes: u64,
}

/// Whether an order to breakers did something: one for all keys holds for those that come, too.
pub(crate) fn has_effect(changed: u32, key: Option<&str>) -> bool {
    changed > 0 || key.is_none()
}

/// How an order to breakers is recorded.
pub(crate) fn order_text(gate: &str, key: Option<&str>, order: BreakerOrder) -> String {
    let of = key.map_or(String::new(), |key| format!(" for {key}"));
    match order {
        BreakerOrder::Reset => format!("reset {gate}{of}"),
        BreakerOrder::Trip { lasts } => format!("trip {gate}{of} for {} s", lasts / 1_000_000),
    }
}

/// Longest time that a breaker is kept open by one order.
pub const LONGEST_ORDER: Micros = 366 * 24 * 3_600 * SECOND;

/// Refuses an order to what is no breaker, and one for a time that makes no sense.
pub(crate) fn refuse_order(
    domain: &str,
    gate: &str,
    is_breaker: bool,
    order: BreakerOrder,
) -> Result<(), GatesError> {
    let refused = |code, detail| Err(GatesError::Refused { code, detail });
    match order {
        _ if !is_breaker => {
            let detail = format!("gate {gate} of {domain} is no breaker; nothing was changed");
            refused(codes::GATE_NOT_FOUND, detail)
        }
        BreakerOrder::Trip { lasts } if !(1..=LONGEST_ORDER).contains(&lasts) => {
            let detail = "a breaker is tripped for 1 µs to 366 days; nothing was changed".to_owned();
            refused(codes::INVALID_REQUEST, detail)
        }
        _ => Ok(()),
    }
}

/// One key cannot be reset while all are ordered to be open.
pub(crate) fn refuse_under(
    order: Option<&Order>,
    key: Option<&str>,
    asked: BreakerOrder,
    now: Micros,
) -> Result<(), GatesError> {
    match (order.filter(|o| o.until > now), key, asked) {
        (Some(order), Some(_), BreakerOrder::Reset) => {
            let Order { gate, note, .. } = order;
            let detail = format!(
                "{gate} is open for all keys, by {}: {}; reset it for all of them",
                note.who, note.why
            );
            Err(GatesError::Refused { code: codes::INVALID_REQUEST, detail })
        }
        _ => Ok(()),
    }
}

/// The operations. What changes nothing is not recorded.
#[async_trait]
pub trait GateOperations: Send + Sync {
    /// Sets the gates of a domain. What is held and learned stays.
    async fn configure(&self, domain: &str, set: GateSet) -> Result<(), GatesError>;

    /// What every gate and key of a domain has now, at most `most` keys.
    async fn inspect(
        &self,
        now: Option<Micros>,
        domain: &str,
        most: usize,
    ) -> Result<Vec<ScopeView>, GatesError>;

    /// Who holds, at most `most`.
    async fn holders(&self, domain: &str, most: usize) -> Result<Vec<HolderView>, GatesError>;

    /// Who waits, at most `most`.
    async fn waiters(&self, domain: &str, most: usize) -> Result<Vec<WaiterView>, GatesError>;

    /// Ends the leases of a holder, also in quarantine. A dry run only says which.
    async fn force_release(
        &self,
        now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        dry_run: bool,
        note: Note,
    ) -> Result<Released, GatesError>;

    /// Puts a waiter first. False if it does not wait.
    async fn promote(
        &self,
        now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        note: Note,
    ) -> Result<bool, GatesError>;

    /// Resets or trips a breaker, of one key that has state, or of all, also those that come. How many have state.
    async fn order_breaker(
        &self,
        now: Option<Micros>,
        domain: &str,
        breaker: (&str, Option<&str>),
        order: BreakerOrder,
        note: Note,
    ) -> Result<u32, GatesError>;

    /// Switches a gate, or all gates of a domain, off or on again. What is off now.
    async fn switch(
        &self,
        domain: &str,
        gate: Option<&str>,
        off: bool,
        note: Note,
    ) -> Result<Vec<Switch>, GatesError>;

    /// What is switched off now. A layer that has no switches of its own asks the one below it.
    async fn switches(&self, domain: &str) -> Result<Vec<Switch>, GatesError>;

    /// Breakers that are open for all keys by an operator's order now.
    async fn orders(&self, domain: &str) -> Result<Vec<Order>, GatesError>;

    /// The gates of a domain as they are set; none if that cannot be told here.
    async fn gates_of(&self, domain: &str) -> Result<Option<GateSet>, GatesError> {
        let _ = domain;
        Ok(None)
    }

    /// What this process has last heard that operators have said; nobody is asked. What they said holds on while the backend is away.
    fn heard(&self, domain: &str) -> Arc<Said> {
        let _ = domain;
        Arc::default()
    }

    /// The newest changes that operators made in a domain, the newest last.
    async fn changes(&self, domain: &str) -> Result<Vec<Change>, GatesError>;

    /// How much state there is, per domain.
    async fn usage(&self) -> Result<Vec<DomainUsage>, GatesError>;

    /// Forgets the state of a domain, and of nothing else. What went, or would go.
    async fn clear(&self, domain: &str, dry_run: bool, note: Note) -> Result<DomainUsage, GatesError>;
}
