//! Schedules and their ledgers.

use rusqlite::params;
use tidegate_core::ids::ScheduleName;
use tidegate_core::limits;
use tidegate_core::schedule::{ScheduleSpec, ScheduleState, TickEntry};
use tidegate_store::Result;
use tidegate_store::rows::{ScheduleId, ScheduleRow, ScheduleRows};

use super::names::{json, name};
use super::{SqliteRows, sql};
use crate::error::{OrStore, corrupt};

impl ScheduleRows for SqliteRows {
    fn schedules(&mut self) -> Result<Vec<ScheduleRow>> {
        self.all(sql!("schedules/all"), |row| {
            Ok(ScheduleRow {
                id: ScheduleId(row.get(0).or_store()?),
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
        let spec = serde_json::to_string(spec).map_err(|e| corrupt("a schedule", e))?;
        let state = serde_json::to_string(state).map_err(|e| corrupt("a schedule", e))?;
        self.put(sql!("schedules/put"), params![id.0, name.as_str(), spec, state])
    }

    fn put_schedule_state(&mut self, id: ScheduleId, state: &ScheduleState) -> Result<()> {
        let state = serde_json::to_string(state).map_err(|e| corrupt("a schedule", e))?;
        self.put(sql!("schedules/put_state"), params![id.0, state])
    }

    fn delete_schedule(&mut self, id: ScheduleId) -> Result<()> {
        self.put(sql!("ticks/delete"), params![id.0])?;
        self.put(sql!("schedules/delete"), params![id.0])
    }

    fn put_tick(&mut self, id: ScheduleId, entry: &TickEntry) -> Result<()> {
        let body = serde_json::to_string(entry).map_err(|e| corrupt("a tick", e))?;
        let (slot, no) = ((entry.no % limits::MAX_TICKS_KEPT) as i64, entry.no as i64);
        self.put(sql!("ticks/put"), params![id.0, slot, no, body])
    }

    fn ticks(&mut self, id: ScheduleId, before: u64, limit: usize) -> Result<Vec<TickEntry>> {
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        let mut statement = self.conn.prepare_cached(sql!("ticks/before")).or_store()?;
        let mut rows = statement.query(params![id.0, before, limit as i64]).or_store()?;
        let mut found = vec![];
        while let Some(row) = rows.next().or_store()? {
            found.push(json(row, 0, "a tick")?);
        }
        Ok(found)
    }
}
