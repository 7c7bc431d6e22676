//! Tests on real files.

mod backups;
mod full_disk;
mod groups;
mod old_rows;
mod ownership;
mod plans;
mod recovery;
mod rows;
mod search;
mod syncing;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tidegate_core::ids::{JobId, KindName, ProcessId, QueueName, WorkerId};
use tidegate_core::payload::Payload;
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Claim, Claimed, NewJob, Outcome, Settle, Settled, Settlement, Ticket};
use tidegate_store::{Jobs, Registry, Store};

use crate::{OpenOptions, SqliteStore};

const NOW: Timestamp = Timestamp(1_763_000_000_000);
const LEASE_MS: i64 = 30_000;

/// A store in a directory of its own, with the queue `work` and the kind `task`.
struct Fixture {
    store: SqliteStore,
    dir: TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        register(&store).await;
        Self { store, dir }
    }

    /// The same directory after the process was killed: its files as they are now, in another place.
    fn killed(&self) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        for name in ["tidegate.db", "tidegate.db-wal"] {
            std::fs::copy(self.dir.path().join(name), copy.path().join(name)).unwrap();
        }
        copy
    }

    fn restart(self) -> Self {
        let Self { store, dir } = self;
        drop(store);
        Self { store: open(dir.path()), dir }
    }
}

fn open(dir: &Path) -> SqliteStore {
    OpenOptions::new().synchronous(false).open(dir, NOW).unwrap()
}

async fn register(store: &impl Store) {
    store.put_queue(queue(), QueueSettings::default(), NOW).await.unwrap();
    store.put_kind(kind(), KindSettings::new(queue())).await.unwrap();
}

fn queue() -> QueueName {
    QueueName::new("work").unwrap()
}

fn kind() -> KindName {
    KindName::new("task").unwrap()
}

/// A job with an id of its own, the same in every run of a test that makes its jobs in order.
fn job(payload: &str) -> NewJob {
    static MADE: AtomicU64 = AtomicU64::new(1);
    let n = MADE.fetch_add(1, Ordering::Relaxed);
    let payload = Payload::from_json_text(payload, 1 << 20).unwrap();
    NewJob::new(JobId::from_parts(NOW.0.cast_unsigned(), u128::from(n)), kind(), payload)
}

async fn enqueue(store: &impl Jobs, job: NewJob) -> JobId {
    store.enqueue(vec![job], NOW).await.unwrap()[0].id
}

fn claim_of(max: u32, now: Timestamp) -> Claim {
    let worker = WorkerId::new("w1").unwrap();
    Claim { worker, process: ProcessId(u64::MAX), queues: vec![(queue(), max)], max, lease_ms: LEASE_MS, now }
}

async fn claim(store: &impl Jobs, max: u32, now: Timestamp) -> Claimed {
    store.claim(claim_of(max, now)).await.unwrap()
}

async fn settle(store: &impl Jobs, ticket: Ticket, outcome: Outcome, now: Timestamp) -> Settled {
    let settlements = vec![Settlement { ticket, outcome }];
    store.settle(Settle { settlements, now, seed: 1 }).await.unwrap()[0]
}
