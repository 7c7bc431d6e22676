//! Traces across processes: a server and a worker, each with its own way to a collector that is a real HTTP server.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use crate::common::{Place, Serving, finished, wait_for};
use serde_json::{Value, json};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const SECRET: &str = "s3cret-payload";

/// A collector at a port of its own: bodies as they arrive.
struct Collector {
    url: String,
    got: mpsc::Receiver<String>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (told, got) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = Vec::new();
                let mut byte = [0; 1];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                    head.push(byte[0]);
                }
                let head = String::from_utf8(head).unwrap().to_lowercase();
                assert!(head.starts_with("post /v1/traces "), "{head}");
                let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
                let mut body = vec![0; length.unwrap().trim().parse().unwrap()];
                stream.read_exact(&mut body).unwrap();
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                stream.write_all(answer.as_bytes()).unwrap();
                let _ = told.send(String::from_utf8(body).unwrap());
            }
        });
        Self { url, got }
    }

    /// All that has arrived. Whoever sent it has ended, and an answer comes before that.
    fn bodies(&self) -> Vec<String> {
        // An answer is written before its body is told: the last of them may be on its way.
        let mut bodies: Vec<String> = self.got.try_iter().collect();
        bodies.extend(
            self.got
                .recv_timeout(std::time::Duration::from_millis(200))
                .into_iter()
                .chain(self.got.try_iter()),
        );
        bodies
    }
}

/// A span, and the service that sent it.
fn spans(bodies: &[String]) -> Vec<(String, Value)> {
    let mut spans = vec![];
    for body in bodies {
        let body: Value = serde_json::from_str(body).unwrap();
        for sent in body["resourceSpans"].as_array().unwrap() {
            let service = sent["resource"]["attributes"].as_array().unwrap();
            let service = service.iter().find(|a| a["key"] == "service.name").unwrap();
            let service = service["value"]["stringValue"].as_str().unwrap().to_owned();
            for span in sent["scopeSpans"][0]["spans"].as_array().unwrap() {
                spans.push((service.clone(), span.clone()));
            }
        }
    }
    spans.sort_by_key(|(_, span)| span["startTimeUnixNano"].as_str().unwrap().to_owned());
    spans
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a str {
    let found = span["attributes"].as_array().unwrap().iter().find(|a| a["key"] == key);
    let value = &found.unwrap_or_else(|| panic!("no {key} in {span:#}"))["value"];
    value["stringValue"].as_str().or(value["intValue"].as_str()).unwrap()
}

/// Enqueues over HTTP and says the id.
fn post(url: &str, headers: &str, job: &Value) -> String {
    let host = url.strip_prefix("http://").unwrap();
    let (mut stream, body) = (TcpStream::connect(host).unwrap(), job.to_string());
    let length = body.len();
    write!(
        stream,
        "POST /v1/jobs HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n{headers}\r\n{body}"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 201"), "{text}");
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    serde_json::from_str::<Value>(body).unwrap()["id"].as_str().unwrap().to_owned()
}

/// A job that is tried again at once.
fn job() -> Value {
    let retry = json!({"max_attempts": 3, "backoff": {"type": "fixed", "delay_ms": 1}, "jitter": "none"});
    json!({"kind": "hello", "payload": {"secret": SECRET}, "tenant": "acme", "retry": retry})
}

/// Fails once, then says which trace it is part of.
const HANDLER: &str =
    "test \"$TIDEGATE_ATTEMPT\" != 1 || { echo s3cret-error >&2; exit 75; }; echo \"\\\"$TRACEPARENT\\\"\"";

fn work<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["work", "--kind", "hello", "--until-idle", "--name", "hand", "--exec", HANDLER][..], more].concat()
}

#[test]
fn a_trace_goes_from_an_http_caller_through_a_server_and_a_worker_over_a_retry() {
    let (place, collector) = (Place::default(), Collector::start());
    let server = Serving::start(&place, &["--otlp-endpoint", &collector.url]);
    server.run(&place, &["kinds", "set", "hello", "--queue", "default"]).ok();
    let id = post(&server.url, &format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n"), &job());
    let mut worker = server.command(&place, &work(&[]));
    worker.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url).env("OTEL_SERVICE_NAME", "hands");
    finished(&mut worker).ok();
    let shown = server.run(&place, &["jobs", "show", &id, "--json"]).ok().json();
    assert!(server.run(&place, &["jobs", "show", &id]).ok().out.contains(TRACE));
    assert_eq!(server.stop(), 0);

    let bodies = collector.bodies();
    let spans = spans(&bodies);
    let [(server, enqueued), (hands, failed), (_, done)] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!((server.as_str(), hands.as_str()), ("tidegate", "hands"));
    assert!(
        spans
            .iter()
            .all(|(_, span)| span["traceId"] == TRACE && attribute(span, "messaging.message.id") == id)
    );
    assert_eq!((&enqueued["name"], &enqueued["kind"]), (&json!("enqueue hello"), &json!(4)));
    assert_eq!(
        (&enqueued["parentSpanId"], attribute(enqueued, "tidegate.outcome")),
        (&json!(CALLER), "created")
    );
    let of = |span: &Value| format!("00-{TRACE}-{}-01", span["spanId"].as_str().unwrap());
    assert_eq!(shown["traceparent"], of(enqueued));
    for (run, attempt) in [(failed, "1"), (done, "2")] {
        assert_eq!((&run["name"], &run["kind"]), (&json!("run hello"), &json!(5)));
        assert_eq!(run["parentSpanId"], enqueued["spanId"]);
        assert_eq!(
            (attribute(run, "tidegate.attempt"), attribute(run, "tidegate.worker")),
            (attempt, "hand")
        );
        assert_eq!(attribute(run, "messaging.destination.name"), "default");
        assert!(attribute(run, "tidegate.queue_wait_ms").parse::<u64>().is_ok());
    }
    assert_ne!(failed["spanId"], done["spanId"]);
    assert_eq!((&failed["status"]["code"], attribute(failed, "tidegate.outcome")), (&json!(2), "failed"));
    assert_eq!(
        (attribute(failed, "tidegate.category"), attribute(failed, "error.type")),
        ("TRANSIENT_SERVER", "EXIT_75")
    );
    assert_eq!((done.get("status"), attribute(done, "tidegate.outcome")), (None, "completed"));
    assert_eq!(shown["result"], of(done), "the handler was told its own run's context");
    for secret in [SECRET, "s3cret-error", "acme"] {
        assert!(bodies.iter().all(|b| !b.contains(secret)), "{secret}");
    }
}

#[test]
fn what_is_not_sampled_is_not_sent_and_the_context_is_handed_on_all_the_same() {
    let (place, collector) = (Place::default(), Collector::start());
    let settings = format!("[telemetry]\notlp_endpoint = \"{}\"\nsample = 0.0\n", collector.url);
    let file = place.file("some.toml", &settings);
    let server = Serving::start(&place, &["--config", &file]);
    server.run(&place, &["kinds", "set", "hello", "--queue", "default"]).ok();
    let given = format!("00-{TRACE}-{CALLER}-00");
    let ids =
        [post(&server.url, "", &job()), post(&server.url, &format!("traceparent: {given}\r\n"), &job())];
    finished(&mut server.command(&place, &work(&["--config", &file]))).ok();
    let traces = [("", Value::Null), (given.as_str(), json!(given))];
    for (id, (handed, kept)) in ids.iter().zip(traces) {
        let shown = server.run(&place, &["jobs", "show", id, "--json"]).ok().json();
        assert_eq!((&shown["result"], &shown["traceparent"]), (&json!(handed), &kept));
    }
    assert_eq!(server.stop(), 0);
    assert_eq!(collector.bodies(), Vec::<String>::new());
}

#[test]
fn a_collector_that_is_away_costs_spans_and_no_job() {
    let place = Place::default();
    let nobody = format!("127.0.0.1:{}", tidegate_testbed::free_port().unwrap());
    let endpoint = format!("http://{nobody}");
    let server = Serving::start(&place, &["--otlp-endpoint", &endpoint]);
    server.run(&place, &["kinds", "set", "hello", "--queue", "default"]).ok();
    let id = post(&server.url, "", &job());
    let ran = finished(&mut server.command(&place, &work(&["--otlp-endpoint", &endpoint]))).ok();
    assert!(ran.err.contains("traces cannot be sent"), "{}", ran.err);
    let shown = server.run(&place, &["jobs", "show", &id, "--json"]).ok().json();
    assert_eq!(shown["state"], "completed");
    let metrics = || {
        let host = server.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    wait_for("the span to be given up", || metrics().contains("\ntidegate_spans_dropped_total 1\n"));
    assert!(metrics().contains("\ntidegate_spans_sent_total 0\n"));
    assert_eq!(server.stop(), 0);
}

#[test]
fn settings_of_traces_say_where_they_come_from_and_what_is_wrong_with_them() {
    let place = Place::default();
    let file =
        place.file("some.toml", "[telemetry]\nservice_name = \"billing\"\nsample = 1\ntenants = \"yes\"\n");
    let mut command = place.command(&["config", "show", "--json", "--config", &file]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:hunter2@otel.example:4318");
    let shown = finished(&mut command).ok().json();
    let value = |key: &str| {
        let all = shown["settings"].as_array().unwrap();
        let one = all.iter().find(|s| s["key"] == key).unwrap();
        (one["value"].as_str().unwrap_or("").to_owned(), one["source"].as_str().unwrap().to_owned())
    };
    let (endpoint, source) = value("telemetry.otlp_endpoint");
    assert_eq!(
        (endpoint.as_str(), source.as_str()),
        ("http://me:•••@otel.example:4318", "environment OTEL_EXPORTER_OTLP_ENDPOINT")
    );
    assert_eq!(value("telemetry.service_name").0, "billing");
    assert_eq!((value("telemetry.sample").0.as_str(), value("telemetry.tenants").0.as_str()), ("1", "yes"));
    for (wrong, said) in [
        ("otlp_endpoint = \"otel:4317\"", "it is not a URL"),
        ("sample = 1.5", "is not a number from 0 to 1"),
    ] {
        let file = place.file("wrong.toml", &format!("[telemetry]\n{wrong}\n"));
        let ran = place.run(&["config", "check", &file]);
        assert!(ran.code != 0 && ran.err.contains(said), "{}", ran.err);
    }
}

#[test]
fn a_command_goes_on_with_the_trace_of_its_environment() {
    let place = Place::default();
    place.run(&["kinds", "set", "hello", "--queue", "default"]).ok();
    let given = format!("00-{TRACE}-{CALLER}-01");
    let enqueue = |around: &str, more: &[&str]| {
        let mut command = place.command(&[&["enqueue", "hello", "--json"][..], more].concat());
        finished(command.env("TRACEPARENT", around))
    };
    for (around, kept) in [(given.as_str(), json!(given)), ("nonsense", Value::Null)] {
        let id = enqueue(around, &[]).ok().json()["jobs"][0]["id"].as_str().unwrap().to_owned();
        assert_eq!(place.run(&["jobs", "show", &id, "--json"]).ok().json()["traceparent"], kept);
    }
    let refused = enqueue("", &["--traceparent", "nonsense"]);
    assert!(refused.code != 0 && refused.err.contains("TG2009"), "{}", refused.err);
}
