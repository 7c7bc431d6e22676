//! Gates: rate budgets, slots, locks, breakers and quotas, decided in one step. The specification is
//! `docs/adr/0008-gates.md`; this is the same as code, without clock, randomness or I/O.
//!
//! - [`GateSet`] is what people write; [`Compiled`] is what decides.
//! - [`Partition`] is the state of a domain, or of the part of it that shares a key: `admit`, `settle`, `renew`,
//!   `cancel_wait`, `expire`, `next_wakeup`, each with `now`. It can be serialised, and goes on where it was.
//! - One lease per admission, one line per scope, whatever the number of gates.

mod admit;
mod breaker;
mod call;
mod check;
mod compiled;
pub mod config;
mod level;
mod line;
mod operate;
mod partition;
mod pool;
mod quota;
mod reconfigure;
mod reply;
mod scope;
mod settle;
mod slab;
mod smooth;
#[cfg(test)]
mod tests;
mod units;
mod window;

use serde::{Deserialize, Serialize};

pub use crate::hash::{KeyHasher, hash_bytes};
pub use call::{
    Call, DomainName, End, Failure, Holder, MAX_HOLDER_BYTES, Observed, Outcome, PARTS, PERMIT_LEASE, Target,
};
pub use check::InvalidGates;
pub use compiled::{Compiled, Whose};
pub use config::{Gate, GateSet, Kind, Part, Unit};
pub use operate::{BreakerOrder, GateView, HolderView, PartitionView, ScopeView, WaiterView};
pub use partition::Partition;
pub use reply::{
    Admission, Admitted, Because, BreakerState, Change, Freed, LeaseEnd, Never, Permit, Refused, Renewal,
    Room, Settled, Wait,
};
pub use units::{Micros, Points, SECOND, Span};

/// Most gates in a set.
pub const MAX_GATES: usize = 32;
/// Most different pairs of `per` and `only` in a set.
pub const MAX_SCOPES: usize = 8;
/// Most priorities that are told apart.
pub const MAX_LEVELS: usize = 8;
/// Leases, and places, that are cleared away in one step.
pub const PURGE_BATCH: usize = 64;
/// Most holders woken by one step.
pub const MAX_WOKEN: usize = 4;

/// What a key starts with that nobody has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    /// Everything: nobody has called.
    Full,
    /// Nothing: what was known until then has been lost.
    Empty {
        /// When.
        at: Micros,
    },
}
