//! Several processes on one database: interleaved workers judged by the referee, and real concurrency judged by
//! invariants.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::pg::{Pair, connect, every_finished_job_is_on_one_list, fresh_schema};
use tidegate_conformance::kit::{at_once, group, json, kind, queue, worker};
use tidegate_conformance::properties;
use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::{JobId, ProcessId};
use tidegate_core::job::State;
use tidegate_core::limits;
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Claim, ClaimedJob, NewJob, Outcome, Settle, Settled, Settlement};
use tidegate_store::{Jobs, Registry, Upkeep};
use tidegate_store_postgres::PgStore;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test]
async fn two_processes_keep_every_promise_to_interleaved_workers() {
    let runs = number("TIDEGATE_HISTORIES").unwrap_or(40).div_ceil(8);
    let seeds = number("TIDEGATE_SEED").map_or(0..runs, |seed| seed..seed + 1);
    for seed in seeds {
        let run = properties::run(&mut Pair::open(seed).await, seed, 400).await;
        run.unwrap_or_else(|broken| panic!("{broken}"));
    }
}

const PROCESSES: u64 = 3;
const JOBS: u64 = 300;
const QUEUE_LIMIT: u32 = 40;
const GROUP_LIMIT: u32 = 5;

/// What a judge outside the store saw.
#[derive(Default)]
struct Judge {
    running: AtomicU32,
    groups: Mutex<HashMap<String, u32>>,
    completed: Mutex<HashMap<JobId, u32>>,
    most: AtomicU32,
}

impl Judge {
    fn start(&self, job: &ClaimedJob) {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(running <= QUEUE_LIMIT, "{running} jobs run");
        self.most.fetch_max(running, Ordering::SeqCst);
        let mut groups = self.groups.lock().expect("no panic");
        let of_group = groups.entry(job.group.as_str().to_owned()).or_default();
        *of_group += 1;
        assert!(*of_group <= GROUP_LIMIT, "{of_group} jobs of group {} run", job.group.as_str());
    }

    /// Before the store hears of it: a place may be given away as soon as it does.
    fn end(&self, job: &ClaimedJob) {
        self.running.fetch_sub(1, Ordering::SeqCst);
        *self.groups.lock().expect("no panic").get_mut(job.group.as_str()).expect("it ran") -= 1;
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp(since.as_millis() as i64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_at_work_at_once_lose_nothing_do_nothing_twice_and_keep_limits() {
    let schema = fresh_schema();
    let judge = Arc::new(Judge::default());
    let made = Arc::new(AtomicU64::new(0));
    let mut stores = vec![];
    for _ in 0..PROCESSES {
        stores.push(connect(&schema, now()).await);
    }
    let settings = QueueSettings {
        concurrency: Some(QUEUE_LIMIT),
        group_concurrency: Some(GROUP_LIMIT),
        ..QueueSettings::default()
    };
    stores[0].put_queue(queue("q"), settings, now()).await.expect("a queue");
    // One attempt in ten fails: with the usual number of attempts, one job in a while would die of it.
    let settings =
        KindSettings { retry: Some(at_once(limits::MAX_ATTEMPTS)), ..KindSettings::new(queue("q")) };
    stores[0].put_kind(kind("k"), settings).await.expect("a kind");
    let mut tasks = tokio::task::JoinSet::new();
    for (process, store) in stores.iter().enumerate() {
        tasks.spawn(produce(store.clone(), made.clone()));
        for n in 0..2 {
            tasks.spawn(work(store.clone(), process as u64, n, judge.clone()));
        }
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    let completed = judge.completed.lock().expect("no panic").clone();
    assert_eq!(completed.len() as u64, PROCESSES * JOBS, "every job completed");
    assert!(completed.values().all(|n| *n == 1), "and once");
    let most = judge.most.load(Ordering::SeqCst);
    assert!(most > GROUP_LIMIT, "at most {most} jobs ran at once: the limits were not tried");
    for store in &stores {
        let totals = store.totals().await.expect("totals");
        assert_eq!((totals.completed, totals.ready, totals.running), (PROCESSES * JOBS, 0, 0));
        assert_eq!(store.digest().await.expect("a digest"), stores[0].digest().await.expect("a digest"));
    }
    every_finished_job_is_on_one_list(&schema).await;
}

async fn produce(store: PgStore, made: Arc<AtomicU64>) {
    for _ in 0..JOBS / 10 {
        let job = |_| {
            let n = made.fetch_add(1, Ordering::SeqCst);
            let mut job = NewJob::new(JobId::from_parts(now().0 as u64, u128::from(n)), kind("k"), json("1"));
            job.group = Some(group(&format!("g{}", n % 20)));
            job
        };
        store.enqueue((0..10).map(job).collect(), now()).await.expect("an enqueue");
    }
}

async fn work(store: PgStore, process: u64, n: u64, judge: Arc<Judge>) {
    let mut dice = Seed::new(process * 10 + n);
    loop {
        let claim = Claim {
            worker: worker(&format!("w{process}-{n}")),
            process: ProcessId(process),
            queues: vec![(queue("q"), 30)],
            max: 30,
            lease_ms: 600_000,
            now: now(),
        };
        let claimed = store.claim(claim).await.expect("a claim");
        if claimed.jobs.is_empty() {
            if judge.completed.lock().expect("no panic").len() as u64 == PROCESSES * JOBS {
                return;
            }
            tokio::task::yield_now().await;
            continue;
        }
        claimed.jobs.iter().for_each(|job| judge.start(job));
        let mut settlements = vec![];
        for job in &claimed.jobs {
            let outcome = match dice.below(10) {
                0 => Outcome::Release,
                1 => Outcome::Fail(Failure {
                    retry_at: Some(now()),
                    ..Failure::new(Category::TransientServer, "E", "again")
                }),
                _ => Outcome::Complete(None),
            };
            judge.end(job);
            settlements.push(Settlement { ticket: job.ticket, outcome });
        }
        let settled = store.settle(Settle { settlements, now: now(), seed: 1 }).await.expect("a settle");
        for (job, settled) in claimed.jobs.iter().zip(settled) {
            assert_ne!(settled, Settled::Stale, "nobody else had it");
            if settled == Settled::Applied(State::Completed) {
                *judge.completed.lock().expect("no panic").entry(job.id).or_default() += 1;
            }
        }
    }
}
