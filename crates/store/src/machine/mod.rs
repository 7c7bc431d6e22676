//! The operations on jobs, written once over [`Rows`].
//!
//! The machine holds in memory what a claim needs (ready jobs by lane, leases, counts) and keeps everything else in
//! rows. It is synchronous and has no clock of its own. Stores decide what makes its changes durable:
//!
//! - an operation that fails with a usage, not-found or state error has changed nothing;
//! - after any other error the machine's memory may be ahead of its rows: drop it and [`Machine::open`] it again.
//!
//! Invariants, which the simulation checks after every step:
//! 1. a job is in exactly one place: ready in one lane, scheduled, held by one lease, or finished;
//! 2. a write with a ticket is applied only while that lease holds that job;
//! 3. running jobs of a queue and of a group are what the leases hold, so a lost lease frees its places.

mod claim;
mod control;
mod enqueue;
mod letters;
mod names;
mod recover;
mod registry;
mod settle;
mod upkeep;
mod view;

use std::collections::{HashMap, HashSet};

use tidegate_core::codes;
use tidegate_core::ids::{JobId, LeaseId, ProcessId, QueueName, Seq};
use tidegate_core::job::State;
use tidegate_core::lanes::{Exclusive, LaneId, Lanes, QueueId, Window};
use tidegate_core::leases::Leases;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;

use self::names::NameBook;
use crate::rows::{Rows, StateRow, TenantNo};
use crate::{Error, Result};

/// A clock that goes back by less than this is taken to have stood still: callers read it before they queue, so their
/// readings arrive slightly out of order.
const CLOCK_SLACK_MS: i64 = 1_000;

/// Numbers reserved for jobs at a time.
const SEQ_BLOCK: i64 = 100_000;

/// What to signal after the commit.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PendingSignals {
    /// A claim may find something it did not find before.
    pub work: bool,
    /// Running jobs that should be cancelled.
    pub cancels: Vec<JobId>,
    /// Something was decided that must not be forgotten even if the power fails, although claims otherwise may be: a
    /// start that a limiter counts, or a suspect's run.
    pub keep: bool,
}

/// The machine.
#[derive(Debug)]
pub struct Machine<R> {
    rows: R,
    lanes: Lanes,
    leases: Leases,
    names: NameBook,
    /// Jobs that have a state row.
    with_state: HashSet<Seq>,
    counts: HashMap<QueueId, Counts>,
    tenant_ready: HashMap<(QueueId, TenantNo), u64>,
    /// Stored jobs per lane and per tenant, finished ones included: what nobody uses is forgotten.
    lane_jobs: HashMap<LaneId, u64>,
    tenant_jobs: HashMap<TenantNo, u64>,
    next_seq: i64,
    reserved_seq: i64,
    next_lease: i64,
    next_due: Option<Timestamp>,
    last_now: Timestamp,
    stale_refused: u64,
    signals: PendingSignals,
    /// Processes that finish what they run so that a suspect can run alone.
    draining: HashMap<ProcessId, Draining>,
}

/// A process that makes room for a suspect.
#[derive(Debug, Clone, Copy)]
struct Draining {
    lane: LaneId,
    seq: Seq,
    /// Claims nothing until then; after that it works as usual for as long, and tries again.
    until: Timestamp,
    span_ms: i64,
}

/// Counts of a queue that neither lanes nor leases have.
#[derive(Debug, Default)]
struct Counts {
    scheduled: u64,
    completed: u64,
    dead: u64,
    cancelled: u64,
    rate: Rate,
}

impl Counts {
    fn of(&mut self, state: State) -> Option<&mut u64> {
        match state {
            State::Scheduled => Some(&mut self.scheduled),
            State::Completed => Some(&mut self.completed),
            State::Dead => Some(&mut self.dead),
            State::Cancelled => Some(&mut self.cancelled),
            State::Blocked | State::Ready | State::Running => None,
        }
    }
}

/// Completions per second over the last minute.
#[derive(Debug)]
struct Rate {
    seconds: [(i64, u64); 60],
}

impl Default for Rate {
    fn default() -> Self {
        Self { seconds: [(0, 0); 60] }
    }
}

impl Rate {
    fn record(&mut self, now: Timestamp) {
        let second = now.0.div_euclid(1_000);
        let slot = &mut self.seconds[second.rem_euclid(60) as usize];
        if slot.0 == second {
            slot.1 += 1;
        } else {
            *slot = (second, 1);
        }
    }

    fn last_minute(&self, now: Timestamp) -> u64 {
        let second = now.0.div_euclid(1_000);
        self.seconds.iter().filter(|(s, _)| (second - 59..=second).contains(s)).map(|(_, n)| n).sum()
    }
}

impl<R: Rows> Machine<R> {
    /// The rows.
    pub fn rows_mut(&mut self) -> &mut R {
        &mut self.rows
    }

    /// Lets go of the rows.
    pub fn into_rows(self) -> R {
        self.rows
    }

    /// Forgets everything in memory and rebuilds it from the rows, as a restart does.
    pub fn reopen(self, now: Timestamp) -> Result<Self> {
        Self::open(self.rows, now)
    }

    /// Whether something since the last [`take_signals`](Self::take_signals) must not be forgotten even if the power
    /// fails, although claims otherwise may be.
    pub fn must_keep(&self) -> bool {
        self.signals.keep
    }

    /// What to signal after the commit; empty until the next operation.
    pub fn take_signals(&mut self) -> PendingSignals {
        std::mem::take(&mut self.signals)
    }

    /// Takes note of the time. Returns it, or the latest time seen if the clock went back a little.
    fn tick(&mut self, now: Timestamp) -> Result<Timestamp> {
        if now >= self.last_now.plus_ms(-CLOCK_SLACK_MS) {
            self.last_now = self.last_now.max(now);
            return Ok(self.last_now);
        }
        self.last_now = now;
        self.lanes.rebase(now);
        self.draining.clear();
        for (lease, until) in self.leases.rebase(now) {
            self.rows.extend_lease(lease, until)?;
        }
        let limited =
            |(_, id): &(&QueueName, QueueId)| self.names.queue(*id).is_some_and(|(_, s)| s.limiter.is_some());
        let queues: Vec<QueueId> = self.names.queues().filter(limited).map(|(_, id)| id).collect();
        for queue in queues {
            self.rewrite_starts(queue)?;
        }
        Ok(now)
    }

    /// Writes the starts of a queue's limiter as they are in memory.
    fn rewrite_starts(&mut self, queue: QueueId) -> Result<()> {
        self.rows.drop_starts(queue, Timestamp(i64::MAX))?;
        for (at, n) in self.lanes.window(queue).into_iter().flat_map(Window::starts) {
            self.rows.add_starts(queue, at, n)?;
        }
        Ok(())
    }

    fn queue_id(&self, name: &QueueName) -> Result<QueueId> {
        self.names.queue_id(name).ok_or_else(|| {
            let known =
                self.names.nearest_queue(name).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
            Error::new(codes::UNKNOWN_QUEUE, format!("queue `{name}` is not registered{known}"))
        })
    }

    fn counts(&mut self, queue: QueueId) -> &mut Counts {
        self.counts.entry(queue).or_default()
    }

    fn count(&mut self, queue: QueueId, state: State, up: bool) {
        if let Some(n) = self.counts(queue).of(state) {
            *n = if up { *n + 1 } else { n.saturating_sub(1) };
        }
    }

    fn queue_of(&self, lane: LaneId) -> Result<QueueId> {
        let key = self
            .lanes
            .lane_key(lane)
            .ok_or_else(|| Error::internal(format!("lane {} is missing", lane.0)))?;
        Ok(key.queue)
    }

    fn find(&mut self, id: JobId) -> Result<Seq> {
        self.rows
            .find_job(id)?
            .ok_or_else(|| Error::new(codes::JOB_NOT_FOUND, format!("there is no job {id}")))
    }

    fn state_of(&mut self, seq: Seq) -> Result<StateRow> {
        if !self.with_state.contains(&seq) {
            return Ok(StateRow::default());
        }
        Ok(self.rows.state(seq)?.unwrap_or_default())
    }

    fn put_state(&mut self, seq: Seq, state: &StateRow) -> Result<()> {
        self.with_state.insert(seq);
        self.rows.put_state(seq, state)
    }

    fn lane_and_tenant(&mut self, seq: Seq) -> Result<(LaneId, Option<TenantNo>)> {
        self.rows.head(seq)?.ok_or_else(|| Error::internal(format!("job {} is missing", seq.0)))
    }

    /// Puts a job into its lane. `state` must be stored already if it says more than the job's row.
    fn make_ready(
        &mut self,
        seq: Seq,
        lane: LaneId,
        tenant: Option<TenantNo>,
        ready_at: Timestamp,
        suspect: Option<Exclusive>,
    ) -> Result<()> {
        let now = self.last_now;
        match suspect {
            Some(exclusive) => self.lanes.add_suspect(lane, seq, exclusive, ready_at, now),
            None => self.lanes.add_ready(lane, seq, ready_at, now),
        }
        let queue = self.queue_of(lane)?;
        self.shift_tenant_ready(queue, tenant, true);
        self.signals.work = true;
        Ok(())
    }

    fn shift_tenant_ready(&mut self, queue: QueueId, tenant: Option<TenantNo>, up: bool) {
        let Some(tenant) = tenant else { return };
        let n = self.tenant_ready.entry((queue, tenant)).or_default();
        *n = if up { *n + 1 } else { n.saturating_sub(1) };
        if *n == 0 {
            self.tenant_ready.remove(&(queue, tenant));
        }
    }

    /// Schedules a job. Its state row, if any, is the caller's business.
    fn schedule(&mut self, seq: Seq, queue: QueueId, run_at: Timestamp) -> Result<()> {
        self.rows.delay(run_at, seq)?;
        self.count(queue, State::Scheduled, true);
        if self.next_due.is_none_or(|due| run_at < due) {
            self.next_due = Some(run_at);
            // Sleeping workers must set their alarm anew.
            self.signals.work = true;
        }
        Ok(())
    }

    /// Takes a job off the schedule. False if it is not scheduled.
    fn unschedule(&mut self, seq: Seq, queue: QueueId, run_at: Timestamp) -> Result<bool> {
        if !self.rows.undelay(run_at, seq)? {
            return Ok(false);
        }
        self.count(queue, State::Scheduled, false);
        if self.next_due == Some(run_at) {
            self.next_due = self.rows.next_due()?;
        }
        Ok(true)
    }

    fn next_lease_id(&mut self) -> LeaseId {
        let id = LeaseId(self.next_lease);
        self.next_lease += 1;
        id
    }

    fn next_seq(&mut self) -> Result<Seq> {
        if self.next_seq >= self.reserved_seq {
            self.reserved_seq = self.next_seq + SEQ_BLOCK;
            self.rows.reserve_seq(Seq(self.reserved_seq))?;
        }
        let seq = Seq(self.next_seq);
        self.next_seq += 1;
        Ok(seq)
    }

    fn use_lane(&mut self, lane: LaneId) {
        *self.lane_jobs.entry(lane).or_default() += 1;
    }

    /// One stored job less uses this lane; the last one takes it along.
    fn unuse_lane(&mut self, lane: LaneId) -> Result<()> {
        let left = self.lane_jobs.entry(lane).or_default();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.lane_jobs.remove(&lane);
            self.lanes.remove_lane(lane);
            self.rows.delete_lane(lane)?;
        }
        Ok(())
    }

    /// Deletes a finished or erased job that is in no lane, lease or schedule any more.
    fn delete(&mut self, seq: Seq) -> Result<()> {
        let (lane, tenant) = self.lane_and_tenant(seq)?;
        let moved = self.state_of(seq)?.lane;
        self.rows.delete_job(seq)?;
        self.with_state.remove(&seq);
        self.unuse_lane(lane)?;
        if let Some(lane) = moved {
            self.unuse_lane(lane)?;
        }
        let Some(tenant) = tenant else { return Ok(()) };
        let left = self.tenant_jobs.entry(tenant).or_default();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.tenant_jobs.remove(&tenant);
            self.names.forget_tenant(tenant);
            self.rows.delete_tenant(tenant)?;
        }
        Ok(())
    }
}

/// Whether a suspect must be alone in its process: one more stall and it is dead.
fn exclusive(lone_stalls: u32) -> Exclusive {
    Exclusive(lone_stalls + 1 >= limits::MAX_LONE_STALLS)
}
