//! Retention, erasing, counts.

use std::collections::HashMap;

use tidegate_core::failure::Category;
use tidegate_core::ids::Seq;
use tidegate_core::job::State;
use tidegate_core::limits::DEAD_RETENTION_MS;
use tidegate_core::registry::Retention;
use tidegate_store::meter::End;
use tidegate_store::params::{Erase, JobQuery, Outcome, Settled};

use crate::kit::{World, queue, refused, tenant};

const DAY: i64 = 86_400_000;

async fn complete(w: &mut World, n: usize) -> Vec<tidegate_core::ids::JobId> {
    let ids = w.add_many(n, |_, _| ()).await;
    for _ in 0..n {
        let job = w.claim_one().await;
        w.finish(&job).await;
        w.pass(1);
    }
    ids
}

pub async fn retention_by_count_keeps_the_newest(w: &mut World) {
    w.queue("q", |s| s.retention = Retention { count: 4, age_ms: DAY }).await;
    let done = complete(w, 10).await;
    assert_eq!(w.store().prune(3, w.now).await.ok(), Some(3), "bounded");
    assert_eq!(w.store().prune(100, w.now).await.ok(), Some(3));
    assert_eq!(w.store().prune(100, w.now).await.ok(), Some(0));
    let left: Vec<_> = done[6..].iter().rev().copied().collect();
    assert_eq!(w.find(JobQuery::default()).await, left);
    assert_eq!(w.view("q").await.completed, 4);
}

pub async fn retention_by_age_takes_completed_and_cancelled_jobs(w: &mut World) {
    w.queue("q", |s| s.retention = Retention { count: 1_000, age_ms: 1_000 }).await;
    complete(w, 3).await;
    let cancelled = w.add_one().await;
    w.cancel(cancelled).await;
    let waiting = w.add_one().await;
    assert_eq!(w.store().prune(100, w.now).await.ok(), Some(0));
    w.pass(2_000);
    assert_eq!(w.store().prune(100, w.now).await.ok(), Some(4));
    assert_eq!(w.find(JobQuery::default()).await, [waiting], "what is not finished is never pruned");
    let view = w.view("q").await;
    assert_eq!((view.completed, view.cancelled, view.ready), (0, 0, 1));
}

pub async fn dead_letters_are_kept_thirty_days_whatever_the_count(w: &mut World) {
    w.queue("q", |s| s.retention = Retention { count: 0, age_ms: 0 }).await;
    let dead = w.add_dead().await;
    w.pass(DEAD_RETENTION_MS - 1);
    assert_eq!(w.store().prune(100, w.now).await.ok(), Some(0));
    assert_eq!(w.state(dead).await, State::Dead);
    w.pass(2);
    assert_eq!(w.store().prune(100, w.now).await.ok(), Some(1));
    assert_eq!(w.store().get(dead).await.unwrap_or_default(), None);
    assert_eq!(w.view("q").await.dead, 0);
}

pub async fn pruning_one_queue_leaves_the_others(w: &mut World) {
    w.queue("keep", |_| ()).await;
    w.queue("q", |s| s.retention = Retention { count: 0, age_ms: DAY }).await;
    complete(w, 2).await;
    w.add_many(2, |_, j| j.queue = Some(queue("keep"))).await;
    let kept = w.claim_with(w.claim_on(&["keep"], 5)).await;
    for job in &kept.jobs {
        w.finish(job).await;
    }
    assert_eq!(w.store().prune(100, w.now).await.ok(), Some(2));
    assert_eq!((w.view("q").await.completed, w.view("keep").await.completed), (0, 2));
}

async fn erase_all(w: &World, name: &str, scan: usize) -> u64 {
    let (mut erased, mut after) = (0, Seq(0));
    for _ in 0..10_000 {
        let erase = Erase { tenant: tenant(name), after, scan, now: w.now };
        let reply = w.store().erase(erase).await.expect("erased");
        erased += reply.erased;
        match reply.next {
            Some(next) => after = next,
            None => return erased,
        }
    }
    panic!("an erase comes to an end");
}

pub async fn erasing_a_tenant_takes_all_its_jobs_and_no_others(w: &mut World) {
    let acme = tenant("acme");
    let mine = w.add_many(8, |_, j| j.tenant = Some(acme.clone())).await;
    let other = w.add_many(3, |_, j| j.tenant = Some(tenant("other"))).await;
    let claimed = w.claim(2).await;
    assert_eq!(claimed.jobs.iter().map(|j| j.id).collect::<Vec<_>>(), mine[..2]);
    w.finish(&claimed.jobs[0]).await;
    let running = &claimed.jobs[1];
    w.cancel(mine[2]).await;
    let mut later = w.job();
    later.tenant = Some(acme.clone());
    later.run_at = Some(w.now.plus_ms(1_000));
    w.add(later).await;
    assert_eq!(erase_all(w, "acme", 4).await, 9);
    for id in &mine {
        assert_eq!(w.store().get(*id).await.unwrap_or_default(), None);
    }
    assert_eq!(w.complete(running).await, Settled::Stale, "a running job's settle is refused");
    assert_eq!(w.beat(running.ticket.lease).await.until, None);
    let totals = w.store().totals().await.expect("totals");
    assert_eq!(
        (totals.ready, totals.running, totals.scheduled, totals.completed, totals.cancelled),
        (3, 0, 0, 0, 0)
    );
    w.restart().await;
    assert!(w.find(JobQuery { tenant: Some(acme), ..JobQuery::default() }).await.is_empty());
    w.pass(5_000);
    assert_eq!(crate::kit::ids(&w.claim(20).await), other);
}

pub async fn erasing_frees_the_places_of_running_jobs(w: &mut World) {
    w.queue("q", |s| {
        s.concurrency = Some(2);
        s.group_concurrency = Some(1);
    })
    .await;
    let acme = tenant("acme");
    w.add_many(3, |_, j| j.tenant = Some(acme.clone())).await;
    assert_eq!(w.claim(5).await.jobs.len(), 1);
    erase_all(w, "acme", 100).await;
    w.add_many(3, |_, j| j.tenant = Some(acme.clone())).await;
    w.add_many(3, |_, j| j.tenant = Some(tenant("other"))).await;
    assert_eq!(w.claim(5).await.jobs.len(), 2, "one place of each group, two of the queue");
}

pub async fn erasing_a_tenant_that_never_was_is_fine(w: &mut World) {
    assert_eq!(erase_all(w, "nobody", 10).await, 0);
}

pub async fn counts_agree_with_what_search_finds(w: &mut World) {
    w.queue("p", |s| s.concurrency = Some(3)).await;
    w.add_many(40, |i, j| {
        j.queue = (i % 3 == 0).then(|| queue("p"));
        j.tenant = Some(tenant(["a", "b", "c"][i % 3]));
        j.run_at = (i % 5 == 0).then(|| crate::kit::START.plus_ms(50_000));
    })
    .await;
    for round in 0..6 {
        let claimed = w.claim_with(w.claim_on(&["q", "p"], 6)).await;
        for (i, job) in claimed.jobs.iter().enumerate() {
            match (i + round) % 6 {
                0 => drop(w.complete(job).await),
                1 => drop(w.fail(job, Category::TransientServer).await),
                2 => drop(w.fail(job, Category::InvalidInput).await),
                3 => drop(w.snooze(job, 5_000, None).await),
                4 => drop(w.settle(job.ticket, Outcome::Release).await),
                _ => drop(w.cancel(job.id).await),
            }
        }
        check_counts(w).await;
        match round {
            1 => w.stall().await,
            2 => w.restart().await,
            3 => drop(erase_all(w, "b", 7).await),
            _ => w.pass(10_000),
        }
        check_counts(w).await;
    }
}

async fn check_counts(w: &World) {
    let mut found: HashMap<(String, State), u64> = HashMap::new();
    for id in w.find(JobQuery::default()).await {
        let job = w.get(id).await;
        *found.entry((job.queue.to_string(), job.state)).or_default() += 1;
    }
    let mut sums = [0u64; 6];
    for name in ["p", "q"] {
        let v = w.view(name).await;
        let counted = [v.ready, v.scheduled, v.running, v.completed, v.dead, v.cancelled];
        let states =
            [State::Ready, State::Scheduled, State::Running, State::Completed, State::Dead, State::Cancelled];
        for (i, state) in states.into_iter().enumerate() {
            let expected = found.get(&(name.to_owned(), state)).copied().unwrap_or(0);
            assert_eq!(counted[i], expected, "{state} in {name}");
            sums[i] += counted[i];
        }
    }
    let t = w.store().totals().await.expect("totals");
    assert_eq!([t.ready, t.scheduled, t.running, t.completed, t.dead, t.cancelled], sums);
}

pub async fn the_registry_lists_what_was_put_and_survives_a_restart(w: &mut World) {
    w.queue("a", |s| s.weight = 7).await;
    w.kind("x", "a", |k| k.description = "does x".into()).await;
    w.store().ensure_queue(queue("a"), w.now).await.expect("it exists");
    w.store().ensure_queue(queue("b"), w.now).await.expect("it is made");
    for _ in 0..2 {
        let queues = w.store().queues(w.now).await.expect("listed");
        assert_eq!(queues.iter().map(|q| q.name.as_str()).collect::<Vec<_>>(), ["a", "b", "q"]);
        assert_eq!(queues[0].settings.weight, 7, "ensure changes nothing");
        let kinds = w.store().kinds().await.expect("listed");
        assert_eq!(kinds.iter().map(|k| k.name.as_str()).collect::<Vec<_>>(), ["k", "x"]);
        assert_eq!(kinds[1].settings.description, "does x");
        w.restart().await;
    }
    let mut bad = tidegate_core::registry::KindSettings::new(queue("a"));
    bad.timeout_ms = 0;
    let code = refused(w.store().put_kind(crate::kit::kind("bad"), bad).await);
    assert_eq!(code, tidegate_core::codes::INVALID_SETTING);
}

pub async fn a_queue_view_says_what_failed_how_long_it_took_and_what_stalled(w: &mut World) {
    w.add_many(4, |_, _| ()).await;
    let (done, failed, dead) = (w.claim_one().await, w.claim_one().await, w.claim_one().await);
    w.pass(2_000);
    w.finish(&done).await;
    w.fail(&failed, Category::TransientNetwork).await;
    w.fail(&dead, Category::InvalidInput).await;
    let view = w.view("q").await;
    assert_eq!((view.completed_last_minute, view.failed_last_minute), (1, 2));
    assert_eq!(view.run_ms_last_minute, 6_000);
    let snoozed = w.claim_one().await;
    w.snooze(&snoozed, 1, None).await;
    assert_eq!(w.view("q").await.failed_last_minute, 2, "being put off is no failure");
    w.pass(1);
    let held = w.claim(10).await;
    assert!(!held.jobs.is_empty() && w.view("q").await.stalled == 0);
    w.stall().await;
    assert_eq!(w.view("q").await.stalled, held.jobs.len() as u64);
    w.pass(61_000);
    let view = w.view("q").await;
    assert_eq!((view.failed_last_minute, view.run_ms_last_minute), (0, 0));
}

pub async fn a_process_counts_what_it_did(w: &mut World) {
    w.add_many(5, |_, _| ()).await;
    w.pass(30);
    let (done, failed, dead) = (w.claim_one().await, w.claim_one().await, w.claim_one().await);
    w.pass(70);
    w.finish(&done).await;
    w.fail(&failed, Category::TransientNetwork).await;
    w.fail(&dead, Category::InvalidInput).await;
    let snoozed = w.claim_one().await;
    w.snooze(&snoozed, 1_000, None).await;
    w.claim_one().await;
    w.stall().await;
    let store = w.store();
    let series = store.feed().meter().series();
    let [series] = series.as_slice() else { panic!("one kind in one queue: {series:?}") };
    assert_eq!((series.queue.as_str(), series.kind.as_str()), ("q", "k"));
    assert_eq!((series.enqueued(), series.started()), (5, 5));
    let ends = [End::Completed, End::Retried, End::Dead, End::Snoozed, End::Stalled, End::Cancelled];
    assert_eq!(ends.map(|end| series.ended(end)), [1, 1, 1, 1, 1, 0]);
    assert_eq!((series.failed(Category::TransientNetwork), series.failed(Category::LogicError)), (1, 0));
    let (waits, _) = series.wait.read();
    assert_eq!(waits.iter().sum::<u64>(), 5);
    let (runs, sum) = series.run.read();
    // The three that took 70 ms are in the bucket up to 100 ms.
    assert!(runs[4] == 3 && sum >= 210, "{runs:?}");
    assert_eq!(series.total.read().0.iter().sum::<u64>(), 1);
}

pub async fn a_queue_view_says_how_old_and_how_fast(w: &mut World) {
    w.add_many(3, |_, _| ()).await;
    let since = w.now;
    w.pass(4_000);
    assert_eq!(w.view("q").await.oldest_ready, Some(since));
    for _ in 0..2 {
        let job = w.claim_one().await;
        w.finish(&job).await;
    }
    assert_eq!(w.view("q").await.completed_last_minute, 2);
    w.pass(61_000);
    assert_eq!(w.view("q").await.completed_last_minute, 0);
    assert_eq!(w.view("q").await.oldest_ready, Some(since));
}
