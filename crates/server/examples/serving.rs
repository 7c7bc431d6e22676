//! How fast the server is over an embedded store, client and server on the same machine:
//! `cargo run --release -p tidegate-server --example serving [SECONDS] [followers]`. With `followers`, only what a thousand
//! event streams cost the engine, measured in turns with and without them.
//!
//! The client writes and reads HTTP by hand: what is measured is the server and the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_core::time::Timestamp;
use tidegate_server::{Server, ServerOptions};
use tidegate_store::Store;
use tidegate_store_sqlite::SqliteStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// About the size of a real payload.
const PAYLOAD: &str = r#"{"order":123456,"customer":"ada@example.com","lines":[{"sku":"A-1","count":2},{"sku":"B-7","count":1}],"address":{"street":"1 Main St","city":"Springfield","country":"US"},"note":"leave it at the door please, thank you"}"#;

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    host: String,
}

impl Connection {
    async fn open(addr: std::net::SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.expect("a connection");
        stream.set_nodelay(true).expect("a connection");
        Self { stream, buffer: Vec::with_capacity(1 << 16), host: addr.to_string() }
    }

    fn request(&self, method: &str, path: &str, body: &str) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        )
    }

    async fn send(&mut self, method: &str, path: &str, body: &str) -> String {
        let request = self.request(method, path, body);
        self.raw(request.as_bytes()).await
    }

    async fn raw(&mut self, request: &[u8]) -> String {
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

fn now() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64)
}

/// Single enqueues over so many connections.
async fn enqueue(addr: std::net::SocketAddr, connections: usize, seconds: u64) -> f64 {
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
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    count.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

/// Workers that claim and complete in batches until nothing is left.
async fn work(addr: std::net::SocketAddr, workers: usize, batch: usize) -> f64 {
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
    let done: u64 = tasks.join_all().await.into_iter().sum();
    done as f64 / begun.elapsed().as_secs_f64()
}

/// Time from the answer to an enqueue until a waiting claim is answered.
async fn pickup(addr: std::net::SocketAddr, rounds: usize) -> (Duration, Duration) {
    let mut times = vec![];
    let (mut producer, mut worker) = (Connection::open(addr).await, Connection::open(addr).await);
    let claim = r#"{"worker":"w","queues":[{"name":"post"}],"max":1,"wait_ms":20000}"#;
    for _ in 0..rounds {
        let waiting = async {
            let claimed = worker.send("POST", "/v1/claims", claim).await;
            (Instant::now(), claimed)
        };
        let enqueueing = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let sent = Instant::now();
            producer.send("POST", "/v1/jobs", r#"{"kind":"mail"}"#).await;
            sent
        };
        let ((claimed_at, claimed), sent) = tokio::join!(waiting, enqueueing);
        times.push(claimed_at - sent);
        let ticket =
            claimed.split(r#""ticket":""#).nth(1).and_then(|s| s.split('"').next()).unwrap_or_default();
        let body = format!(r#"{{"settlements":[{{"ticket":"{ticket}","outcome":"complete"}}]}}"#);
        worker.send("POST", "/v1/settlements", &body).await;
    }
    times.sort();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

/// Streams of all events that are read as fast as they come, and how many bytes came.
async fn follow(addr: std::net::SocketAddr, streams: usize) -> (JoinSet<()>, Arc<AtomicU64>) {
    let (mut readers, bytes) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
    for _ in 0..streams {
        let mut connection = Connection::open(addr).await;
        let ask = connection.request("GET", "/v1/events", "");
        connection.stream.write_all(ask.as_bytes()).await.expect("the server listens");
        let bytes = bytes.clone();
        readers.spawn(async move {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(read @ 1..) = connection.stream.read(&mut buffer).await {
                bytes.fetch_add(read as u64, Ordering::Relaxed);
            }
        });
    }
    (readers, bytes)
}

/// Measurements with followers, and as many without.
const ROUNDS: u32 = 4;

/// Enqueues and works with and without a thousand followers, in turns.
#[expect(clippy::print_stdout, reason = "figures are what this program is for")]
async fn followers(addr: std::net::SocketAddr, seconds: u64) {
    let mut sums = [[0.0; 2]; 2];
    enqueue(addr, 50, 1).await;
    work(addr, 4, 500).await;
    for round in 0..ROUNDS * 2 {
        // With, without, without, with: what grows over time counts for both.
        let with = matches!(round % 4, 0 | 3);
        let (mut readers, bytes) = follow(addr, if with { 1_000 } else { 0 }).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let figures = [enqueue(addr, 50, seconds).await, work(addr, 4, 500).await];
        let heard = bytes.load(Ordering::Relaxed) / (1 << 20);
        println!(
            "followers: {with:<5}  enqueue {:>8.0} /s  work {:>8.0} /s  {heard:>5} MiB heard",
            figures[0], figures[1]
        );
        for (sum, figure) in sums[usize::from(with)].iter_mut().zip(figures) {
            *sum += figure / f64::from(ROUNDS);
        }
        readers.shutdown().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let [without, with] = sums;
    println!(
        "a thousand followers: enqueue {:+.1} %, work {:+.1} %",
        (with[0] / without[0] - 1.0) * 100.0,
        (with[1] / without[1] - 1.0) * 100.0
    );
}

/// Memory of this process in MiB.
fn memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = status.split(' ').nth(1).and_then(|p| p.parse().ok()).unwrap_or(0.0);
    pages * 4096.0 / 1_048_576.0
}

#[expect(clippy::print_stdout, reason = "figures are what this program is for")]
fn main() {
    let seconds: u64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(5);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    let dir = tempfile::tempdir().expect("a directory");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(dir.path(), now()).expect("a store"));
    runtime.block_on(async {
        let bind = "127.0.0.1:0".parse().expect("an address");
        let server = Server::bind(store.clone(), ServerOptions { bind, ..ServerOptions::default() })
            .await
            .expect("a port");
        let addr = server.addr();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        let mut setup = Connection::open(addr).await;
        setup.send("POST", "/v1/queues", r#"{"name":"post"}"#).await;
        setup.send("PUT", "/v1/kinds/mail", r#"{"queue":"post"}"#).await;
        if std::env::args().nth(2).is_some_and(|what| what == "followers") {
            followers(addr, seconds).await;
            let _ = stop.send(());
            running.await.expect("the server ends");
            return;
        }
        println!("single enqueue, 50 connections   {:>9.0} /s", enqueue(addr, 50, seconds).await);
        println!("claim and complete, 4 workers    {:>9.0} /s", work(addr, 4, 500).await);
        let (p50, p99) = pickup(addr, 500).await;
        println!("pickup by long poll              p50 {p50:?}, p99 {p99:?}");
        let before = memory();
        let mut idle = vec![];
        for _ in 0..9_000 {
            match TcpStream::connect(addr).await {
                Ok(stream) => idle.push(stream),
                Err(_) => break,
            }
        }
        println!("{} idle connections: {:.0} MiB more", idle.len(), memory() - before);
        println!("single enqueue beside them       {:>9.0} /s", enqueue(addr, 50, seconds).await);
        drop(idle);
        work(addr, 4, 500).await;
        let mut followers = vec![];
        for _ in 0..1_000 {
            let mut connection = Connection::open(addr).await;
            let ask = connection.request("GET", "/v1/events?tenant=nobody", "");
            connection.stream.write_all(ask.as_bytes()).await.expect("the server listens");
            followers.push(connection);
        }
        println!("with 1,000 filtered followers    {:>9.0} /s", enqueue(addr, 50, seconds).await);
        work(addr, 4, 500).await;
        drop(followers);
        let mut readers = JoinSet::new();
        for _ in 0..1_000 {
            readers.spawn(async move {
                let mut connection = Connection::open(addr).await;
                let ask = connection.request("GET", "/v1/events", "");
                connection.stream.write_all(ask.as_bytes()).await.expect("the server listens");
                let mut buffer = vec![0; 1 << 16];
                while connection.stream.read(&mut buffer).await.is_ok_and(|n| n > 0) {}
            });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        println!("with 1,000 followers of all      {:>9.0} /s", enqueue(addr, 50, seconds).await);
        readers.shutdown().await;
        println!("without followers again          {:>9.0} /s", enqueue(addr, 50, seconds).await);
        let _ = stop.send(());
        running.await.expect("the server ends");
    });
}
