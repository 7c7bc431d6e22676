//! The shared store: one Postgres database, any number of processes.
//!
//! Every process runs the same machine as the embedded store, over rows in Postgres. One row orders their commits, a log
//! of changes keeps their memories equal; so there is one definition of every rule, and a claim costs the same whatever
//! waits. What a store answers is durable; claims and heartbeats alone do not wait for the server's disk.
//!
//! - [`PgStore`] implements every trait of [`tidegate_store`].
//! - [`migrate`] brings the schema up to date; [`PgStore::connect`] does so by itself unless told not to.
//! - Users enqueue inside their own transactions with the SQL function `tidegate.enqueue`.
//! - [`PgStore::health`] says how the database is.
#![warn(missing_docs)]

mod error;
mod flusher;
mod health;
mod inbox;
mod link;
mod listener;
mod operations;
mod options;
mod readers;
mod rows;
mod schema;
mod search;
mod session;
mod statements;
mod store;
mod task;
#[cfg(test)]
mod tests;
mod writer;

pub use health::PgHealth;
pub use options::PgOptions;
pub use schema::{Step, migrate};
pub use store::PgStore;
