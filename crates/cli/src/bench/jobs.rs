//! `tidegate bench jobs`: the way of a job through the library, measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use tidegate::{Context, Job, Outcome, Tidegate, Worker, done};
use tidegate_core::codes;
use tidegate_core::time::Timestamp;
use tidegate_store::Store;
use tokio::sync::Notify;

use super::backlog::{self, Backlog};
use super::figures::{Figures, Pickup, memory_mb};
use super::{dependent, fleet, steady};
use crate::config::Config;
use crate::data::{self, Target};
use crate::error::{Failure, Result};
use crate::output::Output;

/// Concurrent callers of the single enqueue.
const CALLERS: u64 = 50;
/// Jobs in one bulk call, and calls in flight.
const BULK: u64 = 1_000;
const BULK_CALLERS: u64 = 4;
/// Jobs of the pickup measurement, and the time between two of them.
const PICKUPS: usize = 500;
const PICKUP_EVERY: Duration = Duration::from_millis(10);
/// Groups the measured jobs are spread over.
pub(super) const GROUPS: u64 = 10;

/// Arguments of `tidegate bench jobs`.
#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    /// Jobs to enqueue and process
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    jobs: u64,
    /// What is in the store beforehand: ready=N,delayed=N,completed=N,parked=GROUPSxJOBS
    #[arg(long, default_value = "", hide_default_value = true)]
    backlog: Backlog,
    /// The backlog is there already: `bench fill` put it in, and the server had time to settle
    #[arg(long, hide = true, requires = "backlog")]
    filled: bool,
    /// Groups that the jobs belong to: claims share between them, so with many of them jobs that run together are stored far apart
    #[arg(long, default_value_t = GROUPS, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    groups: u64,
    /// Handlers at a time
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// Only compare so many processes on one shared store with one process
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64), conflicts_with = "backlog")]
    processes: Option<u32>,
    /// Only enqueue and process at once for so many minutes, and tell the rate of each
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=1_440), conflicts_with_all = ["processes", "backlog", "jobs"])]
    minutes: Option<u32>,
}

/// The measured job: 226 bytes of JSON.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
#[job(kind = "bench.noop", queue = "bench", description = "Does nothing, measured")]
pub(super) struct NoOp {
    order: u64,
    /// The program that enqueued it: with a backlog, an earlier run on the same store leaves some of its jobs.
    run: u32,
    note: String,
}

pub(super) const PAYLOAD_BYTES: usize = 226;

impl NoOp {
    pub(super) fn new(order: u64) -> Self {
        let run = std::process::id();
        let bare = format!("{{\"order\":{order},\"run\":{run},\"note\":\"\"}}").len();
        Self { order, run, note: "x".repeat(PAYLOAD_BYTES - bare) }
    }

    /// Its number; that of a job of the backlog if another run enqueued it.
    pub(super) fn order(&self) -> u64 {
        if self.run == std::process::id() { self.order } else { u64::MAX }
    }
}

/// The job of the pickup measurement.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "bench.pickup", queue = "bench-pickup", description = "Picked up from an idle queue, measured")]
struct Pick {
    number: usize,
}

pub(super) async fn register_pickup(tide: &Tidegate) -> Result<()> {
    Ok(tide.register::<Pick>().await?)
}

pub(super) fn now() -> Timestamp {
    crate::parse::now()
}

/// Where it is measured.
pub(super) enum Place {
    /// The store that a flag names.
    Named(Target),
    /// A directory that goes when it is dropped.
    Temporary(tempfile::TempDir),
}

impl Place {
    /// The store that a flag names, which must be empty, or a temporary directory.
    pub(super) async fn of(config: &Config) -> Result<Self> {
        let Some(empty) = data::named_and_empty(config, "the benchmark").await? else {
            return Ok(Self::Temporary(tempfile::tempdir()?));
        };
        empty.close().await?;
        Ok(Self::Named(empty.target))
    }

    fn target(&self) -> Target {
        match self {
            Self::Named(target) => target.clone(),
            Self::Temporary(dir) => Target::Directory(dir.path().join("bench")),
        }
    }

    /// As another process is told of it.
    fn url(&self, config: &Config) -> String {
        match self {
            Self::Named(_) => config.text("store").unwrap_or_default().to_owned(),
            Self::Temporary(_) => format!("sqlite:{}", self.target().shown()),
        }
    }

    pub(super) async fn open(&self, config: &Config) -> Result<Arc<dyn Store>> {
        Ok(data::open(self.target(), config).await?.store)
    }

    pub(super) fn shown(&self) -> String {
        self.target().shown()
    }
}

/// Measures the store that a flag names, which must be empty, or a temporary directory.
pub(super) async fn run(args: JobsArgs, config: &Config, output: &Output) -> Result<()> {
    if let Some(processes) = args.processes {
        return fleet::run(args.jobs, processes, args.concurrency, config, output).await;
    }
    if let Some(minutes) = args.minutes {
        return steady::run(minutes, args.concurrency, config, output).await;
    }
    let place = if args.filled { Place::Named(data::target(config)?) } else { Place::of(config).await? };
    if !args.backlog.is_empty() && !args.filled {
        backlog::fill_apart(&place.url(config), config.text("key"), &args.backlog)?;
    }
    let mut figures = Figures {
        jobs: args.jobs,
        backlog: args.backlog.to_string(),
        concurrency: args.concurrency,
        payload_bytes: PAYLOAD_BYTES,
        ..Figures::default()
    };
    let opening = Instant::now();
    let store = place.open(config).await?;
    figures.cold_start_ms = millis(opening.elapsed());
    figures.store = place.shown();
    let tide = Tidegate::with_store(store.clone());
    tide.register::<NoOp>().await?;
    tide.register::<Pick>().await?;
    let before = store.totals().await?;

    output.note("enqueue, one by one …");
    let singles = args.jobs.min(100_000);
    figures.enqueue_single_per_s = enqueue_single(&tide, 0, singles, args.groups).await?;
    output.note("enqueue, in bulk …");
    figures.enqueue_bulk_per_s = enqueue_bulk(&tide, singles, args.jobs, args.groups).await?;
    output.note("process …");
    let total = singles + args.jobs;
    let seen = Arc::new(Seen::new(total));
    let completed;
    (figures.process_per_s, completed) = process(&tide, &args, &seen).await?;
    (figures.rss_mb, figures.rss_peak_mb) = memory_mb();
    output.note("pickup …");
    figures.pickup_ms = pickup(&tide).await?;
    if args.backlog.is_empty() {
        output.note("process, jobs that wait for each other …");
        let flows = dependent::run(&tide, args.jobs.min(100_000), args.concurrency).await?;
        (figures.dependent_per_s, figures.duplicated) = (flows.per_s, flows.twice);
        figures.lost += flows.missing;
    }

    // Nothing else becomes ready meanwhile, so what is ready now must be what was, plus what came, less what was done.
    let after = store.totals().await?;
    let expected_ready = before.ready + total - completed;
    figures.lost += expected_ready.abs_diff(after.ready)
        + before.scheduled.abs_diff(after.scheduled)
        + after.running
        + after.dead
        + seen.strangers()
        + if args.backlog.is_empty() { seen.missing() } else { 0 };
    figures.duplicated += seen.twice();
    tide.close().await?;
    output.answer(&figures, || figures.table(output))
}

fn millis(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e6).round() / 1e3
}

pub(super) fn per_s(n: u64, d: Duration) -> f64 {
    (n as f64 / d.as_secs_f64()).round()
}

pub(super) fn group(n: u64, groups: u64) -> String {
    format!("g{}", n % groups)
}

pub(super) async fn enqueue_single(tide: &Tidegate, from: u64, n: u64, groups: u64) -> Result<f64> {
    let next = Arc::new(AtomicU64::new(from));
    let started = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (tide, next) = (tide.clone(), next.clone());
        callers.spawn(async move {
            loop {
                let order = next.fetch_add(1, Ordering::Relaxed);
                if order >= from + n {
                    return tidegate::Result::Ok(());
                }
                tide.enqueue(NoOp::new(order)).group(group(order, groups)).await?;
            }
        });
    }
    join(callers).await?;
    Ok(per_s(n, started.elapsed()))
}

pub(super) async fn enqueue_bulk(tide: &Tidegate, from: u64, n: u64, groups: u64) -> Result<f64> {
    let next = Arc::new(AtomicU64::new(from));
    let started = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..BULK_CALLERS {
        let (tide, next) = (tide.clone(), next.clone());
        callers.spawn(async move {
            loop {
                let first = next.fetch_add(BULK, Ordering::Relaxed);
                if first >= from + n {
                    return tidegate::Result::Ok(());
                }
                let orders = first..(first + BULK).min(from + n);
                tide.enqueue_many(orders.map(|o| tide.enqueue(NoOp::new(o)).group(group(o, groups)))).await?;
            }
        });
    }
    join(callers).await?;
    Ok(per_s(n, started.elapsed()))
}

async fn join(mut tasks: tokio::task::JoinSet<tidegate::Result<()>>) -> Result<()> {
    while let Some(done) = tasks.join_next().await {
        done.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))??;
    }
    Ok(())
}

/// Which of the measured jobs ran, and how often.
pub(super) struct Seen {
    runs: Vec<AtomicU64>,
    known: u64,
    all: AtomicU64,
    strangers: AtomicU64,
    target: Notify,
}

impl Seen {
    pub(super) fn new(known: u64) -> Self {
        let words = known.div_ceil(32) as usize;
        Self {
            runs: (0..words).map(|_| AtomicU64::new(0)).collect(),
            known,
            all: AtomicU64::new(0),
            strangers: AtomicU64::new(0),
            target: Notify::new(),
        }
    }

    /// Two bits per job: ran, ran again.
    pub(super) fn saw(&self, order: u64, stop_at: u64) {
        if order < self.known {
            let (word, shift) = ((order / 32) as usize, order % 32 * 2);
            let before = self.runs[word].fetch_or(1 << shift, Ordering::Relaxed);
            if before & (1 << shift) != 0 {
                self.runs[word].fetch_or(2 << shift, Ordering::Relaxed);
            }
        } else if order != u64::MAX {
            self.strangers.fetch_add(1, Ordering::Relaxed);
        }
        if self.all.fetch_add(1, Ordering::Relaxed) + 1 == stop_at {
            self.target.notify_one();
        }
    }

    fn count(&self, mask: u64) -> u64 {
        self.runs.iter().map(|w| u64::from((w.load(Ordering::Relaxed) & mask).count_ones())).sum()
    }

    pub(super) fn missing(&self) -> u64 {
        self.known - self.count(0x5555_5555_5555_5555)
    }

    pub(super) fn twice(&self) -> u64 {
        self.count(0xaaaa_aaaa_aaaa_aaaa)
    }

    pub(super) fn known(&self) -> u64 {
        self.known
    }

    /// Waits until as many ran as were to be waited for.
    pub(super) async fn all_seen(&self) {
        self.target.notified().await;
    }

    /// Runs of jobs that were never enqueued.
    pub(super) fn strangers(&self) -> u64 {
        self.strangers.load(Ordering::Relaxed)
    }
}

/// Jobs per second from the worker's start until everything it ran is settled. With a backlog the worker stops after
/// as many jobs, whichever they are: the queue is shared fairly with the backlog's groups.
async fn process(tide: &Tidegate, args: &JobsArgs, seen: &Arc<Seen>) -> Result<(f64, u64)> {
    let stop_at = seen.known;
    let handler = {
        let seen = seen.clone();
        move |job: NoOp, _: Context| {
            let seen = seen.clone();
            async move {
                seen.saw(job.order(), stop_at);
                done()
            }
        }
    };
    let worker = Worker::new(tide).handle(handler).concurrency(args.concurrency as usize);
    let target = seen.clone();
    let started = Instant::now();
    let report = worker.run_until(async move { target.target.notified().await }).await?;
    Ok((per_s(report.completed, started.elapsed()), report.completed))
}

pub(super) async fn pickup(tide: &Tidegate) -> Result<Pickup> {
    let origin = Instant::now();
    let starts: Arc<Vec<AtomicU64>> = Arc::new((0..PICKUPS).map(|_| AtomicU64::new(0)).collect());
    let all = Arc::new((AtomicU64::new(0), Notify::new()));
    let handler = {
        let (starts, all) = (starts.clone(), all.clone());
        move |job: Pick, _: Context| {
            let (starts, all) = (starts.clone(), all.clone());
            async move {
                starts[job.number].store(origin.elapsed().as_nanos() as u64, Ordering::Relaxed);
                if all.0.fetch_add(1, Ordering::Relaxed) + 1 == PICKUPS as u64 {
                    all.1.notify_one();
                }
                Outcome::Ok(tidegate::Done::default())
            }
        }
    };
    let worker = Worker::new(tide).handle(handler).concurrency(10);
    let finished = all.clone();
    let running =
        tokio::spawn(async move { worker.run_until(async move { finished.1.notified().await }).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    // A task like any other of a program: the thread that waits for the end of `main` is none of the runtime's.
    let tide = tide.clone();
    let producing = tokio::spawn(async move {
        let mut sent = Vec::with_capacity(PICKUPS);
        let mut pace = tokio::time::interval(PICKUP_EVERY);
        for number in 0..PICKUPS {
            pace.tick().await;
            sent.push(origin.elapsed().as_nanos() as u64);
            tide.enqueue(Pick { number }).await?;
        }
        Ok::<_, tidegate::Error>(sent)
    });
    let sent = producing.await.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))??;
    running.await.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))??;
    let wait =
        |(sent, start): (u64, &AtomicU64)| start.load(Ordering::Relaxed).saturating_sub(sent) as f64 / 1e6;
    Ok(Pickup::of(sent.into_iter().zip(starts.iter()).map(wait).collect()))
}
