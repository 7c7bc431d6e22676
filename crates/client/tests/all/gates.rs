//! Gates behind a server, as handlers and operators meet them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::Running;
use serde::{Deserialize, Serialize};
use tidegate::gates::{Answer, BreakerOrder, GateSettings, Note};
use tidegate::{Context, Job, Outcome, State, Tidegate, Worker, done};
use tidegate_core::gates::{Call, Holder, Target};
use tidegate_gates::watched::TraceQuery;
use tidegate_gates::{GateOperations, Gates as _, InProcess, Noticeboard as _, Watched};
use tidegate_server::ServerGates;
use tidegate_store::MemoryStore;

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "sync", queue = "calls", connector = "shopify")]
struct Sync;

async fn gated(toml: &str) -> Running {
    let settings = GateSettings::from_toml(toml).unwrap();
    let gates = ServerGates::new(Arc::new(Watched::around(InProcess::new())), settings).await.unwrap();
    Running::with(Arc::new(MemoryStore::new()), |options| options.gates = Some(gates)).await
}

async fn tide(server: &Running) -> Tidegate {
    let store = server.client().await;
    let gates = Arc::new(store.gates());
    Tidegate::with_store(Arc::new(store)).gates_of(gates)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_handler_that_must_wait_comes_back_and_has_spent_nothing() {
    let server = gated(
        "[[gates.shopify.gates]]\nname = \"calls\"\nper = [\"account\"]\ngate.window = { max = 2, every = \"700ms\" }\n",
    )
    .await;
    let tide = tide(&server).await;
    let mut jobs = vec![];
    for _ in 0..6 {
        jobs.push(tide.enqueue(Sync).tenant("acme").await.unwrap().id);
    }
    let worker = Worker::new(&tide).handle(async |_: Sync, cx: Context| -> Outcome {
        let permit = cx.gate("shopify").admit().await?;
        permit.settle(Answer::ok()).await?;
        done()
    });
    let report = worker.run_until_idle().await.unwrap();
    assert_eq!((report.completed, report.failed, report.snoozed), (6, 0, 0));
    assert!((1..=6).contains(&report.waited), "{report:?}");
    for id in jobs {
        let job = tide.job(id).await.unwrap().unwrap();
        assert_eq!((job.state, job.attempt, job.snoozes), (State::Completed, 1, 0));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_behind_a_server_has_one_holder_and_a_job_that_waits_is_woken() {
    let server = gated("[[gates.shopify.gates]]\nname = \"lock\"\ngate.lock = { poll = \"20s\" }\n").await;
    let tide = tide(&server).await;
    for _ in 0..4 {
        tide.enqueue(Sync).tenant("acme").await.unwrap();
    }
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let peak = most.clone();
    let worker = Worker::new(&tide).lease("1s").handle(move |_: Sync, cx: Context| {
        let (running, most) = (running.clone(), most.clone());
        async move {
            let _permit = cx.gate("shopify").admit().await?;
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Longer than a lease: it is renewed.
            tokio::time::sleep(Duration::from_millis(1_300)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            done()
        }
    });
    // With polls alone the last of them would come after a minute, and the test's own limit.
    let report = tokio::time::timeout(Duration::from_secs(40), worker.run_until_idle()).await;
    let report = report.expect("jobs whose turn has come are woken").unwrap();
    assert_eq!((report.completed, peak.load(Ordering::SeqCst)), (4, 1));
    server.stop().await;
}

#[tokio::test]
async fn operators_reach_the_gates_of_a_server() {
    let server = gated("[[gates.shopify.gates]]\nname = \"slots\"\ngate.slots = { limit = 1 }\n").await;
    let store = server.client().await;
    let gates = store.gates();
    let note = || Note { who: "ada".into(), why: "test".into() };
    assert_eq!(gates.settings().await.unwrap().gates["shopify"].gates[0].name, "slots");
    assert_eq!(gates.usage().await.unwrap()[0].domain, "shopify");
    assert_eq!(gates.switch("shopify", None, true, note()).await.unwrap()[0].gate, "slots");
    assert_eq!(gates.switches("shopify").await.unwrap()[0].note, note());
    assert_eq!(gates.changes("shopify").await.unwrap().len(), 1);
    assert_eq!(gates.clear("shopify", true, note()).await.unwrap().domain, "shopify");
    let call = Call::new(Arc::new(Target::new("shopify").unwrap()), Holder::number(7));
    gates.admit(None, &call).await.unwrap();
    let query = TraceQuery { holder: Some("n-7".into()), last: 5, ..TraceQuery::default() };
    let traces = gates.traces("shopify", &query).await.unwrap();
    assert_eq!((traces.len(), traces[0].events.len()), (1, 2), "asked, admitted");
    let report = gates.report().await.unwrap();
    assert_eq!((report.domains[0].metrics.total.reserved, report.processes), (1, 1));
    assert!(!report.verdicts.is_empty());
    let unknown = gates.traces("gopher", &query).await.unwrap_err();
    assert_eq!(unknown.code().id, "TG3008");
    let unknown = gates.inspect(None, "gopher", 1).await.unwrap_err();
    assert_eq!(unknown.code().id, "TG3008");
    server.stop().await;
    let lost = gates.usage().await.unwrap_err();
    assert!(matches!(lost, tidegate_gates::GatesError::Unreachable(_)), "{lost:?}");
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    for _ in 0..1_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not in 20 s: {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_wait_ask_again_when_an_operator_makes_way() {
    let server = gated("[[gates.shopify.gates]]\nname = \"health\"\ngate.breaker = { failures = 3 }\n").await;
    let tide = tide(&server).await;
    let store = server.client().await;
    let gates = store.gates();
    let note = || Note { who: "ada".into(), why: "test".into() };
    let order = async |order| {
        gates.order_breaker(None, "shopify", ("health", None), order, note()).await.unwrap();
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(&tide).handle(async |_: Sync, cx: Context| -> Outcome {
        cx.gate("shopify").admit().await?.settle(Answer::ok()).await?;
        done()
    });
    let working = tokio::spawn(worker.run_until(async move {
        let _ = stopped.await;
    }));
    for how in 0..2 {
        order(BreakerOrder::Trip { lasts: 600_000_000 }).await;
        let mut jobs = vec![];
        for tenant in ["acme", "globex"] {
            jobs.push(tide.enqueue(Sync).tenant(tenant).await.unwrap().id);
        }
        // One or both have asked; who has not is held up by the park of the one who has.
        until("somebody waits", async || !gates.waiters("shopify", 10).await.unwrap().is_empty()).await;
        match how {
            0 => order(BreakerOrder::Reset).await,
            _ => drop(gates.switch("shopify", Some("health"), true, note()).await.unwrap()),
        }
        let all_are_done = async || {
            for id in &jobs {
                if tide.job(*id).await.unwrap().unwrap().state != State::Completed {
                    return false;
                }
            }
            true
        };
        until("they pass", all_are_done).await;
    }
    drop(stop);
    working.await.unwrap().unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_refused_by_a_second_gate_holds_up_nobody_whom_the_operator_called() {
    let window = "[[gates.shopify.gates]]\nname = \"calls\"\ngate.window = { max = 1, every = \"10m\" }\n";
    let breaker = "[[gates.shopify.gates]]\nname = \"health\"\ngate.breaker = { failures = 3 }\n";
    let server = gated(&format!("{window}{breaker}")).await;
    let tide = tide(&server).await;
    let store = server.client().await;
    let gates = store.gates();
    let note = || Note { who: "ada".into(), why: "test".into() };
    let lasts = 600_000_000;
    gates
        .order_breaker(None, "shopify", ("health", None), BreakerOrder::Trip { lasts }, note())
        .await
        .unwrap();
    let mut jobs = vec![];
    for tenant in ["acme", "globex"] {
        jobs.push(tide.enqueue(Sync).tenant(tenant).await.unwrap().id);
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(&tide).handle(async |_: Sync, cx: Context| -> Outcome {
        cx.gate("shopify").admit().await?.settle(Answer::ok()).await?;
        done()
    });
    let working = tokio::spawn(worker.run_until(async move {
        let _ = stopped.await;
    }));
    let done = async |wanted: usize| {
        let mut completed = 0;
        for id in &jobs {
            completed += usize::from(tide.job(*id).await.unwrap().unwrap().state == State::Completed);
        }
        completed == wanted
    };
    let waiting = async |wanted: usize| gates.waiters("shopify", 10).await.unwrap().len() == wanted;
    until("somebody waits", async || !waiting(0).await).await;
    gates.order_breaker(None, "shopify", ("health", None), BreakerOrder::Reset, note()).await.unwrap();
    until("one passes, and one waits for the window", async || done(1).await && waiting(1).await).await;
    gates.switch("shopify", Some("calls"), true, note()).await.unwrap();
    until("the other passes", async || done(2).await).await;
    drop(stop);
    working.await.unwrap().unwrap();
    server.stop().await;
}
