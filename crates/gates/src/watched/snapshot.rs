//! What a process has seen, small enough to be left where others find it; and what several saw together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_core::gates::{Holder, Micros, SECOND};

use super::domain::{GRACE, TENANTS_SHOWN};
use super::tally::{Counts, Tally};
use super::trace::Trace;

/// Longest text of a snapshot, in bytes.
pub const SNAPSHOT_BYTES: usize = 64 * 1_024;
/// How long a snapshot is kept after it was published.
pub const SNAPSHOT_KEPT: Micros = 3_600 * SECOND;
/// Most processes whose snapshots are read: the newest.
pub const SNAPSHOTS: usize = 256;
/// Traces and tenants in a snapshot, of all domains together.
const TOGETHER: usize = 200;

/// What a process has seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Its own name, unique.
    pub process: String,
    /// Since when it watches, by the gates' clock.
    pub since: Micros,
    /// When this was written.
    pub at: Micros,
    /// Domains, those used last first.
    pub domains: Vec<DomainSeen>,
    /// How much memory the backend used, when; one a minute.
    pub memory: Vec<(Micros, u64)>,
    /// Whether something was left out for want of room.
    pub cut: bool,
}

/// What a process has seen of a domain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DomainSeen {
    /// The domain.
    pub domain: String,
    /// Numbers in all.
    pub total: Counts,
    /// Numbers and durations of the last 30 to 60 minutes.
    pub recent: Tally,
    /// Permits that are out.
    pub held: u64,
    /// When the last of these ends unless it is renewed.
    pub held_until: Micros,
    /// Failed calls in a row.
    pub in_row: u32,
    /// When the last call failed.
    pub failed_at: Option<Micros>,
    /// Tenants with the most permits and waits.
    pub tenants: Vec<TenantSeen>,
    /// All others together.
    pub others: Counts,
    /// Lives of permits, the oldest first.
    pub traces: Vec<Trace>,
}

/// What was seen of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantSeen {
    /// The tenant.
    pub tenant: String,
    /// Numbers in all.
    pub counts: Counts,
    /// Permits that are out.
    pub held: u32,
}

impl Snapshot {
    /// As text of at most [`SNAPSHOT_BYTES`]: traces go first, the oldest of each domain, then tenants, then domains.
    pub fn to_text(&self) -> String {
        let mut small = self.clone();
        small.keep(TOGETHER, TOGETHER, usize::MAX);
        let (mut traces, mut tenants, mut domains) = (TOGETHER, TOGETHER, small.domains.len());
        loop {
            let text = serde_json::to_string(&small).unwrap_or_default();
            if text.len() <= SNAPSHOT_BYTES || (traces, tenants, domains) == (0, 0, 0) {
                return text;
            }
            small.cut = true;
            match (traces, tenants) {
                (0, 0) => domains /= 2,
                (0, _) => tenants /= 2,
                _ => traces /= 2,
            }
            small.keep(traces, tenants, domains);
        }
    }

    /// Reads what [`Self::to_text`] wrote; none if it is something else, as of another version.
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|s: &Self| !s.process.is_empty())
    }

    /// Keeps the newest traces, the first tenants and domains.
    fn keep(&mut self, traces: usize, tenants: usize, domains: usize) {
        self.domains.truncate(domains);
        let mut times: Vec<Micros> =
            self.domains.iter().flat_map(|d| d.traces.iter().map(Trace::last)).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = traces;
        let oldest = times.get(traces.max(1) - 1).copied().unwrap_or(Micros::MIN);
        let each = tenants / self.domains.len().max(1);
        for domain in &mut self.domains {
            domain.traces.retain(|t| {
                let stays = left > 0 && t.last() >= oldest;
                left -= usize::from(stays);
                stays
            });
            for tenant in domain.tenants.drain(each.min(domain.tenants.len())..) {
                domain.others.merge(&tenant.counts);
            }
        }
    }
}

/// What all processes together have seen of a domain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DomainMetrics {
    /// The domain.
    pub domain: String,
    /// Numbers in all, of processes that were there in the last hour.
    pub total: Counts,
    /// Numbers and durations of the last 30 to 60 minutes.
    pub recent: Tally,
    /// Permits that are out.
    pub held: u64,
    /// Failed calls in a row, at the process that has most.
    pub in_row: u32,
    /// When a call last failed.
    pub failed_at: Option<Micros>,
    /// Tenants with the most permits and waits.
    pub tenants: Vec<TenantSeen>,
    /// All others together.
    pub others: Counts,
}

/// Puts together what processes have seen. What a process held when it was last heard of, and what has ended since without a word, has
/// expired; unless another process settled it, as servers do for the workers they share.
pub fn merge(snapshots: &[Snapshot], now: Micros) -> Vec<DomainMetrics> {
    let mut all: BTreeMap<&str, (DomainMetrics, BTreeMap<&str, TenantSeen>)> = BTreeMap::new();
    for seen in snapshots.iter().flat_map(|s| &s.domains) {
        let (domain, tenants) = all.entry(&seen.domain).or_default();
        domain.total.merge(&seen.total);
        domain.recent.merge(&seen.recent);
        domain.others.merge(&seen.others);
        let lapsed = seen.held_until + GRACE < now;
        if lapsed {
            domain.total.expired += seen.held;
            domain.recent.counts.expired += seen.held;
        } else {
            domain.held += seen.held;
        }
        domain.in_row = domain.in_row.max(seen.in_row);
        domain.failed_at = domain.failed_at.max(seen.failed_at);
        for tenant in &seen.tenants {
            let new = tenants.entry(&tenant.tenant).or_default();
            new.counts.merge(&tenant.counts);
            if lapsed {
                new.counts.expired += u64::from(tenant.held);
            } else {
                new.held += tenant.held;
            }
        }
    }
    let finish = |(name, (mut domain, tenants)): (&str, (DomainMetrics, BTreeMap<&str, TenantSeen>))| {
        domain.domain = name.to_owned();
        without_adopted(&mut domain.total);
        without_adopted(&mut domain.recent.counts);
        let mut top: Vec<TenantSeen> = tenants
            .into_iter()
            .map(|(name, mut tenant)| {
                tenant.tenant = name.to_owned();
                without_adopted(&mut tenant.counts);
                tenant
            })
            .collect();
        top.sort_by_key(|t| std::cmp::Reverse(t.counts.reserved + t.counts.waits));
        for tenant in top.drain(TENANTS_SHOWN.min(top.len())..) {
            domain.others.merge(&tenant.counts);
        }
        domain.tenants = top;
        domain
    };
    all.into_iter().map(finish).collect()
}

/// A permit that one process saw lapse and another saw settled has not lapsed.
fn without_adopted(counts: &mut Counts) {
    counts.expired = counts.expired.saturating_sub(std::mem::take(&mut counts.adopted));
}

/// Which traces are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceQuery {
    /// Of this holder, or of this job's calls (`job_1` also means `job_1#2`).
    pub holder: Option<String>,
    /// Of this tenant.
    pub tenant: Option<String>,
    /// So many, the newest.
    pub last: usize,
}

impl TraceQuery {
    fn matches(&self, trace: &Trace) -> bool {
        let of = |holder: &Holder, wanted: &str| {
            holder.as_str() == wanted || holder.as_str().split('#').next() == Some(wanted)
        };
        self.holder.as_deref().is_none_or(|wanted| of(&trace.holder, wanted))
            && self
                .tenant
                .as_deref()
                .is_none_or(|tenant| trace.target.part(tidegate_core::gates::Part::Tenant) == tenant)
    }
}

/// The traces of a domain that all processes have together, the oldest first. A permit whose process has said nothing since its lease
/// ended has expired.
pub(crate) fn traces(snapshots: Vec<Snapshot>, now: Micros, domain: &str, query: &TraceQuery) -> Vec<Trace> {
    let seen = snapshots.into_iter().flat_map(|s| s.domains).filter(|d| d.domain == domain);
    let mut all: Vec<Trace> = seen.flat_map(|d| d.traces).filter(|t| query.matches(t)).collect();
    for trace in &mut all {
        trace.lapse(now - GRACE);
    }
    all.sort_by_key(|t| (t.began(), t.last()));
    all.drain(..all.len().saturating_sub(query.last));
    all
}
