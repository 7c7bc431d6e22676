//! The example registry over every store: each of its kinds takes what it should and refuses everything else, and an event
//! reaches exactly who subscribes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_conformance::Harness;
use tidegate_conformance::kit::{START, job_id, kind};
use tidegate_core::codes;
use tidegate_core::ids::{EventName, KindName};
use tidegate_core::job::Priority;
use tidegate_core::payload::Payload;
use tidegate_core::registry::{Document, Format};
use tidegate_core::time::Timestamp;
use tidegate_store::offer::{Offer, Offered, offer};
use tidegate_store::params::{JobQuery, NewJob};
use tidegate_store::{MemoryStore, Store, subscribers};

use crate::common::Sqlite;
use crate::pg::Postgres;

const TEXT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/communities/registry.toml"));

/// Kind, queue, priority and limit, as the catalog has them; and a property with a date in it, if it has one.
const CATALOG: [(&str, &str, Priority, u32, &str); 16] = [
    ("daily-missions-assignment", "gamification", Priority::High, 1, "date"),
    ("streak-check", "gamification", Priority::High, 1, "date"),
    ("weekly-ranking-reset", "gamification", Priority::Medium, 1, "week_start"),
    ("daily-feature-aggregation", "analytics", Priority::Medium, 1, "date"),
    ("community-graph-build", "analytics", Priority::Medium, 1, "period_end"),
    ("session-cleanup", "maintenance", Priority::Low, 1, "before"),
    ("data-anonymization", "compliance", Priority::Medium, 1, "date"),
    ("backup-database", "maintenance", Priority::Critical, 1, "date"),
    ("webhook-dispatch", "webhooks", Priority::High, 5, "occurred_at"),
    ("notification-send", "notifications", Priority::Medium, 10, "occurred_at"),
    ("xp-calculation", "gamification", Priority::High, 3, "occurred_at"),
    ("world-state-sync", "world", Priority::High, 2, "occurred_at"),
    ("age-revalidation-prompt", "age", Priority::Medium, 1, "date"),
    ("minor-detection-scan", "age", Priority::Medium, 1, "date"),
    ("age-data-cleanup", "age", Priority::Low, 1, "before"),
    ("minor-case-review", "age", Priority::High, 2, "occurred_at"),
];

fn document() -> Document {
    Document::parse(TEXT, Format::Toml).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

#[test]
fn the_example_is_right_by_itself_and_is_the_catalog() {
    let document = document();
    assert_eq!(document.misplaced(None), []);
    assert_eq!((document.kinds.len(), document.queues.len()), (16, 8));
    for (name, queue, priority, concurrency, _) in CATALOG {
        let settings = &document.kinds[&kind(name)];
        assert_eq!(
            (settings.queue.as_str(), settings.priority, settings.concurrency),
            (queue, priority, Some(concurrency)),
            "{name}"
        );
        assert!(settings.schema.is_some() && !settings.description.is_empty(), "{name}");
        assert!(
            settings.schedule.is_some() == settings.on.is_empty(),
            "{name} runs by the clock or by events"
        );
    }
}

/// The smallest payload that a kind takes.
fn valid(name: &str) -> Value {
    match name {
        "world-state-sync" => {
            json!({ "community_id": 1, "zone_id": "plaza", "occurred_at": "2026-01-31T08:00:00-03:00" })
        }
        "webhook-dispatch" | "notification-send" | "xp-calculation" | "minor-case-review" => {
            json!({ "community_id": 1, "member_id": 2, "occurred_at": "2026-01-31T08:00:00Z" })
        }
        _ => json!({}),
    }
}

async fn each_kind_takes_what_it_should_and_refuses_everything_else(store: Arc<dyn Store>) {
    let now = START;
    let sent = Offer { text: TEXT, format: Format::Toml, by: "ann", source: "example", dry_run: false, now };
    let Offered::Applied(applied) = offer(&*store, sent).await.expect("answered") else {
        panic!("the example is right")
    };
    assert_eq!(applied.version, Some(1));
    let mut made = 0;
    let mut job = |name: &str, payload: &Value| {
        made += 1;
        NewJob::new(job_id(made), kind(name), Payload::trusted(payload.to_string()))
    };
    for (name, _, _, _, date) in CATALOG {
        let good = store.enqueue(vec![job(name, &valid(name))], now).await;
        good.unwrap_or_else(|e| panic!("{name}: {e}"));
        let with = |key: &str, value: Value| {
            let mut payload = valid(name);
            payload[key] = value;
            payload
        };
        let date_time = ["occurred_at"].contains(&date) || name == "session-cleanup";
        let example = if date_time { "a time like 2026-01-31T08:00:00Z" } else { "a date like 2026-01-31" };
        for (payload, said) in [
            (with("no_such_property", json!(1)), "/: unknown property \"no_such_property\"".to_owned()),
            (with(date, json!(20_260_131)), format!("/{date}: expected string, found number")),
            (with(date, json!("31/01/2026")), format!("/{date}: expected {example}")),
        ] {
            let error = store.enqueue(vec![job(name, &payload)], now).await.expect_err(name);
            assert_eq!(error.code, codes::INVALID_PAYLOAD, "{name}");
            assert!(
                error.detail.contains(&said) && error.detail.contains(name),
                "{said} in {}",
                error.detail
            );
        }
    }
    let stored = store.search(JobQuery { limit: 100, ..JobQuery::default() }).await.expect("answered").jobs;
    assert_eq!(stored.len(), 16, "one of each kind");
    let graph = stored.iter().find(|j| j.kind == kind("community-graph-build")).expect("answered");
    let filled: Value = serde_json::from_str(graph.payload.as_str()).expect("answered");
    assert_eq!(filled, json!({ "window_days": 28, "dry_run": false }), "defaults");
}

/// The schedules of the catalog with the first run after 14 November 2025, 12:00 by the clock of São Paulo, and what each waits for.
const SCHEDULES: [(&str, &str, &[&str]); 11] = [
    ("age-data-cleanup", "2025-11-16T02:00:00-03:00[America/Sao_Paulo]", &[]),
    ("age-revalidation-prompt", "2025-11-15T08:00:00-03:00[America/Sao_Paulo]", &[]),
    ("backup-database", "2025-11-15T03:00:00-03:00[America/Sao_Paulo]", &[]),
    ("community-graph-build", "2025-11-15T04:15:00-03:00[America/Sao_Paulo]", &["daily-feature-aggregation"]),
    ("daily-feature-aggregation", "2025-11-15T01:00:00-03:00[America/Sao_Paulo]", &[]),
    ("daily-missions-assignment", "2025-11-15T00:01:00-03:00[America/Sao_Paulo]", &[]),
    ("data-anonymization", "2025-11-15T02:00:00-03:00[America/Sao_Paulo]", &["daily-feature-aggregation"]),
    ("minor-detection-scan", "2025-11-15T04:00:00-03:00[America/Sao_Paulo]", &[]),
    ("session-cleanup", "2025-11-15T03:00:00-03:00[America/Sao_Paulo]", &[]),
    ("streak-check", "2025-11-15T00:30:00-03:00[America/Sao_Paulo]", &[]),
    ("weekly-ranking-reset", "2025-11-16T00:00:00-03:00[America/Sao_Paulo]", &[]),
];

async fn every_schedule_of_the_catalog_is_in_force(store: Arc<dyn Store>) {
    // 12:00 of that day over there.
    let now = Timestamp(1_763_132_400_000);
    let sent = Offer { text: TEXT, format: Format::Toml, by: "ann", source: "example", dry_run: false, now };
    assert!(matches!(offer(&*store, sent).await.expect("answered"), Offered::Applied(_)));
    let found = store.schedules().await.expect("answered");
    let said: Vec<(String, String, Vec<String>)> = found
        .iter()
        .map(|s| {
            assert_eq!((s.document.as_deref(), s.kind.as_str()), (Some("example"), s.name.as_str()));
            let local = s.settings.compile().expect("it works").local(s.next.expect("it comes"));
            (s.name.to_string(), local, s.settings.after.iter().map(ToString::to_string).collect())
        })
        .collect();
    let expected: Vec<(String, String, Vec<String>)> = SCHEDULES
        .iter()
        .map(|(name, next, after)| {
            ((*name).into(), (*next).into(), after.iter().map(|a| (*a).to_owned()).collect())
        })
        .collect();
    assert_eq!(said, expected);
}

async fn one_event_enqueues_exactly_who_subscribes(store: Arc<dyn Store>) {
    let now = START;
    let sent = Offer { text: TEXT, format: Format::Toml, by: "ann", source: "example", dry_run: false, now };
    offer(&*store, sent).await.expect("answered");
    let mut made = 1_000;
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for (event, kinds, payload) in [
        (
            "mission.completed",
            &["notification-send", "xp-calculation"][..],
            json!({ "community_id": 1, "member_id": 2, "mission_id": 3, "occurred_at": "2026-01-31T08:00:00Z" }),
        ),
        ("member.joined", &["webhook-dispatch", "xp-calculation"], valid("xp-calculation")),
        ("world.zone.changed", &["world-state-sync"], valid("world-state-sync")),
        ("minor.suspected", &["minor-case-review"], valid("minor-case-review")),
    ] {
        let found = subscribers(&*store, &EventName::new(event).expect("answered")).await.expect("answered");
        assert_eq!(found.iter().map(KindName::as_str).collect::<Vec<_>>(), kinds, "{event}");
        let jobs = found.into_iter().map(|kind| {
            made += 1;
            NewJob::new(job_id(made), kind, Payload::trusted(payload.to_string()))
        });
        store.enqueue(jobs.collect(), now).await.expect("answered");
        for kind in kinds {
            *expected.entry(kind).or_default() += 1;
        }
    }
    let stored = store.search(JobQuery { limit: 100, ..JobQuery::default() }).await.expect("answered").jobs;
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    for job in &stored {
        *found.entry(job.kind.as_str()).or_default() += 1;
    }
    assert_eq!(found, expected);
    let error = subscribers(&*store, &EventName::new("mission.complete").expect("answered"))
        .await
        .expect_err("nobody subscribes");
    assert_eq!(error.code, codes::UNKNOWN_EVENT);
    assert!(error.detail.contains("did you mean `mission.completed`?"), "{}", error.detail);
}

#[tokio::test]
async fn the_example_over_memory() {
    each_kind_takes_what_it_should_and_refuses_everything_else(Arc::new(MemoryStore::new())).await;
    one_event_enqueues_exactly_who_subscribes(Arc::new(MemoryStore::new())).await;
    every_schedule_of_the_catalog_is_in_force(Arc::new(MemoryStore::new())).await;
}

#[tokio::test]
async fn the_example_over_sqlite() {
    let (one, other, third) = (Sqlite::open(), Sqlite::open(), Sqlite::open());
    each_kind_takes_what_it_should_and_refuses_everything_else(one.store()).await;
    one_event_enqueues_exactly_who_subscribes(other.store()).await;
    every_schedule_of_the_catalog_is_in_force(third.store()).await;
}

#[tokio::test]
async fn the_example_over_postgres() {
    let (one, other, third) = (Postgres::open().await, Postgres::open().await, Postgres::open().await);
    each_kind_takes_what_it_should_and_refuses_everything_else(one.store()).await;
    one_event_enqueues_exactly_who_subscribes(other.store()).await;
    every_schedule_of_the_catalog_is_in_force(third.store()).await;
}
