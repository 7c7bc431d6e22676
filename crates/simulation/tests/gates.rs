//! What the gates promise, in worlds where everything goes wrong. `TIDEGATE_GATES_WORLDS` sets how many worlds of deaths
//! are run (10,000 for a soak).

use tidegate_core::gates::config::{Fair, LineSettings, Slots, Smooth};
use tidegate_core::gates::{Gate, GateSet, Kind, Micros, Points, SECOND, Span, Unit};
use tidegate_simulation::from_env;
use tidegate_simulation::gates::crowd::{self, Stream};
use tidegate_simulation::gates::kills::{self, LIMIT, Scheme, Step, World};
use tidegate_simulation::gates::provider::{self, Callers, Charged, Rule, Shift};

fn worlds() -> u64 {
    from_env("TIDEGATE_GATES_WORLDS").unwrap_or(600)
}

#[test]
fn all_capacity_is_back_within_one_lease_whoever_died_where() {
    let mut died = std::collections::BTreeMap::<Step, u32>::new();
    for seed in 0..worlds() {
        // One in four with a quarantine, half of them in silence.
        let quarantine = if seed % 4 == 3 { 7 * SECOND } else { 0 };
        let world = World { seed, scheme: Scheme::Leases, steady: seed % 2 == 0, quarantine };
        let seen = kills::run(world);
        assert!(seen.most_running <= LIMIT, "{world:?}: {seen:?}");
        assert_eq!(seen.usable_after_lease, LIMIT, "{world:?}: {seen:?}");
        assert_eq!(seen.usable_after_twenty, LIMIT, "{world:?}: {seen:?}");
        seen.died.into_iter().for_each(|(step, n)| *died.entry(step).or_default() += n);
    }
    for step in Step::ALL {
        assert!(died.get(&step).is_some_and(|n| u64::from(*n) >= worlds() / 10), "{step:?} of {died:?}");
    }
}

#[test]
fn the_original_scheme_leaks_for_ever_in_the_same_worlds() {
    let count = worlds().min(400);
    let mut leaking = 0;
    for seed in 0..count {
        let seen = kills::run(World { seed, scheme: Scheme::Original, steady: true, quarantine: 0 });
        leaking += u64::from(seen.usable_after_twenty < LIMIT);
    }
    // Not all: where every slot has leaked nothing renews the expiry, and the standstill ends it.
    assert!(leaking * 4 > count, "only {leaking} of {count} worlds leaked");
}

fn crowded(slots: u32) -> GateSet {
    let line = LineSettings { max: 100_000, ..LineSettings::default() };
    GateSet { line, ..GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(slots)))]) }
}

fn stream(tenant: &str, priority: u8, every: Micros) -> Stream {
    Stream { tenant: tenant.into(), priority, every, cost: Points::ONE }
}

#[test]
fn nobody_starves_under_higher_priorities_and_a_priority_is_first_come_first_served() {
    // Ten slots of one second each; priority 1 asks for twelve per second, priority 3 for one in two seconds.
    let streams = [stream("a", 1, SECOND / 12), stream("b", 3, 2 * SECOND)];
    let lasts = 600 * SECOND;
    let seen = crowd::run(7, crowded(10), &streams, SECOND, lasts);
    let step = 300 * SECOND / 4;
    for n in [0, 1] {
        let mine: Vec<_> =
            seen.calls.iter().filter(|c| c.stream == n).map(|c| c.admitted.unwrap_or(Micros::MAX)).collect();
        assert!(mine.is_sorted(), "stream {n} is not first come, first served");
    }
    let end = 1_000 * SECOND + lasts;
    let mut served = 0;
    for low in seen.calls.iter().filter(|c| c.stream == 1) {
        // Whoever comes more than two steps later does not pass.
        let passed = seen.calls.iter().filter(|c| c.stream == 0 && c.arrived > low.arrived + 2 * step);
        let first = passed.filter_map(|c| c.admitted).min().unwrap_or(Micros::MAX);
        let admitted = low.admitted.unwrap_or(end);
        assert!(admitted <= first, "{low:?} was passed by one of {first}");
        if low.admitted.is_some() {
            served += 1;
            assert!(admitted - low.arrived <= 300 * SECOND, "{low:?}");
        } else {
            assert!(end - low.arrived <= 300 * SECOND, "{low:?} still waits");
        }
    }
    assert!(served > 100, "{served}");
    let used = seen.busy as f64 / (10.0 * (lasts - SECOND) as f64);
    assert!(used >= 0.99, "slots were used {used}");
}

#[test]
fn without_ageing_the_same_traffic_starves_the_low_priority() {
    let mut set = crowded(10);
    set.line.ageing = false;
    let streams = [stream("a", 1, SECOND / 12), stream("b", 3, 2 * SECOND)];
    let seen = crowd::run(7, set, &streams, SECOND, 600 * SECOND);
    let late =
        seen.calls.iter().filter(|c| c.stream == 1 && c.arrived > 1_060 * SECOND && c.admitted.is_some());
    assert!(late.count() == 0);
}

#[test]
fn a_rate_is_used_to_the_last_percent_and_never_above() {
    let rate = Smooth { rate: 50, every: Span::secs(1), burst: 10, unit: Unit::Calls };
    let set = GateSet::of(vec![Gate::new("rate", Kind::Smooth(rate))]);
    let lasts = 120 * SECOND;
    let seen = crowd::run(3, set, &[stream("a", 2, SECOND / 60)], 1_000, lasts);
    let admitted = seen.calls.iter().filter(|c| c.admitted.is_some()).count() as f64;
    let allowed = 10.0 + 50.0 * 120.0;
    assert!(admitted <= allowed && admitted / allowed >= 0.99, "{admitted} of {allowed}");
}

#[test]
fn a_light_tenant_waits_a_round_whatever_a_heavy_one_has_waiting() {
    let streams = [stream("heavy", 2, SECOND / 15), stream("light", 2, SECOND), stream("other", 2, SECOND)];
    let wait = |fair: bool| {
        let fair = fair.then_some(Fair { quantum: Points::ONE });
        let seen = crowd::run(5, GateSet { fair, ..crowded(10) }, &streams, SECOND, 300 * SECOND);
        let light = seen.calls.iter().filter(|c| c.stream == 1 && c.arrived > 1_100 * SECOND);
        let wait = light.map(|c| c.admitted.unwrap_or(1_300 * SECOND) - c.arrived).max().unwrap();
        (wait, seen.busy as f64 / (10.0 * 299.0 * SECOND as f64))
    };
    let (fair, used) = wait(true);
    // A round is one call of each of three tenants, at ten calls per second.
    assert!(fair <= 2 * SECOND, "{fair}");
    assert!(used >= 0.99, "slots were used {used}");
    assert!(wait(false).0 > 20 * SECOND, "otherwise it waits behind all of them");
}

#[test]
fn a_reported_bucket_is_used_up_and_hardly_ever_overdrawn() {
    for seed in 0..5 {
        let seen =
            provider::run(seed, Rule::Gate, (Charged::InPart, Callers::Careless), 50, &[], 600 * SECOND);
        let throttled = seen.throttled(|_| true);
        assert!(throttled <= 0.001, "seed {seed}: {throttled}");
        assert!(seen.used / seen.offered >= 0.97, "seed {seed}: {} of {}", seen.used, seen.offered);
        assert!(seen.noticed(|_| true) < 50.0, "seed {seed}: {:?} noticed of nobody", seen.foreign_noticed);
    }
}

/// No refund ever calls anybody: those who wait know their times, until the bucket fills faster than they were told.
#[test]
fn a_bucket_without_refunds_is_used_up_as_well_when_its_rate_rises() {
    for seed in 0..5 {
        let faster = [Shift { at: 60 * SECOND, rate: 100, foreign: 0 }];
        let seen =
            provider::run(seed, Rule::Gate, (Charged::InFull, Callers::Prompt), 5, &faster, 300 * SECOND);
        let throttled = seen.throttled(|_| true);
        assert!(throttled <= 0.001, "seed {seed}: {throttled}");
        assert!(seen.used / seen.offered >= 0.97, "seed {seed}: {} of {}", seen.used, seen.offered);
    }
}

/// Nor does a line stand still because the first of it has not heard its call: whoever asks finds that out. What is lost here is lost
/// until the first answer tells of the new rate.
#[test]
fn a_line_whose_first_did_not_hear_its_call_goes_on() {
    for seed in 0..20 {
        let faster = [Shift { at: 60 * SECOND, rate: 100, foreign: 0 }];
        let terms = (Charged::InFull, Callers::Careless);
        let seen = provider::run(seed, Rule::Gate, terms, 5, &faster, 300 * SECOND);
        assert!(seen.used / seen.offered >= 0.8, "seed {seed}: {} of {}", seen.used, seen.offered);
    }
}

#[test]
fn overwriting_the_level_with_what_is_reported_overdraws_it() {
    let seen = provider::run(0, Rule::Overwrite, (Charged::InPart, Callers::Prompt), 50, &[], 600 * SECOND);
    let throttled = seen.throttled(|_| true);
    assert!(throttled > 0.01, "{throttled}");
}

#[test]
fn a_bucket_that_changes_is_followed_and_foreign_use_is_reported() {
    let minute = 60 * SECOND;
    let shifts = [
        Shift { at: 2 * minute, rate: 100, foreign: 0 },
        Shift { at: 4 * minute, rate: 50, foreign: 0 },
        Shift { at: 5 * minute, rate: 100, foreign: 0 },
        Shift { at: 7 * minute, rate: 100, foreign: 30 },
    ];
    for seed in 0..5 {
        let seen =
            provider::run(seed, Rule::Gate, (Charged::InPart, Callers::Careless), 50, &shifts, 10 * minute);
        let all = seen.throttled(|_| true);
        assert!(all <= 0.01, "seed {seed}: {all}");
        let settled = |at: Micros| shifts.iter().all(|s| at < s.at || at >= s.at + 10 * SECOND);
        let after = seen.throttled(settled);
        assert!(after <= 0.001, "seed {seed}: {after} away from the changes");
        assert!(seen.used / seen.offered >= 0.97, "seed {seed}: {} of {}", seen.used, seen.offered);
        // Until a report says so, a rate that was cut looks like somebody else.
        let early = seen.noticed(|at| at < 7 * minute);
        assert!(early <= 100.0, "seed {seed}: {early} noticed of nobody");
        let soon = seen.noticed(|at| (7 * minute..7 * minute + 10 * SECOND).contains(&at));
        assert!(soon > 0.0, "seed {seed}: not noticed within ten seconds");
        let share = seen.noticed(|at| at >= 7 * minute) / seen.foreign_used;
        assert!((0.8..=1.05).contains(&share), "seed {seed}: noticed {share} of what others used");
    }
}
