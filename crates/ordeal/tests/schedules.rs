//! Two processes on one Postgres and many schedules that tick every second. Judged by `psql` and by what the handlers wrote down,
//! without any of Tidegate's own counters.
//!
//! `TIDEGATE_SCHEDULES` and `TIDEGATE_SCHEDULE_SECONDS` set how many and how long; `TIDEGATE_SCHEDULE_LAG_MS` is the bar for the
//! 99th percentile of how late a run began, for a machine that has nothing else to do.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_ordeal::{Files, read};
use tidegate_testbed::postgres::Server;
use uuid::Uuid;

fn count(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |n| n.parse().unwrap())
}

/// A process that ends with the test.
struct Member(Child);

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(args: &[&str]) -> Member {
    Member(Command::new(env!("CARGO_BIN_EXE_fleet")).args(args).spawn().unwrap())
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// One line of a ledger, as `psql` prints it.
struct Line {
    schedule: u32,
    planned: i64,
    decided: String,
    job: String,
    late: i64,
}

fn ledgers(database: &Server) -> Vec<Line> {
    let text = database
        .sql_in_tests(
            "SELECT schedule || ' ' || (body::json ->> 'planned') || ' ' || (body::json #>> '{what,decided}') || ' ' ||
                coalesce(body::json #>> '{what,job}', '-') || ' ' || coalesce(body::json #>> '{what,late_ms}', '0')
             FROM tidegate.schedule_ticks",
        )
        .unwrap();
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        Line {
            schedule: words[0].parse().unwrap(),
            planned: words[1].parse().unwrap(),
            decided: words[2].to_owned(),
            job: words[3].to_owned(),
            late: words[4].parse().unwrap(),
        }
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(line).collect()
}

fn percentile(sorted: &[i64], per_thousand: usize) -> i64 {
    sorted[(sorted.len() * per_thousand / 1_000).min(sorted.len() - 1)]
}

#[test]
fn two_processes_fire_every_tick_once() {
    let (schedules, seconds) = (count("TIDEGATE_SCHEDULES", 200), count("TIDEGATE_SCHEDULE_SECONDS", 6));
    let database = Server::start(&["max_connections=50"]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (url, place) = (database.url(), dir.path().display().to_string());
    let mut planner = spawn(&["planner", &url, &schedules.to_string()]);
    assert!(planner.0.wait().unwrap().success(), "the schedules are put");
    let members = [spawn(&["ticker", &url, &place, "t1"]), spawn(&["ticker", &url, &place, "t2"])];
    // From the moment on at which both are at work.
    let files = Files::under(dir.path());
    let began = Instant::now();
    while read(&files.runs).unwrap().len() < schedules as usize {
        assert!(began.elapsed() < Duration::from_mins(2), "nobody runs the schedules");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(1));
    let from = now_ms();
    std::thread::sleep(Duration::from_secs(seconds));
    let to = now_ms();
    // What was planned before the end is fired and run before the processes are.
    std::thread::sleep(Duration::from_secs(2));
    drop(members);
    judge(&ledgers(&database), &files, schedules, from..to);
}

fn judge(lines: &[Line], files: &Files, schedules: u64, window: std::ops::Range<i64>) {
    let mut ticks: BTreeMap<u32, BTreeSet<i64>> = BTreeMap::new();
    let mut jobs = HashSet::new();
    for line in lines {
        assert_eq!(line.decided, "fired", "schedule {} at {}", line.schedule, line.planned);
        assert!(ticks.entry(line.schedule).or_default().insert(line.planned), "a tick was fired twice");
        assert!(jobs.insert(line.job.as_str()), "two ticks have one job");
    }
    assert_eq!(ticks.len() as u64, schedules);
    let seconds: Vec<i64> =
        (window.start / 1_000 + 1..=window.end / 1_000).map(|second| second * 1_000).collect();
    for (schedule, ticks) in &ticks {
        for second in &seconds {
            assert!(ticks.contains(second), "schedule {schedule} did not tick at {second}");
        }
    }
    // Each job ran once, in one of the two processes.
    let mut began: HashMap<Uuid, i64> = HashMap::new();
    for words in read(&files.runs).unwrap() {
        let number = |i: usize| words[i].parse::<i64>().unwrap();
        let id = Uuid::from_u64_pair(number(1).cast_unsigned(), number(2).cast_unsigned());
        assert!(began.insert(id, number(3)).is_none(), "a run began twice");
    }
    let inside = || lines.iter().filter(|line| window.contains(&line.planned));
    let mut fired: Vec<i64> = inside().map(|line| line.late).collect();
    let started = |line: &Line| {
        let id: tidegate_core::ids::JobId = line.job.parse().unwrap();
        began.get(&id.uuid()).unwrap_or_else(|| panic!("the run of {} never began", line.planned))
            - line.planned
    };
    let mut started: Vec<i64> = inside().map(started).collect();
    fired.sort_unstable();
    started.sort_unstable();
    println!(
        "{} schedules, {} s, {} ticks, each once: fired {} ms late at p50, {} at p99, {} at most; begun {} ms late at p50, {} at p99, {} at most",
        schedules,
        seconds.len(),
        fired.len(),
        percentile(&fired, 500),
        percentile(&fired, 990),
        fired[fired.len() - 1],
        percentile(&started, 500),
        percentile(&started, 990),
        started[started.len() - 1],
    );
    if let Ok(bar) = std::env::var("TIDEGATE_SCHEDULE_LAG_MS") {
        let bar: i64 = bar.parse().unwrap();
        // Stricter than the scheduler's lag, which ends with the commit that fires a tick.
        assert!(percentile(&started, 990) <= bar, "p99 is above {bar} ms");
    }
}
