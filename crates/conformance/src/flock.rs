//! Several machines over one set of rows, as the processes of one deployment run them.
//!
//! Each operation is done by one machine; its changes go through their stored form to the others, and after every step
//! all of them must know the same, wake the same workers and tell the same events. Rows are a long way off here: an
//! operation on many jobs may not go there for each of them, and following may not go there at all.

mod rows;
mod store;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tidegate_core::codes::{self, Code, Fault};
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;
use tidegate_store::machine::{self, Change, Machine};
use tidegate_store::{Error, Feed, MemoryStore, Result, Signals, Store, Upkeep as _};

use self::rows::{Access, FarRows};
use crate::kit::Harness;

/// Processes of a flock.
const MACHINES: usize = 3;

/// Who does what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leading {
    /// The same one does everything; the others look on. Restarts are rehearsed with one more machine.
    One,
    /// Each operation is done by any of them. A restart is that of one of them.
    Turns,
}

/// A flock of machines, as a store.
#[derive(Debug)]
pub struct Flock {
    inner: Mutex<Option<Inner>>,
    leading: Leading,
    signals: Signals,
    feed: Feed,
    /// Keeps the records, which machines have nothing to do with.
    notes: MemoryStore,
}

#[derive(Debug)]
struct Inner {
    machines: Vec<Machine<FarRows>>,
    rows: FarRows,
    /// The one clock that all of them read when they take turns.
    clock: Timestamp,
    dice: Seed,
    /// Whether virtual times are the same everywhere: until one is rebuilt.
    in_step: bool,
    bytes: u64,
    feed: Feed,
    commits: u64,
}

impl Flock {
    /// An empty flock.
    pub fn open(leading: Leading, seed: u64) -> Self {
        let rows = FarRows::default();
        let machines = (0..MACHINES).map(|_| rebuilt(&rows)).collect();
        let feed = Feed::new(0, 0);
        let inner = Inner {
            machines,
            rows,
            clock: Timestamp(0),
            dice: Seed::new(seed),
            in_step: true,
            bytes: 0,
            feed: feed.clone(),
            commits: 0,
        };
        Self {
            inner: Mutex::new(Some(inner)),
            leading,
            signals: Signals::default(),
            feed,
            notes: MemoryStore::new(),
        }
    }

    /// Bytes of all changes so far, as a log would keep them.
    pub fn bytes(&self) -> u64 {
        self.lock().as_ref().map_or(0, |inner| inner.bytes)
    }

    /// Edges between jobs that were fetched so far.
    pub fn edges_fetched(&self) -> u64 {
        self.lock().as_ref().map_or(0, |inner| inner.rows.edges_fetched())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Inner>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One operation of one machine, with at most so many ways to the rows; the others follow.
    fn with<T>(
        &self,
        now: Option<Timestamp>,
        trips: u32,
        operation: impl FnOnce(&mut Machine<FarRows>, Timestamp) -> Result<T>,
    ) -> Result<T> {
        let mut guard = self.lock();
        let inner = guard.as_mut().ok_or_else(|| Error::new(codes::STORE_CLOSED, "the flock is closed"))?;
        let leader = match self.leading {
            Leading::One => 0,
            Leading::Turns => inner.dice.below(MACHINES as u64) as usize,
        };
        // One machine alone makes up its own mind about a clock that goes back.
        let now = match self.leading {
            Leading::One => now.unwrap_or(inner.clock),
            Leading::Turns => inner.clock(now),
        };
        let (reply, signals) = inner.step(leader, now, trips, operation)?;
        drop(guard);
        if signals.work {
            self.signals.work();
        }
        for id in signals.cancels {
            self.signals.cancel(id);
        }
        reply
    }

    /// Rebuilds one of the machines from the rows; if one leads, only to see that it could be done.
    pub fn rebuild_one(&self) {
        let mut guard = self.lock();
        let Some(inner) = guard.as_mut() else { return };
        let rebuilt = inner.rebuild();
        if self.leading == Leading::Turns {
            let one = inner.dice.below(MACHINES as u64) as usize;
            inner.machines[one] = rebuilt;
            inner.in_step = false;
        }
    }
}

/// Opens one more machine at the place where the others are. It only reads.
fn rebuilt(rows: &FarRows) -> Machine<FarRows> {
    rows.allow(Access::Read);
    let mut machine = Machine::open(rows.clone(), rows.position().now).expect("rows can be read");
    rows.allow(Access::Nothing);
    machine.record_changes(true);
    machine.watch(true);
    machine.measure();
    machine.take_signals();
    machine
}

impl Inner {
    fn rebuild(&mut self) -> Machine<FarRows> {
        let machine = rebuilt(&self.rows);
        assert_eq!(machine.digest(), self.machines[0].digest(), "a rebuilt machine knows something else");
        assert_eq!(machine.position(), self.machines[0].position());
        machine
    }

    /// All machines read one clock, which stands still if it goes back a little.
    fn clock(&mut self, now: Option<Timestamp>) -> Timestamp {
        if let Some(now) = now {
            let slightly = now.plus_ms(1_000) >= self.clock;
            self.clock = if slightly { self.clock.max(now) } else { now };
        }
        self.clock
    }

    fn step<T>(
        &mut self,
        leader: usize,
        now: Timestamp,
        trips: u32,
        operation: impl FnOnce(&mut Machine<FarRows>, Timestamp) -> Result<T>,
    ) -> Result<(Result<T>, machine::PendingSignals)> {
        let before = self.rows.snapshot();
        self.rows.allow(Access::Write);
        let reply = operation(&mut self.machines[leader], now);
        let went = self.rows.allow(Access::Nothing);
        if let Err(error) = reply.as_ref()
            && !is_refusal(error.code)
        {
            // As after a failed commit: nothing of it happened, and the machine starts anew.
            self.rows.restore(before);
            self.machines[leader] = rebuilt(&self.rows);
            self.in_step = false;
            return Err(error.clone());
        }
        assert!(went <= trips, "{went} ways to the rows where {trips} are enough");
        let machine = &mut self.machines[leader];
        let changes = machine.take_changes();
        let (signals, events) = (machine.take_signals(), machine.take_events());
        let (digest, position) = (machine.digest(), machine.position());
        self.rows.set_position(position);
        let stored = machine::encode(&changes).expect("changes can be stored");
        self.bytes += stored.len() as u64;
        let read: Vec<Change> = machine::decode(&stored).expect("what was stored can be read");
        assert_eq!(read, changes);
        // All count into one meter: what is followed must not count again.
        for machine in &mut self.machines {
            machine.count_seen(self.feed.meter());
        }
        for (i, other) in self.machines.iter_mut().enumerate().filter(|(i, _)| *i != leader) {
            other.follow(&read).unwrap_or_else(|e| panic!("machine {i} cannot follow {changes:?}: {e}"));
            assert_eq!(other.digest(), digest, "machine {i} knows something else after {changes:?}");
            assert_eq!(other.position(), position);
            let followed = other.take_signals();
            assert_eq!((followed.work, &followed.cancels), (signals.work, &signals.cancels), "{changes:?}");
            assert_eq!(other.take_events(), events);
            assert_eq!(other.take_changes(), [], "what was followed is not news");
            other.count_seen(self.feed.meter());
        }
        self.commits += 1;
        self.feed.publish(self.commits, events);
        if self.in_step {
            let shares = self.machines[leader].shares();
            assert!(
                self.machines.iter().all(|m| m.shares() == shares),
                "fair shares differ after {changes:?}"
            );
        }
        Ok((reply, signals))
    }
}

fn is_refusal(code: Code) -> bool {
    matches!(code.fault, Fault::Usage | Fault::NotFound | Fault::State)
}

/// A harness around a flock.
#[derive(Debug, Clone)]
pub struct FlockHarness(pub Arc<Flock>);

#[async_trait]
impl Harness for FlockHarness {
    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    async fn restart(&mut self, now: Timestamp) {
        self.0.rebuild_one();
        // It was opened at the time of the last change; what time it is now is an operation like others.
        self.0.advance(now).await.expect("time passes");
    }
}
