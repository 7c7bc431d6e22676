//! The suite over Postgres.

use crate::pg::Postgres;

async fn open() -> Postgres {
    Postgres::open().await
}

tidegate_conformance::suite!(postgres, super::open);
