//! Deletes what is past its retention, gently: small batches, often while the worker has room, rarely while it is
//! busy, so that pruning does not take the time that jobs need.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_store::Store;

use super::Shared;
use super::shutdown::{Phase, reached};

/// Jobs deleted in one step: a commit of a few milliseconds.
const BATCH: usize = 500;
/// Pause while there is more to delete and the worker has room.
const EAGER: Duration = Duration::from_millis(100);
/// Pause otherwise.
const CALM: Duration = Duration::from_secs(1);

/// One bounded step. True if there may be more to delete.
pub(crate) async fn run_once(store: &dyn Store, now: Timestamp) -> tidegate_store::Result<bool> {
    Ok(store.prune(BATCH, now).await? >= BATCH as u64)
}

/// Steps until the worker is over.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut phase = shared.phase.subscribe();
    let mut pause = CALM;
    loop {
        tokio::select! {
            () = reached(&mut phase, Phase::Over) => return,
            () = tokio::time::sleep(pause) => {}
        }
        let more = run_once(&**shared.tide.store(), shared.tide.now()).await.unwrap_or_else(|error| {
            tracing::debug!(code = %error.code, "pruning was not possible: {error}");
            false
        });
        pause = if more && !shared.desk.is_busy() { EAGER } else { CALM };
    }
}
