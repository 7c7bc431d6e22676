//! The end of the demo: what happened, what it proves, what to try next.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tidegate_core::why::grouped;

use super::ledger::{Ledger, read};
use super::verify::{Fairness, Found, Ruling, Verdict, wait_text};
use crate::output::{Output, Style, width_of, wrapped};

/// Everything the summary says.
pub(crate) struct Summary<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) found: Found,
    pub(crate) fairness: &'a Fairness,
    pub(crate) verdicts: &'a [Verdict],
    /// Time under load.
    pub(crate) took_ms: u64,
    /// The flag that names the store, if it stays.
    pub(crate) kept: Option<String>,
    /// An id to look at.
    pub(crate) sample: Option<String>,
}

impl Summary<'_> {
    /// Whether no verdict is bad.
    pub(crate) fn passed(&self) -> bool {
        self.count(Ruling::Broken) == 0
    }

    fn count(&self, ruling: Ruling) -> usize {
        self.verdicts.iter().filter(|v| v.ruling == ruling).count()
    }

    fn per_second(&self) -> f64 {
        self.found.completed as f64 * 1_000.0 / self.took_ms.max(1) as f64
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let Found { completed, dead, cancelled, scheduled, ready, running, blocked, lost, .. } = self.found;
        let ledger = self.ledger;
        let waits: serde_json::Map<String, Value> =
            self.fairness.mean_wait_ms_by_priority.iter().map(|(p, ms)| (p.to_string(), json!(ms))).collect();
        json!({
            "passed": self.passed(),
            "took_ms": self.took_ms,
            "completed_per_s": self.per_second().round(),
            "jobs": {
                "enqueued": ledger.enqueued(),
                "completed": completed,
                "dead": dead,
                "cancelled": cancelled,
                "scheduled": scheduled,
                "ready": ready,
                "running": running,
                "blocked": blocked,
                "lost": lost,
                "stale_refused": read(&ledger.stale_refused),
                "retried": read(&ledger.retried),
                "snoozed": read(&ledger.snoozed),
                "duplicates_kept": read(&ledger.duplicates_kept),
            },
            "fairness": {
                "noisy_tenant": self.fairness.noisy_tenant,
                "noisy_mean_wait_ms": self.fairness.noisy_mean_wait_ms,
                "worst_small_tenant": self.fairness.worst_small_tenant,
                "worst_small_mean_wait_ms": self.fairness.worst_small_mean_wait_ms,
                "jain_index": self.fairness.jain_index,
                "mean_wait_ms_by_priority": waits,
            },
            "invariants": self.verdicts,
            "kept": self.kept,
        })
    }

    /// For people.
    pub(crate) fn text(&self, output: &Output) -> String {
        let style = output.style;
        let width = output.width.unwrap_or(120);
        let mut text = self.opening(style);
        text.push('\n');
        let names = self.verdicts.iter().map(|v| width_of(v.name)).max().unwrap_or(0);
        for verdict in self.verdicts {
            let mark = match verdict.ruling {
                Ruling::Holds => style.green("✓ holds "),
                Ruling::Broken => style.red("✗ BROKEN"),
                Ruling::NotJudged => style.yellow("– open  "),
            };
            let room = width.saturating_sub(names + 14);
            let mut lines = wrapped(&verdict.detail, room.max(20)).into_iter();
            let first = lines.next().unwrap_or_default();
            let _ = writeln!(text, "  {mark}  {:<names$}  {first}", verdict.name);
            for line in lines {
                let _ = writeln!(text, "  {:8}  {:<names$}  {line}", "", "");
            }
        }
        text.push('\n');
        text += &self.waits(style);
        text += &self.next_steps(style);
        text
    }

    fn opening(&self, style: Style) -> String {
        let ledger = self.ledger;
        let (broken, open) = (self.count(Ruling::Broken), self.count(Ruling::NotJudged));
        let all = self.verdicts.len();
        let verdict = match (broken, open) {
            (0, 0) => style.green(&format!("All {all} invariants hold.")),
            (0, _) => style.green(&format!("{} invariants hold, {open} could not be judged.", all - open)),
            _ => style.red(&format!("{broken} of {all} invariants are broken.")),
        };
        format!(
            "{}  {verdict}\n{} jobs in {:.1} s, {} completed per second.\n{} attempts retried, {} jobs snoozed, {} \
             duplicates refused.\n",
            style.bold("tidegate demo"),
            grouped(ledger.enqueued()),
            self.took_ms as f64 / 1_000.0,
            grouped(self.per_second() as u64),
            grouped(read(&ledger.retried)),
            grouped(read(&ledger.snoozed)),
            grouped(read(&ledger.duplicates_kept))
        )
    }

    fn waits(&self, style: Style) -> String {
        let by_priority: Vec<String> = self
            .fairness
            .mean_wait_ms_by_priority
            .iter()
            .map(|(p, ms)| format!("{p} {}", ms.map_or_else(|| "–".into(), wait_text)))
            .collect();
        format!("{}  {}\n\n", style.bold("Mean wait of small tenants:"), by_priority.join("  "))
    }

    fn next_steps(&self, style: Style) -> String {
        let mut text = format!("{}\n", style.bold("Try next"));
        let steps = match &self.kept {
            Some(store) => {
                let why = self.sample.as_deref().map(|job| format!("tidegate why {job} {store}"));
                [
                    format!("tidegate dead ls {store}"),
                    why.unwrap_or_else(|| format!("tidegate jobs ls {store}")),
                    format!("tidegate dead recover --all --dry-run {store}"),
                ]
            }
            None => [
                "tidegate demo --dir ./shown          keep the data to look at it".into(),
                "tidegate demo --seconds 60 --json    the same figures for a program".into(),
                "tidegate bench jobs --jobs 100000    how fast it is on this machine".into(),
            ],
        };
        for (n, step) in steps.iter().enumerate() {
            let _ = writeln!(text, "  {}. {step}", n + 1);
        }
        text
    }
}
