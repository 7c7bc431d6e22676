//! The difference between the server's clock and ours.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tidegate_core::time::Timestamp;

/// Milliseconds to add to a time of the server's to have it by our own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shift(i64);

impl Shift {
    /// From one exchange: we asked at `sent`, the answer took `took` and says that it was `server` over there. A time
    /// between the two proves no difference; beyond them the clocks differ by at least the rest.
    fn of(sent: Timestamp, took: Duration, server: Timestamp) -> Self {
        let back = sent.plus_ms(took.as_millis().try_into().unwrap_or(i64::MAX));
        Self(if server < sent {
            sent.since(server)
        } else if server > back {
            back.since(server)
        } else {
            0
        })
    }

    /// A time of the server's by our own clock.
    pub(crate) fn local(self, server: Timestamp) -> Timestamp {
        server.plus_ms(self.0)
    }
}

/// The newest difference seen, for replies that do not say what time it is.
#[derive(Debug, Default)]
pub(crate) struct Skew(AtomicI64);

impl Skew {
    /// Learns from an exchange.
    pub(crate) fn learn(&self, sent: Timestamp, took: Duration, server: Timestamp) -> Shift {
        let shift = Shift::of(sent, took, server);
        self.0.store(shift.0, Ordering::Relaxed);
        shift
    }

    /// What was learned last.
    pub(crate) fn known(&self) -> Shift {
        Shift(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_difference_that_is_proven_shifts_times() {
        let skew = Skew::default();
        let (sent, took) = (Timestamp(1_000), Duration::from_millis(20));
        for (server, local) in [(1_000, 5_000), (1_020, 5_000), (900, 5_100), (1_120, 4_900)] {
            let shift = skew.learn(sent, took, Timestamp(server));
            assert_eq!(shift.local(Timestamp(5_000)), Timestamp(local), "it was {server} there");
            assert_eq!(skew.known(), shift);
        }
    }
}
