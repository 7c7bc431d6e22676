//! Processes that share a database know the same, and wake each other.

use std::time::Duration;

use tidegate_core::ids::{ConnectorName, GroupKey};
use tidegate_core::job::{ParkScope, State};
use tidegate_store::feed::{Delivery, Happened};
use tidegate_store::params::{CancelJob, CancelReply};
use tidegate_store::{Registry as _, Upkeep as _};

use super::*;

#[tokio::test]
async fn what_one_process_stores_wakes_the_workers_of_another() {
    let f = Fixture::new().await;
    let other = f.another(PgOptions::new()).await;
    let mut work = other.signals().on_work();
    work.mark_unchanged();
    enqueue(&f.store, job("1")).await;
    // Heard, not polled: the other process looks by itself every two seconds only.
    tokio::time::timeout(Duration::from_secs(20), work.changed()).await.unwrap().unwrap();
    assert_eq!(claim(&other, 10, NOW).await.jobs.len(), 1);
    assert_eq!(claim(&f.store, 10, NOW).await.jobs.len(), 0);
}

#[tokio::test]
async fn without_notifications_others_are_found_by_looking() {
    let f = Fixture::new().await;
    let quiet = PgOptions::new().listen(false).poll_every(Duration::from_millis(50));
    let other = f.another(quiet).await;
    let mut work = other.signals().on_work();
    work.mark_unchanged();
    enqueue(&f.store, job("1")).await;
    tokio::time::timeout(Duration::from_secs(20), work.changed()).await.unwrap().unwrap();
    assert!(!other.health(NOW).await.unwrap().listening);
    // Users' jobs, too.
    let user = f.user().await;
    let id = user.enqueue("'task', '1', wake => false").await;
    until(&other, || async { other.get(id).await.unwrap().is_some() }).await;
}

#[tokio::test]
async fn behind_a_pooler_everything_works_without_session_settings() {
    let f = Fixture::with(PgOptions::new().pooled(true).poll_every(Duration::from_millis(50))).await;
    let id = enqueue(&f.store, job("1")).await;
    let claimed = claim(&f.store, 1, NOW).await;
    settle(&f.store, claimed.jobs[0].ticket, Outcome::Complete(None), NOW).await;
    assert_eq!(f.store.get(id).await.unwrap().unwrap().state, State::Completed);
}

#[tokio::test]
async fn a_cancel_reaches_the_process_that_runs_the_job() {
    let f = Fixture::new().await;
    let other = f.another(PgOptions::new()).await;
    let id = enqueue(&f.store, job("1")).await;
    assert_eq!(claim(&other, 1, NOW).await.jobs.len(), 1);
    let mut cancels = other.signals().on_cancel();
    let asked =
        f.store.cancel(CancelJob { id, note: "stop".into(), cascade: false, now: NOW }).await.unwrap();
    assert_eq!(asked, CancelReply::Requested);
    let heard = tokio::time::timeout(Duration::from_secs(20), cancels.recv()).await.unwrap().unwrap();
    assert_eq!(heard, id);
}

#[tokio::test]
async fn events_have_the_same_numbers_in_every_process() {
    let f = Fixture::new().await;
    let other = f.another(PgOptions::new()).await;
    let (mut here, mut there) = (f.store.feed().subscribe(None), other.feed().subscribe(None));
    enqueue(&f.store, job("1")).await;
    let claimed = claim(&other, 1, NOW).await;
    settle(&f.store, claimed.jobs[0].ticket, Outcome::Complete(None), NOW).await;
    let mut seen = vec![vec![], vec![]];
    for (feed, seen) in [&mut here, &mut there].into_iter().zip(&mut seen) {
        while seen.len() < 3 {
            let next = tokio::time::timeout(Duration::from_secs(20), feed.next()).await.unwrap();
            let Delivery::Events(events) = next else { panic!("a gap") };
            seen.extend(events.into_iter().map(|(id, event)| (id, event.what.clone())));
        }
    }
    assert_eq!(seen[0], seen[1]);
    assert!(matches!(seen[0][2].1, Happened::Completed));
    assert!(
        f.store.feed().subscribe(Some(seen[1][0].0)).ready().is_some(),
        "a number of one is good for the other"
    );
}

#[tokio::test]
async fn what_comes_with_the_lock_is_followed_however_far_behind_a_process_is() {
    let f = Fixture::new().await;
    let deaf = PgOptions::new().listen(false).poll_every(Duration::from_mins(10));
    let other = f.another(deaf).await;
    let mut feed = other.feed().subscribe(None);
    let mut stored = 0;
    // The first time the others are not known to be at it; then the newest rows come with the lock, of which it may know
    // all, some, or none.
    for behind in [1, 0, 1, 2, 3, 4, 5, 2, 20, 1] {
        for _ in 0..behind {
            enqueue(&f.store, job("1")).await;
        }
        enqueue(&other, job("1")).await;
        stored += behind + 1;
        assert_eq!(other.digest().await.unwrap(), f.store.digest().await.unwrap(), "{behind} behind");
    }
    while stored > 0 {
        let next = tokio::time::timeout(Duration::from_secs(20), feed.next()).await.unwrap();
        let Delivery::Events(events) = next else { panic!("the memory was read again from rows") };
        stored -= events.len();
    }
}

#[tokio::test]
async fn a_process_that_fell_behind_the_log_reads_the_rows_again() {
    let f = Fixture::new().await;
    let slow = PgOptions::new().listen(false).poll_every(Duration::from_mins(10));
    let other = f.another(slow).await;
    for _ in 0..5 {
        enqueue(&f.store, job("1")).await;
    }
    let user = f.user().await;
    let last = user.number("SELECT max(version) FROM tidegate.log").await;
    user.run(&format!("DELETE FROM tidegate.log WHERE version < {last}")).await;
    assert_eq!(other.totals().await.unwrap().ready, 5);
    assert_eq!(other.digest().await.unwrap(), f.store.digest().await.unwrap());
    assert_eq!(claim(&other, 10, NOW).await.jobs.len(), 5);
}

#[tokio::test]
async fn another_history_behind_the_same_version_is_noticed() {
    let f = Fixture::new().await;
    enqueue(&f.store, job("1")).await;
    // A copy that is one commit behind takes the server's place, and goes on differently.
    let user = f.user().await;
    user.run(
        "DELETE FROM tidegate.jobs;
         UPDATE tidegate.log SET stamp = 7 WHERE version = (SELECT max(version) FROM tidegate.log)",
    )
    .await;
    assert_eq!(claim(&f.store, 1, NOW).await.jobs.len(), 0);
    assert_eq!(f.store.totals().await.unwrap().ready, 0);
}

#[tokio::test]
async fn the_log_is_pruned() {
    let f = Fixture::new().await;
    let user = f.user().await;
    user.run("UPDATE tidegate.log SET at = now() - interval '1 hour'").await;
    for _ in 0..300 {
        enqueue(&f.store, job("1")).await;
    }
    assert!(user.number("SELECT min(version) FROM tidegate.log").await > 1);
    assert!(user.number("SELECT max(version) FROM tidegate.log").await > 300);
    let another = f.another(PgOptions::new()).await;
    assert_eq!(another.totals().await.unwrap().ready, 300);
    let settings = another.settings().await.unwrap();
    assert_eq!(settings.len(), 1);
}

#[tokio::test]
async fn whoever_connects_goes_by_the_servers_clock() {
    let f = Fixture::new().await;
    enqueue(&f.store, job("1")).await;
    let user = f.user().await;
    let before = user.number("SELECT max(version) FROM tidegate.log").await;
    // A machine whose clock is two hours behind the server's.
    let behind = PgOptions::new()
        .schema(&f.schema)
        .unwrap()
        .instead("head/clock", "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 7200000");
    let store = PgStore::connect(&f.url, behind, NOW.plus_ms(-7_200_000)).await.unwrap();
    assert!((store.clock_ahead_ms() - 7_200_000).abs() < 10_000);
    let after = user.number("SELECT max(version) FROM tidegate.log").await;
    assert_eq!(after, before, "nobody's clock went back");
}

/// Workers of one server ask their gates by another: a claim wakes nobody, so it may not have heard that the job runs, and with caution.
#[tokio::test]
async fn what_gates_say_holds_where_the_claim_has_not_been_heard_of() {
    let f = Fixture::new().await;
    let other = f.another(PgOptions::new()).await;
    let (gate, group) = (ConnectorName::new("shopify").unwrap(), GroupKey::new("a").unwrap());
    let settings = KindSettings { connector: Some(gate.clone()), ..KindSettings::new(queue()) };
    f.store.put_kind(kind(), settings).await.unwrap();
    let of_group = |_| NewJob { group: Some(group.clone()), ..job("1") };
    let ids: Vec<_> = (0..10).map(of_group).map(|job| (job.id, job)).collect();
    let (ids, jobs): (Vec<_>, Vec<_>) = ids.into_iter().unzip();
    f.store.enqueue(jobs, NOW).await.unwrap();
    let first = claim(&f.store, 1, NOW).await;
    let (until, park) = (NOW.plus_ms(1_000), Some(ParkScope::GroupOnConnector(group, gate.clone())));
    let refused = Outcome::Snooze { until, reason: "full".into(), park, gate: Some(gate) };
    settle(&f.store, first.jobs[0].ticket, refused, NOW).await;
    assert_eq!(claim(&f.store, 10, until).await.jobs.len(), 1, "one asks");
    other.admitted(vec![(ids[0], room(3))], until).await.unwrap();
    assert_eq!(claim(&f.store, 10, until).await.jobs.len(), 3);
}

/// So many more would pass, whoever asks.
fn room(n: u32) -> tidegate_core::gates::Room {
    tidegate_core::gates::Room { shared: n, own: n }
}
