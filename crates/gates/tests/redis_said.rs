//! What operators say about gates on Redis: the later word holds, whatever the server has lost.

mod redis_support;

use std::time::Duration;

use redis_support::{call, connected, hear, note, raw};
use tidegate_core::gates::config::{Breaker, Slots};
use tidegate_core::gates::{
    Admission, BreakerOrder, Call, End, Failure, Gate, GateSet, Holder, Kind, Micros, Outcome, Part, SECOND,
    Target,
};
use tidegate_gates::{GateOperations, Gates, GatesError, RedisGates, RedisOptions, Switch};
use tidegate_testbed::proxy::{Proxy, Way};
use tidegate_testbed::redis::{Cluster, Server};

#[tokio::test]
async fn what_operators_have_said_is_said_again_to_a_server_that_comes_back_empty() {
    let mut server = Server::start(&[]).unwrap();
    let gates = RedisGates::connect(&server.url(), RedisOptions::default()).await.unwrap();
    let breaker = Gate::new("health", Kind::Breaker(Breaker::default())).per(&[Part::Account]);
    gates
        .configure("d", GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(1))), breaker]))
        .await
        .unwrap();
    let trip = BreakerOrder::Trip { lasts: 600 * SECOND };
    gates.order_breaker(None, "d", ("health", None), trip, note()).await.unwrap();
    gates.switch("d", Some("slots"), true, note()).await.unwrap();
    server.stop().unwrap();
    server.resume().unwrap();
    let said_again = async {
        loop {
            let known = (gates.switches("d").await, gates.orders("d").await);
            if matches!(&known, (Ok(off), Ok(orders)) if off.len() == 1 && orders.len() == 1) {
                return known;
            }
            tokio::task::yield_now().await;
        }
    };
    let (off, orders) =
        tokio::time::timeout(Duration::from_secs(30), said_again).await.expect("it is said again");
    assert_eq!((&off.unwrap()[0].note, &orders.unwrap()[0].note), (&note(), &note()));
    // Who hears of it later knows it, too; and what is taken back stays so.
    let other = RedisGates::connect(&server.url(), RedisOptions::default()).await.unwrap();
    other.configure("d", gates.gates_of("d").await.unwrap().unwrap()).await.unwrap();
    assert_eq!(other.heard("d").off.len(), 1);
    gates.switch("d", Some("slots"), false, note()).await.unwrap();
    assert!(gates.switches("d").await.unwrap().is_empty());
}

#[tokio::test]
async fn what_was_said_again_by_halves_is_said_in_full_and_a_newer_word_stays() {
    let server = Server::start(&[]).unwrap();
    let gates = RedisGates::connect(&server.url(), RedisOptions::default()).await.unwrap();
    let breaker = |name| Gate::new(name, Kind::Breaker(Breaker::default())).per(&[Part::Account]);
    let slots = Gate::new("slots", Kind::Slots(Slots::of(1)));
    gates.configure("d", GateSet::of(vec![slots, breaker("health"), breaker("pulse")])).await.unwrap();
    let trip = BreakerOrder::Trip { lasts: 600 * SECOND };
    for gate in ["health", "pulse"] {
        gates.order_breaker(None, "d", (gate, None), trip, note()).await.unwrap();
    }
    gates.switch("d", Some("slots"), true, note()).await.unwrap();
    let mut redis = raw(&server).await;
    let text = async |redis: &mut redis::aio::MultiplexedConnection, what: &str, gate: &str| {
        let key = format!("tg:{{d}}!{what}");
        redis::cmd("HGET").arg(key).arg(gate).query_async::<String>(redis).await.unwrap()
    };
    let switch = text(&mut redis, "switches", "slots").await;
    let newer = text(&mut redis, "orders", "pulse").await.replace("\"test\"", "\"newer\"");
    let time: i64 = text(&mut redis, "times", "orders pulse").await.parse().unwrap();
    // The server has lost everything; whoever had begun to say it again has died, and one word is newer. Nobody hears of a part.
    let mut left = redis::pipe();
    left.atomic().cmd("FLUSHALL").cmd("HSET").arg("tg:{d}!switches").arg("slots").arg(switch);
    left.cmd("HSET").arg("tg:{d}!orders").arg("pulse").arg(newer);
    left.cmd("HSET").arg("tg:{d}!times").arg("orders pulse").arg(time + 1);
    left.cmd("PUBLISH").arg("tg:changes").arg("d");
    let _: redis::Value = left.query_async(&mut redis).await.unwrap();
    let said_again = async {
        while gates.orders("d").await.unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), said_again).await.expect("it is said again");
    let orders = gates.orders("d").await.unwrap();
    let why: Vec<&str> = orders.iter().map(|order| order.note.why.as_str()).collect();
    assert_eq!((why, gates.switches("d").await.unwrap().len()), (vec!["test", "newer"], 1));
    let changes = gates.changes("d").await.unwrap();
    assert_eq!(
        changes.iter().map(|c| c.what.as_str()).collect::<Vec<_>>(),
        ["switches and orders said again"]
    );
    for what in ["switches", "orders", "changes"] {
        let ttl: i64 =
            redis::cmd("TTL").arg(format!("tg:{{d}}!{what}")).query_async(&mut redis).await.unwrap();
        assert!(ttl > 3_600, "{what} lasts {ttl} s");
    }
    // What is taken back by another one is not said again.
    let other = RedisGates::connect(&server.url(), RedisOptions::default()).await.unwrap();
    other.configure("d", gates.gates_of("d").await.unwrap().unwrap()).await.unwrap();
    other.order_breaker(None, "d", ("health", None), BreakerOrder::Reset, note()).await.unwrap();
    let heard = async {
        while gates.heard("d").orders.len() > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), heard).await.expect("it is heard of");
    assert_eq!(gates.orders("d").await.unwrap().len(), 1);
}

/// One who has heard that `a` is off, and another one who comes to the server after it has lost everything.
async fn after_a_loss(server: &Server) -> [RedisGates; 2] {
    let set = || GateSet::of(["a", "b"].map(|name| Gate::new(name, Kind::Slots(Slots::of(1)))).into());
    let one = RedisGates::connect(&server.url(), RedisOptions::default()).await.expect("it answers");
    one.configure("d", set()).await.expect("it answers");
    one.switch("d", Some("a"), true, note()).await.expect("it answers");
    hear(server, "tg", 1).await;
    server.command("FLUSHALL").expect("it answers");
    let two = RedisGates::connect(&server.url(), RedisOptions::default()).await.expect("it answers");
    two.configure("d", set()).await.expect("it answers");
    [one, two]
}

fn off(switches: &[Switch]) -> Vec<&str> {
    switches.iter().map(|switch| switch.gate.as_str()).collect()
}

/// Waits until a process has heard that these gates are off, and those alone.
async fn hears(gates: &RedisGates, expected: &[&str]) {
    let heard = async {
        while off(&gates.heard("d").off) != expected {
            tokio::task::yield_now().await;
        }
    };
    let heard = tokio::time::timeout(Duration::from_secs(10), heard).await;
    assert!(heard.is_ok(), "{:?} instead of {expected:?}", gates.heard("d").off);
}

#[tokio::test]
async fn what_operators_do_to_an_emptied_server_does_not_hide_what_it_has_lost() {
    let server = Server::start(&[]).unwrap();
    let [one, two] = after_a_loss(&server).await;
    // It is heard of when there already is a record of something else.
    let mut cleared = redis::pipe();
    cleared.atomic().cmd("FLUSHALL").cmd("RPUSH").arg("tg:{d}!changes").arg("a record");
    cleared.cmd("PUBLISH").arg("tg:changes").arg("d");
    let _: redis::Value = cleared.query_async(&mut raw(&server).await).await.unwrap();
    let said_again = async {
        while two.switches("d").await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), said_again).await.expect("it is said again");
    server.command("FLUSHALL").unwrap();
    two.clear("d", false, note()).await.unwrap();
    two.switch("d", Some("b"), true, note()).await.unwrap();
    for gates in [&one, &two] {
        hears(gates, &["a", "b"]).await;
    }
    assert_eq!(off(&two.switches("d").await.unwrap()), ["a", "b"]);
    // The one who has heard it says something else himself.
    server.command("FLUSHALL").unwrap();
    assert_eq!(off(&one.switch("d", Some("b"), false, note()).await.unwrap()), ["a"]);
    hears(&two, &["a"]).await;
}

#[tokio::test]
async fn what_is_taken_back_from_an_emptied_server_is_not_said_again() {
    let server = Server::start(&[]).unwrap();
    let [one, two] = after_a_loss(&server).await;
    two.switch("d", Some("a"), false, note()).await.unwrap();
    hears(&one, &[]).await;
    assert!(two.switches("d").await.unwrap().is_empty());
    // And can be said anew.
    two.switch("d", Some("a"), true, note()).await.unwrap();
    hears(&one, &["a"]).await;
    server.command("FLUSHALL").unwrap();
    one.switch("d", Some("b"), true, note()).await.unwrap();
    assert_eq!(off(&two.switches("d").await.unwrap()), ["a", "b"]);
}

#[tokio::test]
async fn new_settings_do_not_forget_what_an_emptied_server_has_lost() {
    let server = Server::start(&[]).unwrap();
    let [one, two] = after_a_loss(&server).await;
    server.command("FLUSHALL").unwrap();
    one.configure("d", two.gates_of("d").await.unwrap().unwrap()).await.unwrap();
    assert_eq!(off(&one.heard("d").off), ["a"]);
    assert_eq!(off(&two.switches("d").await.unwrap()), ["a"]);
}

/// Keys and what a server has there.
type Snapshot = Vec<(String, Vec<u8>)>;

async fn snapshot(server: &Server) -> Snapshot {
    let mut redis = raw(server).await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut redis).await.expect("it answers");
    let mut all = Vec::new();
    for key in keys {
        let dump = redis::cmd("DUMP").arg(&key).query_async(&mut redis).await.expect("it answers");
        all.push((key, dump));
    }
    all
}

/// It comes back with what it had then. Connections of commands break, those that listen do not.
async fn comes_back_with(server: &Server, snapshot: &Snapshot) {
    let mut back = redis::pipe();
    back.atomic().cmd("FLUSHDB");
    for (key, dump) in snapshot {
        back.cmd("RESTORE").arg(key).arg(0).arg(dump);
    }
    back.cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal");
    let _: redis::Value = back.query_async(&mut raw(server).await).await.expect("it answers");
}

/// Calls until the server has these gates switched off, and so many breakers open by order.
async fn said_again(gates: &RedisGates, switched: &[&str], ordered: usize) {
    let mut seen = (Vec::new(), 0);
    let again = async {
        loop {
            let _ = gates.admit(None, &call("d", 1)).await;
            let (switches, orders) = (gates.switches("d").await, gates.orders("d").await);
            if let (Ok(switches), Ok(orders)) = (switches, orders) {
                seen = (switches, orders.len());
            }
            if off(&seen.0) == switched && seen.1 == ordered {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let again = tokio::time::timeout(Duration::from_secs(10), again).await;
    assert!(again.is_ok(), "{:?} and {} orders instead of {switched:?} and {ordered}", off(&seen.0), seen.1);
}

async fn at_a_breaker(url: &str) -> RedisGates {
    let gates = RedisGates::connect(url, RedisOptions::default()).await.expect("it answers");
    let mut set = GateSet::of(["a", "b"].map(|name| Gate::new(name, Kind::Slots(Slots::of(9)))).into());
    set.gates.push(Gate::new("health", Kind::Breaker(Breaker::default())));
    gates.configure("d", set).await.expect("it answers");
    gates
}

async fn with_a_breaker(server: &Server) -> RedisGates {
    let gates = at_a_breaker(&server.url()).await;
    hear(server, "tg", 1).await;
    gates
}

const TRIP: BreakerOrder = BreakerOrder::Trip { lasts: 600 * SECOND };

#[tokio::test]
async fn a_server_that_comes_back_older_does_not_bring_back_what_was_taken_back_since() {
    let server = Server::start(&[]).unwrap();
    let gates = with_a_breaker(&server).await;
    let order = async |order| gates.order_breaker(None, "d", ("health", None), order, note()).await.unwrap();
    gates.switch("d", Some("a"), true, note()).await.unwrap();
    order(TRIP).await;
    let said = snapshot(&server).await;
    gates.switch("d", Some("a"), false, note()).await.unwrap();
    order(BreakerOrder::Reset).await;
    comes_back_with(&server, &said).await;
    said_again(&gates, &[], 0).await;
    assert_eq!((gates.heard("d").off.len(), gates.heard("d").orders.len()), (0, 0));
}

/// How long a call has to wait; none if it passes.
async fn waits(gates: &RedisGates, domain: &str) -> Result<Option<Micros>, GatesError> {
    let target = Target::new(domain).and_then(|t| t.with(Part::Account, "one")).expect("a target");
    match gates.admit(None, &Call::new(target.into(), Holder::number(1))).await? {
        Admission::Wait(wait) => Ok(Some(wait.retry_at - gates.clock())),
        _ => Ok(None),
    }
}

/// Calls until the breaker is closed, or open for this long at most.
async fn waits_at_most(gates: &RedisGates, domain: &str, most: Option<Micros>) {
    let mut last = Ok(None);
    let soon = async {
        loop {
            last = waits(gates, domain).await;
            if last.as_ref().is_ok_and(|waits| *waits <= most) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let soon = tokio::time::timeout(Duration::from_secs(10), soon).await;
    assert!(soon.is_ok(), "{domain} stays shut: {last:?}");
}

/// A breaker that has counted something is not at rest.
async fn fails_once(gates: &RedisGates, domain: &str) {
    let target = Target::new(domain).and_then(|t| t.with(Part::Account, "one")).expect("a target");
    let reply = gates.admit(None, &Call::new(target.into(), Holder::number(2))).await.expect("it answers");
    let Admission::Admitted(held) = reply else { panic!("{reply:?}") };
    let failed = Outcome::of(End::Failed(Failure::Server));
    gates.settle(None, &held.permit, &failed).await.expect("it answers");
}

/// Domains of which one is a single partition and one has one per account.
async fn both_kinds(gates: &RedisGates) -> [&'static str; 2] {
    let breaker = || Gate::new("health", Kind::Breaker(Breaker::default()));
    gates.configure("d", GateSet::of(vec![breaker()])).await.expect("it answers");
    gates.configure("split", GateSet::of(vec![breaker().per(&[Part::Account])])).await.expect("it answers");
    for domain in ["d", "split"] {
        fails_once(gates, domain).await;
        gates.order_breaker(None, domain, ("health", None), LONG, note()).await.expect("it answers");
        assert!(waits(gates, domain).await.expect("it answers") > Some(3_600 * SECOND));
    }
    ["d", "split"]
}

const LONG: BreakerOrder = BreakerOrder::Trip { lasts: 24 * 3_600 * SECOND };

#[tokio::test]
async fn partitions_that_come_back_older_do_not_keep_an_order_that_was_taken_back_or_made_shorter() {
    let minute = 60 * SECOND;
    for (newer, most) in [(BreakerOrder::Reset, None), (BreakerOrder::Trip { lasts: minute }, Some(minute))] {
        let server = Server::start(&[]).unwrap();
        let gates = with_a_breaker(&server).await;
        let domains = both_kinds(&gates).await;
        let tripped = snapshot(&server).await;
        for domain in domains {
            gates.order_breaker(None, domain, ("health", None), newer, note()).await.unwrap();
        }
        comes_back_with(&server, &tripped).await;
        for domain in domains {
            waits_at_most(&gates, domain, most).await;
        }
    }
}

#[tokio::test]
async fn a_server_that_has_the_word_of_a_reset_and_not_its_partitions_does_not_keep_them_shut() {
    let server = Server::start(&[]).unwrap();
    let gates = with_a_breaker(&server).await;
    let domains = both_kinds(&gates).await;
    let mut between = snapshot(&server).await;
    between.retain(|(key, _)| !key.contains('!') || key.ends_with("!parts") || key.ends_with("!layouts"));
    for domain in domains {
        gates.order_breaker(None, domain, ("health", None), BreakerOrder::Reset, note()).await.unwrap();
    }
    between.extend(snapshot(&server).await.into_iter().filter(|(key, _)| key.ends_with("!times")));
    comes_back_with(&server, &between).await;
    for domain in domains {
        waits_at_most(&gates, domain, None).await;
    }
}

#[tokio::test]
async fn what_is_taken_back_or_over_is_not_said_again_aloud() {
    let server = Server::start(&[]).unwrap();
    let gates = with_a_breaker(&server).await;
    for off in [true, false] {
        gates.switch("d", Some("a"), off, note()).await.unwrap();
    }
    let moment = BreakerOrder::Trip { lasts: 1 };
    gates.order_breaker(None, "d", ("health", None), moment, note()).await.unwrap();
    server.command("FLUSHALL").unwrap();
    // It is said again: who comes later and says less knows it.
    gates.switch("d", Some("b"), true, note()).await.unwrap();
    assert_eq!(server.command("HLEN tg:{d}!times").unwrap(), ":3");
    let what: Vec<String> = gates.changes("d").await.unwrap().into_iter().map(|c| c.what).collect();
    assert_eq!(what, ["disable b"]);
}

/// How often a server was asked what operators have said.
fn asked(server: &Server) -> usize {
    let stats = server.answer("INFO commandstats").expect("it answers");
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_eval:calls=")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

#[tokio::test]
async fn a_word_about_one_domain_is_read_of_that_one_and_a_new_connection_reads_each_once() {
    const DOMAINS: usize = 100;
    let server = Server::start(&[]).unwrap();
    let gates = with_a_breaker(&server).await;
    let names: Vec<String> = (0..DOMAINS).map(|n| format!("d{n}")).collect();
    for name in &names {
        gates.configure(name, GateSet::of(vec![Gate::new("a", Kind::Slots(Slots::of(9)))])).await.unwrap();
    }
    let other = with_a_breaker(&server).await;
    hear(&server, "tg", 2).await;
    server.command("CONFIG RESETSTAT").unwrap();
    for n in 0..20 {
        other.switch("d", Some("a"), n % 2 == 0, note()).await.unwrap();
        hears(&gates, if n % 2 == 0 { &["a"] } else { &[] }).await;
    }
    // Both processes began to listen just now, and one of them to all domains; the other hears itself, too.
    let words = asked(&server);
    assert!(words <= DOMAINS + 3 * 20 + 10, "{words}");
    drop(other);
    server.command("CLIENT KILL TYPE normal").unwrap();
    server.command("CONFIG RESETSTAT").unwrap();
    for name in &names {
        while gates.admit(None, &call(name, 1)).await.is_err() {}
    }
    gates.switch("d", Some("b"), true, note()).await.unwrap();
    let looks = asked(&server);
    assert!(looks <= 3 * DOMAINS + 10, "each domain on each of two connections: {looks}");
}

#[tokio::test]
async fn a_server_that_comes_back_older_hears_what_was_said_since() {
    let server = Server::start(&[]).unwrap();
    let gates = with_a_breaker(&server).await;
    let order = async |order| gates.order_breaker(None, "d", ("health", None), order, note()).await.unwrap();
    for off in [true, false] {
        gates.switch("d", Some("a"), off, note()).await.unwrap();
        order(if off { TRIP } else { BreakerOrder::Reset }).await;
    }
    let taken_back = snapshot(&server).await;
    gates.switch("d", Some("a"), true, note()).await.unwrap();
    order(TRIP).await;
    comes_back_with(&server, &taken_back).await;
    said_again(&gates, &["a"], 1).await;
    assert_eq!((off(&gates.heard("d").off), gates.heard("d").orders.len()), (vec!["a"], 1));
}

#[tokio::test]
async fn a_running_server_that_is_emptied_hears_again_what_operators_have_said() {
    let server = Server::start(&[]).unwrap();
    let gates = with_a_breaker(&server).await;
    gates.switch("d", Some("a"), true, note()).await.unwrap();
    gates.order_breaker(None, "d", ("health", None), TRIP, note()).await.unwrap();
    server.command("FLUSHALL").unwrap();
    said_again(&gates, &["a"], 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_of_a_cluster_that_is_emptied_hears_again_what_operators_have_said() {
    let cluster = Cluster::start(3, 0).unwrap();
    let gates = at_a_breaker(&cluster.url()).await;
    gates.switch("d", Some("a"), true, note()).await.unwrap();
    // Wherever its records are: those who listen do so at another server, or their connection stays.
    for server in &cluster.masters {
        server.command("FLUSHALL").unwrap();
        said_again(&gates, &["a"], 0).await;
    }
    // And those who listen hear at every server what is said at one.
    let other = at_a_breaker(&cluster.url()).await;
    other.switch("d", Some("b"), true, note()).await.unwrap();
    hears(&gates, &["a", "b"]).await;
}

#[tokio::test]
async fn orders_to_two_breakers_at_the_same_time_both_stand() {
    let (one, two) = (connected("both").await, connected("both").await);
    for gates in [&one, &two] {
        let breakers = ["health", "pulse"].map(|name| Gate::new(name, Kind::Breaker(Breaker::default())));
        gates.configure("d", GateSet::of(breakers.into())).await.unwrap();
    }
    for _ in 0..20 {
        // Both were tripped before, and that is over.
        for gate in ["health", "pulse"] {
            let moment = BreakerOrder::Trip { lasts: 1 };
            one.order_breaker(None, "d", (gate, None), moment, note()).await.unwrap();
        }
        let (first, second) = tokio::join!(
            one.order_breaker(None, "d", ("health", None), TRIP, note()),
            two.order_breaker(None, "d", ("pulse", None), TRIP, note()),
        );
        first.and(second).unwrap();
        assert_eq!(one.orders("d").await.unwrap().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_said_by_one_that_died_before_it_heard_the_answer_is_heard_by_all() {
    let server = Server::start(&[]).unwrap();
    let listens = with_a_breaker(&server).await;
    let way = Proxy::to(server.port()).unwrap();
    let url = format!("redis://127.0.0.1:{}", way.port());
    let dies = at_a_breaker(&url).await;
    way.set(Way::Slow(Duration::from_millis(500)));
    let saying = tokio::spawn(async move { dies.switch("d", Some("a"), true, note()).await });
    let written = async {
        while server.command("HEXISTS tg:{d}!switches a").unwrap() != ":1" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), written).await.expect("it is written");
    // The answer is on its way and does not arrive.
    way.set(Way::Blocked);
    saying.abort();
    assert!(!matches!(saying.await, Ok(Err(_))), "it does not fail");
    hears(&listens, &["a"]).await;
}

#[tokio::test]
async fn who_only_looks_writes_nothing() {
    let server = Server::start(&[]).unwrap();
    let gates = with_a_breaker(&server).await;
    gates.switch("d", Some("a"), true, note()).await.unwrap();
    server.command("CONFIG SET maxmemory 1").unwrap();
    assert!(gates.switch("d", Some("b"), true, note()).await.is_err(), "it takes nothing");
    gates.configure("d", gates.gates_of("d").await.unwrap().unwrap()).await.unwrap();
    assert_eq!(off(&gates.heard("d").off), ["a"]);
}

#[tokio::test]
async fn what_a_version_without_times_says_and_takes_back_holds() {
    let server = Server::start(&[]).unwrap();
    let gates = with_a_breaker(&server).await;
    gates.switch("d", Some("a"), true, note()).await.unwrap();
    gates.switch("d", Some("b"), true, note()).await.unwrap();
    gates.switch("d", Some("b"), false, note()).await.unwrap();
    let mut redis = raw(&server).await;
    let key = "tg:{d}!switches";
    let text: String = redis::cmd("HGET").arg(key).arg("a").query_async(&mut redis).await.unwrap();
    let mut old = redis::pipe();
    old.cmd("HDEL").arg(key).arg("a").cmd("PUBLISH").arg("tg:changes").arg("d");
    let _: redis::Value = old.query_async(&mut redis).await.unwrap();
    hears(&gates, &[]).await;
    let mut old = redis::pipe();
    old.cmd("HSET")
        .arg(key)
        .arg("b")
        .arg(text.replace("\"a\"", "\"b\""))
        .cmd("PUBLISH")
        .arg("tg:changes")
        .arg("d");
    let _: redis::Value = old.query_async(&mut redis).await.unwrap();
    hears(&gates, &["b"]).await;
}
