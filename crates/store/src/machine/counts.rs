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

/// What ended in the last minute, second by second. The same in every process that shares the store.
#[derive(Debug)]
pub(super) struct Rate {
    seconds: [Second; 60],
}

#[derive(Debug, Clone, Copy, Default)]
struct Second {
    second: i64,
    ended: LastMinute,
}

/// What ended in a minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LastMinute {
    pub(super) completed: u64,
    pub(super) failed: u64,
    /// How long these attempts took together.
    pub(super) run_ms: u64,
}

impl Default for Rate {
    fn default() -> Self {
        Self { seconds: [Second::default(); 60] }
    }
}

impl Rate {
    pub(super) fn record(&mut self, now: Timestamp, failed: bool, run_ms: i64) {
        let second = now.0.div_euclid(1_000);
        let slot = &mut self.seconds[second.rem_euclid(60) as usize];
        if slot.second != second {
            *slot = Second { second, ..Second::default() };
        }
        slot.ended.completed += u64::from(!failed);
        slot.ended.failed += u64::from(failed);
        slot.ended.run_ms += run_ms.max(0) as u64;
    }

    pub(super) fn last_minute(&self, now: Timestamp) -> LastMinute {
        let second = now.0.div_euclid(1_000);
        let lately = self.seconds.iter().filter(|s| (second - 59..=second).contains(&s.second));
        lately.fold(LastMinute::default(), |sum, s| LastMinute {
            completed: sum.completed + s.ended.completed,
            failed: sum.failed + s.ended.failed,
            run_ms: sum.run_ms + s.ended.run_ms,
        })
    }
}
