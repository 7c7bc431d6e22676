//! What cannot be right is refused with a code, a hint and an exit code by kind of failure, and stores nothing.

use std::io::Read;
use std::process::Stdio;

use crate::common::{Filler, Place, every_state, finished, now, steady};
use tidegate_store::Store;
use tidegate_store_sqlite::SqliteStore;

/// Number of jobs in the directory.
fn count(place: &Place) -> usize {
    let found = place.run(&["jobs", "ls", "--limit", "100000", "--json"]).ok().json();
    found["jobs"].as_array().unwrap().len()
}

#[tokio::test]
async fn bad_input_is_refused_and_nothing_is_stored() {
    let place = Place::default();
    let jobs = every_state(&place.data()).await;
    let before = count(&place);
    let registry = place.run(&["queues", "ls", "--json"]).ok().json()["queues"].as_array().unwrap().len();
    let (completed, running) = (jobs.id("completed"), jobs.id("running"));
    let big = place.file("big.json", &format!("\"{}\"", "x".repeat(10 << 20)));
    let deep = place.file("deep.json", &format!("{}{}", "[".repeat(1_000), "]".repeat(1_000)));
    let deep_line = place.file(
        "deep.jsonl",
        &format!("{{\"kind\":\"invoice.send\",\"data\":{}{}}}\n", "[".repeat(1_000), "]".repeat(1_000)),
    );
    let line = "{\"kind\":\"invoice.send\",\"data\":{}}\n";
    let empty = place.file("empty.jsonl", "\n\n");
    let half_csv = place.file("half.csv", "order,@kind\n1,invoice.send\n2,no.such\n");
    let short_csv = place.file("short.csv", "order,name\n1,Ada\n2\n");
    let column_csv = place.file("column.csv", "order,@tenannt\n1,acme\n");
    let bad_toml = place.file("bad.toml", "[queues.a]\nconcurency = 1\n");
    let no_queue = place.file("no_queue.toml", "[kinds.a]\nqueue = \"nowhere\"\n");
    let bad_config = place.file("bad_config.toml", "[worker]\nleese = \"5s\"\n");
    let half = place.file("half.jsonl", &format!("{line}{{\"kind\":\"no.such\",\"data\":1}}\n"));
    let field = place.file("field.jsonl", "{\"kind\":\"invoice.send\",\"datta\":{}}\n");
    let types = place.file("types.jsonl", "{\"kind\":\"invoice.send\",\"data\":{},\"tenant\":7}\n");
    let no_kind = place.file("no_kind.jsonl", "{\"data\":{}}\n");
    let id = "\"id\":\"job_01JD0000000000000000000000\"";
    let twice = place.file("twice.jsonl", &format!("{{\"kind\":\"invoice.send\",{id}}}\n").repeat(2));
    let at = |path: &str| format!("@{path}");
    let (big, deep) = (at(&big), at(&deep));

    let cases: Vec<(&str, i32, Vec<&str>)> = vec![
        ("TG2003", 3, vec!["enqueue", "no.such.kind"]),
        ("TG2002", 3, vec!["enqueue", "invoice.send", "--queue", "no-such"]),
        ("TG2001", 2, vec!["enqueue", "x'; DROP TABLE jobs; --"]),
        ("TG2001", 2, vec!["enqueue", "invoice.send", "--tenant", "../../etc/passwd"]),
        ("TG2001", 2, vec!["enqueue", "invoice.send", "--group", "a%b"]),
        ("TG2001", 2, vec!["enqueue", "invoice.send", "--queue", "a;b"]),
        ("TG2001", 2, vec!["enqueue", "invoice.send", "--unique", "a\u{7}b"]),
        ("TG2001", 2, vec!["enqueue", ""]),
        ("TG2004", 2, vec!["enqueue", "invoice.send", "--data", "{not json"]),
        ("TG2004", 2, vec!["enqueue", "invoice.send", "--data", ""]),
        ("TG2004", 2, vec!["enqueue", "invoice.send", "--data", "{} {}"]),
        ("TG2004", 2, vec!["enqueue", "invoice.send", "--data", &big]),
        ("TG2004", 2, vec!["enqueue", "invoice.send", "--data", &deep]),
        ("TG2004", 2, vec!["enqueue", "--from", &deep_line]),
        ("TG2009", 2, vec!["enqueue", "invoice.send", "--data", "@/no/such/file"]),
        ("TG2005", 2, vec!["enqueue", "invoice.send", "--delay", "-5s"]),
        ("TG2005", 2, vec!["enqueue", "invoice.send", "--delay", "soon"]),
        ("TG2005", 2, vec!["enqueue", "invoice.send", "--delay", "99999d"]),
        ("TG2005", 2, vec!["enqueue", "invoice.send", "--at", "9999-01-01T00:00:00Z"]),
        ("TG2005", 2, vec!["enqueue", "invoice.send", "--at", "tomorrow"]),
        ("TG2005", 2, vec!["enqueue", "invoice.send", "--timeout", "8d"]),
        ("TG2009", 2, vec!["enqueue", "invoice.send", "--delay", "1s", "--at", "2030-01-01T00:00:00Z"]),
        ("TG2009", 2, vec!["enqueue", "invoice.send", "--priority", "urgent"]),
        ("TG2008", 2, vec!["enqueue", "invoice.send", "--max-attempts", "0"]),
        ("TG2008", 2, vec!["enqueue", "invoice.send", "--max-attempts", "many"]),
        ("TG2008", 2, vec!["enqueue", "invoice.send", "--retry", "sometimes"]),
        ("TG2009", 2, vec!["enqueue", "invoice.send", "--no-such-flag"]),
        ("TG2009", 2, vec!["enqueue"]),
        ("TG2001", 2, vec!["enqueue", "invoice.send", "--id", "7"]),
        ("TG2010", 4, vec!["enqueue", "invoice.send", "--id", &completed, "--data", "{\"other\":1}"]),
        ("TG2006", 2, vec!["enqueue", "--from", &empty]),
        ("TG2003", 3, vec!["enqueue", "--from", &half_csv]),
        ("TG2009", 2, vec!["enqueue", "invoice.send", "--from", &short_csv]),
        ("TG2009", 2, vec!["enqueue", "invoice.send", "--from", &column_csv]),
        ("TG2009", 2, vec!["enqueue", "--from", &half, "--batch", "0"]),
        ("TG2050", 2, vec!["registry", "apply", &bad_toml]),
        ("TG2050", 2, vec!["registry", "validate", &bad_toml]),
        ("TG2050", 2, vec!["registry", "apply", &no_queue]),
        ("TG2050", 2, vec!["registry", "validate", &no_queue]),
        ("TG3031", 3, vec!["registry", "rollback", "99"]),
        ("TG2003", 3, vec!["registry", "show", "no.such"]),
        ("TG2009", 2, vec!["parks", "add", "--reason", "none"]),
        ("TG2002", 3, vec!["parks", "add", "--queue", "no-such"]),
        ("TG3002", 3, vec!["parks", "rm", "--connector", "shopify"]),
        ("TG3002", 3, vec!["groups", "resume", "nobody"]),
        ("TG2008", 2, vec!["queues", "ls", "--config", &bad_config]),
        ("TG2009", 2, vec!["queues", "ls", "--config", "no-such.toml"]),
        ("TG2008", 2, vec!["config", "check", &bad_config]),
        ("TG2008", 2, vec!["queues", "ls", "--store", "postgers://db/jobs"]),
        ("TG2008", 2, vec!["queues", "ls", "--store", "sqlite:"]),
        ("TG2003", 3, vec!["enqueue", "--from", &half]),
        ("TG2009", 2, vec!["enqueue", "--from", &field]),
        ("TG2009", 2, vec!["enqueue", "--from", &types]),
        ("TG2009", 2, vec!["enqueue", "--from", &no_kind]),
        ("TG2006", 2, vec!["enqueue", "--from", &twice]),
        ("TG2001", 2, vec!["queues", "set", "a b"]),
        ("TG2008", 2, vec!["queues", "set", "new", "--concurrency", "0"]),
        ("TG2008", 2, vec!["queues", "set", "new", "--concurrency", "-1"]),
        ("TG2008", 2, vec!["queues", "set", "new", "--limiter", "30"]),
        ("TG2008", 2, vec!["queues", "set", "new", "--retry", "hope"]),
        ("TG2008", 2, vec!["queues", "set", "new", "--weight", "1000"]),
        ("TG2005", 2, vec!["queues", "set", "new", "--max-wait", "-1s"]),
        ("TG2002", 3, vec!["queues", "pause", "no-such"]),
        ("TG3002", 3, vec!["queues", "resume", "billing"]),
        ("TG3001", 3, vec!["why", "job_01JD0000000000000000000000"]),
        ("TG2001", 2, vec!["why", "../../etc/passwd"]),
        ("TG3001", 3, vec!["jobs", "show", "job_01JD0000000000000000000000"]),
        ("TG3001", 3, vec!["jobs", "cancel", "job_01JD0000000000000000000000"]),
        ("TG4002", 4, vec!["jobs", "cancel", &completed]),
        ("TG4002", 4, vec!["jobs", "retry", &completed]),
        ("TG4002", 4, vec!["jobs", "retry", &running]),
        ("TG3006", 3, vec!["workers", "drain", "nobody"]),
        ("TG3005", 3, vec!["keys", "revoke", "000000000000"]),
        ("TG2009", 2, vec!["keys", "create", "--role", "king"]),
        ("TG2009", 2, vec!["completions", "tcsh"]),
        ("TG2005", 2, vec!["top", "--interval", "soon"]),
        ("TG4002", 4, vec!["dead", "recover", &completed]),
        ("TG4002", 4, vec!["dead", "resolve", &completed, "--as", "config_fix"]),
        ("TG2009", 2, vec!["dead", "resolve", &completed, "--as", "magic"]),
        ("TG2009", 2, vec!["dead", "recover"]),
        ("TG2009", 2, vec!["jobs", "cancel"]),
        ("TG2009", 2, vec!["jobs", "cancel", "--tenant", "acme", "--state", "completed", "--yes"]),
        ("TG2009", 2, vec!["jobs", "ls", "--state", "sleeping"]),
        ("TG2005", 2, vec!["jobs", "ls", "--since", "yesterday"]),
        ("TG2009", 2, vec!["jobs", "ls", "--limit", "0"]),
        ("TG2009", 2, vec!["explain", "TG9999"]),
        ("TG3003", 3, vec!["restore", "no-such.tidegate", "--dir", "elsewhere"]),
    ];
    for (code, exit, args) in cases {
        let ran = place.run(&args);
        assert_eq!(ran.code, exit, "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with(&format!("error[{code}]: ")), "{args:?} should be {code}: {}", ran.err);
        assert!(ran.err.contains("\n  hint: "), "{args:?}: {}", ran.err);
        assert!(ran.err.ends_with(&format!("  more: tidegate explain {code}\n")), "{args:?}: {}", ran.err);
        assert!(ran.out.is_empty(), "{args:?}: {}", ran.out);

        let mut with_json = args.clone();
        with_json.push("--json");
        let ran = place.run(&with_json);
        let error: serde_json::Value =
            serde_json::from_str(&ran.err).unwrap_or_else(|e| panic!("{e}: {}", ran.err));
        assert_eq!((ran.code, error["error"]["code"].as_str()), (exit, Some(code)), "{args:?}");
        assert!(error["error"]["message"].is_string() && error["error"]["hint"].is_string(), "{error}");
    }
    assert_eq!(count(&place), before, "nothing was stored");
    let after = place.run(&["queues", "ls", "--json"]).ok().json()["queues"].as_array().unwrap().len();
    assert_eq!(after, registry, "no queue was added");
}

#[tokio::test]
async fn errors_look_like_this() {
    let place = Place::default();
    let running = every_state(&place.data()).await.id("running");
    let said: Vec<String> = [
        &["enqueue", "invoice.sent"][..],
        &["enqueue", "invoice.send", "--delay", "-5s"],
        &["why", "job_01JD0000000000000000000000"],
        &["queues", "set", "billing", "--concurrency", "0"],
        &["jobs", "cancel", "--tenant", "acme"],
        &["jobs", "lss"],
        &["jobs", "retry", &running],
        &["work", "--kind", "invoice.send"],
        &["tail"],
    ]
    .iter()
    .map(|args| format!("$ tidegate {}\n{}\n", args.join(" "), place.run(args).err))
    .map(|said| said.replace(place.data().to_str().unwrap(), "DATA"))
    .collect();
    steady().bind(|| insta::assert_snapshot!(said.concat()));
}

#[test]
fn looking_does_not_make_a_data_directory() {
    let place = Place::default();
    for args in [
        &["jobs", "ls"][..],
        &["queues", "ls"],
        &["dead", "ls"],
        &["kinds", "ls"],
        &["why", "job_01JD0000000000000000000000"],
        &["backup", "x.tidegate"],
        &["queues", "pause", "billing"],
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, 3, "{args:?}: {}", ran.err);
        assert!(ran.err.contains("no data at "), "{}", ran.err);
        assert!(!place.data().exists(), "{args:?} made a directory");
    }
}

#[tokio::test]
async fn a_second_process_is_told_the_owner() {
    let place = Place::default();
    every_state(&place.data()).await;
    let store = SqliteStore::open(place.data(), now()).unwrap();
    let ran = place.run(&["queues", "ls"]);
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(ran.err.starts_with("error[TG5001]"), "{}", ran.err);
    assert!(ran.err.contains(&std::process::id().to_string()), "names the process: {}", ran.err);
    let flat = ran.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("let `tidegate serve` own it"), "says how to share it: {}", ran.err);
    // A backup needs no ownership.
    place.run(&["backup", "while-owned.tidegate"]).ok();
    store.close().await.unwrap();
    place.run(&["queues", "ls"]).ok();
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_error() {
    let place = Place::default();
    let mut fill = Filler::open(&place.data());
    fill.queue("billing", tidegate_core::registry::QueueSettings::default()).await;
    fill.kind("invoice.send", "billing").await;
    for _ in 0..500 {
        fill.add("invoice.send", "acme").await;
    }
    fill.close().await;
    let mut command = place.command(&["jobs", "ls", "--limit", "500", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut first = [0; 16];
    out.read_exact(&mut first).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn bulk_commands_ask_first() {
    let place = Place::default();
    every_state(&place.data()).await;
    let waiting = |place: &Place| {
        let found = place.run(&["jobs", "ls", "--tenant", "acme", "--state", "ready", "--json"]).ok().json();
        found["jobs"].as_array().unwrap().len()
    };
    let before = waiting(&place);
    assert!(before >= 2);
    let filter = ["jobs", "cancel", "--tenant", "acme", "--state", "ready"];
    let asked = place.run(&filter);
    assert_eq!(asked.code, 2, "{}", asked.err);
    assert!(asked.err.contains("--yes") && asked.err.contains("--dry-run"), "{}", asked.err);
    let dry = place.run(&[&filter[..], &["--dry-run"]].concat()).ok().out;
    assert!(dry.contains("nothing was changed") && dry.contains("job_"), "{dry}");
    assert_eq!(waiting(&place), before, "neither a question nor a dry run changes anything");
    let done = place.run(&[&filter[..], &["--yes", "--json"]].concat()).ok().json();
    assert_eq!(done["cancelled"], before);
    assert_eq!(waiting(&place), 0);
}

#[test]
fn a_wrong_command_is_a_usage_error() {
    let place = Place::default();
    for args in [&["nope"][..], &["jobs"], &["queues", "set"], &["jobs", "ls", "--limit", "x"]] {
        assert_eq!(finished(&mut place.command(args)).code, 2, "{args:?}");
    }
}

#[test]
fn what_other_programs_call_otherwise_is_pointed_at() {
    let place = Place::default();
    let said = |args: &[&str]| {
        let ran = place.run(args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.err);
        ran.err.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for args in
        [&["serve", "--port", "8080"][..], &["serve", "--addr=0.0.0.0:80"], &["serve", "--listen", "x"]]
    {
        let said = said(args);
        assert!(said.contains("tidegate serve --bind 127.0.0.1:7433") && !said.contains("tip:"), "{said}");
    }
    let redis = said(&["queues", "ls", "--store", "redis://127.0.0.1"]);
    assert!(redis.contains("redis:// is for gates (--gates), not for jobs"), "{redis}");
    assert!(redis.contains("hint: write a directory, sqlite:PATH, postgres://"), "{redis}");
}

#[test]
fn a_name_that_is_nearly_right_is_understood() {
    let place = Place::default();
    place.run(&["kinds", "set", "invoice.send", "--queue", "billing"]).ok();
    let rows = place.file("rows.jsonl", "{\"kind\":\"invoice.send\",\"queue\":\"biling\",\"data\":{}}\n");
    for args in [
        &["queues", "pause", "biling"][..],
        &["queues", "resume", "biling"],
        &["parks", "add", "--queue", "biling"],
        &["enqueue", "invoice.send", "--queue", "biling"],
        &["enqueue", "--from", &rows],
        &["work", "--queue", "biling", "--exec", "cat"],
    ] {
        let ran = place.run(args);
        let said = ran.err.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ");
        let meant = ["did you mean billing?", "did you mean --queue billing?"];
        assert!(ran.code == 3 && meant.iter().any(|meant| said.contains(meant)), "{args:?}: {said}");
    }
}

#[test]
fn help_without_colour_has_none() {
    for args in [&["--color", "never", "--help"][..], &["kinds", "--color=never", "--help"]] {
        // As on a terminal.
        let out = finished(Place::default().command(args).env("CLICOLOR_FORCE", "1")).ok().out;
        assert!(out.contains("Usage: tidegate") && !out.contains('\u{1b}'), "{out}");
    }
}
