//! Deletes what is past its retention, and keeps up with what is finished.

use std::sync::Arc;

use tidegate_store::Pace;
use tokio::time::Instant;

use super::Shared;
use super::shutdown::{Phase, reached};

/// Steps until the worker is over.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut phase = shared.phase.subscribe();
    let mut pace = Pace::default();
    let mut pause = Pace::CALM;
    let mut begun = 0;
    loop {
        tokio::select! {
            () = reached(&mut phase, Phase::Over) => return,
            () = tokio::time::sleep(pause) => {}
        }
        let began = Instant::now();
        // What was begun here is finished soon.
        let (_, _, taken) = shared.desk.counts();
        let finished = taken - std::mem::replace(&mut begun, taken);
        pause = match shared.tide.store().prune(pace.batch(), shared.tide.now()).await {
            Ok(deleted) => pace.pause_after(deleted, began.elapsed(), finished),
            Err(error) => {
                tracing::debug!(code = %error.code, "pruning was not possible: {error}");
                Pace::CALM
            }
        };
    }
}
