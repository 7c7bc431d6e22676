//! How many admissions a Redis server decides per second, against a script that does nothing, with the same client in the same
//! run: `gates_redis_speed [SECONDS]` starts a server of its own and prints one line of JSON per case.
//!
//! Each task admits a call through five gates (quota, breaker, smooth rate, reported bucket, slots) and settles it. `share` is
//! how many calls, admit and settle together, there were for each trivial `EVALSHA`.

#![expect(clippy::print_stdout, reason = "it prints its result")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tidegate_core::gates::config::{Breaker, Quota, Reported, Slots, Smooth};
use tidegate_core::gates::{
    Admission, Call, End, Gate, GateSet, Holder, Kind, Outcome, Part, Points, SECOND, Span, Target, Unit,
};
use tidegate_gates::{GateOperations, Gates, RedisGates, RedisOptions};
use tidegate_testbed::redis::Server;

const CONNECTIONS: usize = 50;
const WAITERS: u64 = 10_000;
/// Calls that a tenant may have at a time; in the domain with waiters few, so that these wait for long.
const QUOTA: u32 = 2_000;
const SMALL_QUOTA: u32 = 60;

fn set(quota: u32) -> GateSet {
    let smooth = Smooth { rate: 1_000_000, every: Span::secs(1), burst: 1_000_000, unit: Unit::Calls };
    let bucket = Reported { capacity: 1_000_000.0, restore_per_s: 1_000_000.0, known: true };
    let mut set = GateSet::of(vec![
        Gate::new("quota", Kind::Quota(Quota::slots(quota))).per(&[Part::Tenant]),
        Gate::new("breaker", Kind::Breaker(Breaker::default())),
        Gate::new("rate", Kind::Smooth(smooth)),
        Gate::new("points", Kind::Reported(bucket)),
        Gate::new("slots", Kind::Slots(Slots::of(2 * QUOTA))),
    ]);
    set.line.max = 2 * WAITERS as u32;
    set
}

fn call(domain: &str, tenant: &str, n: u64) -> Result<Call> {
    let target = Target::new(domain)?.with(Part::Tenant, tenant)?;
    Ok(Call::new(Arc::new(target), Holder::number(n)))
}

#[derive(Clone, Copy)]
struct Load {
    tasks: u64,
    domains: u64,
    /// The first of the domains.
    from: u64,
    lasts: Duration,
}

async fn pairs(gates: &Arc<RedisGates>, load: Load) -> Result<Vec<u64>> {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..load.tasks {
        let gates = gates.clone();
        tasks.spawn(async move {
            let (began, mut times, mut n) = (Instant::now(), Vec::new(), 0);
            let outcome = Outcome { actual: Some(Points::ONE), ..Outcome::of(End::Ok) };
            while began.elapsed() < load.lasts {
                n += 1;
                let domain = format!("d{}", load.from + (task * 7_919 + n) % load.domains);
                let call = call(&domain, "t", task * 10_000_000 + n)?;
                let asked = Instant::now();
                let reply = gates.admit(None, &call).await?;
                times.push(asked.elapsed().as_micros() as u64);
                let Admission::Admitted(admitted) = reply else { bail!("{reply:?}") };
                gates.settle(None, &admitted.permit, &outcome).await?;
            }
            Ok(times)
        });
    }
    collect(tasks).await
}

async fn trivial(server: &Server, lasts: Duration) -> Result<Vec<u64>> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let client = redis::Client::open(server.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let hash: String =
            redis::cmd("SCRIPT").arg("LOAD").arg("return 1").query_async(&mut connection).await?;
        tasks.spawn(async move {
            let (began, mut times) = (Instant::now(), Vec::new());
            while began.elapsed() < lasts {
                let asked = Instant::now();
                let mut command = redis::cmd("EVALSHA");
                command.arg(&hash).arg(1).arg("tg:{x}");
                let _: i64 = command.query_async(&mut connection).await?;
                times.push(asked.elapsed().as_micros() as u64);
            }
            Ok(times)
        });
    }
    collect(tasks).await
}

async fn collect(mut tasks: tokio::task::JoinSet<Result<Vec<u64>>>) -> Result<Vec<u64>> {
    let mut times = Vec::new();
    while let Some(done) = tasks.join_next().await {
        times.extend(done??);
    }
    times.sort_unstable();
    Ok(times)
}

/// Fills the quota of one tenant, and its line: others of the domain go on.
async fn fill_line(gates: &Arc<RedisGates>, domain: &str) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..100 {
        let (gates, domain) = (gates.clone(), domain.to_owned());
        tasks.spawn(async move {
            for n in 0..(u64::from(SMALL_QUOTA) + WAITERS) / 100 {
                let call = call(&domain, "full", (1 << 40) + n * 100 + task)?;
                gates.admit(None, &Call { lease: 3_600 * SECOND, ..call }).await?;
            }
            Ok(Vec::new())
        });
    }
    collect(tasks).await.map(drop)
}

async fn server_cost(server: &Server, command: &str) -> Result<f64> {
    let client = redis::Client::open(server.url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await?;
    let line = stats.lines().find(|l| l.starts_with(&format!("cmdstat_{command}:"))).unwrap_or_default();
    let cost = line.split(',').find_map(|p| p.strip_prefix("usec_per_call="));
    Ok(cost.and_then(|c| c.parse().ok()).unwrap_or(0.0))
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let secs = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(4.0);
    let lasts = Duration::from_secs_f64(secs);
    let server = Server::start(&[])?;
    let options = RedisOptions { connections: CONNECTIONS, ..RedisOptions::default() };
    let gates = Arc::new(RedisGates::connect(&server.url(), options).await?);
    for domain in 0..1_000 {
        gates.configure(&format!("d{domain}"), set(QUOTA)).await?;
    }
    gates.configure("d1000", set(SMALL_QUOTA)).await?;
    let load = Load { tasks: CONNECTIONS as u64, domains: 1, from: 0, lasts };
    let _warm = pairs(&gates, Load { domains: 1_001, lasts: lasts / 2, ..load }).await?;
    let mut nothing = 0.0;
    for (name, load) in [
        ("nothing", None),
        ("one domain", Some(load)),
        ("1,000 domains", Some(Load { domains: 1_000, ..load })),
        ("nothing", None),
        ("one domain", Some(load)),
        ("10,000 waiters", Some(Load { from: 1_000, ..load })),
        ("1,000 tasks", Some(Load { tasks: 1_000, ..load })),
    ] {
        if name == "10,000 waiters" {
            fill_line(&gates, "d1000").await?;
        }
        server.command("CONFIG RESETSTAT")?;
        let times = match load {
            None => trivial(&server, lasts).await?,
            Some(load) => pairs(&gates, load).await?,
        };
        let per_s = times.len() as f64 / secs;
        let (command, calls) = if load.is_none() { ("evalsha", per_s) } else { ("fcall", 2.0 * per_s) };
        if load.is_none() {
            nothing = per_s;
        }
        let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or(0);
        let line = serde_json::json!({
            "case": name, "per_s": per_s.round(), "share": (calls / nothing * 1_000.0).round() / 1_000.0,
            "p50_us": at(0.5), "p99_us": at(0.99), "server_us_per_call": server_cost(&server, command).await?,
        });
        println!("{line}");
    }
    Ok(())
}
