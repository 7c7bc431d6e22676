//! A server and commands against it, as processes of their own.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::common::{Place, Serving, every_state, wait_for};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

fn enqueue(server: &Serving, place: &Place, data: &str) -> String {
    let reply = server.run(place, &["enqueue", "hello", "--data", data, "--json"]).ok().json();
    reply["jobs"][0]["id"].as_str().unwrap().to_owned()
}

fn job(server: &Serving, place: &Place, id: &str) -> Value {
    server.run(place, &["jobs", "show", id, "--json"]).ok().json()
}

#[tokio::test]
async fn commands_say_the_same_over_a_server_as_on_its_directory() {
    let place = Place::default();
    let jobs = every_state(&place.data()).await;
    let running = jobs.id("running");
    let looks = [
        &["queues", "ls"][..],
        &["kinds", "ls"],
        &["jobs", "ls"],
        &["dead", "ls"],
        &["parks", "ls"],
        &["groups", "ls"],
        &["registry", "show"],
        &["jobs", "show", &running],
    ];
    let here: Vec<String> = looks.iter().map(|args| place.run(args).ok().out).collect();
    let server = Serving::start(&place, &[]);
    for (args, here) in looks.iter().zip(here) {
        let there = server.run(&place, args).ok().out;
        assert_eq!(timeless(&there), timeless(&here), "{args:?}");
    }
    assert_eq!(server.stop(), 0);
}

/// Without what moves with the clock.
fn timeless(text: &str) -> String {
    let mut words: Vec<&str> = vec![];
    for word in text.split_whitespace() {
        let clock =
            word.ends_with('Z') && word.contains(':') || word.chars().all(|c| c.is_ascii_digit() || c == '.');
        if !clock {
            words.push(word);
        }
    }
    words.join(" ")
}

#[test]
fn a_shell_script_handles_jobs_behind_a_server_and_can_be_cancelled_and_drained() {
    let place = Place::default();
    let server = Serving::start(&place, &[]);
    let told = place.dir.path().join("told");
    let body = format!(
        "case $(cat) in '\"stay\"') trap 'touch {}; exit 1' TERM; echo waiting >&2; while :; do sleep 0.05; done;; esac; echo '\"ok\"'",
        told.display()
    );
    let mut worker = server.command(
        &place,
        &["work", "--kind", "hello", "--exec", &body, "--name", "shell-1", "--lease", "3s", "--json"],
    );
    let mut worker = worker.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the registration of the kind", || {
        server.run(&place, &["kinds", "ls", "--json"]).json()["kinds"][0]["name"] == "hello"
    });

    let quick = enqueue(&server, &place, "1");
    wait_for("the end of a job", || job(&server, &place, &quick)["state"] == "completed");
    assert_eq!(job(&server, &place, &quick)["result"], "ok");

    let stays = enqueue(&server, &place, "\"stay\"");
    wait_for("the log of a running job", || job(&server, &place, &stays)["log"][0]["line"] == "waiting");
    let said = server.run(&place, &["jobs", "cancel", &stays]).ok().out;
    assert!(said.contains("its handler is told to stop"), "{said}");
    wait_for("the cancel", || job(&server, &place, &stays)["state"] == "cancelled");
    assert!(told.exists(), "SIGTERM first");

    wait_for("the presence", || {
        let seen = server.run(&place, &["workers", "ls", "--json"]).ok().json();
        let names: Vec<&str> =
            seen["workers"].as_array().unwrap().iter().map(|w| w["name"].as_str().unwrap()).collect();
        names.contains(&"shell-1") && names.iter().any(|n| n.starts_with("server-"))
    });
    let refused = server.run(&place, &["workers", "drain", "shell-2"]);
    assert_eq!(refused.code, 3);
    assert!(
        refused.err.contains("error[TG3006]") && refused.err.contains("did you mean shell-1?"),
        "{}",
        refused.err
    );
    server.run(&place, &["workers", "drain", "shell-1"]).ok();
    let ended = worker.wait().unwrap();
    assert!(ended.success(), "a drained worker ends by itself");
    let seen = server.run(&place, &["workers", "ls", "--json"]).ok().json();
    assert_eq!(seen["workers"].as_array().unwrap().len(), 1, "{seen:#}");
    let name = seen["workers"][0]["name"].as_str().unwrap();
    server.run(&place, &["workers", "drain", name]).ok();
    assert_eq!(server.ends(), 0, "a drained server ends by itself, in order");
}

#[test]
fn tail_follows_what_others_do() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let refused = place.run(&["tail"]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("tidegate serve"), "{}", refused.err);
    let server = Serving::start(&place, &[]);
    let mut tail =
        server.command(&place, &["tail", "--event", "enqueued,cancelled", "--limit", "2", "--json"]);
    let mut tail = tail.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let events = std::thread::spawn(move || {
        lines.map(|l| serde_json::from_str(&l.unwrap()).unwrap()).collect::<Vec<Value>>()
    });
    // Nobody says when the other process follows, so jobs are sent until it has seen enough.
    let mut ids = vec![];
    while !events.is_finished() && ids.len() < 1_000 {
        let id = enqueue(&server, &place, "1");
        server.run(&place, &["jobs", "cancel", &id]).ok();
        ids.push(id);
    }
    let events = events.join().unwrap();
    assert!(tail.wait().unwrap().success());
    assert_eq!(events.len(), 2, "{events:?}");
    for event in &events {
        assert!(ids.contains(&event["id"].as_str().unwrap().to_owned()), "{event}");
        assert!(["enqueued", "cancelled"].contains(&event["event"].as_str().unwrap()), "{event}");
        assert!(event["at"].as_str().unwrap().ends_with('Z') && event["kind"] == "hello", "{event}");
    }
}

#[test]
fn the_first_key_is_made_before_the_server_and_then_needed() {
    let place = Place::default();
    let made = place.run(&["keys", "create", "--role", "admin", "--json"]).ok().json();
    let secret = made["secret"].as_str().unwrap().to_owned();
    let server = Serving::start(&place, &[]);
    let refused = server.run(&place, &["queues", "ls"]);
    assert!(refused.err.contains("error[TG2015]"), "{}", refused.err);
    let mut with_key =
        server.command(&place, &["keys", "create", "--role", "producer", "--tenant", "acme", "--json"]);
    let producer = crate::common::finished(with_key.env("TIDEGATE_KEY", &secret)).ok().json();
    let id = producer["key"]["id"].as_str().unwrap().to_owned();
    let listed = server.run(&place, &["keys", "ls", "--key", &secret]).ok().out;
    assert!(listed.contains(&id) && listed.contains("acme") && !listed.contains(&secret), "{listed}");
    server.run(&place, &["keys", "revoke", &id, "--key", &secret]).ok();
    let listed = server.run(&place, &["keys", "ls", "--key", &secret]).ok().out;
    assert!(listed.contains("revoked"), "{listed}");
    let gone = server.run(&place, &["keys", "revoke", "000000000000", "--key", &secret]);
    assert_eq!(gone.code, 3, "{}", gone.err);
    assert_eq!(server.stop(), 0);
    assert!(place.run(&["keys", "ls"]).ok().out.contains("revoked"), "and without a server");
}

#[test]
fn a_server_says_where_it_is_and_leaves_with_the_first_signal_or_at_once_with_the_second() {
    let place = Place::default();
    let port = tidegate_testbed::free_port().unwrap();
    let bind = format!("127.0.0.1:{port}");
    let mut child = place
        .command(&["serve", "--bind", &bind])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("Ctrl-C") {
        assert!(out.read_line(&mut text).unwrap() > 0, "{text}");
    }
    let text = text.replace(&port.to_string(), "PORT").replace(place.data().to_str().unwrap(), "DATA");
    insta::assert_snapshot!("serve_greets", text);
    let owned = place.run(&["queues", "ls"]);
    assert_eq!(owned.code, 5);
    assert!(owned.err.contains(&format!("hint: ask its server: add --store http://{bind}")), "{}", owned.err);
    kill_process(rustix::process::Pid::from_child(&child), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());

    let server = Serving::start(&place, &["--drain", "60s"]);
    // A request that waits, so that the first signal is not enough.
    let mut waiting = std::net::TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    std::io::Write::write_all(
        &mut waiting,
        b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{",
    )
    .unwrap();
    kill_process(server.pid(), Signal::TERM).unwrap();
    assert_eq!(server.stop(), 0, "the second signal");
}

#[test]
fn what_cannot_be_served_is_said() {
    let place = Place::default();
    for (code, args) in [
        ("TG2008", &["serve", "--bind", "nowhere"][..]),
        ("TG2008", &["serve", "--role", "king"]),
        ("TG2018", &["serve", "--bind", "0.0.0.0:0"]),
        ("TG2019", &["serve", "--tls-cert", "a.pem"]),
        ("TG2019", &["serve", "--bind", "127.0.0.1:0", "--tls-cert", "a.pem", "--tls-key", "b.pem"]),
        ("TG2009", &["serve", "--store", "http://127.0.0.1:1"]),
        ("TG5008", &["queues", "ls", "--store", "http://127.0.0.1:1"]),
        ("TG2009", &["tail", "--event", "complete"]),
        ("TG2009", &["keys", "create", "--role", "king"]),
        ("TG2008", &["keys", "create", "--role", "worker", "--tenant", "acme"]),
        ("TG2009", &["backup", "x", "--store", "http://127.0.0.1:1"]),
    ] {
        let ran = place.run(args);
        assert!(ran.err.contains(&format!("error[{code}]")), "{args:?}: {}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_go_by_the_clock_of_the_server() {
    use std::sync::Arc;
    use std::sync::atomic::AtomicI64;
    use tidegate_server::{Clock, Server, ServerOptions};

    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let there = i64::try_from(wall.as_millis()).unwrap() - 3_600_000;
    let mut options = ServerOptions { bind: ([127, 0, 0, 1], 0).into(), ..ServerOptions::default() };
    options.clock = Clock::manual(Arc::new(AtomicI64::new(there)));
    let server = Server::bind(Arc::new(tidegate_store::MemoryStore::new()), options).await.unwrap();
    let url = format!("http://{}", server.addr());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async move {
        let _ = stopped.await;
    }));
    tokio::task::spawn_blocking(move || {
        let place = Place::default();
        let run = |args: &[&str]| {
            let mut command = place.command(&[args, &["--json"]].concat());
            crate::common::finished(command.env_remove("TIDEGATE_DATA").env("TIDEGATE_STORE", &url))
                .ok()
                .json()
        };
        run(&["kinds", "set", "hello", "--queue", "default"]);
        run(&["enqueue", "hello", "--data", "1", "--delay", "10m"]);
        let listed = run(&["jobs", "ls", "--since", "5m"]);
        let job = &listed["jobs"][0];
        let millis = |v: &Value| v.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
        let due_in = millis(&job["run_at"]) - there;
        assert!((600_000..720_000).contains(&due_in), "due {due_in} ms after the server's now: {job:#}");
        let mut doctor = place.command(&["doctor", "--json"]);
        let doctor = crate::common::finished(doctor.env_remove("TIDEGATE_DATA").env("TIDEGATE_STORE", &url));
        assert!(doctor.out.contains("ahead of the server's"), "it still compares the clocks: {}", doctor.out);
    })
    .await
    .unwrap();
    stop.send(()).unwrap();
    running.await.unwrap();
}
