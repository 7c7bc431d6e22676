//! How fast the server is over an embedded store, client and server on the same machine:
//! `cargo run --release -p tidegate-server --example serving [SECONDS]`; or, with `followers [STREAMS]`, what a thousand event
//! streams cost the engine.
//!
//! The client writes and reads HTTP by hand: what is measured is the server and the store.

mod followers;
mod load;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_core::time::Timestamp;
use tidegate_server::{Server, ServerOptions};
use tidegate_store::Store;
use tidegate_store_sqlite::SqliteStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use self::load::{Connection, enqueue, prepare, work};

fn now() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64)
}

/// Time from the answer to an enqueue until a waiting claim is answered.
async fn pickup(addr: SocketAddr, rounds: usize) -> (Duration, Duration) {
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

/// Memory of this process in MiB.
fn memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = status.split(' ').nth(1).and_then(|p| p.parse().ok()).unwrap_or(0.0);
    pages * 4096.0 / 1_048_576.0
}

/// Serves an empty store to what is done with its address.
async fn serving<F: Future>(act: impl FnOnce(SocketAddr) -> F) -> F::Output {
    let dir = tempfile::tempdir().expect("a directory");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(dir.path(), now()).expect("a store"));
    let bind = "127.0.0.1:0".parse().expect("an address");
    let server =
        Server::bind(store, ServerOptions { bind, ..ServerOptions::default() }).await.expect("a port");
    let addr = server.addr();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    prepare(addr).await;
    let output = act(addr).await;
    let _ = stop.send(());
    running.await.expect("the server ends");
    output
}

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    runtime.block_on(async {
        match arguments[..] {
            ["followers"] => followers::compare(1_000).await,
            ["followers", streams] => followers::compare(streams.parse().expect("a number of streams")).await,
            ["serve"] => serving(followers::serve).await,
            ["follow", addr, streams] => {
                let streams = streams.parse().expect("a number of streams");
                followers::follow(addr.parse().expect("an address"), streams).await;
            }
            [] => serving(|addr| all(addr, Duration::from_secs(5))).await,
            [seconds] => {
                let seconds = seconds.parse().expect("seconds, or `followers`");
                serving(|addr| all(addr, Duration::from_secs(seconds))).await;
            }
            _ => panic!("seconds, or `followers`"),
        }
    });
}

#[expect(clippy::print_stdout, reason = "figures are what this program is for")]
async fn all(addr: SocketAddr, lasts: Duration) {
    println!("single enqueue, 50 connections   {:>9.0} /s", enqueue(addr, 50, lasts).await.per_s());
    println!("claim and complete, 4 workers    {:>9.0} /s", work(addr, 4, 500).await.per_s());
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
    println!("single enqueue beside them       {:>9.0} /s", enqueue(addr, 50, lasts).await.per_s());
    drop(idle);
    work(addr, 4, 500).await;
    let mut followers = vec![];
    for _ in 0..1_000 {
        let mut connection = Connection::open(addr).await;
        let ask = connection.request("GET", "/v1/events?tenant=nobody", "");
        connection.stream.write_all(ask.as_bytes()).await.expect("the server listens");
        followers.push(connection);
    }
    println!("with 1,000 filtered followers    {:>9.0} /s", enqueue(addr, 50, lasts).await.per_s());
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
    println!("with 1,000 followers of all      {:>9.0} /s", enqueue(addr, 50, lasts).await.per_s());
    readers.shutdown().await;
    println!("without followers again          {:>9.0} /s", enqueue(addr, 50, lasts).await.per_s());
}
