//! Leases and unique keys.

use rusqlite::{OptionalExtension, Row, params};
use tidegate_core::ids::{JobId, LeaseId, ProcessId, Seq, UniqueKey, WorkerId};
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{ClaimRows, KindId, LeaseRow, UniqueRow};
use uuid::Uuid;

use super::{SqliteRows, sql};
use crate::error::{OrStore, corrupt};

/// Leases that one run of the store can grant: the low bits of a lease number count them, the high bits are the
/// number of the run.
const LEASE_BITS: u32 = 40;

impl ClaimRows for SqliteRows {
    fn put_lease(&mut self, row: &LeaseRow) -> Result<()> {
        let jobs: Vec<u8> = row.jobs.iter().flat_map(|seq| seq.0.to_le_bytes()).collect();
        let mut statement = self.conn.prepare_cached(sql!("leases/put")).or_store()?;
        // A process number uses all 64 bits; SQLite's integers are signed.
        let process = row.process.0.cast_signed();
        let (since, until, length) = (row.since.0, row.until.0, row.length_ms);
        statement
            .execute(params![row.id.0, row.worker.as_str(), process, since, until, length, row.lone, jobs])
            .or_store()?;
        Ok(())
    }

    fn extend_lease(&mut self, id: LeaseId, until: Timestamp) -> Result<()> {
        self.conn
            .prepare_cached(sql!("leases/extend"))
            .and_then(|mut s| s.execute([id.0, until.0]))
            .or_store()?;
        Ok(())
    }

    fn delete_lease(&mut self, id: LeaseId) -> Result<()> {
        self.conn.prepare_cached(sql!("leases/delete")).and_then(|mut s| s.execute([id.0])).or_store()?;
        Ok(())
    }

    fn leases(&mut self) -> Result<Vec<LeaseRow>> {
        let mut statement = self.conn.prepare_cached(sql!("leases/all")).or_store()?;
        let mut rows = statement.query([]).or_store()?;
        let mut leases = vec![];
        while let Some(row) = rows.next().or_store()? {
            leases.push(read_lease(row)?);
        }
        Ok(leases)
    }

    fn first_lease(&mut self) -> Result<LeaseId> {
        let mut statement = self.conn.prepare_cached(sql!("meta/add")).or_store()?;
        let epoch: i64 = statement.query_row(params!["epoch", 1], |row| row.get(0)).or_store()?;
        Ok(LeaseId(epoch << LEASE_BITS))
    }

    fn unique(&mut self, kind: KindId, key: &UniqueKey) -> Result<Option<UniqueRow>> {
        let mut statement = self.conn.prepare_cached(sql!("uniques/get")).or_store()?;
        let read = |row: &Row<'_>| {
            Ok(UniqueRow {
                seq: Seq(row.get(0)?),
                id: JobId::from_uuid(Uuid::from_bytes(row.get(1)?)),
                expires: row.get::<_, Option<i64>>(2)?.map(Timestamp),
            })
        };
        statement.query_row(params![kind.0, key.as_str()], read).optional().or_store()
    }

    fn put_unique(&mut self, kind: KindId, key: &UniqueKey, row: UniqueRow) -> Result<()> {
        let mut statement = self.conn.prepare_cached(sql!("uniques/put")).or_store()?;
        let (id, expires) = (row.id.uuid().into_bytes(), row.expires.map(|t| t.0));
        statement.execute(params![kind.0, key.as_str(), row.seq.0, id, expires]).or_store()?;
        Ok(())
    }

    fn delete_unique(&mut self, kind: KindId, key: &UniqueKey, seq: Seq) -> Result<()> {
        let mut statement = self.conn.prepare_cached(sql!("uniques/delete")).or_store()?;
        statement.execute(params![kind.0, key.as_str(), seq.0]).or_store()?;
        Ok(())
    }

    fn expire_uniques(&mut self, now: Timestamp, limit: usize) -> Result<u64> {
        let mut statement = self.conn.prepare_cached(sql!("uniques/expire")).or_store()?;
        Ok(statement.execute([now.0, limit as i64]).or_store()? as u64)
    }
}

fn read_lease(row: &Row<'_>) -> Result<LeaseRow> {
    let jobs = row.get_ref(7).or_store()?;
    Ok(LeaseRow {
        id: LeaseId(row.get(0).or_store()?),
        worker: WorkerId::new(row.get::<_, String>(1).or_store()?).map_err(|e| corrupt("a lease", e))?,
        process: ProcessId(row.get::<_, i64>(2).or_store()?.cast_unsigned()),
        since: Timestamp(row.get(3).or_store()?),
        until: Timestamp(row.get(4).or_store()?),
        length_ms: row.get(5).or_store()?,
        lone: row.get(6).or_store()?,
        jobs: read_seqs(jobs.as_blob().map_err(|e| corrupt("a lease", e))?)?,
    })
}

/// Numbers of jobs as a lease row keeps them.
pub(crate) fn read_seqs(blob: &[u8]) -> Result<Vec<Seq>> {
    let (numbers, rest) = blob.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(corrupt("a lease", "its list of jobs is cut off"));
    }
    Ok(numbers.iter().map(|n| Seq(i64::from_le_bytes(*n))).collect())
}
