//! The same worker over the embedded store, in real time.
#![cfg(feature = "sqlite")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::{
    Backoff, Context, Failure, Jitter, Job, QueueSettings, RetryPolicy, State, Tidegate, Worker, codes, done,
    done_with,
};

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "task", timeout = "30s")]
struct Task {
    n: u32,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_job_runs_once_and_survives_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let tide = Tidegate::open(dir.path()).await.unwrap();
    for batch in 0..4 {
        tide.enqueue_many((0..1_000).map(|n| tide.enqueue(Task { n: batch * 1_000 + n }))).await.unwrap();
    }
    tide.close().await.unwrap();
    drop(tide);

    let tide = Tidegate::open(dir.path()).await.unwrap();
    let ran = Arc::new(Mutex::new(HashSet::new()));
    let seen = ran.clone();
    let handler = move |t: Task, _: Context| {
        let first = seen.lock().unwrap().insert(t.n);
        async move {
            assert!(first, "{} ran twice", t.n);
            if t.n.is_multiple_of(3) {
                tokio::task::yield_now().await;
            }
            done_with(t.n)
        }
    };
    let report = Worker::new(&tide).handle(handler).concurrency(200).run_until_idle().await.unwrap();
    assert_eq!((report.completed, report.panics), (4_000, 0));
    assert_eq!(ran.lock().unwrap().len(), 4_000);
    let totals = tide.store().totals().await.unwrap();
    assert_eq!((totals.completed, totals.ready, totals.running), (4_000, 0, 0));
    tide.close().await.unwrap();
    assert_eq!(tide.enqueue(Task { n: 0 }).await.unwrap_err().code, codes::STORE_CLOSED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_retries_cancels_and_delays_end_as_they_should() {
    let dir = tempfile::tempdir().unwrap();
    let tide = Tidegate::open(dir.path()).await.unwrap();
    let quick = RetryPolicy {
        max_attempts: 3,
        backoff: Backoff::Fixed { delay_ms: 20 },
        jitter: Jitter::None,
        retry_on: vec![],
        no_retry_on: vec![],
    };
    let jobs = (0..300)
        .map(|n| tide.enqueue(Task { n }).tenant(format!("t{}", n % 10)).retry(quick.clone()).delay("30ms"));
    let jobs = tide.enqueue_many(jobs).await.unwrap();
    let stays = jobs[7].id;
    let runs = Arc::new(AtomicU32::new(0));
    let seen = runs.clone();
    let handler = move |t: Task, cx: Context| {
        seen.fetch_add(1, Ordering::Relaxed);
        async move {
            match t.n {
                7 => {
                    cx.progress(0.1, "waiting").await?;
                    cx.cancelled().await;
                    Err(Failure::logic("STOPPED", "asked to stop"))
                }
                n if n % 10 == 0 => Err(Failure::network("ECONNRESET", "always")),
                n if n % 10 == 1 && cx.attempt() < 3 => panic!("twice"),
                _ => done(),
            }
        }
    };
    let run = Worker::new(&tide).handle(handler).concurrency(50).run_until_idle();
    let cancel = async {
        // The handler's own progress says that it runs.
        while tide.job(stays).await.unwrap().unwrap().progress.is_none() {
            tokio::task::yield_now().await;
        }
        tide.cancel(stays, "test").await.unwrap();
        tide.wait(stays, "20s").await.unwrap()
    };
    let (report, cancelled) = tokio::join!(run, cancel);
    let report = report.unwrap();
    assert_eq!(cancelled.state, State::Cancelled);
    assert_eq!((report.completed, report.dead, report.cancelled), (269, 30, 1));
    assert_eq!((report.retried, report.panics), (60 + 60, 60));
    assert_eq!(runs.load(Ordering::Relaxed), 300 + 120);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_opener_is_told_that_the_store_has_an_owner() {
    let dir = tempfile::tempdir().unwrap();
    let _tide = Tidegate::open(dir.path()).await.unwrap();
    assert_eq!(Tidegate::open(dir.path()).await.unwrap_err().code, codes::STORE_OWNED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_is_woken_by_an_enqueue() {
    let dir = tempfile::tempdir().unwrap();
    let tide = Tidegate::open(dir.path()).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(&tide).handle(async |_: Task, _| done());
    let run = worker.run_until(async { stopped.await.unwrap_or_default() });
    let feed = async {
        let mut quick = 0;
        for n in 0..50 {
            let sent = tokio::time::Instant::now();
            let job = tide.enqueue(Task { n }).await.unwrap();
            let job = tide.wait(job.id, "10s").await.unwrap();
            assert_eq!(job.state, State::Completed);
            // Far below the fallback poll of one second, whatever the machine is doing.
            quick += u32::from(sent.elapsed().as_millis() < 500);
        }
        stop.send(()).unwrap();
        quick
    };
    let (report, quick) = tokio::join!(run, feed);
    assert_eq!(report.unwrap().completed, 50);
    assert!(quick >= 45, "only {quick} of 50 were woken");
}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "single", queue = "single")]
struct Single {
    n: u32,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_had_no_room_is_asked_again_as_soon_as_it_has() {
    const JOBS: u32 = 40;
    let dir = tempfile::tempdir().unwrap();
    let tide = Tidegate::open(dir.path()).await.unwrap();
    tide.register::<Single>().await.unwrap();
    tide.register::<Task>().await.unwrap();
    let settings = QueueSettings { worker_concurrency: Some(1), ..QueueSettings::default() };
    tide.store().put_queue("single".parse().unwrap(), settings, tide.now()).await.unwrap();
    tide.enqueue_many((0..JOBS).map(|n| tide.enqueue(Single { n }))).await.unwrap();
    let (ran, all) = (Arc::new(AtomicU32::new(0)), Arc::new(tokio::sync::Notify::new()));
    let handler = {
        let (ran, all) = (ran.clone(), all.clone());
        move |_: Single, _: Context| {
            let (ran, all) = (ran.clone(), all.clone());
            async move {
                if ran.fetch_add(1, Ordering::Relaxed) + 1 == JOBS {
                    all.notify_one();
                }
                done()
            }
        }
    };
    let worker = Worker::new(&tide).handle(handler).handle(async |_: Task, _: Context| done());
    let running = worker.run_until(async move { all.notified().await });
    // With a poll a second between any two of them it would take twice as long.
    tokio::time::timeout(Duration::from_secs(20), running).await.expect("nobody waits for a poll").unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), JOBS);
}

/// A claim that stands could get the job back that its worker has just given up, again and again.
#[tokio::test]
async fn a_worker_that_lacks_something_does_not_claim_at_once_what_it_gave_back() {
    let dir = tempfile::tempdir().unwrap();
    let tide = Tidegate::open(dir.path()).await.unwrap();
    tide.register::<Task>().await.unwrap();
    tide.enqueue(Task { n: 0 }).await.unwrap();
    let leases = Arc::new(Mutex::new(vec![]));
    let seen = leases.clone();
    let handler = move |_: Task, cx: Context| {
        seen.lock().unwrap().push(cx.fencing_token());
        async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Err::<(), _>(Failure::unready("no line"))
        }
    };
    let stop = tokio::time::sleep(Duration::from_millis(2_500));
    Worker::new(&tide).concurrency(2).handle(handler).run_until(stop).await.unwrap();
    let leases = leases.lock().unwrap().clone();
    assert!((3..=5).contains(&leases.len()), "at 0, 0.1, 0.3, 0.7 and 1.5 s: {leases:?}");
    // The claim that stood when the first was given up may still have been there.
    let granted = leases[leases.len() - 1] - leases[0] + 1;
    assert!(granted <= leases.len() as i64 + 1, "{granted} leases: {leases:?}");
    tide.close().await.unwrap();
}
