//! What people do to single jobs: cancel, run now, change the priority.

use tidegate_core::codes;
use tidegate_core::failure::cut;
use tidegate_core::ids::{JobId, Seq};
use tidegate_core::job::{Priority, State};
use tidegate_core::lanes::LaneKey;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;

use super::Machine;
use crate::params::{CancelJob, CancelReply};
use crate::rows::{DoneRow, JobRow, Rows, StateRow};
use crate::{Error, Result};

impl<R: Rows> Machine<R> {
    /// Cancels a job: at once if it waits, by asking its handler if it runs.
    pub fn cancel(&mut self, cancel: CancelJob) -> Result<CancelReply> {
        let now = self.tick(cancel.now)?;
        let seq = self.find(cancel.id)?;
        if let Some(done) = self.rows.done(seq)? {
            return Ok(CancelReply::AlreadyFinished(done.state));
        }
        let (row, mut state) = self.row_and_state(seq)?;
        state.cancel_note = Some(cut(cancel.note, limits::MAX_NOTE_BYTES));
        if self.leases.request_cancel(seq) {
            self.put_state(seq, &state)?;
            self.signals.cancels.push(cancel.id);
            return Ok(CancelReply::Requested);
        }
        self.withdraw(seq, &row, &state, now)?;
        self.put_state(seq, &state)?;
        self.free_unique(seq)?;
        let queue = self.queue_of(state.lane.unwrap_or(row.lane))?;
        let attempt = state.failures;
        let done = DoneRow { queue, state: State::Cancelled, at: now, attempt, result: None, letter: None };
        self.rows.insert_done(seq, &done)?;
        self.count(queue, State::Cancelled, true);
        Ok(CancelReply::Cancelled)
    }

    /// Makes a scheduled job ready now.
    pub fn run_now(&mut self, id: JobId, now: Timestamp) -> Result<State> {
        let now = self.tick(now)?;
        let seq = self.find(id)?;
        if let Some(done) = self.rows.done(seq)? {
            let hint = if done.state == State::Dead { "; recover it instead" } else { "" };
            return Err(Error::new(codes::WRONG_STATE, format!("job {id} is {}{hint}", done.state)));
        }
        if self.leases.running(seq).is_some() {
            return Ok(State::Running);
        }
        let (row, mut state) = self.row_and_state(seq)?;
        let lane = state.lane.unwrap_or(row.lane);
        let queue = self.queue_of(lane)?;
        let run_at = state.run_at.unwrap_or(row.run_at);
        if self.unschedule(seq, queue, run_at)? {
            state.run_at = Some(now);
            self.put_state(seq, &state)?;
            self.make_ready(seq, lane, row.tenant, now, None)?;
        }
        Ok(State::Ready)
    }

    /// Changes the priority of a job that is not finished. A running job has it from its next attempt on.
    pub fn reprioritise(&mut self, id: JobId, priority: Priority, now: Timestamp) -> Result<()> {
        self.tick(now)?;
        let seq = self.find(id)?;
        if let Some(done) = self.rows.done(seq)? {
            return Err(Error::new(codes::WRONG_STATE, format!("job {id} is {} already", done.state)));
        }
        let (row, mut state) = self.row_and_state(seq)?;
        self.move_to_priority(seq, &row, &mut state, priority)
    }

    /// Moves a job to the lane of another priority and stores its state.
    pub(super) fn move_to_priority(
        &mut self,
        seq: Seq,
        row: &JobRow,
        state: &mut StateRow,
        priority: Priority,
    ) -> Result<()> {
        let from = state.lane.unwrap_or(row.lane);
        let missing = || Error::internal(format!("lane {} is missing", from.0));
        let key = LaneKey { priority, ..self.lanes.lane_key(from).ok_or_else(missing)?.clone() };
        let to = self.lane(key)?;
        if to == from {
            return Ok(());
        }
        let ready_at = state.run_at.unwrap_or(row.run_at).min(self.last_now);
        let was_ready = self.lanes.remove_ready(from, seq, self.last_now);
        let moved_before = state.lane.replace(to);
        self.use_lane(to);
        self.put_state(seq, state)?;
        if was_ready {
            let queue = self.queue_of(to)?;
            self.shift_tenant_ready(queue, row.tenant, false);
            let suspect = state.suspect.then(|| super::exclusive(state.lone_stalls));
            self.make_ready(seq, to, row.tenant, ready_at, suspect)?;
        }
        match moved_before {
            Some(old) => self.unuse_lane(old),
            None => Ok(()),
        }
    }

    /// Takes a job that does not run out of its lane or off the schedule.
    fn withdraw(&mut self, seq: Seq, row: &JobRow, state: &StateRow, now: Timestamp) -> Result<()> {
        let lane = state.lane.unwrap_or(row.lane);
        let queue = self.queue_of(lane)?;
        if self.lanes.remove_ready(lane, seq, now) {
            self.shift_tenant_ready(queue, row.tenant, false);
            return Ok(());
        }
        let run_at = state.run_at.unwrap_or(row.run_at);
        if self.unschedule(seq, queue, run_at)? {
            return Ok(());
        }
        Err(Error::internal(format!("job {} is neither ready, scheduled, running nor finished", seq.0)))
    }

    /// Takes a job out of wherever it is, before it is erased.
    pub(super) fn uproot(&mut self, seq: Seq, now: Timestamp) -> Result<()> {
        if let Some(done) = self.rows.done(seq)? {
            self.count(done.queue, done.state, false);
        } else if self.leases.running(seq).is_some() {
            let running = self.let_go(seq, now)?;
            self.signals.cancels.extend(self.rows.job(seq)?.map(|row| row.id));
            debug_assert_eq!(self.leases.running(seq), None, "{running:?}");
        } else {
            let (row, state) = self.row_and_state(seq)?;
            self.withdraw(seq, &row, &state, now)?;
        }
        let Some(row) = self.rows.job(seq)? else { return Ok(()) };
        if let Some(unique) = row.extra.as_ref().and_then(|e| e.unique.as_ref()) {
            self.rows.delete_unique(row.kind, &unique.key, seq)?;
        }
        Ok(())
    }

    pub(super) fn row_and_state(&mut self, seq: Seq) -> Result<(JobRow, StateRow)> {
        let row = self.rows.job(seq)?.ok_or_else(|| Error::internal(format!("job {} is missing", seq.0)))?;
        let state = self.state_of(seq)?;
        Ok((row, state))
    }
}
