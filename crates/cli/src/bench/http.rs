//! `tidegate bench http`: the way of a job over HTTP, measured. The server is a process of its own on a temporary
//! directory, as `tidegate serve` starts it; this process is its clients.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tidegate::{Context, Tidegate, Worker, done};
use tidegate_client::{RemoteOptions, RemoteStore};
use tidegate_core::codes;
use tidegate_core::why::grouped;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::task::JoinSet;

use super::figures::{Pickup, memory_mb};
use super::jobs::{self, NoOp, Seen};
use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table};

/// Connections of the single enqueue, each with one request under way.
const CONNECTIONS: u64 = 50;
/// Longest answer to one of them.
const LARGEST_ANSWER: usize = 64 * 1_024;
/// Time for the server to start.
const START: Duration = Duration::from_secs(30);
/// Time for it to stop.
const STOP: Duration = Duration::from_secs(20);

/// Arguments of `tidegate bench http`.
#[derive(Debug, Args)]
pub(crate) struct HttpArgs {
    /// Jobs to enqueue and process
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    jobs: u64,
    /// Handlers at a time
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
}

/// All figures of `bench http`. The names are a contract.
#[derive(Debug, Serialize)]
struct Figures {
    jobs: u64,
    connections: u64,
    concurrency: u32,
    payload_bytes: usize,
    enqueue_single_per_s: f64,
    enqueue_library_per_s: f64,
    process_per_s: f64,
    pickup_ms: Pickup,
    lost: u64,
    duplicated: u64,
    rss_mb: f64,
}

/// Measures a server of its own.
pub(super) async fn run(args: HttpArgs, output: &Output) -> Result<()> {
    let server = Server::start().await?;
    let remote = Arc::new(RemoteStore::connect(&server.url, RemoteOptions::default()).await?);
    let tide = Tidegate::with_store(remote);
    tide.register::<NoOp>().await?;
    jobs::register_pickup(&tide).await?;

    output.note("enqueue, one request for each …");
    let enqueue_single_per_s = enqueue_single(&server.url, args.jobs).await?;
    output.note("enqueue by the library, 50 callers …");
    let enqueue_library_per_s = jobs::enqueue_single(&tide, args.jobs, args.jobs, jobs::GROUPS).await?;
    output.note("process …");
    let seen = Arc::new(Seen::new(2 * args.jobs));
    let process_per_s = process(&tide, args.concurrency, &seen).await?;
    let (rss_mb, _) = memory_mb();
    output.note("pickup …");
    let pickup_ms = jobs::pickup(&tide).await?;

    let totals = tide.store().totals().await?;
    tide.close().await?;
    server.stop().await?;
    let figures = Figures {
        jobs: args.jobs,
        connections: CONNECTIONS,
        concurrency: args.concurrency,
        payload_bytes: jobs::PAYLOAD_BYTES,
        enqueue_single_per_s,
        enqueue_library_per_s,
        process_per_s,
        pickup_ms,
        lost: totals.ready
            + totals.scheduled
            + totals.running
            + totals.dead
            + seen.missing()
            + seen.strangers(),
        duplicated: seen.twice(),
        rss_mb,
    };
    output.answer(&figures, || figures.table(output))
}

impl Figures {
    fn table(&self, output: &Output) -> String {
        let per_s = |n: f64| format!("{}/s", grouped(n as u64));
        let ms = |n: f64| format!("{n:.2} ms");
        let mut table =
            Table::new(vec![Column::fixed("FIGURE"), Column::number("VALUE"), Column::text("HOW", 20)]);
        let mut row = |name: &str, value: String, how: &str| table.row(vec![name.into(), value, how.into()]);
        row(
            "enqueue, one by one",
            per_s(self.enqueue_single_per_s),
            "50 connections, one request for each job, each waits until it is on disk",
        );
        row("enqueue by the library", per_s(self.enqueue_library_per_s), "50 callers that share requests");
        row("process", per_s(self.process_per_s), "a remote worker, no-op handler, completed jobs kept");
        row("pickup p50", ms(self.pickup_ms.p50), "idle queue, from before the enqueue to the handler");
        row("pickup p95", ms(self.pickup_ms.p95), "");
        row("pickup p99", ms(self.pickup_ms.p99), "");
        row("lost", grouped(self.lost), "acknowledged and not there");
        row("run twice", grouped(self.duplicated), "");
        row("memory", format!("{:.0} MB", self.rss_mb), "resident, of the worker's process");
        table.render(output)
    }
}

/// A server in a process and a directory of its own.
struct Server {
    url: String,
    child: Child,
    _dir: tempfile::TempDir,
}

impl Server {
    async fn start() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let mut command = tokio::process::Command::new(std::env::current_exe()?);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIDEGATE_") {
                command.env_remove(name);
            }
        }
        let mut child = command
            .args(["serve", "--bind", "127.0.0.1:0", "--json"])
            .env("TIDEGATE_STORE", format!("sqlite:{}", dir.path().join("data").display()))
            // No file with settings is found there.
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let failed = || Failure::new(codes::INTERNAL, "the server did not start");
        let mut lines = BufReader::new(child.stdout.take().ok_or_else(failed)?).lines();
        let line = tokio::time::timeout(START, lines.next_line()).await.map_err(|_| failed())??;
        let line: serde_json::Value =
            serde_json::from_str(&line.ok_or_else(failed)?).map_err(|_| failed())?;
        let url = line["url"].as_str().ok_or_else(failed)?.to_owned();
        Ok(Self { url, child, _dir: dir })
    }

    async fn stop(mut self) -> Result<()> {
        if let Some(pid) = self.child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let ended = tokio::time::timeout(STOP, self.child.wait()).await;
        let failed = |why: &str| Failure::new(codes::INTERNAL, format!("the server {why}"));
        match ended.map_err(|_| failed("did not stop"))?? {
            status if status.success() => Ok(()),
            status => Err(failed(&format!("failed: {status}"))),
        }
    }
}

/// Enqueues `n` jobs, each by a request of its own, over connections that are kept.
async fn enqueue_single(url: &str, n: u64) -> Result<f64> {
    let authority = url.strip_prefix("http://").unwrap_or(url).to_owned();
    let next = Arc::new(AtomicU64::new(0));
    let mut streams = vec![];
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(&authority).await?;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    let started = Instant::now();
    let mut connections = JoinSet::new();
    for stream in streams {
        connections.spawn(enqueue_over(stream, authority.clone(), next.clone(), n));
    }
    while let Some(ended) = connections.join_next().await {
        ended.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))??;
    }
    Ok(jobs::per_s(n, started.elapsed()))
}

/// One connection: the next request follows the answer to the one before. By hand, so that the time is the server's: a client
/// library took a quarter of the machine.
async fn enqueue_over(mut stream: TcpStream, authority: String, next: Arc<AtomicU64>, n: u64) -> Result<()> {
    let failed = |what: String| Failure::new(codes::SERVER_UNREACHABLE, format!("a request failed: {what}"));
    let mut answer = Vec::with_capacity(4_096);
    loop {
        let order = next.fetch_add(1, Ordering::Relaxed);
        if order >= n {
            return Ok(());
        }
        stream.write_all(request(order, &authority).as_bytes()).await.map_err(|e| failed(e.to_string()))?;
        answer.clear();
        let body = loop {
            if stream.read_buf(&mut answer).await.map_err(|e| failed(e.to_string()))? == 0 {
                return Err(failed("the server closed a connection".into()));
            }
            match body_of(&answer) {
                Some(body) => break body,
                None if answer.len() > LARGEST_ANSWER => return Err(failed("an answer without end".into())),
                None => {}
            }
        };
        if !answer.starts_with(b"HTTP/1.1 201 ") {
            let said = String::from_utf8_lossy(body);
            return Err(Failure::new(codes::INTERNAL, format!("a job was not created: {said}")));
        }
    }
}

/// The body of an answer, once all of it is there.
fn body_of(answer: &[u8]) -> Option<&[u8]> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    answer.get(end + 4..)?.get(..length)
}

fn request(order: u64, authority: &str) -> String {
    let payload = serde_json::to_string(&NoOp::new(order)).unwrap_or_default();
    let group = jobs::group(order, jobs::GROUPS);
    let body = format!("{{\"kind\":\"bench.noop\",\"group\":\"{group}\",\"payload\":{payload}}}");
    let length = body.len();
    format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Jobs per second from the worker's start until everything it ran is settled.
async fn process(tide: &Tidegate, concurrency: u32, seen: &Arc<Seen>) -> Result<f64> {
    let handler = {
        let seen = seen.clone();
        move |job: NoOp, _: Context| {
            let seen = seen.clone();
            async move {
                seen.saw(job.order(), seen.known());
                done()
            }
        }
    };
    let worker = Worker::new(tide).handle(handler).concurrency(concurrency as usize);
    let target = seen.clone();
    let started = Instant::now();
    let report = worker.run_until(async move { target.all_seen().await }).await?;
    Ok(jobs::per_s(report.completed, started.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_to_its_end() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\ndate: now\r\n\r\nbody";
        assert_eq!(body_of(answer), Some(&b"body"[..]));
        for end in 0..answer.len() {
            assert_eq!(body_of(&answer[..end]), None);
        }
    }
}
