//! The HTTP API as types, shared by server and client.
//!
//! Conventions, everywhere in the API:
//! - A point in time is an RFC 3339 string in UTC with milliseconds ([`Time`]); requests may use any offset.
//! - A span is an integer of milliseconds, and its name ends in `_ms`.
//! - Ids are strings: jobs `job_…`, leases `lease_…`, tickets `tkt_…`, cursors and processes opaque. None of them is a
//!   JSON number: some languages read numbers as floats, and fencing tokens must not be rounded.
//! - Payloads and results are any JSON, passed through as they were written ([`Json`]).
//! - `null` and a missing field mean the same. Unknown fields are refused, with the nearest known name.
//! - `now` is the server's. Replies that name times a worker acts on carry the server's `now` beside them.
//! - Errors are [`Problem`]s (RFC 9457).
#![warn(missing_docs)]

pub mod alerts;
pub mod claims;
pub mod events;
pub mod gates;
pub mod health;
pub mod jobs;
mod json;
pub mod keys;
pub mod letters;
mod near;
pub mod parks;
mod problem;
pub mod query;
pub mod read;
pub mod registry;
#[cfg(feature = "openapi")]
pub mod schema;
pub mod settlements;
mod text;
mod time;
pub mod why;
pub mod workers;

pub use json::Json;
pub use near::nearest;
pub use problem::{CONTENT_TYPE as PROBLEM_CONTENT_TYPE, Problem, ProblemBody};
pub use text::{Cursor, Lease, Process, Ticket};
pub use time::Time;
