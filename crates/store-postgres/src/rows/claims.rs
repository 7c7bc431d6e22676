//! Leases and unique keys.

use tidegate_core::ids::{JobId, LeaseId, ProcessId, Seq, UniqueKey, WorkerId};
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{ClaimRows, JobRows as _, KindId, LeaseRow, LookUps, UniqueRow};
use tokio_postgres::Row;

use super::{PgRows, column, signed, unsigned};
use crate::error::corrupt;
use crate::statements::Sql;

impl ClaimRows for PgRows {
    fn put_lease(&mut self, row: &LeaseRow) -> Result<()> {
        self.gathered.leases.insert(row.id, row.clone());
        Ok(())
    }

    fn extend_lease(&mut self, id: LeaseId, until: Timestamp) -> Result<()> {
        self.gathered.extend_lease(id, until);
        Ok(())
    }

    fn delete_lease(&mut self, id: LeaseId) -> Result<()> {
        self.gathered.end_lease(id);
        Ok(())
    }

    fn leases(&mut self) -> Result<Vec<LeaseRow>> {
        self.send_gathered()?;
        self.query(Sql::LeasesAll, &[])?.iter().map(read_lease).collect()
    }

    fn first_lease(&mut self) -> Result<LeaseId> {
        Ok(self.numbers.next_lease)
    }

    fn unique(&mut self, kind: KindId, key: &UniqueKey) -> Result<Option<UniqueRow>> {
        let key = (kind, key.clone());
        if let Some(row) = self.gathered.uniques.get(&key) {
            return Ok(*row);
        }
        if self.fetched.uniques.get(&key).is_none() {
            self.will_look_up(&LookUps { keys: vec![key.clone()], ..LookUps::default() })?;
        }
        Ok(self.fetched.uniques.get(&key).copied().flatten())
    }

    fn put_unique(&mut self, kind: KindId, key: &UniqueKey, row: UniqueRow) -> Result<()> {
        self.gathered.uniques.insert((kind, key.clone()), Some(row));
        Ok(())
    }

    fn delete_unique(&mut self, kind: KindId, key: &UniqueKey, seq: Seq) -> Result<()> {
        let full = (kind, key.clone());
        let known = self.gathered.uniques.get(&full).or_else(|| self.fetched.uniques.get(&full)).copied();
        match known {
            Some(Some(holder)) if holder.seq == seq => {
                // Whoever held it before goes, too: the key was to be taken over.
                if let Some(Some(before)) = self.fetched.uniques.get(&full) {
                    self.gathered.freed.insert((kind, key.clone(), before.seq));
                }
                self.gathered.freed.insert((kind, key.clone(), seq));
                self.gathered.uniques.insert(full, None);
            }
            Some(_) => {}
            None => {
                self.gathered.freed.insert((kind, key.clone(), seq));
            }
        }
        Ok(())
    }

    fn expire_uniques(&mut self, now: Timestamp, limit: usize) -> Result<u64> {
        self.send_gathered()?;
        let (now, limit) = (now.0, limit as i64);
        let gone = self.runtime.block_on(self.link.execute(Sql::UniquesExpire, &[&now, &limit]))?;
        self.fetched.uniques = super::fetched::KnownByName::default();
        Ok(gone)
    }
}

impl PgRows {
    /// These keys were looked for and these holders found; what was freed since counts.
    pub(super) fn learn_uniques(
        &mut self,
        keys: Vec<(KindId, UniqueKey)>,
        holders: Vec<((KindId, UniqueKey), UniqueRow)>,
    ) {
        let freed = &self.gathered.freed;
        let held = |((kind, key), row): &((KindId, UniqueKey), UniqueRow)| {
            freed.is_empty() || !freed.contains(&(*kind, key.clone(), row.seq))
        };
        self.fetched.uniques.learn(keys, holders.into_iter().filter(held));
    }
}

pub(super) fn key_columns(keys: &[(KindId, UniqueKey)]) -> (Vec<i32>, Vec<&str>) {
    keys.iter().map(|(kind, key)| (signed(kind.0), key.as_str())).unzip()
}

pub(super) fn read_unique(row: &Row) -> Result<((KindId, UniqueKey), UniqueRow)> {
    let key = UniqueKey::new(column::<&str>(row, 1)?).map_err(|e| corrupt("a unique key", e))?;
    let holder = UniqueRow {
        seq: Seq(column(row, 2)?),
        id: JobId::from_uuid(column(row, 3)?),
        expires: column::<Option<i64>>(row, 4)?.map(Timestamp),
    };
    Ok(((KindId(unsigned(column(row, 0)?)), key), holder))
}

fn read_lease(row: &Row) -> Result<LeaseRow> {
    Ok(LeaseRow {
        id: LeaseId(column(row, 0)?),
        process: ProcessId(column::<i64>(row, 1)?.cast_unsigned()),
        since: Timestamp(column(row, 2)?),
        until: Timestamp(column(row, 3)?),
        length_ms: column(row, 4)?,
        lone: column(row, 5)?,
        worker: WorkerId::new(column::<&str>(row, 6)?).map_err(|e| corrupt("a lease", e))?,
        jobs: column::<Vec<i64>>(row, 7)?.into_iter().map(Seq).collect(),
    })
}
