//! What workers do: claim, settle, heartbeat, report.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::codes;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Claimed, Settle};
use tidegate_wire::claims::{
    Beat, ClaimReply, ClaimRequest, HeartbeatReply, HeartbeatRequest, ReportReply, ReportRequest,
};
use tidegate_wire::settlements::{SettleReply, SettleRequest, Settled};
use tidegate_wire::{Problem, ProblemBody, Process};
use tokio::time::Instant;

use super::jobs::too_many_waiting;
use crate::call::{Answer, Call, ok};
use crate::delivery::{Claim, Delivery};
use crate::mint::process_of;
use crate::turnstile::{Dry, Look, Reason};

/// A claim that waits looks this often even if nothing is heard.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Shortest wait for a time that the store named.
const SHORTEST: Duration = Duration::from_millis(1);
/// Most queues in one claim, and most leases, settlements or reports in one request.
const MOST: (usize, usize) = (1_000, 10_000);

/// Claims jobs.
#[utoipa::path(
    post, path = "/v1/claims", tag = "work", operation_id = "claim",
    description = "Hands out jobs under one lease, within every limit and park. With `wait_ms`, waits for the first one. \
                   A worker that goes away before the answer gives them back. There may be fewer than fit `max`: an \
                   answer has a bound in bytes, too.",
    request_body(content = ClaimRequest, example = json!({
        "worker": "mailer-1", "queues": [{"name": "billing"}], "max": 10, "lease_ms": 30000, "wait_ms": 20000
    })),
    responses((status = 200, body = ClaimReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn claim(mut call: Call) -> Answer {
    let request: ClaimRequest = call.json()?;
    check(&request)?;
    let wait = Duration::from_millis(request.wait_ms.unwrap_or(0)).min(call.app.limits.wait);
    call.forget_body();
    if let Some(place) = &call.place {
        place.attend();
    }
    let mut claim = request.into_claim(|worker| Process(process_of(worker)), call.now);
    claim.max = claim.max.min(call.app.portion.most());
    let (mut claimed, now) = claim_or_wait(&call, claim, Instant::now() + wait).await?;
    drop(Delivery::new(call.app.clone(), call.app.portion.cut(&mut claimed).iter()));
    let delivery = Delivery::new(call.app.clone(), claimed.jobs.iter());
    let reply = ok(&ClaimReply::new(claimed, now))?;
    match &call.place {
        Some(place) => place.deliver(delivery),
        None => delivery.arrived(),
    }
    Ok(reply)
}

fn check(request: &ClaimRequest) -> Result<(), Problem> {
    if request.queues.is_empty() || request.queues.len() > MOST.0 {
        return Err(Problem::invalid(format!("name between 1 and {} queues", MOST.0)).at("/queues"));
    }
    if !(1..=limits::MAX_CLAIM_BATCH as u32).contains(&request.max) {
        return Err(
            Problem::invalid(format!("max must be between 1 and {}", limits::MAX_CLAIM_BATCH)).at("/max")
        );
    }
    if request.lease_ms.is_some_and(|ms| !limits::LEASE_MS.contains(&ms)) {
        let (least, most) = (limits::LEASE_MS.start(), limits::LEASE_MS.end());
        let detail = format!("a lease must have between {least} and {most} ms");
        return Err(Problem::new(codes::INVALID_TIME, detail).at("/lease_ms"));
    }
    Ok(())
}

/// Claims until something is there or the time is over. Returns the time of the claim.
async fn claim_or_wait(
    call: &Call,
    mut claim: tidegate_store::params::Claim,
    end: Instant,
) -> Result<(Claimed, Timestamp), Problem> {
    let app = &call.app;
    // Registered before looking: a wake-up between the two is not lost.
    let mut work = app.store.signals().on_work();
    let mut wakeup = *work.borrow_and_update();
    let mut place = None;
    let mut next = None;
    let mut turn = None;
    let mut look = true;
    loop {
        if look {
            claim.now = app.now();
            let claimed = call.done(Claim::new(app.clone(), claim.clone()).await)?;
            if !claimed.jobs.is_empty() || Instant::now() >= end {
                return Ok((claimed, claim.now));
            }
            let dry = Dry { process: claim.process, wakeup, at: claim.now, next: claimed.next_wakeup };
            app.turnstile.found_nothing(&claim.queues, dry);
            next = claimed.next_wakeup;
        }
        drop(turn.take());
        if place.is_none() {
            place = Some(app.long_polls.try_acquire().map_err(|_| too_many_waiting())?);
        }
        let now = app.now();
        let pause = next.map_or(LOOK_AGAIN, |t: Timestamp| {
            Duration::from_millis(t.since(now).max(0) as u64).clamp(SHORTEST, LOOK_AGAIN)
        });
        let over = Claimed { next_wakeup: next, ..Claimed::default() };
        let mut due = None;
        tokio::select! {
            // The sender lives as long as the store.
            _ = work.changed() => {}
            () = tokio::time::sleep_until((Instant::now() + pause).min(end)) => {
                due = Some(now.plus_ms(pause.as_millis() as i64));
            }
            () = app.draining() => return Ok((over, now)),
        }
        if Instant::now() >= end {
            return Ok((over, now));
        }
        wakeup = *work.borrow_and_update();
        turn = app.turnstile.turn().await;
        look = match app.turnstile.look(&claim.queues, Reason { process: claim.process, wakeup, due }) {
            Look::Yes => true,
            Look::InVain { next: known } => {
                next = known;
                false
            }
        };
    }
}

/// Settles attempts.
#[utoipa::path(
    post, path = "/v1/settlements", tag = "work", operation_id = "settle",
    description = "Says what became of attempts: complete, fail, snooze, release, cancel. Each is applied only while its \
                   ticket holds the job; the others are refused one by one. Durable when answered.",
    request_body(content = SettleRequest, example = json!({"settlements": [
        {"ticket": "tkt_17_4", "outcome": "complete", "result": {"sent": true}},
        {"ticket": "tkt_17_5", "outcome": "fail", "failure": {"category": "TRANSIENT_NETWORK", "code": "ETIMEDOUT", "message": "no answer"}},
        {"ticket": "tkt_17_6", "outcome": "snooze", "snooze": {"for_ms": 60000, "reason": "the shop is closed"}}
    ]})),
    responses((status = 200, body = SettleReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn settle(call: Call) -> Answer {
    let request: SettleRequest = call.json()?;
    bounded(request.settlements.len(), "settlements")?;
    let mut settlements = Vec::with_capacity(request.settlements.len());
    for (i, settlement) in request.settlements.into_iter().enumerate() {
        let within = |p: Problem| p.within(format!("/settlements/{i}"));
        settlements.push(settlement.into_settlement(call.now).map_err(within)?);
    }
    call.app.settled.fetch_add(settlements.len() as u64, Ordering::Relaxed);
    let settle = Settle { settlements, now: call.now, seed: call.app.mint.seed() };
    let settled = call.done(call.store().settle(settle).await)?;
    ok(&SettleReply { settled: settled.into_iter().map(Settled::from).collect() })
}

fn bounded(count: usize, what: &str) -> Result<(), Problem> {
    if (1..=MOST.1).contains(&count) {
        return Ok(());
    }
    let detail = format!("send between 1 and {} {what}", MOST.1);
    Err(Problem::new(codes::INVALID_BATCH, detail).at(format!("/{what}")))
}

/// Extends leases.
#[utoipa::path(
    post, path = "/v1/heartbeats", tag = "work", operation_id = "heartbeat",
    description = "Extends leases by the time they were claimed for, and tells which of their jobs should be cancelled.",
    request_body(content = HeartbeatRequest, example = json!({"leases": ["lease_17", "lease_18"]})),
    responses((status = 200, body = HeartbeatReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn heartbeat(call: Call) -> Answer {
    let request: HeartbeatRequest = call.json()?;
    bounded(request.leases.len(), "leases")?;
    let leases = request.leases.into_iter().map(|l| l.0).collect();
    let beats = call.done(call.store().heartbeat(leases, call.now).await)?;
    ok(&HeartbeatReply { beats: beats.into_iter().map(Beat::from).collect(), now: call.now.into() })
}

/// Keeps progress and log lines.
#[utoipa::path(
    post, path = "/v1/reports", tag = "work", operation_id = "report",
    description = "Keeps progress and log lines of running jobs. The same request with the same `Idempotency-Key`, sent again \
                   to the same server within a few minutes, keeps them once.",
    params(("Idempotency-Key" = Option<String>, Header, description = "Up to 255 visible characters; within one API key")),
    request_body(content = ReportRequest, example = json!({"reports": [
        {"ticket": "tkt_17_4", "progress": {"fraction": 0.5, "note": "rendered"}, "log": ["page 3 of 6"]}
    ]})),
    responses((status = 200, body = ReportReply), (status = "4XX", body = ProblemBody, content_type = "application/problem+json"))
)]
pub(crate) async fn report(call: Call) -> Answer {
    let request: ReportRequest = call.json()?;
    bounded(request.reports.len(), "reports")?;
    let mut reports = Vec::with_capacity(request.reports.len());
    for (i, report) in request.reports.into_iter().enumerate() {
        reports.push(report.into_report().map_err(|p| p.within(format!("/reports/{i}")))?);
    }
    let store = call.app.store.clone();
    let now = call.now;
    let keep = async move { store.report(reports, now).await };
    let kept = match call.idempotency_key()? {
        Some(key) => call.app.repeats.once(&call.app, (call.caller.scope(), key), keep).await,
        None => keep.await,
    };
    ok(&ReportReply { kept: call.done(kept)? })
}
