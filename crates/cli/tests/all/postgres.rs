//! The same commands on a Postgres database, alone and beside others.

use std::fmt::Write as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{Place, Ran, finished, wait_for};
use serde_json::Value;

/// A schema of its own in the database of this process.
struct Database {
    place: Place,
    url: String,
}

impl Database {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let url = tidegate_testbed::postgres::url();
        let joint = if url.contains('?') { '&' } else { '?' };
        let schema = format!("cli_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self { place: Place::default(), url: format!("{url}{joint}schema={schema}") }
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.place.command(args);
        command.env_remove("TIDEGATE_DATA").env("TIDEGATE_STORE", &self.url);
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        finished(&mut self.command(args))
    }

    fn job(&self, id: &str) -> Value {
        self.run(&["jobs", "show", id, "--json"]).ok().json()
    }
}

#[test]
fn a_database_is_migrated_when_asked_and_looking_changes_nothing() {
    let db = Database::new();
    let looked = db.run(&["queues", "ls"]);
    assert_eq!(looked.code, 5, "{}", looked.err);
    assert!(looked.err.contains("`tidegate migrate`"), "{}", looked.err);
    let planned = db.run(&["migrate", "--dry-run"]).ok().out;
    assert!(planned.contains("nothing was changed"), "{planned}");
    let sql = db.run(&["migrate", "--dry-run", "--sql"]).ok().out;
    assert!(sql.contains("CREATE TABLE"));
    let steps = sql.split("\n\n-- 00");
    assert!(steps.clone().all(|step| step.trim_end().ends_with(';')), "each ends, for `psql -f`");
    assert!(steps.count() > 5 && sql.starts_with("BEGIN;") && sql.ends_with("COMMIT;\n"));
    assert_eq!(db.run(&["queues", "ls"]).code, 5, "a dry run is dry");
    db.run(&["migrate"]).ok();
    assert_eq!(db.run(&["migrate"]).ok().out, "The schema is up to date.\n");
    db.run(&["queues", "ls"]).ok();
    assert_eq!(db.place.run(&["migrate"]).code, 2, "a directory has nothing to migrate");
}

#[test]
fn workers_of_several_processes_share_it_and_are_seen() {
    let db = Database::new();
    db.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let mut text = String::new();
    for n in 0..200 {
        writeln!(text, "{{\"kind\":\"hello\",\"data\":{n}}}").unwrap();
    }
    let file = db.place.file("jobs.jsonl", &text);
    let work = |name: &str| {
        let args = ["work", "--kind", "hello", "--exec", "cat", "--name", name, "--until-idle", "--json"];
        db.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let enqueued = db.run(&["enqueue", "--from", &file, "--json"]).ok().json();
    assert_eq!(enqueued["enqueued"], 200);
    let (one, two) = (work("one"), work("two"));
    let mut completed = 0;
    for child in [one, two] {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        completed += report["attempts"]["completed"].as_u64().unwrap();
    }
    assert_eq!(completed, 200, "each once");
    let id = enqueued["jobs"][7]["id"].as_str().unwrap();
    assert_eq!((&db.job(id)["state"], &db.job(id)["result"]), (&"completed".into(), &7.into()));
    let told = db.run(&["doctor", "--json"]).ok().json();
    let names: Vec<&str> =
        told["checks"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"version") && names.contains(&"clock"), "{told:#}");
}

#[test]
fn a_worker_elsewhere_can_be_watched_cancelled_and_drained() {
    let db = Database::new();
    db.run(&["migrate"]).ok();
    let mut tail = db.command(&["tail", "--event", "cancelled", "--limit", "1", "--json"]);
    let tail = tail.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let args =
        ["work", "--kind", "hello", "--exec", "exec sleep 60", "--name", "far", "--grace", "1s", "--json"];
    let mut worker = db.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the worker", || {
        let seen = db.run(&["workers", "ls", "--json"]);
        seen.code == 0 && seen.json()["workers"][0]["name"] == "far"
    });
    let reply = db.run(&["enqueue", "hello", "--json"]).ok().json();
    let id = reply["jobs"][0]["id"].as_str().unwrap().to_owned();
    wait_for("the start", || db.job(&id)["state"] == "running");
    db.run(&["jobs", "cancel", &id]).ok();
    wait_for("the cancel", || db.job(&id)["state"] == "cancelled");
    let heard = tail.wait_with_output().unwrap();
    let event: Value = serde_json::from_slice(&heard.stdout).unwrap();
    assert_eq!((&event["event"], &event["id"]), (&"cancelled".into(), &id.into()));
    db.run(&["workers", "drain", "far"]).ok();
    assert!(worker.wait().unwrap().success());
}

#[test]
fn the_demo_proves_its_invariants_on_it_too() {
    let db = Database::new();
    let ran = db.run(&["demo", "--seconds", "3", "--json", "--store", &db.url]);
    let summary = ran.json();
    assert_eq!(ran.code, 0, "{summary:#}\n{}", ran.err);
    assert_eq!(summary["jobs"]["lost"], 0);
    let broken = summary["invariants"].as_array().unwrap().iter().filter(|i| i["ruling"] == "broken").count();
    assert_eq!(broken, 0, "{summary:#}");
    let again = db.run(&["demo", "--seconds", "1", "--store", &db.url]);
    assert_eq!(again.code, 4, "data is never mixed with a demo's: {}", again.err);
}

#[test]
fn a_database_out_of_reach_is_said_without_its_password() {
    let place = Place::default();
    let ran = place.run(&["queues", "ls", "--store", "postgres://me:hunter2@127.0.0.1:1/jobs"]);
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(ran.err.contains("error[TG5") && !ran.err.contains("hunter2"), "{}", ran.err);
}
