//! Histories from seeds.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::gates::config::{
    Adaptive, Breaker, Fair, Lock, Quota, QuotaCost, Reported, Slots, Smooth, Window,
};
use tidegate_core::gates::{
    BreakerOrder, Call, End, Failure, Gate, GateSet, Holder, Kind, Micros, Observed, Outcome, Part, Points,
    SECOND, Span, Target, Unit,
};
use tidegate_core::seed::Seed;

use super::{History, Operation};

/// When histories begin: late in 2026, so that times have the size they have in life.
const BEGIN: Micros = 1_795_000_000 * SECOND;
/// Holders of a history: few, so that they meet their own leases and places again.
const HOLDERS: u64 = 60;

/// The history of a seed.
pub fn make(seed: u64, steps: usize) -> History {
    let mut rng = Seed::new(seed);
    let sets = sets();
    let mut set = sets[rng.below(sets.len() as u64) as usize].clone();
    if rng.one_in(3) {
        set.fair = Some(Fair { quantum: Points::whole(1 + rng.below(20) as u32) });
    }
    if rng.one_in(3) {
        set.quarantine = Span::secs(1 + rng.below(6) as i64);
    }
    if rng.one_in(4) {
        // Slots kept for a priority need it to exist.
        let reserves = |g: &Gate| matches!(&g.gate, Kind::Slots(s) if !s.reserved.is_empty());
        let least = if set.gates.iter().any(reserves) { 3 } else { 1 };
        set.line.levels = least + rng.below(5) as u8;
    }
    if rng.one_in(6) {
        set.line.ageing = false;
    }
    if rng.one_in(5) {
        set.line.max = 1 + rng.below(8) as u32;
    }
    let domain = format!("history-{seed}");
    let mut now = BEGIN;
    let steps = (0..steps).map(|_| {
        now += pause(&mut rng);
        (now, operation(&mut rng, &domain, &set, now))
    });
    let steps = steps.collect();
    History { seed, domain, set, steps }
}

fn pause(rng: &mut Seed) -> Micros {
    match rng.below(100) {
        0..35 => 0,
        35..80 => rng.below(30_000) as Micros,
        80..95 => rng.below(800_000) as Micros,
        95..98 => rng.below(8_000_000) as Micros,
        98 => rng.below(4_000 * SECOND as u64) as Micros,
        _ => -(rng.below(4_000_000) as Micros),
    }
}

fn pick<'a>(rng: &mut Seed, of: &[&'a str]) -> &'a str {
    of[rng.below(of.len() as u64) as usize]
}

fn target(rng: &mut Seed, domain: &str) -> Target {
    let parts = [
        (Part::Connector, pick(rng, &["rest", "soap"])),
        (Part::Tenant, pick(rng, &["t1", "t1", "t2", "t3"])),
        (Part::Account, pick(rng, &["a1", "a1", "a2"])),
        (Part::Endpoint, pick(rng, &["read", "write", "bulk"])),
        (Part::Subject, pick(rng, &["", "s1"])),
    ];
    let bare = Target::new(domain).expect("a domain of letters and digits");
    parts.into_iter().fold(bare, |t, (part, text)| t.with(part, text).expect("parts of letters and digits"))
}

fn operation(rng: &mut Seed, domain: &str, set: &GateSet, now: Micros) -> Operation {
    let holder = Holder::number(rng.below(HOLDERS));
    match rng.below(100) {
        0..58 => Operation::Admit(call(rng, domain, holder, now)),
        58..84 => Operation::Settle(recent(rng), outcome(rng)),
        84..89 => Operation::Renew(recent(rng)),
        89..92 => Operation::Cancel(Box::new(target(rng, domain)), holder),
        92..94 => Operation::Expire,
        94 => Operation::Promote(holder),
        95 => Operation::ForceRelease(holder, rng.one_in(2)),
        96 => {
            let breakers: Vec<&Gate> =
                set.gates.iter().filter(|g| matches!(g.gate, Kind::Breaker(_))).collect();
            let order = match rng.below(2) {
                0 => BreakerOrder::Reset,
                _ => BreakerOrder::Trip { lasts: 1 + rng.below(3_000_000) as Micros },
            };
            match breakers.first() {
                Some(gate) => Operation::Breaker(gate.name.clone(), order),
                None => Operation::Look,
            }
        }
        97 => {
            let gate = &set.gates[rng.below(set.gates.len() as u64) as usize];
            Operation::Switch(gate.name.clone(), rng.one_in(3))
        }
        98 => Operation::Look,
        _ => Operation::Inspect,
    }
}

/// A number that names a permit.
fn recent(rng: &mut Seed) -> u64 {
    rng.below(1 << 40)
}

fn call(rng: &mut Seed, domain: &str, holder: Holder, now: Micros) -> Call {
    // One holder mostly asks for the same thing; sometimes it has changed its mind.
    let mut own = Seed::new(holder.as_str().bytes().fold(0, |n, b| n * 31 + u64::from(b)));
    let from = if rng.one_in(12) { &mut *rng } else { &mut own };
    let target = Arc::new(target(from, domain));
    let cost = match from.below(10) {
        0 => Points(from.below(2_000) as i64),
        1..8 => Points::whole(1 + from.below(9) as u32),
        _ => Points::whole(from.below(120) as u32),
    };
    Call {
        ask: if rng.one_in(8) { 1 + rng.below(2) } else { 0 },
        cost,
        priority: own.below(5) as u8 + 1,
        lease: (1 + own.below(8) as Micros) * SECOND,
        deadline: rng.one_in(15).then(|| now + rng.below(3_000_000) as Micros),
        since: rng.one_in(10).then(|| now - rng.below(400_000_000) as Micros),
        place: !rng.one_in(10),
        process: own.below(4),
        ..Call::new(target, holder)
    }
}

fn outcome(rng: &mut Seed) -> Outcome {
    let end = match rng.below(20) {
        0..10 => End::Ok,
        10 | 11 => End::Throttled { retry_after: rng.one_in(2).then(|| rng.below(2_000_000) as Micros) },
        12..15 => End::Failed(Failure::Server),
        15 => End::Failed(Failure::Network),
        16 => End::Failed(Failure::TimedOut),
        17 => End::Failed(Failure::Request),
        18 => End::Abandoned,
        _ => End::Unused,
    };
    let actual = rng.one_in(2).then(|| Points(rng.below(9_000) as i64));
    let observed = rng.one_in(2).then(|| Observed {
        level: (!rng.one_in(4)).then(|| Points(rng.below(120_000) as i64 - 5_000)),
        capacity: rng.one_in(4).then(|| Points::whole(rng.below(150) as u32)),
        restore_per_s: rng.one_in(4).then(|| Points::whole(rng.below(80) as u32)),
    });
    Outcome { end, actual, observed }
}

/// Sets that together have every kind of gate, alone and together, in scopes that are nested and ones that cross.
pub fn sets() -> Vec<GateSet> {
    let slots = |limit| Kind::Slots(Slots::of(limit));
    let smooth = |rate, burst, unit| Kind::Smooth(Smooth { rate, every: Span::secs(1), burst, unit });
    let window = |max, unit| Kind::Window(Window { max, every: Span::secs(2), unit });
    let bucket = |known| Kind::Reported(Reported { capacity: 100.0, restore_per_s: 50.0, known });
    let lock = || Kind::Lock(Lock::default());
    let breaker =
        Breaker { failures: 3, open: Span::secs(2), probes: 2, ramp: Span::secs(60), ..Breaker::default() };
    let breaker = |ratio| Kind::Breaker(Breaker { ratio, ..breaker.clone() });
    let adaptive = Some(Adaptive { floor: 1, ceiling: 9, backoff: 0.6 });
    let reserved = BTreeMap::from([(1, 1), (3, 1)]);
    let quota =
        Quota { slots: Some(2), cost: Some(QuotaCost { max: 30.0, every: Span::secs(5) }), hoarding: 4 };
    let per = |name, kind, parts: &[Part]| Gate::new(name, kind).per(parts);
    vec![
        GateSet::of(vec![Gate::new("slots", slots(3))]),
        GateSet::of(vec![Gate::new("rate", smooth(7, 3, Unit::Calls))]),
        GateSet::of(vec![Gate::new("rate", smooth(50, 130, Unit::Cost)), Gate::new("slots", slots(4))]),
        GateSet::of(vec![Gate::new("window", window(5, Unit::Calls))]),
        GateSet::of(vec![Gate::new("window", window(300, Unit::Cost)), Gate::new("lock", lock())]),
        GateSet::of(vec![
            per("points", bucket(true), &[Part::Account]),
            per("bulk", lock(), &[Part::Account]).only(&["bulk"]),
        ]),
        GateSet::of(vec![Gate::new("points", bucket(false)), Gate::new("breaker", breaker(None))]),
        GateSet::of(vec![
            Gate::new("points", bucket(false)),
            Gate::new("rate", smooth(20, 10, Unit::Calls)),
            Gate::new("window", window(25, Unit::Calls)),
        ]),
        GateSet::of(vec![
            per("points", bucket(true), &[Part::Account]),
            per("slots", slots(6), &[Part::Account]),
        ]),
        GateSet::of(vec![
            per("breaker", breaker(None), &[Part::Account]),
            per("slots", slots(3), &[Part::Account]),
        ]),
        GateSet::of(vec![
            Gate::new("slots", Kind::Slots(Slots { adaptive, ..Slots::of(4) })),
            per("quota", Kind::Quota(quota.clone()), &[Part::Tenant]),
        ]),
        GateSet::of(vec![
            Gate::new("slots", Kind::Slots(Slots { reserved, ..Slots::of(4) })),
            per("breaker", breaker(Some(0.5)), &[Part::Connector]),
        ]),
        GateSet::of(vec![
            Gate::new("app", smooth(40, 6, Unit::Calls)),
            Gate::new("window", window(25, Unit::Calls)),
            Gate::new("slots", slots(5)),
            per("points", bucket(true), &[Part::Account]),
            per("bulk", lock(), &[Part::Account]).only(&["bulk"]),
            per("quota", Kind::Quota(quota), &[Part::Tenant]),
            per("breaker", breaker(None), &[Part::Endpoint]),
            per("pair", smooth(1, 2, Unit::Calls), &[Part::Account, Part::Subject]),
        ]),
    ]
}
