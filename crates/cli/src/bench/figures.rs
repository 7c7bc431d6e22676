//! What a run measured.

use serde::Serialize;
use tidegate_core::why::grouped;

use crate::output::{Column, Output, Table};

/// Milliseconds from just before the enqueue to the start of the handler.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Pickup {
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
}

impl Pickup {
    /// Percentiles of waits in milliseconds.
    pub(super) fn of(mut waits: Vec<f64>) -> Self {
        waits.sort_by(f64::total_cmp);
        let at = |p: f64| {
            waits.get(((waits.len() as f64 * p) as usize).min(waits.len().saturating_sub(1))).copied()
        };
        let rounded = |p| thousandths(at(p).unwrap_or_default());
        Self { p50: rounded(0.50), p95: rounded(0.95), p99: rounded(0.99) }
    }
}

/// The one in the middle.
pub(super) fn middle(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Rounded to three digits.
pub(super) fn thousandths(n: f64) -> f64 {
    (n * 1_000.0).round() / 1_000.0
}

/// All figures of `bench jobs`. The names are a contract.
#[derive(Debug, Default, Serialize)]
pub(super) struct Figures {
    pub(super) store: String,
    pub(super) jobs: u64,
    pub(super) backlog: String,
    pub(super) concurrency: u32,
    pub(super) payload_bytes: usize,
    pub(super) cold_start_ms: f64,
    pub(super) enqueue_single_per_s: f64,
    pub(super) enqueue_bulk_per_s: f64,
    pub(super) process_per_s: f64,
    /// The same for jobs that wait for each other; 0 if it was not measured.
    pub(super) dependent_per_s: f64,
    pub(super) pickup_ms: Pickup,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) rss_mb: f64,
    pub(super) rss_peak_mb: f64,
}

impl Figures {
    /// For people.
    pub(super) fn table(&self, output: &Output) -> String {
        let per_s = |n: f64| format!("{}/s", grouped(n as u64));
        let mut table =
            Table::new(vec![Column::fixed("FIGURE"), Column::number("VALUE"), Column::text("HOW", 20)]);
        let mut row = |name: &str, value: String, how: &str| table.row(vec![name.into(), value, how.into()]);
        row(
            "enqueue, one by one",
            per_s(self.enqueue_single_per_s),
            "50 callers, each waits until it is on disk",
        );
        row("enqueue, in bulk", per_s(self.enqueue_bulk_per_s), "2 callers, 1,000 jobs a call");
        row("process", per_s(self.process_per_s), "no-op handler, completed jobs kept, pruner on");
        if self.dependent_per_s > 0.0 {
            let ratio = self.dependent_per_s / self.process_per_s.max(1.0);
            let how = format!("flows of 100: one, 98 after it, one after those; {ratio:.2} of the former");
            row("process, dependent", per_s(self.dependent_per_s), &how);
        }
        let ms = |n: f64| format!("{n:.2} ms");
        row("pickup p50", ms(self.pickup_ms.p50), "idle queue, from before the enqueue to the handler");
        row("pickup p95", ms(self.pickup_ms.p95), "");
        row("pickup p99", ms(self.pickup_ms.p99), "");
        row("cold start", ms(self.cold_start_ms), "opening the store");
        row("lost", grouped(self.lost), "acknowledged and not there");
        row("run twice", grouped(self.duplicated), "");
        row("memory", format!("{:.0} MB", self.rss_mb), "resident, after processing");
        table.render(output)
    }
}

/// Resident memory now and at its peak, in MB.
pub(super) fn memory_mb() -> (f64, f64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name));
        let kb = line.and_then(|l| l.split_whitespace().nth(1)).and_then(|n| n.parse::<f64>().ok());
        (kb.unwrap_or_default() / 1_024.0 * 10.0).round() / 10.0
    };
    (field("VmRSS:"), field("VmHWM:"))
}
