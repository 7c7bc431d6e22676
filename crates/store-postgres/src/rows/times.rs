//! Scheduled and finished jobs.

use tidegate_core::ids::Seq;
use tidegate_core::job::{DeadLetter, State};
use tidegate_core::lanes::QueueId;
use tidegate_core::payload::Payload;
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{DoneRow, Reads, TimeRows};
use tokio_postgres::Row;

use super::send::state_of;
use super::{PgRows, column, unsigned};
use crate::error::corrupt;
use crate::statements::Sql;

impl TimeRows for PgRows {
    fn delay(&mut self, run_at: Timestamp, seq: Seq) -> Result<()> {
        self.scheduled(run_at);
        self.gathered.delay(run_at, seq);
        Ok(())
    }

    fn undelay(&mut self, run_at: Timestamp, seq: Seq) -> Result<bool> {
        // Asked only for jobs that are scheduled; one that is not there fails the commit.
        self.gathered.undelay(run_at, seq);
        Ok(true)
    }

    fn take_due(&mut self, now: Timestamp, limit: usize) -> Result<Vec<(Timestamp, Seq)>> {
        self.send_gathered()?;
        let rows = self.query(Sql::DelayedDue, &[&self.due_from.0, &now.0, &(limit as i64)])?;
        let read = |row: &Row| Ok((Timestamp(column(row, 0)?), Seq(column(row, 1)?)));
        let due: Vec<_> = rows.iter().map(read).collect::<Result<_>>()?;
        for &(run_at, seq) in &due {
            self.gathered.undelay(run_at, seq);
        }
        if let Some((run_at, _)) = due.last().filter(|_| due.len() == limit) {
            self.due_from = *run_at;
        } else if due.len() < limit {
            self.due_from = now;
        }
        Ok(due)
    }

    fn next_due(&mut self) -> Result<Option<Timestamp>> {
        self.send_gathered()?;
        let rows = self.query(Sql::DelayedNext, &[&self.due_from.0])?;
        let next = rows.first().map(|row| column(row, 0).map(Timestamp)).transpose()?;
        self.due_from = next.unwrap_or(Timestamp(i64::MAX));
        Ok(next)
    }

    fn insert_done(&mut self, seq: Seq, row: &DoneRow) -> Result<()> {
        match self.foreseen.make(seq, row) {
            Some(written) => {
                self.gathered.list(seq, &written)?;
                self.fetched.done.put(seq, Some(written));
            }
            None => {
                self.gathered.list(seq, row)?;
                self.gathered.done.insert(seq, row.clone());
            }
        }
        Ok(())
    }

    fn done(&mut self, seq: Seq) -> Result<Option<DoneRow>> {
        if self.gathered.deleted_jobs.contains(&seq) || self.foreseen.is_ahead(seq) {
            return Ok(None);
        }
        if let Some(row) = self.gathered.done.get(&seq) {
            return Ok(Some(row.clone()));
        }
        // A job that is not stored yet is not finished either.
        if self.gathered.new_job(seq).is_some() {
            return Ok(None);
        }
        if self.fetched.done.get(&seq).is_none() {
            use tidegate_store::rows::JobRows as _;
            self.will_read(&Reads { done: vec![seq], ..Reads::default() })?;
        }
        let mut known = self.fetched.done.get(&seq).cloned().flatten();
        if let (Some(row), Some(letter)) = (&mut known, self.gathered.letters.get(&seq)) {
            row.letter = Some(Box::new(letter.clone()));
        }
        Ok(known)
    }

    fn put_letter(&mut self, seq: Seq, letter: &DeadLetter) -> Result<()> {
        match self.gathered.done.get_mut(&seq) {
            Some(row) => row.letter = Some(Box::new(letter.clone())),
            None => {
                self.gathered.letters.insert(seq, letter.clone());
            }
        }
        Ok(())
    }

    fn oldest_done(&mut self, queue: QueueId, limit: usize) -> Result<Vec<(Timestamp, Seq, State)>> {
        self.oldest_finished(queue, limit)
    }

    fn oldest_dead(&mut self, limit: usize) -> Result<Vec<(Timestamp, Seq, QueueId)>> {
        self.send_gathered()?;
        let rows = self.query(Sql::DoneOldestDead, &[&(limit as i64)])?;
        let read = |row: &Row| {
            Ok((Timestamp(column(row, 0)?), Seq(column(row, 1)?), QueueId(unsigned(column(row, 2)?))))
        };
        let dead: Vec<(Timestamp, Seq, QueueId)> = rows.iter().map(read).collect::<Result<_>>()?;
        for (_, seq, _) in &dead {
            self.lists.is_dead(*seq);
        }
        Ok(dead)
    }
}

pub(super) fn read_done(row: &Row) -> Result<(Seq, DoneRow)> {
    let letter: Option<&str> = column(row, 6)?;
    let done = DoneRow {
        at: Timestamp(column(row, 1)?),
        queue: QueueId(unsigned(column(row, 2)?)),
        attempt: unsigned(column(row, 3)?),
        state: state_of(column(row, 4)?)?,
        result: column::<Option<&str>>(row, 5)?.map(Payload::trusted),
        letter: letter.map(serde_json::from_str).transpose().map_err(|e| corrupt("a dead letter", e))?,
    };
    Ok((Seq(column(row, 0)?), done))
}
