//! Waiting for gates: it counts for nothing, parks its scope, and comes back with caution.

use tidegate_core::gates::Room;
use tidegate_core::ids::JobId;
use tidegate_core::job::{ParkScope, ScheduledBecause, State};
use tidegate_store::params::{ClaimedJob, Outcome, Settled};

use crate::kit::{World, connector, group, ids, kind};

fn scope() -> ParkScope {
    ParkScope::GroupOnConnector(group("a"), connector("shopify"))
}

/// Jobs of group `a` that call shopify.
async fn calls(w: &mut World, n: usize) -> Vec<JobId> {
    w.kind("call", "q", |k| k.connector = Some(connector("shopify"))).await;
    let mut made = vec![];
    for _ in 0..n {
        let mut job = w.job();
        (job.group, job.kind) = (Some(group("a")), kind("call"));
        made.push(w.add(job).await);
    }
    made
}

/// A gate refuses a claimed job for so long.
async fn refuse(w: &World, job: &ClaimedJob, ms: i64) -> Settled {
    let until = w.now.plus_ms(ms);
    let (park, gate) = (Some(scope()), Some(connector("shopify")));
    w.settle(job.ticket, Outcome::Snooze { until, reason: "bucket 40 of 100".into(), park, gate }).await
}

/// A gate of everybody refuses a claimed job for so long.
async fn refuse_all(w: &World, job: &ClaimedJob, ms: i64) -> Settled {
    let until = w.now.plus_ms(ms);
    let (park, gate) = (Some(ParkScope::Connector(connector("shopify"))), Some(connector("shopify")));
    w.settle(job.ticket, Outcome::Snooze { until, reason: "window 20 of 20".into(), park, gate }).await
}

pub async fn waiting_for_a_gate_counts_for_nothing(w: &mut World) {
    calls(w, 1).await;
    for _ in 0..3 {
        let job = w.claim_one().await;
        let until = w.now.plus_ms(1_000);
        assert_eq!(refuse(w, &job, 1_000).await, Settled::Again(until));
        let got = w.get(job.id).await;
        assert_eq!((got.state, got.run_at, got.snoozes, got.attempt), (State::Scheduled, until, 0, 0));
        assert!(w.claim(1).await.jobs.is_empty());
        w.pass(1_000);
    }
}

pub async fn a_gates_park_ends_when_the_first_of_its_jobs_may_come_back(w: &mut World) {
    let all = calls(w, 3).await;
    let claimed = w.claim(2).await.jobs;
    refuse(w, &claimed[0], 1_000).await;
    refuse(w, &claimed[1], 5_000).await;
    let parks = w.store().parks().await.expect("parks are listed");
    assert_eq!(parks.len(), 1);
    assert_eq!((parks[0].by.as_str(), parks[0].until), ("gate:shopify", Some(w.now.plus_ms(1_000))));
    assert!(w.claim(10).await.jobs.is_empty(), "the third is not handed out either");
    w.pass(1_000);
    assert_eq!(ids(&w.claim(10).await), [all[0]]);
}

pub async fn a_job_that_comes_back_at_its_time_is_not_kept_by_one_that_was_refused_after_it(w: &mut World) {
    let all = calls(w, 4).await;
    let claimed = w.claim(3).await.jobs;
    refuse(w, &claimed[0], 1_000).await;
    refuse(w, &claimed[1], 2_000).await;
    w.pass(1_000);
    let first = w.claim_one().await;
    assert_eq!(first.id, all[0], "the park has ended");
    w.store().admitted(vec![(first.id, room(0))], w.now).await.expect("a hint is taken");
    // It was handed out with the others, and stands behind all of them.
    refuse(w, &claimed[2], 30_000).await;
    assert!(w.claim(10).await.jobs.is_empty());
    w.pass(1_000);
    assert_eq!(ids(&w.claim(10).await), [all[1]]);
}

pub async fn a_job_that_comes_back_after_a_restart_is_not_kept_either(w: &mut World) {
    let all = calls(w, 3).await;
    let claimed = w.claim(2).await.jobs;
    refuse(w, &claimed[0], 1_000).await;
    refuse(w, &claimed[1], 2_000).await;
    w.restart().await;
    w.pass(1_000);
    let first = w.claim_one().await;
    assert_eq!(first.id, all[0]);
    // Who was refused what was not stored, so it is not known that the second comes sooner.
    refuse(w, &first, 30_000).await;
    assert!(w.claim(10).await.jobs.is_empty());
    w.pass(1_000);
    assert_eq!(ids(&w.claim(10).await), [all[1]]);
}

pub async fn a_job_that_was_put_off_alone_ends_no_park(w: &mut World) {
    calls(w, 3).await;
    let claimed = w.claim(2).await.jobs;
    let (until, gate) = (w.now.plus_ms(1_000), Some(connector("shopify")));
    let alone = Outcome::Snooze { until, reason: "lock held".into(), park: None, gate };
    w.settle(claimed[0].ticket, alone).await;
    refuse(w, &claimed[1], 30_000).await;
    w.pass(1_000);
    assert!(w.claim(10).await.jobs.is_empty());
    assert_eq!(w.store().parks().await.expect("parks are listed").len(), 1);
}

pub async fn after_a_refusal_one_job_asks_and_then_as_many_as_the_gate_said(w: &mut World) {
    let all = calls(w, 10).await;
    let first = w.claim_one().await;
    refuse(w, &first, 1_000).await;
    w.pass(1_000);
    assert_eq!(ids(&w.claim(10).await), [all[0]], "one asks");
    assert!(w.claim(10).await.jobs.is_empty());
    w.store().admitted(vec![(all[0], room(3))], w.now).await.expect("a hint is taken");
    let more = w.claim(10).await;
    assert_eq!(ids(&more), all[1..4]);
    for job in &more.jobs {
        w.finish(job).await;
    }
    assert_eq!(w.claim(10).await.jobs.len(), 3, "what has ended no longer asks");
}

pub async fn a_job_whose_turn_has_come_is_ready_at_once(w: &mut World) {
    let all = calls(w, 2).await;
    let claimed = w.claim(2).await.jobs;
    refuse(w, &claimed[0], 60_000).await;
    assert!(w.claim(10).await.jobs.is_empty());
    let turn = async |w: &World, id| {
        w.store().turn(vec![id], connector("shopify"), w.now).await.expect("a hint is taken");
    };
    turn(w, all[0]).await;
    assert_eq!(ids(&w.claim(10).await), [all[0]]);
    assert!(w.store().parks().await.is_ok_and(|p| p.is_empty()));
    // Called between its refusal and the word of it.
    turn(w, all[1]).await;
    assert_eq!(refuse(w, &claimed[1], 60_000).await, Settled::Applied(State::Ready));
    assert!(w.store().parks().await.is_ok_and(|p| p.is_empty()));
}

pub async fn who_was_called_before_it_was_put_off_asks_although_its_scope_is_closed(w: &mut World) {
    let all = calls(w, 5).await;
    let claimed = w.claim(4).await.jobs;
    refuse(w, &claimed[0], 1_000).await;
    refuse(w, &claimed[1], 60_000).await;
    w.pass(1_000);
    assert_eq!(w.claim_one().await.id, all[0]);
    // Nothing is left: the scope is closed to everybody but those who come back.
    w.store().admitted(vec![(all[0], room(0))], w.now).await.expect("a hint is taken");
    assert!(w.claim(10).await.jobs.is_empty());
    let turn = async |w: &World, id| {
        w.store().turn(vec![id], connector("shopify"), w.now).await.expect("a hint is taken");
    };
    turn(w, all[2]).await;
    assert_eq!(refuse(w, &claimed[2], 1_000).await, Settled::Applied(State::Ready));
    let third = w.claim(10).await;
    assert_eq!(ids(&third), [all[2]], "it alone, and at once");
    // The same where another has parked the scope meanwhile.
    turn(w, all[3]).await;
    refuse(w, &third.jobs[0], 30_000).await;
    assert!(w.claim(10).await.jobs.is_empty());
    assert_eq!(refuse(w, &claimed[3], 1_000).await, Settled::Applied(State::Ready));
    assert_eq!(ids(&w.claim(10).await), [all[3]]);
}

pub async fn a_call_of_another_gate_or_of_long_ago_does_not_undo_a_refusal(w: &mut World) {
    let all = calls(w, 2).await;
    let claimed = w.claim(2).await.jobs;
    w.store().turn(vec![all[0]], connector("netsuite"), w.now).await.expect("a hint is taken");
    w.store().turn(vec![all[1]], connector("shopify"), w.now).await.expect("a hint is taken");
    assert!(matches!(refuse(w, &claimed[0], 60_000).await, Settled::Again(_)));
    // It was admitted since, and this is its next call.
    w.pass(10_000);
    assert!(matches!(refuse(w, &claimed[1], 60_000).await, Settled::Again(_)));
    assert!(w.claim(10).await.jobs.is_empty());
}

pub async fn who_was_called_asks_although_another_is_refused_before_it(w: &mut World) {
    let all = calls(w, 3).await;
    for job in w.claim(2).await.jobs {
        refuse(w, &job, 60_000).await;
    }
    w.store().turn(all[..2].to_vec(), connector("shopify"), w.now).await.expect("a hint is taken");
    // The second stands first in the gate's line, so the first is refused again.
    let first = w.claim_one().await;
    assert_eq!(first.id, all[0]);
    refuse(w, &first, 60_000).await;
    let second = w.claim(10).await;
    assert_eq!(ids(&second), [all[1]], "it was called, and nobody else was");
    w.store().admitted(vec![(all[1], room(0))], w.now).await.expect("a hint is taken");
    w.finish(&second.jobs[0]).await;
    assert!(w.claim(10).await.jobs.is_empty(), "the next to ask is the one that was refused");
    // One that is back and goes without having asked is not waited for.
    w.store().turn(vec![all[0]], connector("shopify"), w.now).await.expect("a hint is taken");
    w.cancel(all[0]).await;
    let third = w.claim_one().await;
    assert_eq!(third.id, all[2]);
    refuse(w, &third, 60_000).await;
    assert_eq!(w.store().parks().await.expect("parks are listed").len(), 1);
}

pub async fn who_was_called_and_does_not_come_opens_nothing(w: &mut World) {
    let all = calls(w, 3).await;
    let claimed = w.claim(2).await.jobs;
    for job in &claimed {
        refuse(w, job, 60_000).await;
    }
    w.store().turn(all[..2].to_vec(), connector("shopify"), w.now).await.expect("a hint is taken");
    let first = w.claim_one().await;
    w.pass(2_000);
    refuse(w, &first, 60_000).await;
    assert!(w.claim(10).await.jobs.is_empty(), "it was waited for long enough");
}

pub async fn what_keeps_one_group_waiting_leaves_its_connector_to_the_others(w: &mut World) {
    let all = calls(w, 2).await;
    let mut others = vec![];
    for _ in 0..2 {
        let mut job = w.job();
        (job.group, job.kind) = (Some(group("b")), kind("call"));
        others.push(w.add(job).await);
    }
    // The connector as a whole is refused for a moment, group `a` until tomorrow.
    let claimed = w.claim(2).await.jobs;
    assert_eq!([claimed[0].id, claimed[1].id], [all[0], others[0]], "accounts of one API take turns");
    refuse_all(w, &claimed[1], 1_000).await;
    refuse(w, &claimed[0], 86_400_000).await;
    w.pass(1_000);
    assert_eq!(ids(&w.claim(10).await), [others[0]]);
    w.store().admitted(vec![(others[0], room(0))], w.now).await.expect("a hint is taken");
    assert_eq!(ids(&w.claim(10).await), [others[1]], "nobody of its own comes back soon: one may find out");
}

pub async fn whoever_waits_for_a_gate_of_all_comes_in_time_though_its_group_was_refused_for_longer(
    w: &mut World,
) {
    let all = calls(w, 3).await;
    let claimed = w.claim(3).await.jobs;
    refuse_all(w, &claimed[0], 2_000).await;
    refuse(w, &claimed[1], 1_000).await;
    refuse(w, &claimed[2], 5_000).await;
    w.pass(2_000);
    assert_eq!(ids(&w.claim(10).await), [all[0]]);
}

pub async fn those_who_are_back_come_before_those_who_have_not_asked(w: &mut World) {
    let mine = calls(w, 2).await;
    let claimed = w.claim(1).await.jobs;
    let mut others = vec![];
    for n in 0..3 {
        let mut job = w.job();
        (job.group, job.kind) = (Some(group(&format!("b{n}"))), kind("call"));
        others.push(w.add(job).await);
    }
    refuse_all(w, &claimed[0], 1_000).await;
    w.pass(1_000);
    assert_eq!(ids(&w.claim(10).await), [mine[0]]);
    w.store().admitted(vec![(mine[0], Room { shared: 2, own: 0 })], w.now).await.expect("a hint is taken");
    let two = ids(&w.claim(10).await);
    assert_eq!(two.len(), 2, "what one account has used up says nothing about the others: {two:?}");
}

pub async fn a_turn_leaves_other_waits_alone(w: &mut World) {
    let all = calls(w, 1).await;
    let job = w.claim_one().await;
    w.fail(&job, tidegate_core::failure::Category::TransientNetwork).await;
    let before = w.get(all[0]).await.run_at;
    w.store().turn(vec![all[0]], connector("shopify"), w.now).await.expect("a hint is taken");
    assert_eq!(w.get(all[0]).await.run_at, before, "a retry waits for its time");
}

pub async fn a_turn_does_not_wake_a_job_that_its_handler_put_off(w: &mut World) {
    let all = calls(w, 1).await;
    let job = w.claim_one().await;
    refuse(w, &job, 1_000).await;
    assert_eq!(w.get(all[0]).await.scheduled_because, Some(ScheduledBecause::Gate));
    w.pass(1_000);
    let job = w.claim_one().await;
    let until = w.now.plus_ms(3_600_000);
    let asleep = Outcome::Snooze { until, reason: "their shop is closed".into(), park: None, gate: None };
    assert_eq!(w.settle(job.ticket, asleep).await, Settled::Again(until));
    w.store().turn(vec![all[0]], connector("shopify"), w.now).await.expect("a hint is taken");
    let got = w.get(all[0]).await;
    assert_eq!((got.state, got.run_at), (State::Scheduled, until));
    assert_eq!(got.scheduled_because, Some(ScheduledBecause::Snooze));
}

pub async fn a_scope_does_not_wait_for_a_refused_job_that_was_cancelled(w: &mut World) {
    let all = calls(w, 4).await;
    let claimed = w.claim(2).await.jobs;
    refuse(w, &claimed[0], 1_000).await;
    refuse(w, &claimed[1], 60_000).await;
    w.pass(1_000);
    assert_eq!(ids(&w.claim(10).await), [all[0]]);
    w.store().admitted(vec![(all[0], room(0))], w.now).await.expect("a hint is taken");
    assert!(w.claim(10).await.jobs.is_empty(), "the next to ask is the one that was refused");
    w.cancel(all[1]).await;
    assert_eq!(ids(&w.claim(10).await), [all[2]], "it does not come: another finds out");
}

/// So many more would pass, whoever asks.
fn room(n: u32) -> Room {
    Room { shared: n, own: n }
}
