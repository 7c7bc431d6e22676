//! Deletes what is past its retention, and keeps up with what is finished. It paces itself by the time that it takes: a
//! small part of it, more if that is not enough, so that tables do not grow however fast jobs are finished.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_store::Store;
use tokio::time::Instant;

use super::Shared;
use super::shutdown::{Phase, reached};

/// Jobs deleted in one step: a commit of some ten milliseconds.
const BATCH: usize = 5_000;
/// Pause while there is nothing to delete.
const CALM: Duration = Duration::from_secs(1);
/// Shortest pause between two steps: others get their turn.
const SHORTEST: Duration = Duration::from_millis(2);
/// How many times as long as a step the pause after it is, at first: an eighth of the time goes to deleting.
const GENTLE: u32 = 7;
/// The same while what is to be deleted does not get less: one step after the other. A step waits in line with all other
/// callers, most of its time, so that these get their turns; half of the time was measured not to be enough.
const FIRM: u32 = 0;

/// One bounded step. True if there may be more to delete.
pub(crate) async fn run_once(store: &dyn Store, now: Timestamp) -> tidegate_store::Result<bool> {
    Ok(store.prune(BATCH, now).await? >= BATCH as u64)
}

/// Steps until the worker is over.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut phase = shared.phase.subscribe();
    let mut pace = Pace::default();
    let mut pause = CALM;
    loop {
        tokio::select! {
            () = reached(&mut phase, Phase::Over) => return,
            () = tokio::time::sleep(pause) => {}
        }
        let began = Instant::now();
        let more = run_once(&**shared.tide.store(), shared.tide.now()).await.unwrap_or_else(|error| {
            tracing::debug!(code = %error.code, "pruning was not possible: {error}");
            false
        });
        pause = pace.pause(more, began.elapsed(), shared.desk.is_busy());
    }
}

/// How long to pause after a step.
struct Pace {
    /// How many times as long as the step.
    times: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { times: GENTLE }
    }
}

impl Pace {
    fn pause(&mut self, more: bool, took: Duration, busy: bool) -> Duration {
        if !more {
            self.times = GENTLE;
            return CALM;
        }
        let times = if busy { self.times } else { FIRM };
        // Still more: a little less patience each time.
        self.times = self.times.saturating_sub(1);
        (took * times).clamp(SHORTEST, CALM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps in the first minute if there is always more and each takes so long.
    fn steps(took: Duration, busy: bool) -> u32 {
        let (mut pace, mut spent, mut steps) = (Pace::default(), Duration::ZERO, 0);
        while spent < Duration::from_mins(1) {
            spent += took + pace.pause(true, took, busy);
            steps += 1;
        }
        steps
    }

    #[test]
    fn it_keeps_up_with_fifty_thousand_jobs_a_second_even_in_a_busy_worker() {
        let per_s = steps(Duration::from_millis(55), true) * BATCH as u32 / 60;
        assert!(per_s >= 50_000, "{per_s}/s");
    }

    #[test]
    fn it_takes_a_small_part_of_the_time_unless_that_is_not_enough() {
        let (mut pace, took) = (Pace::default(), Duration::from_millis(10));
        assert_eq!(pace.pause(true, took, true), took * GENTLE);
        assert!(pace.pause(true, took, true) < took * GENTLE);
        assert_eq!(pace.pause(false, took, true), CALM);
        assert_eq!(pace.pause(true, took, true), took * GENTLE);
        assert_eq!(pace.pause(true, took, false), SHORTEST, "nobody else needs the time");
        assert_eq!(pace.pause(true, Duration::from_mins(1), true), CALM, "a step that waited for an outage");
    }
}
