//! Schedules that a document of the registry describes.

use tidegate_core::codes;
use tidegate_core::ids::{ScheduleName, Seq};
use tidegate_core::registry::{Change, Counts, Document, Format, Left};
use tidegate_core::schedule::{Decided, ScheduleSettings, ScheduleSpec, SkipReason, TickEntry};
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::params::{
    Applied, Apply, Erase, PutSchedule, ScheduleChange, ScheduleView, TickQuery, Wanted,
};

use crate::kit::{START, World, kind, refused, tenant};

const MINUTE: i64 = 60_000;
/// The first full ten minutes after the beginning.
const FIRST: Timestamp = Timestamp(START.0 + 400_000);

fn name(text: &str) -> ScheduleName {
    ScheduleName::new(text).expect("a name")
}

async fn try_apply_from(w: &World, source: &str, text: &str) -> Result<Applied> {
    let document = Document::parse(text, Format::Toml).unwrap_or_else(|problems| panic!("{problems:?}"));
    let wanted = Wanted::Document(Box::new(document));
    let apply = Apply { wanted, by: "ann".into(), source: source.into(), dry_run: false, now: w.now };
    w.store().apply(apply).await
}

async fn apply(w: &World, text: &str) -> Applied {
    try_apply_from(w, "registry.toml", text).await.expect("the document is accepted")
}

async fn roll_back(w: &World, version: u64) -> Applied {
    let wanted = Wanted::Version(version);
    let apply = Apply { wanted, by: "ann".into(), source: "rollback".into(), dry_run: false, now: w.now };
    w.store().apply(apply).await.expect("the version is there")
}

async fn view(w: &World, schedule: &str) -> ScheduleView {
    w.store().schedule(name(schedule)).await.expect("it is answered").expect("it is there")
}

async fn ledger(w: &World, schedule: &str) -> Vec<TickEntry> {
    let query = TickQuery { name: name(schedule), before: None, limit: 1_000 };
    let mut lines = w.store().schedule_ticks(query).await.expect("it is answered");
    lines.reverse();
    lines
}

async fn pass(w: &mut World, ms: i64) {
    w.pass(ms);
    w.store().advance(w.now).await.expect("upkeep is possible");
}

async fn finish_all(w: &World) -> usize {
    let jobs = w.claim(100).await.jobs;
    for job in &jobs {
        w.finish(job).await;
    }
    jobs.len()
}

fn fired(lines: &[TickEntry]) -> Vec<Timestamp> {
    let fired = lines.iter().filter(|l| matches!(l.what, Decided::Fired { .. }));
    fired.map(|l| l.planned).collect()
}

const NIGHTLY: &str = "[queues.q]\n[kinds.nightly]\nqueue = \"q\"\nschedule = { every = \"10m\" }\n";
const IDLE: &str = "[queues.q]\n[kinds.nightly]\nqueue = \"q\"\n";

fn own(settings: ScheduleSettings, now: Timestamp) -> PutSchedule {
    PutSchedule { name: name("nightly"), spec: ScheduleSpec { kind: kind("k"), settings }, now }
}

/// The schedule is there with the version, says whose it is, and only its document changes it.
pub async fn a_documents_schedule_is_in_force_and_changed_by_it_alone(w: &mut World) {
    let applied = apply(w, NIGHTLY).await;
    let said: Vec<_> = applied.changes.iter().map(|d| (d.change, d.what.as_str(), d.name.as_str())).collect();
    assert_eq!(said, [(Change::Add, "kind", "nightly"), (Change::Add, "schedule", "nightly")]);
    w.restart().await;
    let there = view(w, "nightly").await;
    assert_eq!(
        (there.document.as_deref(), there.next, there.kind),
        (Some("registry.toml"), Some(FIRST), kind("nightly"))
    );
    let put = w.store().put_schedule(own(ScheduleSettings::every("1m"), w.now)).await;
    let error = put.expect_err("its document has it");
    assert!(error.code == codes::SCHEDULE_MANAGED && error.detail.contains("registry.toml"), "{error}");
    assert_eq!(refused(w.store().delete_schedule(name("nightly"), w.now).await), codes::SCHEDULE_MANAGED);
    w.store().run_schedule(name("nightly"), w.now).await.expect("it can be run");
    assert_eq!(finish_all(w).await, 1);
    pass(w, 400_000).await;
    assert_eq!(finish_all(w).await, 1);
    w.store().pause_schedule(name("nightly"), "ben".into(), w.now).await.expect("it can be paused");
    // Another version, the same schedule: nothing of it is touched.
    let (before, lines) = (view(w, "nightly").await, ledger(w, "nightly").await);
    w.pass(MINUTE);
    let applied = apply(w, &NIGHTLY.replace("schedule", "timeout = \"5m\"\nschedule")).await;
    assert_eq!((applied.version, applied.changes.len()), (Some(2), 1));
    assert_eq!((view(w, "nightly").await, ledger(w, "nightly").await), (before, lines));
    w.store().resume_schedule(name("nightly"), w.now).await.expect("it can be resumed");
    // Other times begin when they are set, and the ledger goes on.
    apply(w, &NIGHTLY.replace("10m", "1h")).await;
    assert_eq!(view(w, "nightly").await.next, Some(Timestamp(START.0 + 400_000 + 40 * MINUTE)));
    assert!(ledger(w, "nightly").await.len() >= 2);
}

/// What a document drops is retired with its ledger; a rollback brings it back where it stood, and only the rule for missed ticks
/// decides about what was between.
pub async fn a_dropped_schedule_is_retired_and_comes_back_with_its_ledger(w: &mut World) {
    apply(w, NIGHTLY).await;
    pass(w, 400_000).await;
    assert_eq!(finish_all(w).await, 1);
    let applied = apply(w, IDLE).await;
    assert!(applied.changes.iter().any(|d| d.change == Change::Remove && d.what == "schedule"));
    w.restart().await;
    let retired = view(w, "nightly").await;
    assert_eq!((retired.retired, retired.next), (Some(w.now), None));
    assert_eq!(refused(w.store().run_schedule(name("nightly"), w.now).await), codes::WRONG_SCHEDULE_STATE);
    let retired_at = w.now;
    pass(w, 65 * MINUTE).await;
    assert_eq!(finish_all(w).await, 0, "it no longer runs");
    assert_eq!(ledger(w, "nightly").await.len(), 1, "its ledger stays");
    roll_back(w, 1).await;
    assert_eq!(view(w, "nightly").await.retired, None);
    pass(w, 0).await;
    pass(w, 0).await;
    assert_eq!(finish_all(w).await, 1, "the newest missed one, once");
    let lines = ledger(w, "nightly").await;
    assert_eq!(fired(&lines), [FIRST, FIRST.plus_ms(60 * MINUTE)]);
    let Decided::Skipped { reason: SkipReason::Missed, count: Some(5), .. } = lines[1].what else {
        panic!("{lines:?}")
    };
    assert!(lines[1].planned > retired_at);
    pass(w, 5 * MINUTE).await;
    assert_eq!(finish_all(w).await, 1, "and it goes on");
}

/// A document that no longer names a kind ends its schedule; another document leaves it alone.
pub async fn a_kind_that_its_document_drops_no_longer_runs_by_itself(w: &mut World) {
    apply(w, NIGHTLY).await;
    try_apply_from(w, "other.toml", "[queues.other]\n").await.expect("it is accepted");
    assert_eq!(view(w, "nightly").await.retired, None, "it is not that document's");
    let applied = apply(w, "[queues.q]\n").await;
    let said: Vec<_> = applied.changes.iter().map(|d| (d.change, d.what.as_str(), d.name.as_str())).collect();
    assert_eq!(said, [(Change::Change, "kind", "nightly"), (Change::Remove, "schedule", "nightly")]);
    assert!(view(w, "nightly").await.retired.is_some());
    // Its name is free for somebody's own, and its history can be deleted.
    let put = w.store().put_schedule(own(ScheduleSettings::every("1m"), w.now)).await;
    assert_eq!(put.expect("the name is free"), ScheduleChange::Created);
    let there = view(w, "nightly").await;
    assert_eq!((there.document, there.retired), (None, None));
    assert!(w.store().delete_schedule(name("nightly"), w.now).await.expect("it is somebody's own"));
}

/// A document that no longer names a kind, or a version without it, ends what events enqueue of it.
pub async fn a_kind_that_its_document_drops_is_not_enqueued_by_events(w: &mut World) {
    const LISTENING: &str = "[queues.q]\n[kinds.k2]\nqueue = \"q\"\non = [\"paid\"]\n";
    let listens = async |w: &World| {
        let kinds = w.store().kinds().await.expect("it is answered");
        kinds.iter().any(|kind| kind.name.as_str() == "k2" && !kind.settings.on.is_empty())
    };
    let before = apply(w, "[queues.q2]\n").await.version.expect("there is a version");
    let version = apply(w, LISTENING).await.version.expect("there is a new version");
    assert!(listens(w).await);
    let applied = apply(w, "[queues.q]\n").await;
    let said: Vec<_> = applied.changes.iter().map(|d| (d.change, d.what.as_str(), d.name.as_str())).collect();
    assert_eq!(said, [(Change::Change, "kind", "k2")]);
    assert!(!listens(w).await);
    roll_back(w, version).await;
    assert!(listens(w).await);
    roll_back(w, before).await;
    assert!(!listens(w).await);
}

/// A document that says which one it is, is that one wherever it comes from; without, where it comes from says so.
pub async fn a_document_is_the_one_that_it_says_it_is(w: &mut World) {
    let named = |text: &str| format!("document = \"nights\"\n{text}");
    try_apply_from(w, "/a/reg.toml", &named(NIGHTLY)).await.expect("it is accepted");
    assert_eq!(view(w, "nightly").await.document.as_deref(), Some("nights"));
    // From the same place, but another document.
    let other = try_apply_from(w, "/a/reg.toml", "[queues.q]\n").await.expect("it is accepted");
    assert_eq!(view(w, "nightly").await.retired, None);
    let left = |what: &str, name: &str, document: Option<&str>| Left {
        what: what.into(),
        name: name.into(),
        document: document.map(Into::into),
    };
    let nights = Some("nights");
    let all = [left("schedule", "nightly", nights), left("kind", "nightly", nights), left("kind", "k", None)];
    assert_eq!((other.left_alone, other.left), (3, all.to_vec()));
    // From elsewhere, but the same document. What it changes it does not leave alone.
    let dropped = try_apply_from(w, "-", &named("[queues.q]\n")).await.expect("it is accepted");
    assert!(view(w, "nightly").await.retired.is_some());
    assert_eq!((dropped.left_alone, dropped.left), (1, vec![left("kind", "k", None)]));
    assert_eq!(
        (dropped.changed, dropped.as_wanted),
        (Counts { kinds: 1, schedules: 1, ..Counts::default() }, Counts { queues: 1, ..Counts::default() })
    );
    let versions = w.store().versions(1).await.expect("answered");
    assert_eq!(versions[0].source, "-", "history says where it came from");
    // The registry is not that document.
    assert_eq!(w.store().registry().await.expect("answered").name, None);
}

const PAIR: &str = "[queues.q]\n[kinds.report]\nqueue = \"q\"\n[kinds.nightly]\nqueue = \"q\"\nschedule = { every = \"10m\" }\n";
const REPORT: &str = "[queues.q]\n[kinds.report]\nqueue = \"q\"\n";

async fn apply_from(w: &World, source: &str, text: &str) -> Applied {
    try_apply_from(w, source, text).await.expect("the document is accepted")
}

/// The documents that have the kinds of a pair.
async fn owners(w: &World) -> [Option<String>; 2] {
    let kinds = w.store().registry().await.expect("answered").kinds;
    ["report", "nightly"].map(|name| kinds.get(&kind(name)).and_then(|kind| kind.document.clone()))
}

/// Schedules that were left alone, with the documents that have them.
fn schedules_of_others(applied: &Applied) -> Vec<(&str, &str)> {
    let schedules = applied.left.iter().filter(|left| left.what == "schedule");
    schedules.filter_map(|left| Some((left.name.as_str(), left.document.as_deref()?))).collect()
}

/// What a document had under its path and still names it has under its name.
pub async fn a_document_that_gets_a_name_keeps_what_it_had(w: &mut World) {
    let (path, billing) = ("/srv/registry.toml", Some("billing".to_owned()));
    let named = |text: &str| format!("document = \"billing\"\n{text}");
    apply_from(w, path, PAIR).await;
    let renamed = apply_from(w, path, &named(PAIR)).await;
    let fields = renamed.changes.iter().flat_map(|d| &d.fields).map(|(field, ..)| field.as_str());
    assert_eq!((fields.collect::<Vec<_>>(), renamed.version), (vec!["document", "document"], Some(2)));
    w.restart().await;
    assert_eq!(owners(w).await, [billing.clone(), billing.clone()]);
    assert_eq!(apply_from(w, path, &named(PAIR)).await.version, None, "it is as wanted");
    // From elsewhere it is the same by now.
    apply_from(w, "/elsewhere.toml", &named(REPORT)).await;
    assert!(view(w, "nightly").await.retired.is_some());
    // Named and shortened at once, with a kind that its path still has.
    apply_from(w, path, &PAIR.replace("10m", "20m")).await;
    assert_eq!(owners(w).await, [billing.clone(), Some(path.to_owned())], "the other says the same");
    let shortened = apply_from(w, path, &named(REPORT)).await;
    assert_eq!(view(w, "nightly").await.retired, None, "the name never had it");
    assert_eq!(schedules_of_others(&shortened), [("nightly", path)], "but it is told");
    apply_from(w, path, REPORT).await;
    assert!(view(w, "nightly").await.retired.is_some(), "by the name that has it");
    assert_eq!(owners(w).await, [billing.clone(), Some(path.to_owned())]);
    // Standard input is anybody's: who says its name there takes what it names, and ends nothing of others.
    let piped = PAIR.replace("10m", "40m");
    apply_from(w, "-", &piped).await;
    apply_from(w, "-", "document = \"other\"\n[queues.q]\n").await;
    assert_eq!(view(w, "nightly").await.retired, None);
    apply_from(w, "-", &format!("document = \"nights\"\n{piped}")).await;
    assert_eq!(owners(w).await, [billing, Some("nights".to_owned())]);
}

/// Older versions knew a file by its path as somebody typed it. What it names is its own under its whole path; what it dropped before
/// that stays, and ends once the document says its old name.
pub async fn a_document_takes_what_it_had_under_its_path_as_it_was_typed(w: &mut World) {
    let (path, typed) = ("/srv/registry.toml", "registry.toml");
    let both = |owner: &str| [Some(owner.to_owned()), Some(owner.to_owned())];
    apply_from(w, typed, PAIR).await;
    assert!(apply_from(w, path, PAIR).await.version.is_some(), "what is stored is a version");
    w.restart().await;
    assert_eq!(owners(w).await, both(path));
    apply_from(w, path, REPORT).await;
    assert!(view(w, "nightly").await.retired.is_some());
    // Dropped at once. Another time, so that it is that document's whoever had it.
    apply_from(w, typed, &PAIR.replace("10m", "20m")).await;
    let shortened = apply_from(w, path, REPORT).await;
    assert_eq!(schedules_of_others(&shortened), [("nightly", typed)]);
    assert_eq!(view(w, "nightly").await.retired, None);
    let said = apply_from(w, path, &format!("document = \"{typed}\"\n{REPORT}")).await;
    assert!(view(w, "nightly").await.retired.is_some());
    assert_eq!((schedules_of_others(&said), owners(w).await), (vec![], both(typed)));
    // The old name need not stay: what it names comes along.
    apply_from(w, path, &PAIR.replace("10m", "20m")).await;
    assert_eq!(owners(w).await, both(path));
}

/// Names that documents have today may look like paths that older versions knew: what others have under one goes on.
pub async fn a_path_that_ends_with_anothers_name_ends_nothing_of_it(w: &mut World) {
    let theirs = PAIR.replace("schedule =", "alerts = [\"failed\"]\nschedule =");
    let named = format!("document = \"registry.toml\"\n{theirs}");
    // Whoever sends it over HTTP says where it comes from; a file may say its name.
    for (source, text) in [("registry.toml", &theirs), ("/srv/a/registry.toml", &named)] {
        apply_from(w, source, text).await;
        let mine = "[queues.q]\n[kinds.mine]\nqueue = \"q\"\nschedule = { every = \"1h\" }\n";
        for text in [mine.to_owned(), format!("document = \"mine\"\n{mine}")] {
            let applied = apply_from(w, "/srv/b/registry.toml", &text).await;
            assert_eq!(schedules_of_others(&applied), [("nightly", "registry.toml")], "{source}: {text}");
            assert_eq!(view(w, "nightly").await.retired, None, "{source}: {text}");
        }
        let again = apply_from(w, source, text).await;
        assert_eq!((again.version, again.changes.len()), (None, 0), "nothing of it was touched: {source}");
    }
}

/// A file of the same name in another directory is another document: it takes nothing and ends nothing.
pub async fn a_document_elsewhere_is_another_one(w: &mut World) {
    let (path, other) = ("/srv/registry.toml", "/srv/other/registry.toml");
    apply_from(w, other, PAIR).await;
    for text in [PAIR.to_owned(), REPORT.to_owned(), format!("document = \"billing\"\n{REPORT}")] {
        let applied = apply_from(w, path, &text).await;
        assert_eq!((applied.version, applied.changes.len()), (None, 0), "{text}");
        assert_eq!(owners(w).await, [Some(other.to_owned()), Some(other.to_owned())], "{text}");
        assert_eq!(view(w, "nightly").await.retired, None, "{text}");
    }
    apply_from(w, other, REPORT).await;
    assert!(view(w, "nightly").await.retired.is_some());
}

/// What is told of a document that changes everything, and then nothing, are the same things.
pub async fn what_changes_and_what_is_as_wanted_is_counted_alike(w: &mut World) {
    let text = "[policies.p]\nmax_attempts = 2\nbackoff = \"immediate\"\n[categories]\nLOGIC_ERROR = \"p\"\n\
         [platforms]\nshopify = 2\n[queues.new]\n[kinds.nightly]\nqueue = \"new\"\nschedule = { every = \"10m\" }\n";
    let all = Counts { queues: 1, kinds: 1, schedules: 1, policies: 1, categories: 1, platforms: 1 };
    let first = apply(w, text).await;
    assert_eq!((first.changed, first.as_wanted, first.unchanged), (all, Counts::default(), 0));
    let again = apply(w, text).await;
    assert_eq!((again.changed, again.as_wanted, again.unchanged), (Counts::default(), all, 6));
    assert_eq!((again.version, again.left_alone), (None, first.left_alone));
}

/// A name that somebody took refuses the document as a whole, with its place.
pub async fn a_document_does_not_take_somebodys_own_schedule(w: &mut World) {
    w.store().put_schedule(own(ScheduleSettings::every("1h"), w.now)).await.expect("it is accepted");
    let before = view(w, "nightly").await;
    let error = try_apply_from(w, "registry.toml", &NIGHTLY.replace("[queues.q]", "[queues.new]")).await;
    let error = error.expect_err("the name is taken");
    assert_eq!(error.code, codes::INVALID_REGISTRY);
    assert!(error.detail.contains("kinds.nightly.schedule: there is a schedule `nightly`"), "{error}");
    assert_eq!(view(w, "nightly").await, before);
    assert!(!w.store().registry().await.expect("answered").queues.contains_key(&crate::kit::queue("new")));
}

/// `after` is checked with everything that will be there, in whatever order the kinds come.
pub async fn schedules_of_a_document_wait_for_each_other(w: &mut World) {
    let text = |first: &str, second: &str| {
        format!(
            "[queues.q]\n[kinds.graph]\nqueue = \"q\"\nschedule = {{ cron = \"0 4 * * *\"{first} }}\n\
             [kinds.total]\nqueue = \"q\"\nschedule = {{ cron = \"0 3 * * *\"{second} }}\n"
        )
    };
    for (first, second, says) in [
        (
            ", after = [\"totl\"]",
            "",
            "kinds.graph.schedule.after: there is no schedule `totl`; did you mean `total`?",
        ),
        (
            ", after = [\"total\"]",
            ", after = [\"graph\"]",
            "kinds.total.schedule.after: it would wait for itself",
        ),
    ] {
        let error = try_apply_from(w, "registry.toml", &text(first, second)).await.expect_err(says);
        assert!(error.detail.contains(says), "{error}");
        assert!(w.store().schedules().await.expect("answered").is_empty(), "nothing was changed");
    }
    apply(w, &text(", after = [\"total\"]", "")).await;
    // It is 02:13:20; at three and at four they are due.
    pass(w, 2 * 60 * MINUTE).await;
    let first = w.claim(10).await.jobs;
    assert_eq!(first.iter().map(|j| j.kind.as_str()).collect::<Vec<_>>(), ["total"]);
    w.finish(&first[0]).await;
    assert_eq!(w.claim_one().await.kind, kind("graph"));
    let error = try_apply_from(w, "other.toml", "[queues.q]\n[kinds.total]\nqueue = \"q\"\n").await;
    let error = error.expect_err("the graph waits for it");
    assert!(error.detail.contains("kinds.total.schedule: schedule `graph` waits for it"), "{error}");
    // One that is as it was misses what goes with this very document.
    let graph = text(", after = [\"total\"]", "").replace("schedule = { cron = \"0 3 * * *\" }\n", "");
    let error = try_apply_from(w, "registry.toml", &graph).await.expect_err("the graph waits for it");
    assert!(error.detail.contains("kinds.graph.schedule.after: there is no schedule `total`"), "{error}");
    apply(w, "[queues.q]\n").await;
    assert!(w.store().schedules().await.expect("answered").iter().all(|s| s.retired.is_some()));
}

/// Whoever waited for a schedule that was erased with its tenant waits no longer, and its document is as right as it was.
pub async fn a_document_is_as_right_as_it_was_after_a_tenant_was_erased(w: &mut World) {
    let theirs = ScheduleSettings { tenant: Some(tenant("acme")), ..ScheduleSettings::every("10m") };
    let theirs = PutSchedule { name: name("theirs"), ..own(theirs, w.now) };
    w.store().put_schedule(theirs).await.expect("it is accepted");
    let text = NIGHTLY.replace("\"10m\"", "\"10m\", after = [\"theirs\"]");
    let first = apply(w, &text).await.version.expect("it is new");
    let erase = Erase { tenant: tenant("acme"), after: Seq(0), scan: 100, now: w.now };
    w.store().erase(erase).await.expect("it can be erased");
    w.restart().await;
    // A change elsewhere, and the way back.
    let limited = text.replace("[queues.q]", "[queues.q]\nconcurrency = 7");
    assert_eq!(apply(w, &limited).await.changes.len(), 1);
    assert_eq!(roll_back(w, first).await.changes.len(), 1);
    assert_eq!(apply(w, &text).await.version, None, "it is as wanted");
    // Who begins to wait for it, or is changed, finds that it is gone.
    let new = "[kinds.new]\nqueue = \"q\"\nschedule = { every = \"10m\", after = [\"theirs\"] }\n";
    for (wrong, kind) in [(text.replace("10m", "20m"), "nightly"), (format!("{text}{new}"), "new")] {
        let error = try_apply_from(w, "registry.toml", &wrong).await.expect_err("it is gone");
        let says = format!("kinds.{kind}.schedule.after: there is no schedule `theirs`");
        assert_eq!(error.detail, says);
    }
}

/// A schedule that cannot work refuses the document with the place of the mistake.
pub async fn a_schedule_that_cannot_work_refuses_its_document(w: &mut World) {
    for (schedule, says) in [
        ("{ cron = \"0 0 * * 9\" }", "kinds.a.schedule.cron: day of week"),
        ("{ cron = \"@daily\", zone = \"Mars/Base\" }", "kinds.a.schedule.zone: "),
        ("{ cron = \"@daily\", every = \"1h\" }", "kinds.a.schedule: only one of"),
        ("{ crn = \"@daily\" }", "kinds.a.schedule: there is no setting `crn`; did you mean `cron`?"),
        (
            "{ cron = \"@daily\", payload = { n = \"x\" } }",
            "kinds.a.schedule.payload: it does not fit the schema: /n",
        ),
    ] {
        let text = format!(
            "[queues.q]\n[kinds.a]\nqueue = \"q\"\nschedule = {schedule}\n[kinds.a.schema]\ntype = \"object\"\nproperties = {{ n = {{ type = \"integer\" }} }}\n"
        );
        let problems = Document::parse(&text, Format::Toml).expect_err(says);
        assert!(problems.iter().any(|p| p.to_string().starts_with(says)), "{says}: {problems:?}");
    }
    w.kind("plain", "q", |_| ()).await;
    let mut settings = tidegate_core::registry::KindSettings::new(crate::kit::queue("q"));
    let written = serde_json::json!({"every": "1m"});
    settings.schedule = Some(serde_json::from_value(written).expect("it is one"));
    assert_eq!(refused(w.store().put_kind(kind("plain"), settings).await), codes::INVALID_SETTING);
    assert!(w.store().schedules().await.expect("answered").is_empty());
}

/// Payloads of a schedule get their kind's defaults; what is secret in them is shown to nobody but the worker.
pub async fn a_scheduled_payload_is_filled_and_its_secrets_are_not_shown(w: &mut World) {
    let text = "[queues.q]\n[kinds.call]\nqueue = \"q\"\nschedule = { every = \"10m\", payload = { key = \"s3cret\" } }\n\
         [kinds.call.schema]\ntype = \"object\"\n[kinds.call.schema.properties]\n\
         key = { type = \"string\", x-secret = true }\ntries = { type = \"integer\", default = 3 }\n";
    apply(w, text).await;
    let shown = view(w, "call").await.settings.payload;
    assert_eq!(shown, Some(serde_json::json!({"key": "***"})));
    let all = format!("{:?}", w.store().schedules().await.expect("answered"));
    assert!(!all.contains("s3cret"), "{all}");
    pass(w, 400_000).await;
    assert_eq!(w.claim_one().await.payload.as_str(), r#"{"key":"s3cret","tries":3}"#);
}

/// What was shown can be applied again: secrets of every type are put back, and those that nobody knows are refused.
pub async fn a_document_that_was_shown_can_be_applied_again(w: &mut World) {
    let text = "[queues.q]\n[kinds.call]\nqueue = \"q\"\n\
         schedule = { every = \"10m\", payload = { pin = 4711, key = { a = [1] }, word = \"s3cret-word\" } }\n\
         [kinds.call.schema]\ntype = \"object\"\n[kinds.call.schema.properties]\n\
         pin = { type = \"integer\", x-secret = true, default = 4712 }\n\
         key = { type = \"object\", x-secret = true, default = { a = [2] } }\n\
         word = { type = \"string\", x-secret = true, minLength = 8 }\n";
    apply(w, text).await;
    let whole = serde_json::to_value(w.store().registry().await.expect("answered")).expect("JSON");
    let shown = serde_json::json!({"kinds": {"call": whole["kinds"]["call"]}});
    assert!(!shown.to_string().contains("471") && !shown.to_string().contains("s3cret"), "{shown}");
    let try_apply = async |w: &World, written: &serde_json::Value| {
        let document = Document::read(written).unwrap_or_else(|problems| panic!("{problems:?}"));
        let wanted = Wanted::Document(Box::new(document));
        let source = "registry.toml".into();
        w.store().apply(Apply { wanted, by: "ann".into(), source, dry_run: false, now: w.now }).await
    };
    let applied = try_apply(w, &shown).await.expect("applied");
    assert_eq!((applied.changes.len(), applied.version), (0, None), "{:?}", applied.changes);
    // Changed beside them, and the rest as it was shown.
    let mut other = shown.clone();
    other["kinds"]["call"]["schedule"]["every"] = "20m".into();
    assert!(!try_apply(w, &other).await.expect("applied").changes.is_empty());
    pass(w, 20 * MINUTE).await;
    let run = w.claim_one().await;
    let payload: serde_json::Value = serde_json::from_str(run.payload.as_str()).expect("JSON");
    assert_eq!(payload, serde_json::json!({"pin": 4711, "key": {"a": [1]}, "word": "s3cret-word"}));
    // Under another name nobody knows what was hidden.
    let renamed = serde_json::json!({"kinds": {"called": shown["kinds"]["call"]}});
    let error = try_apply(w, &renamed).await.expect_err("refused");
    assert_eq!(error.code, codes::INVALID_REGISTRY);
    assert!(
        error.detail.contains("schedule.payload: a secret is written as it is shown"),
        "{}",
        error.detail
    );
    // Whatever else is wrong with such a payload is said at once.
    let mut wrong = shown;
    wrong["kinds"]["call"]["schedule"]["payload"]["key"] = 7.into();
    let problems = format!("{:?}", Document::read(&wrong).expect_err("refused"));
    assert!(problems.contains("/key") && !problems.contains("/pin"), "{problems}");
}

/// What either version calls secret is hidden in both columns of a difference.
pub async fn a_difference_shows_nothing_that_either_version_hides(w: &mut World) {
    let text = |secret: bool, word: &str| {
        format!(
            "[queues.q]\n[kinds.call]\nqueue = \"q\"\nschedule = {{ every = \"10m\", payload = {{ key = \"{word}\" }} }}\n\
             [kinds.call.schema]\ntype = \"object\"\n[kinds.call.schema.properties]\n\
             key = {{ type = \"string\", x-secret = {secret} }}\n"
        )
    };
    for (secret, word) in [(false, "s3cret-1"), (true, "s3cret-2"), (false, "s3cret-3")] {
        let applied = apply(w, &text(secret, word)).await;
        if word != "s3cret-1" {
            let kept = &w.store().versions(1).await.expect("answered")[0];
            for changes in [&applied.changes, &kept.changes] {
                let told = serde_json::to_string(changes).expect("JSON");
                assert!(told.contains("***") && !told.contains("s3cret"), "{told}");
            }
        }
    }
}

/// What is due and not decided is late, and nothing is once somebody looked.
pub async fn the_store_says_how_late_its_schedules_are(w: &mut World) {
    assert_eq!(w.store().totals().await.expect("answered").next_tick, None);
    apply(w, NIGHTLY).await;
    let totals = w.store().totals().await.expect("answered");
    assert_eq!((totals.schedules, totals.next_tick), (1, Some(FIRST)));
    w.pass(30 * MINUTE);
    let totals = w.store().totals().await.expect("answered");
    assert!(totals.next_tick.is_some_and(|at| at < w.now), "it is late");
    pass(w, 0).await;
    assert!(w.store().totals().await.expect("answered").next_tick.is_some_and(|at| at > w.now));
    apply(w, IDLE).await;
    let totals = w.store().totals().await.expect("answered");
    assert_eq!((totals.schedules, totals.next_tick), (0, None));
}
