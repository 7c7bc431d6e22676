//! Who waits for the disk: those who rely on it, and nobody else.
#![expect(clippy::await_holding_lock, reason = "the lock is the disk, and it is held up on purpose")]

use std::pin::pin;
use std::time::Duration;

use super::*;
use crate::syncer::Disk;
use tidegate_core::codes;
use tidegate_store::{Error, Upkeep};
use tokio::sync::oneshot;

/// A store whose disk the test holds.
async fn on_a_held_disk() -> (TempDir, SqliteStore, Disk) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = OpenOptions::new();
    options.disk = Disk::default();
    let disk = options.disk.clone();
    let store = options.open(dir.path().join("data"), NOW).unwrap();
    register(&store).await;
    (dir, store, disk)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enqueue_is_answered_when_it_is_on_disk_and_its_job_may_start_before() {
    let (_dir, store, disk) = on_a_held_disk().await;
    let mut work = store.signals().on_work();
    work.mark_unchanged();
    let held = disk.lock().unwrap();
    let (mine, theirs) = (store.clone(), store.clone());
    let enqueued = tokio::spawn(async move { mine.enqueue(vec![job("1")], NOW).await });
    work.changed().await.unwrap();
    let claimed = claim(&store, 1, NOW).await;
    assert_eq!(claimed.jobs.len(), 1, "a claim does not wait for the disk");
    let ticket = claimed.jobs[0].ticket;
    let settled = tokio::spawn(async move { settle(&theirs, ticket, Outcome::Complete(None), NOW).await });
    // Another claim comes after the settle, and is answered: so the settle has been applied.
    while claim(&store, 1, NOW).await.next_wakeup.is_some() {
        tokio::task::yield_now().await;
    }
    assert!(!enqueued.is_finished() && !settled.is_finished(), "nothing is acknowledged that is not on disk");
    drop(held);
    assert_eq!(enqueued.await.unwrap().unwrap().len(), 1);
    assert_eq!(settled.await.unwrap(), Settled::Applied(tidegate_core::job::State::Completed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_shown_what_is_not_on_disk() {
    let (_dir, store, disk) = on_a_held_disk().await;
    let mut work = store.signals().on_work();
    work.mark_unchanged();
    let held = disk.lock().unwrap();
    let (mine, theirs) = (store.clone(), store.clone());
    let enqueued = tokio::spawn(async move { mine.enqueue(vec![job("1")], NOW).await });
    work.changed().await.unwrap();
    let read = tokio::spawn(async move { theirs.totals().await });
    claim(&store, 1, NOW).await;
    claim(&store, 1, NOW).await;
    assert!(!read.is_finished());
    drop(held);
    enqueued.await.unwrap().unwrap();
    read.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_is_reported_and_the_store_goes_on() {
    let (_dir, store, disk) = on_a_held_disk().await;
    *disk.lock().unwrap() = Some(Error::new(codes::STORE_FAILED, "the disk is gone, on purpose"));
    let refused = store.enqueue(vec![job("1")], NOW).await.unwrap_err();
    assert_eq!(refused.code, codes::STORE_FAILED);
    enqueue(&store, job("2")).await;
    // The first one may or may not have reached the disk; here it did, and like a lost reply it is there.
    assert_eq!(store.totals().await.unwrap().ready, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_failed_sync_fails_every_commit_until_all_is_in_the_file() {
    let (dir, store, disk) = on_a_held_disk().await;
    let mut work = store.signals().on_work();
    let held = disk.lock().unwrap();
    let mut calls = vec![];
    for _ in 0..3 {
        work.mark_unchanged();
        let store = store.clone();
        calls.push(tokio::spawn(async move { store.enqueue(vec![job("1")], NOW).await }));
        work.changed().await.unwrap();
    }
    let mut held = held;
    *held = Some(Error::new(codes::STORE_FAILED, "the disk is gone, on purpose"));
    drop(held);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap_err().code, codes::STORE_FAILED, "the log has a hole");
    }
    enqueue(&store, job("2")).await;
    let file = dir.path().join("data/tidegate.db");
    let conn = rusqlite::Connection::open_with_flags(
        format!("file:{}?immutable=1", file.display()),
        rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_URI,
    )
    .unwrap();
    // Read without its log, the file has what was in doubt.
    let in_file: i64 = conn.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0)).unwrap();
    assert_eq!(in_file, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_withdrawn_while_the_store_is_out_of_order_is_answered() {
    let (dir, store, disk) = on_a_held_disk().await;
    let idle = || QueueName::new("idle").unwrap();
    let put_idle = async || store.put_queue(idle(), QueueSettings::default(), NOW).await.unwrap();
    put_idle().await;
    let (leave, left) = oneshot::channel();
    let claim = Claim { queues: vec![(idle(), 1)], ..claim_of(1, NOW) };
    let mut standing = pin!(store.stand(claim, left));
    // What is in line behind it is answered, so it stands.
    let stands = tokio::select! {
        biased;
        _ = &mut standing => false,
        () = put_idle() => true,
    };
    assert!(stands);
    // The next commit fails, and the file cannot be opened again.
    let file = dir.path().join("data/tidegate.db");
    std::fs::rename(&file, dir.path().join("elsewhere")).unwrap();
    std::fs::create_dir(&file).unwrap();
    *disk.lock().unwrap() = Some(Error::new(codes::STORE_FAILED, "the disk is gone, on purpose"));
    store.enqueue(vec![job("1")], NOW).await.unwrap_err();
    leave.send(()).unwrap();
    let answered = tokio::time::timeout(Duration::from_secs(20), standing).await.expect("it is answered");
    assert!(!answered.unwrap_err().is_refusal());
}
