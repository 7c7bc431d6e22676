//! How many admissions a second Postgres does on one hot key: `gates_postgres_speed URL [SECONDS] [CALLERS]` prints one
//! line of JSON. Every caller admits and settles in turn, through a rate, slots and a breaker that let everything pass.

#![expect(clippy::print_stdout, reason = "it prints its result")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::gates::config::{Breaker, Slots, Smooth};
use tidegate_core::gates::{Admission, Call, End, Gate, GateSet, Holder, Kind, Outcome, Span, Target, Unit};
use tidegate_gates::{GateOperations, Gates, GatesError, PgGates, PgGatesOptions};
use tokio::task::JoinSet;

fn set() -> GateSet {
    let rate = Smooth { rate: 10_000_000, every: Span::secs(1), burst: 1_000_000, unit: Unit::Calls };
    GateSet::of(vec![
        Gate::new("rate", Kind::Smooth(rate)),
        Gate::new("slots", Kind::Slots(Slots::of(10_000))),
        Gate::new("breaker", Kind::Breaker(Breaker::default())),
    ])
}

/// Admits and settles until the time is over; how long each admission took, in microseconds.
async fn caller(gates: Arc<PgGates>, holder: Holder, until: Instant) -> Result<Vec<u64>, GatesError> {
    let target = Arc::new(Target::new("speed").expect("the name is acceptable"));
    let mut took = Vec::new();
    while Instant::now() < until {
        let began = Instant::now();
        let reply = gates.admit(None, &Call::new(target.clone(), holder)).await?;
        took.push(began.elapsed().as_micros() as u64);
        if let Admission::Admitted(admitted) = reply {
            gates.settle(None, &admitted.permit, &Outcome::of(End::Ok)).await?;
        }
    }
    Ok(took)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut given = std::env::args().skip(1);
    let url = given.next().ok_or("name the database: gates_postgres_speed URL [SECONDS] [CALLERS]")?;
    let seconds: u64 = given.next().map_or(Ok(5), |s| s.parse())?;
    let callers: u64 = given.next().map_or(Ok(50), |s| s.parse())?;
    let gates = Arc::new(PgGates::connect(&url, PgGatesOptions::new()).await?);
    gates.configure("speed", set()).await?;
    let began = Instant::now();
    let until = began + Duration::from_secs(seconds);
    let mut running = JoinSet::new();
    for n in 0..callers {
        running.spawn(caller(gates.clone(), Holder::number(n), until));
    }
    let mut took: Vec<u64> = Vec::new();
    while let Some(done) = running.join_next().await {
        took.extend(done??);
    }
    let per_s = took.len() as f64 / began.elapsed().as_secs_f64();
    took.sort_unstable();
    let at = |share: f64| took[(took.len() as f64 * share) as usize];
    println!(
        r#"{{"callers":{callers},"admissions_per_s":{per_s:.0},"decision_us":{{"p50":{},"p99":{}}}}}"#,
        at(0.5),
        at(0.99)
    );
    Ok(())
}
