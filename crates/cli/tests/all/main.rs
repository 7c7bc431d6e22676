//! The command line, as a user meets it. One program: each further one costs a build and a link of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail where it stands")]

mod bench_http;
mod common;
mod config;
mod demo;
mod doctor;
mod documents;
mod gates;
mod handlers;
mod letters;
mod look;
mod many;
mod observing;
mod ops;
mod postgres;
mod refusals;
mod registry;
mod schedules;
mod server;
mod traces;
mod work;
