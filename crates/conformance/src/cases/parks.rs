//! Parks and pauses.

use tidegate_core::codes;
use tidegate_core::job::{Park, ParkScope, State};
use tidegate_store::params::{Outcome, Settle, Settled, Settlement};

use crate::kit::{World, connector, group, ids, in_group, kind, queue, refused};

/// One job per combination of group (a, b) and connector (none, shopify), in order.
async fn four(w: &mut World) -> [tidegate_core::ids::JobId; 4] {
    w.kind("call", "q", |k| k.connector = Some(connector("shopify"))).await;
    let mut made = vec![];
    for g in ["a", "b"] {
        for k in ["k", "call"] {
            let mut job = w.job();
            job.group = Some(group(g));
            job.kind = kind(k);
            made.push(w.add(job).await);
        }
    }
    [made[0], made[1], made[2], made[3]]
}

async fn claimable(w: &World) -> Vec<tidegate_core::ids::JobId> {
    let claimed = w.claim(10).await;
    for job in &claimed.jobs {
        w.settle(job.ticket, Outcome::Release).await;
    }
    let mut all = ids(&claimed);
    all.sort_unstable();
    all
}

pub async fn a_paused_queue_yields_nothing_until_it_is_resumed(w: &mut World) {
    let scope = ParkScope::Queue(queue("q"));
    w.add_one().await;
    w.park(scope.clone(), None).await;
    let view = w.view("q").await;
    assert_eq!(view.parks.len(), 1);
    assert_eq!(view.parks[0].by, "operator");
    w.pass(86_400_000);
    assert!(w.claim(10).await.jobs.is_empty());
    w.add_one().await;
    w.restart().await;
    assert!(w.claim(10).await.jobs.is_empty(), "a pause survives a restart");
    assert!(w.unpark(scope.clone()).await);
    assert!(!w.unpark(scope).await, "there is none any more");
    assert_eq!(w.claim(10).await.jobs.len(), 2);
}

pub async fn each_scope_covers_its_lanes_and_no_others(w: &mut World) {
    let all = four(w).await;
    let [a, a_call, b, b_call] = all;
    for (scope, left) in [
        (ParkScope::Queue(queue("q")), vec![]),
        (ParkScope::Group(group("a")), vec![b, b_call]),
        (ParkScope::Connector(connector("shopify")), vec![a, b]),
        (ParkScope::GroupOnConnector(group("a"), connector("shopify")), vec![a, b, b_call]),
    ] {
        w.park(scope.clone(), None).await;
        assert_eq!(claimable(w).await, left, "{scope}");
        w.restart().await;
        assert_eq!(claimable(w).await, left, "{scope} after a restart");
        assert!(w.unpark(scope.clone()).await);
        assert_eq!(claimable(w).await, all, "{scope} removed");
    }
    assert_eq!(w.state(a_call).await, State::Ready);
}

pub async fn nobody_parks_in_the_name_of_a_gate(w: &mut World) {
    let scope = ParkScope::Group(group("a"));
    let park = Park { scope, by: "gate:shopify".into(), reason: String::new(), until: None };
    assert_eq!(refused(w.store().park(park, w.now).await), codes::INVALID_REQUEST);
    assert!(w.store().parks().await.is_ok_and(|p| p.is_empty()));
}

pub async fn removing_one_park_leaves_the_others(w: &mut World) {
    let [a, ..] = four(w).await;
    let of_group = ParkScope::Group(group("a"));
    let both = ParkScope::GroupOnConnector(group("a"), connector("shopify"));
    w.park_by(of_group.clone(), "operator", None).await;
    w.park_by(of_group.clone(), "gate", None).await;
    w.park_by(both.clone(), "gate", None).await;
    assert_eq!(w.store().parks().await.map(|p| p.len()).ok(), Some(3));
    assert!(w.unpark(of_group.clone()).await);
    assert_eq!(claimable(w).await.len(), 2, "the gate's park still covers group a");
    assert!(w.store().unpark(of_group, "gate".into(), w.now).await.is_ok_and(|was| was));
    let left = claimable(w).await;
    assert!(left.len() == 3 && left.contains(&a), "only calls of a are parked now");
}

pub async fn a_park_with_an_end_ends_by_itself(w: &mut World) {
    let id = w.add_many(1, in_group("a")).await[0];
    let until = w.now.plus_ms(5_000);
    w.park(ParkScope::Group(group("a")), Some(until)).await;
    w.pass(4_999);
    let none = w.claim(10).await;
    assert!(none.jobs.is_empty());
    assert_eq!(none.next_wakeup, Some(until));
    w.restart().await;
    w.pass(1);
    assert_eq!(ids(&w.claim(10).await), [id]);
    assert_eq!(w.store().parks().await.map(|p| p.len()).ok(), Some(0));
    w.restart().await;
    assert_eq!(w.store().parks().await.map(|p| p.len()).ok(), Some(0), "it does not come back");
}

pub async fn a_park_of_the_same_owner_replaces_the_earlier_one(w: &mut World) {
    w.add_many(1, in_group("a")).await;
    let scope = ParkScope::Group(group("a"));
    w.park(scope.clone(), Some(w.now.plus_ms(1_000))).await;
    w.park(scope.clone(), Some(w.now.plus_ms(9_000))).await;
    assert_eq!(w.store().parks().await.map(|p| p.len()).ok(), Some(1));
    w.pass(1_000);
    assert!(w.claim(10).await.jobs.is_empty());
    w.park(scope, Some(w.now.plus_ms(500))).await;
    w.pass(500);
    assert_eq!(w.claim(10).await.jobs.len(), 1, "the later word counts, also when it is shorter");
}

pub async fn a_park_covers_lanes_that_come_later_and_jobs_that_become_due(w: &mut World) {
    w.park(ParkScope::Group(group("new")), None).await;
    w.add_many(2, in_group("new")).await;
    let soon = w.now.plus_ms(10);
    w.add_many(2, |_, j| {
        j.group = Some(group("new"));
        j.run_at = Some(soon);
    })
    .await;
    w.pass(10);
    assert!(w.claim(10).await.jobs.is_empty());
    assert_eq!(w.view("q").await.parked_groups, 1);
    assert!(w.unpark(ParkScope::Group(group("new"))).await);
    assert_eq!(w.claim(10).await.jobs.len(), 4);
}

pub async fn a_park_leaves_running_jobs_alone(w: &mut World) {
    w.add_many(1, in_group("a")).await;
    let job = w.claim_one().await;
    w.park(ParkScope::Group(group("a")), None).await;
    assert!(w.beat(job.ticket.lease).await.until.is_some());
    w.finish(&job).await;
}

pub async fn a_snooze_can_park_its_scope_in_the_same_write(w: &mut World) {
    let all = w.add_many(3, in_group("a")).await;
    let job = w.claim_one().await;
    let until = w.now.plus_ms(10_000);
    let scope = ParkScope::Group(group("a"));
    assert_eq!(w.snooze(&job, 10_000, Some(scope.clone())).await, Settled::Again(until));
    assert!(w.claim(10).await.jobs.is_empty(), "the others of the group wait too");
    let parks: Vec<Park> = w.store().parks().await.unwrap_or_default();
    assert!(parks.len() == 1 && parks[0].scope == scope && parks[0].until == Some(until), "{parks:?}");
    w.restart().await;
    assert!(w.claim(10).await.jobs.is_empty());
    w.pass(10_000);
    let mut served = vec![];
    for _ in 0..5 {
        served.extend(ids(&w.claim(10).await));
    }
    assert_eq!(served, all);
}

pub async fn a_stale_snooze_parks_nothing(w: &mut World) {
    w.add_many(2, in_group("a")).await;
    let job = w.claim_one().await;
    w.stall().await;
    let scope = ParkScope::Group(group("a"));
    assert_eq!(w.snooze(&job, 10_000, Some(scope)).await, Settled::Stale);
    assert_eq!(w.store().parks().await.map(|p| p.len()).ok(), Some(0));
}

pub async fn a_snooze_that_parks_an_unknown_queue_loses_nothing(w: &mut World) {
    let all = w.add_many(2, |_, _| ()).await;
    let claimed = w.claim(2).await;
    let until = w.now.plus_ms(1_000);
    let park = Some(ParkScope::Queue(queue("nowhere")));
    let settlements = vec![
        Settlement {
            ticket: claimed.jobs[0].ticket,
            outcome: Outcome::Snooze { until, reason: String::new(), park, gate: None },
        },
        Settlement { ticket: claimed.jobs[1].ticket, outcome: Outcome::Complete(None) },
    ];
    let reply = w.store().settle(Settle { settlements, now: w.now, seed: 1 }).await;
    w.pass(100_000);
    let mut left: Vec<_> = ids(&w.claim_as(2, 10).await);
    left.extend(ids(&w.claim_as(3, 10).await));
    left.sort_unstable();
    // Either all of the call was refused, or the snooze and the completion were applied; no job may be nowhere.
    let expected = if reply.is_err() { all } else { vec![all[0]] };
    assert_eq!(left, expected, "after the reply {reply:?}");
}
