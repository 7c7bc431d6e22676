//! A server that is away for a while, or whose answers are lost: nothing is lost, nothing is done twice.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail where it stands")]

mod common;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::Running;
use common::proxy::Proxy;
use serde::{Deserialize, Serialize};
use tidegate::{Context, EnqueueOutcome, Job, State, Tidegate, Worker, codes, done};
use tidegate_client::{RemoteOptions, RemoteStore, Timeouts};
use tidegate_store::params::JobQuery;
use tidegate_store::{MemoryStore, Store, Upkeep};
use tidegate_store_sqlite::OpenOptions;

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "task", queue = "tasks", timeout = "1h")]
struct Task {
    n: u32,
}

async fn tide(url: &str) -> Tidegate {
    with_patience(url, Duration::from_secs(30)).await
}

async fn with_patience(url: &str, patience: Duration) -> Tidegate {
    let timeouts = Timeouts { patience, ..Timeouts::default() };
    let options = RemoteOptions { timeouts, ..RemoteOptions::default() };
    Tidegate::with_store(Arc::new(RemoteStore::connect(url, options).await.unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enqueue_whose_reply_is_lost_is_stored_once_and_said_to_be_new() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let tide = tide(&proxy.url()).await;
    tide.register::<Task>().await.unwrap();
    proxy.watch("POST /v1/jobs", 2);
    let one = tide.enqueue(Task { n: 1 }).await.unwrap();
    assert_eq!(one.outcome, EnqueueOutcome::Created);
    assert_eq!(proxy.seen(), 3, "twice in vain");
    proxy.watch("POST /v1/jobs", 1);
    let many = tide.enqueue_many((2..=4).map(|n| tide.enqueue(Task { n }))).await.unwrap();
    assert!(many.iter().all(|e| e.outcome == EnqueueOutcome::Created));
    let page = tide.store().search(JobQuery { limit: 10, ..JobQuery::default() }).await.unwrap();
    assert_eq!(page.jobs.len(), 4, "each is there once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_whose_reply_is_lost_has_cancelled() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let tide = tide(&proxy.url()).await;
    let job = tide.enqueue(Task { n: 1 }).await.unwrap();
    proxy.watch(&format!("POST /v1/jobs/{}/cancel", job.id), 1);
    assert_eq!(tide.cancel(job.id, "ada").await.unwrap(), tidegate::CancelReply::Cancelled);
    assert_eq!(proxy.seen(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enqueue_waits_for_a_server_that_comes_back_and_gives_up_when_it_does_not() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let (patient, hasty) =
        (tide(&proxy.url()).await, with_patience(&proxy.url(), Duration::from_millis(200)).await);
    patient.register::<Task>().await.unwrap();
    hasty.register::<Task>().await.unwrap();
    proxy.cut();
    let begun = Instant::now();
    let error = hasty.enqueue(Task { n: 1 }).await.unwrap_err();
    assert_eq!(error.code, codes::SERVER_UNREACHABLE);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let (job, ()) = tokio::join!(patient.enqueue(Task { n: 2 }).into_future(), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        proxy.mend();
    });
    assert_eq!(patient.job(job.unwrap().id).await.unwrap().unwrap().state, State::Ready);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_whose_reply_is_lost_complete_nothing_twice() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let tide = tide(&proxy.url()).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let seen = runs.clone();
    tide.enqueue_many((0..20).map(|n| tide.enqueue(Task { n }))).await.unwrap();
    proxy.watch("POST /v1/settlements", 1);
    let worker = Worker::new(&tide).handle(move |_: Task, _| {
        seen.fetch_add(1, Ordering::Relaxed);
        std::future::ready(())
    });
    let report = worker.run_until_idle().await.unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 20);
    assert_eq!(report.completed + report.stale_refused, 20, "{report:?}");
    assert_eq!(tide.store().totals().await.unwrap().completed, 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_reply_is_lost_is_given_out_again_after_its_lease() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let tide = tide(&proxy.url()).await;
    let job = tide.enqueue(Task { n: 1 }).await.unwrap();
    proxy.watch("POST /v1/claims", 1);
    let worker = Worker::new(&tide).lease("1s").handle(async |_: Task, _| done());
    let report = worker.run_until_idle().await.unwrap();
    assert_eq!(report.completed, 1);
    let job = tide.job(job.id).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempt), (State::Completed, 1), "a lost claim spends no attempt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_outage_costs_no_lease_and_a_long_one_stops_the_handler() {
    for (away, kept) in [(700, true), (2_600, false)] {
        let server = Running::memory().await;
        let proxy = Proxy::to(server.addr).await;
        let tide = tide(&proxy.url()).await;
        let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let stopped = Arc::new(AtomicUsize::new(0));
        let counted = stopped.clone();
        let worker = Worker::new(&tide).lease("1500ms").handle(move |_: Task, cx: Context| {
            let (began, stopped) = (began.clone(), counted.clone());
            async move {
                began.send(()).unwrap();
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs(3)) => {}
                    () = cx.cancelled() => { stopped.fetch_add(1, Ordering::Relaxed); }
                }
                done()
            }
        });
        tide.enqueue(Task { n: 1 }).await.unwrap();
        let outage = async {
            begun.recv().await.unwrap();
            proxy.cut();
            tokio::time::sleep(Duration::from_millis(away)).await;
            proxy.mend();
        };
        let (report, ()) = tokio::join!(worker.run_until_idle(), outage);
        let report = report.unwrap();
        assert_eq!(report.completed, 1, "{report:?}");
        let lost = stopped.load(Ordering::Relaxed);
        assert_eq!(lost == 0, kept, "away for {away} ms: {report:?}");
        assert_eq!(tide.store().totals().await.unwrap().completed, 1);
    }
}

/// A store on disk behind a server on a port that stays the same.
struct Home {
    dir: tempfile::TempDir,
    addr: SocketAddr,
    up: Option<(Arc<dyn Store>, Running)>,
}

impl Home {
    async fn new() -> Self {
        let mut home =
            Self { dir: tempfile::tempdir().unwrap(), addr: SocketAddr::from(([127, 0, 0, 1], 0)), up: None };
        home.start().await;
        home
    }

    async fn start(&mut self) {
        let now = Tidegate::memory().now();
        let store: Arc<dyn Store> =
            Arc::new(OpenOptions::new().synchronous(false).open(self.dir.path(), now).unwrap());
        let addr = self.addr;
        let server = Running::with(store.clone(), |options| options.bind = addr).await;
        self.addr = server.addr;
        self.up = Some((store, server));
    }

    /// Stops server and store as a restart does.
    async fn stop(&mut self) {
        let (store, server) = self.up.take().unwrap();
        server.stop().await;
        store.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_in_the_middle_of_work_loses_nothing() {
    let mut home = Home::new().await;
    let url = format!("http://{}", home.addr);
    let tide = tide(&url).await;
    tide.register::<Task>().await.unwrap();
    let done_ones = Arc::new(Mutex::new(vec![]));
    let seen = done_ones.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(&tide).concurrency(8).lease("5s").handle(move |task: Task, cx: Context| {
        let seen = seen.clone();
        async move {
            cx.progress(0.5, "half").await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
            seen.lock().unwrap().push(task.n);
            done()
        }
    });
    let worker = tokio::spawn(worker.run_until(async move {
        let _ = stopped.await;
    }));
    let producing = tide.clone();
    let producer = tokio::spawn(async move {
        let mut ids = vec![];
        for n in 0..600 {
            ids.push(producing.enqueue(Task { n }).await.unwrap().id);
        }
        ids
    });
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        home.stop().await;
        tokio::time::sleep(Duration::from_millis(150)).await;
        home.start().await;
    }
    let ids = producer.await.unwrap();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 600);
    let all_done = async {
        while tide.store().totals().await.unwrap().completed < 600 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all_done).await.expect("everything is done in the end");
    drop(stop);
    let report = worker.await.unwrap().unwrap();
    let ran: HashSet<u32> = done_ones.lock().unwrap().iter().copied().collect();
    assert_eq!(ran.len(), 600);
    let totals = tide.store().totals().await.unwrap();
    assert_eq!((totals.completed, totals.dead, totals.ready, totals.running), (600, 0, 0, 0), "{report:?}");
}

#[tokio::test]
async fn a_store_behind_a_closed_server_is_out_of_reach_not_closed() {
    let behind = Arc::new(MemoryStore::new());
    let server = Running::serve(behind.clone()).await;
    let options = RemoteOptions {
        timeouts: Timeouts { patience: Duration::ZERO, ..Timeouts::default() },
        ..Default::default()
    };
    let store = RemoteStore::connect(&server.url(), options).await.unwrap();
    behind.close().await.unwrap();
    let error = store.totals().await.unwrap_err();
    assert_eq!(error.code, codes::SERVER_STOPPING, "a worker goes on when it is back");
}
