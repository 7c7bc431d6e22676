//! Many letters at once: recovered at the rate at which the store takes jobs, and looked at by several processes.
//! `TIDEGATE_LETTERS` says how many.

use std::sync::Arc;
use std::time::Instant;

use tidegate_conformance::Harness;
use tidegate_conformance::kit::{START, job_id, kind, queue, worker};
use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::ProcessId;
use tidegate_core::job::{Review, State};
use tidegate_core::letters::EVERY_MS;
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_store::Store;
use tidegate_store::params::{
    CauseQuery, Claim, JobQuery, NewJob, Outcome, ProcessLetters, Recover, Recovered, Settle, Settlement,
};

use crate::common::Sqlite;
use crate::pg::{Postgres, connect, fresh_schema};

/// As the command line does it.
const STEP: usize = 1_000;

fn letters() -> u64 {
    std::env::var("TIDEGATE_LETTERS").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000)
}

async fn enqueue(store: &dyn Store, first: u64, n: u64) {
    let ids: Vec<u64> = (first..first + n).collect();
    for batch in ids.chunks(STEP) {
        let job = |n: &u64| NewJob::new(job_id(*n), kind("k"), Payload::trusted(format!("{{\"n\":{n}}}")));
        store.enqueue(batch.iter().map(job).collect(), START).await.expect("stored");
    }
}

/// Lets everything that is ready die.
async fn kill_all(store: &dyn Store, category: Category) {
    loop {
        let claim = Claim {
            worker: worker("w"),
            process: ProcessId(1),
            queues: vec![(queue("q"), 1_000)],
            max: 1_000,
            lease_ms: limits::DEFAULT_LEASE_MS,
            now: START,
        };
        let jobs = store.claim(claim).await.expect("answered").jobs;
        if jobs.is_empty() {
            return;
        }
        let fail = |seq: i64| Outcome::Fail(Failure::new(category, "E", format!("order {seq} is gone")));
        let settlements =
            jobs.iter().map(|j| Settlement { ticket: j.ticket, outcome: fail(j.ticket.seq.0) }).collect();
        store.settle(Settle { settlements, now: START, seed: 1 }).await.expect("answered");
    }
}

async fn set_up(store: &dyn Store) {
    store.put_queue(queue("q"), QueueSettings::default(), START).await.expect("a queue");
    let retry = Some(tidegate_conformance::kit::at_once(2));
    store.put_kind(kind("k"), KindSettings { retry, ..KindSettings::new(queue("q")) }).await.expect("a kind");
}

async fn recover_many(name: &str, store: Arc<dyn Store>) {
    let n = letters();
    set_up(&*store).await;
    let began = Instant::now();
    enqueue(&*store, 1, n).await;
    let enqueued = n as f64 / began.elapsed().as_secs_f64();
    kill_all(&*store, Category::InvalidInput).await;
    let began = Instant::now();
    let causes = store.causes(CauseQuery { limit: 10, ..CauseQuery::default() }).await.expect("answered");
    let causes_ms = began.elapsed().as_millis();
    assert_eq!((causes.causes.len(), causes.total), (1, n), "one cause, one row");
    let began = Instant::now();
    let mut query = JobQuery {
        states: vec![State::Dead],
        review: Some(Review::PendingReview),
        limit: limits::MAX_PAGE,
        ..JobQuery::default()
    };
    let mut dead = vec![];
    loop {
        let page = store.search(query.clone()).await.expect("answered");
        dead.extend(page.jobs.iter().map(|job| job.id));
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    let found = began.elapsed();
    assert_eq!(dead.len() as u64, n);
    let began = Instant::now();
    let mut fresh = 1_000_000_000;
    for step in dead.chunks(STEP) {
        let recover = |dead: &_| {
            fresh += 1;
            Recover { dead: *dead, new_id: job_id(fresh) }
        };
        let replies = store.recover(step.iter().map(recover).collect(), START).await.expect("answered");
        assert!(replies.iter().all(|reply| matches!(reply, Recovered::As(_))));
    }
    let wrote = began.elapsed();
    let totals = store.totals().await.expect("answered");
    assert_eq!((totals.ready, totals.dead), (n, n));
    let (written, whole) = (n as f64 / wrote.as_secs_f64(), n as f64 / (found + wrote).as_secs_f64());
    println!(
        "{{\"store\":\"{name}\",\"letters\":{n},\"enqueued_per_s\":{enqueued:.0},\"recovered_per_s\":{written:.0},\
         \"found_and_recovered_per_s\":{whole:.0},\"ratio\":{:.2},\"ratio_with_finding\":{:.2},\"causes_ms\":{causes_ms}}}",
        written / enqueued,
        whole / enqueued,
    );
}

#[tokio::test]
async fn many_letters_are_found_counted_and_recovered_on_sqlite() {
    let harness = Sqlite::open();
    recover_many("sqlite", harness.store()).await;
}

#[tokio::test]
async fn many_letters_are_found_counted_and_recovered_on_postgres() {
    let harness = Postgres::open().await;
    recover_many("postgres", harness.store()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processors_of_several_processes_do_each_letter_once() {
    let (schema, n) = (fresh_schema(), 350);
    let mut stores: Vec<Arc<dyn Store>> = vec![];
    for _ in 0..3 {
        stores.push(Arc::new(connect(&schema, START).await));
    }
    set_up(&*stores[0]).await;
    enqueue(&*stores[0], 1, n).await;
    for _ in 0..2 {
        kill_all(&*stores[0], Category::TransientServer).await;
    }
    let runs: Vec<_> = stores
        .iter()
        .cloned()
        .map(|store| {
            tokio::spawn(async move {
                let mut retried = 0;
                for _ in 0..6 {
                    let step =
                        ProcessLetters { every_ms: EVERY_MS, at_once: true, now: START.plus_ms(1_000) };
                    retried += store.process_letters(step).await.expect("answered").retried;
                }
                retried
            })
        })
        .collect();
    let mut retried = 0;
    for run in runs {
        retried += run.await.expect("no panic");
    }
    let totals = stores[1].totals().await.expect("answered");
    assert_eq!((retried, totals.ready, totals.dead), (n, n, n), "each of them once");
}
