//! Rest: a worker whose handlers lack what they need leaves the jobs to others.
//!
//! Its handlers give their jobs back, and it claims nothing for a while, longer each time, until one of them ends otherwise.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The first rest and the longest.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// What a worker does not have.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    lacks: Mutex<Option<Lack>>,
    /// Whether there is one: most attempts only look here.
    any: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Lack {
    since: Instant,
    pause: Duration,
    until: Instant,
}

impl Rest {
    /// A handler lacks something. What was claimed together finds that out together: it makes the rest longer once.
    pub(crate) fn begin(&self, reason: &str) {
        let now = Instant::now();
        let mut lacks = self.lacks.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = match *lacks {
            Some(Lack { until, .. }) if now < until => return,
            Some(Lack { pause, .. }) => (pause * 2).min(LONGEST),
            None => {
                tracing::warn!("{reason}; jobs stay where they are, and are claimed again when it works");
                FIRST
            }
        };
        let since = lacks.map_or(now, |lack| lack.since);
        *lacks = Some(Lack { since, pause, until: now + pause });
        self.any.store(true, Ordering::Relaxed);
    }

    /// A handler has ended, and lacked nothing. What began before the rest says nothing.
    pub(crate) fn end(&self) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut lacks = self.lacks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lack) = lacks.take_if(|lack| lack.until <= Instant::now()) {
            self.any.store(false, Ordering::Relaxed);
            let seconds = lack.since.elapsed().as_secs();
            tracing::info!(seconds, "it works again");
        }
    }

    /// How long nothing is to be claimed.
    pub(crate) fn left(&self) -> Option<Duration> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let lacks = self.lacks.lock().unwrap_or_else(PoisonError::into_inner);
        let left = (*lacks)?.until.saturating_duration_since(Instant::now());
        (left > Duration::ZERO).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rests_grow_until_a_handler_ends_otherwise() {
        let rest = Rest::default();
        assert_eq!(rest.left(), None);
        let mut rests = vec![];
        for _ in 0..8 {
            // A batch of them.
            rest.begin("no printer");
            rest.begin("no printer");
            rests.push(rest.left().unwrap().as_millis());
            rest.end();
            assert!(rest.left().is_some(), "it had begun before");
            tokio::time::advance(rest.left().unwrap()).await;
            assert_eq!(rest.left(), None);
        }
        assert_eq!(rests, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        rest.end();
        rest.begin("no printer");
        assert_eq!(rest.left(), Some(FIRST));
    }
}
