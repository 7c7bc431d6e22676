//! Callers share commits.

use tidegate_core::codes;
use tidegate_store::Upkeep as _;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_callers_share_commits() {
    let f = Fixture::new().await;
    let user = f.user().await;
    let before = user.number("SELECT max(version) FROM tidegate.log").await;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let store = f.store.clone();
        callers.spawn(async move { enqueue(&store, job("1")).await });
    }
    while callers.join_next().await.is_some() {}
    let commits = user.number("SELECT max(version) FROM tidegate.log").await - before;
    assert!(commits < 150, "{commits} commits for 200 callers");
    assert_eq!(f.store.totals().await.unwrap().ready, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_caller_does_not_hurt_the_others_of_its_group() {
    let f = Fixture::new().await;
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..50 {
        let store = f.store.clone();
        callers.spawn(async move {
            let mut new = job("1");
            if n % 2 == 0 {
                new.kind = KindName::new("unknown").unwrap();
            }
            store.enqueue(vec![new], NOW).await.map_err(|e| e.code)
        });
    }
    let mut refused = 0;
    while let Some(reply) = callers.join_next().await {
        refused += usize::from(reply.unwrap() == Err(codes::UNKNOWN_KIND));
    }
    assert_eq!((refused, f.store.totals().await.unwrap().ready), (25, 25));
}

#[tokio::test]
async fn an_id_that_was_said_to_be_fresh_and_is_not_undoes_its_group_and_nothing_else() {
    let f = Fixture::new().await;
    let first = job("1");
    enqueue(&f.store, first.clone()).await;
    let error =
        f.store.enqueue(vec![job("2"), NewJob { payload: Payload::trusted("3"), ..first }], NOW).await;
    assert_eq!(error.unwrap_err().code, codes::INTERNAL);
    assert_eq!(f.store.totals().await.unwrap().ready, 1);
    enqueue(&f.store, job("4")).await;
    assert_eq!(claim(&f.store, 10, NOW).await.jobs.len(), 2);
}

#[tokio::test]
async fn a_closed_store_refuses() {
    let f = Fixture::new().await;
    f.store.close().await.unwrap();
    f.store.close().await.unwrap();
    assert_eq!(f.store.enqueue(vec![job("1")], NOW).await.unwrap_err().code, codes::STORE_CLOSED);
    assert_eq!(f.store.health(NOW).await.unwrap_err().code, codes::STORE_CLOSED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_on_disk_although_commits_do_not_wait_for_it() {
    // The server writes its log when it is asked to, and not before the crash.
    let settings = ["wal_writer_delay=10s", "wal_writer_flush_after=1GB", "checkpoint_timeout=1h"];
    let mut server = tidegate_testbed::postgres::Server::start(&settings).unwrap();
    let f = Fixture::at(&server.url(), PgOptions::new()).await;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let store = f.store.clone();
        callers.spawn(async move {
            let mut answered = vec![];
            while let Ok(reply) = store.enqueue(vec![job("1")], NOW).await {
                answered.push(reply[0].id);
                if answered.len() == 200 {
                    break;
                }
            }
            answered
        });
    }
    // In the middle of it, as far as that can be said.
    let user = f.user().await;
    while user.number("SELECT count(*) FROM tidegate.jobs").await < 500 {
        tokio::task::yield_now().await;
    }
    server.stop(false).unwrap();
    let mut answered = vec![];
    while let Some(ids) = callers.join_next().await {
        answered.extend(ids.unwrap());
    }
    server.resume().unwrap();
    let again = f.another(PgOptions::new()).await;
    assert!(answered.len() >= 200, "{} were answered before the crash", answered.len());
    for id in answered {
        assert!(again.get(id).await.unwrap().is_some(), "an answered job is lost");
    }
}
