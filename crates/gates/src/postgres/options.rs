//! How the gates are connected.

use std::time::Duration;

use tidegate_pg::{Address, BadAddress, Habits, Schema};

use crate::GatesError;

/// Most connections for operations.
const MAX_CONNECTIONS: usize = 64;

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
            schema: Schema::default(),
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
        self.schema = Schema::new(name).map_err(refused)?;
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

    /// Where a URL leads to, and the options with what it says of them.
    pub(super) fn reach(mut self, url: &str) -> Result<(Address, Self), GatesError> {
        let (name, connect_timeout) = (&*self.name, self.connect_timeout);
        let habits = Habits { name, connect_timeout, user_timeout: Duration::from_secs(5) };
        let address = Address::parse(url, habits).map_err(refused)?;
        self.schema = address.schema.clone().unwrap_or(self.schema);
        self.pooled = address.pooled.unwrap_or(self.pooled);
        Ok((address, self))
    }

    /// The channel that wakes processes.
    pub(super) fn channel(&self) -> String {
        format!("{}_gates", self.schema.name())
    }
}

fn refused(bad: BadAddress) -> GatesError {
    GatesError::Address { problem: bad.problem, hint: bad.hint }
}
