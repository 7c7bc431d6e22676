//! What people do to jobs: cancel, run now, reprioritise.

use tidegate_core::codes;
use tidegate_core::failure::Category;
use tidegate_core::job::{Priority, State};
use tidegate_core::why::Cause;
use tidegate_store::params::{CancelReply, Outcome, Settled};

use crate::kit::{World, ids, refused, tenant, with_priority};

pub async fn a_waiting_job_is_cancelled_at_once(w: &mut World) {
    let ready = w.add_one().await;
    let mut later = w.job();
    later.run_at = Some(w.now.plus_ms(1_000));
    let scheduled = w.add(later).await;
    for id in [ready, scheduled] {
        assert_eq!(w.cancel(id).await, CancelReply::Cancelled);
        let job = w.get(id).await;
        assert_eq!((job.state, job.finished_at), (State::Cancelled, Some(w.now)));
        assert!(
            matches!(w.cause(id).await, Cause::Cancelled { note: Some(n), .. } if n.contains("operator"))
        );
        assert_eq!(w.cancel(id).await, CancelReply::AlreadyFinished(State::Cancelled));
    }
    w.restart().await;
    w.pass(2_000);
    assert!(w.claim(5).await.jobs.is_empty());
}

pub async fn a_running_job_is_asked_to_stop(w: &mut World) {
    let id = w.add_many(2, |_, _| ()).await[1];
    let claimed = w.claim(2).await;
    let store = w.store();
    let mut cancels = store.signals().on_cancel();
    assert_eq!(w.cancel(id).await, CancelReply::Requested);
    assert_eq!(cancels.try_recv().ok(), Some(id), "its worker is told at once");
    let job = claimed.jobs[1].clone();
    assert_eq!(job.id, id);
    assert_eq!(w.beat(job.ticket.lease).await.cancel, [job.ticket.seq], "and with each heartbeat");
    assert_eq!(w.state(id).await, State::Running);
    assert!(w.get(id).await.held.is_some_and(|h| h.cancel_requested));
    w.restart().await;
    assert_eq!(w.beat(job.ticket.lease).await.cancel, [job.ticket.seq], "a restart does not forget it");
    assert_eq!(w.settle(job.ticket, Outcome::Cancel).await, Settled::Applied(State::Cancelled));
    assert_eq!(w.cancel(id).await, CancelReply::AlreadyFinished(State::Cancelled));
    assert!(w.beat(job.ticket.lease).await.cancel.is_empty());
}

pub async fn a_job_asked_to_stop_does_not_run_again(w: &mut World) {
    for end in 0..4 {
        let id = w.add_one().await;
        let job = w.claim_one().await;
        assert_eq!(w.cancel(id).await, CancelReply::Requested);
        match end {
            0 => drop(w.fail(&job, Category::TransientNetwork).await),
            1 => drop(w.snooze(&job, 1_000, None).await),
            2 => drop(w.settle(job.ticket, Outcome::Release).await),
            _ => w.stall().await,
        }
        assert_eq!(w.state(id).await, State::Cancelled, "end {end}");
    }
    w.pass(100_000);
    assert!(w.claim(5).await.jobs.is_empty());
}

pub async fn a_job_that_completes_in_spite_of_a_cancel_is_completed(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    w.cancel(id).await;
    w.finish(&job).await;
    assert_eq!(w.state(id).await, State::Completed);
}

pub async fn a_finished_job_cannot_be_cancelled(w: &mut World) {
    let dead = w.add_dead().await;
    assert_eq!(w.cancel(dead).await, CancelReply::AlreadyFinished(State::Dead));
    let id = w.add_one().await;
    let job = w.claim_one().await;
    w.finish(&job).await;
    assert_eq!(w.cancel(id).await, CancelReply::AlreadyFinished(State::Completed));
    assert_eq!(w.state(id).await, State::Completed);
}

pub async fn cancelling_frees_room(w: &mut World) {
    w.queue("q", |s| {
        s.max_ready = Some(2);
        s.max_ready_per_tenant = Some(1);
    })
    .await;
    let acme = tenant("acme");
    let id = w.add_many(1, |_, j| j.tenant = Some(acme.clone())).await[0];
    w.cancel(id).await;
    w.add_many(1, |_, j| j.tenant = Some(acme.clone())).await;
}

pub async fn run_now_makes_a_scheduled_job_ready(w: &mut World) {
    let mut later = w.job();
    later.run_at = Some(w.now.plus_ms(60_000));
    let delayed = w.add(later).await;
    assert_eq!(w.store().run_now(delayed, w.now).await.ok(), Some(State::Ready));
    assert_eq!(w.store().run_now(delayed, w.now).await.ok(), Some(State::Ready), "again changes nothing");
    w.restart().await;
    let job = w.claim_one().await;
    assert_eq!(job.id, delayed);
    assert_eq!(w.store().run_now(delayed, w.now).await.ok(), Some(State::Running));
    let Settled::Again(_) = w.fail(&job, Category::TransientRateLimit).await else {
        panic!("it is tried again")
    };
    assert_eq!(w.store().run_now(delayed, w.now).await.ok(), Some(State::Ready), "a retry too");
    let job = w.claim_one().await;
    w.snooze(&job, 60_000, None).await;
    assert_eq!(w.store().run_now(delayed, w.now).await.ok(), Some(State::Ready), "a snooze too");
    let job = w.claim_one().await;
    w.finish(&job).await;
    assert_eq!(refused(w.store().run_now(delayed, w.now).await), codes::WRONG_STATE);
    assert_eq!(w.view("q").await.scheduled, 0);
}

pub async fn reprioritise_moves_a_job_in_every_open_state(w: &mut World) {
    let low = w.add_many(3, with_priority(Priority::Low)).await;
    let mut later = w.job();
    later.run_at = Some(w.now.plus_ms(1_000));
    let later = w.add(later).await;
    w.store().reprioritise(low[2], Priority::Critical, w.now).await.expect("ready");
    w.store().reprioritise(later, Priority::High, w.now).await.expect("scheduled");
    w.restart().await;
    let first = w.claim_one().await;
    assert_eq!((first.id, first.priority), (low[2], Priority::Critical));
    w.store().reprioritise(first.id, Priority::Low, w.now).await.expect("running");
    assert_eq!(w.settle(first.ticket, Outcome::Release).await, Settled::Applied(State::Ready));
    w.pass(1_000);
    assert_eq!(ids(&w.claim(5).await), [later, low[0], low[1], low[2]], "by priority, then by arrival");
}

pub async fn a_finished_job_keeps_its_priority(w: &mut World) {
    let dead = w.add_dead().await;
    assert_eq!(refused(w.store().reprioritise(dead, Priority::High, w.now).await), codes::WRONG_STATE);
}

pub async fn reprioritised_back_and_forth_a_job_is_still_one_job(w: &mut World) {
    let id = w.add_one().await;
    for round in 0..3 {
        for priority in Priority::ALL {
            w.store().reprioritise(id, priority, w.now).await.expect("it is ready");
        }
        if round == 1 {
            w.restart().await;
        }
    }
    assert_eq!(w.view("q").await.ready, 1);
    let job = w.claim_one().await;
    w.finish(&job).await;
    assert!(w.claim(5).await.jobs.is_empty());
    w.pass(90_000_000);
    assert_eq!(w.store().prune(10, w.now).await.ok(), Some(1));
    let again = w.add_one().await;
    assert_eq!(ids(&w.claim(5).await), [again], "the lane can be used again");
}
