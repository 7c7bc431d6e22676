//! Jobs that wait for each other, measured: flows that fan out and in.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tidegate::{Context, Job, Tidegate, Worker, done};

use super::jobs::{GROUPS, NoOp, Seen, group, per_s};
use crate::error::Result;

/// Jobs of one flow: the first, those that wait for it, and the last, which waits for those.
const FLOW: u64 = 100;
/// Flows in one enqueue.
const BATCH: u64 = 10;

/// The same job as the one that is measured without dependencies, in a queue of its own.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(
    kind = "bench.dependent",
    queue = "bench-dependent",
    description = "Does nothing after others, measured"
)]
struct Dependent(NoOp);

/// What was measured.
pub(super) struct Flows {
    pub(super) per_s: f64,
    pub(super) missing: u64,
    pub(super) twice: u64,
}

/// Enqueues about `jobs` jobs in flows and processes them.
pub(super) async fn run(tide: &Tidegate, jobs: u64, concurrency: u32) -> Result<Flows> {
    let flows = (jobs / FLOW).max(1);
    let total = flows * FLOW;
    for first in (0..flows).step_by(BATCH as usize) {
        let mut batch = tide.flow();
        for flow in first..(first + BATCH).min(flows) {
            let job = |n: u64| {
                let order = flow * FLOW + n;
                tide.enqueue(Dependent(NoOp::new(order))).group(group(order, GROUPS))
            };
            let root = batch.add(job(0));
            let middle: Vec<_> = (1..FLOW - 1).map(|n| batch.add(job(n).after([root]))).collect();
            batch.add(job(FLOW - 1).after(middle));
        }
        batch.enqueue().await?;
    }
    let seen = Arc::new(Seen::new(total));
    let handler = {
        let seen = seen.clone();
        move |job: Dependent, _: Context| {
            let seen = seen.clone();
            async move {
                seen.saw(job.0.order(), total);
                done()
            }
        }
    };
    let worker = Worker::new(tide).handle(handler).concurrency(concurrency as usize);
    let target = seen.clone();
    let started = Instant::now();
    let report = worker.run_until(async move { target.all_seen().await }).await?;
    let per_s = per_s(report.completed, started.elapsed());
    Ok(Flows { per_s, missing: seen.missing(), twice: seen.twice() })
}
