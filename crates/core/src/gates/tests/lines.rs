//! Who is before whom, who lets whom pass, and who is woken.

use super::*;

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
fn a_bucket_wakes_the_first_only_if_it_got_something_back_or_has_enough() {
    let mut w = world(vec![Gate::new("points", bucket(100.0, 50.0))]);
    let costing = |n, points| Call { cost: Points::whole(points), ..call(n) };
    let (a, b) = (w.permit(&costing(1, 60)), w.permit(&costing(2, 40)));
    let first = w.wait(&costing(3, 50));
    w.wait(&costing(4, 50));
    assert_eq!(w.settle(&a, End::Ok).woken, [], "all of it was used: everybody has been told the time");
    w.now = first.retry_at;
    let Admission::Admitted(third) = w.admit(&costing(3, 50)) else { panic!() };
    assert_eq!(third.woken, [], "nothing is left for the next one");
    let back = Outcome { actual: Some(Points::whole(10)), ..Outcome::of(End::Ok) };
    let settled = w.state.settle(&w.set, w.now, &b, &back);
    assert_eq!(settled.woken, [Holder::number(4)], "30 came back: it comes sooner than it was told");
    let soon = w.wait(&costing(4, 50));
    w.wait(&costing(5, 10));
    w.now = soon.retry_at + SECOND / 2;
    let Admission::Admitted(fourth) = w.admit(&costing(4, 50)) else { panic!() };
    assert_eq!(fourth.woken, [Holder::number(5)], "there is enough for it");
}

#[test]
fn a_bucket_that_fills_faster_than_it_was_told_calls_one_after_the_other() {
    let mut w = world(vec![Gate::new("points", bucket(1_000.0, 5.0))]);
    let costing = |n| Call { cost: Points::whole(200), ..call(n) };
    let all: Vec<Permit> = (0..5).map(|n| w.permit(&costing(n))).collect();
    let first = w.wait(&costing(10));
    assert_eq!(w.wait(&costing(11)).retry_at - first.retry_at, 40 * SECOND);
    assert_eq!(w.wait(&costing(12)).retry_at - first.retry_at, 80 * SECOND);
    let rate = Observed { restore_per_s: Some(Points::whole(50)), ..Observed::default() };
    let faster = Outcome { observed: Some(rate), ..Outcome::of(End::Ok) };
    let settled = w.state.settle(&w.set, w.now, &all[0], &faster);
    assert_eq!(settled.woken, [Holder::number(10)]);
    for n in 10..12 {
        let soon = w.wait(&costing(n));
        assert_eq!(soon.retry_at - w.now, 4 * SECOND);
        w.now = soon.retry_at;
        let Admission::Admitted(admitted) = w.admit(&costing(n)) else { panic!() };
        assert_eq!(admitted.woken, [Holder::number(n + 1)], "it was told a time that is long past by then");
    }
}

#[test]
fn who_waits_for_another_gate_than_the_bucket_is_not_called_by_the_bucket() {
    let other = |kind| vec![Gate::new("points", bucket(100.0, 50.0)), Gate::new("other", kind)];
    // An open breaker: all have been told until when.
    let mut w = world(other(Kind::Breaker(Breaker::default())));
    let held = w.permit(&call(1));
    let _ = w.state.order_breaker(&w.set, w.now, "other", None, BreakerOrder::Trip { lasts: 60 * SECOND });
    for n in 2..6 {
        assert_eq!(w.wait(&call(n)).woken, [], "the bucket is nearly full, and nobody waits for it");
    }
    assert_eq!(w.settle(&held, End::Ok).woken, [Holder::number(2)], "an answer may close the breaker");
    // A rate: what comes back to the bucket is of no use to who waits for it.
    let mut w = world(other(smooth(1, 2)));
    let held = [w.permit(&call(1)), w.permit(&call(2))];
    w.wait(&call(3));
    let back = Outcome { actual: Some(Points(0)), ..Outcome::of(End::Ok) };
    for permit in held {
        assert_eq!(w.state.settle(&w.set, w.now, &permit, &back).woken, []);
    }
}

#[test]
fn after_a_cool_down_who_has_not_come_is_called() {
    let mut w = world(vec![Gate::new("points", bucket(100.0, 50.0))]);
    let held = w.permit(&call(1));
    let throttled = End::Throttled { retry_after: Some(10 * SECOND) };
    w.settle(&held, throttled);
    let first = w.wait(&Call { cost: Points::whole(60), ..call(2) });
    w.now = first.retry_at + SECOND;
    assert_eq!(w.wait(&Call { cost: Points::whole(60), ..call(3) }).woken, [Holder::number(2)]);
}

#[test]
fn whoever_is_called_and_does_not_come_lets_others_pass_and_coming_late_costs_only_the_turn() {
    let mut w = world(vec![Gate::new("slots", slots(1))]);
    let held = w.permit(&call(1));
    let (dead, dead_holder) = (w.wait(&call(2)), Holder::number(2));
    w.now += 100;
    let next = w.wait(&call(3));
    assert_eq!(w.settle(&held, End::Ok).woken, [dead_holder]);
    w.now += 2 * SECOND - 1;
    w.wait(&call(3));
    w.now += 1;
    let third = w.permit(&call(3));
    w.wait(&Call { since: Some(next.arrived), ..call(4) });
    let back = w.wait(&Call { since: Some(dead.arrived), ..call(2) });
    assert_eq!((back.position, back.arrived), (Some(1), dead.arrived));
    w.settle(&third, End::Ok);
}

#[test]
fn whoever_is_called_for_a_slot_keeps_the_place_where_it_waits_for_something_else() {
    let all = Gate::new("all", Kind::Window(Window { max: 1, every: Span::secs(60), unit: Unit::Calls }));
    let mut w = world(vec![Gate::new("slots", slots(2)).per(&[Part::Account]), all]);
    let held = w.permit(&call_to(1, "t", "a", ""));
    assert_eq!(&*w.wait(&call_to(2, "t", "a", "")).gate, "all");
    w.now += SECOND;
    assert_eq!(w.wait(&call_to(3, "t", "b", "")).position, Some(2));
    assert_eq!(w.settle(&held, End::Ok).woken, [Holder::number(2)]);
    w.now += 10 * SECOND;
    assert_eq!(w.wait(&call_to(3, "t", "b", "")).position, Some(2), "the first has its place");
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
fn who_is_put_first_is_also_the_first_of_the_line_that_it_comes_to_later() {
    let all = Gate::new("all", Kind::Window(Window { max: 1, every: Span::secs(10), unit: Unit::Calls }));
    let mut w = world(vec![Gate::new("slots", slots(1)).per(&[Part::Account]), all]);
    let held = w.permit(&call_to(1, "t", "a", ""));
    w.now += 1;
    assert_eq!(&*w.wait(&call_to(2, "t", "a", "")).gate, "all");
    for (n, account) in [(3, "b"), (4, "c")] {
        w.now += 1;
        assert_eq!(w.wait(&call_to(n, "t", account, "")).position, Some(n as u32 - 2));
    }
    w.now += 1;
    let last = call_to(5, "t", "a", "");
    w.wait(&last);
    assert!(w.state.promote(&w.set, w.now, &last.holder));
    w.settle(&held, End::Ok);
    assert_eq!(w.wait(&last).position, Some(1));
}
