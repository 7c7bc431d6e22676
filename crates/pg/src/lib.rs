//! How the store and the gates reach a Postgres: the one definition of what a URL may say, what a schema may be called, how
//! connections are encrypted and who does their work.
//!
//! Contract: nothing here knows of jobs or gates, and no error repeats a password.

mod address;
mod schema;
mod tls;

pub use address::{Address, Ear, Habits, NotConnected, Work};
pub use schema::Schema;

/// An address, or an option in it, that is not acceptable: what is wrong, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {hint}")]
pub struct BadAddress {
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub hint: String,
}

impl BadAddress {
    fn new(problem: impl ToString, hint: &str) -> Self {
        Self { problem: problem.to_string(), hint: hint.into() }
    }
}
