//! What processes leave for each other to see: how the gates are doing. Kept for an hour, bounded; nothing is decided by it.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidegate_core::gates::Micros;
use tidegate_core::slo::Verdict;

use crate::watched::{DomainMetrics, Snapshot, Trace, TraceQuery, measure, snapshot};
use crate::{GateOperations, Gates, GatesError};

/// How large a backend is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Memory in bytes; the whole server's, if it is one.
    pub bytes: u64,
    /// Keys, or rows.
    pub keys: u64,
}

/// What a domain looks like now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// Slots that are taken.
    pub slots_used: u64,
    /// Slots that there are.
    pub slots: u64,
    /// The fullest pool, of a hundred.
    pub fullest_percent: f64,
    /// Breakers that let nothing, or only a few, pass.
    pub breakers_open: u64,
    /// Those who wait.
    pub waiting: u64,
    /// Permits in quarantine.
    pub quarantined: u64,
    /// How long the first of these has waited.
    pub longest_wait_us: Micros,
    /// Keys with state.
    pub keys: u64,
    /// About how much memory its state takes.
    pub bytes: u64,
}

/// Numbers of a domain, and what it looks like.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainReport {
    /// What was counted.
    pub metrics: DomainMetrics,
    /// What it looks like now; none if its settings are not known here.
    pub live: Option<Live>,
}

/// How the gates are doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GatesReport {
    /// The gates' clock.
    pub now_us: Micros,
    /// Processes that were heard of in the last hour.
    pub processes: u64,
    /// Every domain.
    pub domains: Vec<DomainReport>,
    /// How large the backend is.
    pub footprint: Footprint,
    /// Every objective, judged.
    pub verdicts: Vec<Verdict>,
}

/// The operations.
#[async_trait]
pub trait Noticeboard: Gates + GateOperations {
    /// Leaves what this process has seen, in place of what it left before.
    async fn publish(&self, seen: &Snapshot) -> Result<(), GatesError>;

    /// What processes have left in the last hour, the newest first.
    async fn published(&self) -> Result<Vec<Snapshot>, GatesError>;

    /// How large the backend is.
    async fn footprint(&self) -> Result<Footprint, GatesError> {
        let usages = self.usage().await?;
        let keys = |t: tidegate_core::gates::PartitionView| {
            u64::from(t.keys) + u64::from(t.leases) + u64::from(t.places)
        };
        Ok(Footprint {
            bytes: usages.iter().map(|u| u.bytes).sum(),
            keys: usages.iter().map(|u| keys(u.total)).sum(),
        })
    }

    /// How the gates are doing, judged by [`tidegate_core::slo`].
    async fn report(&self) -> Result<GatesReport, GatesError> {
        measure::report(self).await
    }

    /// Lives of permits of a domain, the oldest first.
    async fn traces(&self, domain: &str, query: &TraceQuery) -> Result<Vec<Trace>, GatesError> {
        Ok(snapshot::traces(self.published().await?, self.clock(), domain, query))
    }

    /// Leaves what this process has seen now rather than within a second, for one that ends.
    async fn flush(&self) {}
}
