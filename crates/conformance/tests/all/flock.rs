//! Machines that follow each other: the suite, random histories and interleaved workers over a flock.

use std::sync::Arc;

use crate::common::Memory;
use async_trait::async_trait;
use tidegate_conformance::flock::{Flock, FlockHarness, Leading};
use tidegate_conformance::kit::{START, World, at_once, job_id, json, kind, queue};
use tidegate_conformance::{Harness, differential, properties};
use tidegate_core::failure::Category;
use tidegate_core::job::OnDead;
use tidegate_core::letters::EVERY_MS;
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::time::Timestamp;
use tidegate_store::params::{NewJob, ProcessLetters};
use tidegate_store::{Jobs, Letters, Registry, Store};

const OPERATIONS: usize = 300;

fn flock(leading: Leading, seed: u64) -> FlockHarness {
    FlockHarness(Arc::new(Flock::open(leading, seed)))
}

async fn open() -> FlockHarness {
    flock(Leading::One, 0)
}

tidegate_conformance::suite!(one_leads, super::open);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds() -> std::ops::Range<u64> {
    match number("TIDEGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TIDEGATE_HISTORIES").unwrap_or(20),
    }
}

/// The reference model, which is never restarted.
struct Steady(Memory);

#[async_trait]
impl Harness for Steady {
    fn store(&self) -> Arc<dyn Store> {
        self.0.store()
    }

    async fn restart(&mut self, _now: Timestamp) {}
}

/// A flock in which a restart is only a rebuild, and no time passes by it. Where one leads, the rebuilt machine is looked
/// at and dropped.
struct Rebuilt(FlockHarness);

#[async_trait]
impl Harness for Rebuilt {
    fn store(&self) -> Arc<dyn Store> {
        self.0.store()
    }

    async fn restart(&mut self, _now: Timestamp) {
        self.0.0.rebuild_one();
    }
}

#[tokio::test]
async fn a_machine_that_others_follow_answers_as_one_alone() {
    for seed in seeds() {
        let mut led = Rebuilt(flock(Leading::One, seed));
        let verdict = differential::compare(&mut Steady(Memory::open()), &mut led, seed, OPERATIONS).await;
        verdict.unwrap_or_else(|mismatch| panic!("{mismatch}"));
    }
}

#[tokio::test]
async fn machines_that_take_turns_know_the_same_after_every_step() {
    for seed in seeds() {
        println!("TIDEGATE_SEED={seed}");
        differential::run(&mut flock(Leading::Turns, seed), seed, 2 * OPERATIONS).await;
    }
}

#[tokio::test]
async fn machines_that_take_turns_keep_every_promise_to_interleaved_workers() {
    for seed in seeds() {
        let run = properties::run(&mut Rebuilt(flock(Leading::Turns, seed)), seed, 500).await;
        run.unwrap_or_else(|broken| panic!("{broken}"));
    }
}

#[tokio::test]
async fn a_large_batch_takes_little_more_than_its_ids() {
    let flock = Flock::open(Leading::One, 0);
    flock.put_queue(queue("q"), QueueSettings::default(), START).await.unwrap();
    flock.put_kind(kind("k"), KindSettings::new(queue("q"))).await.unwrap();
    let before = flock.bytes();
    let batch = |n: u64| NewJob::new(job_id(n), kind("k"), json("{\"some\":\"payload\"}"));
    flock.enqueue((1..=10_000).map(batch).collect(), START.plus_ms(5)).await.unwrap();
    let bytes = flock.bytes() - before;
    println!("{bytes} bytes for 10,000 jobs");
    assert!(bytes < 160_100, "{bytes} bytes for 10,000 ids of 16 bytes");
}

/// Who waits for a letter is looked at only if it runs again.
#[tokio::test]
async fn who_waits_for_a_letter_that_is_given_up_is_not_read() {
    let flock = Arc::new(Flock::open(Leading::One, 0));
    let mut w = World::new(FlockHarness(flock.clone())).await;
    let process = async |w: &World| {
        let before = flock.edges_fetched();
        let step = ProcessLetters { every_ms: EVERY_MS, at_once: true, now: w.now };
        (flock.process_letters(step).await.unwrap(), flock.edges_fetched() - before)
    };
    w.kind("k", "q", |k| k.retry = Some(at_once(2))).await;
    let parents = w.add_many(10, |_, _| ()).await;
    w.add_many(10, |_, job| (job.after, job.on_dead) = (parents.clone(), OnDead::Wait)).await;
    for category in [Category::TransientServer, Category::InvalidInput] {
        for job in w.claim(10).await.jobs {
            w.fail(&job, category).await;
        }
    }
    w.pass(8 * 24 * 3_600_000);
    let (done, edges) = process(&w).await;
    assert_eq!((done.abandoned, edges), (10, 0));

    let parents = w.add_many(10, |_, _| ()).await;
    w.add_many(10, |_, job| (job.after, job.on_dead) = (parents.clone(), OnDead::Wait)).await;
    for _ in 0..2 {
        for job in w.claim(10).await.jobs {
            w.fail(&job, Category::TransientServer).await;
        }
    }
    let (done, edges) = process(&w).await;
    assert_eq!((done.retried, edges), (10, 100), "those of each letter that runs again, once");
}
