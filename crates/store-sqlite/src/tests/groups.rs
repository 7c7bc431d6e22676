//! The writer's groups: shared commits, refusals that disturb nobody, failures that undo all.

use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::rows::Checkpoint;
use crate::writer::Traits;
use tidegate_core::codes;
use tidegate_store::params::JobQuery;
use tidegate_store::{Error, Upkeep};
use tokio::task::JoinSet;

/// Holds the writer inside an operation until the sender is dropped.
async fn hold(store: &SqliteStore) -> (mpsc::Sender<()>, tokio::task::JoinHandle<()>) {
    let (release, held) = mpsc::channel();
    let (started, start) = tokio::sync::oneshot::channel();
    let store = store.clone();
    let task = tokio::spawn(async move {
        let wait = move |_: &mut _| {
            started.send(()).unwrap();
            // Ends with an error as soon as the other side is dropped.
            let _ = held.recv();
            Ok(())
        };
        store.run(Traits::read(), wait).await.unwrap();
    });
    start.await.unwrap();
    (release, task)
}

/// Waits until this many operations are queued.
async fn queued(store: &SqliteStore, n: usize) {
    while store.queued() < n {
        tokio::task::yield_now().await;
    }
}

async fn frames(store: &SqliteStore) -> i64 {
    store.run(Traits::read(), |m| m.rows_mut().checkpoint(Checkpoint::Look)).await.unwrap().frames
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_share_a_commit_and_refusals_disturb_nobody() {
    let fixture = Fixture::new().await;
    let before = frames(&fixture.store).await;
    let (release, held) = hold(&fixture.store).await;
    let mut callers = JoinSet::new();
    for n in 0..100 {
        let store = fixture.store.clone();
        callers.spawn(async move {
            let mut new = job("1");
            if n % 2 == 1 {
                new.kind = KindName::new("unheard-of").unwrap();
            }
            (n, store.enqueue(vec![new], NOW).await)
        });
    }
    queued(&fixture.store, 100).await;
    drop(release);
    held.await.unwrap();
    while let Some(done) = callers.join_next().await {
        match done.unwrap() {
            (n, Ok(_)) => assert_eq!(n % 2, 0),
            (n, Err(error)) => assert_eq!((n % 2, error.code), (1, codes::UNKNOWN_KIND)),
        }
    }
    assert_eq!(fixture.store.totals().await.unwrap().ready, 50);
    // Fifty commits would have written the page of the newest job fifty times.
    let written = frames(&fixture.store).await - before;
    assert!(written < 50, "{written} pages written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_defect_undoes_its_group_and_the_writer_lives_on() {
    let fixture = Fixture::new().await;
    let kept = enqueue(&fixture.store, job("1")).await;
    let (release, held) = hold(&fixture.store).await;
    let store = fixture.store.clone();
    let enqueued = tokio::spawn(async move { store.enqueue(vec![job("2")], NOW).await });
    queued(&fixture.store, 1).await;
    let store = fixture.store.clone();
    let broken = tokio::spawn(async move {
        store.run(Traits::write(1, NOW), |_| -> Result<(), Error> { panic!("a defect, on purpose") }).await
    });
    queued(&fixture.store, 2).await;
    drop(release);
    // It only read, but its answer was to come with the commit.
    assert!(held.await.is_err());
    assert_eq!(enqueued.await.unwrap().unwrap_err().code, codes::INTERNAL);
    assert_eq!(broken.await.unwrap().unwrap_err().code, codes::INTERNAL);
    assert_eq!(fixture.store.totals().await.unwrap().ready, 1);
    assert_eq!(claim(&fixture.store, 10, NOW).await.jobs[0].id, kept);
}

#[tokio::test]
async fn a_broken_rule_undoes_the_commit_and_nothing_else() {
    let fixture = Fixture::new().await;
    let first = job("1");
    enqueue(&fixture.store, first.clone()).await;
    // The caller vouches for a fresh id, wrongly.
    let error = fixture.store.enqueue(vec![job("2"), first], NOW).await.unwrap_err();
    assert_eq!(error.code, codes::INTERNAL);
    assert_eq!(fixture.store.totals().await.unwrap().ready, 1);
    enqueue(&fixture.store, job("3")).await;
    assert_eq!(claim(&fixture.store, 10, NOW).await.jobs.len(), 2);
}

#[tokio::test]
async fn reading_writes_nothing() {
    let fixture = Fixture::new().await;
    let id = enqueue(&fixture.store, job("1")).await;
    let before = frames(&fixture.store).await;
    fixture.store.get(id).await.unwrap().unwrap();
    fixture.store.why(id, NOW).await.unwrap();
    fixture.store.queues(NOW).await.unwrap();
    fixture.store.totals().await.unwrap();
    fixture.store.search(JobQuery::default()).await.unwrap();
    assert_eq!(frames(&fixture.store).await, before);
    enqueue(&fixture.store, job("1")).await;
    assert!(frames(&fixture.store).await > before);
}

#[tokio::test]
async fn signals_come_with_the_answer() {
    let fixture = Fixture::new().await;
    let mut work = fixture.store.signals().on_work();
    let mut cancels = fixture.store.signals().on_cancel();
    work.mark_unchanged();
    let id = enqueue(&fixture.store, job("1")).await;
    assert!(work.has_changed().unwrap());
    claim(&fixture.store, 1, NOW).await;
    let cancel = tidegate_store::params::CancelJob { id, note: "by a test".into(), cascade: false, now: NOW };
    fixture.store.cancel(cancel).await.unwrap();
    assert_eq!(cancels.try_recv().unwrap(), id);
}

#[tokio::test]
async fn the_log_is_copied_into_the_file_before_it_grows_large() {
    let fixture = Fixture::new().await;
    let big = format!("\"{}\"", "x".repeat(500_000));
    for _ in 0..140 {
        enqueue(&fixture.store, job(&big)).await;
    }
    // A thread of its own copies, which may come to it late; who writes goes on meanwhile.
    let mut more = 0;
    loop {
        let frames = frames(&fixture.store).await;
        if frames < 6_000 {
            break;
        }
        assert!(more < 3_000, "{frames} frames in the log after 9,000 pages were written");
        more += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
        enqueue(&fixture.store, job("1")).await;
    }
}

/// Runs an operation and returns the name of the thread that did it.
async fn done_by(store: &SqliteStore, traits: Traits) -> Option<String> {
    store.run(traits, |_| Ok(std::thread::current().name().map(str::to_owned))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_is_alone_wakes_no_thread_for_a_brief_operation() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let writer = Some("tidegate-writer");
    // The thread may still be busy with the end of the last group.
    while done_by(store, Traits::write(1, NOW).by_jobs()).await.as_deref() == writer {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        done_by(store, Traits::write(1_000, NOW).by_jobs()).await.as_deref(),
        writer,
        "it is not brief"
    );
    let (release, held) = hold(store).await;
    let other = {
        let store = store.clone();
        tokio::spawn(async move { done_by(&store, Traits::write(1, NOW).by_jobs()).await })
    };
    queued(store, 1).await;
    drop(release);
    held.await.unwrap();
    assert_eq!(other.await.unwrap().as_deref(), writer, "it was not alone");
}
