//! What people see, at 80 and at 120 columns.

use std::fmt::Write as _;

use crate::common::{Place, Serving, every_state, steady};

/// Widths that must both look right.
const WIDTHS: [u16; 2] = [80, 120];

fn fits(text: &str, columns: u16) {
    for line in text.lines() {
        assert!(line.chars().count() <= usize::from(columns), "wider than {columns}:\n{text}");
        assert_eq!(line.trim_end(), line, "trailing space in:\n{text}");
    }
}

#[tokio::test]
async fn tables_fit_80_and_120_columns() {
    let place = Place::default();
    every_state(&place.data()).await;
    steady().bind(|| {
        for columns in WIDTHS {
            for (name, args) in [
                ("queues_ls", ["queues", "ls"]),
                ("jobs_ls", ["jobs", "ls"]),
                ("dead_ls", ["dead", "ls"]),
                ("dead_causes", ["dead", "causes"]),
                ("kinds_ls", ["kinds", "ls"]),
                ("groups_ls", ["groups", "ls"]),
                ("parks_ls", ["parks", "ls"]),
            ] {
                let text = place.at(columns, &args);
                fits(&text, columns);
                insta::assert_snapshot!(format!("{name}_{columns}"), text);
            }
        }
    });
}

#[tokio::test]
async fn ids_are_whole_however_narrow_it_is() {
    let place = Place::default();
    let jobs = every_state(&place.data()).await;
    let text = place.at(20, &["jobs", "ls", "--limit", "100"]);
    for (_, id) in &jobs.by_story {
        assert!(text.contains(&id.to_string()), "{text}");
    }
}

#[tokio::test]
async fn why_says_the_cause_in_every_state() {
    let place = Place::default();
    let jobs = every_state(&place.data()).await;
    let mut all = String::new();
    for (story, id) in &jobs.by_story {
        let said = place.run(&["why", &id.to_string()]).ok().out;
        assert_eq!(said.lines().count(), 1, "one sentence in one line: {said}");
        write!(all, "{story}: {said}").unwrap();
    }
    steady().bind(|| insta::assert_snapshot!(all));
}

#[test]
fn why_of_a_ready_job_says_that_no_worker_serves_its_queue() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "greetings"]).ok();
    let job =
        place.run(&["enqueue", "hello", "--json"]).ok().json()["jobs"][0]["id"].as_str().unwrap().to_owned();
    let nobody = "No worker is known to serve queue greetings: start one with `tidegate work --queue greetings --exec COMMAND`";
    let check = |text: String, json: serde_json::Value| {
        assert!(text.contains(nobody), "{text}");
        assert!(json["unserved"] == true && json["sentence"].as_str().unwrap().contains(nobody), "{json}");
    };
    let ask = ["why", &job, "--json"];
    check(place.run(&ask[..2]).ok().out, place.run(&ask).ok().json());
    let serving = Serving::start(&place, &[]);
    check(serving.run(&place, &ask[..2]).ok().out, serving.run(&place, &ask).ok().json());
    // What it says to do is what helps.
    serving.run(&place, &["work", "--queue", "greetings", "--exec", "cat", "--until-idle"]).ok();
    let done = serving.run(&place, &ask).ok().json();
    assert!(done["cause"] == "completed" && done["unserved"] == false, "{done}");
}

#[tokio::test]
async fn show_tells_everything_about_a_job() {
    let place = Place::default();
    let jobs = every_state(&place.data()).await;
    steady().bind(|| {
        insta::assert_snapshot!(
            "show_completed",
            place.run(&["jobs", "show", &jobs.id("completed")]).ok().out
        );
        insta::assert_snapshot!("show_dead", place.run(&["dead", "show", &jobs.id("dead")]).ok().out);
        insta::assert_snapshot!("show_retry", place.run(&["jobs", "show", &jobs.id("retry")]).ok().out);
    });
}

#[tokio::test]
async fn colours_come_only_when_asked_for() {
    let place = Place::default();
    every_state(&place.data()).await;
    let plain = place.run(&["queues", "ls"]).ok().out;
    assert!(!plain.contains('\u{1b}'), "a pipe gets no colours");
    let coloured = place.run(&["queues", "ls", "--color", "always"]).ok().out;
    assert!(coloured.contains('\u{1b}'));
    let stripped = insta_strip(&coloured);
    let tidy = |s: &str| s.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(tidy(&stripped), tidy(&plain), "colours carry no meaning alone");
}

fn insta_strip(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            for c in chars.by_ref() {
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
        } else {
            plain.push(c);
        }
    }
    plain
}

#[test]
fn every_command_has_help_with_an_example() {
    let place = Place::default();
    let mut open: Vec<Vec<String>> = vec![vec![]];
    let mut seen = 0;
    while let Some(path) = open.pop() {
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let help = place.run(&args).ok().out;
        assert!(help.contains("Examples:\n  "), "{path:?} has no example:\n{help}");
        assert!(help.contains("\n  tidegate "), "{path:?} has no example:\n{help}");
        fits(&help, 90);
        seen += 1;
        let commands =
            help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| l.starts_with("  "));
        for line in commands {
            let name = line.split_whitespace().next().unwrap();
            // A line that only continues a description is indented further.
            if name != "help" && line.starts_with("  ") && !line.starts_with("   ") {
                open.push(path.iter().cloned().chain([name.to_owned()]).collect());
            }
        }
    }
    assert!(seen > 25, "only {seen} commands were found");
}
