//! What time does to schedules: ticks become runs, or are skipped and say why.
//!
//! A tick is decided in one commit with everything that follows from it: the cursor moves past it, the ledger gets a line, and if
//! it fires, the job is stored. Commits have one order, so however many processes look at a schedule, the first one decides, and
//! the others find the cursor behind the tick.

use tidegate_core::failure::cut;
use tidegate_core::ids::{JobId, ScheduleName, Seq};
use tidegate_core::job::State;
use tidegate_core::limits;
use tidegate_core::schedule::{
    Compiled, Decided, Ended, OpenRun, Overlap, ScheduleState, SkipReason, TickEntry,
};
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;

use super::Machine;
use super::draft::Draft;
use super::enqueue::Start;
use super::timetable::Scheduled;
use crate::Result;
use crate::params::NewJob;
use crate::rows::{JobExtra, JobRow, Rows, RunOf, ScheduleId};

impl<R: Rows> Machine<R> {
    /// Looks at the schedules that must be looked at by now, a bounded number of them. Returns at how many.
    pub(super) fn fire(&mut self, now: Timestamp) -> Result<u64> {
        let mut looked_at = 0;
        while let Some((at, id)) = self.memory.timetable.next()
            && at <= now
            && looked_at < limits::FIRE_BATCH as u64
        {
            self.attend(id, now)?;
            looked_at += 1;
        }
        Ok(looked_at)
    }

    /// Decides the ticks of one schedule that are due.
    pub(super) fn attend(&mut self, id: ScheduleId, now: Timestamp) -> Result<()> {
        let scheduled = self.scheduled(id)?.clone();
        if scheduled.state.paused.is_some() || scheduled.state.retired.is_some() {
            return Ok(());
        }
        let compiled = Self::compiled(&scheduled)?;
        let mut draft = Draft::new(id, &scheduled, now);
        self.decide(&scheduled, &compiled, &mut draft, now)?;
        if draft.entries.is_empty() && draft.state == scheduled.state {
            return Ok(());
        }
        self.keep_draft(draft)
    }

    /// Decides the ticks that wait and those that had come due by then, as late as they are now.
    pub(super) fn decide(
        &mut self,
        scheduled: &Scheduled,
        compiled: &Compiled,
        draft: &mut Draft,
        by: Timestamp,
    ) -> Result<()> {
        let old = std::mem::take(&mut draft.state.waiting);
        let missed = scheduled.spec.settings.missed;
        let due = compiled.due(&scheduled.name, missed, draft.state.cursor, by, draft.now);
        let mut new = vec![];
        if let Some(due) = due {
            if let Some(passed) = due.skipped {
                draft.skip_passed(passed, SkipReason::Missed, "nobody was there to run it in time");
            }
            draft.state.cursor = due.cursor;
            new = due.ticks;
        }
        let ticks = old.into_iter().map(|tick| (tick, true)).chain(new.into_iter().map(|tick| (tick, false)));
        for (tick, waited) in ticks {
            let patient = waited || tick.made_up;
            match self.verdict(scheduled, compiled, draft, tick.planned, patient) {
                Verdict::Skip(reason, note) => draft.skip(tick.planned, reason, note),
                Verdict::Wait => draft.state.waiting.push(tick),
                Verdict::Run => {
                    let run = Run { planned: tick.planned, due: tick.due, by_hand: false };
                    match self.enqueue_run(scheduled, compiled, run, draft.state.next_no) {
                        Ok((seq, job)) => draft.fired(seq, job, run),
                        Err(error) if error.is_refusal() => {
                            let note = cut(error.to_string(), limits::MAX_NOTE_BYTES);
                            draft.skip(tick.planned, SkipReason::Refused, note);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    /// What becomes of a tick that is due. `patient`: it has waited before, or makes up for a missed one.
    fn verdict(
        &self,
        scheduled: &Scheduled,
        compiled: &Compiled,
        draft: &Draft,
        planned: Timestamp,
        patient: bool,
    ) -> Verdict {
        let overlap = scheduled.spec.settings.overlap;
        let mut wait = false;
        if let Some(note) = blocking_run(scheduled, &draft.state) {
            if overlap == Overlap::Skip && !patient {
                return Verdict::Skip(SkipReason::Overlap, note);
            }
            wait = true;
        } else if let Some(first) = draft.state.waiting.first() {
            if overlap == Overlap::Skip && !patient {
                let note = format!("the run planned for {} still waits", first.planned);
                return Verdict::Skip(SkipReason::Overlap, note);
            }
            wait = true;
        } else if draft.state.open.len() >= limits::MAX_OPEN_RUNS {
            let note = format!("{} runs are not finished", draft.state.open.len());
            return Verdict::Skip(SkipReason::Full, note);
        }
        if let Some(other) = self.awaited(scheduled, compiled, planned) {
            if compiled.day(planned).end <= draft.now {
                let note = format!("schedule `{other}` had not completed its run of that day");
                return Verdict::Skip(SkipReason::After, note);
            }
            wait = true;
        }
        if wait && draft.state.waiting.len() >= limits::MAX_WAITING_TICKS {
            let note = format!("{} ticks wait already", draft.state.waiting.len());
            return Verdict::Skip(SkipReason::Full, note);
        }
        if wait { Verdict::Wait } else { Verdict::Run }
    }

    /// A schedule whose run of the same day this tick waits for.
    fn awaited<'s>(
        &self,
        scheduled: &'s Scheduled,
        compiled: &Compiled,
        planned: Timestamp,
    ) -> Option<&'s ScheduleName> {
        let day = compiled.day(planned);
        let timetable = &self.memory.timetable;
        scheduled.spec.settings.after.iter().find(|name| {
            let other = timetable.id(name).and_then(|id| timetable.get(id));
            let Some(other) = other.filter(|s| s.state.retired.is_none()) else { return false };
            let completed = other.state.completed.is_some_and(|at| at >= day.start);
            !completed && other.compiled.as_ref().is_some_and(|other| other.ticks_within(&day))
        })
    }

    /// A job that is a run has ended. What waits for it goes on in the same commit.
    pub(super) fn run_ended(&mut self, seq: Seq, state: State, now: Timestamp) -> Result<()> {
        let Some(id) = self.memory.timetable.run_of(seq) else { return Ok(()) };
        let scheduled = self.scheduled(id)?;
        let name = scheduled.name.clone();
        let mut draft = Draft::new(id, scheduled, now);
        let Some(at) = draft.state.open.iter().position(|run| run.seq == seq) else { return Ok(()) };
        let mut entry = draft.state.open.remove(at).entry;
        if state == State::Completed {
            draft.state.completed = draft.state.completed.max(Some(entry.planned));
        }
        if let Decided::Fired { ended, .. } = &mut entry.what {
            *ended = Some(Ended { state, at: now });
        }
        draft.note(entry);
        let waits = !draft.state.waiting.is_empty();
        self.keep_draft(draft)?;
        if waits {
            self.attend(id, now)?;
        }
        if state == State::Completed {
            for id in self.memory.timetable.waiting_for(&name) {
                self.attend(id, now)?;
            }
        }
        Ok(())
    }

    /// A dead run was recovered as another job: it is open again.
    pub(super) fn run_recovered(&mut self, run: &RunOf, seq: Seq, job: JobId, now: Timestamp) -> Result<()> {
        let Some(id) = self.memory.timetable.id(&run.schedule) else { return Ok(()) };
        let mut draft = Draft::new(id, self.scheduled(id)?, now);
        if draft.state.open.len() >= limits::MAX_OPEN_RUNS || run.no >= draft.state.next_no {
            return Ok(());
        }
        let what = Decided::Fired { job, late_ms: now.since(run.planned).max(0), by_hand: true, ended: None };
        let entry = TickEntry { no: run.no, planned: run.planned, at: now, what };
        draft.state.open.push(OpenRun { seq, entry: entry.clone() });
        // Its line may have made room for newer ones.
        if draft.state.next_no - run.no <= limits::MAX_TICKS_KEPT {
            draft.entries.push(entry);
        }
        self.keep_draft(draft)
    }

    /// Stores the job of a run. A queue that is full does not refuse it: nobody is there to try again, and a schedule has few runs at
    /// a time.
    pub(super) fn enqueue_run(
        &mut self,
        scheduled: &Scheduled,
        compiled: &Compiled,
        run: Run,
        no: u64,
    ) -> Result<(Seq, JobId)> {
        let now = self.last_now;
        let settings = &scheduled.spec.settings;
        // Numbers of jobs are never used twice, so neither is this id.
        let mut seed =
            Seed::new(self.memory.next_seq.cast_unsigned() ^ run.planned.0.cast_unsigned().rotate_left(32));
        let random =
            u128::from(seed.next_u64() >> 48) << 64 | u128::from(self.memory.next_seq.cast_unsigned());
        let job = NewJob {
            tenant: settings.tenant.clone(),
            group: settings.group.clone(),
            priority: settings.priority,
            ..NewJob::new(
                JobId::from_parts(now.0.max(0).cast_unsigned(), random),
                scheduled.spec.kind.clone(),
                compiled.payload.clone(),
            )
        };
        let checked = self.check_one(&job, now)?;
        let tenant = job.tenant.as_ref().map(|name| self.tenant(name)).transpose()?;
        let (kind, timeout_ms) = (checked.kind, checked.timeout_ms);
        let lane = self.lane(checked.lane)?;
        let seq = self.next_seq()?;
        let schedule = RunOf { schedule: scheduled.name.clone(), planned: run.planned, no };
        let row = JobRow {
            id: job.id,
            kind,
            lane,
            tenant,
            created_at: now,
            run_at: now,
            timeout_ms,
            max_attempts: None,
            payload: checked.filled.unwrap_or(job.payload),
            extra: Some(Box::new(JobExtra { schedule: Some(schedule), ..JobExtra::default() })),
        };
        self.insert(seq, &row, Start::Ready)?;
        // It may be claimed at once; nobody may forget that it was fired.
        self.memory.signals.keep = true;
        Ok((seq, job.id))
    }
}

/// A job that a schedule enqueues.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) planned: Timestamp,
    pub(super) due: Timestamp,
    pub(super) by_hand: bool,
}

/// What becomes of a tick.
enum Verdict {
    Run,
    Wait,
    Skip(SkipReason, String),
}

/// The run that keeps others from starting, in a sentence.
pub(super) fn blocking_run(scheduled: &Scheduled, state: &ScheduleState) -> Option<String> {
    if scheduled.spec.settings.overlap == Overlap::Allow {
        return None;
    }
    let run = state.open.last()?;
    let Decided::Fired { job, .. } = &run.entry.what else { return None };
    Some(format!("the run planned for {} is not finished (job {job})", run.entry.planned))
}
