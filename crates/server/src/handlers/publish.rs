//! Events that kinds subscribe to.

use axum::http::StatusCode;
use tidegate_store::params::EnqueueOutcome;
use tidegate_wire::ProblemBody;
use tidegate_wire::jobs::EnqueueJob;
use tidegate_wire::versions::{PublishReply, PublishRequest, PublishedJob};

use super::jobs::{admit, check_ids};
use crate::call::{Answer, Call, json};
use crate::mint::idempotent_id;

/// Publishes an event.
#[utoipa::path(
    post, path = "/v1/events", tag = "events", operation_id = "publish",
    description = "Enqueues one job of every kind whose `on` names the event, in one commit: all of them or none. The same request with \
                   the same `Idempotency-Key` enqueues each kind once.",
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "Up to 255 visible characters; within one API key"),
        ("traceparent" = Option<String>, Header, description = "W3C trace context of the jobs; one that is malformed is ignored"),
    ),
    request_body(content = PublishRequest, example = json!({"event": "member.joined", "payload": {"member_id": 7}, "tenant": "acme"})),
    responses(
        (status = 201, description = "At least one new job", body = PublishReply),
        (status = 200, description = "Nothing new", body = PublishReply),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn publish(call: Call) -> Answer {
    let request: PublishRequest = call.json()?;
    let kinds = call.done(tidegate_store::subscribers(call.store(), &request.event).await)?;
    let key = call.idempotency_key()?;
    let mut new = Vec::with_capacity(kinds.len());
    for kind in &kinds {
        // By kind, not by place: a kind that subscribes between two tries must not take another's id.
        let id = key.map(|key| {
            idempotent_id(call.caller.scope(), &format!("event\n{}\n{kind}\n{key}", request.event), 0)
        });
        let job = EnqueueJob {
            id,
            kind: kind.clone(),
            payload: request.payload.clone(),
            queue: None,
            tenant: request.tenant.clone(),
            group: request.group.clone(),
            priority: None,
            run_at: None,
            delay_ms: None,
            timeout_ms: None,
            max_attempts: None,
            retry: None,
            unique: None,
            traceparent: None,
            after: vec![],
            on_dead: None,
        };
        new.push(admit(&call, job, None)?);
    }
    check_ids(&call, &new).await?;
    let enqueued = call.enqueue(new).await?;
    let any_new = enqueued.iter().any(|e| e.outcome == EnqueueOutcome::Created);
    let jobs = kinds.into_iter().zip(enqueued);
    let jobs = jobs.map(|(kind, e)| PublishedJob { kind, id: e.id, outcome: e.outcome }).collect();
    json(if any_new { StatusCode::CREATED } else { StatusCode::OK }, &PublishReply { jobs })
}
