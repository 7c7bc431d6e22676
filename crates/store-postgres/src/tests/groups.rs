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

/// Many rows go another way than few.
#[tokio::test]
async fn many_rows_at_once_are_the_same_rows() {
    use tidegate_core::failure::{Category, Failure};
    use tidegate_core::ids::TenantId;
    use tidegate_core::job::State;

    let f = Fixture::new().await;
    let dressed = |n: usize| {
        let mut job = job(&format!("{{\"n\":{n},\"t\":\"ü\\u0000\"}}"));
        job.tenant = n.is_multiple_of(2).then(|| TenantId::new("acme").unwrap());
        job.max_attempts = n.is_multiple_of(3).then_some(7);
        job.trace = n.is_multiple_of(5).then(|| "trace".into());
        job
    };
    let jobs: Vec<NewJob> = (0..150).map(dressed).collect();
    f.store.enqueue(jobs.clone(), NOW).await.unwrap();
    let claimed = claim(&f.store, 150, NOW).await.jobs;
    let outcome = |n: usize| match n % 3 {
        0 => Outcome::Complete(None),
        1 => Outcome::Complete(Some(Payload::trusted("\"fine\""))),
        _ => Outcome::Fail(Failure::new(Category::InvalidInput, "E", "it's wrong")),
    };
    let settle = |(n, job): (usize, &tidegate_store::params::ClaimedJob)| Settlement {
        ticket: job.ticket,
        outcome: outcome(n),
    };
    let settlements = claimed.iter().enumerate().map(settle).collect();
    f.store.settle(Settle { settlements, now: NOW, seed: 1 }).await.unwrap();
    let another = f.another(PgOptions::new()).await;
    for (n, claimed) in claimed.iter().enumerate() {
        let new = jobs.iter().find(|job| job.id == claimed.id).unwrap();
        let stored = another.get(claimed.id).await.unwrap().unwrap();
        assert_eq!(
            (&stored.payload, &stored.tenant, stored.max_attempts),
            (&new.payload, &new.tenant, new.max_attempts)
        );
        assert_eq!(stored.trace, new.trace);
        assert_eq!(stored.state, if n % 3 == 2 { State::Dead } else { State::Completed });
        assert_eq!(stored.result.is_some(), n % 3 == 1);
        assert_eq!(stored.dead.map(|letter| letter.message), (n % 3 == 2).then(|| "it's wrong".to_owned()));
    }
}
