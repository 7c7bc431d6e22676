//! The feed: what happened to jobs, in order, for whoever follows.

use tidegate_core::failure::Category;
use tidegate_core::job::State;
use tidegate_store::feed::{Delivery, EventId, Happened, JobEvent, Subscription};
use tidegate_store::params::CancelJob;

use crate::kit::{World, tenant};

/// The next `n` events. None may be missing.
async fn events(follower: &mut Subscription, n: usize) -> Vec<(EventId, JobEvent)> {
    let mut seen = vec![];
    while seen.len() < n {
        match follower.next().await {
            Delivery::Events(more) => seen.extend(more.into_iter().map(|(id, e)| (id, (*e).clone()))),
            Delivery::Gap => panic!("a gap after {} events", seen.len()),
        }
    }
    assert_eq!(seen.len(), n, "{seen:?}");
    seen
}

fn whats(events: &[(EventId, JobEvent)]) -> Vec<&'static str> {
    let name = |what: &Happened| match what {
        Happened::Enqueued { state: State::Ready } => "ready",
        Happened::Enqueued { .. } => "later",
        Happened::Started { .. } => "started",
        Happened::Completed => "completed",
        Happened::Retry { .. } => "retry",
        Happened::Snoozed { .. } => "snoozed",
        Happened::Released => "released",
        Happened::Stalled => "stalled",
        Happened::Dead { .. } => "dead",
        Happened::Cancelled => "cancelled",
        Happened::Reauthorize { .. } => "reauthorize",
    };
    events.iter().map(|(_, e)| name(&e.what)).collect()
}

pub async fn a_follower_hears_the_life_of_a_job(w: &mut World) {
    let mut follower = w.store().feed().subscribe(None);
    let mut new = w.job();
    new.tenant = Some(tenant("acme"));
    let id = w.add(new).await;
    let job = w.claim_one().await;
    w.fail(&job, Category::TransientServer).await;
    w.pass(60_000);
    let job = w.claim_one().await;
    w.complete(&job).await;
    let seen = events(&mut follower, 5).await;
    assert_eq!(whats(&seen), ["ready", "started", "retry", "started", "completed"]);
    assert!(seen.iter().all(|(_, e)| e.id == id && e.tenant == Some(tenant("acme"))));
    assert!(seen.iter().all(|(_, e)| e.queue == job.queue && e.kind == job.kind));
    assert!(seen.is_sorted_by_key(|(id, _)| *id), "numbers grow");
    let Happened::Started { attempt, .. } = &seen[3].1.what else { panic!("started") };
    assert_eq!(*attempt, 2);
}

pub async fn cancels_and_stalls_are_heard_of(w: &mut World) {
    let mut follower = w.store().feed().subscribe(None);
    let id = w.add_one().await;
    w.store()
        .cancel(CancelJob { id, note: "a test".into(), cascade: false, now: w.now })
        .await
        .expect("cancelled");
    w.add_one().await;
    w.claim_one().await;
    w.pass(3_600_000);
    w.store().advance(w.now).await.expect("advanced");
    let seen = events(&mut follower, 5).await;
    assert_eq!(whats(&seen), ["ready", "cancelled", "ready", "started", "stalled"]);
}

pub async fn a_follower_that_comes_back_gets_what_it_missed(w: &mut World) {
    let mut follower = w.store().feed().subscribe(None);
    w.add_one().await;
    let last = events(&mut follower, 1).await[0].0;
    drop(follower);
    w.add_one().await;
    let job = w.claim_one().await;
    w.complete(&job).await;
    let mut again = w.store().feed().subscribe(Some(last));
    assert_eq!(whats(&events(&mut again, 3).await), ["ready", "started", "completed"]);
}
