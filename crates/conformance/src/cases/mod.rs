//! The cases, by subject. Each one gets a world around an empty store.
//!
//! A case is a `pub async fn` with a sentence for a name; [`suite!`](crate::suite) lists them all, and a test of this
//! crate checks that the list is complete.

pub mod clock;
pub mod control;
pub mod enqueue;
pub mod feed;
pub mod flows;
pub mod gates;
pub mod leases;
pub mod letters;
pub mod limits;
pub mod managed;
pub mod order;
pub mod outcomes;
pub mod parks;
pub mod pauses;
pub mod processor;
pub mod records;
pub mod registry;
pub mod schedules;
pub mod search;
pub mod stalls;
pub mod standing;
pub mod unique;
pub mod upkeep;
pub mod why;
