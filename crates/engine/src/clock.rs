//! The seam between the engine and time. The system's clock in production; in tests wall time follows tokio's paused
//! clock, so that one virtual time drives timers, delays, leases and retries alike.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_core::time::Timestamp;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock {
    System,
    #[cfg(feature = "testing")]
    Virtual {
        origin: tokio::time::Instant,
        base: Timestamp,
    },
}

impl Clock {
    /// Wall time that starts at `base` and follows tokio's clock.
    #[cfg(feature = "testing")]
    pub(crate) fn virtual_from(base: Timestamp) -> Self {
        Self::Virtual { origin: tokio::time::Instant::now(), base }
    }

    pub(crate) fn now(self) -> Timestamp {
        match self {
            Self::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            #[cfg(feature = "testing")]
            Self::Virtual { origin, base } => {
                base.plus_ms(i64::try_from(origin.elapsed().as_millis()).unwrap_or(i64::MAX))
            }
        }
    }

    /// Whether time is virtual: nothing may then depend on the machine the test runs on.
    pub(crate) fn is_virtual(self) -> bool {
        !matches!(self, Self::System)
    }
}
