//! What operators say about breakers on Postgres: every partition takes the newest word, whoever was to tell it.

use std::sync::Arc;
use std::time::Duration;

use crate::postgres_support::{Fixture, note};
use tidegate_core::gates::config::Breaker;
use tidegate_core::gates::{
    Admission, BreakerOrder, Call, Gate, GateSet, Holder, Kind, Part, SECOND, Target,
};
use tidegate_gates::{GateOperations, Gates, PgGates, PgGatesOptions};
use tidegate_testbed::proxy::{Proxy, Way};

const TRIP: BreakerOrder = BreakerOrder::Trip { lasts: 24 * 3_600 * SECOND };

/// A way to the fixture's database.
fn way() -> Proxy {
    let to: tokio_postgres::Config = tidegate_testbed::postgres::url().parse().expect("a URL");
    Proxy::to(to.get_ports()[0]).expect("a port")
}

async fn passes(gates: &PgGates, account: u64, n: u64) -> bool {
    let target = Target::new("d").and_then(|t| t.with(Part::Account, &format!("a{account:02}")));
    let call = Call::new(Arc::new(target.expect("a target")), Holder::number(n));
    matches!(gates.admit(None, &call).await.expect("an answer"), Admission::Admitted(_))
}

/// A breaker per account, and so many accounts that have called.
async fn accounts(gates: &PgGates, accounts: u64) {
    let breaker = Gate::new("health", Kind::Breaker(Breaker::default())).per(&[Part::Account]);
    gates.configure("d", GateSet::of(vec![breaker])).await.expect("acceptable gates");
    for account in 0..accounts {
        assert!(passes(gates, account, account).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_that_is_cut_off_half_way_reaches_every_account() {
    let db = Fixture::new().await;
    let (one, two) = (db.connect(PgGatesOptions::new()).await, db.connect(PgGatesOptions::new()).await);
    accounts(&one, 30).await;
    one.order_breaker(None, "d", ("health", None), TRIP, note()).await.unwrap();
    assert!(!passes(&two, 29, 129).await);
    // Ten accounts can be told, the others are kept.
    let kept = db.sql().await;
    let keep = "BEGIN; SELECT FROM tidegate.gate_partitions WHERE part >= 'a10' FOR UPDATE";
    kept.batch_execute(&keep.replace("tidegate.", &format!("\"{}\".", db.schema()))).await.unwrap();
    let reset = async { one.order_breaker(None, "d", ("health", None), BreakerOrder::Reset, note()).await };
    let said = async {
        while !two.orders("d").await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    tokio::select! {
        done = reset => panic!("it was not cut off: {done:?}"),
        () = said => {}
    }
    drop(one);
    kept.batch_execute("ROLLBACK").await.unwrap();
    for account in 0..29 {
        assert!(passes(&two, account, 200 + account).await, "account {account} stays shut");
    }
    // An order to one account finds no order that stands, and opens it.
    assert_eq!(
        two.order_breaker(None, "d", ("health", Some("a29")), BreakerOrder::Reset, note()).await.unwrap(),
        1
    );
    assert!(passes(&two, 29, 229).await);
    db.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_was_overtaken_by_a_newer_one_does_not_come_back() {
    let (db, way) = (Fixture::new().await, way());
    let two = db.connect(PgGatesOptions::new()).await;
    accounts(&two, 50).await;
    let to: tokio_postgres::Config = tidegate_testbed::postgres::url().parse().unwrap();
    let (user, name) = (to.get_user().unwrap(), to.get_dbname().unwrap());
    let url = format!("postgres://{user}@127.0.0.1:{}/{name}?sslmode=disable", way.port());
    let one = PgGates::connect(&url, PgGatesOptions::new().schema(db.schema()).unwrap()).await.unwrap();
    one.gates_of("d").await.unwrap();
    way.set(Way::Slow(Duration::from_millis(30)));
    let trip =
        tokio::spawn(
            async move { one.order_breaker(None, "d", ("health", None), TRIP, note()).await.map(drop) },
        );
    while two.orders("d").await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    two.order_breaker(None, "d", ("health", None), BreakerOrder::Reset, note()).await.unwrap();
    trip.await.unwrap().unwrap();
    for account in 0..50 {
        assert!(passes(&two, account, 200 + account).await, "account {account} stays shut");
    }
    db.end().await;
}
