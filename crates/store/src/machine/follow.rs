//! Machines that follow each other.

use serde::{Deserialize, Serialize};
use tidegate_core::ids::{LeaseId, Seq};
use tidegate_core::time::Timestamp;

use super::{Change, Machine};
use crate::Result;
use crate::feed::JobEvent;
use crate::meter::Meter;
use crate::rows::Rows;

/// What must be kept beside the rows so that a machine can be rebuilt without being told anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Number of the next job; see [`JobRows::reserved_seq`](crate::rows::JobRows::reserved_seq).
    pub next_seq: Seq,
    /// Number of the next lease; see [`ClaimRows::first_lease`](crate::rows::ClaimRows::first_lease).
    pub next_lease: LeaseId,
    /// When the last change was made. A machine opened at this time finds its rows in order and writes nothing.
    pub now: Timestamp,
}

impl<R: Rows> Machine<R> {
    /// Begins or ends keeping changes for others.
    pub fn record_changes(&mut self, on: bool) {
        self.memory.record(on);
    }

    /// What operations did to the memory since changes were last taken, in order. Empty: nobody else has to know.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.memory.take_changes()
    }

    /// Does what the operations of another machine did, in memory alone. Signals and events are as if this machine had
    /// done it. After an error the memory is not to be trusted: drop the machine and open it again.
    pub fn follow(&mut self, changes: &[Change]) -> Result<()> {
        self.memory.follow(changes)?;
        let went_back = changes.iter().any(|change| matches!(change, Change::Rebased(_)));
        if went_back {
            self.last_now = self.memory.now;
            self.draining.clear();
            self.turned.clear();
        } else {
            self.last_now = self.last_now.max(self.memory.now);
        }
        Ok(())
    }

    /// Where this machine stands.
    pub fn position(&self) -> Position {
        let known = &self.memory;
        Position { next_seq: Seq(known.next_seq), next_lease: LeaseId(known.next_lease), now: known.now }
    }

    /// Begins to note what this machine does, if it does not; [`count_seen`](Self::count_seen) must follow every commit.
    pub fn measure(&mut self) {
        self.memory.measure();
    }

    /// Counts what this machine did since the last time, and not what it followed.
    pub fn count_seen(&mut self, meter: &Meter) {
        self.memory.count_seen(meter);
    }

    /// Begins or ends making events.
    pub fn watch(&mut self, on: bool) {
        self.memory.watch(on);
    }

    /// What happened to jobs since events were last taken, in order, here and in machines that were followed.
    pub fn take_events(&mut self) -> Vec<JobEvent> {
        self.memory.take_events()
    }
}
