//! Rates of the store alone, for profiling: `cargo run --release -p tidegate-store-sqlite --example throughput -- [jobs]
//! [backlog]`. With a backlog, that many jobs are ready in other groups, scheduled, and completed before it starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use tidegate_core::ids::{GroupKey, JobId, KindName, ProcessId, QueueName, WorkerId};
use tidegate_core::payload::Payload;
use tidegate_core::registry::{KindSettings, QueueSettings, Retention};
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Claim, JobQuery, NewJob, Outcome, Settle, Settlement};
use tidegate_store::{Jobs, Registry, Store, Upkeep};
use tidegate_store_sqlite::SqliteStore;

const CALLERS: u64 = 50;
const BATCH: u64 = 500;
const GROUPS: u64 = 10;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let jobs: u64 = args.next().map_or(Ok(200_000), |n| n.parse()).context("jobs")?;
    let backlog: u64 = args.next().map_or(Ok(0), |n| n.parse()).context("backlog")?;
    let dir = tempfile::tempdir_in(".")?;
    let store = SqliteStore::open(dir.path(), now())?;
    let maker = Arc::new(Maker::new()?);
    prepare(&store, &maker).await?;
    if backlog > 0 {
        fill(&store, &maker, backlog).await?;
    }

    rate("bulk insert, 1 caller", jobs, bulk(&store, &maker, jobs)).await?;
    rate("claim and settle, 1 worker", jobs, drain(&store, 1)).await?;
    let both = async {
        tokio::try_join!(bulk(&store, &maker, jobs / 2), bulk(&store, &maker, jobs / 2)).map(|_| ())
    };
    rate("bulk insert, 2 callers", jobs, both).await?;
    rate("claim and settle, 4 workers", jobs, drain(&store, 4)).await?;
    rate("single insert, 50 callers", jobs / 2, singles(&store, &maker, jobs / 2)).await?;
    rate("prune", 2 * jobs, prune(&store, 2 * jobs)).await?;
    rate("search by text, one page", 1, search(&store)).await?;

    let path = dir.path().to_owned();
    drop(store);
    let began = Instant::now();
    let store = SqliteStore::open(&path, now())?;
    println!("{:<30} {:>9.2} s, {:?}", "cold start", began.elapsed().as_secs_f64(), store.totals().await?);
    store.close().await?;
    Ok(())
}

async fn rate(what: &str, n: u64, work: impl Future<Output = Result<()>>) -> Result<()> {
    let began = Instant::now();
    work.await?;
    let took = began.elapsed();
    println!("{what:<30} {:>9.0} /s  ({:.2} s)", n as f64 / took.as_secs_f64(), took.as_secs_f64());
    Ok(())
}

struct Maker {
    kind: KindName,
    kept: KindName,
    payload: Payload,
    groups: Vec<GroupKey>,
    made: AtomicU64,
}

impl Maker {
    fn new() -> Result<Self> {
        Ok(Self {
            kind: KindName::new("work")?,
            kept: KindName::new("kept")?,
            payload: Payload::from_json_text(
                format!("{{\"order\":123,\"pad\":\"{}\"}}", "x".repeat(204)),
                1_000,
            )?,
            groups: (0..1_000).map(|n| GroupKey::new(format!("g{n}"))).collect::<Result<_, _>>()?,
            made: AtomicU64::new(1),
        })
    }

    fn job(&self, groups: u64) -> NewJob {
        let n = self.made.fetch_add(1, Ordering::Relaxed);
        let mut seed = Seed::new(n);
        let random = u128::from(seed.next_u64()) << 64 | u128::from(seed.next_u64());
        let id = JobId::from_parts(now().0.cast_unsigned(), random);
        let mut job = NewJob::new(id, self.kind.clone(), self.payload.clone());
        job.group = self.groups.get((n % groups) as usize).cloned();
        job
    }
}

async fn prepare(store: &SqliteStore, maker: &Maker) -> Result<()> {
    // Completed rows are kept until `prune` is measured.
    let settings = |count| QueueSettings {
        retention: Retention { count, age_ms: 3_600_000 },
        ..QueueSettings::default()
    };
    store.put_queue(queue()?, settings(0), now()).await?;
    store.put_queue(QueueName::new("kept")?, settings(u64::MAX), now()).await?;
    store.put_kind(maker.kind.clone(), KindSettings::new(queue()?)).await?;
    store.put_kind(maker.kept.clone(), KindSettings::new(QueueName::new("kept")?)).await?;
    Ok(())
}

async fn fill(store: &SqliteStore, maker: &Maker, backlog: u64) -> Result<()> {
    let began = Instant::now();
    let other = |maker: &Maker| NewJob { kind: maker.kept.clone(), ..maker.job(1_000) };
    for _ in 0..backlog / 10_000 {
        store.enqueue((0..10_000).map(|_| other(maker)).collect(), now()).await?;
        drain_queue(store, "kept", 1, 2_000).await?;
    }
    for round in 0..2 {
        for _ in 0..backlog / 10_000 {
            let later = (round == 1).then(|| now().plus_ms(86_400_000));
            let jobs = (0..10_000).map(|_| NewJob { run_at: later, ..other(maker) }).collect();
            store.enqueue(jobs, now()).await?;
        }
    }
    println!("backlog: {:.1} s, {:?}", began.elapsed().as_secs_f64(), store.totals().await?);
    Ok(())
}

async fn bulk(store: &SqliteStore, maker: &Maker, n: u64) -> Result<()> {
    for _ in 0..n / BATCH {
        store.enqueue((0..BATCH).map(|_| maker.job(GROUPS)).collect(), now()).await?;
    }
    Ok(())
}

async fn singles(store: &SqliteStore, maker: &Arc<Maker>, n: u64) -> Result<()> {
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (store, maker) = (store.clone(), maker.clone());
        callers.spawn(async move {
            for _ in 0..n / CALLERS {
                store.enqueue(vec![maker.job(GROUPS)], now()).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok(())
}

async fn drain(store: &SqliteStore, workers: u64) -> Result<()> {
    drain_queue(store, "work", workers, BATCH as u32).await
}

async fn drain_queue(store: &SqliteStore, queue: &str, workers: u64, batch: u32) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..workers {
        let store = store.clone();
        let claim = Claim {
            worker: WorkerId::new(format!("w{n}"))?,
            process: ProcessId(1),
            queues: vec![(QueueName::new(queue)?, batch)],
            max: batch,
            lease_ms: 30_000,
            now: now(),
        };
        tasks.spawn(async move {
            loop {
                let claimed = store.claim(Claim { now: now(), ..claim.clone() }).await?;
                if claimed.jobs.is_empty() {
                    return anyhow::Ok(());
                }
                let complete = |job: &tidegate_store::params::ClaimedJob| Settlement {
                    ticket: job.ticket,
                    outcome: Outcome::Complete(None),
                };
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

async fn prune(store: &SqliteStore, expected: u64) -> Result<()> {
    let mut pruned = 0;
    loop {
        match store.prune(1_000, now()).await? {
            0 => break,
            n => pruned += n,
        }
    }
    ensure!(pruned == expected, "{pruned} pruned, {expected} expected");
    Ok(())
}

async fn search(store: &SqliteStore) -> Result<()> {
    let query = JobQuery { text: Some("no such text".into()), limit: 10, ..JobQuery::default() };
    let page = store.search(query).await?;
    ensure!(page.jobs.is_empty(), "the text was found");
    Ok(())
}

fn queue() -> Result<QueueName> {
    Ok(QueueName::new("work")?)
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp(since.as_millis() as i64)
}
