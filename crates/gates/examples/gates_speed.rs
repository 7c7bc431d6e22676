//! How many admissions a core does, in process, through a set of four gates: `gates_speed [SECONDS]` prints one line of JSON.
//!
//! One thread admits and settles, each pair through a smooth rate, a reported bucket, slots and a breaker, all wide
//! enough to let everything pass. Then the same by the trait, plain and watched: what watching costs.

#![expect(clippy::print_stdout, reason = "it prints its result")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::gates::config::{Breaker, Reported, Slots, Smooth};
use tidegate_core::gates::{
    Admission, Call, End, Gate, GateSet, Holder, Kind, Outcome, Part, Points, Span, Target, Unit,
};
use tidegate_gates::{Backend, InProcess, Watched};

fn set(per: &[Part]) -> GateSet {
    let rate = Smooth { rate: 10_000_000, every: Span::secs(1), burst: 1_000_000, unit: Unit::Calls };
    let bucket = Reported { capacity: 1_000_000.0, restore_per_s: 1_000_000.0, known: true };
    GateSet::of(vec![
        Gate::new("rate", Kind::Smooth(rate)).per(per),
        Gate::new("points", Kind::Reported(bucket)).per(per),
        Gate::new("slots", Kind::Slots(Slots::of(100))).per(per),
        Gate::new("breaker", Kind::Breaker(Breaker::default())).per(per),
    ])
}

struct Measured {
    pairs_per_s: f64,
    p50_ns: u64,
    p99_ns: u64,
}

fn measure(name: &str, per: &[Part], accounts: usize, lasts: Duration) -> Measured {
    let gates = InProcess::new();
    gates.configure_now(name, set(per)).expect("the set is acceptable");
    let targets: Vec<Arc<Target>> = (0..accounts)
        .map(|n| Target::new(name).and_then(|t| t.with(Part::Account, &format!("shop-{n}"))))
        .map(|t| Arc::new(t.expect("the names are acceptable")))
        .collect();
    let outcome = Outcome { actual: Some(Points(1)), ..Outcome::of(End::Ok) };
    let (mut n, mut pairs) = (0u64, 0u64);
    let mut samples = Vec::with_capacity(100_000);
    let started = Instant::now();
    while started.elapsed() < lasts {
        for i in 0..1_000u64 {
            n += 1;
            let call = Call {
                cost: Points(1),
                ..Call::new(targets[n as usize % accounts].clone(), Holder::number(n))
            };
            let sampled = i == 500;
            let before = sampled.then(Instant::now);
            let Ok(Admission::Admitted(admitted)) = gates.admit_now(None, &call) else {
                panic!("everything should pass")
            };
            if let Some(before) = before {
                samples.push(before.elapsed().as_nanos() as u64);
            }
            gates.settle_now(None, &admitted.permit, &outcome).expect("the domain is known");
            pairs += 1;
        }
    }
    let took = started.elapsed().as_secs_f64();
    samples.sort_unstable();
    let at = |q: f64| samples[((samples.len() - 1) as f64 * q) as usize];
    Measured { pairs_per_s: pairs as f64 / took, p50_ns: at(0.5), p99_ns: at(0.99) }
}

/// Admissions a second by the trait, each settled.
async fn by_trait(gates: &dyn Backend, lasts: Duration) -> f64 {
    gates.configure("whole", set(&[])).await.expect("the set is acceptable");
    let target = Target::new("whole").and_then(|t| t.with(Part::Tenant, "acme"));
    let target = Arc::new(target.expect("the names are acceptable"));
    let outcome = Outcome { actual: Some(Points(1)), ..Outcome::of(End::Ok) };
    let (mut n, started) = (0u64, Instant::now());
    while started.elapsed() < lasts {
        for _ in 0..1_000 {
            n += 1;
            let call = Call { cost: Points(1), ..Call::new(target.clone(), Holder::number(n)) };
            let Ok(Admission::Admitted(admitted)) = gates.admit(None, &call).await else {
                panic!("everything should pass")
            };
            gates.settle(None, &admitted.permit, &outcome).await.expect("the domain is known");
        }
        // Whatever else there is to do, such as to publish.
        tokio::task::yield_now().await;
    }
    n as f64 / started.elapsed().as_secs_f64()
}

fn main() {
    let secs = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(2.0);
    let lasts = Duration::from_secs_f64(secs);
    let one = measure("whole", &[], 1, lasts);
    let many = measure("split", &[Part::Account], 1_000, lasts);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (plain, watched) = runtime.expect("a runtime").block_on(async {
        let plain = by_trait(&InProcess::new(), lasts).await;
        (plain, by_trait(&Watched::around(InProcess::new()), lasts).await)
    });
    let show = |m: &Measured| {
        serde_json::json!({
            "admissions_per_s": m.pairs_per_s.round(),
            "calls_per_s": (m.pairs_per_s * 2.0).round(),
            "decision_us": { "p50": m.p50_ns as f64 / 1e3, "p99": m.p99_ns as f64 / 1e3 },
        })
    };
    let json = serde_json::json!({
        "backend": "in_process", "gates": 4, "threads": 1, "each_admission_is_settled": true,
        "one_domain": show(&one), "domain_split_by_1000_accounts": show(&many),
        "by_trait_per_s": { "plain": plain.round(), "watched": watched.round() },
    });
    println!("{json}");
}
