//! `tidegate bench jobs --minutes M`: enqueue and process at once, as fast as both go, and the rate of each minute. What is
//! finished is soon deleted, so that a store that cleans up behind itself stays as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tidegate::{Context, Job as _, Tidegate, Worker, done};
use tidegate_core::codes;
use tidegate_core::registry::{QueueSettings, Retention};
use tidegate_core::why::grouped;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::figures::memory_mb;
use super::jobs::{self, NoOp};
use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table};

/// Jobs in one call, and calls in flight.
const BULK: u64 = 500;
const CALLERS: u64 = 2;
/// Jobs waiting beyond which the producers wait.
const AHEAD: u64 = 20_000;
/// Finished jobs that are kept.
const KEPT: Retention = Retention { count: 100_000, age_ms: 60_000 };
const MINUTE: Duration = Duration::from_mins(1);

/// Figures of `bench jobs --minutes`. The names are a contract.
#[derive(Debug, Serialize)]
struct Figures {
    store: String,
    concurrency: u32,
    kept_jobs: u64,
    /// Completed jobs per second in each minute.
    minutes_per_s: Vec<f64>,
    /// Completed jobs in the store at the end of each minute.
    minutes_kept: Vec<u64>,
    last_to_first: f64,
    lost: u64,
    duplicated: u64,
    rss_mb: f64,
    rss_peak_mb: f64,
}

/// What producers, handlers and the clock share.
struct Flow {
    sent: AtomicU64,
    ran: AtomicU64,
    over: AtomicBool,
    /// There is room for more.
    room: Notify,
}

/// Measures for so many minutes.
pub(super) async fn run(minutes: u32, concurrency: u32, config: &Config, output: &Output) -> Result<()> {
    let Some(empty) = data::named_and_empty(config, "the benchmark").await? else {
        return Err(Failure::new(codes::INVALID_REQUEST, "--minutes needs --store"));
    };
    let store = empty.store.clone();
    let tide = Tidegate::with_store(store.clone());
    tide.register::<NoOp>().await?;
    let settings = QueueSettings { retention: KEPT, ..QueueSettings::default() };
    store.put_queue(NoOp::settings()?.queue, settings, jobs::now()).await?;

    let flow = Arc::new(Flow {
        sent: AtomicU64::new(0),
        ran: AtomicU64::new(0),
        over: AtomicBool::new(false),
        room: Notify::new(),
    });
    let (stop, stopped) = watch::channel(false);
    let worker = Worker::new(&tide).handle(handler(flow.clone())).concurrency(concurrency as usize);
    let working = tokio::spawn(worker.run_until(stopping(stopped)));
    let mut producers = JoinSet::new();
    for _ in 0..CALLERS {
        producers.spawn(produce(tide.clone(), flow.clone()));
    }

    let (mut rates, mut kept) = (Vec::new(), Vec::new());
    let mut pace = tokio::time::interval(MINUTE);
    pace.tick().await;
    let (mut last, mut since) = (flow.ran.load(Ordering::Relaxed), Instant::now());
    for minute in 1..=minutes {
        pace.tick().await;
        let ran = flow.ran.load(Ordering::Relaxed);
        rates.push(jobs::per_s(ran - last, since.elapsed()));
        (last, since) = (ran, Instant::now());
        kept.push(store.totals().await?.completed);
        output.note(&format!("minute {minute}: {}/s", grouped(*rates.last().unwrap_or(&0.0) as u64)));
    }
    let (rss_mb, rss_peak_mb) = memory_mb();

    flow.over.store(true, Ordering::Relaxed);
    flow.room.notify_waiters();
    while let Some(done) = producers.join_next().await {
        done.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))??;
    }
    stop.send_replace(true);
    let report = working.await.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))??;
    let totals = store.totals().await?;
    let sent = flow.sent.load(Ordering::Relaxed);
    let left = totals.ready + totals.scheduled + totals.running;
    tide.close().await?;
    let figures = Figures {
        store: empty.target.shown(),
        concurrency,
        kept_jobs: KEPT.count,
        last_to_first: rates
            .last()
            .zip(rates.first())
            .map_or(0.0, |(l, f)| (l / f.max(1.0) * 1e3).round() / 1e3),
        minutes_per_s: rates,
        minutes_kept: kept,
        lost: (report.completed + left).abs_diff(sent) + totals.dead,
        duplicated: flow.ran.load(Ordering::Relaxed).saturating_sub(report.completed),
        rss_mb,
        rss_peak_mb,
    };
    output.answer(&figures, || figures.table(output))
}

fn handler(
    flow: Arc<Flow>,
) -> impl Fn(NoOp, Context) -> std::future::Ready<tidegate::Outcome> + Send + Sync + 'static {
    move |_, _| {
        if flow.ran.fetch_add(1, Ordering::Relaxed).is_multiple_of(BULK / 4) {
            flow.room.notify_waiters();
        }
        std::future::ready(done())
    }
}

async fn stopping(mut stopped: watch::Receiver<bool>) {
    // A sender that is gone says the same.
    drop(stopped.wait_for(|over| *over).await);
}

/// Enqueues while there is room, until it is over.
async fn produce(tide: Tidegate, flow: Arc<Flow>) -> Result<()> {
    loop {
        let room = flow.room.notified();
        if flow.over.load(Ordering::Relaxed) {
            return Ok(());
        }
        if flow.sent.load(Ordering::Relaxed) >= flow.ran.load(Ordering::Relaxed) + AHEAD {
            room.await;
            continue;
        }
        let first = flow.sent.fetch_add(BULK, Ordering::Relaxed);
        let orders = first..first + BULK;
        tide.enqueue_many(orders.map(|o| tide.enqueue(NoOp::new(o)).group(jobs::group(o, jobs::GROUPS))))
            .await?;
    }
}

impl Figures {
    fn table(&self, output: &Output) -> String {
        let mut table =
            Table::new(vec![Column::number("MINUTE"), Column::number("JOBS"), Column::number("KEPT")]);
        for (minute, (rate, kept)) in self.minutes_per_s.iter().zip(&self.minutes_kept).enumerate() {
            table.row(vec![(minute + 1).to_string(), format!("{}/s", grouped(*rate as u64)), grouped(*kept)]);
        }
        let ratio = self.last_to_first;
        let (lost, twice) = (self.lost, self.duplicated);
        format!("{}\nLast minute to first: {ratio:.2}. Lost {lost}, run twice {twice}.", table.render(output))
    }
}
