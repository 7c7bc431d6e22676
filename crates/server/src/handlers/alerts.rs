//! Alerts: what is open, the rules, silences, trying a channel.

use tidegate_core::codes;
use tidegate_wire::alerts::{Alerts, NewSilence, Rules, SilenceView, Silences, TestAlert, TestedAlert};
use tidegate_wire::{Problem, ProblemBody};

use crate::alerts;
use crate::call::{Answer, Call, none, ok, short};

/// Incidents that are open or about to be.
#[utoipa::path(
    get, path = "/v1/alerts", tag = "alerts", operation_id = "alerts",
    responses((status = 200, body = Alerts), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn list(call: Call) -> Answer {
    call.query()?.end()?;
    ok(&Alerts { alerts: call.done(alerts::list(call.store(), call.now).await)? })
}

/// Rules and channels.
#[utoipa::path(
    get, path = "/v1/alerts/rules", tag = "alerts", operation_id = "alert_rules",
    description = "The rules that this server judges by, shipped ones with what its alerts file says of them and those of the registry's \
                   kinds, and the channels, without what is secret.",
    responses((status = 200, body = Rules), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn rules(call: Call) -> Answer {
    call.query()?.end()?;
    let rules = call.app.alerts.in_force(&call.done(call.store().kinds().await)?);
    ok(&Rules { channels: call.app.alerts.shown(&rules), rules })
}

/// Silences that have not ended.
#[utoipa::path(
    get, path = "/v1/alerts/silences", tag = "alerts", operation_id = "silences",
    responses((status = 200, body = Silences), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn silences(call: Call) -> Answer {
    call.query()?.end()?;
    ok(&Silences { silences: call.done(alerts::list_silences(call.store(), call.now).await)? })
}

/// Begins a silence.
#[utoipa::path(
    post, path = "/v1/alerts/silences", tag = "alerts", operation_id = "silence",
    description = "Nobody is told of what it matches until it ends. What still goes on then is told; what was told before and is over \
                   is told all the same, so that pagers are closed.",
    request_body(content = NewSilence, example = json!({"rule": "queue_depth_high", "target": "queue:billing", "for_ms": 3_600_000, "why": "migration"})),
    responses((status = 200, body = SilenceView), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn silence(call: Call) -> Answer {
    let mut new: NewSilence = call.json()?;
    let by = call.by(new.by.take());
    ok(&call.done(alerts::silence(call.store(), &call.app.alerts, new, by, call.now).await)?)
}

/// Ends a silence.
#[utoipa::path(
    delete, path = "/v1/alerts/silences/{id}", tag = "alerts", operation_id = "unsilence",
    params(("id" = String, Path, example = "sil_0123456789ab")),
    responses((status = 204), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn unsilence(call: Call) -> Answer {
    let id = call.text("id");
    if !id.is_empty() && id.len() <= 64 && call.done(alerts::unsilence(call.store(), id).await)? {
        return none();
    }
    Err(Problem::new(codes::SILENCE_NOT_FOUND, format!("there is no silence {:?}", short(id))))
}

/// Tries a channel.
#[utoipa::path(
    post, path = "/v1/alerts/test", tag = "alerts", operation_id = "test_alert",
    description = "Sends a test to a channel, the way alerts go: as a job that is tried again until it arrives.",
    request_body(content = TestAlert, example = json!({"channel": "slack"})),
    responses((status = 200, body = TestedAlert), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn test(call: Call) -> Answer {
    let TestAlert { channel } = call.json()?;
    let tested = alerts::test(call.store(), &call.app.alerts, &short(&channel), call.now).await;
    ok(&TestedAlert { job: call.done(tested)? })
}
