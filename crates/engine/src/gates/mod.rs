//! Gates in the engine: a handler asks with [`Context::gate`](crate::Context::gate), and what it is given is looked after until
//! its run ends.
//!
//! - A call that must wait for long is put off durably: the job is snoozed until the gate said, in one write with a park of the
//!   scope that the refusal is about, so that no other job of it is claimed in vain. It is no failure, spends no attempt and is
//!   not counted as a snooze; the job's place in the gate's line is kept under its id.
//! - The first in a line waits in place if its turn comes soon ([`Worker::gate_patience`](crate::Worker::gate_patience)).
//! - A permit is renewed with the worker's heartbeat, and settled when its run ends, in whatever way.

pub(crate) mod ask;
pub(crate) mod desk;
pub(crate) mod permit;
mod scope;
mod setup;

pub use ask::GateCall;
pub(crate) use desk::GateDesk;
pub use permit::{Answer, GatePermit};
pub(crate) use setup::Keeper;
pub use tidegate_core::gates::config;
pub use tidegate_core::gates::{
    BreakerOrder, Failure as CallFailure, Gate, GateSet, GateView, Holder, HolderView, InvalidGates, Kind,
    Part, PartitionView, Points, ScopeView, Span, WaiterView,
};
pub use tidegate_gates::watched::{self, Watched};
pub use tidegate_gates::{
    Backend, Change, DomainReport, DomainUsage, Footprint, GateOperations, GateSettings, Gates, GatesError,
    GatesReport, InProcess, Live, Note, Noticeboard, Order, Released, Switch, connect, connect_to_operate,
};
#[cfg(feature = "postgres")]
pub use tidegate_gates::{PgGates, PgGatesOptions};
#[cfg(feature = "redis")]
pub use tidegate_gates::{RedisGates, RedisOptions};
