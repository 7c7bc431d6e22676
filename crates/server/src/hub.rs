//! Events of the store, read once and handed to everybody who follows: requests that wait for a job, at once; streams, in
//! pieces.
//!
//! The hub alone follows the store's feed. Streams with the same filter share what is written for them, and a stream is
//! not woken for events that are not for it. All streams together are written to a bounded number of times per second, and
//! until then what happens is left in the store's buffer, unless a job ends while somebody waits for one: a thousand followers must
//! not take the machine from the engine. When more happens than so many streams can be told, they get the newest and are told of a gap.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::ids::JobId;
use tidegate_store::feed::{DELIVERY, Delivery, EVENTS_KEPT, EventId, SharedEvent, Subscription};
use tidegate_store::{Feed, Store};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, broadcast, oneshot};
use tokio::time::Instant;

use crate::audience::{Audience, Filter, Piece};
use crate::tasks::Tasks;

/// How long the hub goes on when nobody follows: requests that wait come and go.
const LINGER: Duration = Duration::from_secs(5);
/// A busy store is read in larger steps: the pause after one that was not small, or that nobody waits for at once.
const BREATH: (usize, Duration) = (32, Duration::from_millis(1));
/// Pause of the streams for each stream that was written to. What a write costs by itself was not measured (ADR 0018).
const PER_WRITE: Duration = Duration::from_millis(4);
/// Longest pause of the streams.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Events that streams were not told for want of any are saved up for this time: a burst is no reason for a gap.
const SAVED: Duration = Duration::from_secs(2);

pub(crate) struct Hub {
    store: Arc<dyn Store>,
    tasks: Arc<Tasks>,
    /// Events per second over all streams.
    events_per_second: u32,
    state: Mutex<State>,
    /// Somebody began to wait for a job, or to listen.
    joined: Notify,
}

#[derive(Default)]
struct State {
    running: bool,
    followers: usize,
    waiting: HashMap<JobId, Vec<(u64, oneshot::Sender<()>)>>,
    tokens: u64,
    audience: Audience,
    /// The newest event that every stream was told of, if it was for it.
    told: Option<EventId>,
    /// Something after it was lost, and they do not know yet.
    gap: bool,
}

/// What the streams have not been told yet.
struct Pending {
    events: VecDeque<(EventId, SharedEvent)>,
    /// When they may be told again.
    not_before: Instant,
    /// Until when the events that they may be told are used up.
    spent_until: Instant,
}

/// Keeps the hub running.
pub(crate) struct Following(Arc<Hub>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.state().followers -= 1;
    }
}

/// A stream's place in the audience.
pub(crate) struct Listening {
    hub: Arc<Hub>,
    filter: Filter,
    pieces: broadcast::Receiver<Arc<Piece>>,
}

impl Listening {
    /// The next piece for streams with this filter.
    pub(crate) async fn recv(&mut self) -> Result<Arc<Piece>, RecvError> {
        self.pieces.recv().await
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.hub.state().audience.leave(&self.filter);
    }
}

/// Hears of the end of a job.
pub(crate) struct Ending {
    hub: Arc<Hub>,
    job: JobId,
    token: u64,
    told: oneshot::Receiver<()>,
}

impl Ending {
    /// Waits until the job has ended, or may have.
    pub(crate) async fn heard(&mut self) {
        let _ = (&mut self.told).await;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        if let Some(list) = state.waiting.get_mut(&self.job) {
            list.retain(|(token, _)| *token != self.token);
            if list.is_empty() {
                state.waiting.remove(&self.job);
            }
        }
    }
}

impl Hub {
    pub(crate) fn new(store: Arc<dyn Store>, tasks: Arc<Tasks>, events_per_second: u32) -> Arc<Self> {
        Arc::new(Self { store, tasks, events_per_second, state: Mutex::default(), joined: Notify::new() })
    }

    pub(crate) fn feed(&self) -> &Feed {
        self.store.feed()
    }

    /// Keeps the hub running, so that endings are heard.
    pub(crate) fn follow(self: &Arc<Self>) -> Following {
        let mut state = self.state();
        state.followers += 1;
        if !state.running {
            state.running = true;
            self.tasks.spawn(self.clone().run(self.feed().subscribe(None)));
        }
        drop(state);
        Following(self.clone())
    }

    /// Listens to what happens from now on.
    pub(crate) fn listen(self: &Arc<Self>, filter: &Filter) -> Listening {
        let mut state = self.state();
        if state.audience.streams() == 0 {
            // What the hub has not read for want of listeners, or not told those who left, is for nobody.
            (state.told, state.gap) = (Some(self.feed().newest()), false);
        }
        let pieces = state.audience.join(filter);
        drop(state);
        self.joined.notify_one();
        Listening { hub: self.clone(), filter: filter.clone(), pieces }
    }

    /// Share of one stream in the events of a second.
    pub(crate) fn share(&self) -> f64 {
        f64::from(self.events_per_second.max(1)) / self.state().audience.streams().max(1) as f64
    }

    /// The newest event that streams were told of, if it was for them.
    pub(crate) fn told(&self) -> Option<EventId> {
        self.state().told
    }

    /// Registers for the end of a job. Look at the job after this, or its end may fall between.
    pub(crate) fn wait_for(self: &Arc<Self>, job: JobId) -> Ending {
        let (tell, told) = oneshot::channel();
        let mut state = self.state();
        state.tokens += 1;
        let token = state.tokens;
        state.waiting.entry(job).or_default().push((token, tell));
        drop(state);
        self.joined.notify_one();
        Ending { hub: self.clone(), job, token, told }
    }

    async fn run(self: Arc<Self>, mut feed: Subscription) {
        let now = Instant::now();
        let mut pending = Pending { events: VecDeque::new(), not_before: now, spent_until: saved_since(now) };
        let mut lonely_since: Option<Instant> = None;
        loop {
            self.rest(&mut feed, pending.not_before).await;
            let due = !pending.events.is_empty() || self.state().gap;
            let delivery = tokio::select! {
                biased;
                () = tokio::time::sleep_until(pending.not_before), if due => {
                    self.tell(&mut pending);
                    continue;
                }
                delivery = feed.next() => Some(delivery),
                () = tokio::time::sleep(LINGER) => None,
            };
            if self.is_over(&mut lonely_since) {
                return;
            }
            let Some(delivery) = delivery else { continue };
            let many = matches!(&delivery, Delivery::Events(events) if events.len() >= BREATH.0);
            self.take(delivery, &mut pending);
            for delivery in std::iter::from_fn(|| feed.ready()).take(EVENTS_KEPT / DELIVERY) {
                self.take(delivery, &mut pending);
            }
            if many {
                tokio::time::sleep(BREATH.1).await;
            }
        }
    }

    /// Lets events gather until the streams may be told, or until a job ends while somebody waits for one. Where nobody listens, only the
    /// ends are for somebody.
    async fn rest(&self, feed: &mut Subscription, not_before: Instant) {
        let begun = Instant::now();
        loop {
            let (waits, listens) = {
                let state = self.state();
                (!state.waiting.is_empty(), state.audience.streams() > 0)
            };
            let until = if waits && !listens { begun + LINGER } else { not_before.max(begun + BREATH.1) };
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                () = feed.ended(), if waits => return,
                () = self.joined.notified() => {}
            }
        }
    }

    fn is_over(&self, lonely_since: &mut Option<Instant>) -> bool {
        let mut state = self.state();
        if state.followers > 0 {
            *lonely_since = None;
        } else if lonely_since.get_or_insert_with(Instant::now).elapsed() >= LINGER {
            state.running = false;
            return true;
        }
        false
    }

    fn take(&self, delivery: Delivery, pending: &mut Pending) {
        let mut state = self.state();
        let events = match delivery {
            Delivery::Gap => {
                // Whoever waits looks again: the sender of each is dropped.
                state.waiting.clear();
                // Numbers that go back are other events; what was lost before the streams began is not missed.
                state.told = state.told.filter(|told| *told <= self.feed().newest());
                let missed = state.told.is_none_or(|told| told < self.feed().gone());
                state.gap |= missed && state.audience.streams() > 0;
                return;
            }
            Delivery::Events(events) => events,
        };
        if !state.waiting.is_empty() {
            for (_, event) in events.iter().filter(|(_, e)| e.what.is_end()) {
                for (_, tell) in state.waiting.remove(&event.id).into_iter().flatten() {
                    let _ = tell.send(());
                }
            }
        }
        if state.audience.streams() == 0 {
            state.told = events.last().map(|(id, _)| *id).or(state.told);
            (pending.events, state.gap) = (VecDeque::new(), false);
            return;
        }
        let told = state.told;
        pending.events.extend(events.into_iter().filter(|(id, _)| told.is_none_or(|told| *id > told)));
        if pending.events.len() > EVENTS_KEPT {
            pending.events.drain(..pending.events.len() - EVENTS_KEPT);
            state.gap = true;
        }
    }

    /// Tells the streams.
    fn tell(&self, pending: &mut Pending) {
        let now = Instant::now();
        let mut events = std::mem::take(&mut pending.events);
        let saved_from = pending.spent_until.max(saved_since(now));
        let share = self.share() * now.saturating_duration_since(saved_from).as_secs_f64();
        let mut state = self.state();
        let old = events.partition_point(|(id, _)| state.told.is_some_and(|told| *id <= told));
        events.drain(..old);
        let events = events.make_contiguous();
        let newest = events.last().map(|(id, _)| *id);
        let gap = std::mem::take(&mut state.gap);
        let told = state.audience.tell(events, gap, share as usize);
        // After the pieces: who sees this id and finds no piece waiting has missed nothing.
        state.told = newest.or(state.told);
        let spent = told.events as f64 / f64::from(self.events_per_second.max(1));
        // Streams are told a little in any case; what that was too much is not held against them for long.
        pending.spent_until = (saved_from + Duration::from_secs_f64(spent)).min(now + SAVED);
        pending.not_before = now + (PER_WRITE * told.streams as u32).min(LONGEST_PAUSE);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Since when events can have been saved up.
fn saved_since(now: Instant) -> Instant {
    now.checked_sub(SAVED).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use tidegate_store::MemoryStore;
    use tidegate_store::feed::{Happened, JobEvent};

    use super::*;

    fn hub() -> Arc<Hub> {
        Hub::new(Arc::new(MemoryStore::new()), Arc::default(), 200_000)
    }

    /// Streams enough for the longest pause, which has begun.
    async fn paused_streams(hub: &Arc<Hub>) -> Vec<Listening> {
        let mut streams: Vec<Listening> = (0..1_000).map(|_| hub.listen(&Filter::default())).collect();
        hub.feed().publish(1, vec![JobEvent::sample(1)]);
        for stream in &mut streams {
            stream.recv().await.unwrap();
        }
        streams
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_job_hears_of_its_end_while_streams_pause() {
        let hub = hub();
        let _following = hub.follow();
        let mut streams = paused_streams(&hub).await;
        let told = Instant::now();
        // The hub rests by now, until the streams may be told again.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut ending = hub.wait_for(JobEvent::sample(2).id);
        hub.feed().publish(2, vec![JobEvent::sample(2)]);
        ending.heard().await;
        assert!(told.elapsed() < LONGEST_PAUSE, "at once");
        drop(ending);
        let piece = streams[0].recv().await.unwrap();
        assert_eq!(piece.after(None).1, 1);
        assert!(told.elapsed() >= LONGEST_PAUSE, "when they may be told again");
    }

    fn started(n: u32) -> JobEvent {
        let worker = "w".parse().unwrap();
        JobEvent { what: Happened::Started { worker, attempt: 1 }, ..JobEvent::sample(n) }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_job_is_not_told_of_commits_that_end_none() {
        let hub = hub();
        let _following = hub.follow();
        let mut ending = hub.wait_for(JobEvent::sample(9).id);
        for commit in 1..=10 {
            hub.feed().publish(commit.into(), vec![started(commit)]);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(hub.told(), None, "the hub has read nothing");
        hub.feed().publish(11, vec![JobEvent::sample(8)]);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(hub.told().map(|id| id.commit), Some(11), "a job ended, though another one");
        let asked = Instant::now();
        hub.feed().publish(12, vec![JobEvent::sample(9)]);
        ending.heard().await;
        assert_eq!(asked.elapsed(), Duration::ZERO, "at once");
    }

    #[tokio::test(start_paused = true)]
    async fn who_begins_to_listen_hears_what_happens_from_then_on() {
        let hub = hub();
        let _following = hub.follow();
        let _ending = hub.wait_for(JobEvent::sample(9).id);
        for commit in 1..=10 {
            hub.feed().publish(commit.into(), vec![started(commit)]);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut stream = hub.listen(&Filter::default());
        hub.feed().publish(11, vec![started(11)]);
        let piece = stream.recv().await.unwrap();
        assert_eq!((piece.gap, piece.after(None).1), (false, 1), "the hub had not read the others");
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_after_all_others_left_does_not_hear_what_was_meant_for_them() {
        let hub = hub();
        let _following = hub.follow();
        let streams = paused_streams(&hub).await;
        let mut ending = hub.wait_for(JobEvent::sample(2).id);
        // The hub reads it for who waits, and keeps it for the streams.
        hub.feed().publish(2, vec![JobEvent::sample(2)]);
        ending.heard().await;
        drop((streams, ending));
        let mut stream = hub.listen(&Filter::default());
        hub.feed().publish(3, vec![JobEvent::sample(3)]);
        let piece = stream.recv().await.unwrap();
        assert_eq!((piece.gap, piece.after(None).1), (false, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_begins_to_listen_is_not_told_of_what_was_lost_before() {
        let hub = hub();
        let _following = hub.follow();
        let _ending = hub.wait_for(JobEvent::sample(9).id);
        tokio::time::sleep(Duration::from_millis(10)).await;
        // More than the store keeps, and nothing for who waits.
        for commit in 1..=70 {
            hub.feed().publish(commit, (0..1_000).map(started).collect());
        }
        let mut stream = hub.listen(&Filter::default());
        hub.feed().publish(71, vec![started(71)]);
        let piece = stream.recv().await.unwrap();
        assert_eq!((piece.gap, piece.after(None).1), (false, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_after_all_others_left_is_not_told_of_their_gap() {
        let hub = hub();
        let _following = hub.follow();
        let streams = paused_streams(&hub).await;
        let mut ending = hub.wait_for(JobEvent::sample(1).id);
        // The hub finds the gap for who waits, and has yet to tell the streams.
        for commit in 2..=70 {
            hub.feed().publish(commit, (0..1_000).map(JobEvent::sample).collect());
        }
        ending.heard().await;
        drop((streams, ending));
        let mut stream = hub.listen(&Filter::default());
        hub.feed().publish(71, vec![started(71)]);
        let piece = stream.recv().await.unwrap();
        assert_eq!((piece.gap, piece.after(None).1), (false, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_told_whole_and_what_goes_on_for_too_long_is_not() {
        let hub = hub();
        let _following = hub.follow();
        let mut stream = hub.listen(&Filter::default());
        hub.feed().publish(1, vec![started(1)]);
        stream.recv().await.unwrap();
        let mut told = 0;
        for commit in 2..=100 {
            // Ten times as many in a second as the streams may be told.
            hub.feed().publish(commit, (0..10_000).map(started).collect());
            tokio::time::sleep(Duration::from_millis(5)).await;
            let piece = stream.recv().await.unwrap();
            if piece.gap {
                break;
            }
            told += piece.after(None).1;
        }
        assert_eq!(told / 100_000, 4, "what was saved up in two seconds, and little more: {told}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_happens_in_a_pause_is_told_after_it_or_a_gap_is() {
        let hub = hub();
        let _following = hub.follow();
        let mut streams = paused_streams(&hub).await;
        for commit in 2..=4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            hub.feed().publish(commit.into(), vec![JobEvent::sample(commit)]);
        }
        let piece = streams[0].recv().await.unwrap();
        assert_eq!((piece.gap, piece.after(None).1), (false, 3));
        for commit in 5..=70 {
            hub.feed().publish(commit, (0..1_000).map(JobEvent::sample).collect());
        }
        let piece = streams[0].recv().await.unwrap();
        assert!(piece.gap, "more than the store keeps");
        assert_eq!(piece.newest.map(|id| id.commit), Some(70));
    }
}
