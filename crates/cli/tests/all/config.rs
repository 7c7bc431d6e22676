//! What is in force, and where it came from.

use crate::common::{Place, finished};

const FILE: &str = "store = \"from-file\"\nkey = \"tg_secret_from_file\"\n\n[server]\nbind = \"0.0.0.0:80\"\n\n[worker]\nconcurrency = 3\nlease = \"10s\"\nqueues = [\"night\", \"day\"]\n";

fn value<'a>(shown: &'a serde_json::Value, key: &str) -> (&'a str, &'a str) {
    let all = shown["settings"].as_array().unwrap();
    let one = all.iter().find(|s| s["key"] == key).unwrap_or_else(|| panic!("no {key} in {shown:#}"));
    (one["value"].as_str().unwrap_or(""), one["source"].as_str().unwrap())
}

#[test]
fn flags_beat_the_environment_beats_the_file() {
    let place = Place::default();
    let file = place.file("some.toml", FILE);
    let mut command = place.command(&["config", "show", "--json", "--config", &file, "--store", "from-flag"]);
    command.env("TIDEGATE_LEASE", "20s").env("TIDEGATE_STORE", "from-environment");
    let shown = finished(&mut command).ok().json();
    assert_eq!(value(&shown, "store"), ("from-flag", "flag --store"));
    assert_eq!(value(&shown, "worker.lease"), ("20s", "environment TIDEGATE_LEASE"));
    assert_eq!(value(&shown, "worker.concurrency"), ("3", format!("file {file}").as_str()));
    assert_eq!(value(&shown, "worker.drain"), ("45s", "default"));
}

#[test]
fn the_file_is_found_by_itself_and_decides_which_store_is_used() {
    let place = Place::default();
    place.file("tidegate.toml", "store = \"sqlite:from-file\"\n");
    let mut command = place.command(&["queues", "set", "billing"]);
    command.env_remove("TIDEGATE_DATA");
    finished(&mut command).ok();
    assert!(place.dir.path().join("from-file/tidegate.db").is_file());

    std::fs::remove_file(place.dir.path().join("tidegate.toml")).unwrap();
    let home = place.dir.path().join("home/.config/tidegate");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("config.toml"), "store = \"from-home\"\n").unwrap();
    let mut command = place.command(&["config", "show", "--json"]);
    command.env_remove("TIDEGATE_DATA");
    let shown = finished(&mut command).ok().json();
    assert_eq!(value(&shown, "store").0, "from-home");
}

#[test]
fn secrets_are_never_shown() {
    let place = Place::default();
    let file = place.file("some.toml", FILE);
    for args in [&["config", "show", "--config", &file][..], &["config", "show", "--json", "--config", &file]]
    {
        let mut command = place.command(args);
        command.env("TIDEGATE_STORE", "postgres://me:hunter2@db/jobs");
        let ran = finished(&mut command).ok();
        assert!(!ran.out.contains("hunter2") && !ran.out.contains("tg_secret"), "{}", ran.out);
        assert!(ran.out.contains("postgres://me:•••@db/jobs"), "{}", ran.out);
    }
}

#[test]
fn it_looks_like_this() {
    let place = Place::default();
    place.file("some.toml", FILE);
    let text =
        place.at(80, &["config", "show", "--config", "some.toml", "--store", "postgres://me:pw@db/jobs"]);
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    insta::assert_snapshot!("config_show", text);
    let wrong = "stroe = \"x\"\n[worker]\nconcurency = 4\nlease = 10\n[sever]\nbind = \"x\"\n";
    place.file("wrong.toml", wrong);
    let ran = place.run(&["config", "check", "wrong.toml"]);
    assert_eq!(ran.code, 2);
    insta::assert_snapshot!("config_check", ran.err);
    assert_eq!(place.run(&["config", "check", "some.toml"]).ok().out, "some.toml is fine: 6 settings.\n");
}

#[test]
fn explain_works_with_a_broken_configuration() {
    let place = Place::default();
    place.file("tidegate.toml", "broken = true\n");
    place.run(&["explain", "TG2008"]).ok();
    let ran = place.run(&["queues", "ls"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("tidegate.toml:1: there is no setting `broken`"), "{}", ran.err);
}
