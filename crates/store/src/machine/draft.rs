//! A schedule's next state while it is made, with the lines that its ledger gets.

use tidegate_core::ids::{JobId, Seq};
use tidegate_core::limits;
use tidegate_core::schedule::{
    Compiled, Decided, OpenRun, Passed, Pause, ScheduleState, SkipReason, TickEntry,
};
use tidegate_core::time::Timestamp;

use super::runs::Run;
use super::timetable::Scheduled;
use crate::rows::ScheduleId;

/// A schedule's next state, with the lines that its ledger gets.
pub(super) struct Draft {
    pub(super) id: ScheduleId,
    pub(super) now: Timestamp,
    pub(super) state: ScheduleState,
    pub(super) entries: Vec<TickEntry>,
}

impl Draft {
    pub(super) fn new(id: ScheduleId, scheduled: &Scheduled, now: Timestamp) -> Self {
        Self { id, now, state: scheduled.state.clone(), entries: vec![] }
    }

    /// The state knows its last line.
    pub(super) fn note(&mut self, entry: TickEntry) {
        if self.state.last.as_ref().is_none_or(|last| last.no <= entry.no) {
            self.state.last = Some(entry.clone());
        }
        // A run that ended long after may have no line any more.
        if self.state.next_no - entry.no <= limits::MAX_TICKS_KEPT {
            self.entries.push(entry);
        }
    }

    fn line(&mut self, planned: Timestamp, what: Decided) -> TickEntry {
        let entry = TickEntry { no: self.state.next_no, planned, at: self.now, what };
        self.state.next_no += 1;
        self.note(entry.clone());
        entry
    }

    pub(super) fn fired(&mut self, seq: Seq, job: JobId, run: Run) {
        let late_ms = self.now.since(run.due).max(0);
        let what = Decided::Fired { job, late_ms, by_hand: run.by_hand, ended: None };
        let entry = self.line(run.planned, what);
        self.state.open.push(OpenRun { seq, entry });
    }

    pub(super) fn skip(&mut self, planned: Timestamp, reason: SkipReason, note: String) {
        self.line(planned, Decided::Skipped { reason, note, last: None, count: Some(1) });
    }

    pub(super) fn skip_passed(&mut self, passed: Passed, reason: SkipReason, note: &str) {
        let Passed { first, last, count } = passed;
        let last = (last != first).then_some(last);
        self.line(first, Decided::Skipped { reason, note: note.to_owned(), last, count });
    }

    /// What has passed until then is skipped.
    pub(super) fn pass_over(
        &mut self,
        compiled: &Compiled,
        until: Timestamp,
        reason: SkipReason,
        note: &str,
    ) {
        if let Some((passed, last)) = compiled.passed(self.state.cursor, until) {
            self.skip_passed(passed, reason, note);
            self.state.cursor = last;
        }
    }

    /// What has passed since a pause is skipped.
    pub(super) fn pass_over_pause(&mut self, compiled: &Compiled, pause: &Pause) {
        let note = format!("it was paused by {} at {}", pause.by, pause.since);
        self.pass_over(compiled, self.now, SkipReason::Paused, &note);
    }
}
