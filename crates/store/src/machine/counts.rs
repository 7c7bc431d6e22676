//! Counts of a queue that neither lanes nor leases have.

use tidegate_core::job::State;
use tidegate_core::time::Timestamp;

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) blocked: u64,
    pub(super) scheduled: u64,
    pub(super) completed: u64,
    pub(super) dead: u64,
    pub(super) cancelled: u64,
    pub(super) rate: Rate,
}

impl Counts {
    pub(super) fn of(&mut self, state: State) -> Option<&mut u64> {
        match state {
            State::Blocked => Some(&mut self.blocked),
            State::Scheduled => Some(&mut self.scheduled),
            State::Completed => Some(&mut self.completed),
            State::Dead => Some(&mut self.dead),
            State::Cancelled => Some(&mut self.cancelled),
            State::Ready | State::Running => None,
        }
    }
}

/// Completions per second over the last minute.
#[derive(Debug)]
pub(super) struct Rate {
    seconds: [(i64, u64); 60],
}

impl Default for Rate {
    fn default() -> Self {
        Self { seconds: [(0, 0); 60] }
    }
}

impl Rate {
    pub(super) fn record(&mut self, now: Timestamp) {
        let second = now.0.div_euclid(1_000);
        let slot = &mut self.seconds[second.rem_euclid(60) as usize];
        if slot.0 == second {
            slot.1 += 1;
        } else {
            *slot = (second, 1);
        }
    }

    pub(super) fn last_minute(&self, now: Timestamp) -> u64 {
        let second = now.0.div_euclid(1_000);
        self.seconds.iter().filter(|(s, _)| (second - 59..=second).contains(s)).map(|(_, n)| n).sum()
    }
}
