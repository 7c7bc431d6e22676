//! The in-process backend: waiting tasks, operators, and histories compared with a copy of itself that is written and read
//! before every step.

#[path = "support/orders.rs"]
mod orders;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate_core::gates::config::{Breaker, Lock, Slots, Smooth};
use tidegate_core::gates::{
    Admission, BreakerOrder, BreakerState, Call, End, Gate, GateSet, GateView, Holder, Kind, Outcome, Part,
    Partition, Permit, SECOND, Span, Target, Unit,
};
use tidegate_gates::history::{self, Backend};
use tidegate_gates::{GateOperations, Gates, GatesError, InProcess, Note, admitted};

fn count(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn note() -> Note {
    Note { who: "ana".into(), why: "test".into() }
}

fn target(domain: &str) -> Arc<Target> {
    Arc::new(Target::new(domain).expect("a name"))
}

fn call(n: u64) -> Call {
    Call::new(target("d"), Holder::number(n))
}

fn gates(set: Vec<Gate>) -> InProcess {
    let gates = InProcess::new();
    gates.configure_now("d", GateSet::of(set)).expect("acceptable gates");
    gates
}

fn permit(reply: Admission) -> Permit {
    match reply {
        Admission::Admitted(a) => a.permit,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_state_that_is_written_and_read_before_every_step_gives_the_same_replies() {
    for seed in 0..count("TIDEGATE_GATES_SEEDS", 60) {
        let history = history::make(seed, 400);
        let (plain, stored) = (InProcess::new(), InProcess::new());
        let one = history::run(&plain, &history).await.unwrap();
        let reopen = |_| {
            let parts = stored.export(&history.domain)?;
            let mut read = Vec::new();
            for (key, part) in parts {
                let bytes = postcard::to_stdvec(&part).map_err(|e| GatesError::Corrupt(e.to_string()))?;
                let part: Partition =
                    postcard::from_bytes(&bytes).map_err(|e| GatesError::Corrupt(e.to_string()))?;
                read.push((key, part));
            }
            stored.import(&history.domain, read)
        };
        let two = history::run_with(&stored, &history, reopen).await.unwrap();
        if let Err(mismatch) = history::compare(&history, &one, &two) {
            panic!("{mismatch}");
        }
    }
}

#[tokio::test]
async fn histories_reach_every_kind_of_reply() {
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    for seed in 0..60 {
        let history = history::make(seed, 400);
        let gates = InProcess::new();
        for reply in history::run(&gates as &dyn Backend, &history).await.unwrap() {
            let name = match reply {
                history::Reply::Admission(Admission::Wait(w)) => {
                    let text = serde_json::to_value(w.because).unwrap();
                    format!("wait {}", text["why"].as_str().unwrap())
                }
                history::Reply::Admission(Admission::Refused(r)) => {
                    let text = serde_json::to_value(r.because).unwrap();
                    format!("refused {}", text["why"].as_str().unwrap())
                }
                history::Reply::Settled(s) => format!("{:?}", s.state).split(' ').next().unwrap().to_owned(),
                other => format!("{other:?}").split([' ', '(']).next().unwrap().to_owned(),
            };
            *seen.entry(name).or_default() += 1;
        }
    }
    for name in [
        "Admission",
        "Released",
        "Quarantined",
        "Gone",
        "Renewal",
        "Freed",
        "Promoted",
        "Seen",
        "Inspected",
        "refused cost_above_capacity",
        "refused stale_ask",
        "wait breaker_open",
        "wait breaker_probing",
        "wait breaker_ramp",
        "wait cooling_down",
        "wait cut",
        "wait level",
        "wait locked",
        "wait queue_full",
        "wait quota_cost",
        "wait quota_slots",
        "wait slots",
        "wait smooth",
        "wait window",
    ] {
        assert!(seen.contains_key(name), "no {name} in {seen:#?}");
    }
}

#[tokio::test]
async fn a_changed_reply_is_noticed() {
    let history = history::make(3, 200);
    let one = history::run(&InProcess::new(), &history).await.unwrap();
    let mut two = one.clone();
    two[150] = history::Reply::Count(77);
    assert_eq!(history::compare(&history, &one, &two).unwrap_err().step, 150);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_tasks_are_never_more_than_the_limit_and_all_come_through() {
    let gates = Arc::new(gates(vec![Gate::new("slots", Kind::Slots(Slots::of(3)))]));
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    // Nobody goes on before three run at the same time.
    let three = Arc::new(tokio::sync::Barrier::new(3));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..201 {
        let (gates, running, most, three) = (gates.clone(), running.clone(), most.clone(), three.clone());
        tasks.spawn(async move {
            let permit = permit(admitted(&*gates, call(n)).await.unwrap());
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            three.wait().await;
            running.fetch_sub(1, Ordering::SeqCst);
            gates.settle(None, &permit, &Outcome::of(End::Ok)).await.unwrap();
        });
    }
    let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
    tokio::time::timeout(Duration::from_secs(20), all).await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert!(gates.turns().is_empty());
    assert_eq!(gates.usage().await.unwrap()[0].total.leases, 0);
}

#[tokio::test]
async fn a_release_wakes_the_next_task_at_once() {
    let gates = Arc::new(gates(vec![Gate::new("lock", Kind::Lock(Lock { poll: Span::secs(30) }))]));
    let held = permit(gates.admit_now(None, &call(1)).unwrap());
    let waiting = tokio::spawn({
        let gates = gates.clone();
        async move { admitted(&*gates, call(2)).await }
    });
    while gates.waiters("d", 9).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    gates.settle_now(None, &held, &Outcome::of(End::Ok)).unwrap();
    let reply = tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("woken, not after 30 s");
    let _ = permit(reply.unwrap().unwrap());
}

#[tokio::test]
async fn a_rate_is_waited_for_by_the_clock() {
    let rate = Smooth { rate: 200, every: Span::secs(1), burst: 1, unit: Unit::Calls };
    let gates = gates(vec![Gate::new("rate", Kind::Smooth(rate))]);
    let started = gates.clock();
    for n in 0..11 {
        let permit = permit(admitted(&gates, call(n)).await.unwrap());
        gates.settle_now(None, &permit, &Outcome::of(End::Ok)).unwrap();
    }
    assert!(gates.clock() - started >= 50_000);
}

#[tokio::test]
async fn a_call_that_would_be_too_late_leaves_the_line() {
    let gates = gates(vec![Gate::new("lock", Kind::Lock(Lock { poll: Span::secs(30) }))]);
    let _held = permit(gates.admit_now(None, &call(1)).unwrap());
    let late = Call { deadline: Some(gates.clock() + SECOND), ..call(2) };
    assert!(matches!(admitted(&gates, late).await.unwrap(), Admission::Wait(_)));
    assert!(gates.waiters("d", 9).await.unwrap().is_empty());
}

#[tokio::test]
async fn operators_levers_work_and_are_recorded() {
    let gates = gates(vec![
        Gate::new("slots", Kind::Slots(Slots::of(1))),
        Gate::new("breaker", Kind::Breaker(Breaker::default())),
    ]);
    let stuck = permit(gates.admit_now(None, &call(1)).unwrap());
    let dry = gates.force_release(None, "d", &stuck.holder, true, note()).await.unwrap();
    assert_eq!((dry.leases.len(), gates.holders("d", 9).await.unwrap().len()), (1, 1));
    gates.force_release(None, "d", &stuck.holder, false, note()).await.unwrap();
    assert!(gates.holders("d", 9).await.unwrap().is_empty());
    let trip = BreakerOrder::Trip { lasts: 60 * SECOND };
    assert_eq!(gates.order_breaker(None, "d", ("breaker", None), trip, note()).await.unwrap(), 1);
    let views = gates.inspect(None, "d", 9).await.unwrap();
    assert_eq!(views[0].gates[1].1, GateView::Breaker { state: BreakerState::Open });
    let off = gates.switch("d", None, true, note()).await.unwrap();
    assert_eq!((off.len(), &off[0].note), (2, &note()));
    let free: Vec<Permit> = (10..15).map(|n| permit(gates.admit_now(None, &call(n)).unwrap())).collect();
    assert_eq!(gates.switch("d", Some("slots"), false, note()).await.unwrap().len(), 1);
    assert!(matches!(
        gates.switch("d", Some("typo"), true, note()).await,
        Err(GatesError::UnknownGate { .. })
    ));
    assert_eq!(gates.clear("d", true, note()).await.unwrap().total.leases, free.len() as u32);
    gates.clear("d", false, note()).await.unwrap();
    assert_eq!(gates.usage().await.unwrap()[0].total.leases, 0);
    // What changes nothing is not recorded.
    assert!(!gates.promote(None, "d", &Holder::number(77), note()).await.unwrap());
    assert!(
        gates.force_release(None, "d", &Holder::number(77), false, note()).await.unwrap().leases.is_empty()
    );
    let typo = ("breaker", Some("nobody"));
    assert_eq!(gates.order_breaker(None, "d", typo, trip, note()).await.unwrap(), 0);
    let what: Vec<String> = gates.changes("d").await.unwrap().into_iter().map(|c| c.what).collect();
    assert_eq!(
        what,
        ["force_release n-1", "trip breaker for 60 s", "disable all gates", "enable slots", "clear"]
    );
}

#[tokio::test]
async fn orders_to_all_keys_hold_for_those_that_come() {
    let gates = InProcess::new();
    orders::hold_for_keys_that_come(&gates, &gates).await;
}

#[tokio::test]
async fn unknown_domains_and_bad_settings_are_refused() {
    let gates = gates(vec![Gate::new("slots", Kind::Slots(Slots::of(1)))]);
    let lost = Call::new(target("elsewhere"), Holder::number(1));
    let error = gates.admit(None, &lost).await.unwrap_err();
    assert_eq!(error.code().id, "TG3008");
    let bad = GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(0)))]);
    let error = gates.configure("d", bad).await.unwrap_err();
    assert!(error.to_string().starts_with("gates[0].slots.limit: 0 is not between 1 and"), "{error}");
    let _still = permit(gates.admit_now(None, &call(1)).unwrap());
}

#[tokio::test]
async fn settings_that_split_the_state_anew_wait_until_nothing_is_held() {
    let gates = gates(vec![Gate::new("slots", Kind::Slots(Slots::of(1)))]);
    let held = permit(gates.admit_now(None, &call(1)).unwrap());
    let split = || GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(1))).per(&[Part::Account])]);
    assert_eq!(gates.configure("d", split()).await.unwrap_err().code().id, "TG4010");
    gates.settle_now(None, &held, &Outcome::of(End::Ok)).unwrap();
    gates.configure("d", split()).await.unwrap();
    for account in ["a", "b"] {
        let to = Arc::new(Target::new("d").unwrap().with(Part::Account, account).unwrap());
        let _ = permit(gates.admit_now(None, &Call::new(to, Holder::new(account).unwrap())).unwrap());
    }
}
