//! Ten thousand connections that say nothing. Not run by default:
//! `cargo nextest run -p tidegate-server soak:: --run-ignored only`.
//!
//! Both ends of so many connections are more files than most processes may have open, so the clients are a process of
//! their own: this program again. It needs 11,000 files for each of the two.

#![expect(clippy::print_stdout, reason = "that is how the clients say how far they are")]

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Served, options};
use serde_json::json;
use tidegate_store::MemoryStore;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

const CONNECTIONS: usize = 10_000;
/// Files of a process beside its connections.
const OTHER_FILES: u64 = 500;
/// Most memory of the server for each connection that has said nothing, and for each that has been used: its task and its
/// place; then parser and buffers as well.
const MOST_KIB: (usize, usize) = (8, 40);
const PATIENCE: Duration = Duration::from_mins(3);
const ADDRESS: &str = "TIDEGATE_SOAK_ADDRESS";

fn memory_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn raise_files() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wanted = CONNECTIONS as u64 + OTHER_FILES;
    if limit.current.is_some_and(|n| n < wanted) {
        limit.current = Some(wanted);
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)
            .expect("enough files may be opened");
    }
}

/// The clients: a process that the test starts. It opens its connections, and sends a request over each when told to.
#[tokio::test]
#[ignore = "a part of the test below"]
async fn clients() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let address: SocketAddr = address.parse().unwrap();
    raise_files();
    let mut open = vec![];
    for _ in 0..CONNECTIONS {
        open.push(TcpStream::connect(address).await.unwrap());
    }
    println!("\nopen {}", open.len());
    // Nothing else goes on in this process while it waits.
    for _order in std::io::stdin().lines() {
        let mut answered = 0;
        for stream in &mut open {
            let ask = format!("GET /live HTTP/1.1\r\nhost: {address}\r\n\r\n");
            stream.write_all(ask.as_bytes()).await.unwrap();
            let mut answer = [0; 512];
            let read = stream.read(&mut answer).await.unwrap();
            answered += usize::from(answer[..read].starts_with(b"HTTP/1.1 200"));
        }
        println!("\nanswered {answered}");
    }
}

struct Clients {
    orders: ChildStdin,
    said: tokio::io::Lines<BufReader<ChildStdout>>,
}

impl Clients {
    async fn hear(&mut self, word: &str) -> usize {
        let hearing = async {
            loop {
                let line = self.said.next_line().await.unwrap().expect("the clients go on");
                if let Some(count) = line.strip_prefix(word) {
                    return count.trim().parse().unwrap();
                }
            }
        };
        timeout(PATIENCE, hearing).await.expect("the clients say how far they are")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute and twenty thousand files"]
async fn ten_thousand_idle_connections_cost_little_and_all_of_them_work() {
    raise_files();
    let mut options = options();
    options.limits.idle_timeout = Duration::from_mins(10);
    let served = Served::with(Arc::new(MemoryStore::new()), options).await;
    served.register().await;
    served.mail(json!({})).await;
    let before = memory_kib();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["soak::clients", "--exact", "--ignored", "--nocapture"])
        .env(ADDRESS, served.addr.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut clients = Clients { orders: child.stdin.take().unwrap(), said };
    assert_eq!(clients.hear("open ").await, CONNECTIONS);
    // Accepted after it was opened.
    served.mail(json!({})).await;
    let idle = memory_kib().saturating_sub(before);
    clients.orders.write_all(b"all\n").await.unwrap();
    assert_eq!(clients.hear("answered ").await, CONNECTIONS, "none was closed");
    let used = memory_kib().saturating_sub(before);
    served.mail(json!({})).await;
    println!("{CONNECTIONS} connections: {} MiB idle, {} MiB when each was used", idle / 1024, used / 1024);
    assert!(idle <= CONNECTIONS * MOST_KIB.0, "{idle} KiB for {CONNECTIONS} idle connections");
    assert!(used <= CONNECTIONS * MOST_KIB.1, "{used} KiB for {CONNECTIONS} connections that were used");
    let Clients { orders, mut said } = clients;
    drop(orders);
    while said.next_line().await.unwrap().is_some() {}
    timeout(PATIENCE, child.wait()).await.expect("the clients end").unwrap();
}
