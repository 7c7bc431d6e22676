//! Spans of attempts: from the start of the handler to its end. They are recorded when the store has said what became of the attempt.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::failure::Category;
use tidegate_core::gates::{Part, Target};
use tidegate_core::ids::WorkerId;
use tidegate_core::job::State;
use tidegate_core::trace::{About, TraceParent};
use tidegate_store::params::{ClaimedJob, Outcome, Settled, Ticket};

use crate::span::Subject;
use crate::{Event, Kind, Span, Telemetry, Value, now_ns};

/// Longest code of an error in a span.
const MAX_CODE: usize = 64;

/// Attempts of a worker that are recorded and not settled.
#[derive(Debug)]
pub struct Runs {
    telemetry: Telemetry,
    worker: WorkerId,
    open: Mutex<HashMap<Ticket, Open>>,
}

#[derive(Debug)]
struct Open {
    span: Span,
    /// The gate that refused its last call, and what that call was about.
    refused: Vec<(&'static str, Value)>,
    said: Option<Said>,
}

/// What the handler came to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    Failed(Category, String),
    Snoozed,
    Released,
    Other,
}

impl Runs {
    /// None yet.
    pub fn new(telemetry: Telemetry, worker: WorkerId) -> Self {
        Self { telemetry, worker, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Ticket, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt begins. If it is recorded, the job carries the context of its span from now on, for the handler.
    pub fn begin(&self, job: &mut ClaimedJob, ahead_ms: i64) {
        let context = match job.trace.as_deref().map(str::parse::<TraceParent>) {
            Some(Err(_)) => return,
            Some(Ok(context)) => Some(context),
            None => None,
        };
        let about = About::Run(job.ticket.lease);
        let Some(place) = self.telemetry.sampling().place(job.id, context, about) else { return };
        let tenant = job.tenant.as_ref().filter(|_| self.telemetry.names_tenants());
        let subject = Subject { id: job.id, kind: &job.kind, queue: Some(&job.queue), tenant };
        let began = now_ns(ahead_ms);
        let mut span = Span::begin(place, Kind::Consumer, "run", subject, began);
        span.set("tidegate.attempt", i64::from(job.attempt));
        span.set("tidegate.worker", self.worker.as_str());
        let waited = (began / 1_000_000) as i64 - job.ready_at.0;
        span.set("tidegate.queue_wait_ms", waited.max(0));
        job.trace = Some(place.own.to_string());
        self.open().insert(job.ticket, Open { span, refused: vec![], said: None });
    }

    /// A gate refused a call of an attempt: what the event will say of it if the attempt ends with that. Whose call it was only
    /// where spans name the tenant: an account or a recipient says as much. Every part is a name of bounded length.
    pub fn refused(&self, ticket: Ticket, gate: &str, target: &Target) {
        let mut open = self.open();
        let Some(Open { refused, .. }) = open.get_mut(&ticket) else { return };
        *refused = vec![("tidegate.gate_name", gate.into())];
        for part in Part::ALL {
            let (attribute, names_somebody) = match part {
                Part::Connector => ("tidegate.connector", false),
                Part::Endpoint => ("tidegate.endpoint", false),
                Part::Tenant => ("tidegate.tenant", true),
                Part::Account => ("tidegate.account", true),
                Part::Subject => ("tidegate.subject", true),
            };
            let text = target.part(part);
            if !text.is_empty() && (self.telemetry.names_tenants() || !names_somebody) {
                refused.push((attribute, text.into()));
            }
        }
    }

    /// The handler ended, and this is to be written.
    pub fn ended(&self, ticket: Ticket, outcome: &Outcome, ahead_ms: i64) {
        let mut open = self.open();
        let Some(Open { span, refused, said }) = open.get_mut(&ticket) else { return };
        span.ended_ns = now_ns(ahead_ms).max(span.began_ns);
        *said = Some(match outcome {
            Outcome::Fail(failure) => {
                Said::Failed(failure.category, failure.code.chars().take(MAX_CODE).collect())
            }
            Outcome::Snooze { until, gate, .. } => {
                if let Some(domain) = gate {
                    let mut attributes = vec![
                        ("tidegate.gate", domain.as_str().into()),
                        ("tidegate.until_ms", until.0.into()),
                    ];
                    attributes.append(refused);
                    span.events.push(Event { name: "gate refused", at_ns: span.ended_ns, attributes });
                }
                Said::Snoozed
            }
            Outcome::Release => Said::Released,
            Outcome::Complete(_) | Outcome::Cancel => Said::Other,
        });
    }

    /// The store said what became of attempts; `None`: that will never be known.
    pub fn settled(&self, answers: impl Iterator<Item = (Ticket, Option<Settled>)>) {
        let mut open = self.open();
        let ended: Vec<Span> =
            answers.filter_map(|(ticket, answer)| Some(open.remove(&ticket)?.end(answer))).collect();
        drop(open);
        if !ended.is_empty() {
            self.telemetry.record(ended);
        }
    }

    /// The telemetry that they are recorded with.
    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }
}

impl Open {
    fn end(self, answer: Option<Settled>) -> Span {
        let Self { mut span, said, .. } = self;
        let outcome = match (answer, &said) {
            (None | Some(Settled::Stale), _) => "lost",
            (Some(Settled::Applied(State::Completed)), _) => "completed",
            (Some(Settled::Applied(State::Cancelled)), _) => "cancelled",
            (Some(Settled::Applied(State::Dead)), _) => "dead",
            (_, Some(Said::Failed(..))) => "failed",
            (_, Some(Said::Snoozed)) => "snoozed",
            (_, Some(Said::Released | Said::Other) | None) => "released",
        };
        span.failed = matches!(outcome, "lost" | "dead" | "failed");
        span.set("tidegate.outcome", outcome);
        match said {
            _ if outcome == "lost" => span.set("error.type", "LEASE_LOST"),
            Some(Said::Failed(category, code)) if span.failed => {
                span.set("tidegate.category", category.as_str());
                span.set("error.type", code.as_str());
            }
            _ => {}
        }
        span
    }
}
