//! Jobs and their changing parts.

use tidegate_core::ids::{JobId, LeaseId, Seq};
use tidegate_core::lanes::LaneId;
use tidegate_core::payload::Payload;
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{JobRow, JobRows, KindId, LookUps, Reads, Scanned, StateRow, TenantNo};
use tokio_postgres::Row;
use uuid::Uuid;

use super::runs::Runs;
use super::{PgRows, column, unsigned};
use crate::error::corrupt;
use crate::link::Link;
use crate::statements::Sql;

impl JobRows for PgRows {
    const PREFETCHES: bool = true;

    fn will_read(&mut self, reads: &Reads) -> Result<()> {
        let old = |seqs: &[Seq]| -> Vec<Seq> {
            let first_new = self.gathered.new_jobs.first().map_or(Seq(i64::MAX), |(seq, _)| *seq);
            seqs.iter().copied().filter(|seq| *seq < first_new).collect()
        };
        let jobs = self.fetched.jobs.missing(old(&reads.jobs));
        let heads: Vec<Seq> =
            old(&reads.heads).into_iter().filter(|seq| self.fetched.jobs.get(seq).is_none()).collect();
        let heads = self.fetched.heads.missing(heads);
        let states: Vec<Seq> =
            reads.states.iter().copied().filter(|seq| !self.gathered.states.contains_key(seq)).collect();
        let states = self.fetched.states.missing(states);
        let done: Vec<Seq> =
            old(&reads.done).into_iter().filter(|seq| !self.gathered.done.contains_key(seq)).collect();
        let done = self.fetched.done.missing(done);
        let blocked = old(&reads.blocked).into_iter().filter(|seq| !self.gathered.blocked.contains_key(seq));
        let blocked = self.fetched.blocked.missing(blocked.collect::<Vec<_>>());
        let children = self.fetched.children.missing(old(&reads.children));
        let parents = self.fetched.parents.missing(old(&reads.parents));
        let counts = self.fetched.counts.missing(old(&reads.counts));
        let (job_rows, head_rows, state_rows, done_rows, blocked_rows, down, up, counted) =
            self.runtime.block_on(async {
                tokio::join!(
                    by_number(&self.link, Sql::JobsGet, &jobs),
                    by_number(&self.link, Sql::JobsHead, &heads),
                    by_number(&self.link, Sql::StatesGet, &states),
                    by_number(&self.link, Sql::DoneGet, &done),
                    by_number(&self.link, Sql::BlockedGet, &blocked),
                    by_number(&self.link, Sql::EdgesChildren, &children),
                    by_number(&self.link, Sql::EdgesParents, &parents),
                    by_number(&self.link, Sql::EdgesCounts, &counts),
                )
            });
        self.fetched.jobs.learn(jobs, each(&job_rows?, read_job)?);
        self.fetched.heads.learn(heads, each(&head_rows?, read_head)?);
        self.fetched.states.learn(states, each(&state_rows?, read_state)?);
        self.fetched.done.learn(done, each(&done_rows?, super::times::read_done)?);
        self.fetched.blocked.learn(blocked, each(&blocked_rows?, super::flows::read_blocked)?);
        self.fetched.children.learn(children, super::flows::read_edges(&down?)?);
        self.fetched.parents.learn(parents, super::flows::read_edges(&up?)?);
        self.fetched.counts.learn(counts, each(&counted?, super::flows::read_count)?);
        Ok(())
    }

    fn will_look_up(&mut self, look_ups: &LookUps) -> Result<()> {
        let ids: Vec<JobId> =
            look_ups.ids.iter().copied().filter(|id| self.gathered.find(*id).is_none()).collect();
        let ids = self.fetched.ids.missing(ids);
        let keys = look_ups.keys.iter().filter(|key| !self.gathered.uniques.contains_key(*key)).cloned();
        let keys = self.fetched.uniques.missing(keys);
        let uuids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
        let (kinds, texts) = super::claims::key_columns(&keys);
        let (found, holders) = self.runtime.block_on(async {
            let find = async {
                if uuids.is_empty() { Ok(vec![]) } else { self.link.query(Sql::JobsFind, &[&uuids]).await }
            };
            let hold = async {
                if kinds.is_empty() {
                    return Ok(vec![]);
                }
                self.link.query(Sql::UniquesGet, &[&kinds, &texts]).await
            };
            tokio::join!(find, hold)
        });
        self.fetched.ids.learn(ids, each(&found?, read_found)?);
        self.learn_uniques(keys, each(&holders?, super::claims::read_unique)?);
        Ok(())
    }

    fn insert_job(&mut self, seq: Seq, row: &JobRow) -> Result<()> {
        if self.gathered.add_job(seq, row) { self.copy_meanwhile() } else { Ok(()) }
    }

    fn job(&mut self, seq: Seq) -> Result<Option<JobRow>> {
        if self.gathered.deleted_jobs.contains(&seq) {
            return Ok(None);
        }
        if let Some(row) = self.gathered.new_job(seq) {
            return Ok(Some(row.clone()));
        }
        if self.fetched.jobs.get(&seq).is_none() {
            self.will_read(&Reads { jobs: vec![seq], ..Reads::default() })?;
        }
        Ok(self.fetched.jobs.get(&seq).cloned().flatten())
    }

    fn head(&mut self, seq: Seq) -> Result<Option<(LaneId, Option<TenantNo>)>> {
        if self.gathered.deleted_jobs.contains(&seq) {
            return Ok(None);
        }
        let of = |row: &JobRow| (row.lane, row.tenant);
        if let Some(row) = self.gathered.new_job(seq) {
            return Ok(Some(of(row)));
        }
        if let Some(known) = self.fetched.jobs.get(&seq) {
            return Ok(known.as_ref().map(of));
        }
        if self.fetched.heads.get(&seq).is_none() {
            self.will_read(&Reads { heads: vec![seq], ..Reads::default() })?;
        }
        Ok(self.fetched.heads.get(&seq).copied().flatten())
    }

    fn find_job(&mut self, id: JobId) -> Result<Option<Seq>> {
        if let Some(seq) = self.gathered.find(id) {
            return Ok(Some(seq));
        }
        if self.fetched.ids.get(&id).is_none() {
            self.will_look_up(&LookUps { ids: vec![id], ..LookUps::default() })?;
        }
        let known = self.fetched.ids.get(&id).copied().flatten();
        Ok(known.filter(|seq| !self.gathered.deleted_jobs.contains(seq)))
    }

    fn delete_job(&mut self, seq: Seq) -> Result<()> {
        self.gathered.deleted_jobs.insert(seq);
        self.gathered.states.remove(&seq);
        self.gathered.done.remove(&seq);
        self.gathered.letters.remove(&seq);
        Ok(())
    }

    fn state(&mut self, seq: Seq) -> Result<Option<StateRow>> {
        if self.gathered.deleted_jobs.contains(&seq) {
            return Ok(None);
        }
        if let Some(row) = self.gathered.states.get(&seq) {
            return Ok(Some(row.clone()));
        }
        if self.fetched.states.get(&seq).is_none() {
            self.will_read(&Reads { states: vec![seq], ..Reads::default() })?;
        }
        Ok(self.fetched.states.get(&seq).cloned().flatten())
    }

    fn put_state(&mut self, seq: Seq, row: &StateRow) -> Result<()> {
        self.gathered.states.insert(seq, row.clone());
        Ok(())
    }

    fn jobs_of_tenant(
        &mut self,
        tenant: TenantNo,
        after: Seq,
        scan: usize,
    ) -> Result<(Vec<Seq>, Option<Seq>)> {
        self.send_gathered()?;
        let rows = self.query(Sql::JobsTenants, &[&after.0, &(scan as i64)])?;
        let (mut found, mut last) = (vec![], None);
        for row in &rows {
            let seq = Seq(column(row, 0)?);
            last = Some(seq);
            if column::<Option<i32>>(row, 1)?.map(unsigned) == Some(tenant.0) {
                found.push(seq);
            }
        }
        Ok((found, last.filter(|_| rows.len() == scan)))
    }

    fn reserved_seq(&mut self) -> Result<Seq> {
        Ok(self.numbers.next_seq)
    }

    fn reserve_seq(&mut self, _upto: Seq) -> Result<()> {
        // The position that comes with every commit says where to go on.
        Ok(())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(Scanned)) -> Result<()> {
        self.runtime.block_on(super::scan::scan(&self.link, &self.scan, visit))
    }
}

/// The rows of these jobs; asks nobody about none.
pub(super) async fn by_number(link: &Link, sql: Sql, seqs: &[Seq]) -> Result<Vec<Row>> {
    if seqs.is_empty() {
        return Ok(vec![]);
    }
    let runs = Runs::of(seqs.iter().copied());
    link.query(sql, &[&runs.first, &runs.last]).await
}

pub(super) fn each<T>(rows: &[Row], read: fn(&Row) -> Result<T>) -> Result<Vec<T>> {
    rows.iter().map(read).collect()
}

pub(super) fn read_job(row: &Row) -> Result<(Seq, JobRow)> {
    let extra: Option<&str> = column(row, 9)?;
    let job = JobRow {
        id: JobId::from_uuid(column(row, 4)?),
        kind: KindId(unsigned(column(row, 5)?)),
        lane: LaneId(unsigned(column(row, 6)?)),
        tenant: column::<Option<i32>>(row, 7)?.map(|t| TenantNo(unsigned(t))),
        created_at: Timestamp(column(row, 1)?),
        run_at: Timestamp(column(row, 2)?),
        timeout_ms: column(row, 3)?,
        max_attempts: column::<Option<i32>>(row, 8)?.map(unsigned),
        extra: extra.map(serde_json::from_str).transpose().map_err(|e| corrupt("a job", e))?,
        payload: Payload::trusted(column::<&str>(row, 10)?),
    };
    Ok((Seq(column(row, 0)?), job))
}

fn read_head(row: &Row) -> Result<(Seq, (LaneId, Option<TenantNo>))> {
    let tenant = column::<Option<i32>>(row, 2)?.map(|t| TenantNo(unsigned(t)));
    Ok((Seq(column(row, 0)?), (LaneId(unsigned(column(row, 1)?)), tenant)))
}

fn read_found(row: &Row) -> Result<(JobId, Seq)> {
    Ok((JobId::from_uuid(column(row, 0)?), Seq(column(row, 1)?)))
}

pub(super) fn read_state(row: &Row) -> Result<(Seq, StateRow)> {
    let state: StateRow = serde_json::from_str(column(row, 6)?).map_err(|e| corrupt("a job's state", e))?;
    let state = StateRow {
        settled: column::<Option<i64>>(row, 1)?.map(LeaseId),
        run_at: column::<Option<i64>>(row, 2)?.map(Timestamp),
        lane: column::<Option<i32>>(row, 3)?.map(|l| LaneId(unsigned(l))),
        lone_stalls: unsigned(column(row, 4)?),
        suspect: column(row, 5)?,
        ..state
    };
    Ok((Seq(column(row, 0)?), state))
}
