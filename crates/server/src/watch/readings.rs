//! What the alerts are judged by.

use tidegate_core::alerts::{Readings, Target};
use tidegate_core::metrics::TOKEN_REFRESH_KIND;
use tidegate_core::time::Timestamp;

use super::Watch;
use super::gather::{Scan, Snapshot};
use super::health::{Facts, error_rate, serving};
use crate::app::App;

impl Watch {
    /// What health is judged by, beside the counts.
    pub(crate) fn facts(&self, app: &App) -> Facts {
        let gates = app.gates.as_ref().and_then(|gates| gates.backend.health());
        Facts {
            writable: self.probed.is_fine(),
            gates: gates.map(|g| if g.is_normal() { Ok(()) } else { Err(g.sentence().to_owned()) }),
            expected_workers: app.alerts.expected_workers,
            queue_workers: app.alerts.queue_workers.clone(),
        }
    }

    /// Everything that rules can ask for, as far as it is known.
    pub(crate) async fn readings(&self, app: &App, now: Timestamp) -> Readings {
        let (snapshot, scan) = (self.snapshot(app).await, self.scan(app, now).await);
        let mut readings = Readings::default();
        system(&mut readings, &snapshot, &scan, &self.facts(app));
        if snapshot.answered {
            queues(&mut readings, &snapshot, &self.facts(app));
            kinds(&mut readings, &scan);
        }
        for verdict in snapshot.gates.iter().flat_map(|report| &report.verdicts) {
            let target = verdict.domain.as_ref().map_or_else(Target::system, Target::domain);
            if let Some(value) = verdict.value {
                readings.add(target, &verdict.objective, value, verdict.samples);
            }
        }
        readings
    }
}

fn system(readings: &mut Readings, snapshot: &Snapshot, scan: &Scan, facts: &Facts) {
    let mut add = |name: &str, value: f64| readings.add(Target::system(), name, value, 1);
    let count = |yes: bool| f64::from(u8::from(yes));
    add("store_failing", count(!(facts.writable && snapshot.answered)));
    if let Some(gates) = &facts.gates {
        add("gates_alone", count(gates.is_err()));
    }
    if let Some(late) = snapshot.scheduler_lag_ms() {
        add("scheduler_lag", late as f64 / 1e3);
    }
    if !snapshot.answered {
        return;
    }
    add("dlq_size", snapshot.totals.dead.saturating_sub(scan.dead_refreshes) as f64);
    let workers = snapshot.workers.values().filter(|w| w.role != "server").count();
    add("worker_count", workers as f64);
    if let Some(expected) = facts.expected_workers {
        add("expected_workers", expected as f64);
    }
    if scan.kinds.iter().any(|k| k == TOKEN_REFRESH_KIND) {
        add("dead_token_refreshes", scan.dead_refreshes as f64);
        add("dead_token_age", scan.dead_refresh_age_ms.unwrap_or(0) as f64 / 1e3);
    }
}

fn queues(readings: &mut Readings, snapshot: &Snapshot, facts: &Facts) {
    for q in &snapshot.queues {
        let name = q.name.as_str();
        let mut add = |reading: &str, value: f64, samples: u64| {
            readings.add(Target::queue(name), reading, value, samples);
        };
        let (share, ended) = error_rate(q);
        add("waiting", q.ready as f64, 1);
        add("active", q.running as f64, 1);
        add("error_rate", share * 100.0, ended);
        add("processing_time", q.run_ms_last_minute as f64 / 1e3 / ended.max(1) as f64, ended);
        add("throughput", q.completed_last_minute as f64, 1);
        let oldest = q.oldest_ready.map_or(0, |at| snapshot.at.since(at).max(0));
        add("oldest_ready", oldest as f64 / 1e3, 1);
        add("stalled", q.stalled as f64, 1);
        add("queue_workers", serving(snapshot, name) as f64, 1);
        if let Some(expected) = facts.queue_workers.get(name) {
            add("expected_queue_workers", *expected as f64, 1);
        }
    }
}

fn kinds(readings: &mut Readings, scan: &Scan) {
    for kind in &scan.kinds {
        let (ran, beyond) = scan.runs.get(kind).copied().unwrap_or((0, 0));
        let mut add = |reading: &str, value: f64| readings.add(Target::kind(kind), reading, value, 1);
        add("longest_run", ran as f64 / 1e3);
        add("overdue", beyond.max(0) as f64 / 1e3);
        if let Some(letters) = scan.letters.get(kind) {
            add("dead_letters", *letters as f64);
        }
        for (name, value) in scan.results.get(kind).into_iter().flatten() {
            add(name, *value);
        }
    }
}
