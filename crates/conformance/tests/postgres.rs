//! The suite over Postgres.

mod common;
mod pg;

use pg::Postgres;

async fn open() -> Postgres {
    Postgres::open().await
}

tidegate_conformance::suite!(postgres, super::open);
