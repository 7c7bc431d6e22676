//! Leases: kept alive by the worker, lost with consequences. All in virtual time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::testing;
use tidegate::{Context, Job, State, StopReason, Worker, codes, done};

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "task", timeout = "2h")]
struct Task {
    n: u32,
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_many_leases_long_keeps_its_lease() {
    let tide = testing::tide();
    tide.enqueue(Task { n: 1 }).await.unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let seen = runs.clone();
    let slow = move |_: Task, _: Context| {
        seen.fetch_add(1, Ordering::Relaxed);
        async {
            tokio::time::sleep(Duration::from_hours(1)).await;
            done()
        }
    };
    // A second worker would take the job as soon as its lease ran out.
    let first = Worker::new(&tide).handle(slow.clone()).lease("2s");
    let second = Worker::new(&tide).handle(slow).lease("2s");
    let (first, second) = tokio::join!(tide.run(first), tide.run(second));
    assert_eq!((first.completed + second.completed, runs.load(Ordering::Relaxed)), (1, 1));
    assert_eq!(first.stale_refused + second.stale_refused, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_stops_the_handler_and_its_completion_is_refused() {
    let tide = testing::tide();
    let job = tide.enqueue(Task { n: 1 }).await.unwrap();
    let reasons = Arc::new(Mutex::new(vec![]));
    let (seen, first) = (reasons.clone(), Arc::new(AtomicBool::new(true)));
    let handler = move |_: Task, cx: Context| {
        let (seen, first) = (seen.clone(), first.swap(false, Ordering::Relaxed));
        async move {
            if first {
                cx.cancelled().await;
                assert!(cx.lease_lost());
                assert_eq!(cx.log("too late").await.unwrap_err().code, codes::STALE_LEASE);
                seen.lock().unwrap().push((cx.stop_reason(), cx.now().since(testing::EPOCH)));
            }
            done()
        }
    };
    let run = tide.run(Worker::new(&tide).handle(handler).lease("9s"));
    let take_away = async {
        testing::advance("1s").await;
        // What a store does when heartbeats stay away: an operator erases, or time has passed for it alone.
        tide.store().advance(tide.now().plus_ms(60_000)).await.unwrap();
    };
    let (report, ()) = tokio::join!(run, take_away);
    // Told with the next heartbeat, at a third of the lease.
    assert_eq!(*reasons.lock().unwrap(), [(Some(StopReason::LeaseLost), 3_000)]);
    assert_eq!((report.stale_refused, report.completed, report.panics), (1, 1, 0));
    let job = tide.job(job.id).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempt), (State::Completed, 1));
}

#[tokio::test(start_paused = true)]
async fn a_crashed_worker_costs_one_lease_time_and_no_attempt() {
    let tide = testing::tide();
    let job = tide.enqueue(Task { n: 1 }).max_attempts(1).await.unwrap();
    let stuck = Worker::new(&tide).handle(async |_: Task, _| std::future::pending::<()>().await).lease("10s");
    // Dropping the future of a run is what a crash looks like from outside.
    tokio::time::timeout(Duration::from_secs(5), stuck.run_until_idle()).await.unwrap_err();
    tide.restart();
    assert_eq!(tide.job(job.id).await.unwrap().unwrap().state, State::Running);
    let report = tide.run(Worker::new(&tide).handle(async |_: Task, _| done())).await;
    assert_eq!(report.completed, 1);
    let job = tide.job(job.id).await.unwrap().unwrap();
    assert_eq!((job.attempt, job.lone_stalls), (1, 0));
    let ended = job.finished_at.unwrap().since(testing::EPOCH);
    assert!((10_000..=14_500).contains(&ended), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_no_signal_told_comes_with_the_heartbeat() {
    let tide = testing::tide();
    let jobs = tide.enqueue_many((0..3).map(|n| tide.enqueue(Task { n }))).await.unwrap();
    // One slot, and fast handlers first, so that jobs wait on the desk when the slow one begins.
    let handler = async |_: Task, cx: Context| {
        cx.cancelled().await;
        assert_eq!(cx.stop_reason(), Some(StopReason::Cancelled));
        Err::<(), _>(tidegate::Failure::logic("STOPPED", "asked to stop"))
    };
    let run = tide.run(Worker::new(&tide).handle(handler).concurrency(3).lease("30s"));
    let cancel = async {
        testing::advance("1s").await;
        // More cancels than the channel keeps: the first ones are only found in the heartbeat's reply.
        for job in &jobs {
            tide.cancel(job.id, "all of it").await.unwrap();
        }
        let unknown: tidegate::JobId = "job_01JD0000000000000000000000".parse().unwrap();
        for _ in 0..2_000 {
            tide.store().signals().cancel(unknown);
        }
    };
    let (report, ()) = tokio::join!(run, cancel);
    assert_eq!((report.cancelled, report.failed, report.panics), (3, 0, 0));
    assert!(tide.elapsed_ms() < 30_000);
}
