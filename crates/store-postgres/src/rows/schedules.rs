//! Schedules and their ledgers.

use tidegate_core::ids::ScheduleName;
use tidegate_core::limits;
use tidegate_core::schedule::{ScheduleSpec, ScheduleState, TickEntry};
use tidegate_store::Result;
use tidegate_store::rows::{ScheduleId, ScheduleRow, ScheduleRows};

use super::gathered::Gathered;
use super::names::{json, name};
use super::send::{Requests, json as text_of, send};
use super::{PgRows, column, signed, unsigned};
use crate::link::Link;
use crate::statements::Sql;

impl ScheduleRows for PgRows {
    fn schedules(&mut self) -> Result<Vec<ScheduleRow>> {
        self.send_gathered()?;
        self.all(Sql::SchedulesAll, |row| {
            Ok(ScheduleRow {
                id: ScheduleId(unsigned(column(row, 0)?)),
                name: name(row, 1, ScheduleName::new)?,
                spec: json(row, 2, "a schedule")?,
                state: json(row, 3, "a schedule")?,
            })
        })
    }

    fn put_schedule(
        &mut self,
        id: ScheduleId,
        name: &ScheduleName,
        spec: &ScheduleSpec,
        state: &ScheduleState,
    ) -> Result<()> {
        let row = ScheduleRow { id, name: name.clone(), spec: spec.clone(), state: state.clone() };
        self.gathered.schedule_states.remove(&id);
        self.gathered.schedules.insert(id, Some(row));
        Ok(())
    }

    fn put_schedule_state(&mut self, id: ScheduleId, state: &ScheduleState) -> Result<()> {
        match self.gathered.schedules.get_mut(&id) {
            Some(Some(row)) => row.state = state.clone(),
            _ => drop(self.gathered.schedule_states.insert(id, state.clone())),
        }
        Ok(())
    }

    fn delete_schedule(&mut self, id: ScheduleId) -> Result<()> {
        self.gathered.schedule_states.remove(&id);
        self.gathered.ticks.retain(|(schedule, _), _| *schedule != id);
        self.gathered.schedules.insert(id, None);
        Ok(())
    }

    fn put_tick(&mut self, id: ScheduleId, entry: &TickEntry) -> Result<()> {
        self.gathered.ticks.insert((id, entry.no % limits::MAX_TICKS_KEPT), entry.clone());
        Ok(())
    }

    fn ticks(&mut self, id: ScheduleId, before: u64, limit: usize) -> Result<Vec<TickEntry>> {
        self.send_gathered()?;
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        let rows = self.query(Sql::TicksBefore, &[&signed(id.0), &before, &(limit as i64)])?;
        rows.iter().map(|row| json(row, 0, "a tick")).collect()
    }
}

impl Gathered {
    /// Those that are gone first: another may have the name of one.
    pub(super) fn send_schedules<'a>(&'a self, link: &'a Link, requests: &mut Requests<'a>) -> Result<()> {
        let gone: Vec<i32> =
            self.schedules.iter().filter(|(_, row)| row.is_none()).map(|(id, _)| signed(id.0)).collect();
        if !gone.is_empty() {
            for sql in [Sql::TicksDelete, Sql::SchedulesDelete] {
                let gone = gone.clone();
                send!(link, requests, sql, gone);
            }
        }
        for row in self.schedules.values().flatten() {
            let (id, name) = (signed(row.id.0), row.name.as_str());
            let (spec, state) = (text_of("a schedule", &row.spec)?, text_of("a schedule", &row.state)?);
            send!(link, requests, Sql::SchedulesPut, id, name, spec, state);
        }
        if !self.schedule_states.is_empty() {
            let ids: Vec<i32> = self.schedule_states.keys().map(|id| signed(id.0)).collect();
            let states = self.schedule_states.values().map(|state| text_of("a schedule", state));
            let states: Vec<String> = states.collect::<Result<_>>()?;
            send!(link, requests, Sql::SchedulesPutStates, ids, states);
        }
        if !self.ticks.is_empty() {
            let ids: Vec<i32> = self.ticks.keys().map(|(id, _)| signed(id.0)).collect();
            let slots: Vec<i32> = self.ticks.keys().map(|(_, slot)| *slot as i32).collect();
            let numbers: Vec<i64> = self.ticks.values().map(|entry| entry.no as i64).collect();
            let bodies: Vec<String> =
                self.ticks.values().map(|entry| text_of("a tick", entry)).collect::<Result<_>>()?;
            send!(link, requests, Sql::TicksPut, ids, slots, numbers, bodies);
        }
        Ok(())
    }
}
