//! Jobs and their changing parts.

use rusqlite::{OptionalExtension, Row, params};
use tidegate_core::ids::{JobId, LeaseId, Seq};
use tidegate_core::lanes::LaneId;
use tidegate_core::payload::Payload;
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{JobRow, JobRows, KindId, Scanned, StateRow, TenantNo};
use uuid::Uuid;

use super::batch::LARGEST;
use super::{SqliteRows, array, sql};
use crate::error::{OrStore, corrupt};

impl JobRows for SqliteRows {
    fn insert_job(&mut self, seq: Seq, row: &JobRow) -> Result<()> {
        self.new_jobs.push((seq, row.clone()));
        if self.new_jobs.len() >= LARGEST { self.flush_jobs() } else { Ok(()) }
    }

    fn job(&mut self, seq: Seq) -> Result<Option<JobRow>> {
        self.show_job(seq)?;
        let mut statement = self.conn.prepare_cached(sql!("jobs/get")).or_store()?;
        let mut rows = statement.query([seq.0]).or_store()?;
        rows.next().or_store()?.map(read_job).transpose()
    }

    fn jobs(&mut self, jobs: &[Seq]) -> Result<Vec<(Seq, JobRow)>> {
        self.flush_jobs()?;
        let mut statement = self.conn.prepare_cached(sql!("jobs/get_all")).or_store()?;
        let mut rows = statement.query([array(jobs)]).or_store()?;
        let mut found = Vec::with_capacity(jobs.len());
        while let Some(row) = rows.next().or_store()? {
            found.push((Seq(row.get(10).or_store()?), read_job(row)?));
        }
        Ok(found)
    }

    fn head(&mut self, seq: Seq) -> Result<Option<(LaneId, Option<TenantNo>)>> {
        self.show_job(seq)?;
        let mut statement = self.conn.prepare_cached(sql!("jobs/head")).or_store()?;
        let read = |row: &Row<'_>| Ok((LaneId(row.get(0)?), row.get::<_, Option<u32>>(1)?.map(TenantNo)));
        statement.query_row([seq.0], read).optional().or_store()
    }

    fn find_job(&mut self, id: JobId) -> Result<Option<Seq>> {
        if let Some((seq, _)) = self.new_jobs.iter().find(|(_, job)| job.id == id) {
            return Ok(Some(*seq));
        }
        let mut statement = self.conn.prepare_cached(sql!("jobs/find")).or_store()?;
        statement
            .query_row([id.uuid().as_bytes().as_slice()], |row| row.get(0).map(Seq))
            .optional()
            .or_store()
    }

    fn delete_job(&mut self, seq: Seq) -> Result<()> {
        self.show_job(seq)?;
        self.show_done(seq)?;
        self.flush_letters()?;
        for text in [sql!("jobs/delete"), sql!("states/delete"), sql!("done/delete")] {
            self.conn.prepare_cached(text).and_then(|mut s| s.execute([seq.0])).or_store()?;
        }
        Ok(())
    }

    fn state(&mut self, seq: Seq) -> Result<Option<StateRow>> {
        let mut statement = self.conn.prepare_cached(sql!("states/get")).or_store()?;
        let mut rows = statement.query([seq.0]).or_store()?;
        rows.next().or_store()?.map(|row| read_state(row, 0)).transpose()
    }

    fn put_state(&mut self, seq: Seq, row: &StateRow) -> Result<()> {
        let body = serde_json::to_string(row).map_err(|e| corrupt("a job's state", e))?;
        let mut statement = self.conn.prepare_cached(sql!("states/put")).or_store()?;
        let (lane, settled) = (row.lane.map(|l| l.0), row.settled.map(|l| l.0));
        let run_at = row.run_at.map(|t| t.0);
        statement
            .execute(params![seq.0, lane, settled, row.suspect, row.lone_stalls, run_at, body])
            .or_store()?;
        Ok(())
    }

    fn jobs_of_tenant(
        &mut self,
        tenant: TenantNo,
        after: Seq,
        scan: usize,
    ) -> Result<(Vec<Seq>, Option<Seq>)> {
        self.flush_jobs()?;
        let mut statement = self.conn.prepare_cached(sql!("jobs/tenants")).or_store()?;
        let mut rows = statement.query(params![after.0, scan as i64]).or_store()?;
        let (mut found, mut looked_at, mut last) = (vec![], 0, None);
        while let Some(row) = rows.next().or_store()? {
            let seq = Seq(row.get(0).or_store()?);
            looked_at += 1;
            last = Some(seq);
            if row.get::<_, Option<u32>>(1).or_store()? == Some(tenant.0) {
                found.push(seq);
            }
        }
        Ok((found, last.filter(|_| looked_at == scan)))
    }

    fn reserved_seq(&mut self) -> Result<Seq> {
        self.meta("reserved_seq").map(Seq)
    }

    fn reserve_seq(&mut self, upto: Seq) -> Result<()> {
        let mut statement = self.conn.prepare_cached(sql!("meta/put")).or_store()?;
        statement.execute(params!["reserved_seq", upto.0]).or_store()?;
        Ok(())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(Scanned)) -> Result<()> {
        self.flush_jobs()?;
        self.flush_done()?;
        super::scan::scan(&self.conn, visit)
    }
}

impl SqliteRows {
    /// Writes what was gathered if this job is in it.
    fn show_job(&mut self, seq: Seq) -> Result<()> {
        // Numbers grow, so a job before the first one gathered is in the file.
        if self.new_jobs.first().is_some_and(|(first, _)| seq >= *first) { self.flush_jobs() } else { Ok(()) }
    }

    /// A number of the store itself.
    pub(super) fn meta(&mut self, name: &str) -> Result<i64> {
        let mut statement = self.conn.prepare_cached(sql!("meta/get")).or_store()?;
        statement.query_row([name], |row| row.get(0)).or_store()
    }
}

pub(super) fn read_job(row: &Row<'_>) -> Result<JobRow> {
    let id = row.get_ref(0).or_store()?.as_blob().ok().and_then(|b| Uuid::from_slice(b).ok());
    let id = id.ok_or_else(|| corrupt("a job", "its id has not 16 bytes"))?;
    let extra = match row.get_ref(8).or_store()?.as_str_or_null() {
        Ok(text) => text.map(serde_json::from_str).transpose().map_err(|e| corrupt("a job", e))?,
        Err(e) => return Err(corrupt("a job", e)),
    };
    Ok(JobRow {
        id: JobId::from_uuid(id),
        kind: KindId(row.get(1).or_store()?),
        lane: LaneId(row.get(2).or_store()?),
        tenant: row.get::<_, Option<u32>>(3).or_store()?.map(TenantNo),
        created_at: Timestamp(row.get(4).or_store()?),
        run_at: Timestamp(row.get(5).or_store()?),
        timeout_ms: row.get(6).or_store()?,
        max_attempts: row.get(7).or_store()?,
        extra,
        payload: Payload::trusted(row.get_ref(9).or_store()?.as_str().map_err(|e| corrupt("a payload", e))?),
    })
}

/// The columns of a changing part, from this one on.
pub(super) fn read_state(row: &Row<'_>, first: usize) -> Result<StateRow> {
    let body = row.get_ref(first + 5).or_store()?;
    let body = body.as_str().map_err(|e| corrupt("a job's state", e))?;
    let state: StateRow = serde_json::from_str(body).map_err(|e| corrupt("a job's state", e))?;
    Ok(StateRow {
        lane: row.get::<_, Option<u32>>(first).or_store()?.map(LaneId),
        settled: row.get::<_, Option<i64>>(first + 1).or_store()?.map(LeaseId),
        suspect: row.get(first + 2).or_store()?,
        lone_stalls: row.get(first + 3).or_store()?,
        run_at: row.get::<_, Option<i64>>(first + 4).or_store()?.map(Timestamp),
        ..state
    })
}
