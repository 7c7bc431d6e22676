//! What two processes have seen of the gates they share is put together by whoever asks, over Redis, a cluster and Postgres.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::Arc;

use tidegate_core::gates::config::Slots;
use tidegate_core::gates::{
    Admission, Call, End, Gate, GateSet, Holder, Kind, Outcome, Part, Permit, Target,
};
use tidegate_core::slo::Standing;
use tidegate_gates::watched::{SNAPSHOTS, Snapshot, Trace, TraceQuery, merge};
use tidegate_gates::{
    Backend, GateOperations, Gates, Noticeboard, PgGates, PgGatesOptions, RedisGates, RedisOptions, Watched,
};
use tidegate_testbed::postgres;
use tidegate_testbed::redis::{Cluster, Server};

fn call(tenant: &str, n: u64) -> Call {
    let target = Target::new("shop").unwrap().with(Part::Tenant, tenant).unwrap();
    Call::new(Arc::new(target), Holder::number(n))
}

async fn permit(gates: &impl Gates, call: &Call) -> Permit {
    match gates.admit(None, call).await.unwrap() {
        Admission::Admitted(admitted) => admitted.permit,
        other => panic!("{other:?}"),
    }
}

/// Two processes use the gates; a third only looks.
async fn two_are_put_together(one: impl Backend + 'static, two: impl Backend + 'static, looks: impl Backend) {
    let set = GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(12)))]);
    let (one, two) = (Watched::around(one), Watched::around(two));
    one.configure("shop", set.clone()).await.unwrap();
    two.configure("shop", set.clone()).await.unwrap();
    looks.configure("shop", set).await.unwrap();
    for n in 0..10 {
        let held = permit(&one, &call("acme", n)).await;
        // Whoever has the permit may tell another server how it ended.
        let teller: &dyn Gates = if n < 5 { &one } else { &two };
        teller.settle(None, &held, &Outcome::of(End::Ok)).await.unwrap();
    }
    for n in 0..10 {
        let _held = permit(&two, &call("umbrella", 100 + n)).await;
    }
    one.flush().await;
    two.flush().await;
    let seen = looks.published().await.unwrap();
    assert_eq!(seen.len(), 2);
    let metrics = &merge(&seen, looks.clock())[0];
    assert_eq!((metrics.total.reserved, metrics.total.released, metrics.held), (20, 10, 15));
    let tenants: Vec<_> = metrics.tenants.iter().map(|t| (t.tenant.as_str(), t.counts.reserved)).collect();
    assert_eq!(tenants, [("acme", 10), ("umbrella", 10)]);
    // An hour later the first one's book would say that five have lapsed; the second knows better.
    let later = &merge(&seen, looks.clock() + 3_600_000_000)[0];
    assert_eq!((later.held, later.total.expired), (0, 10));

    let report = looks.report().await.unwrap();
    assert!(report.footprint.bytes > 0 && report.footprint.keys > 0, "{:?}", report.footprint);
    let live = report.domains[0].live.unwrap();
    assert_eq!((live.slots_used, live.slots, report.processes), (10, 12, 2));
    let standing = |id: &str| report.verdicts.iter().find(|v| v.objective == id).unwrap().standing;
    assert_eq!(standing("slot_leakage"), Standing::Met);
    assert_eq!(standing("reservations_answered"), Standing::Met);
    let own = two.report().await.unwrap();
    assert_eq!(own.processes, 2, "a process sees the other, and itself");
    let query = TraceQuery { tenant: Some("acme".into()), last: 100, ..TraceQuery::default() };
    let traces = looks.traces("shop", &query).await.unwrap();
    assert_eq!(traces.len(), 10);
    assert!(traces.is_sorted_by_key(Trace::began));

    let mut again = seen[0].clone();
    again.domains[0].total.reserved = 77;
    looks.publish(&again).await.unwrap();
    let seen = looks.published().await.unwrap();
    assert_eq!(seen.len(), 2, "in place of what it left before");
    assert_eq!(seen.iter().find(|s| s.process == again.process).unwrap().domains[0].total.reserved, 77);
}

/// Nobody reads. The first of one too many has gone.
async fn all_but_the_first_stay(gates: &impl Noticeboard) {
    for n in 0..=SNAPSHOTS {
        gates.publish(&Snapshot { process: format!("p{n:03}"), ..Snapshot::default() }).await.unwrap();
    }
}

async fn redis(url: &str) -> RedisGates {
    RedisGates::connect(url, RedisOptions::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_redis_and_every_key_has_an_end() {
    let server = Server::start(&[]).unwrap();
    let url = server.url();
    two_are_put_together(redis(&url).await, redis(&url).await, redis(&url).await).await;
    let client = ::redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    assert!(keys.iter().filter(|k| k.contains("{!seen}")).count() == 3, "{keys:?}");
    for key in keys {
        let left: i64 = ::redis::cmd("TTL").arg(&key).query_async(&mut connection).await.unwrap();
        assert!(left > 0, "{key} lasts for ever");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_redis_what_is_left_stays_bounded_though_nobody_reads() {
    let server = Server::start(&[]).unwrap();
    let gates = redis(&server.url()).await;
    // Left two hours ago by a process that has gone, on a list that others keep alive.
    server.command("ZADD tg:{!seen} 1 gone").unwrap();
    all_but_the_first_stay(&gates).await;
    assert_eq!(server.command("ZCARD tg:{!seen}").unwrap(), format!(":{SNAPSHOTS}"));
    assert_eq!(server.command("DBSIZE").unwrap(), format!(":{}", SNAPSHOTS + 1), "texts and the list");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_cluster() {
    let cluster = Cluster::start(3, 0).unwrap();
    let url = cluster.url();
    two_are_put_together(redis(&url).await, redis(&url).await, redis(&url).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_postgres_also_where_the_tables_are_of_an_earlier_version() {
    let url = postgres::url();
    let schema = format!("gates_seen_{}", std::process::id());
    let connect = async || {
        let options = PgGatesOptions::new().schema(&schema).unwrap();
        PgGates::connect(&url, options).await.unwrap()
    };
    drop(connect().await);
    let (sql, work) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let work = tokio::spawn(work);
    sql.batch_execute(&format!("DROP TABLE {schema}.gate_seen")).await.unwrap();
    two_are_put_together(connect().await, connect().await, connect().await).await;
    sql.batch_execute(&format!("UPDATE {schema}.gate_seen SET at = at - 3700000000")).await.unwrap();
    let gates = connect().await;
    assert!(gates.published().await.unwrap().is_empty(), "it is kept for an hour");
    gates.publish(&Snapshot { process: "p".into(), ..Snapshot::default() }).await.unwrap();
    let rows = sql.query_one(&format!("SELECT count(*) FROM {schema}.gate_seen"), &[]).await.unwrap();
    assert_eq!(rows.get::<_, i64>(0), 1, "what is older goes");
    all_but_the_first_stay(&gates).await;
    let rows = sql.query_one(&format!("SELECT count(*) FROM {schema}.gate_seen"), &[]).await.unwrap();
    assert_eq!(rows.get::<_, i64>(0), SNAPSHOTS as i64, "and what is too much");
    sql.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
    work.abort();
}
