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
