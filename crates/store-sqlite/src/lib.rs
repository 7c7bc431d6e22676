//! The embedded store: one SQLite file, one owner, one writer with group commit.
//!
//! - [`SqliteStore`] implements every trait of [`tidegate_store`]; what it answers is durable (write-ahead log, synced
//!   before the answer). Concurrent callers share a commit.
//! - A data directory has one owner at a time; a second opener is told who that is. Reading `tidegate.db` with other
//!   tools is fine.
//! - [`SqliteRows`] keeps what the machine decides; [`backup`](fn@backup) and [`restore`] copy a whole store.
//!
//! ```
//! # fn main() -> tidegate_store::Result<()> {
//! # let temporary = tempfile::tempdir().expect("a directory");
//! # let dir = temporary.path();
//! use tidegate_core::time::Timestamp;
//! use tidegate_store_sqlite::SqliteStore;
//!
//! let now = Timestamp(1_763_000_000_000);
//! let store = SqliteStore::open(dir, now)?;
//! let refused = SqliteStore::open(dir, now).unwrap_err();
//! assert_eq!(refused.code, tidegate_core::codes::STORE_OWNED);
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod backup;
mod checkpointer;
mod error;
mod operations;
mod owner;
mod readers;
mod rows;
mod schema;
mod search;
mod store;
mod syncer;
#[cfg(test)]
mod tests;
mod writer;

pub use backup::{backup, restore};
pub use rows::SqliteRows;
pub use store::{OpenOptions, SqliteStore};
