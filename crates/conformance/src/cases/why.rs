//! `why`: every cause that can be met.

use tidegate_core::failure::Category;
use tidegate_core::job::{ParkScope, Priority};
use tidegate_core::limits;
use tidegate_core::registry::Limiter;
use tidegate_core::why::Cause;
use tidegate_store::params::{Record, Shelf};

use crate::kit::{World, group, in_group, queue, with_priority};

pub async fn why_names_a_delay_a_retry_and_a_snooze_with_their_times(w: &mut World) {
    let at = w.now.plus_ms(60_000);
    let mut job = w.job();
    job.run_at = Some(at);
    let delayed = w.add(job).await;
    let why = w.why(delayed).await;
    assert_eq!((why.cause, why.expected_start), (Cause::Delayed, Some(at)));

    let failed = w.add_one().await;
    let job = w.claim_one().await;
    w.fail(&job, Category::TransientRateLimit).await;
    let why = w.why(failed).await;
    let Cause::Retry { next_attempt: 2, error: Some(error) } = why.cause else { panic!("{:?}", why.cause) };
    assert_eq!((error.code.as_str(), error.attempt), ("E_TEST", 1));
    assert_eq!(why.expected_start, Some(w.get(failed).await.run_at));
    assert_eq!((why.attempt, why.max_attempts), (1, 11));

    let snoozed = w.add_one().await;
    let job = w.claim_one().await;
    w.snooze(&job, 5_000, None).await;
    let why = w.why(snoozed).await;
    assert_eq!(why.cause, Cause::Snoozed { reason: "not yet".into(), times: 1 });
    assert_eq!(why.expected_start, Some(w.now.plus_ms(5_000)));
}

pub async fn why_names_every_park_that_covers_a_job_the_longest_first(w: &mut World) {
    let id = w.add_many(1, in_group("a")).await[0];
    let until = w.now.plus_ms(9_000);
    w.park_by(ParkScope::Group(group("a")), "gate", Some(until)).await;
    let why = w.why(id).await;
    assert!(matches!(&why.cause, Cause::Parked { parks } if parks.len() == 1 && parks[0].by == "gate"));
    assert_eq!(why.expected_start, Some(until));
    w.park(ParkScope::Queue(queue("q")), None).await;
    let why = w.why(id).await;
    let Cause::Parked { parks } = &why.cause else { panic!("{:?}", why.cause) };
    assert_eq!(parks.iter().map(|p| p.by.as_str()).collect::<Vec<_>>(), ["operator", "gate"]);
    assert_eq!(why.expected_start, None, "nobody knows when a pause ends");
    assert!(why.sentence(w.now).contains("month end"));
}

pub async fn why_names_a_full_group_and_a_full_queue(w: &mut World) {
    w.queue("q", |s| s.group_concurrency = Some(1)).await;
    let second = w.add_many(2, in_group("a")).await[1];
    w.claim(5).await;
    assert_eq!(w.cause(second).await, Cause::GroupFull { group: group("a"), running: 1, limit: 1 });
    w.queue("q", |s| s.concurrency = Some(1)).await;
    assert_eq!(w.cause(second).await, Cause::QueueFull { limit: 1 });
}

pub async fn why_names_the_limiter_and_when_it_is_free(w: &mut World) {
    let limiter = Limiter { max: 1, per_ms: 10_000 };
    w.queue("q", |s| s.limiter = Some(limiter)).await;
    let waiting = w.add_many(3, |_, _| ()).await;
    w.claim(5).await;
    w.pass(4_000);
    let free_at = w.now.plus_ms(6_000);
    let why = w.why(waiting[1]).await;
    assert_eq!((why.cause, why.expected_start), (Cause::Limited { limiter, free_at }, Some(free_at)));
    assert_eq!(w.why(waiting[2]).await.expected_start, Some(free_at.plus_ms(10_000)), "one window later");
}

pub async fn why_names_what_is_ahead_and_what_is_next(w: &mut World) {
    let first = w.add_one().await;
    assert_eq!(w.cause(first).await, Cause::Next);
    let third = w.add_many(2, |_, _| ()).await[1];
    w.add_many(4, with_priority(Priority::Critical)).await;
    assert_eq!(w.cause(third).await, Cause::Behind { higher: 4, older: 2 });
    assert_eq!(w.cause(first).await, Cause::Behind { higher: 4, older: 0 });
}

pub async fn why_names_a_suspect(w: &mut World) {
    let id = w.add_one().await;
    w.claim_one().await;
    w.stall().await;
    assert_eq!(w.cause(id).await, Cause::Suspect { lone_stalls: 0 });
    w.claim_one().await;
    w.stall().await;
    assert_eq!(w.cause(id).await, Cause::Suspect { lone_stalls: 1 });
}

pub async fn why_names_who_runs_it_and_every_end(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    let (since, lease_until) = (w.now, w.now.plus_ms(30_000));
    let worker = crate::kit::worker("w1");
    let running =
        |cancel_requested| Cause::Running { worker: worker.clone(), since, lease_until, cancel_requested };
    assert_eq!(w.cause(id).await, running(false));
    w.cancel(id).await;
    assert_eq!(w.cause(id).await, running(true));
    w.finish(&job).await;
    assert_eq!(w.cause(id).await, Cause::Completed { at: w.now });

    let cancelled = w.add_one().await;
    w.cancel(cancelled).await;
    let note = Some("operator: not needed".to_owned());
    assert_eq!(w.cause(cancelled).await, Cause::Cancelled { at: w.now, note });

    let dead = w.add_dead().await;
    let Cause::Dead { at, letter } = w.cause(dead).await else { panic!("it is dead") };
    assert_eq!((at, letter.code.as_str()), (w.now, "E_TEST"));
}

/// Announces a process with this to say of itself.
async fn announce(w: &World, name: &str, about: &str) {
    let expires = Some(w.now.plus_ms(15_000));
    let record = Record { shelf: Shelf::Workers, key: name.into(), body: about.into(), expires };
    w.store().put_record(record, w.now).await.expect("kept");
}

async fn leave(w: &World, name: &str) {
    assert!(w.store().delete_record(Shelf::Workers, name.into()).await.expect("answered"));
}

pub async fn why_says_that_no_worker_serves_the_queue(w: &mut World) {
    let (id, behind) = (w.add_one().await, w.add_one().await);
    for job in [id, behind] {
        let why = w.why(job).await;
        assert!(why.unserved, "{why:?}");
        let said = why.sentence(w.now);
        assert!(
            said.contains("No worker is known to serve queue q: start one with `tidegate work --queue q"),
            "{said}"
        );
    }
    // Who serves other queues, takes no more jobs, or is a server, does not count.
    announce(w, "other", r#"{"role":"worker","queues":["p","r"]}"#).await;
    announce(w, "tired", r#"{"role":"worker","queues":["q"],"draining":true}"#).await;
    announce(w, "web", r#"{"role":"server","url":"http://web"}"#).await;
    assert!(w.why(id).await.unserved);
    announce(w, "w1", r#"{"role":"worker","queues":["p","q"]}"#).await;
    assert!(!w.why(id).await.unserved, "one serves it");
    w.pass(15_000);
    assert!(w.why(id).await.unserved, "it was not heard of again");
}

pub async fn why_does_not_guess_who_serves_a_queue(w: &mut World) {
    let many: Vec<String> = (0..limits::MAX_QUEUES_SHOWN).map(|n| format!("\"q{n}\"")).collect();
    let many = format!("{{\"queues\":[{}]}}", many.join(","));
    let id = w.add_one().await;
    for about in ["{}", r#"{"queues":"q"}"#, r#"{"queues":[]}"#, &many] {
        announce(w, "w1", about).await;
        assert!(!w.why(id).await.unserved, "it may serve it: {about}");
        leave(w, "w1").await;
        assert!(w.why(id).await.unserved);
    }
    // A worker that does not announce itself is seen by what it does.
    let job = w.claim_one().await;
    let next = w.add_one().await;
    assert!(!w.why(next).await.unserved, "one runs");
    w.finish(&job).await;
    assert!(!w.why(next).await.unserved, "one ran a moment ago");
    w.pass(120_000);
    assert!(w.why(next).await.unserved);
}

pub async fn only_what_could_run_waits_for_a_worker(w: &mut World) {
    let mut later = w.job();
    later.run_at = Some(w.now.plus_ms(60_000));
    let later = w.add(later).await;
    assert!(!w.why(later).await.unserved, "its time has not come");
    w.pass(60_000);
    assert!(w.why(later).await.unserved, "it is due");
    w.cancel(later).await;
    assert!(!w.why(later).await.unserved, "it is finished");
    let parked = w.add_one().await;
    w.park(ParkScope::Queue(queue("q")), None).await;
    assert!(!w.why(parked).await.unserved, "a worker would not help");
}
