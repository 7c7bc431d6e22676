//! A clock that goes back: nothing is held for longer than one lease or one window.

use tidegate_core::job::State;
use tidegate_core::limits::DEFAULT_LEASE_MS;
use tidegate_core::registry::Limiter;
use tidegate_store::params::Settled;

use crate::kit::{World, ids};

const HOUR: i64 = 3_600_000;

pub async fn after_a_step_back_a_lease_ends_within_its_length(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    w.pass(-HOUR);
    assert!(w.claim_as(2, 1).await.jobs.is_empty());
    w.pass(DEFAULT_LEASE_MS - 1);
    assert!(w.claim_as(2, 1).await.jobs.is_empty());
    w.pass(1);
    assert_eq!(ids(&w.claim_as(2, 1).await), [id]);
    assert_eq!(w.complete(&job).await, Settled::Stale);
}

pub async fn after_a_step_back_over_a_restart_a_lease_ends_within_its_length(w: &mut World) {
    let id = w.add_one().await;
    w.claim_one().await;
    w.pass(-HOUR);
    w.restart().await;
    w.pass(DEFAULT_LEASE_MS);
    assert_eq!(ids(&w.claim_as(2, 1).await), [id]);
}

pub async fn after_a_step_back_a_holder_goes_on(w: &mut World) {
    w.add_one().await;
    let job = w.claim_one().await;
    w.pass(-HOUR);
    assert_eq!(w.beat(job.ticket.lease).await.until, Some(w.now.plus_ms(DEFAULT_LEASE_MS)));
    w.pass(DEFAULT_LEASE_MS - 1);
    w.finish(&job).await;
}

pub async fn after_a_step_back_the_limiter_is_free_within_a_window(w: &mut World) {
    w.queue("q", |s| s.limiter = Some(Limiter { max: 2, per_ms: 10_000 })).await;
    w.add_many(10, |_, _| ()).await;
    assert_eq!(w.claim(10).await.jobs.len(), 2);
    w.pass(-HOUR);
    assert!(w.claim(10).await.jobs.is_empty(), "a step back frees nothing");
    w.pass(9_999);
    assert!(w.claim(10).await.jobs.is_empty());
    w.pass(1);
    assert_eq!(w.claim(10).await.jobs.len(), 2);
}

pub async fn after_a_step_back_over_a_restart_the_limiter_is_free_within_a_window(w: &mut World) {
    w.queue("q", |s| s.limiter = Some(Limiter { max: 2, per_ms: 10_000 })).await;
    w.add_many(10, |_, _| ()).await;
    w.claim(10).await;
    w.pass(-HOUR);
    w.restart().await;
    assert!(w.claim(10).await.jobs.is_empty());
    w.pass(10_000);
    assert_eq!(w.claim(10).await.jobs.len(), 2);
}

pub async fn a_ready_job_stays_ready_when_the_clock_goes_back(w: &mut World) {
    let mut job = w.job();
    job.run_at = Some(w.now.plus_ms(1_000));
    let id = w.add(job).await;
    w.pass(1_000);
    w.advance().await;
    w.pass(-HOUR);
    assert_eq!(w.state(id).await, State::Ready);
    assert_eq!(ids(&w.claim(1).await), [id]);
}

pub async fn readings_slightly_out_of_order_are_taken_as_standing_still(w: &mut World) {
    w.add_one().await;
    let job = w.claim_one().await;
    let until = w.now.plus_ms(DEFAULT_LEASE_MS);
    w.pass(-900);
    assert_eq!(
        w.beat(job.ticket.lease).await.until,
        Some(until),
        "no lease is cut by a reading that came late"
    );
}
