//! From a bounded queue to a collector. Whoever records a span takes a short lock and goes on; one task sends, in batches. A collector that does not
//! answer is tried a few times, then its batch is dropped and counted.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, watch};

use crate::{Counts, Span};

/// Most spans that are sent at once: a request of some 300 KiB.
const BATCH: usize = 512;
/// How long the first span of a batch waits for others.
const DELAY: Duration = Duration::from_millis(500);
/// Longest time of one try.
const TRY: Duration = Duration::from_secs(10);
/// Tries for one batch, and the pause after the first of them, doubled each time. Spans are worth little when they are late, and what waits behind
/// them is bounded.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);
/// Longest pause that a collector can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Why spans could not be sent. Spans of the batch are dropped and counted, unless they are sent again with success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSent {
    /// Nobody answered, or the answer was to come back later.
    Later {
        /// What happened.
        why: String,
        /// When to come back.
        after: Option<Duration>,
    },
    /// They will not be taken.
    Refused(String),
}

/// Sends spans somewhere.
#[async_trait]
pub trait Exporter: Send + Sync + 'static {
    /// Sends a batch, and says how many of it were not taken. Given up after ten seconds.
    async fn export(&self, spans: &[Span]) -> Result<u64, NotSent>;
}

/// Spans that wait to be sent.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    room: usize,
    bell: Notify,
    hurry: Notify,
    /// How many spans were sent or given up, so that a flush knows when its own are.
    over: watch::Sender<u64>,
    pub(crate) counts: Counts,
}

#[derive(Default)]
struct Waiting {
    spans: VecDeque<Span>,
    /// Taken into the queue so far.
    taken: u64,
    flushes: usize,
    closed: bool,
}

impl Queue {
    pub(crate) fn new(room: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            room: room.max(1),
            bell: Notify::new(),
            hurry: Notify::new(),
            over: watch::Sender::new(0),
            counts: Counts::default(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes as many as there is room for, and counts the rest.
    pub(crate) fn push(&self, mut spans: Vec<Span>) {
        let mut waiting = self.waiting();
        let room = self.room.saturating_sub(waiting.spans.len());
        let dropped = spans.len().saturating_sub(room);
        spans.truncate(room);
        let (first, before) = (waiting.spans.is_empty(), waiting.spans.len());
        waiting.taken += spans.len() as u64;
        waiting.spans.extend(spans);
        let full = before < BATCH && waiting.spans.len() >= BATCH;
        drop(waiting);
        self.counts.dropped.fetch_add(dropped as u64, Ordering::Relaxed);
        if first {
            self.bell.notify_one();
        }
        if full {
            self.hurry.notify_one();
        }
    }

    /// The next batch; `None` if there will be none.
    async fn next(&self) -> Option<Vec<Span>> {
        loop {
            let (any, enough, closed) = {
                let waiting = self.waiting();
                let enough = waiting.spans.len() >= BATCH || waiting.flushes > 0 || waiting.closed;
                (!waiting.spans.is_empty(), enough, waiting.closed)
            };
            match (any, closed) {
                (true, _) => {
                    if !enough {
                        tokio::select! {
                            () = tokio::time::sleep(DELAY) => {}
                            () = self.hurry.notified() => {}
                        }
                    }
                    let mut waiting = self.waiting();
                    let most = waiting.spans.len().min(BATCH);
                    return Some(waiting.spans.drain(..most).collect());
                }
                (false, true) => return None,
                (false, false) => self.bell.notified().await,
            }
        }
    }

    /// Waits until what is in the queue now is sent or given up.
    pub(crate) async fn flushed(&self) {
        struct Flush<'a>(&'a Queue);
        impl Drop for Flush<'_> {
            fn drop(&mut self) {
                self.0.waiting().flushes -= 1;
            }
        }
        let until = {
            let mut waiting = self.waiting();
            waiting.flushes += 1;
            waiting.taken
        };
        let _flush = Flush(self);
        self.hurry.notify_one();
        // The sender lives as long as `self`.
        let _ = self.over.subscribe().wait_for(|over| *over >= until).await;
    }

    /// No more will come.
    pub(crate) fn close(&self) {
        self.waiting().closed = true;
        self.bell.notify_one();
        self.hurry.notify_one();
    }
}

/// Sends what comes until the queue is closed and empty.
pub(crate) async fn run(queue: Arc<Queue>, exporter: Arc<dyn Exporter>) {
    let mut complained = false;
    while let Some(batch) = queue.next().await {
        let count = batch.len() as u64;
        let dropped = match send(&*exporter, &batch).await {
            Ok(refused) => {
                complained = false;
                refused.min(count)
            }
            Err(why) => {
                // Once, until it is over: a collector may be away for days.
                if !complained {
                    tracing::warn!(spans = count, "traces cannot be sent and are dropped: {why}");
                    complained = true;
                }
                count
            }
        };
        queue.counts.dropped.fetch_add(dropped, Ordering::Relaxed);
        queue.counts.sent.fetch_add(count - dropped, Ordering::Relaxed);
        queue.over.send_modify(|over| *over += count);
    }
}

/// Sends one batch, in a few tries. How many were not taken, or why none was.
async fn send(exporter: &dyn Exporter, batch: &[Span]) -> Result<u64, String> {
    let mut pause = PAUSE;
    let mut last = String::new();
    for attempt in 1..=TRIES {
        let tried = tokio::time::timeout(TRY, exporter.export(batch)).await;
        let after = match tried {
            Ok(Ok(refused)) => return Ok(refused),
            Ok(Err(NotSent::Refused(why))) => return Err(why),
            Ok(Err(NotSent::Later { why, after })) => {
                last = why;
                after
            }
            Err(_) => {
                last = String::from("there was no answer in time");
                None
            }
        };
        if attempt < TRIES {
            tokio::time::sleep(after.unwrap_or(pause).min(LONGEST_PAUSE)).await;
            pause *= 2;
        }
    }
    Err(last)
}
