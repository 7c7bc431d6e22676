//! The referee must be able to say no: a true log passes, and each way to falsify it is noticed.

use crate::common::Memory;
use tidegate_conformance::properties;
use tidegate_conformance::referee::{Event, Referee, Violation};
use tidegate_core::ids::LeaseId;
use tidegate_core::job::State;
use tidegate_store::params::{CancelReply, EnqueueOutcome, Outcome, Settled};

/// Logs of true runs.
async fn logs() -> Vec<Vec<Event>> {
    let mut logs = vec![];
    for seed in 0..40 {
        let log =
            properties::run(&mut Memory::open(), seed, 400).await.unwrap_or_else(|broken| panic!("{broken}"));
        logs.push(log);
    }
    logs
}

fn judge(log: &[Event]) -> Result<(), Violation> {
    let mut referee = Referee::default();
    log.iter().try_for_each(|event| referee.observe(event))
}

/// Falsifies one event after another, and wants a violation of this kind for at least one of them.
async fn must_be_noticed(falsify: impl Fn(&mut Event) -> bool, expected: impl Fn(&Violation) -> bool) {
    let mut tried = 0;
    for log in logs().await {
        assert_eq!(judge(&log), Ok(()), "a true log passes");
        for i in 0..log.len() {
            let mut false_log = log.clone();
            if !falsify(&mut false_log[i]) {
                continue;
            }
            tried += 1;
            if judge(&false_log).is_err_and(|violation| expected(&violation)) {
                return;
            }
        }
    }
    panic!("went unnoticed in {tried} falsified logs");
}

#[tokio::test]
async fn a_stale_completion_is_noticed() {
    let lie = |event: &mut Event| {
        let Event::Settled(settle, reply) = event else { return false };
        let stale = reply.iter().position(|s| *s == Settled::Stale);
        let Some(i) = stale else { return false };
        settle.settlements[i].outcome = Outcome::Complete(None);
        reply[i] = Settled::Applied(State::Completed);
        true
    };
    must_be_noticed(lie, |v| matches!(v, Violation::StaleApplied(_))).await;
}

#[tokio::test]
async fn a_refused_holder_is_noticed() {
    let lie = |event: &mut Event| {
        let Event::Settled(_, reply) = event else { return false };
        let Some(applied) = reply.iter_mut().find(|s| **s != Settled::Stale) else { return false };
        *applied = Settled::Stale;
        true
    };
    must_be_noticed(lie, |v| matches!(v, Violation::HolderRefused(_))).await;
}

#[tokio::test]
async fn two_holders_are_noticed() {
    // The first lease is said to have been extended for ever, so whoever gets its jobs later is a second holder.
    let lie = |event: &mut Event| {
        let Event::Claimed(claim, reply) = event else { return false };
        claim.lease_ms = 10_000_000;
        !reply.jobs.is_empty()
    };
    must_be_noticed(lie, |v| matches!(v, Violation::TwoHolders { .. })).await;
}

#[tokio::test]
async fn a_second_end_is_noticed() {
    let lie = |event: &mut Event| {
        let Event::Cancelled(_, reply @ CancelReply::AlreadyFinished(_), _) = event else { return false };
        *reply = CancelReply::Cancelled;
        true
    };
    must_be_noticed(lie, |v| matches!(v, Violation::FinishedTwice(..))).await;
}

#[tokio::test]
async fn a_job_run_after_its_end_is_noticed() {
    let lie = |event: &mut Event| {
        let Event::Settled(settle, reply) = event else { return false };
        let again =
            reply.iter().position(|s| matches!(s, Settled::Again(_) | Settled::Applied(State::Ready)));
        let Some(i) = again else { return false };
        settle.settlements[i].outcome = Outcome::Complete(None);
        reply[i] = Settled::Applied(State::Completed);
        true
    };
    must_be_noticed(lie, |v| matches!(v, Violation::NotClaimable(_, "was finished"))).await;
}

#[tokio::test]
async fn a_job_run_before_its_time_is_noticed() {
    let lie = |event: &mut Event| {
        let Event::Enqueued(jobs, _, now) = event else { return false };
        for job in jobs {
            job.run_at = Some(now.plus_ms(90_000_000));
        }
        true
    };
    must_be_noticed(lie, |v| matches!(v, Violation::NotClaimable(_, "is put off"))).await;
}

#[tokio::test]
async fn a_queue_over_its_limit_is_noticed() {
    let lie = |event: &mut Event| {
        let Event::Queue(_, settings, _) = event else { return false };
        settings.concurrency = settings.concurrency.map(|n| n.saturating_sub(1));
        settings.concurrency.is_some()
    };
    must_be_noticed(lie, |v| matches!(v, Violation::QueueOver(..))).await;
}

#[tokio::test]
async fn a_group_over_its_limit_is_noticed() {
    let lie = |event: &mut Event| {
        let Event::Queue(_, settings, _) = event else { return false };
        settings.group_concurrency = settings.group_concurrency.map(|n| n.saturating_sub(1));
        true
    };
    must_be_noticed(lie, |v| matches!(v, Violation::GroupOver(..))).await;
}

#[tokio::test]
async fn a_window_over_its_bound_is_noticed() {
    let lie = |event: &mut Event| {
        let Event::Queue(_, settings, _) = event else { return false };
        let Some(limiter) = &mut settings.limiter else { return false };
        limiter.per_ms += 1_500;
        true
    };
    must_be_noticed(lie, |v| matches!(v, Violation::LimiterOver(..))).await;
}

#[tokio::test]
async fn a_lost_job_is_noticed() {
    let lie = |event: &mut Event| {
        let Event::Enqueued(jobs, reply, _) = event else { return false };
        jobs.pop();
        reply.pop();
        true
    };
    must_be_noticed(lie, |v| matches!(v, Violation::NotClaimable(_, "was never enqueued"))).await;
    let mut log = logs().await.remove(0);
    let mut referee = Referee::default();
    log.iter().try_for_each(|event| referee.observe(event)).expect("a true log passes");
    let made = log.iter_mut().find_map(|event| match event {
        Event::Enqueued(_, reply, _) => reply.iter().find(|e| e.outcome == EnqueueOutcome::Created),
        _ => None,
    });
    let id = made.expect("something was enqueued").id;
    assert!(matches!(referee.check_state(id, None), Err(Violation::Lost(..))));
}

#[tokio::test]
async fn a_lease_number_used_twice_is_noticed() {
    let lie = |event: &mut Event| {
        let Event::Claimed(_, reply) = event else { return false };
        let Some(lease) = &mut reply.lease else { return false };
        lease.id = LeaseId(1);
        reply.jobs.iter_mut().for_each(|job| job.ticket.lease = LeaseId(1));
        true
    };
    must_be_noticed(lie, |v| matches!(v, Violation::LeaseNotNew(..))).await;
}

#[tokio::test]
async fn a_suspect_in_company_is_noticed() {
    // A batch that is said to have stalled at once: its jobs are suspects when they come back together.
    let lie = |event: &mut Event| {
        let Event::Settled(_, reply) = event else { return false };
        if reply.is_empty() {
            return false;
        }
        *event = Event::Advanced(tidegate_core::time::Timestamp(i64::MAX / 2));
        true
    };
    must_be_noticed(lie, |v| {
        matches!(v, Violation::SuspectShares(_) | Violation::TwoSuspects(..) | Violation::NotAlone(..))
    })
    .await;
}

#[tokio::test]
async fn a_wrong_heartbeat_is_noticed() {
    let lie = |event: &mut Event| {
        let Event::Beaten(_, reply, now) = event else { return false };
        let Some(beat) = reply.first_mut() else { return false };
        beat.until = if beat.until.is_some() { None } else { Some(*now) };
        true
    };
    must_be_noticed(lie, |v| matches!(v, Violation::WrongBeat(..))).await;
}
