//! Random histories: every count is right and every limit holds after every step.

use super::*;
use crate::seed::Seed;

/// One lease of everything, with scopes that are nested and ones that cross.
fn everything() -> GateSet {
    let gates = vec![
        Gate::new("app", smooth(50, 8)),
        Gate::new("window", Kind::Window(Window { max: 30, every: Span::secs(2), unit: Unit::Calls })),
        Gate::new("slots", slots(6)),
        Gate::new("points", bucket(60.0, 40.0)).per(&[Part::Account]),
        Gate::new("bulk", lock()).per(&[Part::Account]).only(&["bulk"]),
        Gate::new("quota", Kind::Quota(Quota::slots(3))).per(&[Part::Tenant]),
        Gate::new("breaker", Kind::Breaker(Breaker { open: Span::secs(3), ..Breaker::default() }))
            .per(&[Part::Endpoint]),
    ];
    let fair = Some(Fair { quantum: Points::whole(5) });
    GateSet { quarantine: Span::secs(4), fair, ..GateSet::of(gates) }
}

#[test]
fn random_histories_keep_every_count_and_survive_being_written_and_read() {
    for seed in 0..60 {
        let mut rng = Seed::new(seed);
        let mut w = world_of(everything());
        let mut permits: Vec<Permit> = Vec::new();
        for step in 0..400 {
            w.now += rng.below(400_000) as i64;
            if rng.one_in(150) {
                w.now -= rng.below(5_000_000) as i64;
            }
            match rng.below(10) {
                0..=5 => {
                    let tenant = ["t1", "t2", "t3"][rng.below(3) as usize];
                    let account = ["a1", "a2"][rng.below(2) as usize];
                    let endpoint = ["bulk", "read"][rng.below(2) as usize];
                    let call = Call {
                        cost: Points::whole(rng.below(20) as u32),
                        priority: rng.below(4) as u8 + 1,
                        lease: 2 * SECOND,
                        ask: rng.below(8) / 7,
                        ..call_to(rng.below(40), tenant, account, endpoint)
                    };
                    if let Admission::Admitted(a) = w.admit(&call) {
                        permits.push(a.permit);
                    }
                }
                6 | 7 if !permits.is_empty() => {
                    let permit = permits[rng.below(permits.len() as u64) as usize].clone();
                    let end = match rng.below(6) {
                        0 => End::Throttled { retry_after: None },
                        1 => End::Failed(Failure::Server),
                        2 => End::Failed(Failure::TimedOut),
                        3 => End::Abandoned,
                        _ => End::Ok,
                    };
                    w.settle(&permit, end);
                }
                8 if !permits.is_empty() => {
                    let permit = permits[rng.below(permits.len() as u64) as usize].clone();
                    let _ = w.state.renew(w.now, &permit);
                }
                _ => {
                    let _ = w.state.cancel_wait(&w.set, w.now, &Holder::number(rng.below(40)));
                }
            }
            audit(&w.state, &w.set);
            if step % 50 == 0 {
                let text = serde_json::to_string(&w.state).unwrap();
                w.state = serde_json::from_str(&text).unwrap();
                w.state.reindex(&w.set);
            }
        }
        // Silence: everything comes back by itself.
        w.now += 60 * SECOND;
        while w.state.expire(&w.set, w.now).more {}
        assert!(w.state.is_idle(), "seed {seed}");
        audit(&w.state, &w.set);
    }
}

#[test]
fn every_limit_holds_at_every_instant_of_random_histories() {
    for seed in 100..140 {
        let mut rng = Seed::new(seed);
        let mut w = world_of(everything());
        let mut live: Vec<Permit> = Vec::new();
        let mut starts: Vec<Micros> = Vec::new();
        for _ in 0..600 {
            w.now += rng.below(60_000) as i64;
            live.retain(|p| p.expires_at + 4 * SECOND > w.now);
            let tenant = ["t1", "t2", "t3"][rng.below(3) as usize];
            let account = ["a1", "a2"][rng.below(2) as usize];
            let call = Call {
                cost: Points::whole(rng.below(20) as u32),
                lease: SECOND,
                ..call_to(rng.next_u64() % 1_000, tenant, account, ["bulk", "read"][rng.below(2) as usize])
            };
            if let Admission::Admitted(a) = w.admit(&call)
                && live.iter().all(|p| p.fence != a.permit.fence)
            {
                starts.push(w.now);
                live.push(a.permit);
            }
            if rng.one_in(3) && !live.is_empty() {
                let at = rng.below(live.len() as u64) as usize;
                if w.settle(&live[at], End::Ok).state == LeaseEnd::Released {
                    drop(live.swap_remove(at));
                }
            }
            assert!(live.len() <= 6);
            for account in ["a1", "a2"] {
                let bulk = |p: &&Permit| {
                    p.target.part(Part::Account) == account && p.target.part(Part::Endpoint) == "bulk"
                };
                assert!(live.iter().filter(bulk).count() <= 1);
            }
            for tenant in ["t1", "t2", "t3"] {
                assert!(live.iter().filter(|p| p.target.part(Part::Tenant) == tenant).count() <= 3);
            }
        }
        for (i, from) in starts.iter().enumerate() {
            assert!(starts[i..].iter().take_while(|s| **s < from + 2 * SECOND).count() <= 30);
            for (n, to) in starts[i..].iter().enumerate() {
                assert!((n as i64 + 1 - 8) * SECOND <= 50 * (to - from));
            }
        }
    }
}
