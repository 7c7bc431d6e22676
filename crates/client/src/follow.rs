//! The server's events as a feed of this process, while somebody follows it.
//!
//! The stream is opened when the feed is asked for and closed when nobody follows it any more. Until it is open, calls
//! of this process wait for it: whoever subscribes and then does something hears of what it did. After a lost connection
//! the stream goes on after the last event seen. Where events may have been missed, followers are told of a gap.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tidegate_core::codes::{self, Fault};
use tidegate_store::feed::JobEvent;
use tidegate_store::{Error, Feed};
use tidegate_wire::{Problem, events};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::call::Caller;
use crate::sse::{Message, Reader};
use crate::tasks::Tasks;

/// How long the stream stays open while nobody follows.
const UNWATCHED: Duration = Duration::from_secs(5);
/// Time between two looks at whether anybody follows.
const LOOK: Duration = Duration::from_secs(1);
/// A stream that says nothing for this long, not even that it lives, is dead.
const SILENCE: Duration = Duration::from_mins(1);

/// Largest explanation that is read.
const MAX_PROBLEM: usize = 64 << 10;

/// Keeps the feed filled.
pub(crate) struct Follower {
    caller: Arc<Caller>,
    tasks: Arc<Tasks>,
    feed: Feed,
    /// Publications so far.
    published: AtomicU64,
    running: AtomicBool,
    /// Whether it was open before: whoever comes back to it may have missed something.
    opened: AtomicBool,
}

/// Why a stream ended.
enum End {
    /// Nobody follows any more.
    Unwatched,
    /// It may be opened again.
    Lost(String),
    /// It must not be opened again.
    Refused(Error),
}

impl Follower {
    pub(crate) fn new(caller: Arc<Caller>, tasks: Arc<Tasks>, origin: u64) -> Arc<Self> {
        let (published, running, opened) =
            (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { caller, tasks, feed: Feed::new(origin, 0), published, running, opened })
    }

    /// The feed; somebody may be about to follow it.
    pub(crate) fn feed(self: &Arc<Self>) -> &Feed {
        if !self.running.swap(true, Ordering::AcqRel) {
            self.caller.hold_back();
            self.tasks.spawn(self.clone().follow());
        }
        &self.feed
    }

    async fn follow(self: Arc<Self>) {
        // The last event seen, as the server names it.
        let mut last = None;
        let mut backoff = Backoff::new();
        let refused = loop {
            match self.stream(&mut last, &mut backoff).await {
                End::Unwatched => break false,
                End::Lost(why) => {
                    tracing::debug!("the stream of events was lost: {why}");
                    self.caller.go_on();
                    tokio::time::sleep(backoff.pause()).await;
                }
                End::Refused(error) => {
                    tracing::warn!(code = %error.code, "events cannot be followed: {error}");
                    break true;
                }
            }
        };
        self.caller.go_on();
        self.running.store(false, Ordering::Release);
        // Whoever subscribed between the last look and now must not wait for ever.
        if self.feed.watched() && !refused {
            self.feed();
        }
    }

    /// Opens the stream after the last event and publishes what it brings.
    async fn stream(&self, last: &mut Option<String>, backoff: &mut Backoff) -> End {
        let opened = self.caller.transport().stream("/v1/events", last.as_deref());
        let response = match tokio::time::timeout(self.caller.timeouts().request, opened).await {
            Ok(Ok(response)) => response,
            Ok(Err(lost)) => return End::Lost(lost.why),
            Err(_) => return End::Lost("no answer".into()),
        };
        if !response.status().is_success() {
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_PROBLEM).collect().await;
            let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let problem = serde_json::from_slice::<Problem>(&body).ok();
            return match problem.map(Error::from) {
                Some(e) if e.code == codes::TOO_MANY_WAITING => End::Lost(e.detail),
                Some(e) if !matches!(e.code.fault, Fault::Unreachable | Fault::Ours) => End::Refused(e),
                Some(e) => End::Lost(e.detail),
                None => End::Lost(format!("HTTP {status}")),
            };
        }
        if last.is_none() && self.opened.swap(true, Ordering::AcqRel) {
            self.gap();
        }
        *backoff = Backoff::new();
        self.read(response.into_body(), last).await
    }

    async fn read(&self, mut body: Incoming, last: &mut Option<String>) -> End {
        let mut reader = Reader::default();
        let (mut heard, mut watched) = (Instant::now(), Instant::now());
        loop {
            if self.feed.watched() {
                watched = Instant::now();
            } else if watched.elapsed() >= UNWATCHED {
                return End::Unwatched;
            }
            let frame = match tokio::time::timeout(LOOK, body.frame()).await {
                Err(_) if heard.elapsed() >= SILENCE => return End::Lost("it has gone silent".into()),
                Err(_) => continue,
                Ok(None) => return End::Lost("the server ended it".into()),
                Ok(Some(Err(e))) => return End::Lost(e.to_string()),
                Ok(Some(Ok(frame))) => frame,
            };
            heard = Instant::now();
            // The server listens before it says the first word.
            self.caller.go_on();
            let Some(chunk) = frame.data_ref() else { continue };
            let Ok(messages) = reader.take(chunk) else {
                *last = None;
                return End::Lost("it cannot be read".into());
            };
            self.publish(messages, last);
        }
    }

    fn publish(&self, messages: Vec<Message>, last: &mut Option<String>) {
        let mut events = vec![];
        for message in messages {
            if message.event == events::GAP {
                self.publish_all(std::mem::take(&mut events));
                self.gap();
            } else if !message.data.is_empty() {
                // An event of a newer server that cannot be read is one that is missed.
                match event(&message.data) {
                    Some(event) => events.push(event),
                    None => self.gap(),
                }
            }
            *last = message.id.or(last.take());
        }
        self.publish_all(events);
    }

    fn publish_all(&self, events: Vec<JobEvent>) {
        if !events.is_empty() {
            self.feed.publish(self.published.fetch_add(1, Ordering::Relaxed) + 1, events);
        }
    }

    fn gap(&self) {
        self.feed.skip_to(self.published.fetch_add(1, Ordering::Relaxed) + 1);
    }
}

fn event(data: &str) -> Option<JobEvent> {
    serde_json::from_str::<events::JobEvent>(data).ok()?.into_event()
}
