//! Who acts: processes with their runs, the producer with its outbox.

use std::collections::{BTreeSet, VecDeque};

use tidegate_core::failure::Category;
use tidegate_core::ids::{JobId, LeaseId, ProcessId, WorkerId};
use tidegate_core::job::ParkScope;
use tidegate_core::seed::Seed;
use tidegate_store::params::{NewJob, Ticket};

/// What a handler will do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Plan {
    Complete,
    Fail(Category),
    Snooze(i64, Option<ParkScope>),
    Release,
    /// It kills its process.
    Die,
}

/// A job in the hands of a process.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) ticket: Ticket,
    pub(crate) job: JobId,
    pub(crate) plan: Plan,
    /// How long the handler takes, in real time.
    pub(crate) takes_ms: i64,
    /// When it ends, once it has started.
    pub(crate) ends_at: Option<i64>,
    /// Whether it was asked to stop.
    pub(crate) cancel: bool,
}

/// A process with a worker in it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) worker: WorkerId,
    pub(crate) concurrency: usize,
    pub(crate) prefetch: usize,
    pub(crate) runs: Vec<Run>,
    /// Real time of the next heartbeat.
    pub(crate) beat_at: i64,
    /// Paused until then, in real time: a zombie when it wakes.
    pub(crate) asleep_until: Option<i64>,
}

impl Process {
    pub(crate) fn new(id: u64, dice: &mut Seed) -> Self {
        Self {
            id: ProcessId(id),
            worker: worker(id),
            concurrency: 1 + dice.below(4) as usize,
            prefetch: dice.below(3) as usize,
            runs: vec![],
            beat_at: 0,
            asleep_until: None,
        }
    }

    /// Another run of the program: a new number, and nothing of what the old one knew.
    pub(crate) fn reborn(&mut self, id: u64) {
        self.id = ProcessId(id);
        self.worker = worker(id);
        self.runs.clear();
        self.asleep_until = None;
    }

    pub(crate) fn leases(&self) -> Vec<LeaseId> {
        self.runs.iter().map(|r| r.ticket.lease).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(crate) fn room(&self) -> u32 {
        (self.concurrency + self.prefetch).saturating_sub(self.runs.len()) as u32
    }

    /// Starts what waits while there are free slots.
    pub(crate) fn start_waiting(&mut self, real: i64) {
        let mut free =
            self.concurrency.saturating_sub(self.runs.iter().filter(|r| r.ends_at.is_some()).count());
        for run in self.runs.iter_mut().filter(|r| r.ends_at.is_none()) {
            if free == 0 {
                break;
            }
            free -= 1;
            run.ends_at = Some(real + run.takes_ms);
        }
    }
}

fn worker(id: u64) -> WorkerId {
    WorkerId::new(format!("w{id}")).expect("letters and digits")
}

/// Batches to be sent, the first one perhaps not for the first time.
#[derive(Debug, Default)]
pub(crate) struct Producer {
    pub(crate) outbox: VecDeque<Vec<NewJob>>,
}

impl Producer {
    /// Nobody knows whether the first batch arrived: it is sent again, and says so.
    pub(crate) fn resend(&mut self) {
        for job in self.outbox.front_mut().into_iter().flatten() {
            job.id_may_exist = true;
        }
    }
}
