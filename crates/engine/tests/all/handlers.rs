//! What becomes of an attempt: done, retried, dead, snoozed, timed out, cancelled. All in virtual time.

use std::error::Error as StdError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::testing::{self, TestTide};
use tidegate::{
    Backoff, CancelReply, Category, Classify, Context, Failure, Jitter, Job, Outcome, ParkScope, RetryPolicy,
    State, StopReason, Timestamp, Worker, done, done_with,
};

/// A trace context.
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "task", timeout = "30s")]
struct Task {
    n: u32,
}

fn exactly(max_attempts: u32, backoff: Backoff) -> RetryPolicy {
    RetryPolicy { max_attempts, backoff, jitter: Jitter::None, retry_on: vec![], no_retry_on: vec![] }
}

async fn view(tide: &TestTide, id: tidegate::JobId) -> tidegate::JobView {
    tide.job(id).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept_with_the_job() {
    let tide = testing::tide();
    let job = tide.enqueue(Task { n: 20 }).await.unwrap();
    let report = tide.run(Worker::new(&tide).handle(async |t: Task, _| done_with(t.n + 1))).await;
    assert_eq!(report.completed, 1);
    let job = view(&tide, job.id).await;
    assert_eq!((job.state, job.result.unwrap().as_str()), (State::Completed, "21"));
}

#[tokio::test(start_paused = true)]
async fn every_return_type_of_a_handler_works() {
    #[derive(Serialize, Deserialize, Job)]
    struct A;
    #[derive(Serialize, Deserialize, Job)]
    struct B;
    #[derive(Serialize, Deserialize, Job)]
    struct C;
    async fn a(_: A, _: Context) -> Result<(), Failure> {
        Ok(())
    }
    async fn b(_: B, _: Context) -> Result<(), std::num::ParseIntError> {
        "7".parse::<u32>().map(|_| ())
    }
    async fn c(_: C, _: Context) {}
    let tide = testing::tide();
    tide.enqueue(A).await.unwrap();
    tide.enqueue(B).await.unwrap();
    tide.enqueue(C).await.unwrap();
    let report = tide.run(Worker::new(&tide).handle(a).handle(b).handle(c)).await;
    assert_eq!(report.completed, 3);
}

#[tokio::test(start_paused = true)]
async fn retries_come_when_the_policy_says() {
    let tide = testing::tide();
    let policy = exactly(4, Backoff::Exponential { base_ms: 60_000, factor: 2.0, cap_ms: 3_600_000 });
    let job = tide.enqueue(Task { n: 1 }).retry(policy).await.unwrap();
    let starts = Arc::new(Mutex::new(vec![]));
    let seen = starts.clone();
    let fails = move |_: Task, cx: Context| {
        seen.lock().unwrap().push(cx.now().since(testing::EPOCH));
        async { Outcome::Err(Failure::network("ECONNRESET", "reset")) }
    };
    let report = tide.run(Worker::new(&tide).handle(fails)).await;
    assert_eq!(*starts.lock().unwrap(), [0, 60_000, 180_000, 420_000]);
    assert_eq!((report.failed, report.retried, report.dead), (4, 3, 1));
    let job = view(&tide, job.id).await;
    assert_eq!((job.state, job.attempt, job.errors.len()), (State::Dead, 4, 4));
}

#[tokio::test(start_paused = true)]
async fn a_short_retry_does_not_wait_for_the_next_poll() {
    let tide = testing::tide();
    tide.enqueue(Task { n: 1 }).retry(exactly(2, Backoff::Fixed { delay_ms: 130 })).await.unwrap();
    let once = async |_: Task, cx: Context| match cx.attempt() {
        1 => Err(Failure::logic("FIRST", "not yet")),
        _ => done_with(cx.now().since(testing::EPOCH)),
    };
    let report = tide.run(Worker::new(&tide).handle(once)).await;
    assert_eq!((report.completed, report.retried), (1, 1));
    assert!(tide.elapsed_ms() < 250, "{}", tide.elapsed_ms());
}

#[tokio::test(start_paused = true)]
async fn a_server_named_delay_is_obeyed() {
    let tide = testing::tide();
    tide.enqueue(Task { n: 1 }).await.unwrap();
    let throttled = async |_: Task, cx: Context| match cx.attempt() {
        1 => Err(Failure::throttled("slow down").retry_after(Duration::from_mins(15))),
        _ => done(),
    };
    tide.run(Worker::new(&tide).handle(throttled)).await;
    assert!((900_000..=1_000_000).contains(&tide.elapsed_ms()), "{}", tide.elapsed_ms());
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_retried_then_dead_and_hurts_nobody_else() {
    let tide = testing::tide();
    let poison = tide.enqueue(Task { n: 0 }).await.unwrap();
    let fine = tide.enqueue(Task { n: 1 }).await.unwrap();
    let handler = async |t: Task, _: Context| {
        // One panic at the first step, the others after a wait: both paths catch it.
        if t.n == 0 {
            static TIMES: AtomicU32 = AtomicU32::new(0);
            if TIMES.fetch_add(1, Ordering::Relaxed) > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            panic!("boom {}", t.n);
        }
        done()
    };
    let report = tide.run(Worker::new(&tide).handle(handler)).await;
    assert_eq!((report.panics, report.dead, report.completed), (3, 1, 1));
    let dead = view(&tide, poison.id).await;
    let letter = dead.dead.unwrap();
    assert_eq!((letter.category, letter.code.as_str()), (Category::LogicError, "PANIC"));
    assert!(letter.message.contains("boom 0"), "{}", letter.message);
    assert_eq!(view(&tide, fine.id).await.state, State::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_snooze_spends_no_attempt() {
    let tide = testing::tide();
    let job = tide.enqueue(Task { n: 1 }).max_attempts(1).await.unwrap();
    let times = Arc::new(AtomicU32::new(0));
    let handler = move |_: Task, cx: Context| {
        let n = times.fetch_add(1, Ordering::Relaxed);
        async move {
            assert_eq!(cx.attempt(), 1);
            if n < 3 {
                // Through `?`, as from a function that a handler calls.
                cx.snooze("5m", "the shop is closed")?;
            }
            done()
        }
    };
    let report = tide.run(Worker::new(&tide).handle(handler)).await;
    assert_eq!((report.snoozed, report.completed, report.failed, report.panics), (3, 1, 0, 0));
    assert_eq!(tide.elapsed_ms(), 900_000);
    let job = view(&tide, job.id).await;
    assert_eq!((job.attempt, job.snoozes, job.snooze_reason.as_deref()), (1, 3, Some("the shop is closed")));
}

#[tokio::test(start_paused = true)]
async fn a_snooze_that_cannot_be_is_a_failure_that_says_so() {
    let tide = testing::tide();
    let job = tide.enqueue(Task { n: 1 }).max_attempts(1).await.unwrap();
    tide.run(Worker::new(&tide).handle(async |_: Task, cx: Context| cx.snooze("soon", "?"))).await;
    let letter = view(&tide, job.id).await.dead.unwrap();
    assert_eq!(letter.code, "TG2005");
    assert!(letter.message.contains("soon"), "{}", letter.message);
}

#[tokio::test(start_paused = true)]
async fn snooze_and_park_stops_the_whole_scope_in_one_write() {
    let tide = testing::tide();
    tide.enqueue_many((0..20).map(|n| tide.enqueue(Task { n }).tenant("acme"))).await.unwrap();
    let other = tide.enqueue(Task { n: 99 }).tenant("other").await.unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let seen = calls.clone();
    let handler = move |_: Task, cx: Context| {
        let refused = cx.group().as_str() == "acme" && cx.now().since(testing::EPOCH) < 60_000;
        seen.fetch_add(u32::from(refused), Ordering::Relaxed);
        async move {
            if refused {
                let scope = ParkScope::Group(cx.group().clone());
                return cx.snooze_and_park(scope, testing::EPOCH.plus_ms(60_000), "budget used up");
            }
            done()
        }
    };
    let report = tide.run(Worker::new(&tide).handle(handler).concurrency(1)).await;
    assert_eq!(report.completed, 21);
    assert!(
        calls.load(Ordering::Relaxed) <= 2,
        "{} jobs were claimed in vain",
        calls.load(Ordering::Relaxed)
    );
    assert!(view(&tide, other.id).await.finished_at.unwrap().since(testing::EPOCH) < 60_000);
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_does_not_fit_is_dead_at_once() {
    let tide = testing::tide();
    tide.register::<Task>().await.unwrap();
    let job = tide.enqueue_json("task", r#"{"n":"seven"}"#).await.unwrap();
    let report = tide.run(Worker::new(&tide).handle(async |_: Task, _| done())).await;
    assert_eq!((report.dead, report.completed), (1, 0));
    let letter = view(&tide, job.id).await.dead.unwrap();
    assert_eq!((letter.category, letter.code.as_str()), (Category::InvalidInput, "INVALID_PAYLOAD"));
}

#[derive(Debug)]
struct Revoked;

impl std::fmt::Display for Revoked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the grant is revoked")
    }
}

impl StdError for Revoked {}

#[tokio::test(start_paused = true)]
async fn a_type_can_say_its_own_category() {
    async fn handler(t: Task, _: Context) -> Outcome {
        if t.n == 0 {
            Err(Revoked)?;
        }
        Err("x").or_fail(Category::PermanentConfig, "NO_KEY")
    }
    let tide = testing::tide();
    let ruled = tide.enqueue(Task { n: 0 }).await.unwrap();
    let said = tide.enqueue(Task { n: 1 }).await.unwrap();
    let rule = |e: &(dyn StdError + 'static)| e.is::<Revoked>().then_some(Category::PermanentAuth);
    let report = tide.run(Worker::new(&tide).handle(handler).classify(rule)).await;
    assert_eq!(report.dead, 2);
    let letter = view(&tide, ruled.id).await.dead.unwrap();
    assert_eq!((letter.category, letter.message.as_str()), (Category::PermanentAuth, "the grant is revoked"));
    let letter = view(&tide, said.id).await.dead.unwrap();
    assert_eq!((letter.category, letter.code.as_str()), (Category::PermanentConfig, "NO_KEY"));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_asks_first_and_a_handler_that_listens_ends_in_the_grace_period() {
    let tide = testing::tide();
    let job = tide.enqueue(Task { n: 1 }).timeout("10s").max_attempts(1).await.unwrap();
    let handler = async |_: Task, cx: Context| {
        assert_eq!(cx.deadline().since(cx.now()), 10_000);
        cx.cancelled().await;
        assert_eq!(cx.stop_reason(), Some(StopReason::TimedOut));
        assert_eq!(cx.now().since(testing::EPOCH), 10_000);
        tokio::time::sleep(Duration::from_secs(1)).await;
        Err::<(), _>(Failure::logic("STOPPED", "asked to stop"))
    };
    let report = tide.run(Worker::new(&tide).handle(handler).grace("5s")).await;
    assert_eq!((report.timeouts, report.dead, report.panics), (1, 1, 0));
    assert_eq!(tide.elapsed_ms(), 11_000);
    let letter = view(&tide, job.id).await.dead.unwrap();
    assert_eq!((letter.category, letter.code.as_str()), (Category::LogicError, "TIMEOUT"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_listen_is_aborted_after_the_grace_period() {
    struct Dropped(Arc<AtomicU32>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let tide = testing::tide();
    tide.enqueue(Task { n: 1 }).timeout("10s").max_attempts(1).await.unwrap();
    let drops = Arc::new(AtomicU32::new(0));
    let held = drops.clone();
    let handler = move |_: Task, _: Context| {
        let held = Dropped(held.clone());
        async move {
            std::future::pending::<()>().await;
            drop(held);
            done()
        }
    };
    let report = tide.run(Worker::new(&tide).handle(handler).grace("5s")).await;
    assert_eq!((report.timeouts, report.dead), (1, 1));
    assert_eq!((tide.elapsed_ms(), drops.load(Ordering::Relaxed)), (15_000, 1));
}

#[tokio::test(start_paused = true)]
async fn work_that_was_finished_in_the_grace_period_counts() {
    let tide = testing::tide();
    let job = tide.enqueue(Task { n: 1 }).timeout("10s").await.unwrap();
    let slow = async |_: Task, _: Context| {
        tokio::time::sleep(Duration::from_secs(12)).await;
        done()
    };
    tide.run(Worker::new(&tide).handle(slow)).await;
    assert_eq!(view(&tide, job.id).await.state, State::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_a_running_handler_at_once() {
    let tide = testing::tide();
    let job = tide.enqueue(Task { n: 1 }).await.unwrap();
    let handler = async |_: Task, cx: Context| {
        cx.cancelled().await;
        assert_eq!(cx.stop_reason(), Some(StopReason::Cancelled));
        done_with("ignored").and(Err::<(), _>(Failure::logic("STOPPED", "asked to stop")))
    };
    let run = tide.run(Worker::new(&tide).handle(handler));
    let cancel = async {
        testing::advance("3s").await;
        assert_eq!(tide.cancel(job.id, "ada: wrong order").await.unwrap(), CancelReply::Requested);
    };
    let (report, ()) = tokio::join!(run, cancel);
    assert_eq!((report.cancelled, report.failed, report.panics), (1, 0, 0));
    assert_eq!(view(&tide, job.id).await.finished_at, Some(testing::EPOCH.plus_ms(3_000)));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_handler_that_does_not_listen_is_aborted() {
    let tide = testing::tide();
    let job = tide.enqueue(Task { n: 1 }).await.unwrap();
    let run = tide
        .run(Worker::new(&tide).handle(async |_: Task, _| std::future::pending::<()>().await).grace("2s"));
    let cancel = async {
        testing::advance("1s").await;
        tide.cancel(job.id, "enough").await.unwrap();
        tide.wait(job.id, "1m").await.unwrap()
    };
    let (report, seen) = tokio::join!(run, cancel);
    assert_eq!((report.cancelled, seen.state), (1, State::Cancelled));
    assert_eq!(seen.finished_at, Some(testing::EPOCH.plus_ms(3_000)));
}

#[tokio::test(start_paused = true)]
async fn progress_and_log_are_seen_while_it_runs() {
    let tide = testing::tide();
    let job = tide.enqueue(Task { n: 1 }).traceparent(TRACE).await.unwrap();
    let handler = async |_: Task, cx: Context| {
        assert_eq!(cx.traceparent(), Some(TRACE));
        cx.progress(0.5, "rendered").await?;
        for n in 0..150 {
            cx.log(format!("line {n} {}", "x".repeat(2_000))).await?;
        }
        assert!(cx.progress(1.5, "more than all").await.is_err());
        tokio::time::sleep(Duration::from_secs(5)).await;
        done()
    };
    let run = tide.run(Worker::new(&tide).handle(handler));
    let look = async {
        testing::advance("2s").await;
        let seen = view(&tide, job.id).await;
        assert_eq!((seen.state, seen.progress.unwrap().note.as_str()), (State::Running, "rendered"));
        assert_eq!(seen.log.len(), 100);
        assert!(seen.log[99].line.starts_with("line 149") && seen.log[99].line.len() <= 1_024);
    };
    let (report, ()) = tokio::join!(run, look);
    assert_eq!(report.completed, 1);
}

#[test]
fn two_runs_of_one_test_are_the_same() {
    async fn once() -> (Vec<(String, Timestamp)>, i64) {
        let tide = testing::tide();
        let jobs = (0..50).map(|n| tide.enqueue(Task { n }).tenant(format!("t{}", n % 7)));
        let ids = tide.enqueue_many(jobs).await.unwrap();
        let flaky = async |t: Task, cx: Context| {
            tokio::time::sleep(Duration::from_millis(u64::from(t.n) * 3)).await;
            if cx.attempt() == 1 && t.n.is_multiple_of(3) {
                Err(Failure::network("E", "flaky"))
            } else {
                done()
            }
        };
        tide.run(Worker::new(&tide).handle(flaky).concurrency(5)).await;
        let mut ends = vec![];
        for job in ids {
            let job = view(&tide, job.id).await;
            ends.push((job.id.to_string(), job.finished_at.unwrap()));
        }
        (ends, tide.elapsed_ms())
    }
    assert_eq!(testing::block_on(once()), testing::block_on(once()));
}
