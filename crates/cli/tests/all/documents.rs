//! Which document is which, what is said of one, and what a refusal leaves behind: nothing.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tidegate_core::registry::{Format, Reading};

use crate::common::{Place, Ran, Serving, finished, wait_for};

const NIGHTLY: &str = "[queues.q]\n[kinds.nightly]\nqueue = \"q\"\nschedule = { cron = \"0 3 * * *\" }\n[kinds.report]\nqueue = \"q\"\n";
const REPORT: &str = "[queues.q]\n[kinds.report]\nqueue = \"q\"\n";

fn retired(place: &Place) -> bool {
    place.run(&["schedules", "show", "nightly", "--json"]).ok().json()["schedule"]["retired"].is_string()
}

fn example() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/communities/registry.toml").to_owned()
}

#[test]
fn a_file_is_the_same_document_however_its_path_is_written() {
    let place = Place::default();
    let whole = place.file("reg.toml", NIGHTLY);
    std::fs::create_dir(place.dir.path().join("sub")).unwrap();
    for other in [whole.as_str(), "./reg.toml", "sub/../reg.toml"] {
        place.file("reg.toml", NIGHTLY);
        place.run(&["registry", "apply", "reg.toml"]).ok();
        assert!(!retired(&place));
        place.file("reg.toml", REPORT);
        let said = place.run(&["registry", "diff", other]).ok().out;
        assert!(said.contains("retire schedule nightly") && !said.contains("Left alone"), "{other}: {said}");
        place.run(&["registry", "apply", other]).ok();
        assert!(retired(&place), "{other}");
    }
    let source = place.run(&["registry", "history", "--json"]).ok().json()["versions"][0]["source"].clone();
    assert_eq!(source, json!(whole));
}

/// What `current` leads to is another directory with every release; the document stays.
#[test]
fn a_symbolic_link_is_part_of_the_name() {
    let place = Place::default();
    let at = |name: &str| place.dir.path().join(name);
    for (release, text) in [("7", NIGHTLY), ("8", REPORT)] {
        std::fs::create_dir(at(release)).unwrap();
        std::fs::write(at(release).join("reg.toml"), text).unwrap();
    }
    std::os::unix::fs::symlink(at("7"), at("current")).unwrap();
    place.run(&["registry", "apply", "current/reg.toml"]).ok();
    std::fs::remove_file(at("current")).unwrap();
    std::os::unix::fs::symlink(at("8"), at("current")).unwrap();
    // From inside, as a shell that went there names it.
    let mut inside = place.command(&["registry", "apply", "reg.toml"]);
    inside.current_dir(at("current")).env("PWD", at("current"));
    finished(&mut inside).ok();
    assert!(retired(&place));
    // A directory that is not where we are says nothing.
    let mut elsewhere = place.command(&["registry", "apply", "reg.toml"]);
    elsewhere.current_dir(at("7")).env("PWD", at("8"));
    finished(&mut elsewhere).ok();
    let newest = place.run(&["registry", "history", "--json"]).ok().json()["versions"][0].clone();
    let there = std::fs::canonicalize(at("7")).unwrap().join("reg.toml");
    assert_eq!(newest["source"], json!(there.to_str().unwrap()));
}

#[test]
fn a_document_that_has_a_name_is_the_same_from_wherever_it_comes() {
    let place = Place::default();
    place.file("a.toml", NIGHTLY);
    place.run(&["registry", "apply", "a.toml"]).ok();
    std::fs::create_dir(place.dir.path().join("moved")).unwrap();
    let renamed = place.file("moved/a.toml", REPORT);
    let said = place.run(&["registry", "apply", &renamed]).ok().out;
    let known = place.dir.path().join("a.toml").display().to_string();
    for part in [
        format!("Left alone, because it is not named: schedule nightly (of {known})"),
        format!("`document = {known:?}` at its top says so"),
    ] {
        assert!(said.contains(&part), "{part} in {said}");
    }
    assert!(!retired(&place));
    let told = place.run(&["registry", "apply", &renamed, "--json"]).ok().json();
    assert_eq!(told["left"][0], json!({"what": "schedule", "name": "nightly", "document": known}));
    place.file("moved/a.toml", &format!("document = {known:?}\n{REPORT}"));
    let said = place.run(&["registry", "apply", &renamed]).ok().out;
    assert!(said.contains("retire schedule nightly"), "{said}");
    assert!(retired(&place));
    // What it once had and no longer names is its own: nobody is asked whose it is.
    let said = place.run(&["registry", "apply", &renamed]).ok().out;
    assert!(said.ends_with("Left alone, because it is not named: kind nightly.\n"), "{said}");
    // From standard input, by its name.
    let piped = |text: &str| -> Ran {
        let mut command = place.command(&["registry", "apply", "-"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { out: text(output.stdout), err: text(output.stderr), code: output.status.code().unwrap_or(-1) }
    };
    piped(&format!("document = \"nights\"\n{NIGHTLY}")).ok();
    assert!(!retired(&place));
    let named = place.file("c.toml", &format!("document = \"nights\"\n{REPORT}"));
    place.run(&["registry", "apply", &named]).ok();
    assert!(retired(&place));
    let shown = place.run(&["registry", "show", "--file", &named]).ok().out;
    assert!(shown.starts_with("document = \"nights\""), "{shown}");
}

#[test]
fn a_document_that_gets_a_name_still_ends_what_it_had_as_a_file() {
    let place = Place::default();
    place.file("reg.toml", NIGHTLY);
    place.run(&["registry", "apply", "reg.toml"]).ok();
    place.file("reg.toml", &format!("document = \"billing\"\n{NIGHTLY}"));
    let said = place.run(&["registry", "apply", "reg.toml"]).ok().out;
    assert!(said.contains("→ \"billing\"") && !said.contains("Left alone"), "{said}");
    place.file("reg.toml", &format!("document = \"billing\"\n{REPORT}"));
    let said = place.run(&["registry", "apply", "reg.toml"]).ok().out;
    assert!(said.contains("retire schedule nightly"), "{said}");
    assert!(retired(&place));
}

/// Nobody is told to take another team's document.
#[test]
fn only_a_name_that_may_have_been_its_own_is_offered() {
    let place = Place::default();
    let said = |owner: &str| {
        let named = format!("document = {}\n{NIGHTLY}", toml::Value::from(owner));
        place.file("theirs.toml", &named.replace("0 3 * * *", &format!("{} 3 * * *", owner.len())));
        place.run(&["registry", "apply", "theirs.toml"]).ok();
        let file = place.file("reg.toml", "[queues.q]\n");
        place.run(&["registry", "apply", &file]).ok().out
    };
    let other = said("/srv/team/jobs.toml");
    assert!(other.contains("(of /srv/team/jobs.toml)") && !other.contains("at its top"), "{other}");
    for (owner, written) in [
        ("/srv/old/reg.toml", "\"/srv/old/reg.toml\""),
        ("night's \u{a0}jobs\u{301}", ""),
        ("jobs\u{301}\u{200b}", "\"jobs\u{301}\u{200b}\""),
        ("reg.toml", "\"reg.toml\""),
        // Another file's, and what anybody may come from.
        ("jobs.toml", ""),
        ("api", ""),
        ("-", ""),
    ] {
        let text = said(owner);
        assert!(text.contains("schedule nightly (of "), "{text}");
        let offered = format!("`document = {written}` at its top says so");
        assert_eq!(text.contains("at its top"), !written.is_empty(), "{text}");
        assert!(written.is_empty() || text.contains(&offered), "{offered} in {text}");
    }
}

/// A server's file is the document that it was at the start, wherever a link on the way leads to by now.
#[test]
fn a_served_file_stays_the_same_document() {
    let place = Place::default();
    let at = |name: &str| place.dir.path().join(name);
    for (folder, text) in [("old", NIGHTLY), ("new", REPORT)] {
        std::fs::create_dir_all(at(folder).join("release")).unwrap();
        std::fs::write(at(folder).join("reg.toml"), text).unwrap();
    }
    std::os::unix::fs::symlink(at("old/release"), at("current")).unwrap();
    let server = Serving::start(&place, &["--registry", "current/../reg.toml"]);
    let nightly = || server.run(&place, &["schedules", "show", "nightly", "--json"]).ok().json();
    let known = std::fs::canonicalize(at("old/reg.toml")).unwrap().display().to_string();
    assert_eq!(nightly()["schedule"]["document"], json!(known));
    std::fs::remove_file(at("current")).unwrap();
    std::os::unix::fs::symlink(at("new/release"), at("current")).unwrap();
    wait_for("the new file", || nightly()["schedule"]["retired"].is_string());
    assert_eq!(server.stop(), 0);
}

/// A server that runs until the test ends, however it ends.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_names_the_schedules_of_others_that_it_leaves_alone() {
    let place = Place::default();
    let theirs = place.file("theirs.toml", NIGHTLY);
    place.run(&["registry", "apply", &theirs]).ok();
    let (own, log) = (place.file("own.toml", REPORT), place.dir.path().join("log"));
    let mut serve = place.command(&["serve", "--bind", "127.0.0.1:0", "--registry", &own]);
    let to = || std::fs::File::options().create(true).append(true).open(&log).unwrap();
    let _server = Running(serve.stdout(to()).stderr(to()).spawn().unwrap());
    let expected = format!("nightly (of {theirs})");
    wait_for("the warning", || std::fs::read_to_string(&log).unwrap().contains(&expected));
}

#[test]
fn a_servers_file_is_the_document_that_the_command_line_applies() {
    let place = Place::default();
    place.file("reg.toml", NIGHTLY);
    place.run(&["registry", "apply", &place.dir.path().join("reg.toml").display().to_string()]).ok();
    let server = Serving::start(&place, &["--registry", "reg.toml"]);
    let retired = || {
        let shown = server.run(&place, &["schedules", "show", "nightly", "--json"]).ok().json();
        shown["schedule"]["retired"].is_string()
    };
    assert!(!retired());
    place.file("reg.toml", REPORT);
    wait_for("the file without it", retired);
    assert_eq!(server.stop(), 0);
}

const WRONG: &str = "[queues.a]\nretry = \"webhok\"\n[kinds.b]\nqueue = \"nowhere\"\nalerts = [\"faild\"]\n\
    schedule = { cron = \"0 3 * * *\", after = [\"zzz\"] }\n";

#[test]
fn a_mistake_hides_no_other_whoever_looks() {
    let place = Place::default();
    let file = place.file("reg.toml", WRONG);
    let looks = |args: &[&str]| {
        let ran = place.run(args);
        assert_eq!(ran.code, 2, "{}", ran.err);
        for part in [
            "reg.toml has 4 mistakes",
            "queues.a.retry: there is no policy \"webhok\"",
            "kinds.b.alerts: faild",
            "kinds.b.queue: there is no queue nowhere",
            "kinds.b.schedule.after: there is no schedule `zzz`",
        ] {
            let flat = ran.err.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains(part), "{args:?}: {part} in {}", ran.err);
        }
        ran.err
    };
    let all =
        [&["registry", "validate", &file][..], &["registry", "diff", &file], &["registry", "apply", &file]];
    for args in all {
        looks(args);
    }
    assert!(!place.data().exists(), "nothing was made");
    // And in a store that is there.
    place.run(&["queues", "set", "a"]).ok();
    for args in all {
        looks(args);
    }
    assert!(
        place.run(&["registry", "history", "--json"]).ok().json()["versions"].as_array().unwrap().is_empty()
    );
}

/// What a store has that cannot be asked nobody knows: nothing is called missing.
#[test]
fn a_store_that_cannot_be_asked_is_said_and_not_guessed() {
    let place = Place::default();
    std::fs::create_dir(place.data()).unwrap();
    std::fs::write(place.data().join("tidegate.db"), "this is no database, however long one looks at it")
        .unwrap();
    let file = place.file("reg.toml", WRONG);
    for command in ["apply", "diff"] {
        let ran = place.run(&["registry", command, &file]);
        let flat = ran.err.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(ran.code == 2 && flat.contains("reg.toml has 1 mistake"), "{flat}");
        assert!(flat.contains("kinds.b.alerts: faild") && !flat.contains("nowhere"), "{flat}");
        assert!(flat.contains("the store was not asked for what it names: "), "{flat}");
    }
}

#[test]
fn validate_says_that_it_looks_at_the_document_alone() {
    let place = Place::default();
    place.run(&["queues", "set", "old"]).ok();
    let file = place.file("reg.toml", "[kinds.k]\nqueue = \"old\"\n");
    let refused = place.run(&["registry", "validate", &file, "--json"]);
    let error = serde_json::from_str::<Value>(&refused.err).unwrap()["error"].clone();
    assert!(
        error["details"][0].as_str().unwrap().contains("there is no queue old in the document"),
        "{error}"
    );
    assert!(
        error["hint"].as_str().unwrap().contains("`tidegate registry diff FILE` looks there too"),
        "{error}"
    );
    place.run(&["registry", "diff", &file]).ok();
    place.run(&["registry", "apply", &file]).ok();
    // What is wrong in any store is not looked for in one.
    let file = place.file("reg.toml", "[queues.old]\nweigth = 2\n");
    let refused = place.run(&["registry", "validate", &file]).err;
    assert!(!refused.contains("registry diff") && !refused.contains("registry validate"), "{refused}");
}

#[test]
fn where_there_is_no_store_yet_everything_is_new_and_nothing_is_made() {
    let place = Place::default();
    let file = place.file("reg.toml", NIGHTLY);
    for args in [&["registry", "diff", &file][..], &["registry", "apply", &file, "--dry-run"]] {
        let said = place.run(args).ok().out;
        for part in ["add queue q", "add schedule nightly", "nothing was changed", "There is no data at"] {
            assert!(said.contains(part), "{part} in {said}");
        }
        let changes = place.run(&[args, &["--json"]].concat()).ok().json();
        assert_eq!((changes["changes"].as_array().unwrap().len(), &changes["version"]), (4, &Value::Null));
    }
    assert!(!place.data().exists());
}

#[test]
fn what_is_refused_leaves_no_directory_behind() {
    let place = Place::default();
    let file = place.file("reg.toml", "[kinds.k]\nqueue = \"nowhere\"\n");
    assert_eq!(place.run(&["registry", "apply", &file]).code, 2);
    assert!(!place.data().exists(), "a document");
    let refused = place.run(&["enqueue", "no.such"]);
    assert!(refused.code == 3 && refused.err.contains("TG2003"), "{}", refused.err);
    assert!(refused.err.contains("tidegate kinds set"), "{}", refused.err);
    assert!(!place.data().exists(), "a job");
    let jobs = place.file("jobs.jsonl", "{\"kind\":\"no.such\",\"data\":1}\n");
    let refused = place.run(&["enqueue", "--from", &jobs]);
    assert!(refused.err.contains("TG2003") && refused.err.contains("in line 1"), "{}", refused.err);
    let mut piped = place.command(&["enqueue", "--from", "-"]);
    let refused = finished(piped.stdin(std::fs::File::open(&jobs).unwrap()));
    assert!(refused.err.contains("TG2003") && refused.err.contains("in line 1"), "{}", refused.err);
    assert!(!place.data().exists(), "many jobs");
    // The right document makes it.
    place.file("reg.toml", NIGHTLY);
    place.run(&["registry", "apply", &file]).ok();
    place.run(&["enqueue", "report"]).ok();
}

#[test]
fn the_same_things_are_counted_whoever_counts_them() {
    let place = Place::default();
    let all = place.run(&["registry", "validate", &example()]).ok().out;
    let all = all.split_once(" is right: ").unwrap().1.trim().trim_end_matches('.').to_owned();
    assert!(all.contains("8 queues, 16 kinds, 11 schedules"), "{all}");
    let said = place.run(&["registry", "apply", &example()]).ok().out;
    assert!(said.contains(&format!("{all} changed. This is version 1.")), "{said}");
    let again = place.run(&["registry", "apply", &example()]).ok().out;
    assert_eq!(again.trim(), format!("Nothing changed; {all} as wanted."));
}

/// Every document that a guide shows can be pasted.
#[test]
fn documents_in_the_guides_are_right_by_themselves() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut checked = 0;
    for page in pages(&root) {
        let text = std::fs::read_to_string(&page).unwrap();
        for block in text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default())
        {
            let table: toml::Table =
                toml::from_str(block).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
            let tables = ["queues", "kinds", "policies", "categories", "platforms", "document"];
            if table.keys().any(|key| tables.contains(&key.as_str())) {
                let problems = Reading::of(block, Format::Toml).alone();
                assert!(problems.is_empty(), "{}: {problems:#?}\n{block}", page.display());
                checked += 1;
            }
        }
    }
    assert!(checked >= 4, "{checked} documents were found");
}

fn pages(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs"), root.join("examples")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|e| e == "md") {
                found.push(entry);
            }
        }
    }
    found
}
