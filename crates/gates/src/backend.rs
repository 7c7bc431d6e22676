//! A backend as a whole, and the way to it from an address.

use std::sync::Arc;

#[cfg(any(feature = "redis", feature = "postgres"))]
use crate::{Fallback, FallbackOptions};
use crate::{GatesError, InProcess, Noticeboard, Watched};

/// What a backend does: the calls, what operators ask, and what processes leave for each other to see.
pub trait Backend: Noticeboard {}

impl<T: Noticeboard> Backend for T {}

/// Gates at an address: `memory:` (this process alone), `redis://…` or `postgres://…`. Calls go on in process while a server is
/// out of reach ([`crate::Fallback`]), and what comes of them is noted ([`Watched`]).
pub async fn connect(address: &str) -> Result<Arc<dyn Backend>, GatesError> {
    match plainly(address).await? {
        Plain::Memory(gates) => Ok(Arc::new(Watched::around(gates))),
        #[cfg(feature = "redis")]
        Plain::Redis(gates) => {
            let gates = Fallback::around(gates, FallbackOptions::default()).await?;
            Ok(Arc::new(Watched::around(gates)))
        }
        #[cfg(feature = "postgres")]
        Plain::Postgres(gates) => {
            let gates = Fallback::around(gates, FallbackOptions::default()).await?;
            Ok(Arc::new(Watched::around(gates)))
        }
    }
}

/// The same for who only looks and steers: not counted among the processes that share the limits, and told at once when the
/// server does not answer.
pub async fn connect_to_operate(address: &str) -> Result<Arc<dyn Backend>, GatesError> {
    match plainly(address).await? {
        Plain::Memory(gates) => Ok(Arc::new(gates)),
        #[cfg(feature = "redis")]
        Plain::Redis(gates) => Ok(Arc::new(gates)),
        #[cfg(feature = "postgres")]
        Plain::Postgres(gates) => Ok(Arc::new(gates)),
    }
}

enum Plain {
    Memory(InProcess),
    #[cfg(feature = "redis")]
    Redis(crate::RedisGates),
    #[cfg(feature = "postgres")]
    Postgres(crate::PgGates),
}

async fn plainly(address: &str) -> Result<Plain, GatesError> {
    let scheme = address.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        "memory" => Ok(Plain::Memory(InProcess::new())),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "unix" | "redis+unix" => {
            crate::RedisGates::connect(address, crate::RedisOptions::default()).await.map(Plain::Redis)
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            crate::PgGates::connect(address, crate::PgGatesOptions::new()).await.map(Plain::Postgres)
        }
        _ => Err(GatesError::unknown_address(address)),
    }
}
