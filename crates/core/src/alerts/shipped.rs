//! The rules that ship. S1 §6.2 and §6.4, S1's alerts on its aggregation and graph jobs, S0 §8 with J21; those of the gates are
//! made from their objectives.

use std::fmt::Write as _;

use super::readings::known;
use super::rule::Rule;
use super::{DEFAULT_REPEAT_MS, Severity};
use crate::slo::{OBJECTIVES, Objective, Sense, Unit};
use crate::time::Millis;

struct Shipped<'c> {
    id: &'static str,
    condition: &'c str,
    for_ms: i64,
    severity: Severity,
    channels: &'static [&'static str],
    message: &'static str,
    runbook: &'static str,
    on: &'static [&'static str],
    least_samples: u64,
    enabled: bool,
}

const MINUTE: i64 = 60_000;
/// Told to people who look at it in working hours.
const LOOK: &[&str] = &["slack"];
/// Told to whoever is on call.
const PAGE: &[&str] = &["slack", "pagerduty"];

const BASE: Shipped<'static> = Shipped {
    id: "",
    condition: "",
    for_ms: 0,
    severity: Severity::Warning,
    channels: LOOK,
    message: "",
    runbook: "",
    on: &[],
    least_samples: 0,
    enabled: true,
};

/// S1's job that makes the daily features, and the one that builds the graph from them.
const AGGREGATION: &[&str] = &["daily-feature-aggregation"];
const GRAPH: &[&str] = &["community-graph-build"];

const JOBS: &[Shipped<'static>] = &[
    Shipped {
        id: "queue_depth_high",
        condition: "waiting > 1000",
        message: "Queue {where}: {value} jobs wait, more than {bar}",
        runbook: "queue-stands-still.md",
        ..BASE
    },
    Shipped {
        id: "processing_slow",
        condition: "processing_time > 30s",
        message: "Queue {where}: a job takes {value} on average, more than {bar}",
        runbook: "slow-jobs.md",
        ..BASE
    },
    Shipped {
        id: "error_rate_high",
        condition: "error_rate > 5%",
        severity: Severity::Critical,
        channels: PAGE,
        message: "Queue {where}: {value} of attempts fail",
        runbook: "errors.md",
        least_samples: 20,
        ..BASE
    },
    Shipped {
        id: "throughput_low",
        condition: "throughput < 1 and waiting > 0",
        for_ms: 5 * MINUTE,
        message: "Queue {where}: {value} jobs done in a minute, while {waiting} wait",
        runbook: "queue-stands-still.md",
        // How much is little is different for every queue.
        enabled: false,
        ..BASE
    },
    Shipped {
        id: "dlq_threshold",
        condition: "dlq_size > 100",
        message: "{value} dead letters, more than {bar}",
        runbook: "dead-letters.md",
        ..BASE
    },
    Shipped {
        id: "worker_down",
        condition: "worker_count < expected_workers",
        for_ms: MINUTE / 2,
        severity: Severity::Critical,
        channels: PAGE,
        message: "{value} of {bar} workers are alive",
        runbook: "workers-down.md",
        ..BASE
    },
    Shipped {
        id: "queue_worker_down",
        condition: "queue_workers < expected_queue_workers",
        for_ms: MINUTE / 2,
        severity: Severity::Critical,
        channels: PAGE,
        message: "Queue {where}: {value} of {bar} workers are alive",
        runbook: "workers-down.md",
        ..BASE
    },
    Shipped {
        id: "stalled_jobs",
        condition: "stalled > 0",
        for_ms: 5 * MINUTE,
        message: "Queue {where}: {value} jobs whose worker died have not run since",
        runbook: "workers-down.md",
        ..BASE
    },
    Shipped {
        id: "job_timeout",
        condition: "overdue > 0",
        for_ms: MINUTE / 2,
        message: "A job of kind {where} has run for {longest_run}, {value} beyond its timeout",
        runbook: "slow-jobs.md",
        ..BASE
    },
    Shipped {
        id: "token_dead_letters",
        condition: "dead_token_refreshes > 100",
        severity: Severity::Critical,
        channels: PAGE,
        message: "{value} token refreshes are dead, more than {bar}",
        runbook: "dead-letters.md",
        ..BASE
    },
    Shipped {
        id: "token_dead_letter_age",
        condition: "dead_token_age > 4h",
        severity: Severity::Critical,
        channels: PAGE,
        message: "A token refresh has been dead for {value}, longer than {bar}",
        runbook: "dead-letters.md",
        ..BASE
    },
    Shipped {
        id: "aggregation_failed",
        condition: "dead_letters > 0",
        severity: Severity::Error,
        channels: PAGE,
        message: "{where} failed: {value} dead letters to look at",
        runbook: "daily-jobs.md",
        on: AGGREGATION,
        ..BASE
    },
    Shipped {
        id: "aggregation_slow",
        condition: "longest_run > 8m",
        message: "{where} has run for {value}, longer than {bar}",
        runbook: "daily-jobs.md",
        on: AGGREGATION,
        ..BASE
    },
    Shipped {
        id: "aggregation_missing",
        condition: "result.missing_aggregates > 0",
        severity: Severity::Error,
        channels: PAGE,
        message: "{where}: aggregates of {value} communities are missing",
        runbook: "daily-jobs.md",
        on: AGGREGATION,
        ..BASE
    },
    Shipped {
        id: "aggregation_streak_broken",
        condition: "result.consecutive_success_days < 7",
        severity: Severity::Critical,
        channels: PAGE,
        message: "{where}: {value} good days in a row, the graph needs {bar}",
        runbook: "daily-jobs.md",
        on: AGGREGATION,
        ..BASE
    },
    Shipped {
        id: "graph_failed",
        condition: "dead_letters > 0",
        severity: Severity::Error,
        channels: PAGE,
        message: "{where} failed: {value} dead letters to look at",
        runbook: "daily-jobs.md",
        on: GRAPH,
        ..BASE
    },
    Shipped {
        id: "graph_slow",
        condition: "longest_run > 12m",
        message: "{where} has run for {value}, longer than {bar}",
        runbook: "daily-jobs.md",
        on: GRAPH,
        ..BASE
    },
    Shipped {
        id: "graph_edges_dropped",
        condition: "result.edge_drop_percent > 20",
        severity: Severity::Error,
        channels: PAGE,
        message: "{where}: {value} % fewer edges than the day before",
        runbook: "daily-jobs.md",
        on: GRAPH,
        ..BASE
    },
    Shipped {
        id: "graph_churn",
        condition: "result.churned_percent > 10",
        message: "{where}: the churn limit held back {value} % of communities",
        runbook: "daily-jobs.md",
        on: GRAPH,
        ..BASE
    },
    Shipped {
        id: "graph_overrides",
        condition: "result.safety_overrides > 5",
        message: "{where}: safety overrides are active in {value} communities",
        runbook: "daily-jobs.md",
        on: GRAPH,
        ..BASE
    },
    Shipped {
        id: "store_failing",
        condition: "store_failing > 0",
        severity: Severity::Critical,
        channels: PAGE,
        message: "The store cannot be written to",
        runbook: "store-out-of-reach.md",
        ..BASE
    },
    Shipped {
        id: "gates_alone",
        condition: "gates_alone > 0",
        for_ms: MINUTE / 2,
        severity: Severity::Error,
        channels: PAGE,
        message: "The gates' backend is out of reach; processes decide alone",
        runbook: "gates-out-of-reach.md",
        ..BASE
    },
    Shipped {
        id: "scheduler_late",
        condition: "scheduler_lag > 1m",
        for_ms: MINUTE,
        message: "Schedules are {value} late",
        runbook: "queue-stands-still.md",
        ..BASE
    },
];

/// What any kind can name in the registry: it failed, or it takes nearly as long as it may.
pub(super) fn of_every_kind(timeout_ms: i64) -> Vec<Rule> {
    let slow = format!("longest_run > {}", Millis(timeout_ms / 5 * 4));
    let failed = Shipped {
        id: "failed",
        condition: "dead_letters > 0",
        severity: Severity::Error,
        channels: PAGE,
        message: "{where} failed: {value} dead letters to look at",
        runbook: "dead-letters.md",
        ..BASE
    };
    let slow = Shipped {
        id: "slow",
        condition: &slow,
        message: "{where} has run for {value}, longer than {bar}",
        runbook: "slow-jobs.md",
        ..BASE
    };
    [failed, slow].iter().filter_map(Shipped::rule).collect()
}

impl Shipped<'_> {
    fn rule(&self) -> Option<Rule> {
        Some(Rule {
            id: self.id.into(),
            condition: self.condition.parse().ok()?,
            for_ms: self.for_ms,
            severity: self.severity,
            channels: self.channels.iter().map(|c| (*c).to_owned()).collect(),
            message: self.message.into(),
            repeat_ms: DEFAULT_REPEAT_MS,
            runbook: self.runbook.into(),
            on: self.on.iter().map(|t| (*t).to_owned()).collect(),
            least_samples: self.least_samples,
            enabled: self.enabled,
        })
    }
}

/// A bound of a reading, as people write it.
fn bound(reading: &str, value: f64) -> String {
    let unit = match known(reading).map(|(_, unit)| unit) {
        Some(Unit::Milliseconds) => "ms",
        Some(Unit::Seconds) => "s",
        Some(Unit::Percent) => "%",
        Some(Unit::Count | Unit::Bytes | Unit::BytesPerHour) | None => "",
    };
    format!("{value}{unit}")
}

/// The rules of an objective: one for each of its thresholds.
fn of_objective(o: &Objective) -> impl Iterator<Item = Rule> {
    let levels = [(o.warning, Severity::Warning, ""), (o.critical, Severity::Critical, "_critical")];
    let lone = o.warning.is_none() || o.critical.is_none();
    levels.into_iter().filter_map(move |(bar, severity, suffix)| {
        let op = match o.sense {
            Sense::AtMost => ">",
            Sense::AtLeast => "<",
            Sense::Below => ">=",
        };
        let only =
            o.only_while.map(|only| format!(" and {} > {}", only.reading, bound(only.reading, only.above)));
        let condition = format!("{} {op} {}{}", o.id, bound(o.id, bar?), only.unwrap_or_default());
        let channels = if severity == Severity::Critical { PAGE } else { LOOK };
        Some(Rule {
            id: format!("{}{}", o.id, if lone { "" } else { suffix }),
            condition: condition.parse().ok()?,
            for_ms: o.for_ms,
            severity,
            channels: channels.iter().map(|c| (*c).to_owned()).collect(),
            message: o.message.into(),
            repeat_ms: DEFAULT_REPEAT_MS,
            runbook: o.runbook.into(),
            on: vec![],
            least_samples: o.least_samples,
            enabled: true,
        })
    })
}

/// All rules that ship.
pub fn shipped() -> Vec<Rule> {
    JOBS.iter().filter_map(Shipped::rule).chain(OBJECTIVES.iter().flat_map(of_objective)).collect()
}

/// The shipped rules as a table of Markdown, for the documentation.
pub fn table() -> String {
    let mut table = String::from("| Rule | Condition | For | Severity | Runbook |\n|---|---|---|---|---|\n");
    for rule in shipped() {
        let lasts = if rule.for_ms == 0 { "at once".to_owned() } else { Millis(rule.for_ms).to_string() };
        let on = if rule.on.is_empty() { String::new() } else { format!(" ({})", rule.on.join(", ")) };
        let off = if rule.enabled { "" } else { " (off)" };
        let (page, file) = (rule.runbook.trim_end_matches(".md"), &rule.runbook);
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| `{}`{off} | `{}`{on} | {lasts} | {} | [{page}](../runbooks/{file}) |",
            rule.id,
            rule.condition,
            rule.severity.as_str()
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::check_all;

    #[test]
    fn every_shipped_rule_can_be_read_and_is_sound() {
        let rules = shipped();
        let levels = |o: &Objective| usize::from(o.warning.is_some()) + usize::from(o.critical.is_some());
        assert_eq!(rules.len(), JOBS.len() + OBJECTIVES.iter().map(levels).sum::<usize>());
        assert_eq!(check_all(&rules), Vec::<String>::new());
        let misfits: Vec<String> = rules.iter().flat_map(|r| r.condition.faults()).collect();
        assert_eq!(misfits, Vec::<String>::new(), "whoever copies one writes units");
        let json = serde_json::to_string(&rules).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Rule>>(&json).unwrap(), rules);
    }

    #[test]
    fn thresholds_are_those_of_the_sources() {
        let rules = shipped();
        for (id, condition, severity) in [
            ("queue_depth_high", "waiting > 1000", Severity::Warning),
            ("error_rate_high", "error_rate > 5%", Severity::Critical),
            ("dlq_threshold", "dlq_size > 100", Severity::Warning),
            ("token_dead_letters", "dead_token_refreshes > 100", Severity::Critical),
            ("token_dead_letter_age", "dead_token_age > 4h", Severity::Critical),
            ("slot_leakage", "slot_leakage > 2%", Severity::Warning),
            ("slot_leakage_critical", "slot_leakage > 5%", Severity::Critical),
            ("slot_utilisation", "slot_utilisation > 80% and longest_wait > 60s", Severity::Warning),
            ("consecutive_failures", "consecutive_failures >= 3", Severity::Warning),
            ("breaker_open", "breaker_open > 0", Severity::Critical),
        ] {
            let rule = rules.iter().find(|r| r.id == id).unwrap();
            assert_eq!((rule.condition.to_string().as_str(), rule.severity), (condition, severity), "{id}");
        }
        assert_eq!(rules.iter().find(|r| r.id == "stalled_jobs").map(|r| r.for_ms), Some(5 * MINUTE));
    }
}
