//! The Redis backend against the specification, reply by reply.

#[path = "support/orders.rs"]
mod orders;
mod redis_support;

use std::sync::Arc;
use std::time::Duration;

use redis_support::{SERVER, call, connected, hear, note, raw, target};
use tidegate_core::gates::config::{Breaker, Lock, Quota, Slots, Smooth, Window};
use tidegate_core::gates::{
    Admission, End, Gate, GateSet, Holder, Kind, LeaseEnd, Outcome, Part, Permit, Renewal, Span, Unit,
};
use tidegate_gates::history::{self, History};
use tidegate_gates::{GateOperations, Gates, InProcess, RedisGates, RedisOptions, admitted};
use tidegate_testbed::proxy::{Proxy, Way};
use tidegate_testbed::redis::{Cluster, Server};

fn count(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

async fn agree(redis: &RedisGates, history: &History) -> Result<(), String> {
    let one = history::run(&InProcess::new(), history).await.expect("in process nothing fails");
    let two = history::run(redis, history).await.map_err(|e| format!("seed {}: {e:?}", history.seed))?;
    history::compare(history, &one, &two).map_err(|e| e.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_gives_the_same_replies_as_the_specification() {
    let redis = connected("differ").await;
    let mut wrong = Vec::new();
    let from = count("TIDEGATE_GATES_FROM", 0);
    let seeds = count("TIDEGATE_GATES_SEEDS", 60);
    for seed in from..from + seeds {
        let history = history::make(seed, 400);
        if let Err(e) = agree(&redis, &history).await {
            wrong.push(e);
        }
    }
    assert!(wrong.is_empty(), "{} of {seeds} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_three_gives_the_same_replies_as_the_specification() {
    let cluster = Cluster::start(3, 0).unwrap();
    let gates = RedisGates::connect(&cluster.url(), RedisOptions::default()).await.unwrap();
    let mut wrong = Vec::new();
    for seed in 0..count("TIDEGATE_GATES_SEEDS", 20) {
        if let Err(e) = agree(&gates, &history::make(seed, 400)).await {
            wrong.push(e);
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    for server in &cluster.masters {
        let keys: usize = server.command("DBSIZE").unwrap()[1..].parse().unwrap();
        assert!(keys > 0, "every server has its part");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_answer_at_the_start_does_not_leave_the_clock_behind() {
    let way = Proxy::to(SERVER.port()).unwrap();
    way.set(Way::Slow(Duration::from_millis(300)));
    let options = RedisOptions { prefix: "clock".into(), ..RedisOptions::default() };
    let url = format!("redis://127.0.0.1:{}", way.port());
    let gates = RedisGates::connect(&url, options).await.unwrap();
    gates.configure("d", slots(3)).await.unwrap();
    way.set(Way::Open);
    let held = permit(gates.admit(None, &call("d", 1)).await.unwrap());
    assert!(gates.clock() >= held.admitted_at, "a permit cannot come from the future");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admissions_wait_for_a_slot_that_moves_and_follow_it() {
    let cluster = Cluster::start(3, 0).unwrap();
    let gates = RedisGates::connect(&cluster.url(), RedisOptions::default()).await.unwrap();
    gates.configure("d", slots(3)).await.unwrap();
    let held = permit(gates.admit(None, &call("d", 1)).await.unwrap());
    let slot: u16 = cluster.masters[0].command("CLUSTER KEYSLOT tg:{d}").unwrap()[1..].parse().unwrap();
    let owns = |s: &&Server| {
        let count = s.command(&format!("CLUSTER COUNTKEYSINSLOT {slot}")).unwrap();
        count != ":0"
    };
    let from = cluster.masters.iter().find(owns).unwrap();
    let to = cluster.masters.iter().find(|s| s.port() != from.port()).unwrap();
    let (source, destination) = (from.answer("CLUSTER MYID").unwrap(), to.answer("CLUSTER MYID").unwrap());
    to.command(&format!("CLUSTER SETSLOT {slot} IMPORTING {source}")).unwrap();
    from.command(&format!("CLUSTER SETSLOT {slot} MIGRATING {destination}")).unwrap();
    let client = redis::Client::open(from.url()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> =
        redis::cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(100).query_async(&mut redis).await.unwrap();
    let mut migrate = redis::cmd("MIGRATE");
    migrate.arg("127.0.0.1").arg(to.port()).arg("").arg(0).arg(5_000).arg("KEYS").arg(&keys);
    let _: redis::Value = migrate.query_async(&mut redis).await.unwrap();
    // The keys are on their way, and a function that looks for several cannot run at either server: the call goes on as soon
    // as the slot has arrived.
    let arrived = async {
        for server in &cluster.masters {
            server.command(&format!("CLUSTER SETSLOT {slot} NODE {destination}")).unwrap();
        }
    };
    let asking = call("d", 2);
    let (second, ()) = tokio::join!(gates.admit(None, &asking), arrived);
    let second = permit(second.unwrap());
    assert_eq!(gates.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap().state, LeaseEnd::Released);
    assert_eq!(gates.settle(None, &second, &Outcome::of(End::Ok)).await.unwrap().state, LeaseEnd::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_over_what_its_server_knew() {
    let mut cluster = Cluster::start(3, 1).unwrap();
    let gates = RedisGates::connect(&cluster.url(), RedisOptions::default()).await.unwrap();
    gates.configure("d", slots(1)).await.unwrap();
    let held = permit(gates.admit(None, &call("d", 1)).await.unwrap());
    let owner = cluster.masters.iter().position(|s| {
        let slot = s.command("CLUSTER KEYSLOT tg:{d}").unwrap();
        s.command(&format!("CLUSTER COUNTKEYSINSLOT {}", &slot[1..])).unwrap() != ":0"
    });
    let owner = owner.unwrap();
    // What the server has said, its replica has: the permit survives.
    while cluster.masters[owner].command("WAIT 1 1000").unwrap() != ":1" {}
    cluster.masters[owner].stop().unwrap();
    let renewed = async {
        loop {
            if let Ok(renewal) = gates.renew(None, &held).await {
                return renewal;
            }
        }
    };
    let renewed =
        tokio::time::timeout(Duration::from_secs(30), renewed).await.expect("the replica takes over");
    assert!(matches!(renewed, Renewal::Renewed { .. }), "{renewed:?}");
    assert!(matches!(gates.admit(None, &call("d", 2)).await.unwrap(), Admission::Wait(_)));
    assert_eq!(gates.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap().state, LeaseEnd::Released);
}

#[tokio::test]
async fn a_waiter_is_woken_after_the_channel_was_lost() {
    let server = Server::start(&[]).unwrap();
    let gates = Arc::new(RedisGates::connect(&server.url(), RedisOptions::default()).await.unwrap());
    let other = RedisGates::connect(&server.url(), RedisOptions::default()).await.unwrap();
    let lock = || GateSet::of(vec![Gate::new("lock", Kind::Lock(Lock { poll: Span::secs(30) }))]);
    gates.configure("d", lock()).await.unwrap();
    other.configure("d", lock()).await.unwrap();
    let held = permit(other.admit(None, &call("d", 1)).await.unwrap());
    let waiting = tokio::spawn({
        let gates = gates.clone();
        async move { admitted(&*gates, call("d", 2)).await }
    });
    while other.waiters("d", 9).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    server.command("CLIENT KILL TYPE pubsub").unwrap();
    other.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap();
    let reply = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("woken, not after 30 s");
    let _ = permit(reply.unwrap().unwrap());
}

fn permit(reply: Admission) -> Permit {
    match reply {
        Admission::Admitted(a) => a.permit,
        other => panic!("{other:?}"),
    }
}

fn slots(limit: u32) -> GateSet {
    GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(limit)))])
}

fn mixed() -> GateSet {
    let smooth = Smooth { rate: 1_000, every: Span::secs(1), burst: 1_000, unit: Unit::Calls };
    GateSet::of(vec![
        Gate::new("rate", Kind::Smooth(smooth)),
        Gate::new("slots", Kind::Slots(Slots::of(2))),
        Gate::new("quota", Kind::Quota(Quota::slots(5))).per(&[Part::Tenant]),
        Gate::new("breaker", Kind::Breaker(Breaker::default())),
    ])
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_with_what_to_do() {
    let server = Server::start(&["maxmemory-policy volatile-lru"]).unwrap();
    let refused = RedisGates::connect(&server.url(), RedisOptions::default()).await.unwrap_err();
    assert!(refused.to_string().contains("maxmemory-policy noeviction"), "{refused}");
}

#[tokio::test]
async fn every_key_has_an_expiry_the_prefix_and_the_tag_of_its_partition() {
    let server = Server::start(&[]).unwrap();
    let options = RedisOptions { prefix: "ours".into(), ..RedisOptions::default() };
    let gates = RedisGates::connect(&server.url(), options).await.unwrap();
    for seed in 0..12 {
        let history = history::make(seed, 150);
        history::run(&gates, &history).await.unwrap();
    }
    let mut redis = raw(&server).await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut redis).await.unwrap();
    assert!(keys.len() > 100, "{}", keys.len());
    for key in keys {
        let ttl: i64 = redis::cmd("TTL").arg(&key).query_async(&mut redis).await.unwrap();
        assert!(ttl > 3_600, "{key} lasts {ttl} s");
        // Operators' records and markers are the same in every layout, everything else has its number.
        let shared = key.strip_prefix("ours:").filter(|rest| rest.contains("}!"));
        let rest = key.strip_prefix("ours:1:").or(shared);
        let tag = rest.and_then(|rest| rest.strip_prefix("{history-")?.split_once('}'));
        assert!(tag.is_some(), "{key} is outside its partition");
    }
}

#[tokio::test]
async fn an_admission_is_one_round_trip_and_lost_functions_are_loaded_again() {
    let server = Server::start(&[]).unwrap();
    let gates = RedisGates::connect(&server.url(), RedisOptions::default()).await.unwrap();
    gates.configure("d", mixed()).await.unwrap();
    let first = permit(gates.admit(None, &call("d", 0)).await.unwrap());
    gates.settle(None, &first, &Outcome::of(End::Ok)).await.unwrap();
    server.command("CONFIG RESETSTAT").unwrap();
    for n in 1..=50 {
        let held = permit(gates.admit(None, &call("d", n)).await.unwrap());
        gates.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap();
    }
    let mut redis = raw(&server).await;
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut redis).await.unwrap();
    assert!(stats.contains("cmdstat_fcall:calls=100,"), "{stats}");
    for other in ["cmdstat_evalsha", "cmdstat_function", "cmdstat_hello"] {
        assert!(!stats.contains(other), "{stats}");
    }
    let looks = stats.lines().find_map(|line| line.strip_prefix("cmdstat_eval:calls=")?.split(',').next());
    let looks: u32 = looks.unwrap_or("0").parse().unwrap();
    assert!(
        looks <= 2,
        "who begins to listen looks what operators have said, and not with every call: {stats}"
    );
    server.command("FUNCTION FLUSH").unwrap();
    let held = permit(gates.admit(None, &call("d", 99)).await.unwrap());
    assert_eq!(
        permit(gates.admit(None, &call("d", 99)).await.unwrap()),
        held,
        "asking twice gives the same permit"
    );
    let settled = gates.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap();
    assert_eq!(settled.state, LeaseEnd::Released);
    let again = gates.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap();
    assert_eq!(again.state, LeaseEnd::Gone);
}

async fn both_hear(prefix: &str) {
    hear(&SERVER, prefix, 2).await;
}

#[tokio::test]
async fn a_release_in_one_process_wakes_the_waiter_of_another_at_once() {
    let (one, two) = (connected("wake").await, Arc::new(connected("wake").await));
    let lock = || GateSet::of(vec![Gate::new("lock", Kind::Lock(Lock { poll: Span::secs(30) }))]);
    one.configure("d", lock()).await.unwrap();
    two.configure("d", lock()).await.unwrap();
    both_hear("wake").await;
    let held = permit(one.admit(None, &call("d", 1)).await.unwrap());
    let waiting = tokio::spawn({
        let two = two.clone();
        async move { admitted(&*two, call("d", 2)).await }
    });
    while one.waiters("d", 9).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    one.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap();
    let reply = tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("woken, not after 30 s");
    let _ = permit(reply.unwrap().unwrap());
}

#[tokio::test]
async fn a_waiter_that_asks_again_from_another_process_is_woken_there_and_keeps_its_place() {
    let (one, two) = (connected("moved").await, connected("moved").await);
    for gates in [&one, &two] {
        gates.configure("d", slots(1)).await.unwrap();
    }
    both_hear("moved").await;
    let held = permit(one.admit(None, &call("d", 1)).await.unwrap());
    for n in [2, 3] {
        one.admit(None, &call("d", n)).await.unwrap();
    }
    let turn = two.turn(&Holder::number(2));
    let reply = two.admit(None, &call("d", 2)).await.unwrap();
    assert!(matches!(&reply, Admission::Wait(wait) if wait.position == Some(1)), "{reply:?}");
    assert_eq!(one.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap().woken, [Holder::number(2)]);
    assert!(turn.wait(Duration::from_secs(30)).await, "it is woken where it asked last");
    let _ = permit(two.admit(None, &call("d", 2)).await.unwrap());
    assert_eq!(one.waiters("d", 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn settlements_name_the_line_as_it_is_now_and_tell_every_process_of_its_own_each_time() {
    let (one, two) = (connected("again").await, connected("again").await);
    let slots = Kind::Slots(Slots { poll: Span::secs(30), ..Slots::of(9) });
    for gates in [&one, &two] {
        gates.configure("d", GateSet::of(vec![Gate::new("slots", slots.clone())])).await.unwrap();
    }
    both_hear("again").await;
    let mut held = Vec::new();
    for n in 0..9 {
        held.push(permit(one.admit(None, &call("d", n)).await.unwrap()));
    }
    for n in 101..=106 {
        let from = if n == 102 { &two } else { &one };
        assert!(matches!(from.admit(None, &call("d", n)).await.unwrap(), Admission::Wait(_)));
    }
    let (first, second) = (one.turn(&Holder::number(101)), two.turn(&Holder::number(102)));
    // The same line, seen from either process in turns and twice in a row: both are woken each time, wherever the slot came free.
    for (n, from) in [&one, &one, &two, &one, &two, &two].into_iter().enumerate() {
        let woken = from.settle(None, &held[n], &Outcome::of(End::Ok)).await.unwrap().woken;
        let expected: Vec<Holder> = (101..=104).take(n + 1).map(Holder::number).collect();
        assert_eq!(woken, expected, "settlement {n}");
        assert!(first.wait(Duration::from_secs(30)).await, "the first is not told of settlement {n}");
        if n > 0 {
            assert!(second.wait(Duration::from_secs(30)).await, "the second is not told of settlement {n}");
        }
    }
    // Somebody behind the first goes.
    assert_eq!(one.cancel_wait(None, &target("d"), &Holder::number(103)).await.unwrap().gone, 1);
    let woken = two.settle(None, &held[6], &Outcome::of(End::Ok)).await.unwrap().woken;
    assert_eq!(woken, [101, 102, 104, 105].map(Holder::number));
}

#[tokio::test]
async fn orders_to_all_keys_hold_for_those_that_come() {
    let (one, two) = (connected("orders").await, connected("orders").await);
    orders::hold_for_keys_that_come(&one, &two).await;
}

#[tokio::test]
async fn a_switch_is_heard_by_other_processes_and_recorded() {
    let (one, two) = (connected("switch").await, connected("switch").await);
    one.configure("d", slots(1)).await.unwrap();
    two.configure("d", slots(1)).await.unwrap();
    let _held = permit(one.admit(None, &call("d", 1)).await.unwrap());
    assert!(matches!(two.admit(None, &call("d", 2)).await.unwrap(), Admission::Wait(_)));
    assert_eq!(one.switch("d", Some("slots"), true, note()).await.unwrap().len(), 1);
    let heard = async {
        while matches!(two.admit(None, &call("d", 2)).await.unwrap(), Admission::Wait(_)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), heard).await.expect("the other process hears of it");
    let three = connected("switch").await;
    three.configure("d", slots(1)).await.unwrap();
    let _free = permit(three.admit(None, &call("d", 3)).await.unwrap());
    // What changes nothing is not recorded.
    assert!(!one.promote(None, "d", &Holder::number(77), note()).await.unwrap());
    assert!(
        one.force_release(None, "d", &Holder::number(77), false, note()).await.unwrap().leases.is_empty()
    );
    let what: Vec<String> = two.changes("d").await.unwrap().into_iter().map(|c| c.what).collect();
    assert_eq!(what, ["disable slots"]);
    assert!(one.switch("d", Some("nothing"), true, note()).await.is_err());
}

#[tokio::test]
async fn a_server_that_comes_back_empty_gives_no_second_burst_and_old_permits_are_gone() {
    let mut server = Server::start(&[]).unwrap();
    let gates = RedisGates::connect(&server.url(), RedisOptions::default()).await.unwrap();
    let window = Window { max: 5, every: Span::secs(600), unit: Unit::Calls };
    gates.configure("d", GateSet::of(vec![Gate::new("window", Kind::Window(window))])).await.unwrap();
    let held = permit(gates.admit(None, &call("d", 0)).await.unwrap());
    server.stop().unwrap();
    let down = gates.admit(None, &call("d", 1)).await.unwrap_err();
    assert_eq!(down.code().id, "TG5011");
    server.resume().unwrap();
    let reply = gates.admit(None, &call("d", 1)).await.unwrap();
    let Admission::Wait(wait) = reply else { panic!("{reply:?}") };
    assert!(wait.retry_at - gates.clock() > 500_000_000, "a whole window must pass first: {wait:?}");
    assert_eq!(gates.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap().state, LeaseEnd::Gone);
}

#[tokio::test]
async fn clearing_forgets_the_domain_and_nothing_else() {
    let gates = connected("clear").await;
    for domain in ["a", "b"] {
        gates.configure(domain, mixed()).await.unwrap();
        for n in 0..3 {
            gates.admit(None, &call(domain, n)).await.unwrap();
        }
    }
    let would = gates.clear("a", true, note()).await.unwrap();
    assert_eq!((would.total.leases, would.total.places), (2, 1));
    assert_eq!(gates.clear("a", false, note()).await.unwrap(), would);
    let usage = gates.usage().await.unwrap();
    assert_eq!((usage[0].total.leases, usage[0].total.places, usage[1].total), (0, 0, would.total));
    let _free = permit(gates.admit(None, &call("a", 7)).await.unwrap());
}

#[tokio::test]
async fn new_settings_keep_what_is_held() {
    let gates = connected("settings").await;
    gates.configure("d", slots(3)).await.unwrap();
    let held: Vec<Permit> = {
        let mut held = Vec::new();
        for n in 0..3 {
            held.push(permit(gates.admit(None, &call("d", n)).await.unwrap()));
        }
        held
    };
    gates.configure("d", slots(2)).await.unwrap();
    gates.settle(None, &held[0], &Outcome::of(End::Ok)).await.unwrap();
    assert!(matches!(gates.admit(None, &call("d", 8)).await.unwrap(), Admission::Wait(_)));
    gates.settle(None, &held[1], &Outcome::of(End::Ok)).await.unwrap();
    let _next = permit(gates.admit(None, &call("d", 8)).await.unwrap());
    let split = GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(2))).per(&[Part::Account])]);
    assert_eq!(gates.configure("d", split).await.unwrap_err().code().id, "TG4010");
}
