//! `tidegate bench neighbours`: whether a tenant that waits for its API costs the others anything. A hundred free tenants send
//! jobs at a steady pace, in turns alone, alone again, next to one more that sends as many as a limited one may run, and next to a limited
//! one with very many; a real clock, a real store. What it costs that one more runs is no matter of limits, and what lies between alone and
//! alone again is the machine's. What the limited one leaves behind is waited for in a turn that does not count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use tidegate::gates::{Answer, GateSettings, Note};
use tidegate::{Context, Job, Tidegate, Worker, done};
use tidegate_core::codes;
use tidegate_core::ids::{Seq, TenantId};
use tidegate_core::why::grouped;
use tidegate_store::params::Erase;
use tokio::task::JoinSet;

use super::figures::{Pickup, middle, thousandths};
use super::gates;
use super::jobs::Place;
use crate::config::Config;
use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table};

const FREE: u64 = 100;
const BUSY: &str = "busy";
/// A tick of the load: a job of each of so many free tenants, and one of the limited tenant on the API that does not limit it.
const TICK: Duration = Duration::from_millis(10);
const FREE_A_TICK: u64 = 10;
/// Jobs in one call while the limited tenant's are stored.
const BATCH: u64 = 1_000;
/// Before a turn is measured: what storing or erasing left to do is done.
const SETTLE: Duration = Duration::from_secs(2);
/// Ticks of a turn before it is measured: the first after a pause find everything asleep.
const WARM_UP: usize = 50;
/// How long the last jobs of a turn may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Arguments of `tidegate bench neighbours`.
#[derive(Debug, Args)]
pub(crate) struct NeighboursArgs {
    /// Jobs of the limited tenant
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000))]
    limited: u64,
    /// Calls a second that it is allowed
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rate: u64,
    /// Seconds of each turn
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Turns alone, as many alone again, next to one more free tenant, and next to the limited one
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=99))]
    turns: u64,
    /// Where the gates are: memory:, redis://… or postgres://…
    #[arg(long, value_name = "URL", default_value = "memory:")]
    gates: String,
}

/// A call to the API that limits one of the tenants.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(
    kind = "bench.orders",
    queue = "bench",
    connector = "bench-orders",
    description = "Asks a gate, measured"
)]
struct Orders {
    turn: u64,
    /// Which of the turn's jobs; only those of the free tenants are timed.
    number: Option<usize>,
}

/// A call to the other one.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(
    kind = "bench.books",
    queue = "bench",
    connector = "bench-books",
    description = "Asks a gate, measured"
)]
struct Books {
    turn: u64,
    number: usize,
}

/// Waits of one load in each turn. The turn in the middle counts: machines have moods.
#[derive(Debug, Default, Serialize)]
struct Waits {
    /// Milliseconds from just before the enqueue until the call is admitted.
    pickup_ms: Pickup,
    p99_turns_ms: Vec<f64>,
}

impl Waits {
    fn of(turns: &[Pickup]) -> Self {
        let of = |p: fn(&Pickup) -> f64| turns.iter().map(p).collect::<Vec<_>>();
        let pickup_ms =
            Pickup { p50: middle(&of(|t| t.p50)), p95: middle(&of(|t| t.p95)), p99: middle(&of(|t| t.p99)) };
        Self { pickup_ms, p99_turns_ms: of(|t| t.p99) }
    }
}

/// Figures of `bench neighbours`. The names are a contract.
#[derive(Debug, Serialize)]
struct Figures {
    store: String,
    gates: String,
    seconds: u64,
    limited_jobs: u64,
    limited_rate_per_s: u64,
    free_tenants: u64,
    free_per_s: u64,
    free_alone: Waits,
    /// Next to one more that runs as many jobs as the limited one may, and has none waiting.
    free_busy: Waits,
    free_beside: Waits,
    /// Next to the limited one against alone, and against next to one that does as much.
    free_p99_ratio: f64,
    free_p99_ratio_busy: f64,
    /// Alone again against alone: how far two turns of the same lie apart here.
    free_p99_ratio_noise: f64,
    /// The limited tenant's jobs on the API that does not limit it.
    other_api_alone: Waits,
    other_api_beside: Waits,
    other_api_p99_ratio: f64,
    limited_admitted: u64,
    /// Share of what the limited tenant is allowed that it used.
    limited_used: f64,
    /// Jobs claimed and put back, for each admission of the limited tenant.
    returned_per_admission: f64,
    lost: u64,
    duplicated: u64,
}

/// Who is there besides the free tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Besides {
    Nobody,
    NobodyAgain,
    Busy,
    Limited,
    /// Nobody but what the limited one left to do, so that it counts for nothing.
    Remains,
}

impl Besides {
    const ALL: [Self; 5] = [Self::Nobody, Self::NobodyAgain, Self::Busy, Self::Limited, Self::Remains];

    /// The turns of a round, there and back: what gets slower meanwhile meets all alike.
    fn of_round(round: u64) -> [Self; 5] {
        if round.is_multiple_of(2) {
            Self::ALL
        } else {
            [Self::Limited, Self::Remains, Self::Busy, Self::NobodyAgain, Self::Nobody]
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Nobody => "alone",
            Self::NobodyAgain => "alone again",
            Self::Busy => "next to one more",
            Self::Limited => "next to the limited tenant",
            Self::Remains => "next to what the limited tenant left behind (not counted)",
        }
    }
}

/// What the handlers of a turn saw.
#[derive(Default)]
struct Seen {
    /// The turn's beginning, and by number when a job was admitted: nanoseconds after it, or 0.
    turn: Mutex<Option<Turn>>,
    limited: AtomicU64,
    twice: AtomicU64,
}

#[derive(Clone)]
struct Turn {
    number: u64,
    began: Instant,
    orders: Arc<Vec<AtomicU64>>,
    books: Arc<Vec<AtomicU64>>,
}

impl Seen {
    fn admitted(&self, turn: u64, number: usize, of: impl Fn(&Turn) -> &Arc<Vec<AtomicU64>>) {
        let current = self.turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        // One that comes after its turn has been counted as lost.
        let Some(turn) = current.filter(|current| current.number == turn) else { return };
        let at = turn.began.elapsed().as_nanos() as u64;
        if of(&turn)[number].swap(at, Ordering::Relaxed) != 0 {
            self.twice.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn begin(&self, turn: Turn) {
        *self.turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(turn);
    }
}

/// Measures on the store that a flag names, which must be empty, or in a temporary directory.
pub(super) async fn run(args: NeighboursArgs, config: &Config, output: &Output) -> Result<()> {
    let needs = args.rate.saturating_mul(args.seconds + 2);
    if args.limited <= needs {
        let detail = format!("{} jobs are not enough to be limited for a whole turn", grouped(args.limited));
        let hint = format!("give more than {} (--limited), or less of a rate (--rate)", grouped(needs));
        return Err(Failure::new(codes::INVALID_REQUEST, detail).hint(hint));
    }
    let place = Place::of(config).await?;
    let store = place.open(config).await?;
    let rate = args.rate;
    let limit = |turn| format!("overrides.{}.window = {{ max = {rate}, every = \"1s\" }}", limited(turn));
    let limits = (0..args.turns).map(limit).collect::<Vec<_>>().join("\n");
    let settings = GateSettings::from_toml(&format!(
        r#"
        [[gates.bench-orders.gates]]
        name = "calls"
        per = ["tenant"]
        gate.window = {{ max = 1000000, every = "1s" }}
        {limits}
        [[gates.bench-books.gates]]
        name = "calls"
        gate.slots = {{ limit = 1000 }}
        "#
    ))?;
    let gates = gates::connect(&args.gates).await.map_err(gates::failed)?;
    let tide = Tidegate::with_store(store.clone()).gates_with(gates.clone(), settings).await?;
    for domain in ["bench-orders", "bench-books"] {
        // What an earlier run left behind.
        let note = Note { who: "tidegate bench".into(), why: "a run begins".into() };
        gates.clear(domain, false, note).await.map_err(gates::failed)?;
    }
    tide.register::<Orders>().await?;
    tide.register::<Books>().await?;
    let seen = Arc::new(Seen::default());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(worker(&tide, &seen).run_until(async move { drop(stopped.await) }));

    let mut measured = Besides::ALL.map(|_| Measured::default());
    let (mut allowed, mut used) = (0.0, 0);
    for round in 0..args.turns {
        for (step, besides) in (0..).zip(Besides::of_round(round)) {
            let tenant = limited(round);
            output.note(&format!("free tenants {}, turn {} of {} …", besides.what(), round + 1, args.turns));
            let (admitted, filled) = (seen.limited.load(Ordering::Relaxed), Instant::now());
            if besides == Besides::Limited {
                fill(&tide, &tenant, args.limited).await?;
            }
            tokio::time::sleep(SETTLE).await;
            let busy = if besides == Besides::Busy { args.rate } else { 0 };
            measured[besides as usize].add(
                load(
                    &tide,
                    &seen,
                    Load {
                        turn: round * Besides::ALL.len() as u64 + step,
                        tenant: &tenant,
                        busy,
                        seconds: args.seconds,
                    },
                )
                .await?,
            );
            if besides == Besides::Limited {
                let ran = seen.limited.load(Ordering::Relaxed) - admitted;
                if ran >= args.limited {
                    return Err(Failure::new(codes::INVALID_REQUEST, "the limited tenant ran out of jobs")
                        .hint("give it more (--limited), or less of a rate (--rate)"));
                }
                // The window is empty at the beginning.
                allowed += (filled.elapsed().as_secs_f64() + 1.0) * args.rate as f64;
                used += ran;
                erase(&tide, &tenant).await?;
            }
        }
    }
    drop(stop);
    let report = working.await.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))??;
    let left = store.totals().await?;
    tide.close().await?;

    let limited = seen.limited.load(Ordering::Relaxed);
    let ratio = |beside: &Waits, alone: &Waits| thousandths(beside.pickup_ms.p99 / alone.pickup_ms.p99);
    let [free_first, free_again, free_busy, free_beside, _] =
        measured.each_ref().map(|m| Waits::of(&m.orders));
    let [other_first, other_again, _, other_beside, _] = measured.each_ref().map(|m| &m.books);
    let both = |first: &[Pickup], again: &[Pickup]| Waits::of(&[first, again].concat());
    let free_alone = both(&measured[0].orders, &measured[1].orders);
    let (other_alone, other_beside) = (both(other_first, other_again), Waits::of(other_beside));
    let figures = Figures {
        store: place.shown(),
        gates: args.gates.split(':').next().unwrap_or_default().to_owned(),
        seconds: args.seconds,
        limited_jobs: args.limited,
        limited_rate_per_s: args.rate,
        free_tenants: FREE,
        free_per_s: FREE_A_TICK * 1_000 / TICK.as_millis() as u64,
        free_p99_ratio: ratio(&free_beside, &free_alone),
        free_p99_ratio_busy: ratio(&free_beside, &free_busy),
        free_p99_ratio_noise: ratio(&free_again, &free_first),
        free_alone,
        free_busy,
        free_beside,
        other_api_p99_ratio: ratio(&other_beside, &other_alone),
        other_api_alone: other_alone,
        other_api_beside: other_beside,
        limited_admitted: limited,
        limited_used: thousandths(used as f64 / allowed),
        returned_per_admission: thousandths(report.waited as f64 / limited.max(1) as f64),
        lost: measured.iter().map(|m| m.lost).sum::<u64>() + left.dead,
        duplicated: seen.twice.load(Ordering::Relaxed),
    };
    output.answer(&figures, || figures.table(output))
}

fn worker(tide: &Tidegate, seen: &Arc<Seen>) -> Worker {
    let (orders, books) = (seen.clone(), seen.clone());
    Worker::new(tide)
        .concurrency(100)
        .handle(move |job: Orders, cx: Context| {
            let seen = orders.clone();
            async move {
                let permit = cx.gate("bench-orders").admit().await?;
                match job.number {
                    Some(number) => seen.admitted(job.turn, number, |turn| &turn.orders),
                    None if cx.tenant().is_some_and(|tenant| tenant.as_str() == BUSY) => {}
                    None => drop(seen.limited.fetch_add(1, Ordering::Relaxed)),
                }
                permit.settle(Answer::ok()).await?;
                done()
            }
        })
        .handle(move |job: Books, cx: Context| {
            let seen = books.clone();
            async move {
                let permit = cx.gate("bench-books").admit().await?;
                seen.admitted(job.turn, job.number, |turn| &turn.books);
                permit.settle(Answer::ok()).await?;
                done()
            }
        })
}

/// The limited tenant of a turn: each has another, because the places in line of jobs that were erased stay for a while.
fn limited(turn: u64) -> String {
    format!("limited-{turn}")
}

async fn fill(tide: &Tidegate, tenant: &str, jobs: u64) -> Result<()> {
    let mut left = jobs;
    while left > 0 {
        let n = left.min(BATCH);
        tide.enqueue_many((0..n).map(|_| tide.enqueue(Orders { turn: 0, number: None }).tenant(tenant)))
            .await?;
        left -= n;
    }
    Ok(())
}

/// Erases what the limited tenant has left. A job that it has running is met by the second pass or runs.
async fn erase(tide: &Tidegate, tenant: &str) -> Result<()> {
    for _ in 0..2 {
        let mut after = Some(Seq(0));
        while let Some(from) = after {
            let erase = Erase { tenant: TenantId::new(tenant)?, after: from, scan: 5_000, now: tide.now() };
            after = tide.store().erase(erase).await?.next;
        }
    }
    Ok(())
}

/// What was measured in all turns of one kind.
#[derive(Default)]
struct Measured {
    orders: Vec<Pickup>,
    books: Vec<Pickup>,
    lost: u64,
}

impl Measured {
    fn add(&mut self, (orders, books): (Vec<Option<f64>>, Vec<Option<f64>>)) {
        self.lost += orders.iter().chain(&books).filter(|wait| wait.is_none()).count() as u64;
        let warm = |waits: Vec<Option<f64>>, a_tick: usize| {
            Pickup::of(waits.into_iter().skip(WARM_UP * a_tick).flatten().collect())
        };
        self.orders.push(warm(orders, FREE_A_TICK as usize));
        self.books.push(warm(books, 1));
    }
}

/// A turn.
struct Load<'a> {
    turn: u64,
    /// Who has jobs on the other API.
    tenant: &'a str,
    /// Jobs a second of one more tenant.
    busy: u64,
    seconds: u64,
}

/// One turn of the load: how long each job waited, by number; `None` for one that did not come.
async fn load(
    tide: &Tidegate,
    seen: &Arc<Seen>,
    Load { turn: number_of_turn, tenant, busy, seconds }: Load<'_>,
) -> Result<(Vec<Option<f64>>, Vec<Option<f64>>)> {
    let ticks = (seconds * 1_000 / TICK.as_millis() as u64) as usize;
    let zeros = |n: usize| Arc::new((0..n).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let orders = ticks * FREE_A_TICK as usize;
    let turn =
        Turn { number: number_of_turn, began: Instant::now(), orders: zeros(orders), books: zeros(ticks) };
    seen.begin(turn.clone());
    let sent = Turn { orders: zeros(orders), books: zeros(ticks), ..turn.clone() };
    let mut callers = JoinSet::new();
    let mut pace = tokio::time::interval(TICK);
    for tick in 0..ticks {
        pace.tick().await;
        for number in (0..FREE_A_TICK as usize).map(|n| tick * FREE_A_TICK as usize + n) {
            let (tide, sent) = (tide.clone(), sent.clone());
            callers.spawn(async move {
                sent.orders[number].store(sent.began.elapsed().as_nanos() as u64, Ordering::Relaxed);
                let tenant = format!("free-{}", number as u64 % FREE);
                tide.enqueue(Orders { turn: number_of_turn, number: Some(number) }).tenant(tenant).await
            });
        }
        let until = |tick: usize| busy * tick as u64 * TICK.as_millis() as u64 / 1_000;
        for _ in until(tick)..until(tick + 1) {
            let tide = tide.clone();
            callers.spawn(async move {
                tide.enqueue(Orders { turn: number_of_turn, number: None }).tenant(BUSY).await
            });
        }
        let (tide, sent, tenant) = (tide.clone(), sent.clone(), tenant.to_owned());
        callers.spawn(async move {
            sent.books[tick].store(sent.began.elapsed().as_nanos() as u64, Ordering::Relaxed);
            tide.enqueue(Books { turn: number_of_turn, number: tick }).tenant(tenant).await
        });
        while let Some(done) = callers.try_join_next() {
            done.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))??;
        }
    }
    while let Some(done) = callers.join_next().await {
        done.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))??;
    }
    let patience = Instant::now() + PATIENCE;
    let came = |at: &AtomicU64| at.load(Ordering::Relaxed) != 0;
    while Instant::now() < patience && !turn.orders.iter().chain(turn.books.iter()).all(came) {
        tokio::time::sleep(TICK).await;
    }
    let waits = |sent: &[AtomicU64], admitted: &[AtomicU64]| {
        let wait = |(sent, admitted): (&AtomicU64, &AtomicU64)| {
            let waited = admitted.load(Ordering::Relaxed).saturating_sub(sent.load(Ordering::Relaxed));
            came(admitted).then_some(waited as f64 / 1e6)
        };
        sent.iter().zip(admitted).map(wait).collect()
    };
    Ok((waits(&sent.orders, &turn.orders), waits(&sent.books, &turn.books)))
}

impl Figures {
    fn table(&self, output: &Output) -> String {
        let columns = ["p50", "p99", "p99 OF EACH TURN"];
        let mut table = Table::new(vec![
            Column::text("JOBS OF", 24),
            Column::number(columns[0]),
            Column::number(columns[1]),
            Column::text(columns[2], 20),
        ]);
        let ms = |n: f64| format!("{n:.2} ms");
        let mut row = |name: &str, waits: &Waits| {
            let turns: Vec<_> = waits.p99_turns_ms.iter().map(|n| format!("{n:.2}")).collect();
            table.row(vec![name.into(), ms(waits.pickup_ms.p50), ms(waits.pickup_ms.p99), turns.join(" ")]);
        };
        row("free tenants, alone", &self.free_alone);
        row("beside one more", &self.free_busy);
        row("beside the limited one", &self.free_beside);
        row("its other API, alone", &self.other_api_alone);
        row("beside its limited jobs", &self.other_api_beside);
        format!(
            "{}\n{} jobs of a tenant that is allowed {} calls a second, next to {} free ones with {} a second.\n\
             p99 of the free {:.2} × of alone (alone again: {:.2} ×) and {:.2} × of beside one that runs as many jobs, of its other API {:.2} ×. It used {:.1} % of what it is allowed; {:.2} jobs were claimed and put \
             back for each admission. Lost {}, run twice {}.",
            table.render(output),
            grouped(self.limited_jobs),
            grouped(self.limited_rate_per_s),
            grouped(self.free_tenants),
            grouped(self.free_per_s),
            self.free_p99_ratio,
            self.free_p99_ratio_noise,
            self.free_p99_ratio_busy,
            self.other_api_p99_ratio,
            self.limited_used * 100.0,
            self.returned_per_admission,
            self.lost,
            self.duplicated,
        )
    }
}
