//! Documents come in while jobs run, half of them wrong: no job is lost, nothing wrong is ever active, and history and the way back
//! are right. One of their kinds runs by the clock; documents drop its schedule and bring it back, and each of its ticks is fired once.
//! `TIDEGATE_RELOADS` says how many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use tidegate_conformance::Harness;
use tidegate_conformance::kit::{START, job_id, kind, queue, worker};
use tidegate_core::ids::ProcessId;
use tidegate_core::job::State;
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::registry::{Document, Format, KindSettings, Outcome};
use tidegate_core::schedule::Decided;
use tidegate_core::time::Timestamp;
use tidegate_store::Store;
use tidegate_store::offer::{Offer, Offered, offer};
use tidegate_store::params::{
    Apply, Claim, NewJob, Outcome as End, Settle, Settled, Settlement, TickQuery, Wanted,
};

use crate::common::Sqlite;
use crate::pg::Postgres;

const WORKERS: u64 = 3;
/// Time from one document to the next.
const STEP_MS: i64 = 400;

fn reloads() -> u64 {
    std::env::var("TIDEGATE_RELOADS").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

/// A document that is right. Its parts belong together: whoever sees one of another document has seen half of one.
fn right(n: u64) -> String {
    let (weight, timeout, limit) = (n % 90 + 1, 1_000 + n, n % 5 + 1);
    let schedule = match n % 10 {
        4 => "",
        8 => {
            "schedule = { every = \"1s\", overlap = \"allow\", missed = { run_all = 100 }, priority = \"low\" }\n"
        }
        _ => "schedule = { every = \"1s\", overlap = \"allow\", missed = { run_all = 100 } }\n",
    };
    format!(
        "[kinds.t]\nqueue = \"q\"\n{schedule}[queues.q]\nweight = {weight}\nmax_wait_ms = {}\n[kinds.k]\nqueue = \"q\"\ntimeout_ms = {timeout}\nconcurrency = {limit}\n\
         [kinds.k.schema]\ntype = \"object\"\n[kinds.k.schema.properties]\nn = {{ type = \"integer\", maximum = {} }}\n",
        600_000 + n,
        10_000_000 + n
    )
}

/// Documents that are wrong, in many ways; each would be seen, were a part of it applied.
fn wrong(n: u64) -> String {
    let seen = "[queues.q]\nweight = 99\n";
    match n % 7 {
        0 => format!("{seen}[kinds.k]\nqueue = \"nowhere\"\n"),
        1 => format!("{seen}[kinds.k]\nqueue = \"q\"\ntimeout_ms = -{}\n", n + 1),
        2 => format!("{seen}[kinds.k]\nqueue = \"q\"\nschema = {{ typ = \"object\", title = \"{n}\" }}\n"),
        3 => format!("{seen}[kinds.k]\nqueue = \"q\"\nretry = \"policy-{n}\"\n"),
        4 => format!("{seen}[kinds.k]\nqueue = \"q\"\nconcurency = {n}\n"),
        5 => format!("{seen}[kinds.t]\nqueue = \"q\"\nschedule = {{ every = \"1s\", after = [\"s{n}\"] }}\n"),
        _ => format!("{seen}[kinds.k\n# {n}"),
    }
}

/// Whether the registry is exactly one of the documents that were right.
fn is_whole(registry: &Document) -> bool {
    let q = &registry.queues[&queue("q")];
    let n = (q.max_wait_ms - 600_000).cast_unsigned();
    let expected = Document::parse(&right(n), Format::Toml).expect("right");
    let as_written = |name: &str| KindSettings { document: None, ..registry.kinds[&kind(name)].clone() };
    *q == expected.queues[&queue("q")]
        && ["k", "t"].into_iter().all(|name| as_written(name) == expected.kinds[&kind(name)])
}

/// The time, which passes with every document.
#[derive(Clone)]
struct Time(Arc<AtomicI64>);

impl Time {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

async fn offered(store: &dyn Store, text: &str, now: Timestamp) -> Offered {
    let offer_it =
        Offer { text, format: Format::Toml, by: "ann", source: "registry.toml", dry_run: false, now };
    offer(store, offer_it).await.expect("answered")
}

/// Works until nothing is left and nobody adds more.
async fn work(store: Arc<dyn Store>, number: u64, over: Arc<AtomicBool>, done: Arc<AtomicU64>, time: Time) {
    loop {
        let last = over.load(Ordering::SeqCst);
        let claim = Claim {
            worker: worker(&format!("w{number}")),
            process: ProcessId(number),
            queues: vec![(queue("q"), 5)],
            max: 5,
            lease_ms: limits::DEFAULT_LEASE_MS,
            now: time.now(),
        };
        let jobs = store.claim(claim).await.expect("answered").jobs;
        if jobs.is_empty() && last && store.totals().await.expect("answered").ready == 0 {
            return;
        }
        tokio::task::yield_now().await;
        let settlements: Vec<_> =
            jobs.iter().map(|j| Settlement { ticket: j.ticket, outcome: End::Complete(None) }).collect();
        if settlements.is_empty() {
            continue;
        }
        let settle = Settle { settlements, now: time.now(), seed: 1 };
        for (settled, job) in store.settle(settle).await.expect("answered").into_iter().zip(jobs) {
            assert_eq!(settled, Settled::Applied(State::Completed));
            done.fetch_add(u64::from(job.kind == kind("k")), Ordering::SeqCst);
        }
    }
}

async fn reload_under_load(store: Arc<dyn Store>) {
    let reloads = reloads();
    let time = Time(Arc::new(AtomicI64::new(START.0)));
    assert!(matches!(offered(&*store, &right(0), START).await, Offered::Applied(_)));
    let (over, done, added) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let workers = (1..=WORKERS).map(|n| work(store.clone(), n, over.clone(), done.clone(), time.clone()));
    let workers: Vec<_> = workers.map(tokio::spawn).collect();
    let producer = tokio::spawn({
        let (store, over, added, time) = (store.clone(), over.clone(), added.clone(), time.clone());
        async move {
            while !over.load(Ordering::SeqCst) {
                let first = added.load(Ordering::SeqCst);
                let job = |n: u64| {
                    NewJob::new(job_id(n + 1), kind("k"), Payload::trusted(format!("{{\"n\":{n}}}")))
                };
                store
                    .enqueue((first..first + 3).map(job).collect(), time.now())
                    .await
                    .expect("every schema takes it");
                added.fetch_add(3, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        }
    });
    let observer = tokio::spawn({
        let (store, over) = (store.clone(), over.clone());
        async move {
            let mut looks = 0_u64;
            while !over.load(Ordering::SeqCst) {
                assert!(
                    is_whole(&store.registry().await.expect("answered")),
                    "half of a document, or a wrong one"
                );
                looks += 1;
                tokio::task::yield_now().await;
            }
            looks
        }
    });
    let (mut applied, mut refused) = (1_u64, 0_u64);
    for n in 1..=reloads {
        time.0.fetch_add(STEP_MS, Ordering::SeqCst);
        // Never the same twice in a row, so each is news.
        if n % 2 == 0 {
            let reply = offered(&*store, &right(n), time.now()).await;
            assert!(matches!(reply, Offered::Applied(a) if a.version.is_some()), "{n}");
            applied += 1;
        } else {
            let reply = offered(&*store, &wrong(n), time.now()).await;
            assert!(matches!(reply, Offered::Refused(p) if !p.is_empty()), "{n}");
            refused += 1;
        }
    }
    over.store(true, Ordering::SeqCst);
    producer.await.expect("no panic");
    assert!(observer.await.expect("no panic") > 0);
    for worker in workers {
        worker.await.expect("no panic");
    }
    let (added, done) = (added.load(Ordering::SeqCst), done.load(Ordering::SeqCst));
    assert_eq!(added, done, "every job ran once");
    let fired = every_tick_once(&*store, &time).await;
    let totals = store.totals().await.expect("answered");
    assert_eq!((totals.completed, totals.ready, totals.running, totals.dead), (added + fired, 0, 0, 0));
    println!(
        "{applied} applied, {refused} refused while {added} jobs ran, {fired} of them by the clock and each tick once",
        added = added + fired
    );
    history_is_right(&*store, applied, refused, time.now()).await;
}

/// Every second since the first document was fired once, whichever document had the schedule when. Returns how many.
async fn every_tick_once(store: &dyn Store, time: &Time) -> u64 {
    let query = TickQuery { name: "t".parse().expect("a name"), before: None, limit: limits::MAX_PAGE };
    let lines = store.schedule_ticks(query).await.expect("answered");
    let fired = lines.iter().filter(|line| matches!(line.what, Decided::Fired { .. }));
    let mut planned: Vec<i64> = fired.map(|line| line.planned.0).collect();
    planned.reverse();
    let decided = store.schedule("t".parse().expect("a name")).await.expect("answered").expect("it is there");
    assert!(decided.decided_until <= time.now());
    let all: Vec<i64> = (START.0 / 1_000 + 1..=decided.decided_until.0 / 1_000).map(|s| s * 1_000).collect();
    assert_eq!(planned, all);
    assert!(all.len() as i64 >= (time.now().0 - START.0) / 1_000 - 5, "it went on to the end");
    all.len() as u64
}

async fn history_is_right(store: &dyn Store, applied: u64, refused: u64, now: Timestamp) {
    let versions = store.versions(usize::MAX).await.expect("answered");
    assert_eq!(versions[0].number, applied + refused, "each has a number");
    let kept = |outcome| versions.iter().filter(|v| v.outcome == outcome).count() as u64;
    assert_eq!(kept(Outcome::Applied), applied.min(limits::MAX_REGISTRY_VERSIONS as u64));
    assert_eq!(kept(Outcome::Refused), refused.min(limits::MAX_REGISTRY_REFUSALS as u64));
    assert!(versions.iter().all(|v| v.problems.is_empty() == (v.outcome == Outcome::Applied)));
    let newest = versions.iter().find(|v| v.outcome == Outcome::Applied).expect("there is one");
    assert_eq!(newest.hash, store.registry().await.expect("answered").hash());
    let oldest = versions.iter().rfind(|v| v.outcome == Outcome::Applied).expect("there is one").clone();
    let wanted = Wanted::Version(oldest.number);
    let back = Apply { wanted, by: "ann".into(), source: "rollback".into(), dry_run: false, now };
    assert!(store.apply(back).await.expect("it is kept").version.is_some());
    let registry = store.registry().await.expect("answered");
    assert!(is_whole(&registry) && registry.hash() == oldest.hash);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_under_load_on_sqlite() {
    let sqlite = Sqlite::open();
    reload_under_load(sqlite.store()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_under_load_on_postgres() {
    let postgres = Postgres::open().await;
    reload_under_load(postgres.store()).await;
}
