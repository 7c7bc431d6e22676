//! Tests on a real server.

mod ahead;
mod copied;
mod follow;
mod groups;
mod health;
mod inbox;
mod old_snapshot;
mod order;
mod outage;
mod plans;
mod pruning;
mod schema;
mod search;
mod standing;
mod tls;
mod torn;

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::ids::{JobId, KindName, ProcessId, QueueName, WorkerId};
use tidegate_core::payload::Payload;
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Claim, Claimed, NewJob, Outcome, Settle, Settled, Settlement, Ticket};
use tidegate_store::{Jobs, Registry, Store};
use tidegate_testbed::postgres;
use tokio_postgres::{Client, NoTls};

use crate::{PgOptions, PgStore};

const NOW: Timestamp = Timestamp(1_763_000_000_000);
const LEASE_MS: i64 = 30_000;

/// A schema of its own, with the queue `work` and the kind `task`.
struct Fixture {
    store: PgStore,
    schema: String,
    url: String,
}

impl Fixture {
    async fn new() -> Self {
        Self::with(PgOptions::new()).await
    }

    async fn with(options: PgOptions) -> Self {
        Self::at(&postgres::url(), options).await
    }

    async fn at(url: &str, options: PgOptions) -> Self {
        let schema = fresh_schema();
        let options = options.schema(&schema).unwrap();
        let store = PgStore::connect(url, options, NOW).await.unwrap();
        register(&store).await;
        Self { store, schema, url: url.to_owned() }
    }

    /// Another process on the same schema.
    async fn another(&self, options: PgOptions) -> PgStore {
        PgStore::connect(&self.url, options.schema(&self.schema).unwrap(), NOW).await.unwrap()
    }

    /// A user's own connection.
    async fn user(&self) -> User {
        User { client: client(&self.url).await, schema: self.schema.clone() }
    }
}

/// Somebody who knows nothing but SQL.
struct User {
    client: Client,
    schema: String,
}

impl User {
    fn text(&self, text: &str) -> String {
        text.replace("tidegate.", &format!("{}.", self.schema))
    }

    async fn run(&self, text: &str) {
        self.client.batch_execute(&self.text(text)).await.unwrap();
    }

    async fn refused(&self, text: &str) -> String {
        let error = self.client.query(&self.text(text), &[]).await.expect_err("this must be refused");
        error.as_db_error().and_then(|e| e.detail()).unwrap_or_default().to_owned()
    }

    async fn number(&self, text: &str) -> i64 {
        self.client.query_one(&self.text(text), &[]).await.unwrap().get(0)
    }

    async fn enqueue(&self, arguments: &str) -> JobId {
        let text = self.text(&format!("SELECT tidegate.enqueue({arguments})"));
        JobId::from_uuid(self.client.query_one(&text, &[]).await.unwrap().get(0))
    }
}

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn fresh_schema() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    // Numbers of processes come again, and the server may be older than that.
    let since = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
    format!("u{since}_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
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

/// A job with an id of its own.
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

/// Waits until something is true, looking again whenever the store signals work.
async fn until<F: Future<Output = bool>>(store: &PgStore, mut check: impl FnMut() -> F) {
    let mut work = store.signals().on_work();
    let wait = async {
        loop {
            work.mark_unchanged();
            if check().await {
                return;
            }
            work.changed().await.unwrap();
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), wait).await.expect("it comes true in time");
}
