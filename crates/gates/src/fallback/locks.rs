//! When locks may be given out: not while the backend may have lost who has them. No clock, no I/O.
//!
//! A backend that was restarted empty, or a replica that took over, may have forgotten a lock whose holder still works. So
//! after such a change every process gives out none until either all processes that were there have said, on the new server,
//! that they hold none from before, or the longest lease has passed.

use tidegate_core::gates::Micros;

#[derive(Debug)]
pub(super) struct Locks {
    generation: u64,
    opens_at: Micros,
    /// Processes that have to say that they are clear; 0: time alone decides.
    awaited: u32,
}

impl Locks {
    /// A process that has just started.
    pub(super) fn new(generation: u64, opens_at: Micros) -> Self {
        Self { generation, opens_at, awaited: 0 }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn are_open(&self, now: Micros) -> bool {
        now >= self.opens_at
    }

    /// Whether processes are still to say that they are clear.
    pub(super) fn awaits(&self, now: Micros) -> bool {
        self.awaited > 0 && !self.are_open(now)
    }

    /// The backend is another one than before. False if it is not.
    pub(super) fn changed(&mut self, now: Micros, generation: u64, processes: u32, longest: Micros) -> bool {
        if generation == self.generation {
            return false;
        }
        self.generation = generation;
        self.opens_at = self.opens_at.max(now + longest);
        self.awaited = processes.max(1);
        true
    }

    /// So many processes are clear of locks from before.
    pub(super) fn clear(&mut self, now: Micros, processes: u32) {
        if self.awaits(now) && processes >= self.awaited {
            (self.opens_at, self.awaited) = (now, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_stay_closed_until_all_are_clear_or_the_longest_lease_has_passed() {
        let mut locks = Locks::new(1, 0);
        assert!(locks.are_open(0));
        assert!(!locks.changed(10, 1, 4, 100), "the same server");
        assert!(locks.changed(10, 2, 4, 100));
        assert!(!locks.are_open(109) && locks.awaits(109) && locks.are_open(110));
        locks.clear(50, 3);
        assert!(!locks.are_open(50));
        locks.clear(60, 4);
        assert!(locks.are_open(60));
    }

    #[test]
    fn a_newcomer_waits_and_clears_nothing_before_its_time() {
        let mut locks = Locks::new(1, 20);
        locks.clear(10, 9);
        assert!(!locks.are_open(19) && locks.are_open(20));
    }

    #[test]
    fn a_second_loss_starts_the_wait_again() {
        let mut locks = Locks::new(1, 0);
        locks.changed(10, 2, 1, 100);
        locks.clear(20, 1);
        assert!(locks.changed(30, 3, 2, 100) && !locks.are_open(129));
    }
}
