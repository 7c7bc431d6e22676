//! Shapes that stand for types of other crates say the same as those types.
#![cfg(feature = "openapi")]
#![expect(clippy::unwrap_used, reason = "helpers of tests stop where a test would")]

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Value, json};
use tidegate_core::failure::Category;
use tidegate_core::job::{
    OnConflict, OnDead, Priority, Resolution, Review, ScheduledBecause, State, UniqueScope,
};
use tidegate_core::registry::{KindSettings, Limiter, QueueSettings};
use tidegate_core::retry::{Backoff, DeadReason, Jitter, RetryPolicy};
use tidegate_core::schedule::{Backfill, Missed, Overlap, ScheduleSettings, SkipReason};
use tidegate_store::params::{EnqueueOutcome, ScheduleChange};
use tidegate_wire::schema;
use utoipa::PartialSchema;

fn shape<T: PartialSchema>() -> Value {
    serde_json::to_value(T::schema()).unwrap()
}

/// The names that the shape knows are those of the type.
fn same_names<S: PartialSchema, T: Serialize>(all: impl IntoIterator<Item = T>) {
    let expected: BTreeSet<String> = all.into_iter().map(|v| json!(v).as_str().unwrap().to_owned()).collect();
    let shape = shape::<S>();
    let known: BTreeSet<String> =
        shape["enum"].as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect();
    assert_eq!(known, expected);
}

/// The fields that the shape knows are those of the type.
fn same_fields<S: PartialSchema>(value: impl Serialize) {
    let fields: BTreeSet<String> = json!(value).as_object().unwrap().keys().cloned().collect();
    let shape = shape::<S>();
    let known: BTreeSet<String> = shape["properties"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(known, fields);
}

#[test]
fn names_are_the_same() {
    same_names::<schema::State, _>(State::ALL);
    same_names::<schema::Priority, _>(Priority::ALL);
    same_names::<schema::Category, _>(Category::ALL);
    same_names::<schema::ScheduledBecause, _>([
        ScheduledBecause::Delay,
        ScheduledBecause::Retry,
        ScheduledBecause::Snooze,
        ScheduledBecause::Gate,
    ]);
    same_names::<schema::Review, _>([
        Review::PendingReview,
        Review::ManualResolved,
        Review::AutoResolved,
        Review::Abandoned,
    ]);
    same_names::<schema::Resolution, _>([
        Resolution::Reauthorize,
        Resolution::ConfigFix,
        Resolution::ManualRefresh,
        Resolution::Recovered,
        Resolution::Abandoned,
    ]);
    same_names::<schema::DeadReason, _>([
        DeadReason::AttemptsUsed,
        DeadReason::Permanent,
        DeadReason::NotRetryable,
        DeadReason::Poison,
        DeadReason::SnoozedTooOften,
        DeadReason::Dependency,
    ]);
    same_names::<schema::OnDead, _>(OnDead::ALL);
    same_names::<schema::EnqueueOutcome, _>([
        EnqueueOutcome::Created,
        EnqueueOutcome::Kept,
        EnqueueOutcome::Replaced,
        EnqueueOutcome::Hastened,
    ]);
    same_names::<schema::Overlap, _>([Overlap::Skip, Overlap::Queue, Overlap::Allow]);
    same_names::<schema::ScheduleChange, _>([
        ScheduleChange::Created,
        ScheduleChange::Changed,
        ScheduleChange::Unchanged,
    ]);
    same_names::<schema::SkipReason, _>([
        SkipReason::Missed,
        SkipReason::Overlap,
        SkipReason::Paused,
        SkipReason::Edited,
        SkipReason::After,
        SkipReason::Full,
        SkipReason::Refused,
    ]);
    same_names::<schema::OnConflict, _>([OnConflict::Keep, OnConflict::Replace, OnConflict::Hasten]);
    same_names::<schema::Jitter, _>([Jitter::Full, Jitter::Equal, Jitter::PlusTenth, Jitter::None]);
}

#[test]
fn fields_are_the_same() {
    let limiter = Limiter { max: 1, per_ms: 1 };
    same_fields::<schema::Limiter>(limiter);
    same_fields::<schema::QueueSettings>(QueueSettings {
        limiter: Some(limiter),
        policy: Some("standard".into()),
        ..QueueSettings::default()
    });
    let all = json!({
        "queue": "q", "policy": "standard", "concurrency": 1, "retention": {"count": 1, "age_ms": 1}, "schema": {}, "on": ["e"],
        "failures": {"CODE": "LOGIC_ERROR"}, "alerts": ["a"], "schedule": {}, "managed": true, "document": "d",
    });
    same_fields::<schema::KindSettings>(serde_json::from_value::<KindSettings>(all).unwrap());
    let all = json!({
        "cron": "@daily", "every": "1m", "at": "2026-12-24T18:00", "zone": "UTC", "anchor": "2026-12-24T18:00Z",
        "overlap": "skip", "missed": "skip", "grace": "1m", "jitter": "1s", "after": ["a"], "payload": {}, "tenant": "t",
        "group": "g", "priority": "low", "description": "d",
    });
    same_fields::<schema::ScheduleSettings>(serde_json::from_value::<ScheduleSettings>(all).unwrap());
    let all = json!({
        "kind": "k", "from": "2026-10-18", "to": "2026-10-18", "stagger": "1s", "payload": {}, "field": "date", "label": "l",
    });
    same_fields::<schema::Backfill>(serde_json::from_value::<Backfill>(all).unwrap());
    let mut policy = RetryPolicy::standard();
    (policy.retry_on, policy.no_retry_on) = (vec!["a".into()], vec!["b".into()]);
    same_fields::<schema::RetryPolicy>(policy);
    same_fields::<schema::Retention>(tidegate_core::registry::Retention::default());
    let unique = json!({"key": "k", "scope": UniqueScope::Pending, "on_conflict": OnConflict::Keep});
    same_fields::<schema::Unique>(serde_json::from_value::<tidegate_core::job::Unique>(unique).unwrap());
}

#[test]
fn what_the_shape_reads_the_type_reads() {
    for missed in [json!("skip"), json!("run_once"), json!({"run_all": 3})] {
        assert_eq!(json!(serde_json::from_value::<schema::Missed>(missed.clone()).unwrap()), missed);
        assert_eq!(json!(serde_json::from_value::<Missed>(missed.clone()).unwrap()), missed);
    }
    for scope in [json!("pending"), json!("pending_or_running"), json!({"period_ms": 5})] {
        assert_eq!(json!(serde_json::from_value::<schema::UniqueScope>(scope.clone()).unwrap()), scope);
        assert_eq!(json!(serde_json::from_value::<UniqueScope>(scope.clone()).unwrap()), scope);
    }
    for backoff in [
        json!({"type": "exponential", "base_ms": 1, "factor": 2.0, "cap_ms": 3}),
        json!({"type": "fixed", "delay_ms": 1}),
        json!({"type": "linear", "step_ms": 1, "cap_ms": 2}),
        json!({"type": "immediate"}),
        json!({"type": "none"}),
    ] {
        assert_eq!(json!(serde_json::from_value::<schema::Backoff>(backoff.clone()).unwrap()), backoff);
        assert_eq!(json!(serde_json::from_value::<Backoff>(backoff.clone()).unwrap()), backoff);
    }
}
