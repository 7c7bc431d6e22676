//! Schedules that documents of the registry describe. They change in the commit that changes the registry, or not at all.
//!
//! A kind's schedule has the kind's name. One that its document no longer has is retired, not deleted: its ledger stays, and if
//! it comes back (a rollback) it goes on where it stood, with the rule for missed ticks.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::codes;
use tidegate_core::ids::{KindName, ScheduleName};
use tidegate_core::limits;
use tidegate_core::registry::{Difference, Document, KindSettings, Order, Problem, difference, taken};
use tidegate_core::schedule::{ScheduleSettings, ScheduleSpec, ScheduleState, SkipReason};
use tidegate_core::time::Timestamp;

use super::Machine;
use super::draft::Draft;
use super::timetable::Scheduled;
use crate::rows::{Rows, ScheduleId};
use crate::{Error, Result};

/// What a document makes of schedules.
#[derive(Debug, Default)]
pub(super) struct Changes {
    put: Vec<(ScheduleName, ScheduleSpec)>,
    retire: Vec<(ScheduleName, ScheduleId)>,
    pub(super) differences: Vec<Difference>,
}

impl Changes {
    /// Schedules that the document has as they are: untouched.
    pub(super) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.retire.is_empty()
    }
}

impl<R: Rows> Machine<R> {
    /// What the kinds of a document make of the schedules, and what is wrong with that.
    pub(super) fn scheduled_by(&self, wanted: &Document) -> (Changes, Vec<Problem>) {
        let (mut changes, mut problems) = (Changes::default(), vec![]);
        for (kind, settings) in &wanted.kinds {
            // Names of kinds and of schedules follow the same rule.
            let Ok(name) = ScheduleName::new(kind.as_str()) else { continue };
            let id = self.memory.timetable.id(&name);
            let there = id.and_then(|id| Some((id, self.memory.timetable.get(id)?)));
            match (wanted_of(settings), there) {
                (Some(_), Some((_, there))) if !there.state.managed => {
                    problems.push(taken(&name));
                }
                (Some(settings), there) => {
                    // What either schema calls secret is hidden on both sides.
                    let schemas = [self.schema_of(kind), wanted.kinds[kind].schema.as_ref()];
                    let shown = |settings: &ScheduleSettings| {
                        let schemas = schemas.into_iter().flatten();
                        serde_json::to_value(schemas.fold(settings.clone(), |s, schema| s.shown(schema))).ok()
                    };
                    let spec = ScheduleSpec { kind: kind.clone(), settings };
                    let active = there.map(|(_, s)| s).filter(|s| s.state.retired.is_none());
                    if active.is_none_or(|s| *s.spec != spec) {
                        let now = active.and_then(|s| shown(&s.spec.settings));
                        changes.differences.extend(difference(
                            "schedule",
                            name.as_str(),
                            now,
                            shown(&spec.settings),
                        ));
                        changes.put.push((name, spec));
                    }
                }
                (None, Some((id, there))) if there.state.managed && there.state.retired.is_none() => {
                    changes.differences.extend(difference("schedule", name.as_str(), None, None));
                    changes.retire.push((name, id));
                }
                (None, _) => {}
            }
        }
        problems.extend(self.misordered(wanted, &changes));
        (changes, problems)
    }

    /// What they wait for, with everything that will be there.
    fn misordered(&self, wanted: &Document, changes: &Changes) -> Vec<Problem> {
        let gone: BTreeSet<&ScheduleName> = changes.retire.iter().map(|(name, _)| name).collect();
        let changed: BTreeSet<&ScheduleName> = changes.put.iter().map(|(name, _)| name).collect();
        let there = self.memory.timetable.all().map(|(_, s)| s);
        let there: Vec<&Scheduled> =
            there.filter(|s| s.state.retired.is_none() && !gone.contains(&s.name)).collect();
        let same = there.iter().filter(|s| s.state.managed && !changed.contains(&s.name));
        let same = same.map(|s| &s.name).collect();
        let there = there.iter().map(|s| (&s.name, s.spec.settings.after.as_slice())).collect();
        // Also those that are as they were: what they wait for may go.
        let put: BTreeMap<ScheduleName, Vec<ScheduleName>> = wanted
            .kinds
            .iter()
            .filter_map(|(kind, settings)| {
                Some((ScheduleName::new(kind.as_str()).ok()?, wanted_of(settings)?.after))
            })
            .collect();
        let put = put.iter().map(|(name, after)| (name, after.as_slice())).collect();
        Order { there, put, same, gone }.faults(false)
    }

    /// Puts schedules in force, changes and retires them.
    pub(super) fn make_scheduled(&mut self, changes: Changes, now: Timestamp) -> Result<()> {
        for (_, id) in changes.retire {
            let mut draft = Draft::new(id, self.scheduled(id)?, now);
            draft.state.retired = Some(now);
            for tick in std::mem::take(&mut draft.state.waiting) {
                let note = "the registry's document no longer has the schedule";
                draft.skip(tick.planned, SkipReason::Edited, note.into());
            }
            self.keep_draft(draft)?;
        }
        for (name, spec) in changes.put {
            match self.memory.timetable.id(&name) {
                Some(id) => {
                    let old = self.scheduled(id)?.clone();
                    self.edit_schedule(id, &old, spec, now)?;
                }
                None => {
                    self.make_room()?;
                    let id = self.memory.timetable.next_id();
                    let state = ScheduleState { managed: true, ..ScheduleState::new(now) };
                    self.store_schedule(id, name, spec, state)?;
                }
            }
        }
        Ok(())
    }

    /// Where there are as many schedules as there may be, the one that was retired first is forgotten.
    pub(super) fn make_room(&mut self) -> Result<()> {
        let timetable = &self.memory.timetable;
        if timetable.len() < limits::MAX_SCHEDULES {
            return Ok(());
        }
        let retired = timetable.all().filter_map(|(id, s)| Some((s.state.retired?, id)));
        if let Some((_, id)) = retired.min() {
            self.forget_schedule(id)?;
        }
        Ok(())
    }

    /// Refuses what only a document may do.
    pub(super) fn by_hand(&self, scheduled: &Scheduled) -> Result<()> {
        if !scheduled.state.managed || scheduled.state.retired.is_some() {
            return Ok(());
        }
        let document = self.document_of(&scheduled.spec.kind).unwrap_or_else(|| "the registry".into());
        let detail = format!("schedule `{}` is described by {document}: change it there", scheduled.name);
        Err(Error::new(codes::SCHEDULE_MANAGED, detail))
    }

    /// The document that describes a kind.
    pub(super) fn document_of(&self, kind: &KindName) -> Option<String> {
        let id = self.memory.names.kind_id(kind)?;
        self.memory.names.kind(id).and_then(|(_, settings)| settings.document.clone())
    }
}

/// The schedule that a document wants for a kind. What cannot be read is refused elsewhere, with its place.
fn wanted_of(settings: &KindSettings) -> Option<ScheduleSettings> {
    settings.schedule.as_ref().filter(|_| settings.managed)?.settings().ok()
}
