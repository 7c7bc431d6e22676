//! Commands that do something, from end to end, with and without `--json`.

use std::fmt::Write as _;

use crate::common::{Place, every_state, steady};
use serde_json::Value;

#[tokio::test]
async fn every_command_speaks_json() {
    let place = Place::default();
    let jobs = every_state(&place.data()).await;
    let (dead, delayed, next, running) =
        (jobs.id("dead"), jobs.id("delayed"), jobs.id("next"), jobs.id("running"));
    let many =
        place.file("many.jsonl", "{\"kind\":\"invoice.send\",\"data\":{\"order\":1}}\n".repeat(3).as_str());
    let registry = place.file("registry.toml", "[queues.new]\nweight = 3\n");
    let config = place.file("config.toml", "[worker]\nconcurrency = 3\n");
    let cases: Vec<(&str, Vec<&str>)> = vec![
        ("/queues/0/name", vec!["queues", "ls"]),
        ("/paused/by", vec!["queues", "pause", "billing", "--reason", "audit", "--for", "10m"]),
        ("/resumed/queue", vec!["queues", "resume", "billing"]),
        ("/settings/max_ready", vec!["queues", "set", "billing", "--max-ready", "100000"]),
        ("/groups/0/group", vec!["groups", "ls"]),
        ("/paused/scope/group", vec!["groups", "pause", "acme"]),
        ("/resumed/group", vec!["groups", "resume", "acme"]),
        ("/paused/scope/connector", vec!["parks", "add", "--connector", "shopify"]),
        ("/parks/0/reason", vec!["parks", "ls"]),
        ("/resumed/connector", vec!["parks", "rm", "--connector", "shopify"]),
        ("/queues/billing/concurrency", vec!["registry", "show"]),
        ("/changes/0/name", vec!["registry", "apply", &registry]),
        ("/settings/0/source", vec!["config", "show"]),
        ("/settings", vec!["config", "check", &config]),
        ("/kinds/0/settings/timeout_ms", vec!["kinds", "ls"]),
        ("/kind", vec!["kinds", "set", "hello", "--queue", "default", "--timeout", "5s"]),
        ("/jobs/0/id", vec!["enqueue", "hello", "--data", "{\"name\":\"you\"}", "--tenant", "acme"]),
        ("/jobs/2/outcome", vec!["enqueue", "--from", &many]),
        ("/jobs/0/created_at", vec!["jobs", "ls"]),
        ("/payload/order", vec!["jobs", "show", &running]),
        ("/held/lease", vec!["jobs", "show", &running]),
        ("/jobs/0/errors/0/code", vec!["jobs", "search", "HTTP_503"]),
        ("/jobs/0/state", vec!["jobs", "retry", &delayed]),
        ("/priority", vec!["jobs", "prioritise", &next, "critical"]),
        ("/jobs/0/reply", vec!["jobs", "cancel", &next]),
        ("/jobs/0/reply", vec!["jobs", "cancel", &running]),
        ("/would_cancel", vec!["jobs", "cancel", "--queue", "billing", "--dry-run"]),
        ("/sentence", vec!["why", &dead]),
        ("/letters/0/dead/category", vec!["dead", "ls"]),
        ("/dead/code", vec!["dead", "show", &dead]),
        ("/causes/0/cause", vec!["dead", "causes"]),
        ("/looked_at", vec!["dead", "process"]),
        ("/recovered", vec!["dead", "reauthorized", "acme"]),
        ("/would_recover", vec!["dead", "recover", "--all", "--dry-run"]),
        ("/recovered", vec!["dead", "recover", "--kind", "invoice.send", "--yes"]),
        ("/would_resolve", vec!["dead", "resolve", &dead, "--as", "abandoned", "--dry-run"]),
        ("/erased", vec!["jobs", "erase", "--tenant", "wonka", "--yes"]),
        ("/size_bytes", vec!["backup", "b.tidegate"]),
        ("/dir", vec!["restore", "b.tidegate", "--dir", "restored"]),
        ("/title", vec!["explain", "TG2007"]),
        ("/key/id", vec!["keys", "create", "--role", "operator", "--name", "night shift"]),
        ("/keys/0/role", vec!["keys", "ls"]),
        ("/workers", vec!["workers", "ls"]),
        ("/checks/0/status", vec!["doctor"]),
        ("/queues/0/ready", vec!["top"]),
        ("/pages", vec!["man", "man"]),
        ("/codes/0/exit_code", vec!["explain"]),
    ];
    for (pointer, args) in cases {
        let ran = place.run(&[&args[..], &["--json"]].concat());
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        let value = ran.json();
        assert!(value.pointer(pointer).is_some_and(|v| !v.is_null()), "{args:?} has no {pointer}: {value:#}");
    }
}

#[test]
fn a_kind_that_is_set_says_what_was_set() {
    let place = Place::default();
    let set = |args: &[&str]| place.run(&[&["kinds", "set", "hello"], args].concat()).ok().out;
    assert_eq!(
        set(&["--queue", "default", "--priority", "low"]),
        "Added kind hello: queue default, priority low, timeout 30 s.\n"
    );
    assert_eq!(
        set(&["--max-attempts", "3", "--retry", "webhook", "--description", "Says hello"]),
        "Changed kind hello: description \"Says hello\" (was none), max attempts 3 (was none), retry webhook (was as its queue).\n"
    );
    assert_eq!(set(&["--priority", "low"]), "Kind hello has these settings already.\n");
}

#[test]
fn an_empty_list_says_what_was_looked_for() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let said = |args: &[&str]| place.run(&[&["jobs", "ls"], args].concat()).ok().out;
    assert_eq!(said(&["--state", "dead", "--tenant", "x"]), "No jobs (dead, tenant x).\n");
    assert_eq!(said(&["--state", "dead,ready"]), "No jobs (dead or ready).\n");
    assert_eq!(said(&[]), "No jobs (all queues).\n");
}

#[tokio::test]
async fn what_is_said_to_people() {
    let place = Place::default();
    let jobs = every_state(&place.data()).await;
    let (dead, delayed) = (jobs.id("dead"), jobs.id("delayed"));
    let mut said = String::new();
    for args in [
        &["queues", "set", "billing", "--concurrency", "10", "--limiter", "5/1s"][..],
        &["queues", "set", "billing", "--concurrency", "10"],
        &["queues", "set", "fresh"],
        &["queues", "pause", "billing", "--reason", "audit"],
        &["queues", "resume", "billing"],
        &["queues", "pause", "--group", "acme", "--for", "30m"],
        &["groups", "resume", "acme"],
        &["groups", "pause", "acme", "--by", "support", "--reason", "moving house."],
        &["parks", "add", "--group", "acme", "--connector", "shopify", "--for", "30m"],
        &["parks", "rm", "--group", "acme", "--connector", "shopify"],
        &["jobs", "retry", &delayed],
        &["jobs", "cancel", &delayed],
        &["dead", "recover", &dead],
        &["dead", "recover", &dead],
        &["dead", "ls"],
        &["dead", "resolve", &dead, "--as", "config_fix"],
        &["jobs", "retry", &jobs.id("next")],
        &["jobs", "ls", "--tenant", "nobody"],
        &["workers", "ls"],
        &["keys", "ls"],
        &["explain", "TG4001"],
        &["backup", "b.tidegate"],
    ] {
        writeln!(said, "$ tidegate {}\n{}", args.join(" "), place.run(args).ok().out).unwrap();
    }
    steady().bind(|| insta::assert_snapshot!(said));
}

#[tokio::test]
async fn settings_that_are_not_named_stay() {
    let place = Place::default();
    place.run(&["queues", "set", "q", "--concurrency", "5", "--limiter", "30/1s", "--retry", "webhook"]).ok();
    let changed =
        place.run(&["queues", "set", "q", "--concurrency", "none", "--weight", "3", "--json"]).ok().json();
    let settings = &changed["settings"];
    assert_eq!(settings["concurrency"], Value::Null);
    assert_eq!((&settings["limiter"]["max"], &settings["weight"]), (&30.into(), &3.into()));
    assert_eq!(settings["retry"]["max_attempts"], 5);
}

#[tokio::test]
async fn enqueueing_again_with_the_same_id_or_key_is_safe() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let id = "job_01JD0000000000000000000000";
    let by_id = ["enqueue", "hello", "--data", "{\"n\":1}", "--id", id, "--json"];
    assert_eq!(place.run(&by_id).ok().json()["jobs"][0]["outcome"], "created");
    assert_eq!(place.run(&by_id).ok().json()["jobs"][0]["outcome"], "kept");
    let by_key = ["enqueue", "hello", "--unique", "daily", "--json"];
    let first = place.run(&by_key).ok().json();
    let second = place.run(&by_key).ok().json();
    assert_eq!(first["jobs"][0]["id"], second["jobs"][0]["id"]);
    assert_eq!(second["jobs"][0]["outcome"], "kept");
    assert_eq!(place.run(&["jobs", "ls", "--json"]).ok().json()["jobs"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_payload_can_come_from_a_file_or_standard_input() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let file = place.file("p.json", "{\"from\": \"a file\"}\n");
    place.run(&["enqueue", "hello", "--data", &format!("@{file}")]).ok();
    let mut command = place.command(&["enqueue", "hello", "--data", "-"]);
    let stdin = std::fs::File::open(&file).unwrap();
    command.stdin(stdin);
    crate::common::finished(&mut command).ok();
    let jobs = place.run(&["jobs", "ls", "--json"]).ok().json();
    let from: Vec<&str> =
        jobs["jobs"].as_array().unwrap().iter().map(|j| j["payload"]["from"].as_str().unwrap()).collect();
    assert_eq!(from, ["a file", "a file"]);
}

#[tokio::test]
async fn lists_go_on_with_their_cursor() {
    let place = Place::default();
    let jobs = every_state(&place.data()).await;
    let mut seen = vec![];
    let mut cursor: Option<String> = None;
    loop {
        let mut args = vec!["jobs", "ls", "--limit", "7", "--json"];
        if let Some(cursor) = &cursor {
            args.extend(["--cursor", cursor]);
        }
        let page = place.run(&args).ok().json();
        seen.extend(page["jobs"].as_array().unwrap().iter().map(|j| j["id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_i64() {
            Some(next) => cursor = Some(next.to_string()),
            None => break,
        }
    }
    let mut expected: Vec<String> = jobs.by_story.iter().map(|(_, id)| id.to_string()).collect();
    expected.reverse();
    assert_eq!(seen, expected, "newest first, none twice, none missing");
}

#[tokio::test]
async fn a_backup_restores_into_another_directory() {
    let place = Place::default();
    every_state(&place.data()).await;
    place.run(&["backup", "b.tidegate"]).ok();
    let refused = place.run(&["backup", "b.tidegate"]);
    assert_eq!(refused.code, 4, "an existing file is left alone: {}", refused.err);
    place.run(&["backup", "b.tidegate", "--force"]).ok();
    place.run(&["restore", "b.tidegate", "--dir", "other"]).ok();
    let all = ["jobs", "ls", "--limit", "1000", "--json"];
    let here = place.run(&all).ok().json();
    let there = place.run(&[&all[..], &["--dir", "other"]].concat()).ok().json();
    assert_eq!(here["jobs"], there["jobs"]);
    let refused = place.run(&["restore", "b.tidegate", "--dir", "other"]);
    assert_eq!(refused.code, 4, "data is not overwritten: {}", refused.err);
    let leftovers: Vec<_> = std::fs::read_dir(place.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.contains(".part") || n.contains(".new"))
        .collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[test]
fn a_cancel_says_how_many_others_it_took_along() {
    let place = Place::default();
    place.run(&["kinds", "set", "part", "--queue", "reports"]).ok();
    let id = |n: u8| format!("job_01JD000000000000000000000{n}");
    place.run(&["enqueue", "part", "--id", &id(0)]).ok();
    for n in [1, 2] {
        place.run(&["enqueue", "part", "--id", &id(n), "--after", &id(n - 1)]).ok();
    }
    let said = place.run(&["jobs", "cancel", &id(0), "--cascade"]).ok().out;
    assert_eq!(said, format!("Cancelled {} and 2 jobs that waited for it; they will not run.\n", id(0)));
}
