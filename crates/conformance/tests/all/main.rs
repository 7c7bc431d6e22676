//! The suites over every store. One program: each further one costs a build and a link of its own.

mod common;
mod communities;
mod differential;
mod flock;
mod letters;
mod memory;
mod pg;
mod postgres;
mod postgres_differential;
mod postgres_processes;
mod properties;
mod referee;
mod reload;
mod sqlite;
