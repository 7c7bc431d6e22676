//! The program that is killed. `victim work DIR JOBS` or `victim bomb DIR JOBS`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use tidegate::{Context, Job, Outcome, Tidegate, Worker, done};
use tidegate_core::seed::Seed;
use tidegate_ordeal::{Files, Lines, id_of, read};

/// Jobs in one enqueue.
const BATCH: u64 = 100;
const CONCURRENCY: usize = 32;

/// Takes 5 to 50 ms and writes down that it ran.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "ordeal.step", queue = "ordeal")]
struct Step {
    number: u64,
}

/// Kills its process.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "ordeal.bomb", queue = "ordeal")]
struct Bomb {
    number: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [mode, dir, jobs] = args.as_slice() else { bail!("usage: victim work|bomb DIR JOBS") };
    let files = Files::under(dir.as_ref());
    let jobs: u64 = jobs.parse().context("JOBS is a number")?;
    let lease = "2s";
    let tide = Tidegate::open(&files.data).await?;
    tide.register::<Step>().await?;
    tide.register::<Bomb>().await?;

    let runs = Arc::new(Lines::open(&files.runs)?);
    let bombs = u64::from(mode == "bomb");
    let enqueued = tokio::spawn(enqueue(tide.clone(), files, jobs, bombs));
    let all_sent = async move {
        enqueued.await.ok();
    };
    worker(&tide, &runs, lease).run_until(all_sent).await?;
    worker(&tide, &runs, lease).run_until_idle().await?;
    tide.close().await?;
    Ok(())
}

fn worker(tide: &Tidegate, runs: &Arc<Lines>, lease: &str) -> Worker {
    let (for_step, for_bomb) = (runs.clone(), runs.clone());
    Worker::new(tide)
        .handle(move |job: Step, cx: Context| step(job.number, cx, for_step.clone()))
        .handle(move |job: Bomb, cx: Context| bomb(job.number, cx, for_bomb.clone()))
        .concurrency(CONCURRENCY)
        .lease(lease)
}

/// Enqueues what was not acknowledged yet. What was sent by a process that died before the reply is sent again under
/// the same ids.
async fn enqueue(tide: Tidegate, files: Files, jobs: u64, bombs: u64) -> Result<()> {
    let acknowledged = read(&files.acknowledged)?.len() as u64 * BATCH;
    let file = Lines::open(&files.acknowledged)?;
    let mut first = acknowledged;
    while first < jobs {
        let numbers = first..(first + BATCH).min(jobs);
        let bomb = |n: &u64| *n < bombs;
        let batch = numbers.clone().map(|number| {
            let job =
                if bomb(&number) { tide.enqueue(Bomb { number }) } else { tide.enqueue(Step { number }) };
            job.id(id_of(number)).group(format!("g{}", number % 7))
        });
        tide.enqueue_many(batch).await?;
        file.add(&[first as i64, numbers.count() as i64], "acknowledged")?;
        first += BATCH;
    }
    Ok(())
}

async fn started(number: u64, cx: &Context, runs: &Lines) -> Result<i64, tidegate::Failure> {
    let held = cx.tide().job(cx.id()).await?.and_then(|job| job.held);
    let Some(held) = held else { return Err(tidegate::Failure::logic("NOT_HELD", "nobody holds this job")) };
    runs.add(&[number as i64, held.lease.0, held.until.0, cx.now().0], "start")?;
    Ok(held.lease.0)
}

async fn step(number: u64, cx: Context, runs: Arc<Lines>) -> Outcome {
    let lease = started(number, &cx, &runs).await?;
    let ms = 5 + Seed::new(number ^ cx.now().0 as u64).below(46);
    tokio::time::sleep(Duration::from_millis(ms)).await;
    runs.add(&[number as i64, lease, cx.now().0], "end")?;
    done()
}

async fn bomb(number: u64, cx: Context, runs: Arc<Lines>) -> Outcome {
    started(number, &cx, &runs).await?;
    std::process::abort();
}
