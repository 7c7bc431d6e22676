//! The difference between the server's clock and ours.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_core::time::Timestamp;

/// How far the server's clock is ahead, as far as that is proven: what an exchange does not contradict is kept, so that
/// slow answers and long polls change nothing.
#[derive(Debug, Default)]
pub(crate) struct Skew(AtomicI64);

/// When something was sent, by our own clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent(Timestamp);

impl Sent {
    pub(crate) fn now() -> Self {
        Self(wall())
    }
}

impl Skew {
    /// Learns from an exchange that is just over: at some time in it, it was `server` over there.
    pub(crate) fn learn(&self, sent: Sent, server: Timestamp) {
        self.learn_from(sent.0, wall(), server);
    }

    fn learn_from(&self, sent: Timestamp, received: Timestamp, server: Timestamp) {
        let (least, most) = (server.since(received), server.since(sent));
        // Our own clock was set meanwhile: this proves nothing.
        if least > most {
            return;
        }
        let known = self.ahead_ms();
        let now_known = known.clamp(least, most);
        if now_known != known {
            self.0.store(now_known, Ordering::Relaxed);
        }
    }

    /// How far the server's clock is ahead.
    pub(crate) fn ahead_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_difference_that_is_proven_counts_and_what_is_known_is_kept() {
        let skew = Skew::default();
        let learn = |sent, received, server| {
            skew.learn_from(Timestamp(sent), Timestamp(received), Timestamp(server));
            skew.ahead_ms()
        };
        assert_eq!(learn(1_000, 1_020, 1_010), 0, "in between: no difference is proven");
        assert_eq!(learn(1_000, 1_020, 6_020), 5_000, "at least this much");
        assert_eq!(learn(2_000, 2_001, 7_004), 5_003, "an exact answer says more");
        assert_eq!(learn(3_000, 23_000, 27_000), 5_003, "a long poll contradicts nothing");
        assert_eq!(learn(30_000, 29_000, 34_000), 5_003, "our clock was set back meanwhile");
        assert_eq!(learn(40_000, 40_010, 39_000), -1_000, "the server's was set back");
    }
}
