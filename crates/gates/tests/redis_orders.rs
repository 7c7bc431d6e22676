//! Orders to all keys of breakers on Redis: every partition takes the newest one, whoever was to tell it.

mod redis_support;

use std::sync::Arc;
use std::time::Duration;

use redis_support::{call, connected, hear, note, raw};
use tidegate_core::gates::config::{Breaker, Slots};
use tidegate_core::gates::{
    Admission, BreakerOrder, Call, End, Failure, Gate, GateSet, Holder, Kind, Outcome, Part, SECOND, Target,
};
use tidegate_gates::{GateOperations, Gates, RedisGates, RedisOptions};
use tidegate_testbed::proxy::{Proxy, Way};
use tidegate_testbed::redis::{Cluster, Server};

const TRIP: BreakerOrder = BreakerOrder::Trip { lasts: 24 * 3_600 * SECOND };
const RESET: BreakerOrder = BreakerOrder::Reset;

/// One with a breaker per account.
async fn split(url: &str) -> RedisGates {
    let gates = RedisGates::connect(url, RedisOptions::default()).await.expect("it answers");
    gates.configure("d", per_account()).await.expect("acceptable gates");
    gates
}

fn per_account() -> GateSet {
    GateSet::of(vec![Gate::new("health", Kind::Breaker(Breaker::default())).per(&[Part::Account])])
}

async fn asks(gates: &RedisGates, account: u64, n: u64) -> Admission {
    let target = Target::new("d").and_then(|t| t.with(Part::Account, &format!("a{account:02}")));
    let call = Call::new(Arc::new(target.expect("a target")), Holder::number(n));
    gates.admit(None, &call).await.expect("it answers")
}

async fn passes(gates: &RedisGates, account: u64) -> bool {
    matches!(asks(gates, account, 1_000 + account).await, Admission::Admitted(_))
}

/// So many accounts have called, half of them with a failure: what has counted something is opened by an order, the others are at rest.
async fn have_called(gates: &RedisGates, accounts: u64) {
    for account in 0..accounts {
        let Admission::Admitted(held) = asks(gates, account, account).await else { panic!("it is open") };
        let end = if account % 2 == 0 { End::Ok } else { End::Failed(Failure::Server) };
        gates.settle(None, &held.permit, &Outcome::of(end)).await.expect("it answers");
    }
}

/// Calls until all of these accounts pass.
async fn all_pass(gates: &RedisGates, accounts: std::ops::Range<u64>) {
    for account in accounts {
        let soon = async {
            while !passes(gates, account).await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let soon = tokio::time::timeout(Duration::from_secs(10), soon).await;
        assert!(soon.is_ok(), "account {account} stays shut");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_that_is_cut_off_half_way_reaches_every_account() {
    let server = Server::start(&[]).unwrap();
    let way = Proxy::to(server.port()).unwrap();
    let one = split(&format!("redis://127.0.0.1:{}", way.port())).await;
    let two = split(&server.url()).await;
    hear(&server, "tg", 2).await;
    have_called(&one, 30).await;
    one.order_breaker(None, "d", ("health", None), TRIP, note()).await.unwrap();
    for account in 0..30 {
        assert!(!passes(&one, account).await);
    }
    way.set(Way::Slow(Duration::from_millis(10)));
    let began = one.round_trips();
    let reset = one.order_breaker(None, "d", ("health", None), RESET, note());
    let cut = async {
        while one.round_trips() < began + 14 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = cut => {}
        done = reset => panic!("it was not cut off: {done:?}"),
    }
    drop(one);
    all_pass(&two, 0..29).await;
    // An order to one account finds no order that stands, and opens it.
    let only = |order| two.order_breaker(None, "d", ("health", Some("a29")), order, note());
    assert_eq!(only(RESET).await.unwrap(), 1);
    assert!(passes(&two, 29).await);
    // One that was given since stays, whoever calls.
    assert_eq!(only(TRIP).await.unwrap(), 1);
    for gates in [&two, &split(&server.url()).await] {
        assert!(matches!(asks(gates, 29, 2_000).await, Admission::Wait(_)));
    }
}

#[tokio::test]
async fn one_account_is_reset_where_an_order_was_lost() {
    let server = Server::start(&[]).unwrap();
    let gates = split(&server.url()).await;
    have_called(&gates, 2).await;
    gates.order_breaker(None, "d", ("health", None), TRIP, note()).await.unwrap();
    drop(gates);
    // Nobody is left who has heard of it.
    for what in ["orders", "times", "ends"] {
        server.command(&format!("DEL tg:{{d}}!{what}")).unwrap();
    }
    let gates = split(&server.url()).await;
    for account in 0..2 {
        assert!(!passes(&gates, account).await);
        let key = format!("a{account:02}");
        gates.order_breaker(None, "d", ("health", Some(&key)), RESET, note()).await.unwrap();
        assert!(passes(&gates, account).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_was_overtaken_by_a_newer_one_does_not_come_back() {
    let server = Server::start(&[]).unwrap();
    let two = split(&server.url()).await;
    hear(&server, "tg", 1).await;
    have_called(&two, 50).await;
    let way = Proxy::to(server.port()).unwrap();
    let one = split(&format!("redis://127.0.0.1:{}", way.port())).await;
    way.set(Way::Slow(Duration::from_millis(20)));
    let trip =
        tokio::spawn(
            async move { one.order_breaker(None, "d", ("health", None), TRIP, note()).await.map(drop) },
        );
    while two.orders("d").await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    two.order_breaker(None, "d", ("health", None), RESET, note()).await.unwrap();
    trip.await.unwrap().unwrap();
    all_pass(&two, 0..50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_reaches_accounts_whose_list_was_lost_with_one_server_of_a_cluster() {
    let cluster = Cluster::start(3, 0).unwrap();
    let gates = split(&cluster.url()).await;
    have_called(&gates, 20).await;
    gates.order_breaker(None, "d", ("health", None), TRIP, note()).await.unwrap();
    for account in 0..20 {
        assert!(!passes(&gates, account).await);
    }
    let words = cluster
        .masters
        .iter()
        .find(|server| server.command("EXISTS tg:{d}!times").is_ok_and(|there| there == ":1"))
        .expect("one has them");
    words.command("FLUSHALL").unwrap();
    let operator = split(&cluster.url()).await;
    operator.order_breaker(None, "d", ("health", None), RESET, note()).await.unwrap();
    drop(operator);
    all_pass(&gates, 0..20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_whose_list_was_lost_with_one_server_of_a_cluster_are_listed_again() {
    let cluster = Cluster::start(3, 0).unwrap();
    let gates = split(&cluster.url()).await;
    have_called(&gates, 20).await;
    for server in &cluster.masters {
        if server.command("EXISTS tg:{d}!layouts").is_ok_and(|there| there == ":1") {
            server.command("FLUSHALL").unwrap();
        }
    }
    // The loss is noticed with an account that is new, and each of the others says once that it is there.
    for account in (0..=60).rev().chain(0..20) {
        assert!(passes(&gates, account).await);
    }
    assert_eq!(gates.usage().await.unwrap()[0].partitions, 61);
}

#[tokio::test]
async fn who_has_seen_enough_asks_no_more_partitions() {
    let gates = connected("enough").await;
    gates.configure("d", per_account()).await.unwrap();
    for account in 0..100 {
        let _held = asks(&gates, account, account).await;
    }
    gates.order_breaker(None, "d", ("health", None), TRIP, note()).await.unwrap();
    for account in 0..100 {
        assert!(!passes(&gates, account).await);
    }
    let before = gates.round_trips();
    assert_eq!(gates.waiters("d", 1).await.unwrap().len(), 1);
    assert_eq!(gates.holders("d", 1).await.unwrap().len(), 1);
    assert!(gates.round_trips() - before <= 6, "{}", gates.round_trips() - before);
}

#[tokio::test]
async fn a_call_takes_one_command_after_an_order_was_taken_back() {
    let server = Server::start(&[]).unwrap();
    let gates = split(&server.url()).await;
    have_called(&gates, 1).await;
    for order in [TRIP, RESET] {
        gates.order_breaker(None, "d", ("health", None), order, note()).await.unwrap();
    }
    let usual = async || {
        server.command("CONFIG RESETSTAT").unwrap();
        assert!(passes(&gates, 0).await);
        let stats = server.answer("INFO commandstats").unwrap();
        // What only the usual way does.
        stats.contains("cmdstat_setrange")
    };
    assert!(usual().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_refused_is_not_recorded_and_the_record_never_lasts_for_ever() {
    let server = Server::start(&[]).unwrap();
    let way = Proxy::to(server.port()).unwrap();
    let url = format!("redis://127.0.0.1:{}", way.port());
    let gates = RedisGates::connect(&url, RedisOptions::default()).await.unwrap();
    gates.configure("d", GateSet::of(vec![Gate::new("a", Kind::Slots(Slots::of(9)))])).await.unwrap();
    server.command("CONFIG SET maxmemory 1").unwrap();
    assert!(gates.switch("d", Some("a"), true, note()).await.is_err(), "it takes nothing");
    server.command("CONFIG SET maxmemory 0").unwrap();
    assert!(gates.changes("d").await.unwrap().is_empty());
    assert!(matches!(gates.admit(None, &call("d", 1)).await.unwrap(), Admission::Admitted(_)));
    way.set(Way::Slow(Duration::from_millis(300)));
    let released = tokio::spawn(async move {
        gates.force_release(None, "d", &Holder::number(1), false, note()).await.map(drop)
    });
    while server.command("EXISTS tg:{d}!changes").unwrap() == ":0" {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    way.set(Way::Blocked);
    released.abort();
    assert_ne!(server.command("TTL tg:{d}!changes").unwrap(), ":-1");
    assert_eq!(server.command("LLEN tg:{d}!changes").unwrap(), ":1");
}

#[tokio::test]
async fn what_a_later_version_says_of_other_things_takes_no_order_back() {
    let server = Server::start(&[]).unwrap();
    // A word of a kind that this version does not know, heard by one of it and then lost by the server.
    let _: i64 = redis::cmd("HSET")
        .arg("tg:{d}!times")
        .arg("rates health")
        .arg(1_000)
        .query_async(&mut raw(&server).await)
        .await
        .unwrap();
    let hears = split(&server.url()).await;
    server.command("FLUSHALL").unwrap();
    let says = split(&server.url()).await;
    says.order_breaker(None, "d", ("health", None), TRIP, note()).await.unwrap();
    hears.configure("d", says.gates_of("d").await.unwrap().unwrap()).await.unwrap();
    assert_eq!(says.orders("d").await.unwrap().len(), 1);
    assert!(!passes(&hears, 0).await);
}
