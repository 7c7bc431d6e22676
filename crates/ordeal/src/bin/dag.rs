//! One process that works on a flow: `dag STORE DIR WIDTH`, until it is killed.
//!
//! A root; WIDTH branches that wait for it; WIDTH leaves that wait for each branch; for each branch a join that waits for its
//! leaves; and an end that waits for the joins. Leaves return their number, joins and the end the sum of what they waited for.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use tidegate::{Context, Enqueue, Job, OnDead, Outcome, Tidegate, Worker, done_with};
use tidegate_core::seed::Seed;
use tidegate_ordeal::flow::Shape;
use tidegate_ordeal::{Files, Lines, id_of, read};

const CONCURRENCY: usize = 32;
const LEASE: &str = "2s";
/// Jobs in one enqueue: as many as may be.
const BATCH: usize = 10_000;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "ordeal.node", queue = "ordeal")]
struct Node {
    number: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [store, dir, width] = args.as_slice() else { bail!("usage: dag STORE DIR WIDTH") };
    let files = Files::under(dir.as_ref());
    let shape = Shape { width: width.parse().context("WIDTH is a number")? };
    let tide = connect(store).await?;
    tide.register::<Node>().await?;
    enqueue(&tide, &files, shape).await?;
    let runs = Arc::new(Lines::open(Path::new(&files.runs))?);
    Worker::new(&tide)
        .handle(move |job: Node, cx: Context| node(job.number, shape, cx, runs.clone()))
        .concurrency(CONCURRENCY)
        .lease(LEASE)
        .run()
        .await?;
    Ok(())
}

/// Connects as soon as whoever owned the store before is gone.
async fn connect(store: &str) -> Result<Tidegate> {
    for _ in 0..600 {
        if let Ok(tide) = Tidegate::connect(store).await {
            return Ok(tide);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Tidegate::connect(store).await.context("nobody answers")
}

/// Enqueues what was not acknowledged yet, those that wait before those that are waited for: that is nobody's business
/// but the store's. Sent again, it is the same jobs.
async fn enqueue(tide: &Tidegate, files: &Files, shape: Shape) -> Result<()> {
    let file = Lines::open(&files.acknowledged)?;
    let acknowledged = read(&files.acknowledged)?.len();
    let numbers: Vec<u64> = (0..shape.jobs()).collect();
    for (i, batch) in numbers.chunks(BATCH).enumerate().skip(acknowledged) {
        let jobs = batch.iter().rev().map(|number| job(tide, *number, shape));
        tide.enqueue_many(jobs).await?;
        file.add(&[i as i64, batch.len() as i64], "acknowledged")?;
    }
    Ok(())
}

fn job(tide: &Tidegate, number: u64, shape: Shape) -> Enqueue {
    let after = shape.parents(number).into_iter().map(id_of);
    // Whoever is buried because its process was killed too often is recovered, and the flow goes on.
    tide.enqueue(Node { number }).id(id_of(number)).after(after).on_dead(OnDead::Wait)
}

async fn node(number: u64, shape: Shape, cx: Context, runs: Arc<Lines>) -> Outcome {
    runs.add(&[number as i64, cx.fencing_token(), cx.now().0], "start")?;
    let parents = shape.parents(number);
    let seen = cx.dependencies().await?;
    if seen.len() != parents.len() {
        let what = format!("{} of {} dependencies are seen", seen.len(), parents.len());
        return Err(tidegate::Failure::logic("MISSING", what));
    }
    let sum: u64 = seen.iter().filter_map(|d| d.result.as_ref()?.as_str().parse::<u64>().ok()).sum();
    let result = if shape.is_leaf(number) {
        number
    } else if shape.sums(number) {
        sum
    } else {
        0
    };
    tokio::time::sleep(Duration::from_millis(Seed::new(number ^ cx.now().0 as u64).below(4))).await;
    runs.add(&[number as i64, cx.fencing_token(), cx.now().0], "end")?;
    done_with(result)
}
