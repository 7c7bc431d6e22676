//! Spans on their way to a collector: a real one over HTTP, one that is down, one that is slow.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::failure::{Category, Failure};
use tidegate_core::gates::{Part, Target};
use tidegate_core::ids::{JobId, LeaseId, Seq};
use tidegate_core::job::{Priority, State};
use tidegate_core::payload::Payload;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{ClaimedJob, EnqueueOutcome, Enqueued, NewJob, Outcome, Settled, Ticket};
use tokio::sync::Semaphore;

use crate::{Exporter, Kind, NotSent, Runs, Span, Telemetry, TelemetryOptions, Value};

const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const SECRET: &str = "s3cret";
const LONG: Duration = Duration::from_mins(1);

/// Keeps what it is given; fails first if it is told to, and waits for a permit if there is a door.
#[derive(Default)]
struct Kept {
    spans: Mutex<Vec<Span>>,
    failures: Mutex<Vec<NotSent>>,
    calls: AtomicUsize,
    door: Option<Semaphore>,
}

#[async_trait]
impl Exporter for Kept {
    async fn export(&self, spans: &[Span]) -> Result<u64, NotSent> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if let Some(door) = &self.door {
            door.acquire().await.unwrap().forget();
        }
        if let Some(failure) = self.failures.lock().unwrap().pop() {
            return Err(failure);
        }
        self.spans.lock().unwrap().extend_from_slice(spans);
        Ok(0)
    }
}

fn later() -> NotSent {
    NotSent::Later { why: "away".into(), after: None }
}

fn options() -> TelemetryOptions {
    TelemetryOptions::default()
}

fn new_job(n: u128) -> NewJob {
    let payload = Payload::from_json_text(format!("\"{SECRET}\""), 100).unwrap();
    let mut job =
        NewJob::new(JobId::from_parts(1_800_000_000_000, n << 20 | n), "mail".parse().unwrap(), payload);
    job.tenant = Some("acme".parse().unwrap());
    job
}

fn claimed(job: &NewJob, lease: i64) -> ClaimedJob {
    ClaimedJob {
        ticket: Ticket { lease: LeaseId(lease), seq: Seq(1) },
        id: job.id,
        queue: "post".parse().unwrap(),
        kind: job.kind.clone(),
        tenant: job.tenant.clone(),
        group: "acme".parse().unwrap(),
        connector: None,
        payload: job.payload.clone(),
        priority: Priority::Medium,
        attempt: lease as u32,
        timeout_ms: 1_000,
        created_at: Timestamp(0),
        ready_at: Timestamp(0),
        trace: job.trace.clone(),
        schedule: None,
        dependencies: 0,
    }
}

fn enqueue(telemetry: &Telemetry, jobs: &mut [NewJob]) {
    let enqueueing = telemetry.enqueueing(jobs, 0);
    let replies: Vec<Enqueued> =
        jobs.iter().map(|job| Enqueued { id: job.id, outcome: EnqueueOutcome::Created }).collect();
    telemetry.enqueued(enqueueing, Ok(&replies));
}

fn attribute<'a>(span: &'a Span, name: &str) -> Option<&'a Value> {
    span.attributes.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
}

#[tokio::test]
async fn a_job_is_one_trace_from_enqueue_over_a_retry_to_its_end() {
    let kept = Arc::new(Kept::default());
    let telemetry = Telemetry::new(&options(), kept.clone());
    let mut jobs = [NewJob { trace: Some(GIVEN.into()), ..new_job(1) }];
    enqueue(&telemetry, &mut jobs);
    let runs = Runs::new(telemetry.clone(), "w".parse().unwrap());
    let failure = Failure::new(Category::TransientServer, "HTTP_503", SECRET);
    let second = Outcome::Complete(Some(jobs[0].payload.clone()));
    let mut contexts = vec![];
    for (lease, outcome, reply) in [
        (1, Outcome::Fail(failure), Settled::Again(Timestamp(1))),
        (2, second, Settled::Applied(State::Completed)),
    ] {
        let mut job = claimed(&jobs[0], lease);
        runs.begin(&mut job, 0);
        contexts.push(job.trace.clone().unwrap());
        runs.ended(job.ticket, &outcome, 0);
        runs.settled([(job.ticket, Some(reply))].into_iter());
    }
    assert!(telemetry.flush(LONG).await);
    assert_eq!((telemetry.sent(), telemetry.dropped()), (3, 0));
    let spans = kept.spans.lock().unwrap();
    let [enqueued, failed, done] = &spans[..] else { panic!("{spans:?}") };
    let given: tidegate_core::trace::TraceParent = GIVEN.parse().unwrap();
    assert!(spans.iter().all(|s| s.context.trace() == given.trace() && s.ended_ns >= s.began_ns));
    assert_eq!(
        (enqueued.parent, enqueued.kind, enqueued.name.as_str()),
        (Some(given.span()), Kind::Producer, "enqueue mail")
    );
    assert_eq!(
        jobs[0].trace,
        Some(enqueued.context.to_string()),
        "the job goes on with the span of its enqueue"
    );
    for (run, context) in [failed, done].into_iter().zip(&contexts) {
        assert_eq!(
            (run.parent, run.kind, run.name.as_str()),
            (Some(enqueued.context.span()), Kind::Consumer, "run mail")
        );
        assert_eq!(run.context.to_string(), *context, "the handler has the context of its own run");
        assert_eq!(attribute(run, "messaging.destination.name"), Some(&"post".into()));
    }
    assert_eq!((failed.failed, attribute(failed, "tidegate.outcome")), (true, Some(&"failed".into())));
    assert_eq!(attribute(failed, "tidegate.category"), Some(&"TRANSIENT_SERVER".into()));
    assert_eq!(attribute(failed, "error.type"), Some(&"HTTP_503".into()));
    assert_eq!((done.failed, attribute(done, "tidegate.outcome")), (false, Some(&"completed".into())));
    assert_eq!(attribute(done, "tidegate.attempt"), Some(&2.into()));
    let text = format!("{spans:?}");
    assert!(!text.contains(SECRET) && !text.contains("acme"), "{text}");
}

#[tokio::test]
async fn outcomes_have_names_and_a_gates_refusal_is_an_event() {
    let kept = Arc::new(Kept::default());
    let telemetry = Telemetry::new(&TelemetryOptions { tenants: true, ..options() }, kept.clone());
    let runs = Runs::new(telemetry.clone(), "w".parse().unwrap());
    let snooze = |gate: Option<&str>| Outcome::Snooze {
        until: Timestamp(9),
        reason: SECRET.into(),
        park: None,
        gate: gate.map(|g| g.parse().unwrap()),
    };
    let fail = || Outcome::Fail(Failure::new(Category::InvalidInput, "BAD", SECRET));
    let scheduled = Some(Settled::Applied(State::Scheduled));
    let cases = [
        (fail(), Some(Settled::Applied(State::Dead)), "dead", true),
        (snooze(None), scheduled, "snoozed", false),
        (snooze(Some("shopify")), scheduled, "snoozed", false),
        (Outcome::Release, Some(Settled::Applied(State::Ready)), "released", false),
        (Outcome::Cancel, Some(Settled::Applied(State::Cancelled)), "cancelled", false),
        (Outcome::Complete(None), Some(Settled::Stale), "lost", true),
        (fail(), None, "lost", true),
    ];
    for (n, (outcome, reply, _, _)) in cases.iter().enumerate() {
        let mut job = claimed(&new_job(n as u128 + 1), 1);
        runs.begin(&mut job, 0);
        runs.ended(job.ticket, outcome, 0);
        runs.settled([(job.ticket, *reply)].into_iter());
    }
    assert!(telemetry.flush(LONG).await);
    let spans = kept.spans.lock().unwrap();
    assert_eq!(spans.len(), cases.len());
    for (span, (_, _, name, failed)) in spans.iter().zip(&cases) {
        assert_eq!((attribute(span, "tidegate.outcome"), span.failed), (Some(&Value::from(*name)), *failed));
        assert_eq!(attribute(span, "tidegate.tenant"), Some(&"acme".into()), "asked for");
        assert_eq!(span.parent, None, "nobody began a trace for these");
    }
    let events: Vec<_> = spans.iter().flat_map(|s| &s.events).collect();
    assert_eq!(events.len(), 1);
    assert!(events[0].attributes.contains(&("tidegate.gate", "shopify".into())));
    assert!(!format!("{spans:?}").contains(SECRET));
}

#[tokio::test]
async fn a_refusal_says_which_call_it_was_and_whose_only_if_spans_name_tenants() {
    let target = [
        (Part::Connector, "whatsapp"),
        (Part::Tenant, "acme"),
        (Part::Endpoint, "messages"),
        (Part::Subject, "49-170-1234"),
    ];
    let target =
        target.into_iter().fold(Target::new("meta").unwrap(), |t, (part, s)| t.with(part, s).unwrap());
    for tenants in [false, true] {
        let kept = Arc::new(Kept::default());
        let telemetry = Telemetry::new(&TelemetryOptions { tenants, ..options() }, kept.clone());
        let runs = Runs::new(telemetry.clone(), "w".parse().unwrap());
        let gate = Some("meta".parse().unwrap());
        let outcomes = [
            Outcome::Snooze { until: Timestamp(9), reason: SECRET.into(), park: None, gate },
            Outcome::Complete(None),
        ];
        for (n, outcome) in outcomes.iter().enumerate() {
            let mut job = claimed(&new_job(n as u128 + 1), 1);
            runs.refused(job.ticket, "nobody-asks", &target);
            runs.begin(&mut job, 0);
            runs.refused(job.ticket, "first", &Target::new("other").unwrap());
            runs.refused(job.ticket, "messages-per-recipient", &target);
            runs.ended(job.ticket, outcome, 0);
            runs.settled([(job.ticket, Some(Settled::Applied(State::Scheduled)))].into_iter());
        }
        assert!(telemetry.flush(LONG).await);
        let spans = kept.spans.lock().unwrap();
        let events: Vec<_> = spans.iter().flat_map(|s| &s.events).collect();
        assert_eq!(events.len(), 1, "the other went on after it, and ended well");
        let mut said: Vec<_> = events[0].attributes[2..].to_vec();
        said.sort_by_key(|(name, _)| *name);
        let always: Vec<(&str, Value)> = vec![
            ("tidegate.connector", "whatsapp".into()),
            ("tidegate.endpoint", "messages".into()),
            ("tidegate.gate_name", "messages-per-recipient".into()),
        ];
        let whose = [("tidegate.subject", "49-170-1234".into()), ("tidegate.tenant", "acme".into())];
        let all: Vec<_> = always.into_iter().chain(whose.into_iter().filter(|_| tenants)).collect();
        assert_eq!(said, all);
    }
}

#[tokio::test]
async fn what_is_not_sampled_costs_the_job_nothing() {
    let kept = Arc::new(Kept::default());
    let telemetry = Telemetry::new(&TelemetryOptions { sample: 0.0, ..options() }, kept.clone());
    let unsampled = GIVEN.replace("-01", "-00");
    let mut jobs = [
        new_job(1),
        NewJob { trace: Some(unsampled.clone()), ..new_job(2) },
        NewJob { trace: Some("of another kind".into()), ..new_job(3) },
    ];
    enqueue(&telemetry, &mut jobs);
    let carried: Vec<_> = jobs.iter().map(|job| job.trace.as_deref()).collect();
    assert_eq!(carried, [None, Some(unsampled.as_str()), Some("of another kind")]);
    let runs = Runs::new(telemetry.clone(), "w".parse().unwrap());
    for job in &jobs {
        let mut job = claimed(job, 1);
        let before = job.clone();
        runs.begin(&mut job, 0);
        assert_eq!(job, before);
        runs.ended(job.ticket, &Outcome::Complete(None), 0);
        runs.settled([(job.ticket, Some(Settled::Applied(State::Completed)))].into_iter());
    }
    assert!(telemetry.flush(LONG).await);
    assert_eq!((telemetry.sent(), telemetry.dropped(), kept.calls.load(Ordering::SeqCst)), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_away_is_tried_again_and_then_its_batch_is_dropped() {
    let kept = Arc::new(Kept { failures: Mutex::new(vec![later(), later()]), ..Kept::default() });
    let telemetry = Telemetry::new(&options(), kept.clone());
    enqueue(&telemetry, &mut [new_job(1)]);
    assert!(telemetry.flush(LONG).await);
    assert_eq!((telemetry.sent(), telemetry.dropped(), kept.calls.load(Ordering::SeqCst)), (1, 0, 3));
    *kept.failures.lock().unwrap() = vec![later(); 3];
    enqueue(&telemetry, &mut [new_job(2), new_job(3)]);
    assert!(telemetry.flush(LONG).await);
    assert_eq!((telemetry.sent(), telemetry.dropped(), kept.calls.load(Ordering::SeqCst)), (1, 2, 6));
    *kept.failures.lock().unwrap() = vec![NotSent::Refused("no".into())];
    enqueue(&telemetry, &mut [new_job(4)]);
    assert!(telemetry.flush(LONG).await);
    assert_eq!((telemetry.dropped(), kept.calls.load(Ordering::SeqCst)), (3, 7), "a refusal is final");
    enqueue(&telemetry, &mut [new_job(5)]);
    assert!(telemetry.flush(LONG).await);
    assert_eq!(telemetry.sent(), 2, "it goes on");
}

#[tokio::test]
async fn a_full_queue_drops_and_counts_and_nobody_waits() {
    let kept = Arc::new(Kept { door: Some(Semaphore::new(0)), ..Kept::default() });
    let telemetry = Telemetry::new(&TelemetryOptions { queue: 10, ..options() }, kept.clone());
    let mut jobs: Vec<NewJob> = (1..=25).map(new_job).collect();
    enqueue(&telemetry, &mut jobs);
    assert_eq!(telemetry.dropped(), 15);
    assert!(!telemetry.flush(Duration::from_millis(20)).await, "the collector does not answer");
    kept.door.as_ref().unwrap().add_permits(10);
    assert!(telemetry.flush(LONG).await);
    assert_eq!((telemetry.sent(), telemetry.dropped()), (10, 15));
}

#[tokio::test]
async fn the_task_ends_with_the_last_handle_and_sends_what_is_left() {
    let kept = Arc::new(Kept::default());
    let telemetry = Telemetry::new(&options(), kept.clone());
    enqueue(&telemetry, &mut [new_job(1)]);
    drop(telemetry);
    // The task holds the exporter; when it is alone, the task is over.
    while Arc::strong_count(&kept) > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(kept.spans.lock().unwrap().len(), 1);
}

#[cfg(feature = "otlp")]
mod over_http {
    use axum::Router;
    use axum::extract::State as Shared;
    use axum::http::StatusCode;
    use axum::routing::post;
    use serde_json::{Value as Json, json};

    use super::*;

    type Got = Arc<Mutex<Vec<Json>>>;

    async fn take(Shared(got): Shared<Got>, body: String) -> (StatusCode, String) {
        let mut got = got.lock().unwrap();
        got.push(serde_json::from_str(&body).unwrap());
        match got.len() {
            1 => (StatusCode::SERVICE_UNAVAILABLE, String::new()),
            2 => (StatusCode::OK, r#"{"partialSuccess":{"rejectedSpans":"1"}}"#.into()),
            _ => (StatusCode::BAD_REQUEST, String::new()),
        }
    }

    #[tokio::test]
    async fn a_collector_gets_what_the_protocol_says() {
        let got = Got::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/v1/traces", post(take)).with_state(got.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let options = TelemetryOptions { service_name: "billing".into(), ..options() };
        let telemetry = Telemetry::otlp(&url, &options).unwrap();
        enqueue(&telemetry, &mut [NewJob { trace: Some(GIVEN.into()), ..new_job(1) }, new_job(2)]);
        assert!(telemetry.flush(LONG).await);
        assert_eq!(
            (telemetry.sent(), telemetry.dropped()),
            (1, 1),
            "after 503 it was sent again; one was rejected"
        );
        enqueue(&telemetry, &mut [new_job(3)]);
        assert!(telemetry.flush(LONG).await);
        assert_eq!((telemetry.sent(), telemetry.dropped()), (1, 2), "400 is final");
        let got = got.lock().unwrap();
        assert_eq!((got.len(), &got[0]), (3, &got[1]));
        let sent = &got[1]["resourceSpans"][0];
        let service = json!({"key": "service.name", "value": {"stringValue": "billing"}});
        assert!(sent["resource"]["attributes"].as_array().unwrap().contains(&service));
        let spans = sent["scopeSpans"][0]["spans"].as_array().unwrap();
        assert_eq!(spans.len(), 2);
        let (child, root) = (&spans[0], &spans[1]);
        assert_eq!(child["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(child["parentSpanId"], "00f067aa0ba902b7");
        assert_eq!((&child["kind"], child["spanId"].as_str().unwrap().len()), (&json!(4), 16));
        assert_eq!((root.get("parentSpanId"), root["traceId"].as_str().unwrap().len()), (None, 32));
        assert_eq!(child.get("status"), None);
        assert!(child["startTimeUnixNano"].as_str().unwrap().parse::<u64>().is_ok());
    }

    #[tokio::test]
    async fn nobody_at_the_address_costs_spans_and_nothing_else() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let telemetry = Telemetry::otlp(&url, &options()).unwrap();
        enqueue(&telemetry, &mut [new_job(1)]);
        assert!(telemetry.flush(LONG).await);
        assert_eq!((telemetry.sent(), telemetry.dropped()), (0, 1));
    }
}
