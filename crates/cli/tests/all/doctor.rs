//! `doctor`, `top`, completions and manual pages.

use crate::common::{Place, Serving, every_state, finished};
use serde_json::Value;

fn check<'a>(told: &'a Value, name: &str) -> (&'a str, &'a str) {
    let all = told["checks"].as_array().unwrap();
    let one = all.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("no {name} in {told:#}"));
    (one["status"].as_str().unwrap(), one["found"].as_str().unwrap())
}

#[test]
fn a_fresh_store_is_healthy() {
    let place = Place::default();
    place.run(&["queues", "set", "billing"]).ok();
    let told = place.run(&["doctor", "--json"]).ok().json();
    assert_eq!((&told["healthy"], &told["failures"]), (&true.into(), &0.into()), "{told:#}");
    for name in ["config", "store", "writing", "queues", "parks", "leases", "dead letters", "alive"] {
        assert_eq!(check(&told, name).0, "ok", "{told:#}");
    }
}

#[tokio::test]
async fn what_is_wrong_is_named_with_what_to_do() {
    let place = Place::default();
    every_state(&place.data()).await;
    let ran = place.run(&["doctor", "--json"]);
    assert_eq!(ran.code, 0, "warnings are no failures");
    let told = ran.json();
    assert!(check(&told, "parks").1.contains("without an end: queue archive"), "{told:#}");
    assert_eq!(check(&told, "dead letters"), ("warn", "1 letter waits for review"));
    assert!(check(&told, "alive").1.starts_with("0 workers, 0 servers, and"), "{told:#}");
    assert!(told["checks"].as_array().unwrap().iter().all(|c| c["status"] == "ok" || c["next"].is_string()));
    assert_eq!(place.run(&["doctor", "--strict"]).code, 4);
    let text = place.at(80, &["doctor"]);
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
}

#[test]
fn a_store_out_of_reach_and_a_broken_configuration_are_failures() {
    let place = Place::default();
    let ran = place.run(&["doctor"]);
    assert_eq!(ran.code, 3, "{}", ran.out);
    assert!(ran.out.contains("FAIL  store") && ran.out.contains("→"), "{}", ran.out);
    assert_eq!(place.run(&["doctor", "--store", "http://127.0.0.1:1"]).code, 5);
    place.file("tidegate.toml", "[worker]\nleese = 1\n");
    let ran = place.run(&["doctor"]);
    assert_eq!(ran.code, 2, "{}", ran.out);
    assert!(ran.out.contains("FAIL  config") && ran.out.contains("did you mean"), "{}", ran.out);
}

#[test]
fn a_server_is_asked_for_its_version_and_clock() {
    let place = Place::default();
    place.run(&["queues", "set", "billing"]).ok();
    let server = Serving::start(&place, &[]);
    let told = server.run(&place, &["doctor", "--json"]).ok().json();
    for name in ["version", "clock", "key", "writing"] {
        assert_eq!(check(&told, name).0, "ok", "{told:#}");
    }
    assert_eq!(server.stop(), 0);
}

#[tokio::test]
async fn top_is_one_snapshot_without_a_terminal() {
    let place = Place::default();
    every_state(&place.data()).await;
    for columns in [80, 120] {
        let text = place.at(columns, &["top"]);
        assert!(text.lines().all(|l| l.chars().count() <= usize::from(columns)), "{text}");
        assert!(text.contains("billing") && text.contains("ready ·") && text.contains("oldest"), "{text}");
    }
    let told = place.run(&["top", "--json"]).ok().json();
    assert!(told["totals"]["ready"].as_u64().unwrap() > 0 && told["queues"].as_array().unwrap().len() == 5);
}

#[test]
fn completions_and_manual_pages_are_made_from_the_commands() {
    let place = Place::default();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&["completions", shell]).ok().out;
        assert!(script.contains("tidegate") && script.contains("enqueue"), "{shell}");
    }
    let bash = place.file("tidegate.bash", &place.run(&["completions", "bash"]).ok().out);
    assert!(finished(std::process::Command::new("bash").args(["-n", &bash])).code == 0, "bash can read it");
    place.run(&["man", "pages"]).ok();
    let page = std::fs::read_to_string(place.dir.path().join("pages/tidegate-enqueue.1")).unwrap();
    assert!(page.contains("Examples") && page.contains(".TH"), "{page}");
    assert!(place.dir.path().join("pages/tidegate-jobs-ls.1").is_file());
}
