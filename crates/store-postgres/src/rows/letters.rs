//! Letters that wait for review, and where their processor stands.

use std::collections::HashMap;

use tidegate_core::ids::Seq;
use tidegate_core::letters::Round;
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{CauseFilter, CauseRow, DoneRow, Finished, JobRow, LetterRows, StateRow};
use tokio_postgres::Row;

use super::gathered::NameWrite;
use super::jobs::{by_number, each, read_job, read_state};
use super::times::read_done;
use super::{PgRows, column, signed};
use crate::error::corrupt;
use crate::link::Link;
use crate::statements::Sql;

/// Name of the processor's row.
pub(super) const LETTERS: &str = "letters";

impl LetterRows for PgRows {
    fn pending_letters(
        &mut self,
        after: Option<(Timestamp, Seq)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, Seq)>> {
        self.send_gathered()?;
        let (at, seq) = after.map_or((i64::MIN, i64::MIN), |(at, seq)| (at.0, seq.0));
        let rows = self.query(Sql::LettersPending, &[&at, &seq, &(limit as i64)])?;
        let read = |row: &Row| Ok((Timestamp(column(row, 0)?), Seq(column(row, 1)?)));
        rows.iter().map(read).collect()
    }

    fn round(&mut self) -> Result<Option<Round>> {
        self.send_gathered()?;
        let rows = self.query(Sql::RoundsGet, &[&LETTERS])?;
        let body: Option<&str> = rows.first().map(|row| column(row, 0)).transpose()?;
        body.map(serde_json::from_str).transpose().map_err(|e| corrupt("a round", e))
    }

    fn put_round(&mut self, round: Round) -> Result<()> {
        self.gathered.names.push(NameWrite::Round(round));
        Ok(())
    }
}

/// Letters by cause, those with most first; and how many there are in all.
pub(crate) async fn causes(link: &Link, filter: CauseFilter) -> Result<(Vec<CauseRow>, u64)> {
    let number = |no: Option<u32>| no.map(signed);
    let (queue, kind, tenant) = (number(filter.queue), number(filter.kind), number(filter.tenant));
    let rows = link.query(Sql::LettersCauses, &[&queue, &kind, &tenant, &(filter.limit as i64)]).await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        found.push(CauseRow {
            cause: column::<&str>(row, 0)?.parse().ok(),
            count: column::<i64>(row, 1)?.cast_unsigned(),
            first: Timestamp(column(row, 2)?),
            last: Timestamp(column(row, 3)?),
            example: Seq(column(row, 4)?),
            queues: column::<i64>(row, 5)?.cast_unsigned(),
        });
    }
    let total = rows.first().map(|row| column::<i64>(row, 6)).transpose()?.unwrap_or(0);
    Ok((found, total.cast_unsigned()))
}

/// Those of these jobs that are finished, with all that is kept of them, read beside the writer.
pub(crate) async fn finished(link: &Link, seqs: &[Seq]) -> Result<HashMap<Seq, Box<Finished>>> {
    // The mark first: what is read after it does not change any more.
    let done: HashMap<Seq, DoneRow> =
        each(&by_number(link, Sql::DoneGet, seqs).await?, read_done)?.into_iter().collect();
    let seqs: Vec<Seq> = done.keys().copied().collect();
    // Asked for in this order: where a job is still there, its state was when it was read.
    let (states, jobs) =
        tokio::join!(by_number(link, Sql::StatesGet, &seqs), by_number(link, Sql::JobsGet, &seqs));
    let mut states: HashMap<Seq, StateRow> = each(&states?, read_state)?.into_iter().collect();
    let mut jobs: HashMap<Seq, JobRow> = each(&jobs?, read_job)?.into_iter().collect();
    let whole = done.into_iter().filter_map(|(seq, done)| {
        let (job, state) = (jobs.remove(&seq)?, states.remove(&seq).unwrap_or_default());
        Some((seq, Box::new(Finished { seq, job, state, done })))
    });
    Ok(whole.collect())
}
