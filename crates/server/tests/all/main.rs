//! The server, over real connections. One program: each further one costs a build and a link of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail where it stands")]

mod bad_input;
mod bounds;
mod common;
mod connections;
mod control;
mod events;
mod gates;
mod jobs;
mod observing;
mod openapi;
mod security;
mod soak;
mod tls;
mod work;
