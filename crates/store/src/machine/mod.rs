//! The operations on jobs, written once over [`Rows`].
//!
//! The machine holds in memory what a claim needs (ready jobs by lane, leases, counts) and keeps everything else in
//! rows. It is synchronous and has no clock of its own. Stores decide what makes its changes durable:
//!
//! - an operation that fails with a usage, not-found or state error has changed nothing;
//! - after any other error the machine's memory may be ahead of its rows: drop it and [`Machine::open`] it again.
//!
//! Invariants, which the simulation checks after every step:
//! 1. a job is in exactly one place: blocked, ready in one lane, scheduled, held by one lease, or finished;
//! 2. a write with a ticket is applied only while that lease holds that job;
//! 3. running jobs of a queue and of a group are what the leases hold, so a lost lease frees its places.
//!
//! Several processes can run a machine over the same rows if their commits have one order: each records its
//! [`Change`]s, keeps them with the commit, and [`follow`](Machine::follow)s those of the others before its own next
//! operation. All times must then come from one clock.

mod admit;
mod change;
mod claim;
mod control;
mod counts;
mod digest;
mod draft;
mod enqueue;
mod flows;
mod follow;
mod hints;
mod letters;
mod managed;
mod memory;
mod names;
mod plan;
mod processor;
mod recover;
mod registry;
mod runs;
mod schedules;
mod settle;
pub mod standing;
mod timetable;
mod upkeep;
mod versions;
mod view;

use std::collections::HashMap;

use tidegate_core::codes;
use tidegate_core::hash::KeyMap;
use tidegate_core::ids::{ConnectorName, JobId, LeaseId, ProcessId, QueueName, Seq};
use tidegate_core::job::State;
use tidegate_core::lanes::{Exclusive, LaneId, QueueId};
use tidegate_core::limits;
use tidegate_core::time::Timestamp;

pub use self::change::{
    Because, Change, Face, Fate, Ids, KindNamed, Leased, LeasedJob, Place, PoliciesSet, QueueNamed,
    ScheduleNamed, StoredJobs, decode, encode,
};
pub use self::claim::Asked;
pub use self::digest::Digest;
pub use self::follow::Position;
use self::memory::Memory;
pub use self::processor::is_pending;
use crate::params::Ticket;
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

/// A gate has called a job that runs.
#[derive(Debug)]
struct Turned {
    gate: ConnectorName,
    lease: LeaseId,
    at: Timestamp,
}

/// The machine.
#[derive(Debug)]
pub struct Machine<R> {
    rows: R,
    memory: Memory,
    /// Numbers below this one are reserved for jobs in the rows.
    reserved_seq: i64,
    clock_slack_ms: i64,
    /// The latest time seen.
    last_now: Timestamp,
    /// Whether what was due next has left the schedule in this operation.
    due_left: bool,
    stale_refused: u64,
    /// Running jobs whose turn a gate has called meanwhile: what it refused them before no longer holds.
    turned: KeyMap<Seq, Turned>,
    /// Jobs that this operation has finished and that others wait for.
    ended: Vec<flows::Ended>,
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
        self.memory.signals.keep
    }

    /// Whether a claim may find more than before the last [`take_signals`](Self::take_signals).
    pub fn may_have_work(&self) -> bool {
        self.memory.signals.work
    }

    /// The latest time seen; an earlier one after a clock that went back.
    pub fn now(&self) -> Timestamp {
        self.last_now
    }

    /// Whether this lease still holds this job.
    pub fn holds(&self, ticket: Ticket) -> bool {
        self.memory.leases.holds(ticket.lease, ticket.seq)
    }

    /// Whether time alone has something to do by now: jobs that are due, leases that have ended, ticks of schedules, those who have
    /// yet to be told that what they wait for has ended.
    pub fn has_something_due(&self, now: Timestamp) -> bool {
        let tick = self.memory.timetable.next().map(|(at, _)| at);
        if !self.memory.untold.is_empty() {
            return true;
        }
        [self.memory.next_due, self.memory.leases.next_expiry(), tick]
            .into_iter()
            .flatten()
            .any(|at| at <= now)
    }

    /// What to signal after the commit; empty until the next operation.
    pub fn take_signals(&mut self) -> PendingSignals {
        std::mem::take(&mut self.memory.signals)
    }

    /// How far a reading of the clock may be behind the latest one and still count as late, not as a clock that went
    /// back. More than the usual second where readings come from several processes and may wait for a lock.
    pub fn tolerate_late_readings(&mut self, ms: i64) {
        self.clock_slack_ms = ms;
    }

    /// Whether this is no reading of a clock that went back.
    fn is_on_time(&self, now: Timestamp) -> bool {
        now >= self.last_now.plus_ms(-self.clock_slack_ms)
    }

    /// Takes note of the time. Returns it, or the latest time seen if the clock went back a little.
    fn tick(&mut self, now: Timestamp) -> Result<Timestamp> {
        if self.is_on_time(now) {
            self.last_now = self.last_now.max(now);
            return Ok(self.last_now);
        }
        self.last_now = now;
        self.draining.clear();
        self.turned.clear();
        let moved = self.memory.leases.beyond(now);
        self.change(Change::Rebased(now))?;
        for (lease, until) in moved {
            self.rows.extend_lease(lease, until)?;
        }
        let names = &self.memory.names;
        let limited =
            |(_, id): &(&QueueName, QueueId)| names.queue(*id).is_some_and(|(_, s)| s.limiter.is_some());
        let queues: Vec<QueueId> = names.queues().filter(limited).map(|(_, id)| id).collect();
        for queue in queues {
            self.rewrite_starts(queue)?;
        }
        Ok(now)
    }

    fn queue_id(&self, name: &QueueName) -> Result<QueueId> {
        let names = &self.memory.names;
        names.queue_id(name).ok_or_else(|| {
            let known = names.nearest_queue(name).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
            Error::new(codes::UNKNOWN_QUEUE, format!("queue `{name}` is not registered{known}"))
        })
    }

    fn change(&mut self, change: Change) -> Result<()> {
        self.memory.change(self.last_now, change)
    }

    fn queue_of(&self, lane: LaneId) -> Result<QueueId> {
        self.memory.queue_of(lane)
    }

    fn find(&mut self, id: JobId) -> Result<Seq> {
        self.rows
            .find_job(id)?
            .ok_or_else(|| Error::new(codes::JOB_NOT_FOUND, format!("there is no job {id}")))
    }

    fn state_of(&mut self, seq: Seq) -> Result<StateRow> {
        if !self.memory.with_state.contains(&seq) {
            return Ok(StateRow::default());
        }
        Ok(self.rows.state(seq)?.unwrap_or_default())
    }

    fn put_state(&mut self, seq: Seq, state: &StateRow) -> Result<()> {
        if !self.memory.with_state.contains(&seq) {
            self.change(Change::HasState(seq))?;
        }
        self.rows.put_state(seq, state)
    }

    fn lane_and_tenant(&mut self, seq: Seq) -> Result<(LaneId, Option<TenantNo>)> {
        self.rows.head(seq)?.ok_or_else(|| Error::internal(format!("job {} is missing", seq.0)))
    }

    /// Takes a job off the schedule in the rows; [`settle_due`](Self::settle_due) must follow. The caller knows that it
    /// is there, and says what becomes of it.
    fn undelay(&mut self, seq: Seq, run_at: Timestamp) -> Result<()> {
        if !self.rows.undelay(run_at, seq)? {
            let detail = format!("job {} is neither ready, scheduled, running nor finished", seq.0);
            return Err(Error::internal(detail));
        }
        self.due_left |= self.memory.next_due == Some(run_at);
        Ok(())
    }

    /// Finds out what is due next, if that has changed. Once per operation: it may be a long way to the rows.
    fn settle_due(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.due_left) {
            return Ok(());
        }
        let due = self.rows.next_due()?;
        if due == self.memory.next_due { Ok(()) } else { self.change(Change::NextDue(due)) }
    }

    fn next_seq(&mut self) -> Result<Seq> {
        let next = self.memory.next_seq;
        if next >= self.reserved_seq {
            self.reserved_seq = next + SEQ_BLOCK;
            self.rows.reserve_seq(Seq(self.reserved_seq))?;
        }
        Ok(Seq(next))
    }

    /// Forgets a lane that no stored job uses any more.
    fn forget_unused(&mut self, lane: LaneId) -> Result<()> {
        if self.memory.lane_jobs.contains_key(&lane) || self.memory.lanes.lane_key(lane).is_none() {
            return Ok(());
        }
        self.change(Change::LaneGone(lane))?;
        self.rows.delete_lane(lane)
    }

    /// Deletes a finished or erased job that is in no lane, lease or schedule any more.
    fn delete(&mut self, seq: Seq, finished: Option<(QueueId, State)>, erased: bool) -> Result<()> {
        self.unlink(seq, finished.map(|(_, state)| state), erased)?;
        let (lane, tenant) = self.lane_and_tenant(seq)?;
        let moved = self.state_of(seq)?.lane;
        self.run_ended(seq, State::Cancelled, self.last_now)?;
        self.rows.delete_job(seq)?;
        self.change(Change::Deleted { seq, lane, moved, tenant, finished })?;
        for lane in [Some(lane), moved].into_iter().flatten() {
            self.forget_unused(lane)?;
        }
        if let Some(tenant) = tenant.filter(|no| !self.memory.tenant_jobs.contains_key(no)) {
            self.change(Change::TenantGone(tenant))?;
            self.rows.delete_tenant(tenant)?;
        }
        Ok(())
    }
}

/// Whether a suspect must be alone in its process: one more stall and it is dead.
fn exclusive(lone_stalls: u32) -> Exclusive {
    Exclusive(lone_stalls + 1 >= limits::MAX_LONE_STALLS)
}
