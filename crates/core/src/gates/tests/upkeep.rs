//! Operators' levers, new settings, and keys that nobody uses.

use super::*;

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
fn new_settings_know_the_probes_that_are_out() {
    let breaker = |probes| Kind::Breaker(Breaker { failures: 1, probes, ..Breaker::default() });
    let mut w = world(vec![Gate::new("breaker", breaker(2))]);
    let failed = w.permit(&call(1));
    w.settle(&failed, End::Failed(Failure::Server));
    w.now += 61 * SECOND;
    let probes = [w.permit(&call(2)), w.permit(&call(3))];
    let new =
        Compiled::new(GateSet::of(vec![Gate::new("slots", slots(9)), Gate::new("breaker", breaker(2))]));
    w.state.reconfigure(&w.set, &new.as_ref().unwrap().clone(), w.now);
    w.set = new.unwrap();
    audit(&w.state, &w.set);
    assert_eq!(w.wait(&call(4)).because, Because::BreakerProbing { probes: 2 });
    for probe in &probes {
        w.settle(probe, End::Ok);
    }
    let _ = w.permit(&call(4));
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

#[test]
fn after_a_loss_keys_are_forgotten_once_everything_could_have_come_back() {
    let window = Kind::Window(Window { max: 3, every: Span::secs(600), unit: Unit::Calls });
    let mut w =
        world(vec![Gate::new("window", window).per(&[Part::Subject]), Gate::new("all", smooth(9, 9))]);
    w.state = Partition::new(&w.set, Start::Empty { at: w.now });
    let to = |n: u64| {
        let to = Target::new("d").unwrap().with(Part::Subject, &format!("s{n}")).unwrap();
        Call::new(Arc::new(to), Holder::number(n))
    };
    assert!(matches!(w.wait(&to(0)).because, Because::Window { used: 3, .. }), "nothing is given at once");
    w.now += 601 * SECOND;
    for n in 1..3_000 {
        let p = w.permit(&to(n));
        w.settle(&p, End::Ok);
        w.now += SECOND;
    }
    assert!(w.state.usage().keys < 1_500, "{:?}", w.state.usage());
    w.now += 3_600 * SECOND;
    while w.state.expire(&w.set, w.now).more {}
    assert!(w.state.at_rest(&w.set, w.now));
}

#[test]
fn a_breaker_tripped_for_all_stops_keys_that_come_later_until_it_is_over_or_reset() {
    let breaker = || Kind::Breaker(Breaker { ramp: Span::secs(0), ..Breaker::default() });
    let mut w =
        world(vec![Gate::new("rate", smooth(9, 9)), Gate::new("breaker", breaker()).per(&[Part::Tenant])]);
    let failing = w.permit(&call_to(1, "failing", "", ""));
    w.settle(&failing, End::Failed(Failure::Server));
    let trip = BreakerOrder::Trip { lasts: 60 * SECOND };
    assert_eq!(w.state.order_breaker(&w.set, w.now, "breaker", None, trip), 1);
    for tenant in ["failing", "later"] {
        let wait = w.wait(&Call { place: false, ..call_to(2, tenant, "", "") });
        assert_eq!((wait.because, wait.retry_at - w.now), (Because::BreakerOpen, 60 * SECOND));
    }
    assert!(!w.state.at_rest(&w.set, w.now + 59 * SECOND));
    w.state.order_breaker(&w.set, w.now, "breaker", None, BreakerOrder::Reset);
    let _ = w.permit(&call_to(3, "later", "", ""));
    w.state.order_breaker(&w.set, w.now, "breaker", None, trip);
    w.now += 60 * SECOND;
    let _ = w.permit(&call_to(4, "new", "", ""));
    let mut whole = world(vec![Gate::new("breaker", breaker())]);
    whole.state.order_breaker(&whole.set, whole.now, "breaker", None, trip);
    assert_eq!(whole.wait(&call(1)).because, Because::BreakerOpen, "before its first call");
}
