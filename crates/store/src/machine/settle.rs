//! Settle: what became of attempts. Each outcome is applied only while its lease holds the job.

use tidegate_core::codes;
use tidegate_core::failure::{Category, ErrorEntry, Failure, cut};
use tidegate_core::ids::{ConnectorName, Seq};
use tidegate_core::job::{
    DeadLetter, LogLine, Park, ParkScope, Progress, ScheduledBecause, State, UniqueScope,
};
use tidegate_core::lanes::GATE_PARK;
use tidegate_core::leases::Running;
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::retry::{self, DeadReason, FailedAttempt, RetryDecision};
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;

use super::control::TURNED_MS;
use super::hints::Need;
use super::{Because, Change, Face, Fate, Machine};
use crate::meter::SeenWhat;
use crate::params::{Outcome, Report, Settle, Settled, Settlement, Ticket};
use crate::rows::{DoneRow, Reads, Rows, StateRow};
use crate::{Error, Result};

/// Parks made by a snooze belong to the gates.
const PARKED_BY_SNOOZE: &str = "gate";

impl<R: Rows> Machine<R> {
    /// Applies outcomes whose lease still holds; refuses the others one by one.
    pub fn settle(&mut self, settle: Settle) -> Result<Vec<Settled>> {
        let now = self.tick(settle.now)?;
        let seed = settle.seed;
        self.hint_settle(&settle.settlements)?;
        let settled = settle.settlements.into_iter().map(|s| self.settle_one(s, seed, now));
        let settled = settled.collect::<Result<_>>()?;
        self.tell_dependents(now)?;
        Ok(settled)
    }

    /// A completed job is not read again; the others are.
    fn hint_settle(&mut self, settlements: &[Settlement]) -> Result<()> {
        if !R::PREFETCHES {
            return Ok(());
        }
        let mut reads = Reads::default();
        for Settlement { ticket: Ticket { lease, seq }, outcome } in settlements {
            let Some(running) = self.memory.leases.under(*lease, *seq) else {
                continue;
            };
            let fails = match outcome {
                Outcome::Complete(result) => {
                    result.as_ref().is_some_and(|r| r.as_str().len() > limits::MAX_RESULT_BYTES)
                }
                Outcome::Fail(_) => true,
                Outcome::Snooze { park: Some(ParkScope::Queue(name)), .. } => {
                    self.memory.names.queue_id(name).is_none()
                }
                Outcome::Snooze { .. } | Outcome::Release | Outcome::Cancel => false,
            };
            let ends = !fails && matches!(outcome, Outcome::Complete(_) | Outcome::Cancel);
            if fails || running.unique {
                reads.jobs.push(*seq);
            }
            if !ends {
                self.add_reads(&mut reads, *seq, Need::State);
            }
        }
        self.hint(&reads)
    }

    fn settle_one(&mut self, settlement: Settlement, seed: u64, now: Timestamp) -> Result<Settled> {
        let Settlement { ticket: Ticket { lease, seq }, outcome } = settlement;
        let Some(running) = self.memory.leases.under(lease, seq).copied() else {
            self.stale_refused += 1;
            return Ok(Settled::Stale);
        };
        let turned = self.turned.remove(&seq).filter(|t| t.lease == lease && now.since(t.at) <= TURNED_MS);
        match outcome {
            Outcome::Complete(Some(result)) if result.as_str().len() > limits::MAX_RESULT_BYTES => {
                let message = format!(
                    "the result has {} bytes, at most {} are kept",
                    result.as_str().len(),
                    limits::MAX_RESULT_BYTES
                );
                let failure = Failure::new(Category::InvalidInput, "RESULT_TOO_LARGE", message);
                self.fail(seq, running, &failure, seed, now)
            }
            Outcome::Complete(result) => self.finish(seq, running, End::Completed(result), now),
            Outcome::Cancel => self.finish(seq, running, End::Cancelled, now),
            // Asked to stop, and stopped in whatever way: it is not tried again.
            _ if running.cancel_requested => self.finish(seq, running, End::Cancelled, now),
            Outcome::Fail(failure) => self.fail(seq, running, &failure, seed, now),
            // One handler's mistake must not hold up the outcomes of others.
            Outcome::Snooze { park: Some(ParkScope::Queue(name)), .. }
                if self.memory.names.queue_id(&name).is_none() =>
            {
                let message = format!("the snooze parks queue `{name}`, which is not registered");
                let failure = Failure::new(Category::LogicError, codes::UNKNOWN_QUEUE.id, message);
                self.fail(seq, running, &failure, seed, now)
            }
            Outcome::Snooze { gate: Some(gate), park, .. } if turned.is_some_and(|t| t.gate == gate) => {
                self.called_back(seq, running, &gate, park, now)
            }
            Outcome::Snooze { until, reason, park, gate } => {
                self.snooze(seq, running, Snooze { until, reason, park, gate }, now)
            }
            Outcome::Release => self.give_back(seq, running, now),
        }
    }

    /// A gate has called this job since it refused it: it asks again at once. Who was refused after it may have closed the scope meanwhile.
    fn called_back(
        &mut self,
        seq: Seq,
        running: Running,
        gate: &ConnectorName,
        scope: Option<ParkScope>,
        now: Timestamp,
    ) -> Result<Settled> {
        self.end_parks_of(gate, running.lane)?;
        if let Some(scope) = scope {
            self.change(Change::Refused(seq, now, Box::new(scope)))?;
        }
        self.give_back(seq, running, now)
    }

    /// Ready again, and nothing spent.
    fn give_back(&mut self, seq: Seq, running: Running, now: Timestamp) -> Result<Settled> {
        let mut state = self.state_of(seq)?;
        state.settled = Some(running.lease);
        state.claimed = true;
        state.suspect = false;
        self.back_to_ready(seq, running, &mut state, Because::Release, now)?;
        Ok(Settled::Applied(State::Ready))
    }

    /// Takes a job off its lease, frees its places and puts it where it belongs now.
    pub(super) fn let_go(&mut self, ticket: Ticket, fate: Fate) -> Result<()> {
        let leases = self.memory.leases.count();
        self.change(Change::LetGo { seq: ticket.seq, fate })?;
        // Its last job takes a lease along.
        if self.memory.leases.count() < leases {
            self.rows.delete_lease(ticket.lease)?;
        }
        Ok(())
    }

    /// Marks a running job as finished.
    fn finish(&mut self, seq: Seq, running: Running, end: End, now: Timestamp) -> Result<Settled> {
        let queue = self.queue_of(running.lane)?;
        if running.unique {
            self.free_unique(seq)?;
        }
        let (state, fate, result, letter) = match end {
            End::Completed(result) => (State::Completed, Fate::Completed, result, None),
            End::Cancelled => (State::Cancelled, Fate::Cancelled, None, None),
            End::Dead(letter) => (State::Dead, Fate::Dead { code: letter.code.clone() }, None, Some(letter)),
        };
        self.rows
            .insert_done(seq, &DoneRow { queue, state, at: now, attempt: running.attempt, result, letter })?;
        self.let_go(Ticket { lease: running.lease, seq }, fate)?;
        self.run_ended(seq, state, now)?;
        if let Some(end) = super::flows::End::of(state) {
            self.ended(seq, running.id, end);
        }
        Ok(Settled::Applied(state))
    }

    /// Frees the job's unique key, unless it is held for a period.
    pub(super) fn free_unique(&mut self, seq: Seq) -> Result<()> {
        let Some(row) = self.rows.job(seq)? else { return Ok(()) };
        if let Some(unique) = row.extra.as_ref().and_then(|e| e.unique.as_ref())
            && !matches!(unique.scope, UniqueScope::PeriodMs(_))
        {
            self.rows.delete_unique(row.kind, &unique.key, seq)?;
        }
        Ok(())
    }

    fn back_to_ready(
        &mut self,
        seq: Seq,
        running: Running,
        state: &mut StateRow,
        because: Because,
        now: Timestamp,
    ) -> Result<()> {
        state.run_at = Some(now);
        self.put_state(seq, state)?;
        let suspect = state.suspect.then(|| super::exclusive(state.lone_stalls));
        let lane = state.lane.unwrap_or(running.lane);
        self.let_go(Ticket { lease: running.lease, seq }, Fate::Ready { lane, suspect, because })
    }

    fn fail(
        &mut self,
        seq: Seq,
        running: Running,
        failure: &Failure,
        seed: u64,
        now: Timestamp,
    ) -> Result<Settled> {
        let mut state = self.state_of(seq)?;
        let missing = || Error::internal(format!("job {} is missing", seq.0));
        let row = self.rows.job(seq)?.ok_or_else(missing)?;
        let queue = self.queue_of(running.lane)?;
        let names = &self.memory.names;
        let (_, kind) = names.kind(row.kind).ok_or_else(missing)?;
        let (_, queue_settings) = names.queue(queue).ok_or_else(missing)?;
        // The registry knows better than the handler what this kind's codes mean.
        let mut classified = failure.clone();
        classified.category = kind.failures.get(&failure.code).copied().unwrap_or(failure.category);
        let failure = &classified;
        state.settled = Some(running.lease);
        state.claimed = true;
        state.suspect = false;
        state.failures += 1;
        let of_category = count_category(&mut state, failure.category);
        note_error(&mut state, running.attempt, failure, now);
        let face = Face { id: running.id, queue, kind: running.kind, tenant: running.tenant };
        let attempt = FailedAttempt {
            failure,
            failures: state.failures,
            failures_of_category: of_category,
            own_policy: row.extra.as_ref().and_then(|e| e.retry.as_ref()).or(kind.retry.as_ref()),
            queue_policy: &queue_settings.retry,
            max_attempts: row.max_attempts.or(kind.max_attempts),
            policies: &names.policies,
            connector: kind.connector.as_ref(),
        };
        let decision = retry::decide(&attempt, now, &mut Seed::new(seed ^ seq.0 as u64));
        self.memory.saw(face, SeenWhat::Failed(failure.category));
        match decision {
            RetryDecision::At(at) => {
                state.not_before = failure.retry_at.filter(|t| *t > now && *t <= at);
                state.because = Some(ScheduledBecause::Retry);
                let because = Because::Retry { code: code_of(failure) };
                self.again(seq, running, &mut state, at, because, now)
            }
            RetryDecision::Dead(reason) => {
                self.put_state(seq, &state)?;
                self.bury(seq, running, failure, reason, now)
            }
        }
    }

    /// Schedules the job for another run; at once means ready.
    fn again(
        &mut self,
        seq: Seq,
        running: Running,
        state: &mut StateRow,
        at: Timestamp,
        because: Because,
        now: Timestamp,
    ) -> Result<Settled> {
        if at <= now {
            self.back_to_ready(seq, running, state, because, now)?;
            return Ok(Settled::Applied(State::Ready));
        }
        state.run_at = Some(at);
        self.put_state(seq, state)?;
        self.rows.delay(at, seq)?;
        self.let_go(Ticket { lease: running.lease, seq }, Fate::Scheduled(at, because))?;
        Ok(Settled::Again(at))
    }

    fn snooze(&mut self, seq: Seq, running: Running, snooze: Snooze, now: Timestamp) -> Result<Settled> {
        let Snooze { until, reason, park, gate } = snooze;
        let until = until.min(now.plus_ms(limits::MAX_DELAY_MS));
        let reason = cut(reason, limits::MAX_NOTE_BYTES);
        let parks = park.is_some();
        let by = gate.as_ref().map_or_else(|| PARKED_BY_SNOOZE.into(), |d| format!("{GATE_PARK}{d}"));
        if let Some(scope) = park.filter(|_| until > now) {
            let lanes = &self.memory.lanes;
            // Those refused later stand further back in the gate's line: the scope goes on when the first of them may.
            let earlier = lanes.parked_until(&scope, &by).is_some_and(|end| now < end && end <= until);
            // Somebody was called and has not asked: that may be who this one was refused for.
            if gate.is_none() || !(earlier || lanes.awaits(&scope, now)) {
                let park = Park { scope: scope.clone(), by, reason: reason.clone(), until: Some(until) };
                self.put_park(park, now)?;
            }
            if gate.is_some() {
                self.change(Change::Refused(seq, until, Box::new(scope)))?;
            }
        }
        let mut state = self.state_of(seq)?;
        state.settled = Some(running.lease);
        state.claimed = true;
        state.suspect = false;
        state.snoozes += u32::from(gate.is_none());
        // A refusal that parks a scope names a time that `hasten` must respect.
        state.not_before = parks.then_some(until);
        state.snooze_reason = Some(reason.clone());
        // A gate may call those who wait for it, and nobody else.
        state.because = Some(if gate.is_some() { ScheduledBecause::Gate } else { ScheduledBecause::Snooze });
        if state.snoozes > limits::MAX_SNOOZES {
            self.put_state(seq, &state)?;
            let failure = Failure::new(Category::LogicError, "SNOOZED_TOO_OFTEN", reason);
            return self.bury(seq, running, &failure, DeadReason::SnoozedTooOften, now);
        }
        self.again(seq, running, &mut state, until, Because::Snooze, now)
    }

    /// Makes a running job a dead letter.
    fn bury(
        &mut self,
        seq: Seq,
        running: Running,
        failure: &Failure,
        reason: DeadReason,
        now: Timestamp,
    ) -> Result<Settled> {
        let letter = DeadLetter::new(failure.category, reason, code_of(failure), failure.message.clone());
        let extra = self.rows.job(seq)?.and_then(|row| row.extra);
        let letter = self.compose(running.kind, extra.as_deref(), letter)?;
        self.finish(seq, running, End::Dead(Box::new(letter)), now)
    }

    /// Takes back a job whose lease ran out. A batch says nothing about its members: they become suspects. Only a
    /// lone suspect is counted, and only when it was alone in its process can the last count kill it.
    pub(super) fn stalled(&mut self, seq: Seq, lone: bool, now: Timestamp) -> Result<()> {
        let not_held = || Error::internal(format!("job {} is not running", seq.0));
        let running = self.memory.leases.running(seq).copied().ok_or_else(not_held)?;
        if running.cancel_requested {
            self.finish(seq, running, End::Cancelled, now)?;
            return Ok(());
        }
        let mut state = self.state_of(seq)?;
        let failure =
            Failure::new(Category::SystemFailure, "LEASE_LOST", "its worker stopped sending heartbeats");
        note_error(&mut state, running.attempt, &failure, now);
        state.settled = Some(running.lease);
        state.claimed = true;
        state.suspect = true;
        state.lone_stalls += u32::from(lone);
        if state.lone_stalls >= limits::MAX_LONE_STALLS {
            self.put_state(seq, &state)?;
            self.bury(seq, running, &failure, DeadReason::Poison, now)?;
            return Ok(());
        }
        self.back_to_ready(seq, running, &mut state, Because::Stall, now)
    }

    /// Jobs of expired leases are about to be taken back.
    pub(super) fn hint_rescue<'s>(&mut self, jobs: impl Iterator<Item = &'s Seq>) -> Result<()> {
        if !R::PREFETCHES {
            return Ok(());
        }
        let mut reads = Reads::default();
        for seq in jobs {
            let unique = self.memory.leases.running(*seq).is_some_and(|r| r.unique);
            self.add_reads(&mut reads, *seq, if unique { Need::JobAndState } else { Need::State });
        }
        self.hint(&reads)
    }

    /// Keeps progress and log lines; false where the lease is lost.
    pub fn report(&mut self, reports: Vec<Report>, now: Timestamp) -> Result<Vec<bool>> {
        let now = self.tick(now)?;
        let held = |r: &&Report| self.memory.leases.holds(r.ticket.lease, r.ticket.seq);
        let held: Vec<Seq> = reports.iter().filter(held).map(|r| r.ticket.seq).collect();
        self.hint_rows(held.into_iter(), Need::State)?;
        reports.into_iter().map(|r| self.report_one(r, now)).collect()
    }

    fn report_one(&mut self, report: Report, now: Timestamp) -> Result<bool> {
        let Report { ticket, progress, log } = report;
        if !self.memory.leases.holds(ticket.lease, ticket.seq) {
            self.stale_refused += 1;
            return Ok(false);
        }
        let mut state = self.state_of(ticket.seq)?;
        if let Some((fraction, note)) = progress {
            let fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
            state.progress = Some(Progress { fraction, note: cut(note, limits::MAX_NOTE_BYTES), at: now });
        }
        state
            .log
            .extend(log.into_iter().map(|line| LogLine { at: now, line: cut(line, limits::MAX_NOTE_BYTES) }));
        let excess = state.log.len().saturating_sub(limits::MAX_LOG_LINES);
        state.log.drain(..excess);
        self.put_state(ticket.seq, &state)?;
        Ok(true)
    }
}

/// How a job is put off.
struct Snooze {
    until: Timestamp,
    reason: String,
    park: Option<ParkScope>,
    gate: Option<ConnectorName>,
}

/// How a running job ends.
enum End {
    Completed(Option<Payload>),
    Cancelled,
    Dead(Box<DeadLetter>),
}

fn code_of(failure: &Failure) -> String {
    cut(failure.code.clone(), limits::MAX_NAME_BYTES)
}

fn count_category(state: &mut StateRow, category: Category) -> u32 {
    if let Some((_, n)) = state.by_category.iter_mut().find(|(c, _)| *c == category) {
        *n += 1;
        return *n;
    }
    state.by_category.push((category, 1));
    1
}

fn note_error(state: &mut StateRow, attempt: u32, failure: &Failure, now: Timestamp) {
    let message = match retry::disbelieved(failure, now) {
        Some(named) => format!("{} ({named})", failure.message),
        None => failure.message.clone(),
    };
    state.errors.push(ErrorEntry {
        attempt,
        at: now,
        category: failure.category,
        code: code_of(failure),
        message: cut(message, limits::MAX_ERROR_BYTES),
    });
    let excess = state.errors.len().saturating_sub(limits::MAX_ERRORS_KEPT);
    state.errors.drain(..excess);
}
