//! What a thousand event streams cost the engine: two servers, one of them followed by a process of its own, are given the same
//! load in turns. Servers, followers and load share this machine's cores, so the load is also slowed by what the followers
//! themselves need; the processor time of the server says what the streams cost it.

use std::io::Read as _;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;

use super::load::{Connection, Pace, enqueue, prepare, work};

/// Turns of each server.
const TURNS: usize = 10;
/// How long jobs are enqueued in a turn; they are worked off after that. Streams are told every two seconds at most.
const SLICE: Duration = Duration::from_secs(5);
/// Pause after a turn: what streams are told of it is over before the next.
const PAUSE: Duration = Duration::from_millis(2_500);

/// Waits until the process that started this one is gone.
async fn orphaned() {
    let _ = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await;
}

/// The part of a server: says where it is, and ends with whoever started it.
#[expect(clippy::print_stdout, reason = "the address is for the process that started this one")]
pub(super) async fn serve(addr: SocketAddr) {
    println!("{addr}");
    orphaned().await;
}

/// The part of the followers: reads streams as fast as they come, and says so when all of them have begun.
#[expect(clippy::print_stdout, reason = "for the process that started this one")]
pub(super) async fn follow(addr: SocketAddr, streams: usize) {
    let (mut readers, heard) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
    for _ in 0..streams {
        let mut connection = Connection::open(addr).await;
        let ask = connection.request("GET", "/v1/events", "");
        connection.stream.write_all(ask.as_bytes()).await.expect("the server listens");
        let mut buffer = vec![0; 1 << 16];
        assert!(connection.stream.read(&mut buffer).await.is_ok_and(|n| n > 0), "a stream begins");
        let heard = heard.clone();
        readers.spawn(async move {
            while let Ok(read @ 1..) = connection.stream.read(&mut buffer).await {
                heard.fetch_add(read as u64, Ordering::Relaxed);
            }
        });
    }
    println!("following");
    orphaned().await;
    assert!(readers.try_join_next().is_none(), "no stream has ended");
    println!("{}", heard.load(Ordering::Relaxed));
}

/// This program in another part.
struct Part {
    process: Child,
    says: Lines<BufReader<ChildStdout>>,
}

impl Part {
    /// Starts it and reads the line that it says first.
    async fn new(arguments: &[&str]) -> (Self, String) {
        let program = std::env::current_exe().expect("this program");
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a process");
        let says = BufReader::new(process.stdout.take().expect("its output")).lines();
        let mut part = Self { process, says };
        let first = part.line().await.expect("it starts");
        (part, first)
    }

    async fn line(&mut self) -> Option<String> {
        self.says.next_line().await.expect("text")
    }

    /// Ends it, with all that it has on disk, and reads what it says last.
    async fn end(mut self) -> Option<String> {
        drop(self.process.stdin.take());
        let last = self.line().await;
        assert!(self.process.wait().await.is_ok_and(|status| status.success()), "a part ends well");
        last
    }
}

struct Served {
    part: Part,
    addr: SocketAddr,
}

impl Served {
    async fn new() -> Self {
        let (part, addr) = Part::new(&["serve"]).await;
        let addr = addr.parse().expect("an address");
        prepare(addr).await;
        Self { part, addr }
    }

    /// Processor time so far, in ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let pid = self.part.process.id().expect("it runs");
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("figures of a process");
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
    }

    /// What some load was, and what the server needed for it.
    async fn given(&self, load: impl Future<Output = Pace>) -> Sum {
        let before = self.ticks();
        let pace = load.await;
        Sum { jobs: pace.jobs, took: pace.took, ticks: self.ticks() - before }
    }

    /// A turn: enqueueing, and working off what was enqueued.
    async fn turn(&self) -> [Sum; 2] {
        [self.given(enqueue(self.addr, 50, SLICE)).await, self.given(work(self.addr, 4, 500)).await]
    }
}

/// One kind of load, over several turns.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    jobs: u64,
    took: Duration,
    ticks: u64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        (self.jobs, self.took, self.ticks) =
            (self.jobs + other.jobs, self.took + other.took, self.ticks + other.ticks);
    }

    fn per_s(self) -> f64 {
        self.jobs as f64 / self.took.as_secs_f64()
    }

    /// Microseconds of the server's processor time for a job.
    fn each(self) -> f64 {
        self.ticks as f64 * 10_000.0 / self.jobs as f64
    }
}

/// Enqueues and works at a server with followers and at one without, in turns.
#[expect(clippy::print_stdout, reason = "figures are what this program is for")]
pub(super) async fn compare(streams: usize) {
    let servers = [Served::new().await, Served::new().await];
    let (followers, said) = Part::new(&["follow", &servers[1].addr.to_string(), &streams.to_string()]).await;
    assert_eq!(said, "following");
    for server in &servers {
        server.turn().await;
        tokio::time::sleep(PAUSE).await;
    }
    let mut sums = [[Sum::default(); 2]; 2];
    for turn in 0..TURNS * 2 {
        // Without, with, with, without: what grows over time counts for both.
        let followed = usize::from(matches!(turn % 4, 1 | 2));
        let seen = servers[followed].turn().await;
        sums[followed].iter_mut().zip(seen).for_each(|(sum, seen)| sum.add(seen));
        tokio::time::sleep(PAUSE).await;
    }
    let heard: u64 = followers.end().await.and_then(|bytes| bytes.parse().ok()).expect("what they heard");
    assert!(streams == 0 || heard > 0, "followers hear something");
    for server in servers {
        server.part.end().await;
    }
    println!("followers     enqueue                work");
    for (followers, [enqueued, worked]) in [0, streams].into_iter().zip(sums) {
        println!(
            "{followers:>9}  {:>8.0}/s {:>5.1} µs {:>9.0}/s {:>5.1} µs",
            enqueued.per_s(),
            enqueued.each(),
            worked.per_s(),
            worked.each()
        );
    }
    let change = |of: fn(Sum) -> f64, load: usize| (of(sums[1][load]) / of(sums[0][load]) - 1.0) * 100.0;
    println!(
        "{streams} followers, {} MB heard: enqueue {:+.1} %, work {:+.1} %; time of the server for a job {:+.1} % and {:+.1} %",
        heard / 1_000_000,
        change(Sum::per_s, 0),
        change(Sum::per_s, 1),
        change(Sum::each, 0),
        change(Sum::each, 1)
    );
}
