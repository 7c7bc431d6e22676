//! A server that is away for a while, or whose answers are lost: nothing is lost, nothing is done twice.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::Running;
use crate::common::faulty::FaultyStore;
use crate::common::proxy::Proxy;
use serde::{Deserialize, Serialize};
use tidegate::{Context, EnqueueOutcome, Job, State, Tidegate, Worker, codes, done};
use tidegate_client::{RemoteOptions, RemoteStore, Timeouts};
use tidegate_core::job::{Park, ParkScope, Resolution};
use tidegate_store::params::{JobQuery, Record, Resolve, Shelf};
use tidegate_store::{MemoryStore, Records, Registry, Store, Upkeep};
use tidegate_store_sqlite::OpenOptions;
use tidegate_wire::keys::{NewKey, Role};
use tokio::sync::{Notify, mpsc, watch};

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
    // Sent again and again it would never end: nobody mends the wire.
    let error = hasty.enqueue(Task { n: 1 }).await.unwrap_err();
    assert_eq!(error.code, codes::SERVER_UNREACHABLE);
    let (job, ()) = tokio::join!(patient.enqueue(Task { n: 2 }).into_future(), async {
        proxy.until_refused().await;
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

/// A worker whose handler runs until it is told to end, or stopped. A second run
/// ends at once.
struct LongRun {
    begun: mpsc::UnboundedReceiver<()>,
    stopped: mpsc::UnboundedReceiver<()>,
    end: Arc<Notify>,
}

fn long_running(tide: &Tidegate, lease: &str) -> (Worker, LongRun) {
    let (began, begun) = mpsc::unbounded_channel();
    let (stops, stopped) = mpsc::unbounded_channel();
    let (end, runs) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let told = end.clone();
    let worker = Worker::new(tide).lease(lease).handle(move |_: Task, cx: Context| {
        let (began, stops, told) = (began.clone(), stops.clone(), told.clone());
        let first = runs.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            if first {
                began.send(()).unwrap();
                tokio::select! {
                    () = told.notified() => {}
                    () = cx.cancelled() => stops.send(()).unwrap(),
                }
            }
            done()
        }
    });
    (worker, LongRun { begun, stopped, end })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_outage_costs_no_lease() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let tide = tide(&proxy.url()).await;
    let (worker, mut running) = long_running(&tide, "6s");
    tide.enqueue(Task { n: 1 }).await.unwrap();
    let outage = async {
        running.begun.recv().await.unwrap();
        proxy.cut();
        // A heartbeat comes in vain, and comes again.
        proxy.until_refused().await;
        proxy.watch("POST /v1/heartbeats", 0);
        proxy.mend();
        proxy.until_seen(1).await;
        running.end.notify_one();
    };
    let (report, ()) = tokio::join!(worker.run_until_idle(), outage);
    let report = report.unwrap();
    assert_eq!((report.completed, report.stale_refused), (1, 0), "{report:?}");
    assert!(running.stopped.try_recv().is_err(), "the handler was not stopped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_outage_stops_the_handler() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let tide = tide(&proxy.url()).await;
    let (worker, mut running) = long_running(&tide, "1500ms");
    tide.enqueue(Task { n: 1 }).await.unwrap();
    let outage = async {
        running.begun.recv().await.unwrap();
        proxy.cut();
        // It would go on until it is told to end, and nobody tells it.
        running.stopped.recv().await.unwrap();
        proxy.mend();
    };
    let (report, ()) = tokio::join!(worker.run_until_idle(), outage);
    let report = report.unwrap();
    assert_eq!(report.completed, 1, "{report:?}");
    assert_eq!(tide.store().totals().await.unwrap().completed, 1);
}

/// A store on disk behind a server on a port that stays the same.
struct Home {
    dir: tempfile::TempDir,
    addr: Option<SocketAddr>,
    up: Option<(Arc<dyn Store>, Running)>,
}

impl Home {
    async fn new() -> Self {
        let mut home = Self { dir: tempfile::tempdir().unwrap(), addr: None, up: None };
        home.start().await;
        home
    }

    fn addr(&self) -> SocketAddr {
        self.addr.expect("it was started")
    }

    async fn start(&mut self) {
        let now = Tidegate::memory().now();
        let store: Arc<dyn Store> =
            Arc::new(OpenOptions::new().synchronous(false).open(self.dir.path(), now).unwrap());
        let addr = self.addr;
        let server =
            Running::with(store.clone(), |options| options.bind = addr.unwrap_or(options.bind)).await;
        self.addr = Some(server.addr);
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
    let url = format!("http://{}", home.addr());
    let tide = tide(&url).await;
    tide.register::<Task>().await.unwrap();
    let done_ones = watch::Sender::new(vec![]);
    let seen = done_ones.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(&tide).concurrency(8).lease("5s").handle(move |task: Task, cx: Context| {
        let seen = seen.clone();
        async move {
            cx.progress(0.5, "half").await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
            seen.send_modify(|done| done.push(task.n));
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
    let mut progress = done_ones.subscribe();
    for restart in 1..=3 {
        progress.wait_for(|done| done.len() >= restart * 100).await.unwrap();
        home.stop().await;
        assert!(tokio::net::TcpStream::connect(home.addr()).await.is_err(), "nobody is there");
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
    let ran: HashSet<u32> = done_ones.borrow().iter().copied().collect();
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

fn of_acme() -> ParkScope {
    ParkScope::Group("acme".parse().unwrap())
}

#[tokio::test]
async fn what_a_request_removed_whose_reply_is_lost_was_there() {
    let behind = Arc::new(MemoryStore::new());
    let server = Running::serve(behind.clone()).await;
    let proxy = Proxy::to(server.addr).await;
    let store = RemoteStore::connect(&proxy.url(), RemoteOptions::default()).await.unwrap();
    let now = Tidegate::memory().now();
    let park = Park { scope: of_acme(), by: "ada".into(), reason: "moving".into(), until: None };
    store.park(park, now).await.unwrap();
    proxy.watch("DELETE /v1/parks", 1);
    assert!(store.unpark(of_acme(), "ada".into(), now).await.unwrap(), "it was there");
    assert_eq!((proxy.seen(), behind.parks().await.unwrap().len()), (2, 0));
    assert!(!store.unpark(of_acme(), "ada".into(), now).await.unwrap(), "now it is not");
    let order = Record { shelf: Shelf::Orders, key: "w".into(), body: "{}".into(), expires: None };
    store.put_record(order, now).await.unwrap();
    proxy.watch("DELETE /v1/orders", 1);
    assert!(store.delete_record(Shelf::Orders, "w".into()).await.unwrap());
    assert!(!store.delete_record(Shelf::Orders, "w".into()).await.unwrap());
}

#[tokio::test]
async fn log_lines_whose_reply_is_lost_are_kept_once() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let tide = tide(&proxy.url()).await;
    tide.enqueue_many((0..2).map(|n| tide.enqueue(Task { n }))).await.unwrap();
    proxy.watch("POST /v1/reports", 2);
    let worker = Worker::new(&tide).concurrency(1).handle(async |_: Task, cx: Context| {
        cx.log("connected").await?;
        cx.log("connected").await?;
        done()
    });
    assert_eq!(worker.run_until_idle().await.unwrap().completed, 2);
    assert_eq!(proxy.seen(), 6, "four, and two of them again");
    let page = tide.store().search(JobQuery { limit: 10, ..JobQuery::default() }).await.unwrap();
    for job in page.jobs {
        let lines: Vec<&str> = job.log.iter().map(|l| l.line.as_str()).collect();
        assert_eq!(
            lines,
            ["connected", "connected"],
            "what is said twice is kept twice, and what is sent twice once"
        );
    }
}

#[tokio::test]
async fn a_key_whose_secret_is_lost_is_not_made_again() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let store = RemoteStore::connect(&proxy.url(), RemoteOptions::default()).await.unwrap();
    let new = |name: &str| NewKey { name: name.into(), role: Role::Admin, tenant: None };
    let first = store.create_key(&new("first")).await.unwrap();
    let options = RemoteOptions { key: Some(first.secret), ..RemoteOptions::default() };
    let store = RemoteStore::connect(&proxy.url(), options).await.unwrap();
    proxy.watch("POST /v1/keys", 1);
    assert_eq!(store.create_key(&new("lost")).await.unwrap_err().code, codes::SERVER_UNREACHABLE);
    assert_eq!(proxy.seen(), 1);
    let names: Vec<String> = store.keys().await.unwrap().into_iter().map(|k| k.name).collect();
    assert_eq!(names, ["first", "lost"], "it can be seen and revoked");
}

#[tokio::test]
async fn a_letter_whose_reply_is_lost_is_settled() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let tide = tide(&proxy.url()).await;
    let id = tide.enqueue(Task { n: 1 }).await.unwrap().id;
    let worker = Worker::new(&tide).handle(async |_: Task, _| -> tidegate::Outcome {
        Err(tidegate::Failure::new(tidegate::Category::InvalidInput, "NO", "no"))
    });
    assert_eq!(worker.run_until_idle().await.unwrap().dead, 1);
    let resolve = |resolution| Resolve { id, resolution, by: "ada".into(), now: tide.now() };
    proxy.watch("POST /v1/dead", 1);
    tide.store().resolve(resolve(Resolution::ConfigFix)).await.unwrap();
    assert_eq!(proxy.seen(), 2);
    let error = tide.store().resolve(resolve(Resolution::ConfigFix)).await.unwrap_err();
    assert_eq!(error.code, codes::WRONG_STATE, "that was another request");
}

#[tokio::test]
async fn a_server_whose_store_is_away_is_waited_for_like_a_server_that_is() {
    let behind = Arc::new(FaultyStore::default());
    let server = Running::serve(behind.clone()).await;
    let (patient, hasty) = (tide(&server.url()).await, with_patience(&server.url(), Duration::ZERO).await);
    patient.register::<Task>().await.unwrap();
    hasty.register::<Task>().await.unwrap();
    behind.away.store(true, Ordering::SeqCst);
    let error = hasty.enqueue(Task { n: 1 }).await.unwrap_err();
    assert_eq!(error.code, codes::STORE_UNREACHABLE, "it says what is away");
    let before = behind.failed.load(Ordering::SeqCst);
    let (job, ()) = tokio::join!(patient.enqueue(Task { n: 2 }).into_future(), async {
        while behind.failed.load(Ordering::SeqCst) == before {
            tokio::task::yield_now().await;
        }
        behind.away.store(false, Ordering::SeqCst);
    });
    let job = job.unwrap();
    assert_eq!(job.outcome, EnqueueOutcome::Created);
    assert_eq!(patient.job(job.id).await.unwrap().unwrap().state, State::Ready);
}
