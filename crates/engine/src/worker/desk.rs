//! Claimed jobs that have not started, and the worker's slots. Ordered by priority, then by arrival; jobs of queues
//! with a limit go first inside their priority, because they were claimed to start at once.
//!
//! One lock, held for a few instructions, and taken once per job: a driver hands in its slot and takes the next job in
//! the same step.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::ids::JobId;
use tidegate_core::job::Priority;
use tidegate_store::params::ClaimedJob;
use tokio::sync::Notify;

use super::lease::Lease;

/// Handlers that hold their slot for less than this on average are worth a prefetch.
const FAST_MS: f64 = 50.0;
/// Handlers that take less than this have run what was claimed before the next claim is answered: with a larger prefetch a claim has twice as
/// many jobs, for much the same price (ADR 0007).
const INSTANT_MS: f64 = 5.0;
/// Weight of the newest run in that average.
const NEWEST: f64 = 1.0 / 32.0;

/// A job that waits for a slot.
pub(crate) struct Waiting {
    pub(crate) job: ClaimedJob,
    pub(crate) lease: Arc<Lease>,
    /// Place of its queue among the worker's.
    pub(crate) queue: usize,
    pub(crate) cancelled: bool,
}

/// A slot in use, handed in when the run is over.
#[must_use]
pub(crate) struct Slot {
    queue: usize,
}

/// Room for more jobs, as the producer needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Room {
    /// Jobs to claim in all.
    pub(crate) any: u32,
    /// Of these, from queues that must not be prefetched.
    pub(crate) strict: u32,
    /// Jobs claimed and not ended, by queue.
    pub(crate) held: Vec<u32>,
    /// State of the desk that this describes.
    pub(crate) changes: u64,
}

/// What the producer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    Nothing,
    /// Room for any job.
    Any,
    /// A slot that no waiting job will take: room for a job that must start at once.
    Slot,
}

pub(crate) struct Desk {
    inner: Mutex<Inner>,
    slots: usize,
    drivers: Vec<Notify>,
    /// Rung when the producer should claim again.
    pub(crate) producer: Notify,
}

struct Inner {
    lanes: [VecDeque<Waiting>; 2 * Priority::ALL.len()],
    waiting: usize,
    running: usize,
    held: Vec<u32>,
    producer: WaitsFor,
    /// Jobs taken and ended so far: the same number, the same desk.
    changes: u64,
    closed: bool,
    /// Whether the producer wants to know that nothing waits or runs any more.
    ring_when_quiet: bool,
    average_ms: f64,
    /// Jobs taken so far; stands still when all slots are held.
    taken: u64,
}

impl Desk {
    pub(crate) fn new(slots: usize, queues: usize, drivers: usize, ring_when_quiet: bool) -> Self {
        let inner = Inner {
            lanes: Default::default(),
            waiting: 0,
            running: 0,
            held: vec![0; queues],
            producer: WaitsFor::Nothing,
            changes: 0,
            closed: false,
            ring_when_quiet,
            // Strict until handlers have shown that they are fast.
            average_ms: FAST_MS,
            taken: 0,
        };
        let drivers = (0..drivers).map(|_| Notify::new()).collect();
        Self { inner: Mutex::new(inner), slots, drivers, producer: Notify::new() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for more.
    pub(crate) fn room(&self) -> Room {
        let mut inner = self.inner();
        let free = self.slots.saturating_sub(inner.running);
        let any = inner.wants(free);
        inner.producer = WaitsFor::Nothing;
        let strict = free.saturating_sub(inner.waiting);
        Room { any: any as u32, strict: strict as u32, held: inner.held.clone(), changes: inner.changes }
    }

    /// Rings the producer as soon as there is more room than it was told. False if there may be already.
    pub(crate) fn ring_on_room(&self, told: &Room) -> bool {
        let mut inner = self.inner();
        if inner.changes != told.changes {
            return false;
        }
        inner.producer = if told.any == 0 { WaitsFor::Any } else { WaitsFor::Slot };
        true
    }

    /// Puts claimed jobs on the desk. Gives them back if the desk is closed.
    pub(crate) fn put(&self, jobs: Vec<(Waiting, bool)>) -> Vec<Waiting> {
        let mut inner = self.inner();
        if inner.closed {
            return jobs.into_iter().map(|(job, _)| job).collect();
        }
        for (job, strict) in jobs {
            inner.waiting += 1;
            inner.held[job.queue] += 1;
            let lane = 2 * (usize::from(job.job.priority.level()) - 1) + usize::from(!strict);
            inner.lanes[lane].push_back(job);
        }
        drop(inner);
        self.ring_drivers();
        vec![]
    }

    /// Hands in a slot whose run ended at once, if there is one, and takes the next job.
    pub(crate) fn next(&self, ended: Option<Slot>) -> Option<(Waiting, Slot)> {
        let mut inner = self.inner();
        let mut ring = ended.is_some_and(|slot| inner.end(&slot, 0.0));
        let next = if inner.running < self.slots { inner.take() } else { None };
        ring |= inner.room_again(self.slots);
        drop(inner);
        if ring {
            self.producer.notify_one();
        }
        let slot = next.as_ref().map(|waiting| Slot { queue: waiting.queue });
        next.zip(slot)
    }

    /// Hands in a slot.
    pub(crate) fn end(&self, slot: Slot, held_ms: f64) {
        let mut inner = self.inner();
        let ring = inner.end(&slot, held_ms) | inner.room_again(self.slots);
        drop(inner);
        drop(slot);
        if ring {
            self.producer.notify_one();
        }
    }

    /// Waits for something to do. A ring between a look and this call is not lost.
    pub(crate) async fn rung(&self, driver: usize) {
        self.drivers[driver].notified().await;
    }

    pub(crate) fn ring_drivers(&self) {
        for driver in &self.drivers {
            driver.notify_one();
        }
    }

    /// Marks a waiting job as cancelled. False if it is not here.
    pub(crate) fn cancel(&self, wanted: impl Fn(&ClaimedJob) -> bool) -> bool {
        let mut inner = self.inner();
        let found = inner.lanes.iter_mut().flatten().find(|w| wanted(&w.job));
        found.map(|w| w.cancelled = true).is_some()
    }

    /// As [`cancel`](Self::cancel), by id.
    pub(crate) fn cancel_id(&self, id: JobId) -> bool {
        self.cancel(|job| job.id == id)
    }

    /// Takes no more jobs and gives back those that have not started.
    pub(crate) fn close(&self) -> Vec<Waiting> {
        let mut inner = self.inner();
        inner.closed = true;
        inner.clear()
    }

    /// Gives back the jobs that have not started, if none was taken since `taken`. The next claims are strict.
    pub(crate) fn give_back(&self, taken: u64) -> Vec<Waiting> {
        let mut inner = self.inner();
        if inner.taken != taken {
            return vec![];
        }
        inner.average_ms = inner.average_ms.max(FAST_MS);
        inner.clear()
    }

    /// Jobs waiting, jobs running, jobs ever taken.
    pub(crate) fn counts(&self) -> (usize, usize, u64) {
        let inner = self.inner();
        (inner.waiting, inner.running, inner.taken)
    }

    /// Jobs that can run at a time.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }
}

impl Inner {
    /// Jobs to claim with this many free slots: up to two or three times as many where handlers are fast, and only once no more
    /// wait than could start, so that claims stay large.
    fn wants(&self, free: usize) -> usize {
        if self.waiting > free {
            return 0;
        }
        let each = match self.average_ms {
            ms if ms < INSTANT_MS => 3,
            ms if ms < FAST_MS => 2,
            _ => 1,
        };
        (each * free).saturating_sub(self.waiting)
    }

    fn room_again(&mut self, slots: usize) -> bool {
        let free = slots.saturating_sub(self.running);
        let ring = match self.producer {
            WaitsFor::Nothing => false,
            WaitsFor::Any => self.wants(free) > 0,
            WaitsFor::Slot => free > self.waiting,
        };
        if ring {
            self.producer = WaitsFor::Nothing;
        }
        ring
    }

    fn take(&mut self) -> Option<Waiting> {
        let next = self.lanes.iter_mut().find_map(VecDeque::pop_front)?;
        self.waiting -= 1;
        self.running += 1;
        self.taken += 1;
        self.changes += 1;
        Some(next)
    }

    /// True if the producer should know.
    fn end(&mut self, slot: &Slot, held_ms: f64) -> bool {
        self.running -= 1;
        self.changes += 1;
        self.held[slot.queue] -= 1;
        self.average_ms += (held_ms - self.average_ms) * NEWEST;
        self.ring_when_quiet && self.running + self.waiting == 0
    }

    fn clear(&mut self) -> Vec<Waiting> {
        let all: Vec<Waiting> = self.lanes.iter_mut().flat_map(std::mem::take).collect();
        self.waiting = 0;
        for waiting in &all {
            self.held[waiting.queue] -= 1;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn waiting(n: i64, priority: Priority) -> Waiting {
        let (job, lease) = sample::claimed(n, priority);
        Waiting { job, lease, queue: 0, cancelled: false }
    }

    fn taken(desk: &Desk) -> Vec<i64> {
        std::iter::from_fn(|| desk.next(None).map(|(w, _slot)| w.job.ticket.seq.0)).collect()
    }

    fn put(desk: &Desk, jobs: impl IntoIterator<Item = (i64, Priority, bool)>) {
        let jobs = jobs.into_iter().map(|(n, priority, strict)| (waiting(n, priority), strict)).collect();
        assert!(desk.put(jobs).is_empty());
    }

    #[test]
    fn jobs_leave_by_priority_then_limited_queues_then_arrival() {
        let desk = Desk::new(10, 1, 1, false);
        let (low, high) = (Priority::Low, Priority::High);
        put(&desk, [(1, low, false), (2, low, true), (3, high, false), (4, high, false), (5, low, false)]);
        assert_eq!(taken(&desk), [3, 4, 2, 1, 5]);
    }

    #[test]
    fn no_more_run_than_there_are_slots() {
        let desk = Desk::new(2, 1, 1, false);
        put(&desk, (0..5).map(|n| (n, Priority::Low, false)));
        assert_eq!(taken(&desk), [0, 1]);
        desk.end(Slot { queue: 0 }, 1.0);
        assert_eq!(taken(&desk), [2]);
    }

    #[test]
    fn only_fast_handlers_are_prefetched_for_and_the_fastest_most() {
        let desk = Desk::new(10, 1, 1, false);
        assert_eq!(desk.room().any, 10, "nothing is known yet");
        put(&desk, (0..200).map(|n| (n, Priority::Low, false)));
        let mut slot = None;
        for _ in 0..32 {
            slot = desk.next(slot.take()).map(|(_, slot)| slot);
        }
        assert_eq!(desk.inner().wants(10), 0, "enough wait already");
        let asked = |desk: &Desk| {
            let mut inner = desk.inner();
            let waiting = std::mem::take(&mut inner.waiting);
            let wants = inner.wants(10);
            inner.waiting = waiting;
            wants
        };
        assert_eq!(asked(&desk), 20, "they are fast");
        while let Some((_, next)) = desk.next(slot.take()) {
            slot = Some(next);
        }
        let room = desk.room();
        assert_eq!((room.any, room.strict), (30, 10), "they take no time");
        put(&desk, (0..20).map(|n| (n, Priority::Low, false)));
        assert_eq!(desk.room().any, 0, "enough wait already");
        taken(&desk);
        for _ in 0..10 {
            desk.end(Slot { queue: 0 }, 60_000.0);
        }
        assert_eq!(desk.room().any, 0, "ten still wait and handlers are slow now");
    }

    #[test]
    fn the_producer_is_rung_when_there_is_room_and_never_told_too_late() {
        let desk = Desk::new(1, 1, 1, false);
        let rung = || desk.inner().producer == WaitsFor::Nothing;
        put(&desk, [(1, Priority::Low, false), (2, Priority::Low, false)]);
        let (_, slot) = desk.next(None).unwrap();
        let room = desk.room();
        assert!(room.any == 0 && desk.ring_on_room(&room) && !rung());
        let (_, slot) = desk.next(Some(slot)).unwrap();
        assert!(!rung(), "the slot was taken again");
        let stale = room;
        assert!(!desk.ring_on_room(&stale), "the desk has changed since");
        assert!(desk.next(Some(slot)).is_none());
        assert!(rung());
    }

    #[test]
    fn a_producer_that_needs_a_slot_is_rung_when_no_waiting_job_will_take_it() {
        let desk = Desk::new(2, 1, 1, false);
        let rung = || desk.inner().producer == WaitsFor::Nothing;
        put(&desk, [(1, Priority::Low, false), (2, Priority::Low, false), (3, Priority::Low, false)]);
        let (first, second) = (desk.next(None).unwrap(), desk.next(None).unwrap());
        assert!(desk.ring_on_room(&Room { any: 1, ..desk.room() }));
        desk.end(first.1, 0.0);
        assert!(!rung(), "the third job will take it");
        desk.end(second.1, 0.0);
        assert!(rung());
    }

    #[test]
    fn a_closed_desk_gives_everything_back() {
        let desk = Desk::new(1, 1, 1, false);
        put(&desk, [(1, Priority::Low, false)]);
        assert_eq!(desk.close().len(), 1);
        assert_eq!(desk.put(vec![(waiting(2, Priority::Low), false)]).len(), 1);
        assert_eq!(desk.counts(), (0, 0, 0));
    }
}
