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
use super::{PgRows, column, signed, unsigned};
use crate::error::corrupt;
use crate::statements::Sql;

/// Longest time between a reading of the clock and the commit that bears it: more than the timeout of the lock. Marks that
/// are as late as that are looked for as often.
const LONGEST_WAIT_MS: i64 = 10_000;

/// Where the walk for the oldest finished jobs of a queue begins: among the entries of what was deleted before, which stay
/// until they are vacuumed, it would take longer than everything else.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trail {
    /// When the oldest that was found last had finished.
    oldest: Timestamp,
    /// When those were looked for that have come late.
    looked: Timestamp,
}

impl Trail {
    /// Where to begin now. What has come since the last look is no older than that look, but for the longest wait.
    fn start(self, now: Timestamp) -> Timestamp {
        if self.is_time_to_look(now) {
            self.oldest.min(self.looked).plus_ms(-LONGEST_WAIT_MS)
        } else {
            self.oldest
        }
    }

    fn is_time_to_look(self, now: Timestamp) -> bool {
        now.since(self.looked) >= LONGEST_WAIT_MS
    }
}

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
                self.fetched.done.put(seq, Some(written));
            }
            None => {
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
        self.send_gathered()?;
        let (now, trail) = (self.now, self.trails.get(&queue).copied());
        let from = trail.map_or(Timestamp(i64::MIN), |trail| trail.start(now));
        let rows = self.query(Sql::DoneOldest, &[&signed(queue.0), &from.0, &(limit as i64)])?;
        let read =
            |row: &Row| Ok((Timestamp(column(row, 0)?), Seq(column(row, 1)?), state_of(column(row, 2)?)?));
        let mut oldest: Vec<(Timestamp, Seq, State)> = rows.iter().map(read).collect::<Result<_>>()?;
        if let Some((at, _, _)) = oldest.first() {
            // A job may have finished at a time that is still ahead, if the clock went back since. A mark may bear the
            // time at which its caller began to wait for the lock: it is found by the next look for such.
            let looked = trail.filter(|trail| !trail.is_time_to_look(now)).map_or(now, |trail| trail.looked);
            self.trails.insert(queue, Trail { oldest: (*at).min(now), looked });
        }
        oldest.retain(|(_, seq, _)| !self.foreseen.is_ahead(*seq));
        Ok(oldest)
    }

    fn oldest_dead(&mut self, limit: usize) -> Result<Vec<(Timestamp, Seq, QueueId)>> {
        self.send_gathered()?;
        let rows = self.query(Sql::DoneOldestDead, &[&(limit as i64)])?;
        let read = |row: &Row| {
            Ok((Timestamp(column(row, 0)?), Seq(column(row, 1)?), QueueId(unsigned(column(row, 2)?))))
        };
        rows.iter().map(read).collect()
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
