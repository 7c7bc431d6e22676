//! What is looked at, in the order in which it is said.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustix::process::{Resource, getrlimit};
use tidegate::gates::Backend;
use tidegate::presence;
use tidegate_core::codes;
use tidegate_core::job::{Park, State};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::Store;
use tidegate_store::params::{JobQuery, Record, Shelf};

use super::Check;
use crate::commands::gates::look::troubles;
use crate::config::Config;
use crate::data::{self, Target};
use crate::error::{Failure, Result};
use crate::output::{plural, short_when};
use crate::parse;

/// A clock that differs by more than this makes times in answers look odd; by more than a lease it matters.
const SKEW_MS: (i64, i64) = (2_000, 10_000);
/// Answers slower than this are worth a word.
const SLOW_MS: i64 = 250;
/// Free space below which to warn, and below which nothing works for long.
const DISK_BYTES: (u64, u64) = (2 << 30, 200 << 20);
/// Open files that a server with many connections wants.
const FILES: u64 = 4_096;
/// A ready job that waits longer than this has nobody to run it.
const WAITS_MS: i64 = 600_000;
/// Running jobs looked at.
const RUNNING: usize = 1_000;

/// Every check.
pub(super) async fn all(config: Result<Config>) -> Vec<Check> {
    let mut checks = vec![Check::ok("program", format!("tidegate {}", env!("CARGO_PKG_VERSION")))];
    let config = match config {
        Ok(config) => config,
        Err(failure) => {
            checks.push(Check::failed("config", &failure));
            return checks;
        }
    };
    checks.push(configuration(&config));
    checks.push(files());
    let target = match data::target(&config) {
        Ok(target) => target,
        Err(failure) => {
            checks.push(Check::failed("store", &failure));
            return checks;
        }
    };
    if let Target::Directory(dir) = &target {
        checks.push(disk(dir));
    }
    match open(&target, &config, &mut checks).await {
        Ok(store) => {
            inside(&*store, &mut checks).await;
            if let Err(error) = store.close().await {
                checks.push(Check::failed("close", &error.into()));
            }
        }
        Err(failure) => checks.push(Check::failed("store", &failure)),
    }
    checks
}

fn configuration(config: &Config) -> Check {
    let said = config.values().iter().filter(|v| v.source != crate::config::Source::Default).count();
    let from = match &config.file {
        Some(file) => format!("{} is right", file.display()),
        None => "no file".into(),
    };
    Check::ok("config", format!("{from}; {} by file, environment or flag", plural(said as u64, "setting")))
}

fn files() -> Check {
    match getrlimit(Resource::Nofile).current {
        Some(n) if n < FILES => Check::warn(
            "files",
            format!("this process may open {n} files"),
            format!(
                "raise it for servers and busy workers: `ulimit -n {FILES}`, or LimitNOFILE= in the unit"
            ),
        ),
        Some(n) => Check::ok("files", format!("this process may open {n} files")),
        None => Check::ok("files", "any number of open files"),
    }
}

fn disk(dir: &Path) -> Check {
    // The directory may not exist yet; its nearest parent does.
    let place = dir.ancestors().find(|p| p.exists()).filter(|p| !p.as_os_str().is_empty());
    let stat = match rustix::fs::statvfs(place.unwrap_or(Path::new("."))) {
        Ok(stat) => stat,
        Err(e) => {
            return Check::warn("disk", format!("cannot be asked: {e}"), "check the path and its rights");
        }
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let percent = stat.f_bavail * 100 / stat.f_blocks.max(1);
    let found = format!("{:.1} GB free ({percent} %)", free as f64 / 1e9);
    match free {
        _ if free < DISK_BYTES.1 => {
            Check::fail("disk", found, "free some space now: a full disk stops every write")
        }
        _ if free < DISK_BYTES.0 => Check::warn(
            "disk",
            found,
            "free some space, or shorten what queues keep: `tidegate queues set NAME --retention-age 1h`",
        ),
        _ => Check::ok("disk", found),
    }
}

/// Opens the store and says what there is to say about reaching it.
async fn open(target: &Target, config: &Config, checks: &mut Vec<Check>) -> Result<Arc<dyn Store>> {
    let started = Instant::now();
    if let Target::Remote(_) = target {
        let store = data::remote(config).await?;
        let asked = parse::wall();
        let about = store.about().await?;
        let took = parse::wall().since(asked);
        checks.push(Check::ok("store", format!("{} answers in {took} ms", target.shown())));
        checks.push(versions(&about.version));
        checks.push(clock(about.now.0, asked.plus_ms(took / 2)));
        checks.push(match about.key {
            Some(key) => Check::ok("key", format!("{} ({})", key.name, key.role)),
            None => Check::ok("key", "the server needs none from this machine"),
        });
        if let Some(wrong) = about.gates {
            let next =
                "docs/runbooks/gates-out-of-reach.md; jobs go on, each process with its share of every limit";
            checks.push(Check::warn("gates", wrong, next));
        }
        checks.extend(made("gates", gates(&store.gates()).await.transpose()));
        return Ok(Arc::new(store));
    }
    if let Target::Postgres(url) = target {
        let store = data::postgres(url, false).await?;
        let now = parse::wall();
        let health = store.health(now).await?;
        let listening = if health.listening { "" } else { ", without LISTEN" };
        let found = format!("{} answers in {:.1} ms{listening}", target.shown(), health.round_trip_ms);
        checks.push(Check::ok("store", found));
        checks.push(Check::ok("version", format!("Postgres {}", health.server_version)));
        checks.push(clock(now.plus_ms(health.clock_ahead_ms), now));
        for warning in health.warnings {
            checks.push(Check::warn("database", warning, "look at pg_stat_activity and at the server's log"));
        }
        return Ok(Arc::new(store));
    }
    let data = data::existing(config).await?;
    let took = started.elapsed().as_millis() as i64;
    checks.push(Check::ok("store", format!("{} opened in {took} ms", target.shown())));
    Ok(data.store)
}

fn versions(server: &str) -> Check {
    let ours = env!("CARGO_PKG_VERSION");
    if server == ours {
        Check::ok("version", format!("the server is of this version, {server}"))
    } else {
        Check::warn(
            "version",
            format!("the server is {server}, this program is {ours}"),
            "use the same version on both sides",
        )
    }
}

fn clock(theirs: Timestamp, ours: Timestamp) -> Check {
    let off = theirs.since(ours);
    let found = match off.abs() {
        ms if ms < SKEW_MS.0 => format!("{ms} ms off the server's"),
        ms => format!("{} {} the server's", Millis(ms), if off > 0 { "behind" } else { "ahead of" }),
    };
    match off.abs() {
        n if n < SKEW_MS.0 => Check::ok("clock", found),
        n if n < SKEW_MS.1 => Check::warn("clock", found, "let NTP set the clocks of both machines"),
        _ => Check::fail(
            "clock",
            found,
            "let NTP set the clocks of both machines: times and leases go by them",
        ),
    }
}

/// A check that cannot be made is a failure by itself and holds up no other.
fn made(name: &'static str, check: Option<Result<Check>>) -> Option<Check> {
    Some(check?.unwrap_or_else(|failure| {
        if failure.code() == codes::NOT_ALLOWED {
            Check::warn(name, "this key may not look", "use a key of an operator or an admin")
        } else {
            Check::failed(name, &failure)
        }
    }))
}

/// What the gates of a server do, if it has any.
async fn gates(backend: &dyn Backend) -> Result<Option<Check>> {
    let domains = troubles(backend).await?;
    let wrong = domains.iter().filter_map(|(usage, trouble)| Some((&usage.domain, trouble.sentence()?)));
    let wrong: Vec<String> = wrong.map(|(domain, sentence)| format!("{domain}: {sentence}")).collect();
    let found = plural(domains.len() as u64, "domain");
    Ok(match (domains.len(), wrong.len()) {
        (0, _) => None,
        (_, 0) => Some(Check::ok("gates", format!("{found}, every breaker closed and nothing switched off"))),
        (_, n) => {
            let more = if n > 5 { format!("; and {} more", n - 5) } else { String::new() };
            let found = format!("{}{more}", wrong.iter().take(5).cloned().collect::<Vec<_>>().join("; "));
            let next = "`tidegate gates show DOMAIN` says more; docs/runbooks/breaker.md, docs/runbooks/gates-off.md";
            Some(Check::warn("gates", found, next))
        }
    })
}

/// What is in the store.
async fn inside(store: &dyn Store, checks: &mut Vec<Check>) {
    let mut add = |name: &'static str, check: Result<Check>| checks.extend(made(name, Some(check)));
    add("writing", writing(store).await);
    add("queues", queues(store).await);
    add("parks", parks(store).await);
    add("leases", leases(store).await);
    add("dead letters", letters(store).await);
    add("alive", alive(store).await);
}

async fn writing(store: &dyn Store) -> Result<Check> {
    let now = parse::now();
    let key = format!("doctor-{}", std::process::id());
    let record = Record {
        shelf: Shelf::Orders,
        key: key.clone(),
        body: "{}".into(),
        expires: Some(now.plus_ms(10_000)),
    };
    let started = Instant::now();
    store.put_record(record, now).await?;
    let took = started.elapsed().as_millis() as i64;
    store.delete_record(Shelf::Orders, key).await?;
    let found = format!("a write is durable after {took} ms");
    Ok(if took < SLOW_MS {
        Check::ok("writing", found)
    } else {
        Check::warn(
            "writing",
            found,
            "a slow disk or database bounds everything; try `tidegate bench jobs` beside it",
        )
    })
}

async fn queues(store: &dyn Store) -> Result<Check> {
    let now = parse::now();
    let queues = store.queues(now).await?;
    let ready: u64 = queues.iter().map(|q| q.ready).sum();
    let late = queues.iter().filter(|q| {
        q.parks.is_empty() && q.running == 0 && q.oldest_ready.is_some_and(|t| now.since(t) > WAITS_MS)
    });
    let late: Vec<&str> = late.map(|q| q.name.as_str()).collect();
    let found = format!("{}, {} ready", plural(queues.len() as u64, "queue"), plural(ready, "job"));
    Ok(if late.is_empty() {
        Check::ok("queues", found)
    } else {
        let found = format!("{found}; jobs wait for more than 10 m and none runs in {}", late.join(", "));
        Check::warn(
            "queues",
            found,
            "start a worker that serves them; `tidegate workers ls` shows who is alive",
        )
    })
}

async fn parks(store: &dyn Store) -> Result<Check> {
    let parks = store.parks().await?;
    let known: BTreeSet<_> = store.settings().await?.into_iter().map(|(name, _)| name).collect();
    let gone = |p: &&Park| matches!(&p.scope, tidegate_core::job::ParkScope::Queue(q) if !known.contains(q));
    if let Some(park) = parks.iter().find(gone) {
        let found = format!("{} is parked by {} and does not exist", park.scope, park.by);
        return Ok(Check::warn("parks", found, "`tidegate parks rm` removes it"));
    }
    let endless: Vec<String> =
        parks.iter().filter(|p| p.until.is_none()).map(|p| p.scope.to_string()).collect();
    let found = format!("{} in force", plural(parks.len() as u64, "park"));
    Ok(if endless.is_empty() {
        Check::ok("parks", found)
    } else {
        let shown = endless.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
        let found = format!("{found}; without an end: {shown}");
        Check::warn("parks", found, "`tidegate parks ls` says why; resume them if that is over")
    })
}

async fn leases(store: &dyn Store) -> Result<Check> {
    let query = JobQuery { states: vec![State::Running], limit: RUNNING, ..JobQuery::default() };
    let running = store.search(query).await?.jobs;
    let now = parse::now();
    let ended =
        running.iter().filter(|j| j.held.as_ref().is_some_and(|h| now.since(h.until) > 5_000)).count();
    let oldest = running.iter().filter_map(|j| j.held.as_ref().map(|h| h.since)).min();
    let since = oldest.map_or(String::new(), |t| format!(", the oldest since {}", short_when(t, now)));
    let found = format!("{} running{since}", plural(running.len() as u64, "job"));
    Ok(if ended == 0 {
        Check::ok("leases", found)
    } else {
        let found = format!("{} held by leases that have ended", plural(ended as u64, "job"));
        Check::warn("leases", found, "nobody takes them back: start `tidegate serve` or a worker")
    })
}

async fn letters(store: &dyn Store) -> Result<Check> {
    let dead = store.totals().await?.dead;
    let query = JobQuery {
        states: vec![State::Dead],
        review: Some(tidegate_core::job::Review::PendingReview),
        limit: 100,
        ..JobQuery::default()
    };
    let page = store.search(query).await?;
    let waiting = page.jobs.len() as u64;
    let more = if page.next.is_some() { "at least " } else { "" };
    Ok(if waiting == 0 {
        Check::ok("dead letters", format!("none waits for review ({dead} kept)"))
    } else {
        let wait = if waiting == 1 { "waits" } else { "wait" };
        let found = format!("{more}{} {wait} for review", plural(waiting, "letter"));
        Check::warn("dead letters", found, "`tidegate dead ls` lists them; recover or resolve them")
    })
}

async fn alive(store: &dyn Store) -> Result<Check> {
    let seen = presence::list(store, parse::now()).await.map_err(Failure::from)?;
    let ready = store.totals().await?.ready;
    let workers = seen.iter().filter(|s| s.presence.role == "worker").count() as u64;
    let servers = seen.iter().filter(|s| s.presence.role == "server").count() as u64;
    let found = format!("{}, {}", plural(workers, "worker"), plural(servers, "server"));
    let versions: BTreeSet<&str> = seen.iter().map(|s| s.presence.version.as_str()).collect();
    let draining: Vec<&str> = seen.iter().filter(|s| s.presence.draining).map(|s| s.name.as_str()).collect();
    Ok(if workers == 0 && ready > 0 {
        let are = if ready == 1 { "is" } else { "are" };
        let found = format!("{found}, and {} {are} ready", plural(ready, "job"));
        Check::warn("alive", found, "start a worker: `tidegate work --help`, or your own program's")
    } else if versions.len() > 1 {
        let list = versions.into_iter().collect::<Vec<_>>().join(" and ");
        Check::warn(
            "alive",
            format!("{found}, of versions {list}"),
            "finish the upgrade: `tidegate workers ls` shows who is behind",
        )
    } else if !draining.is_empty() {
        Check::ok("alive", format!("{found}; draining: {}", draining.join(", ")))
    } else {
        Check::ok("alive", found)
    })
}
