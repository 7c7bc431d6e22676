//! The pace of deleting what is past its retention: gentle, unless jobs are finished faster than that.
//!
//! A step holds up whoever comes at the same moment, so steps are short and far between. Only if more was finished
//! meanwhile than a step deleted do the pauses shrink, one by one, and then the steps grow: tables must not grow for ever
//! however fast jobs are finished.

use std::time::Duration;

/// Fewest, first and most jobs deleted in one step.
const BATCH: (usize, usize, usize) = (100, 500, 5_000);
/// What a step should take.
const STEP: Duration = Duration::from_millis(1);
/// Pause while there is nothing to delete.
const CALM: Duration = Duration::from_secs(1);
/// Shortest pause between two steps: others get their turn.
const SHORTEST: Duration = Duration::from_millis(2);
/// Longest pause while there is more to delete.
const LONGEST: Duration = Duration::from_millis(250);
/// How many times as long as a step the pause after it is: one part in 32 of the time goes to deleting. Half a second of
/// falling behind goes by before that is given up: a burst is absorbed, not paid for twice.
const GENTLE: u32 = 31;

/// How much to delete next, and when.
#[derive(Debug, Clone)]
pub struct Pace {
    batch: usize,
    times: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { batch: BATCH.1, times: GENTLE }
    }
}

impl Pace {
    /// Pause before the first step, and after one that failed.
    pub const CALM: Duration = CALM;

    /// Jobs to delete in the next step.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// The pause after a step that deleted so many and took so long, if so many were finished since the step before.
    pub fn pause_after(&mut self, deleted: u64, took: Duration, finished: u64) -> Duration {
        if deleted < self.batch as u64 {
            *self = Self::default();
            return CALM;
        }
        let pause = took.saturating_mul(self.times).clamp(SHORTEST, LONGEST);
        // With something to spare, or what was left behind would stay for ever.
        let falls_behind = finished + finished / 2 >= deleted;
        if falls_behind && self.times == 0 {
            self.batch = (self.batch * 2).min(BATCH.2);
        } else if took > STEP && self.times == GENTLE && !falls_behind {
            self.batch = (self.batch / 2).max(BATCH.0);
        } else if took < STEP / 2 {
            self.batch = (self.batch * 2).min(BATCH.2);
        }
        self.times = if falls_behind { self.times.saturating_sub(1) } else { (self.times + 1).min(GENTLE) };
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two minutes in which this many jobs are finished per second, and a step takes this long. Returns the most that were
    /// left to delete in the second minute, and the longest step in it.
    fn run(step: impl Fn(usize) -> Duration, left: u64, per_s: f64) -> (u64, Duration) {
        let (mut pace, mut now, mut last) = (Pace::default(), Duration::ZERO, Duration::ZERO);
        let (mut left, mut finished) = (left as f64, 0.0);
        let (mut most, mut longest) = (0.0f64, Duration::ZERO);
        while now < Duration::from_mins(2) {
            let took = step(pace.batch());
            let more = (now.saturating_sub(last) + took).as_secs_f64() * per_s;
            finished += more;
            left += more;
            last = now + took;
            let deleted = left.min(pace.batch() as f64);
            left -= deleted;
            now = last + pace.pause_after(deleted as u64, took, std::mem::take(&mut finished) as u64);
            if now > Duration::from_mins(1) {
                (most, longest) = (most.max(left), longest.max(took));
            }
        }
        (most as u64, longest)
    }

    #[test]
    fn it_keeps_up_with_what_is_finished_even_if_each_step_waits_in_line() {
        for per_s in [10.0, 1_000.0, 50_000.0, 70_000.0] {
            let (left, _) = run(|jobs| Duration::from_micros(50_000 + jobs as u64), 0, per_s);
            assert!((left as f64) < 15.0 * per_s + 10_000.0, "{left} left at {per_s}/s");
        }
    }

    #[test]
    fn what_was_left_behind_is_deleted_in_short_steps() {
        let (left, longest) = run(|jobs| Duration::from_micros(4 * jobs as u64), 1_000_000, 100.0);
        assert!(longest <= 2 * STEP, "a step held others up for {longest:?}");
        assert!(left < 700_000, "{left} left after a minute");
    }

    #[test]
    fn it_rests_when_there_is_nothing_left() {
        let mut pace = Pace::default();
        assert_eq!(pace.pause_after(3, STEP, 1_000), CALM);
        assert_eq!(
            pace.pause_after(500, Duration::from_mins(1), 0),
            LONGEST,
            "a step that waited for an outage"
        );
    }
}
