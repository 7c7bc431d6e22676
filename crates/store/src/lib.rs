//! The durable plane of Tidegate.
//!
//! - [`Jobs`], [`Registry`], [`Versions`], [`Letters`], [`Schedules`], [`Upkeep`], [`Records`]: what every backend does, by noun. [`Store`] is all of them.
//! - [`params`]: what goes in and what comes out.
//! - [`machine`]: the operations themselves, written once over [`rows::Rows`]. The in-memory store and SQLite run this
//!   same machine; they differ in where rows live and what makes them durable.
//! - [`gates`]: what gates say about jobs, told to a store.
//! - [`feed`]: what happened to jobs, for whoever follows along; [`meter`]: how much of it, counted.
//! - [`memory`]: the reference model.
//! - [`served`]: whether somebody serves a queue.
//! - [`offer`]: a document of the registry as it comes in.
//!
//! `now` and the seed are arguments everywhere, so histories can be replayed and backends compared reply by reply.
#![warn(missing_docs)]

mod error;
pub mod feed;
#[doc(hidden)]
pub mod forward;
pub mod gates;
pub mod letters;
pub mod machine;
pub mod memory;
pub mod meter;
pub mod offer;
mod pace;
pub mod params;
pub mod rows;
pub mod served;
mod signals;
mod subscribers;
mod traits;

pub use error::{Error, Result};
pub use feed::Feed;
pub use memory::MemoryStore;
pub use meter::Meter;
pub use pace::Pace;
pub use signals::Signals;
pub use subscribers::subscribers;
pub use traits::{Jobs, Letters, Records, Registry, Schedules, Store, Upkeep, Versions};
