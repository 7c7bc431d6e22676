//! The library, as a program uses it. One program: each further one costs a build and a link of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail where it stands")]

mod enqueue;
mod flows;
mod gates;
mod handlers;
mod leases;
mod outage;
mod presence;
mod quickstart;
mod readme;
mod shutdown;
mod signals;
mod sqlite;
mod traces;
mod untyped;
mod worker;
