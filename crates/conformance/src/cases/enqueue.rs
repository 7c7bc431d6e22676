//! Enqueue: what is stored, what is refused, and that a batch is one step.

use tidegate_core::codes::{self, Fault};
use tidegate_core::failure::Category;
use tidegate_core::ids::Seq;
use tidegate_core::job::{Priority, State};
use tidegate_core::limits;
use tidegate_core::schema::Schema;
use tidegate_store::params::{EnqueueOutcome, JobQuery, NewJob, Settled};

use crate::kit::{World, connector, group, job_id, json, kind, queue, refused, tenant};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

pub async fn a_job_is_stored_with_what_its_kind_says(w: &mut World) {
    w.queue("other", |_| ()).await;
    w.kind("call", "other", |k| {
        k.priority = Priority::High;
        k.timeout_ms = 5_000;
        k.max_attempts = Some(4);
        k.connector = Some(connector("shopify"));
    })
    .await;
    let mut job = w.job();
    job.kind = kind("call");
    job.tenant = Some(tenant("acme"));
    job.trace = Some(TRACE.into());
    job.payload = json(r#"{"order":7}"#);
    let id = w.add(job).await;
    let got = w.get(id).await;
    assert_eq!((got.queue, got.kind), (queue("other"), kind("call")));
    assert_eq!((got.priority, got.timeout_ms, got.max_attempts), (Priority::High, 5_000, Some(4)));
    assert_eq!((got.tenant, got.group), (Some(tenant("acme")), group("acme")));
    assert_eq!(got.connector, Some(connector("shopify")));
    assert_eq!(got.payload.as_str(), r#"{"order":7}"#);
    assert_eq!((got.state, got.attempt), (State::Ready, 0));
    assert_eq!((got.created_at, got.run_at), (w.now, w.now));
    assert_eq!(got.trace.as_deref(), Some(TRACE));
}

pub async fn a_trace_context_stays_with_its_job(w: &mut World) {
    let mut job = w.job();
    job.trace = Some(TRACE.into());
    let id = w.add(job).await;
    let mut waits = w.job();
    waits.after = vec![id];
    let waits = w.add(waits).await;
    let first = w.claim_one().await;
    assert_eq!((first.trace.as_deref(), first.ready_at), (Some(TRACE), w.now));
    w.fail(&first, Category::TransientServer).await;
    w.restart().await;
    w.pass(60_000);
    let again = w.claim_one().await;
    assert_eq!((again.id, again.trace.as_deref(), again.attempt), (id, Some(TRACE), 2));
    assert_eq!(w.fail(&again, Category::InvalidInput).await, Settled::Applied(State::Dead));
    assert_eq!(w.get(waits).await.trace, None, "who waits for it has only what it was given");
    let new_id = w.id();
    let recovered = w.recover(id, new_id).await;
    assert_eq!(w.get(recovered).await.trace.as_deref(), Some(TRACE), "it goes on with the same trace");
    assert_eq!(w.claim_one().await.trace.as_deref(), Some(TRACE));
}

pub async fn a_job_can_differ_from_its_kind(w: &mut World) {
    w.queue("other", |_| ()).await;
    let mut job = w.job();
    job.queue = Some(queue("other"));
    job.tenant = Some(tenant("acme"));
    job.group = Some(group("acme-eu"));
    job.priority = Some(Priority::Critical);
    job.timeout_ms = Some(1);
    job.max_attempts = Some(9);
    let id = w.add(job).await;
    let got = w.get(id).await;
    assert_eq!((got.queue, got.group), (queue("other"), group("acme-eu")));
    assert_eq!((got.priority, got.timeout_ms, got.max_attempts), (Priority::Critical, 1, Some(9)));
}

pub async fn a_batch_with_one_bad_job_stores_nothing(w: &mut World) {
    let mut jobs: Vec<NewJob> = (0..5).map(|_| w.job()).collect();
    jobs[3].kind = kind("unknown");
    assert_eq!(refused(w.store().enqueue(jobs.clone(), w.now).await), codes::UNKNOWN_KIND);
    for job in &jobs {
        assert_eq!(w.store().get(job.id).await.unwrap_or_default(), None);
    }
    assert_eq!(w.store().totals().await.map(|t| t.ready).ok(), Some(0));
    assert!(w.claim(10).await.jobs.is_empty());
}

pub async fn a_batch_is_answered_in_its_order(w: &mut World) {
    let jobs: Vec<NewJob> = (0..20).map(|_| w.job()).collect();
    let sent: Vec<_> = jobs.iter().map(|j| j.id).collect();
    let reply = w.enqueue(jobs).await;
    assert_eq!(reply.iter().map(|e| e.id).collect::<Vec<_>>(), sent);
    assert!(reply.iter().all(|e| e.outcome == EnqueueOutcome::Created));
}

pub async fn empty_and_giant_batches_are_refused(w: &mut World) {
    assert_eq!(refused(w.store().enqueue(vec![], w.now).await), codes::INVALID_BATCH);
    let giant: Vec<NewJob> = (0..=limits::MAX_ENQUEUE_BATCH).map(|_| w.job()).collect();
    assert_eq!(refused(w.store().enqueue(giant.clone(), w.now).await), codes::INVALID_BATCH);
    assert_eq!(w.view("q").await.ready, 0);
    let largest = giant[1..].to_vec();
    assert_eq!(w.enqueue(largest).await.len(), limits::MAX_ENQUEUE_BATCH);
    assert_eq!(w.view("q").await.ready, limits::MAX_ENQUEUE_BATCH as u64);
}

pub async fn an_id_twice_in_a_batch_is_refused(w: &mut World) {
    for may_exist in [false, true] {
        let mut one = w.job();
        one.id_may_exist = may_exist;
        let mut two = w.job();
        two.id = one.id;
        two.id_may_exist = may_exist;
        assert_eq!(refused(w.store().enqueue(vec![one, two], w.now).await), codes::INVALID_BATCH);
    }
    assert_eq!(w.view("q").await.ready, 0);
}

pub async fn the_same_job_sent_again_is_kept(w: &mut World) {
    let mut job = w.job();
    job.tenant = Some(tenant("acme"));
    let id = w.add(job.clone()).await;
    job.id_may_exist = true;
    w.pass(50);
    let again = w.enqueue(vec![job.clone()]).await;
    assert_eq!((again[0].id, again[0].outcome), (id, EnqueueOutcome::Kept));
    let claimed = w.claim_one().await;
    w.finish(&claimed).await;
    let late = w.enqueue(vec![job]).await;
    assert_eq!((late[0].id, late[0].outcome), (id, EnqueueOutcome::Kept));
    assert_eq!(w.state(id).await, State::Completed);
    assert!(w.claim(10).await.jobs.is_empty(), "sent thrice, run once");
}

/// What was accepted once is not judged again by what the registry says since.
pub async fn the_same_job_is_kept_whatever_the_registry_says_by_now(w: &mut World) {
    let schema = |text: &str| Schema::compile(&serde_json::from_str(text).expect("JSON")).ok();
    w.kind("k", "q", |k| {
        k.schema = schema(r#"{"type":"object","properties":{"deep":{"default":1}}}"#);
    })
    .await;
    let job = NewJob { id_may_exist: true, ..w.job() };
    let id = w.add(job.clone()).await;
    let stricter = r#"{"type":"object","required":["must"],"properties":{"deep":{"default":2}}}"#;
    for schema in [schema(stricter), None] {
        w.kind("k", "q", |k| k.schema = schema).await;
        w.restart().await;
        let again = w.enqueue(vec![job.clone()]).await;
        assert_eq!((again[0].id, again[0].outcome), (id, EnqueueOutcome::Kept));
    }
    w.queue("q", |s| s.max_ready = Some(1)).await;
    assert_eq!(w.enqueue(vec![job.clone()]).await[0].outcome, EnqueueOutcome::Kept);
    let other = NewJob { payload: json(r#"{"n":0}"#), ..job };
    assert_eq!(refused(w.store().enqueue(vec![other], w.now).await), codes::DUPLICATE_ID);
    assert_eq!(w.claim(5).await.jobs.len(), 1);
}

/// Less than what was sent is another job; so is more, whatever defaults are filled in.
pub async fn a_payload_that_only_begins_like_the_stored_one_is_another_job(w: &mut World) {
    let schema = r#"{"type":"object","properties":{"a":{},"b":{},"deep":{"default":1}}}"#;
    let schema = Schema::compile(&serde_json::from_str(schema).expect("JSON")).ok();
    for schema in [None, schema] {
        w.kind("k", "q", |k| k.schema = schema).await;
        let whole = r#"{"a":{"x":1,"y":2},"b":[{"z":1}]}"#;
        let job = NewJob { id_may_exist: true, payload: json(whole), ..w.job() };
        let id = w.add(job.clone()).await;
        w.restart().await;
        for other in [
            r#"{"a":{"x":1,"y":2}}"#,
            r#"{"a":{"x":1},"b":[{"z":1}]}"#,
            r#"{"a":{"x":1,"y":2},"b":[{}]}"#,
            r#"{"a":{"x":1,"y":2},"b":[{"z":1}],"deep":2}"#,
            r#"{"a":{"x":1,"y":2},"b":[{"z":1}],"c":null}"#,
        ] {
            let other = NewJob { payload: json(other), ..job.clone() };
            assert_eq!(refused(w.store().enqueue(vec![other], w.now).await), codes::DUPLICATE_ID);
        }
        let spaced = json(r#" { "a": {"x":1,"y":2}, "b":[ {"z":1} ] } "#);
        for payload in [spaced, json(whole)] {
            let again = w.enqueue(vec![NewJob { payload, ..job.clone() }]).await;
            assert_eq!((again[0].id, again[0].outcome), (id, EnqueueOutcome::Kept));
        }
    }
}

pub async fn another_job_under_the_same_id_is_refused(w: &mut World) {
    let id = w.add_one().await;
    let mut other = w.job();
    other.id = id;
    other.id_may_exist = true;
    other.payload = json(r#"{"n":"another"}"#);
    let fresh = w.job();
    let fresh_id = fresh.id;
    assert_eq!(refused(w.store().enqueue(vec![fresh, other], w.now).await), codes::DUPLICATE_ID);
    assert_eq!(w.store().get(fresh_id).await.unwrap_or_default(), None, "nothing of the batch is stored");
}

pub async fn a_repeated_id_that_was_said_to_be_fresh_is_refused_and_harms_nothing(w: &mut World) {
    let job = w.job();
    let id = w.add(job.clone()).await;
    let code = refused(w.store().enqueue(vec![job], w.now).await);
    assert!(code == codes::DUPLICATE_ID || code.fault == Fault::Ours, "{code}");
    assert_eq!(w.state(id).await, State::Ready);
    assert_eq!(w.view("q").await.ready, 1);
    let claimed = w.claim(10).await;
    assert_eq!(crate::kit::ids(&claimed), [id]);
    assert_eq!(w.add_many(3, |_, _| ()).await.len(), 3, "the store goes on");
}

pub async fn recovering_under_an_id_that_is_taken_is_refused_and_harms_nothing(w: &mut World) {
    let dead = w.add_dead().await;
    let taken = w.add_one().await;
    let letters = vec![tidegate_store::params::Recover { dead, new_id: taken }];
    let code = refused(w.store().recover(letters, w.now).await);
    assert!(code == codes::DUPLICATE_ID || code.fault == Fault::Ours, "{code}");
    assert_eq!(w.state(taken).await, State::Ready);
    assert_eq!(w.get(dead).await.dead.and_then(|d| d.recovered_as), None);
    assert_eq!(crate::kit::ids(&w.claim(10).await), [taken]);
}

pub async fn unknown_kinds_and_queues_are_refused(w: &mut World) {
    let mut job = w.job();
    job.kind = kind("nobody");
    assert_eq!(refused(w.store().enqueue(vec![job], w.now).await), codes::UNKNOWN_KIND);
    let mut job = w.job();
    job.queue = Some(queue("nowhere"));
    assert_eq!(refused(w.store().enqueue(vec![job], w.now).await), codes::UNKNOWN_QUEUE);
    let settings = tidegate_core::registry::KindSettings::new(queue("nowhere"));
    assert_eq!(refused(w.store().put_kind(kind("x"), settings).await), codes::UNKNOWN_QUEUE);
}

pub async fn times_and_caps_out_of_range_are_refused(w: &mut World) {
    let far = w.now.plus_ms(limits::MAX_DELAY_MS + 60_000);
    let bad: [fn(&mut NewJob); 5] = [
        |j| j.timeout_ms = Some(0),
        |j| j.timeout_ms = Some(limits::MAX_TIMEOUT_MS + 1),
        |j| j.timeout_ms = Some(-1),
        |j| j.max_attempts = Some(0),
        |j| j.max_attempts = Some(limits::MAX_ATTEMPTS + 1),
    ];
    for (i, change) in bad.into_iter().enumerate() {
        let mut job = w.job();
        change(&mut job);
        assert_eq!(refused(w.store().enqueue(vec![job], w.now).await).fault, Fault::Usage, "bad input {i}");
    }
    let mut job = w.job();
    job.run_at = Some(far);
    assert_eq!(refused(w.store().enqueue(vec![job], w.now).await), codes::INVALID_TIME);
    let mut job = w.job();
    job.retry = Some(crate::kit::at_once(0));
    assert_eq!(refused(w.store().enqueue(vec![job], w.now).await).fault, Fault::Usage);
    assert!(w.find(JobQuery::default()).await.is_empty());
}

pub async fn a_job_for_the_past_is_ready_now(w: &mut World) {
    let mut job = w.job();
    job.run_at = Some(w.now.plus_ms(-60_000));
    let id = w.add(job).await;
    assert_eq!(w.state(id).await, State::Ready);
}

pub async fn what_was_enqueued_survives_a_restart(w: &mut World) {
    let ready = w.add_many(30, |_, _| ()).await;
    let mut later = w.job();
    later.run_at = Some(w.now.plus_ms(10_000));
    let later = w.add(later).await;
    let before = (w.get(ready[7]).await, w.get(later).await);
    w.restart().await;
    assert_eq!((w.get(ready[7]).await, w.get(later).await), before);
    assert_eq!(crate::kit::ids(&w.claim(100).await), ready);
}

pub async fn a_number_is_never_given_twice(w: &mut World) {
    w.queue("q", |s| s.retention.count = 0).await;
    w.add_one().await;
    let claimed = w.claim_one().await;
    w.finish(&claimed).await;
    w.pass(1);
    assert_eq!(w.store().prune(10, w.now).await.ok(), Some(1));
    w.restart().await;
    w.add_one().await;
    let next = w.claim_one().await;
    assert!(next.ticket.seq > claimed.ticket.seq, "{:?} after {:?}", next.ticket, claimed.ticket);
    assert!(next.ticket.lease > claimed.ticket.lease, "{:?} after {:?}", next.ticket, claimed.ticket);
    assert!(claimed.ticket.seq > Seq(-1));
}

pub async fn an_enqueue_wakes_who_waits_for_work(w: &mut World) {
    let store = w.store();
    let mut work = store.signals().on_work();
    work.mark_unchanged();
    w.add_one().await;
    assert!(work.has_changed().is_ok_and(|changed| changed), "a ready job is signalled");
}

pub async fn a_closed_store_refuses(w: &mut World) {
    w.add_one().await;
    assert!(w.store().close().await.is_ok());
    assert_eq!(refused(w.store().enqueue(vec![w.job()], w.now).await), codes::STORE_CLOSED);
    assert_eq!(refused(w.store().claim(w.claim_on(&["q"], 1)).await), codes::STORE_CLOSED);
    assert_eq!(refused(w.store().totals().await), codes::STORE_CLOSED);
}

pub async fn a_job_that_does_not_exist_is_not_found(w: &mut World) {
    let id = job_id(404);
    assert_eq!(w.store().get(id).await.unwrap_or_default(), None);
    assert_eq!(refused(w.store().why(id, w.now).await), codes::JOB_NOT_FOUND);
    assert_eq!(refused(w.store().run_now(id, w.now).await), codes::JOB_NOT_FOUND);
    assert_eq!(refused(w.store().reprioritise(id, Priority::High, w.now).await), codes::JOB_NOT_FOUND);
    let cancel = tidegate_store::params::CancelJob { id, note: String::new(), cascade: false, now: w.now };
    assert_eq!(refused(w.store().cancel(cancel).await), codes::JOB_NOT_FOUND);
}
