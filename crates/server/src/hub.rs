//! Events of the store, read once and handed to everybody who follows: streams, and requests that wait for a job.
//!
//! The hub alone follows the store's feed. It writes each event once, whatever the number of streams, and shares the
//! bytes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_core::ids::JobId;
use tidegate_store::feed::{Delivery, EventId, JobEvent, Subscription};
use tidegate_store::{Feed, Store};
use tidegate_wire::events;
use tokio::sync::{broadcast, oneshot};
use tokio::time::Instant;

use crate::tasks::Tasks;

/// Batches that a stream may be behind before it reads from the store's own buffer.
const BATCHES: usize = 64;
/// How long the hub goes on when nobody follows: requests that wait come and go. The feed itself lingers longer.
const LINGER: Duration = Duration::from_secs(5);
/// A busy store is read in larger batches: the pause after one that was not small.
const BREATH: (usize, Duration) = (32, Duration::from_millis(2));

pub(crate) struct Hub {
    store: Arc<dyn Store>,
    tasks: Arc<Tasks>,
    live: broadcast::Sender<Arc<Batch>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: bool,
    followers: usize,
    waiting: HashMap<JobId, Vec<(u64, oneshot::Sender<()>)>>,
    tokens: u64,
}

/// Events that came together.
#[derive(Debug)]
pub(crate) enum Batch {
    /// Events in order.
    Events {
        events: Vec<Written>,
        /// All of them, one after the other.
        text: Bytes,
    },
    /// Some events are no longer to be had.
    Gap,
}

/// An event as it is sent.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) id: EventId,
    pub(crate) event: Arc<JobEvent>,
    pub(crate) text: Bytes,
}

/// Keeps the hub running.
pub(crate) struct Following(Arc<Hub>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.state().followers -= 1;
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
    pub(crate) fn new(store: Arc<dyn Store>, tasks: Arc<Tasks>) -> Arc<Self> {
        let (live, _) = broadcast::channel(BATCHES);
        Arc::new(Self { store, tasks, live, state: Mutex::default() })
    }

    pub(crate) fn feed(&self) -> &Feed {
        self.store.feed()
    }

    /// Follows. Events from now on are not missed.
    pub(crate) fn follow(self: &Arc<Self>) -> (Following, broadcast::Receiver<Arc<Batch>>) {
        let live = self.live.subscribe();
        let mut state = self.state();
        state.followers += 1;
        if !state.running {
            state.running = true;
            let feed = self.feed().subscribe(None);
            self.tasks.spawn(self.clone().run(feed));
        }
        (Following(self.clone()), live)
    }

    /// Streams that listen now.
    pub(crate) fn listeners(&self) -> usize {
        self.live.receiver_count()
    }

    /// Registers for the end of a job. Look at the job after this, or its end may fall between.
    pub(crate) fn wait_for(self: &Arc<Self>, job: JobId) -> Ending {
        let (tell, told) = oneshot::channel();
        let mut state = self.state();
        state.tokens += 1;
        let token = state.tokens;
        state.waiting.entry(job).or_default().push((token, tell));
        Ending { hub: self.clone(), job, token, told }
    }

    async fn run(self: Arc<Self>, mut feed: Subscription) {
        let mut lonely_since: Option<Instant> = None;
        loop {
            let delivery = tokio::select! {
                delivery = feed.next() => Some(delivery),
                () = tokio::time::sleep(LINGER / 10) => None,
            };
            {
                let mut state = self.state();
                if state.followers > 0 {
                    lonely_since = None;
                } else if lonely_since.get_or_insert_with(Instant::now).elapsed() >= LINGER {
                    state.running = false;
                    return;
                }
            }
            let Some(delivery) = delivery else { continue };
            let many = matches!(&delivery, Delivery::Events(events) if events.len() >= BREATH.0);
            self.hand_on(delivery);
            if many {
                tokio::time::sleep(BREATH.1).await;
            }
        }
    }

    fn hand_on(&self, delivery: Delivery) {
        let events = match delivery {
            Delivery::Gap => {
                // Whoever waits looks again; the sender of each is dropped.
                self.state().waiting.clear();
                let _ = self.live.send(Arc::new(Batch::Gap));
                return;
            }
            Delivery::Events(events) => events,
        };
        self.tell_endings(&events);
        if self.live.receiver_count() > 0 {
            // Nobody listening any more is fine.
            let _ = self.live.send(Arc::new(write(events)));
        }
    }

    fn tell_endings(&self, events: &[(EventId, Arc<JobEvent>)]) {
        let mut state = self.state();
        if state.waiting.is_empty() {
            return;
        }
        for (_, event) in events.iter().filter(|(_, e)| e.what.is_end()) {
            for (_, tell) in state.waiting.remove(&event.id).into_iter().flatten() {
                let _ = tell.send(());
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes events once, for all.
pub(crate) fn write(events: Vec<(EventId, Arc<JobEvent>)>) -> Batch {
    let mut all = BytesMut::with_capacity(events.len() * 256);
    let mut ends = Vec::with_capacity(events.len());
    for (id, event) in &events {
        let wire = events::JobEvent::from(&**event);
        all.put_slice(format!("id: {id}\nevent: {}\ndata: ", wire.event.as_str()).as_bytes());
        // Names, numbers and times: nothing that could not be written.
        let _ = serde_json::to_writer((&mut all).writer(), &wire);
        all.put_slice(b"\n\n");
        ends.push(all.len());
    }
    let text = all.freeze();
    let mut start = 0;
    let written = events.into_iter().zip(ends).map(|((id, event), end)| {
        let text = text.slice(start..end);
        start = end;
        Written { id, event, text }
    });
    Batch::Events { events: written.collect(), text: text.clone() }
}
