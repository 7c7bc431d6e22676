//! Scheduled and finished jobs.

use rusqlite::{OptionalExtension, Row, params};
use tidegate_core::ids::Seq;
use tidegate_core::job::{DeadLetter, State};
use tidegate_core::lanes::QueueId;
use tidegate_core::payload::Payload;
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{DoneRow, TimeRows};

use super::batch::{LARGEST, LetterText, state_of};
use super::{SqliteRows, sql};
use crate::error::{OrStore, corrupt};

impl TimeRows for SqliteRows {
    fn delay(&mut self, run_at: Timestamp, seq: Seq) -> Result<()> {
        let mut statement = self.conn.prepare_cached(sql!("delayed/insert")).or_store()?;
        statement.execute([run_at.0, seq.0]).or_store()?;
        Ok(())
    }

    fn undelay(&mut self, run_at: Timestamp, seq: Seq) -> Result<bool> {
        let mut statement = self.conn.prepare_cached(sql!("delayed/delete")).or_store()?;
        Ok(statement.execute([run_at.0, seq.0]).or_store()? > 0)
    }

    fn take_due(&mut self, now: Timestamp, limit: usize) -> Result<Vec<(Timestamp, Seq)>> {
        let mut due = vec![];
        {
            let mut statement = self.conn.prepare_cached(sql!("delayed/due")).or_store()?;
            let mut rows = statement.query([now.0, limit as i64]).or_store()?;
            while let Some(row) = rows.next().or_store()? {
                due.push((Timestamp(row.get(0).or_store()?), Seq(row.get(1).or_store()?)));
            }
        }
        if let Some((run_at, seq)) = due.last() {
            let mut statement = self.conn.prepare_cached(sql!("delayed/delete_upto")).or_store()?;
            let gone = statement.execute([run_at.0, seq.0]).or_store()?;
            if gone != due.len() {
                let detail = format!("{gone} jobs left the schedule, {} were due", due.len());
                return Err(tidegate_store::Error::internal(detail));
            }
        }
        Ok(due)
    }

    fn next_due(&mut self) -> Result<Option<Timestamp>> {
        let mut statement = self.conn.prepare_cached(sql!("delayed/next")).or_store()?;
        statement.query_row([], |row| row.get(0).map(Timestamp)).optional().or_store()
    }

    fn insert_done(&mut self, seq: Seq, row: &DoneRow) -> Result<()> {
        self.new_done.push((seq, row.clone()));
        if self.new_done.len() >= LARGEST { self.flush_done() } else { Ok(()) }
    }

    fn done(&mut self, seq: Seq) -> Result<Option<DoneRow>> {
        self.show_letter(seq)?;
        if let Some((_, row)) = self.new_done.iter().find(|(s, _)| *s == seq) {
            return Ok(Some(row.clone()));
        }
        let mut statement = self.conn.prepare_cached(sql!("done/get")).or_store()?;
        let mut rows = statement.query([seq.0]).or_store()?;
        rows.next().or_store()?.map(|row| read_done(row, 0)).transpose()
    }

    fn put_letter(&mut self, seq: Seq, letter: &DeadLetter) -> Result<()> {
        self.letters.push((seq, LetterText::of(letter)?));
        if self.letters.len() >= LARGEST { self.flush_letters() } else { Ok(()) }
    }

    fn oldest_done(&mut self, queue: QueueId, limit: usize) -> Result<Vec<(Timestamp, Seq, State)>> {
        self.flush_done()?;
        let mut statement = self.conn.prepare_cached(sql!("done/oldest")).or_store()?;
        let mut rows = statement.query(params![queue.0, limit as i64]).or_store()?;
        let mut found = vec![];
        while let Some(row) = rows.next().or_store()? {
            let state = state_of(row.get(2).or_store()?)?;
            found.push((Timestamp(row.get(0).or_store()?), Seq(row.get(1).or_store()?), state));
        }
        Ok(found)
    }

    fn oldest_dead(&mut self, limit: usize) -> Result<Vec<(Timestamp, Seq, QueueId)>> {
        self.flush_done()?;
        let mut statement = self.conn.prepare_cached(sql!("done/oldest_dead")).or_store()?;
        let read = |row: &Row<'_>| Ok((Timestamp(row.get(0)?), Seq(row.get(1)?), QueueId(row.get(2)?)));
        statement.query_map([limit as i64], read).and_then(Iterator::collect).or_store()
    }
}

impl SqliteRows {
    /// Writes the letters that were gathered if this job's is one of them.
    fn show_letter(&mut self, seq: Seq) -> Result<()> {
        if self.letters.iter().any(|(s, _)| *s == seq) { self.flush_letters() } else { Ok(()) }
    }

    /// Writes what was gathered if this job's mark is in it.
    pub(super) fn show_done(&mut self, seq: Seq) -> Result<()> {
        if self.new_done.iter().any(|(s, _)| *s == seq) { self.flush_done() } else { Ok(()) }
    }
}

/// The columns of a mark, from this one on.
pub(super) fn read_done(row: &Row<'_>, first: usize) -> Result<DoneRow> {
    let letter = row.get_ref(first + 5).or_store()?;
    let letter = letter.as_str_or_null().map_err(|e| corrupt("a dead letter", e))?;
    Ok(DoneRow {
        queue: QueueId(row.get(first).or_store()?),
        state: state_of(row.get(first + 1).or_store()?)?,
        at: Timestamp(row.get(first + 2).or_store()?),
        attempt: row.get(first + 3).or_store()?,
        result: row.get::<_, Option<String>>(first + 4).or_store()?.map(Payload::trusted),
        letter: letter.map(serde_json::from_str).transpose().map_err(|e| corrupt("a dead letter", e))?,
    })
}
