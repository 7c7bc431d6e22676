//! A process with many jobs in flight is killed with SIGKILL, again and again. Nothing acknowledged is lost, nothing is
//! completed twice, and a job runs twice only after the lease of its first run has ended.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OpenFlags};
use tidegate_core::ids::JobId;
use tidegate_core::seed::Seed;
use tidegate_ordeal::{Files, number_of, read};

fn count(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |n| n.parse().unwrap())
}

fn spawn(mode: &str, dir: &Path, jobs: u64) -> Child {
    Command::new(env!("CARGO_BIN_EXE_victim"))
        .args([mode, dir.to_str().unwrap(), &jobs.to_string()])
        .spawn()
        .unwrap()
}

/// Numbers of finished jobs by state (1 completed, 2 dead, 3 cancelled), read with SQLite itself.
fn finished(files: &Files, state: i64) -> Vec<u64> {
    let path = files.data.join("tidegate.db");
    if !path.exists() {
        return vec![];
    }
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let table: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_master WHERE name = 'done'", [], |r| r.get(0)).unwrap();
    if table == 0 {
        return vec![];
    }
    let mut statement = conn
        .prepare("SELECT jobs.id FROM done JOIN jobs USING (seq) WHERE done.state = ?1 ORDER BY done.seq")
        .unwrap();
    let ids = statement.query_map([state], |row| row.get::<_, [u8; 16]>(0)).unwrap();
    ids.map(|id| number_of(JobId::from_uuid(uuid::Uuid::from_bytes(id.unwrap())))).collect()
}

/// Dead letters that say anything else than that the process died each time.
fn dead_for_another_reason(files: &Files) -> Vec<String> {
    let conn = Connection::open_with_flags(files.data.join("tidegate.db"), OpenFlags::SQLITE_OPEN_READ_ONLY)
        .unwrap();
    let mut statement = conn.prepare("SELECT letter FROM done WHERE state = 2").unwrap();
    let letters = statement.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
    letters
        .filter(|l| !(l.contains(r#""reason":"poison""#) && l.contains(r#""category":"SYSTEM_FAILURE""#)))
        .collect()
}

fn stored(files: &Files) -> u64 {
    let conn = Connection::open_with_flags(files.data.join("tidegate.db"), OpenFlags::SQLITE_OPEN_READ_ONLY)
        .unwrap();
    conn.query_row("SELECT count(*) FROM jobs", [], |row| row.get::<_, i64>(0)).unwrap() as u64
}

fn runs_so_far(files: &Files) -> usize {
    read(&files.runs).unwrap().len()
}

struct Run {
    number: u64,
    lease: i64,
    lease_until: i64,
    at: i64,
    line: usize,
}

fn starts(files: &Files) -> Vec<Run> {
    let lines = read(&files.runs).unwrap();
    let start = |(line, words): (usize, Vec<String>)| {
        let n: Vec<i64> = words[1..].iter().map(|w| w.parse().unwrap()).collect();
        (words[0] == "start").then(|| Run {
            number: n[0] as u64,
            lease: n[1],
            lease_until: n[2],
            at: n[3],
            line,
        })
    };
    lines.into_iter().enumerate().filter_map(start).collect()
}

#[test]
fn nothing_is_lost_or_completed_twice_under_sigkill() {
    let (kills, jobs) = (count("TIDEGATE_KILLS", 8), count("TIDEGATE_KILL_JOBS", 3_000));
    let seed = count("TIDEGATE_SEED", SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs());
    println!("seed {seed}: {kills} kills over {jobs} jobs");
    let mut random = Seed::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let files = Files::under(dir.path());

    // Completed jobs at each kill, with the number of run lines written by then.
    let mut completed_at: Vec<(HashSet<u64>, usize)> = vec![];
    let mut done_kills = 0;
    while done_kills < kills {
        let mut victim = spawn("work", dir.path(), jobs);
        let patience = Duration::from_millis(150 + random.below(900));
        let deadline = Instant::now() + patience;
        let mut over = None;
        while Instant::now() < deadline && over.is_none() {
            over = victim.try_wait().unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(status) = over {
            assert!(status.success(), "the victim failed by itself: {status}");
            panic!("all jobs were done after {done_kills} kills; raise TIDEGATE_KILL_JOBS");
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        done_kills += 1;
        completed_at.push((finished(&files, 1).into_iter().collect(), runs_so_far(&files)));
    }
    let status = spawn("work", dir.path(), jobs).wait().unwrap();
    assert!(status.success(), "the last run failed: {status}");

    let acknowledged: u64 =
        read(&files.acknowledged).unwrap().iter().map(|words| words[2].parse::<u64>().unwrap()).sum();
    assert_eq!(acknowledged, jobs);
    assert_eq!(stored(&files), jobs, "acknowledged but missing, or stored twice");
    let (completed, dead) = (finished(&files, 1), finished(&files, 2));
    let distinct: HashSet<u64> = completed.iter().chain(&dead).copied().collect();
    let ended = (completed.len() + dead.len()) as u64;
    assert_eq!((ended, distinct.len() as u64), (jobs, jobs), "lost, or ended twice");

    // A job that was the only suspect at three kills is buried as if it were to blame: nobody can tell. It must have been
    // cut off that often, and it must be rare.
    let starts = starts(&files);
    assert_eq!(dead_for_another_reason(&files), Vec::<String>::new(), "no handler of this test fails");
    for number in &dead {
        let runs = starts.iter().filter(|run| run.number == *number).count();
        println!(
            "job {number} started {runs} times, never completed, and is a dead letter: its process died each time"
        );
        assert!(runs >= 3, "job {number} is dead after {runs} runs");
    }
    assert!(dead.len() as u64 <= 1 + kills / 25, "{} of {jobs} jobs are dead letters", dead.len());

    // Whatever was completed before a kill must not have run after it.
    for (completed, lines) in &completed_at {
        let again = starts.iter().find(|run| run.line >= *lines && completed.contains(&run.number));
        assert!(again.is_none(), "job {} was completed and ran again", again.map_or(0, |r| r.number));
    }

    // A second run starts only after the lease of the first has ended.
    let mut last: HashMap<u64, &Run> = HashMap::new();
    let (mut twice, mut closest) = (0, i64::MAX);
    for run in &starts {
        if let Some(before) = last.insert(run.number, run) {
            twice += 1;
            closest = closest.min(run.at - before.lease_until);
            assert!(
                run.lease > before.lease && run.at >= before.lease_until,
                "job {} ran under lease {} at {} although lease {} held it until {}",
                run.number,
                run.lease,
                run.at,
                before.lease,
                before.lease_until
            );
        }
    }
    println!(
        "{done_kills} kills, {} runs of {jobs} jobs: lost 0, completed twice 0, dead letters {}; {twice} ran again, the \
         earliest {closest} ms after its lease had ended",
        starts.len(),
        dead.len()
    );
    assert!(twice > 0, "no kill hit a running job: the test showed nothing");
}

#[test]
fn a_job_that_kills_its_process_takes_no_other_job_with_it() {
    let jobs = 300;
    let dir = tempfile::tempdir().unwrap();
    let files = Files::under(dir.path());
    let mut deaths = 0;
    loop {
        let status = spawn("bomb", dir.path(), jobs).wait().unwrap();
        if status.success() {
            break;
        }
        deaths += 1;
        assert!(deaths < 20, "the bomb never dies");
    }
    assert_eq!(finished(&files, 2), vec![0], "the bomb and only the bomb is dead");
    assert_eq!(dead_for_another_reason(&files), Vec::<String>::new());
    assert_eq!(finished(&files, 1).len() as u64, jobs - 1);
    // Once in a batch, then three times as the only suspect. A machine that stands still for longer than a lease may
    // count one more; it never runs more often.
    let bombs = starts(&files).iter().filter(|run| run.number == 0).count();
    println!("the bomb ran {bombs} times and {deaths} processes died of it");
    assert!((3..=4).contains(&bombs) && deaths == bombs, "{bombs} runs, {deaths} deaths");
}
