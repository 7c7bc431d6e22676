//! Servers for tests. Nothing here is part of the product.
#![warn(missing_docs)]

pub mod postgres;
pub mod proxy;
pub mod redis;

use std::hash::{BuildHasher as _, RandomState};
use std::net::TcpListener;

use anyhow::{Context as _, Result};

/// A port of 127.0.0.1 for a server that is stopped and comes back: below those that connections get on their way out, or
/// one of them has it when the server returns. The one 10,000 further up is free, too, where servers of a Redis Cluster talk
/// to each other.
pub fn free_port() -> Result<u16> {
    let random = RandomState::new();
    let free = |port: &u16| {
        [*port, port + 10_000].iter().all(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
    };
    let mut ports = (0..1_000_u32).map(|n| 11_000 + (random.hash_one(n) % 11_000) as u16);
    ports.find(free).context("no port between 11,000 and 22,000 is free")
}
