//! Stores in Postgres, each with a schema of its own.
#![allow(dead_code, reason = "each test uses a part of this")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tidegate_conformance::Harness;
use tidegate_conformance::kit::START;
use tidegate_core::time::Timestamp;
use tidegate_store::Store;
use tidegate_store_postgres::{PgOptions, PgStore};
use tidegate_testbed::postgres;

/// A schema that nobody else uses.
pub fn fresh_schema() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    format!("t{}_{made}", std::process::id())
}

pub async fn connect(schema: &str, now: Timestamp) -> PgStore {
    let options = PgOptions::new().schema(schema).expect("a name for a schema");
    PgStore::connect(&postgres::url(), options, now).await.expect("the database is there")
}

/// One store in a schema of its own.
pub struct Postgres {
    schema: String,
    store: PgStore,
}

impl Postgres {
    pub async fn open() -> Self {
        let schema = fresh_schema();
        let store = connect(&schema, START).await;
        Self { schema, store }
    }
}

#[async_trait]
impl Harness for Postgres {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn restart(&mut self, now: Timestamp) {
        self.store.close().await.expect("a store can be closed");
        self.store = connect(&self.schema, now).await;
    }
}
