//! A Tidegate server as a store: [`RemoteStore`] speaks the HTTP API and is otherwise a store like any other, so that
//! the library, its workers and the command line work against a server unchanged.
//!
//! What differs from a store in the same process:
//!
//! - **Time is the server's.** Requests say spans, not points in time; replies are by the server's clock, and
//!   [`Store::clock_ahead_ms`](tidegate_store::Store::clock_ahead_ms) says how far it is ahead of ours.
//! - **Waiting for work** is one long poll per worker that found nothing, never a loop of requests. What the poll brings
//!   is handed to the worker's next claim, which it is woken for. Once a second a worker also claims without waiting, as
//!   with any store.
//! - **Lost connections.** Every request is safe to send again: an enqueue carries the job's id, an outcome its ticket.
//!   What the engine does not repeat by itself is repeated here, with backoff, for [`Timeouts::patience`]. A claim whose
//!   reply is lost leaves a lease that nobody holds; it ends after its time and the jobs run then.
//! - **Concurrent enqueues** of one process share requests.
//! - **Upkeep is the server's**: `advance` and `prune` do nothing here.
//! - **Gates** are the server's, too ([`RemoteStore::gates`]): permits end with their own leases, not with the job's.
//! - **Cancels** of running jobs arrive at once if asked for in this process, else with the next heartbeat.
#![warn(missing_docs)]

mod address;
mod backoff;
mod call;
mod combine;
mod follow;
mod gates;
mod options;
mod poll;
mod remote;
mod roots;
mod skew;
mod sse;
mod store;
mod tasks;
mod transport;

pub use gates::RemoteGates;
pub use options::{RemoteOptions, Timeouts};
pub use remote::RemoteStore;
