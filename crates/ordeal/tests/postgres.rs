//! Two servers and four workers on one Postgres, as real processes: killed, stopped, and with the database restarted under
//! them. Judged by plain files and by `psql`, without any of Tidegate's own counters.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_core::ids::JobId;
use tidegate_core::seed::Seed;
use tidegate_ordeal::{Files, number_of, read};
use tidegate_testbed::free_port;
use tidegate_testbed::postgres::Server;

fn count(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |n| n.parse().unwrap())
}

/// The processes, each with the arguments to start it again.
struct Fleet {
    database: Server,
    dir: tempfile::TempDir,
    members: Vec<(Vec<String>, Child)>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for (_, child) in &mut self.members {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawn(args: &[String]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_fleet")).args(args).spawn().unwrap()
}

impl Fleet {
    fn new() -> Self {
        let database = Server::start(&["max_connections=100"]).unwrap();
        Self { database, dir: tempfile::tempdir().unwrap(), members: vec![] }
    }

    fn add(&mut self, args: &[&str]) -> usize {
        let args: Vec<String> = args.iter().map(|s| (*s).to_owned()).collect();
        let child = spawn(&args);
        self.members.push((args, child));
        self.members.len() - 1
    }

    /// Two servers, two workers of each kind: over HTTP and on the database itself.
    fn full() -> (Self, Vec<String>) {
        let mut fleet = Self::new();
        let url = fleet.database.url();
        let dir = fleet.path().display().to_string();
        let mut servers = vec![];
        for _ in 0..2 {
            let port = free_port().unwrap().to_string();
            fleet.add(&["server", &url, &port]);
            servers.push(format!("http://127.0.0.1:{port}"));
        }
        for (name, address) in [("w1", &servers[0]), ("w2", &servers[1]), ("w3", &url), ("w4", &url)] {
            fleet.add(&["worker", address, &dir, name]);
        }
        (fleet, servers)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    fn files(&self) -> Files {
        Files::under(self.dir.path())
    }

    fn kill(&mut self, member: usize) {
        let (args, child) = &mut self.members[member];
        child.kill().unwrap();
        child.wait().unwrap();
        *child = spawn(args);
    }

    fn signal(&self, member: usize, signal: Signal) {
        let pid = Pid::from_child(&self.members[member].1);
        kill_process(pid, signal).unwrap();
    }

    fn ask(&self, text: &str) -> String {
        self.database.sql_in_tests(text).unwrap()
    }

    /// Numbers of finished jobs by state (1 completed, 2 dead, 3 cancelled), read with psql.
    fn finished(&self, state: u8) -> Vec<u64> {
        if self.done() == 0 {
            return vec![];
        }
        let text = self.ask(&format!(
            "SELECT id FROM tidegate.done JOIN tidegate.jobs USING (seq) WHERE state = {state}"
        ));
        text.lines().map(|id| number_of(JobId::from_uuid(id.trim().parse().unwrap()))).collect()
    }

    fn number(&self, text: &str) -> u64 {
        self.ask(text).trim().parse().unwrap()
    }

    /// How many jobs have ended; none before there are tables.
    fn done(&self) -> u64 {
        if self.ask("SELECT to_regclass('tidegate.done') IS NOT NULL").trim() != "t" {
            return 0;
        }
        self.number("SELECT count(*) FROM tidegate.done")
    }
}

/// Waits until something holds; says how long that took.
fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    began.elapsed()
}

struct Run {
    number: u64,
    token: i64,
    line: usize,
}

fn starts(path: &Path) -> Vec<Run> {
    let lines = read(path).unwrap().into_iter().enumerate();
    let start = |(line, words): (usize, Vec<String>)| {
        let number = |i: usize| words[i].parse::<i64>().unwrap();
        (words[0] == "start").then(|| Run { number: number(1) as u64, token: number(2), line })
    };
    lines.filter_map(start).collect()
}

fn acknowledged(files: &Files) -> u64 {
    read(&files.acknowledged).unwrap().iter().map(|words| words[2].parse::<u64>().unwrap()).sum()
}

/// What must hold at the end, whatever was done to the processes meanwhile. Returns runs, and dead letters.
fn judge(fleet: &Fleet, jobs: u64, completed_at: &[(HashSet<u64>, usize)]) -> (usize, usize) {
    let files = fleet.files();
    assert_eq!(acknowledged(&files), jobs);
    assert_eq!(
        fleet.number("SELECT count(*) FROM tidegate.jobs"),
        jobs,
        "acknowledged but missing, or stored twice"
    );
    let (completed, dead) = (fleet.finished(1), fleet.finished(2));
    let distinct: HashSet<u64> = completed.iter().chain(&dead).copied().collect();
    let ended = (completed.len() + dead.len()) as u64;
    assert_eq!((ended, distinct.len() as u64), (jobs, jobs), "lost, or ended twice");
    let others = fleet.ask("SELECT letter FROM tidegate.done WHERE state = 2");
    for letter in others.lines().filter(|l| !l.trim().is_empty()) {
        assert!(
            letter.contains("\"poison\"") && letter.contains("SYSTEM_FAILURE"),
            "no handler fails: {letter}"
        );
    }
    let starts = starts(&files.runs);
    for (completed, lines) in completed_at {
        let again = starts.iter().find(|run| run.line >= *lines && completed.contains(&run.number));
        assert!(again.is_none(), "job {} was completed and ran again", again.map_or(0, |r| r.number));
    }
    let mut last: HashMap<u64, i64> = HashMap::new();
    for run in &starts {
        let before = last.insert(run.number, run.token);
        assert!(before.is_none_or(|token| token < run.token), "job {} ran twice under one lease", run.number);
    }
    for number in &dead {
        let runs = starts.iter().filter(|run| run.number == *number).count();
        assert!(runs >= 3, "job {number} is dead after {runs} runs");
    }
    (starts.len(), dead.len())
}

/// Waits until every job is finished.
fn drained(fleet: &mut Fleet, producer: usize, jobs: u64) {
    let sent = fleet.members[producer].1.wait().unwrap();
    assert!(sent.success(), "the producer failed: {sent}");
    until("all jobs finished", Duration::from_mins(10), || fleet.done() >= jobs);
}

#[test]
fn nothing_is_lost_or_completed_twice_while_servers_and_workers_are_killed() {
    let (kills, jobs) = (count("TIDEGATE_KILLS", 8), count("TIDEGATE_KILL_JOBS", 3_000));
    let seed = count("TIDEGATE_SEED", SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs());
    println!("seed {seed}: {kills} kills over {jobs} jobs");
    let mut random = Seed::new(seed);
    let (mut fleet, servers) = Fleet::full();
    let dir = fleet.path().display().to_string();
    let producer = fleet.add(&["producer", &servers[0], &dir, &jobs.to_string()]);
    let mut completed_at = vec![];
    let mut victims = vec![];
    for kill in 0..kills {
        // Spread over the work, however fast the machine does it: a kill of a worker then always finds jobs running.
        let share = jobs * kill / (kills + 1);
        until("a share of the jobs is done", Duration::from_mins(5), || fleet.done() >= share);
        std::thread::sleep(Duration::from_millis(random.below(50)));
        if victims.is_empty() {
            // The servers and workers, not the producer; each once before one is killed again.
            victims = vec![0, 1, 2, 3, 4, 5];
        }
        fleet.kill(victims.swap_remove(random.below(victims.len() as u64) as usize));
        let completed: HashSet<u64> = fleet.finished(1).into_iter().collect();
        completed_at.push((completed, read(&fleet.files().runs).unwrap().len()));
    }
    drained(&mut fleet, producer, jobs);
    let (runs, dead) = judge(&fleet, jobs, &completed_at);
    println!(
        "{kills} kills, {runs} runs of {jobs} jobs: lost 0, completed twice 0, acknowledged but missing 0, dead letters \
         {dead}"
    );
    assert!(dead as u64 <= 1 + kills / 25, "{dead} of {jobs} jobs are dead letters");
    assert!(runs as u64 > jobs, "no kill hit a running job: the test showed nothing");
}

#[test]
fn a_worker_that_stood_still_for_longer_than_its_lease_is_refused() {
    let mut fleet = Fleet::new();
    let url = fleet.database.url();
    let dir = fleet.path().display().to_string();
    let sleeper = fleet.add(&["worker", &url, &dir, "sleeper"]);
    let nap = fleet.add(&["nap", &url, "1"]);
    let runs = fleet.files().runs;
    until("the nap begins", Duration::from_mins(1), || starts(&runs).len() == 1);
    fleet.signal(sleeper, Signal::STOP);
    fleet.members[nap].1.wait().unwrap();
    fleet.add(&["worker", &url, &dir, "other"]);
    until("the other worker has done it", Duration::from_mins(1), || fleet.finished(1) == [1]);
    fleet.signal(sleeper, Signal::CONT);
    let ended = || read(&runs).unwrap().iter().filter(|words| words[0] == "end").count();
    until("the sleeper wakes up and ends its run", Duration::from_mins(1), || ended() == 2);
    fleet.signal(sleeper, Signal::TERM);
    until("the sleeper ends", Duration::from_mins(1), || {
        fleet.members[sleeper].1.try_wait().unwrap().is_some()
    });
    let said = |word: &str| -> Vec<Vec<String>> {
        read(&runs).unwrap().into_iter().filter(|words| words[0] == word).collect()
    };
    let (starts, lost, refused) = (starts(&runs), said("lost"), said("refused"));
    println!("the job ran under {} and {}; {lost:?}, {refused:?}", starts[0].token, starts[1].token);
    assert!(starts[0].token < starts[1].token);
    // The handler asks the store itself before it ends: whatever the worker finds out first (from its clock, from a heartbeat,
    // from a connection that broke while it stood still), the store must have refused this one run, and not the other.
    let of: Vec<&str> = lost.iter().map(|words| words[2].as_str()).collect();
    assert_eq!(
        of,
        [starts[0].token.to_string()],
        "the sleeper is told that it lost its job, and nobody else"
    );
    // Its outcome is then refused by the store, or given up if a write failed before: one of the two, and never applied.
    let counts: Vec<u64> = refused[0][1..].iter().map(|n| n.parse().unwrap()).collect();
    assert_eq!(
        (counts[0] + counts[1], counts[2]),
        (1, 0),
        "its outcome came too late and counted for nothing"
    );
    assert_eq!(fleet.finished(1), [1], "completed once");
}

#[test]
fn everything_resumes_when_the_database_comes_back() {
    let jobs = count("TIDEGATE_KILL_JOBS", 3_000).min(20_000);
    let (mut fleet, servers) = Fleet::full();
    let dir = fleet.path().display().to_string();
    let producer = fleet.add(&["producer", &servers[1], &dir, &jobs.to_string()]);
    for (fast, share) in [(true, 10), (false, 3)] {
        until("a share of the jobs is done", Duration::from_mins(5), || fleet.done() * share >= jobs);
        fleet.database.stop(fast).unwrap();
        std::thread::sleep(Duration::from_secs(1));
        fleet.database.resume().unwrap();
        let before = fleet.done();
        let took = until("work goes on", Duration::from_mins(1), || fleet.done() > before);
        println!(
            "stopped {}: jobs are completed again {took:?} after its return",
            if fast { "fast" } else { "immediately" }
        );
    }
    drained(&mut fleet, producer, jobs);
    let (runs, dead) = judge(&fleet, jobs, &[]);
    println!(
        "two restarts of the database, {runs} runs of {jobs} jobs: lost 0, completed twice 0, dead letters {dead}"
    );
    assert_eq!(dead, 0);
}
