//! Runs the real binary in a directory of its own, and fills data directories with jobs in every state.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::{GroupKey, JobId, KindName, ProcessId, QueueName, TenantId, WorkerId};
use tidegate_core::job::{Park, ParkScope, Priority};
use tidegate_core::payload::Payload;
use tidegate_core::registry::{KindSettings, Limiter, QueueSettings};
use tidegate_core::time::Timestamp;
use tidegate_store::params::{CancelJob, Claim, NewJob, Outcome, Settle, Settlement};
use tidegate_store::{Jobs, Registry, Store, Upkeep};
use tidegate_store_sqlite::SqliteStore;

/// What a run of the binary said.
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: i32,
}

impl Ran {
    /// Standard output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|e| panic!("{e}\nout: {}\nerr: {}", self.out, self.err))
    }

    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "out: {}\nerr: {}", self.out, self.err);
        self
    }
}

/// A place to run the binary in.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
    pub(crate) columns: Option<u16>,
}

impl Default for Place {
    fn default() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), columns: Some(80) }
    }
}

impl Place {
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|n| n.starts_with("TIDEGATE_") || n.starts_with("OTEL_")) {
                command.env_remove(name);
            }
        }
        command.env("TIDEGATE_DATA", self.data()).env("HOME", self.dir.path().join("home"));
        command.env_remove("NO_COLOR").env_remove("COLUMNS").env_remove("XDG_CONFIG_HOME");
        if let Some(columns) = self.columns {
            command.env("COLUMNS", columns.to_string());
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        finished(&mut self.command(args))
    }

    pub(crate) fn at(&self, columns: u16, args: &[&str]) -> String {
        let mut command = self.command(args);
        command.env("COLUMNS", columns.to_string());
        finished(&mut command).ok().out
    }

    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

pub(crate) fn finished(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().unwrap_or(-1),
    }
}

/// Replaces what differs from run to run by something of the same width.
pub(crate) fn steady() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"job_[0-9A-Z]{26}", "job_00000000000000000000000000");
    settings
        .add_filter(r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d\d \d\d:\d\dZ", "Jan 01 00:00Z");
    settings.add_filter(r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [\d :]*…", "Jan 01 00…");
    settings.add_filter(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{3})? UTC", "2026-01-01 00:00:00 UTC");
    settings.add_filter(r"\b[45] m( \d+ s)? ago", "5 m ago");
    settings.add_filter(r"for another \d+ m", "for another NN m");
    settings.add_filter(r"in 5\d m", "in 5N m");
    settings.add_filter(r"\(\d+ kB, 0\.\d s\)", "(NN kB, 0.N s)");
    settings
}

pub(crate) fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_millisecond())
}

/// A data directory under construction.
pub(crate) struct Filler {
    pub(crate) store: SqliteStore,
    pub(crate) now: Timestamp,
    made: u128,
}

pub(crate) const HOUR: i64 = 3_600_000;

impl Filler {
    /// Opens the directory five minutes ago.
    pub(crate) fn open(dir: &Path) -> Self {
        let now = now().plus_ms(-300_000);
        Self { store: SqliteStore::open(dir, now).unwrap(), now, made: 0 }
    }

    pub(crate) async fn queue(&self, name: &str, settings: QueueSettings) {
        self.store.put_queue(queue(name), settings, self.now).await.unwrap();
    }

    pub(crate) async fn kind(&self, name: &str, in_queue: &str) {
        let settings =
            KindSettings { description: format!("A {name}"), ..KindSettings::new(queue(in_queue)) };
        self.store.put_kind(KindName::new(name).unwrap(), settings).await.unwrap();
    }

    pub(crate) fn job(&mut self, kind: &str, tenant: &str) -> NewJob {
        self.made += 1;
        let id = JobId::from_parts(self.now.0 as u64, self.made);
        let payload = Payload::trusted(format!("{{\"order\":{}}}", self.made));
        let mut job = NewJob::new(id, KindName::new(kind).unwrap(), payload);
        job.tenant = (!tenant.is_empty()).then(|| TenantId::new(tenant).unwrap());
        job
    }

    pub(crate) async fn enqueue(&mut self, job: NewJob) -> JobId {
        let id = job.id;
        self.store.enqueue(vec![job], self.now).await.unwrap();
        id
    }

    pub(crate) async fn add(&mut self, kind: &str, tenant: &str) -> JobId {
        let job = self.job(kind, tenant);
        self.enqueue(job).await
    }

    /// Claims what is ready in a queue, for an hour.
    pub(crate) async fn claim(
        &self,
        from: &str,
        process: u64,
        lease_ms: i64,
    ) -> Vec<tidegate_store::params::ClaimedJob> {
        let claim = Claim {
            worker: WorkerId::new("worker-a").unwrap(),
            process: ProcessId(process),
            queues: vec![(queue(from), 100)],
            max: 100,
            lease_ms,
            now: self.now,
        };
        self.store.claim(claim).await.unwrap().jobs
    }

    /// Runs everything that is ready in a queue to this end.
    pub(crate) async fn end(&self, from: &str, outcome: Outcome) {
        let jobs = self.claim(from, 1, HOUR).await;
        let settlements =
            jobs.iter().map(|job| Settlement { ticket: job.ticket, outcome: outcome.clone() }).collect();
        self.store.settle(Settle { settlements, now: self.now, seed: 1 }).await.unwrap();
    }

    pub(crate) async fn close(self) {
        self.store.close().await.unwrap();
    }
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// Ids of jobs, by what they wait for or became.
pub(crate) struct Stories {
    pub(crate) by_story: Vec<(&'static str, JobId)>,
}

impl Stories {
    pub(crate) fn id(&self, story: &str) -> String {
        self.by_story.iter().find(|(s, _)| *s == story).unwrap().1.to_string()
    }
}

/// A directory with a job in every state and for every reason to wait.
pub(crate) async fn every_state(dir: &Path) -> Stories {
    let mut fill = Filler::open(dir);
    let base = QueueSettings::default;
    fill.queue("billing", QueueSettings { concurrency: Some(50), group_concurrency: Some(2), ..base() })
        .await;
    fill.queue("shopify", QueueSettings { limiter: Some(Limiter { max: 1, per_ms: 2 * HOUR }), ..base() })
        .await;
    fill.queue("reports", QueueSettings { concurrency: Some(1), ..base() }).await;
    fill.queue("archive", base()).await;
    fill.queue("imports", base()).await;
    fill.kind("invoice.send", "billing").await;
    fill.kind("catalog.sync", "shopify").await;
    fill.kind("report.build", "reports").await;
    fill.kind("archive.pack", "archive").await;
    fill.kind("import.parse", "imports").await;
    let mut by_story = vec![];

    by_story.push(("completed", fill.add("invoice.send", "acme").await));
    fill.end("billing", Outcome::Complete(Some(Payload::trusted("{\"sent\":true}")))).await;
    by_story.push(("dead", fill.add("invoice.send", "globex").await));
    let hopeless = Failure::new(Category::InvalidInput, "NO_ADDRESS", "the customer has no address\nat all");
    fill.end("billing", Outcome::Fail(hopeless)).await;
    by_story.push(("retry", fill.add("invoice.send", "initech").await));
    let mut down = Failure::new(Category::TransientServer, "HTTP_503", "the mail gateway is restarting");
    down.retry_at = Some(fill.now.plus_ms(3 * HOUR));
    fill.end("billing", Outcome::Fail(down)).await;
    by_story.push(("snoozed", fill.add("invoice.send", "initech").await));
    let until = fill.now.plus_ms(3 * HOUR);
    fill.end(
        "billing",
        Outcome::Snooze { until, reason: "the shop is closed".into(), park: None, gate: None },
    )
    .await;
    by_story.push(("cancelled", fill.add("invoice.send", "acme").await));
    let cancel = CancelJob {
        id: by_story[4].1,
        note: "by operator: ordered twice".into(),
        cascade: false,
        now: fill.now,
    };
    fill.store.cancel(cancel).await.unwrap();

    // A process that died: its job is suspect.
    by_story.push(("suspect", fill.add("import.parse", "").await));
    fill.claim("imports", 7, 1_000).await;
    fill.now = fill.now.plus_ms(2_000);
    fill.store.advance(fill.now).await.unwrap();

    by_story.push(("running", fill.add("invoice.send", "acme").await));
    by_story.push(("running too", fill.add("invoice.send", "acme").await));
    fill.claim("billing", 1, HOUR).await;
    by_story.push(("group full", fill.add("invoice.send", "acme").await));
    by_story.push(("report runs", fill.add("report.build", "acme").await));
    fill.claim("reports", 1, HOUR).await;
    by_story.push(("queue full", fill.add("report.build", "globex").await));
    by_story.push(("sync runs", fill.add("catalog.sync", "acme").await));
    fill.claim("shopify", 1, HOUR).await;
    by_story.push(("limited", fill.add("catalog.sync", "globex").await));
    let mut later = fill.job("invoice.send", "globex");
    later.run_at = Some(fill.now.plus_ms(3 * HOUR));
    by_story.push(("delayed", fill.enqueue(later).await));
    let mut urgent = fill.job("invoice.send", "hooli");
    urgent.priority = Some(Priority::High);
    by_story.push(("next", fill.enqueue(urgent).await));
    by_story.push(("first", fill.add("invoice.send", "wonka").await));
    by_story.push(("behind", fill.add("invoice.send", "wonka").await));
    by_story.push(("parked", fill.add("invoice.send", "umbrella").await));
    let parks = [
        (ParkScope::Group(GroupKey::new("umbrella").unwrap()), "shopify", "budget used up", Some(3 * HOUR)),
        (ParkScope::Queue(queue("archive")), "operator", "month end", None),
    ];
    for (scope, by, reason, lasts) in parks {
        let until = lasts.map(|ms| fill.now.plus_ms(ms));
        fill.store.park(Park { scope, by: by.into(), reason: reason.into(), until }, fill.now).await.unwrap();
    }
    by_story.push(("paused", fill.add("archive.pack", "acme").await));
    fill.close().await;
    Stories { by_story }
}

/// A server of this place's data, as a process of its own.
pub(crate) struct Serving {
    child: std::process::Child,
    pub(crate) url: String,
}

impl Serving {
    pub(crate) fn start(place: &Place, more: &[&str]) -> Self {
        use std::io::BufRead as _;
        let args = [&["serve", "--bind", "127.0.0.1:0", "--json"][..], more].concat();
        let mut child = place.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let Ok(told) = serde_json::from_str::<serde_json::Value>(&line) else {
            let output = child.wait_with_output().unwrap();
            panic!("no server: {}", String::from_utf8_lossy(&output.stderr));
        };
        Self { child, url: told["url"].as_str().unwrap().to_owned() }
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Runs a command against the server.
    pub(crate) fn run(&self, place: &Place, args: &[&str]) -> Ran {
        finished(&mut self.command(place, args))
    }

    pub(crate) fn command(&self, place: &Place, args: &[&str]) -> Command {
        let mut command = place.command(args);
        command.env_remove("TIDEGATE_DATA").env("TIDEGATE_STORE", &self.url);
        command
    }

    /// Asks it to stop and says how it ended.
    pub(crate) fn stop(self) -> i32 {
        rustix::process::kill_process(self.pid(), rustix::process::Signal::TERM).unwrap();
        self.ends()
    }

    /// Waits until it has ended. With which code it did.
    pub(crate) fn ends(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Looks until it is there.
pub(crate) fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !there() {
        assert!(started.elapsed() < std::time::Duration::from_secs(30), "{what} did not happen");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
