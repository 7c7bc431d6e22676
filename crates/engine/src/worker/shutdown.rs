//! Shutdown in three acts: nothing more is claimed and what has not started goes back; handlers may finish for a while;
//! what still runs then is asked to stop, aborted after the grace period, and given back without spending an attempt.
//! A second request to stop skips the waiting.

use std::time::Duration;

use tidegate_core::codes;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Shared;
use crate::{Error, Result, StopReason};

/// Where a worker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Claims and runs.
    Working,
    /// Claims nothing more, lets handlers finish.
    Draining,
    /// Handlers are asked to stop, with their grace period.
    Releasing,
    /// Handlers are aborted.
    Now,
    /// Everything is settled.
    Over,
}

/// Waits until the worker stands there.
pub(crate) async fn reached(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    // The sender lives in what the waiting task shares, so it cannot be gone.
    let _ = phase.wait_for(|p| *p == wanted).await;
}

/// The tasks of a worker.
#[derive(Default)]
pub(crate) struct Crew {
    pub(crate) drivers: JoinSet<()>,
    pub(crate) completer: JoinSet<()>,
    pub(crate) services: JoinSet<()>,
}

impl Crew {
    /// Waits for a part to fail, or for one that never ends to end, while the worker works: a defect.
    pub(crate) async fn lost(&mut self) -> Error {
        let ended = loop {
            tokio::select! {
                Some(ended) = self.drivers.join_next() => break ended,
                Some(ended) = self.completer.join_next() => break ended,
                // Some services have nothing to do and end at once.
                Some(ended) = self.services.join_next() => if ended.is_err() { break ended },
            }
        };
        let why = ended.err().map_or_else(|| "it ended by itself".to_owned(), |e| e.to_string());
        Error::new(codes::INTERNAL, format!("a part of the worker failed: {why}"))
    }
}

/// How the producer ended.
type ProducerEnd = std::result::Result<Result<()>, tokio::task::JoinError>;

/// Plays the three acts. `hurry` is the second request. Returns how the producer ended, if it had not before.
pub(crate) async fn perform(
    shared: &Shared,
    crew: Crew,
    producer: &mut JoinSet<Result<()>>,
    drain: Duration,
    hurry: impl Future<Output = ()>,
) -> Result<Option<ProducerEnd>> {
    let Crew { mut drivers, mut completer, mut services } = crew;
    shared.phase.send_replace(Phase::Draining);
    shared.release(shared.desk.close());
    shared.desk.ring_drivers();
    let mut hurry = std::pin::pin!(hurry);
    let hurried = tokio::select! {
        ended = join(&mut drivers) => { ended?; false }
        () = tokio::time::sleep(drain) => false,
        () = &mut hurry => true,
    };
    if !drivers.is_empty() {
        tracing::info!(worker = %shared.name, hurried, "handlers that still run are asked to stop");
        shared.phase.send_replace(if hurried { Phase::Now } else { Phase::Releasing });
        shared.roster.stop_all(StopReason::Shutdown);
        let stopped = tokio::select! {
            ended = join(&mut drivers) => { ended?; true }
            () = &mut hurry, if !hurried => false,
        };
        if !stopped {
            shared.phase.send_replace(Phase::Now);
            join(&mut drivers).await?;
        }
    }
    // A claim under way is let finish: its jobs go back at once instead of waiting for their lease to end.
    let late = producer.join_next().await;
    shared.outbox.close();
    let written = tokio::select! {
        ended = join(&mut completer) => { ended?; true }
        () = &mut hurry, if !hurried => false,
    };
    if !written {
        shared.phase.send_replace(Phase::Now);
        join(&mut completer).await?;
    }
    shared.phase.send_replace(Phase::Over);
    join(&mut services).await?;
    Ok(late)
}

async fn join(tasks: &mut JoinSet<()>) -> Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|e| Error::new(codes::INTERNAL, format!("a part of the worker failed: {e}")))?;
    }
    Ok(())
}

/// Requests to stop from outside: SIGTERM and SIGINT.
pub(crate) struct Requests {
    terminate: Signal,
    interrupt: Signal,
}

impl Requests {
    pub(crate) fn listen() -> Result<Self> {
        let listen = |kind| {
            signal(kind)
                .map_err(|e| Error::new(codes::INTERNAL, format!("signals cannot be listened to: {e}")))
        };
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
