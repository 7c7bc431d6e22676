//! Gates that tasks and processes share: rate budgets, slots, locks, breakers and quotas, decided in one step.
//!
//! The rules are in [`tidegate_core::gates`] and in `docs/adr/0008-gates.md`. Here is what surrounds them:
//!
//! - [`Gates`]: the four operations of a call, and [`GateOperations`]: those of an operator. One trait each for every
//!   backend.
//! - [`InProcess`]: the rules behind a lock. It is the specification: other backends give the same replies.
//! - `RedisGates` (feature `redis`): the rules as scripts of a Redis server, for many processes.
//! - [`GateSettings`]: what people write about their gates; [`connect`]: a backend from its address.
//! - [`Watched`]: notes what comes of it all; [`Noticeboard`]: where processes leave what they noted.
//! - [`Fallback`]: goes on in process while such a backend is out of reach.
//! - [`admitted`]: waits for an admission.
//! - `history` (feature): seeded histories that compare backends reply by reply.
#![warn(missing_docs)]

mod backend;
mod error;
mod fallback;
#[cfg(feature = "history")]
pub mod history;
mod in_process;
mod noticeboard;
mod operations;
mod patience;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod settings;
mod turns;
pub mod watched;

use async_trait::async_trait;
use tidegate_core::gates::{
    Admission, Call, Freed, Holder, Micros, Outcome, Permit, Renewal, Settled, Target,
};

pub use backend::{Backend, connect, connect_to_operate};
pub use error::GatesError;
pub use fallback::{BackendState, Cause, Counters, Fallback, FallbackOptions, Health};
pub use in_process::InProcess;
pub use noticeboard::{DomainReport, Footprint, GatesReport, Live, Noticeboard};
pub use operations::{
    Change, DomainUsage, GateOperations, LONGEST_ORDER, Note, Order, Released, Said, Switch,
};
pub use patience::admitted;
#[cfg(feature = "postgres")]
pub use postgres::{PgGates, PgGatesOptions};
#[cfg(feature = "redis")]
pub use redis::{RedisGates, RedisOptions};
pub use settings::GateSettings;
pub use turns::{Turn, Turns};
pub use watched::Watched;

/// What a call asks of the gates. `now` is the backend's own clock unless it is given, which is for tests.
#[async_trait]
pub trait Gates: Send + Sync {
    /// Asks all gates of a call at once: everything is reserved, or nothing. Asking again with the same holder and
    /// `ask` gives the same permit or the same place.
    async fn admit(&self, now: Option<Micros>, call: &Call) -> Result<Admission, GatesError>;

    /// Ends a call. Doing it twice changes nothing.
    async fn settle(
        &self,
        now: Option<Micros>,
        permit: &Permit,
        outcome: &Outcome,
    ) -> Result<Settled, GatesError>;

    /// Makes a permit last longer.
    async fn renew(&self, now: Option<Micros>, permit: &Permit) -> Result<Renewal, GatesError>;

    /// Gives up a place in line.
    async fn cancel_wait(
        &self,
        now: Option<Micros>,
        target: &Target,
        holder: &Holder,
    ) -> Result<Freed, GatesError>;

    /// Clears away what has lapsed in a domain, a bounded part of it, and wakes those who can go on. Nothing depends on it
    /// being called: every operation clears away first. It makes slots of the dead free a little earlier.
    async fn expire(&self, now: Option<Micros>, domain: &str) -> Result<Freed, GatesError>;

    /// The backend's clock, as well as this process knows it.
    fn clock(&self) -> Micros;

    /// Changes when the backend may have lost something that it had acknowledged: it was restarted, or is another server.
    fn generation(&self) -> u64 {
        0
    }

    /// How the backend is, as this process sees it; none where it cannot be out of reach. Whoever wraps a backend passes it on.
    fn health(&self) -> Option<Health> {
        None
    }

    /// Registers for the wake-up of a holder. To be called before asking, so that none is missed.
    fn turn(&self, holder: &Holder) -> Turn;
}
