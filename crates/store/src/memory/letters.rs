//! Letters that wait for review, in memory.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::ids::Seq;
use tidegate_core::lanes::QueueId;
use tidegate_core::letters::{Cause, Round};
use tidegate_core::time::Timestamp;

use super::MemoryRows;
use crate::Result;
use crate::machine::is_pending;
use crate::rows::{CauseFilter, CauseRow, LetterRows};

impl LetterRows for MemoryRows {
    fn pending_letters(
        &mut self,
        after: Option<(Timestamp, Seq)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, Seq)>> {
        let from = after.unwrap_or((Timestamp(i64::MIN), Seq(i64::MIN)));
        let later = self.done_order.range(from..).filter(|entry| Some(**entry) != after);
        let pending = later.filter(|(_, seq)| self.done.get(seq).is_some_and(is_pending));
        Ok(pending.take(limit).copied().collect())
    }

    fn round(&mut self) -> Result<Option<Round>> {
        Ok(self.round)
    }

    fn put_round(&mut self, round: Round) -> Result<()> {
        self.round = Some(round);
        Ok(())
    }
}

impl MemoryRows {
    /// Letters by cause, those with most first; and how many there are in all.
    pub fn causes(&self, filter: CauseFilter) -> (Vec<CauseRow>, u64) {
        let mut found: BTreeMap<Option<Cause>, (CauseRow, BTreeSet<QueueId>)> = BTreeMap::new();
        let mut total = 0;
        for (&seq, done) in self.done.iter().filter(|(_, done)| is_pending(done)) {
            let Some(job) = self.jobs.get(&seq) else { continue };
            let fits = filter.queue.is_none_or(|queue| done.queue.0 == queue)
                && filter.kind.is_none_or(|kind| job.kind.0 == kind)
                && filter.tenant.is_none_or(|tenant| job.tenant.is_some_and(|no| no.0 == tenant));
            if !fits {
                continue;
            }
            total += 1;
            let cause = done.letter.as_ref().and_then(|letter| letter.cause);
            let new = CauseRow { cause, count: 0, first: done.at, last: done.at, example: seq, queues: 0 };
            let (row, queues) = found.entry(cause).or_insert((new, BTreeSet::new()));
            queues.insert(done.queue);
            let (first, last) = (row.first.min(done.at), row.last.max(done.at));
            let (count, queues) = (row.count + 1, queues.len() as u64);
            *row = CauseRow { count, first, last, example: row.example.max(seq), queues, ..*row };
        }
        let mut rows: Vec<CauseRow> = found.into_values().map(|(row, _)| row).collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.count), std::cmp::Reverse(row.example)));
        rows.truncate(filter.limit);
        (rows, total)
    }
}
