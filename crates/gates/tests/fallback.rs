//! Four processes on one backend that goes away, in virtual time: what they admit without it, and how they come back.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod fallback_support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fallback_support::{Fleet, Mood, fleet};
use tidegate_core::gates::config::{Breaker, Degraded, Lock, Reported, Slots, Smooth, Window};
use tidegate_core::gates::{
    Admission, Because, BreakerOrder, Call, End, Failure, Gate, GateSet, Holder, Kind, Micros, Outcome, Part,
    Permit, Renewal, SECOND, Span, Target, Unit,
};
use tidegate_gates::{BackendState, Cause, GateOperations, Gates, Note, admitted};
use tokio::time::{Instant, sleep, timeout};

fn target() -> Arc<Target> {
    Arc::new(Target::new("d").unwrap())
}

fn call(n: u64) -> Call {
    Call::new(target(), Holder::number(n))
}

fn window(max: i64) -> Gate {
    Gate::new("window", Kind::Window(Window { max, every: Span::secs(1), unit: Unit::Calls }))
}

fn permit(reply: Admission) -> Permit {
    match reply {
        Admission::Admitted(a) => a.permit,
        other => panic!("{other:?}"),
    }
}

/// It is admitted, and holds what it has until its lease ends.
fn passes(reply: Admission) {
    assert!(matches!(reply, Admission::Admitted(_)), "{reply:?}");
}

fn because(reply: Admission) -> Because {
    match reply {
        Admission::Wait(wait) => wait.because,
        other => panic!("{other:?}"),
    }
}

fn ok() -> Outcome {
    Outcome::of(End::Ok)
}

/// Runs `tasks` per member that call all the time; the instants of admission and the ends.
async fn load(fleet: &Fleet, tasks: u64, lasts: Duration, calls: Duration) -> Vec<(Micros, Micros)> {
    let mut running = tokio::task::JoinSet::new();
    let began = Instant::now();
    for (m, member) in fleet.members.iter().enumerate() {
        for task in 0..tasks {
            let member = member.clone();
            running.spawn(async move {
                let mut seen = Vec::new();
                for n in 0.. {
                    let holder = Holder::new(format!("m{m}-t{task}-{n}")).unwrap();
                    let asked = admitted(&*member, Call::new(target(), holder));
                    let Ok(reply) = timeout(lasts.saturating_sub(began.elapsed()), asked).await else {
                        break;
                    };
                    let permit = permit(reply.unwrap());
                    sleep(calls).await;
                    seen.push((permit.admitted_at, member.clock()));
                    member.settle(None, &permit, &ok()).await.unwrap();
                }
                seen
            });
        }
    }
    let mut all: Vec<_> = running.join_all().await.into_iter().flatten().collect();
    all.sort_unstable();
    all
}

/// Most admissions in any window of a second, of those from this instant on.
fn most_in_a_second(seen: &[(Micros, Micros)], from: Micros) -> usize {
    let at: Vec<Micros> = seen.iter().map(|s| s.0).filter(|t| *t >= from).collect();
    (0..at.len()).map(|i| at[i..].iter().take_while(|t| **t - at[i] < SECOND).count()).max().unwrap_or(0)
}

fn count_between(seen: &[(Micros, Micros)], from: Micros, to: Micros) -> usize {
    seen.iter().filter(|s| (from..to).contains(&s.0)).count()
}

#[tokio::test(start_paused = true)]
async fn what_operators_have_said_holds_while_the_backend_is_away() {
    let breaker = Gate::new("health", Kind::Breaker(Breaker::default())).per(&[Part::Account]);
    // Processes remember what they admitted alone for as long as this one looks back.
    let long = Window { max: 1_000, every: Span::secs(50), unit: Unit::Calls };
    let long = Gate::new("long", Kind::Window(long));
    let fleet = fleet(2, GateSet::of(vec![breaker, window(1), long])).await;
    let note = || Note { who: "ada".into(), why: "their outage".into() };
    let one = &fleet.members[0];
    let trip = BreakerOrder::Trip { lasts: 600 * SECOND };
    one.order_breaker(None, "d", ("health", None), trip, note()).await.unwrap();
    one.switch("d", Some("window"), true, note()).await.unwrap();
    fleet.server.is(Mood::Down);
    sleep(Duration::from_secs(3)).await;
    for member in &fleet.members {
        let Admission::Wait(wait) = member.admit(None, &call(1)).await.unwrap() else { panic!() };
        assert_eq!(wait.because, Because::BreakerOpen);
        assert!(
            wait.retry_at - fleet.links[0].now() < 10 * SECOND,
            "the order may be taken back sooner: {wait:?}"
        );
        let orders = member.orders("d").await.unwrap();
        assert_eq!((orders.len(), &orders[0].note), (1, &note()));
        assert_eq!(member.switches("d").await.unwrap()[0].gate, "window");
    }
    // It comes back and leaves again, while the models of the first time are still there.
    fleet.server.is(Mood::Fine);
    fleet.all_are(BackendState::Returning).await;
    one.switch("d", Some("long"), true, note()).await.unwrap();
    fleet.server.is(Mood::Down);
    fleet.all_are(BackendState::Away).await;
    for member in &fleet.members {
        assert_eq!(because(member.admit(None, &call(2)).await.unwrap()), Because::BreakerOpen);
        let off = member.switches("d").await.unwrap();
        assert_eq!(off.iter().map(|s| s.gate.as_str()).collect::<Vec<_>>(), ["long", "window"]);
    }
    fleet.server.is(Mood::Fine);
    fleet.all_are(BackendState::Returning).await;
    one.order_breaker(None, "d", ("health", None), BreakerOrder::Reset, note()).await.unwrap();
    for n in 0..3 {
        passes(one.admit(None, &call(10 + n)).await.unwrap());
    }
    // What was said between two outages holds in the second.
    one.order_breaker(None, "d", ("health", None), trip, note()).await.unwrap();
    fleet.server.is(Mood::Down);
    fleet.all_are(BackendState::Away).await;
    for member in &fleet.members {
        assert_eq!(because(member.admit(None, &call(3)).await.unwrap()), Because::BreakerOpen);
    }
}

#[tokio::test(start_paused = true)]
async fn what_operators_say_elsewhere_in_an_outage_holds_as_soon_as_it_is_heard() {
    let breaker = Gate::new("health", Kind::Breaker(Breaker::default()));
    let fleet = fleet(1, GateSet::of(vec![breaker, window(1)])).await;
    let (one, note) = (&fleet.members[0], || Note { who: "ada".into(), why: "their outage".into() });
    // By a process that reaches the backend, of which this one hears although it has gone on alone.
    let elsewhere = fleet.server.gates.lock().unwrap().clone();
    let now = || Some(fleet.links[0].now());
    let order =
        async |order| elsewhere.order_breaker(now(), "d", ("health", None), order, note()).await.unwrap();
    let trip = |lasts| BreakerOrder::Trip { lasts };
    order(trip(24 * 3_600 * SECOND)).await;
    fleet.server.is(Mood::Down);
    assert_eq!(because(one.admit(None, &call(1)).await.unwrap()), Because::BreakerOpen);
    order(BreakerOrder::Reset).await;
    passes(one.admit(None, &call(1)).await.unwrap());
    assert!(matches!(because(one.admit(None, &call(2)).await.unwrap()), Because::Window { .. }));
    elsewhere.switch("d", Some("window"), true, note()).await.unwrap();
    passes(one.admit(None, &call(2)).await.unwrap());
    elsewhere.switch("d", Some("window"), false, note()).await.unwrap();
    assert!(matches!(because(one.admit(None, &call(3)).await.unwrap()), Because::Window { .. }));
    order(trip(600 * SECOND)).await;
    let Admission::Wait(wait) = one.admit(None, &call(3)).await.unwrap() else { panic!() };
    assert_eq!(wait.because, Because::BreakerOpen);
    assert!(wait.retry_at - fleet.links[0].now() < 10 * SECOND, "it may be taken back sooner: {wait:?}");
    // New settings meanwhile do not lose it.
    let breaker = |name: &str| Gate::new(name, Kind::Breaker(Breaker::default()));
    fleet.server.is(Mood::Fine);
    one.configure("d", GateSet::of(vec![breaker("pulse"), window(1)])).await.unwrap();
    one.configure("d", GateSet::of(vec![breaker("health"), window(1)])).await.unwrap();
    assert_eq!(one.health().state, BackendState::Away);
    order(trip(600 * SECOND)).await;
    assert_eq!(because(one.admit(None, &call(3)).await.unwrap()), Because::BreakerOpen);
}

#[tokio::test(start_paused = true)]
async fn an_order_that_is_over_does_not_hasten_who_waits_for_a_breaker_that_has_tripped() {
    let fleet = fleet(1, GateSet::of(vec![Gate::new("health", Kind::Breaker(Breaker::default()))])).await;
    let (one, note) = (&fleet.members[0], Note { who: "ada".into(), why: "their outage".into() });
    let (elsewhere, now) = (fleet.server.gates.lock().unwrap().clone(), Some(fleet.links[0].now()));
    let trip = BreakerOrder::Trip { lasts: SECOND };
    elsewhere.order_breaker(now, "d", ("health", None), trip, note).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(fleet.links[0].heard("d").orders.len(), 1, "it is over, and still told");
    fleet.server.is(Mood::Down);
    let mut n = 0;
    let wait = loop {
        n += 1;
        match one.admit(None, &call(n)).await.unwrap() {
            Admission::Admitted(a) => {
                let failed = Outcome::of(End::Failed(Failure::Server));
                one.settle(None, &a.permit, &failed).await.unwrap();
            }
            Admission::Wait(wait) => break wait,
            Admission::Refused(refused) => panic!("{refused:?}"),
        }
    };
    assert_eq!((wait.because, n), (Because::BreakerOpen, 6));
    assert!(wait.retry_at - fleet.links[0].now() > 50 * SECOND, "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_owed_is_settled_although_new_settings_come_meanwhile() {
    let pool = || GateSet::of(vec![Gate::new("pool", Kind::Slots(Slots::of(9)))]);
    let fleet = fleet(1, pool()).await;
    let one = &fleet.members[0];
    let mut held = Vec::new();
    for n in 0..5 {
        held.push(permit(one.admit(None, &call(n)).await.unwrap()));
    }
    fleet.server.is(Mood::Down);
    for permit in &held {
        one.settle(None, permit, &ok()).await.unwrap();
    }
    fleet.server.is(Mood::Takes(Duration::from_millis(100)));
    fleet.all_are(BackendState::Normal).await;
    one.configure("d", pool()).await.unwrap();
    let late = one.counters().settled_late;
    assert!(late < 4, "{late} were settled before");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(one.counters().settled_late, 5);
}

#[tokio::test(start_paused = true)]
async fn who_is_stopped_by_an_order_calls_the_first_of_the_line_all_the_same() {
    let set = |restore_per_s| {
        let breaker = Gate::new("health", Kind::Breaker(Breaker::default())).only(&["stopped"]);
        let bucket = Reported { capacity: 1.0, restore_per_s, known: true };
        GateSet::of(vec![Gate::new("bucket", Kind::Reported(bucket)), breaker])
    };
    let fleet = fleet(1, set(0.01)).await;
    let one = &fleet.members[0];
    let (trip, note) =
        (BreakerOrder::Trip { lasts: 600 * SECOND }, Note { who: "ada".into(), why: "their outage".into() });
    one.order_breaker(None, "d", ("health", None), trip, note).await.unwrap();
    fleet.server.is(Mood::Down);
    passes(one.admit(None, &call(1)).await.unwrap());
    assert!(matches!(one.admit(None, &call(2)).await.unwrap(), Admission::Wait(_)));
    // It was told to come in 100 s, and could come sooner now.
    fleet.server.is(Mood::Fine);
    one.configure("d", set(1_000.0)).await.unwrap();
    assert_eq!(one.health().state, BackendState::Away);
    sleep(Duration::from_millis(50)).await;
    let stopped = Arc::new(Target::new("d").unwrap().with(Part::Endpoint, "stopped").unwrap());
    let reply = one.admit(None, &Call::new(stopped, Holder::number(3))).await.unwrap();
    let Admission::Wait(wait) = reply else { panic!("{reply:?}") };
    assert_eq!((wait.because, wait.woken), (Because::BreakerOpen, vec![Holder::number(2)]));
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_finds_the_backend_gone_acts_in_the_process_that_made_it() {
    let long = Window { max: 1_000, every: Span::secs(50), unit: Unit::Calls };
    let fleet = fleet(1, GateSet::of(vec![window(1), Gate::new("long", Kind::Window(long))])).await;
    let one = &fleet.members[0];
    fleet.server.is(Mood::Down);
    passes(one.admit(None, &call(1)).await.unwrap());
    fleet.server.is(Mood::Fine);
    fleet.all_are(BackendState::Returning).await;
    fleet.server.is(Mood::Down);
    let note = Note { who: "ada".into(), why: "limit lifted".into() };
    assert!(one.switch("d", Some("window"), true, note).await.is_err(), "the backend was not told");
    for n in 2..5 {
        passes(one.admit(None, &call(n)).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_is_closed_without_the_backend_can_be_switched_off_there() {
    let lock = Gate::new("lock", Kind::Lock(Lock::default()));
    let fleet = fleet(1, GateSet::of(vec![lock, window(100)])).await;
    let one = &fleet.members[0];
    let note = || Note { who: "ada".into(), why: "nobody else is there".into() };
    fleet.server.is(Mood::Down);
    // Before there is a model, and after.
    for n in 1..3 {
        assert!(one.switch("d", Some("lock"), true, note()).await.is_err(), "the backend was not told");
        passes(one.admit(None, &call(n)).await.unwrap());
        assert_eq!(one.switches("d").await.unwrap()[0].gate, "lock");
        assert!(one.switch("d", Some("lock"), false, note()).await.is_err());
        assert_eq!(because(one.admit(None, &call(9)).await.unwrap()), Because::BackendAway);
        assert!(one.switches("d").await.unwrap().is_empty());
    }
    let said = one.switch("d", None, true, note()).await.unwrap_err().to_string();
    assert!(said.ends_with("; in the process that was asked it holds until the backend is back"), "{said}");
    passes(one.admit(None, &call(3)).await.unwrap());
    // The backend has not been told: when it is back, nothing was said.
    fleet.server.is(Mood::Fine);
    fleet.all_are(BackendState::Returning).await;
    fleet.server.is(Mood::Down);
    fleet.all_are(BackendState::Away).await;
    assert_eq!(because(one.admit(None, &call(9)).await.unwrap()), Because::BackendAway);
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_was_made_in_an_outage_gives_way_to_what_is_heard_of_its_gate_later() {
    let lock = Gate::new("lock", Kind::Lock(Lock::default()));
    let fleet = fleet(1, GateSet::of(vec![lock, window(1)])).await;
    let (one, note) = (&fleet.members[0], || Note { who: "ada".into(), why: "their outage".into() });
    let elsewhere = fleet.server.gates.lock().unwrap().clone();
    fleet.server.is(Mood::Down);
    for gate in ["window", "lock"] {
        assert!(one.switch("d", Some(gate), true, note()).await.is_err(), "the backend was not told");
    }
    for n in 0..3 {
        passes(one.admit(None, &call(n)).await.unwrap());
    }
    // Of the other gate nothing newer is heard.
    elsewhere.switch("d", Some("window"), true, note()).await.unwrap();
    passes(one.admit(None, &call(3)).await.unwrap());
    elsewhere.switch("d", Some("window"), false, note()).await.unwrap();
    let _ = one.admit(None, &call(20)).await.unwrap();
    let limited = because(one.admit(None, &call(21)).await.unwrap());
    assert!(matches!(limited, Because::Window { .. }), "the older word does not come back: {limited:?}");
    assert!(one.switch("d", Some("window"), false, note()).await.is_err());
    elsewhere.switch("d", Some("window"), true, note()).await.unwrap();
    for n in 4..6 {
        passes(one.admit(None, &call(n)).await.unwrap());
    }
    let off = one.switches("d").await.unwrap();
    assert_eq!(off.iter().map(|s| s.gate.as_str()).collect::<Vec<_>>(), ["lock", "window"]);
    // And said here again, it is the newest.
    assert!(one.switch("d", Some("lock"), false, note()).await.is_err());
    assert_eq!(because(one.admit(None, &call(9)).await.unwrap()), Because::BackendAway);
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_the_backend_was_told_is_no_word_of_this_process_alone() {
    let fleet = fleet(1, GateSet::of(vec![window(1)])).await;
    let (one, note) = (&fleet.members[0], || Note { who: "ada".into(), why: "their outage".into() });
    let elsewhere = fleet.server.gates.lock().unwrap().clone();
    fleet.server.is(Mood::Down);
    fleet.all_are(BackendState::Away).await;
    // It answers, but has not shown yet that it is back.
    fleet.server.is(Mood::Fine);
    one.switch("d", Some("window"), true, note()).await.unwrap();
    elsewhere.switch("d", Some("window"), false, note()).await.unwrap();
    assert_eq!(one.health().state, BackendState::Away);
    passes(one.admit(None, &call(1)).await.unwrap());
    let limited = because(one.admit(None, &call(2)).await.unwrap());
    assert!(matches!(limited, Because::Window { .. }), "{limited:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_switched_while_a_process_returns_is_heard_there() {
    let long = Window { max: 4, every: Span::secs(50), unit: Unit::Calls };
    let fleet = fleet(2, GateSet::of(vec![Gate::new("long", Kind::Window(long))])).await;
    let note = || Note { who: "ada".into(), why: "limit lifted".into() };
    fleet.server.is(Mood::Down);
    for (n, member) in (1..).zip(&fleet.members) {
        passes(member.admit(None, &call(n)).await.unwrap());
    }
    fleet.server.is(Mood::Fine);
    fleet.all_are(BackendState::Returning).await;
    let (one, two) = (&fleet.members[0], &fleet.members[1]);
    one.switch("d", None, true, note()).await.unwrap();
    for n in 10..20 {
        passes(two.admit(None, &call(n)).await.unwrap());
    }
    one.switch("d", None, false, note()).await.unwrap();
    let _ = two.admit(None, &call(20)).await.unwrap();
    assert!(matches!(because(two.admit(None, &call(21)).await.unwrap()), Because::Window { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_was_made_in_an_outage_holds_when_another_backend_is_found() {
    let fleet = fleet(1, GateSet::of(vec![window(1)])).await;
    let one = &fleet.members[0];
    fleet.server.is(Mood::Down);
    passes(one.admit(None, &call(1)).await.unwrap());
    let note = Note { who: "ada".into(), why: "limit lifted".into() };
    assert!(one.switch("d", Some("window"), true, note).await.is_err(), "the backend was not told");
    fleet.server.lose_everything();
    fleet.server.is(Mood::Fine);
    one.usage().await.unwrap();
    assert_eq!((one.counters().losses, one.health().state), (1, BackendState::Away));
    passes(one.admit(None, &call(2)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_is_admitted_while_new_settings_come_counts_under_them() {
    let pool = || GateSet::of(vec![Gate::new("pool", Kind::Slots(Slots::of(2)))]);
    let fleet = fleet(1, pool()).await;
    let one = &fleet.members[0];
    fleet.server.is(Mood::Takes(Duration::from_mins(1)));
    let asked = fleet.server.asked.load(Ordering::SeqCst);
    let (waiting, first) = (one.clone(), call(1));
    let waiting = tokio::spawn(async move { waiting.admit(None, &first).await });
    while fleet.server.asked.load(Ordering::SeqCst) == asked {
        tokio::task::yield_now().await;
    }
    fleet.server.is(Mood::Fine);
    one.configure("d", pool()).await.unwrap();
    passes(waiting.await.unwrap().unwrap());
    assert_eq!(one.health().state, BackendState::Away);
    passes(one.admit(None, &call(2)).await.unwrap());
    assert!(matches!(one.admit(None, &call(3)).await.unwrap(), Admission::Wait(_)));
}

#[tokio::test(start_paused = true)]
async fn rates_go_on_at_their_share_and_come_back_without_a_burst() {
    let fleet = fleet(4, GateSet::of(vec![window(100)])).await;
    let clock = || fleet.links[0].now();
    let began = clock();
    let outage = async {
        sleep(Duration::from_secs(4)).await;
        fleet.server.is(Mood::Down);
        fleet.all_are(BackendState::Away).await;
        let away = clock();
        assert_eq!(fleet.members[0].health().because, Some(Cause::Unreachable));
        sleep(Duration::from_secs(10)).await;
        fleet.server.is(Mood::Fine);
        fleet.all_are_normal().await;
        (away, clock())
    };
    let (seen, (away, normal)) =
        tokio::join!(load(&fleet, 30, Duration::from_secs(24), Duration::from_millis(5)), outage);
    assert!(away - began < 4 * SECOND + 100_000, "noticed at once, by the first call that failed");
    assert!(normal - began < 17 * SECOND, "normal again within three seconds: {}", normal - began);
    assert_eq!(most_in_a_second(&seen, began), 200, "one limit's worth beyond, where the outage begins");
    assert_eq!(most_in_a_second(&seen, away + SECOND), 100, "and never again");
    let alone = count_between(&seen, away + SECOND, away + 9 * SECOND);
    assert!(alone >= 795, "the shares are used: {alone} in 8 s");
    let after = count_between(&seen, normal, normal + 4 * SECOND);
    assert!(after >= 390, "{after} in 4 s after the return");
}

#[tokio::test(start_paused = true)]
async fn a_smooth_rate_keeps_its_promise_while_the_backend_flaps() {
    let smooth = Smooth { rate: 100, every: Span::secs(1), burst: 10, unit: Unit::Calls };
    let fleet = fleet(4, GateSet::of(vec![Gate::new("smooth", Kind::Smooth(smooth))])).await;
    let flaps = async {
        sleep(Duration::from_secs(2)).await;
        for _ in 0..20 {
            fleet.server.is(Mood::Down);
            sleep(Duration::from_millis(300)).await;
            fleet.server.is(Mood::Fine);
            sleep(Duration::from_millis(300)).await;
        }
    };
    let (seen, ()) = tokio::join!(load(&fleet, 20, Duration::from_secs(16), Duration::from_millis(2)), flaps);
    // Every outage may cost one burst beyond, if it begins when the backend's was just used.
    let most = most_in_a_second(&seen, 0);
    assert!(most <= 110 + 2 * 10, "{most} in a second");
    assert!(seen.len() > 1_400, "{} of 1,600", seen.len());
}

#[tokio::test(start_paused = true)]
async fn a_pool_counts_what_the_backend_gave_out() {
    let fleet = fleet(4, GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(8)))])).await;
    let one = &fleet.members[0];
    let mut permits = vec![];
    for n in 0..6 {
        permits.push(permit(one.admit(None, &call(n)).await.unwrap()));
    }
    fleet.server.is(Mood::Down);
    let reply = because(one.admit(None, &call(9)).await.unwrap());
    assert_eq!(reply, Because::Slots { used: 6, limit: 2 }, "it has more than its share already");
    let other = &fleet.members[3];
    for n in 10..12 {
        passes(other.admit(None, &call(n)).await.unwrap());
    }
    assert!(matches!(
        because(other.admit(None, &call(12)).await.unwrap()),
        Because::Slots { used: 2, limit: 2 }
    ));
    for held in permits.drain(..5) {
        one.settle(None, &held, &ok()).await.unwrap();
    }
    passes(one.admit(None, &call(9)).await.unwrap());
    // What was settled meanwhile is told to the backend when it is back.
    fleet.server.is(Mood::Fine);
    while one.counters().settled_late < 5 {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(fleet.links[0].holders("d", 99).await.unwrap().len(), 1, "the one that is still out");
}

#[tokio::test(start_paused = true)]
async fn a_lock_waits_for_the_backend_and_its_holder_stops_in_time() {
    let lock = Gate::new("lock", Kind::Lock(Lock::default())).per(&[Part::Account]).only(&["bulk"]);
    let fleet = fleet(2, GateSet::of(vec![lock, window(50)])).await;
    let bulk = |account: &str| {
        let target = Target::new("d").unwrap().with(Part::Account, account).unwrap();
        Arc::new(target.with(Part::Endpoint, "bulk").unwrap())
    };
    let asks = |n: u64| Call { lease: 5 * SECOND, ..Call::new(bulk("a"), Holder::number(n)) };
    let held = permit(fleet.members[0].admit(None, &asks(1)).await.unwrap());
    *fleet.links[0].own.lock().unwrap() = Some(Mood::Down);
    assert_eq!(because(fleet.members[0].admit(None, &asks(2)).await.unwrap()), Because::BackendAway);
    passes(fleet.members[0].admit(None, &call(3)).await.unwrap());
    sleep(Duration::from_secs(2)).await;
    let renewed = fleet.members[0].renew(None, &held).await.unwrap();
    assert_eq!(renewed, Renewal::Renewed { expires_at: held.expires_at }, "no longer than the backend said");
    assert_eq!(because(fleet.members[1].admit(None, &asks(4)).await.unwrap()), Because::Locked);
    sleep(Duration::from_micros((held.expires_at - fleet.links[0].now()) as u64)).await;
    assert_eq!(fleet.members[0].renew(None, &held).await.unwrap(), Renewal::Gone);
    passes(fleet.members[1].admit(None, &asks(5)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_the_backend_took_away_is_gone_also_where_the_own_model_has_it() {
    let lock = Gate::new("lock", Kind::Lock(Lock::default())).only(&["bulk"]);
    let fleet = fleet(2, GateSet::of(vec![lock, window(50)])).await;
    let one = &fleet.members[0];
    let bulk = Arc::new(Target::new("d").unwrap().with(Part::Endpoint, "bulk").unwrap());
    let held = permit(one.admit(None, &Call::new(bulk, Holder::number(1))).await.unwrap());
    fleet.server.is(Mood::Down);
    passes(one.admit(None, &call(2)).await.unwrap());
    fleet.server.is(Mood::Fine);
    fleet.members[0].watch().wait_for(|h| h.state == BackendState::Returning).await.unwrap();
    assert!(matches!(one.renew(None, &held).await.unwrap(), Renewal::Renewed { .. }));
    let note = Note { who: "ada".into(), why: "stuck".into() };
    fleet.links[1].force_release(None, "d", &held.holder, false, note).await.unwrap();
    assert_eq!(one.renew(None, &held).await.unwrap(), Renewal::Gone, "somebody else may have it");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_the_backend_forgot_is_not_given_out_twice() {
    let fleet = fleet(3, GateSet::of(vec![Gate::new("lock", Kind::Lock(Lock::default()))])).await;
    let held = permit(fleet.members[0].admit(None, &call(1)).await.unwrap());
    fleet.server.lose_everything();
    for n in 2..20 {
        let reply = fleet.members[(n % 3) as usize].admit(None, &call(n)).await.unwrap();
        assert_eq!(because(reply), Because::BackendLost);
        sleep(Duration::from_millis(500)).await;
    }
    assert!(matches!(fleet.members[0].renew(None, &held).await.unwrap(), Renewal::Renewed { .. }));
    fleet.members[0].settle(None, &held, &ok()).await.unwrap();
    fleet.all_are_normal().await;
    passes(fleet.members[1].admit(None, &call(30)).await.unwrap());
    assert!(fleet.members.iter().all(|m| m.counters().losses == 1));
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_holder_never_says_it_is_clear_is_given_out_after_the_lease() {
    let fleet = fleet(2, GateSet::of(vec![Gate::new("lock", Kind::Lock(Lock::default()))])).await;
    passes(fleet.members[0].admit(None, &call(1)).await.unwrap());
    *fleet.links[0].own.lock().unwrap() = Some(Mood::Down);
    fleet.server.lose_everything();
    let lost = Instant::now();
    let reply = admitted(&*fleet.members[1], call(2)).await.unwrap();
    passes(reply);
    let waited = lost.elapsed();
    assert!(waited >= Duration::from_secs(30), "{waited:?}");
    assert!(waited < Duration::from_secs(36), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_backend_is_spared_and_one_that_is_too_slow_is_left() {
    let fleet = fleet(2, GateSet::of(vec![window(100)])).await;
    fleet.server.is(Mood::Takes(Duration::from_millis(700)));
    fleet.all_are(BackendState::Slow).await;
    assert!(fleet.members[0].health().stretch > 1);
    fleet.server.is(Mood::Takes(Duration::from_millis(2_500)));
    let asked = Instant::now();
    let held = permit(fleet.members[0].admit(None, &call(1)).await.unwrap());
    assert!(asked.elapsed() <= Duration::from_millis(2_001), "went on by itself: {:?}", asked.elapsed());
    assert_eq!(held.admitted_at, fleet.links[0].now(), "admitted now, not when it was asked for");
    fleet.all_are(BackendState::Away).await;
    fleet.server.is(Mood::Takes(Duration::from_millis(800)));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(fleet.members[0].health().state, BackendState::Away, "not back before it is quick");
    fleet.server.is(Mood::Fine);
    fleet.all_are_normal().await;
}

#[tokio::test(start_paused = true)]
async fn what_goes_through_all_partitions_takes_its_time_and_is_no_outage() {
    let breaker = Gate::new("health", Kind::Breaker(Breaker::default()));
    let fleet = fleet(1, GateSet::of(vec![breaker])).await;
    let (one, note) = (&fleet.members[0], || Note { who: "ada".into(), why: "their outage".into() });
    let all = |partitions| fleet.server.partitions.store(partitions, Ordering::SeqCst);
    let mut health = one.watch();
    health.mark_unchanged();
    let asked = Instant::now();
    all(15_000);
    one.usage().await.unwrap();
    one.expire(None, "d").await.unwrap();
    one.inspect(None, "d", 9).await.unwrap();
    let trip = BreakerOrder::Trip { lasts: 600 * SECOND };
    one.order_breaker(None, "d", ("health", None), trip, note()).await.unwrap();
    all(1);
    assert!(asked.elapsed() > 4 * Duration::from_secs(3), "{:?}", asked.elapsed());
    assert!(!health.has_changed().unwrap(), "{:?}", one.health());
    assert_eq!((one.counters().outages, one.counters().failures), (0, 0));
    assert_eq!(fleet.links[0].heard("d").orders.len(), 1);
    // One that fails half way is a failure.
    all(15_000);
    let breaks = async {
        sleep(Duration::from_millis(100)).await;
        fleet.server.is(Mood::Down);
    };
    let (answer, ()) = tokio::join!(one.usage(), breaks);
    assert_eq!((answer.unwrap_err().code().id, one.health().state), ("TG5011", BackendState::Away));
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_only_reads_is_away() {
    let fleet = fleet(2, GateSet::of(vec![window(100)])).await;
    fleet.server.is(Mood::ReadOnly);
    let asked = Instant::now();
    fleet.all_are(BackendState::Away).await;
    assert!(asked.elapsed() < Duration::from_secs(1), "noticed without a call: {:?}", asked.elapsed());
    assert_eq!(fleet.members[0].health().because, Some(Cause::ReadOnly));
    passes(fleet.members[0].admit(None, &call(1)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn open_gates_let_pass_and_closed_gates_do_not() {
    let open = Gate { degraded: Degraded::Open, ..window(1) };
    let mut shut = Gate::new("shut", Kind::Slots(Slots::of(50))).only(&["shut"]);
    shut.degraded = Degraded::Closed;
    let fleet = fleet(2, GateSet::of(vec![open, shut])).await;
    fleet.server.is(Mood::Down);
    for n in 0..10 {
        passes(fleet.members[0].admit(None, &call(n)).await.unwrap());
    }
    let to_shut = Arc::new(Target::new("d").unwrap().with(Part::Endpoint, "shut").unwrap());
    let reply = fleet.members[0].admit(None, &Call::new(to_shut, Holder::number(11))).await.unwrap();
    assert_eq!(because(reply), Because::BackendAway);
}

#[tokio::test(start_paused = true)]
async fn new_gates_are_open_and_closed_as_they_are_set_also_during_an_outage() {
    let shut = |endpoint: &str| Gate {
        degraded: Degraded::Closed,
        ..Gate::new("shut", Kind::Slots(Slots::of(50))).only(&[endpoint])
    };
    let fleet = fleet(2, GateSet::of(vec![window(50), shut("old")])).await;
    let one = &fleet.members[0];
    let to = |endpoint: &str, n: u64| {
        let target = Target::new("d").unwrap().with(Part::Endpoint, endpoint).unwrap();
        Call::new(Arc::new(target), Holder::number(n))
    };
    fleet.server.is(Mood::Down);
    passes(one.admit(None, &to("new", 1)).await.unwrap());
    assert_eq!(because(one.admit(None, &to("old", 2)).await.unwrap()), Because::BackendAway);
    // It answers, but has not shown yet that it is back.
    fleet.server.is(Mood::Fine);
    one.configure("d", GateSet::of(vec![window(50), shut("new")])).await.unwrap();
    assert_eq!(one.health().state, BackendState::Away);
    assert_eq!(because(one.admit(None, &to("new", 3)).await.unwrap()), Because::BackendAway);
    passes(one.admit(None, &to("old", 4)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_has_lapsed_takes_no_slot_of_the_share() {
    let fleet = fleet(4, GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(8)))])).await;
    let one = &fleet.members[0];
    for n in 0..6 {
        passes(one.admit(None, &Call { lease: SECOND, ..call(n) }).await.unwrap());
    }
    let lasting = permit(one.admit(None, &call(6)).await.unwrap());
    sleep(Duration::from_secs(1)).await;
    fleet.server.is(Mood::Down);
    passes(one.admit(None, &call(7)).await.unwrap());
    let full = because(one.admit(None, &call(8)).await.unwrap());
    assert_eq!(full, Because::Slots { used: 2, limit: 2 }, "the one that lasts, and the new one");
    one.settle(None, &lasting, &ok()).await.unwrap();
    passes(one.admit(None, &call(8)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_alone_knows_what_was_switched_off_there() {
    let fleet = fleet(2, GateSet::of(vec![window(2)])).await;
    let one = &fleet.members[0];
    let note = || Note { who: "ada".into(), why: "limit lifted".into() };
    fleet.server.is(Mood::Down);
    passes(one.admit(None, &call(1)).await.unwrap());
    assert!(matches!(because(one.admit(None, &call(2)).await.unwrap()), Because::Window { .. }));
    assert!(one.switches("d").await.unwrap().is_empty(), "it is not asked of a backend that is away");
    assert!(one.switch("d", Some("window"), true, note()).await.is_err(), "the backend was not told");
    let off = one.switches("d").await.unwrap();
    assert_eq!(off.iter().map(|s| s.gate.as_str()).collect::<Vec<_>>(), ["window"]);
    passes(one.admit(None, &call(2)).await.unwrap());
    fleet.server.is(Mood::Fine);
    fleet.all_are_normal().await;
    assert!(one.switches("d").await.unwrap().is_empty(), "what holds is what the backend has");
}

#[tokio::test(start_paused = true)]
async fn leases_that_the_backend_made_unheard_are_ended() {
    let fleet = fleet(2, GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(8)))])).await;
    fleet.server.is(Mood::Mute);
    passes(fleet.members[0].admit(None, &call(1)).await.unwrap());
    fleet.server.is(Mood::Fine);
    assert_eq!(fleet.links[0].holders("d", 9).await.unwrap().len(), 1, "the backend did what it was asked");
    while !fleet.links[0].holders("d", 9).await.unwrap().is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_but_beats_is_sent_while_the_backend_is_away() {
    let fleet = fleet(4, GateSet::of(vec![window(100)])).await;
    fleet.server.is(Mood::Down);
    fleet.all_are(BackendState::Away).await;
    let before = fleet.server.asked.load(Ordering::SeqCst);
    let seen = load(&fleet, 20, Duration::from_secs(10), Duration::from_millis(5)).await;
    let asked = fleet.server.asked.load(Ordering::SeqCst) - before;
    assert!(seen.len() > 900 && asked <= 4 * 22, "{asked} beats of 4 processes in 10 s");
}

#[tokio::test(start_paused = true)]
async fn in_normal_times_an_admission_is_one_question() {
    let fleet = fleet(1, GateSet::of(vec![window(1_000)])).await;
    let before = fleet.server.asked.load(Ordering::SeqCst);
    for n in 0..100 {
        let held = permit(fleet.members[0].admit(None, &call(n)).await.unwrap());
        fleet.members[0].settle(None, &held, &ok()).await.unwrap();
    }
    let asked = fleet.server.asked.load(Ordering::SeqCst) - before;
    assert!((200..=202).contains(&asked), "{asked} questions for 100 calls");
    let usage = fleet.members[0].usage().await.unwrap();
    assert_eq!(
        usage.iter().map(|u| u.domain.as_str()).collect::<Vec<_>>(),
        ["d"],
        "the registry is not shown"
    );
}
