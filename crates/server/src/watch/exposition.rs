//! The metrics of this process, as text for Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::failure::Category;
use tidegate_core::metrics::{self as m, Exposition, Metric, TOKEN_REFRESH_KIND};
use tidegate_store::meter::{End, LETTER_OUTCOMES, Series};
use tidegate_wire::health::Status;

use super::gather::Snapshot;
use super::health::{error_rate, judge};
use super::lock;
use crate::app::App;

/// Domains of gates that are exported.
const MAX_DOMAINS: usize = 100;

/// Everything that is measured here.
pub(crate) async fn exposition(app: &App) -> String {
    app.watch.scrapes.fetch_add(1, Ordering::Relaxed);
    let snapshot = app.watch.snapshot(app).await;
    let mut out = Exposition::default();
    out.value(&m::BUILD, &[env!("CARGO_PKG_VERSION")], 1.0);
    out.value(&m::STARTED_AT, &[], app.watch.began.0 as f64 / 1e3);
    let mut series = app.store.feed().meter().series();
    series.sort_by(|a, b| (&a.queue, &a.kind).cmp(&(&b.queue, &b.kind)));
    jobs(&mut out, &series);
    for (outcome, n) in LETTER_OUTCOMES.into_iter().zip(app.store.feed().meter().letters()) {
        out.value(&m::LETTERS, &[outcome], n as f64);
    }
    for (tenant, n) in app.store.feed().meter().tenants() {
        out.value(&m::TENANT_STARTED, &[&tenant], n as f64);
    }
    if snapshot.answered {
        queues(&mut out, &snapshot);
        workers(&mut out, &snapshot);
        out.value(&m::STALE, &[], snapshot.totals.stale_refused as f64);
    }
    let facts = app.watch.facts(app);
    out.value(&m::STORE_UP, &[], f64::from(u8::from(facts.writable && snapshot.answered)));
    let health = match judge(&snapshot, &facts).status {
        Status::Healthy => 0.0,
        Status::Degraded => 1.0,
        Status::Unhealthy => 2.0,
    };
    out.value(&m::HEALTH, &[], health);
    if let Some(ms) = snapshot.scheduler_lag_ms() {
        out.value(&m::SCHEDULER_LAG, &[], ms as f64 / 1e3);
    }
    alerts(&mut out, app);
    gates(&mut out, &snapshot);
    if let Some(gates) = &facts.gates {
        out.value(&m::GATES_UP, &[], f64::from(u8::from(gates.is_ok())));
    }
    if let Some(telemetry) = &app.telemetry {
        out.value(&m::SPANS_SENT, &[], telemetry.sent() as f64);
        out.value(&m::SPANS_DROPPED, &[], telemetry.dropped() as f64);
    }
    tokens(&mut out, &series);
    out.finish()
}

fn jobs(out: &mut Exposition, series: &[Arc<Series>]) {
    let mut counter = |metric: &Metric, of: &dyn Fn(&Series) -> u64| {
        for s in series {
            out.value(metric, &[&s.queue, &s.kind], of(s) as f64);
        }
    };
    counter(&m::ENQUEUED, &Series::enqueued);
    counter(&m::STARTED, &Series::started);
    counter(&m::COMPLETED, &|s| s.ended(End::Completed));
    for s in series {
        for category in Category::ALL.into_iter().filter(|c| s.failed(*c) > 0) {
            out.value(&m::FAILED, &[&s.queue, &s.kind, category.as_str()], s.failed(category) as f64);
        }
    }
    let mut counter = |metric: &Metric, end: End| {
        for s in series {
            out.value(metric, &[&s.queue, &s.kind], s.ended(end) as f64);
        }
    };
    counter(&m::RETRIED, End::Retried);
    counter(&m::SNOOZED, End::Snoozed);
    counter(&m::RELEASED, End::Released);
    counter(&m::STALLED, End::Stalled);
    counter(&m::DEAD, End::Dead);
    counter(&m::CANCELLED, End::Cancelled);
    for (metric, of) in [
        (&m::WAIT, (|s| &s.wait) as fn(&Series) -> &tidegate_store::meter::Durations),
        (&m::RUN, |s| &s.run),
        (&m::END_TO_END, |s| &s.total),
    ] {
        for s in series {
            let (counts, sum_ms) = of(s).read();
            out.histogram(metric, &[&s.queue, &s.kind], &counts, sum_ms);
        }
    }
}

fn queues(out: &mut Exposition, snapshot: &Snapshot) {
    for q in &snapshot.queues {
        let states = [
            ("ready", q.ready),
            ("scheduled", q.scheduled),
            ("running", q.running),
            ("completed", q.completed),
            ("dead", q.dead),
            ("cancelled", q.cancelled),
        ];
        for (state, n) in states {
            out.value(&m::JOBS, &[q.name.as_str(), state], n as f64);
        }
    }
    let mut gauge = |metric: &Metric, of: &dyn Fn(&tidegate_store::params::QueueView) -> f64| {
        for q in &snapshot.queues {
            out.value(metric, &[q.name.as_str()], of(q));
        }
    };
    gauge(&m::OLDEST, &|q| q.oldest_ready.map_or(0.0, |at| snapshot.at.since(at).max(0) as f64 / 1e3));
    gauge(&m::PAUSED, &|q| f64::from(u8::from(!q.parks.is_empty())));
    gauge(&m::PARKED_GROUPS, &|q| q.parked_groups as f64);
    gauge(&m::THROUGHPUT, &|q| q.completed_last_minute as f64);
    gauge(&m::ERROR_RATIO, &|q| error_rate(q).0);
    gauge(&m::PROCESSING, &|q| q.run_ms_last_minute as f64 / 1e3 / error_rate(q).1.max(1) as f64);
    gauge(&m::STALLED_NOW, &|q| q.stalled as f64);
}

fn workers(out: &mut Exposition, snapshot: &Snapshot) {
    for role in ["server", "worker"] {
        let n = snapshot.workers.values().filter(|w| (w.role == "server") == (role == "server")).count();
        out.value(&m::WORKERS, &[role], n as f64);
    }
    let places: u64 = snapshot.workers.values().map(|w| w.concurrency).sum();
    let busy: u64 = snapshot.workers.values().map(|w| w.running).sum();
    out.value(&m::WORKER_SLOTS, &["busy"], busy as f64);
    out.value(&m::WORKER_SLOTS, &["free"], places.saturating_sub(busy) as f64);
}

fn alerts(out: &mut Exposition, app: &App) {
    let mut firing: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for (rule, severity) in lock(&app.watch.firing).iter() {
        *firing.entry((rule.clone(), severity.as_str())).or_default() += 1;
    }
    for ((rule, severity), n) in firing {
        out.value(&m::ALERTS, &[&rule, severity], n as f64);
    }
}

fn gates(out: &mut Exposition, snapshot: &Snapshot) {
    let Some(report) = &snapshot.gates else { return };
    let domains = || report.domains.iter().take(MAX_DOMAINS);
    for d in domains() {
        for (event, n) in d.metrics.total.named() {
            out.value(&m::GATE_EVENTS, &[&d.metrics.domain, event], n as f64);
        }
    }
    for d in domains() {
        out.value(&m::GATE_HELD, &[&d.metrics.domain], d.metrics.held as f64);
    }
    for d in domains() {
        if let Some(live) = &d.live {
            out.value(&m::GATE_WAITING, &[&d.metrics.domain], live.waiting as f64);
        }
    }
    let shown: Vec<&str> = domains().map(|d| d.metrics.domain.as_str()).collect();
    for verdict in &report.verdicts {
        let domain = verdict.domain.as_deref().unwrap_or_default();
        if let Some(value) = verdict.value.filter(|_| domain.is_empty() || shown.contains(&domain)) {
            out.value(&m::GATE_OBJECTIVE, &[domain, &verdict.objective], value);
        }
    }
}

/// S0's names for what token refreshes did, over all queues.
fn tokens(out: &mut Exposition, series: &[Arc<Series>]) {
    let own: Vec<&Arc<Series>> = series.iter().filter(|s| s.kind == TOKEN_REFRESH_KIND).collect();
    if own.is_empty() {
        return;
    }
    let sum = |of: &dyn Fn(&Series) -> u64| own.iter().map(|s| of(s)).sum::<u64>();
    out.value(&m::TOKEN_ATTEMPTS, &[], sum(&Series::started) as f64);
    let (good, dead) = (sum(&|s| s.ended(End::Completed)), sum(&|s| s.ended(End::Dead)));
    let bad = dead + sum(&|s| s.ended(End::Retried));
    if good + bad > 0 {
        out.value(&m::TOKEN_SUCCESS, &[], good as f64 / (good + bad) as f64);
    }
    let (mut counts, mut sum_ms) = ([0; m::BUCKETS_MS.len() + 1], 0);
    for s in &own {
        let (more, ms) = s.run.read();
        counts.iter_mut().zip(more).for_each(|(n, more)| *n += more);
        sum_ms += ms;
    }
    out.histogram(&m::TOKEN_DURATION, &[], &counts, sum_ms);
    for category in Category::ALL {
        out.value(&m::TOKEN_RETRIES, &[category.as_str()], sum(&|s| s.failed(category)) as f64);
    }
    out.value(&m::TOKEN_DEAD, &[], dead as f64);
}
