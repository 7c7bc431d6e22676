//! What happened to jobs, for whoever follows along: events in order, a bounded number of them kept.
//!
//! A store publishes after each commit. A follower that comes back says which event it saw last and gets everything
//! since, or is told that there is a gap. Events are never the truth: that is in the store.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidegate_core::ids::{JobId, KindName, QueueName, TenantId, WorkerId};
use tidegate_core::job::State;
use tidegate_core::time::Timestamp;
use tokio::sync::watch;

use crate::meter::Meter;

/// Events kept for followers that come back.
pub const EVENTS_KEPT: usize = 65_536;

/// Most events handed over at once.
pub const DELIVERY: usize = 1_024;

/// How long events are made after the last follower left: it may be about to come back.
const LINGER: Duration = Duration::from_mins(5);

/// Something that happened to a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobEvent {
    /// When.
    pub at: Timestamp,
    /// The job.
    pub id: JobId,
    /// Its queue.
    pub queue: QueueName,
    /// Its kind.
    pub kind: KindName,
    /// Whose it is.
    pub tenant: Option<TenantId>,
    /// Whether this process did it, and not another one that shares the store.
    #[serde(skip)]
    pub here: Here,
    /// What.
    #[serde(flatten)]
    pub what: Happened,
}

impl JobEvent {
    /// The completion of the job with this number at this time: what tests of followers are told.
    #[doc(hidden)]
    pub fn sample(n: u32) -> Self {
        const VALID: &str = "a letter is a name";
        Self {
            at: Timestamp(n.into()),
            id: JobId::from_parts(0, n.into()),
            queue: QueueName::new("q").expect(VALID),
            kind: KindName::new("k").expect(VALID),
            tenant: None,
            here: Here(true),
            what: Happened::Completed,
        }
    }
}

/// Whether something happened in this process. No part of what happened: events that differ in it alone are equal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Here(pub bool);

impl PartialEq for Here {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Happened {
    /// It was stored.
    Enqueued {
        /// Ready, or scheduled.
        state: State,
    },
    /// A worker has it.
    Started {
        /// Which.
        worker: WorkerId,
        /// Its attempt, from 1.
        attempt: u32,
    },
    /// Done.
    Completed,
    /// It failed and runs again.
    Retry {
        /// When.
        run_at: Timestamp,
        /// Code of the error.
        code: String,
    },
    /// Put off without spending an attempt.
    Snoozed {
        /// Until when.
        run_at: Timestamp,
    },
    /// Given back by its worker.
    Released,
    /// Its worker stopped sending heartbeats.
    Stalled,
    /// It will not be tried again.
    Dead {
        /// Code of the error.
        code: String,
    },
    /// Cancelled.
    Cancelled,
    /// It is dead, and its tenant is asked to authorize again.
    Reauthorize {
        /// Whether that was asked before.
        again: bool,
    },
}

impl Happened {
    /// Whether the job is finished with this.
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Completed | Self::Dead { .. } | Self::Cancelled)
    }
}

/// Number of an event: (commit, place in it). Numbers of one `origin` grow; those of another say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// Who counts: a shared store, or one run of a process.
    pub origin: u64,
    /// The commit.
    pub commit: u64,
    /// Place in the commit.
    pub place: u32,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}-{}", self.origin, self.commit, self.place)
    }
}

impl FromStr for EventId {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        let mut parts = s.split('-');
        let mut part = || parts.next().ok_or(());
        let origin = u64::from_str_radix(part()?, 16).map_err(drop)?;
        let commit = part()?.parse().map_err(drop)?;
        let place = part()?.parse().map_err(drop)?;
        if parts.next().is_some() {
            return Err(());
        }
        Ok(Self { origin, commit, place })
    }
}

/// An event among those of its commit. Cheap to clone.
///
/// The events of a commit are kept together: one allocation for all of them instead of one each, which another thread frees.
#[derive(Debug, Clone)]
pub struct SharedEvent {
    commit: Arc<[JobEvent]>,
    place: u32,
}

impl Deref for SharedEvent {
    type Target = JobEvent;

    fn deref(&self) -> &JobEvent {
        &self.commit[self.place as usize]
    }
}

impl From<JobEvent> for SharedEvent {
    fn from(event: JobEvent) -> Self {
        Self { commit: Arc::new([event]), place: 0 }
    }
}

impl PartialEq for SharedEvent {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// What a follower gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivery {
    /// The next events, in order.
    Events(Vec<(EventId, SharedEvent)>),
    /// Some events are no longer to be had; what follows is newer. Look at the store for what was missed.
    Gap,
}

/// The events of a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Feed {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    kept: Mutex<Kept>,
    latest: watch::Sender<EventId>,
    /// The newest commit with which a job ended, or after which some may have.
    ended: watch::Sender<EventId>,
    meter: Meter,
}

#[derive(Debug)]
struct Kept {
    events: VecDeque<(EventId, SharedEvent)>,
    capacity: usize,
    /// The newest event, kept or not.
    last: EventId,
    /// The newest event that is gone.
    dropped: EventId,
    /// When a follower left last.
    left: Option<Instant>,
}

impl Feed {
    /// A feed whose numbers belong to this origin, after this commit.
    pub fn new(origin: u64, commit: u64) -> Self {
        Self::with_capacity(origin, commit, EVENTS_KEPT)
    }

    /// A feed that keeps this many events.
    pub fn with_capacity(origin: u64, commit: u64, capacity: usize) -> Self {
        let start = EventId { origin, commit, place: u32::MAX };
        let events = VecDeque::new();
        let kept = Kept { events, capacity: capacity.max(1), last: start, dropped: start, left: None };
        let (latest, ended) = (watch::Sender::new(start), watch::Sender::new(start));
        Self { inner: Arc::new(Inner { kept: Mutex::new(kept), latest, ended, meter: Meter::default() }) }
    }

    /// What this process did, counted.
    pub fn meter(&self) -> &Meter {
        &self.inner.meter
    }

    /// Whether anybody follows, or did lately. Stores need not make events while nobody does; when they begin to, they
    /// [`skip_to`](Self::skip_to) the last commit without.
    pub fn watched(&self) -> bool {
        self.inner.latest.receiver_count() > 0 || self.kept().left.is_some_and(|at| at.elapsed() < LINGER)
    }

    /// Says what a commit did. Commits come in order.
    pub fn publish(&self, commit: u64, events: Vec<JobEvent>) {
        if events.is_empty() {
            return;
        }
        let ends = events.iter().any(|event| event.what.is_end());
        let last = {
            let mut kept = self.kept();
            let origin = kept.last.origin;
            let events: Arc<[JobEvent]> = events.into();
            for place in 0..events.len() as u32 {
                let id = EventId { origin, commit, place };
                if kept.events.len() == kept.capacity
                    && let Some((gone, _)) = kept.events.pop_front()
                {
                    kept.dropped = gone;
                }
                kept.events.push_back((id, SharedEvent { commit: events.clone(), place }));
                kept.last = id;
            }
            kept.last
        };
        self.inner.latest.send_replace(last);
        if ends {
            self.inner.ended.send_replace(last);
        }
    }

    /// Commits up to this one were not turned into events: followers are told of a gap.
    pub fn skip_to(&self, commit: u64) {
        let last = {
            let mut kept = self.kept();
            kept.events.clear();
            kept.last = EventId { commit, place: u32::MAX, ..kept.last };
            kept.dropped = kept.last;
            kept.last
        };
        self.inner.latest.send_replace(last);
        self.inner.ended.send_replace(last);
    }

    /// The newest event, kept or not.
    pub fn newest(&self) -> EventId {
        self.kept().last
    }

    /// The newest event that is kept no longer.
    pub fn gone(&self) -> EventId {
        self.kept().dropped
    }

    /// Follows from after this event, or from now on.
    pub fn subscribe(&self, after: Option<EventId>) -> Subscription {
        // Registered before looking: an event between the two is not missed.
        let (latest, ended) = (self.inner.latest.subscribe(), self.inner.ended.subscribe());
        let last = self.kept().last;
        let (seen, gap) = match after {
            None => (last, false),
            Some(id) if id.origin == last.origin && id <= last => (id, false),
            Some(_) => (last, true),
        };
        Subscription { feed: self.clone(), latest, ended, seen, gap, fresh: after.is_none() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the feed.
#[derive(Debug)]
pub struct Subscription {
    feed: Feed,
    latest: watch::Receiver<EventId>,
    ended: watch::Receiver<EventId>,
    seen: EventId,
    gap: bool,
    /// Asked for what comes from now on and has got nothing yet: what came before is no gap.
    fresh: bool,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.feed.kept().left = Some(Instant::now());
    }
}

impl Subscription {
    /// Waits for what comes next. Safe to drop and call again: nothing is lost. Never ends while the feed lives.
    pub async fn next(&mut self) -> Delivery {
        loop {
            self.latest.mark_unchanged();
            if let Some(delivery) = self.ready() {
                return delivery;
            }
            // The feed is held by this subscription, so its sender lives.
            let _ = self.latest.changed().await;
        }
    }

    /// Waits until what comes next has the end of a job in it, or may have. Commits without one do not wake who waits. Safe to drop and
    /// call again.
    pub async fn ended(&mut self) {
        loop {
            let ended = *self.ended.borrow_and_update();
            // Numbers that go back are a gap, and so is what is gone: whoever waits for an end must look.
            if ended > self.seen || self.seen > self.feed.newest() {
                return;
            }
            let _ = self.ended.changed().await;
        }
    }

    /// What is there already.
    pub fn ready(&mut self) -> Option<Delivery> {
        let kept = self.feed.kept();
        if std::mem::take(&mut self.gap) {
            return Some(Delivery::Gap);
        }
        // A store that lost its last commits to a crash counts some numbers twice: who saw them must look again.
        if self.seen < kept.dropped || self.seen > kept.last {
            self.seen = kept.dropped.min(kept.last);
            if !std::mem::take(&mut self.fresh) {
                return Some(Delivery::Gap);
            }
        }
        let first = kept.events.partition_point(|(id, _)| *id <= self.seen);
        let next: Vec<_> = kept.events.range(first..).take(DELIVERY).cloned().collect();
        self.seen = next.last()?.0;
        self.fresh = false;
        Some(Delivery::Events(next))
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    fn times(delivery: &Delivery) -> Vec<i64> {
        match delivery {
            Delivery::Events(events) => events.iter().map(|(_, e)| e.at.0).collect(),
            Delivery::Gap => vec![-1],
        }
    }

    #[tokio::test]
    async fn a_follower_that_comes_back_misses_nothing_that_is_kept() {
        let feed = Feed::with_capacity(7, 0, 10);
        let mut first = feed.subscribe(None);
        feed.publish(1, vec![JobEvent::sample(1), JobEvent::sample(2)]);
        let Delivery::Events(seen) = first.next().await else { panic!("events") };
        let last: EventId = seen[0].0.to_string().parse().unwrap();
        drop(first);
        feed.publish(2, vec![JobEvent::sample(3)]);
        let mut again = feed.subscribe(Some(last));
        assert_eq!(times(&again.next().await), [2, 3]);
        assert_eq!(again.ready(), None);
    }

    #[tokio::test]
    async fn a_gap_is_announced_and_the_rest_follows() {
        let feed = Feed::with_capacity(7, 0, 2);
        let mut slow = feed.subscribe(None);
        feed.publish(1, vec![JobEvent::sample(0)]);
        assert_eq!(times(&slow.next().await), [0]);
        feed.publish(2, (1..=5).map(JobEvent::sample).collect());
        assert_eq!(times(&slow.next().await), [-1]);
        assert_eq!(times(&slow.next().await), [4, 5]);
        let stranger = EventId { origin: 8, commit: 1, place: 0 };
        let mut other = feed.subscribe(Some(stranger));
        assert_eq!(times(&other.next().await), [-1], "numbers of another origin say nothing");
        feed.skip_to(9);
        assert_eq!(times(&slow.next().await), [-1]);
        feed.publish(10, vec![JobEvent::sample(6)]);
        assert_eq!(times(&slow.next().await), [6]);
    }

    #[tokio::test]
    async fn numbers_that_go_back_are_a_gap() {
        let feed = Feed::new(1, 0);
        let mut follower = feed.subscribe(None);
        feed.publish(9, vec![JobEvent::sample(1)]);
        assert_eq!(times(&follower.next().await), [1]);
        feed.skip_to(5);
        assert_eq!(times(&follower.next().await), [-1]);
        feed.publish(6, vec![JobEvent::sample(2)]);
        assert_eq!(times(&follower.next().await), [2]);
    }

    #[tokio::test]
    async fn what_came_before_is_no_gap_for_who_asks_from_now_on() {
        let feed = Feed::new(1, 0);
        let mut follower = feed.subscribe(None);
        feed.skip_to(5);
        feed.publish(6, vec![JobEvent::sample(1)]);
        assert_eq!(times(&follower.next().await), [1]);
    }

    #[tokio::test]
    async fn who_waits_for_an_end_is_not_woken_by_other_commits() {
        let feed = Feed::new(1, 0);
        let mut follower = feed.subscribe(None);
        let mut woken = end_came(&mut follower);
        assert!(!woken());
        feed.publish(1, vec![JobEvent { what: Happened::Released, ..JobEvent::sample(1) }]);
        assert!(!woken(), "nothing has ended");
        feed.publish(2, vec![JobEvent::sample(2)]);
        assert!(woken());
        drop(woken);
        assert_eq!(times(&follower.next().await), [1, 2], "what came before is there as well");
        assert!(!end_came(&mut follower)(), "it was seen");
        feed.skip_to(7);
        assert!(end_came(&mut follower)(), "in a gap something may have ended");
        assert_eq!(times(&follower.next().await), [-1]);
        feed.skip_to(5);
        assert!(end_came(&mut follower)(), "numbers went back");
    }

    /// Looks whether the end that is waited for has come.
    fn end_came(follower: &mut Subscription) -> impl FnMut() -> bool {
        let mut waiting = Box::pin(follower.ended());
        move || waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn somebody_who_waits_is_woken() {
        let feed = Feed::new(1, 0);
        assert!(!feed.watched());
        let mut follower = feed.subscribe(None);
        assert!(feed.watched());
        let waiting = tokio::spawn(async move { times(&follower.next().await) });
        tokio::task::yield_now().await;
        feed.publish(1, vec![JobEvent::sample(1)]);
        assert_eq!(waiting.await.unwrap(), [1]);
        assert!(feed.watched(), "it may come back");
    }
}
