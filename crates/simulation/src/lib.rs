//! A deterministic world around the machine that every store runs.
//!
//! One seed decides everything: how time passes, when the clock steps, which process dies before or after which call,
//! whose reply is lost, who sleeps through its lease and writes afterwards, what operators change, what handlers do.
//! After every call the referee of `tidegate-conformance`, which uses none of the machine's counters, says whether a
//! promise was broken. At the end the world heals, and everything that was accepted must come to exactly one end, with
//! all capacity given back.
//!
//! - [`run`]: one world, from a [`Scenario`].
//! - [`plane`]: the store as the world sees it.
//! - [`schedules`]: a year of schedules, with a referee of their own.
//! - [`faults`]: stores that break a promise on purpose, to prove that the referee notices.

mod actors;
mod acts;
mod check;
pub mod faults;
pub mod gates;
pub mod plane;
mod scenario;
pub mod schedules;
mod world;

pub use scenario::{Crash, Crashes, Scenario};
pub use world::{Failure, Summary, World, run};

/// A number from the environment, for counts and seeds.
pub fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
