//! Deleting what is past its retention.

use tidegate_core::registry::Retention;
use tidegate_store::Upkeep as _;

use super::*;

/// Enqueues and completes one job at this time.
async fn complete_one(store: &PgStore, now: Timestamp) {
    store.enqueue(vec![job("1")], now).await.unwrap();
    let claimed = claim(store, 1, now).await;
    settle(store, claimed.jobs[0].ticket, Outcome::Complete(None), now).await;
}

#[tokio::test]
async fn a_mark_that_came_late_is_found_although_the_walk_begins_behind_it() {
    let f = Fixture::new().await;
    let user = f.user().await;
    let kept = Retention { count: 1, age_ms: 3_600_000 };
    let settings = QueueSettings { retention: kept, ..QueueSettings::default() };
    f.store.put_queue(queue(), settings, NOW).await.unwrap();
    let at = |s: i64| NOW.plus_ms(s * 1_000);
    complete_one(&f.store, at(1)).await;
    complete_one(&f.store, at(2)).await;
    assert_eq!(f.store.prune(10, at(2)).await.unwrap(), 1, "the oldest is behind the walk now");
    // As if its caller had begun to wait for the lock nine seconds ago.
    complete_one(&f.store, at(3)).await;
    let late = format!("UPDATE tidegate.done SET at = {} WHERE at = {}", at(3).plus_ms(-9_000).0, at(3).0);
    user.run(&late).await;
    assert_eq!(f.store.prune(10, at(4)).await.unwrap(), 1);
    complete_one(&f.store, at(20)).await;
    assert_eq!(f.store.prune(10, at(21)).await.unwrap(), 1);
    let left = format!("SELECT count(*) FROM tidegate.done WHERE at < {}", at(20).0);
    assert_eq!(user.number(&left).await, 0, "the late one was found in the end");
}
