//! What the gates answer. Every wait says which gate, why, with the numbers, and when to come back.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::call::{Holder, Target};
use super::config::Unit;
use super::units::{Micros, Points, show_span};

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// Everything is reserved.
    Admitted(Admitted),
    /// Nothing is reserved; come back.
    Wait(Wait),
    /// Nothing is reserved, and it will never pass.
    Refused(Refused),
}

impl Admission {
    /// Who should ask now.
    pub fn woken(&self) -> &[Holder] {
        match self {
            Self::Admitted(admitted) => &admitted.woken,
            Self::Wait(wait) => &wait.woken,
            Self::Refused(refused) => &refused.woken,
        }
    }
}

/// A permit, and what else there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admitted {
    /// The permit: renew it while the call runs, settle it when it ends.
    pub permit: Permit,
    /// How many further calls like this one would pass now.
    pub remaining: u32,
    /// Of whom.
    #[serde(default)]
    pub room: Room,
    /// Who should ask now.
    pub woken: Vec<Holder>,
}

/// How many further calls would pass now, after those that wait already, as far as gates are concerned that know no endpoint and no
/// subject: what one account has used up says nothing about the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Of anybody, as far as the gates are concerned that everybody shares.
    pub shared: u32,
    /// Of the caller's tenant and account, as far as their own gates are concerned.
    pub own: u32,
}

impl Room {
    /// As much as anybody wants.
    pub const PLENTY: Self = Self { shared: u32::MAX, own: u32::MAX };
    /// Nobody passes.
    pub const NONE: Self = Self { shared: 0, own: 0 };
}

impl Default for Room {
    /// What somebody says who knows nothing of rooms.
    fn default() -> Self {
        Self::PLENTY
    }
}

/// What an admitted call holds.
#[must_use = "a permit holds capacity until it is settled or lapses"]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permit {
    /// For whom.
    pub target: Arc<Target>,
    /// By whom.
    pub holder: Holder,
    /// Number of this admission; grows for ever.
    pub fence: i64,
    /// What was reserved.
    pub cost: Points,
    /// When.
    pub admitted_at: Micros,
    /// Until when the call may start.
    pub use_by: Micros,
    /// Until when it lasts without renewal.
    pub expires_at: Micros,
}

/// Why, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The gate that lets the call in last.
    pub gate: Arc<str>,
    /// Why.
    pub because: Because,
    /// When to ask again.
    pub retry_at: Micros,
    /// Place in line, 1 is the first; none if no place is kept.
    pub position: Option<u32>,
    /// When it first asked: to be given back as `since`.
    pub arrived: Micros,
    /// Who should ask now: somebody ahead of it who could pass, and has not heard of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub woken: Vec<Holder>,
}

impl Wait {
    /// One sentence: "bucket 40 of 100, needs 52, at 50/s: 0.24 s; third in line".
    pub fn explain(&self, now: Micros) -> String {
        let place = self.position.map(|p| format!("; {} in line", ordinal(p))).unwrap_or_default();
        format!("{}: {}{place}", self.because, show_span(self.retry_at - now))
    }
}

/// A call that can never pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The gate.
    pub gate: Arc<str>,
    /// Why.
    pub because: Never,
    /// Who should ask now: who may have what the caller gave up, or what had lapsed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub woken: Vec<Holder>,
}

/// Why a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Because {
    /// So much has lapsed at once that it is cleared away first.
    Purging,
    /// As many wait as may.
    QueueFull {
        /// Waiting.
        waiting: u32,
    },
    /// The provider said to stay away.
    CoolingDown,
    /// A smooth rate has too little.
    Smooth {
        /// Units left.
        free: i64,
        /// Units needed.
        need: i64,
        /// So many…
        rate: i64,
        /// …in this time.
        every: Micros,
        /// What is counted.
        unit: Unit,
    },
    /// A window is full.
    Window {
        /// Units used.
        used: i64,
        /// Units needed.
        need: i64,
        /// Units allowed…
        max: i64,
        /// …in this time.
        every: Micros,
        /// What is counted.
        unit: Unit,
    },
    /// The provider's bucket has too little.
    Level {
        /// What is left, as far as we know.
        level: Points,
        /// Its size.
        capacity: Points,
        /// What the call needs.
        need: Points,
        /// What is kept back, after the provider refused calls.
        margin: Points,
        /// What comes back per second.
        restore_per_s: Points,
    },
    /// The provider has cut its bucket below the cost, or its size is only a guess.
    Cut {
        /// Its size now.
        capacity: Points,
        /// What the call needs.
        need: Points,
    },
    /// All slots are taken, or kept for those ahead.
    Slots {
        /// Taken.
        used: u32,
        /// Allowed.
        limit: u32,
    },
    /// Somebody has the lock, or is ahead.
    Locked,
    /// The service fails.
    BreakerOpen,
    /// Somebody tries whether the service is back.
    BreakerProbing {
        /// How many may try.
        probes: u32,
    },
    /// The load comes back step by step.
    BreakerRamp {
        /// Calls now.
        live: u32,
        /// Allowed now.
        allowed: u32,
    },
    /// The service fails for this process alone.
    BreakerProcess,
    /// The gates' backend is out of reach, and this gate waits for it.
    BackendAway,
    /// The backend may have lost who has the lock; it is given out when nobody can have it.
    BackendLost,
    /// The key has as many calls as it may.
    QuotaSlots {
        /// Calls now.
        live: u32,
        /// Allowed.
        max: u32,
        /// Whether it asks for far more at once.
        hoarding: bool,
    },
    /// The key has spent what it may.
    QuotaCost {
        /// Spent in the window.
        used: Points,
        /// Needed.
        need: Points,
        /// Allowed…
        max: Points,
        /// …in this time.
        every: Micros,
    },
}

impl std::fmt::Display for Because {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = |n: i64, unit: Unit| match unit {
            Unit::Calls => n.to_string(),
            Unit::Cost => Points(n).to_string(),
        };
        match *self {
            Self::Purging => f.write_str("lapsed permits are being cleared away"),
            Self::QueueFull { waiting } => write!(f, "{waiting} wait already, no more may"),
            Self::CoolingDown => f.write_str("the provider said to stay away"),
            Self::Smooth { free, need, rate, every, unit } => {
                let (free, need, rate) = (units(free, unit), units(need, unit), units(rate, unit));
                write!(f, "rate has {free}, needs {need}, at {rate} per {}", show_span(every))
            }
            Self::Window { used, need, max, every, unit } => {
                let (used, need, max) = (units(used, unit), units(need, unit), units(max, unit));
                write!(f, "window {used} of {max} per {}, needs {need}", show_span(every))
            }
            Self::Level { level, capacity, need, margin, restore_per_s } => {
                write!(f, "bucket {level} of {capacity}, needs {need}")?;
                if margin.0 > 0 {
                    write!(f, " and {margin} kept back")?;
                }
                write!(f, ", at {restore_per_s}/s")
            }
            Self::Cut { capacity, need } => write!(f, "bucket is cut to {capacity}, needs {need}"),
            Self::Slots { used, limit } => write!(f, "slots {used} of {limit}"),
            Self::Locked => f.write_str("locked"),
            Self::BreakerOpen => f.write_str("breaker is open"),
            Self::BreakerProbing { probes } => write!(f, "breaker is half open, {probes} may try"),
            Self::BreakerRamp { live, allowed } => {
                write!(f, "breaker has closed, {live} of {allowed} for now")
            }
            Self::BreakerProcess => f.write_str("breaker is open for this process"),
            Self::BackendAway => f.write_str("the gates' backend is out of reach, this gate waits for it"),
            Self::BackendLost => {
                f.write_str("the gates' backend may have lost who has the lock, it is not given out yet")
            }
            Self::QuotaSlots { live, max, hoarding } => {
                write!(f, "quota {live} of {max} at a time{}", if hoarding { ", hoarding" } else { "" })
            }
            Self::QuotaCost { used, need, max, every } => {
                write!(f, "quota {used} of {max} per {}, needs {need}", show_span(every))
            }
        }
    }
}

/// Why a call can never pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Never {
    /// It costs more than the gate ever has.
    CostAboveCapacity {
        /// The cost, in the gate's units (milli points, or calls).
        cost: i64,
        /// What the gate has at most.
        capacity: i64,
    },
    /// The holder has asked again since.
    StaleAsk,
    /// Its deadline has passed.
    Deadline,
    /// Its cost or lease is out of bounds.
    Invalid,
}

impl std::fmt::Display for Never {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CostAboveCapacity { cost, capacity } => {
                write!(f, "it costs {} and there are never more than {}", Points(*cost), Points(*capacity))
            }
            Self::StaleAsk => f.write_str("the holder has asked again since"),
            Self::Deadline => f.write_str("its deadline has passed"),
            Self::Invalid => f.write_str("its cost or lease is out of bounds"),
        }
    }
}

/// The answer to a settlement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// What became of the lease.
    pub state: LeaseEnd,
    /// Who should ask now.
    pub woken: Vec<Holder>,
    /// What changed for others to know.
    pub changes: Vec<Change>,
}

/// What became of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseEnd {
    /// Everything was given back.
    Released,
    /// Its slots stay taken for a while, because the provider may still be at it.
    Quarantined {
        /// Until then.
        until: Micros,
    },
    /// It was settled before, or has lapsed.
    Gone,
}

/// Something that changed on a settlement and is worth a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Change {
    /// An adaptive limit moved.
    Limit {
        /// The gate.
        gate: Arc<str>,
        /// From.
        from: u32,
        /// To.
        to: u32,
        /// Whether the provider refused calls; otherwise it went well.
        refused: bool,
    },
    /// A breaker changed.
    Breaker {
        /// The gate.
        gate: Arc<str>,
        /// To what.
        to: BreakerState,
    },
    /// Somebody else uses the provider's bucket.
    ForeignUse {
        /// The gate.
        gate: Arc<str>,
        /// At least so much since the last report.
        cost: Points,
    },
}

/// What a breaker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Lets calls pass.
    Closed,
    /// Lets nothing pass.
    Open,
    /// Lets some try.
    HalfOpen,
    /// Has closed and lets the load come back.
    Ramp,
    /// Lets nothing of one process pass.
    OpenForProcess,
}

/// The answer to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Renewal {
    /// It lasts longer now.
    Renewed {
        /// Until then.
        expires_at: Micros,
    },
    /// It was settled, or has lapsed: stop.
    Gone,
}

/// The answer to a cancelled wait, or to time that passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freed {
    /// How many leases and places went.
    pub gone: u32,
    /// Whether more is due.
    pub more: bool,
    /// Who should ask now.
    pub woken: Vec<Holder>,
}

fn ordinal(n: u32) -> String {
    match n {
        1 => "first".into(),
        2 => "second".into(),
        3 => "third".into(),
        n => format!("number {n}"),
    }
}
