//! Servers that go away and come back, and processes that stand still.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use futures_sink::Sink as _;
use tidegate_core::codes;
use tidegate_core::codes::Fault;
use tidegate_core::job::State;
use tidegate_store::Upkeep as _;
use tidegate_testbed::postgres::Server;

use super::*;

/// Waits until the store answers again; says how long that took and what it said meanwhile.
async fn back_after(store: &PgStore) -> Duration {
    let began = Instant::now();
    let mut work = store.signals().on_work();
    loop {
        work.mark_unchanged();
        match store.totals().await {
            Ok(_) => return began.elapsed(),
            Err(error) => {
                assert_eq!(error.code.fault, Fault::Unreachable, "{error:?}");
                assert!(began.elapsed() < Duration::from_secs(20), "{error:?}");
                // The store says by itself when it works again.
                let _ = tokio::time::timeout(Duration::from_millis(200), work.changed()).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_server_loses_nothing_and_service_resumes_by_itself() {
    let mut server = Server::start(&[]).unwrap();
    let f = Fixture::at(&server.url(), PgOptions::new()).await;
    let first = enqueue(&f.store, job("1")).await;
    let held = claim(&f.store, 1, NOW).await;
    for fast in [true, false] {
        server.stop(fast).unwrap();
        let error = f.store.enqueue(vec![job("2")], NOW).await.unwrap_err();
        assert_eq!(error.code, codes::STORE_UNREACHABLE);
        server.resume().unwrap();
        let took = back_after(&f.store).await;
        assert!(took < Duration::from_secs(3), "service resumed after {took:?}");
        enqueue(&f.store, job("3")).await;
    }
    assert_eq!(f.store.totals().await.unwrap().ready, 2);
    assert_eq!(
        f.store.get(first).await.unwrap().unwrap().state,
        State::Running,
        "a heartbeat ago it was running"
    );
    assert_eq!(
        settle(&f.store, held.jobs[0].ticket, Outcome::Complete(None), NOW).await,
        Settled::Applied(State::Completed)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_claims_that_a_crash_forgot_are_not_given_again() {
    // The server writes its log when it must, and not before the crash.
    let settings = ["wal_writer_delay=10s", "wal_writer_flush_after=1GB", "checkpoint_timeout=1h"];
    let mut server = Server::start(&settings).unwrap();
    let f = Fixture::at(&server.url(), PgOptions::new()).await;
    enqueue(&f.store, job("1")).await;
    let forgotten = claim(&f.store, 1, NOW).await.jobs[0].ticket;
    server.stop(false).unwrap();
    server.resume().unwrap();
    back_after(&f.store).await;
    let again = claim(&f.store, 1, NOW).await;
    assert_eq!(again.jobs.len(), 1, "the server forgot the claim, so the job is ready");
    assert!(again.jobs[0].ticket.lease > forgotten.lease, "{:?} after {forgotten:?}", again.jobs[0].ticket);
    assert_eq!(settle(&f.store, forgotten, Outcome::Complete(None), NOW).await, Settled::Stale);
    let mine = settle(&f.store, again.jobs[0].ticket, Outcome::Complete(None), NOW).await;
    assert_eq!(mine, Settled::Applied(State::Completed));

    // With durable claims it would not have been forgotten.
    let durable = f.another(PgOptions::new().durable_claims(true)).await;
    enqueue(&durable, job("2")).await;
    let kept = claim(&durable, 1, NOW).await.jobs[0].ticket;
    server.stop(false).unwrap();
    server.resume().unwrap();
    back_after(&durable).await;
    let mine = settle(&durable, kept, Outcome::Complete(None), NOW).await;
    assert_eq!(mine, Settled::Applied(State::Completed));
}

#[tokio::test]
async fn a_process_that_stands_still_in_a_transaction_holds_up_the_others_for_two_seconds() {
    let f = Fixture::new().await;
    // Its session as a store's, and the same lock; then it does nothing more.
    let stopped = f.user().await;
    stopped.run(&PgOptions::new().settings(false)).await;
    stopped.run("BEGIN; SELECT FROM tidegate.head WHERE one FOR UPDATE").await;
    let began = Instant::now();
    enqueue(&f.store, job("1")).await;
    let took = began.elapsed();
    assert!(took > Duration::from_millis(500) && took < Duration::from_secs(6), "{took:?}");
}

/// Stores that wait a second for the lock, and a session that has it and copies.
async fn with_one_that_copies() -> (Fixture, User) {
    let f = Fixture::with(PgOptions::new().lock_timeout(Duration::from_secs(1))).await;
    let copying = f.user().await;
    copying.run(&PgOptions::new().settings(false)).await;
    copying.run("CREATE TEMP TABLE copied (seq bigint)").await;
    copying.run("BEGIN; SELECT FROM tidegate.head WHERE one FOR UPDATE").await;
    (f, copying)
}

#[tokio::test]
async fn a_process_that_stands_still_while_it_copies_does_not_hold_up_the_others_for_ever() {
    let (f, stopped) = with_one_that_copies().await;
    // The server waits for rows that do not come: neither idle nor at the end of its time.
    let sink = stopped.client.copy_in::<_, bytes::Bytes>("COPY copied FROM STDIN").await.unwrap();
    let mut tries = 1;
    while let Err(error) = f.store.enqueue(vec![job("1")], NOW).await {
        assert!(tries < 20, "{error}");
        tries += 1;
    }
    drop(sink);
}

#[tokio::test]
async fn a_process_that_copies_slowly_is_let_be() {
    let (f, slow) = with_one_that_copies().await;
    let mut sink = Box::pin(slow.client.copy_in::<_, bytes::Bytes>("COPY copied FROM STDIN").await.unwrap());
    let rows = async {
        loop {
            poll_fn(|cx| sink.as_mut().poll_ready(cx)).await.unwrap();
            sink.as_mut().start_send(bytes::Bytes::from_static(b"1\n")).unwrap();
            poll_fn(|cx| sink.as_mut().poll_flush(cx)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let other = tokio::select! {
        () = rows => None,
        other = f.store.enqueue(vec![job("1")], NOW) => Some(other),
    };
    assert!(other.unwrap().is_err(), "it has the lock all the time");
    assert!(sink.as_mut().finish().await.unwrap() > 1);
}

#[tokio::test]
async fn a_session_that_is_ended_from_outside_costs_nobody_anything() {
    let f = Fixture::new().await;
    enqueue(&f.store, job("1")).await;
    let user = f.user().await;
    user.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE application_name = 'tidegate' AND usename = current_user AND query LIKE '%' || 'tidegate.' || '%'",
    )
    .await;
    // Nothing had been done in a transaction of its own yet: it is simply done again.
    enqueue(&f.store, job("2")).await;
    assert_eq!(claim(&f.store, 10, NOW).await.jobs.len(), 2);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_so() {
    let url = "postgres://nobody@127.0.0.1:1/nowhere?connect_timeout=2";
    let error = PgStore::connect(url, PgOptions::new(), NOW).await.unwrap_err();
    assert_eq!(error.code, codes::STORE_UNREACHABLE);
    let error = PgStore::connect("postgres://u:secret@[", PgOptions::new(), NOW).await.unwrap_err();
    assert_eq!(error.code, codes::INVALID_REQUEST);
    assert!(!error.to_string().contains("secret"));
}
