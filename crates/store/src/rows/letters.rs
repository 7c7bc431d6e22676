//! Rows of dead letters.

use tidegate_core::ids::{JobId, Seq};
use tidegate_core::letters::{Cause, Round};
use tidegate_core::time::Timestamp;

use super::{DoneRow, JobRow, JobRows, StateRow, TimeRows};
use crate::Result;

/// Jobs that are read and described at a time: a payload may be large, and others have their turn in between.
pub const READ_TOGETHER: usize = 100;

/// Letters that died of one cause and wait for review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CauseRow {
    /// Fingerprint; `None`: letters that have none yet.
    pub cause: Option<Cause>,
    /// How many.
    pub count: u64,
    /// When the first died.
    pub first: Timestamp,
    /// When the last died.
    pub last: Timestamp,
    /// The last that was stored.
    pub example: Seq,
    /// Queues in which they died.
    pub queues: u64,
}

/// Which letters are counted by cause; what is not named does not restrict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CauseFilter {
    /// Number of a queue.
    pub queue: Option<u32>,
    /// Number of a kind.
    pub kind: Option<u32>,
    /// Number of a tenant.
    pub tenant: Option<u32>,
    /// Most causes, those with most letters.
    pub limit: usize,
}

/// A finished job with all that rows keep of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// Its number.
    pub seq: Seq,
    /// What never changes.
    pub job: JobRow,
    /// What changed until it was finished.
    pub state: StateRow,
    /// Its mark.
    pub done: DoneRow,
}

/// A job that a reader found beside the machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Candidate {
    /// Finished, as it was read.
    Finished(Box<Finished>),
    /// Any other.
    Open(Seq),
}

/// Letters, many at a time, and what their processor goes by.
pub trait LetterRows: JobRows + TimeRows {
    /// Finds jobs by id, in the same order.
    fn find_jobs(&mut self, ids: &[JobId]) -> Result<Vec<Option<Seq>>> {
        ids.iter().map(|id| self.find_job(*id)).collect()
    }
    /// Those of these jobs that are finished, in the same order. `true`: it has a changing part.
    fn finished(&mut self, jobs: &[(Seq, bool)]) -> Result<Vec<Finished>> {
        let mut finished = Vec::with_capacity(jobs.len());
        for &(seq, has_state) in jobs {
            let (Some(done), Some(job)) = (self.done(seq)?, self.job(seq)?) else { continue };
            let state = if has_state { self.state(seq)? } else { None };
            finished.push(Finished { seq, job, state: state.unwrap_or_default(), done });
        }
        Ok(finished)
    }
    /// Letters that wait for review, by time of death, after this one.
    fn pending_letters(
        &mut self,
        after: Option<(Timestamp, Seq)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, Seq)>>;
    /// Where the processor stands; `None`: it never ran.
    fn round(&mut self) -> Result<Option<Round>>;
    /// Writes where it stands.
    fn put_round(&mut self, round: Round) -> Result<()>;
}
