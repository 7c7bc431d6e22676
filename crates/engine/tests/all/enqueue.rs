//! Into the store: unique keys, batches, and everything that must be refused with a code and a hint.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::codes::{self, Code};
use tidegate::testing::{self, TestTide};
use tidegate::{
    Backoff, Context, Enqueue, EnqueueOutcome, Jitter, Job, JobId, Millis, OnConflict, Priority, RetryPolicy,
    State, Timestamp, Unique, UniqueKey, UniqueScope, Worker, done,
};

/// A trace context.
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "task", queue = "work")]
struct Task {
    n: u32,
}

#[derive(Debug, Serialize, Deserialize, Job)]
struct Text {
    text: String,
}

fn unique(key: &str, scope: UniqueScope, on_conflict: OnConflict) -> Unique {
    Unique { key: UniqueKey::new(key).unwrap(), scope, on_conflict }
}

#[tokio::test(start_paused = true)]
async fn everything_the_builder_says_reaches_the_job() {
    let tide = testing::tide();
    let id: JobId = "job_01JD0000000000000000000000".parse().unwrap();
    tide.register::<Text>().await.unwrap();
    let job = tide
        .enqueue(Task { n: 7 })
        .id(id)
        .tenant("acme")
        .group("acme-eu")
        .queue("default")
        .priority(Priority::Critical)
        .at(testing::EPOCH.plus_ms(5_000))
        .timeout(Duration::from_secs(90))
        .max_attempts(9)
        .retry(RetryPolicy::none())
        .unique("seven")
        .traceparent(TRACE)
        .await
        .unwrap();
    assert_eq!((job.id, job.outcome), (id, EnqueueOutcome::Created));
    let job = tide.job(id).await.unwrap().unwrap();
    assert_eq!(
        (job.tenant.unwrap().as_str(), job.group.as_str(), job.queue.as_str()),
        ("acme", "acme-eu", "default")
    );
    assert_eq!((job.state, job.run_at), (State::Scheduled, testing::EPOCH.plus_ms(5_000)));
    assert_eq!((job.priority, job.timeout_ms, job.max_attempts), (Priority::Critical, 90_000, Some(9)));
    assert_eq!((job.retry, job.trace.as_deref()), (Some(RetryPolicy::none()), Some(TRACE)));
    assert_eq!((job.kind.as_str(), job.payload.as_str()), ("task", r#"{"n":7}"#));
    assert_eq!(job.unique.unwrap().scope, UniqueScope::PendingOrRunning);
}

#[tokio::test(start_paused = true)]
async fn the_same_id_sent_again_is_the_same_job() {
    let tide = testing::tide();
    let id: JobId = "job_01JD0000000000000000000000".parse().unwrap();
    tide.enqueue(Task { n: 1 }).id(id).await.unwrap();
    let again = tide.enqueue(Task { n: 1 }).id(id).await.unwrap();
    assert_eq!((again.id, again.outcome), (id, EnqueueOutcome::Kept));
    let other = tide.enqueue(Task { n: 2 }).id(id).await.unwrap_err();
    assert_eq!(other.code, codes::DUPLICATE_ID);
    assert_eq!(tide.store().totals().await.unwrap().ready, 1);
}

#[tokio::test(start_paused = true)]
async fn a_unique_key_returns_the_job_that_holds_it_until_that_is_finished() {
    let tide = testing::tide();
    let first = tide.enqueue(Task { n: 1 }).unique("k").await.unwrap();
    let second = tide.enqueue(Task { n: 2 }).unique("k").await.unwrap();
    assert_eq!((second.id, second.outcome), (first.id, EnqueueOutcome::Kept));
    let while_running = async |_: Task, cx: Context| {
        let same = cx.tide().enqueue(Task { n: 3 }).unique("k").await?;
        assert_eq!((same.id, same.outcome), (cx.id(), EnqueueOutcome::Kept));
        done()
    };
    assert_eq!(tide.run(Worker::new(&tide).handle(while_running)).await.completed, 1);
    assert_eq!(tide.enqueue(Task { n: 4 }).unique("k").await.unwrap().outcome, EnqueueOutcome::Created);
}

fn pending() -> Unique {
    unique("k", UniqueScope::Pending, OnConflict::Keep)
}

#[tokio::test(start_paused = true)]
async fn a_pending_key_is_free_once_its_job_has_started() {
    let tide = testing::tide();
    tide.enqueue(Task { n: 0 }).unique_with(pending()).await.unwrap();
    let follow = async |t: Task, cx: Context| {
        if t.n == 0 {
            let next = cx.tide().enqueue(Task { n: 1 }).unique_with(pending()).await?;
            assert_eq!(next.outcome, EnqueueOutcome::Created);
        }
        done()
    };
    let report = tide.run(Worker::new(&tide).handle(follow)).await;
    assert_eq!(report.completed, 2);
}

#[tokio::test(start_paused = true)]
async fn conflict_modes_replace_and_hasten() {
    let tide = testing::tide();
    let scope = UniqueScope::PendingOrRunning;
    let first = tide.enqueue(Task { n: 1 }).delay("1h").unique("k").await.unwrap();
    let replaced =
        tide.enqueue(Task { n: 2 }).unique_with(unique("k", scope, OnConflict::Replace)).await.unwrap();
    assert_eq!((replaced.id, replaced.outcome), (first.id, EnqueueOutcome::Replaced));
    assert_eq!(tide.job(first.id).await.unwrap().unwrap().payload.as_str(), r#"{"n":2}"#);
    let hastened = tide
        .enqueue(Task { n: 3 })
        .priority(Priority::High)
        .delay("1m")
        .unique_with(unique("k", scope, OnConflict::Hasten))
        .await
        .unwrap();
    assert_eq!((hastened.id, hastened.outcome), (first.id, EnqueueOutcome::Hastened));
    let job = tide.job(first.id).await.unwrap().unwrap();
    assert_eq!((job.priority, job.run_at.since(testing::EPOCH)), (Priority::High, 60_000));
    assert_eq!(job.payload.as_str(), r#"{"n":2}"#);
}

#[tokio::test(start_paused = true)]
async fn a_key_for_a_period_outlives_its_job() {
    let tide = testing::tide();
    let hourly = || unique("k", UniqueScope::PeriodMs(3_600_000), OnConflict::Keep);
    let first = tide.enqueue(Task { n: 1 }).unique_with(hourly()).await.unwrap();
    tide.run(Worker::new(&tide).handle(async |_: Task, _| done())).await;
    let kept = tide.enqueue(Task { n: 2 }).unique_with(hourly()).await.unwrap();
    assert_eq!((kept.id, kept.outcome), (first.id, EnqueueOutcome::Kept));
    testing::advance("61m").await;
    assert_eq!(
        tide.enqueue(Task { n: 3 }).unique_with(hourly()).await.unwrap().outcome,
        EnqueueOutcome::Created
    );
}

/// The error must have this code, a hint, and leave the store as it was.
async fn refused(tide: &TestTide, what: &str, job: Enqueue, code: Code) {
    let before = tide.store().totals().await.unwrap();
    let error = job.await.expect_err(what);
    assert_eq!(error.code, code, "{what}: {error}");
    assert!(!error.hint.is_empty() && !error.detail.is_empty(), "{what}");
    assert!(error.to_string().len() < 1_000, "{what}: the error repeats its input");
    assert_eq!(tide.store().totals().await.unwrap(), before, "{what}");
}

#[tokio::test(start_paused = true)]
async fn bad_input_of_every_kind_is_refused_and_nothing_is_stored() {
    let tide = testing::tide();
    tide.register::<Task>().await.unwrap();
    tide.register::<Text>().await.unwrap();
    let task = || tide.enqueue(Task { n: 1 });
    let json = |text: &str| tide.enqueue_json("task", text);

    refused(&tide, "unknown kind", tide.enqueue_json("no.such", "{}"), codes::UNKNOWN_KIND).await;
    refused(&tide, "unknown queue", task().queue("no-such"), codes::UNKNOWN_QUEUE).await;

    let huge = "x".repeat(10 << 20);
    refused(&tide, "10 MB typed", tide.enqueue(Text { text: huge.clone() }), codes::INVALID_PAYLOAD).await;
    refused(&tide, "10 MB text", json(&format!("\"{huge}\"")), codes::INVALID_PAYLOAD).await;
    refused(&tide, "10 MB value", tide.enqueue_json("task", serde_json::json!(huge)), codes::INVALID_PAYLOAD)
        .await;
    let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    refused(&tide, "depth 1,000", json(&deep), codes::INVALID_PAYLOAD).await;
    refused(&tide, "depth 100,000", json(&"[".repeat(100_000)), codes::INVALID_PAYLOAD).await;
    let mut value = serde_json::json!(1);
    for _ in 0..1_000 {
        value = serde_json::Value::Array(vec![value]);
    }
    refused(&tide, "deep value", tide.enqueue_json("task", value), codes::INVALID_PAYLOAD).await;
    for text in ["", "{", "{n:1}", "{\"n\":1} x", "nul", "\u{0}", "{\"n\":1,}", "NaN"] {
        refused(&tide, text, json(text), codes::INVALID_PAYLOAD).await;
    }

    for span in ["-2s", "", "soon", "99999999d", "9999999999999999999h", "2s; DROP TABLE jobs", "1e9s"] {
        refused(&tide, span, task().delay(span), codes::INVALID_TIME).await;
    }
    refused(&tide, "endless delay", task().delay(Duration::MAX), codes::INVALID_TIME).await;
    refused(&tide, "negative delay", task().delay(Millis(-1)), codes::INVALID_TIME).await;
    refused(&tide, "11 years", task().delay("4015d"), codes::INVALID_TIME).await;
    refused(&tide, "year 9999", task().at(Timestamp(253_402_300_799_000)), codes::INVALID_TIME).await;
    refused(&tide, "end of time", task().at(Timestamp(i64::MAX)), codes::INVALID_TIME).await;
    refused(&tide, "before 1970", task().at(Timestamp(-1)), codes::INVALID_TIME).await;
    for span in ["0s", "8d", "-1s"] {
        refused(&tide, span, task().timeout(span), codes::INVALID_TIME).await;
    }

    for attempts in [0, 101, u32::MAX] {
        refused(&tide, "attempts", task().max_attempts(attempts), codes::INVALID_SETTING).await;
    }
    let policy = |max_attempts, backoff| RetryPolicy {
        max_attempts,
        backoff,
        jitter: Jitter::None,
        retry_on: vec![],
        no_retry_on: vec![],
    };
    refused(&tide, "policy", task().retry(policy(0, Backoff::Immediate)), codes::INVALID_SETTING).await;
    let negative = policy(3, Backoff::Fixed { delay_ms: -1 });
    refused(&tide, "negative backoff", task().retry(negative), codes::INVALID_SETTING).await;

    for period in [0, -1, i64::MAX] {
        let key = unique("k", UniqueScope::PeriodMs(period), OnConflict::Keep);
        refused(&tide, "period", task().unique_with(key), codes::INVALID_TIME).await;
    }
    refused(&tide, "empty key", task().unique(""), codes::INVALID_NAME).await;
    refused(&tide, "long key", task().unique("k".repeat(513)), codes::INVALID_NAME).await;
    refused(&tide, "control in key", task().unique("a\0b"), codes::INVALID_NAME).await;
    refused(&tide, "long trace", task().traceparent("t".repeat(2_000)), codes::INVALID_REQUEST).await;
    refused(&tide, "control in trace", task().traceparent("a\nb"), codes::INVALID_REQUEST).await;
}

#[tokio::test(start_paused = true)]
async fn metacharacters_in_names_are_refused_and_in_free_text_harmless() {
    let tide = testing::tide();
    tide.register::<Task>().await.unwrap();
    let long = "x".repeat(129);
    let bad = [
        "a'b",
        "a\"b",
        "a;b",
        "a b",
        "a/b",
        "../../etc/passwd",
        "a\\b",
        "a%b",
        "a\0b",
        "a\nb",
        "-a",
        "$(a)",
        "`a`",
        "ü",
        "'; DROP TABLE jobs; --",
        long.as_str(),
    ];
    for name in bad {
        let task = || tide.enqueue(Task { n: 1 });
        refused(&tide, name, task().tenant(name), codes::INVALID_NAME).await;
        refused(&tide, name, task().group(name), codes::INVALID_NAME).await;
        refused(&tide, name, task().queue(name), codes::INVALID_NAME).await;
        refused(&tide, name, tide.enqueue_json(name, "{}"), codes::INVALID_NAME).await;
        assert!(name.parse::<JobId>().is_err());
        let named = Worker::new(&tide).handle(async |_: Task, _| done()).name(name).run_until_idle().await;
        assert_eq!(named.unwrap_err().code, codes::INVALID_NAME);
    }
    refused(&tide, "no tenant", tide.enqueue(Task { n: 1 }).tenant(""), codes::INVALID_NAME).await;
    let key = "'; DROP TABLE jobs; -- % _ ../ \" \\ 🐟";
    let job = tide.enqueue(Task { n: 1 }).unique(key).await.unwrap();
    assert_eq!(tide.job(job.id).await.unwrap().unwrap().unique.unwrap().key.as_str(), key);
}

#[tokio::test(start_paused = true)]
async fn the_first_mistake_is_the_one_that_is_told() {
    let tide = testing::tide();
    let error = tide.enqueue(Task { n: 1 }).tenant("a b").delay("soon").max_attempts(0).await.unwrap_err();
    assert_eq!(error.code, codes::INVALID_NAME);
    assert!(tide.store().kinds().await.unwrap().is_empty(), "not even the kind is registered");
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_stored_whole_or_not_at_all() {
    let tide = testing::tide();
    let task = |n| tide.enqueue(Task { n });
    let stored = tide.enqueue_many((0..10_000).map(task)).await.unwrap();
    assert_eq!(stored.len(), 10_000);
    let before = tide.store().totals().await.unwrap();
    assert_eq!(before.ready, 10_000);

    let empty = tide.enqueue_many([]).await.unwrap_err();
    let giant = tide.enqueue_many((0..10_001).map(task)).await.unwrap_err();
    let endless = tide.enqueue_many((0..).map(task)).await.unwrap_err();
    assert_eq!([empty.code, giant.code, endless.code], [codes::INVALID_BATCH; 3]);

    let id: JobId = "job_01JD0000000000000000000000".parse().unwrap();
    let twice = tide.enqueue_many([task(1).id(id), task(2), task(3).id(id)]).await.unwrap_err();
    assert_eq!(twice.code, codes::INVALID_BATCH, "{twice}");
    let builder = tide.enqueue_many([task(1), task(2).tenant("a b"), task(3)]).await.unwrap_err();
    assert_eq!(builder.code, codes::INVALID_NAME);
    let store = tide.enqueue_many([task(1), task(2).queue("nowhere"), task(3)]).await.unwrap_err();
    assert_eq!(store.code, codes::UNKNOWN_QUEUE);
    let kind = tide.enqueue_many([task(1), tide.enqueue_json("nothing", "{}")]).await.unwrap_err();
    assert_eq!(kind.code, codes::UNKNOWN_KIND);
    assert_eq!(tide.store().totals().await.unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_changed_in_the_code_is_written_once() {
    let tide = testing::tide();
    tide.enqueue(Task { n: 1 }).await.unwrap();
    let kinds = tide.store().kinds().await.unwrap();
    assert_eq!((kinds.len(), kinds[0].settings.queue.as_str()), (1, "work"));
    // Somebody changed it meanwhile; a worker starts with what its code says.
    let mut changed = kinds[0].settings.clone();
    changed.timeout_ms = 1;
    tide.store().put_kind(kinds[0].name.clone(), changed).await.unwrap();
    let other = tidegate::Tidegate::with_store(tide.store().clone());
    other.register::<Task>().await.unwrap();
    assert_eq!(tide.store().kinds().await.unwrap()[0].settings, Task::settings().unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_the_derive_accepts_the_core_accepts() {
    macro_rules! kinds {
        ($($name:ident $timeout:literal $priority:literal $retry:literal;)*) => {
            $(
                #[derive(Serialize, Deserialize, Job)]
                #[job(timeout = $timeout, priority = $priority, retry = $retry, connector = "a.b-c:d@e+f=g")]
                struct $name;
                let settings = $name::settings().unwrap();
                settings.check().unwrap();
                assert_eq!(settings.timeout_ms, $timeout.parse::<Millis>().unwrap().0);
                assert_eq!(settings.priority, $priority.parse::<Priority>().unwrap());
                assert_eq!(settings.retry, RetryPolicy::named($retry));
                assert!(settings.retry.is_some());
            )*
        };
    }
    kinds! {
        One "1ms" "critical" "standard";
        Two "250ms" "high" "none";
        Three "30s" "medium" "critical";
        Four "5m" "low" "external_api";
        Five "1h 30m" "low" "database";
        Six "7d" "low" "webhook";
        Seven "2h 3m 4s 5ms" "low" "gamification";
    }
}
