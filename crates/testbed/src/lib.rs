//! Servers for tests. Nothing here is part of the product.
#![warn(missing_docs)]

pub mod postgres;
pub mod proxy;
pub mod redis;
