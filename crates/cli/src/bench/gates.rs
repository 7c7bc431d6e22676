//! `tidegate bench gates`: admissions through a set of four gates, and whether more passes than may.

mod load;
mod referee;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tidegate_core::why::grouped;
use tidegate_gates::{Backend, GatesError, InProcess, PgGates, PgGatesOptions, RedisGates, RedisOptions};

use self::load::{Measured, Micros};
use self::referee::Limited;
use self::turns::{Callers, Compared, Loads};
use super::figures::thousandths;
use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table};

/// Callers, each with one admission under way; as many connections on Redis.
const CALLERS: u64 = 50;
/// Callers of the crowd.
const CROWD: u64 = 1_000;
/// Domains, and waiters in one line, that must not slow the others down.
const DOMAINS: u64 = 1_000;
const WAITERS: u64 = 10_000;

/// Arguments of `tidegate bench gates`.
#[derive(Debug, Args)]
pub(crate) struct GatesArgs {
    /// Where the gates are: memory:, redis://… or postgres://…
    #[arg(long, value_name = "URL", default_value = "memory:")]
    gates: String,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

/// All figures of `bench gates`. The names are a contract.
#[derive(Debug, Serialize)]
struct Figures {
    gates: &'static str,
    seconds: u64,
    callers: u64,
    gates_per_admission: usize,
    admissions_per_s: f64,
    decision_us: Micros,
    /// Admissions beyond what a window or a pool promises, seen from outside.
    over_admitted: u64,
    /// Share of what the window allows that was used while more was wanted.
    utilisation: f64,
    limited: Limited,
    round_trips_per_admission: Option<f64>,
    domains_1000_per_s: f64,
    waiters_10000_per_s: f64,
    crowd_1000_us: Micros,
    /// Calls per second of a script that does nothing, by the same client.
    trivial_script_per_s: Option<f64>,
    /// Admit and settle calls per second against that.
    calls_against_trivial: Option<f64>,
}

/// Measures the gates at an address.
pub(super) async fn run(args: GatesArgs, output: &Output) -> Result<()> {
    let lasts = Duration::from_secs(args.seconds);
    let figures = match args.gates.split_once(':').map_or("", |(scheme, _)| scheme) {
        "memory" => alone(lasts, output).await,
        "redis" | "rediss" | "unix" | "redis+unix" => on_redis(&args.gates, lasts, output).await,
        "postgres" | "postgresql" => {
            let gates = on_a_postgres(&args.gates).await.map_err(failed)?;
            shared("postgres", &(Arc::new(gates) as Arc<dyn Backend>), lasts, output).await
        }
        _ => Err(GatesError::unknown_address(&args.gates)),
    };
    let figures = figures.map_err(failed)?;
    output.answer(&figures, || figures.table(output))
}

/// Gates at an address, under a name of their own: those that programs use there are let be.
pub(super) async fn connect(address: &str) -> Result<Arc<dyn Backend>, GatesError> {
    Ok(match address.split_once(':').map_or("", |(scheme, _)| scheme) {
        "memory" => Arc::new(InProcess::new()),
        "redis" | "rediss" | "unix" | "redis+unix" => Arc::new(on_a_redis(address).await?),
        "postgres" | "postgresql" => Arc::new(on_a_postgres(address).await?),
        _ => return Err(GatesError::unknown_address(address)),
    })
}

async fn on_a_redis(url: &str) -> Result<RedisGates, GatesError> {
    let connections = CALLERS as usize;
    let options = RedisOptions { prefix: "tg-bench".into(), connections, ..RedisOptions::default() };
    RedisGates::connect(url, options).await
}

async fn on_a_postgres(url: &str) -> Result<PgGates, GatesError> {
    PgGates::connect(url, PgGatesOptions::new().schema("tidegate_bench_gates")?).await
}

pub(super) fn failed(error: GatesError) -> Failure {
    let cause = std::error::Error::source(&error).map(|cause| format!("\n{cause}")).unwrap_or_default();
    Failure::new(error.code(), format!("{error}{cause}"))
}

async fn on_redis(url: &str, lasts: Duration, output: &Output) -> Result<Figures, GatesError> {
    let gates = Arc::new(on_a_redis(url).await?);
    output.note("a script that does nothing …");
    // Before and after, the better one: it is what the gates are held against.
    let before = load::trivial(&gates, CALLERS, lasts).await?;
    let mut figures = shared("redis", &(gates.clone() as Arc<dyn Backend>), lasts, output).await?;
    let trivial = before.max(load::trivial(&gates, CALLERS, lasts).await?);
    figures.round_trips_per_admission = Some(load::round_trips(&gates).await?);
    figures.trivial_script_per_s = Some(trivial.round());
    figures.calls_against_trivial = Some(thousandths(2.0 * figures.admissions_per_s / trivial));
    Ok(figures)
}

/// Gates behind a server: many callers at a time.
async fn shared(
    name: &'static str,
    gates: &Arc<dyn Backend>,
    lasts: Duration,
    output: &Output,
) -> Result<Figures, GatesError> {
    output.note("one domain, 10,000 waiters and 1,000 domains, in turns …");
    let loads = Loads::new(gates).await?;
    let compared = loads.compare(Callers::Many(CALLERS), lasts).await?;
    output.note("1,000 callers at once …");
    let crowd = loads.one().run(CROWD, lasts).await?;
    output.note("referee …");
    let seen = referee::watch(gates, lasts).await?;
    Ok(Figures::of(name, lasts, CALLERS, &compared, &crowd, seen))
}

/// Gates in this process: one thread, since a core is what they are measured by.
async fn alone(lasts: Duration, output: &Output) -> Result<Figures, GatesError> {
    let gates = Arc::new(InProcess::new());
    let shared: Arc<dyn Backend> = gates.clone();
    output.note("one domain, 10,000 waiters and 1,000 domains, in turns …");
    let loads = Loads::new(&shared).await?;
    let compared = loads.compare(Callers::Alone(&gates), lasts).await?;
    output.note("1,000 callers at once …");
    let crowd = loads.one().run(CROWD, lasts).await?;
    output.note("referee …");
    let seen = referee::watch(&shared, lasts).await?;
    let figures = Figures::of("memory", lasts, 1, &compared, &crowd, seen);
    Ok(Figures { round_trips_per_admission: Some(0.0), ..figures })
}

impl Figures {
    fn of(
        gates: &'static str,
        lasts: Duration,
        callers: u64,
        compared: &Compared,
        crowd: &Measured,
        limited: Limited,
    ) -> Self {
        Self {
            gates,
            seconds: lasts.as_secs(),
            callers,
            gates_per_admission: load::GATES,
            admissions_per_s: compared.one.per_s().round(),
            decision_us: compared.one.decision(),
            over_admitted: limited.over(),
            utilisation: thousandths(limited.utilisation()),
            limited,
            round_trips_per_admission: None,
            domains_1000_per_s: compared.domains.per_s().round(),
            waiters_10000_per_s: compared.line.per_s().round(),
            crowd_1000_us: crowd.decision(),
            trivial_script_per_s: None,
            calls_against_trivial: None,
        }
    }

    fn table(&self, output: &Output) -> String {
        let mut table =
            Table::new(vec![Column::fixed("FIGURE"), Column::number("VALUE"), Column::text("HOW", 20)]);
        let mut row = |name: &str, value: String, how: &str| table.row(vec![name.into(), value, how.into()]);
        let per_s = |n: f64| format!("{}/s", grouped(n as u64));
        let us = |n: f64| format!("{} µs", grouped(n.round() as u64));
        row("admissions", per_s(self.admissions_per_s), "four gates at once, each admission is settled");
        row("decision p50", us(self.decision_us.p50), "from asking to the answer");
        row("decision p99", us(self.decision_us.p99), "");
        row("1,000 callers, p99", us(self.crowd_1000_us.p99), "all at once");
        row("1,000 domains", per_s(self.domains_1000_per_s), "");
        row("10,000 waiters", per_s(self.waiters_10000_per_s), "in the line of the same gates");
        row("over-admitted", grouped(self.over_admitted), "in any window of a second, and of the slots");
        row("used", format!("{:.1} %", self.utilisation * 100.0), "of what a window allows, under demand");
        if let Some(trips) = self.round_trips_per_admission {
            row("round trips", format!("{trips:.3}"), "for each admission");
        }
        if let Some(share) = self.calls_against_trivial {
            row("against a script", format!("{share:.2} ×"), "calls, against one that does nothing");
        }
        table.render(output)
    }
}
