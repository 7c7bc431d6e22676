//! The window of a limiter.

use std::collections::VecDeque;

use crate::registry::Limiter;
use crate::time::Timestamp;

/// Starts within the last window, oldest first: exact, and bounded by the limiter's `max`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    starts: VecDeque<(Timestamp, u32)>,
    total: u32,
}

impl Window {
    /// A window with these starts, as a store kept them.
    pub fn from_starts(starts: impl IntoIterator<Item = (Timestamp, u32)>) -> Self {
        let mut window = Self::default();
        for (at, n) in starts {
            window.add(at, n);
        }
        window
    }

    /// The starts, oldest first.
    pub fn starts(&self) -> impl Iterator<Item = (Timestamp, u32)> + '_ {
        self.starts.iter().copied()
    }

    /// Starts that have left the window by `now`, from the front.
    fn old(&self, limiter: Limiter, now: Timestamp) -> impl Iterator<Item = u32> + '_ {
        self.starts.iter().take_while(move |(at, _)| now.since(*at) >= limiter.per_ms).map(|(_, n)| *n)
    }

    /// Starts allowed now. Forgets nothing: what is kept follows from the starts alone, not from who looked when. Few
    /// are old while none is allowed, and the first one allowed drops them.
    pub(super) fn free(&self, limiter: Limiter, now: Timestamp) -> u32 {
        let old: u32 = self.old(limiter, now).sum();
        limiter.max.saturating_sub(self.total - old)
    }

    /// When the next start is allowed, if not now.
    pub(super) fn free_at(&self, limiter: Limiter) -> Option<Timestamp> {
        let mut over = (self.total + 1).checked_sub(limiter.max)?;
        for &(at, n) in &self.starts {
            if over == 0 {
                break;
            }
            if n >= over {
                return Some(at.plus_ms(limiter.per_ms));
            }
            over -= n;
        }
        None
    }

    /// Counts starts, and forgets those that have left the window.
    pub(super) fn record(&mut self, limiter: Limiter, now: Timestamp, n: u32) {
        let (count, sum) = self.old(limiter, now).fold((0, 0), |(count, sum), n| (count + 1, sum + n));
        self.starts.drain(..count);
        self.total -= sum;
        self.add(now, n);
    }

    fn add(&mut self, at: Timestamp, n: u32) {
        self.total += n;
        match self.starts.back_mut() {
            Some((last, k)) if *last >= at => *k += n,
            _ => self.starts.push_back((at, n)),
        }
    }

    /// The clock went back: nothing may lie ahead of it, or capacity would be held for longer than a window.
    pub(super) fn rebase(&mut self, now: Timestamp) {
        for (at, _) in &mut self.starts {
            *at = (*at).min(now);
        }
    }
}
