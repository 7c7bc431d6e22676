//! Jobs that wait for other jobs.

use rusqlite::{OptionalExtension, Row, params};
use tidegate_core::ids::{JobId, Seq, TenantId};
use tidegate_core::job::{Dependency, OnDead};
use tidegate_core::lanes::LaneId;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{BlockedRow, End, FlowRows, TenantNo, UntoldRow, WaitingRow};
use uuid::Uuid;

use super::{SqliteRows, array, sql};
use crate::error::{OrStore, corrupt};

impl FlowRows for SqliteRows {
    fn add_edge(&mut self, parent: Seq, child: Seq) -> Result<()> {
        self.run(sql!("edges/insert"), &[parent.0, child.0])
    }

    fn move_edge(&mut self, from: Seq, to: Seq, child: Seq) -> Result<()> {
        self.run(sql!("edges/delete"), &[from.0, child.0])?;
        self.add_edge(to, child)
    }

    fn drop_edges(&mut self, parents: &[Seq], child: Seq) -> Result<()> {
        for parent in parents {
            self.run(sql!("edges/delete"), &[parent.0, child.0])?;
            self.run(sql!("kept/sweep"), &[parent.0])?;
        }
        Ok(())
    }

    fn children(&mut self, parent: Seq) -> Result<Vec<Seq>> {
        self.numbers(sql!("edges/children"), parent)
    }

    fn edges_from(&mut self, parents: &[Seq]) -> Result<Vec<(Seq, Seq)>> {
        let mut statement = self.conn.prepare_cached(sql!("edges/children_of")).or_store()?;
        let read = |row: &Row<'_>| Ok((Seq(row.get(0)?), Seq(row.get(1)?)));
        statement.query_map([array(parents)], read).and_then(Iterator::collect).or_store()
    }

    fn count_children(&mut self, parent: Seq) -> Result<u32> {
        let mut statement = self.conn.prepare_cached(sql!("edges/count_of")).or_store()?;
        let most = limits::MAX_DEPENDENTS + 1;
        statement.query_row(params![parent.0, most], |row| row.get(0)).or_store()
    }

    fn parents(&mut self, child: Seq) -> Result<Vec<Seq>> {
        self.numbers(sql!("edges/parents"), child)
    }

    fn edges(&mut self) -> Result<(Vec<(Seq, u32)>, u64)> {
        self.flush_jobs()?;
        self.flush_done()?;
        let mut statement = self.conn.prepare(sql!("edges/unfinished")).or_store()?;
        let read = |row: &Row<'_>| Ok((Seq(row.get(0)?), row.get(1)?));
        let unfinished = statement.query_map([], read).and_then(Iterator::collect).or_store()?;
        let count: i64 = self.conn.query_row(sql!("edges/count"), [], |row| row.get(0)).or_store()?;
        Ok((unfinished, count.cast_unsigned()))
    }

    fn blocked(&mut self, seq: Seq) -> Result<Option<BlockedRow>> {
        let mut statement = self.conn.prepare_cached(sql!("blocked/get")).or_store()?;
        let mut rows = statement.query([seq.0]).or_store()?;
        rows.next().or_store()?.map(read_blocked).transpose()
    }

    fn put_blocked(&mut self, seq: Seq, row: &BlockedRow) -> Result<()> {
        let mut statement = self.conn.prepare_cached(sql!("blocked/put")).or_store()?;
        let run_at = row.run_at.map(|t| t.0);
        statement.execute(params![seq.0, row.open, row.on_dead as i64, run_at]).or_store()?;
        Ok(())
    }

    fn waiting(&mut self, jobs: &[Seq]) -> Result<Vec<WaitingRow>> {
        self.flush_jobs()?;
        let mut statement = self.conn.prepare_cached(sql!("blocked/waiting")).or_store()?;
        let mut rows = statement.query([array(jobs)]).or_store()?;
        let mut waiting = Vec::with_capacity(jobs.len());
        while let Some(row) = rows.next().or_store()? {
            waiting.push(WaitingRow {
                blocked: read_blocked(row)?,
                seq: Seq(row.get(3).or_store()?),
                lane: LaneId(row.get(4).or_store()?),
                tenant: row.get::<_, Option<u32>>(5).or_store()?.map(TenantNo),
            });
        }
        Ok(waiting)
    }

    fn unblock(&mut self, jobs: &[Seq]) -> Result<()> {
        let mut statement = self.conn.prepare_cached(sql!("blocked/delete")).or_store()?;
        statement.execute([array(jobs)]).or_store()?;
        Ok(())
    }

    fn keep(&mut self, seq: Seq, outcome: &Dependency, tenant: Option<&TenantId>) -> Result<()> {
        let body = serde_json::to_string(outcome).map_err(|e| corrupt("a dependency", e))?;
        let mut statement = self.conn.prepare_cached(sql!("kept/put")).or_store()?;
        // Nobody's is not the same as unknown: earlier versions did not say.
        let tenant = tenant.map_or("", TenantId::as_str);
        statement.execute(params![seq.0, body, tenant]).or_store()?;
        Ok(())
    }

    fn forget_kept(&mut self, tenant: &TenantId, limit: usize) -> Result<u64> {
        let mut statement = self.conn.prepare_cached(sql!("kept/forget")).or_store()?;
        Ok(statement.execute(params![tenant.as_str(), limit as i64]).or_store()? as u64)
    }

    fn forget_unowned(&mut self, tenant: &TenantId, limit: usize) -> Result<u64> {
        let mut statement = self.conn.prepare_cached(sql!("kept/forget_unowned")).or_store()?;
        Ok(statement.execute(params![tenant.as_str(), limit as i64]).or_store()? as u64)
    }

    fn put_untold(&mut self, seq: Seq, row: &UntoldRow) -> Result<()> {
        let mut statement = self.conn.prepare_cached(sql!("untold/put")).or_store()?;
        statement.execute(params![seq.0, row.id.uuid().as_bytes(), row.end as i64]).or_store()?;
        Ok(())
    }

    fn told(&mut self, seq: Seq) -> Result<()> {
        self.run(sql!("untold/delete"), &[seq.0])
    }

    fn untold(&mut self) -> Result<Vec<(Seq, UntoldRow)>> {
        let mut statement = self.conn.prepare(sql!("untold/all")).or_store()?;
        let mut rows = statement.query([]).or_store()?;
        let mut all = vec![];
        while let Some(row) = rows.next().or_store()? {
            all.push(read_untold(row)?);
        }
        Ok(all)
    }

    fn kept(&mut self, seq: Seq) -> Result<Option<Dependency>> {
        let mut statement = self.conn.prepare_cached(sql!("kept/get")).or_store()?;
        let body: Option<String> = statement.query_row([seq.0], |row| row.get(0)).optional().or_store()?;
        body.map(|b| serde_json::from_str(&b)).transpose().map_err(|e| corrupt("a dependency", e))
    }
}

impl SqliteRows {
    fn run(&mut self, text: &str, numbers: &[i64]) -> Result<()> {
        let mut statement = self.conn.prepare_cached(text).or_store()?;
        statement.execute(rusqlite::params_from_iter(numbers)).or_store()?;
        Ok(())
    }

    fn numbers(&mut self, text: &str, of: Seq) -> Result<Vec<Seq>> {
        let mut statement = self.conn.prepare_cached(text).or_store()?;
        let found = statement.query_map([of.0], |row| row.get(0).map(Seq));
        found.and_then(Iterator::collect).or_store()
    }
}

fn read_untold(row: &Row<'_>) -> Result<(Seq, UntoldRow)> {
    let (id, code): ([u8; 16], i64) = (row.get(1).or_store()?, row.get(2).or_store()?);
    let end = usize::try_from(code).ok().and_then(|code| End::ALL.get(code).copied());
    let end = end.ok_or_else(|| corrupt("an end", format!("it is {code}")))?;
    Ok((Seq(row.get(0).or_store()?), UntoldRow { id: JobId::from_uuid(Uuid::from_bytes(id)), end }))
}

fn read_blocked(row: &Row<'_>) -> Result<BlockedRow> {
    let code: i64 = row.get(1).or_store()?;
    let on_dead = usize::try_from(code).ok().and_then(|code| OnDead::ALL.get(code).copied());
    Ok(BlockedRow {
        open: row.get(0).or_store()?,
        on_dead: on_dead.ok_or_else(|| corrupt("a blocked job", format!("its rule is {code}")))?,
        run_at: row.get::<_, Option<i64>>(2).or_store()?.map(Timestamp),
    })
}
