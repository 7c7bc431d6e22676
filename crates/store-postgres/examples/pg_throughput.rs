//! Rates of the store alone, as JSON: `TIDEGATE_TEST_POSTGRES=postgres://… cargo run --release -p tidegate-store-postgres
//! --example pg_throughput -- [jobs] [stores]`. Several stores are as many processes: each has its own memory, writer and
//! connections. The schema `throughput` is dropped first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use tidegate_core::ids::{GroupKey, JobId, KindName, ProcessId, QueueName, WorkerId};
use tidegate_core::payload::Payload;
use tidegate_core::registry::{KindSettings, QueueSettings, Retention};
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Claim, ClaimedJob, NewJob, Outcome, Settle, Settlement};
use tidegate_store::{Jobs, Registry, Store, Upkeep};
use tidegate_store_postgres::{PgOptions, PgStore};

const CALLERS: u64 = 50;
const BATCH: u64 = 500;
const GROUPS: u64 = 10;
const SCHEMA: &str = "throughput";

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let jobs: u64 = args.next().map_or(Ok(200_000), |n| n.parse()).context("jobs")?;
    let stores: usize = args.next().map_or(Ok(1), |n| n.parse()).context("stores")?;
    let url = std::env::var("TIDEGATE_TEST_POSTGRES").context("TIDEGATE_TEST_POSTGRES names the database")?;
    drop_schema(&url).await?;
    let mut all = vec![];
    for _ in 0..stores {
        all.push(PgStore::connect(&url, PgOptions::new().schema(SCHEMA)?, now()).await?);
    }
    let maker = Arc::new(Maker::new()?);
    prepare(&all[0], &maker).await?;

    let mut rates = vec![];
    for (name, bulk_batch) in
        [("bulk insert, batches of 500", BATCH), ("bulk insert, batches of 5,000", 5_000)]
    {
        let began = Instant::now();
        each(&all, |store| bulk(store, maker.clone(), jobs / stores as u64, bulk_batch)).await?;
        rates.push((name, jobs as f64 / began.elapsed().as_secs_f64()));
        let began = Instant::now();
        each(&all, |store| drain(store, 2)).await?;
        if bulk_batch == BATCH {
            rates.push(("claim and complete, 2 workers", jobs as f64 / began.elapsed().as_secs_f64()));
        } else {
            rates.push(("claim and complete, 2 workers, again", jobs as f64 / began.elapsed().as_secs_f64()));
        }
    }
    let singles_made = jobs / 4 / CALLERS * CALLERS;
    let began = Instant::now();
    each(&all, |store| singles(store, maker.clone(), singles_made / stores as u64, stores as u64)).await?;
    rates.push(("single insert, 50 callers", singles_made as f64 / began.elapsed().as_secs_f64()));
    let began = Instant::now();
    each(&all, |store| drain(store, 2)).await?;
    rates.push(("claim and complete, after singles", singles_made as f64 / began.elapsed().as_secs_f64()));
    let totals = all[0].totals().await?;
    let made = maker.made.load(Ordering::Relaxed) - 1;
    ensure!(totals.completed == made, "{made} jobs were made: {totals:?}");
    let began = Instant::now();
    while all[0].prune(1_000, now()).await? > 0 {}
    rates.push(("prune", totals.completed as f64 / began.elapsed().as_secs_f64()));

    println!("{{\"stores\": {stores}, \"jobs\": {jobs}, \"per_second\": {{");
    let lines: Vec<String> = rates.iter().map(|(name, rate)| format!("  \"{name}\": {rate:.0}")).collect();
    println!("{}\n}}}}", lines.join(",\n"));
    for store in all {
        store.close().await?;
    }
    Ok(())
}

/// Runs the same on every store at once.
async fn each<F: Future<Output = Result<()>> + Send + 'static>(
    stores: &[PgStore],
    work: impl Fn(PgStore) -> F,
) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for store in stores {
        tasks.spawn(work(store.clone()));
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}

async fn drop_schema(url: &str) -> Result<()> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    let work = tokio::spawn(connection);
    client
        .batch_execute(&format!(
            "DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; DROP SCHEMA IF EXISTS {SCHEMA}_v1 CASCADE"
        ))
        .await?;
    drop(client);
    work.await??;
    Ok(())
}

struct Maker {
    kind: KindName,
    payload: Payload,
    groups: Vec<GroupKey>,
    made: AtomicU64,
}

impl Maker {
    fn new() -> Result<Self> {
        let text = format!("{{\"order\":123,\"pad\":\"{}\"}}", "x".repeat(204));
        Ok(Self {
            kind: KindName::new("work")?,
            payload: Payload::from_json_text(text, 1_000)?,
            groups: (0..GROUPS).map(|n| GroupKey::new(format!("g{n}"))).collect::<Result<_, _>>()?,
            made: AtomicU64::new(1),
        })
    }

    fn job(&self) -> NewJob {
        let n = self.made.fetch_add(1, Ordering::Relaxed);
        let mut seed = Seed::new(n);
        let random = u128::from(seed.next_u64()) << 64 | u128::from(seed.next_u64());
        let id = JobId::from_parts(now().0.cast_unsigned(), random);
        let mut job = NewJob::new(id, self.kind.clone(), self.payload.clone());
        job.group = self.groups.get((n % GROUPS) as usize).cloned();
        job
    }
}

async fn prepare(store: &PgStore, maker: &Maker) -> Result<()> {
    // Completed rows are kept until `prune` is measured.
    let retention = Retention { count: 0, age_ms: 3_600_000 };
    let settings = QueueSettings { retention, ..QueueSettings::default() };
    store.put_queue(queue()?, settings, now()).await?;
    store.put_kind(maker.kind.clone(), KindSettings::new(queue()?)).await?;
    Ok(())
}

async fn bulk(store: PgStore, maker: Arc<Maker>, n: u64, batch: u64) -> Result<()> {
    for _ in 0..n / batch {
        store.enqueue((0..batch).map(|_| maker.job()).collect(), now()).await?;
    }
    Ok(())
}

async fn singles(store: PgStore, maker: Arc<Maker>, n: u64, stores: u64) -> Result<()> {
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS / stores {
        let (store, maker) = (store.clone(), maker.clone());
        callers.spawn(async move {
            for _ in 0..n / (CALLERS / stores) {
                store.enqueue(vec![maker.job()], now()).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok(())
}

async fn drain(store: PgStore, workers: u64) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..workers {
        let store = store.clone();
        let claim = Claim {
            worker: WorkerId::new(format!("w{n}"))?,
            process: ProcessId(1),
            queues: vec![(queue()?, BATCH as u32)],
            max: BATCH as u32,
            lease_ms: 30_000,
            now: now(),
        };
        tasks.spawn(async move {
            loop {
                let claimed = store.claim(Claim { now: now(), ..claim.clone() }).await?;
                if claimed.jobs.is_empty() {
                    return anyhow::Ok(());
                }
                let complete =
                    |job: &ClaimedJob| Settlement { ticket: job.ticket, outcome: Outcome::Complete(None) };
                let settlements = claimed.jobs.iter().map(complete).collect();
                store.settle(Settle { settlements, now: now(), seed: 1 }).await?;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}

fn queue() -> Result<QueueName> {
    Ok(QueueName::new("work")?)
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp(since.as_millis() as i64)
}
