//! Connections to the server: a few that all tasks share, made again when they break, and one that hears wake-ups.
//!
//! Every operation may be sent twice: a time-out does not mean that the script did not run, and scripts give the same
//! answer again. So what failed because a connection broke is tried once more on a new one.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_core::Stream as _;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tidegate_core::gates::{Holder, hash_bytes};

use super::scripts::Operation;
use crate::{GatesError, Turns};

/// How long to wait before hearing again after the connection for wake-ups broke. Timers cover the time between.
const HEAR_AGAIN: Duration = Duration::from_millis(500);

/// Connections.
pub(super) struct Link {
    client: Client,
    config: AsyncConnectionConfig,
    /// Each with the number of its making.
    shared: Vec<tokio::sync::Mutex<Option<(usize, MultiplexedConnection)>>>,
    next: AtomicUsize,
    made: AtomicUsize,
    /// Which run of which server the newest connection belongs to.
    generation: AtomicU64,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The address may contain a password.
        f.debug_struct("Link").field("connections", &self.shared.len()).finish_non_exhaustive()
    }
}

pub(super) fn unreachable(e: RedisError) -> GatesError {
    GatesError::Unreachable(Box::new(e))
}

impl Link {
    pub(super) fn new(url: &str, connections: usize, patience: Duration) -> Result<Self, GatesError> {
        let client = Client::open(url).map_err(unreachable)?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(patience))
            .set_response_timeout(Some(patience));
        let shared = (0..connections.max(1)).map(|_| tokio::sync::Mutex::default()).collect();
        Ok(Self {
            client,
            config,
            shared,
            next: AtomicUsize::new(0),
            made: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
        })
    }

    /// How many connections were made so far: a higher number means that the server may be another one.
    pub(super) fn made(&self) -> usize {
        self.made.load(Ordering::Acquire)
    }

    /// Which run of which server is asked.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    async fn connection(&self, slot: usize) -> Result<(usize, MultiplexedConnection), RedisError> {
        let mut shared = self.shared[slot].lock().await;
        if let Some(there) = &*shared {
            return Ok(there.clone());
        }
        let mut new = self.client.get_multiplexed_async_connection_with_config(&self.config).await?;
        let told: String = redis::cmd("INFO").arg("server").query_async(&mut new).await?;
        let run = super::info(&told, "run_id").unwrap_or_default();
        self.generation.store(hash_bytes(run.as_bytes()), Ordering::Release);
        let made = self.made.fetch_add(1, Ordering::AcqRel) + 1;
        *shared = Some((made, new.clone()));
        Ok((made, new))
    }

    async fn forget(&self, slot: usize, made: usize) {
        let mut shared = self.shared[slot].lock().await;
        if shared.as_ref().is_some_and(|(number, _)| *number == made) {
            *shared = None;
        }
    }

    /// Sends a command, twice if the connection broke.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, RedisError> {
        self.ask_on(command, usize::MAX).await.map(|value| value.unwrap_or(Value::Nil))
    }

    /// As [`Self::ask`], but only on connections up to this number; otherwise nothing is sent.
    async fn ask_on(&self, command: &Cmd, newest: usize) -> Result<Option<Value>, RedisError> {
        let slot = self.next.fetch_add(1, Ordering::Relaxed) % self.shared.len();
        let mut tried = false;
        loop {
            let (made, mut connection) = self.connection(slot).await?;
            if made > newest {
                return Ok(None);
            }
            let error = match connection.send_packed_command(command).await {
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

    /// Runs a script by its hash, on connections up to this number; none if there are only newer ones. Loads it first if the
    /// server does not know it.
    pub(super) async fn run(
        &self,
        script: &Operation,
        key: &str,
        arguments: &[&[u8]],
        newest: usize,
    ) -> Result<Option<Value>, RedisError> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&script.hash).arg(1).arg(key);
        for argument in arguments {
            command.arg(*argument);
        }
        match self.ask_on(&command, newest).await {
            Err(e) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(&script.code);
                self.ask(&load).await?;
                self.ask_on(&command, newest).await
            }
            other => other,
        }
    }

    /// Hears wake-ups on this channel, and calls `changed` when an operator has changed something or may have, for as long
    /// as it runs.
    pub(super) async fn hear(
        &self,
        wakes: &str,
        changes: &str,
        turns: &Turns,
        changed: &tokio::sync::Notify,
    ) {
        loop {
            if let Err(e) = self.hear_once(wakes, changes, turns, changed).await {
                tracing::debug!(error = %e, "gates: wake-ups are not heard, timers go on");
            }
            tokio::time::sleep(HEAR_AGAIN).await;
        }
    }

    async fn hear_once(
        &self,
        wakes: &str,
        changes: &str,
        turns: &Turns,
        changed: &tokio::sync::Notify,
    ) -> Result<(), RedisError> {
        let mut heard = self.client.get_async_pubsub().await?;
        heard.subscribe(&[wakes, changes][..]).await?;
        changed.notify_one();
        let mut messages = pin!(heard.into_on_message());
        while let Some(message) = std::future::poll_fn(|cx| messages.as_mut().poll_next(cx)).await {
            if message.get_channel_name() == changes {
                changed.notify_one();
                continue;
            }
            let names = std::str::from_utf8(message.get_payload_bytes()).unwrap_or_default();
            let holders: Vec<Holder> = names.split(' ').filter_map(|name| Holder::new(name).ok()).collect();
            turns.wake(&holders);
        }
        Ok(())
    }
}
