//! Gates under real processes that are really killed, over Redis and Postgres that are really stopped. Judged by what the
//! processes wrote down about their calls, by a referee that knows only what was promised.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod outage;
mod over;
mod stuck;
mod usage;

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use tidegate_ordeal::gates::log::Record;

fn count(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |n| n.parse().unwrap())
}

/// Whether the full counts are wanted (`scripts/soak gates`).
fn soak() -> bool {
    count("TIDEGATE_GATES_SOAK", 0) == 1
}

/// A process that calls.
struct Caller {
    child: Child,
}

impl Caller {
    fn start(gates: &str, dir: &Path, name: &str, plan: &str, tasks: u64) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_caller"))
            .args([gates, dir.to_str().unwrap(), name, plan])
            .env("TIDEGATE_TASKS", tasks.to_string())
            .spawn()
            .unwrap();
        Self { child }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Tells it to end, and waits until it has.
    fn end(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something holds; looks rarely, so as not to disturb.
fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until all callers have made so many calls.
fn called(dir: &Path, names: &[String], calls: usize) {
    let lines = |name: &String| {
        let text = std::fs::read_to_string(dir.join(format!("calls-{name}"))).unwrap_or_default();
        text.lines().filter(|l| l.starts_with("start")).count()
    };
    until("calls", Duration::from_mins(1), || names.iter().all(|name| lines(name) >= calls));
}

fn record(dir: &Path) -> Record {
    Record::read(dir).unwrap()
}
