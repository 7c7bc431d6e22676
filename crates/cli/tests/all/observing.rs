//! Metrics, health, alerts and the job log of real processes; a disk that is full and a Postgres that is stopped.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use crate::common::{Place, Serving, finished, wait_for};
use serde_json::Value;
use tidegate_testbed::postgres::Server as Postgres;

/// Status and body of a GET.
fn get(url: &str, path: &str) -> (u16, String) {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn health(url: &str) -> (u16, Value) {
    let (status, body) = get(url, "/health");
    (status, serde_json::from_str(&body).unwrap())
}

/// Red while something is away, and well again when it is back.
fn goes_red_and_recovers(url: &str, away: impl FnOnce(), back: impl FnOnce()) {
    wait_for("a server that is well", || health(url).0 == 200);
    away();
    let since = Instant::now();
    wait_for("health to turn red", || health(url).0 == 503);
    eprintln!("red after {:.1} s", since.elapsed().as_secs_f64());
    let (_, said) = health(url);
    assert_eq!((&said["status"], &said["store"]), (&"unhealthy".into(), &"failing".into()), "{said:#}");
    assert_eq!(get(url, "/live").0, 200, "the process is not to blame");
    wait_for("requests to be sent elsewhere", || get(url, "/ready").0 == 503);
    wait_for("the metric", || get(url, "/metrics").1.contains("\ntidegate_store_up 0\n"));
    back();
    let since = Instant::now();
    wait_for("health to recover by itself", || health(url).0 == 200 && get(url, "/ready").0 == 200);
    eprintln!("well again after {:.1} s", since.elapsed().as_secs_f64());
}

fn mount(options: &str, at: &Path) -> bool {
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).output();
    mount.is_ok_and(|out| out.status.success())
}

#[test]
fn health_is_red_while_the_disk_is_full() {
    let place = Place::default();
    let data = place.data();
    std::fs::create_dir_all(&data).unwrap();
    if !mount("size=4m", &data) {
        eprintln!("SKIPPED: no file system can be mounted here");
        return;
    }
    let server = Serving::start(&place, &[]);
    let filler = data.join("filler");
    goes_red_and_recovers(
        &server.url,
        || {
            let mut file = std::fs::File::create(&filler).unwrap();
            while file.write_all(&[0; 4_096]).is_ok() {}
        },
        || std::fs::remove_file(&filler).unwrap(),
    );
    assert_eq!(server.stop(), 0);
    assert!(Command::new("umount").arg(&data).status().unwrap().success());
}

#[test]
fn health_is_red_while_postgres_is_stopped() {
    let place = Place::default();
    let postgres = std::cell::RefCell::new(Postgres::start(&[]).unwrap());
    let url = postgres.borrow().url();
    let server = Serving::start(&place, &["--store", &url]);
    goes_red_and_recovers(
        &server.url,
        || postgres.borrow_mut().stop(true).unwrap(),
        || postgres.borrow_mut().resume().unwrap(),
    );
    assert_eq!(server.stop(), 0);
}

/// Takes what is posted to a port of its own.
fn sink() -> (String, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook/t0ken", listener.local_addr().unwrap());
    let (told, tell) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut text = Vec::new();
            let mut byte = [0; 1];
            while !text.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                text.push(byte[0]);
            }
            let head = String::from_utf8(text).unwrap().to_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            let mut body = vec![0; length.unwrap().trim().parse().unwrap()];
            stream.read_exact(&mut body).unwrap();
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer.as_bytes()).unwrap();
            let _ = told.send(serde_json::from_slice(&body).unwrap());
        }
    });
    (url, tell)
}

#[test]
fn a_server_tells_a_channel_and_never_shows_its_address() {
    let place = Place::default();
    let (url, told) = sink();
    let file = format!(
        "every = \"200ms\"\n[channels.ops]\ntype = \"slack\"\nurl = \"{url}\"\n\
         [rules.queue_depth_high]\ncondition = \"waiting > 2\"\nchannels = [\"ops\"]\n"
    );
    let file = place.file("alerts.toml", &file);
    let server = Serving::start(&place, &["--alerts-file", &file]);
    server.run(&place, &["kinds", "set", "hello", "--queue", "default"]).ok();
    let tested = server.run(&place, &["alerts", "test", "ops", "--json"]).ok().json();
    assert!(tested["job"].as_str().unwrap().starts_with("job_"));
    let next = || told.recv_timeout(std::time::Duration::from_mins(1)).unwrap()["text"].to_string();
    assert!(next().contains("[TEST]"));
    for n in 0..3 {
        server.run(&place, &["enqueue", "hello", "--data", &n.to_string()]).ok();
    }
    assert!(next().contains("[WARNING] Queue default: 3 jobs wait, more than 2"));
    let open = server.run(&place, &["alerts", "ls"]).ok().out;
    assert!(open.contains("queue_depth_high") && open.contains("queue:default"), "{open}");
    let silenced = server
        .run(&place, &["alerts", "silence", "queue_depth_high", "--for", "1h", "--why", "known", "--json"]);
    let id = silenced.ok().json()["id"].as_str().unwrap().to_owned();
    wait_for("the silence to be seen", || {
        server.run(&place, &["alerts", "ls"]).ok().out.contains("firing, silenced")
    });
    assert!(server.run(&place, &["alerts", "silences"]).ok().out.contains(&id));
    server.run(&place, &["alerts", "unsilence", &id]).ok();
    assert_eq!(server.run(&place, &["alerts", "unsilence", &id]).code, 3);
    let rules = server.run(&place, &["alerts", "rules"]).ok().out;
    assert!(rules.contains("waiting > 2") && rules.contains("Channel ops: slack at 127.0.0.1"), "{rules}");
    for args in [&["alerts", "rules", "--json"][..], &["jobs", "ls", "--json"], &["config", "show"]] {
        assert!(!server.run(&place, args).ok().out.contains("t0ken"), "{args:?}");
    }
    server.run(&place, &["work", "--kind", "hello", "--exec", "cat", "--until-idle", "-q"]).ok();
    assert!(next().contains("[RESOLVED]"));
    assert_eq!(server.stop(), 0);
    let bad = "colour = 1\n[rules.late]\ncondition = \"oldest_ready > 300\"\n";
    let refused = place.run(&["alerts", "rules", "--alerts-file", &place.file("worse.toml", bad)]);
    let said = refused.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("worse.toml has 2 mistakes colour: there is no such setting"), "{said}");
    assert!(said.contains("rules.late.condition: \"300\" does not fit"), "{said}");
    let refused = place.run(&["alerts", "rules", "--alerts-file", &place.file("bad.toml", "colour = 1\n")]);
    assert_eq!(refused.code, 2, "{}", refused.err);
}

#[test]
fn a_worker_logs_what_it_does_without_the_payload_and_serves_metrics() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    for data in ["\"s3cret\"", "\"fail\""] {
        place.run(&["enqueue", "hello", "--data", data]).ok();
    }
    let handler = "read x; echo $x >&2; [ \"$x\" != '\"fail\"' ] || exit 65";
    let ran = place
        .run(&["work", "--kind", "hello", "--exec", handler, "--until-idle", "--log", "json", "-q"])
        .ok();
    let lines: Vec<Value> = ran
        .out
        .lines()
        .filter_map(|l| serde_json::from_str(l).ok())
        .filter(|l: &Value| l["event"].is_string())
        .collect();
    let of = |event: &str| lines.iter().filter(|l| l["event"] == event).count();
    assert_eq!((of("started"), of("completed"), of("failed")), (2, 1, 1), "{}", ran.out);
    let failed = lines.iter().find(|l| l["event"] == "failed").unwrap();
    assert_eq!((&failed["level"], &failed["queue"]), (&"error".into(), &"default".into()));
    assert!(failed["duration_ms"].is_u64() && failed["attempt"] == 1 && failed["error"].is_string());
    assert!(!ran.out.contains("s3cret"), "{}", ran.out);

    let mut worker = place.command(&["work", "--kind", "hello", "--exec", "cat", "--metrics", "127.0.0.1:0"]);
    let mut worker = worker.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut from = std::io::BufReader::new(worker.stderr.take().unwrap());
    while !said.contains("/metrics") {
        assert!(std::io::BufRead::read_line(&mut from, &mut said).unwrap() > 0, "{said}");
    }
    let url = said.split("Metrics at ").nth(1).unwrap().split("/metrics").next().unwrap();
    assert!(get(url, "/metrics").1.contains("tidegate_queue_jobs{queue=\"default\",state=\"completed\"} 1"));
    assert_eq!(get(url, "/v1/jobs").0, 404, "it shows how it is, and nothing else");
    let pid = rustix::process::Pid::from_child(&worker);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(worker.wait().unwrap().success());
    let refused =
        finished(&mut place.command(&["work", "--kind", "hello", "--exec", "cat", "--log", "loud"]));
    assert_eq!(refused.code, 2, "{}", refused.err);
}
