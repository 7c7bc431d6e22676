//! Pauses between tries, with jitter, so that a thousand clients of a restarted server do not come back at once.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use tidegate_core::seed::Seed;

/// First and longest pause.
const PAUSE: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));

#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    seed: Seed,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: PAUSE.0, seed: Seed::new(RandomState::new().build_hasher().finish()) }
    }

    /// The next pause: between half and all of a span that doubles each time.
    pub(crate) fn pause(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(PAUSE.1);
        whole.mul_f64(0.5 + self.seed.unit() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ_between_clients() {
        let mut backoff = Backoff::new();
        let pauses: Vec<Duration> = (0..20).map(|_| backoff.pause()).collect();
        assert!(pauses[0] >= PAUSE.0 / 2 && pauses[0] <= PAUSE.0);
        assert!(pauses.iter().all(|p| *p <= PAUSE.1));
        assert!(pauses[19] >= PAUSE.1 / 2);
        let mut other = Backoff::new();
        let others: Vec<Duration> = (0..20).map(|_| other.pause()).collect();
        assert_ne!(pauses, others);
    }
}
