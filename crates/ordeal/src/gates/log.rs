//! What callers write down: one line per event, one system call per line, with the machine's monotonic clock, which all
//! processes share.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

use crate::{Lines, read};

/// The machine's monotonic clock in microseconds.
pub fn now() -> i64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

/// One call, as it was seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Which gates it went through: the number of its world's domain.
    pub domain: i64,
    /// Its tenant.
    pub tenant: i64,
    /// Its account; a bulk call has the account's lock.
    pub account: i64,
    /// Whether it is a bulk call.
    pub bulk: bool,
    /// Milli points.
    pub cost: i64,
    /// When the gates say that it was admitted (their clock).
    pub admitted: i64,
    /// When it started.
    pub start: i64,
    /// When it ended; none if its process died.
    pub end: Option<i64>,
    /// Until when its lease lasts at least.
    pub leased: i64,
    /// When the answer to its settlement had come, if it failed.
    pub failed: Option<i64>,
}

/// Everything that was seen.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// Calls that were made.
    pub calls: Vec<Seen>,
    /// Admissions that could not be asked for.
    pub errors: usize,
    /// Changes of health: process, whether all was normal, when.
    pub health: Vec<(String, bool, i64)>,
}

/// Where a caller writes.
#[derive(Debug)]
pub struct Log(Lines);

impl Log {
    /// The log of a caller of this name.
    pub fn open(dir: &Path, name: &str) -> io::Result<Self> {
        Ok(Self(Lines::open(&dir.join(format!("calls-{name}")))?))
    }

    /// A call starts now, under this number.
    pub fn start(&self, number: i64, call: &Seen) -> io::Result<()> {
        let parts = [
            number,
            call.domain,
            call.tenant,
            call.account,
            i64::from(call.bulk),
            call.cost,
            call.admitted,
            call.start,
            call.leased,
        ];
        self.0.add(&parts, "start")
    }

    /// Its lease lasts until then at least.
    pub fn renewed(&self, number: i64, until: i64) -> io::Result<()> {
        self.0.add(&[number, until], "renewed")
    }

    /// It has ended.
    pub fn end(&self, number: i64, at: i64) -> io::Result<()> {
        self.0.add(&[number, at], "end")
    }

    /// It had failed, and the gates know.
    pub fn failed(&self, number: i64, at: i64) -> io::Result<()> {
        self.0.add(&[number, at], "failed")
    }

    /// An admission could not be asked for.
    pub fn error(&self) -> io::Result<()> {
        self.0.add(&[now()], "error")
    }

    /// The backend's health changed.
    pub fn health(&self, normal: bool) -> io::Result<()> {
        self.0.add(&[i64::from(normal), now()], "health")
    }
}

impl Record {
    /// Reads all logs of a directory.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let mut all = Self::default();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if let Some(name) = entry.file_name().to_string_lossy().strip_prefix("calls-") {
                all.add(name, read(&entry.path())?)?;
            }
        }
        all.calls.sort_by_key(|c| c.start);
        all.health.sort_by_key(|h| h.2);
        Ok(all)
    }

    /// Adds the lines of one caller.
    pub fn add(&mut self, name: &str, lines: Vec<Vec<String>>) -> io::Result<()> {
        let mut open: HashMap<i64, Seen> = HashMap::new();
        for words in lines {
            let n: Vec<i64> = words[1..].iter().filter_map(|w| w.parse().ok()).collect();
            match (words[0].as_str(), &n[..]) {
                ("start", &[number, domain, tenant, account, bulk, cost, admitted, start, leased]) => {
                    let (bulk, end, failed) = (bulk == 1, None, None);
                    let call =
                        Seen { domain, tenant, account, bulk, cost, admitted, start, end, leased, failed };
                    open.insert(number, call);
                }
                ("renewed", &[number, until]) => {
                    open.entry(number).and_modify(|c| c.leased = until);
                }
                ("end", &[number, at]) => {
                    open.entry(number).and_modify(|c| c.end = Some(at));
                }
                ("failed", &[number, at]) => {
                    open.entry(number).and_modify(|c| c.failed = Some(at));
                }
                ("error", _) => self.errors += 1,
                ("health", &[normal, at]) => self.health.push((name.to_owned(), normal == 1, at)),
                // Nobody writes such a line; a reader that skipped it would judge less than happened.
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, words.join(" "))),
            }
        }
        self.calls.extend(open.into_values());
        Ok(())
    }
}
