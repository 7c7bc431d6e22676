//! Letters that wait for review, and where their processor stands.

use std::rc::Rc;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use tidegate_core::ids::{JobId, Seq};
use tidegate_core::letters::Round;
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{CauseFilter, CauseRow, Finished, LetterRows, StateRow};

use super::jobs::{read_job, read_state};
use super::times::read_done;
use super::{SqliteRows, array, sql};
use crate::error::{OrStore, corrupt};

/// Columns of `jobs/whole`: the first of the mark, the first of the changing part, and the number.
const WHOLE: (usize, usize, usize) = (10, 16, 22);

/// Name of the processor's row.
const LETTERS: &str = "letters";

impl LetterRows for SqliteRows {
    fn find_jobs(&mut self, ids: &[JobId]) -> Result<Vec<Option<Seq>>> {
        self.flush_jobs()?;
        numbers(&self.conn, ids)
    }

    fn finished(&mut self, jobs: &[(Seq, bool)]) -> Result<Vec<Finished>> {
        self.flush_jobs()?;
        self.flush_done()?;
        self.flush_letters()?;
        let seqs: Vec<Seq> = jobs.iter().map(|(seq, _)| *seq).collect();
        Ok(whole(&self.conn, &seqs)?.into_iter().filter_map(|(_, finished)| Some(*finished?)).collect())
    }

    fn pending_letters(
        &mut self,
        after: Option<(Timestamp, Seq)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, Seq)>> {
        self.flush_letters()?;
        self.flush_done()?;
        let (at, seq) = after.map_or((i64::MIN, i64::MIN), |(at, seq)| (at.0, seq.0));
        let mut statement = self.conn.prepare_cached(sql!("letters/pending")).or_store()?;
        let read = |row: &Row<'_>| Ok((Timestamp(row.get(0)?), Seq(row.get(1)?)));
        statement.query_map(params![at, seq, limit as i64], read).and_then(Iterator::collect).or_store()
    }

    fn round(&mut self) -> Result<Option<Round>> {
        let mut statement = self.conn.prepare_cached(sql!("rounds/get")).or_store()?;
        let body: Option<String> = statement.query_row([LETTERS], |row| row.get(0)).optional().or_store()?;
        body.map(|text| serde_json::from_str(&text)).transpose().map_err(|e| corrupt("a round", e))
    }

    fn put_round(&mut self, round: Round) -> Result<()> {
        let body = serde_json::to_string(&round).map_err(|e| corrupt("a round", e))?;
        self.put(sql!("rounds/put"), params![LETTERS, body])
    }
}

/// Numbers of the jobs with these ids, in the same order.
pub(crate) fn numbers(conn: &Connection, ids: &[JobId]) -> Result<Vec<Option<Seq>>> {
    let ids: Vec<Value> = ids.iter().map(|id| Value::Blob(id.uuid().as_bytes().to_vec())).collect();
    let mut statement = conn.prepare_cached(sql!("jobs/find_all")).or_store()?;
    let found = statement.query_map([Rc::new(ids)], |row| Ok(row.get::<_, Option<i64>>(0)?.map(Seq)));
    found.and_then(Iterator::collect).or_store()
}

/// These jobs in the same order, those that are finished with all that is kept of them.
pub(crate) fn whole(conn: &Connection, seqs: &[Seq]) -> Result<Vec<(Seq, Option<Box<Finished>>)>> {
    let mut statement = conn.prepare_cached(sql!("jobs/whole")).or_store()?;
    let mut rows = statement.query([array(seqs)]).or_store()?;
    let mut found = Vec::with_capacity(seqs.len());
    while let Some(row) = rows.next().or_store()? {
        let seq = Seq(row.get(WHOLE.2).or_store()?);
        let is = |column: usize| row.get_ref(column).or_store().map(|value| value != ValueRef::Null);
        if !is(WHOLE.0)? {
            found.push((seq, None));
            continue;
        }
        let done = read_done(row, WHOLE.0)?;
        // Its last column has no NULL.
        let state = if is(WHOLE.2 - 1)? { read_state(row, WHOLE.1)? } else { StateRow::default() };
        found.push((seq, Some(Box::new(Finished { seq, job: read_job(row)?, state, done }))));
    }
    Ok(found)
}

/// Letters by cause, those with most first; and how many there are in all.
pub(crate) fn causes(conn: &Connection, filter: CauseFilter) -> Result<(Vec<CauseRow>, u64)> {
    let mut statement = conn.prepare_cached(sql!("letters/causes")).or_store()?;
    let wanted = params![filter.queue, filter.kind, filter.tenant, filter.limit as i64];
    let mut rows = statement.query(wanted).or_store()?;
    let (mut found, mut total) = (vec![], 0);
    while let Some(row) = rows.next().or_store()? {
        let cause: String = row.get(0).or_store()?;
        found.push(CauseRow {
            cause: cause.parse().ok(),
            count: row.get::<_, i64>(1).or_store()?.cast_unsigned(),
            first: Timestamp(row.get(2).or_store()?),
            last: Timestamp(row.get(3).or_store()?),
            example: Seq(row.get(4).or_store()?),
            queues: row.get::<_, i64>(5).or_store()?.cast_unsigned(),
        });
        total = row.get::<_, i64>(6).or_store()?.cast_unsigned();
    }
    Ok((found, total))
}
