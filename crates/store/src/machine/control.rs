//! What people and gates do to single jobs: cancel, run now, change the priority.

use tidegate_core::codes;
use tidegate_core::failure::cut;
use tidegate_core::ids::{ConnectorName, JobId, Seq};
use tidegate_core::job::{ParkScope, Priority, ScheduledBecause, State};
use tidegate_core::lanes::{GATE_PARK, LaneId, LaneKey, QueueId};
use tidegate_core::limits;
use tidegate_core::time::Timestamp;

use super::flows::End;
use super::hints::Need;
use super::{Change, Face, Fate, Machine, Place, Turned};
use crate::params::{CancelJob, CancelReply, Ticket};
use crate::rows::{DoneRow, JobRow, Rows, StateRow};
use crate::{Error, Result};

/// Running jobs whose turn is remembered.
const MOST_TURNED: usize = 10_000;
/// How long a call is remembered: as long as the word of a refusal may be on its way. Later ones are about another call of the run.
pub(super) const TURNED_MS: i64 = 5_000;

impl<R: Rows> Machine<R> {
    /// Cancels a job: at once if it waits, by asking its handler if it runs; if asked, with those who wait for it.
    pub fn cancel(&mut self, cancel: CancelJob) -> Result<CancelReply> {
        let now = self.tick(cancel.now)?;
        let seq = self.find(cancel.id)?;
        self.hint_rows([seq].into_iter(), Need::Everything)?;
        // Whoever waits for a job that has ended waits for something else.
        if let Some(done) = self.rows.done(seq)? {
            return Ok(CancelReply::AlreadyFinished(done.state));
        }
        let waiting = if cancel.cascade { self.descendants(seq)? } else { vec![] };
        let note = cut(cancel.note, limits::MAX_NOTE_BYTES);
        let reply = self.cancel_one(seq, &note, now)?;
        self.hint_rows(waiting.iter().copied(), Need::Everything)?;
        let mut others = 0;
        for child in waiting {
            let ended = matches!(self.cancel_one(child, &note, now)?, CancelReply::AlreadyFinished(_));
            others += u32::from(!ended);
        }
        self.settle_due()?;
        self.tell_dependents(now)?;
        Ok(reply.with_others(others))
    }

    fn cancel_one(&mut self, seq: Seq, note: &str, now: Timestamp) -> Result<CancelReply> {
        if let Some(done) = self.rows.done(seq)? {
            return Ok(CancelReply::AlreadyFinished(done.state));
        }
        let (row, mut state) = self.row_and_state(seq)?;
        state.cancel_note = Some(note.to_owned());
        if self.memory.leases.running(seq).is_some() {
            self.put_state(seq, &state)?;
            self.change(Change::CancelAsked(seq))?;
            return Ok(CancelReply::Requested);
        }
        self.withdraw(seq, &row, &state)?;
        self.put_state(seq, &state)?;
        self.free_unique(seq)?;
        let queue = self.queue_of(state.lane.unwrap_or(row.lane))?;
        let attempt = state.failures;
        let done = DoneRow { queue, state: State::Cancelled, at: now, attempt, result: None, letter: None };
        self.rows.insert_done(seq, &done)?;
        self.change(Change::Cancelled(Face { id: row.id, queue, kind: row.kind, tenant: row.tenant }))?;
        if self.memory.lanes.lane_key(row.lane).is_some_and(|key| key.kind.is_some()) {
            self.change(Change::Finished { seq, lane: row.lane })?;
        }
        self.run_ended(seq, State::Cancelled, now)?;
        self.ended(seq, row.id, End::Cancelled);
        Ok(CancelReply::Cancelled)
    }

    /// Makes a scheduled job ready now.
    pub fn run_now(&mut self, id: JobId, now: Timestamp) -> Result<State> {
        let now = self.tick(now)?;
        let seq = self.find(id)?;
        self.hint_rows([seq].into_iter(), Need::Everything)?;
        if let Some(done) = self.rows.done(seq)? {
            let hint = if done.state == State::Dead { "; recover it instead" } else { "" };
            return Err(Error::new(codes::WRONG_STATE, format!("job {id} is {}{hint}", done.state)));
        }
        if self.memory.leases.running(seq).is_some() {
            return Ok(State::Running);
        }
        let (row, mut state) = self.row_and_state(seq)?;
        let lane = state.lane.unwrap_or(row.lane);
        if !self.memory.lanes.is_ready(lane, seq) {
            if let Some(waits) = self.waits(seq)? {
                let detail = format!("job {id} is blocked: it waits for {} others", waits.open);
                return Err(Error::new(codes::WRONG_STATE, detail));
            }
            self.undelay(seq, state.run_at.unwrap_or(row.run_at))?;
            state.run_at = Some(now);
            self.put_state(seq, &state)?;
            self.change(Change::Due { place: Place { seq, lane, tenant: row.tenant }, at: now })?;
            self.settle_due()?;
        }
        Ok(State::Ready)
    }

    /// It is the turn of jobs that wait for the gates of this domain: they are ready, and these gates' parks that cover them end.
    pub fn turn(&mut self, jobs: &[JobId], gate: &ConnectorName, now: Timestamp) -> Result<()> {
        let now = self.tick(now)?;
        let mut found = vec![];
        for id in jobs {
            found.extend(self.rows.find_job(*id)?);
        }
        self.hint_rows(found.iter().copied(), Need::Everything)?;
        for seq in found {
            if let Some(lease) = self.memory.leases.running(seq).map(|r| r.lease) {
                // Its handler has been refused and is about to put it off: that would be for nothing.
                if self.turned.len() >= MOST_TURNED {
                    // Most are of jobs that others settled; who is forgotten comes at its time.
                    self.turned.retain(|_, turned| now.since(turned.at) <= TURNED_MS);
                    if self.turned.len() >= MOST_TURNED {
                        self.turned.clear();
                    }
                }
                self.turned.insert(seq, Turned { gate: gate.clone(), lease, at: now });
                continue;
            }
            if self.rows.done(seq)?.is_some() {
                continue;
            }
            let (row, mut state) = self.row_and_state(seq)?;
            // Whatever else it waits for goes on, also what its handler put it off for.
            if state.because != Some(ScheduledBecause::Gate) {
                continue;
            }
            let lane = state.lane.unwrap_or(row.lane);
            self.end_parks_of(gate, lane)?;
            if !self.memory.lanes.is_ready(lane, seq) {
                self.undelay(seq, state.run_at.unwrap_or(row.run_at))?;
                state.run_at = Some(now);
                self.put_state(seq, &state)?;
                self.change(Change::Due { place: Place { seq, lane, tenant: row.tenant }, at: now })?;
            }
        }
        self.settle_due()
    }

    /// Ends the parks by gates of this domain that cover a lane.
    pub(super) fn end_parks_of(&mut self, gate: &ConnectorName, lane: LaneId) -> Result<()> {
        let by = format!("{GATE_PARK}{gate}");
        let parks = self.memory.lanes.parks_of(lane).into_iter().filter(|p| p.by == by);
        let ended: Vec<ParkScope> = parks.map(|p| p.scope.clone()).collect();
        ended.into_iter().try_for_each(|scope| self.end_park(scope, by.clone()))
    }

    /// Changes the priority of a job that is not finished. A running job has it from its next attempt on.
    pub fn reprioritise(&mut self, id: JobId, priority: Priority, now: Timestamp) -> Result<()> {
        self.tick(now)?;
        let seq = self.find(id)?;
        self.hint_rows([seq].into_iter(), Need::Everything)?;
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
        let key = LaneKey { priority, ..self.memory.lanes.lane_key(from).ok_or_else(missing)?.clone() };
        let to = self.lane(key)?;
        if to == from {
            return Ok(());
        }
        let (tenant, at) = (row.tenant, state.run_at.unwrap_or(row.run_at).min(self.last_now));
        let moved_before = state.lane.replace(to);
        self.change(Change::LaneUsed(to))?;
        self.put_state(seq, state)?;
        if self.memory.lanes.is_ready(from, seq) {
            self.change(Change::Withdrawn(Place { seq, lane: from, tenant }))?;
            let suspect = state.suspect.then(|| super::exclusive(state.lone_stalls));
            self.change(Change::Readied { place: Place { seq, lane: to, tenant }, at, suspect })?;
        }
        if let Some(old) = moved_before {
            self.change(Change::LaneUnused(old))?;
            self.forget_unused(old)?;
        }
        Ok(())
    }

    /// Takes a job that does not run out of its lane, off the schedule, or from where it waits for others; [`settle_due`](Self::settle_due) must follow.
    fn withdraw(&mut self, seq: Seq, row: &JobRow, state: &StateRow) -> Result<()> {
        let lane = state.lane.unwrap_or(row.lane);
        if self.memory.lanes.is_ready(lane, seq) {
            return self.change(Change::Withdrawn(Place { seq, lane, tenant: row.tenant }));
        }
        if self.waits(seq)?.is_some() {
            self.rows.unblock(&[seq])?;
            return self.change(Change::Unwaited(Place { seq, lane, tenant: row.tenant }));
        }
        self.undelay(seq, state.run_at.unwrap_or(row.run_at))?;
        self.change(Change::Unscheduled(Place { seq, lane, tenant: row.tenant }))
    }

    /// Takes a job out of wherever it is, before it is erased; [`settle_due`](Self::settle_due) must follow. Where it
    /// counts as finished, if it does, is for [`delete`](Self::delete).
    pub(super) fn uproot(&mut self, seq: Seq) -> Result<Option<(QueueId, State)>> {
        let (row, state) = self.row_and_state(seq)?;
        let finished = self.rows.done(seq)?.map(|done| (done.queue, done.state));
        let lease = self.memory.leases.running(seq).map(|r| r.lease);
        match (finished, lease) {
            (Some(_), _) => {}
            (None, Some(lease)) => self.let_go(Ticket { lease, seq }, Fate::Erased)?,
            (None, None) => self.withdraw(seq, &row, &state)?,
        }
        if let Some(unique) = row.extra.as_ref().and_then(|e| e.unique.as_ref()) {
            self.rows.delete_unique(row.kind, &unique.key, seq)?;
        }
        Ok(finished)
    }

    pub(super) fn row_and_state(&mut self, seq: Seq) -> Result<(JobRow, StateRow)> {
        let row = self.rows.job(seq)?.ok_or_else(|| Error::internal(format!("job {} is missing", seq.0)))?;
        let state = self.state_of(seq)?;
        Ok((row, state))
    }
}
