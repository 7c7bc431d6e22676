//! Search: every field, paging, text that looks like SQL.

use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::JobId;
use tidegate_core::job::{Review, State};
use tidegate_store::params::{JobQuery, Outcome, Resolve};

use crate::kit::{World, group, json, kind, queue, tenant};

fn sorted(mut ids: Vec<JobId>) -> Vec<JobId> {
    ids.sort_unstable();
    ids
}

pub async fn search_finds_jobs_in_every_state(w: &mut World) {
    let ready = w.add_many(2, |_, j| j.queue = None).await;
    let claimed = w.claim(2).await;
    w.finish(&claimed.jobs[0]).await;
    let mut later = w.job();
    later.run_at = Some(w.now.plus_ms(1_000));
    let scheduled = w.add(later).await;
    let dead = w.add_dead().await;
    let cancelled = w.add_one().await;
    w.cancel(cancelled).await;
    let waiting = w.add_one().await;
    for (state, id) in [
        (State::Completed, ready[0]),
        (State::Running, ready[1]),
        (State::Scheduled, scheduled),
        (State::Dead, dead),
        (State::Cancelled, cancelled),
        (State::Ready, waiting),
    ] {
        assert_eq!(w.find(JobQuery { states: vec![state], ..JobQuery::default() }).await, [id], "{state}");
    }
    let two = JobQuery { states: vec![State::Dead, State::Ready], ..JobQuery::default() };
    assert_eq!(w.find(two).await, [waiting, dead], "newest first");
    assert!(w.find(JobQuery { states: vec![State::Blocked], ..JobQuery::default() }).await.is_empty());
    assert_eq!(w.find(JobQuery::default()).await.len(), 6);
}

pub async fn search_narrows_by_every_field(w: &mut World) {
    w.queue("other", |_| ()).await;
    w.kind("other", "other", |_| ()).await;
    let early = w.now;
    let a = w.add_one().await;
    w.pass(1_000);
    let mut job = w.job();
    job.kind = kind("other");
    job.tenant = Some(tenant("acme"));
    job.group = Some(group("eu"));
    let b = w.add(job).await;
    let all = JobQuery::default;
    for (query, expected) in [
        (JobQuery { queue: Some(queue("other")), ..all() }, vec![b]),
        (JobQuery { queue: Some(queue("nowhere")), ..all() }, vec![]),
        (JobQuery { kind: Some(kind("k")), ..all() }, vec![a]),
        (JobQuery { kind: Some(kind("nobody")), ..all() }, vec![]),
        (JobQuery { tenant: Some(tenant("acme")), ..all() }, vec![b]),
        (JobQuery { tenant: Some(tenant("eu")), ..all() }, vec![]),
        (JobQuery { group: Some(group("eu")), ..all() }, vec![b]),
        (JobQuery { group: Some(group("")), ..all() }, vec![a]),
        (JobQuery { created_from: Some(early.plus_ms(1)), ..all() }, vec![b]),
        (JobQuery { created_from: Some(early), ..all() }, vec![b, a]),
        (JobQuery { created_before: Some(w.now), ..all() }, vec![a]),
        (JobQuery { created_before: Some(early), ..all() }, vec![]),
        (JobQuery { queue: Some(queue("q")), kind: Some(kind("other")), ..all() }, vec![]),
    ] {
        assert_eq!(w.find(query.clone()).await, expected, "{query:?}");
    }
}

pub async fn text_is_taken_literally(w: &mut World) {
    let texts = [
        r"100%",
        r"a_b",
        "it's",
        r"'; DROP TABLE jobs;--",
        r"back\\slash",
        "ümlaut",
        "x' OR '1'='1",
        "[a-z]*",
    ];
    let mut made = vec![];
    for text in texts {
        let mut job = w.job();
        job.payload = json(&format!("{{\"text\":\"{text}\"}}"));
        made.push((text, w.add(job).await));
    }
    let mut plain = w.job();
    plain.payload = json(r#"{"text":"100 percent, aXb, its"}"#);
    w.add(plain).await;
    for (text, id) in made {
        let found = w.find(JobQuery { text: Some(text.into()), ..JobQuery::default() }).await;
        assert_eq!(found, [id], "{text}");
    }
    let found = w.find(JobQuery { text: Some("PERCENT".into()), ..JobQuery::default() }).await;
    assert!(found.is_empty(), "upper and lower case differ");
}

pub async fn text_is_found_in_errors_and_in_replaced_payloads(w: &mut World) {
    let failed = w.add_one().await;
    let job = w.claim_one().await;
    let failure = Failure::new(Category::InvalidInput, "E_50%_OFF", "cannot parse 'x'; it is_odd");
    w.settle(job.ticket, Outcome::Fail(failure)).await;
    for text in ["50%_OFF", "is_odd", "'x'"] {
        let found = w.find(JobQuery { text: Some(text.into()), ..JobQuery::default() }).await;
        assert_eq!(found, [failed], "{text}");
    }
    let unique = |mode| Some(crate::kit::unique("u", tidegate_core::job::UniqueScope::Pending, mode));
    let mut first = w.job();
    first.payload = json("[\"before\"]");
    first.unique = unique(tidegate_core::job::OnConflict::Keep);
    let id = w.add(first).await;
    let mut second = w.job();
    second.payload = json("[\"after\"]");
    second.unique = unique(tidegate_core::job::OnConflict::Replace);
    w.enqueue(vec![second]).await;
    let with = |text: &str| JobQuery { text: Some(text.into()), ..JobQuery::default() };
    assert_eq!(w.find(with("after")).await, [id]);
    assert!(w.find(with("before")).await.is_empty(), "what was replaced is not found");
}

pub async fn paging_shows_every_job_once_while_jobs_come_and_go(w: &mut World) {
    let all = w.add_many(95, |i, j| j.tenant = Some(tenant(["a", "b"][i % 2]))).await;
    let mut query = JobQuery { tenant: Some(tenant("a")), limit: 10, ..JobQuery::default() };
    let mut seen = vec![];
    loop {
        let page = w.store().search(query.clone()).await.expect("a page");
        assert!(page.jobs.len() <= 10);
        seen.extend(page.jobs.iter().map(|j| j.id));
        w.add_many(1, |_, j| j.tenant = Some(tenant("a"))).await;
        let Some(next) = page.next else { break };
        query.cursor = Some(next);
    }
    let mut expected: Vec<JobId> = all.iter().step_by(2).copied().collect();
    expected.reverse();
    assert_eq!(seen, expected, "newest first, each once, none that came later");
}

pub async fn a_page_is_bounded(w: &mut World) {
    w.add_many(1_200, |_, _| ()).await;
    let page = w.store().search(JobQuery { limit: 1_000_000, ..JobQuery::default() }).await.expect("a page");
    assert!(page.jobs.len() <= 1_000 && page.next.is_some());
    assert_eq!(w.find(JobQuery { limit: 500, ..JobQuery::default() }).await.len(), 1_200);
}

pub async fn dead_letters_are_found_by_review(w: &mut World) {
    let open = w.add_dead().await;
    let settled = w.add_dead().await;
    let resolution = tidegate_core::job::Resolution::ConfigFix;
    let resolve = Resolve { id: settled, resolution, by: "ann".into(), now: w.now };
    w.store().resolve(resolve).await.expect("it is dead");
    let by = |review| JobQuery { review: Some(review), ..JobQuery::default() };
    assert_eq!(w.find(by(Review::PendingReview)).await, [open]);
    assert_eq!(w.find(by(Review::ManualResolved)).await, [settled]);
    assert!(w.find(by(Review::Abandoned)).await.is_empty());
    let dead = JobQuery { states: vec![State::Dead], ..JobQuery::default() };
    assert_eq!(sorted(w.find(dead).await), sorted(vec![open, settled]));
}

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Finished jobs are read beside what is being written, others are not; neither shows anything but what the job is.
pub async fn found_and_read_together_a_job_is_what_it_is_alone(w: &mut World) {
    let mut job = w.job();
    (job.tenant, job.group, job.trace) = (Some(tenant("acme")), Some(group("eu")), Some(TRACE.into()));
    let completed = w.add(job.clone()).await;
    let claimed = w.claim_one().await;
    w.settle(claimed.ticket, Outcome::Complete(Some(json("{\"n\":1}")))).await;
    let dead = w.add_dead().await;
    let cancelled = w.add_one().await;
    w.cancel(cancelled).await;
    w.restart().await;
    let new = w.id();
    let recovered = w.recover(dead, new).await;
    let running = w.add_one().await;
    w.claim(1).await;
    let missing = w.id();
    let ids = vec![running, missing, dead, completed, cancelled, recovered, dead];
    let mut alone = vec![];
    for id in &ids {
        alone.push(w.store().get(*id).await.expect("answered"));
    }
    assert_eq!(alone.iter().filter(|job| job.is_none()).count(), 1);
    assert_eq!(w.store().get_all(ids).await.expect("answered"), alone, "in the order asked for");
    let query = JobQuery { limit: 10, ..JobQuery::default() };
    for job in w.store().search(query).await.expect("answered").jobs {
        assert_eq!(w.store().get(job.id).await.expect("answered"), Some(job));
    }
}
