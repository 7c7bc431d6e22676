//! `tidegate schedules`, as people and programs meet it.

use serde_json::json;

use crate::common::{Place, steady, wait_for};

fn place() -> Place {
    let place = Place::default();
    place.run(&["kinds", "set", "report.build", "--queue", "reports"]).ok();
    place
}

fn put(place: &Place, args: &[&str]) -> String {
    place.run(&[&["schedules", "put"], args].concat()).ok().out
}

#[test]
fn a_schedule_is_put_changed_paused_run_and_removed() {
    let place = place();
    let said = put(
        &place,
        &["nightly", "--kind", "report.build", "--cron", "0 3 * * *", "--zone", "America/Sao_Paulo"],
    );
    assert!(said.starts_with("Added schedule nightly: 0 3 * * * America/Sao_Paulo; next run "), "{said}");
    assert!(said.ends_with(" 03:00:00-03:00.\n"), "{said}");
    // What is not given stays.
    let said =
        put(&place, &["nightly", "--jitter", "30s", "--missed", "run_all:3", "--data", r#"{"full":true}"#]);
    assert!(said.starts_with("Changed schedule nightly: 0 3 * * * America/Sao_Paulo"), "{said}");
    assert!(put(&place, &["nightly", "--jitter", "30s"]).starts_with("Nothing to change"));
    let shown = place.run(&["schedules", "show", "nightly", "--json"]).ok().json();
    let settings = &shown["schedule"]["settings"];
    assert_eq!(settings["jitter"], "30s");
    assert_eq!((&settings["missed"], &settings["payload"]), (&json!({"run_all": 3}), &json!({"full": true})));
    assert!(
        place
            .run(&["schedules", "pause", "nightly", "--by", "ada"])
            .ok()
            .out
            .starts_with("Paused schedule nightly")
    );
    assert!(place.run(&["schedules", "ls"]).ok().out.contains("paused"));
    assert!(place.run(&["schedules", "resume", "nightly"]).ok().out.contains("next run"));
    let ran = place.run(&["schedules", "run", "nightly", "--json"]).ok().json();
    let again = place.run(&["schedules", "run", "nightly"]);
    assert_eq!(again.code, 4);
    assert!(again.err.contains("TG4020") && again.err.contains("is not finished"), "{}", again.err);
    let history = place.run(&["schedules", "history", "nightly", "--json"]).ok().json();
    assert_eq!(history["ticks"][0]["fired"]["job"], ran["job"]);
    let job = ran["job"].as_str().unwrap();
    assert!(place.run(&["schedules", "history", "nightly"]).ok().out.contains(job));
    let shown = place.run(&["schedules", "show", "nightly"]).ok().out;
    assert!(shown.contains("\nnext      20") && !shown.contains("next run"), "{shown}");
    put(&place, &["later", "--kind", "report.build", "--cron", "0 4 * * *", "--after", "nightly"]);
    let waited = place.run(&["schedules", "rm", "nightly"]);
    assert!(waited.code == 4 && waited.err.contains("schedules put later --after none"), "{}", waited.err);
    put(&place, &["later", "--after", "none"]);
    place.run(&["schedules", "rm", "nightly"]).ok();
    let gone = place.run(&["schedules", "show", "nightly"]);
    assert_eq!((gone.code, gone.err.contains("TG3020")), (3, true), "{}", gone.err);
    assert!(place.run(&["jobs", "show", job]).ok().out.contains("report.build"), "its job stays");
}

#[test]
fn what_comes_next_is_shown_before_there_is_a_schedule() {
    let place = Place::default();
    let next = place.run(&[
        "schedules",
        "next",
        "--cron",
        "30 2 * * *",
        "--zone",
        "America/New_York",
        "-n",
        "400",
        "--json",
    ]);
    let runs = next.ok().json()["runs"].clone();
    assert_eq!(runs.as_array().unwrap().len(), 400);
    assert!(
        runs.as_array().unwrap().iter().any(|r| r["local"].as_str().unwrap().contains("T03:00:00-04:00"))
    );
    let text = place.at(80, &["schedules", "next", "--every", "90s", "-n", "3"]);
    assert_eq!(text.lines().count(), 4, "{text}");
}

/// A document that describes the schedule, and then no longer does.
fn retire(place: &Place, schedule: &str) {
    let idle = "[kinds.\"report.build\"]\nqueue = \"reports\"\n";
    for document in [format!("{idle}schedule = {schedule}\n"), idle.to_owned()] {
        let file = place.file("registry.toml", &document);
        place.run(&["registry", "apply", &file]).ok();
    }
}

#[test]
fn what_comes_next_says_if_nothing_runs() {
    let place = place();
    let next = |args: &[&str]| place.run(&[&["schedules", "next"], args].concat()).ok();
    retire(&place, "{ every = \"1h\" }");
    assert_eq!(next(&["report.build"]).out, "none: its document no longer has it; its history stays\n");
    let json = next(&["report.build", "--json"]).json();
    assert!(json["retired"].is_string() && json["runs"] == json!([]), "{json}");
    put(&place, &["hourly", "--kind", "report.build", "--every", "1h"]);
    let json = next(&["hourly", "-n", "3", "--json"]).json();
    assert_eq!(json["runs"].as_array().unwrap().len(), 3);
    assert!(json["paused"].is_null() && json["overdue"].is_null(), "{json}");
    place.run(&["schedules", "pause", "hourly", "--by", "ada"]).ok();
    let text = next(&["hourly", "-n", "3"]).out;
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("Paused by ada since "), "{text}");
    assert!(first.ends_with(": these would be its runs if it were resumed now."), "{text}");
    assert_eq!(text.lines().count(), 5, "{text}");
    assert_eq!(next(&["hourly", "--json"]).json()["paused"]["by"], "ada");
}

#[test]
fn what_can_be_done_about_a_retired_schedule_is_said() {
    let place = place();
    retire(&place, "{ every = \"1h\" }");
    for verb in ["pause", "resume", "run"] {
        let ran = place.run(&["schedules", verb, "report.build"]);
        assert_eq!(ran.code, 4, "{}", ran.err);
        let said = ran.err.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("TG4020") && said.contains("registry.toml again and apply that"), "{said}");
        assert!(said.contains("tidegate schedules put report.build --kind report.build"), "{said}");
    }
}

#[test]
fn what_changes_nothing_does_not_claim_to() {
    let place = place();
    put(&place, &["hourly", "--kind", "report.build", "--every", "1h"]);
    let said = |args: &[&str]| place.run(&[&["schedules"], args].concat()).ok().out;
    assert!(said(&["resume", "hourly"]).starts_with("Schedule hourly was not paused; next run "));
    said(&["pause", "hourly", "--by", "ada"]);
    assert_eq!(said(&["pause", "hourly", "--by", "bob"]), "Schedule hourly was paused already, by ada.\n");
    assert!(said(&["resume", "hourly"]).starts_with("Resumed schedule hourly; next run "));
}

#[test]
fn a_single_time_that_has_passed_is_refused_unless_it_is_there_already() {
    let place = place();
    let once = |at: &str| place.run(&["schedules", "put", "once", "--kind", "report.build", "--at", at]);
    let past = once("2020-01-01T00:00:00Z");
    assert_eq!(past.code, 2, "{}", past.err);
    assert!(past.err.contains("at: 2020-01-01T00:00:00.000Z has passed, it would never run"), "{}", past.err);
    assert_eq!(place.run(&["schedules", "ls", "--json"]).ok().json()["schedules"], json!([]));
    let soon = (jiff::Timestamp::now() + jiff::Span::new().seconds(2)).to_string();
    assert!(once(&soon).ok().out.starts_with("Added schedule once"));
    wait_for("its time", || jiff::Timestamp::now().to_string() > soon);
    assert!(once(&soon).ok().out.starts_with("Nothing to change in schedule once"));
}

#[test]
fn a_run_that_nobody_fires_is_overdue_and_not_listed() {
    let place = place();
    put(&place, &["quick", "--kind", "report.build", "--every", "1s"]);
    let next = |args: &[&str]| place.run(&[&["schedules", "next", "quick"], args].concat()).ok();
    wait_for("an overdue run", || next(&["--json"]).json()["overdue"].is_string());
    let json = next(&["--json"]).json();
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 10);
    assert!(json["overdue"].as_str() < runs[0]["planned"].as_str(), "{json}");
    let text = next(&[]).out;
    let says = " is overdue: nobody fires schedules; start `tidegate serve` or a worker.";
    assert!(text.lines().next().unwrap().ends_with(says), "{text}");
    assert_eq!(text.lines().count(), 12, "{text}");
    assert!(!text.contains(" 0 s"), "{text}");
    // A pause does not make it forgotten.
    place.run(&["schedules", "pause", "quick", "--by", "ada"]).ok();
    let paused = next(&["--json"]).json();
    assert_eq!((&paused["missed"], &paused["overdue"]), (&json["overdue"], &json!(null)), "{paused}");
    let text = next(&[]).out;
    let says = ": when it is resumed, its rule for missed ticks decides.";
    assert!(text.lines().nth(1).unwrap().ends_with(says), "{text}");
    assert_eq!(text.lines().count(), 13, "{text}");
}

#[test]
fn a_schedule_in_the_place_of_a_retired_one_keeps_nothing_of_it() {
    let place = place();
    put(&place, &["first", "--kind", "report.build", "--every", "1h"]);
    retire(
        &place,
        "{ cron = \"0 3 * * *\", zone = \"America/Sao_Paulo\", after = [\"first\"], payload = { full = true } }",
    );
    let unsaid = place.run(&["schedules", "put", "report.build", "--every", "1h"]);
    assert!(unsaid.code != 0 && unsaid.err.contains("is new and has no kind"), "{}", unsaid.err);
    let said = put(&place, &["report.build", "--kind", "report.build", "--every", "1h"]);
    assert!(said.starts_with("Added schedule report.build: every 1h; next run "), "{said}");
    let shown = place.run(&["schedules", "show", "report.build", "--json"]).ok().json();
    let settings = json!({"every": "1h", "overlap": "skip", "missed": "run_once"});
    assert_eq!(shown["schedule"]["settings"], settings);
}

#[test]
fn a_payload_that_does_not_fit_is_refused_when_the_schedule_is_put() {
    let place = place();
    let document = "[kinds.\"invoice.send\"]\nqueue = \"reports\"\n[kinds.\"invoice.send\".schema]\ntype = \"object\"\n\
         required = [\"order\"]\n[kinds.\"invoice.send\".schema.properties]\norder = { type = \"integer\" }\n";
    let file = place.file("registry.toml", document);
    place.run(&["registry", "apply", &file]).ok();
    let args = ["schedules", "put", "mine", "--kind", "invoice.send", "--every", "2s"];
    let wrong: [&[&str]; 2] = [&[], &["--data", r#"{"order":"1"}"#]];
    for data in wrong {
        let ran = place.run(&[&args[..], data].concat());
        let says = "the payload does not fit kind `invoice.send`: ";
        assert!(ran.code == 2 && ran.err.contains("TG2004") && ran.err.contains(says), "{}", ran.err);
    }
    put(&place, &["mine", "--kind", "invoice.send", "--every", "2s", "--data", r#"{"order":1}"#]);
}

#[test]
fn mistakes_are_named_with_the_field() {
    let place = place();
    for (args, says) in [
        (vec!["s", "--cron", "0 3 * * *"], "has no kind"),
        (
            vec!["s", "--kind", "report.build", "--cron", "0 25 * * *"],
            "cron: hour: 25 is not between 0 and 23",
        ),
        (vec!["s", "--kind", "report.build", "--every", "1m", "--overlap", "maybe"], "overlap:"),
        (
            vec!["s", "--kind", "report.build", "--every", "1m", "--jitter", "1m"],
            "jitter: runs put off by up to",
        ),
        (vec!["s", "--kind", "report.build", "--every", "1m", "--missed", "run_all"], "missed:"),
        (vec!["s", "--kind", "report.build"], "one of `cron`, `every` and `at`"),
        (vec!["s", "--kind", "nobody", "--every", "1m"], "kind `nobody` is not registered"),
    ] {
        let ran = place.run(&[&["schedules", "put"], args.as_slice()].concat());
        assert!(ran.code != 0 && ran.err.contains(says), "{args:?}: {}", ran.err);
    }
}

#[test]
fn the_next_run_is_shown_by_the_clock_of_its_schedule() {
    let place = place();
    let noon =
        (jiff::Timestamp::now() + jiff::Span::new().hours(72)).strftime("%Y-%m-%dT12:00:00").to_string();
    for (name, zone) in [("saopaulo", "America/Sao_Paulo"), ("kolkata", "Asia/Kolkata"), ("utc", "UTC")] {
        put(&place, &[name, "--kind", "report.build", "--at", &noon, "--zone", zone]);
    }
    let text = place.at(120, &["schedules", "ls"]);
    let line = |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap();
    for (name, next) in [("saopaulo", " 12:00 -03 "), ("kolkata", " 12:00 +05:30 "), ("utc", " 12:00Z ")] {
        assert!(line(name).contains(next), "{text}");
    }
    let json = place.run(&["schedules", "ls", "--json"]).ok().json();
    assert!(json["schedules"][0]["next"].as_str().unwrap().contains("T06:30:00"), "{json}");
}

#[test]
fn a_deep_path_of_a_document_leaves_room_for_the_rest() {
    let place = place();
    let dir = place.dir.path().join("a-rather-deep-directory/of-our/deployment/billing");
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("registry.toml");
    let document = "[kinds.\"report.build\"]\nqueue = \"reports\"\nschedule = { cron = \"0 3 * * *\", zone = \"America/Sao_Paulo\" }\n";
    std::fs::write(&path, document).unwrap();
    let path = path.to_str().unwrap();
    place.run(&["registry", "apply", path]).ok();
    let text = place.at(120, &["schedules", "ls"]);
    for column in ["SCHEDULE", "KIND", "WHEN", "NEXT", "LAST", "RESULT", "WAITING", "MANAGED BY"] {
        assert!(text.contains(column), "{column} is missing:\n{text}");
    }
    assert!(text.contains("0 3 * * * America/Sao_Paulo ") && text.contains("  …/"), "{text}");
    assert!(text.lines().nth(1).unwrap().ends_with("/registry.toml"), "{text}");
    let narrow = place.at(80, &["schedules", "ls"]);
    assert!(["WHEN", "NEXT", "LAST", "RESULT"].iter().all(|column| narrow.contains(column)), "{narrow}");
    let json = place.run(&["schedules", "ls", "--json"]).ok().json();
    assert_eq!(json["schedules"][0]["document"], path, "whole for programs");
}

#[test]
fn at_100_columns_names_are_whole_and_it_is_seen_who_manages_them() {
    let place = place();
    let document = "[kinds.daily-feature-aggregates]\nqueue = \"reports\"\n\
         schedule = { cron = \"15 4 * * *\", zone = \"America/Sao_Paulo\" }\n";
    let file = place.file("registry.toml", document);
    place.run(&["registry", "apply", &file]).ok();
    place.run(&["schedules", "run", "daily-feature-aggregates"]).ok();
    let text = place.at(100, &["schedules", "ls"]);
    let row = text.lines().nth(1).unwrap();
    assert!(row.starts_with("daily-feature-aggregates  ") && row.ends_with("stry.toml"), "{text}");
    assert!(text.contains("MANAGED BY") && text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn tables_fit_80_and_120_columns() {
    let place = place();
    put(&place, &["nightly", "--kind", "report.build", "--cron", "0 3 * * *", "--zone", "America/Sao_Paulo"]);
    put(
        &place,
        &[
            "a-schedule-with-a-rather-long-name",
            "--kind",
            "report.build",
            "--cron",
            "0 0 1 1 *",
            "--after",
            "nightly",
        ],
    );
    put(&place, &["stopped", "--kind", "report.build", "--every", "365d"]);
    place.run(&["schedules", "pause", "stopped"]).ok();
    place.run(&["schedules", "run", "nightly"]).ok();
    steady().bind(|| {
        for columns in [80, 120] {
            for (name, args) in
                [("ls", vec!["schedules", "ls"]), ("history", vec!["schedules", "history", "nightly"])]
            {
                let text = place.at(columns, &args);
                for line in text.lines() {
                    assert!(line.chars().count() <= usize::from(columns), "wider than {columns}:\n{text}");
                    assert_eq!(line.trim_end(), line, "trailing space in:\n{text}");
                }
                assert!(text.lines().count() >= 2, "{name}:\n{text}");
            }
        }
    });
}

#[test]
fn a_backfill_fills_each_date_once() {
    let place = place();
    let fill = |more: &[&str]| {
        let args = [
            "schedules",
            "backfill",
            "report.build",
            "--from",
            "2026-10-18",
            "--to",
            "2026-11-14",
            "--data",
            "{\"b\":1}",
        ];
        place.run(&[&args[..], more].concat())
    };
    assert!(fill(&["--dry-run"]).ok().out.contains("Would enqueue 28 jobs"));
    assert!(fill(&[]).ok().out.starts_with("Enqueued 28 jobs of report.build: 2026-10-18 to 2026-11-14"));
    let nothing = "Nothing to enqueue of report.build: all 28 dates from 2026-10-18 to 2026-11-14 had been filled before.";
    assert!(fill(&[]).ok().out.starts_with(nothing));
    let more =
        place.run(&["schedules", "backfill", "report.build", "--from", "2026-11-13", "--to", "2026-11-15"]);
    assert!(more.ok().out.contains("Enqueued 1 job of report.build"));
    let again = fill(&["--label", "v2", "--json"]).ok().json();
    assert_eq!((&again["created"], &again["kept"]), (&json!(28), &json!(0)));
    let days = place
        .run(&["schedules", "backfill", "report.build", "--days", "28", "--label", "v3", "--json"])
        .ok()
        .json();
    assert_eq!(days["created"], 28);
}
