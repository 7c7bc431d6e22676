//! Whether the store answers, asked once for everybody who wants to know. Nobody needs a key to ask, and anybody may ask
//! often.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long an answer holds.
const FRESH: Duration = Duration::from_millis(500);
/// Time within which the store has to answer.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Pulse {
    /// When the store was asked, and whether it answered.
    last: Mutex<Option<(Instant, bool)>>,
    /// One asks, the others wait for it.
    asking: tokio::sync::Mutex<()>,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { last: Mutex::new(None), asking: tokio::sync::Mutex::new(()) }
    }

    /// Whether the store answers; `ask` asks it and is dropped after a while.
    pub(crate) async fn beats<T>(&self, ask: impl Future<Output = tidegate_store::Result<T>>) -> bool {
        if let Some(fine) = self.fresh() {
            return fine;
        }
        let _one = self.asking.lock().await;
        if let Some(fine) = self.fresh() {
            return fine;
        }
        let fine = matches!(tokio::time::timeout(PATIENCE, ask).await, Ok(Ok(_)));
        // From the answer on: those who waited for it must not ask again.
        let before = self.last.lock().unwrap_or_else(PoisonError::into_inner).replace((Instant::now(), fine));
        if before.is_none_or(|(_, before)| before) != fine {
            if fine {
                tracing::info!("the store answers again");
            } else {
                tracing::warn!("the store does not answer");
            }
        }
        fine
    }

    fn fresh(&self) -> Option<bool> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.filter(|(at, _)| at.elapsed() < FRESH).map(|(_, fine)| fine)
    }
}
