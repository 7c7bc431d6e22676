//! Spans of enqueues.

use tidegate_core::trace::{About, TraceParent};
use tidegate_store::params::{EnqueueOutcome, Enqueued, NewJob};

use crate::span::Subject;
use crate::{Kind, Span, Telemetry, now_ns};

/// Jobs on their way into a store: one span for each that is recorded.
#[derive(Debug)]
#[must_use = "spans are recorded when they end"]
pub struct Enqueueing {
    /// With their place among the jobs.
    spans: Vec<(usize, Span)>,
    ahead_ms: i64,
}

impl Telemetry {
    /// Begins the spans of jobs that are enqueued. From now on such a job carries the context of its span, so that what comes after is a child
    /// of it. A context that cannot be read is left as it is.
    pub fn enqueueing(&self, jobs: &mut [NewJob], ahead_ms: i64) -> Enqueueing {
        let (mut spans, began) = (vec![], now_ns(ahead_ms));
        for (n, job) in jobs.iter_mut().enumerate() {
            let context = match job.trace.as_deref().map(str::parse::<TraceParent>) {
                Some(Err(_)) => continue,
                Some(Ok(context)) => Some(context),
                None => None,
            };
            let Some(place) = self.sampling().place(job.id, context, About::Enqueue) else { continue };
            let tenant = job.tenant.as_ref().filter(|_| self.names_tenants());
            let subject = Subject { id: job.id, kind: &job.kind, queue: job.queue.as_ref(), tenant };
            spans.push((n, Span::begin(place, Kind::Producer, "enqueue", subject, began)));
            job.trace = Some(place.own.to_string());
        }
        Enqueueing { spans, ahead_ms }
    }

    /// Ends the spans of an enqueue: with the answers, or with the code of the error.
    pub fn enqueued(&self, enqueueing: Enqueueing, answer: Result<&[Enqueued], &str>) {
        let Enqueueing { mut spans, ahead_ms } = enqueueing;
        if spans.is_empty() {
            return;
        }
        let now = now_ns(ahead_ms);
        for (n, span) in &mut spans {
            span.ended_ns = now.max(span.began_ns);
            match answer {
                Ok(replies) => {
                    let Some(reply) = replies.get(*n) else { continue };
                    span.set_job(reply.id);
                    span.set("tidegate.outcome", name(reply.outcome));
                }
                Err(code) => {
                    span.failed = true;
                    span.set("tidegate.outcome", "refused");
                    span.set("error.type", code);
                }
            }
        }
        self.record(spans.into_iter().map(|(_, span)| span).collect());
    }
}

fn name(outcome: EnqueueOutcome) -> &'static str {
    match outcome {
        EnqueueOutcome::Created => "created",
        EnqueueOutcome::Kept => "kept",
        EnqueueOutcome::Replaced => "replaced",
        EnqueueOutcome::Hastened => "hastened",
    }
}
