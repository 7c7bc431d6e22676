//! Saying in advance what is going to be read, for rows that are a long way off. Costs nothing where they are not.

use tidegate_core::ids::Seq;

use super::Machine;
use crate::Result;
use crate::rows::{LookUps, Reads, Rows};

/// What an operation needs of each of some jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The changing part.
    State,
    /// Lane, tenant and the changing part.
    HeadAndState,
    /// All but the mark of being finished.
    JobAndState,
    /// All there is.
    Everything,
}

impl<R: Rows> Machine<R> {
    /// The operation is about to read these jobs, one by one.
    pub(super) fn hint_rows(&mut self, jobs: impl Iterator<Item = Seq>, need: Need) -> Result<()> {
        if !R::PREFETCHES {
            return Ok(());
        }
        let mut reads = Reads::default();
        for seq in jobs {
            self.add_reads(&mut reads, seq, need);
        }
        self.hint(&reads)
    }

    /// Adds what is needed of one job.
    pub(super) fn add_reads(&self, reads: &mut Reads, seq: Seq, need: Need) {
        if self.memory.with_state.contains(&seq) {
            reads.states.push(seq);
        }
        match need {
            Need::State => {}
            Need::HeadAndState => reads.heads.push(seq),
            Need::JobAndState => reads.jobs.push(seq),
            Need::Everything => {
                reads.jobs.push(seq);
                reads.done.push(seq);
                if self.memory.edges > 0 {
                    reads.blocked.push(seq);
                }
            }
        }
    }

    pub(super) fn hint(&mut self, reads: &Reads) -> Result<()> {
        if *reads == Reads::default() { Ok(()) } else { self.rows.will_read(reads) }
    }

    pub(super) fn hint_look_ups(&mut self, look_ups: &LookUps) -> Result<()> {
        if *look_ups == LookUps::default() { Ok(()) } else { self.rows.will_look_up(look_ups) }
    }
}
