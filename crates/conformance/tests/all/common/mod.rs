//! Harnesses of the backends.

use std::sync::Arc;

use async_trait::async_trait;
use tidegate_conformance::Harness;
use tidegate_conformance::kit::START;
use tidegate_core::time::Timestamp;
use tidegate_store::{MemoryStore, Store};
use tidegate_store_sqlite::{OpenOptions, SqliteStore};

/// The reference model.
pub(crate) struct Memory(Arc<MemoryStore>);

impl Memory {
    /// An empty one.
    pub(crate) fn open() -> Self {
        Self(Arc::new(MemoryStore::new()))
    }
}

#[async_trait]
impl Harness for Memory {
    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    async fn restart(&mut self, now: Timestamp) {
        self.0.restart(now).expect("rows in memory can be read");
    }
}

/// SQLite in a directory of its own, without waiting for the disk.
pub(crate) struct Sqlite {
    store: Option<Arc<SqliteStore>>,
    dir: tempfile::TempDir,
}

impl Sqlite {
    /// An empty one.
    pub(crate) fn open() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut sqlite = Self { store: None, dir };
        sqlite.reopen(START);
        sqlite
    }

    fn reopen(&mut self, now: Timestamp) {
        let store =
            OpenOptions::new().synchronous(false).open(self.dir.path(), now).expect("the store opens");
        self.store = Some(Arc::new(store));
    }
}

#[async_trait]
impl Harness for Sqlite {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone().expect("the store is open")
    }

    async fn restart(&mut self, now: Timestamp) {
        if let Some(store) = self.store.take() {
            store.close().await.expect("the store closes");
        }
        self.reopen(now);
    }
}
