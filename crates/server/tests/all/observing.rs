//! Metrics, health and alerts of a running server.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::common::{Ask, Served, now, options, over_stores, until};
use hyper::Method;
use serde_json::{Value, json};
use tidegate_core::metrics;
use tidegate_core::time::Timestamp;
use tidegate_server::alerts::AlertSettings;
use tidegate_server::{Clock, ServerOptions, ServerRoles};
use tidegate_store::{MemoryStore, Store};
use tidegate_wire::keys::Role;

over_stores![
    metrics_are_in_the_format_and_count_what_happened,
    health_has_the_shape_of_the_source,
    what_happens_in_a_queue_is_an_alert,
];

async fn text(served: &Served) -> String {
    let reply = served.get("/metrics").await.is(200);
    assert_eq!(reply.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = String::from_utf8(reply.body.to_vec()).unwrap();
    assert_eq!(metrics::check(&text), Ok(()), "{text}");
    text
}

fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

async fn run(served: &Served, outcome: Value) {
    let job = served.claim(1).await["jobs"][0].clone();
    let mut settlement = json!({"ticket": job["ticket"]});
    settlement.as_object_mut().unwrap().extend(outcome.as_object().unwrap().clone());
    served.settle(settlement).await;
}

async fn metrics_are_in_the_format_and_count_what_happened(served: Served) {
    served.register().await;
    for _ in 0..5 {
        served.mail(json!({"tenant": "acme"})).await;
    }
    run(&served, json!({"outcome": "complete"})).await;
    let failure =
        |category: &str| json!({"outcome": "fail", "failure": {"category": category, "message": "no"}});
    run(&served, failure("TRANSIENT_NETWORK")).await;
    run(&served, failure("INVALID_INPUT")).await;
    let text = text(&served).await;
    let of = |name: &str| value(&text, &format!("{name}{{queue=\"post\",kind=\"mail\"}}"));
    for (name, expected) in [
        ("tidegate_jobs_enqueued_total", 5.0),
        ("tidegate_jobs_started_total", 3.0),
        ("tidegate_jobs_completed_total", 1.0),
        ("tidegate_jobs_retried_total", 1.0),
        ("tidegate_jobs_dead_total", 1.0),
        ("tidegate_job_wait_seconds_count", 3.0),
        ("tidegate_job_run_seconds_count", 3.0),
        ("tidegate_job_end_to_end_seconds_count", 1.0),
    ] {
        assert_eq!(of(name), Some(expected), "{name}\n{text}");
    }
    let failed = "tidegate_job_failures_total{queue=\"post\",kind=\"mail\",category=\"INVALID_INPUT\"}";
    assert_eq!(value(&text, failed), Some(1.0));
    assert_eq!(value(&text, "tidegate_queue_jobs{queue=\"post\",state=\"ready\"}"), Some(2.0));
    assert_eq!(value(&text, "tidegate_queue_jobs{queue=\"post\",state=\"dead\"}"), Some(1.0));
    let ratio = value(&text, "tidegate_queue_error_ratio{queue=\"post\"}").unwrap();
    assert!((ratio - 2.0 / 3.0).abs() < 1e-9, "{ratio}");
    assert_eq!(value(&text, "tidegate_store_up"), Some(1.0));
    assert!(!text.contains("acme"), "tenants are shown only if asked for");
    served.stop().await;
}

async fn health_has_the_shape_of_the_source(served: Served) {
    served.register().await;
    served.mail(json!({})).await;
    let worker = json!({"about": {"role": "worker", "queues": ["post"], "concurrency": 7, "running": 2}, "ttl_ms": 60_000});
    served.put("/v1/workers/w1", worker).await.is(200);
    until("what is new is seen", || async { served.get("/health").await.json["workers"]["w1"].is_object() })
        .await;
    let health = served.get("/health").await.is(200).json;
    assert_eq!(health["status"], "healthy");
    assert_eq!(health["workers"]["w1"], json!({"status": "running", "concurrency": 7, "processing": 2}));
    let queue = &health["queues"]["post"];
    assert_eq!((&queue["status"], &queue["waiting"], &queue["active"]), (&json!("ok"), &json!(1), &json!(0)));
    assert_eq!((&queue["error_rate"], &health["dlq_size"]), (&json!(0.0), &json!(0)));
    assert!(health["last_check"].is_string() && health["oldest_ready_ms"].is_u64());
    served.stop().await;
}

/// Nobody looks after the schedules here: their ticks are late, everybody is told, and it is over when somebody has looked.
#[tokio::test]
async fn ticks_that_nobody_fires_are_the_schedulers_lag() {
    let time = Arc::new(AtomicI64::new(now().0));
    let roles = ServerRoles { maintenance: false, ..ServerRoles::default() };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let clock = Clock::manual(time.clone());
    let served = Served::with(store.clone(), ServerOptions { roles, clock, ..options() }).await;
    served.register().await;
    assert_eq!(served.get("/health").await.json["scheduler_lag_ms"], Value::Null, "there are no schedules");
    served.put("/v1/schedules/s", json!({"kind": "mail", "settings": {"every": "1m"}})).await.is(200);
    let lag = || async { served.get("/health").await.json["scheduler_lag_ms"].as_u64() };
    until("the schedule is known", || async { lag().await == Some(0) }).await;
    time.fetch_add(600_000, Ordering::SeqCst);
    until("it is late", || async { lag().await.is_some_and(|ms| ms >= 540_000) }).await;
    let health = served.get("/health").await.json;
    assert_eq!(health["status"], "degraded", "{health}");
    assert!(value(&text(&served).await, "tidegate_scheduler_lag_seconds").unwrap() >= 540.0);
    store.advance(Timestamp(time.load(Ordering::SeqCst))).await.unwrap();
    until("it is in time again", || async { lag().await == Some(0) }).await;
    assert_eq!(value(&text(&served).await, "tidegate_scheduler_lag_seconds"), Some(0.0));
    served.stop().await;
}

/// Evaluates often; rules that fire with a handful of jobs.
fn quick() -> AlertSettings {
    let file = r#"
        every = "100ms"
        [rules.queue_depth_high]
        condition = "waiting > 2"
        [rules.mine]
        condition = "active > 0"
        on = ["post"]
    "#;
    AlertSettings::from_toml(file, &|_| None).unwrap()
}

async fn what_happens_in_a_queue_is_an_alert(served: Served) {
    let store = served.store.clone();
    let watched = Served::with(store, ServerOptions { alerts: quick(), ..options() }).await;
    watched.register().await;
    for _ in 0..3 {
        watched.mail(json!({})).await;
    }
    let firing = |rule: &'static str| {
        let watched = &watched;
        move || async move {
            let alerts = watched.get("/v1/alerts").await.is(200).json["alerts"].clone();
            alerts.as_array().unwrap().iter().any(|a| a["rule"] == rule && a["phase"] == "firing")
        }
    };
    until("it fires", firing("queue_depth_high")).await;
    let alerts = watched.get("/v1/alerts").await.json;
    let alert = &alerts["alerts"][0];
    assert_eq!((&alert["target"], &alert["severity"]), (&json!("queue:post"), &json!("warning")));
    assert_eq!(alert["message"], "Queue post: 3 jobs wait, more than 2");
    until("it is a metric", || async {
        text(&watched)
            .await
            .contains("tidegate_alerts_firing{rule=\"queue_depth_high\",severity=\"warning\"} 1")
    })
    .await;
    let silence = json!({"rule": "mine", "for_ms": 60_000, "why": "known"});
    let silence = watched.post("/v1/alerts/silences", silence).await.is(200).json;
    assert_eq!(watched.get("/v1/alerts/silences").await.is(200).json["silences"][0], silence);
    watched.claim(3).await;
    until("another one fires, silently", firing("mine")).await;
    until("the first is over", || async { !firing("queue_depth_high")().await }).await;
    let id = silence["id"].as_str().unwrap();
    watched.delete(&format!("/v1/alerts/silences/{id}")).await.is(204);
    assert_eq!(watched.delete(&format!("/v1/alerts/silences/{id}")).await.is(404).code(), "TG3009");
    assert_eq!(watched.post("/v1/alerts/test", json!({"channel": "x"})).await.is(404).code(), "TG3010");
    let rules = watched.get("/v1/alerts/rules").await.is(200).json;
    assert!(rules["rules"].as_array().unwrap().iter().any(|r| r["id"] == "mine"));
    watched.stop().await;
    served.stop().await;
}

#[tokio::test]
async fn a_worker_that_dies_is_unhealthy_and_one_that_leaves_is_not() {
    let served = Served::memory().await;
    let about = json!({"about": {"role": "worker"}, "ttl_ms": 2_000});
    served.put("/v1/workers/dies", about).await.is(200);
    served.put("/v1/workers/leaves", json!({"about": {"role": "worker"}, "ttl_ms": 60_000})).await.is(200);
    until("both are seen", || async {
        served.get("/health").await.json["workers"].as_object().is_some_and(|w| w.contains_key("leaves"))
    })
    .await;
    served.delete("/v1/workers/leaves").await.is(204);
    until("its death is seen", || async { served.get("/health").await.status == 503 }).await;
    let health = served.get("/health").await.json;
    assert_eq!((&health["status"], &health["store"]), (&json!("unhealthy"), &json!("ok")));
    assert_eq!(health["workers"]["dies"]["status"], "down");
    until("the other one is not missed", || async {
        served.get("/health").await.json["workers"].get("leaves").is_none()
    })
    .await;
    served.stop().await;
}

#[tokio::test]
async fn strangers_learn_no_names() {
    let served = Served::memory().await;
    served.register().await;
    let (operator, tenant) =
        (served.key(Role::Operator, None).await, served.key(Role::Operator, Some("acme")).await);
    until("keys are asked for", || async { served.get("/v1/about").await.status == 401 }).await;
    let ask = |key| Ask::new(Method::GET, "/health").maybe_key(key);
    for key in [None, Some(&tenant)] {
        let health = served.send(ask(key)).await.is(200).json;
        assert_eq!((&health["status"], &health["queues"]), (&json!("healthy"), &Value::Null));
    }
    assert!(served.send(ask(Some(&operator))).await.is(200).json["queues"]["post"].is_object());
    assert_eq!(served.get("/metrics").await.status, 401);
    served.send(Ask::new(Method::GET, "/metrics").key(&operator)).await.is(200);
    served.stop().await;
}

#[tokio::test]
async fn nobody_enqueues_the_programs_own_kinds() {
    let served = Served::memory().await;
    let refused = served.post("/v1/jobs", json!({"kind": "tidegate.alert", "payload": {}})).await;
    assert_eq!(refused.is(403).code(), "TG2016");
    served.stop().await;
}

#[tokio::test]
async fn tenants_are_counted_if_asked_for_and_never_named_without_bound() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let served = Served::with(store, ServerOptions { metrics_by_tenant: true, ..options() }).await;
    served.register().await;
    for n in 0..60 {
        served.mail(json!({"tenant": format!("t{n}")})).await;
    }
    served.claim(60).await;
    let text = text(&served).await;
    assert_eq!(text.matches("tidegate_tenant_jobs_started_total{").count(), metrics::MAX_TENANTS + 1);
    assert_eq!(value(&text, "tidegate_tenant_jobs_started_total{tenant=\"other\"}"), Some(10.0));
    served.stop().await;
}

#[tokio::test]
async fn a_server_without_the_api_shows_how_it_is() {
    let roles = tidegate_server::ServerRoles { api: false, maintenance: true };
    let served = Served::with(Arc::new(MemoryStore::new()), ServerOptions { roles, ..options() }).await;
    served.get("/health").await.is(200);
    served.get("/metrics").await.is(200);
    served.get("/v1/alerts").await.is(404);
    served.stop().await;
}
