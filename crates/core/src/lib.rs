//! The pure rules of Tidegate.
//!
//! Nothing here does I/O, reads a clock or draws a random number: `now` and the seed are arguments.
//! So a month can be simulated in seconds and a failure replayed from its seed.
#![warn(missing_docs)]

pub mod alerts;
pub mod codes;
pub mod failure;
pub mod gates;
pub mod hash;
pub mod ids;
pub mod job;
pub mod lanes;
pub mod leases;
pub mod letters;
pub mod limits;
pub mod metrics;
pub mod near;
pub mod payload;
pub mod policies;
pub mod registry;
pub mod retry;
pub mod schedule;
pub mod schema;
pub mod seed;
pub mod slo;
pub mod time;
pub mod trace;
pub mod why;
