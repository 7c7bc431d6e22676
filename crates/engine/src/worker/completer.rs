//! Writes outcomes. One write is under way at a time and carries everything that was ready when it began: alone when
//! the worker is idle, thousands together when it is busy. An outcome is given up only with its lease, never silently.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::codes::{self, Fault};
use tidegate_core::failure::{Category, Failure};
use tidegate_core::job::State;
use tidegate_store::params::{Outcome, Settle, Settled, Settlement};
use tokio::sync::Notify;

use super::Shared;
use super::shutdown::{Phase, reached};

/// Most outcomes in one write.
const BATCH: usize = 4_096;
/// Outcomes not yet written beyond which nothing more is claimed.
const PRESSURE: usize = 4 * BATCH;
/// First and longest pause before an unreachable store is tried again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// Outcomes on their way to the store.
#[derive(Default)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    /// Outcomes not yet written, those of the write under way included.
    unsettled: AtomicUsize,
    bell: Notify,
}

#[derive(Default)]
struct Inner {
    ready: Vec<Settlement>,
    closed: bool,
}

impl Outbox {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, settlement: Settlement) {
        let mut inner = self.inner();
        let first = inner.ready.is_empty();
        inner.ready.push(settlement);
        self.unsettled.fetch_add(1, Ordering::Relaxed);
        drop(inner);
        // The others find the completer awake.
        if first {
            self.bell.notify_one();
        }
    }

    /// No more outcomes will come.
    pub(crate) fn close(&self) {
        self.inner().closed = true;
        self.bell.notify_one();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.unsettled.load(Ordering::Relaxed) == 0
    }

    /// Whether the store does not keep up.
    pub(crate) fn is_pressed(&self) -> bool {
        self.unsettled.load(Ordering::Relaxed) >= PRESSURE
    }

    /// The next batch; `None` if there will be none.
    async fn take(&self) -> Option<Vec<Settlement>> {
        loop {
            {
                let mut inner = self.inner();
                if inner.ready.len() > BATCH {
                    return Some(inner.ready.drain(..BATCH).collect());
                }
                if !inner.ready.is_empty() {
                    return Some(std::mem::take(&mut inner.ready));
                }
                if inner.closed {
                    return None;
                }
            }
            self.bell.notified().await;
        }
    }
}

/// Writes outcomes until the outbox is closed and empty.
pub(crate) async fn run(shared: std::sync::Arc<Shared>) {
    while let Some(batch) = shared.outbox.take().await {
        let (count, pressed) = (batch.len(), shared.outbox.is_pressed());
        flush(&shared, batch).await;
        let left = shared.outbox.unsettled.fetch_sub(count, Ordering::Relaxed) - count;
        shared.tide.say_settled();
        if pressed || (left == 0 && shared.until_idle) {
            shared.desk.producer.notify_one();
        }
    }
}

/// Writes a batch, however long the store takes to be reachable again.
async fn flush(shared: &Shared, mut batch: Vec<Settlement>) {
    let mut pause = BACKOFF.0;
    let mut complained = false;
    while !batch.is_empty() {
        let error = match write(shared, batch.clone()).await {
            Ok(()) => return,
            Err(error) => error,
        };
        if error.code == codes::STORE_CLOSED || *shared.phase.borrow() == Phase::Now {
            return give_up(shared, &batch, &error);
        }
        if !matches!(error.code.fault, Fault::Unreachable | Fault::Ours) {
            return one_by_one(shared, batch).await;
        }
        if !complained {
            tracing::error!(code = %error.code, outcomes = batch.len(), "outcomes cannot be written: {error}; trying again");
            complained = true;
        }
        let mut phase = shared.phase.subscribe();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = reached(&mut phase, Phase::Now) => {}
        }
        pause = (pause * 2).min(BACKOFF.1);
        let lost = batch.extract_if(.., |s| shared.ledger.is_lost(s.ticket.lease)).collect::<Vec<_>>();
        give_up(shared, &lost, &error);
    }
}

/// One write.
async fn write(shared: &Shared, batch: Vec<Settlement>) -> tidegate_store::Result<()> {
    let kinds: Vec<Kind> = batch.iter().map(|s| Kind::of(&s.outcome)).collect();
    let tickets: Vec<_> = batch.iter().map(|s| s.ticket).collect();
    let settle = Settle { settlements: batch, now: shared.tide.now(), seed: shared.tide.mint().seed() };
    let replies = shared.tide.store().settle(settle).await?;
    shared.ledger.settled(tickets.iter().map(|t| t.lease));
    if let Some(runs) = &shared.runs {
        runs.settled(tickets.into_iter().zip(replies.iter().copied().map(Some)));
    }
    let mut report = shared.tally.change();
    for (kind, reply) in kinds.into_iter().zip(replies) {
        match (reply, kind) {
            (Settled::Stale, _) => report.stale_refused += 1,
            (Settled::Applied(State::Completed), _) => report.completed += 1,
            (Settled::Applied(State::Cancelled), _) => report.cancelled += 1,
            (Settled::Applied(State::Dead), kind) => {
                report.dead += 1;
                report.failed += u64::from(kind == Kind::Fail);
            }
            (_, Kind::Fail) => {
                report.failed += 1;
                report.retried += 1;
            }
            (_, Kind::Snooze) => report.snoozed += 1,
            (_, Kind::Wait) => report.waited += 1,
            (_, Kind::Other) => report.released += 1,
        }
    }
    Ok(())
}

/// What is needed of an outcome to count its reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fail,
    Snooze,
    /// For a gate.
    Wait,
    Other,
}

impl Kind {
    fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Fail(_) => Self::Fail,
            Outcome::Snooze { gate: Some(_), .. } => Self::Wait,
            Outcome::Snooze { gate: None, .. } => Self::Snooze,
            Outcome::Complete(_) | Outcome::Release | Outcome::Cancel => Self::Other,
        }
    }
}

/// One outcome that the store does not accept must not hold up the others: it becomes a failure that says so. A store
/// that is out of reach meanwhile is waited for, as ever.
async fn one_by_one(shared: &Shared, batch: Vec<Settlement>) {
    for settlement in batch {
        let ticket = settlement.ticket;
        let Err(error) = write(shared, vec![settlement.clone()]).await else { continue };
        let unreachable = matches!(error.code.fault, Fault::Unreachable | Fault::Ours);
        if !unreachable && matches!(settlement.outcome, Outcome::Fail(_)) {
            // Not even a failure is accepted: there is nothing else to say about this job.
            give_up(shared, &[settlement], &error);
            continue;
        }
        let again = if unreachable {
            settlement
        } else {
            let text = format!("the outcome was refused: {}", error.detail);
            let outcome = Outcome::Fail(Failure::new(Category::LogicError, error.code.id, text));
            if let Some(runs) = &shared.runs {
                runs.ended(ticket, &outcome, shared.tide.store().clock_ahead_ms());
            }
            Settlement { ticket, outcome }
        };
        Box::pin(flush(shared, vec![again])).await;
    }
}

fn give_up(shared: &Shared, batch: &[Settlement], error: &tidegate_store::Error) {
    if batch.is_empty() {
        return;
    }
    tracing::error!(
        code = %error.code,
        outcomes = batch.len(),
        "outcomes are given up with their leases, their jobs will run again: {error}"
    );
    shared.ledger.settled(batch.iter().map(|s| s.ticket.lease));
    if let Some(runs) = &shared.runs {
        runs.settled(batch.iter().map(|s| (s.ticket, None)));
    }
    shared.tally.change().unsettled += batch.len() as u64;
}
