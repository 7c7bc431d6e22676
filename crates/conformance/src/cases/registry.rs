//! The registry as a document: schemas, limits of kinds, policies, history.

use tidegate_core::codes;
use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::JobId;
use tidegate_core::job::State;
use tidegate_core::limits;
use tidegate_core::registry::{Change, Document, Format, Outcome, Problem};
use tidegate_core::time::Timestamp;
use tidegate_core::why::Cause;
use tidegate_store::Result;
use tidegate_store::params::{
    Applied, Apply, EnqueueOutcome, JobQuery, NewJob, Outcome as End, RefusedDocument, Settled, Wanted,
};

use crate::World;
use crate::kit::{group, json, kind, refused};

fn document(text: &str) -> Document {
    Document::parse(text, Format::Toml).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn change(wanted: Wanted, now: Timestamp) -> Apply {
    Apply { wanted, by: "ann".into(), source: "registry.toml".into(), dry_run: false, now }
}

async fn try_apply(w: &World, text: &str) -> Result<Applied> {
    w.store().apply(change(Wanted::Document(Box::new(document(text))), w.now)).await
}

async fn apply(w: &World, text: &str) -> Applied {
    try_apply(w, text).await.expect("the document is accepted")
}

async fn roll_back(w: &World, version: u64) -> Applied {
    w.store().apply(change(Wanted::Version(version), w.now)).await.expect("the version is there")
}

const INVOICES: &str = r#"
[queues.q]
[kinds."invoice.send"]
queue = "q"
[kinds."invoice.send".schema]
type = "object"
required = ["order"]
additionalProperties = false
[kinds."invoice.send".schema.properties]
order = { type = "integer" }
copies = { type = "integer", default = 1 }
card = { type = "string", x-secret = true }
"#;

fn invoice(w: &mut World, payload: &str) -> NewJob {
    let id = w.id();
    NewJob::new(id, kind("invoice.send"), json(payload))
}

/// A payload that does not fit is refused with its place, and nothing of its batch is stored.
pub async fn a_payload_that_does_not_fit_its_kind_is_refused_with_its_place(w: &mut World) {
    apply(w, INVOICES).await;
    let (good, bad) = (invoice(w, r#"{"order":1}"#), invoice(w, r#"{"order":"1","copy":2}"#));
    let error = w.store().enqueue(vec![good, bad], w.now).await.expect_err("the second does not fit");
    assert_eq!(error.code, codes::INVALID_PAYLOAD);
    for part in ["job 2 of 2", "/order: expected integer, found string", r#"unknown property "copy""#] {
        assert!(error.detail.contains(part), "{part} in {}", error.detail);
    }
    assert!(
        w.store()
            .search(JobQuery { limit: 10, ..JobQuery::default() })
            .await
            .expect("answered")
            .jobs
            .is_empty()
    );
}

/// Defaults are part of what the worker gets; the same job sent again is the same job.
pub async fn defaults_of_a_schema_reach_the_worker(w: &mut World) {
    apply(w, INVOICES).await;
    let mut job = invoice(w, r#"{"order":1}"#);
    w.add(job.clone()).await;
    job.id_may_exist = true;
    assert_eq!(w.enqueue(vec![job]).await[0].outcome, EnqueueOutcome::Kept);
    assert_eq!(w.claim_one().await.payload.as_str(), r#"{"order":1,"copies":1}"#);
}

/// Who looks at a job sees no secrets, nor can search for them; the worker gets them.
pub async fn secrets_are_shown_to_nobody_but_the_worker(w: &mut World) {
    apply(w, INVOICES).await;
    let job = invoice(w, r#"{"order":1,"card":"4111-hidden"}"#);
    let id = w.add(job).await;
    assert_eq!(w.get(id).await.payload.as_str(), r#"{"order":1,"card":"***","copies":1}"#);
    let find = |text: &str| JobQuery { text: Some(text.into()), limit: 10, ..JobQuery::default() };
    assert!(w.store().search(find("4111-hidden")).await.expect("answered").jobs.is_empty());
    let found = w.store().search(find("\"order\":1")).await.expect("answered").jobs;
    assert!(found.len() == 1 && !found[0].payload.as_str().contains("4111"));
    assert!(w.claim_one().await.payload.as_str().contains("4111-hidden"));
}

/// A document with one mistake changes nothing at all.
pub async fn a_document_is_applied_whole_or_not_at_all(w: &mut World) {
    let before = w.store().registry().await.expect("answered");
    let text = "[queues.new]\n[kinds.a]\nqueue = \"new\"\n[kinds.b]\nqueue = \"nowhere\"\nretry = \"oftn\"\n";
    let error = try_apply(w, text).await.expect_err("there is no such queue");
    assert_eq!(error.code, codes::INVALID_REGISTRY);
    for part in ["kinds.b.queue: there is no queue nowhere", "kinds.b.retry: there is no policy \"oftn\""] {
        assert!(error.detail.contains(part), "{part} in {}", error.detail);
    }
    assert_eq!(w.store().registry().await.expect("answered"), before);
    // A server keeps in the history that it refused.
    let versions = w.store().versions(10).await.expect("answered");
    assert!(versions.iter().all(|v| v.outcome == Outcome::Refused));
    let mut dry = change(Wanted::Document(Box::new(document(INVOICES))), w.now);
    dry.dry_run = true;
    let would = w.store().apply(dry).await.expect("answered");
    assert_eq!((would.version, would.changes.len()), (None, 1), "{:?}", would.changes);
    assert_eq!(w.store().registry().await.expect("answered"), before);
}

/// Every version can be read and restored; what came later stays without its events.
pub async fn every_version_is_kept_and_can_be_restored(w: &mut World) {
    let first = apply(w, "[queues.q]\nweight = 2\n[kinds.a]\nqueue = \"q\"\non = [\"x\"]\n").await;
    assert_eq!((first.version, first.unchanged, first.left_alone), (Some(1), 0, 1));
    w.pass(1_000);
    let text = "[queues.q]\nweight = 3\n[kinds.a]\nqueue = \"q\"\n[kinds.late]\nqueue = \"q\"\non = [\"x\", \"y\"]\n";
    let second = apply(w, text).await;
    let said: Vec<_> = second.changes.iter().map(|d| (d.change, d.what.as_str(), d.name.as_str())).collect();
    assert_eq!(
        said,
        [(Change::Change, "queue", "q"), (Change::Change, "kind", "a"), (Change::Add, "kind", "late")]
    );
    assert_eq!(apply(w, text).await.version, None, "nothing is different");
    w.restart().await;
    let then = w.store().version(1).await.expect("answered").expect("answered");
    assert_eq!((then.info.by.as_str(), then.info.outcome), ("ann", Outcome::Applied));
    assert_eq!(then.info.hash, then.document.as_ref().expect("answered").hash());
    let back = roll_back(w, 1).await;
    assert_eq!(back.version, Some(3));
    let now = w.store().registry().await.expect("answered");
    let mut was = then.document.expect("answered");
    let late = now.kinds.get(&kind("late")).expect("answered");
    assert!(late.on.is_empty(), "nothing enqueues it by itself");
    was.kinds.insert(kind("late"), late.clone());
    assert_eq!(now, was);
    let numbers: Vec<_> =
        w.store().versions(10).await.expect("answered").iter().map(|v| (v.number, v.changed)).collect();
    assert_eq!(numbers, [(3, 3), (2, 3), (1, 2)]);
    assert_eq!(refused(w.store().apply(change(Wanted::Version(9), w.now)).await), codes::VERSION_NOT_FOUND);
    assert_eq!(w.store().version(9).await.expect("answered"), None);
}

/// Refusals are remembered, and neither they nor versions grow without end.
pub async fn history_is_bounded_and_refusals_push_out_no_version(w: &mut World) {
    let refusal = |n: usize| RefusedDocument {
        by: "ann".into(),
        source: "registry.toml".into(),
        hash: format!("{n}"),
        problems: vec![Problem { path: "kinds.a.queue".into(), what: "it is missing".into() }],
    };
    apply(w, "[queues.q]\nweight = 7\n").await;
    for n in 0..limits::MAX_REGISTRY_REFUSALS + 3 {
        let number = w.store().refuse(refusal(n), w.now).await.expect("answered");
        assert_eq!(number, n as u64 + 2);
    }
    let versions = w.store().versions(usize::MAX).await.expect("answered");
    assert_eq!(versions.len(), limits::MAX_REGISTRY_REFUSALS + 1);
    let newest = &versions[0];
    assert_eq!((newest.outcome, newest.problems[0].path.as_str()), (Outcome::Refused, "kinds.a.queue"));
    assert_eq!(versions.last().expect("answered").number, 1, "the applied one is still there");
    let refused_number = newest.number;
    assert_eq!(
        refused(w.store().apply(change(Wanted::Version(refused_number), w.now)).await),
        codes::VERSION_NOT_FOUND
    );
    for n in 0..=limits::MAX_REGISTRY_VERSIONS {
        apply(w, &format!("[queues.q]\nweight = {}\n", n % 2 + 1)).await;
    }
    let versions = w.store().versions(usize::MAX).await.expect("answered");
    let applied = versions.iter().filter(|v| v.outcome == Outcome::Applied).count();
    assert_eq!(applied, limits::MAX_REGISTRY_VERSIONS);
    assert!(versions.iter().all(|v| v.number != 1), "the oldest is gone");
}

/// A kind's limit holds over groups, priorities and restarts, and can be changed live.
pub async fn a_kind_runs_no_more_than_its_concurrency(w: &mut World) {
    apply(w, "[queues.q]\n[kinds.one]\nqueue = \"q\"\nconcurrency = 2\n").await;
    let ids: Vec<JobId> = w
        .add_many(6, |i, job| {
            job.kind = kind("one");
            job.group = Some(group(&format!("g{i}")));
        })
        .await;
    let other = w.add_one().await;
    let first = w.claim(10).await;
    let mut got: Vec<_> = first.jobs.iter().map(|j| j.kind.as_str()).collect();
    got.sort_unstable();
    assert_eq!(got, ["k", "one", "one"]);
    assert_eq!(w.get(other).await.state, State::Running);
    let waiting = ids.iter().find(|id| first.jobs.iter().all(|j| j.id != **id)).expect("answered");
    assert_eq!(w.cause(*waiting).await, Cause::KindFull { running: 2, limit: 2 });
    assert!(w.claim_as(2, 10).await.jobs.is_empty());
    w.restart().await;
    assert!(w.claim_as(2, 10).await.jobs.is_empty(), "the limit is known after a restart");
    let running = first.jobs.iter().find(|j| j.kind == kind("one")).expect("answered");
    w.finish(running).await;
    assert_eq!(w.claim_as(2, 10).await.jobs.len(), 1);
    apply(w, "[kinds.one]\nqueue = \"q\"\nconcurrency = 4\n").await;
    assert_eq!(w.claim_as(2, 10).await.jobs.len(), 2);
    apply(w, "[kinds.one]\nqueue = \"q\"\n").await;
    assert_eq!(w.claim_as(2, 10).await.jobs.len(), 1, "no limit any more");
}

/// A kind may keep fewer finished jobs than its queue, by count and by age, over a restart too; dead ones stay.
pub async fn a_kind_keeps_no_more_than_its_own_retention(w: &mut World) {
    apply(w, "[queues.q]\n[kinds.few]\nqueue = \"q\"\nretention = { count = 2, age = \"1h\" }\n").await;
    let few = w.add_many(6, |_, job| job.kind = kind("few")).await;
    let other = w.add_one().await;
    for job in w.claim(10).await.jobs {
        if job.id == few[5] {
            w.fail(&job, Category::InvalidInput).await;
        } else {
            w.finish(&job).await;
        }
    }
    w.restart().await;
    w.store().prune(100, w.now).await.expect("it is pruned");
    let left = async |w: &World| {
        let mut left = vec![];
        for id in few.iter().chain([&other]) {
            left.push(w.store().get(*id).await.expect("answered").is_some());
        }
        left
    };
    assert_eq!(left(w).await, [false, false, false, true, true, true, true]);
    w.pass(3_600_001);
    w.store().prune(100, w.now).await.expect("it is pruned");
    assert_eq!(left(w).await, [false, false, false, false, false, true, true]);
}

/// Retention of a kind goes by when jobs finished, however they did, and not by whether the store was opened since.
pub async fn a_kinds_retention_is_the_same_before_and_after_a_restart(w: &mut World) {
    apply(w, "[queues.q]\n[kinds.few]\nqueue = \"q\"\nretention = { count = 2, age = \"1h\" }\n").await;
    for restart in [false, true] {
        let few = w.add_many(5, |_, job| job.kind = kind("few")).await;
        // Finished in the order 3, 4, 0, 1, 2; the first two never ran.
        for id in &few[3..] {
            w.cancel(*id).await;
            w.pass(10);
        }
        for job in w.claim(10).await.jobs {
            w.finish(&job).await;
            w.pass(10);
        }
        if restart {
            w.restart().await;
        }
        w.store().prune(100, w.now).await.expect("it is pruned");
        let mut left = vec![];
        for id in &few {
            left.push(w.store().get(*id).await.expect("answered").is_some());
        }
        assert_eq!(left, [false, true, true, false, false], "after a restart: {restart}");
        w.pass(3_600_001);
        w.store().prune(100, w.now).await.expect("it is pruned");
        assert!(w.find(JobQuery::default()).await.is_empty());
    }
}

/// A policy that changes takes along whoever names it, and goes back with a version.
pub async fn who_names_a_policy_follows_it(w: &mut World) {
    let policy = |n: u32| {
        format!("[policies.patient]\nmax_attempts = {n}\nbackoff = {{ type = \"fixed\", delay = \"1s\" }}\n")
    };
    let kinds = "[queues.q]\nretry = \"patient\"\n[kinds.a]\nqueue = \"q\"\nretry = \"patient\"\n";
    apply(w, &(policy(4) + kinds)).await;
    let attempts = async |w: &World| {
        let registry = w.store().registry().await.expect("answered");
        let kind = registry.kinds[&kind("a")].retry.as_ref().expect("answered").max_attempts;
        (kind, registry.queues.values().next().expect("answered").retry.max_attempts)
    };
    assert_eq!(attempts(w).await, (4, 4));
    apply(w, &policy(9)).await;
    assert_eq!(attempts(w).await, (9, 9));
    w.restart().await;
    roll_back(w, 1).await;
    assert_eq!(attempts(w).await, (4, 4));
}

/// What a registry says about a category decides, and about what a code means.
pub async fn a_registry_decides_for_categories_and_codes(w: &mut World) {
    let text = r#"
[categories.TRANSIENT_SERVER]
max_attempts = 2
backoff = { type = "fixed", delay = "7s" }
jitter = "none"
[queues.q]
[kinds.a]
queue = "q"
failures = { GONE = "INVALID_INPUT" }
"#;
    apply(w, text).await;
    w.restart().await;
    let mut job = w.job();
    job.kind = kind("a");
    let id = w.add(job.clone()).await;
    let claimed = w.claim_one().await;
    assert_eq!(w.fail(&claimed, Category::TransientServer).await, Settled::Again(w.now.plus_ms(7_000)));
    w.pass(7_000);
    let claimed = w.claim_one().await;
    assert_eq!(w.fail(&claimed, Category::TransientServer).await, Settled::Applied(State::Dead));
    assert_eq!(w.get(id).await.dead.expect("answered").category, Category::TransientServer);
    job.id = w.id();
    let id = w.add(job).await;
    let claimed = w.claim_one().await;
    let gone = End::Fail(Failure::new(Category::TransientNetwork, "GONE", "no longer there"));
    assert_eq!(w.settle(claimed.ticket, gone).await, Settled::Applied(State::Dead));
    assert_eq!(w.get(id).await.dead.expect("answered").category, Category::InvalidInput);
}

/// Must show 4: a rate limit after two network failures is the first of its category, and never undercuts the server.
pub async fn a_rate_limit_after_two_network_failures_counts_in_its_own_category(w: &mut World) {
    w.add_one().await;
    for _ in 0..2 {
        let job = w.claim_one().await;
        let Settled::Again(at) = w.fail(&job, Category::TransientNetwork).await else {
            panic!("it is tried again")
        };
        w.pass(at.since(w.now).max(0));
        w.pass(1);
    }
    let job = w.claim_one().await;
    let Settled::Again(at) = w.fail(&job, Category::TransientRateLimit).await else {
        panic!("it is tried again")
    };
    // The first delay of the category, not its third.
    assert!((2_500..=5_000).contains(&at.since(w.now)), "{}", at.since(w.now));
    w.now = at;
    let job = w.claim_one().await;
    let mut failure = Failure::new(Category::TransientRateLimit, "RATE_LIMITED", "slow down");
    failure.retry_at = Some(w.now.plus_ms(120_000));
    let Settled::Again(at) = w.settle(job.ticket, End::Fail(failure)).await else {
        panic!("it is tried again")
    };
    assert!((120_000..=132_000).contains(&at.since(w.now)), "{}", at.since(w.now));
}

/// A handler that registers itself does not undo what a document says.
pub async fn a_registration_leaves_alone_what_a_document_described(w: &mut World) {
    apply(w, "[queues.q]\n[kinds.a]\nqueue = \"q\"\ntimeout = \"5m\"\n").await;
    let own = tidegate_core::registry::KindSettings::new(crate::kit::queue("q"));
    assert_eq!(refused(w.store().put_kind(kind("a"), own).await), codes::KIND_MANAGED);
    let registry = w.store().registry().await.expect("answered");
    assert_eq!(registry.kinds[&kind("a")].timeout_ms, 300_000);
    let mut drifted = registry.kinds[&kind("a")].clone();
    drifted.timeout_ms = 1;
    w.store().put_kind(kind("a"), drifted).await.expect("an operator may, who says that it is described");
}
