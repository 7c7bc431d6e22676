//! The lone-stall rule: a job that kills its process takes nobody along.

use tidegate_core::failure::Category;
use tidegate_core::job::State;
use tidegate_core::retry::DeadReason;
use tidegate_store::params::{Outcome, Settled};

use crate::kit::{World, ids};

pub async fn jobs_of_a_stalled_batch_run_one_at_a_time_per_process(w: &mut World) {
    let all = w.add_many(4, |_, _| ()).await;
    assert_eq!(w.claim(4).await.jobs.len(), 4);
    w.stall().await;
    let fresh = w.add_one().await;
    let first = w.claim_as(2, 10).await;
    assert_eq!(ids(&first), [all[0]], "a suspect comes alone in its lease");
    assert_eq!(ids(&w.claim_as(2, 10).await), [fresh], "the process gets other work, but no second suspect");
    let second = w.claim_as(3, 10).await;
    assert_eq!(ids(&second), [all[1]]);
    w.finish(&first.jobs[0]).await;
    assert_eq!(ids(&w.claim_as(2, 10).await), [all[2]], "the next one when the first is done");
}

pub async fn a_stall_of_a_batch_counts_against_nobody(w: &mut World) {
    let all = w.add_many(3, |_, _| ()).await;
    w.claim(3).await;
    w.stall().await;
    for id in all {
        let job = w.get(id).await;
        assert_eq!((job.state, job.lone_stalls, job.attempt), (State::Ready, 0, 0));
    }
}

pub async fn a_job_is_dead_after_its_third_lone_stall(w: &mut World) {
    let id = w.add_one().await;
    for lone_stalls in 0..3 {
        let claimed = w.claim(5).await;
        assert_eq!(ids(&claimed), [id]);
        w.stall().await;
        assert_eq!(w.get(id).await.lone_stalls, lone_stalls, "the first stall was that of an ordinary lease");
        if lone_stalls == 1 {
            w.restart().await;
        }
    }
    let last = w.claim(5).await;
    assert_eq!(ids(&last), [id]);
    w.stall().await;
    let job = w.get(id).await;
    assert_eq!((job.state, job.lone_stalls), (State::Dead, 3));
    let letter = job.dead.expect("a dead job has a letter");
    assert_eq!((letter.category, letter.reason), (Category::SystemFailure, DeadReason::Poison));
    assert_eq!(w.complete(&last.jobs[0]).await, Settled::Stale);
    assert!(w.claim_as(9, 5).await.jobs.is_empty());
}

pub async fn the_last_chance_is_taken_alone_in_the_process(w: &mut World) {
    let poison = w.add_one().await;
    for _ in 0..3 {
        assert_eq!(ids(&w.claim(1).await), [poison]);
        w.stall().await;
    }
    let others = w.add_many(3, |_, _| ()).await;
    // Process 2 runs an ordinary job that was claimed while process 9 held the last chance.
    let held = w.claim_as(9, 1).await;
    assert_eq!(ids(&held), [poison]);
    assert!(w.claim_as(9, 5).await.jobs.is_empty(), "nothing else in that process while it runs");
    let busy = w.claim_as(2, 1).await;
    assert_eq!(ids(&busy), [others[0]]);
    assert_eq!(w.settle(held.jobs[0].ticket, Outcome::Release).await, Settled::Applied(State::Ready));
    assert_eq!(w.get(poison).await.lone_stalls, 2);
}

pub async fn a_process_drains_before_it_runs_a_last_chance(w: &mut World) {
    let busy = w.add_one().await;
    let busy_job = w.claim_as(2, 1).await.jobs.remove(0);
    assert_eq!(busy_job.id, busy);
    let poison = w.add_one().await;
    for _ in 0..3 {
        assert_eq!(ids(&w.claim_as(1, 1).await), [poison]);
        w.pass(30_001);
        w.beat(busy_job.ticket.lease).await;
        w.advance().await;
    }
    w.add_many(3, |_, _| ()).await;
    assert!(w.claim_as(2, 5).await.jobs.is_empty(), "it must finish what it runs first");
    w.finish(&busy_job).await;
    assert_eq!(ids(&w.claim_as(2, 5).await), [poison]);
    assert!(w.claim_as(2, 5).await.jobs.is_empty());
    assert!(!w.claim_as(3, 5).await.jobs.is_empty(), "other processes go on");
}

pub async fn a_poison_job_takes_no_innocent_with_it(w: &mut World) {
    let poison = w.add_one().await;
    let innocents = w.add_many(12, |_, _| ()).await;
    let mut process = 1;
    for _ in 0..200 {
        let claimed = w.claim_as(process, 4).await;
        if claimed.jobs.is_empty() {
            w.stall().await;
            continue;
        }
        if ids(&claimed).contains(&poison) {
            process += 1; // The process dies with all it holds.
            continue;
        }
        for job in &claimed.jobs {
            w.complete(job).await;
        }
    }
    for id in innocents {
        assert_eq!(w.state(id).await, State::Completed);
    }
    let job = w.get(poison).await;
    assert_eq!((job.state, job.lone_stalls), (State::Dead, 3));
}

pub async fn a_suspect_that_ends_well_is_no_suspect_any_more(w: &mut World) {
    let all = w.add_many(2, |_, _| ()).await;
    w.claim(2).await;
    w.stall().await;
    for process in [2, 3] {
        let claimed = w.claim_as(process, 5).await;
        assert_eq!(claimed.jobs.len(), 1);
        w.snooze(&claimed.jobs[0], 1_000, None).await;
    }
    w.pass(1_000);
    assert_eq!(ids(&w.claim_as(2, 5).await), all, "together again in one lease");
}

pub async fn suspects_stay_suspects_over_a_restart(w: &mut World) {
    w.add_many(3, |_, _| ()).await;
    w.claim(3).await;
    w.stall().await;
    w.restart().await;
    assert_eq!(w.claim_as(2, 5).await.jobs.len(), 1);
    w.restart().await;
    assert!(w.claim_as(2, 5).await.jobs.is_empty(), "the lone lease is remembered");
    assert_eq!(w.claim_as(3, 5).await.jobs.len(), 1);
}
