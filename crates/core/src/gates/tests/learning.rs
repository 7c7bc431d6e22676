//! What answers teach: breakers, cool-downs, quotas that are hit.

use super::*;

#[test]
fn a_place_refused_by_the_breaker_lasts_for_the_open_time() {
    let mut w =
        world(vec![Gate::new("breaker", Kind::Breaker(Breaker::default())), Gate::new("slots", slots(2))]);
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
fn violations_are_remembered_for_an_hour_and_keep_their_key_for_as_long() {
    let mut w = world(vec![Gate::new("quota", Kind::Quota(Quota::slots(1))).per(&[Part::Tenant])]);
    let held = w.permit(&call_to(1, "t", "", ""));
    w.wait(&call_to(2, "t", "", ""));
    w.settle(&held, End::Ok);
    let counted = |w: &mut World| match w.state.inspect(&w.set, w.now, 9)[0].gates[0].1 {
        GateView::Quota { violations, .. } => violations,
        ref other => panic!("{other:?}"),
    };
    let violated = w.now;
    w.now += 3_599 * SECOND;
    while w.state.expire(&w.set, w.now).more {}
    assert!(!w.state.at_rest(&w.set, w.now), "it would forget the violation");
    assert_eq!(counted(&mut w), 1);
    w.now = violated + 3_600 * SECOND;
    assert_eq!(counted(&mut w), 0);
    assert!(w.state.at_rest(&w.set, w.now));
}

#[test]
fn a_bucket_at_rest_is_the_same_as_a_new_one() {
    let seen = |capacity| Outcome {
        observed: Some(Observed { capacity: Some(Points::whole(capacity)), ..Observed::default() }),
        ..Outcome::of(End::Ok)
    };
    // Used once, then at rest for longer than anything is remembered without use; not forgotten in between.
    let mut old = world(vec![Gate::new("bucket", bucket(100.0, 50.0))]);
    let first = old.permit(&call(1));
    old.settle(&first, End::Ok);
    for n in 0..5 {
        old.now += 1_000 * SECOND;
        let p = old.permit(&call(10 + n));
        old.settle(&p, End::Ok);
    }
    old.now += 10 * SECOND;
    assert!(old.state.at_rest(&old.set, old.now));
    let mut new = world(vec![Gate::new("bucket", bucket(100.0, 50.0))]);
    new.now = old.now;
    for w in [&mut old, &mut new] {
        let p = w.permit(&call(20));
        w.state.settle(&w.set, w.now, &p, &seen(40));
        // A cut, so a cost between waits, and is not refused for good.
        assert!(matches!(w.admit(&call(21).cost(Points::whole(60))), Admission::Wait(_)));
    }
}
