//! Enqueueing files: checked first, stored in batches, gone on with after anything that stops it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;

use crate::common::{Place, finished};

fn ready() -> Place {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    place
}

fn count(place: &Place) -> usize {
    place.run(&["jobs", "ls", "--limit", "100000", "--json"]).ok().json()["jobs"].as_array().unwrap().len()
}

fn lines(n: usize) -> String {
    let mut text = String::new();
    for i in 0..n {
        writeln!(text, "{{\"kind\":\"hello\",\"data\":{{\"n\":{i}}},\"tenant\":\"t{}\"}}", i % 3).unwrap();
    }
    text
}

#[test]
fn a_file_goes_in_batches_and_running_it_again_adds_nothing() {
    let place = ready();
    let file = place.file("jobs.jsonl", &lines(2_345));
    let args = ["enqueue", "--from", &file, "--batch", "500", "--json"];
    let first = place.run(&args).ok().json();
    assert_eq!(
        (&first["enqueued"], &first["existed"], &first["last_line"]),
        (&2_345.into(), &0.into(), &2_345.into())
    );
    let again = place.run(&args).ok().json();
    assert_eq!((&again["enqueued"], &again["existed"]), (&0.into(), &2_345.into()));
    assert_eq!(first["jobs"][7]["id"], again["jobs"][7]["id"], "the same line, the same id");
    assert_eq!(count(&place), 2_345);
    let anew = place.run(&["enqueue", "--from", &file, "--run", "second", "--json"]).ok().json();
    assert_eq!(anew["enqueued"], 2_345);
    assert_eq!(count(&place), 2 * 2_345);
}

#[test]
fn a_mistake_in_the_last_line_of_a_file_stores_nothing() {
    let place = ready();
    let file = place.file("jobs.jsonl", &format!("{}{{\"kind\":\"hello\",\"dat\":1}}\n", lines(1_500)));
    let ran = place.run(&["enqueue", "--from", &file]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("in line 1501 of") && ran.err.contains("nothing was stored"), "{}", ran.err);
    let file = place.file("kinds.jsonl", &format!("{}{{\"kind\":\"helo\"}}\n", lines(1_500)));
    let ran = place.run(&["enqueue", "--from", &file]);
    assert!(ran.err.contains("did you mean `hello`?") && ran.err.contains("in line 1501 of"), "{}", ran.err);
    assert_eq!(count(&place), 0);
}

#[test]
fn a_pipe_says_how_far_it_came_and_goes_on_when_it_is_mended() {
    let place = ready();
    let input = |text: &str| {
        let file = place.file("input", text);
        let mut command = place.command(&["enqueue", "--from", "-", "--batch", "100"]);
        command.stdin(std::fs::File::open(file).unwrap());
        finished(&mut command)
    };
    let ran = input(&format!("{}nonsense\n{}", lines(250), lines(10)));
    assert_eq!(ran.code, 2);
    for said in
        ["in line 251 of -", "everything up to line 250 is stored: 250 jobs", "send the same input again"]
    {
        assert!(ran.err.contains(said), "{}", ran.err);
    }
    assert_eq!(count(&place), 250);
    let mended = input(&format!("{}{}", lines(250), lines(10))).ok();
    assert!(mended.out.starts_with("Enqueued 10 jobs; 250 existed, left alone"), "{}", mended.out);
    assert_eq!(count(&place), 260);
}

#[test]
fn ctrl_c_is_heard_while_a_pipe_says_nothing_and_nothing_is_lost() {
    let place = ready();
    let mut command = place.command(&["enqueue", "--from", "-", "--batch", "100"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(lines(300).as_bytes()).unwrap();
    input.flush().unwrap();
    // The input stays open. What came so far is stored; then somebody presses Ctrl-C.
    let database = place.data().join("tidegate.db-wal");
    let started = std::time::Instant::now();
    while started.elapsed().as_secs() < 20 && std::fs::metadata(&database).map_or(0, |m| m.len()) < 60_000 {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(input);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{err}");
    assert!(
        err.contains("error[TG4006]: stopped by Ctrl-C") && err.contains("send the same input again"),
        "{err}"
    );
    let stored = count(&place);
    assert!(stored > 0 && stored.is_multiple_of(100), "whole batches: {stored}");
}

#[test]
fn csv_becomes_payloads() {
    let place = ready();
    let file =
        place.file("orders.csv", "order:json,customer,@tenant\n7,\"Ada, Countess\",acme\n8,Grace,globex\n");
    let said = place.run(&["enqueue", "hello", "--from", &file]).ok().out;
    assert_eq!(said, "Enqueued 2 jobs.\n");
    let jobs = place.run(&["jobs", "ls", "--json"]).ok().json();
    let job = &jobs["jobs"][1];
    assert_eq!((&job["payload"]["order"], &job["payload"]["customer"]), (&7.into(), &"Ada, Countess".into()));
    assert_eq!(job["tenant"], "acme");
}
