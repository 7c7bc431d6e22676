//! The server's time: clients' clocks are not trusted.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_core::time::Timestamp;

/// Where `now` comes from.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<AtomicI64>>);

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that stands at these milliseconds since 1970 until somebody moves it: for tests that compare stores.
    pub fn manual(ms: Arc<AtomicI64>) -> Self {
        Self(Some(ms))
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        if let Some(ms) = &self.0 {
            return Timestamp(ms.load(Ordering::SeqCst));
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}
