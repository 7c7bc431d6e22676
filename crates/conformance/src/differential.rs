//! Seeded random histories, run against two stores, every reply compared.
//!
//! A history is a sequence of operations with their times, made from one seed: enqueues with unique keys, duplicates
//! and invalid input, claims by several processes, settlements with fresh and stale tickets, heartbeats, operators'
//! changes, upkeep, restarts, and a clock that sometimes goes back. Lease numbers may differ between stores, so
//! tickets are compared by the order in which they were handed out.

mod history;
mod operation;

pub use history::{Mismatch, compare, run};
pub use operation::{Operation, Reply};
