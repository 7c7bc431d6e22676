//! What people do to schedules: put, pause, resume, run, delete, look. What time does to them is in `runs`.

use std::sync::Arc;

use tidegate_core::codes;
use tidegate_core::failure::cut;
use tidegate_core::ids::{JobId, KindName, ScheduleName, TenantId};
use tidegate_core::limits;
use tidegate_core::schedule::{
    Compiled, Pause, ScheduleSettings, ScheduleSpec, ScheduleState, SkipReason, Tick, TickEntry,
};
use tidegate_core::schema::Schema;
use tidegate_core::time::Timestamp;

use super::draft::Draft;
use super::enqueue::unfit;
use super::runs::{Run, blocking_run};
use super::timetable::Scheduled;
use super::{Change, Machine, ScheduleNamed};
use crate::params::{PutSchedule, ScheduleChange, ScheduleView, TickQuery};
use crate::rows::{Rows, ScheduleId};
use crate::{Error, Result};

impl<R: Rows> Machine<R> {
    /// Adds a schedule or changes it. One whose times stay the same goes on where it was; one with other times begins now.
    pub fn put_schedule(&mut self, put: PutSchedule) -> Result<ScheduleChange> {
        let now = self.tick(put.now)?;
        let PutSchedule { name, mut spec, .. } = put;
        self.check_schedule(&name, &spec)?;
        let Some(id) = self.memory.timetable.id(&name) else {
            self.check_payload(&name, &spec)?;
            self.make_room()?;
            let id = self.memory.timetable.next_id();
            self.store_schedule(id, name, spec, ScheduleState::new(now))?;
            return Ok(ScheduleChange::Created);
        };
        let old = self.scheduled(id)?.clone();
        self.reveal(&mut spec, &old.spec);
        let same = *old.spec == spec;
        if !same {
            self.by_hand(&old)?;
        }
        self.check_payload(&name, &spec)?;
        if old.state.retired.is_some() {
            self.store_schedule(id, name, spec, begun_again(old.state, now))?;
            return Ok(ScheduleChange::Created);
        }
        if same {
            return Ok(ScheduleChange::Unchanged);
        }
        self.edit_schedule(id, &old, spec, now)?;
        Ok(ScheduleChange::Changed)
    }

    /// Gives a schedule other settings. One that was retired is back, and owes what it owed.
    pub(super) fn edit_schedule(
        &mut self,
        id: ScheduleId,
        old: &Scheduled,
        spec: ScheduleSpec,
        now: Timestamp,
    ) -> Result<()> {
        let mut draft = Draft::new(id, old, now);
        let retired = draft.state.retired.take().is_some();
        if !old.spec.settings.ticks_like(&spec.settings) {
            if let Some(compiled) = old.compiled.as_ref().filter(|_| !retired) {
                // Nothing of a paused schedule fires here; what came while it was paused is the pause's.
                let pause = old.state.paused.as_ref();
                let until = pause.map_or(now, |pause| pause.since.min(now));
                draft.pass_over(compiled, until, SkipReason::Edited, "the schedule got other times");
                if let Some(pause) = pause {
                    draft.pass_over_pause(compiled, pause);
                }
            }
            for tick in std::mem::take(&mut draft.state.waiting) {
                draft.skip(tick.planned, SkipReason::Edited, "the schedule got other times".into());
            }
            draft.state.cursor = Tick::from(draft.state.cursor.at.max(now));
        }
        let state = self.keep_entries(draft)?;
        self.store_schedule(id, old.name.clone(), spec, state)
    }

    fn check_schedule(&self, name: &ScheduleName, spec: &ScheduleSpec) -> Result<()> {
        let refuse = |why: String| Err(unworkable(name, &why));
        if let Err(why) = spec.settings.check() {
            return refuse(why);
        }
        let names = &self.memory.names;
        if names.kind_id(&spec.kind).is_none() {
            let near =
                names.nearest_kind(&spec.kind).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
            let detail = format!("kind `{}` is not registered{near}", spec.kind);
            return Err(Error::new(codes::UNKNOWN_KIND, detail));
        }
        let timetable = &self.memory.timetable;
        if timetable.id(name).is_none() && timetable.active() >= limits::MAX_SCHEDULES {
            return refuse(format!("there are {} schedules, as many as there may be", limits::MAX_SCHEDULES));
        }
        // Whoever it waits for must exist and not wait for it in turn.
        let mut ahead: Vec<ScheduleName> = spec.settings.after.clone();
        let mut seen: Vec<ScheduleName> = vec![];
        while let Some(other) = ahead.pop() {
            if other == *name {
                return refuse("after: it would wait for itself".into());
            }
            let found = timetable.id(&other).and_then(|id| timetable.get(id));
            let Some(found) = found.filter(|s| s.state.retired.is_none()) else {
                return refuse(format!("after: there is no schedule `{other}`"));
            };
            if !seen.contains(&other) {
                ahead.extend(found.spec.settings.after.iter().cloned());
                seen.push(other);
            }
        }
        Ok(())
    }

    /// Refuses a payload that every run would be refused for. Its secrets are those that are stored, not as they are shown.
    fn check_payload(&self, name: &ScheduleName, spec: &ScheduleSpec) -> Result<()> {
        let Some(schema) = self.schema_of(&spec.kind) else { return Ok(()) };
        let compiled = spec.settings.compile().map_err(|why| unworkable(name, &why))?;
        schema.accept(&compiled.payload).map(drop).map_err(|misfits| unfit(&spec.kind, &misfits))
    }

    pub(super) fn store_schedule(
        &mut self,
        id: ScheduleId,
        name: ScheduleName,
        spec: ScheduleSpec,
        state: ScheduleState,
    ) -> Result<()> {
        self.rows.put_schedule(id, &name, &spec, &state)?;
        self.change(Change::Schedule(Box::new(ScheduleNamed { id, name, spec, state })))
    }

    /// Deletes a schedule and its ledger; jobs that it enqueued stay. False if there is none.
    pub fn delete_schedule(&mut self, name: &ScheduleName, now: Timestamp) -> Result<bool> {
        self.tick(now)?;
        let Some(id) = self.memory.timetable.id(name) else { return Ok(false) };
        self.by_hand(self.scheduled(id)?)?;
        let waits = |s: &Scheduled| s.state.retired.is_none() && s.spec.settings.after.contains(name);
        let waits = self.memory.timetable.all().find(|(_, s)| waits(s));
        if let Some((_, other)) = waits {
            let detail = format!(
                "schedule `{0}` waits for `{name}`; `tidegate schedules put {0} --after none` ends that",
                other.name
            );
            return Err(Error::new(codes::WRONG_SCHEDULE_STATE, detail));
        }
        self.forget_schedule(id)?;
        Ok(true)
    }

    pub(super) fn forget_schedule(&mut self, id: ScheduleId) -> Result<()> {
        self.rows.delete_schedule(id)?;
        self.change(Change::ScheduleGone(id))
    }

    /// Deletes the schedules of a tenant. Whoever waited for one of them waits no longer.
    pub(super) fn erase_schedules(&mut self, tenant: &TenantId, now: Timestamp) -> Result<()> {
        let of_tenant = |(_, s): &(ScheduleId, &Scheduled)| s.spec.settings.tenant.as_ref() == Some(tenant);
        let gone = self.memory.timetable.all().filter(of_tenant).map(|(id, s)| (id, s.name.clone()));
        let gone: Vec<(ScheduleId, ScheduleName)> = gone.collect();
        for (id, _) in &gone {
            self.forget_schedule(*id)?;
        }
        for (_, name) in &gone {
            for id in self.memory.timetable.waiting_for(name) {
                self.attend(id, now)?;
            }
        }
        Ok(())
    }

    /// Pauses a schedule: what comes until it is resumed is skipped.
    pub fn pause_schedule(
        &mut self,
        name: &ScheduleName,
        by: String,
        now: Timestamp,
    ) -> Result<ScheduleView> {
        let now = self.tick(now)?;
        let id = self.active_id(name)?;
        let mut draft = Draft::new(id, self.scheduled(id)?, now);
        if draft.state.paused.is_none() {
            let by = cut(by, limits::MAX_NAME_BYTES);
            draft.state.paused = Some(Pause { by, since: now });
            for tick in std::mem::take(&mut draft.state.waiting) {
                draft.skip(tick.planned, SkipReason::Paused, "the schedule was paused".into());
            }
            self.keep_draft(draft)?;
        }
        self.schedule_view(id)
    }

    /// Goes on with a schedule; what has passed since it was paused is skipped. What nobody had fired before is not the pause's: the
    /// rule for missed ticks decides about it, as late as it is by now.
    pub fn resume_schedule(&mut self, name: &ScheduleName, now: Timestamp) -> Result<ScheduleView> {
        let now = self.tick(now)?;
        let id = self.active_id(name)?;
        let scheduled = self.scheduled(id)?.clone();
        let mut draft = Draft::new(id, &scheduled, now);
        if let Some(pause) = draft.state.paused.take() {
            if let Some(compiled) = &scheduled.compiled {
                self.decide(&scheduled, compiled, &mut draft, pause.since.min(now))?;
                draft.pass_over_pause(compiled, &pause);
            }
            draft.state.cursor.at = draft.state.cursor.at.max(now);
            self.keep_draft(draft)?;
        }
        self.schedule_view(id)
    }

    /// Runs a schedule's job now, outside its times. Refused while an earlier run is not finished, unless overlaps are allowed.
    pub fn run_schedule(&mut self, name: &ScheduleName, now: Timestamp) -> Result<JobId> {
        let now = self.tick(now)?;
        let id = self.active_id(name)?;
        let scheduled = self.scheduled(id)?.clone();
        let full = || {
            let open = scheduled.state.open.len();
            (open >= limits::MAX_OPEN_RUNS).then(|| format!("{open} runs are not finished"))
        };
        if let Some(why) = blocking_run(&scheduled, &scheduled.state).or_else(full) {
            return Err(Error::new(codes::WRONG_SCHEDULE_STATE, format!("schedule `{name}`: {why}")));
        }
        let compiled = Self::compiled(&scheduled)?;
        let mut draft = Draft::new(id, &scheduled, now);
        let run = Run { planned: now, due: now, by_hand: true };
        let (seq, job) = self.enqueue_run(&scheduled, &compiled, run, draft.state.next_no)?;
        draft.fired(seq, job, run);
        self.keep_draft(draft)?;
        Ok(job)
    }

    /// All schedules, by name.
    pub fn schedules(&mut self) -> Result<Vec<ScheduleView>> {
        Ok(self.memory.timetable.all().map(|(_, scheduled)| self.schedule_as_shown(scheduled)).collect())
    }

    /// One schedule.
    pub fn schedule(&mut self, name: &ScheduleName) -> Result<Option<ScheduleView>> {
        let timetable = &self.memory.timetable;
        Ok(timetable.id(name).and_then(|id| timetable.get(id)).map(|s| self.schedule_as_shown(s)))
    }

    /// What the ledger of a schedule says, newest first.
    pub fn schedule_ticks(&mut self, query: &TickQuery) -> Result<Vec<TickEntry>> {
        let id = self.schedule_id(&query.name)?;
        let limit = query.limit.clamp(1, limits::MAX_PAGE);
        self.rows.ticks(id, query.before.unwrap_or(u64::MAX), limit)
    }

    pub(super) fn keep_draft(&mut self, draft: Draft) -> Result<()> {
        let id = draft.id;
        let state = self.keep_entries(draft)?;
        self.rows.put_schedule_state(id, &state)?;
        self.change(Change::ScheduleState { id, state: Box::new(state) })
    }

    /// Writes lines of the ledger. Returns the state, which is to be written.
    fn keep_entries(&mut self, draft: Draft) -> Result<ScheduleState> {
        for entry in &draft.entries {
            self.rows.put_tick(draft.id, entry)?;
        }
        Ok(draft.state)
    }

    fn schedule_id(&self, name: &ScheduleName) -> Result<ScheduleId> {
        self.memory
            .timetable
            .id(name)
            .ok_or_else(|| Error::new(codes::SCHEDULE_NOT_FOUND, format!("there is no schedule `{name}`")))
    }

    /// A schedule that something can be done with: not one that its document no longer has.
    fn active_id(&self, name: &ScheduleName) -> Result<ScheduleId> {
        let id = self.schedule_id(name)?;
        if let Some(at) = self.scheduled(id)?.state.retired {
            let detail = format!("schedule `{name}` is retired: its document no longer has it since {at}");
            return Err(Error::new(codes::WRONG_SCHEDULE_STATE, detail));
        }
        Ok(id)
    }

    pub(super) fn scheduled(&self, id: ScheduleId) -> Result<&Scheduled> {
        self.memory.timetable.get(id).ok_or_else(|| Error::internal(format!("schedule {} is missing", id.0)))
    }

    pub(super) fn compiled(scheduled: &Scheduled) -> Result<Arc<Compiled>> {
        scheduled.compiled.clone().ok_or_else(|| {
            let why = scheduled.spec.settings.check().err().unwrap_or_default();
            unworkable(&scheduled.name, &why)
        })
    }

    fn schedule_view(&self, id: ScheduleId) -> Result<ScheduleView> {
        self.scheduled(id).map(|s| self.schedule_as_shown(s))
    }

    fn schedule_as_shown(&self, scheduled: &Scheduled) -> ScheduleView {
        let state = &scheduled.state;
        let runs = state.paused.is_none() && state.retired.is_none();
        let next = scheduled.compiled.as_ref().filter(|_| runs);
        let document = || self.document_of(&scheduled.spec.kind).unwrap_or_default();
        ScheduleView {
            name: scheduled.name.clone(),
            kind: scheduled.spec.kind.clone(),
            settings: self.shown_settings(&scheduled.spec),
            created_at: state.created_at,
            decided_until: state.cursor.at,
            next: next.and_then(|compiled| compiled.times.next(state.cursor)).map(|tick| tick.at),
            paused: state.paused.clone(),
            waiting: state.waiting.clone(),
            open: state.open.iter().map(|run| run.entry.clone()).collect(),
            completed: state.completed,
            last: state.last.clone(),
            document: state.managed.then(document),
            retired: state.retired,
        }
    }

    /// The settings as people may see them: without secrets of the payload.
    fn shown_settings(&self, spec: &ScheduleSpec) -> ScheduleSettings {
        self.schema_of(&spec.kind).map_or_else(|| spec.settings.clone(), |schema| spec.settings.shown(schema))
    }

    pub(super) fn schema_of(&self, kind: &KindName) -> Option<&Schema> {
        let names = &self.memory.names;
        names.kind(names.kind_id(kind)?)?.1.schema.as_ref()
    }

    /// Puts back what was hidden when the old settings were shown.
    fn reveal(&self, spec: &mut ScheduleSpec, old: &ScheduleSpec) {
        if let Some(schema) = self.schema_of(&old.kind).filter(|_| spec.kind == old.kind)
            && let (Some(new), Some(old)) = (&mut spec.settings.payload, &old.settings.payload)
        {
            schema.revealed_payload(new, old, Some(schema));
        }
    }
}

/// The state of a schedule that somebody puts in the place of a retired one: as if it were new. What its document had is its
/// history, which goes on, with the runs that are not finished.
fn begun_again(old: ScheduleState, now: Timestamp) -> ScheduleState {
    ScheduleState {
        cursor: Tick::from(old.cursor.at.max(now)),
        open: old.open,
        completed: old.completed,
        last: old.last,
        next_no: old.next_no,
        ..ScheduleState::new(now)
    }
}

fn unworkable(name: &ScheduleName, why: &str) -> Error {
    Error::new(codes::INVALID_SCHEDULE, format!("schedule `{name}`: {why}"))
}
