//! Claims that stand with the writer.

use std::pin::{Pin, pin};
use std::time::Duration;

use tidegate_core::codes;
use tidegate_core::job::State;
use tidegate_store::params::Stood;
use tidegate_store::{Error, Result};
use tokio::sync::oneshot;

use super::*;

const LONG: Duration = Duration::from_secs(20);

/// Waits until this claim is with the writer: what is sent after it is answered.
async fn stands(store: &PgStore, standing: &mut Pin<&mut impl Future<Output = Result<Stood>>>) {
    tokio::select! {
        biased;
        stood = standing => panic!("it does not stand: {stood:?}"),
        settings = store.settings() => drop(settings.unwrap()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_goes_to_one_who_stands_in_the_commit_that_stores_it() {
    let f = Fixture::new().await;
    let user = f.user().await;
    let (_stay, leave) = oneshot::channel();
    let mut standing = pin!(f.store.stand(claim_of(5, NOW), leave));
    stands(&f.store, &mut standing).await;
    let before = user.number("SELECT max(version) FROM tidegate.log").await;
    let id = enqueue(&f.store, job("1")).await;
    let claimed = tokio::time::timeout(LONG, standing).await.unwrap().unwrap().claimed;
    assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [id]);
    assert_eq!(user.number("SELECT max(version) FROM tidegate.log").await, before + 1);
    let settled = settle(&f.store, claimed.jobs[0].ticket, Outcome::Complete(None), NOW).await;
    assert_eq!(settled, Settled::Applied(State::Completed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_finds_nothing_stands_and_leaves_without_the_turn() {
    let f = Fixture::new().await;
    let user = f.user().await;
    // Somebody has the turn and keeps it.
    user.run("BEGIN; SELECT * FROM tidegate.head FOR UPDATE").await;
    let (leave, left) = oneshot::channel();
    let mut standing = pin!(f.store.stand(claim_of(5, NOW), left));
    stands(&f.store, &mut standing).await;
    leave.send(()).unwrap();
    let stood = tokio::time::timeout(LONG, standing).await.expect("it is answered").unwrap();
    assert!(stood.claimed.jobs.is_empty());
    user.run("ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_process_or_a_user_stores_goes_to_one_who_stands() {
    let f = Fixture::new().await;
    let (another, user) = (f.another(PgOptions::new()).await, f.user().await);
    for by_sql in [false, true] {
        let (_stay, leave) = oneshot::channel();
        let mut standing = pin!(f.store.stand(claim_of(5, NOW), leave));
        stands(&f.store, &mut standing).await;
        let id = if by_sql {
            user.enqueue("kind => 'task', payload => '1'").await
        } else {
            enqueue(&another, job("1")).await
        };
        let claimed = tokio::time::timeout(LONG, standing).await.unwrap().unwrap().claimed;
        assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [id]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_stand_get_what_a_settlement_makes_room_for() {
    let f = Fixture::new().await;
    let one = QueueSettings { concurrency: Some(1), ..QueueSettings::default() };
    f.store.put_queue(queue(), one, NOW).await.unwrap();
    let ids = [enqueue(&f.store, job("1")).await, enqueue(&f.store, job("2")).await];
    let first = claim(&f.store, 5, NOW).await;
    assert_eq!(first.jobs.len(), 1);
    let (_stay, leave) = oneshot::channel();
    let mut standing = pin!(f.store.stand(claim_of(5, NOW), leave));
    stands(&f.store, &mut standing).await;
    settle(&f.store, first.jobs[0].ticket, Outcome::Complete(None), NOW).await;
    let claimed = tokio::time::timeout(LONG, standing).await.unwrap().unwrap().claimed;
    assert_eq!(claimed.jobs[0].id, ids[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_stand_are_told_when_the_store_closes() {
    let f = Fixture::new().await;
    let (_stay, leave) = oneshot::channel();
    let mut standing = pin!(f.store.stand(claim_of(5, NOW), leave));
    stands(&f.store, &mut standing).await;
    f.store.close().await.unwrap();
    let told: Error = tokio::time::timeout(LONG, standing).await.expect("it is answered").unwrap_err();
    assert_eq!(told.code, codes::STORE_CLOSED);
}

/// While its server is away nobody is told anything; whoever stands gets what comes after it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_stand_outlast_a_restart_of_the_server() {
    let mut server = tidegate_testbed::postgres::Server::start(&[]).unwrap();
    let f = Fixture::at(&server.url(), PgOptions::new()).await;
    let (_stay, leave) = oneshot::channel();
    let mut standing = pin!(f.store.stand(claim_of(5, NOW), leave));
    stands(&f.store, &mut standing).await;
    server.stop(true).unwrap();
    server.resume().unwrap();
    let another = loop {
        let options = PgOptions::new().schema(&f.schema).unwrap();
        if let Ok(store) = PgStore::connect(&f.url, options, NOW).await {
            break store;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let id = enqueue(&another, job("1")).await;
    let claimed = tokio::time::timeout(LONG, standing).await.unwrap().unwrap().claimed;
    assert_eq!(claimed.jobs[0].id, id);
}

/// A claim that cannot be tried, because the server is away, is told just that, and its worker comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_comes_while_the_server_is_away_is_told_so() {
    let mut server = tidegate_testbed::postgres::Server::start(&[]).unwrap();
    let f = Fixture::at(&server.url(), PgOptions::new()).await;
    server.stop(true).unwrap();
    // Of a queue that is not known a claim has something to write.
    let other = Claim { queues: vec![("other".parse().unwrap(), 5)], ..claim_of(5, NOW) };
    let (_stay, leave) = oneshot::channel();
    let told =
        tokio::time::timeout(LONG, f.store.stand(other, leave)).await.expect("it is answered").unwrap_err();
    assert_eq!(told.code, codes::STORE_UNREACHABLE, "{told}");
    server.resume().unwrap();
}

/// A claim need not be on disk, so its worker does not wait for those of its commit who must. Here the server's log is nowhere near where
/// it has to be: on a standby that does not exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_does_not_wait_for_the_disk_as_the_caller_does_who_stored_its_job() {
    let server = tidegate_testbed::postgres::Server::start(&[]).unwrap();
    let f = Fixture::at(&server.url(), PgOptions::new()).await;
    let (_stay, leave) = oneshot::channel();
    let mut standing = pin!(f.store.stand(claim_of(5, NOW), leave));
    stands(&f.store, &mut standing).await;
    let set_standby = async |name: &str| {
        server.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'")).unwrap();
        server.sql("SELECT pg_reload_conf()").unwrap();
        let user = f.user().await;
        let is_set = format!("SELECT (current_setting('synchronous_standby_names') = '{name}')::int::bigint");
        while user.number(&is_set).await == 0 {
            tokio::task::yield_now().await;
        }
    };
    set_standby("nobody").await;
    let mut enqueued = pin!(enqueue(&f.store, job("1")));
    let stood = tokio::select! {
        _ = &mut enqueued => panic!("what is not on disk was acknowledged"),
        stood = tokio::time::timeout(LONG, standing) => stood.expect("the worker does not wait").unwrap(),
    };
    set_standby("").await;
    assert_eq!(stood.claimed.jobs[0].id, enqueued.await);
}

/// Its process is left behind by a migration in the very moment in which a job came: it is told, and the turn is not asked for again and
/// again for its sake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_for_whom_nothing_can_be_done_are_told_why() {
    let f = Fixture::new().await;
    let another = f.another(PgOptions::new()).await;
    let user = f.user().await;
    let (_stay, leave) = oneshot::channel();
    let mut standing = pin!(f.store.stand(claim_of(5, NOW), leave));
    stands(&f.store, &mut standing).await;
    // In the transaction of the job, since two that wait for the turn get it in any order.
    user.run(
        "CREATE FUNCTION tidegate.migrate() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN UPDATE tidegate.head SET readable_from = 99; RETURN NULL; END $$;
         CREATE TRIGGER migrate AFTER INSERT ON tidegate.log EXECUTE FUNCTION tidegate.migrate()",
    )
    .await;
    enqueue(&another, job("1")).await;
    let told = tokio::time::timeout(LONG, standing).await.expect("it is told").unwrap_err();
    assert_eq!(told.code, codes::STORE_NEWER);
}

/// An outage is over when the server has answered, not when somebody is about to ask it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_lasts_until_the_server_answers() {
    let mut server = tidegate_testbed::postgres::Server::start(&[]).unwrap();
    let f = Fixture::at(&server.url(), PgOptions::new()).await;
    server.stop(true).unwrap();
    while f.store.enqueue(vec![job("1")], NOW).await.is_ok() {}
    let mut work = f.store.signals().on_work();
    work.borrow_and_update();
    for _ in 0..20 {
        assert!(f.store.enqueue(vec![job("1")], NOW).await.is_err());
    }
    assert!(!work.has_changed().unwrap(), "nobody is called to a store that does not work");
    server.resume().unwrap();
    tokio::time::timeout(LONG, work.changed()).await.expect("it works again").unwrap();
}

/// So many wait in line for the turn.
async fn waiting(f: &Fixture, watcher: &User, n: i64) {
    let asked = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ '\\m{}\\M'",
        f.schema
    );
    while watcher.number(&asked).await < n {
        tokio::task::yield_now().await;
    }
}

/// What is heard late of a commit that is known here says nothing about the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_does_not_end_with_what_is_heard_late() {
    let mut server = tidegate_testbed::postgres::Server::start(&[]).unwrap();
    let f = Fixture::at(&server.url(), PgOptions::new()).await;
    server.stop(true).unwrap();
    let mut work = f.store.signals().on_work();
    work.borrow_and_update();
    let store = f.store.clone();
    let late = tokio::spawn(async move {
        loop {
            store.hear("c1");
            tokio::task::yield_now().await;
        }
    });
    for _ in 0..20 {
        assert!(f.store.enqueue(vec![job("1")], NOW).await.is_err());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!work.has_changed().unwrap(), "nobody is called to a store that does not work");
    server.resume().unwrap();
    tokio::time::timeout(LONG, work.changed()).await.expect("it works again").unwrap();
    late.abort();
}

/// A job is heard of in the transaction of somebody who has no time: the lease is as long as its worker takes it to be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_begins_no_sooner_than_its_claim_where_the_others_have_no_time() {
    let f = Fixture::new().await;
    let another = f.another(PgOptions::new()).await;
    let (user, watcher) = (f.user().await, f.user().await);
    let later = NOW.plus_ms(10_000);
    let (_stay, leave) = oneshot::channel();
    let mut standing = pin!(f.store.stand(claim_of(5, later), leave));
    stands(&f.store, &mut standing).await;
    user.run("BEGIN; SELECT * FROM tidegate.head FOR UPDATE").await;
    let first = async { enqueue(&another, job("1")).await };
    let second = async {
        waiting(&f, &watcher, 1).await;
        f.store.put_kind(KindName::new("another").unwrap(), KindSettings::new(queue())).await.unwrap();
    };
    let last = async {
        waiting(&f, &watcher, 2).await;
        user.run("COMMIT").await;
    };
    tokio::join!(first, second, last);
    let claimed = tokio::time::timeout(LONG, standing).await.unwrap().unwrap().claimed;
    assert_eq!(claimed.jobs.len(), 1);
    let until = claimed.lease.unwrap().until;
    assert!(until >= later.plus_ms(LEASE_MS), "{until:?}");
}

/// However many come at once: what is handed out to them holds the turn no longer than anything else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_come_together_get_no_more_than_a_commit_holds() {
    const EACH: u32 = 2_000;
    let f = Fixture::new().await;
    let (user, watcher) = (f.user().await, f.user().await);
    for _ in 0..3 {
        f.store.enqueue((0..8_000).map(|_| job("1")).collect(), NOW).await.unwrap();
    }
    user.run("BEGIN; SELECT * FROM tidegate.head FOR UPDATE").await;
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let store = f.store.clone();
        workers.spawn(async move {
            let (_stay, leave) = oneshot::channel();
            store.stand(claim_of(EACH, NOW), leave).await.unwrap().claimed
        });
    }
    waiting(&f, &watcher, 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = watcher.number("SELECT max(version) FROM tidegate.log").await;
    user.run("ROLLBACK").await;
    let all = tokio::time::timeout(LONG, workers.join_all()).await.expect("everybody gets something");
    assert_eq!(all.iter().map(|claimed| claimed.jobs.len()).sum::<usize>(), 24_000);
    assert!(watcher.number("SELECT max(version) FROM tidegate.log").await >= before + 2);
}

/// One who asks without waiting needs the turn as little as one who stands, and misses nothing that was stored before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_does_not_wait_asks_in_vain_without_the_turn() {
    let f = Fixture::new().await;
    let another = f.another(PgOptions::new()).await;
    let user = f.user().await;
    user.run("BEGIN; SELECT * FROM tidegate.head FOR UPDATE").await;
    let claimed = tokio::time::timeout(Duration::from_secs(5), f.store.claim(claim_of(5, NOW))).await;
    assert!(claimed.expect("it is answered").unwrap().jobs.is_empty());
    user.run("ROLLBACK").await;
    for _ in 0..50 {
        let id = enqueue(&another, job("1")).await;
        let claimed = claim(&f.store, 5, NOW).await;
        assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [id]);
        settle(&f.store, claimed.jobs[0].ticket, Outcome::Complete(None), NOW).await;
    }
}
