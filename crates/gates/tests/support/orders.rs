//! What an order to all keys of a breaker promises, on every backend.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::codes;
use tidegate_core::gates::config::{Breaker, Slots};
use tidegate_core::gates::{
    Admission, BreakerOrder, Call, Gate, GateSet, Holder, Kind, Part, SECOND, Target,
};
use tidegate_gates::Note;
use tidegate_gates::history::Backend;

async fn passes<B: Backend>(gates: &B, account: &str, n: u64) -> bool {
    let target = Target::new("orders").and_then(|t| t.with(Part::Account, account)).expect("a target");
    let reply = gates.admit(None, &Call::new(Arc::new(target), Holder::number(n))).await;
    matches!(reply.expect("an answer"), Admission::Admitted(_))
}

/// Every account has a partition of its own: none is there before its first call.
pub(crate) async fn hold_for_keys_that_come<B: Backend>(one: &B, two: &B) {
    let breaker = Gate::new("health", Kind::Breaker(Breaker::default())).per(&[Part::Account]);
    for gates in [one, two] {
        gates.configure("orders", GateSet::of(vec![breaker.clone()])).await.expect("acceptable gates");
    }
    let note = || Note { who: "ada".into(), why: "their outage".into() };
    let order = async |key, order| one.order_breaker(None, "orders", ("health", key), order, note()).await;
    assert!(passes(one, "old", 1).await);
    let trip = BreakerOrder::Trip { lasts: 600 * SECOND };
    assert_eq!(order(None, trip).await.expect("an order"), 1);
    assert!(!passes(one, "old", 2).await && !passes(one, "new", 3).await);
    // Another process hears of it soon.
    let heard = async {
        let mut n = 100;
        while passes(two, &format!("newer-{n}"), n).await {
            n += 1;
            tokio::task::yield_now().await;
        }
        n
    };
    let last = tokio::time::timeout(Duration::from_secs(10), heard).await.expect("it is heard of");
    for n in 100..=last {
        assert!(
            !passes(two, &format!("newer-{n}"), 1_000_000 + n).await,
            "it came before the order was heard"
        );
    }
    let orders = two.orders("orders").await.expect("orders");
    assert_eq!((orders.len(), orders[0].gate.as_str(), &orders[0].note), (1, "health", &note()));
    let refused = order(Some("old"), BreakerOrder::Reset).await.expect_err("all are ordered to be open");
    assert_eq!(refused.code(), codes::INVALID_REQUEST);
    for lasts in [0, -SECOND, i64::MAX] {
        let refused = order(None, BreakerOrder::Trip { lasts }).await.expect_err("no time");
        assert_eq!(refused.code(), codes::INVALID_REQUEST);
    }
    order(None, BreakerOrder::Reset).await.expect("an order");
    assert!(passes(one, "old", 4).await && passes(one, "new", 5).await && passes(one, "last", 6).await);
    assert!(one.orders("orders").await.expect("orders").is_empty());
    // An order to one key is about that one.
    assert_eq!(order(Some("old"), trip).await.expect("an order"), 1);
    assert!(!passes(one, "old", 7).await && passes(one, "other", 8).await);
    assert_eq!(order(Some("old"), BreakerOrder::Reset).await.expect("an order"), 1);
    assert!(passes(one, "old", 9).await);
    // What is no breaker is not tripped, and what was one is open no more.
    order(None, trip).await.expect("an order");
    let slots = Gate::new("health", Kind::Slots(Slots::of(9))).per(&[Part::Account]);
    one.configure("orders", GateSet::of(vec![slots])).await.expect("acceptable gates");
    assert!(one.orders("orders").await.expect("orders").is_empty());
    assert_eq!(order(None, trip).await.expect_err("no breaker").code(), codes::GATE_NOT_FOUND);
    let asked: Vec<String> =
        one.changes("orders").await.expect("changes").into_iter().map(|change| change.what).collect();
    assert_eq!(asked.last().map(String::as_str), Some("trip health for 600 s"), "a refusal is not recorded");
    assert_eq!(asked.len(), 5);
}
