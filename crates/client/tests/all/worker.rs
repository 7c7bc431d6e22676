//! A worker over a server: it is woken, it stops, it hears of cancels, and clocks may differ.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common::Running;
use crate::common::proxy::Proxy;
use serde::{Deserialize, Serialize};
use tidegate::{Context, Job, State, StopReason, Tidegate, Worker, done};
use tidegate_client::{RemoteOptions, RemoteStore};
use tidegate_core::ids::{ProcessId, WorkerId};
use tidegate_store::params::Claim;
use tidegate_store::{Jobs, MemoryStore, Registry, Store};
use tokio::sync::{mpsc, oneshot};

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "task", queue = "tasks", timeout = "1h")]
struct Task {
    n: u32,
}

async fn tide(url: &str) -> Tidegate {
    Tidegate::with_store(Arc::new(
        RemoteStore::connect(url, RemoteOptions::default()).await.expect("the server answers"),
    ))
}

fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// A worker that runs until it is told to stop.
struct Working {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<tidegate::Result<tidegate::Report>>,
}

impl Working {
    fn start(worker: Worker) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(worker.run_until(async move {
            let _ = stopped.await;
        }));
        Self { stop, task }
    }

    async fn stop(self) -> tidegate::Report {
        drop(self.stop);
        self.task.await.unwrap().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_several_programs_run_once_each() {
    let server = Running::memory().await;
    let (one, two) = (tide(&server.url()).await, tide(&server.url()).await);
    let runs = Arc::new(Mutex::new(vec![0; 2_000]));
    let worker = |tide: &Tidegate| {
        let runs = runs.clone();
        Worker::new(tide).concurrency(20).handle(move |task: Task, _| {
            runs.lock().unwrap()[task.n as usize] += 1;
            std::future::ready(())
        })
    };
    for chunk in 0..4 {
        let jobs = (0..500).map(|n| one.enqueue(Task { n: chunk * 500 + n }));
        one.enqueue_many(jobs).await.unwrap();
    }
    let (a, b) = tokio::join!(worker(&one).run_until_idle(), worker(&two).run_until_idle());
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(a.completed + b.completed, 2_000, "{a:?} {b:?}");
    assert!(runs.lock().unwrap().iter().all(|n| *n == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_worker_is_woken_at_once_and_does_not_ask_in_a_loop() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let (here, there) = (tide(&proxy.url()).await, tide(&server.url()).await);
    let (seen, mut picked) = mpsc::unbounded_channel();
    let worker = Worker::new(&here).handle(move |task: Task, _| {
        seen.send(task.n).unwrap();
        std::future::ready(())
    });
    let worker = Working::start(worker);
    there.register::<Task>().await.unwrap();
    // The first one may find the worker still starting.
    there.enqueue(Task { n: 0 }).await.unwrap();
    picked.recv().await.unwrap();
    proxy.watch("POST /v1/claims", 0);
    let woken = async {
        for n in 1..=30 {
            proxy.until_under_way().await;
            there.enqueue(Task { n }).await.unwrap();
            assert_eq!(picked.recv().await.unwrap(), n);
        }
    };
    // A worker that is not woken looks once a second: thirty jobs would take it thirty.
    tokio::time::timeout(Duration::from_secs(20), woken).await.expect("it is woken for each");
    // For each job: the poll that brings it and the look that follows; and one look per second.
    assert!(proxy.seen() <= 90, "{} claims for 30 jobs", proxy.seen());
    assert_eq!(worker.stop().await.completed, 31);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_poll_brings_for_a_worker_that_stopped_goes_back_at_once() {
    let behind = Arc::new(MemoryStore::new());
    let server = Running::serve(behind.clone()).await;
    let proxy = Proxy::to(server.addr).await;
    let here = tide(&proxy.url()).await;
    // A claim that waits says how long.
    proxy.watch_for("POST /v1/claims", "wait_ms", 0);
    let (running, mut ran) = mpsc::unbounded_channel();
    let worker = Worker::new(&here).handle(move |_: Task, _| {
        running.send(()).unwrap();
        std::future::ready(())
    });
    let worker = Working::start(worker);
    here.enqueue(Task { n: 0 }).await.unwrap();
    ran.recv().await.unwrap();
    proxy.until_under_way().await;
    worker.stop().await;
    let job = here.enqueue(Task { n: 1 }).await.unwrap();
    // It may be held for a moment, and then it is free for others, with its attempts unspent.
    let freed = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let seen = here.job(job.id).await.unwrap().unwrap();
            if seen.state == State::Ready {
                let job = behind.claim(claim("tasks")).await.unwrap().jobs.pop();
                if job.is_some_and(|j| j.attempt == 1) {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    freed.await.expect("the job is free again long before a lease could end");
    assert!(ran.try_recv().is_err(), "it did not run");
}

fn claim(queue: &str) -> Claim {
    Claim {
        worker: WorkerId::new("other").unwrap(),
        process: ProcessId(7),
        queues: vec![(queue.parse().unwrap(), 1)],
        max: 1,
        lease_ms: 30_000,
        now: tidegate_core::time::Timestamp(wall_ms()),
    }
}

#[tokio::test]
async fn a_poll_asks_for_nobody_unless_somebody_waits_for_work() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let store = RemoteStore::connect(&proxy.url(), RemoteOptions::default()).await.unwrap();
    let tide = Tidegate::with_store(Arc::new(server.client().await));
    tide.register::<Task>().await.unwrap();
    proxy.watch_for("POST /v1/claims", "wait_ms", 0);
    assert!(store.claim(claim("tasks")).await.unwrap().jobs.is_empty());
    // Time enough for a poll to begin: twenty requests that go the same way.
    for _ in 0..20 {
        assert_eq!(store.queues(tide.now()).await.unwrap()[0].ready, 0);
    }
    tide.enqueue(Task { n: 1 }).await.unwrap();
    assert_eq!(store.claim(claim("tasks")).await.unwrap().jobs.len(), 1, "nobody took it");
    assert_eq!(proxy.seen(), 0, "nobody asked for it");
    store.close().await.unwrap();
    assert_eq!(store.claim(claim("tasks")).await.unwrap_err().code, tidegate_core::codes::STORE_CLOSED);
}

/// Runs a job that waits to be stopped; returns why it was.
async fn cancelled(canceller: &Tidegate, here: &Tidegate, lease: &str) -> Option<StopReason> {
    let (seen, mut stopped) = mpsc::unbounded_channel();
    let (began, mut begun) = mpsc::unbounded_channel();
    let worker = Worker::new(here).lease(lease).handle(move |_: Task, cx: Context| {
        let (seen, began) = (seen.clone(), began.clone());
        async move {
            began.send(()).unwrap();
            cx.cancelled().await;
            seen.send(cx.stop_reason()).unwrap();
            done()
        }
    });
    let worker = Working::start(worker);
    let job = here.enqueue(Task { n: 1 }).await.unwrap();
    begun.recv().await.unwrap();
    assert_eq!(canceller.cancel(job.id, "ada: not needed").await.unwrap(), tidegate::CancelReply::Requested);
    let reason = stopped.recv().await.unwrap();
    worker.stop().await;
    reason
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_arrives_at_once_from_here_and_with_the_heartbeat_from_elsewhere() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let (here, there) = (tide(&proxy.url()).await, tide(&server.url()).await);
    proxy.watch("POST /v1/heartbeats", 0);
    assert_eq!(cancelled(&here, &here, "5m").await, Some(StopReason::Cancelled));
    assert_eq!(proxy.seen(), 0, "no heartbeat was needed");
    assert_eq!(cancelled(&there, &here, "1500ms").await, Some(StopReason::Cancelled));
    assert!(proxy.seen() > 0, "a heartbeat brought it");
}

/// A server whose clock is an hour off, and goes on.
async fn server_off_by(ms: i64) -> (Running, tokio::task::JoinHandle<()>) {
    let clock = Arc::new(AtomicI64::new(wall_ms() + ms));
    let ticking = clock.clone();
    let tick = tokio::spawn(async move {
        loop {
            ticking.store(wall_ms() + ms, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let server = Running::with(Arc::new(MemoryStore::new()), |options| {
        options.clock = tidegate_server::Clock::manual(clock);
    })
    .await;
    (server, tick)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_differ_by_an_hour_delay_nothing_and_end_no_lease() {
    for off in [-3_600_000, 3_600_000] {
        let (server, tick) = server_off_by(off).await;
        let here = tide(&server.url()).await;
        let (seen, mut picked) = mpsc::unbounded_channel();
        let worker = Worker::new(&here).lease("1s").handle(move |task: Task, cx: Context| {
            let seen = seen.clone();
            async move {
                seen.send(Instant::now()).unwrap();
                if task.n == 2 {
                    // Longer than its lease: heartbeats keep it.
                    tokio::time::sleep(Duration::from_millis(1_800)).await;
                }
                assert!(!cx.is_cancelled());
                done()
            }
        });
        let enqueued = Instant::now();
        let early = here.enqueue(Task { n: 1 }).delay("300ms").await.unwrap();
        here.enqueue(Task { n: 2 }).await.unwrap();
        let report = worker.run_until_idle().await.unwrap();
        assert_eq!((report.completed, report.stale_refused), (2, 0), "{report:?}");
        picked.recv().await.unwrap();
        let delayed = picked.recv().await.unwrap() - enqueued;
        assert!(delayed >= Duration::from_millis(290), "{delayed:?}");
        assert_eq!(here.job(early.id).await.unwrap().unwrap().state, State::Completed);
        let empty = here.store().claim(claim("tasks")).await.unwrap();
        assert!(empty.jobs.is_empty());
        tick.abort();
    }
}

#[tokio::test]
async fn the_time_of_a_program_is_the_servers() {
    let off = 3_600_000;
    let (server, tick) = server_off_by(off).await;
    let here = tide(&server.url()).await;
    let ahead = here.now().0 - wall_ms() - off;
    assert!((-50..=50).contains(&ahead), "{ahead} ms apart");
    here.enqueue(Task { n: 1 }).await.unwrap();
    let later = here.enqueue(Task { n: 2 }).delay("30s").await.unwrap();
    let claimed = here.store().claim(claim("tasks")).await.unwrap();
    let until = claimed.lease.unwrap().until.since(here.now());
    assert!((29_000..=30_100).contains(&until), "the lease holds for {until} ms");
    let beat = here.store().heartbeat(vec![claimed.lease.unwrap().id], here.now()).await.unwrap();
    let until = beat[0].until.unwrap().since(here.now());
    assert!((29_000..=30_100).contains(&until), "the lease holds for {until} ms");
    let next = here.store().claim(claim("tasks")).await.unwrap().next_wakeup.unwrap().since(here.now());
    assert!((25_000..=30_100).contains(&next), "come back in {next} ms");
    let why = here.why(later.id).await.unwrap().sentence(here.now());
    assert!(why.contains("starts in 29") || why.contains("starts in 30"), "{why}");
    tick.abort();
}

#[test]
fn a_store_can_be_shared() {
    fn shared<T: Store + Send + Sync + 'static>() {}
    shared::<RemoteStore>();
}
