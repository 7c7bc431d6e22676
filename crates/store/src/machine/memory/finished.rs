//! Finished jobs of kinds with lanes of their own, which may keep fewer than their queue.

use std::collections::{BTreeSet, HashMap};

use tidegate_core::ids::Seq;
use tidegate_core::time::Timestamp;

/// Finished jobs of a kind, dead ones not among them. All of them, whether the kind keeps fewer now or not: it may tomorrow.
#[derive(Debug, Default)]
pub(in crate::machine) struct Finished {
    by_age: BTreeSet<(Timestamp, Seq)>,
    since: HashMap<Seq, Timestamp>,
}

impl Finished {
    pub(in crate::machine) fn insert(&mut self, seq: Seq, at: Timestamp) {
        self.since.insert(seq, at);
        self.by_age.insert((at, seq));
    }

    pub(super) fn remove(&mut self, seq: Seq) {
        if let Some(at) = self.since.remove(&seq) {
            self.by_age.remove(&(at, seq));
        }
    }

    pub(in crate::machine) fn len(&self) -> usize {
        self.by_age.len()
    }

    pub(in crate::machine) fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    /// Those that finished first, first.
    pub(in crate::machine) fn oldest(&self) -> impl Iterator<Item = Seq> {
        self.by_age.iter().map(|(_, seq)| *seq)
    }
}
