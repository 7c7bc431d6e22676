//! Stores in Postgres, each with a schema of its own.

mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_conformance::Harness;
use tidegate_conformance::kit::START;
use tidegate_core::time::Timestamp;
use tidegate_store::{MemoryStore, Store};

use tidegate_store_postgres::{PgOptions, PgStore};
use tidegate_testbed::postgres;
use turns::Turns;

/// A schema that nobody else uses.
pub(crate) fn fresh_schema() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    // Numbers of processes come again, and the server may be older than that.
    let since = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_millis();
    format!("t{since}_{}_{made}", std::process::id())
}

pub(crate) async fn connect(schema: &str, now: Timestamp) -> PgStore {
    // The reference model takes a second for a clock that went back. And a machine that is busy with a build can stand still for
    // longer than a process in production may.
    let options =
        PgOptions::new().late_readings(Duration::from_secs(1)).idle_in_transaction(Duration::from_secs(30));
    let options = options.schema(schema).expect("a name for a schema");
    PgStore::connect(&postgres::url(), options, now).await.expect("the database is there")
}

/// One store in a schema of its own.
pub(crate) struct Postgres {
    schema: String,
    store: PgStore,
}

impl Postgres {
    pub(crate) async fn open() -> Self {
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

/// One store that is not restarted; instead another one is started beside it, which must know the same. A restart
/// would change numbers and virtual times, which the reference model has from a restart of its own kind.
pub(crate) struct Steady(Postgres, Arc<Turns>);

impl Steady {
    pub(crate) async fn open() -> Self {
        let one = Postgres::open().await;
        let turns = Arc::new(Turns::new(vec![Arc::new(one.store.clone())], 0, true));
        Self(one, turns)
    }
}

#[async_trait]
impl Harness for Steady {
    fn store(&self) -> Arc<dyn Store> {
        self.1.clone()
    }

    async fn restart(&mut self, _now: Timestamp) {
        knows_the_same(&self.0.schema, &self.0.store).await;
    }
}

/// The reference model, without its restarts.
pub(crate) struct SteadyMemory(Arc<Turns>);

impl SteadyMemory {
    pub(crate) fn open(wakeups: bool) -> Self {
        Self(Arc::new(Turns::new(vec![Arc::new(MemoryStore::new())], 0, wakeups)))
    }
}

#[async_trait]
impl Harness for SteadyMemory {
    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    async fn restart(&mut self, _now: Timestamp) {}
}

/// Two stores on one schema, as two processes have them; each call goes to one of them at random.
pub(crate) struct Pair {
    schema: String,
    stores: [PgStore; 2],
    turns: Arc<Turns>,
}

impl Pair {
    pub(crate) async fn open(seed: u64) -> Self {
        let schema = fresh_schema();
        let stores = [connect(&schema, START).await, connect(&schema, START).await];
        let [one, other] = stores.clone();
        Self {
            schema,
            stores,
            turns: Arc::new(Turns::new(vec![Arc::new(one), Arc::new(other)], seed, false)),
        }
    }
}

#[async_trait]
impl Harness for Pair {
    fn store(&self) -> Arc<dyn Store> {
        self.turns.clone()
    }

    async fn restart(&mut self, _now: Timestamp) {
        for store in &self.stores {
            knows_the_same(&self.schema, store).await;
        }
    }
}

/// A store that was just started and read everything from rows knows what this one knows from following.
async fn knows_the_same(schema: &str, store: &PgStore) {
    let fresh = connect_quietly(schema).await;
    let (one, other) = (store.digest().await, fresh.digest().await);
    assert_eq!(one.expect("a digest"), other.expect("a digest"));
    fresh.close().await.expect("a store can be closed");
    every_finished_job_is_on_one_list(schema).await;
}

/// Whoever deletes old jobs finds them by lists alone: one that is on none is kept for ever, and a list of nothing as well.
pub(crate) async fn every_finished_job_is_on_one_list(schema: &str) {
    let (client, connection) = tokio_postgres::connect(&postgres::url(), tokio_postgres::NoTls)
        .await
        .expect("the database is there");
    tokio::spawn(connection);
    let wrong = format!(
        "WITH listed AS (
             SELECT f.queue, f.at, f.state, f.jobs, f.no, seq
             FROM {schema}.finished AS f,
                 generate_series(1, cardinality(f.runs), 2) AS i,
                 generate_series(f.runs[i], f.runs[i + 1]) AS seq
         )
         SELECT (SELECT count(*) FROM (
                     SELECT seq, queue, at, state FROM {schema}.done WHERE state <> 2
                     EXCEPT ALL SELECT seq, queue, at, state FROM listed) AS on_none),
                (SELECT count(*) FROM (
                     SELECT seq, queue, at, state FROM listed
                     EXCEPT ALL SELECT seq, queue, at, state FROM {schema}.done) AS of_none),
                (SELECT count(*) FROM (SELECT FROM listed GROUP BY no, jobs HAVING count(*) <> jobs) AS miscounted),
                (SELECT count(*) FROM {schema}.finished WHERE cardinality(runs) NOT BETWEEN 2 AND 240)"
    );
    let row = client.query_one(&wrong, &[]).await.expect("it can be asked");
    let wrong: [i64; 4] = std::array::from_fn(|i| row.get(i));
    assert_eq!(
        wrong, [0; 4],
        "jobs on no list, listed jobs that are not there, lists that count wrong, lists of nothing or too long"
    );
}

/// Connects without telling anybody what time it is.
async fn connect_quietly(schema: &str) -> PgStore {
    connect(schema, Timestamp(i64::MAX / 2)).await
}
