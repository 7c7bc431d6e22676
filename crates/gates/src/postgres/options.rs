//! How the gates are connected.

use std::time::Duration;

use crate::GatesError;

/// Longest name of a schema, as for the store: what stands behind it in the channel's name must fit.
const MAX_SCHEMA: usize = 48;
/// Most connections for operations.
const MAX_CONNECTIONS: usize = 64;

/// Name of the schema that holds the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Schema(String);

impl Schema {
    fn new(name: &str) -> Result<Self, GatesError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts || name.len() > MAX_SCHEMA || !name.chars().all(fits) || name.starts_with("pg_") {
            let hint = format!("use letters, digits and _, up to {MAX_SCHEMA}, not pg_…");
            return Err(GatesError::address(format!("`{name}` is not a name for a schema"), &hint));
        }
        Ok(Self(name.to_owned()))
    }

    pub(super) fn name(&self) -> &str {
        &self.0
    }

    /// As it stands in a statement.
    pub(super) fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }

    /// The channel that wakes processes.
    pub(super) fn channel(&self) -> String {
        format!("{}_gates", self.0)
    }
}

/// How the gates are connected.
#[derive(Debug, Clone)]
pub struct PgGatesOptions {
    pub(super) schema: Schema,
    pub(super) name: String,
    pub(super) pooled: bool,
    pub(super) connections: usize,
    pub(super) patience: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) lock_timeout: Duration,
    pub(super) unused: Duration,
    pub(super) sweep_every: Duration,
}

impl Default for PgGatesOptions {
    fn default() -> Self {
        Self {
            schema: Schema("tidegate".into()),
            name: "tidegate gates".into(),
            pooled: false,
            connections: 4,
            patience: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_secs(2),
            unused: Duration::from_hours(1),
            sweep_every: Duration::from_mins(10),
        }
    }
}

impl PgGatesOptions {
    /// The defaults: the store's schema, four connections, five seconds of patience.
    pub fn new() -> Self {
        Self::default()
    }

    /// Schema of the tables.
    pub fn schema(mut self, name: &str) -> Result<Self, GatesError> {
        self.schema = Schema::new(name)?;
        Ok(self)
    }

    /// Behind a pooler in transaction mode: settings are made in every transaction, and nobody listens; who waits asks
    /// again at the time it was told.
    #[must_use]
    pub fn pooled(mut self, yes: bool) -> Self {
        self.pooled = yes;
        self
    }

    /// How many partitions this process works on at the same time, each over a connection of its own.
    #[must_use]
    pub fn connections(mut self, count: usize) -> Self {
        self.connections = count.clamp(1, MAX_CONNECTIONS);
        self
    }

    /// How long an operation may take, with reconnecting, until it fails as unreachable.
    #[must_use]
    pub fn patience(mut self, limit: Duration) -> Self {
        self.patience = limit;
        self
    }

    /// Name of this process in the server's list of sessions.
    #[must_use]
    pub fn application_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How long a partition stays that nobody uses and that has nothing to remember.
    #[must_use]
    pub fn unused(mut self, kept: Duration) -> Self {
        self.unused = kept;
        self
    }

    /// The settings of a session or, with `local`, of a transaction.
    pub(super) fn settings(&self, local: bool) -> String {
        let scope = if local { "SET LOCAL" } else { "SET" };
        let lock = self.lock_timeout.as_millis();
        let settings = [
            // A process that stands still inside a transaction holds up all others of that partition.
            ("idle_in_transaction_session_timeout", "2000".to_owned()),
            ("lock_timeout", lock.to_string()),
            ("statement_timeout", (2 * lock).to_string()),
            ("tcp_user_timeout", "5000".to_owned()),
            ("plan_cache_mode", "force_generic_plan".to_owned()),
            ("jit", "off".to_owned()),
            ("synchronous_commit", "on".to_owned()),
            ("client_encoding", "'UTF8'".to_owned()),
        ];
        let each = settings.iter().map(|(name, value)| format!("{scope} {name} = {value};"));
        each.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_need_more_than_quotes_are_refused() {
        assert_eq!(Schema::new("own_2").unwrap().channel(), "own_2_gates");
        for bad in ["", "1st", "a\"b", "a.b", "pg_own", &"x".repeat(49)] {
            assert!(Schema::new(bad).is_err(), "{bad}");
        }
    }
}
