//! Schedules in memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tidegate_core::ids::{JobId, ScheduleName};
use tidegate_core::limits;
use tidegate_core::schedule::{ScheduleSpec, ScheduleState, TickEntry};
use tidegate_core::time::Timestamp;

use super::{MemoryRows, MemoryStore};
use crate::machine::Machine;
use crate::params::{PutSchedule, ScheduleChange, ScheduleView, TickQuery};
use crate::rows::{ScheduleId, ScheduleRow, ScheduleRows};
use crate::traits::Schedules;
use crate::{Error, Result};

/// A schedule with its ledger.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    row: ScheduleRow,
    ticks: BTreeMap<u64, TickEntry>,
}

impl ScheduleRows for MemoryRows {
    fn schedules(&mut self) -> Result<Vec<ScheduleRow>> {
        Ok(self.schedules.values().map(|kept| kept.row.clone()).collect())
    }

    fn put_schedule(
        &mut self,
        id: ScheduleId,
        name: &ScheduleName,
        spec: &ScheduleSpec,
        state: &ScheduleState,
    ) -> Result<()> {
        let row = ScheduleRow { id, name: name.clone(), spec: spec.clone(), state: state.clone() };
        let ticks = self.schedules.remove(&id).map(|kept| kept.ticks).unwrap_or_default();
        self.schedules.insert(id, Kept { row, ticks });
        Ok(())
    }

    fn put_schedule_state(&mut self, id: ScheduleId, state: &ScheduleState) -> Result<()> {
        self.kept(id)?.row.state = state.clone();
        Ok(())
    }

    fn delete_schedule(&mut self, id: ScheduleId) -> Result<()> {
        self.schedules.remove(&id);
        Ok(())
    }

    fn put_tick(&mut self, id: ScheduleId, entry: &TickEntry) -> Result<()> {
        let ticks = &mut self.kept(id)?.ticks;
        ticks.insert(entry.no, entry.clone());
        if let Some(old) = entry.no.checked_sub(limits::MAX_TICKS_KEPT) {
            ticks.remove(&old);
        }
        Ok(())
    }

    fn ticks(&mut self, id: ScheduleId, before: u64, limit: usize) -> Result<Vec<TickEntry>> {
        Ok(self.kept(id)?.ticks.range(..before).rev().take(limit).map(|(_, entry)| entry.clone()).collect())
    }
}

impl MemoryRows {
    fn kept(&mut self, id: ScheduleId) -> Result<&mut Kept> {
        self.schedules.get_mut(&id).ok_or_else(|| Error::internal(format!("schedule {} is missing", id.0)))
    }
}

#[async_trait]
impl Schedules for MemoryStore {
    async fn put_schedule(&self, put: PutSchedule) -> Result<ScheduleChange> {
        self.with(|m| m.put_schedule(put))
    }

    async fn delete_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<bool> {
        self.with(|m| m.delete_schedule(&name, now))
    }

    async fn pause_schedule(&self, name: ScheduleName, by: String, now: Timestamp) -> Result<ScheduleView> {
        self.with(|m| m.pause_schedule(&name, by, now))
    }

    async fn resume_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<ScheduleView> {
        self.with(|m| m.resume_schedule(&name, now))
    }

    async fn run_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<JobId> {
        self.with(|m| m.run_schedule(&name, now))
    }

    async fn schedules(&self) -> Result<Vec<ScheduleView>> {
        self.with(Machine::schedules)
    }

    async fn schedule(&self, name: ScheduleName) -> Result<Option<ScheduleView>> {
        self.with(|m| m.schedule(&name))
    }

    async fn schedule_ticks(&self, query: TickQuery) -> Result<Vec<TickEntry>> {
        self.with(|m| m.schedule_ticks(&query))
    }
}
