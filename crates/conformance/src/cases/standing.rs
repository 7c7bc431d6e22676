//! Claims that stand and wait for jobs.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::codes;
use tidegate_core::job::State;
use tidegate_core::schedule::ScheduleSettings;
use tidegate_store::Store;
use tidegate_store::params::{Claim, Claimed, ClaimedJob};
use tokio::sync::oneshot;

use super::schedules;
use crate::kit::{World, refused, worker};

/// Longer than anything takes that does not wait for ever.
const LONG: Duration = Duration::from_secs(10);

/// Asks until there is something: a standing claim may come back empty to be asked again.
async fn stand_until_found(store: Arc<dyn Store>, claim: Claim) -> Claimed {
    loop {
        let (_stay, leave) = oneshot::channel();
        let stood = store.stand(claim.clone(), leave).await.expect("a standing claim is answered");
        if !stood.claimed.jobs.is_empty() {
            return stood.claimed;
        }
    }
}

fn by(w: &World, name: &str) -> Claim {
    Claim { worker: worker(name), ..w.claim_on(&["q"], 1) }
}

pub async fn a_standing_claim_gets_what_is_there_at_once(w: &mut World) {
    let id = w.add_one().await;
    let claimed = stand_until_found(w.store(), by(w, "w1")).await;
    assert_eq!(claimed.jobs.len(), 1);
    assert_eq!(claimed.jobs[0].id, id);
    w.finish(&claimed.jobs[0]).await;
}

pub async fn a_standing_claim_gets_what_comes_later(w: &mut World) {
    for _ in 0..20 {
        let waiting = stand_until_found(w.store(), by(w, "w1"));
        let (claimed, id) = tokio::join!(biased; waiting, async {
            tokio::task::yield_now().await;
            w.add_one().await
        });
        assert_eq!(claimed.jobs[0].id, id);
        w.finish(&claimed.jobs[0]).await;
    }
}

pub async fn each_of_many_standing_claims_gets_one(w: &mut World) {
    let store = w.store();
    let waiting = |n: u32| stand_until_found(store.clone(), by(w, &format!("w{n}")));
    let standers = (waiting(1), waiting(2), waiting(3), waiting(4));
    let (first, second, third, fourth, mut ids) = tokio::join!(biased; standers.0, standers.1, standers.2, standers.3, async {
        tokio::task::yield_now().await;
        let mut ids = w.add_many(3, |_, _| ()).await;
        ids.push(w.add_one().await);
        ids
    });
    let jobs: Vec<ClaimedJob> = [first, second, third, fourth].into_iter().flat_map(|c| c.jobs).collect();
    let mut got: Vec<_> = jobs.iter().map(|job| job.id).collect();
    got.sort();
    ids.sort();
    assert_eq!(got, ids);
    for job in &jobs {
        w.finish(job).await;
    }
}

pub async fn a_claim_that_leaves_takes_nothing_with_it(w: &mut World) {
    let (stay, leave) = oneshot::channel();
    let store = w.store();
    let (stood, ()) = tokio::join!(biased; store.stand(by(w, "w1"), leave), async {
        tokio::task::yield_now().await;
        drop(stay);
    });
    assert!(stood.expect("a claim that leaves is answered").claimed.jobs.is_empty());
    let id = w.add_one().await;
    let job = w.claim_one().await;
    assert_eq!(job.id, id);
    w.finish(&job).await;
}

pub async fn a_claim_that_leaves_while_a_job_comes_gets_it_or_leaves_it_to_others(w: &mut World) {
    for _ in 0..50 {
        let (stay, leave) = oneshot::channel();
        let store = w.store();
        let (stood, id) = tokio::join!(biased; store.stand(by(w, "w1"), leave), async {
            tokio::task::yield_now().await;
            let added = w.add_one();
            drop(stay);
            added.await
        });
        let mut jobs = stood.expect("a claim that leaves is answered").claimed.jobs;
        if jobs.is_empty() {
            jobs = w.claim_as(2, 1).await.jobs;
        }
        assert_eq!(jobs.len(), 1, "the job is with one of the two");
        assert_eq!(jobs[0].id, id);
        w.finish(&jobs[0]).await;
    }
}

pub async fn a_standing_claim_comes_back_when_a_delay_ends(w: &mut World) {
    let mut job = w.job();
    job.run_at = Some(w.now.plus_ms(20));
    let id = w.add(job).await;
    let (_stay, leave) = oneshot::channel();
    let stood = w.store().stand(by(w, "w1"), leave).await.expect("a standing claim is answered");
    assert!(stood.claimed.jobs.is_empty(), "by the caller's clock it is not due yet");
    w.pass(20);
    let claimed = stand_until_found(w.store(), by(w, "w1")).await;
    assert_eq!(claimed.jobs[0].id, id);
    w.finish(&claimed.jobs[0]).await;
}

pub async fn a_standing_claim_hears_of_a_delay_that_was_set_later(w: &mut World) {
    let (_stay, leave) = oneshot::channel();
    let store = w.store();
    let (stood, id) = tokio::join!(biased; store.stand(by(w, "w1"), leave), async {
        tokio::task::yield_now().await;
        let mut job = w.job();
        job.run_at = Some(w.now.plus_ms(20));
        w.add(job).await
    });
    assert!(stood.expect("a standing claim is answered").claimed.jobs.is_empty(), "it is not due yet");
    w.pass(20);
    let claimed = stand_until_found(w.store(), by(w, "w1")).await;
    assert_eq!(claimed.jobs[0].id, id);
    w.finish(&claimed.jobs[0]).await;
}

pub async fn a_standing_claim_is_refused_like_any_other(w: &mut World) {
    let (_stay, leave) = oneshot::channel();
    let code = refused(w.store().stand(w.claim_on(&["nowhere"], 1), leave).await);
    assert_eq!(code, codes::UNKNOWN_QUEUE);
    let (_stay, leave) = oneshot::channel();
    let code = refused(w.store().stand(Claim { lease_ms: 0, ..by(w, "w1") }, leave).await);
    assert_eq!(code, codes::INVALID_TIME);
    let (_stay, leave) = oneshot::channel();
    let code = refused(w.store().stand(w.claim_on(&["q", "q"], 1), leave).await);
    assert_eq!(code, codes::INVALID_REQUEST);
}

/// A claim stands on another queue; then something happens that has no time of its own, and after which a claim may find more.
async fn while_one_stands<T>(w: &mut World, other: impl AsyncFnOnce(&mut World) -> T) -> T {
    w.queue("other", |_| ()).await;
    let (_stay, leave) = oneshot::channel();
    let (store, claim) = (w.store(), Claim { worker: worker("w2"), ..w.claim_on(&["other"], 1) });
    let standing = async {
        let mut standing = std::pin::pin!(store.stand(claim.clone(), leave));
        loop {
            let stood = (&mut standing).await.expect("a standing claim is answered");
            assert!(stood.claimed.jobs.is_empty());
            // It may come back to be asked again, by a worker that has not heard of the time since.
            let (_, leave) = oneshot::channel();
            standing.set(store.stand(claim.clone(), leave));
        }
    };
    let done = async {
        // Answered after the claim has arrived: one that comes later, by a time long past, would be a clock that went back.
        w.store().settings().await.expect("settings are read");
        let done = other(w).await;
        w.kind("another", "other", |_| ()).await;
        done
    };
    tokio::select! {
        biased;
        () = standing => unreachable!("it stands for ever"),
        done = done => done,
    }
}

pub async fn a_claim_that_has_stood_for_long_does_not_turn_the_clock_back(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    while_one_stands(w, async |w| {
        for ms in [20_000, 20_000, 25_000] {
            w.pass(ms);
            assert!(w.beat(job.ticket.lease).await.until.is_some());
        }
    })
    .await;
    w.advance().await;
    assert_eq!(w.state(id).await, State::Running);
    w.finish(&job).await;
}

pub async fn a_claim_that_stands_does_not_undo_a_step_back_of_the_clock(w: &mut World) {
    let job = while_one_stands(w, async |w| {
        w.pass(-3_600_000);
        w.add_one().await;
        w.claim_one().await
    })
    .await;
    w.advance().await;
    w.finish(&job).await;
}

pub async fn a_standing_claim_gets_what_another_that_comes_finds_due_for_it(w: &mut World) {
    w.queue("other", |_| ()).await;
    schedules::put(w, "s", ScheduleSettings::every("10s")).await;
    let first = stand_until_found(w.store(), by(w, "w1"));
    let second = async {
        tokio::task::yield_now().await;
        w.pass(11_000);
        let claim = Claim { worker: worker("w2"), ..w.claim_on(&["other"], 1) };
        tokio::time::timeout(LONG, stand_until_found(w.store(), claim)).await
    };
    let claimed = tokio::select! {
        biased;
        claimed = first => claimed,
        nothing = second => panic!("the other gets its job, this one nothing: {nothing:?}"),
    };
    w.finish(&claimed.jobs[0]).await;
}
