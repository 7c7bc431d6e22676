//! The HTTP server of Tidegate: one store, for any language.
//!
//! - [`Server::bind`] opens the port and [`Server::run`] serves until it is told to stop.
//! - [`routes`]: the one table of what there is, and who may use it. The router, the checks and the tests are made from
//!   it.
//! - [`keys`]: API keys, for whoever manages them without a server.
//!
//! A request passes: connection bounds ([`Limits`]) → route → key, role and tenant → rate → body → handler → store.
//! Whatever goes wrong is answered as a [`tidegate_wire::Problem`].
#![warn(missing_docs)]

mod access;
pub mod alerts;
mod app;
mod audience;
mod body;
mod call;
mod clock;
mod connection;
mod delivery;
mod gate;
mod handlers;
mod hub;
mod io;
pub mod keys;
mod mint;
mod openapi;
mod options;
mod origin;
mod places;
mod portion;
mod pulse;
mod rate;
mod repeats;
pub mod routes;
mod server;
mod stream;
mod tasks;
mod tls;
mod turnstile;
mod upkeep;
mod watch;

pub use access::{Access, Allow, Tenancy};
pub use clock::Clock;
pub use openapi::document as openapi;
pub use options::{Limits, Rate, ServerGates, ServerOptions, ServerRoles, TlsFiles};
pub use server::Server;
pub use tidegate_outgoing as outgoing;
