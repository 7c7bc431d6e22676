//! `tidegate demo`: a realistic load on an empty store for a few seconds, with everything that goes wrong on an
//! ordinary day, and at the end a proof that nothing was lost.

mod faults;
mod handlers;
mod ledger;
mod live;
mod load;
mod scenario;
mod summary;
mod verify;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tempfile::TempDir;
use tidegate::{Tidegate, Worker};
use tidegate_core::codes;
use tidegate_core::job::State;
use tidegate_store::params::JobQuery;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use faults::{CancelledJobs, Imports};
use ledger::Ledger;
use summary::Summary;
use verify::Evidence;

use crate::config::Config;
use crate::data::{self, Data, Target};
use crate::error::{Failure, Result};
use crate::output::Output;

/// Shortest demo in which the poison story must come to its end: one batch and three lone leases of a second each,
/// with time to spare.
const POISON_NEEDS: Duration = Duration::from_secs(8);
/// How long the end waits for what is still held.
const SETTLE: Duration = Duration::from_secs(5);
/// Time between two looks at something that is about to happen.
const LOOK: Duration = Duration::from_millis(50);
/// Handlers running at a time.
const CONCURRENCY: usize = 96;

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How long the load lasts
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Go on until Ctrl-C
    #[arg(long)]
    keep: bool,
}

/// Runs the demo. The exit code is 1 if an invariant does not hold.
pub(crate) async fn run(args: DemoArgs, config: &Config, output: &Output) -> Result<ExitCode> {
    let place = Place::open(config).await?;
    let tide = Tidegate::with_store(place.data.store.clone());
    let ledger = Arc::new(Ledger::default());
    let (run, took) = load(&tide, &ledger, &args, output).await?;
    settle(&tide).await?;

    let fairness = verify::fairness(&ledger);
    let found = verify::look_up(&tide, ledger.ids()).await?;
    let evidence = Evidence {
        tide: &tide,
        ledger: &ledger,
        found,
        totals: tide.store().totals().await?,
        imports: &run.imports,
        cancelled: run.cancelled,
        fairness: &fairness,
        poison_must_end: took >= POISON_NEEDS,
    };
    let verdicts = verify::verdicts(&evidence).await?;
    let sample = sample(&tide).await?;
    place.data.close().await?;
    let summary = Summary {
        ledger: &ledger,
        found,
        fairness: &fairness,
        verdicts: &verdicts,
        took_ms: took.as_millis() as u64,
        kept: place.kept(),
        sample,
    };
    output.answer(&summary.json(), || summary.text(output))?;
    Ok(if summary.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where the demo keeps its data: the store that a flag names, which must be empty, or a temporary directory, which
/// goes with this. Never the usual store.
struct Place {
    data: Data,
    temporary: Option<TempDir>,
}

impl Place {
    async fn open(config: &Config) -> Result<Self> {
        if let Some(data) = data::named_and_empty(config, "the demo").await? {
            return Ok(Self { data, temporary: None });
        }
        let dir = tempfile::Builder::new().prefix("tidegate-demo-").tempdir()?;
        let data = data::open(Target::Directory(dir.path().to_owned()), config).await?;
        Ok(Self { data, temporary: Some(dir) })
    }

    /// How to name the store on the command line, if it stays.
    fn kept(&self) -> Option<String> {
        match &self.data.target {
            _ if self.temporary.is_some() => None,
            Target::Memory => None,
            Target::Directory(dir) => Some(format!("--dir {}", dir.display())),
            target => Some(format!("--store {}", target.shown())),
        }
    }
}

/// What the run left behind for the verdicts.
struct Run {
    imports: Imports,
    cancelled: Option<CancelledJobs>,
}

/// Puts the load on, lets things go wrong, and takes it off again.
async fn load(
    tide: &Tidegate,
    ledger: &Arc<Ledger>,
    args: &DemoArgs,
    output: &Output,
) -> Result<(Run, Duration)> {
    for name in scenario::QUEUES {
        tide.store().put_queue(scenario::queue(name)?, scenario::settings(name), tide.now()).await?;
    }
    let lasts = Duration::from_secs(args.seconds);
    let (stop_load, load_stopped) = watch::channel(false);
    let (stop_all, all_stopped) = watch::channel(false);
    let started = Instant::now();

    let screen =
        tokio::spawn(live::show(tide.clone(), ledger.clone(), *output, args.seconds, all_stopped.clone()));
    let imports = faults::enqueue_imports(tide, ledger).await?;
    let mortal = faults::mortal_workers(tide.clone(), ledger.clone(), imports.clone(), all_stopped.clone());
    let mortal = tokio::spawn(mortal);
    let worker = tokio::spawn(work(tide.clone(), ledger.clone(), all_stopped.clone()));
    load::backlog(tide, ledger, scenario::BACKLOG_PER_SECOND * args.seconds).await?;
    let trickle = tokio::spawn(load::trickle(tide.clone(), ledger.clone(), load_stopped));
    let cancels = tokio::spawn(faults::operator_cancels(tide.clone(), ledger.clone(), lasts.mul_f64(0.3)));
    let parks = tokio::spawn(faults::operator_parks(
        tide.clone(),
        ledger.clone(),
        lasts.mul_f64(0.25),
        lasts.mul_f64(0.3),
    ));

    // The last fifth is for working off what is there.
    let keep_going = args.keep;
    tokio::select! {
        () = tokio::time::sleep_until((started + lasts.mul_f64(0.8)).into()), if !keep_going => {}
        _ = tokio::signal::ctrl_c() => ledger.event(tide.now(), "Ctrl-C: finishing what runs, then the verdicts"),
    }
    stop_load.send_replace(true);
    joined(trickle).await?;
    let interrupted = started.elapsed() < lasts.mul_f64(0.8);
    if !interrupted && !keep_going {
        tokio::time::sleep_until((started + lasts).into()).await;
    }
    let cancelled = if interrupted && !cancels.is_finished() {
        cancels.abort();
        None
    } else {
        Some(joined(cancels).await?)
    };
    if interrupted {
        parks.abort();
        ledger.park_holds.store(false, std::sync::atomic::Ordering::SeqCst);
    } else {
        joined(parks).await?;
    }
    let long = started.elapsed() >= POISON_NEEDS;
    let patience = Instant::now() + SETTLE;
    while Instant::now() < patience {
        let sleeper_came_back = ledger::read(&ledger.stale_tried) > 0;
        if sleeper_came_back && (!long || faults::poison_is_over(tide, &imports).await?) {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    let took = started.elapsed();
    stop_all.send_replace(true);
    joined(worker).await?;
    joined(mortal).await?;
    joined(screen).await?;
    Ok((Run { imports, cancelled }, took))
}

/// The worker with its handlers, until told to stop.
async fn work(tide: Tidegate, ledger: Arc<Ledger>, mut stop: watch::Receiver<bool>) -> Result<()> {
    let [a, b, c, d] = [(); 4].map(|()| ledger.clone());
    let worker = Worker::new(&tide)
        .handle(move |job, cx| handlers::send_invoice(job, cx, a.clone()))
        .handle(move |job, cx| handlers::match_payment(job, cx, b.clone()))
        .handle(move |job, cx| handlers::sync_catalog(job, cx, c.clone()))
        .handle(move |job, cx| handlers::build_report(job, cx, d.clone()))
        .concurrency(CONCURRENCY)
        .name("demo")
        .drain("3s")
        .grace("500ms");
    // A sender that is gone means the same as a stop.
    let stopped = async move { drop(stop.wait_for(|stopped| *stopped).await) };
    worker.run_until(stopped).await?;
    Ok(())
}

/// Waits until no lease is left: those of the dead run out within a second.
async fn settle(tide: &Tidegate) -> Result<()> {
    let patience = Instant::now() + SETTLE;
    while Instant::now() < patience {
        tide.store().advance(tide.now()).await?;
        if tide.store().totals().await?.running == 0 {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// A dead letter to look at.
async fn sample(tide: &Tidegate) -> Result<Option<String>> {
    let query = JobQuery { states: vec![State::Dead], limit: 1, ..JobQuery::default() };
    let page = tide.store().search(query).await?;
    Ok(page.jobs.first().map(|job| job.id.to_string()))
}

async fn joined<T>(task: JoinHandle<Result<T>>) -> Result<T> {
    task.await.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))?
}
