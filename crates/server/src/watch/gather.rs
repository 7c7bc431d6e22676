//! Looks at the store and the gates, at most so often, and bounded.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tidegate_core::alerts::{MAX_WATCHED_KINDS, Rule};
use tidegate_core::ids::KindName;
use tidegate_core::job::{Review, State};
use tidegate_core::metrics::TOKEN_REFRESH_KIND;
use tidegate_core::time::Timestamp;
use tidegate_gates::GatesReport;
use tidegate_store::params::{JobQuery, QueueView, Shelf, Totals};
use tidegate_store::{Result, Store};
use tokio::time::Instant;

use super::{Known, Watch, lock};
use crate::app::App;

/// How long a snapshot holds, and a scan.
const FRESH: Duration = Duration::from_secs(1);
const SCAN_FRESH: Duration = Duration::from_secs(10);
/// Time within which store and gates have to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a worker that is gone without a farewell is shown.
const DOWN_MS: i64 = 60_000;
/// Workers that are remembered.
const MAX_WORKERS: usize = 1_000;
/// Running jobs and dead refreshes that are looked at.
const RUNNING: usize = 1_000;
const REFRESHES: usize = 1_000;
/// Kinds whose letters and results are looked at: those of the registry, and as many that the alerts file names.
const MAX_KINDS: usize = 2 * MAX_WATCHED_KINDS;
/// Age from which a dead refresh counts as old (S0 §8).
const OLD_MS: i64 = 4 * 3_600_000;

/// What a worker says of itself, as far as it is needed here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Worker {
    pub(crate) role: String,
    pub(crate) queues: Vec<String>,
    pub(crate) concurrency: u64,
    pub(crate) running: u64,
    pub(crate) draining: bool,
}

/// How things were at one time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) at: Timestamp,
    pub(super) taken: Option<Instant>,
    /// Whether the store answered.
    pub(crate) answered: bool,
    pub(crate) queues: Vec<QueueView>,
    pub(crate) totals: Totals,
    pub(crate) workers: BTreeMap<String, Worker>,
    /// Those that are gone without a farewell.
    pub(crate) down: BTreeMap<String, Worker>,
    pub(crate) gates: Option<GatesReport>,
}

impl Snapshot {
    /// How late the oldest tick is that is due and not decided; `None` where there are no schedules, or nobody could say.
    pub(crate) fn scheduler_lag_ms(&self) -> Option<u64> {
        let late = self.totals.next_tick.map_or(0, |at| self.at.since(at).max(0));
        (self.answered && self.totals.schedules > 0).then_some(late.cast_unsigned())
    }
}

/// What takes a search.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scan {
    pub(super) taken: Option<Instant>,
    /// By kind: how long the longest running job has run, and how far it is beyond its timeout.
    pub(crate) runs: HashMap<String, (i64, i64)>,
    pub(crate) kinds: Vec<String>,
    pub(crate) letters: HashMap<String, u64>,
    /// Numbers of the newest result, by kind.
    pub(crate) results: HashMap<String, Vec<(String, f64)>>,
    pub(crate) dead_refreshes: u64,
    pub(crate) dead_refresh_age_ms: Option<i64>,
}

impl Watch {
    /// How things are, or were a moment ago.
    pub(crate) async fn snapshot(&self, app: &App) -> Arc<Snapshot> {
        let mut newest = self.newest.lock().await;
        if let Some(known) = newest.as_ref().filter(|s| s.taken.is_some_and(|t| t.elapsed() < FRESH)) {
            return known.clone();
        }
        let now = app.now();
        let looked = tokio::time::timeout(PATIENCE, self.look(&*app.store, now)).await;
        let mut snapshot = match looked {
            Ok(Ok(snapshot)) => snapshot,
            // What was known goes on, but for the answer.
            _ => Snapshot { answered: false, at: now, ..newest.as_deref().cloned().unwrap_or_default() },
        };
        if let Some(gates) = &app.gates {
            let report = tokio::time::timeout(PATIENCE, gates.backend.report()).await;
            snapshot.gates = report.ok().and_then(std::result::Result::ok);
        }
        // From the answer on: those who waited for it must not ask again.
        snapshot.taken = Some(Instant::now());
        let snapshot = Arc::new(snapshot);
        *newest = Some(snapshot.clone());
        snapshot
    }

    async fn look(&self, store: &dyn Store, now: Timestamp) -> Result<Snapshot> {
        let (queues, totals) = (store.queues(now).await?, store.totals().await?);
        let records = store.records(Shelf::Workers, now).await?;
        let mut workers = BTreeMap::new();
        let mut ends = BTreeMap::new();
        for record in records.into_iter().take(MAX_WORKERS) {
            let worker: Worker = serde_json::from_str(&record.body).unwrap_or_default();
            ends.insert(record.key.clone(), record.expires.unwrap_or(Timestamp(i64::MAX)));
            workers.insert(record.key, worker);
        }
        let down = self.missing(&workers, &ends, now);
        Ok(Snapshot { at: now, taken: None, answered: true, queues, totals, workers, down, gates: None })
    }

    /// Workers whose announcement ran out: whoever says farewell takes it away before.
    fn missing(
        &self,
        alive: &BTreeMap<String, Worker>,
        ends: &BTreeMap<String, Timestamp>,
        now: Timestamp,
    ) -> BTreeMap<String, Worker> {
        let mut known = lock(&self.workers);
        for (name, worker) in alive {
            if known.len() < MAX_WORKERS || known.contains_key(name) {
                let expires = ends.get(name).copied().unwrap_or(now);
                known.insert(name.clone(), Known { worker: worker.clone(), expires, gone_at: None });
            }
        }
        known.retain(|name, k| {
            if alive.contains_key(name) {
                return true;
            }
            let gone_at = *k.gone_at.get_or_insert(now);
            let said_farewell = gone_at < k.expires;
            !said_farewell && now.since(gone_at) < DOWN_MS
        });
        let down = known.iter().filter(|(_, k)| k.gone_at.is_some());
        down.map(|(name, k)| (name.clone(), k.worker.clone())).collect()
    }

    /// What takes a search, at most so often.
    pub(crate) async fn scan(&self, app: &App, now: Timestamp) -> Arc<Scan> {
        let mut newest = self.scan.lock().await;
        if let Some(known) = newest.as_ref().filter(|s| s.taken.is_some_and(|t| t.elapsed() < SCAN_FRESH)) {
            return known.clone();
        }
        let mut scan = match scan(app, now).await {
            Ok(scan) => scan,
            Err(error) => {
                tracing::debug!(code = %error.code, "jobs could not be looked at for alerts: {error}");
                Scan::default()
            }
        };
        scan.taken = Some(Instant::now());
        let scan = Arc::new(scan);
        *newest = Some(scan.clone());
        scan
    }
}

async fn scan(app: &App, now: Timestamp) -> Result<Scan> {
    let store = &*app.store;
    let registered = store.kinds().await?;
    let rules = app.alerts.in_force(&registered);
    let kinds = registered.into_iter().map(|k| k.name.to_string()).collect();
    let mut scan = Scan { kinds, ..Scan::default() };
    let running = JobQuery { states: vec![State::Running], limit: RUNNING, ..JobQuery::default() };
    for job in store.search(running).await?.jobs {
        let Some(held) = job.held else { continue };
        let ran = now.since(held.since).max(0);
        let longest = scan.runs.entry(job.kind.to_string()).or_insert((0, i64::MIN));
        *longest = (longest.0.max(ran), longest.1.max(ran - job.timeout_ms));
    }
    let named = looked_at(&rules, &scan.kinds);
    (scan.letters, scan.results) = app.watch.kinds.look(store, &named).await?;
    if scan.kinds.iter().any(|k| k == TOKEN_REFRESH_KIND) {
        look_at_refreshes(store, now, &mut scan).await?;
    }
    Ok(scan)
}

/// Kinds that rules name: a look at each is too much for all.
fn looked_at(rules: &[Rule], kinds: &[String]) -> Vec<String> {
    let mut named: Vec<String> =
        rules.iter().filter(|r| r.enabled).flat_map(|r| r.on.iter().cloned()).collect();
    named.sort();
    named.dedup();
    named.retain(|name| kinds.contains(name));
    named.truncate(MAX_KINDS);
    named
}

/// Dead refreshes, and the oldest that does not wait for its tenant (J21).
async fn look_at_refreshes(store: &dyn Store, now: Timestamp, scan: &mut Scan) -> Result<()> {
    let query = JobQuery {
        states: vec![State::Dead],
        kind: Some(KindName::new(TOKEN_REFRESH_KIND)?),
        review: Some(Review::PendingReview),
        limit: REFRESHES,
        ..JobQuery::default()
    };
    scan.dead_refreshes = store.search(query.clone()).await?.jobs.len() as u64;
    let old = JobQuery { created_before: Some(now.plus_ms(-OLD_MS)), ..query };
    let waits = tidegate_core::failure::Category::PermanentAuth;
    let own = store.search(old).await?.jobs.into_iter();
    let ages = own.filter(|j| j.dead.as_ref().is_some_and(|d| d.category != waits));
    scan.dead_refresh_age_ms = Some(ages.filter_map(|j| Some(now.since(j.finished_at?))).max().unwrap_or(0));
    Ok(())
}
