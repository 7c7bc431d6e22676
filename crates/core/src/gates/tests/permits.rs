//! A call and its permit, from the ask to the end.

use super::*;

#[test]
fn a_renewal_leaves_what_has_lapsed_to_those_who_can_call_the_next() {
    let mut w = world(vec![Gate::new("slots", slots(2))]);
    let (_dead, living) = (w.permit(&call(1)), w.permit(&call(2)));
    w.now += 28 * SECOND;
    w.wait(&call(3));
    assert!(matches!(w.state.renew(w.now, &living), Renewal::Renewed { .. }));
    w.now += 2 * SECOND;
    assert!(matches!(w.state.renew(w.now, &living), Renewal::Renewed { .. }));
    let other = Call { place: false, deadline: Some(w.now), ..call(4) };
    assert_eq!(w.refused(&other).woken, [Holder::number(3)], "also by one who is refused");
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
    assert_eq!(w.state.renew(w.now, &dead), Renewal::Gone);
    assert_eq!(w.settle(&dead, End::Ok).state, LeaseEnd::Gone);
    assert_eq!(w.state.renew(w.now, &next), Renewal::Renewed { expires_at: w.now + 30 * SECOND });
}

#[test]
fn a_renewed_permit_lasts() {
    let mut w = world(vec![Gate::new("lock", lock())]);
    let permit = w.permit(&call(1));
    for _ in 0..10 {
        w.now += 20 * SECOND;
        assert!(matches!(w.state.renew(w.now, &permit), Renewal::Renewed { .. }));
        assert_eq!(w.wait(&call(2)).because, Because::Locked);
    }
    w.now += 30 * SECOND;
    let _ = w.permit(&call(2));
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
    assert_eq!(w.state.renew(w.now, &lapsed), Renewal::Gone);
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
