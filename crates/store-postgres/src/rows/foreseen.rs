//! Marks of finished jobs that are written before their turn.
//!
//! Most of the work of a commit is the server's, with rows; and what a settlement will write is known before it is
//! decided: the mark of a job that this process claimed and that was completed. So it is written at the beginning of the
//! transaction, before the head row is locked, where it holds up nobody. What the machine decides then counts: a mark that
//! it does not make (the lease was lost) is taken back before the commit, and one that it makes otherwise is written again.
//!
//! Nobody waits for a mark that is not committed: there is no unique index, so that several may be there for one job, of
//! which one at most is committed. Those of jobs that somebody else took meanwhile are taken back as soon as that is known.
//! Until the machine has made a mark, nothing in this transaction sees it.

use std::collections::{BTreeMap, HashMap};

use tidegate_core::hash::KeyMap;
use tidegate_core::ids::{LeaseId, QueueName, Seq};
use tidegate_core::job::State;
use tidegate_core::lanes::QueueId;
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Claimed, Outcome, Settlement, Ticket};
use tidegate_store::rows::DoneRow;

/// Claims remembered; beyond that, all are forgotten and their marks are written in their turn.
const CLAIMS: usize = 200_000;

/// A completed job: its ticket and its result.
pub(crate) type Completion = (Ticket, Option<Payload>);

/// Marks to be written before their turn.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    pub(crate) marks: BTreeMap<Seq, DoneRow>,
    /// What they rely on.
    pub(crate) tickets: Vec<Ticket>,
    /// The commit after which every ticket was good.
    pub(crate) version: i64,
}

/// What is known of a job that this process claimed.
#[derive(Debug, Clone, Copy)]
struct Held {
    lease: LeaseId,
    queue: QueueId,
    attempt: u32,
}

/// What is foreseen, and what was written of it.
#[derive(Debug, Default)]
pub(crate) struct Foreseen {
    queues: HashMap<QueueName, QueueId>,
    held: KeyMap<Seq, Held>,
    /// Written in this transaction and not made by the machine yet.
    written: BTreeMap<Seq, DoneRow>,
    /// Written in this transaction and not true.
    wrong: Vec<Seq>,
}

impl Foreseen {
    /// A queue has this number.
    pub(crate) fn name_queue(&mut self, name: &QueueName, id: QueueId) {
        self.queues.insert(name.clone(), id);
    }

    /// The machine handed out these jobs.
    pub(crate) fn note(&mut self, claimed: &Claimed) {
        if self.held.len() + claimed.jobs.len() > CLAIMS {
            self.held.clear();
        }
        for job in &claimed.jobs {
            if let Some(&queue) = self.queues.get(&job.queue) {
                let held = Held { lease: job.ticket.lease, queue, attempt: job.attempt };
                self.held.insert(job.ticket.seq, held);
            }
        }
    }

    /// The mark that a completion will make.
    pub(crate) fn mark(&self, ticket: Ticket, result: Option<Payload>, at: Timestamp) -> Option<DoneRow> {
        let held = self.held.get(&ticket.seq).filter(|held| held.lease == ticket.lease)?;
        let (queue, attempt) = (held.queue, held.attempt);
        Some(DoneRow { queue, state: State::Completed, at, attempt, result, letter: None })
    }

    /// These marks were written.
    pub(crate) fn written(&mut self, marks: BTreeMap<Seq, DoneRow>) {
        self.written = marks;
    }

    /// Whether nothing was written ahead in this transaction.
    pub(super) fn is_quiet(&self) -> bool {
        self.written.is_empty() && self.wrong.is_empty()
    }

    /// Whether a mark was written that the machine has not made.
    pub(super) fn is_ahead(&self, seq: Seq) -> bool {
        !self.written.is_empty() && self.written.contains_key(&seq)
    }

    /// The machine makes a mark. Says whether it is written already. Its time may be a little earlier then: that of the
    /// caller, not of the lock.
    pub(super) fn make(&mut self, seq: Seq, row: &DoneRow) -> Option<DoneRow> {
        self.held.remove(&seq);
        let written = self.written.remove(&seq)?;
        if *row == (DoneRow { at: row.at, ..written.clone() }) {
            return Some(written);
        }
        self.wrong.push(seq);
        None
    }

    /// Marks to be taken back before others are written; with `end`, also those that the machine did not make.
    pub(super) fn take_wrong(&mut self, end: bool) -> Vec<Seq> {
        if end {
            self.wrong.extend(std::mem::take(&mut self.written).into_keys());
        }
        std::mem::take(&mut self.wrong)
    }

    /// The transaction is over.
    pub(super) fn forget(&mut self) {
        self.written.clear();
        self.wrong.clear();
    }
}

/// Those of the settlements that complete a job.
pub(crate) fn completions(settlements: &[Settlement]) -> Vec<Completion> {
    let of = |s: &Settlement| match &s.outcome {
        Outcome::Complete(result)
            if result.as_ref().is_none_or(|r| r.as_str().len() <= limits::MAX_RESULT_BYTES) =>
        {
            Some((s.ticket, result.clone()))
        }
        _ => None,
    };
    settlements.iter().filter_map(of).collect()
}
