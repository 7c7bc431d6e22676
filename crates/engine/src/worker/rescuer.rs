//! Keeps time moving in the store although this worker may be too busy to claim: due jobs become ready, jobs of dead
//! workers are taken back, parks end.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_store::Store;
use tidegate_store::params::Advanced;

use super::Shared;
use super::shutdown::{Phase, reached};
use crate::span::duration;

/// Longest and shortest pause between two steps.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(5));

/// One bounded step.
pub(crate) async fn run_once(store: &dyn Store, now: Timestamp) -> tidegate_store::Result<Advanced> {
    store.advance(now).await
}

/// Steps until the worker is over.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut phase = shared.phase.subscribe();
    let mut pause = PAUSE.0;
    loop {
        tokio::select! {
            () = reached(&mut phase, Phase::Over) => return,
            () = tokio::time::sleep(pause) => {}
        }
        let now = shared.tide.now();
        pause = match run_once(&**shared.tide.store(), now).await {
            Ok(done) => {
                if done.rescued > 0 {
                    tracing::info!(
                        jobs = done.rescued,
                        "took jobs back whose worker stopped sending heartbeats"
                    );
                }
                done.next_wakeup.map_or(PAUSE.0, |t| duration(t.since(now))).clamp(PAUSE.1, PAUSE.0)
            }
            Err(error) => {
                tracing::debug!(code = %error.code, "upkeep was not possible: {error}");
                PAUSE.0
            }
        };
    }
}
