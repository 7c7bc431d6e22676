//! Worlds around the gates: processes that die at every step of the protocol, traffic that starves others, a provider that
//! charges, refunds, reorders and loses. One seed decides everything; the judges count from the outside.
//!
//! - [`kills`]: slots under holders and waiters that die, with our gates and with the original scheme of the source.
//! - [`crowd`]: priorities, fairness and use under more demand than supply.
//! - [`provider`]: a provider whose answers report its bucket.

pub mod crowd;
pub mod kills;
mod original;
pub mod provider;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_core::gates::Micros;

/// What happens when, in the order of time and then of planning.
#[derive(Debug)]
struct Agenda<E> {
    now: Micros,
    planned: BinaryHeap<Reverse<(Micros, u64)>>,
    events: std::collections::HashMap<u64, E>,
    next: u64,
}

impl<E> Agenda<E> {
    fn new(now: Micros) -> Self {
        Self { now, planned: BinaryHeap::new(), events: std::collections::HashMap::new(), next: 0 }
    }

    fn plan(&mut self, at: Micros, event: E) {
        self.planned.push(Reverse((at.max(self.now), self.next)));
        self.events.insert(self.next, event);
        self.next += 1;
    }

    /// The next event before `until`.
    fn next(&mut self, until: Micros) -> Option<E> {
        let first = self.planned.peek().map(|Reverse(first)| *first).filter(|(at, _)| *at < until);
        let Some((at, number)) = first else {
            self.now = until;
            return None;
        };
        self.planned.pop();
        self.now = at;
        self.events.remove(&number)
    }
}
