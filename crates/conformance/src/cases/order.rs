//! Order: delays, priorities, fairness, ageing, weights.

use std::collections::HashMap;

use tidegate_core::job::{Priority, State};
use tidegate_store::params::{JobQuery, NewJob};

use crate::kit::{World, group, ids, in_group, kind, with_priority};

pub async fn a_delayed_job_is_claimed_when_its_time_has_come(w: &mut World) {
    let mut job = w.job();
    job.run_at = Some(w.now.plus_ms(5_000));
    let id = w.add(job).await;
    assert_eq!(w.state(id).await, State::Scheduled);
    let nothing = w.claim(10).await;
    assert!(nothing.jobs.is_empty());
    assert_eq!(nothing.next_wakeup, Some(w.now.plus_ms(5_000)), "the claim says when to come back");
    w.pass(4_999);
    assert!(w.claim(10).await.jobs.is_empty());
    w.pass(1);
    assert_eq!(ids(&w.claim(10).await), [id]);
}

pub async fn promotion_is_bounded_and_goes_on(w: &mut World) {
    let at = w.now.plus_ms(1_000);
    w.add_many(2_500, |_, j| j.run_at = Some(at)).await;
    w.pass(1_000);
    let first = w.store().advance(w.now).await.expect("upkeep works");
    assert_eq!(first.promoted, 1_000);
    assert!(first.next_wakeup.is_some_and(|t| t <= w.now), "there is more to do at once");
    w.advance().await;
    w.advance().await;
    assert_eq!(w.view("q").await.ready, 2_500);
    assert_eq!(w.view("q").await.scheduled, 0);
}

pub async fn higher_priorities_come_first(w: &mut World) {
    let mut expected = vec![];
    for priority in [Priority::Low, Priority::Medium, Priority::High, Priority::Critical] {
        expected.push(w.add_many(3, with_priority(priority)).await);
    }
    expected.reverse();
    assert_eq!(ids(&w.claim(12).await), expected.concat());
}

pub async fn a_lane_is_first_in_first_out(w: &mut World) {
    let all = w.add_many(200, in_group("g")).await;
    let mut got = vec![];
    while got.len() < all.len() {
        let claimed = w.claim(7).await;
        got.extend(ids(&claimed));
        for job in &claimed.jobs {
            w.finish(job).await;
        }
    }
    assert_eq!(got, all);
}

pub async fn a_large_group_does_not_keep_small_ones_waiting(w: &mut World) {
    w.add_many(10_000, in_group("large")).await;
    let mut small: HashMap<_, usize> = HashMap::new();
    for g in 0..50 {
        for id in w.add_many(10, in_group(&format!("small-{g}"))).await {
            small.insert(id, g);
        }
    }
    let mut completed = 0;
    while !small.is_empty() {
        let claimed = w.claim(50).await;
        for job in &claimed.jobs {
            small.remove(&job.id);
            completed += 1;
        }
        let done = claimed.jobs.iter().map(|j| tidegate_store::params::Settlement {
            ticket: j.ticket,
            outcome: tidegate_store::params::Outcome::Complete(None),
        });
        w.settle_all(done.collect()).await;
        assert!(
            completed <= 2_000,
            "{} jobs of small groups still wait after {completed} completions",
            small.len()
        );
    }
}

pub async fn groups_with_backlog_share_evenly(w: &mut World) {
    for g in ["a", "b", "c"] {
        w.add_many(400, in_group(g)).await;
    }
    let mut served: HashMap<_, usize> = HashMap::new();
    for _ in 0..60 {
        for job in w.claim(10).await.jobs {
            *served.entry(job.group).or_default() += 1;
        }
    }
    for g in ["a", "b", "c"] {
        let n = served[&group(g)];
        assert!((150..=250).contains(&n), "group {g} got {n} of 600");
    }
}

pub async fn an_idle_lane_that_wakes_is_served_in_the_next_claim(w: &mut World) {
    w.add_many(2_000, in_group("busy")).await;
    for _ in 0..20 {
        w.claim(50).await;
    }
    let woken = w.add_many(1, in_group("idle")).await[0];
    assert!(ids(&w.claim(10).await).contains(&woken));
    // The same lane again, after it was idle for a while.
    for _ in 0..10 {
        w.claim(50).await;
    }
    let again = w.add_many(1, in_group("idle")).await[0];
    assert!(ids(&w.claim(10).await).contains(&again));
}

pub async fn a_group_is_not_overtaken_for_ever_by_new_groups(w: &mut World) {
    // Ageing does not help at the highest level, so fairness alone must.
    let critical = |name: &str| {
        let group = group(name);
        move |_: usize, job: &mut NewJob| {
            job.group = Some(group.clone());
            job.priority = Some(Priority::Critical);
        }
    };
    w.add_many(10_000, critical("large")).await;
    for _ in 0..4 {
        w.claim(2_000).await;
    }
    w.add_many(40, critical("first")).await;
    let (mut first, mut large) = (0, 0);
    for n in 0..200 {
        w.add_many(10, critical(&format!("new-{n}"))).await;
        let claimed = w.claim(10).await;
        first += claimed.jobs.iter().filter(|j| j.group == group("first")).count();
        large += claimed.jobs.iter().filter(|j| j.group == group("large")).count();
    }
    assert!(
        first == 40 && large > 0,
        "of 2,000 places {first} for the group's 40 jobs, {large} for the large one"
    );
}

/// The bound: a head of level 4 reaches level 1 after three quarters of `max_wait`, and is then served with the next
/// claim, whatever arrives.
pub async fn ageing_serves_the_lowest_priority_within_its_bound(w: &mut World) {
    w.queue("q", |s| s.max_wait_ms = 40_000).await;
    let low = w.add_many(1, with_priority(Priority::Low)).await[0];
    w.pass(29_999);
    w.add_many(100, with_priority(Priority::Critical)).await;
    assert!(!ids(&w.claim(10).await).contains(&low), "critical jobs come first until the bound");
    w.pass(1);
    assert!(ids(&w.claim(10).await).contains(&low), "at three quarters of max_wait it is level with them");
}

pub async fn ageing_survives_a_restart(w: &mut World) {
    w.queue("q", |s| s.max_wait_ms = 40_000).await;
    let low = w.add_many(1, with_priority(Priority::Low)).await[0];
    w.pass(15_000);
    w.restart().await;
    w.pass(15_000);
    w.add_many(100, with_priority(Priority::Critical)).await;
    assert!(ids(&w.claim(40).await).contains(&low));
}

pub async fn queues_share_a_worker_by_weight(w: &mut World) {
    for (name, weight) in [("heavy", 3), ("light", 1)] {
        w.queue(name, |s| s.weight = weight).await;
        w.kind(name, name, |_| ()).await;
        let of_kind = kind(name);
        w.add_many(1_000, |_, j| j.kind = of_kind.clone()).await;
    }
    let mut heavy = 0;
    for _ in 0..20 {
        let claimed = w.claim_with(w.claim_on(&["heavy", "light"], 40)).await;
        assert_eq!(claimed.jobs.len(), 40);
        heavy += claimed.jobs.iter().filter(|j| j.queue.as_str() == "heavy").count();
    }
    assert!((550..=650).contains(&heavy), "{heavy} of 800 from the queue with three quarters of the weight");
}

pub async fn a_queue_that_wakes_is_not_punished_for_the_rate_of_a_queue_it_does_not_share_with(
    w: &mut World,
) {
    for name in ["fast", "waking", "steady"] {
        w.queue(name, |_| ()).await;
        w.kind(name, name, |_| ()).await;
    }
    let steady = kind("steady");
    w.add_many(2_000, |_, j| j.kind = steady.clone()).await;
    let fast = kind("fast");
    w.add_many(3_000, |_, j| j.kind = fast.clone()).await;
    for _ in 0..30 {
        w.claim_with(w.claim_on(&["fast"], 100)).await;
    }
    let waking = kind("waking");
    w.add_many(200, |_, j| j.kind = waking.clone()).await;
    let mut served = 0;
    for _ in 0..20 {
        let claimed = w.claim_with(w.claim_on(&["waking", "steady"], 10)).await;
        served += claimed.jobs.iter().filter(|j| j.queue.as_str() == "waking").count();
    }
    assert!(served >= 50, "{served} of 200 places for a queue with the same weight");
}

pub async fn a_delayed_job_takes_its_place_by_arrival(w: &mut World) {
    let mut first = w.job();
    first.run_at = Some(w.now.plus_ms(1_000));
    let first = w.add(first).await;
    let second = w.add_one().await;
    w.pass(1_000);
    assert_eq!(ids(&w.claim(2).await), [first, second]);
    assert!(w.find(JobQuery { states: vec![State::Ready], ..JobQuery::default() }).await.is_empty());
}
