//! The client, against a real server. One program: each further one costs a build and a link of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail where it stands")]

mod common;
mod conformance;
mod connect;
mod enqueue;
mod events;
mod examples;
mod gates;
mod outage;
mod worker;
