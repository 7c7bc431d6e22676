//! Leases: fencing, heartbeats, expiry, restarts.

use tidegate_core::ids::{LeaseId, ProcessId, Seq};
use tidegate_core::job::State;
use tidegate_core::limits::DEFAULT_LEASE_MS;
use tidegate_store::params::{Outcome, Report, Settled, Settlement, Ticket};

use crate::kit::{World, ids, json};

pub async fn a_lost_lease_cannot_complete(w: &mut World) {
    let id = w.add_one().await;
    let zombie = w.claim_one().await;
    w.stall().await;
    assert_eq!(w.complete(&zombie).await, Settled::Stale, "already before anybody else has the job");
    let next = w.claim_as(2, 1).await.jobs.remove(0);
    assert_eq!(next.id, id);
    for outcome in [
        Outcome::Complete(Some(json("[1]"))),
        Outcome::Release,
        Outcome::Cancel,
        Outcome::Snooze { until: w.now.plus_ms(5), reason: String::new(), park: None, gate: None },
        Outcome::Fail(tidegate_core::failure::Failure::new(
            tidegate_core::failure::Category::InvalidInput,
            "E",
            "dead by a zombie",
        )),
    ] {
        assert_eq!(w.settle(zombie.ticket, outcome).await, Settled::Stale);
    }
    let got = w.get(id).await;
    assert_eq!(got.state, State::Running);
    assert!(got.errors.iter().all(|e| e.code == "LEASE_LOST") && got.result.is_none());
    w.finish(&next).await;
    assert_eq!(w.complete(&zombie).await, Settled::Stale);
    assert_eq!(w.complete(&next).await, Settled::Stale, "a ticket is good for one settlement");
    assert_eq!(w.store().totals().await.map(|t| t.stale_refused).ok(), Some(8));
}

pub async fn a_ticket_is_good_for_one_settlement(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    let done = || Settlement { ticket: job.ticket, outcome: Outcome::Complete(None) };
    assert_eq!(
        w.settle_all(vec![done(), done()]).await,
        [Settled::Applied(State::Completed), Settled::Stale]
    );
    assert_eq!(w.state(id).await, State::Completed);
}

pub async fn made_up_tickets_are_refused(w: &mut World) {
    w.add_many(2, |_, _| ()).await;
    let claimed = w.claim(2).await;
    let real = claimed.jobs[0].ticket;
    for ticket in [
        Ticket { lease: LeaseId(real.lease.0 + 1), seq: real.seq },
        Ticket { lease: LeaseId(0), seq: real.seq },
        Ticket { lease: real.lease, seq: Seq(9_999) },
        Ticket { lease: LeaseId(i64::MAX), seq: Seq(i64::MAX) },
        Ticket { lease: LeaseId(-1), seq: Seq(-1) },
    ] {
        assert_eq!(w.settle(ticket, Outcome::Complete(None)).await, Settled::Stale);
        let report = Report { ticket, progress: Some((0.5, "x".into())), log: vec![] };
        assert_eq!(w.store().report(vec![report], w.now).await.ok(), Some(vec![false]));
    }
    assert!(w.beat(LeaseId(999)).await.until.is_none());
    for job in &claimed.jobs {
        w.finish(job).await;
    }
}

pub async fn a_lease_is_settled_job_by_job(w: &mut World) {
    let all = w.add_many(4, |_, _| ()).await;
    let claimed = w.claim(4).await;
    w.finish(&claimed.jobs[2]).await;
    assert!(w.beat(claimed.jobs[0].ticket.lease).await.until.is_some());
    w.restart().await;
    assert!(w.claim_as(2, 4).await.jobs.is_empty(), "what is held stays held over a restart");
    assert_eq!(
        w.complete(&claimed.jobs[2]).await,
        Settled::Stale,
        "what is settled stays settled over a restart"
    );
    w.finish(&claimed.jobs[0]).await;
    assert_eq!(w.settle(claimed.jobs[1].ticket, Outcome::Release).await, Settled::Applied(State::Ready));
    assert_eq!(ids(&w.claim_as(2, 4).await), [all[1]]);
    w.finish(&claimed.jobs[3]).await;
    assert!(w.beat(claimed.jobs[0].ticket.lease).await.until.is_none(), "an empty lease is gone");
}

pub async fn a_heartbeat_keeps_a_lease(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    for _ in 0..10 {
        w.pass(DEFAULT_LEASE_MS * 2 / 3);
        let beat = w.beat(job.ticket.lease).await;
        assert_eq!((beat.lease, beat.until), (job.ticket.lease, Some(w.now.plus_ms(DEFAULT_LEASE_MS))));
        assert!(w.claim_as(2, 1).await.jobs.is_empty());
    }
    w.restart().await;
    assert_eq!(
        w.get(id).await.held.map(|h| h.until),
        Some(w.now.plus_ms(DEFAULT_LEASE_MS)),
        "the beat is durable"
    );
    w.finish(&job).await;
}

pub async fn a_lease_ends_on_time(w: &mut World) {
    let id = w.add_one().await;
    let claimed = w.claim(1).await;
    let until = w.now.plus_ms(DEFAULT_LEASE_MS);
    assert_eq!(claimed.lease.map(|l| l.until), Some(until));
    let held = w.get(id).await.held.expect("it is held");
    assert_eq!((held.until, held.since, held.worker.as_str()), (until, w.now, "w1"));
    w.pass(DEFAULT_LEASE_MS - 1);
    let none = w.claim_as(2, 1).await;
    assert!(none.jobs.is_empty());
    assert_eq!(none.next_wakeup, Some(until), "the claim says when the lease ends");
    w.pass(1);
    assert_eq!(ids(&w.claim_as(2, 1).await), [id]);
}

pub async fn late_but_before_the_rescue_still_counts(w: &mut World) {
    let all = w.add_many(3, |_, _| ()).await;
    let claimed = w.claim(3).await;
    w.pass(DEFAULT_LEASE_MS + 10);
    w.finish(&claimed.jobs[0]).await;
    let beat = w.beat(claimed.jobs[1].ticket.lease).await;
    assert_eq!(beat.until, Some(w.now.plus_ms(DEFAULT_LEASE_MS)), "nobody took it, so it lives on");
    assert!(w.claim_as(2, 3).await.jobs.is_empty());
    w.finish(&claimed.jobs[1]).await;
    assert_eq!(w.state(all[2]).await, State::Running);
}

pub async fn a_heartbeat_after_the_rescue_is_refused(w: &mut World) {
    w.add_one().await;
    let job = w.claim_one().await;
    w.stall().await;
    assert_eq!(w.beat(job.ticket.lease).await.until, None);
    w.claim_as(2, 1).await;
    assert_eq!(w.beat(job.ticket.lease).await.until, None);
}

pub async fn lease_numbers_only_grow_also_over_restarts(w: &mut World) {
    let mut last = LeaseId(i64::MIN);
    for round in 0..6 {
        w.add_one().await;
        let job = w.claim_one().await;
        assert!(job.ticket.lease > last, "round {round}");
        last = job.ticket.lease;
        if round % 2 == 0 {
            w.finish(&job).await;
        } else {
            w.settle(job.ticket, Outcome::Release).await;
            let again = w.claim_one().await;
            assert!(again.ticket.lease > last);
            last = again.ticket.lease;
            w.finish(&again).await;
        }
        w.restart().await;
    }
}

pub async fn a_stale_ticket_stays_stale_over_a_restart(w: &mut World) {
    let id = w.add_one().await;
    let zombie = w.claim_one().await;
    assert_eq!(w.settle(zombie.ticket, Outcome::Release).await, Settled::Applied(State::Ready));
    w.restart().await;
    assert_eq!(w.complete(&zombie).await, Settled::Stale);
    let holder = w.claim_one().await;
    w.restart().await;
    assert_eq!(w.complete(&zombie).await, Settled::Stale);
    assert_eq!(w.state(id).await, State::Running);
    w.finish(&holder).await;
}

pub async fn a_held_job_is_still_held_after_a_restart_and_can_complete(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    let before = w.get(id).await;
    w.pass(1_000);
    w.restart().await;
    assert_eq!(w.get(id).await, before);
    assert!(w.claim_as(2, 1).await.jobs.is_empty());
    w.finish(&job).await;
}

pub async fn a_lease_that_ended_while_the_store_was_down_is_rescued(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    w.pass(DEFAULT_LEASE_MS * 5);
    w.restart().await;
    assert_eq!(ids(&w.claim_as(2, 1).await), [id]);
    assert_eq!(w.complete(&job).await, Settled::Stale);
}

pub async fn a_stall_spends_no_attempt(w: &mut World) {
    let id = w.add_one().await;
    assert_eq!(w.claim_one().await.attempt, 1);
    w.stall().await;
    assert_eq!(w.get(id).await.attempt, 0);
    assert_eq!(w.claim_one().await.attempt, 1);
}

pub async fn two_workers_never_get_the_same_job(w: &mut World) {
    let all = w.add_many(300, |i, j| j.group = Some(crate::kit::group(&format!("g{}", i % 7)))).await;
    let mut seen = std::collections::HashSet::new();
    for n in 0..40u64 {
        for job in w.claim_as(n % 4, 9).await.jobs {
            assert!(seen.insert(job.id), "{} was handed out twice", job.id);
        }
        if n % 10 == 9 {
            w.restart().await;
        }
    }
    assert_eq!(seen.len(), all.len());
}

pub async fn a_lease_of_another_length_is_honoured(w: &mut World) {
    let id = w.add_one().await;
    let mut claim = w.claim_on(&["q"], 1);
    claim.lease_ms = 2_000;
    let job = w.claim_with(claim).await.jobs.remove(0);
    w.pass(1_500);
    assert_eq!(w.beat(job.ticket.lease).await.until, Some(w.now.plus_ms(2_000)));
    w.pass(2_000);
    let mut claim = w.claim_on(&["q"], 1);
    claim.process = ProcessId(2);
    assert_eq!(ids(&w.claim_with(claim).await), [id]);
}
