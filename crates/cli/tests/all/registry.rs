//! Documents of the registry, by running the program.

use crate::common::{Place, Serving, wait_for};
use rustix::process::{Signal, kill_process};
use serde_json::json;

const INVOICES: &str = r#"
[queues.billing]
concurrency = 5

[kinds."invoice.send"]
queue = "billing"
timeout = "45s"
on = ["order.paid"]
[kinds."invoice.send".schema]
type = "object"
required = ["order"]
additionalProperties = false
[kinds."invoice.send".schema.properties]
order = { type = "integer" }
copies = { type = "integer", default = 1 }
card = { type = "string", x-secret = true }
"#;

fn example() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/communities/registry.toml").to_owned()
}

#[test]
fn the_example_is_validated_without_a_store() {
    let place = Place::default();
    let said = place.run(&["registry", "validate", &example(), "--json"]).ok().json();
    assert_eq!((&said["valid"], &said["kinds"], &said["queues"]), (&json!(true), &json!(16), &json!(8)));
    assert!(!place.data().exists(), "no store was made");
    let shown = place.run(&["registry", "show", "--file", &example(), "--json"]).ok().json();
    assert_eq!(shown["kinds"]["community-graph-build"]["timeout_ms"], 900_000);
}

#[test]
fn every_mistake_of_a_document_is_named_with_its_place() {
    let place = Place::default();
    let bad = place.file(
        "bad.toml",
        "[queues.a]\nweigth = 2\n[kinds.\"x.y\"]\nqueue = \"b\"\ntimeout_ms = \"soon\"\npriority = \"urgent\"\n\
         retry = { max_attempts = 3 }\nschema = { typ = \"object\" }\nfailures = { GONE = \"INVALID\" }\n[kinds.z]\n",
    );
    let ran = place.run(&["registry", "validate", &bad]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    for part in [
        "TG2050",
        "queues.a.weigth: there is no such setting; did you mean `weight`?",
        "kinds.\"x.y\".timeout_ms: it is text, it should be a whole number",
        "kinds.\"x.y\".priority:",
        "kinds.\"x.y\".retry.backoff: it is missing",
        "kinds.\"x.y\".schema.typ: this keyword is not supported; did you mean `type`?",
        "kinds.\"x.y\".failures.GONE: \"INVALID\" is no category of failures",
        "kinds.z.queue: it is missing",
        "nothing was changed",
    ] {
        assert!(ran.err.contains(part), "{part} in {}", ran.err);
    }
}

#[test]
fn a_document_is_applied_compared_listed_and_taken_back() {
    let place = Place::default();
    let file = place.file("registry.toml", INVOICES);
    let first = place.run(&["registry", "apply", &file, "--json"]).ok().json();
    assert_eq!((&first["version"], first["changes"].as_array().unwrap().len()), (&json!(1), 2));
    let again = place.run(&["registry", "apply", &file, "--json"]).ok().json();
    assert_eq!((&again["version"], &again["unchanged"]), (&json!(null), &json!(2)));
    let file = place.file("registry.toml", &INVOICES.replace("45s", "60s"));
    let diff = place.run(&["registry", "diff", &file]).ok().out;
    assert!(diff.contains("timeout_ms: 45000 → 60000") && diff.contains("nothing was changed"), "{diff}");
    place.run(&["registry", "apply", &file]).ok();
    let shown = || place.run(&["registry", "show", "--json"]).ok().json();
    assert_eq!(shown()["kinds"]["invoice.send"]["timeout_ms"], 60_000);
    let back = place.run(&["registry", "rollback", "1"]).ok().out;
    assert!(back.contains("This is version 3."), "{back}");
    assert_eq!(shown()["kinds"]["invoice.send"]["timeout_ms"], 45_000);
    let history = place.run(&["registry", "history", "--json"]).ok().json();
    let sources: Vec<_> =
        history["versions"].as_array().unwrap().iter().map(|v| v["number"].clone()).collect();
    assert_eq!(sources, [3, 2, 1]);
    // What is shown can be applied again, and changes nothing.
    let text = place.run(&["registry", "show"]).ok().out;
    let copy = place.file("copy.toml", &text);
    assert_eq!(
        place.run(&["registry", "apply", &copy, "--json"]).ok().json()["changes"],
        json!([]),
        "{text}"
    );
}

#[test]
fn payloads_are_checked_and_secrets_are_not_shown() {
    let place = Place::default();
    let file = place.file("registry.toml", INVOICES);
    place.run(&["registry", "apply", &file]).ok();
    let refused = place.run(&["enqueue", "invoice.send", "--data", r#"{"order":"7","cpoies":2}"#]);
    assert_eq!(refused.code, 2);
    for part in ["TG2004", "/order: expected integer, found string", "did you mean \"copies\"?"] {
        assert!(refused.err.contains(part), "{part} in {}", refused.err);
    }
    let secret = r#"{"order":7,"card":"4111-hidden"}"#;
    let reply = place.run(&["enqueue", "invoice.send", "--data", secret, "--json"]).ok().json();
    let id = reply["jobs"][0]["id"].as_str().unwrap().to_owned();
    for args in [&["jobs", "show", &id][..], &["jobs", "show", &id, "--json"], &["jobs", "ls", "--json"]] {
        let out = place.run(args).ok().out;
        assert!(!out.contains("4111-hidden"), "{out}");
    }
    assert!(place.run(&["jobs", "show", &id]).ok().out.contains("***"));
    let handed =
        place.run(&["work", "--kind", "invoice.send", "--exec", "cat", "--until-idle", "--json"]).ok();
    assert!(!handed.err.contains("4111-hidden"));
}

#[test]
fn a_kind_that_a_document_describes_is_not_changed_beside_it() {
    let place = Place::default();
    let file = place.file("registry.toml", INVOICES);
    place.run(&["registry", "apply", &file]).ok();
    let refused = place.run(&["kinds", "set", "invoice.send", "--timeout", "1s"]);
    assert_eq!(refused.code, 4);
    assert!(refused.err.starts_with("error[TG4030]: kind invoice.send is described by "), "{}", refused.err);
    assert!(refused.err.contains("tidegate registry apply FILE"), "{}", refused.err);
    let kinds = place.run(&["kinds", "ls", "--json"]).ok().json();
    assert_eq!(kinds["kinds"][0]["settings"]["timeout_ms"], 45_000);
}

#[test]
fn a_server_reloads_its_file_on_change_and_on_sighup_and_keeps_the_old_one_if_it_is_wrong() {
    let place = Place::default();
    let file = place.file("registry.toml", INVOICES);
    let server = Serving::start(&place, &["--registry", &file]);
    let timeout = || {
        let shown = server.run(&place, &["registry", "show", "--json"]).ok().json();
        shown["kinds"]["invoice.send"]["timeout_ms"].as_u64().unwrap()
    };
    let newest = || server.run(&place, &["registry", "history", "--json"]).ok().json()["versions"][0].clone();
    assert_eq!(timeout(), 45_000, "applied at start");
    place.file("registry.toml", &INVOICES.replace("45s", "50s"));
    wait_for("the changed file", || timeout() == 50_000);
    place.file(
        "registry.toml",
        &INVOICES.replace("45s", "never").replace("concurrency = 5", "concurrency = 6"),
    );
    wait_for("the refusal", || newest()["outcome"] == "refused");
    assert_eq!(newest()["problems"][0]["path"], "kinds.\"invoice.send\".timeout");
    let queues = server.run(&place, &["registry", "show", "--json"]).ok().json();
    assert_eq!(
        (timeout(), &queues["queues"]["billing"]["concurrency"]),
        (50_000, &json!(5)),
        "the old one stays"
    );
    // By other means, then back to what the file says, which did not change.
    place.file("registry.toml", INVOICES);
    wait_for("the file that is right again", || timeout() == 45_000);
    server.run(&place, &["registry", "rollback", "2"]).ok();
    assert_eq!(timeout(), 50_000);
    kill_process(server.pid(), Signal::HUP).unwrap();
    wait_for("the file on SIGHUP", || timeout() == 45_000);
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_server_does_not_start_without_the_file_it_was_told_of() {
    let place = Place::default();
    let refused = place.run(&["serve", "--bind", "127.0.0.1:0", "--registry", "registri.toml"]);
    assert!(refused.code != 0 && refused.err.contains("registri.toml could not be read"), "{}", refused.err);
    assert!(!place.data().exists(), "nothing is left behind");
}

/// By the command line, by a changed file, on SIGHUP and by a rollback: the schedule and the alert are what the document says.
#[test]
fn schedules_and_alerts_follow_the_file_of_a_server() {
    let place = Place::default();
    let timed = INVOICES.replace("timeout", "schedule = { cron = \"0 3 * * *\", payload = { order = 1, card = \"4111-hidden\" } }\nalerts = [\"failed\"]\ntimeout");
    let file = place.file("registry.toml", &timed);
    let server = Serving::start(&place, &["--registry", &file]);
    let schedule = || {
        let shown = server.run(&place, &["schedules", "show", "invoice.send", "--json"]).ok().json();
        shown["schedule"].clone()
    };
    let watched = || {
        let rules = server.run(&place, &["alerts", "rules", "--json"]).ok().json();
        let mine = |r: &serde_json::Value| r["id"] == "failed" && r["on"] == json!(["invoice.send"]);
        rules["rules"].as_array().unwrap().iter().any(mine)
    };
    assert!(schedule()["document"].as_str().unwrap().ends_with("registry.toml") && watched());
    let listed = server.run(&place, &["schedules", "ls", "--json"]).ok();
    assert!(!listed.out.contains("4111-hidden"), "{}", listed.out);
    let refused = server.run(&place, &["schedules", "put", "invoice.send", "--cron", "0 4 * * *"]);
    assert!(refused.err.contains("TG4021") && refused.err.contains("registry.toml"), "{}", refused.err);
    server.run(&place, &["schedules", "pause", "invoice.send", "--by", "ada"]).ok();
    place.file("registry.toml", &timed.replace("0 3 * * *", "0 5 * * *"));
    wait_for("the changed file", || schedule()["settings"]["cron"] == "0 5 * * *");
    assert_eq!(schedule()["paused"]["by"], "ada", "it stays paused");
    place.file("registry.toml", INVOICES);
    wait_for("the file without it", || schedule()["retired"].is_string());
    assert!(!watched());
    server.run(&place, &["registry", "rollback", "1"]).ok();
    let back = schedule();
    assert_eq!(
        (&back["settings"]["cron"], &back["retired"]),
        (&json!("0 3 * * *"), &serde_json::Value::Null)
    );
    assert!(watched());
    kill_process(server.pid(), Signal::HUP).unwrap();
    wait_for("the file on SIGHUP", || schedule()["retired"].is_string());
    assert_eq!(server.stop(), 0);
}
