//! A worker as a whole: what it refuses to start with, the order it serves in, its limits, and when it is idle.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::testing::{self, TestTide};
use tidegate::{
    Context, Error, Failure, Job, ParkScope, Priority, QueueName, QueueSettings, State, Worker, codes, done,
};
use tidegate_core::job::Park;
use tidegate_core::registry::{Limiter, Retention};

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "task", queue = "work", timeout = "2h")]
struct Task {
    n: u32,
}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(queue = "work")]
struct Other;

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(queue = "elsewhere")]
struct Stray;

async fn nothing(_: Task, _: Context) {}

fn work() -> QueueName {
    QueueName::new("work").unwrap()
}

async fn set(tide: &TestTide, change: impl FnOnce(&mut QueueSettings)) {
    let mut settings = QueueSettings::default();
    change(&mut settings);
    tide.store().put_queue(work(), settings, tide.now()).await.unwrap();
}

/// A handler that takes this long, and the most of them that ran at once.
fn counting(span: Duration) -> (impl Fn(Task, Context) -> CountedRun + Clone + Send + Sync, Arc<AtomicU32>) {
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let peak = most.clone();
    let handler = move |_: Task, _: Context| -> CountedRun {
        let (now, most) = (now.clone(), most.clone());
        Box::pin(async move {
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(span).await;
            now.fetch_sub(1, Ordering::Relaxed);
        })
    };
    (handler, peak)
}

type CountedRun = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

#[tokio::test(start_paused = true)]
async fn a_worker_that_can_do_no_job_stops_and_the_job_goes_back() {
    let tide = testing::tide();
    tide.register::<Task>().await.unwrap();
    let id = tide.enqueue(Task { n: 1 }).await.unwrap().id;
    let unfit = async |_: Task, _: Context| -> tidegate::Outcome {
        Err(Failure::unfit(Error::new(codes::INVALID_SETTING, "there is no printer")))
    };
    let error = Worker::new(&tide).handle(unfit).run_until_idle().await.unwrap_err();
    assert_eq!((error.code, error.detail.as_str()), (codes::INVALID_SETTING, "there is no printer"));
    let job = tide.job(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempt), (State::Ready, 0));
    assert_eq!(Worker::new(&tide).handle(nothing).run_until_idle().await.unwrap().completed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lacks_something_leaves_its_jobs_as_they_are_and_rests() {
    let tide = testing::tide();
    tide.register::<Task>().await.unwrap();
    for n in 0..500 {
        tide.enqueue(Task { n }).max_attempts(1).await.unwrap();
    }
    let (tried, began) = (Arc::new(AtomicU32::new(0)), tokio::time::Instant::now());
    let seen = tried.clone();
    let handler = move |_: Task, _: Context| {
        seen.fetch_add(1, Ordering::Relaxed);
        let lacks = began.elapsed() < Duration::from_mins(1);
        async move { if lacks { Err(Failure::unready("the printer is off")) } else { done() } }
    };
    let report = Worker::new(&tide).concurrency(10).handle(handler).run_until_idle().await.unwrap();
    assert_eq!((report.completed, report.failed), (500, 0));
    let in_vain = tried.load(Ordering::Relaxed) - 500;
    assert!((10..30).contains(&in_vain), "it tried {in_vain} times in a minute");
    assert!(tide.elapsed_ms() < 66_000, "{}", tide.elapsed_ms());
}

/// What is claimed in vain counts for the limiter: it must be little.
#[tokio::test(start_paused = true)]
async fn a_worker_that_lacks_something_leaves_a_limiter_its_allowance() {
    let tide = testing::tide();
    tide.register::<Task>().await.unwrap();
    set(&tide, |s| s.limiter = Some(Limiter { max: 60, per_ms: 3_600_000 })).await;
    for n in 0..30 {
        tide.enqueue(Task { n }).await.unwrap();
    }
    let began = tokio::time::Instant::now();
    let handler = move |_: Task, _: Context| async move {
        tokio::time::sleep(Duration::from_millis(1)).await;
        if began.elapsed() < Duration::from_mins(1) { Err(Failure::unready("no line")) } else { done() }
    };
    let report = Worker::new(&tide).concurrency(10).handle(handler).run_until_idle().await.unwrap();
    assert_eq!(report.completed, 30);
    assert!(tide.elapsed_ms() < 66_000, "it waited for the limiter: {} ms", tide.elapsed_ms());
}

/// What ends a rest is an attempt that had what it needs: not another kind's, none that began before, none that was put off, asked to stop
/// or had no handler yet.
#[tokio::test(start_paused = true)]
async fn what_says_nothing_of_what_is_lacking_ends_no_rest() {
    let tide = testing::tide();
    tide.register::<Task>().await.unwrap();
    tide.enqueue(Task { n: 0 }).timeout("20s").await.unwrap();
    tide.enqueue(Task { n: 1 }).await.unwrap();
    for _ in 0..300 {
        tide.enqueue(Stray).await.unwrap();
    }
    for n in [2, 3] {
        tide.enqueue(Task { n }).timeout("2s").max_attempts(1).await.unwrap();
    }
    tide.enqueue_json("task", r#"{"n":"four"}"#).max_attempts(1).await.unwrap();
    let tried = Arc::new(AtomicU32::new(0));
    let seen = tried.clone();
    let handler = move |task: Task, cx: Context| {
        let seen = seen.clone();
        async move {
            match task.n {
                // It has what it needs since the beginning.
                0 => tokio::time::sleep(Duration::from_secs(10)).await,
                1 => return cx.snooze("1s", "not yet"),
                2 => tokio::time::sleep(Duration::from_hours(1)).await,
                _ => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    seen.fetch_add(1, Ordering::Relaxed);
                    return Err(Failure::unready("no line"));
                }
            }
            done()
        }
    };
    let strays = Arc::new(AtomicU32::new(0));
    let passed = strays.clone();
    let healthy = move |_: Stray, _: Context| {
        let passed = passed.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            passed.fetch_add(1, Ordering::Relaxed);
        }
    };
    let stop = tokio::time::sleep(Duration::from_mins(1));
    Worker::new(&tide).concurrency(4).handle(handler).handle(healthy).run_until(stop).await.unwrap();
    let tried = tried.load(Ordering::Relaxed);
    assert!((3..20).contains(&tried), "it tried {tried} times in a minute");
    assert_eq!(strays.load(Ordering::Relaxed), 300, "a healthy kind goes on");
}

#[tokio::test(start_paused = true)]
async fn handlers_and_kinds_must_match_at_start() {
    let tide = testing::tide();
    let none = Worker::new(&tide).run_until_idle().await.unwrap_err();
    assert!(none.detail.contains("no handlers"), "{none}");
    let two = Worker::new(&tide)
        .handle(nothing)
        .handle(async |_: Task, _| done())
        .run_until_idle()
        .await
        .unwrap_err();
    assert!(two.detail.contains("task has two handlers"), "{two}");
    tide.register::<Other>().await.unwrap();
    let missing = Worker::new(&tide).handle(nothing).run_until_idle().await.unwrap_err();
    assert!(missing.detail.contains("no handler for other"), "{missing}");
    assert_eq!([none.code, two.code, missing.code], [codes::HANDLERS_MISSING; 3]);
    let both = Worker::new(&tide).handle(nothing).handle(async |_: Other, _| done());
    both.run_until_idle().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_worker_leaves_no_kind_and_no_queue_behind() {
    let tide = testing::tide();
    let refused = Worker::new(&tide).handle(nothing).queue("nowhere");
    assert_eq!(refused.check().await.unwrap_err().code, codes::UNKNOWN_QUEUE);
    assert_eq!(refused.run_until_idle().await.unwrap_err().code, codes::UNKNOWN_QUEUE);
    assert!(tide.store().kinds().await.unwrap().is_empty());
    assert!(tide.store().settings().await.unwrap().is_empty());

    tide.register::<Other>().await.unwrap();
    let refused = Worker::new(&tide).handle(nothing);
    assert_eq!(refused.check().await.unwrap_err().code, codes::HANDLERS_MISSING);
    assert_eq!(refused.run_until_idle().await.unwrap_err().code, codes::HANDLERS_MISSING);
    let kinds: Vec<String> = tide.store().kinds().await.unwrap().iter().map(|k| k.name.to_string()).collect();
    assert_eq!(kinds, ["other"]);
}

#[tokio::test(start_paused = true)]
async fn settings_that_cannot_be_are_told_at_start() {
    let tide = testing::tide();
    let worker = || Worker::new(&tide).handle(nothing);
    for (worker, code) in [
        (worker().concurrency(0), codes::INVALID_SETTING),
        (worker().concurrency(1 << 30), codes::INVALID_SETTING),
        (worker().lease("1ms"), codes::INVALID_TIME),
        (worker().lease("2h"), codes::INVALID_TIME),
        (worker().grace("-1s"), codes::INVALID_TIME),
        (worker().drain("often"), codes::INVALID_TIME),
        (worker().memory_limit(0), codes::INVALID_SETTING),
        (worker().queue("a b"), codes::INVALID_NAME),
        (worker().queue("nowhere"), codes::UNKNOWN_QUEUE),
    ] {
        assert_eq!(worker.run_until_idle().await.unwrap_err().code, code);
    }
}

#[tokio::test(start_paused = true)]
async fn small_groups_are_not_starved_by_a_large_one() {
    let tide = testing::tide();
    for batch in 0..10 {
        let big = (0..10_000).map(|n| tide.enqueue(Task { n: batch * 10_000 + n }).group("big"));
        tide.enqueue_many(big).await.unwrap();
    }
    let small = (0..500).map(|n| tide.enqueue(Task { n }).group(format!("small-{}", n % 50)));
    tide.enqueue_many(small).await.unwrap();
    let (done, last_small) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (count, last) = (done.clone(), last_small.clone());
    let handler = move |_: Task, cx: Context| {
        let n = count.fetch_add(1, Ordering::Relaxed) + 1;
        if cx.group().as_str() != "big" {
            last.fetch_max(n, Ordering::Relaxed);
        }
        std::future::ready(())
    };
    let report = tide.run(Worker::new(&tide).handle(handler).concurrency(50)).await;
    assert_eq!(report.completed, 100_500);
    let last = last_small.load(Ordering::Relaxed);
    assert!(last <= 2_000, "the last small group was finished at completion {last}");
}

#[tokio::test(start_paused = true)]
async fn what_is_more_important_starts_first_even_when_it_comes_later() {
    let tide = testing::tide();
    tide.enqueue_many((0..20).map(|n| tide.enqueue(Task { n }).priority(Priority::Low))).await.unwrap();
    let order = Arc::new(Mutex::new(vec![]));
    let seen = order.clone();
    let handler = move |t: Task, _: Context| {
        seen.lock().unwrap().push(t.n);
        tokio::time::sleep(Duration::from_secs(10))
    };
    let run = tide.run(Worker::new(&tide).handle(handler).concurrency(2));
    let arrive = async {
        testing::advance("5s").await;
        tide.enqueue(Task { n: 100 }).priority(Priority::Critical).await.unwrap();
    };
    tokio::join!(run, arrive);
    assert_eq!(order.lock().unwrap()[..3], [0, 1, 100]);
}

#[tokio::test(start_paused = true)]
async fn prefetched_jobs_that_find_no_slot_are_given_back() {
    let tide = testing::tide();
    // 500 fast ones make the worker prefetch, then slow ones hold all its slots.
    tide.enqueue_many((0..500).map(|n| tide.enqueue(Task { n }))).await.unwrap();
    tide.enqueue_many((0..40).map(|n| tide.enqueue(Task { n: 1_000 + n }))).await.unwrap();
    let handler = async |t: Task, _: Context| {
        if t.n >= 1_000 {
            tokio::time::sleep(Duration::from_mins(10)).await;
        }
    };
    let run = Worker::new(&tide).handle(handler).concurrency(10).run_until(testing::advance("30s"));
    let look = async {
        testing::advance("1ms").await;
        let before = tide.store().totals().await.unwrap();
        testing::advance("5s").await;
        (before.running, tide.store().totals().await.unwrap().running)
    };
    let (report, (before, after)) = tokio::join!(run, look);
    assert!(
        before > 10 && before <= 30,
        "{before} held: not more than three times the free slots are claimed"
    );
    assert_eq!(after, 10, "only what runs is held");
    assert_eq!(report.unwrap().failed, 0);
}

#[tokio::test(start_paused = true)]
async fn concurrency_of_the_worker_and_of_its_queue_are_kept() {
    let tide = testing::tide();
    tide.register::<Task>().await.unwrap();
    let fill = async || tide.enqueue_many((0..60).map(|n| tide.enqueue(Task { n }))).await.unwrap();
    for (change, expected) in [
        (QueueSettings::default(), 8),
        (QueueSettings { worker_concurrency: Some(3), ..QueueSettings::default() }, 3),
        (QueueSettings { concurrency: Some(5), ..QueueSettings::default() }, 5),
        (QueueSettings { worker_concurrency: Some(100), ..QueueSettings::default() }, 8),
    ] {
        set(&tide, |s| *s = change).await;
        fill().await;
        let before = tide.elapsed_ms();
        let (handler, most) = counting(Duration::from_secs(1));
        let report = tide.run(Worker::new(&tide).handle(handler).concurrency(8)).await;
        assert_eq!((report.completed, most.load(Ordering::Relaxed)), (60, expected));
        // Work-conserving: a freed place is taken at once, not with the next poll.
        let took = tide.elapsed_ms() - before;
        let best = i64::from(60u32.div_ceil(expected)) * 1_000;
        assert!(took <= best + 100, "{took} ms, {best} ms would do");
    }
}

#[tokio::test(start_paused = true)]
async fn limits_cost_fast_handlers_no_time() {
    for settings in [
        QueueSettings { concurrency: Some(5), ..QueueSettings::default() },
        QueueSettings { worker_concurrency: Some(5), ..QueueSettings::default() },
        QueueSettings { group_concurrency: Some(5), ..QueueSettings::default() },
        QueueSettings { limiter: Some(Limiter { max: 100_000, per_ms: 60_000 }), ..QueueSettings::default() },
    ] {
        let tide = testing::tide();
        tide.register::<Task>().await.unwrap();
        set(&tide, |s| *s = settings).await;
        tide.enqueue(Stray).await.unwrap();
        for _ in 0..3 {
            tide.enqueue_many((0..1_000).map(|n| tide.enqueue(Task { n }).group("acme"))).await.unwrap();
        }
        let worker = Worker::new(&tide).handle(nothing).handle(async |_: Stray, _| done()).concurrency(20);
        assert_eq!(tide.run(worker).await.completed, 3_001);
        assert_eq!(tide.elapsed_ms(), 0, "no claim waited for a poll");
    }
}

#[tokio::test(start_paused = true)]
async fn group_limits_are_kept_and_freed_places_are_taken_at_once() {
    let tide = testing::tide();
    tide.register::<Task>().await.unwrap();
    set(&tide, |s| s.group_concurrency = Some(2)).await;
    tide.enqueue_many((0..20).map(|n| tide.enqueue(Task { n }).group("acme"))).await.unwrap();
    let (handler, most) = counting(Duration::from_secs(1));
    tide.run(Worker::new(&tide).handle(handler).concurrency(8)).await;
    assert_eq!((most.load(Ordering::Relaxed), tide.elapsed_ms()), (2, 10_000));
}

#[tokio::test(start_paused = true)]
async fn a_limiter_is_never_overrun_and_wastes_no_time() {
    let tide = testing::tide();
    tide.register::<Task>().await.unwrap();
    set(&tide, |s| s.limiter = Some(Limiter { max: 10, per_ms: 1_000 })).await;
    tide.enqueue_many((0..100).map(|n| tide.enqueue(Task { n }))).await.unwrap();
    let starts = Arc::new(Mutex::new(vec![]));
    let seen = starts.clone();
    let handler = move |_: Task, cx: Context| {
        seen.lock().unwrap().push(cx.now().0);
        std::future::ready(())
    };
    let report = tide.run(Worker::new(&tide).handle(handler).concurrency(50)).await;
    assert_eq!(report.completed, 100);
    let starts = starts.lock().unwrap();
    for (i, start) in starts.iter().enumerate() {
        let in_window = starts[i..].iter().take_while(|s| **s < start + 1_000).count();
        assert!(in_window <= 10, "{in_window} starts in one second");
    }
    assert!((9_000..=9_500).contains(&tide.elapsed_ms()), "{}", tide.elapsed_ms());
}

#[tokio::test(start_paused = true)]
async fn idle_waits_for_what_comes_by_itself_and_for_nothing_else() {
    let tide = testing::tide();
    tide.register::<Task>().await.unwrap();
    let delayed = tide.enqueue(Task { n: 1 }).delay("3h").await.unwrap();
    let park = |scope, by: &str, until| Park { scope, by: by.into(), reason: "month end".into(), until };
    let store = tide.store();
    let group = |g: &str| ParkScope::Group(tidegate::GroupKey::new(g).unwrap());
    store.park(park(group("parked"), "ada", None), tide.now()).await.unwrap();
    store
        .park(park(group("till-noon"), "ada", Some(testing::EPOCH.plus_ms(43_200_000))), tide.now())
        .await
        .unwrap();
    let stays = tide.enqueue(Task { n: 2 }).group("parked").await.unwrap();
    let comes = tide.enqueue(Task { n: 3 }).group("till-noon").await.unwrap();
    let report = tide.run(Worker::new(&tide).handle(nothing)).await;
    assert_eq!((report.completed, tide.elapsed_ms()), (2, 43_200_000));
    let state = async |id| tide.job(id).await.unwrap().unwrap().state;
    assert_eq!(state(delayed.id).await, State::Completed);
    assert_eq!(state(comes.id).await, State::Completed);
    assert_eq!(state(stays.id).await, State::Ready);

    store.park(park(ParkScope::Queue(work()), "ada", None), tide.now()).await.unwrap();
    tide.enqueue(Task { n: 4 }).await.unwrap();
    tide.enqueue(Task { n: 5 }).delay("5h").await.unwrap();
    let report = tide.run(Worker::new(&tide).handle(nothing)).await;
    assert_eq!((report.completed, tide.elapsed_ms()), (0, 43_200_000));
}

#[tokio::test(start_paused = true)]
async fn a_short_delay_does_not_wait_for_the_next_poll() {
    let tide = testing::tide();
    let run = Worker::new(&tide).handle(nothing).run_until(testing::advance("10s"));
    let late = async {
        // Just after a poll, so that the next one is almost a second away.
        testing::advance("3010ms").await;
        let job = tide.enqueue(Task { n: 1 }).delay("200ms").await.unwrap();
        tide.wait(job.id, "5s").await.unwrap().finished_at.unwrap().since(testing::EPOCH)
    };
    let (report, ended) = tokio::join!(run, late);
    assert_eq!((report.unwrap().completed, ended), (1, 3_210));
}

#[tokio::test(start_paused = true)]
async fn a_job_of_a_kind_without_handler_waits_for_another_worker() {
    let tide = testing::tide();
    tide.register::<Task>().await.unwrap();
    let stray = tide.enqueue(Stray).queue("work").await.unwrap();
    let run = Worker::new(&tide).handle(nothing).run_until(testing::advance("45s")).await.unwrap();
    assert_eq!((run.snoozed, run.failed), (2, 0));
    let report = tide.run(Worker::new(&tide).handle(async |_: Stray, _| done()).queue("elsewhere")).await;
    assert_eq!(report.completed, 0);
    let helper = Worker::new(&tide).handle(async |_: Stray, _| done()).handle(nothing);
    assert_eq!(tide.run(helper).await.completed, 1);
    assert_eq!(tide.job(stray.id).await.unwrap().unwrap().attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_while_memory_is_short() {
    let tide = testing::tide();
    tide.enqueue(Task { n: 1 }).await.unwrap();
    // A limit that this process exceeds from the beginning.
    let short = Worker::new(&tide)
        .handle(nothing)
        .memory_limit(4_096)
        .run_until(testing::advance("1m"))
        .await
        .unwrap();
    assert_eq!(short.completed, 0);
    let ample = Worker::new(&tide).handle(nothing).memory_limit(1 << 50);
    assert_eq!(tide.run(ample).await.completed, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_past_its_retention_is_pruned_while_the_worker_runs() {
    let tide = testing::tide();
    tide.register::<Task>().await.unwrap();
    set(&tide, |s| s.retention = Retention { count: 100, age_ms: 3_600_000 }).await;
    tide.enqueue_many((0..3_000).map(|n| tide.enqueue(Task { n }))).await.unwrap();
    Worker::new(&tide).handle(nothing).run_until(testing::advance("1m")).await.unwrap();
    assert_eq!(tide.store().totals().await.unwrap().completed, 100);
    Worker::new(&tide).handle(nothing).run_until(testing::advance("61m")).await.unwrap();
    assert_eq!(tide.store().totals().await.unwrap().completed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_the_job_does() {
    let tide = testing::tide();
    let job = tide.enqueue(Task { n: 1 }).await.unwrap();
    let (handler, _) = counting(Duration::from_secs(7));
    let run = tide.run(Worker::new(&tide).handle(handler));
    let wait = async {
        let early = tide.wait(job.id, "2s").await.unwrap();
        assert_eq!((early.state, tide.elapsed_ms()), (State::Running, 2_000));
        let end = tide.wait(job.id, "1h").await.unwrap();
        assert_eq!((end.state, tide.elapsed_ms() <= 7_010), (State::Completed, true));
    };
    tokio::join!(run, wait);
    let unknown = "job_01JD0000000000000000000000".parse().unwrap();
    assert_eq!(tide.wait(unknown, "1s").await.unwrap_err().code, codes::JOB_NOT_FOUND);
}
