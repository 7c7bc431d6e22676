//! How many admissions a Redis server decides per second, against scripts that do nothing, with the same client in the same
//! run. Not a test of the machine: run it by hand with `--run-ignored only --no-capture`.

#![expect(clippy::unwrap_used, reason = "a measurement ends where anything fails")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::gates::config::{Breaker, Quota, Reported, Slots, Smooth};
use tidegate_core::gates::{
    Admission, Call, End, Gate, GateSet, Holder, Kind, Outcome, Part, Points, Span, Target, Unit,
};
use tidegate_gates::{GateOperations, Gates, RedisGates, RedisOptions};
use tidegate_testbed::redis::Server;

const TASKS: u64 = 50;
const LASTS: Duration = Duration::from_secs(4);

fn set(limit: u32) -> GateSet {
    let smooth = Smooth { rate: 1_000_000, every: Span::secs(1), burst: 1_000_000, unit: Unit::Calls };
    let bucket = Reported { capacity: 1_000_000.0, restore_per_s: 1_000_000.0, known: true };
    GateSet::of(vec![
        Gate::new("quota", Kind::Quota(Quota::slots(1_000))).per(&[Part::Tenant]),
        Gate::new("breaker", Kind::Breaker(Breaker::default())),
        Gate::new("rate", Kind::Smooth(smooth)),
        Gate::new("points", Kind::Reported(bucket)),
        Gate::new("slots", Kind::Slots(Slots::of(limit))),
    ])
}

fn spread(mut times: Vec<u64>) -> (usize, u64, u64) {
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or(0);
    (times.len(), at(0.5), at(0.99))
}

async fn pairs(gates: &Arc<RedisGates>, domains: u64) -> (usize, u64, u64) {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let gates = gates.clone();
        tasks.spawn(async move {
            let (began, mut times, mut n) = (Instant::now(), Vec::new(), 0);
            let outcome = Outcome { actual: Some(Points::ONE), ..Outcome::of(End::Ok) };
            while began.elapsed() < LASTS {
                n += 1;
                let domain = format!("d{}", (task * 7_919 + n) % domains);
                let target = Target::new(&domain).unwrap().with(Part::Tenant, "t").unwrap();
                let call = Call::new(Arc::new(target), Holder::number(task * 10_000_000 + n));
                let asked = Instant::now();
                let reply = gates.admit(None, &call).await.unwrap();
                times.push(asked.elapsed().as_micros() as u64);
                let Admission::Admitted(admitted) = reply else { panic!("{reply:?}") };
                gates.settle(None, &admitted.permit, &outcome).await.unwrap();
            }
            times
        });
    }
    spread(tasks.join_all().await.concat())
}

async fn trivial(server: &Server) -> (usize, u64, u64) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let client = redis::Client::open(server.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let hash: String =
            redis::cmd("SCRIPT").arg("LOAD").arg("return 1").query_async(&mut connection).await.unwrap();
        tasks.spawn(async move {
            let (began, mut times) = (Instant::now(), Vec::new());
            while began.elapsed() < LASTS {
                let asked = Instant::now();
                let mut command = redis::cmd("EVALSHA");
                command.arg(&hash).arg(1).arg("tg:{x}");
                let _: i64 = command.query_async(&mut connection).await.unwrap();
                times.push(asked.elapsed().as_micros() as u64);
            }
            times
        });
    }
    spread(tasks.join_all().await.concat())
}

async fn server_cost(server: &Server) -> String {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
    let line = stats.lines().find(|l| l.starts_with("cmdstat_evalsha")).unwrap_or_default();
    line.split(',').find(|p| p.starts_with("usec_per_call")).unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn admissions_per_second() {
    let server = Server::start(&[]).unwrap();
    let options = RedisOptions { connections: TASKS as usize, ..RedisOptions::default() };
    let gates = Arc::new(RedisGates::connect(&server.url(), options).await.unwrap());
    for domain in 0..1_000 {
        gates.configure(&format!("d{domain}"), set(100)).await.unwrap();
    }
    gates.configure("line", set(1)).await.unwrap();
    let _ = pairs(&gates, 1_000).await;
    for (name, domains) in [("nothing", 0), ("one domain", 1), ("1,000 domains", 1_000), ("nothing", 0)] {
        server.command("CONFIG RESETSTAT").unwrap();
        let (n, p50, p99) = if domains == 0 { trivial(&server).await } else { pairs(&gates, domains).await };
        let rate = n as f64 / LASTS.as_secs_f64();
        println!("{name}: {rate:.0}/s, p50 {p50} µs, p99 {p99} µs, server {}", server_cost(&server).await);
    }
}
