//! Shutdown in three acts, in virtual time.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::testing;
use tidegate::{Context, Job, State, StopReason, Worker, done};

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "task", timeout = "2h")]
struct Task {
    seconds: u64,
}

#[tokio::test(start_paused = true)]
async fn it_drains_and_releases_the_rest_without_spending_an_attempt() {
    let tide = testing::tide();
    let short = tide.enqueue(Task { seconds: 20 }).await.unwrap();
    let long = tide.enqueue(Task { seconds: 4_000 }).max_attempts(1).await.unwrap();
    let waiting = tide.enqueue(Task { seconds: 1 }).await.unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let seen = asked.clone();
    let handler = move |t: Task, cx: Context| {
        let seen = seen.clone();
        async move {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(t.seconds)) => done(),
                () = cx.cancelled() => {
                    assert_eq!(cx.stop_reason(), Some(StopReason::Shutdown));
                    assert_eq!(cx.now().since(testing::EPOCH), 10_000 + 45_000);
                    seen.fetch_add(1, Ordering::Relaxed);
                    Err(tidegate::Failure::logic("STOPPED", "asked to stop"))
                }
            }
        }
    };
    let worker = Worker::new(&tide).handle(handler).concurrency(2);
    let report = worker.run_until(testing::advance("10s")).await.unwrap();
    // The short one finished at 20 s; its slot was not given to the one that waited.
    assert_eq!((report.completed, report.released, report.failed), (1, 1, 0));
    assert_eq!((tide.elapsed_ms(), asked.load(Ordering::Relaxed)), (55_000, 1));
    let state = async |id| tide.job(id).await.unwrap().unwrap();
    assert_eq!(state(short.id).await.state, State::Completed);
    assert_eq!(state(waiting.id).await.state, State::Ready);
    let long = state(long.id).await;
    assert_eq!((long.state, long.errors.len()), (State::Ready, 0));
    let report = tide
        .run(Worker::new(&tide).handle(async |_: Task, cx: Context| {
            assert_eq!(cx.attempt(), 1);
            done()
        }))
        .await;
    assert_eq!(report.completed, 2);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_listen_is_aborted_and_released() {
    let tide = testing::tide();
    let job = tide.enqueue(Task { seconds: 1 }).max_attempts(1).await.unwrap();
    let worker = Worker::new(&tide).handle(async |_: Task, _| pending::<()>().await).drain("30s").grace("5s");
    let report = worker.run_until(testing::advance("10s")).await.unwrap();
    assert_eq!((report.released, report.failed), (1, 0));
    assert_eq!(tide.elapsed_ms(), 45_000);
    let job = tide.job(job.id).await.unwrap().unwrap();
    assert_eq!((job.state, job.errors.len()), (State::Ready, 0));
}

#[tokio::test(start_paused = true)]
async fn jobs_on_the_desk_go_back_at_once() {
    let tide = testing::tide();
    // Fast handlers first, so that the worker prefetches; then slow ones that hold both slots.
    tide.enqueue_many((0..200).map(|_| tide.enqueue(Task { seconds: 0 }))).await.unwrap();
    tide.enqueue_many((0..50).map(|_| tide.enqueue(Task { seconds: 30 }))).await.unwrap();
    let handler = async |t: Task, _: Context| {
        if t.seconds > 0 {
            tokio::time::sleep(Duration::from_secs(t.seconds)).await;
        }
        done()
    };
    let worker = Worker::new(&tide).handle(handler).concurrency(2);
    let report = worker.run_until(testing::advance("500ms")).await.unwrap();
    assert_eq!(report.completed, 202);
    assert_eq!(tide.elapsed_ms(), 30_000);
    let totals = tide.store().totals().await.unwrap();
    assert_eq!((totals.ready, totals.running), (48, 0));
}

#[tokio::test(start_paused = true)]
async fn a_closed_store_ends_the_worker_with_its_error() {
    let tide = testing::tide();
    tide.enqueue(Task { seconds: 1 }).delay("1h").await.unwrap();
    let run = Worker::new(&tide).handle(async |_: Task, _| done()).run_until_idle();
    let close = async {
        testing::advance("10s").await;
        tide.close().await.unwrap();
    };
    let (ended, ()) = tokio::join!(run, close);
    assert_eq!(ended.unwrap_err().code, tidegate::codes::STORE_CLOSED);
}
