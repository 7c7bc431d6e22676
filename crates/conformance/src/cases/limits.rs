//! Limits: concurrency of queues and groups, the exact limiter, `max_ready`, room of a worker.

use tidegate_core::codes;
use tidegate_core::failure::Category;
use tidegate_core::job::{ParkScope, Priority};
use tidegate_core::registry::Limiter;
use tidegate_store::params::Outcome;

use crate::kit::{World, group, ids, in_group, queue, refused, tenant};

pub async fn a_queue_runs_no_more_than_its_concurrency(w: &mut World) {
    w.queue("q", |s| s.concurrency = Some(3)).await;
    w.add_many(10, |_, _| ()).await;
    let first = w.claim(10).await;
    assert_eq!(first.jobs.len(), 3);
    assert!(w.claim_as(2, 10).await.jobs.is_empty(), "over all processes");
    w.finish(&first.jobs[0]).await;
    assert_eq!(w.claim_as(2, 10).await.jobs.len(), 1, "a place is free at once");
}

pub async fn a_place_is_free_after_every_way_to_end(w: &mut World) {
    w.queue("q", |s| s.concurrency = Some(1)).await;
    w.add_many(20, in_group("g")).await;
    for end in 0..6 {
        let job = w.claim_one().await;
        assert!(w.claim(5).await.jobs.is_empty());
        match end {
            0 => w.finish(&job).await,
            1 => drop(w.fail(&job, Category::TransientServer).await),
            2 => drop(w.fail(&job, Category::InvalidInput).await),
            3 => drop(w.snooze(&job, 1_000, None).await),
            4 => drop(w.settle(job.ticket, Outcome::Release).await),
            _ => w.stall().await,
        }
    }
    w.restart().await;
    assert_eq!(w.claim(5).await.jobs.len(), 1);
    assert!(w.claim_as(2, 5).await.jobs.is_empty());
}

pub async fn a_group_runs_no_more_than_its_concurrency_over_all_priorities(w: &mut World) {
    w.queue("q", |s| s.group_concurrency = Some(2)).await;
    for priority in Priority::ALL {
        for g in ["a", "b"] {
            let g = group(g);
            w.add_many(3, |_, j| {
                j.group = Some(g.clone());
                j.priority = Some(priority);
            })
            .await;
        }
    }
    let claimed = w.claim(24).await;
    for g in ["a", "b"] {
        assert_eq!(claimed.jobs.iter().filter(|j| j.group == group(g)).count(), 2, "group {g}");
    }
    let of_a = claimed.jobs.iter().find(|j| j.group == group("a")).expect("one of group a");
    w.finish(of_a).await;
    let next = w.claim_as(2, 24).await;
    assert_eq!(next.jobs.len(), 1);
    assert_eq!(next.jobs[0].group, group("a"));
    w.restart().await;
    assert!(w.claim(24).await.jobs.is_empty(), "a restart frees no place");
}

pub async fn the_empty_group_has_no_group_limit(w: &mut World) {
    w.queue("q", |s| s.group_concurrency = Some(1)).await;
    w.add_many(10, |_, _| ()).await;
    assert_eq!(w.claim(10).await.jobs.len(), 10);
}

pub async fn a_limit_can_be_changed_live(w: &mut World) {
    w.queue("q", |s| s.concurrency = Some(4)).await;
    w.add_many(20, in_group("g")).await;
    let first = w.claim(10).await;
    assert_eq!(first.jobs.len(), 4);
    w.queue("q", |s| s.concurrency = Some(2)).await;
    w.finish(&first.jobs[0]).await;
    w.finish(&first.jobs[1]).await;
    assert!(w.claim(10).await.jobs.is_empty(), "two still run");
    w.finish(&first.jobs[2]).await;
    assert_eq!(w.claim(10).await.jobs.len(), 1);
    w.queue("q", |s| s.group_concurrency = Some(3)).await;
    assert_eq!(w.claim(10).await.jobs.len(), 1, "a group limit counts what already runs");
    w.queue("q", |_| ()).await;
    assert_eq!(w.claim(10).await.jobs.len(), 10);
}

pub async fn the_limiter_is_exact_in_a_sliding_window(w: &mut World) {
    w.queue("q", |s| s.limiter = Some(Limiter { max: 3, per_ms: 1_000 })).await;
    w.add_many(20, |_, _| ()).await;
    assert_eq!(w.claim(1).await.jobs.len(), 1);
    w.pass(600);
    assert_eq!(w.claim(10).await.jobs.len(), 2);
    w.pass(399);
    let none = w.claim(10).await;
    assert!(none.jobs.is_empty(), "999 ms after the first start");
    assert_eq!(none.next_wakeup, Some(w.now.plus_ms(1)));
    w.pass(1);
    assert_eq!(w.claim(10).await.jobs.len(), 1, "only the first start has left the window");
    w.pass(599);
    assert!(w.claim(10).await.jobs.is_empty());
    w.pass(1);
    assert_eq!(w.claim(10).await.jobs.len(), 2);
}

pub async fn the_limiter_remembers_over_a_restart(w: &mut World) {
    w.queue("q", |s| s.limiter = Some(Limiter { max: 2, per_ms: 10_000 })).await;
    w.add_many(10, |_, _| ()).await;
    let claimed = w.claim(10).await;
    assert_eq!(claimed.jobs.len(), 2);
    for job in &claimed.jobs {
        w.finish(job).await;
    }
    w.pass(9_999);
    w.restart().await;
    assert!(w.claim(10).await.jobs.is_empty());
    w.pass(1);
    assert_eq!(w.claim(10).await.jobs.len(), 2);
}

pub async fn the_limiter_counts_starts_not_ends(w: &mut World) {
    w.queue("q", |s| s.limiter = Some(Limiter { max: 2, per_ms: 1_000 })).await;
    w.add_many(5, |_, _| ()).await;
    for _ in 0..2 {
        let job = w.claim_one().await;
        w.finish(&job).await;
    }
    assert!(w.claim(5).await.jobs.is_empty());
}

pub async fn suspects_count_against_every_limit(w: &mut World) {
    w.queue("q", |s| {
        s.concurrency = Some(2);
        s.limiter = Some(Limiter { max: 2, per_ms: 100_000 });
    })
    .await;
    w.add_many(5, |_, _| ()).await;
    assert_eq!(w.claim(5).await.jobs.len(), 2);
    w.stall().await;
    assert!(w.claim(5).await.jobs.is_empty(), "both starts are still in the window");
    w.pass(100_000);
    assert_eq!(w.claim_as(2, 5).await.jobs.len(), 1, "a suspect alone");
    assert_eq!(w.claim_as(3, 5).await.jobs.len(), 1);
    assert!(w.claim_as(4, 5).await.jobs.is_empty(), "two run");
}

pub async fn a_worker_takes_no_more_than_its_room_in_a_queue(w: &mut World) {
    w.queue("p", |_| ()).await;
    w.add_many(10, |_, _| ()).await;
    w.add_many(10, |_, j| j.queue = Some(queue("p"))).await;
    let mut claim = w.claim_on(&["q", "p"], 10);
    claim.queues = vec![(queue("q"), 2), (queue("p"), 3)];
    let claimed = w.claim_with(claim).await;
    let of = |name: &str| claimed.jobs.iter().filter(|j| j.queue.as_str() == name).count();
    assert_eq!((of("q"), of("p")), (2, 3));
    let mut claim = w.claim_on(&["q", "p"], 4);
    claim.queues = vec![(queue("q"), 0), (queue("p"), 10)];
    let claimed = w.claim_with(claim).await;
    assert!(claimed.jobs.len() == 4 && claimed.jobs.iter().all(|j| j.queue.as_str() == "p"));
}

pub async fn a_claim_takes_only_from_the_queues_it_names(w: &mut World) {
    w.queue("p", |_| ()).await;
    w.add_many(3, |_, j| j.queue = Some(queue("p"))).await;
    assert!(w.claim(10).await.jobs.is_empty());
    assert_eq!(w.claim_with(w.claim_on(&["p"], 10)).await.jobs.len(), 3);
}

pub async fn a_full_queue_refuses_and_stores_nothing(w: &mut World) {
    w.queue("q", |s| s.max_ready = Some(5)).await;
    w.add_many(4, |_, _| ()).await;
    let two = vec![w.job(), w.job()];
    assert_eq!(refused(w.store().enqueue(two, w.now).await), codes::QUEUE_FULL);
    assert_eq!(w.view("q").await.ready, 4);
    w.add_one().await;
    assert_eq!(refused(w.store().enqueue(vec![w.job()], w.now).await), codes::QUEUE_FULL);
    w.restart().await;
    assert_eq!(refused(w.store().enqueue(vec![w.job()], w.now).await), codes::QUEUE_FULL);
    let job = w.claim_one().await;
    w.add_one().await;
    w.finish(&job).await;
}

pub async fn a_tenant_cannot_fill_the_queue(w: &mut World) {
    w.queue("q", |s| s.max_ready_per_tenant = Some(3)).await;
    let acme = tenant("acme");
    w.add_many(3, |_, j| j.tenant = Some(acme.clone())).await;
    let mut fourth = w.job();
    fourth.tenant = Some(acme.clone());
    assert_eq!(refused(w.store().enqueue(vec![fourth.clone()], w.now).await), codes::QUEUE_FULL);
    let other = tenant("other");
    w.add_many(3, |_, j| j.tenant = Some(other.clone())).await;
    w.add_many(10, |_, _| ()).await;
    w.restart().await;
    assert_eq!(refused(w.store().enqueue(vec![fourth.clone()], w.now).await), codes::QUEUE_FULL);
    let claimed = w.claim(100).await;
    assert_eq!(claimed.jobs.len(), 16);
    w.add(fourth).await;
}

pub async fn new_tenants_of_one_batch_are_counted_apart(w: &mut World) {
    w.queue("q", |s| s.max_ready_per_tenant = Some(2)).await;
    let jobs = (0..6)
        .map(|i| {
            let mut job = w.job();
            job.tenant = Some(tenant(&format!("new-{}", i % 3)));
            job
        })
        .collect();
    let reply = w.store().enqueue(jobs, w.now).await;
    assert!(reply.is_ok(), "two jobs each for three tenants: {reply:?}");
}

pub async fn a_claim_that_finds_nothing_never_says_to_come_back_in_the_past(w: &mut World) {
    w.queue("q", |s| s.limiter = Some(Limiter { max: 1, per_ms: 1_000 })).await;
    w.add_many(1, in_group("a")).await;
    w.add_many(1, in_group("b")).await;
    w.park(ParkScope::Group(group("b")), None).await;
    let job = w.claim_one().await;
    w.finish(&job).await;
    w.pass(5_000);
    let none = w.claim(10).await;
    assert!(none.jobs.is_empty());
    assert!(none.next_wakeup.is_none_or(|t| t > w.now), "{:?} at {}", none.next_wakeup, w.now);
}

pub async fn settings_that_cannot_work_are_refused(w: &mut World) {
    let put = |change: fn(&mut tidegate_core::registry::QueueSettings)| {
        let mut settings = tidegate_core::registry::QueueSettings::default();
        change(&mut settings);
        let (store, now) = (w.store(), w.now);
        async move { refused(store.put_queue(queue("bad"), settings, now).await) }
    };
    assert_eq!(put(|s| s.concurrency = Some(0)).await, codes::INVALID_SETTING);
    assert_eq!(put(|s| s.group_concurrency = Some(0)).await, codes::INVALID_SETTING);
    assert_eq!(put(|s| s.weight = 0).await, codes::INVALID_SETTING);
    assert_eq!(put(|s| s.max_wait_ms = -1).await, codes::INVALID_SETTING);
    assert_eq!(put(|s| s.limiter = Some(Limiter { max: 0, per_ms: 1 })).await, codes::INVALID_SETTING);
    assert!(w.store().queues(w.now).await.is_ok_and(|all| all.iter().all(|q| q.name.as_str() != "bad")));
}

pub async fn a_claim_that_cannot_be_right_is_refused(w: &mut World) {
    let id = w.add_one().await;
    for lease_ms in [0, -5, 999, 3_600_001] {
        let mut claim = w.claim_on(&["q"], 1);
        claim.lease_ms = lease_ms;
        assert_eq!(
            refused(w.store().claim(claim).await).fault,
            codes::Fault::Usage,
            "lease of {lease_ms} ms"
        );
    }
    assert_eq!(ids(&w.claim(1).await), [id], "nothing was taken by the refused claims");
}
