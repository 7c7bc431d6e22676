//! How a store is connected.

use std::time::Duration;

use tidegate_core::codes;
use tidegate_pg::{Address, BadAddress, Habits, Schema};
use tidegate_store::{Error, Result};

/// How a store is connected.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, set by a method of its own")]
pub struct PgOptions {
    pub(crate) schema: Schema,
    pub(crate) migrate: bool,
    pub(crate) pooled: bool,
    pub(crate) listen: bool,
    pub(crate) durable_claims: bool,
    pub(crate) name: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) idle_in_transaction: Duration,
    pub(crate) lock_timeout: Duration,
    pub(crate) poll: Duration,
    pub(crate) old_snapshot: Duration,
    pub(crate) late: Duration,
    /// Statements in place of the real ones, for tests that show what a mistake would do.
    pub(crate) instead: Vec<(&'static str, &'static str)>,
}

impl Default for PgOptions {
    fn default() -> Self {
        Self {
            schema: Schema::default(),
            migrate: true,
            pooled: false,
            listen: true,
            durable_claims: false,
            name: "tidegate".into(),
            connect_timeout: Duration::from_secs(5),
            idle_in_transaction: Duration::from_secs(2),
            lock_timeout: Duration::from_secs(8),
            poll: Duration::from_millis(500),
            old_snapshot: Duration::from_mins(1),
            late: Duration::from_mins(1),
            instead: vec![],
        }
    }
}

impl PgOptions {
    /// The defaults: schema `tidegate`, migrated at start, woken by `LISTEN`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Schema of the tables; the functions of version 1 live in the schema of the same name with `_v1` behind it.
    pub fn schema(mut self, name: &str) -> Result<Self> {
        self.schema = Schema::new(name).map_err(|bad| refused(codes::INVALID_NAME, bad))?;
        Ok(self)
    }

    /// Whether a missing or older schema is brought up to date at start. If not, it is refused.
    #[must_use]
    pub fn migrate(mut self, yes: bool) -> Self {
        self.migrate = yes;
        self
    }

    /// Behind a pooler in transaction mode: settings are made in every transaction instead of once, and other
    /// processes' commits are found by polling instead of `LISTEN`.
    #[must_use]
    pub fn pooled(mut self, yes: bool) -> Self {
        (self.pooled, self.listen) = (yes, !yes);
        self
    }

    /// Whether to `LISTEN` for other processes' commits. Without it they are found by polling.
    #[must_use]
    pub fn listen(mut self, yes: bool) -> Self {
        self.listen = yes;
        self
    }

    /// Whether claims and heartbeats wait for the server's disk, too. Without it a crash of the server may forget the
    /// claims of its last second: such a job runs again, and the first run's outcome is refused.
    #[must_use]
    pub fn durable_claims(mut self, yes: bool) -> Self {
        self.durable_claims = yes;
        self
    }

    /// Name of this process in the server's list of sessions.
    #[must_use]
    pub fn application_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How often to look for what others did while no notification comes.
    #[must_use]
    pub fn poll_every(mut self, interval: Duration) -> Self {
        self.poll = interval;
        self
    }

    /// How long a process that stands still inside a transaction may hold up the others.
    #[must_use]
    pub fn idle_in_transaction(mut self, limit: Duration) -> Self {
        self.idle_in_transaction = limit;
        self
    }

    /// How long to wait for the lock before whoever stands still with it is looked for.
    #[must_use]
    pub fn lock_timeout(mut self, limit: Duration) -> Self {
        self.lock_timeout = limit;
        self
    }

    /// Age of an open snapshot from which on health warns.
    #[must_use]
    pub fn old_snapshot(mut self, age: Duration) -> Self {
        self.old_snapshot = age;
        self
    }

    /// How far the time of an operation may be behind the latest one before it counts as a clock that went back: it may
    /// have waited for the lock, or come from a machine whose clock is a little behind.
    #[must_use]
    pub fn late_readings(mut self, slack: Duration) -> Self {
        self.late = slack;
        self
    }

    /// Another text for a statement, for tests that show what a mistake would do.
    #[doc(hidden)]
    #[must_use]
    pub fn instead(mut self, path: &'static str, text: &'static str) -> Self {
        self.instead.push((path, text));
        self
    }

    /// The settings of a session or, with `local`, of a transaction.
    pub(crate) fn settings(&self, local: bool) -> String {
        let scope = if local { "SET LOCAL" } else { "SET" };
        let settings = [
            ("idle_in_transaction_session_timeout", self.idle_in_transaction.as_millis().to_string()),
            ("lock_timeout", self.lock_timeout.as_millis().to_string()),
            ("statement_timeout", "20000".to_owned()),
            // A stopped process that does not read its answers is not idle, but its window is shut.
            ("tcp_user_timeout", "10000".to_owned()),
            ("tcp_keepalives_idle", "10".to_owned()),
            ("tcp_keepalives_interval", "5".to_owned()),
            ("tcp_keepalives_count", "3".to_owned()),
            // The plans of the statements are known and must not change with what the planner thinks of a table that it
            // has not counted lately: always by index, and not planned anew each time.
            ("plan_cache_mode", "force_generic_plan".to_owned()),
            ("enable_seqscan", "off".to_owned()),
            ("enable_bitmapscan", "off".to_owned()),
            ("enable_hashjoin", "off".to_owned()),
            ("enable_mergejoin", "off".to_owned()),
            ("jit", "off".to_owned()),
            ("synchronous_commit", "on".to_owned()),
            ("client_encoding", "'UTF8'".to_owned()),
            ("default_transaction_isolation", "'read committed'".to_owned()),
        ];
        let each = settings.iter().map(|(name, value)| format!("{scope} {name} = {value};"));
        each.collect::<Vec<_>>().join(" ")
    }

    /// Where a URL leads to, and the options with what it says of them.
    pub(crate) fn reach(mut self, url: &str) -> Result<(Address, Self)> {
        let (name, connect_timeout) = (&*self.name, self.connect_timeout);
        let habits = Habits { name, connect_timeout, user_timeout: Duration::from_secs(10) };
        let address = Address::parse(url, habits).map_err(|bad| refused(codes::INVALID_REQUEST, bad))?;
        self.schema = address.schema.clone().unwrap_or(self.schema);
        Ok((
            address.clone(),
            match address.pooled {
                Some(yes) => self.pooled(yes),
                None => self,
            },
        ))
    }
}

fn refused(code: codes::Code, bad: BadAddress) -> Error {
    Error::new(code, bad.to_string())
}
