//! Jobs that wait for other jobs.

use std::collections::HashMap;

use tidegate_core::ids::{JobId, Seq, TenantId};
use tidegate_core::job::{Dependency, OnDead};
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{BlockedRow, End, FlowRows, JobRows as _, Reads, UntoldRow};
use tokio_postgres::Row;

use super::fetched::Known;
use super::{PgRows, column, unsigned};
use crate::error::corrupt;
use crate::statements::Sql;

impl FlowRows for PgRows {
    fn add_edge(&mut self, parent: Seq, child: Seq) -> Result<()> {
        self.gathered.link(parent, child);
        Ok(())
    }

    fn move_edge(&mut self, from: Seq, to: Seq, child: Seq) -> Result<()> {
        self.gathered.unlink(from, child);
        self.gathered.link(to, child);
        Ok(())
    }

    fn drop_edges(&mut self, parents: &[Seq], child: Seq) -> Result<()> {
        for parent in parents {
            self.gathered.unlink(*parent, child);
        }
        self.gathered.swept.extend(parents);
        Ok(())
    }

    fn children(&mut self, parent: Seq) -> Result<Vec<Seq>> {
        if self.gathered.new_job(parent).is_none() && self.fetched.children.get(&parent).is_none() {
            self.will_read(&Reads { children: vec![parent], ..Reads::default() })?;
        }
        let mut found = self.fetched.children.get(&parent).cloned().flatten().unwrap_or_default();
        let (unlinked, linked) = (&self.gathered.unlinked, &self.gathered.linked);
        found.retain(|child| !unlinked.contains(&(parent, *child)));
        found.extend(linked.range(of(parent)).map(|(_, child)| *child));
        found.sort_unstable();
        Ok(found)
    }

    fn count_children(&mut self, parent: Seq) -> Result<u32> {
        if self.gathered.new_job(parent).is_some() || self.fetched.children.get(&parent).is_some() {
            return Ok(self.children(parent)?.len() as u32);
        }
        if self.fetched.counts.get(&parent).is_none() {
            self.will_read(&Reads { counts: vec![parent], ..Reads::default() })?;
        }
        let stored = self.fetched.counts.get(&parent).copied().flatten().unwrap_or(0);
        let unlinked = self.gathered.unlinked.range(of(parent)).count() as u32;
        let linked = self.gathered.linked.range(of(parent)).count() as u32;
        Ok((stored + linked).saturating_sub(unlinked))
    }

    fn parents(&mut self, child: Seq) -> Result<Vec<Seq>> {
        if self.gathered.new_job(child).is_none() && self.fetched.parents.get(&child).is_none() {
            self.will_read(&Reads { parents: vec![child], ..Reads::default() })?;
        }
        let mut found = self.fetched.parents.get(&child).cloned().flatten().unwrap_or_default();
        let (unlinked, linked) = (&self.gathered.unlinked, &self.gathered.linked_to);
        found.retain(|parent| !unlinked.contains(&(*parent, child)));
        found.extend(linked.range(of(child)).map(|(_, parent)| *parent));
        found.sort_unstable();
        Ok(found)
    }

    fn edges(&mut self) -> Result<(Vec<(Seq, u32)>, u64)> {
        self.send_gathered()?;
        let unfinished =
            self.query(Sql::EdgesUnfinished, &[])?.iter().map(read_count).collect::<Result<_>>()?;
        let count = self.query(Sql::EdgesCount, &[])?;
        let count = count.first().map_or(Ok(0), |row| column::<i64>(row, 0))?;
        Ok((unfinished, count.cast_unsigned()))
    }

    fn blocked(&mut self, seq: Seq) -> Result<Option<BlockedRow>> {
        if let Some(row) = self.gathered.blocked.get(&seq) {
            return Ok(*row);
        }
        if self.gathered.new_job(seq).is_some() {
            return Ok(None);
        }
        if self.fetched.blocked.get(&seq).is_none() {
            self.will_read(&Reads { blocked: vec![seq], ..Reads::default() })?;
        }
        Ok(self.fetched.blocked.get(&seq).copied().flatten())
    }

    fn put_blocked(&mut self, seq: Seq, row: &BlockedRow) -> Result<()> {
        self.gathered.blocked.insert(seq, Some(*row));
        Ok(())
    }

    fn unblock(&mut self, jobs: &[Seq]) -> Result<()> {
        self.gathered.blocked.extend(jobs.iter().map(|seq| (*seq, None)));
        Ok(())
    }

    fn keep(&mut self, seq: Seq, outcome: &Dependency, tenant: Option<&TenantId>) -> Result<()> {
        self.gathered.kept.insert(seq, (outcome.clone(), tenant.cloned()));
        Ok(())
    }

    fn forget_kept(&mut self, tenant: &TenantId, limit: usize) -> Result<u64> {
        self.send_gathered()?;
        self.fetched.kept = Known::default();
        let (tenant, limit) = (tenant.as_str(), limit as i64);
        self.runtime.block_on(self.link.execute(Sql::KeptForget, &[&tenant, &limit]))
    }

    fn forget_unowned(&mut self, tenant: &TenantId, limit: usize) -> Result<u64> {
        self.send_gathered()?;
        self.fetched.kept = Known::default();
        let (tenant, limit) = (tenant.as_str(), limit as i64);
        self.runtime.block_on(self.link.execute(Sql::KeptForgetUnowned, &[&tenant, &limit]))
    }

    fn put_untold(&mut self, seq: Seq, row: &UntoldRow) -> Result<()> {
        self.gathered.untold.insert(seq, Some(*row));
        Ok(())
    }

    fn told(&mut self, seq: Seq) -> Result<()> {
        self.gathered.untold.insert(seq, None);
        Ok(())
    }

    fn untold(&mut self) -> Result<Vec<(Seq, UntoldRow)>> {
        self.send_gathered()?;
        self.query(Sql::UntoldAll, &[])?.iter().map(read_untold).collect()
    }

    fn kept(&mut self, seq: Seq) -> Result<Option<Dependency>> {
        if let Some(outcome) = self.gathered.kept.get(&seq) {
            return Ok(Some(outcome.0.clone()));
        }
        if self.fetched.kept.get(&seq).is_none() {
            let rows = self.query(Sql::KeptGet, &[&seq.0])?;
            let body: Option<&str> = rows.first().map(|row| column(row, 0)).transpose()?;
            let outcome =
                body.map(serde_json::from_str).transpose().map_err(|e| corrupt("a dependency", e))?;
            self.fetched.kept.put(seq, outcome);
        }
        Ok(self.fetched.kept.get(&seq).cloned().flatten())
    }
}

/// All edges of one job.
fn of(seq: Seq) -> std::ops::RangeInclusive<(Seq, Seq)> {
    (seq, Seq(i64::MIN))..=(seq, Seq(i64::MAX))
}

pub(super) fn read_blocked(row: &Row) -> Result<(Seq, BlockedRow)> {
    let code: i16 = column(row, 3)?;
    let on_dead = usize::try_from(code).ok().and_then(|code| OnDead::ALL.get(code).copied());
    let blocked = BlockedRow {
        run_at: column::<Option<i64>>(row, 1)?.map(Timestamp),
        open: unsigned(column(row, 2)?),
        on_dead: on_dead.ok_or_else(|| corrupt("a blocked job", format!("its rule is {code}")))?,
    };
    Ok((Seq(column(row, 0)?), blocked))
}

fn read_untold(row: &Row) -> Result<(Seq, UntoldRow)> {
    let code: i16 = column(row, 2)?;
    let end = usize::try_from(code).ok().and_then(|code| End::ALL.get(code).copied());
    let end = end.ok_or_else(|| corrupt("an end", format!("it is {code}")))?;
    Ok((Seq(column(row, 0)?), UntoldRow { id: JobId::from_uuid(column(row, 1)?), end }))
}

pub(super) fn read_count(row: &Row) -> Result<(Seq, u32)> {
    Ok((Seq(column(row, 0)?), column::<i64>(row, 1)? as u32))
}

/// Edges by their first column.
pub(super) fn read_edges(rows: &[Row]) -> Result<HashMap<Seq, Vec<Seq>>> {
    let mut edges: HashMap<Seq, Vec<Seq>> = HashMap::new();
    for row in rows {
        edges.entry(Seq(column(row, 0)?)).or_default().push(Seq(column(row, 1)?));
    }
    Ok(edges)
}
