//! The composition: what a call, its permit and its place go through.

use std::sync::Arc;

use super::config::{Breaker, Fair, Lock, Quota, Reported, Slots, Smooth, Window};
use super::*;
use crate::seed::Seed;

struct World {
    set: Compiled,
    state: Partition,
    now: Micros,
}

fn slots(limit: u32) -> Kind {
    Kind::Slots(Slots::of(limit))
}

fn smooth(rate: i64, burst: i64) -> Kind {
    Kind::Smooth(Smooth { rate, every: Span::secs(1), burst, unit: Unit::Calls })
}

fn bucket(capacity: f64, restore_per_s: f64) -> Kind {
    Kind::Reported(Reported { capacity, restore_per_s, known: true })
}

fn lock() -> Kind {
    Kind::Lock(Lock::default())
}

fn world(gates: Vec<Gate>) -> World {
    world_of(GateSet::of(gates))
}

fn world_of(set: GateSet) -> World {
    let set = Compiled::new(set).unwrap();
    World { state: Partition::new(&set, Start::Full), set, now: 1_000 * SECOND }
}

fn target(tenant: &str, account: &str, endpoint: &str) -> Arc<Target> {
    let target = Target::new("d").unwrap().with(Part::Tenant, tenant).unwrap();
    Arc::new(target.with(Part::Account, account).unwrap().with(Part::Endpoint, endpoint).unwrap())
}

fn call(n: u64) -> Call {
    Call::new(target("", "", ""), Holder::number(n))
}

fn call_to(n: u64, tenant: &str, account: &str, endpoint: &str) -> Call {
    Call::new(target(tenant, account, endpoint), Holder::number(n))
}

impl World {
    fn admit(&mut self, call: &Call) -> Admission {
        self.state.admit(&self.set, self.now, call)
    }

    fn permit(&mut self, call: &Call) -> Permit {
        match self.admit(call) {
            Admission::Admitted(a) => a.permit,
            other => panic!("{other:?}"),
        }
    }

    fn wait(&mut self, call: &Call) -> Wait {
        match self.admit(call) {
            Admission::Wait(w) => w,
            other => panic!("{other:?}"),
        }
    }

    fn refused(&mut self, call: &Call) -> Refused {
        match self.admit(call) {
            Admission::Refused(r) => r,
            other => panic!("{other:?}"),
        }
    }

    fn settle(&mut self, permit: &Permit, end: End) -> Settled {
        self.state.settle(&self.set, self.now, permit, &Outcome::of(end))
    }
}

#[test]
fn a_refusal_spends_nothing_and_names_gate_reason_and_time() {
    let mut w = world(vec![Gate::new("rate", smooth(10, 10)), Gate::new("bucket", bucket(100.0, 50.0))]);
    let first = w.permit(&call(1).cost(Points::whole(60)));
    for n in 2..4 {
        w.wait(&call(n).cost(Points::whole(1)).cost(Points::whole(52)));
    }
    let wait = w.wait(&call(2).cost(Points::whole(52)));
    assert_eq!((&*wait.gate, wait.retry_at - w.now, wait.position), ("bucket", 240_000, Some(1)));
    assert_eq!(wait.explain(w.now), "bucket 40 of 100, needs 52, at 50/s: 0.24 s; first in line");
    let third = w.wait(&call(4).cost(Points::whole(52)));
    assert_eq!(third.explain(w.now), "bucket 40 of 100, needs 52, at 50/s: 2.32 s; third in line");
    let GateView::Smooth { free } = w.state.inspect(&w.set, w.now, 9)[0].gates[0].1 else { panic!() };
    assert_eq!(free, 9, "the rate was not spent for those that wait");
    w.settle(&first, End::Ok);
}

#[test]
fn asking_again_gives_the_same_permit_or_the_same_place() {
    let mut w = world(vec![Gate::new("slots", slots(1)), Gate::new("rate", smooth(1, 5))]);
    let permit = w.permit(&call(1));
    w.now += 60_000;
    assert_eq!(w.permit(&call(1)).fence, permit.fence);
    let wait = w.wait(&call(2));
    w.now += 1_000;
    let again = w.wait(&call(2));
    assert_eq!((again.position, again.arrived), (Some(1), wait.arrived));
    assert_eq!(w.state.usage(), PartitionView { keys: 1, leases: 1, quarantined: 0, places: 1 });
}

#[test]
fn a_new_try_ends_the_old_permit_and_an_old_try_is_refused() {
    let mut w = world(vec![Gate::new("slots", slots(1))]);
    let old = w.permit(&call(1));
    let new = w.permit(&Call { ask: 1, ..call(1) });
    assert!(new.fence > old.fence);
    assert_eq!(w.refused(&call(1)).because, Never::StaleAsk);
    assert_eq!(w.settle(&old, End::Ok).state, LeaseEnd::Gone);
    assert_eq!(w.settle(&new, End::Ok).state, LeaseEnd::Released);
}

#[test]
fn settling_twice_gives_back_once() {
    let mut w = world(vec![Gate::new("slots", slots(2))]);
    let (a, _b) = (w.permit(&call(1)), w.permit(&call(2)));
    assert_eq!(w.settle(&a, End::Ok).state, LeaseEnd::Released);
    assert_eq!(w.settle(&a, End::Ok).state, LeaseEnd::Gone);
    let _c = w.permit(&call(3));
    w.wait(&call(4));
}

#[test]
fn a_lapsed_permit_is_fenced_and_its_slot_is_free_at_that_moment() {
    let mut w = world(vec![Gate::new("slots", slots(1))]);
    let dead = w.permit(&call(1));
    w.now = dead.expires_at - 1;
    w.wait(&call(2));
    w.now += 1;
    let next = w.permit(&call(2));
    assert_eq!(w.state.renew(&w.set, w.now, &dead), Renewal::Gone);
    assert_eq!(w.settle(&dead, End::Ok).state, LeaseEnd::Gone);
    assert_eq!(w.state.renew(&w.set, w.now, &next), Renewal::Renewed { expires_at: w.now + 30 * SECOND });
}

#[test]
fn a_renewed_permit_lasts() {
    let mut w = world(vec![Gate::new("lock", lock())]);
    let permit = w.permit(&call(1));
    for _ in 0..10 {
        w.now += 20 * SECOND;
        assert!(matches!(w.state.renew(&w.set, w.now, &permit), Renewal::Renewed { .. }));
        assert_eq!(w.wait(&call(2)).because, Because::Locked);
    }
    w.now += 30 * SECOND;
    let _ = w.permit(&call(2));
}

#[test]
fn release_wakes_as_many_as_fit_and_a_waiter_takes_its_slot_itself() {
    let mut w = world(vec![Gate::new("slots", slots(2))]);
    let (a, b) = (w.permit(&call(1)), w.permit(&call(2)));
    (3..8).for_each(|n| drop(w.wait(&call(n))));
    assert_eq!(w.settle(&a, End::Ok).woken, [Holder::number(3)]);
    assert_eq!(w.settle(&b, End::Ok).woken, [Holder::number(3), Holder::number(4)]);
    assert_eq!(w.wait(&call(5)).position, Some(3), "two are free, and kept for the two before");
    let Admission::Admitted(admitted) = w.admit(&call(3)) else { panic!() };
    assert_eq!(admitted.woken, [Holder::number(4)]);
}

#[test]
fn a_place_lapses_shortly_after_its_time_and_coming_late_costs_only_the_turn() {
    let mut w = world(vec![Gate::new("slots", slots(1))]);
    let held = w.permit(&call(1));
    let dead = w.wait(&call(2));
    w.now += 100;
    let next = w.wait(&call(3));
    w.settle(&held, End::Ok);
    w.now = dead.retry_at + 2 * SECOND - 1;
    w.wait(&call(3));
    w.now += 1;
    let third = w.permit(&call(3));
    w.wait(&Call { since: Some(next.arrived), ..call(4) });
    let back = w.wait(&Call { since: Some(dead.arrived), ..call(2) });
    assert_eq!((back.position, back.arrived), (Some(1), dead.arrived));
    w.settle(&third, End::Ok);
}

#[test]
fn whoever_waits_for_something_narrow_lets_others_pass() {
    let gates = vec![
        Gate::new("app", smooth(100, 2)),
        Gate::new("bulk", lock()).per(&[Part::Account]).only(&["bulk"]),
        Gate::new("quota", Kind::Quota(Quota::slots(1))).per(&[Part::Tenant]),
    ];
    let mut w = world(gates);
    let _running = w.permit(&call_to(1, "t1", "a", "bulk"));
    let _spent = w.permit(&call_to(2, "t2", "b", "x"));
    let wait = w.wait(&call_to(3, "t3", "a", "bulk"));
    assert_eq!(&*wait.gate, "bulk");
    let wait = w.wait(&call_to(4, "t2", "b", "x"));
    assert_eq!(wait.because, Because::QuotaSlots { live: 1, max: 1, hoarding: false });
    w.now += 10_000;
    let _free = w.permit(&call_to(5, "t5", "c", "x"));
}

#[test]
fn whoever_waits_for_something_broad_is_not_passed_in_the_narrow_lines() {
    let gates = vec![Gate::new("app", smooth(1, 1)), Gate::new("lock", lock()).per(&[Part::Account])];
    let mut w = world(gates);
    let first = w.permit(&call_to(1, "", "a", ""));
    w.settle(&first, End::Ok);
    w.wait(&call_to(2, "", "a", ""));
    let behind = w.wait(&call_to(3, "", "a", ""));
    assert_eq!(behind.position, Some(2));
    w.now += 2 * SECOND;
    assert!(matches!(w.admit(&call_to(3, "", "a", "")), Admission::Wait(_)));
    let _ = w.permit(&call_to(2, "", "a", ""));
}

#[test]
fn a_place_refused_by_the_breaker_lasts_for_the_open_time() {
    let mut w =
        world(vec![Gate::new("breaker", Kind::Breaker(Breaker::default())), Gate::new("slots", slots(1))]);
    for n in 0..5 {
        let p = w.permit(&call(n));
        w.settle(&p, End::Failed(Failure::Server));
    }
    let first = w.wait(&call(10));
    assert_eq!(first.retry_at - w.now, 60 * SECOND);
    w.now += SECOND;
    w.wait(&call(11));
    w.now = first.retry_at;
    assert_eq!(w.wait(&call(11)).position, Some(2), "the first one's place is still there");
    let probe = w.permit(&call(10));
    assert_eq!(w.wait(&call(11)).because, Because::BreakerProbing { probes: 1 });
    let closed = w.settle(&probe, End::Ok);
    assert_eq!(closed.changes, [Change::Breaker { gate: "breaker".into(), to: BreakerState::Ramp }]);
    assert_eq!(closed.woken, [Holder::number(11)]);
}

#[test]
fn a_probe_that_dies_gives_its_place_back() {
    let mut w = world(vec![Gate::new("breaker", Kind::Breaker(Breaker::default()))]);
    for n in 0..5 {
        let p = w.permit(&call(n));
        w.settle(&p, End::Failed(Failure::Network));
    }
    w.now += 60 * SECOND;
    let dead = w.permit(&call(10));
    w.wait(&call(11));
    w.now = dead.expires_at;
    let probe = w.permit(&call(12));
    w.settle(&dead, End::Ok);
    assert!(
        matches!(w.wait(&call(13)).because, Because::BreakerProbing { .. }),
        "a late answer closes nothing"
    );
    w.settle(&probe, End::Ok);
    let _ = w.permit(&call(13));
}

#[test]
fn the_slot_of_a_call_with_an_unknown_end_is_quarantined_and_seen() {
    let set = GateSet { quarantine: Span::secs(900), ..GateSet::of(vec![Gate::new("slots", slots(2))]) };
    let mut w = world_of(set);
    let (lapsed, timed_out) = (w.permit(&call(1)), w.permit(&call(2)));
    let until = w.now + 900 * SECOND;
    assert_eq!(w.settle(&timed_out, End::Failed(Failure::TimedOut)).state, LeaseEnd::Quarantined { until });
    w.now = lapsed.expires_at;
    w.wait(&call(3));
    assert_eq!(w.state.usage().quarantined, 2);
    assert_eq!(w.state.renew(&w.set, w.now, &lapsed), Renewal::Gone);
    assert_eq!(w.settle(&lapsed, End::Ok).state, LeaseEnd::Released, "its answer came after all");
    let next = w.permit(&call(3));
    w.settle(&next, End::Ok);
    w.now = until;
    let _ = (w.permit(&call(4)), w.permit(&call(5)));
}

#[test]
fn mass_expiry_is_cleared_in_bounded_steps() {
    let mut w = world(vec![Gate::new("slots", slots(300))]);
    (0..300).for_each(|n| drop(w.permit(&call(n))));
    w.now += 30 * SECOND;
    let mut steps = 0;
    while let Admission::Wait(wait) = w.admit(&call(1_000)) {
        assert_eq!((wait.because, wait.retry_at), (Because::Purging, w.now + 1_000));
        w.now = wait.retry_at;
        steps += 1;
    }
    assert_eq!(steps, 4);
}

#[test]
fn a_clock_that_goes_back_neither_mints_nor_freezes() {
    let mut w = world(vec![Gate::new("rate", smooth(10, 1)), Gate::new("slots", slots(1))]);
    let _ = w.permit(&call(1));
    w.now -= 3_600 * SECOND;
    let wait = w.wait(&call(2));
    assert!(wait.retry_at > w.now && wait.retry_at <= w.now + SECOND);
    w.now += 30 * SECOND;
    let _ = w.permit(&call(3));
}

#[test]
fn a_cost_that_can_never_pass_is_refused_at_once() {
    let mut w = world(vec![Gate::new("bucket", bucket(100.0, 50.0))]);
    let refused = w.refused(&call(1).cost(Points::whole(101)));
    assert_eq!(refused.because, Never::CostAboveCapacity { cost: 101_000, capacity: 100_000 });
    assert_eq!(w.refused(&call(1).cost(Points(-1))).because, Never::Invalid);
    let late = Call { deadline: Some(w.now), ..call(1) };
    assert_eq!(w.refused(&late).because, Never::Deadline);
}

#[test]
fn a_line_is_bounded_and_a_call_can_do_without_a_place() {
    let mut set = GateSet::of(vec![Gate::new("slots", slots(1))]);
    set.line.max = 2;
    let mut w = world_of(set);
    let _held = w.permit(&call(1));
    let wait = w.wait(&Call { place: false, ..call(2) });
    assert_eq!(wait.position, None);
    w.wait(&call(3));
    w.wait(&call(4));
    let full = w.wait(&call(5));
    assert_eq!((full.because, full.position), (Because::QueueFull { waiting: 2 }, None));
    assert_eq!(w.wait(&call(4)).position, Some(2));
    let soon = Call { deadline: Some(w.now + 10), ..call(4) };
    assert_eq!(w.wait(&soon).position, None, "it cannot be in time");
    assert_eq!(w.state.usage().places, 1);
}

#[test]
fn a_throttled_answer_closes_the_narrowest_rate_gate_for_as_long_as_it_says() {
    let mut w = world(vec![
        Gate::new("app", smooth(100, 50)),
        Gate::new("shop", smooth(10, 5)).per(&[Part::Account]),
    ]);
    let p = w.permit(&call_to(1, "", "a", ""));
    w.settle(&p, End::Throttled { retry_after: Some(7 * SECOND) });
    let wait = w.wait(&call_to(2, "", "a", ""));
    assert_eq!(
        (&*wait.gate, wait.because, wait.retry_at),
        ("shop", Because::CoolingDown, w.now + 7 * SECOND)
    );
    let _other = w.permit(&call_to(3, "", "b", ""));
    w.now += 7 * SECOND;
    let _ = w.permit(&call_to(2, "", "a", ""));
}

#[test]
fn tenants_take_turns_whatever_one_of_them_has_waiting() {
    let set = GateSet {
        fair: Some(Fair { quantum: Points::whole(1) }),
        ..GateSet::of(vec![Gate::new("slots", slots(1))])
    };
    let mut w = world_of(set);
    let mut held = w.permit(&call_to(0, "z", "", ""));
    for n in 1..=50 {
        w.wait(&call_to(n, "heavy", "", ""));
        w.now += 10;
    }
    for (n, tenant) in [(51, "b"), (52, "c")] {
        w.wait(&call_to(n, tenant, "", ""));
        w.now += 10;
    }
    let mut order = Vec::new();
    for _ in 0..6 {
        w.now += 1_000;
        let woken = w.settle(&held, End::Ok).woken;
        let n: u64 = woken[0].as_str()[2..].parse().unwrap();
        let tenant = if n <= 50 {
            "heavy"
        } else if n == 51 {
            "b"
        } else {
            "c"
        };
        held = w.permit(&call_to(n, tenant, "", ""));
        order.push(n);
    }
    assert_eq!(order, [1, 51, 52, 2, 3, 4]);
}

#[test]
fn hoarding_is_noticed_and_named() {
    let mut w = world(vec![Gate::new("quota", Kind::Quota(Quota::slots(2))).per(&[Part::Tenant])]);
    let mut named = 0;
    for n in 0..120 {
        if let Admission::Wait(wait) = w.admit(&call_to(n, "t", "", "")) {
            named += u32::from(matches!(wait.because, Because::QuotaSlots { hoarding: true, .. }));
        }
    }
    assert_eq!(named, 20);
    let views = w.state.inspect(&w.set, w.now, 9);
    assert!(matches!(views[0].gates[0].1, GateView::Quota { live: 2, violations: 118, hoards: 20, .. }));
}

#[test]
fn an_operator_can_see_release_promote_trip_and_clear() {
    let gates = vec![Gate::new("slots", slots(1)), Gate::new("breaker", Kind::Breaker(Breaker::default()))];
    let mut w = world(gates);
    let stuck = w.permit(&call(1));
    (2..5).for_each(|n| drop(w.wait(&call(n))));
    assert_eq!(w.state.holders(9)[0].holder, stuck.holder);
    let ahead: Vec<u32> = w.state.waiters(&w.set, 9).iter().map(|v| v.ahead).collect();
    assert_eq!(ahead, [0, 1, 2]);
    assert!(w.state.promote(&w.set, w.now, &Holder::number(4)));
    assert!(!w.state.promote(&w.set, w.now, &Holder::number(99)));
    let (dry, freed) = w.state.force_release(&w.set, w.now, &stuck.holder, true);
    assert_eq!((dry.len(), freed.gone, w.state.usage().leases), (1, 0, 1));
    let (_, freed) = w.state.force_release(&w.set, w.now, &stuck.holder, false);
    assert_eq!((freed.gone, freed.woken), (1, vec![Holder::number(4)]));
    assert_eq!(w.settle(&stuck, End::Ok).state, LeaseEnd::Gone);
    let trip = BreakerOrder::Trip { lasts: 3_600 * SECOND };
    assert_eq!(w.state.order_breaker(&w.set, w.now, "breaker", None, trip), 1);
    assert_eq!(w.wait(&call(4)).because, Because::BreakerOpen);
    assert_eq!(w.state.order_breaker(&w.set, w.now, "breaker", Some(""), BreakerOrder::Reset), 1);
    let _ = w.permit(&call(4));
    assert_eq!(w.state.clear(&w.set, true).leases, 1);
    assert_eq!(w.state.clear(&w.set, false).places, 2);
    assert!(w.state.is_idle());
    assert!(w.permit(&call(9)).fence > stuck.fence);
}

#[test]
fn a_disabled_gate_lets_everything_pass_and_holds_nothing() {
    let mut w = world(vec![Gate::new("slots", slots(1)), Gate::new("rate", smooth(10, 50))]);
    assert_eq!(w.set.disable(["slots", "typo"]), ["typo"]);
    let free: Vec<Permit> = (0..5).map(|n| w.permit(&call(n))).collect();
    assert!(w.set.disable([]).is_empty());
    let held = w.permit(&call(10));
    w.wait(&call(11));
    for permit in &free {
        assert_eq!(w.settle(permit, End::Ok).state, LeaseEnd::Released);
    }
    w.wait(&call(11));
    w.settle(&held, End::Ok);
    let _ = w.permit(&call(11));
}

#[test]
fn new_settings_keep_leases_places_and_what_was_learned() {
    let window = |max| Kind::Window(Window { max, every: Span::secs(60), unit: Unit::Calls });
    let mut w = world(vec![Gate::new("slots", slots(2)), Gate::new("window", window(4))]);
    let (a, _b) = (w.permit(&call(1)), w.permit(&call(2)));
    w.wait(&call(3));
    let gates = vec![
        Gate::new("quota", Kind::Quota(Quota::slots(9))).per(&[Part::Tenant]),
        Gate::new("window", window(3)),
        Gate::new("slots", slots(1)),
    ];
    let new = Compiled::new(GateSet::of(gates)).unwrap();
    w.state.reconfigure(&w.set, &new, w.now);
    w.set = new;
    audit(&w.state, &w.set);
    assert_eq!(w.state.usage().places, 1);
    assert_eq!(w.settle(&a, End::Ok).state, LeaseEnd::Released);
    assert!(matches!(w.wait(&call(3)).because, Because::Slots { used: 1, limit: 1 }));
    w.now += 31 * SECOND;
    let _ = w.permit(&call(3));
    assert!(matches!(w.wait(&call(4)).because, Because::Window { used: 3, max: 3, .. }));
}

#[test]
fn keys_that_nobody_uses_are_forgotten() {
    let mut w = world(vec![
        Gate::new("rate", smooth(10, 5)).per(&[Part::Subject]),
        Gate::new("all", smooth(1_000, 5)),
    ]);
    for n in 0..5_000 {
        let to = Target::new("d").unwrap().with(Part::Subject, &format!("s{n}")).unwrap();
        let p = w.permit(&Call::new(Arc::new(to), Holder::number(n)));
        w.settle(&p, End::Ok);
        w.now += 10_000;
    }
    assert!(w.state.usage().keys < 50, "{:?}", w.state.usage());
    w.now += 3_600 * SECOND;
    assert!(w.state.at_rest(&w.set, w.now));
}

/// Everything that is counted, counted again from the leases and places.
fn audit(state: &Partition, set: &Compiled) {
    for (id, scope) in state.scopes.iter() {
        let leases = || state.leases.iter().map(|(_, l)| l).filter(|l| l.scopes[scope.rule] == id);
        assert_eq!(scope.live as usize, leases().count());
        for gate in set.gates.iter().filter(|g| g.scope == scope.rule) {
            let i = set.gates.iter().position(|g| g.name == gate.name).unwrap();
            if let scope::GateState::Pool(pool) = &scope.gates[gate.at] {
                assert_eq!(pool.used() as usize, leases().filter(|l| l.held & (1 << i) != 0).count());
            }
            if let scope::GateState::Level(level) = &scope.gates[gate.at] {
                let flying = leases().filter(|l| !l.quarantined && l.held & (1 << i) != 0);
                assert_eq!(level.figures().2, flying.map(|l| l.cost).sum::<i64>());
            }
        }
        let standing =
            state.places.iter().filter(|(_, p)| p.stands[scope.rule].is_some_and(|(at, _)| at == id));
        assert_eq!(scope.line.len() as usize, standing.count());
    }
    for (at, place) in state.places.iter() {
        assert_eq!(state.index.places.get(&place.holder), Some(&at));
        assert!(place.stands.iter().any(Option::is_some));
    }
    let live = state.leases.iter().filter(|(_, l)| !l.quarantined).count();
    assert_eq!(live, state.index.leases.len());
}

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
                        ask: rng.below(8) as u32 / 7,
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
                    let _ = w.state.renew(&w.set, w.now, &permit);
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
