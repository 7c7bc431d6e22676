//! `tidegate work`: commands and endpoints as handlers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Place, finished, wait_for};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

fn enqueue(place: &Place, kind: &str, data: &str, more: &[&str]) -> String {
    let args = [&["enqueue", kind, "--data", data, "--json"][..], more].concat();
    place.run(&args).ok().json()["jobs"][0]["id"].as_str().unwrap().to_owned()
}

fn job(place: &Place, id: &str) -> Value {
    place.run(&["jobs", "show", id, "--json"]).ok().json()
}

fn work(place: &Place, args: &[&str]) -> crate::common::Ran {
    place.run(&[&["work", "--until-idle", "--json"][..], args].concat())
}

fn script(place: &Place, body: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let path = place.file("handler.sh", &format!("#!/bin/sh\n{body}\n"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_script_gets_the_job_and_its_output_is_the_result() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "night"]).ok();
    let handler = script(
        &place,
        r#"payload=$(cat)
echo "payload $payload" >&2
echo "$TIDEGATE_JOB_ID $TIDEGATE_KIND $TIDEGATE_QUEUE $TIDEGATE_TENANT $TIDEGATE_ATTEMPT" >&2
echo "not JSON"
echo "{\"seen\": $payload}""#,
    );
    let id = enqueue(&place, "hello", "{\"n\":7}", &["--tenant", "acme"]);
    let report = work(&place, &["--kind", "hello", "--exec", &handler]).ok().json();
    assert_eq!(report["attempts"]["completed"], 1);
    let job = job(&place, &id);
    assert_eq!((&job["state"], &job["result"]["seen"]["n"]), (&"completed".into(), &7.into()));
    assert_eq!(job["log"][0]["line"], "payload {\"n\":7}");
    assert_eq!(job["log"][1]["line"], format!("{id} hello night acme 1"));
}

#[test]
fn a_command_does_not_see_what_opens_the_store_unless_it_is_passed() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let config = place.file("config.toml", "[worker]\nconcurrency = 3\n");
    let ran = |more: &[&str]| {
        let id = enqueue(&place, "hello", "1", &[]);
        let args = [
            "work",
            "--until-idle",
            "--json",
            "--kind",
            "hello",
            "--exec",
            "env | grep -E '^(TIDEGATE_|PATH=)' >&2",
        ];
        let mut command = place.command(&[&args[..], more].concat());
        let store = format!("sqlite:{}", place.data().display());
        command.env("TIDEGATE_STORE", store).env("TIDEGATE_KEY", "tg_secret").env("TIDEGATE_CONFIG", &config);
        finished(&mut command).ok();
        job(&place, &id)["log"].to_string()
    };
    let names = ["TIDEGATE_STORE=", "TIDEGATE_DATA=", "TIDEGATE_KEY=tg_secret", "TIDEGATE_CONFIG="];
    let (kept, passed) = (ran(&[]), ran(&["--pass-credentials"]));
    assert!(kept.contains("TIDEGATE_JOB_ID=") && kept.contains("PATH="), "{kept}");
    for name in names {
        assert!(!kept.contains(name), "{name} is in the log");
        assert!(passed.contains(name), "{name} was not passed");
    }
}

#[test]
fn output_that_is_not_json_is_kept_as_text() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let id = enqueue(&place, "hello", "1", &[]);
    work(&place, &["--kind", "hello", "--", "printf", "two\nlines\n"]).ok();
    assert_eq!(job(&place, &id)["result"], "two\nlines");
}

#[test]
fn a_kind_that_is_not_registered_is_registered_by_its_worker() {
    let place = Place::default();
    work(&place, &["--kind", "fresh", "--queue", "night", "--timeout", "5s", "--exec", "true"]).ok();
    let kinds = place.run(&["kinds", "ls", "--json"]).ok().json();
    assert_eq!(
        (&kinds["kinds"][0]["name"], &kinds["kinds"][0]["settings"]["queue"]),
        (&"fresh".into(), &"night".into())
    );
    assert_eq!(kinds["kinds"][0]["settings"]["timeout_ms"], 5_000);
}

#[test]
fn a_refused_worker_says_so_first_and_registers_nothing() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let refused = place.run(&["work", "--kind", "other", "--exec", "true", "--until-idle"]);
    assert_eq!((refused.code, refused.out.as_str()), (4, ""));
    assert!(refused.err.starts_with("error[TG4004]: no handler for hello"), "{}", refused.err);
    let kinds = place.run(&["kinds", "ls", "--json"]).ok().json();
    assert_eq!(kinds["kinds"].as_array().unwrap().len(), 1, "{kinds}");
}

#[test]
fn the_last_words_of_a_command_are_its_error_unless_an_earlier_line_says_what_was_wrong() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let said = |words: &str| {
        let handler = script(&place, &format!("printf '{words}' >&2; exit 65"));
        let id = enqueue(&place, "hello", "1", &[]);
        work(&place, &["--kind", "hello", "--exec", &handler]).ok();
        job(&place, &id)["dead"]["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(said("one\\nthe reason\\n"), "exit code 65 (EX_DATAERR): the reason");
    assert_eq!(
        said(
            "one\\nerror[TG2003]: kind x is not registered\\n  hint: list them\\n  more: tidegate explain TG2003\\n"
        ),
        "exit code 65 (EX_DATAERR): error[TG2003]: kind x is not registered"
    );
}

#[test]
fn exit_codes_decide_what_follows() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let handler = script(&place, "code=$(cat); echo \"the reason\" >&2; exit $code");
    let ids: Vec<(i32, &str, String)> =
        [(75, "TRANSIENT_SERVER"), (1, "LOGIC_ERROR"), (65, "INVALID_INPUT"), (78, "PERMANENT_CONFIG")]
            .into_iter()
            .map(|(code, category)| {
                (code, category, enqueue(&place, "hello", &code.to_string(), &["--max-attempts", "1"]))
            })
            .collect();
    work(&place, &["--kind", "hello", "--exec", &handler]).ok();
    for (code, category, id) in ids {
        let job = job(&place, &id);
        assert_eq!((&job["state"], &job["dead"]["category"]), (&"dead".into(), &category.into()), "{job:#}");
        let said = job["dead"]["message"].as_str().unwrap();
        assert!(said.starts_with(&format!("exit code {code}")) && said.ends_with("the reason"), "{said}");
    }
}

#[test]
fn a_worker_does_not_begin_with_a_command_that_is_not_there() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let id = enqueue(&place, "hello", "1", &[]);
    place.file("plain.sh", "true");
    for (command, said) in [
        (&["--exec", "hndler --fast"][..], "error[TG2022]: hndler is not in PATH"),
        (&["--exec", "./hndler.sh"], "error[TG2022]: ./hndler.sh does not exist"),
        (&["--exec", "plain.sh"], "write ./plain.sh"),
        (&["--", "./plain.sh"], "chmod +x ./plain.sh"),
        (&["--", "hndler"], "error[TG2022]: hndler is not in PATH"),
    ] {
        let refused = work(&place, &[&["--kind", "hello"], command].concat());
        let text = place.run(&[&["work", "--until-idle", "--kind", "hello"], command].concat()).err;
        assert_eq!(refused.code, 2, "{command:?}: {}", refused.err);
        assert!(flat(&text).contains(said), "{text}");
    }
    let job = job(&place, &id);
    assert_eq!((&job["state"], &job["attempt"]), (&"ready".into(), &0.into()), "{job:#}");
}

#[test]
fn a_command_that_the_shell_does_not_find_twice_ends_the_worker() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let ids: Vec<String> = (0..3).map(|_| enqueue(&place, "hello", "1", &[])).collect();
    let args = ["work", "--until-idle", "--kind", "hello", "--exec", "cd . && TOKEN=hunter2 ./hndler.sh"];
    let ended = place.run(&args);
    assert_eq!(ended.code, 2, "{}", ended.err);
    let said = flat(&ended.err);
    assert!(said.contains("error[TG2022]: the command could not be run: exit code 127"), "{said}");
    assert!(!ended.err.contains("hunter2"), "{}", ended.err);
    assert!(said.contains("hndler.sh: not found") || said.contains("No such file"), "{said}");
    let jobs: Vec<Value> = ids.iter().map(|id| job(&place, id)).collect();
    let dead = jobs.iter().filter(|job| job["dead"]["category"] == "PERMANENT_CONFIG").count();
    let ready = jobs.iter().filter(|job| job["state"] == "ready" && job["attempt"] == 0).count();
    assert_eq!((dead, ready), (1, 2), "one may have asked for what is not there: {jobs:#?}");
    assert_eq!(work(&place, &["--kind", "hello", "--exec", "true"]).ok().json()["attempts"]["completed"], 2);
}

#[test]
fn one_job_that_asks_for_what_is_not_there_stops_nobody() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let ids = ["127", "0", "127"].map(|code| enqueue(&place, "hello", code, &[]));
    work(&place, &["--kind", "hello", "--concurrency", "1", "--exec", "exit $(cat)"]).ok();
    assert_eq!(ids.map(|id| job(&place, &id)["state"].clone()), ["dead", "completed", "dead"]);
}

#[test]
fn of_a_command_that_has_run_exit_code_127_is_about_the_job() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let ids = ["0", "127"].map(|code| enqueue(&place, "hello", code, &[]));
    work(&place, &["--kind", "hello", "--concurrency", "1", "--exec", "exit $(cat)"]).ok();
    assert_eq!(job(&place, &ids[0])["state"], "completed");
    assert_eq!(job(&place, &ids[1])["dead"]["category"], "PERMANENT_CONFIG");
}

#[test]
fn a_worker_that_waits_for_delayed_jobs_says_so_once() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    for delay in ["3s", "4s"] {
        enqueue(&place, "hello", "1", &["--delay", delay]);
    }
    let ran = work(&place, &["--kind", "hello", "--exec", "true"]).ok();
    assert_eq!(ran.json()["attempts"]["completed"], 2);
    assert_eq!(
        ran.err.matches("2 jobs are scheduled and waited for; the next look is at 20").count(),
        1,
        "{}",
        ran.err
    );
    assert_eq!(ran.err.matches(" scheduled").count(), 1, "{}", ran.err);
}

#[test]
fn exit_code_75_is_tried_again() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let handler = script(&place, "[ \"$TIDEGATE_ATTEMPT\" = 2 ] || exit 75; echo second");
    let id = enqueue(&place, "hello", "1", &[]);
    let report = work(&place, &["--kind", "hello", "--exec", &handler]).ok().json();
    assert_eq!((&report["attempts"]["retried"], &report["attempts"]["completed"]), (&1.into(), &1.into()));
    assert_eq!(job(&place, &id)["result"], "second");
}

#[test]
fn a_timeout_kills_the_command_and_its_children() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default", "--timeout", "300ms"]).ok();
    let pids = place.dir.path().join("pids");
    let handler = script(&place, &format!("trap '' TERM; sleep 300 & echo $$ $! > {}; wait", pids.display()));
    let id = enqueue(&place, "hello", "1", &["--max-attempts", "1"]);
    work(&place, &["--kind", "hello", "--exec", &handler]).ok();
    assert_eq!(job(&place, &id)["dead"]["code"], "TIMEOUT");
    let pids = std::fs::read_to_string(pids).unwrap();
    for pid in pids.split_whitespace() {
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        wait_for("the end of the command", || test_kill_process(pid).is_err());
    }
}

#[test]
fn a_child_that_keeps_the_output_open_does_not_hold_up_the_job() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let pid_file = place.dir.path().join("pid");
    let handler = script(&place, &format!("sleep 60 & echo $! > {}; echo '\"early\"'", pid_file.display()));
    let id = enqueue(&place, "hello", "1", &[]);
    let started = Instant::now();
    work(&place, &["--kind", "hello", "--exec", &handler]).ok();
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(job(&place, &id)["result"], "early");
    let pid = std::fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
}

fn started(place: &Place, args: &[&str]) -> Child {
    let mut command = place.command(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_stopped_worker_asks_its_commands_to_stop_and_gives_the_jobs_back() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let (begun, told) = (place.dir.path().join("begun"), place.dir.path().join("told"));
    let body = format!(
        "trap 'touch {}; exit 143' TERM; touch {}; while :; do sleep 0.05; done",
        told.display(),
        begun.display()
    );
    let handler = script(&place, &body);
    let id = enqueue(&place, "hello", "1", &[]);
    let child = started(
        &place,
        &["work", "--kind", "hello", "--exec", &handler, "--drain", "0s", "--grace", "20s", "--json"],
    );
    wait_for("the start of the command", || begun.exists());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.exists(), "SIGTERM first");
    let job = job(&place, &id);
    assert_eq!((&job["state"], &job["attempt"]), (&"ready".into(), &0.into()), "no attempt is spent");
}

#[test]
fn what_ignores_sigterm_does_not_outlive_its_stopped_command() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let pid_file = place.dir.path().join("pid");
    // The command itself ends at SIGTERM; its child does not.
    let stubborn =
        place.file("stubborn.sh", "trap '' TERM\necho $$ > pid.new\nmv pid.new pid\nexec sleep 300\n");
    let handler = script(&place, &format!("trap 'exit 143' TERM\nsh {stubborn} &\nwait"));
    enqueue(&place, "hello", "1", &[]);
    let child = started(
        &place,
        &["work", "--kind", "hello", "--exec", &handler, "--drain", "0s", "--grace", "500ms"],
    );
    wait_for("the start of the command", || pid_file.exists());
    let stubborn = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    let stubborn = Pid::from_raw(stubborn).unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    wait_for("the end of the command's child", || test_kill_process(stubborn).is_err());
}

/// Answers each connection with the next of these, and keeps what was sent.
fn endpoint<A: AsRef<str> + Send + 'static>(
    answers: Vec<A>,
) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/jobs", listener.local_addr().unwrap());
    (url, answers_on(listener, answers))
}

fn answers_on<A: AsRef<str> + Send + 'static>(
    listener: TcpListener,
    answers: Vec<A>,
) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let mut requests = vec![];
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = n.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
                head += &line;
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            requests.push(format!("{}\n{}", head.to_ascii_lowercase(), String::from_utf8(body).unwrap()));
            let close = answer.as_ref().replacen("\r\n", "\r\nconnection: close\r\n", 1);
            // A client that has read enough may hang up.
            let _ = stream.write_all(close.as_bytes());
        }
        requests
    })
}

#[test]
fn an_endpoint_gets_the_job_and_its_answer_decides() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let (url, served) = endpoint(vec!["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"ok\": 1}"]);
    let id = enqueue(&place, "hello", "{\"n\":7}", &["--tenant", "acme"]);
    work(&place, &["--queue", "default", "--url", &url]).ok();
    assert_eq!(job(&place, &id)["result"]["ok"], 1);
    let sent = served.join().unwrap().remove(0);
    for part in [
        "post /jobs http/1.1",
        "tidegate-kind: hello",
        "tidegate-tenant: acme",
        "tidegate-attempt: 1",
        "{\"n\":7}",
    ] {
        assert!(sent.contains(part), "{part} is missing: {sent}");
    }
    assert!(sent.contains(&format!("idempotency-key: {}", id.to_ascii_lowercase())), "{sent}");
}

#[test]
fn an_answer_that_cannot_be_kept_completes_the_job_without_a_result() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let answer = |status: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let most = tidegate_core::limits::MAX_RESULT_BYTES;
    // Too long as it is; too long once it is a JSON string; and too long for a refusal, whose status counts too.
    let (long, quotes) = ("x".repeat(most + 1), "\"".repeat(most));
    for (answers, code) in [
        (vec![answer("200 OK", &long)], None),
        (vec![answer("200 OK", &quotes)], None),
        (vec![answer("422 No", &long)], Some("HTTP_422")),
    ] {
        let (url, served) = endpoint(answers);
        let id = enqueue(&place, "hello", "1", &["--max-attempts", "1"]);
        work(&place, &["--kind", "hello", "--url", &url]).ok();
        served.join().unwrap();
        let job = job(&place, &id);
        if let Some(code) = code {
            assert_eq!(job["dead"]["code"], code);
            continue;
        }
        assert_eq!((&job["state"], &job["result"]), (&"completed".into(), &Value::Null), "{}", job["dead"]);
        let line = job["log"][0]["line"].as_str().unwrap();
        assert!(line.starts_with("the endpoint answered 200, and the answer was not kept"), "{line}");
    }
}

#[test]
fn refusals_of_an_endpoint_are_told_apart() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let (url, served) = endpoint(vec![
        "HTTP/1.1 429 Slow down\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 503 Later\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 422 No\r\ncontent-length: 11\r\n\r\nno such day",
        "HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n",
    ]);
    let final_one = enqueue(&place, "hello", "1", &[]);
    work(&place, &["--kind", "hello", "--url", &url]).ok();
    let job = |id: &str| job(&place, id);
    let first = job(&final_one);
    assert_eq!(
        (&first["snoozes"], &first["attempt"]),
        (&2.into(), &1.into()),
        "snoozes spend no attempt: {first:#}"
    );
    assert_eq!(
        (&first["dead"]["category"], &first["dead"]["code"]),
        (&"INVALID_INPUT".into(), &"HTTP_422".into())
    );
    assert_eq!(first["dead"]["message"], "answered 422: no such day");
    let broken = enqueue(&place, "hello", "2", &["--max-attempts", "1"]);
    work(&place, &["--kind", "hello", "--url", &url]).ok();
    assert_eq!(job(&broken)["dead"]["category"], "TRANSIENT_SERVER");
    served.join().unwrap();
}

/// Nothing was sent, so nothing has failed: not one job spends an attempt, however many wait.
#[test]
fn a_worker_waits_for_an_endpoint_that_is_away() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let address = ("127.0.0.1", tidegate_testbed::free_port().unwrap());
    let url = format!("http://127.0.0.1:{}/jobs", address.1);
    let ids: Vec<String> = (0..30).map(|_| enqueue(&place, "hello", "1", &["--max-attempts", "1"])).collect();
    let ended = place.run(&["work", "--until-idle", "--kind", "hello", "--url", &url]);
    assert_eq!(ended.code, 5, "{}", ended.err);
    let said = flat(&ended.err);
    assert!(said.contains("error[TG5012]") && said.contains("the endpoint cannot be reached"), "{said}");
    assert_eq!(said.matches("jobs stay where they are").count(), 1, "{said}");
    assert!(said.matches("given back").count() <= 1, "one is that the worker ends with: {said}");
    for id in &ids {
        let job = job(&place, id);
        assert_eq!((&job["state"], &job["attempt"]), (&"ready".into(), &0.into()), "{job:#}");
    }
    let mut worker = started(&place, &["work", "--until-idle", "--kind", "hello", "--url", &url]);
    let mut errors = BufReader::new(worker.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("jobs stay where they are") {
        assert_ne!(errors.read_line(&mut said).unwrap(), 0, "{said}");
    }
    let listener = TcpListener::bind(address).unwrap();
    let answers = vec!["HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"; ids.len()];
    let served = answers_on(listener, answers);
    errors.read_to_string(&mut said).unwrap();
    assert!(worker.wait().unwrap().success(), "{said}");
    assert_eq!(served.join().unwrap().len(), ids.len());
}

/// A listener whose queue is full: what else is sent to it is dropped.
fn crowded() -> (TcpListener, Vec<TcpStream>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        socket.listen(0).unwrap().into_std().unwrap()
    });
    let address = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
    (listener, std::iter::from_fn(connect).collect())
}

/// Without a connection nothing was sent, also if it was the job's time that was up first.
#[test]
fn an_endpoint_that_does_not_even_refuse_costs_no_attempt() {
    let (crowded, crowd) = crowded();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let urls = [
        format!("http://{}/jobs", crowded.local_addr().unwrap()),
        // It never answers the handshake.
        format!("https://{}/jobs", silent.local_addr().unwrap()),
    ];
    let workers = urls.map(|url| {
        let place = Place::default();
        place.run(&["kinds", "set", "hello", "--queue", "default", "--timeout", "2s"]).ok();
        let id = enqueue(&place, "hello", "1", &["--max-attempts", "1"]);
        let worker = started(&place, &["work", "--until-idle", "--kind", "hello", "--url", &url]);
        (place, id, worker)
    });
    for (place, id, worker) in workers {
        let output = worker.wait_with_output().unwrap();
        let said = flat(&String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("error[TG5012]") && said.contains("no connection after 2."), "{said}");
        let job = job(&place, &id);
        assert_eq!((&job["state"], &job["attempt"]), (&"ready".into(), &0.into()), "{job:#}");
    }
    drop((crowded, crowd, silent));
}

#[test]
fn what_cannot_be_right_is_said_before_anything_runs() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    place.run(&["kinds", "set", "bye", "--queue", "default"]).ok();
    for (code, exit, args) in [
        ("TG2009", 2, &["work", "--kind", "hello"][..]),
        ("TG2009", 2, &["work", "--exec", "true"]),
        ("TG2009", 2, &["work", "--kind", "hello", "--exec", "true", "--url", "http://x"]),
        ("TG2009", 2, &["work", "--kind", "hello", "--url", "ftp://x"]),
        ("TG2008", 2, &["work", "--kind", "hello", "--exec", "true", "--concurrency", "0"]),
        ("TG2008", 2, &["work", "--kind", "hello", "--exec", "true", "--lease", "1ms"]),
        ("TG2003", 3, &["work", "--queue", "empty", "--exec", "true"]),
        ("TG4004", 4, &["work", "--kind", "hello", "--exec", "true", "--until-idle"]),
    ] {
        let ran = finished(&mut place.command(args));
        assert_eq!(ran.code, exit, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(&format!("error[{code}]")), "{args:?}: {}", ran.err);
    }
}

/// A kind in a queue of its own, with a job that waits.
fn waiting() -> Place {
    let place = Place::default();
    place.run(&["kinds", "set", "greeting.send", "--queue", "greetings"]).ok();
    place.run(&["enqueue", "greeting.send"]).ok();
    place
}

fn kinds(place: &Place) -> Vec<String> {
    let found = place.run(&["kinds", "ls", "--json"]).ok().json();
    found["kinds"].as_array().unwrap().iter().map(|k| k["name"].as_str().unwrap().to_owned()).collect()
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_mistyped_kind_is_not_registered_while_jobs_of_the_one_that_was_meant_wait() {
    let place = waiting();
    let typo = ["work", "--kind", "greting.send", "--exec", "cat", "--until-idle"];
    let refused = place.run(&typo);
    assert_eq!(refused.code, 3, "{}", refused.err);
    let said = flat(&refused.err);
    assert!(
        said.contains("TG2003") && said.contains("did you mean `greeting.send`? --new registers"),
        "{said}"
    );
    assert_eq!(kinds(&place), ["greeting.send"], "nothing was registered");
    // Whoever means it says so.
    let meant = place.run(&[&typo[..], &["--new", "--json"]].concat()).ok().json();
    assert_eq!(meant["registered"], serde_json::json!(["greting.send"]));
    assert_eq!(kinds(&place), ["greeting.send", "greting.send"]);
}

/// Jobs may wait of one that is not the nearest: swapped letters count as two.
#[test]
fn a_mistyped_kind_may_mean_any_that_is_a_slip_away() {
    let place = Place::default();
    for kind in ["mail.seed", "mail.send"] {
        place.run(&["kinds", "set", kind, "--queue", "mails"]).ok();
    }
    place.run(&["enqueue", "mail.send"]).ok();
    let refused = place.run(&["work", "--kind", "mail.sned", "--exec", "cat", "--until-idle"]);
    assert_eq!(refused.code, 3, "{}", refused.err);
    assert!(flat(&refused.err).contains("did you mean `mail.send`? --new registers"), "{}", refused.err);
    assert_eq!(kinds(&place), ["mail.seed", "mail.send"], "nothing was registered");
}

#[test]
fn a_new_kind_is_said_to_be_new_and_a_similar_one_is_named() {
    let place = Place::default();
    let work = |kind: &str, queue: &str| {
        let args = ["work", "--kind", kind, "--queue", queue, "--exec", "cat", "--until-idle"];
        flat(&place.run(&args).ok().err)
    };
    let first = work("greeting.send", "greetings");
    assert!(
        first.contains("Registered greeting.send, which is new.") && !first.contains("Did you"),
        "{first}"
    );
    let again = work("greeting.send", "greetings");
    assert!(!again.contains("Registered"), "{again}");
    let near = work("greting.send", "other");
    assert!(
        near.contains(
            "Registered greting.send, which is new. Did you mean `greeting.send` in place of `greting.send`?"
        ),
        "{near}"
    );
    let far = work("invoice.print", "printer");
    assert!(far.contains("Registered invoice.print, which is new.") && !far.contains("Did you"), "{far}");
}
