//! Traces of an embedded program: what it enqueues, what its worker runs, and what handlers hand on.

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tidegate::gates::GateSettings;
use tidegate::telemetry::{Exporter, Kind, NotSent, Span, Value};
use tidegate::{
    Context, Failure, Job, Outcome, RetryPolicy, Telemetry, TelemetryOptions, Tidegate, TraceParent, Worker,
    done,
};

const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[derive(Serialize, Deserialize, Job)]
struct First {
    secret: String,
}

#[derive(Serialize, Deserialize, Job)]
struct Next;

#[derive(Default)]
struct Kept(Mutex<Vec<Span>>);

#[async_trait::async_trait]
impl Exporter for Kept {
    async fn export(&self, spans: &[Span]) -> Result<u64, NotSent> {
        self.0.lock().unwrap().extend_from_slice(spans);
        Ok(0)
    }
}

fn traced(sample: f64) -> (Tidegate, Arc<Kept>) {
    let kept = Arc::new(Kept::default());
    let options = TelemetryOptions { sample, ..TelemetryOptions::default() };
    (Tidegate::memory().with_telemetry(Telemetry::new(&options, kept.clone())), kept)
}

async fn first(_: First, cx: Context) -> Outcome {
    if cx.attempt() == 1 {
        return Err(Failure::network("ETIMEDOUT", "s3cret message"));
    }
    let context = cx.traceparent().unwrap_or_default().to_owned();
    cx.tide().enqueue(Next).traceparent(context).await?;
    done()
}

fn outcome(span: &Span) -> Option<&Value> {
    span.attributes.iter().find(|(name, _)| *name == "tidegate.outcome").map(|(_, value)| value)
}

#[tokio::test]
async fn a_program_is_one_trace_from_its_caller_to_what_its_handlers_enqueue() {
    let (tide, kept) = traced(0.0);
    let retry = RetryPolicy {
        max_attempts: 3,
        backoff: tidegate::Backoff::Fixed { delay_ms: 1 },
        ..RetryPolicy::none()
    };
    let job = tide.enqueue(First { secret: "s3cret".into() }).traceparent(GIVEN).tenant("acme").retry(retry);
    let job = job.await.unwrap();
    Worker::new(&tide).handle(first).handle(async |_: Next, _| done()).run_until_idle().await.unwrap();
    let spans = kept.0.lock().unwrap().clone();
    let given: TraceParent = GIVEN.parse().unwrap();
    let found = |name: &str, kind: Kind| -> Vec<&Span> {
        spans
            .iter()
            .filter(|s| s.name == name && s.kind == kind && s.context.trace() == given.trace())
            .collect()
    };
    assert_eq!(spans.len(), 5, "{spans:#?}");
    let enqueued = found("enqueue first", Kind::Producer)[0];
    assert_eq!(enqueued.parent, Some(given.span()));
    let runs = found("run first", Kind::Consumer);
    assert!(runs.iter().all(|run| run.parent == Some(enqueued.context.span())));
    assert_eq!(
        runs.iter().map(|r| outcome(r)).collect::<Vec<_>>(),
        [Some(&"failed".into()), Some(&"completed".into())]
    );
    let next = found("enqueue next", Kind::Producer)[0];
    assert_eq!(next.parent, Some(runs[1].context.span()), "the second run enqueued it");
    assert_eq!(found("run next", Kind::Consumer)[0].parent, Some(next.context.span()));
    let stored = tide.job(job.id).await.unwrap().unwrap().trace;
    assert_eq!(stored, Some(enqueued.context.to_string()), "over all attempts");
    let text = format!("{spans:?}");
    assert!(!text.contains("s3cret") && !text.contains("acme"), "{text}");
    let telemetry = tide.telemetry().unwrap();
    assert_eq!((telemetry.sent(), telemetry.dropped()), (5, 0), "sent when the worker had ended");
}

#[tokio::test]
async fn a_job_without_a_context_has_the_trace_that_its_id_names() {
    let (tide, kept) = traced(1.0);
    let job = tide.enqueue(Next).await.unwrap();
    let refused = tide.enqueue(First { secret: "another job".into() }).id(job.id).await;
    assert!(refused.is_err());
    tide.close().await.unwrap();
    let spans = kept.0.lock().unwrap();
    assert!(spans.iter().all(|s| s.context.trace() == job.id.uuid().as_u128() && s.parent.is_none()));
    assert_eq!(
        spans.iter().map(|s| (outcome(s), s.failed)).collect::<Vec<_>>(),
        [(Some(&"created".into()), false), (Some(&"refused".into()), true),]
    );
}

#[tokio::test]
async fn a_run_that_a_gate_refused_says_which_call_it_was() {
    let gates = "[[gates.shopify.gates]]\nname = \"calls\"\ngate.window = { max = 1, every = \"200ms\" }";
    let (tide, kept) = traced(1.0);
    let tide = tide.gates(GateSettings::from_toml(gates).unwrap()).await.unwrap();
    for _ in 0..2 {
        tide.enqueue(Next).tenant("acme").await.unwrap();
    }
    let call = async |_: Next, cx: Context| -> Outcome {
        let _permit = cx.gate("shopify").endpoint("orders").subject("49-170-1234").admit().await?;
        done()
    };
    Worker::new(&tide).gate_patience("0s").handle(call).run_until_idle().await.unwrap();
    let spans = kept.0.lock().unwrap();
    let refused: Vec<_> = spans.iter().flat_map(|s| &s.events).filter(|e| e.name == "gate refused").collect();
    assert!(!refused.is_empty());
    for event in refused {
        for said in [("tidegate.gate_name", "calls"), ("tidegate.endpoint", "orders")] {
            assert!(event.attributes.contains(&(said.0, said.1.into())), "{event:?}");
        }
    }
    let text = format!("{spans:?}");
    assert!(!text.contains("acme") && !text.contains("49-170-1234"), "nobody asked for names: {text}");
}

#[tokio::test]
async fn a_program_that_records_nothing_stores_and_hands_on_what_it_was_given() {
    let (tide, kept) = traced(0.0);
    let jobs = [
        tide.enqueue(Next).await.unwrap(),
        tide.enqueue(Next).traceparent(GIVEN.replace("-01", "-00")).await.unwrap(),
    ];
    Worker::new(&tide)
        .handle(async |_: Next, cx: Context| tidegate::done_with(cx.traceparent().unwrap_or("none")))
        .run_until_idle()
        .await
        .unwrap();
    for (job, handed) in jobs.iter().zip(["none".to_owned(), GIVEN.replace("-01", "-00")]) {
        let job = tide.job(job.id).await.unwrap().unwrap();
        assert_eq!(job.result.unwrap().as_str(), format!("{handed:?}"));
    }
    assert!(kept.0.lock().unwrap().is_empty());
}
