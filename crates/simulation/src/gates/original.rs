//! The slots of the source (S4) as they were: one set whose expiry is renewed by every reservation, waiters scored by
//! priority alone, and a release that reserves for the next waiter on its behalf. Kept to show that the worlds here
//! can tell a scheme that leaks from one that does not.

use std::collections::BTreeSet;

use tidegate_core::gates::Micros;

/// The set of active slots and the queue.
#[derive(Debug, Default)]
pub(super) struct Original {
    active: BTreeSet<u64>,
    /// The whole set goes at this time.
    expires: Micros,
    /// (priority, slot id): equal priorities sort by name.
    queue: BTreeSet<(u8, u64)>,
}

impl Original {
    fn expire(&mut self, now: Micros) {
        if now >= self.expires {
            self.active.clear();
        }
    }

    /// `SADD` and `EXPIRE` of the whole set, or a place in the queue.
    pub(super) fn reserve(&mut self, now: Micros, limit: usize, ttl: Micros, id: u64, priority: u8) -> bool {
        self.expire(now);
        if self.active.contains(&id) {
            // Handed to it by a release.
            return true;
        }
        if self.active.len() >= limit {
            self.queue.insert((priority, id));
            return false;
        }
        self.active.insert(id);
        self.expires = now + ttl;
        true
    }

    /// `SREM`, and the slot is handed to the first of the queue.
    pub(super) fn release(&mut self, now: Micros, id: u64) -> Option<u64> {
        self.expire(now);
        if !self.active.remove(&id) {
            return None;
        }
        let (_, next) = self.queue.pop_first()?;
        self.active.insert(next);
        Some(next)
    }
}
