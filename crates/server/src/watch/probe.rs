//! Whether the store can be written to, tried again and again: a disk that is full reads well.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_store::params::{Record, Shelf};
use tokio::time::Instant;

use super::lock;
use crate::app::App;

/// Time between two tries.
const EVERY: Duration = Duration::from_millis(1_500);
/// Time within which the store has to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// A try that is older says nothing any more: the prober itself is stuck.
const STALE: Duration = Duration::from_secs(5);
/// Size of what is written: more than what is left over in pages that are there already.
const BYTES: usize = 5 << 10;
/// How long it stays if it cannot be taken back.
const LASTS_MS: i64 = 60_000;

/// What came of the last try.
#[derive(Debug, Default)]
pub(super) struct Probed {
    failed: AtomicBool,
    tries: AtomicU64,
    at: Mutex<Option<Instant>>,
}

impl Probed {
    /// Whether the store could be written to, as far as is known.
    pub(super) fn is_fine(&self) -> bool {
        let stale = lock(&self.at).is_some_and(|at| at.elapsed() > STALE);
        !self.failed.load(Ordering::Relaxed) && !stale
    }

    fn set(&self, fine: bool) {
        *lock(&self.at) = Some(Instant::now());
        if self.failed.swap(!fine, Ordering::Relaxed) == fine {
            if fine {
                tracing::info!("the store can be written to again");
            } else {
                tracing::error!("the store cannot be written to");
            }
        }
    }
}

/// Tries for as long as the server runs.
pub(crate) async fn probe(app: Arc<App>) {
    loop {
        let tried = tokio::time::timeout(PATIENCE, try_once(&app)).await;
        app.watch.probed.set(matches!(tried, Ok(Ok(()))));
        tokio::time::sleep(EVERY).await;
    }
}

async fn try_once(app: &App) -> tidegate_store::Result<()> {
    let probed = &app.watch.probed;
    let (now, n) = (app.now(), probed.tries.fetch_add(1, Ordering::Relaxed));
    let key = format!("{:x}-{n}", app.watch.process);
    let body = format!("\"{}\"", "x".repeat(BYTES));
    let expires = Some(now.plus_ms(LASTS_MS));
    app.store.put_record(Record { shelf: Shelf::Probes, key: key.clone(), body, expires }, now).await?;
    app.store.delete_record(Shelf::Probes, key).await?;
    Ok(())
}
