//! Deleting what is past its retention.

use tidegate_core::ids::{Seq, TenantId};
use tidegate_core::registry::Retention;
use tidegate_store::Upkeep as _;
use tidegate_store::params::Erase;

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

/// Versions before these rows had an owner left it open.
#[tokio::test]
async fn what_an_earlier_version_kept_goes_with_the_tenant_it_may_be_of() {
    let f = Fixture::new().await;
    let user = f.user().await;
    let retention = Retention { count: 0, age_ms: 3_600_000 };
    f.store.put_queue(queue(), QueueSettings { retention, ..QueueSettings::default() }, NOW).await.unwrap();
    let of = |tenant: &str, after: Vec<JobId>| {
        let tenant = (!tenant.is_empty()).then(|| TenantId::new(tenant).unwrap());
        NewJob { tenant, after, ..job("1") }
    };
    let later = |tenant: &str| NewJob { run_at: Some(NOW.plus_ms(9_000_000)), ..of(tenant, vec![]) };
    let (mut done, mut readers) = (vec![], vec![]);
    for (whose, reader) in [("acme", ""), ("acme", "acme"), ("globex", "globex"), ("", "")] {
        let parent = enqueue(&f.store, of(whose, vec![])).await;
        let open = enqueue(&f.store, later(reader)).await;
        readers.push(enqueue(&f.store, of(reader, vec![parent, open])).await);
        done.push(parent);
    }
    for job in claim(&f.store, 10, NOW).await.jobs {
        let result = Payload::trusted("\"a secret\"");
        settle(&f.store, job.ticket, Outcome::Complete(Some(result)), NOW).await;
    }
    f.store.prune(100, NOW.plus_ms(1)).await.unwrap();
    user.run("UPDATE tidegate.kept SET tenant = NULL WHERE tenant <> ''").await;
    let seen = async |store: &PgStore| {
        let mut seen = vec![];
        for reader in [readers[0], readers[2], readers[3]] {
            let page = store.dependencies(reader, None, 0, 5).await.unwrap();
            seen.extend(page.jobs.into_iter().filter(|d| d.result.is_some()).map(|d| d.id));
        }
        seen
    };
    assert_eq!(seen(&f.store).await, [done[0], done[2], done[3]]);
    let erase =
        |tenant: &str| Erase { tenant: TenantId::new(tenant).unwrap(), after: Seq(0), scan: 1_000, now: NOW };
    f.store.erase(erase("nobody")).await.unwrap();
    assert_eq!(
        seen(&f.store).await,
        [done[2], done[3]],
        "it may have been anybody's: it is gone with the first"
    );
    f.store.erase(erase("acme")).await.unwrap();
    assert_eq!(seen(&f.store).await, [done[2], done[3]], "another tenant's job waits for it; it is nobody's");
    assert_eq!(user.number("SELECT count(*) FROM tidegate.kept").await, 2);
}
