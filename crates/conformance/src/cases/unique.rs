//! Unique keys: three scopes, three ways to meet a conflict.

use tidegate_core::failure::{Category, Failure};
use tidegate_core::job::{OnConflict, Priority, State, UniqueScope};
use tidegate_store::params::{EnqueueOutcome, Enqueued, NewJob, Outcome, Settled};

use crate::kit::{World, json, kind, unique};

const PERIOD: UniqueScope = UniqueScope::PeriodMs(60_000);
const SCOPES: [UniqueScope; 3] = [UniqueScope::Pending, UniqueScope::PendingOrRunning, PERIOD];

async fn send(
    w: &mut World,
    key: &str,
    scope: UniqueScope,
    mode: OnConflict,
    change: impl FnOnce(&mut NewJob),
) -> Enqueued {
    let mut job = w.job();
    job.unique = Some(unique(key, scope, mode));
    change(&mut job);
    w.enqueue(vec![job]).await[0]
}

fn key(scope: UniqueScope) -> String {
    format!("key {scope:?}")
}

pub async fn keep_returns_the_job_that_holds_the_key_in_every_scope(w: &mut World) {
    for scope in SCOPES {
        let first = send(w, &key(scope), scope, OnConflict::Keep, |_| ()).await;
        assert_eq!(first.outcome, EnqueueOutcome::Created);
        let before = w.get(first.id).await;
        let second = send(w, &key(scope), scope, OnConflict::Keep, |j| {
            j.payload = json("[2]");
            j.priority = Some(Priority::Critical);
        })
        .await;
        assert_eq!((second.id, second.outcome), (first.id, EnqueueOutcome::Kept));
        assert_eq!(w.get(first.id).await, before, "{scope:?}");
    }
    assert_eq!(w.claim(10).await.jobs.len(), 3);
}

pub async fn replace_gives_a_pending_job_the_new_payload_in_every_scope(w: &mut World) {
    for scope in SCOPES {
        let first = send(w, &key(scope), scope, OnConflict::Keep, |_| ()).await;
        let second = send(w, &key(scope), scope, OnConflict::Replace, |j| j.payload = json("[2]")).await;
        assert_eq!((second.id, second.outcome), (first.id, EnqueueOutcome::Replaced));
        assert_eq!(w.get(first.id).await.payload.as_str(), "[2]", "{scope:?}");
    }
    w.restart().await;
    let claimed = w.claim(10).await;
    assert_eq!(claimed.jobs.len(), 3);
    assert!(claimed.jobs.iter().all(|j| j.payload.as_str() == "[2]"), "the handler gets the new payload");
}

pub async fn hasten_brings_a_scheduled_job_forward_in_every_scope(w: &mut World) {
    for scope in SCOPES {
        let later = w.now.plus_ms(50_000);
        let soon = w.now.plus_ms(1_000);
        let first = send(w, &key(scope), scope, OnConflict::Keep, |j| j.run_at = Some(later)).await;
        let second = send(w, &key(scope), scope, OnConflict::Hasten, |j| {
            j.run_at = Some(soon);
            j.priority = Some(Priority::Critical);
        })
        .await;
        assert_eq!((second.id, second.outcome), (first.id, EnqueueOutcome::Hastened));
        let got = w.get(first.id).await;
        assert_eq!(
            (got.run_at, got.priority, got.state),
            (soon, Priority::Critical, State::Scheduled),
            "{scope:?}"
        );
        let now = send(w, &key(scope), scope, OnConflict::Hasten, |_| ()).await;
        assert_eq!(now.id, first.id);
        let got = w.get(first.id).await;
        assert_eq!((got.state, got.priority), (State::Ready, Priority::Critical), "never a lower priority");
    }
    assert_eq!(w.claim(10).await.jobs.len(), 3);
}

pub async fn hasten_never_puts_a_job_off(w: &mut World) {
    let soon = w.now.plus_ms(1_000);
    let scope = UniqueScope::Pending;
    let first = send(w, "k", scope, OnConflict::Keep, |j| {
        j.run_at = Some(soon);
        j.priority = Some(Priority::High);
    })
    .await;
    let later = w.now.plus_ms(90_000);
    send(w, "k", scope, OnConflict::Hasten, |j| {
        j.run_at = Some(later);
        j.priority = Some(Priority::Low);
    })
    .await;
    let got = w.get(first.id).await;
    assert_eq!((got.run_at, got.priority), (soon, Priority::High));
}

pub async fn a_pending_key_is_free_after_the_first_claim_and_never_taken_again(w: &mut World) {
    let scope = UniqueScope::Pending;
    let first = send(w, "k", scope, OnConflict::Keep, |_| ()).await;
    let running = w.claim_one().await;
    assert_eq!(running.id, first.id);
    // Back to ready, but the key is gone for good.
    assert_eq!(w.settle(running.ticket, Outcome::Release).await, Settled::Applied(State::Ready));
    let second = send(w, "k", scope, OnConflict::Keep, |_| ()).await;
    assert_eq!(second.outcome, EnqueueOutcome::Created);
    w.restart().await;
    let third = send(w, "k", scope, OnConflict::Keep, |_| ()).await;
    assert_eq!(
        (third.id, third.outcome),
        (second.id, EnqueueOutcome::Kept),
        "the second holds it, not the first"
    );
    let both = w.claim(10).await;
    assert_eq!(both.jobs.len(), 2);
    let fourth = send(w, "k", scope, OnConflict::Keep, |_| ()).await;
    assert_eq!(fourth.outcome, EnqueueOutcome::Created);
}

pub async fn a_running_key_is_held_until_the_job_ends(w: &mut World) {
    let scope = UniqueScope::PendingOrRunning;
    let first = send(w, "k", scope, OnConflict::Keep, |_| ()).await;
    let running = w.claim_one().await;
    let before = w.get(first.id).await;
    for mode in [OnConflict::Keep, OnConflict::Replace, OnConflict::Hasten] {
        let reply = send(w, "k", scope, mode, |j| {
            j.payload = json("[2]");
            j.priority = Some(Priority::Critical);
        })
        .await;
        assert_eq!(
            (reply.id, reply.outcome),
            (first.id, EnqueueOutcome::Kept),
            "{mode:?} leaves a running job alone"
        );
        assert_eq!(w.get(first.id).await, before, "{mode:?}");
    }
    w.finish(&running).await;
    let next = send(w, "k", scope, OnConflict::Keep, |_| ()).await;
    assert_eq!(next.outcome, EnqueueOutcome::Created);
    assert_ne!(next.id, first.id);
}

pub async fn a_running_key_is_free_after_every_end(w: &mut World) {
    let scope = UniqueScope::PendingOrRunning;
    for end in ["completed", "dead", "cancelled ready", "cancelled running", "poison"] {
        let first = send(w, "k", scope, OnConflict::Keep, |_| ()).await;
        assert_eq!(first.outcome, EnqueueOutcome::Created, "before {end}");
        match end {
            "completed" => {
                let job = w.claim_one().await;
                w.finish(&job).await;
            }
            "dead" => {
                let job = w.claim_one().await;
                w.fail(&job, Category::InvalidInput).await;
            }
            "cancelled ready" => {
                w.cancel(first.id).await;
            }
            "cancelled running" => {
                let job = w.claim_one().await;
                w.cancel(first.id).await;
                assert_eq!(w.settle(job.ticket, Outcome::Cancel).await, Settled::Applied(State::Cancelled));
            }
            _ => {
                for _ in 0..4 {
                    w.claim_one().await;
                    w.stall().await;
                }
                assert_eq!(w.state(first.id).await, State::Dead);
            }
        }
    }
    w.restart().await;
    let last = send(w, "k", scope, OnConflict::Keep, |_| ()).await;
    assert_eq!(last.outcome, EnqueueOutcome::Created);
}

pub async fn a_period_key_is_held_whatever_becomes_of_the_job_and_ends_on_time(w: &mut World) {
    let first = send(w, "k", PERIOD, OnConflict::Keep, |_| ()).await;
    let job = w.claim_one().await;
    w.finish(&job).await;
    w.pass(59_999);
    w.restart().await;
    let kept = send(w, "k", PERIOD, OnConflict::Keep, |_| ()).await;
    assert_eq!((kept.id, kept.outcome), (first.id, EnqueueOutcome::Kept));
    w.pass(1);
    let next = send(w, "k", PERIOD, OnConflict::Keep, |_| ()).await;
    assert_eq!(next.outcome, EnqueueOutcome::Created);
}

pub async fn keys_of_different_kinds_do_not_meet(w: &mut World) {
    w.kind("other", "q", |_| ()).await;
    send(w, "k", UniqueScope::Pending, OnConflict::Keep, |_| ()).await;
    let reply = send(w, "k", UniqueScope::Pending, OnConflict::Keep, |j| j.kind = kind("other")).await;
    assert_eq!(reply.outcome, EnqueueOutcome::Created);
}

pub async fn one_key_twice_in_a_batch_makes_one_job(w: &mut World) {
    let jobs: Vec<NewJob> = (0..3)
        .map(|_| {
            let mut job = w.job();
            job.unique = Some(unique("k", UniqueScope::Pending, OnConflict::Keep));
            job
        })
        .collect();
    let reply = w.enqueue(jobs).await;
    let made: Vec<_> = reply.iter().map(|e| e.outcome).collect();
    assert_eq!(made, [EnqueueOutcome::Created, EnqueueOutcome::Kept, EnqueueOutcome::Kept]);
    assert!(reply.iter().all(|e| e.id == reply[0].id));
    assert_eq!(w.claim(10).await.jobs.len(), 1);
}

pub async fn hasten_never_comes_before_a_time_the_server_named(w: &mut World) {
    let scope = UniqueScope::PendingOrRunning;
    let first = send(w, "k", scope, OnConflict::Keep, |_| ()).await;
    let job = w.claim_one().await;
    let named = w.now.plus_ms(90_000);
    let mut failure = Failure::new(Category::TransientRateLimit, "RATE_LIMITED", "slow down");
    failure.retry_at = Some(named);
    let Settled::Again(at) = w.settle(job.ticket, Outcome::Fail(failure)).await else {
        panic!("it is tried again")
    };
    assert!(at >= named);
    w.restart().await;
    let reply = send(w, "k", scope, OnConflict::Hasten, |_| ()).await;
    assert_eq!(reply.id, first.id);
    let got = w.get(first.id).await;
    assert!(got.run_at >= named, "{} before {named}", got.run_at);
    assert_eq!(got.state, State::Scheduled);
    assert!(w.claim(10).await.jobs.is_empty());
}

pub async fn an_erased_job_frees_its_key(w: &mut World) {
    let scope = UniqueScope::PendingOrRunning;
    let acme = crate::kit::tenant("acme");
    send(w, "k", scope, OnConflict::Keep, |j| j.tenant = Some(acme.clone())).await;
    let erase = tidegate_store::params::Erase {
        tenant: acme.clone(),
        after: tidegate_core::ids::Seq(0),
        scan: 100,
        now: w.now,
    };
    assert_eq!(w.store().erase(erase).await.map(|e| e.erased).ok(), Some(1));
    let next = send(w, "k", scope, OnConflict::Keep, |j| j.tenant = Some(acme)).await;
    assert_eq!(next.outcome, EnqueueOutcome::Created);
}
