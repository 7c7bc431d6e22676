//! One server: a few connections that all tasks share, made again when they break.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind, Value,
};
use tidegate_core::gates::hash_bytes;

use super::link::host_and_port;
use super::plan::Plan;
use super::scripts::{LIBRARY, Operation};

/// What a server says that does not know a set of gates, or the library.
const NO_SET: &str = "TGSET";
const NO_FUNCTION: &str = "Function not found";
/// How often a server is given what it does not have, for one call: the library, the set, and both again after a flush in between.
const GIVEN: usize = 4;

/// Something to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parcel<'a> {
    pub(super) command: &'a Cmd,
    /// The set of gates that a function needs; none for a plain command.
    pub(super) plan: Option<&'a Plan>,
    /// Which of the connections: the same turn, the same connection.
    pub(super) turn: usize,
    /// Only on connections up to this number.
    pub(super) newest: usize,
    /// Whether the server was named by one that gives a slot away.
    pub(super) asking: bool,
}

impl<'a> Parcel<'a> {
    /// A command that any connection may carry.
    pub(super) fn plain(command: &'a Cmd, turn: usize) -> Self {
        Self { command, plan: None, turn, newest: usize::MAX, asking: false }
    }
}

/// One server.
pub(super) struct Node {
    pub(super) client: Client,
    config: AsyncConnectionConfig,
    /// Each with the number of its making.
    shared: Vec<tokio::sync::Mutex<Option<(usize, MultiplexedConnection)>>>,
    /// Whose turn among the connections it is. Each server has its own: with one for all, calls that go to two servers in turns would
    /// use every second connection.
    turns: AtomicUsize,
    /// Which run of the server the newest connection belongs to.
    run: AtomicU64,
    /// Commands sent so far.
    sent: AtomicU64,
}

impl Node {
    pub(super) fn new(
        info: ConnectionInfo,
        connections: usize,
        patience: Duration,
    ) -> Result<Self, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(patience))
            .set_response_timeout(Some(patience));
        let shared = (0..connections.max(1)).map(|_| tokio::sync::Mutex::default()).collect();
        let (turns, run, sent) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { client: Client::open(info)?, config, shared, turns, run, sent })
    }

    /// The next connection in turn.
    pub(super) fn turn(&self) -> usize {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    /// Where it is; empty for a socket in the file system.
    pub(super) fn host(&self) -> String {
        host_and_port(self.client.get_connection_info()).map_or_else(String::new, |(host, _)| host)
    }

    /// Which run of the server is asked.
    pub(super) fn run(&self) -> u64 {
        self.run.load(Ordering::Acquire)
    }

    /// Commands sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    async fn connection(
        &self,
        slot: usize,
        made: &AtomicUsize,
    ) -> Result<(usize, MultiplexedConnection), RedisError> {
        let mut shared = self.shared[slot].lock().await;
        if let Some(there) = &*shared {
            return Ok(there.clone());
        }
        let mut new = self.client.get_multiplexed_async_connection_with_config(&self.config).await?;
        let told: String = redis::cmd("INFO").arg("server").query_async(&mut new).await?;
        let run = super::info(&told, "run_id").unwrap_or_default();
        self.run.store(hash_bytes(run.as_bytes()), Ordering::Release);
        let made = made.fetch_add(1, Ordering::AcqRel) + 1;
        *shared = Some((made, new.clone()));
        Ok((made, new))
    }

    async fn forget(&self, slot: usize, made: usize) {
        let mut shared = self.shared[slot].lock().await;
        if shared.as_ref().is_some_and(|(number, _)| *number == made) {
            *shared = None;
        }
    }

    /// Sends it, twice if the connection broke; none if there are only newer connections. A server that turns out not to have
    /// the library or the set of gates is given them. `made` counts the connections.
    pub(super) async fn send(
        &self,
        parcel: Parcel<'_>,
        made: &AtomicUsize,
    ) -> Result<Option<Value>, RedisError> {
        for _ in 0..GIVEN {
            let Some(plan) = parcel.plan else { break };
            match self.exchange(parcel, made).await {
                Err(e) if e.code() == Some(NO_SET) => {
                    let mut define = redis::cmd("FCALL");
                    define.arg(LIBRARY.function(Operation::Define)).arg(0);
                    define.arg(&plan.name).arg(&plan.definition);
                    self.give(&define, parcel.turn, made).await?;
                }
                Err(e) if e.detail().is_some_and(|detail| detail.contains(NO_FUNCTION)) => {
                    let mut load = redis::cmd("FUNCTION");
                    load.arg("LOAD").arg(&LIBRARY.code);
                    match self.give(&load, parcel.turn, made).await {
                        // Another process was faster.
                        Err(e) if e.detail().is_some_and(|detail| detail.contains("already exists")) => {}
                        other => other?,
                    }
                }
                decided => return decided,
            }
        }
        self.exchange(parcel, made).await
    }

    async fn give(&self, command: &Cmd, turn: usize, made: &AtomicUsize) -> Result<(), RedisError> {
        self.exchange(Parcel::plain(command, turn), made).await.map(drop)
    }

    async fn exchange(&self, parcel: Parcel<'_>, counter: &AtomicUsize) -> Result<Option<Value>, RedisError> {
        let slot = parcel.turn % self.shared.len();
        let mut tried = false;
        loop {
            let (made, mut connection) = self.connection(slot, counter).await?;
            if made > parcel.newest {
                return Ok(None);
            }
            self.sent.fetch_add(1, Ordering::Relaxed);
            let sent = if parcel.asking {
                let mut both = redis::pipe();
                both.cmd("ASKING").add_command(parcel.command.clone());
                let answers = connection.send_packed_commands(&both, 1, 1).await;
                answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil))
            } else {
                connection.send_packed_command(parcel.command).await
            };
            let error = match sent {
                Ok(Value::ServerError(e)) => {
                    let error = RedisError::from(e);
                    if error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly) {
                        // It has become a replica; a new connection may lead to the new primary.
                        self.forget(slot, made).await;
                    }
                    return Err(error);
                }
                Ok(value) => return Ok(Some(value)),
                Err(e) => e,
            };
            let broken = error.is_io_error() || error.is_connection_dropped();
            if broken {
                self.forget(slot, made).await;
            }
            if !broken || error.is_timeout() || std::mem::replace(&mut tried, true) {
                return Err(error);
            }
        }
    }
}
