//! An independent judge. It looks at calls and replies, keeps its own small model of who holds what, and says what
//! must never be. It uses none of the machine's counters.
//!
//! Feed it every call that reached the store, in the order in which the store took them, also those whose reply was
//! lost on the way. The referee knows these rules and nothing else:
//!
//! - a claim and an upkeep take back every lease whose time is over; until then its holder may still write;
//! - a clock that goes back by at most a second stood still; if it goes back further, leases end within their length
//!   and starts leave the window within its length, counted from the new time;
//! - a stall of an ordinary lease makes its jobs suspects; only a stall of a suspect's own lease counts against it;
//! - a job waits for those it names, or for what they were recovered as; when one is dead or cancelled, its rule decides at once.
//!   Flows here are small enough for one commit.

mod event;
mod flows;
mod model;
mod violation;

pub use event::Event;
pub use model::{JobFate, Referee};
pub use violation::Violation;
