//! Every shipped rule against a real HTTP sink, in virtual time; a sink that is down; two processes on one store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use tidegate_core::alerts::{Readings, Rule, Scope, Target, shipped};
use tidegate_core::job::State;
use tidegate_core::registry::{Document, Format};
use tidegate_store::params::{Apply, JobQuery, Wanted};
use tidegate_store::{MemoryStore, Store};

use super::deliver::deliver_some;
use super::evaluator::{is_ours, step};
use super::settings::{AlertSettings, Channel};
use super::{KIND, Post, channel, silence, unsilence};
use crate::Clock;
use crate::mint::Mint;
use crate::outgoing::Client;
use tidegate_wire::alerts::NewSilence;

const START: i64 = 1_800_000_000_000;
const TICK: i64 = 5_000;
const HOUR: i64 = 3_600_000;
const SECRET: &str = "s3cret";

/// What arrives, and what is answered.
#[derive(Default)]
struct Sink {
    got: Mutex<Vec<(HeaderMap, Value)>>,
    answer: AtomicU16,
}

impl Sink {
    fn got(&self) -> MutexGuard<'_, Vec<(HeaderMap, Value)>> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was told, in order: event and incident.
    fn told(&self) -> Vec<(String, String)> {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        self.got().iter().map(|(_, body)| (text(&body["event"]), text(&body["incident"]))).collect()
    }

    fn events(&self) -> Vec<String> {
        self.told().into_iter().map(|(event, _)| event).collect()
    }
}

async fn take(Shared(sink): Shared<Arc<Sink>>, headers: HeaderMap, body: String) -> StatusCode {
    let status = StatusCode::from_u16(sink.answer.load(Ordering::SeqCst)).unwrap_or(StatusCode::OK);
    if status.is_success() {
        sink.got().push((headers, serde_json::from_str(&body).unwrap()));
    }
    status
}

/// A sink at a port of its own, and its address.
async fn sink() -> (Arc<Sink>, String) {
    let sink = Arc::new(Sink::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook/t0ken", listener.local_addr().unwrap());
    let router = Router::new().route("/hook/t0ken", post(take)).with_state(sink.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (sink, url)
}

struct World {
    post: Arc<Post>,
    time: Arc<AtomicI64>,
    client: Client,
}

impl World {
    fn new(store: Arc<dyn Store>, url: &str, rules: Vec<Rule>) -> Self {
        Self::at(store, url, rules, Arc::new(AtomicI64::new(START)))
    }

    fn at(store: Arc<dyn Store>, url: &str, rules: Vec<Rule>, time: Arc<AtomicI64>) -> Self {
        let hook = Channel::Webhook { url: url.to_owned(), secret: Some(SECRET.into()) };
        let channels: BTreeMap<String, Channel> =
            ["slack", "pagerduty"].map(|name| (name.to_owned(), hook.clone())).into();
        let settings = Arc::new(AlertSettings { rules, channels, ..AlertSettings::default() });
        let clock = Clock::manual(time.clone());
        let post = Post { store, settings, clock, mint: Mint::random(), process: Mint::random().seed() };
        Self { post: Arc::new(post), time, client: Client::new(false).unwrap() }
    }

    /// Lets time pass, evaluates, delivers what is due.
    async fn tick(&self, readings: &Readings, ms: i64) {
        self.time.fetch_add(ms, Ordering::SeqCst);
        step(&self.post, readings).await.unwrap();
        self.deliver().await;
    }

    async fn deliver(&self) {
        // Promotes what was put off; a claim that finds nothing would wait.
        self.post.store.advance(self.post.now()).await.unwrap();
        while self.waiting(State::Ready).await > 0 {
            deliver_some(&self.post, &self.client).await.unwrap();
        }
    }

    async fn waiting(&self, state: State) -> usize {
        let query = JobQuery {
            states: vec![state],
            kind: Some(KIND.parse().unwrap()),
            limit: 1_000,
            ..JobQuery::default()
        };
        self.post.store.search(query).await.unwrap().jobs.len()
    }
}

/// One channel for each rule: what is counted is tellings.
fn rules() -> Vec<Rule> {
    let one = |r: Rule| Rule { channels: vec!["slack".into()], enabled: true, ..r };
    shipped().into_iter().map(one).collect()
}

fn readings(rule: &Rule, holds: bool) -> Readings {
    let mut readings = Readings::default();
    let name = rule.on.first().cloned().unwrap_or_else(|| "one".into());
    let target = match rule.condition.scope() {
        Scope::System => Target::system(),
        scope => Target { scope, name },
    };
    for (name, value) in rule.condition.example(holds) {
        readings.add(target.clone(), name, value, 1_000);
    }
    readings
}

#[tokio::test]
async fn every_shipped_rule_is_told_once_again_and_over_to_a_sink() {
    let (sink, url) = sink().await;
    for rule in rules() {
        let world = World::new(Arc::new(MemoryStore::new()), &url, vec![rule.clone()]);
        let (bad, good) = (readings(&rule, true), readings(&rule, false));
        sink.got().clear();
        world.tick(&good, TICK).await;
        world.tick(&bad, TICK).await;
        for _ in 0..3 {
            world.tick(&bad, rule.for_ms.max(TICK)).await;
        }
        assert_eq!(sink.events(), ["fired"], "{}", rule.id);
        world.tick(&bad, rule.repeat_ms).await;
        world.tick(&bad, TICK).await;
        assert_eq!(sink.events(), ["fired", "repeated"], "{}", rule.id);
        world.tick(&good, TICK).await;
        world.tick(&good, TICK).await;
        assert_eq!(sink.events(), ["fired", "repeated", "resolved"], "{}", rule.id);
        for (headers, body) in sink.got().iter() {
            assert_eq!(body["rule"], rule.id);
            assert_eq!(body["runbook"], format!("docs/runbooks/{}", rule.runbook));
            let at = headers["x-tidegate-timestamp"].to_str().unwrap();
            let signed = channel::signature(SECRET, at, &body.to_string());
            assert_eq!(headers["x-tidegate-signature"], format!("sha256={signed}").as_str());
        }
    }
}

fn depth() -> (Rule, Readings, Readings) {
    let rule = rules().into_iter().find(|r| r.id == "queue_depth_high").unwrap();
    let (bad, good) = (readings(&rule, true), readings(&rule, false));
    (rule, bad, good)
}

/// A store on disk: what is told later survives a restart of everything.
#[tokio::test]
async fn a_sink_that_is_down_loses_nothing_and_hears_in_order() {
    let (sink, url) = sink().await;
    let dir = tempfile::tempdir().unwrap();
    let (rule, bad, good) = depth();
    let time = Arc::new(AtomicI64::new(START));
    let open = |at: i64| -> Arc<dyn Store> {
        Arc::new(
            tidegate_store_sqlite::SqliteStore::open(dir.path(), tidegate_core::time::Timestamp(at)).unwrap(),
        )
    };
    sink.answer.store(503, Ordering::SeqCst);
    let world = World::at(open(START), &url, vec![rule.clone()], time.clone());
    for _ in 0..3 {
        world.tick(&bad, TICK).await;
    }
    world.tick(&bad, rule.repeat_ms).await;
    assert_eq!(sink.events(), Vec::<String>::new());
    assert_eq!(world.waiting(State::Scheduled).await, 1, "it is tried again");
    assert_eq!(world.waiting(State::Blocked).await, 1, "and what came after it waits");
    world.post.store.close().await.unwrap();
    drop(world);

    let world = World::at(open(time.load(Ordering::SeqCst)), &url, vec![rule], time.clone());
    world.tick(&good, TICK).await;
    assert_eq!(sink.events(), Vec::<String>::new(), "it is still down");
    sink.answer.store(200, Ordering::SeqCst);
    for _ in 0..200 {
        world.tick(&good, 60_000).await;
    }
    assert_eq!(sink.events(), ["fired", "repeated", "resolved"]);
    let failed = [State::Blocked, State::Ready, State::Scheduled, State::Running, State::Dead];
    for state in failed {
        assert_eq!(world.waiting(state).await, 0, "{state:?}");
    }
}

/// More words wait than one page of a search shows: each waits for the one before it, not for what a search finds.
#[tokio::test]
async fn no_word_overtakes_another_however_many_wait() {
    let (sink, url) = sink().await;
    let (rule, bad, good) = depth();
    let rule = Rule { repeat_ms: 60_000, ..rule };
    let world = World::new(Arc::new(MemoryStore::new()), &url, vec![rule]);
    sink.answer.store(503, Ordering::SeqCst);
    world.tick(&bad, TICK).await;
    for _ in 0..131 {
        world.tick(&bad, 60_000).await;
    }
    world.tick(&good, TICK).await;
    assert_eq!(sink.events(), Vec::<String>::new());
    sink.answer.store(200, Ordering::SeqCst);
    world.tick(&good, HOUR).await;
    let mut expected = vec!["repeated"; 132];
    (expected[0], expected[131]) = ("fired", "resolved");
    assert_eq!(sink.events(), expected);
    let times: Vec<String> = sink.got().iter().map(|(_, body)| body["at"].to_string()).collect();
    assert!(times.is_sorted(), "{times:?}");
}

/// A word that could not be told is no reason to keep quiet about what came after it.
#[tokio::test]
async fn a_word_follows_one_that_is_dead_or_gone() {
    let (sink, url) = sink().await;
    let (rule, bad, good) = depth();
    let world = World::new(Arc::new(MemoryStore::new()), &url, vec![rule]);
    sink.answer.store(503, Ordering::SeqCst);
    for _ in 0..3 {
        world.tick(&bad, TICK).await;
    }
    while world.waiting(State::Dead).await == 0 {
        world.time.fetch_add(HOUR, Ordering::SeqCst);
        world.deliver().await;
    }
    sink.answer.store(200, Ordering::SeqCst);
    world.tick(&good, TICK).await;
    assert_eq!(sink.events().last().map(String::as_str), Some("resolved"));
}

fn document(text: &str, now: tidegate_core::time::Timestamp) -> Apply {
    let document = Document::parse(text, Format::Toml).unwrap();
    let wanted = Wanted::Document(Box::new(document));
    Apply { wanted, by: "ann".into(), source: "registry.toml".into(), dry_run: false, now }
}

/// What a document says of a kind's alerts is in force with it, and over with it: pagers are closed.
#[tokio::test]
async fn alerts_of_a_document_are_in_force_while_it_has_them() {
    let (sink, url) = sink().await;
    let world = World::new(Arc::new(MemoryStore::new()), &url, vec![]);
    let (store, now) = (world.post.store.clone(), world.post.now());
    let mut bad = Readings::default();
    for kind in ["nightly", "other"] {
        bad.add(Target::kind(kind), "dead_letters", 2.0, 1);
        bad.add(Target::kind(kind), "longest_run", 100.0, 1);
    }
    let watched = "[queues.q]\n[kinds.other]\nqueue = \"q\"\n[kinds.nightly]\nqueue = \"q\"\ntimeout = \"10m\"\n\
        [kinds.nightly.alerts]\nfailed = { channels = [\"slack\"] }\nmine = { condition = \"longest_run > 1m\", channels = [\"slack\"] }\n\
        slow = { channels = [\"slack\"] }\n";
    world.tick(&bad, TICK).await;
    world.tick(&bad, TICK).await;
    assert!(sink.told().is_empty(), "nobody asked");
    store.apply(document(watched, now)).await.unwrap();
    world.tick(&bad, TICK).await;
    world.tick(&bad, TICK).await;
    let told = |sink: &Sink| {
        let mut told = sink.told();
        told.sort();
        told.into_iter().map(|(event, incident)| format!("{event} {incident}")).collect::<Vec<_>>()
    };
    assert_eq!(
        told(&sink),
        ["fired failed/kind:nightly/1", "fired mine/kind:nightly/1"],
        "100 s are not 8 min"
    );
    let open = super::list(&*store, world.post.now()).await.unwrap();
    assert!(open.iter().all(|a| a.target == "kind:nightly") && open.len() == 2, "{open:?}");
    store.apply(document("[queues.q]\n", world.post.now())).await.unwrap();
    sink.got().clear();
    world.tick(&bad, TICK).await;
    assert_eq!(told(&sink), ["resolved failed/kind:nightly/1", "resolved mine/kind:nightly/1"]);
    assert!(super::list(&*store, world.post.now()).await.unwrap().is_empty());
}

#[tokio::test]
async fn any_number_of_processes_tell_once() {
    let (sink, url) = sink().await;
    let (rule, bad, good) = depth();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let time = Arc::new(AtomicI64::new(START));
    let worlds: Vec<World> =
        (0..4).map(|_| World::at(store.clone(), &url, vec![rule.clone()], time.clone())).collect();
    for readings in [&bad, &bad, &bad, &good] {
        time.fetch_add(TICK, Ordering::SeqCst);
        // At the same time, whoever may: even if several think that it is theirs.
        let steps = worlds.iter().map(|w| {
            let (post, readings) = (w.post.clone(), readings.clone());
            tokio::spawn(async move { step(&post, &readings).await.unwrap() })
        });
        for one in steps.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        worlds[0].deliver().await;
    }
    assert_eq!(sink.events(), ["fired", "resolved"]);
    let ours = |n: usize| is_ours(&worlds[n].post);
    assert!(ours(2).await.unwrap() && !ours(1).await.unwrap() && ours(2).await.unwrap());
    time.fetch_add(HOUR, Ordering::SeqCst);
    assert!(ours(1).await.unwrap(), "whoever is gone does not hold it up");
}

#[tokio::test]
async fn a_silence_is_kept_and_can_be_ended() {
    let (sink, url) = sink().await;
    let (rule, bad, _) = depth();
    let world = World::new(Arc::new(MemoryStore::new()), &url, vec![rule]);
    let new = NewSilence {
        rule: Some("queue_depth_high".into()),
        target: None,
        for_ms: HOUR as u64,
        why: "migration".into(),
        by: None,
    };
    let store = world.post.store.clone();
    let settings = &world.post.settings;
    let silenced = silence(&*store, settings, new.clone(), "ada".into(), world.post.now()).await.unwrap();
    for _ in 0..3 {
        world.tick(&bad, TICK).await;
    }
    assert_eq!(sink.events(), Vec::<String>::new());
    let open = super::list(&*store, world.post.now()).await.unwrap();
    assert!(open[0].silenced && open[0].phase == "firing");
    assert!(unsilence(&*store, &silenced.id).await.unwrap());
    world.tick(&bad, TICK).await;
    assert_eq!(sink.events(), ["fired"]);
    for bad in [
        NewSilence { for_ms: 0, ..new.clone() },
        NewSilence { for_ms: u64::MAX, ..new.clone() },
        NewSilence { why: " ".into(), ..new.clone() },
        NewSilence { rule: Some("queue_depth_hihg".into()), ..new.clone() },
        NewSilence { target: Some("images".into()), ..new.clone() },
        NewSilence { target: Some("que:images".into()), ..new.clone() },
        NewSilence { target: Some("queue:".into()), ..new.clone() },
    ] {
        assert!(silence(&*store, settings, bad, "ada".into(), world.post.now()).await.is_err());
    }
    for good in [
        NewSilence { rule: Some("a_rule_of_another_process".into()), ..new.clone() },
        NewSilence { target: Some("queue:images".into()), ..new.clone() },
        NewSilence { target: Some("system".into()), ..new },
    ] {
        assert!(silence(&*store, settings, good, "ada".into(), world.post.now()).await.is_ok());
    }
}

#[tokio::test]
async fn a_test_arrives_and_an_error_does_not_show_the_url() {
    let (sink, url) = sink().await;
    let (rule, ..) = depth();
    let world = World::new(Arc::new(MemoryStore::new()), &url, vec![rule]);
    let (store, settings, now) = (&*world.post.store, &world.post.settings, world.post.now());
    assert!(super::test(store, settings, "nobody", now).await.is_err());
    sink.answer.store(500, Ordering::SeqCst);
    let id = super::test(store, settings, "slack", now).await.unwrap().unwrap();
    world.deliver().await;
    let job = store.get(id.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(job.errors[0].message, "channel slack answered 500");
    let shown = serde_json::to_string(&job).unwrap();
    assert!(!shown.contains("t0ken") && !shown.contains(SECRET), "{shown}");
    sink.answer.store(200, Ordering::SeqCst);
    world.time.fetch_add(HOUR, Ordering::SeqCst);
    world.deliver().await;
    assert_eq!(sink.events(), ["test"]);
}
