//! Memory guard: from 80 % of the limit it warns, from 90 % nothing more is claimed until it is below again.

use std::fs;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use super::Shared;
use super::shutdown::{Phase, reached};

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// A limit above this is none: the kernel writes huge numbers for "unlimited".
const UNLIMITED: u64 = 1 << 60;

/// How short memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Fine,
    Warn,
    Stop,
}

/// The level for this use of a limit.
pub(crate) fn decide(used: u64, limit: u64) -> Level {
    let percent = u128::from(used) * 100 / u128::from(limit.max(1));
    match percent {
        0..80 => Level::Fine,
        80..90 => Level::Warn,
        _ => Level::Stop,
    }
}

/// What the guard compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// This process against a setting.
    Process(u64),
    /// The whole control group against its own limit.
    Group(Version),
    /// No limit is known.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The guard of one worker.
pub(crate) struct Guard {
    source: Source,
    level: AtomicU8,
}

impl Guard {
    /// Guards this limit, or the control group's where none is given.
    pub(crate) fn new(limit: Option<u64>, look_around: bool) -> Self {
        let source = match limit {
            Some(bytes) => Source::Process(bytes),
            None if look_around => [Version::V2, Version::V1]
                .into_iter()
                .find(|v| group_limit(*v).is_some())
                .map_or(Source::None, Source::Group),
            None => Source::None,
        };
        Self { source, level: AtomicU8::new(0) }
    }

    pub(crate) fn level(&self) -> Level {
        match self.level.load(Ordering::Relaxed) {
            0 => Level::Fine,
            1 => Level::Warn,
            _ => Level::Stop,
        }
    }

    /// Looks once and remembers; says so when the level changes.
    pub(crate) fn run_once(&self) {
        let Some((used, limit)) = self.look() else { return };
        let (before, now) = (self.level(), decide(used, limit));
        self.level.store(now as u8, Ordering::Relaxed);
        if before != now {
            let (used_mb, limit_mb) = (used >> 20, limit >> 20);
            match now {
                Level::Fine => tracing::info!(used_mb, limit_mb, "memory is fine again"),
                Level::Warn => tracing::warn!(used_mb, limit_mb, "memory is getting short"),
                Level::Stop => {
                    tracing::error!(used_mb, limit_mb, "memory is short; nothing is claimed until it is not");
                }
            }
        }
    }

    fn look(&self) -> Option<(u64, u64)> {
        match self.source {
            Source::Process(limit) => Some((resident()?, limit)),
            Source::Group(version) => Some((group_used(version)?, group_limit(version)?)),
            Source::None => None,
        }
    }

    fn watches(&self) -> bool {
        self.source != Source::None
    }
}

/// Looks until the worker is over.
pub(crate) async fn run(shared: std::sync::Arc<Shared>) {
    if !shared.memory.watches() {
        return;
    }
    let mut phase = shared.phase.subscribe();
    loop {
        shared.memory.run_once();
        tokio::select! {
            () = reached(&mut phase, Phase::Over) => return,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn group_limit(version: Version) -> Option<u64> {
    let limit = match version {
        Version::V2 => number("/sys/fs/cgroup/memory.max"),
        Version::V1 => number("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    };
    limit.filter(|bytes| (1..UNLIMITED).contains(bytes))
}

/// What the group uses without the file cache that the kernel gives back on demand.
fn group_used(version: Version) -> Option<u64> {
    let (used, stat, key) = match version {
        Version::V2 => ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", "inactive_file"),
        Version::V1 => (
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
            "/sys/fs/cgroup/memory/memory.stat",
            "total_inactive_file",
        ),
    };
    let cache = fs::read_to_string(stat).ok().and_then(|text| stat_value(&text, key)).unwrap_or(0);
    Some(number(used)?.saturating_sub(cache))
}

fn stat_value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
}

/// Resident memory of this process.
fn resident() -> Option<u64> {
    /// Pages of 4 KiB: `/proc` counts in them on every platform that limits memory by control groups.
    const PAGE: u64 = 4_096;
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split_whitespace().nth(1)?.parse::<u64>().ok()? * PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_warns_from_80_percent_and_stops_from_90() {
        use Level::{Fine, Stop, Warn};
        let levels = [0, 79, 80, 89, 90, 100, 250].map(|used| decide(used, 100));
        assert_eq!(levels, [Fine, Fine, Warn, Warn, Stop, Stop, Stop]);
        assert_eq!(decide(u64::MAX, 0), Stop);
    }

    #[test]
    fn a_limit_below_what_is_in_use_stops_and_a_high_one_does_not() {
        let tight = Guard::new(Some(1), true);
        tight.run_once();
        assert_eq!(tight.level(), Level::Stop);
        let ample = Guard::new(Some(1 << 50), true);
        ample.run_once();
        assert_eq!(ample.level(), Level::Fine);
    }

    #[test]
    fn file_cache_is_found_in_the_statistics() {
        let text = "anon 10\ninactive_file 4096\nactive_file 7\n";
        assert_eq!(stat_value(text, "inactive_file"), Some(4_096));
        assert_eq!(stat_value(text, "missing"), None);
    }
}
