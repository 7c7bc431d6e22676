//! What clients do, with HTTP written and read by hand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// About the size of a real payload.
const PAYLOAD: &str = r#"{"order":123456,"customer":"ada@example.com","lines":[{"sku":"A-1","count":2},{"sku":"B-7","count":1}],"address":{"street":"1 Main St","city":"Springfield","country":"US"},"note":"leave it at the door please, thank you"}"#;

/// A connection that is kept open.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    buffer: Vec<u8>,
    host: String,
}

impl Connection {
    pub(super) async fn open(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.expect("a connection");
        stream.set_nodelay(true).expect("a connection");
        Self { stream, buffer: Vec::with_capacity(1 << 16), host: addr.to_string() }
    }

    pub(super) fn request(&self, method: &str, path: &str, body: &str) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        )
    }

    pub(super) async fn send(&mut self, method: &str, path: &str, body: &str) -> String {
        let request = self.request(method, path, body);
        self.raw(request.as_bytes()).await
    }

    pub(super) async fn raw(&mut self, request: &[u8]) -> String {
        self.stream.write_all(request).await.expect("the server listens");
        self.buffer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.buffer).await.expect("an answer");
            assert!(read > 0, "the server closed the connection");
            let Some(end) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
            let head = std::str::from_utf8(&self.buffer[..end]).expect("text");
            assert!(head.starts_with("HTTP/1.1 2"), "{head}");
            let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let length = length.unwrap_or(0);
            if self.buffer.len() >= end + 4 + length {
                return String::from_utf8_lossy(&self.buffer[end + 4..]).into_owned();
            }
        }
    }
}

/// Jobs that something was done with, and in what time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) jobs: u64,
    pub(super) took: Duration,
}

impl Pace {
    pub(super) fn per_s(self) -> f64 {
        self.jobs as f64 / self.took.as_secs_f64()
    }
}

/// Queue and kind of the jobs.
pub(super) async fn prepare(addr: SocketAddr) {
    let mut setup = Connection::open(addr).await;
    setup.send("POST", "/v1/queues", r#"{"name":"post"}"#).await;
    setup.send("PUT", "/v1/kinds/mail", r#"{"queue":"post"}"#).await;
}

/// Single enqueues over so many connections.
pub(super) async fn enqueue(addr: SocketAddr, connections: usize, lasts: Duration) -> Pace {
    let (over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for _ in 0..connections {
        let (over, count) = (over.clone(), count.clone());
        tasks.spawn(async move {
            let mut connection = Connection::open(addr).await;
            let body = format!(r#"{{"kind":"mail","payload":{PAYLOAD}}}"#);
            let request = connection.request("POST", "/v1/jobs", &body);
            while !over.load(Ordering::Relaxed) {
                connection.raw(request.as_bytes()).await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tokio::time::sleep(lasts).await;
    over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    Pace { jobs: count.load(Ordering::Relaxed), took: begun.elapsed() }
}

/// Workers that claim and complete in batches until nothing is left.
pub(super) async fn work(addr: SocketAddr, workers: usize, batch: usize) -> Pace {
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for n in 0..workers {
        tasks.spawn(async move {
            let mut connection = Connection::open(addr).await;
            let claim = format!(r#"{{"worker":"w{n}","queues":[{{"name":"post"}}],"max":{batch}}}"#);
            let mut done = 0u64;
            loop {
                let claimed = connection.send("POST", "/v1/claims", &claim).await;
                let tickets: Vec<&str> =
                    claimed.split(r#""ticket":""#).skip(1).filter_map(|s| s.split('"').next()).collect();
                if tickets.is_empty() {
                    return done;
                }
                let settled: Vec<String> =
                    tickets.iter().map(|t| format!(r#"{{"ticket":"{t}","outcome":"complete"}}"#)).collect();
                done += tickets.len() as u64;
                let body = format!(r#"{{"settlements":[{}]}}"#, settled.join(","));
                connection.send("POST", "/v1/settlements", &body).await;
            }
        });
    }
    Pace { jobs: tasks.join_all().await.into_iter().sum(), took: begun.elapsed() }
}
