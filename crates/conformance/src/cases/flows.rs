//! Jobs that wait for other jobs.

use tidegate_core::codes;
use tidegate_core::failure::Category;
use tidegate_core::ids::JobId;
use tidegate_core::ids::Seq;
use tidegate_core::job::{OnConflict, OnDead, Priority, State, UniqueScope};
use tidegate_core::limits;
use tidegate_core::why::Cause;
use tidegate_store::params::{
    CancelJob, CancelReply, ClaimedJob, EnqueueOutcome, Erase, JobQuery, NewJob, Outcome, Recover, Recovered,
    Settled, Settlement,
};

use crate::kit::{World, ids, job_id, json, refused, tenant, unique};

/// A job that waits for others.
fn after(w: &mut World, parents: &[JobId], on_dead: OnDead) -> NewJob {
    NewJob { after: parents.to_vec(), on_dead, ..w.job() }
}

async fn add_after(w: &mut World, parents: &[JobId], on_dead: OnDead) -> JobId {
    let job = after(w, parents, on_dead);
    w.add(job).await
}

/// Claims everything and gives back all but this job.
async fn claim_this(w: &World, id: JobId) -> ClaimedJob {
    let mut found = None;
    for job in w.claim(100).await.jobs {
        if job.id == id {
            found = Some(job);
        } else {
            w.settle(job.ticket, Outcome::Release).await;
        }
    }
    found.expect("it can be claimed")
}

async fn finish_this(w: &World, id: JobId) {
    let job = claim_this(w, id).await;
    w.finish(&job).await;
}

async fn kill_this(w: &World, id: JobId) {
    let job = claim_this(w, id).await;
    assert_eq!(w.fail(&job, Category::InvalidInput).await, Settled::Applied(State::Dead));
}

async fn cascade(w: &World, id: JobId) -> CancelReply {
    let cancel = CancelJob { id, note: "all of it".into(), cascade: true, now: w.now };
    w.store().cancel(cancel).await.expect("a cancel is answered")
}

pub async fn a_job_waits_until_all_it_waits_for_are_completed(w: &mut World) {
    let (one, two) = (w.add_one().await, w.add_one().await);
    let child = add_after(w, &[one, two, one], OnDead::Fail).await;
    assert_eq!(w.state(child).await, State::Blocked);
    let claimed = w.claim(5).await;
    assert_eq!(ids(&claimed), [one, two], "a blocked job is not handed out");
    w.finish(&claimed.jobs[0]).await;
    assert_eq!(w.state(child).await, State::Blocked);
    w.fail(&claimed.jobs[1], Category::TransientNetwork).await;
    assert_eq!(w.state(child).await, State::Blocked, "another attempt follows");
    w.pass(600_000);
    finish_this(w, two).await;
    assert_eq!(w.state(child).await, State::Ready);
    let job = w.claim_one().await;
    assert_eq!((job.id, job.dependencies, job.attempt), (child, 2, 1));
    w.finish(&job).await;
    assert_eq!(w.state(child).await, State::Completed);
}

pub async fn a_whole_flow_is_one_enqueue_in_any_order(w: &mut World) {
    let mut jobs: Vec<NewJob> = (0..4).map(|_| w.job()).collect();
    let [root, left, right, last] = [0, 1, 2, 3].map(|i| jobs[i].id);
    jobs[1].after = vec![root];
    jobs[2].after = vec![root];
    jobs[3].after = vec![left, right];
    jobs.reverse();
    let replies = w.enqueue(jobs).await;
    assert_eq!(
        replies.iter().map(|r| r.id).collect::<Vec<_>>(),
        [last, right, left, root],
        "answered in its order"
    );
    assert!(replies.iter().all(|r| r.outcome == EnqueueOutcome::Created));
    let first = w.claim(5).await;
    assert_eq!(ids(&first), [root]);
    w.finish(&first.jobs[0]).await;
    let middle = w.claim(5).await;
    let mut both = ids(&middle);
    both.sort_unstable();
    assert_eq!(both, [left, right]);
    w.finish(&middle.jobs[0]).await;
    assert!(w.claim(5).await.jobs.is_empty());
    w.finish(&middle.jobs[1]).await;
    assert_eq!(ids(&w.claim(5).await), [last]);
}

pub async fn a_circle_is_refused_and_nothing_is_stored(w: &mut World) {
    let mut jobs: Vec<NewJob> = (0..4).map(|_| w.job()).collect();
    let [a, b, c] = [0, 1, 2].map(|i| jobs[i].id);
    jobs[0].after = vec![c];
    jobs[1].after = vec![a];
    jobs[2].after = vec![b];
    let error = w.store().enqueue(jobs, w.now).await.expect_err("a circle");
    assert_eq!(error.code, codes::CYCLE);
    assert!(error.detail.contains(&a.to_string()), "{}", error.detail);
    let mut own = w.job();
    own.after = vec![own.id];
    assert_eq!(refused(w.store().enqueue(vec![own], w.now).await), codes::CYCLE);
    assert!(w.find(JobQuery::default()).await.is_empty());
}

pub async fn an_unknown_dependency_is_refused_and_nothing_is_stored(w: &mut World) {
    let known = w.add_one().await;
    let plain = w.job();
    let child = after(w, &[known, job_id(9_999)], OnDead::Ignore);
    let error = w.store().enqueue(vec![plain.clone(), child], w.now).await.expect_err("unknown");
    assert_eq!(error.code, codes::DEPENDENCY_NOT_FOUND);
    assert!(error.detail.contains(&job_id(9_999).to_string()), "{}", error.detail);
    assert_eq!(w.find(JobQuery::default()).await, [known]);
}

pub async fn a_tenants_job_waits_for_that_tenants_alone(w: &mut World) {
    let mut jobs: Vec<NewJob> = (0..3).map(|_| w.job()).collect();
    jobs[0].tenant = Some(tenant("acme"));
    jobs[1].tenant = Some(tenant("other"));
    let [own, foreign, nobodys] = [0, 1, 2].map(|i| jobs[i].id);
    w.enqueue(jobs).await;
    for (parent, allowed) in [(own, true), (foreign, false), (nobodys, false)] {
        let child = NewJob { tenant: Some(tenant("acme")), ..after(w, &[parent], OnDead::Fail) };
        let reply = w.store().enqueue(vec![child], w.now).await;
        assert_eq!(reply.as_ref().err().map(|e| e.code), (!allowed).then_some(codes::DEPENDENCY_NOT_FOUND));
    }
    let anybodys = add_after(w, &[own, foreign, nobodys], OnDead::Fail).await;
    assert_eq!(w.get(anybodys).await.waits.map(|x| x.open), Some(3), "nobody's job waits for anybody's");
}

pub async fn what_is_completed_already_is_not_waited_for(w: &mut World) {
    let done = w.add_one().await;
    finish_this(w, done).await;
    let child = add_after(w, &[done], OnDead::Fail).await;
    assert_eq!(w.state(child).await, State::Ready);
    let waits = w.get(child).await.waits.expect("it has a dependency");
    assert_eq!((waits.total, waits.open), (1, 0));
    let open = w.add_one().await;
    let both = add_after(w, &[done, open], OnDead::Fail).await;
    assert_eq!(w.get(both).await.waits.map(|x| x.open), Some(1));
}

pub async fn a_dead_dependency_fails_is_ignored_or_waited_for(w: &mut World) {
    let parent = w.add_one().await;
    let [fail, ignore, wait] = [OnDead::Fail, OnDead::Ignore, OnDead::Wait]
        .map(|rule| (w.job(), rule))
        .map(|(job, on_dead)| NewJob { after: vec![parent], on_dead, ..job });
    let [fail, ignore, wait] = [w.add(fail).await, w.add(ignore).await, w.add(wait).await];
    kill_this(w, parent).await;
    assert_eq!(w.state(fail).await, State::Dead);
    let letter = w.get(fail).await.dead.expect("a letter");
    assert_eq!(
        (letter.code.as_str(), letter.reason.sentence()),
        ("DEPENDENCY_DEAD", "a job it waited for did not complete")
    );
    assert!(letter.message.contains(&parent.to_string()), "{}", letter.message);
    assert_eq!(w.state(ignore).await, State::Ready);
    assert_eq!(w.state(wait).await, State::Blocked);
    assert_eq!(ids(&w.claim(5).await), [ignore]);
}

pub async fn a_cancelled_dependency_is_as_good_as_dead(w: &mut World) {
    let parent = w.add_one().await;
    let fail = add_after(w, &[parent], OnDead::Fail).await;
    let ignore = add_after(w, &[parent], OnDead::Ignore).await;
    let wait = add_after(w, &[parent], OnDead::Wait).await;
    assert_eq!(w.cancel(parent).await, CancelReply::Cancelled);
    assert_eq!(w.state(ignore).await, State::Ready);
    for id in [fail, wait] {
        let letter = w.get(id).await.dead.expect("nothing brings a cancelled job back");
        assert_eq!(letter.code, "DEPENDENCY_CANCELLED");
    }
}

pub async fn what_is_dead_already_decides_at_once(w: &mut World) {
    let dead = w.add_dead().await;
    let fail = add_after(w, &[dead], OnDead::Fail).await;
    let ignore = add_after(w, &[dead], OnDead::Ignore).await;
    let wait = add_after(w, &[dead], OnDead::Wait).await;
    let states = [w.state(fail).await, w.state(ignore).await, w.state(wait).await];
    assert_eq!(states, [State::Dead, State::Ready, State::Blocked]);
    let new_id = w.id();
    let again = w.recover(dead, new_id).await;
    let late = add_after(w, &[dead], OnDead::Fail).await;
    assert_eq!(w.state(late).await, State::Blocked, "it waits for what the dead job was recovered as");
    w.restart().await;
    finish_this(w, again).await;
    assert_eq!((w.state(wait).await, w.state(late).await), (State::Ready, State::Ready));
}

pub async fn death_goes_on_from_one_to_the_next(w: &mut World) {
    let root = w.add_one().await;
    let mut chain = vec![root];
    for _ in 0..5 {
        let last = chain[chain.len() - 1];
        chain.push(add_after(w, &[last], OnDead::Fail).await);
    }
    let last = chain[chain.len() - 1];
    let stays = add_after(w, &[last], OnDead::Ignore).await;
    kill_this(w, root).await;
    for id in chain {
        assert_eq!(w.state(id).await, State::Dead);
    }
    assert_eq!(w.state(stays).await, State::Ready);
    assert_eq!(w.view("q").await.dead, 6);
}

pub async fn a_recovered_dependency_releases_who_waited(w: &mut World) {
    let parent = w.add_one().await;
    let other = w.add_one().await;
    let child = add_after(w, &[parent, other], OnDead::Wait).await;
    kill_this(w, parent).await;
    w.restart().await;
    finish_this(w, other).await;
    assert_eq!(w.state(child).await, State::Blocked);
    let new_id = w.id();
    let second = w.recover(parent, new_id).await;
    w.restart().await;
    kill_this(w, second).await;
    let new_id = w.id();
    let third = w.recover(second, new_id).await;
    let job = claim_this(w, third).await;
    assert_eq!(
        w.settle(job.ticket, Outcome::Complete(Some(json("3")))).await,
        Settled::Applied(State::Completed)
    );
    assert_eq!(w.state(child).await, State::Ready);
    let page = w.store().dependencies(child, None, 0, 10).await.expect("answered");
    assert!(page.jobs.iter().any(|d| d.id == third && d.result == Some(json("3"))), "{page:?}");
    finish_this(w, child).await;
}

pub async fn recovered_together_a_flow_runs_in_its_order(w: &mut World) {
    let root = w.add_one().await;
    let middle = add_after(w, &[root], OnDead::Fail).await;
    let leaf = add_after(w, &[middle], OnDead::Fail).await;
    kill_this(w, root).await;
    let letters: Vec<Recover> = [leaf, middle, root].map(|dead| Recover { dead, new_id: w.id() }).to_vec();
    let replies = w.store().recover(letters, w.now).await.expect("answered");
    let again: Vec<JobId> =
        replies.iter().map(|r| if let Recovered::As(id) = r { *id } else { panic!("{replies:?}") }).collect();
    let [leaf, middle, root] = again[..] else { panic!("{again:?}") };
    assert_eq!((w.state(leaf).await, w.state(middle).await), (State::Blocked, State::Blocked));
    for id in [root, middle, leaf] {
        let claimed = w.claim(5).await;
        assert_eq!(ids(&claimed), [id]);
        w.finish(&claimed.jobs[0]).await;
    }
}

/// A recovered job does not wait for what was dead when it was recovered, whatever becomes of that.
pub async fn a_recovered_job_waits_only_for_what_was_not_finished(w: &mut World) {
    let [dead, cancelled, open] = [w.add_one().await, w.add_one().await, w.add_one().await];
    let child = add_after(w, &[dead, cancelled, open], OnDead::Wait).await;
    kill_this(w, dead).await;
    w.cancel(cancelled).await;
    assert_eq!(w.state(child).await, State::Dead);
    let (first, second) = (w.id(), w.id());
    let again = w.recover(child, first).await;
    assert_eq!(w.get(again).await.waits.map(|x| x.open), Some(1));
    let revived = w.recover(dead, second).await;
    finish_this(w, revived).await;
    assert_eq!(w.state(again).await, State::Blocked, "the one that it waits for has not finished");
    finish_this(w, open).await;
    assert_eq!(w.state(again).await, State::Ready);
}

pub async fn a_delay_counts_after_the_dependencies(w: &mut World) {
    let parent = w.add_one().await;
    let mut late = after(w, &[parent], OnDead::Fail);
    late.run_at = Some(w.now.plus_ms(60_000));
    let mut early = after(w, &[parent], OnDead::Fail);
    early.run_at = Some(w.now.plus_ms(1_000));
    let (late, early) = (w.add(late).await, w.add(early).await);
    assert_eq!(w.state(late).await, State::Blocked);
    w.pass(2_000);
    w.advance().await;
    assert_eq!(w.state(early).await, State::Blocked, "its time alone does not release it");
    finish_this(w, parent).await;
    assert_eq!((w.state(late).await, w.state(early).await), (State::Scheduled, State::Ready));
    w.restart().await;
    w.pass(60_000);
    assert_eq!(w.claim(5).await.jobs.len(), 2);
}

/// A released job has waited in line since its release, also for a store that was opened since.
pub async fn a_released_job_ages_from_its_release(w: &mut World) {
    w.queue("q", |s| s.max_wait_ms = 40_000).await;
    let parent = w.add_one().await;
    let child = NewJob { priority: Some(Priority::Low), ..after(w, &[parent], OnDead::Fail) };
    let child = w.add(child).await;
    let job = w.claim_one().await;
    w.pass(20_000);
    w.beat(job.ticket.lease).await;
    w.pass(20_000);
    w.finish(&job).await;
    let released = w.now;
    for _ in 0..2 {
        // A restart begins its age anew, at the latest.
        assert!(w.view("q").await.oldest_ready.is_some_and(|at| at >= released));
        w.pass(5_000);
        w.restart().await;
    }
    w.add_many(100, |_, job| job.priority = Some(Priority::Critical)).await;
    assert!(!ids(&w.claim(40).await).contains(&child), "what it waited for others is no reason to hurry");
}

pub async fn a_key_is_held_while_blocked(w: &mut World) {
    let parent = w.add_one().await;
    let key = unique("k", UniqueScope::Pending, OnConflict::Keep);
    let child = NewJob { unique: Some(key.clone()), ..after(w, &[parent], OnDead::Fail) };
    let child = w.add(child).await;
    let again = NewJob { unique: Some(key.clone()), ..w.job() };
    let reply = w.enqueue(vec![again]).await;
    assert_eq!((reply[0].id, reply[0].outcome), (child, EnqueueOutcome::Kept));
    kill_this(w, parent).await;
    assert_eq!(w.state(child).await, State::Dead);
    let again = NewJob { unique: Some(key), ..w.job() };
    w.add(again).await;
}

/// A blocked job that was hastened is found where it then is: it is cancelled, and does not come back.
pub async fn a_hastened_job_is_found_when_it_is_released(w: &mut World) {
    let key = unique("k", UniqueScope::Pending, OnConflict::Hasten);
    let parent = w.job();
    let late = NewJob {
        unique: Some(key.clone()),
        run_at: Some(w.now.plus_ms(60_000)),
        ..after(w, &[parent.id], OnDead::Fail)
    };
    // In the same commit, the first with edges at all.
    let sooner = NewJob {
        unique: Some(key.clone()),
        run_at: Some(w.now.plus_ms(40_000)),
        ..after(w, &[parent.id], OnDead::Fail)
    };
    let (parent_id, late_id) = (parent.id, late.id);
    let replies = w.enqueue(vec![parent, late, sooner]).await;
    assert_eq!((replies[2].id, replies[2].outcome), (late_id, EnqueueOutcome::Hastened));
    let soonest = NewJob { unique: Some(key), run_at: Some(w.now.plus_ms(20_000)), ..w.job() };
    assert_eq!(w.enqueue(vec![soonest]).await[0].outcome, EnqueueOutcome::Hastened);
    assert_eq!(w.state(late_id).await, State::Blocked);
    finish_this(w, parent_id).await;
    let got = w.get(late_id).await;
    assert_eq!((got.state, got.run_at), (State::Scheduled, w.now.plus_ms(20_000)));
    w.cancel(late_id).await;
    assert_eq!(w.state(late_id).await, State::Cancelled);
    w.pass(100_000);
    w.advance().await;
    assert!(w.claim(5).await.jobs.is_empty());
    assert_eq!(w.state(late_id).await, State::Cancelled, "nothing of it was left on the schedule");
}

pub async fn who_waits_for_a_kept_job_waits_for_the_one_that_holds_the_key(w: &mut World) {
    let key = unique("k", UniqueScope::PendingOrRunning, OnConflict::Keep);
    let holder = NewJob { unique: Some(key.clone()), ..w.job() };
    let holder = w.add(holder).await;
    let kept = NewJob { unique: Some(key), ..w.job() };
    let child = after(w, &[kept.id], OnDead::Fail);
    let child_id = child.id;
    let replies = w.enqueue(vec![child, kept]).await;
    assert_eq!((replies[1].id, replies[1].outcome), (holder, EnqueueOutcome::Kept));
    assert_eq!(w.state(child_id).await, State::Blocked);
    finish_this(w, holder).await;
    assert_eq!(w.state(child_id).await, State::Ready);
}

pub async fn cancelling_a_blocked_job_lets_the_others_be(w: &mut World) {
    let parent = w.add_one().await;
    let (one, two) =
        (add_after(w, &[parent], OnDead::Fail).await, add_after(w, &[parent], OnDead::Fail).await);
    assert_eq!(w.cancel(one).await, CancelReply::Cancelled);
    assert_eq!((w.view("q").await.blocked, w.view("q").await.cancelled), (1, 1));
    finish_this(w, parent).await;
    assert_eq!((w.state(one).await, w.state(two).await), (State::Cancelled, State::Ready));
}

pub async fn a_cancel_cascades_if_asked(w: &mut World) {
    let root = w.add_one().await;
    let left = add_after(w, &[root], OnDead::Ignore).await;
    let right = add_after(w, &[root], OnDead::Wait).await;
    let end = add_after(w, &[left, right], OnDead::Fail).await;
    let beside = w.add_one().await;
    let after_beside = add_after(w, &[beside], OnDead::Fail).await;
    assert_eq!(cascade(w, root).await, CancelReply::Cascaded { running: false, others: 3 });
    for id in [root, left, right, end] {
        assert_eq!(w.state(id).await, State::Cancelled);
    }
    assert_eq!(w.state(after_beside).await, State::Blocked);
    let job = claim_this(w, beside).await;
    assert_eq!(
        cascade(w, beside).await,
        CancelReply::Cascaded { running: true, others: 1 },
        "it runs: who waits for it is cancelled at once"
    );
    assert_eq!(w.state(after_beside).await, State::Cancelled);
    w.settle(job.ticket, Outcome::Cancel).await;
    assert_eq!(w.view("q").await.blocked, 0);
}

pub async fn a_blocked_job_cannot_be_run_now_but_reprioritised(w: &mut World) {
    let parent = w.add_one().await;
    let child = add_after(w, &[parent], OnDead::Fail).await;
    assert_eq!(refused(w.store().run_now(child, w.now).await), codes::WRONG_STATE);
    w.store().reprioritise(child, Priority::Critical, w.now).await.expect("accepted");
    w.restart().await;
    finish_this(w, parent).await;
    let plain = w.add_one().await;
    let claimed = w.claim(5).await;
    assert_eq!(ids(&claimed), [child, plain], "it waits in its new lane");
}

pub async fn results_of_dependencies_are_seen_page_by_page(w: &mut World) {
    let parents = w.add_many(5, |_, _| ()).await;
    let child = add_after(w, &parents, OnDead::Ignore).await;
    for (i, parent) in parents.iter().enumerate() {
        let job = claim_this(w, *parent).await;
        if i == 3 {
            w.fail(&job, Category::InvalidInput).await;
        } else {
            w.settle(job.ticket, Outcome::Complete(Some(json(&format!("{i}"))))).await;
        }
    }
    let (mut seen, mut skip) = (vec![], Some(0));
    while let Some(from) = skip {
        let page = w.store().dependencies(child, None, from, 2).await.expect("answered");
        assert!(page.jobs.len() <= 2);
        seen.extend(page.jobs);
        skip = page.next;
    }
    assert_eq!(seen.iter().map(|d| d.id).collect::<Vec<_>>(), parents);
    let results: Vec<Option<&str>> =
        seen.iter().map(|d| d.result.as_ref().map(tidegate_core::payload::Payload::as_str)).collect();
    assert_eq!(results, [Some("0"), Some("1"), Some("2"), None, Some("4")]);
    assert_eq!((seen[3].state, seen[3].code.as_deref()), (State::Dead, Some("E_TEST")));
    assert_eq!(refused(w.store().dependencies(job_id(9_999), None, 0, 5).await), codes::JOB_NOT_FOUND);
    let none = w.store().dependencies(parents[0], None, 0, 5).await.expect("answered");
    assert!(none.jobs.is_empty());
}

pub async fn results_outlive_the_job_that_made_them_while_somebody_waits(w: &mut World) {
    w.queue("q", |q| q.retention.age_ms = 1_000).await;
    let (parent, other) = (w.add_one().await, w.add_one().await);
    let child = add_after(w, &[parent, other], OnDead::Fail).await;
    let job = claim_this(w, parent).await;
    w.settle(job.ticket, Outcome::Complete(Some(json("\"kept\"")))).await;
    w.pass(10_000);
    assert_eq!(w.store().prune(100, w.now).await.expect("pruned"), 1);
    assert_eq!(w.store().get(parent).await.expect("answered"), None, "its time is over");
    w.restart().await;
    finish_this(w, other).await;
    let job = claim_this(w, child).await;
    let page = w.store().dependencies(child, None, 0, 5).await.expect("answered");
    let kept = page.jobs.iter().find(|d| d.id == parent).expect("it is still seen");
    assert_eq!(
        (kept.state, kept.result.as_ref().map(tidegate_core::payload::Payload::as_str)),
        (State::Completed, Some("\"kept\""))
    );
    w.finish(&job).await;
    w.pass(10_000);
    while w.store().prune(100, w.now).await.expect("pruned") > 0 {}
    assert!(w.find(JobQuery::default()).await.is_empty(), "and everything goes in the end");
    w.restart().await;
}

pub async fn why_names_what_a_blocked_job_waits_for(w: &mut World) {
    let parents = w.add_many(5, |_, _| ()).await;
    let child = add_after(w, &parents, OnDead::Wait).await;
    finish_this(w, parents[0]).await;
    kill_this(w, parents[4]).await;
    let Cause::Blocked { open, total, jobs, dead } = w.cause(child).await else { panic!("it is blocked") };
    assert_eq!((open, total, jobs.len(), dead), (4, 5, 3, Some(parents[4])));
    let sentence = w.why(child).await.sentence(w.now);
    assert!(sentence.starts_with("Waits for 4 of 5 jobs to complete: job_"), "{sentence}");
}

pub async fn blocked_jobs_are_found_and_counted(w: &mut World) {
    let parent = w.add_one().await;
    let children = w.add_many(3, |_, job| job.after = vec![parent]).await;
    let query = JobQuery { states: vec![State::Blocked], ..JobQuery::default() };
    let mut found = w.find(query.clone()).await;
    found.reverse();
    assert_eq!(found, children);
    let mixed = JobQuery { states: vec![State::Blocked, State::Ready], ..JobQuery::default() };
    assert_eq!(w.find(mixed).await.len(), 4);
    let ready = JobQuery { states: vec![State::Ready], ..JobQuery::default() };
    assert_eq!(w.find(ready).await, [parent]);
    w.restart().await;
    let view = w.view("q").await;
    assert_eq!((view.blocked, view.ready), (3, 1));
    assert_eq!(w.store().totals().await.expect("counted").blocked, 3);
    finish_this(w, parent).await;
    assert!(w.find(query).await.is_empty());
    assert_eq!(w.view("q").await.blocked, 0);
}

pub async fn a_flow_goes_on_after_a_restart_at_every_step(w: &mut World) {
    let mut jobs: Vec<NewJob> = (0..6).map(|_| w.job()).collect();
    let all: Vec<JobId> = jobs.iter().map(|j| j.id).collect();
    for job in &mut jobs[1..5] {
        job.after = vec![all[0]];
    }
    jobs[5].after = all[1..5].to_vec();
    w.enqueue(jobs).await;
    let mut done = vec![];
    while done.len() < 6 {
        w.restart().await;
        let job = w.claim_one().await;
        w.restart().await;
        w.finish(&job).await;
        done.push(job.id);
    }
    assert_eq!((done[0], done[5]), (all[0], all[5]));
    assert!(w.claim(5).await.jobs.is_empty());
    assert_eq!(w.view("q").await.completed, 6);
}

pub async fn erasing_what_is_waited_for_leaves_nobody_waiting(w: &mut World) {
    let mut jobs: Vec<NewJob> = (0..3).map(|_| w.job()).collect();
    for job in &mut jobs {
        job.tenant = Some(tenant("acme"));
    }
    let [a, b, dead] = [0, 1, 2].map(|i| jobs[i].id);
    jobs[1].after = vec![a];
    w.enqueue(jobs).await;
    let fail = add_after(w, &[b], OnDead::Fail).await;
    let ignore = add_after(w, &[b, a], OnDead::Ignore).await;
    let wait = add_after(w, &[dead], OnDead::Wait).await;
    kill_this(w, dead).await;
    let erase = Erase { tenant: tenant("acme"), after: Seq(0), scan: 1_000, now: w.now };
    assert_eq!(w.store().erase(erase).await.expect("erased").erased, 3);
    assert_eq!(w.state(ignore).await, State::Ready);
    for id in [fail, wait] {
        assert_eq!(w.get(id).await.dead.map(|d| d.code), Some("DEPENDENCY_GONE".into()));
    }
    w.restart().await;
    let page = w.store().dependencies(ignore, None, 0, 5).await.expect("answered");
    assert!(page.jobs.is_empty(), "nothing of a tenant that was erased is seen");
}

pub async fn a_purged_letter_leaves_nobody_waiting(w: &mut World) {
    let dead = w.add_dead().await;
    let open = w.add_one().await;
    let wait = add_after(w, &[dead], OnDead::Wait).await;
    let ignore = add_after(w, &[dead, open], OnDead::Ignore).await;
    w.pass(limits::DEAD_RETENTION_MS + 1_000);
    w.store().prune(100, w.now).await.expect("pruned");
    assert_eq!(w.get(wait).await.dead.map(|d| d.code), Some("DEPENDENCY_GONE".into()));
    assert_eq!(w.get(ignore).await.waits.map(|x| x.open), Some(1), "the dead one is not counted twice");
    finish_this(w, open).await;
    assert_eq!(w.state(ignore).await, State::Ready);
}

pub async fn a_stale_completion_releases_nobody(w: &mut World) {
    let parent = w.add_one().await;
    let child = add_after(w, &[parent], OnDead::Fail).await;
    let job = w.claim_one().await;
    w.stall().await;
    assert_eq!(w.complete(&job).await, Settled::Stale);
    assert_eq!(w.state(child).await, State::Blocked);
    finish_this(w, parent).await;
    assert_eq!(w.complete(&job).await, Settled::Stale);
    assert_eq!(w.state(child).await, State::Ready, "released once");
    finish_this(w, child).await;
}

pub async fn sizes_of_flows_are_bounded(w: &mut World) {
    let parent = w.add_one().await;
    let many = NewJob { after: (0..=limits::MAX_DEPENDENCIES as u64).map(job_id).collect(), ..w.job() };
    assert_eq!(refused(w.store().enqueue(vec![many], w.now).await), codes::INVALID_BATCH);
    let ids: Vec<JobId> = w.add_many(20, |_, _| ()).await;
    let edges = |w: &mut World| NewJob { after: ids.clone(), ..w.job() };
    let jobs: Vec<NewJob> = (0..=limits::MAX_ENQUEUE_EDGES / 20).map(|_| edges(w)).collect();
    assert_eq!(refused(w.store().enqueue(jobs, w.now).await), codes::INVALID_BATCH);
    assert_eq!(w.view("q").await.blocked, 0);
    assert_eq!(w.state(parent).await, State::Ready);
}

/// Also for a job that is finished, or that goes by another id: pruning it reads all its edges.
pub async fn the_dependents_of_a_job_are_bounded_whatever_it_is_called(w: &mut World) {
    let key = unique("k", UniqueScope::PendingOrRunning, OnConflict::Keep);
    let holder = NewJob { unique: Some(key.clone()), id_may_exist: true, ..w.job() };
    let (done, open) = (w.add_one().await, w.add(holder.clone()).await);
    finish_this(w, done).await;
    let most = limits::MAX_DEPENDENTS as usize;
    w.add_many(most - 1, |_, job| job.after = vec![done, open]).await;
    w.restart().await;
    let refuses = async |w: &World, jobs: Vec<NewJob>| {
        assert_eq!(refused(w.store().enqueue(jobs, w.now).await), codes::INVALID_BATCH);
    };
    let (one, two) = (after(w, &[done], OnDead::Fail), after(w, &[done], OnDead::Fail));
    refuses(w, vec![one.clone(), two]).await;
    w.enqueue(vec![one]).await;
    let more = after(w, &[done], OnDead::Fail);
    refuses(w, vec![more]).await;
    let kept = NewJob { unique: Some(key), ..w.job() };
    let (one, two) = (after(w, &[open], OnDead::Fail), after(w, &[kept.id], OnDead::Fail));
    refuses(w, vec![one.clone(), kept.clone(), two.clone()]).await;
    w.enqueue(vec![one]).await;
    refuses(w, vec![kept, two]).await;
    let again = after(w, &[open], OnDead::Fail);
    refuses(w, vec![holder, again]).await;
}

pub async fn a_cascade_from_a_finished_job_leaves_who_waits_for_others(w: &mut World) {
    let (done, dead, open) = (w.add_one().await, w.add_one().await, w.add_one().await);
    let child = add_after(w, &[done, open], OnDead::Fail).await;
    let patient = add_after(w, &[dead], OnDead::Wait).await;
    finish_this(w, done).await;
    kill_this(w, dead).await;
    assert_eq!(cascade(w, done).await, CancelReply::AlreadyFinished(State::Completed));
    assert_eq!(cascade(w, dead).await, CancelReply::AlreadyFinished(State::Dead));
    assert_eq!((w.state(child).await, w.state(patient).await), (State::Blocked, State::Blocked));
    finish_this(w, open).await;
    finish_this(w, child).await;
}

pub async fn a_full_queue_refuses_who_waits_for_nobody_any_more(w: &mut World) {
    w.queue("q", |s| s.max_ready = Some(3)).await;
    let (done, dead) = (w.add_one().await, w.add_one().await);
    finish_this(w, done).await;
    kill_this(w, dead).await;
    let open = w.add_one().await;
    w.add_many(2, |_, _| ()).await;
    let refuses = async |w: &World, jobs: Vec<NewJob>| {
        assert_eq!(refused(w.store().enqueue(jobs, w.now).await), codes::QUEUE_FULL);
    };
    let job = after(w, &[done], OnDead::Fail);
    refuses(w, vec![job]).await;
    let job = after(w, &[done, dead], OnDead::Ignore);
    refuses(w, vec![job]).await;
    // Dead at once, and ignored by the one that waits for it.
    let lost = after(w, &[dead], OnDead::Fail);
    let heedless = after(w, &[lost.id], OnDead::Ignore);
    refuses(w, vec![heedless.clone(), lost.clone()]).await;
    assert_eq!(w.view("q").await.ready, 3);
    let waiting = after(w, &[done, open], OnDead::Fail);
    w.enqueue(vec![lost, waiting]).await;
    assert_eq!(w.view("q").await.blocked, 1);
    refuses(w, vec![heedless]).await;
}

/// A flow that is too large for one commit is buried in several: until then it waits as before, also over restarts.
pub async fn a_death_that_goes_far_is_told_in_portions(w: &mut World) {
    const DEEP: usize = 40;
    let root = w.add_one().await;
    let mut last = root;
    let chain = w.add_many(DEEP, |_, job| job.after = vec![std::mem::replace(&mut last, job.id)]).await;
    let other = w.add_one().await;
    let heedless = add_after(w, &[chain[DEEP - 1], other], OnDead::Ignore).await;
    kill_this(w, root).await;
    let buried = w.view("q").await.dead as usize;
    assert!(buried > 2 && buried < DEEP, "{buried} of them in one commit");
    assert_eq!(w.state(chain[DEEP - 1]).await, State::Blocked);
    // A restart loses nothing of what is left to tell; that of one process among others may be followed by the next portion.
    w.restart().await;
    let buried = w.view("q").await.dead as usize;
    assert!(buried < DEEP, "{buried} of them after a restart");
    // Who comes meanwhile waits for what nobody has been told of, and hears of it with the others.
    let edge = chain[buried - 2];
    assert_eq!(w.state(edge).await, State::Dead);
    let late = add_after(w, &[edge], OnDead::Fail).await;
    let patient = add_after(w, &[edge], OnDead::Wait).await;
    finish_this(w, other).await;
    for _ in 0..DEEP {
        if w.view("q").await.blocked == 1 {
            break;
        }
        assert!(w.claim(5).await.jobs.is_empty() || w.state(heedless).await != State::Blocked);
        w.advance().await;
        w.restart().await;
    }
    assert_eq!(w.state(late).await, State::Dead);
    assert_eq!((w.state(patient).await, w.view("q").await.dead as usize), (State::Blocked, DEEP + 2));
    let letter = w.get(chain[DEEP - 1]).await.dead.expect("a letter");
    assert_eq!(letter.code, "DEPENDENCY_DEAD");
    assert_ne!(w.state(heedless).await, State::Blocked, "it ran, and once");
}

/// Jobs that many wait for complete together: all are released, if not all at once.
pub async fn a_release_that_is_too_wide_for_a_commit_goes_on_in_the_next(w: &mut World) {
    let parents = w.add_many(3, |_, _| ()).await;
    let most = limits::TELL_BATCH - 1; // there is room for one more who waits
    let children = w.add_many(most, |_, job| job.after.clone_from(&parents)).await;
    let claimed = w.claim(3).await;
    let done = |job: &ClaimedJob| Settlement { ticket: job.ticket, outcome: Outcome::Complete(None) };
    w.settle_all(claimed.jobs.iter().map(done).collect()).await;
    assert_eq!(w.view("q").await.blocked as usize, most, "each waits for all three");
    let late = add_after(w, &[parents[2]], OnDead::Fail).await;
    assert_eq!(w.state(late).await, State::Blocked, "nobody has been told of it yet");
    w.restart().await;
    w.advance().await;
    let view = w.view("q").await;
    assert_eq!((view.blocked, view.ready as usize), (0, most + 1));
    assert_eq!(w.state(children[most - 1]).await, State::Ready);
}

/// A job that is recovered waits for what it waited for, also if that is pruned before anybody was told that it completed.
pub async fn a_recovered_job_waits_for_what_was_pruned_before_anybody_was_told(w: &mut World) {
    w.queue("q", |s| s.retention.count = 0).await;
    let parents = w.add_many(3, |_, _| ()).await;
    let fatal = w.add_one().await;
    let lost = add_after(w, &[parents[2], fatal], OnDead::Fail).await;
    let most = limits::TELL_BATCH - 1;
    w.add_many(most, |_, job| job.after.clone_from(&parents)).await;
    let claimed = w.claim(4).await;
    let (last, others) = claimed.jobs.split_last().expect("four jobs");
    assert_eq!(last.id, fatal);
    w.fail(last, Category::InvalidInput).await;
    assert_eq!(w.state(lost).await, State::Dead);
    let done = |job: &ClaimedJob| Settlement { ticket: job.ticket, outcome: Outcome::Complete(None) };
    w.settle_all(others.iter().map(done).collect()).await;
    assert_eq!(w.view("q").await.blocked as usize, most, "nobody has been told of the third");
    w.store().prune(100, w.now).await.expect("pruned");
    assert_eq!(w.store().get(parents[2]).await.expect("answered"), None, "it is not stored any more");
    let new_id = w.id();
    let again = w.recover(lost, new_id).await;
    assert_eq!(w.state(again).await, State::Blocked, "it hears with the others");
    w.restart().await;
    w.advance().await;
    let view = w.view("q").await;
    assert_eq!((view.blocked, view.ready as usize), (0, most + 1));
    assert_eq!(w.state(again).await, State::Ready);
}

/// A dead job of which nobody has been told can be recovered, purged and erased like others.
pub async fn what_nobody_has_been_told_of_can_be_recovered_and_erased(w: &mut World) {
    const DEEP: usize = 30;
    let acme = Some(tenant("acme"));
    let root = NewJob { tenant: acme.clone(), ..w.job() };
    let root = w.add(root).await;
    let mut last = root;
    let of_acme = |_: usize, job: &mut NewJob| {
        job.tenant.clone_from(&acme);
        job.after = vec![std::mem::replace(&mut last, job.id)];
    };
    let chain = w.add_many(DEEP, of_acme).await;
    kill_this(w, root).await;
    let buried = w.view("q").await.dead as usize;
    let [edge, next] = [chain[buried - 2], chain[buried - 1]];
    assert_eq!((w.state(edge).await, w.state(next).await), (State::Dead, State::Blocked));
    let patient = add_after(w, &[edge], OnDead::Wait).await;
    let heedless = add_after(w, &[edge], OnDead::Ignore).await;
    let failing = add_after(w, &[edge], OnDead::Fail).await;
    let new_id = w.id();
    let again = w.recover(edge, new_id).await;
    let of_new = add_after(w, &[edge], OnDead::Fail).await;
    w.restart().await;
    let erase = Erase { tenant: tenant("acme"), after: Seq(0), scan: 10_000, now: w.now };
    w.store().erase(erase).await.expect("erased");
    for _ in 0..DEEP {
        w.advance().await;
    }
    for id in [patient, of_new] {
        assert_eq!(w.get(id).await.dead.map(|d| d.code), Some("DEPENDENCY_GONE".into()));
    }
    // It may have heard of the death before the job was erased.
    let code = w.get(failing).await.dead.expect("a letter").code;
    assert!(["DEPENDENCY_DEAD", "DEPENDENCY_GONE"].contains(&code.as_str()), "{code}");
    assert_eq!(w.state(heedless).await, State::Ready);
    assert_eq!(w.store().get(again).await.expect("answered"), None);
    w.restart().await;
    finish_this(w, heedless).await;
}

/// Erasing a tenant takes what was kept of its jobs for others, too.
pub async fn erasing_a_tenant_takes_the_results_that_were_kept(w: &mut World) {
    w.queue("q", |s| s.retention.count = 0).await;
    let jobs = w.add_many(2, |i, job| job.tenant = Some(tenant(["acme", "other"][i]))).await;
    let open = w.add_one().await;
    let reader = add_after(w, &[jobs[0], jobs[1], open], OnDead::Fail).await;
    for id in &jobs {
        let job = claim_this(w, *id).await;
        w.settle(job.ticket, Outcome::Complete(Some(json("\"a secret\"")))).await;
    }
    w.store().prune(100, w.now).await.expect("pruned");
    let seen = async |w: &World| {
        let page = w.store().dependencies(reader, None, 0, 5).await.expect("answered");
        page.jobs.into_iter().filter(|d| d.result.is_some()).map(|d| d.id).collect::<Vec<_>>()
    };
    assert_eq!(seen(w).await, jobs);
    w.restart().await;
    for _ in 0..2 {
        let erase = Erase { tenant: tenant("acme"), after: Seq(0), scan: 1, now: w.now };
        w.store().erase(erase).await.expect("erased");
    }
    assert_eq!(seen(w).await, [jobs[1]], "and nothing of others");
    finish_this(w, open).await;
    finish_this(w, reader).await;
}

pub async fn a_large_batch_of_completions_releases_all_that_waited(w: &mut World) {
    let parents = w.add_many(300, |_, _| ()).await;
    let mut next = parents.iter();
    let children = w.add_many(300, |_, job| job.after = next.next().copied().into_iter().collect()).await;
    let join = add_after(w, &parents, OnDead::Fail).await;
    let claimed = w.claim(300).await;
    assert_eq!(ids(&claimed), parents);
    let done = |job: &ClaimedJob| Settlement { ticket: job.ticket, outcome: Outcome::Complete(None) };
    // The last one is lost: it must release nobody, although its outcome comes with the others.
    let (last, others) = claimed.jobs.split_last().expect("300 jobs");
    w.settle(last.ticket, Outcome::Release).await;
    let settled = w.settle_all(claimed.jobs.iter().map(done).collect()).await;
    assert_eq!(settled[299], Settled::Stale);
    assert_eq!(w.state(join).await, State::Blocked);
    assert_eq!(w.state(children[299]).await, State::Blocked);
    assert_eq!(w.view("q").await.blocked, 2);
    w.restart().await;
    finish_this(w, last.id).await;
    assert_eq!(w.state(join).await, State::Ready);
    assert_eq!((w.view("q").await.blocked, w.view("q").await.ready), (0, 301));
    assert_eq!(others.len(), 299);
}
