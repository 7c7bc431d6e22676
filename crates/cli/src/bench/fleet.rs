//! `tidegate bench jobs --processes N`: one store, filled by this process, emptied by child processes; one of them
//! against N, in turns, so that both meet the same machine.
//!
//! A child says `ready` when its store stands, works from `go` on, tells how many handlers it has run, and after
//! `stop` says `end` and what it completed, when that is on disk.

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tidegate::{Context, Tidegate, Worker, done};
use tidegate_core::codes;
use tidegate_core::why::grouped;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::mpsc;

use super::figures::middle;
use super::jobs::{self, NoOp};
use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table};

/// Turns of one process and of all. The one in the middle counts: a machine that others use, too, is a third faster in one turn
/// than in the next, and the best of a few turns says which of the two met the better moment.
const ROUNDS: usize = 7;
/// How often a child tells its progress: each time costs a little, and four of them four times as much.
const TELL: Duration = Duration::from_millis(20);
/// Time without progress after which something is wrong.
const STALL: Duration = Duration::from_secs(30);

/// Figures of `bench jobs --processes`. The names are a contract.
#[derive(Debug, Serialize)]
struct Figures {
    store: String,
    jobs: u64,
    processes: u32,
    concurrency: u32,
    process_one_per_s: f64,
    process_per_s: f64,
    /// Every turn, in order.
    process_one_turns_per_s: Vec<f64>,
    process_turns_per_s: Vec<f64>,
    lost: u64,
    duplicated: u64,
}

/// Arguments of the hidden `bench drain`.
#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[arg(long)]
    concurrency: u32,
}

/// Measures one process and several.
pub(super) async fn run(
    jobs: u64,
    processes: u32,
    concurrency: u32,
    config: &Config,
    output: &Output,
) -> Result<()> {
    let Some(empty) = data::named_and_empty(config, "the benchmark").await? else {
        return Err(Failure::new(codes::INVALID_REQUEST, "--processes needs --store"));
    };
    let target = empty.target.clone();
    if !target.is_shared() {
        empty.close().await?;
        return Err(Failure::new(codes::INVALID_REQUEST, format!("one process owns {}", target.shown()))
            .hint("--processes needs a store that processes share: postgres://… or http://…"));
    }
    empty.close().await?;
    let (mut one, mut all, mut handled) = (vec![], vec![], 0);
    for round in 0..ROUNDS {
        let mut turns = [(1, &mut one), (processes, &mut all)];
        // What the store has grown by, and a machine that gets slower, meets both alike.
        if round % 2 == 1 {
            turns.reverse();
        }
        for (count, rates) in turns {
            output.note(&format!("{count} of {processes} processes, round {} of {ROUNDS} …", round + 1));
            // Closed before the others work: a process that has the store open follows all that they do, and would be one more.
            let tide = open(config).await?;
            tide.register::<NoOp>().await?;
            jobs::enqueue_bulk(&tide, handled, jobs, jobs::GROUPS).await?;
            tide.close().await?;
            let (elapsed, ran) = emptied(jobs, count, concurrency, config).await?;
            rates.push(jobs::per_s(jobs, elapsed));
            handled += ran;
        }
    }
    let tide = open(config).await?;
    let totals = tide.store().totals().await?;
    tide.close().await?;
    let enqueued = jobs * 2 * ROUNDS as u64;
    let figures = Figures {
        store: target.shown(),
        jobs,
        processes,
        concurrency,
        process_one_per_s: middle(&one),
        process_per_s: middle(&all),
        process_one_turns_per_s: one,
        process_turns_per_s: all,
        lost: (totals.ready + totals.running + totals.scheduled + totals.dead)
            .max(enqueued.saturating_sub(handled)),
        duplicated: handled.saturating_sub(enqueued),
    };
    output.answer(&figures, || figures.table(output))
}

async fn open(config: &Config) -> Result<Tidegate> {
    Ok(Tidegate::with_store(data::open_or_create(config).await?.store))
}

impl Figures {
    fn table(&self, output: &Output) -> String {
        let per_s = |n: f64| format!("{}/s", grouped(n as u64));
        let mut table = Table::new(vec![
            Column::text("PROCESSES", 20),
            Column::number("JOBS"),
            Column::text("TURNS, PER SECOND", 20),
        ]);
        let turns = |rates: &[f64]| rates.iter().map(|n| grouped(*n as u64)).collect::<Vec<_>>().join(" ");
        let one = turns(&self.process_one_turns_per_s);
        table.row(vec!["1".into(), per_s(self.process_one_per_s), one]);
        let all = turns(&self.process_turns_per_s);
        table.row(vec![format!("{} together", self.processes), per_s(self.process_per_s), all]);
        table.row(vec!["lost".into(), grouped(self.lost), String::new()]);
        table.row(vec!["run twice".into(), grouped(self.duplicated), String::new()]);
        table.render(output)
    }
}

/// Lets so many processes work until all jobs have run. Returns the time until everything is settled, and how many
/// times a handler ran.
async fn emptied(jobs: u64, count: u32, concurrency: u32, config: &Config) -> Result<(Duration, u64)> {
    let mut crew = Vec::new();
    for _ in 0..count {
        crew.push(Member::spawn(concurrency, config)?);
    }
    for member in &mut crew {
        member.expect("ready").await?;
    }
    let (sender, mut progress) = mpsc::channel(1_024);
    let started = Instant::now();
    let mut inputs = Vec::new();
    let mut readers = tokio::task::JoinSet::new();
    for (place, mut member) in crew.into_iter().enumerate() {
        member.input.write_all(b"go\n").await?;
        inputs.push(member.input);
        let sender = sender.clone();
        readers.spawn(follow(place, member.child, member.lines, sender));
    }
    drop(sender);
    let mut ran = vec![0; count as usize];
    let mut ended = 0;
    while ended < count {
        let news = tokio::time::timeout(STALL, progress.recv()).await;
        match news
            .map_err(|_| Failure::new(codes::INTERNAL, format!("no progress for {} s", STALL.as_secs())))?
        {
            Some(News::Ran(place, n)) => {
                ran[place] = n;
                if ran.iter().sum::<u64>() >= jobs {
                    // A child that is told twice has ended by then.
                    for mut input in inputs.drain(..) {
                        input.write_all(b"stop\n").await?;
                    }
                }
            }
            Some(News::Ended(place, n)) => {
                ran[place] = n;
                ended += 1;
            }
            None => return Err(Failure::new(codes::INTERNAL, "a child process failed")),
        }
    }
    let elapsed = started.elapsed();
    while let Some(child) = readers.join_next().await {
        child.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))??;
    }
    Ok((elapsed, ran.iter().sum()))
}

/// What a child says.
enum News {
    Ran(usize, u64),
    Ended(usize, u64),
}

struct Member {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Member {
    fn spawn(concurrency: u32, config: &Config) -> Result<Self> {
        let mut child = tokio::process::Command::new(std::env::current_exe()?)
            .args(["bench", "drain", "--concurrency", &concurrency.to_string()])
            // Not as flags: `ps` would show a password.
            .env("TIDEGATE_STORE", config.text("store").unwrap_or_default())
            .env("TIDEGATE_KEY", config.text("key").unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new(codes::INTERNAL, "a child process has no pipes"));
        };
        Ok(Self { child, input, lines: BufReader::new(output).lines() })
    }

    async fn expect(&mut self, word: &str) -> Result<()> {
        match self.lines.next_line().await? {
            Some(line) if line == word => Ok(()),
            _ => Err(Failure::new(codes::INTERNAL, "a child process could not open the store")),
        }
    }
}

/// Passes on what a child says, until it ends.
async fn follow(
    place: usize,
    mut child: Child,
    mut lines: Lines<BufReader<ChildStdout>>,
    news: mpsc::Sender<News>,
) -> Result<()> {
    while let Some(line) = lines.next_line().await? {
        let said = match line.split_once(' ') {
            Some(("end", n)) => News::Ended(place, n.parse().unwrap_or_default()),
            _ => News::Ran(place, line.parse().unwrap_or_default()),
        };
        if news.send(said).await.is_err() {
            break;
        }
    }
    if child.wait().await?.success() {
        Ok(())
    } else {
        Err(Failure::new(codes::INTERNAL, "a child process failed"))
    }
}

/// A child: works from `go` to `stop`.
pub(super) async fn drain(args: DrainArgs, config: &Config) -> Result<()> {
    let tide = open(config).await?;
    tide.register::<NoOp>().await?;
    let mut orders = orders();
    say("ready")?;
    if orders.recv().await.is_none() {
        return Ok(()); // the parent is gone
    }
    let ran = Arc::new(AtomicU64::new(0));
    let handler = {
        let ran = ran.clone();
        move |_: NoOp, _: Context| {
            ran.fetch_add(1, Ordering::Relaxed);
            async { done() }
        }
    };
    let worker = Worker::new(&tide).handle(handler).concurrency(args.concurrency as usize);
    let teller = tokio::spawn(tell(ran));
    // A parent that is gone sends nothing more.
    let report = worker.run_until(async move { drop(orders.recv().await) }).await?;
    teller.abort();
    say(&format!("end {}", report.completed))?;
    Ok(tide.close().await?)
}

/// Says how many handlers have run, whenever that has changed.
async fn tell(ran: Arc<AtomicU64>) {
    let mut told = 0;
    let mut pace = tokio::time::interval(TELL);
    loop {
        pace.tick().await;
        let now = ran.load(Ordering::Relaxed);
        if now != told && say(&now.to_string()).is_err() {
            return;
        }
        told = now;
    }
}

/// Lines from the parent, until it closes the pipe. A thread, because reading blocks; it ends with the process.
fn orders() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(4);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(std::result::Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn say(line: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}
