//! One process of many that share a Postgres: `fleet server DATABASE PORT`, `fleet worker ADDRESS DIR NAME`,
//! `fleet producer ADDRESS DIR JOBS`, `fleet ticker ADDRESS DIR NAME`, `fleet planner ADDRESS SCHEDULES`. A worker ends in three acts at SIGTERM and writes down how many of its outcomes were refused,
//! could not be told before their lease was lost, and completed a job.

use std::future::IntoFuture as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use tidegate::{Context, Job, Outcome, Overlap, Tidegate, Worker, done};
use tidegate_core::seed::Seed;
use tidegate_ordeal::{Files, Lines, id_of, read};
use tidegate_server::{Server, ServerOptions};

/// Jobs in one enqueue.
const BATCH: u64 = 100;
const CONCURRENCY: usize = 16;
const LEASE: &str = "2s";

/// Takes 5 to 50 ms and writes down that it ran.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "ordeal.step", queue = "ordeal")]
struct Step {
    number: u64,
}

/// Takes a second, and then a word with the store.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "ordeal.nap", queue = "naps")]
struct Nap {
    number: u64,
}

/// A run of a schedule: writes down when it began.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "ordeal.tick", queue = "ticks")]
struct Tick {}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["server", database, port] => server(database, port.parse()?).await,
        ["worker", address, dir, name] => worker(address, dir.as_ref(), name).await,
        ["producer", address, dir, jobs] => producer(address, dir.as_ref(), jobs.parse()?).await,
        ["nap", address, number] => nap(address, number.parse()?).await,
        ["ticker", address, dir, name] => ticker(address, dir.as_ref(), name).await,
        ["planner", address, schedules] => planner(address, schedules.parse()?).await,
        _ => bail!("usage: fleet server DATABASE PORT | worker ADDRESS DIR NAME | producer ADDRESS DIR JOBS"),
    }
}

/// Connects as soon as there is something to connect to.
async fn connect(address: &str) -> Result<Tidegate> {
    for _ in 0..600 {
        if let Ok(tide) = Tidegate::connect(address).await {
            return Ok(tide);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Tidegate::connect(address).await.context("nobody answers")
}

async fn server(database: &str, port: u16) -> Result<()> {
    let tide = connect(database).await?;
    let options = ServerOptions { bind: ([127, 0, 0, 1], port).into(), ..ServerOptions::default() };
    let server = Server::bind(tide.store().clone(), options).await?;
    server.run(std::future::pending()).await;
    Ok(())
}

async fn worker(address: &str, dir: &Path, name: &str) -> Result<()> {
    let tide = connect(address).await?;
    let files = Files::under(dir);
    let runs = Arc::new(Lines::open(&files.runs)?);
    let (for_step, for_nap) = (runs.clone(), runs.clone());
    let worker = Worker::new(&tide)
        .name(name)
        .handle(move |job: Step, cx: Context| step(job.number, cx, for_step.clone()))
        .handle(move |job: Nap, cx: Context| rest(job.number, cx, for_nap.clone()))
        .concurrency(CONCURRENCY)
        .lease(LEASE);
    let report = worker.run().await?;
    let ended = [report.stale_refused, report.unsettled, report.completed];
    runs.add(&ended.map(|n| n as i64), "refused")?;
    Ok(())
}

/// Enqueues what was not acknowledged yet, under ids that are the same in every process.
async fn producer(address: &str, dir: &Path, jobs: u64) -> Result<()> {
    let tide = connect(address).await?;
    let files = Files::under(dir);
    let file = Lines::open(&files.acknowledged)?;
    let mut first = read(&files.acknowledged)?.len() as u64 * BATCH;
    while first < jobs {
        let numbers = first..(first + BATCH).min(jobs);
        let batch = numbers
            .clone()
            .map(|number| tide.enqueue(Step { number }).id(id_of(number)).group(format!("g{}", number % 7)));
        if tide.enqueue_many(batch).await.is_err() {
            // Nobody answered; sent again, it is the same jobs.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        file.add(&[first as i64, numbers.count() as i64], "acknowledged")?;
        first += BATCH;
    }
    Ok(())
}

/// Runs jobs of schedules: `ran ID_HIGH ID_LOW NOW_MS` for each.
async fn ticker(address: &str, dir: &Path, name: &str) -> Result<()> {
    let tide = connect(address).await?;
    let runs = Arc::new(Lines::open(&Files::under(dir).runs)?);
    let handler = move |_: Tick, cx: Context| {
        let runs = runs.clone();
        async move {
            let (high, low) = cx.id().uuid().as_u64_pair();
            runs.add(&[high.cast_signed(), low.cast_signed(), cx.now().0], "ran")?;
            done()
        }
    };
    Worker::new(&tide).name(name).handle(handler).concurrency(64).run().await?;
    Ok(())
}

/// Puts so many schedules that tick every second.
async fn planner(address: &str, schedules: u32) -> Result<()> {
    let tide = connect(address).await?;
    tide.register::<Tick>().await?;
    let mut puts = tokio::task::JoinSet::new();
    for n in 0..schedules {
        let put = tide.schedule(format!("s{n}"), Tick {}).every("1s").overlap(Overlap::Allow);
        puts.spawn(put.into_future());
    }
    for put in puts.join_all().await {
        put?;
    }
    Ok(())
}

async fn nap(address: &str, number: u64) -> Result<()> {
    let tide = connect(address).await?;
    tide.enqueue(Nap { number }).id(id_of(number)).await?;
    Ok(())
}

/// `start NUMBER TOKEN NOW_MS`, and the same with `end`.
fn note(word: &str, number: u64, cx: &Context, runs: &Lines) -> std::io::Result<()> {
    runs.add(&[number as i64, cx.fencing_token(), cx.now().0], word)
}

async fn step(number: u64, cx: Context, runs: Arc<Lines>) -> Outcome {
    note("start", number, &cx, &runs)?;
    let ms = 5 + Seed::new(number ^ cx.now().0 as u64).below(46);
    tokio::time::sleep(Duration::from_millis(ms)).await;
    note("end", number, &cx, &runs)?;
    done()
}

/// Naps, and asks the store afterwards whether the job is still its own; `lost NUMBER TOKEN NOW_MS` if it is not.
async fn rest(number: u64, cx: Context, runs: Arc<Lines>) -> Outcome {
    note("start", number, &cx, &runs)?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    loop {
        match cx.log("awake").await {
            Ok(()) => break,
            Err(refused) if refused.code == tidegate::codes::STALE_LEASE => {
                note("lost", number, &cx, &runs)?;
                break;
            }
            // Nobody answered, which says nothing.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    note("end", number, &cx, &runs)?;
    done()
}
