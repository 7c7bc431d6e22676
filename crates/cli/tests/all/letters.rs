//! Dead letters by cause, on a directory and over HTTP.

use std::fmt::Write as _;

use crate::common::{Place, Ran, Serving};

/// Three causes, many letters.
fn dead(place: &Place, n: usize) {
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let mut text = String::new();
    for i in 0..n {
        writeln!(text, "{{\"kind\":\"hello\",\"data\":{{\"n\":{i}}},\"tenant\":\"t{}\"}}", i % 3).unwrap();
    }
    let file = place.file("jobs.jsonl", &text);
    place.run(&["enqueue", "--from", &file]).ok();
    let script = "#!/bin/sh
n=$(tr -dc 0-9)
if [ $((n % 4)) = 0 ]; then echo 'no such order' >&2; else echo \"order $n is locked\" >&2; fi
exit 65
";
    let script = place.file("handler.sh", script);
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    place.run(&["work", "--kind", "hello", "--exec", &script, "--until-idle"]).ok();
}

#[test]
fn letters_are_counted_recovered_and_resolved_by_cause() {
    let place = Place::default();
    dead(&place, 12);
    let found = place.run(&["dead", "causes", "--json"]).ok().json();
    assert_eq!(
        (found["causes"][0]["count"].as_u64(), found["total"].as_u64()),
        (Some(9), Some(12)),
        "{found}"
    );
    for at in ["first_at", "last_at"] {
        assert!(found["causes"][0][at].as_str().is_some_and(|t| t.ends_with('Z')), "{at}: {found}");
    }
    let cause = found["causes"][0]["cause"].as_str().unwrap().to_owned();
    let table = place.run(&["dead", "causes"]).ok().out;
    assert!(table.contains("\n  EXIT_65: exit code # (EX_DATAERR): order # is locked\n"), "whole: {table}");
    assert!(table.contains(&cause) && table.contains("INVALID_INPUT"), "{table}");
    let message = found["causes"][0]["message"].as_str().unwrap();
    assert!(message.contains("order # is locked"), "{message}");
    let listed = place.run(&["dead", "ls", "--cause", &cause, "--json"]).ok().json();
    assert_eq!(listed["letters"].as_array().unwrap().len(), 9);
    let dry = place.run(&["dead", "recover", "--cause", &cause, "--dry-run", "--json"]).ok().json();
    assert_eq!(dry["would_recover"], 9);
    let done = place.run(&["dead", "recover", "--cause", &cause, "--yes", "--json"]).ok().json();
    assert_eq!((&done["recovered"], &done["skipped"]), (&9.into(), &0.into()));

    let serving = Serving::start(&place, &[]);
    let found = serving.run(&place, &["dead", "causes", "--json"]).ok().json();
    assert_eq!(
        (found["causes"][0]["count"].as_u64(), found["total"].as_u64()),
        (Some(3), Some(3)),
        "{found}"
    );
    let cause = found["causes"][0]["cause"].as_str().unwrap().to_owned();
    let example = found["causes"][0]["example"].as_str().unwrap().to_owned();
    let args = ["dead", "resolve", "--cause", &cause, "--as", "config_fix", "--yes", "--json"];
    assert_eq!(serving.run(&place, &args).ok().json()["resolved"], 3);
    let shown = serving.run(&place, &["dead", "show", &example]).ok().out;
    assert!(shown.contains("  settled    config fix, by operator, 20"), "{shown}");
    let left = serving.run(&place, &["dead", "causes"]).ok().out;
    assert!(left.contains("No dead letters that wait for review"), "{left}");
    let wrong = place.run(&["dead", "ls", "--cause", "nonsense"]);
    assert!(wrong.code == 2 && wrong.err.contains("16 hexadecimal digits"), "{}", wrong.err);
}

#[test]
fn why_of_a_letter_names_the_job_in_its_place_and_the_other_way() {
    let place = Place::default();
    dead(&place, 1);
    let letter =
        place.run(&["dead", "ls", "--json"]).ok().json()["letters"][0]["id"].as_str().unwrap().to_owned();
    let done = place.run(&["dead", "recover", &letter, "--json"]).ok().json();
    let new = done["letters"][0]["reply"]["as"].as_str().unwrap().to_owned();
    let check = |said: String, value: serde_json::Value, id: &str| {
        if id == letter {
            assert!(said.contains(&format!("{new} took its place.")), "{said}");
            assert_eq!(value["letter"]["recovered_as"], new.as_str());
        } else {
            assert!(said.contains(&format!("It took the place of dead letter {letter}.")), "{said}");
            assert_eq!(value["recovered_from"], letter.as_str());
        }
    };
    for id in [&letter, &new] {
        check(place.run(&["why", id]).ok().out, place.run(&["why", id, "--json"]).ok().json(), id);
    }
    let serving = Serving::start(&place, &[]);
    for id in [&letter, &new] {
        let (text, json) = (serving.run(&place, &["why", id]), serving.run(&place, &["why", id, "--json"]));
        check(text.ok().out, json.ok().json(), id);
    }
}

/// On a directory, and then over HTTP.
fn both(place: &Place, check: impl Fn(&dyn Fn(&[&str]) -> Ran)) {
    check(&|args| place.run(args));
    let serving = Serving::start(place, &[]);
    check(&|args| serving.run(place, args));
}

#[test]
fn a_dry_run_says_what_the_letters_died_of() {
    let place = Place::default();
    dead(&place, 12);
    let one =
        place.run(&["dead", "ls", "--json"]).ok().json()["letters"][0]["id"].as_str().unwrap().to_owned();
    both(&place, |run| {
        for which in [["recover", "--all"], ["recover", "--kind=hello"], ["resolve", "--all"]] {
            let [verb, filter] = which;
            let mut args = vec!["dead", verb, filter, "--dry-run"];
            if verb == "resolve" {
                args.extend(["--as", "abandoned"]);
            }
            let text = run(&args).ok().out;
            assert!(text.contains("order # is locked") && text.contains("no such order"), "{text}");
            assert!(text.contains("12 jobs; nothing was changed."), "{text}");
            args.push("--json");
            let json = run(&args).ok().json();
            let counts: Vec<_> =
                json["causes"].as_array().unwrap().iter().map(|c| c["count"].as_u64()).collect();
            assert_eq!(counts, [Some(9), Some(3)], "{json}");
            let listed = run(&["dead", "causes", "--json"]).ok().json();
            assert_eq!(json["causes"][0]["cause"], listed["causes"][0]["cause"], "as `dead causes` has them");
            assert_eq!(json["causes"][0]["message"], listed["causes"][0]["message"]);
        }
        let text = run(&["dead", "recover", &one, "--dry-run"]).ok().out;
        assert!(text.contains("EXIT_65") && text.contains("Would recover 1 job;"), "{text}");
    });
}

#[test]
fn letters_are_taken_by_category() {
    let place = Place::default();
    dead(&place, 4);
    place.run(&["kinds", "set", "sync", "--queue", "other"]).ok();
    place.run(&["enqueue", "sync"]).ok();
    place.run(&["work", "--kind", "sync", "--exec", "exit 78", "--until-idle"]).ok();
    both(&place, |run| {
        let dry = run(&["dead", "recover", "--category", "INVALID_INPUT", "--dry-run", "--json"]).ok().json();
        assert_eq!(dry["would_recover"], 4, "{dry}");
        let both =
            ["dead", "recover", "--category", "permanent-config", "--kind", "hello", "--dry-run", "--json"];
        assert_eq!(run(&both).ok().json()["would_recover"], 0, "filters narrow");
        let listed = run(&["dead", "ls", "--category", "permanent_config", "--json"]).ok().json();
        assert_eq!(listed["letters"].as_array().unwrap().len(), 1, "{listed}");
        assert_eq!(listed["letters"][0]["kind"], "sync");
        let wrong = run(&["dead", "recover", "--category", "INVALID_INPT", "--dry-run"]);
        assert!(wrong.code == 2 && wrong.err.contains("did you mean INVALID_INPUT?"), "{}", wrong.err);
    });
    let done = place.run(&["dead", "recover", "--category", "INVALID_INPUT", "--yes", "--json"]).ok().json();
    assert_eq!(done["recovered"], 4, "{done}");
    let left = place.run(&["dead", "causes", "--json"]).ok().json();
    assert_eq!((&left["total"], &left["causes"][0]["category"]), (&1.into(), &"PERMANENT_CONFIG".into()));
}

#[test]
fn a_filter_that_fits_nothing_says_what_it_names_does_not_exist() {
    let place = Place::default();
    dead(&place, 1);
    place.run(&["kinds", "set", "sync", "--queue", "other"]).ok();
    both(&place, |run| {
        for (name, wrong, meant) in [("kind", "helo", "hello"), ("queue", "defualt", "default")] {
            let said = format!("No {name} `{wrong}` is registered; did you mean `{meant}`?");
            let flag = format!("--{name}={wrong}");
            for args in [
                &["dead", "recover", &flag, "--dry-run"][..],
                &["dead", "recover", &flag, "--yes"],
                &["dead", "resolve", &flag, "--as", "abandoned", "--yes"],
                &["dead", "ls", &flag],
                &["dead", "causes", &flag],
                &["jobs", "ls", &flag],
                &["jobs", "cancel", &flag, "--yes"],
            ] {
                let text = run(args).ok().out;
                assert!(text.contains(&said), "{args:?}: {text}");
            }
            let json = run(&["dead", "recover", &flag, "--dry-run", "--json"]).ok().json();
            assert_eq!(json["hint"], said.as_str());
        }
        let known = run(&["dead", "recover", "--kind", "sync", "--dry-run"]).ok().out;
        assert_eq!(known, "Nothing fits; nothing was changed.\n", "it exists and nothing of it is dead");
        let far = run(&["dead", "recover", "--kind", "zebra.count", "--dry-run"]).ok().out;
        assert!(far.contains("No kind `zebra.count` is registered.") && !far.contains("mean"), "{far}");
    });
}
