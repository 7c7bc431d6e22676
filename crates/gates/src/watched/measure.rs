//! From what was seen to readings and verdicts.

use std::collections::BTreeMap;

use tidegate_core::gates::{BreakerState, GateView, Micros, SECOND, ScopeView};
use tidegate_core::slo::{self, Measured, Reading};

use super::snapshot::{DomainMetrics, Snapshot, merge};
use crate::fallback::PRESENCE;
use crate::noticeboard::{DomainReport, Footprint, GatesReport, Live, Noticeboard};
use crate::{DomainUsage, GatesError};

/// Keys and waiters looked at per domain.
const LOOKED_AT: usize = 1_000;
/// Domains looked at.
const DOMAINS: usize = 256;
/// How long failures in a row are news.
const NEWS: Micros = 300 * SECOND;

/// How the gates are doing.
pub(crate) async fn report<B: Noticeboard + ?Sized>(gates: &B) -> Result<GatesReport, GatesError> {
    let (snapshots, now) = (gates.published().await?, gates.clock());
    let mut domains: BTreeMap<String, DomainReport> = BTreeMap::new();
    for metrics in merge(&snapshots, now) {
        domains.insert(metrics.domain.clone(), DomainReport { metrics, live: None });
    }
    // In that one processes only say that they live.
    let usages = gates.usage().await?.into_iter().filter(|usage| usage.domain != PRESENCE);
    for usage in usages.take(DOMAINS) {
        let live = look(gates, now, &usage).await?;
        let domain = domains.entry(usage.domain.clone()).or_default();
        domain.metrics.domain = usage.domain;
        domain.live = live;
    }
    let footprint = gates.footprint().await?;
    let domains: Vec<DomainReport> = domains.into_values().collect();
    let verdicts = slo::judge(&measured(&domains, footprint, &snapshots, now));
    Ok(GatesReport { now_us: now, processes: snapshots.len() as u64, domains, footprint, verdicts })
}

/// What a domain looks like; none if this process does not know its settings.
async fn look<B: Noticeboard + ?Sized>(
    gates: &B,
    now: Micros,
    usage: &DomainUsage,
) -> Result<Option<Live>, GatesError> {
    let scopes = match gates.inspect(None, &usage.domain, LOOKED_AT).await {
        Err(GatesError::UnknownDomain { .. }) => return Ok(None),
        scopes => scopes?,
    };
    let waiters = gates.waiters(&usage.domain, LOOKED_AT).await?;
    let first = waiters.iter().map(|w| w.arrived).min();
    Ok(Some(Live {
        waiting: usage.total.places.into(),
        quarantined: usage.total.quarantined.into(),
        longest_wait_us: first.map_or(0, |arrived| (now - arrived).max(0)),
        keys: usage.total.keys.into(),
        bytes: usage.bytes,
        ..of_gates(&scopes)
    }))
}

fn of_gates(scopes: &[ScopeView]) -> Live {
    let mut live = Live::default();
    for (_, gate) in scopes.iter().flat_map(|s| &s.gates) {
        match gate {
            GateView::Slots { used, limit } => {
                live.slots_used += u64::from(*used);
                live.slots += u64::from(*limit);
                let percent = 100.0 * f64::from(*used) / f64::from((*limit).max(1));
                live.fullest_percent = live.fullest_percent.max(percent);
            }
            GateView::Breaker { state: BreakerState::Open | BreakerState::HalfOpen } => {
                live.breakers_open += 1;
            }
            GateView::Breaker {
                state: BreakerState::Closed | BreakerState::Ramp | BreakerState::OpenForProcess,
            }
            | GateView::Smooth { .. }
            | GateView::Window { .. }
            | GateView::Reported { .. }
            | GateView::Quota { .. } => {}
        }
    }
    live
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole as f64
}

fn measured(domains: &[DomainReport], footprint: Footprint, snapshots: &[Snapshot], now: Micros) -> Measured {
    let mut backend = BTreeMap::new();
    let mut read = |id: &str, value: f64, samples: u64| {
        backend.insert(id.to_owned(), Reading { value, samples });
    };
    read("backend_memory", footprint.bytes as f64, 1);
    read("backend_keys", footprint.keys as f64, 1);
    if let Some((growth, samples)) = growth(snapshots) {
        read("backend_growth", growth, samples);
    }
    let domains = domains.iter().map(|d| (d.metrics.domain.clone(), of_domain(d, now))).collect();
    Measured { domains, backend }
}

fn of_domain(domain: &DomainReport, now: Micros) -> BTreeMap<String, Reading> {
    let mut readings = BTreeMap::new();
    let mut read = |id: &str, value: f64, samples: u64| {
        readings.insert(id.to_owned(), Reading { value, samples });
    };
    let DomainMetrics { recent, in_row, failed_at, .. } = &domain.metrics;
    let counts = &recent.counts;
    if let Some(us) = recent.decisions.quantile(0.95) {
        read("reservation_p95", us / 1_000.0, recent.decisions.count());
    }
    let answered = counts.asked.saturating_sub(counts.unanswered);
    read("reservations_answered", percent(answered, counts.asked), counts.asked);
    read("retry_success", percent(counts.retried_well, counts.retried), counts.retried);
    read("slot_leakage", percent(counts.expired, counts.reserved), counts.reserved);
    let opened = counts.breakers_opened;
    read("breaker_false_positives", percent(counts.breakers_false, opened), opened);
    let is_news = failed_at.is_some_and(|at| at + NEWS > now);
    let ended = counts.went_well + counts.failed;
    read("consecutive_failures", if is_news { f64::from(*in_row) } else { 0.0 }, ended);
    if let Some(live) = &domain.live {
        read("longest_wait", live.longest_wait_us as f64 / 1e6, 1);
        read("breaker_open", live.breakers_open as f64, 1);
        if live.slots > 0 {
            read("slot_utilisation", live.fullest_percent, 1);
        }
    }
    readings
}

/// Bytes in an hour, by the process that has watched for longest, and how many readings that rests on.
fn growth(snapshots: &[Snapshot]) -> Option<(f64, u64)> {
    let span =
        |s: &&Snapshot| s.memory.last().zip(s.memory.first()).map_or(0, |(last, first)| last.0 - first.0);
    let longest = snapshots.iter().max_by_key(span)?;
    let ((from, before), (to, after)) = (*longest.memory.first()?, *longest.memory.last()?);
    let hours = (to - from) as f64 / (3_600 * SECOND) as f64;
    (hours > 0.0).then(|| ((after as f64 - before as f64) / hours, longest.memory.len() as u64))
}
