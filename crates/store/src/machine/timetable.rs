//! Schedules in memory: when each must be looked at, and which jobs are their runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_core::hash::KeyMap;
use tidegate_core::ids::{ScheduleName, Seq};
use tidegate_core::schedule::{Compiled, Overlap, ScheduleSpec, ScheduleState};
use tidegate_core::time::Timestamp;

use crate::rows::ScheduleId;

/// A schedule.
#[derive(Debug, Clone)]
pub(super) struct Scheduled {
    pub(super) name: ScheduleName,
    pub(super) spec: Arc<ScheduleSpec>,
    /// The settings, understood. `None` if this program does not understand them: another version does.
    pub(super) compiled: Option<Arc<Compiled>>,
    pub(super) state: ScheduleState,
    attention: Option<Timestamp>,
}

/// All schedules. What they cost while nothing is due: nothing.
#[derive(Debug, Default)]
pub(super) struct Timetable {
    schedules: BTreeMap<ScheduleId, Scheduled>,
    names: BTreeMap<ScheduleName, ScheduleId>,
    /// When each must be looked at.
    attention: BTreeSet<(Timestamp, ScheduleId)>,
    /// Jobs that are runs and not finished.
    runs: KeyMap<Seq, ScheduleId>,
    /// Those with ticks that wait.
    waiting: BTreeSet<ScheduleId>,
    last_id: u32,
}

impl Timetable {
    pub(super) fn get(&self, id: ScheduleId) -> Option<&Scheduled> {
        self.schedules.get(&id)
    }

    pub(super) fn id(&self, name: &ScheduleName) -> Option<ScheduleId> {
        self.names.get(name).copied()
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> impl Iterator<Item = (ScheduleId, &Scheduled)> {
        self.names.values().filter_map(|id| Some((*id, self.schedules.get(id)?)))
    }

    pub(super) fn len(&self) -> usize {
        self.schedules.len()
    }

    /// How many are in force.
    pub(super) fn active(&self) -> usize {
        self.schedules.values().filter(|s| s.state.retired.is_none()).count()
    }

    /// Number of the next new one.
    pub(super) fn next_id(&self) -> ScheduleId {
        ScheduleId(self.last_id + 1)
    }

    /// When the next one must be looked at, and which it is.
    pub(super) fn next(&self) -> Option<(Timestamp, ScheduleId)> {
        self.attention.first().copied()
    }

    /// The schedule that this job is an unfinished run of.
    pub(super) fn run_of(&self, seq: Seq) -> Option<ScheduleId> {
        self.runs.get(&seq).copied()
    }

    /// Those with ticks that wait for this one.
    pub(super) fn waiting_for(&self, name: &ScheduleName) -> Vec<ScheduleId> {
        let waits =
            |id: &&ScheduleId| self.schedules.get(*id).is_some_and(|s| s.spec.settings.after.contains(name));
        self.waiting.iter().filter(waits).copied().collect()
    }

    pub(super) fn put(
        &mut self,
        id: ScheduleId,
        name: &ScheduleName,
        spec: &ScheduleSpec,
        state: &ScheduleState,
    ) {
        self.remove(id);
        self.last_id = self.last_id.max(id.0);
        let scheduled = Scheduled {
            name: name.clone(),
            compiled: spec.settings.compile().ok().map(Arc::new),
            spec: Arc::new(spec.clone()),
            state: ScheduleState::new(state.created_at),
            attention: None,
        };
        self.names.insert(name.clone(), id);
        self.schedules.insert(id, scheduled);
        self.set_state(id, state);
    }

    /// False if there is no such schedule.
    pub(super) fn set_state(&mut self, id: ScheduleId, state: &ScheduleState) -> bool {
        let Some(scheduled) = self.schedules.get_mut(&id) else { return false };
        for run in &scheduled.state.open {
            self.runs.remove(&run.seq);
        }
        self.runs.extend(state.open.iter().map(|run| (run.seq, id)));
        let attention = scheduled.compiled.as_ref().and_then(|compiled| {
            // While an earlier run is not finished, its end is what is waited for.
            let settings = &scheduled.spec.settings;
            let free = settings.overlap == Overlap::Allow || state.open.is_empty();
            let waits = free && !settings.after.is_empty();
            compiled.attention(&scheduled.name, waits, state)
        });
        if let Some(at) = std::mem::replace(&mut scheduled.attention, attention) {
            self.attention.remove(&(at, id));
        }
        self.attention.extend(attention.map(|at| (at, id)));
        scheduled.state = state.clone();
        if state.waiting.is_empty() {
            self.waiting.remove(&id);
        } else {
            self.waiting.insert(id);
        }
        true
    }

    /// False if there is no such schedule.
    pub(super) fn remove(&mut self, id: ScheduleId) -> bool {
        let Some(scheduled) = self.schedules.remove(&id) else { return false };
        self.names.remove(&scheduled.name);
        self.waiting.remove(&id);
        for run in &scheduled.state.open {
            self.runs.remove(&run.seq);
        }
        if let Some(at) = scheduled.attention {
            self.attention.remove(&(at, id));
        }
        true
    }
}
