//! A backend as a whole, and the way to it from an address.

use std::sync::Arc;

use crate::{GateOperations, Gates, GatesError, InProcess};

/// What a backend does: the calls, and what operators ask.
pub trait Backend: Gates + GateOperations {}

impl<T: Gates + GateOperations> Backend for T {}

/// Gates at an address: `memory:` (this process alone), `redis://…` or `postgres://…`.
pub async fn connect(address: &str) -> Result<Arc<dyn Backend>, GatesError> {
    let scheme = address.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        "memory" => Ok(Arc::new(InProcess::new())),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "unix" | "redis+unix" => {
            Ok(Arc::new(crate::RedisGates::connect(address, crate::RedisOptions::default()).await?))
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            Ok(Arc::new(crate::PgGates::connect(address, crate::PgGatesOptions::new()).await?))
        }
        // The rest of the address may hold a password.
        other => Err(GatesError::UnknownAddress { scheme: other.chars().take(40).collect() }),
    }
}
