//! The Postgres backend on a real server: the same replies as in process, from one backend and from two, and what a
//! database adds: lost connections, lost tables, other processes.

#[path = "support/orders.rs"]
mod orders;
mod postgres_support;
#[path = "support/postgres_said.rs"]
mod said;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use postgres_support::{Alternating, Fixture, Wire, call, count, note, permit};
use tidegate_core::gates::config::{Lock, Slots, Smooth, Window};
use tidegate_core::gates::{
    Admission, Call, End, Gate, GateSet, Holder, Kind, LeaseEnd, Outcome, Part, SECOND, Span, Target, Unit,
};
use tidegate_gates::history::{self, Backend};
use tidegate_gates::{GateOperations, Gates, InProcess, PgGatesOptions, admitted};
use tidegate_testbed::proxy::{Proxy, Way};
use tokio::task::JoinSet;

/// Histories that are compared at the same time: their commits share the server's writes to disk.
const AT_A_TIME: u64 = 12;
const PATIENCE: Duration = Duration::from_mins(7);

fn slots(limit: u32) -> GateSet {
    GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(limit)))])
}

fn smooth(burst: i64) -> GateSet {
    let rate = Smooth { rate: 1, every: Span::secs(60), burst, unit: Unit::Calls };
    GateSet::of(vec![Gate::new("rate", Kind::Smooth(rate))])
}

/// Runs histories against a backend and compares every reply with the one in process.
async fn compare_all<B: Backend + 'static>(backend: Arc<B>, count: u64) {
    let (mut running, mut seeds) = (JoinSet::new(), 0..count);
    loop {
        while (running.len() as u64) < AT_A_TIME
            && let Some(seed) = seeds.next()
        {
            let backend = backend.clone();
            running.spawn(async move {
                let history = history::make(seed, 400);
                let one = history::run(&InProcess::new(), &history).await.expect("it runs in process");
                let two = history::run(&*backend, &history).await.expect("it runs in Postgres");
                history::compare(&history, &one, &two).unwrap_or_else(|mismatch| panic!("{mismatch}"));
                assert_eq!(two.len(), 400);
            });
        }
        match running.join_next().await {
            Some(compared) => compared.expect("the same replies"),
            None => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_give_the_same_replies_as_in_process() {
    let db = Fixture::new().await;
    let backend = Arc::new(db.connect(PgGatesOptions::new().connections(8)).await);
    tokio::time::timeout(PATIENCE, compare_all(backend, count("TIDEGATE_GATES_SEEDS", 100))).await.unwrap();
    db.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_backends_in_turn_give_the_same_replies_as_one() {
    let db = Fixture::new().await;
    let options = || PgGatesOptions::new().connections(6);
    let backend = Arc::new(Alternating::new(db.connect(options()).await, db.connect(options()).await));
    let histories = count("TIDEGATE_GATES_SEEDS", 100).div_ceil(4);
    tokio::time::timeout(PATIENCE, compare_all(backend.clone(), histories)).await.unwrap();
    assert!(backend.turns_taken() > 100 * histories, "both were used");
    db.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_in_two_backends_are_never_more_than_the_slots_and_all_come_through() {
    let db = Fixture::new().await;
    let backends = [
        Arc::new(db.connect(PgGatesOptions::new()).await),
        Arc::new(db.connect(PgGatesOptions::new()).await),
    ];
    backends[0].configure("d", slots(2)).await.unwrap();
    for backend in &backends {
        backend.listening().await;
    }
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    // Nobody goes on before two run at the same time.
    let two = Arc::new(tokio::sync::Barrier::new(2));
    let mut tasks = JoinSet::new();
    for task in 0..4_u64 {
        let gates = backends[task as usize % 2].clone();
        let (running, most, two) = (running.clone(), most.clone(), two.clone());
        tasks.spawn(async move {
            for turn in 0..25 {
                let permit = permit(admitted(&*gates, call(task * 100 + turn)).await.unwrap());
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                two.wait().await;
                running.fetch_sub(1, Ordering::SeqCst);
                let settled = gates.settle(None, &permit, &Outcome::of(End::Ok)).await.unwrap();
                assert_eq!(settled.state, LeaseEnd::Released);
            }
        });
    }
    let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
    tokio::time::timeout(Duration::from_mins(1), all).await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(backends[1].usage().await.unwrap()[0].total.leases, 0);
    db.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_ended_at_any_moment_lose_nothing_and_do_nothing_twice() {
    const TASKS: u64 = 8;
    const KILLS: u32 = 40;
    let db = Fixture::new().await;
    let name = format!("{} victim", db.schema());
    let options = PgGatesOptions::new().application_name(&name).patience(Duration::from_secs(30));
    let gates = Arc::new(db.connect(options).await);
    gates.configure("d", slots(100)).await.unwrap();
    let done = Arc::new(tokio::sync::watch::Sender::new(0_u64));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (gates, done, stop) = (gates.clone(), done.clone(), stop.clone());
        tasks.spawn(async move {
            let (mut fences, mut turn) = (Vec::new(), 0);
            while !stop.load(Ordering::SeqCst) {
                let held = permit(gates.admit(None, &call(task * 1_000_000 + turn)).await.unwrap());
                fences.push(held.fence);
                let settled = gates.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap();
                assert_eq!(settled.state, LeaseEnd::Released, "settled once, and told so");
                turn += 1;
                done.send_modify(|n| *n += 1);
            }
            let kept = permit(gates.admit(None, &call(task * 1_000_000 + turn)).await.unwrap());
            (kept, fences)
        });
    }
    let killer = async {
        let mut ended = 0;
        let mut seen = done.subscribe();
        for kill in 0..KILLS {
            // After some more operations, each time at another moment of the next one.
            let from = *seen.borrow_and_update();
            seen.wait_for(|n| *n >= from + 20).await.unwrap();
            let wait = format!("SELECT pg_sleep({})", f64::from(kill % 10) * 0.0004);
            db.sql().await.batch_execute(&wait).await.unwrap();
            ended += db.end_sessions(&name).await;
        }
        stop.store(true, Ordering::SeqCst);
        ended
    };
    let ended = tokio::time::timeout(Duration::from_mins(2), killer).await.unwrap();
    assert!(ended >= i64::from(KILLS), "{ended} connections were ended");
    let (mut kept, mut fences) = (Vec::new(), Vec::new());
    while let Some(task) = tasks.join_next().await {
        let (permit, used) = task.unwrap();
        kept.push(permit.fence);
        fences.extend(used);
    }
    let admissions = fences.len() + kept.len();
    fences.extend(&kept);
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), admissions, "every admission has a number of its own");
    let mut holding: Vec<i64> = gates.holders("d", 1_000).await.unwrap().iter().map(|h| h.fence).collect();
    holding.sort_unstable();
    kept.sort_unstable();
    assert_eq!(holding, kept, "what is held is what was not settled");
    db.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_neither_lost_nor_done_twice() {
    let db = Fixture::new().await;
    let wire = Wire::new(&db).await;
    let patience = PgGatesOptions::new().patience(Duration::from_secs(20));
    let gates = tidegate_gates::PgGates::connect(&wire.url, patience).await.unwrap();
    gates.configure("d", slots(1)).await.unwrap();
    wire.every.store(2, Ordering::SeqCst);
    for n in 0..20 {
        let held = permit(gates.admit(None, &call(n)).await.unwrap());
        let settled = gates.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap();
        assert_eq!(settled.state, LeaseEnd::Released, "the answer is that of the settlement that counted");
    }
    wire.every.store(0, Ordering::SeqCst);
    let [before, after] = [0, 1].map(|n: usize| wire.cuts[n].load(Ordering::SeqCst));
    assert!(before >= 5 && after >= 5, "cut {before} times before and {after} times after the commit");
    assert_eq!(gates.usage().await.unwrap()[0].total.leases, 0);
    db.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backends_that_change_one_state_at_the_same_time_lose_no_change() {
    const EACH: u64 = 60;
    let db = Fixture::new().await;
    let backends = [
        Arc::new(db.connect(PgGatesOptions::new()).await),
        Arc::new(db.connect(PgGatesOptions::new()).await),
    ];
    backends[0].configure("d", slots(1_000)).await.unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..4_u64 {
        let gates = backends[task as usize % 2].clone();
        tasks.spawn(async move {
            for n in 0..EACH {
                let _kept = permit(gates.admit(None, &call(task * 1_000 + n)).await.unwrap());
            }
        });
    }
    while tasks.join_next().await.transpose().unwrap().is_some() {}
    assert_eq!(backends[0].holders("d", 10_000).await.unwrap().len() as u64, 4 * EACH);
    db.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_the_lock_goes_into_one_transaction() {
    let db = Fixture::new().await;
    let gates = Arc::new(db.connect(PgGatesOptions::new()).await);
    gates.configure("d", slots(1_000)).await.unwrap();
    let _first = permit(gates.admit(None, &call(0)).await.unwrap());
    let marks = format!("SELECT marks FROM \"{}\".gate_partitions", db.schema());
    let holder = db.sql().await;
    holder.batch_execute("BEGIN").await.unwrap();
    let before: Vec<i64> = holder.query_one(&format!("{marks} FOR UPDATE"), &[]).await.unwrap().get(0);
    let mut tasks = JoinSet::new();
    let asked = Arc::new(AtomicU32::new(0));
    for n in 1..=50 {
        let (gates, asked) = (gates.clone(), asked.clone());
        tasks.spawn(async move {
            asked.fetch_add(1, Ordering::SeqCst);
            permit(gates.admit(None, &call(n)).await.unwrap())
        });
    }
    while asked.load(Ordering::SeqCst) < 50 {
        tokio::task::yield_now().await;
    }
    holder.batch_execute("COMMIT").await.unwrap();
    while tasks.join_next().await.transpose().unwrap().is_some() {}
    let after: Vec<i64> = holder.query_one(&marks, &[]).await.unwrap().get(0);
    let transactions = after.iter().position(|mark| *mark == before[0]);
    assert!(
        transactions.is_some_and(|n| (1..=3).contains(&n)),
        "{transactions:?} transactions for 50 admissions"
    );
    assert_eq!(gates.holders("d", 100).await.unwrap().len(), 51);
    db.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_in_one_backend_wakes_a_task_of_another_at_once() {
    let db = Fixture::new().await;
    let (one, two) =
        (db.connect(PgGatesOptions::new()).await, Arc::new(db.connect(PgGatesOptions::new()).await));
    let lock = Gate::new("lock", Kind::Lock(Lock { poll: Span::secs(30) }));
    one.configure("d", GateSet::of(vec![lock])).await.unwrap();
    two.listening().await;
    let held = permit(one.admit(None, &call(1)).await.unwrap());
    let waiting = tokio::spawn({
        let two = two.clone();
        async move { admitted(&*two, call(2)).await }
    });
    while one.waiters("d", 9).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    // Also after the listener's connection was lost.
    let listener =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND query LIKE $1";
    let channel = format!("%\"{}_gates\"%", db.schema());
    let ended = db.sql().await.query(listener, &[&channel]).await.unwrap();
    assert!(!ended.is_empty());
    two.deaf().await;
    two.listening().await;
    one.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap();
    let reply = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("woken, not after 30 s");
    let _ = permit(reply.unwrap().unwrap());
    db.end().await;
}

#[tokio::test]
async fn a_domain_that_nobody_has_used_starts_full_and_a_lost_one_without_credit() {
    let db = Fixture::new().await;
    let gates = db.connect(PgGatesOptions::new()).await;
    gates.configure("d", smooth(2)).await.unwrap();
    let _ = permit(gates.admit(None, &call(1)).await.unwrap());
    let empty =
        |reply: Admission| matches!(reply, Admission::Wait(w) if w.retry_at > gates.clock() + 50 * SECOND);
    // This process has seen the state.
    db.run("TRUNCATE tidegate.gate_partitions").await;
    assert!(empty(gates.admit(None, &call(2)).await.unwrap()));
    // Another one knows it from the domain's row.
    db.run("TRUNCATE tidegate.gate_partitions").await;
    let other = db.connect(PgGatesOptions::new()).await;
    assert!(empty(other.admit(None, &call(3)).await.unwrap()));
    // A state that cannot be read is lost.
    db.run("UPDATE tidegate.gate_partitions SET state = '\\x01ff', marks = '{7}'").await;
    assert!(empty(other.admit(None, &call(4)).await.unwrap()));
    // Everything is gone, and made again by who knows it.
    db.run("DROP TABLE tidegate.gate_domains, tidegate.gate_sets, tidegate.gate_partitions").await;
    db.run(
        "DROP TABLE tidegate.gate_switches, tidegate.gate_changes, tidegate.gate_seen, tidegate.gate_orders",
    )
    .await;
    assert!(empty(gates.admit(None, &call(5)).await.unwrap()));
    gates.configure("fresh", smooth(2)).await.unwrap();
    let to = Arc::new(Target::new("fresh").unwrap());
    let _ = permit(gates.admit(None, &Call::new(to, Holder::number(1))).await.unwrap());
    db.end().await;
}

#[tokio::test]
async fn a_state_of_a_newer_version_is_left_alone() {
    let db = Fixture::new().await;
    let gates = db.connect(PgGatesOptions::new()).await;
    gates.configure("d", slots(1)).await.unwrap();
    let _ = permit(gates.admit(None, &call(1)).await.unwrap());
    let format = |by: &str| {
        format!(
            "UPDATE tidegate.gate_partitions SET state = set_byte(state, 0, get_byte(state, 0) {by}), marks = '{{7}}'"
        )
    };
    db.run(&format("+ 100")).await;
    let error = gates.admit(None, &call(2)).await.unwrap_err();
    assert_eq!(error.code().id, tidegate_core::codes::CORRUPT.id);
    db.run(&format("- 100")).await;
    assert!(
        matches!(gates.admit(None, &call(2)).await.unwrap(), Admission::Wait(_)),
        "the lease is still there"
    );
    db.end().await;
}

#[tokio::test]
async fn unused_partitions_are_forgotten_when_they_have_nothing_to_remember() {
    let db = Fixture::new().await;
    let gates = db.connect(PgGatesOptions::new()).await;
    let window = Window { max: 5, every: Span::secs(3_600), unit: Unit::Calls };
    let set = GateSet::of(vec![
        Gate::new("slots", Kind::Slots(Slots::of(1))).per(&[Part::Account]),
        Gate::new("window", Kind::Window(window)).per(&[Part::Account]).only(&["bulk"]),
    ]);
    gates.configure("d", set).await.unwrap();
    let ask = |n: u64, account: &str, endpoint: &str| {
        let to = Target::new("d").unwrap().with(Part::Account, account).unwrap();
        Call::new(Arc::new(to.with(Part::Endpoint, endpoint).unwrap()), Holder::number(n))
    };
    let settled = async |call: Call| {
        let held = permit(gates.admit(None, &call).await.unwrap());
        gates.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap();
    };
    settled(ask(1, "at-rest", "read")).await;
    settled(ask(2, "counts", "bulk")).await;
    let held = permit(gates.admit(None, &ask(3, "held", "read")).await.unwrap());
    assert_eq!(gates.forget_unused(Duration::from_hours(1)).await.unwrap(), 0, "used a moment ago");
    assert_eq!(gates.forget_unused(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(gates.usage().await.unwrap()[0].partitions, 2);
    // What was forgotten on purpose was not lost.
    settled(ask(4, "at-rest", "read")).await;
    settled(ask(5, "at-rest", "bulk")).await;
    gates.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap();
    assert_eq!(gates.forget_unused(Duration::ZERO).await.unwrap(), 1);
    db.end().await;
}

#[tokio::test]
async fn new_settings_and_switches_hold_for_every_process_at_once() {
    let db = Fixture::new().await;
    let (one, two) = (db.connect(PgGatesOptions::new()).await, db.connect(PgGatesOptions::new()).await);
    one.configure("d", slots(1)).await.unwrap();
    let first = permit(one.admit(None, &call(1)).await.unwrap());
    assert!(
        matches!(two.admit(None, &call(2)).await.unwrap(), Admission::Wait(_)),
        "known without being told"
    );
    two.configure("d", slots(2)).await.unwrap();
    let second = permit(one.admit(None, &call(2)).await.unwrap());
    assert!(
        matches!(one.admit(None, &call(3)).await.unwrap(), Admission::Wait(_)),
        "what is held stays held"
    );
    assert_eq!(one.switch("d", None, true, note()).await.unwrap().len(), 1);
    let third = permit(two.admit(None, &call(3)).await.unwrap());
    assert_eq!(two.switch("d", Some("slots"), false, note()).await.unwrap().len(), 0);
    assert!(matches!(one.admit(None, &call(4)).await.unwrap(), Admission::Wait(_)));
    let split = || GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(1))).per(&[Part::Account])]);
    assert_eq!(two.configure("d", split()).await.unwrap_err().code().id, "TG4010");
    one.cancel_wait(None, &first.target, &Holder::number(4)).await.unwrap();
    for held in [first, second, third] {
        one.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap();
    }
    two.configure("d", split()).await.unwrap();
    for (n, account) in ["a", "b"].into_iter().enumerate() {
        let to = Arc::new(Target::new("d").unwrap().with(Part::Account, account).unwrap());
        let _ = permit(one.admit(None, &Call::new(to, Holder::number(n as u64))).await.unwrap());
    }
    assert_eq!(one.usage().await.unwrap()[0].partitions, 2);
    // What changes nothing is not recorded.
    assert!(!one.promote(None, "d", &Holder::number(77), note()).await.unwrap());
    assert!(
        one.force_release(None, "d", &Holder::number(77), false, note()).await.unwrap().leases.is_empty()
    );
    let what: Vec<String> = two.changes("d").await.unwrap().into_iter().map(|c| c.what).collect();
    assert_eq!(what, ["disable all gates", "enable slots"]);
    db.end().await;
}

#[tokio::test]
async fn orders_to_all_keys_hold_for_those_that_come() {
    let db = Fixture::new().await;
    let (one, two) = (db.connect(PgGatesOptions::new()).await, db.connect(PgGatesOptions::new()).await);
    orders::hold_for_keys_that_come(&one, &two).await;
    db.end().await;
}

#[tokio::test]
async fn what_has_lapsed_is_cleared_away_by_the_servers_clock() {
    let db = Fixture::new().await;
    let gates = db.connect(PgGatesOptions::new()).await;
    let set = GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(1))).per(&[Part::Account])]);
    gates.configure("d", set).await.unwrap();
    let began = gates.clock() - 10 * SECOND;
    for (n, account) in ["", "a", "b"].into_iter().enumerate() {
        let to = Target::new("d").unwrap().with(Part::Account, account).unwrap();
        let lease = if account == "b" { 60 * SECOND } else { SECOND };
        let call = Call { lease, ..Call::new(Arc::new(to), Holder::number(n as u64)) };
        let _ = permit(gates.admit(Some(began), &call).await.unwrap());
    }
    assert_eq!(gates.expire(None, "d").await.unwrap().gone, 2);
    assert_eq!(gates.holders("d", 9).await.unwrap().len(), 1);
    db.end().await;
}

#[tokio::test]
async fn behind_a_pooler_settings_are_made_in_every_transaction_and_nobody_listens() {
    let db = Fixture::new().await;
    let gates = db.connect(PgGatesOptions::new().pooled(true)).await;
    gates.configure("d", slots(1)).await.unwrap();
    let held = permit(gates.admit(None, &call(1)).await.unwrap());
    let history = history::make(9, 200);
    let one = history::run(&InProcess::new(), &history).await.unwrap();
    let two = history::run(&gates, &history).await.unwrap();
    history::compare(&history, &one, &two).unwrap();
    gates.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap();
    let listens = "SELECT FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND query LIKE $1";
    assert!(
        db.sql().await.query(listens, &[&format!("%\"{}_gates\"%", db.schema())]).await.unwrap().is_empty()
    );
    db.end().await;
}

#[tokio::test]
async fn a_database_out_of_reach_is_said_within_the_patience() {
    let patience = Duration::from_millis(400);
    let mut server = tidegate_testbed::postgres::Server::start(&[]).unwrap();
    let gates = tidegate_gates::PgGates::connect(&server.url(), PgGatesOptions::new().patience(patience))
        .await
        .unwrap();
    gates.configure("d", slots(1)).await.unwrap();
    let held = permit(gates.admit(None, &call(1)).await.unwrap());
    server.stop(true).unwrap();
    let error = gates.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap_err();
    assert_eq!(error.code().id, tidegate_core::codes::GATES_UNREACHABLE.id);
    server.resume().unwrap();
    let back = async {
        loop {
            if let Ok(settled) = gates.settle(None, &held, &Outcome::of(End::Ok)).await {
                return settled;
            }
        }
    };
    let settled = tokio::time::timeout(Duration::from_secs(20), back).await.unwrap();
    assert_eq!(settled.state, LeaseEnd::Released);
}

const CERTIFICATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../store-postgres/src/tests/tls");

/// A server that is reached over the network.
fn encrypted() -> tidegate_testbed::postgres::Server {
    let file = |name: &str| std::fs::read_to_string(format!("{CERTIFICATES}/{name}")).expect("a file");
    tidegate_testbed::postgres::Server::start_encrypted(&file("server.pem"), &file("server.key"))
        .expect("a server")
}

#[tokio::test]
async fn an_operator_hears_within_the_patience_that_the_database_hangs() {
    let server = encrypted();
    let way = Proxy::to(server.port()).unwrap();
    let url = format!("postgres://tester@127.0.0.1:{}/tests?sslmode=require", way.port());
    let options = PgGatesOptions::new().patience(Duration::from_secs(1));
    let gates = tidegate_gates::PgGates::connect(&url, options).await.unwrap();
    gates.configure("d", slots(1)).await.unwrap();
    way.set(Way::Blocked);
    let told = tokio::time::timeout(Duration::from_secs(20), gates.usage()).await.expect("an answer");
    assert_eq!(told.unwrap_err().code().id, tidegate_core::codes::GATES_UNREACHABLE.id);
    way.set(Way::Open);
    gates.usage().await.unwrap();
}

#[tokio::test]
async fn a_server_that_lets_in_and_then_says_nothing_is_out_of_reach() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://me@{}/tests?sslmode=disable", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            // Authenticated, and ready for a query. Then it hears everything.
            client.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
            std::thread::spawn(move || std::io::copy(&mut client, &mut std::io::sink()));
        }
    });
    let options = PgGatesOptions::new().patience(Duration::from_millis(100));
    let connecting = tidegate_gates::PgGates::connect(&url, options);
    let told = tokio::time::timeout(Duration::from_secs(20), connecting).await.expect("an answer");
    assert_eq!(told.unwrap_err().code().id, tidegate_core::codes::GATES_UNREACHABLE.id);
}

#[tokio::test]
async fn connections_are_encrypted_as_the_url_says() {
    let server = encrypted();
    let connects = async |host: &str, query: &str| {
        let url = format!("postgres://tester@{host}:{}/tests?schema=tls&{query}", server.port());
        tidegate_gates::PgGates::connect(&url, PgGatesOptions::new()).await.is_ok()
    };
    assert!(connects("localhost", "sslmode=require").await);
    assert!(connects("localhost", &format!("sslmode=verify-full&sslrootcert={CERTIFICATES}/ca.pem")).await);
    assert!(
        !connects("127.0.0.1", &format!("sslmode=verify-full&sslrootcert={CERTIFICATES}/ca.pem")).await,
        "another name"
    );
    assert!(!connects("127.0.0.1", "sslmode=disable").await, "the server wants it encrypted");
    assert!(!connects("127.0.0.1", "sslmode=maybe").await);
}
