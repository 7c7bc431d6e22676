//! What keeps the store in shape while the server runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::letters::REAUTHORIZE_EVENT;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Advanced, ProcessedLetters};
use tidegate_store::{Pace, Result, Store, letters};
use tokio::time::Instant;

use crate::app::App;

/// Longest and shortest time between two looks at what is due.
const ADVANCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(5));
/// Time between two looks at the keys.
const KEYS: Duration = Duration::from_secs(1);

/// Promotes what is due, takes back what dead workers held, ends parks.
pub(crate) async fn advance(app: Arc<App>) {
    let mut pause = ADVANCE.1;
    let mut failing = false;
    loop {
        tokio::time::sleep(pause).await;
        let now = app.now();
        pause = match advance_once(&*app.store, now).await {
            Ok(done) => {
                failing = false;
                if done.rescued > 0 {
                    tracing::info!(
                        jobs = done.rescued,
                        "took jobs back whose worker stopped sending heartbeats"
                    );
                }
                let next = done.next_wakeup.map_or(i64::MAX, |t| t.since(now)).max(0);
                Duration::from_millis(next as u64).clamp(ADVANCE.1, ADVANCE.0)
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(code = %error.code, "upkeep is not possible: {error}; trying again");
                }
                ADVANCE.0
            }
        };
    }
}

async fn advance_once(store: &dyn Store, now: Timestamp) -> Result<Advanced> {
    store.advance(now).await
}

/// Looks at the keys while there are streams: they end when theirs is revoked.
pub(crate) async fn watch_keys(app: Arc<App>) {
    loop {
        tokio::time::sleep(KEYS).await;
        if app.keys.watched()
            && let Err(error) = app.keys.known(&*app.store, app.now()).await
        {
            tracing::debug!(code = %error.code, "keys could not be looked at: {error}");
        }
    }
}

/// Does what is due of the processing of dead letters.
pub(crate) async fn letters(app: Arc<App>) {
    let mut pause = ADVANCE.0;
    loop {
        tokio::time::sleep(pause).await;
        pause = match letters::tend(&*app.store, app.letters_every_ms, || app.now()).await {
            Ok((done, pause)) => {
                let ProcessedLetters { retried, asked, reminded, abandoned, refused, .. } = done;
                if retried + asked + reminded + abandoned > 0 {
                    tracing::info!(retried, asked, reminded, abandoned, "looked at dead letters");
                }
                if refused > 0 {
                    tracing::warn!(
                        letters = refused,
                        "a kind that subscribes to {REAUTHORIZE_EVENT} does not accept its payload"
                    );
                }
                pause
            }
            Err(error) => {
                tracing::warn!(code = %error.code, "dead letters could not be looked at: {error}");
                Pace::CALM
            }
        };
    }
}

/// Deletes what is past its retention, and keeps up with what is finished.
pub(crate) async fn prune(app: Arc<App>) {
    let mut pace = Pace::default();
    let mut pause = Pace::CALM;
    loop {
        tokio::time::sleep(pause).await;
        let began = Instant::now();
        let finished = app.settled.swap(0, Ordering::Relaxed);
        pause = match app.store.prune(pace.batch(), app.now()).await {
            Ok(deleted) => pace.pause_after(deleted, began.elapsed(), finished),
            Err(error) => {
                tracing::debug!(code = %error.code, "pruning was not possible: {error}");
                Pace::CALM
            }
        };
    }
}
