//! Letters that wait for review, and where their processor stands.

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use tidegate_core::ids::Seq;
use tidegate_core::letters::Round;
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{CauseFilter, CauseRow, LetterRows};

use super::{SqliteRows, sql};
use crate::error::{OrStore, corrupt};

/// Name of the processor's row.
const LETTERS: &str = "letters";

impl LetterRows for SqliteRows {
    fn pending_letters(
        &mut self,
        after: Option<(Timestamp, Seq)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, Seq)>> {
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
