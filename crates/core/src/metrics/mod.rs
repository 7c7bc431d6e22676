//! Every metric that is exported, once, as data: the exporter writes by it, the table of `docs/guides/observing.md` is made from
//! it, and dashboards and rules in `ops/` are checked against it.
//!
//! Label sets are bounded: queues and kinds come from the registry (the first [`MAX_SERIES`] pairs of a process, the rest together
//! as [`OTHER`]), everything else from closed sets. Tenants are no label unless somebody asks, and then the busiest alone.

mod text;

use std::fmt::Write as _;

pub use self::text::{Exposition, check};

/// Pairs of queue and kind that a process counts one by one.
pub const MAX_SERIES: usize = 512;
/// Tenants that are exported, if any are.
pub const MAX_TENANTS: usize = 50;
/// What the rest is called.
pub const OTHER: &str = "other";
/// Kind of jobs that refresh tokens; its metrics also have S0's names.
pub const TOKEN_REFRESH_KIND: &str = "token.refresh";

/// Upper ends of the buckets of durations, in milliseconds.
pub const BUCKETS_MS: [i64; 16] =
    [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000];

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Only grows while the process lives.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations in buckets.
    Histogram,
}

impl Type {
    /// Its name in the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Whose number it is, where several processes share a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// What this process did: add those of all processes up.
    Process,
    /// The same in every process that shares the store or the gates: take one, or the largest.
    Shared,
}

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Type,
    /// Whose number it is.
    pub of: Of,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($id:ident $name:literal $kind:ident $of:ident [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $id: Metric = Metric {
                name: $name, kind: Type::$kind, of: Of::$of, labels: &[$($label),*], help: $help,
            };
        )*
        /// All of them, in the order in which they are exported.
        pub const METRICS: &[Metric] = &[$($id),*];
    };
}

metrics! {
    BUILD "tidegate_build_info" Gauge Process ["version"] "The version that runs; always 1";
    STARTED_AT "process_start_time_seconds" Gauge Process [] "When the process began, in seconds since 1970";
    ENQUEUED "tidegate_jobs_enqueued_total" Counter Process ["queue", "kind"] "Jobs stored";
    STARTED "tidegate_jobs_started_total" Counter Process ["queue", "kind"] "Attempts handed to workers";
    COMPLETED "tidegate_jobs_completed_total" Counter Process ["queue", "kind"] "Jobs done";
    FAILED "tidegate_job_failures_total" Counter Process ["queue", "kind", "category"] "Attempts that failed, by category";
    RETRIED "tidegate_jobs_retried_total" Counter Process ["queue", "kind"] "Failed attempts that are tried again";
    SNOOZED "tidegate_jobs_snoozed_total" Counter Process ["queue", "kind"] "Attempts put off without being spent";
    RELEASED "tidegate_jobs_released_total" Counter Process ["queue", "kind"] "Attempts that a worker gave back";
    STALLED "tidegate_jobs_stalled_total" Counter Process ["queue", "kind"] "Attempts whose worker stopped sending heartbeats";
    DEAD "tidegate_jobs_dead_total" Counter Process ["queue", "kind"] "Jobs that became dead letters";
    LETTERS "tidegate_dead_letters_processed_total" Counter Process ["outcome"] "Dead letters that the processor looked at, by what it did: retried, asked, reminded, abandoned, left";
    CANCELLED "tidegate_jobs_cancelled_total" Counter Process ["queue", "kind"] "Running jobs that were cancelled";
    WAIT "tidegate_job_wait_seconds" Histogram Process ["queue", "kind"] "From ready to handed out";
    RUN "tidegate_job_run_seconds" Histogram Process ["queue", "kind"] "From handed out to the outcome of the attempt";
    END_TO_END "tidegate_job_end_to_end_seconds" Histogram Process ["queue", "kind"] "From the time in the job's id to done; ids that follow from a row (`enqueue --from`) have none";
    TENANT_STARTED "tidegate_tenant_jobs_started_total" Counter Process ["tenant"] "Attempts handed out, of the busiest tenants; only if asked for";
    JOBS "tidegate_queue_jobs" Gauge Shared ["queue", "state"] "Jobs by state; finished ones as long as they are kept";
    OLDEST "tidegate_queue_oldest_ready_seconds" Gauge Shared ["queue"] "How long the oldest ready job has waited";
    PAUSED "tidegate_queue_paused" Gauge Shared ["queue"] "1 while the queue itself is parked";
    PARKED_GROUPS "tidegate_queue_parked_groups" Gauge Shared ["queue"] "Groups with ready jobs that are parked";
    THROUGHPUT "tidegate_queue_completed_per_minute" Gauge Shared ["queue"] "Jobs done in the last minute";
    ERROR_RATIO "tidegate_queue_error_ratio" Gauge Shared ["queue"] "Failed attempts of the last minute over all that ended";
    PROCESSING "tidegate_queue_processing_seconds" Gauge Shared ["queue"] "Mean time of the attempts that ended in the last minute";
    STALLED_NOW "tidegate_queue_stalled" Gauge Shared ["queue"] "Jobs taken back from dead workers that have not run since";
    WORKERS "tidegate_workers" Gauge Shared ["role"] "Processes that announced themselves";
    WORKER_SLOTS "tidegate_worker_slots" Gauge Shared ["state"] "Places of all workers: busy and free";
    STALE "tidegate_stale_writes_total" Counter Process [] "Writes refused because their lease was lost";
    STORE_UP "tidegate_store_up" Gauge Process [] "1 while the store can be written to";
    HEALTH "tidegate_health" Gauge Process [] "0 healthy, 1 degraded, 2 unhealthy";
    SCHEDULER_LAG "tidegate_scheduler_lag_seconds" Gauge Process [] "How late the oldest tick is that is due and not decided; absent where there are no schedules";
    ALERTS "tidegate_alerts_firing" Gauge Process ["rule", "severity"] "Incidents that are open, from the process that evaluates";
    GATE_EVENTS "tidegate_gate_events_total" Counter Shared ["domain", "event"] "What came of admissions, by all processes of the last hour";
    GATE_HELD "tidegate_gate_held" Gauge Shared ["domain"] "Permits held now";
    GATE_WAITING "tidegate_gate_waiting" Gauge Shared ["domain"] "Calls in line now";
    GATE_OBJECTIVE "tidegate_gate_objective" Gauge Shared ["domain", "objective"] "What `tidegate slo` measured, in the objective's unit";
    GATES_UP "tidegate_gates_up" Gauge Process [] "1 while the gates' backend decides, 0 while this process goes on alone";
    SPANS_SENT "tidegate_spans_sent_total" Counter Process [] "Spans of traces that a collector took; only where traces are on";
    SPANS_DROPPED "tidegate_spans_dropped_total" Counter Process [] "Spans that were given up: no room for them, or nobody took them";
    TOKEN_ATTEMPTS "token_refresh_attempts_total" Counter Process [] "Attempts to refresh a token";
    TOKEN_SUCCESS "token_refresh_success_rate" Gauge Process [] "Token refreshes that went well over all that ended";
    TOKEN_DURATION "token_refresh_duration_seconds" Histogram Process [] "Token refreshes: from handed out to the outcome";
    TOKEN_RETRIES "token_retry_attempts_total" Counter Process ["category"] "Failed token refreshes by category";
    TOKEN_DEAD "token_dlq_entries_total" Counter Process [] "Token refreshes that became dead letters";
}

/// The metric with this name; those of a histogram also by the names of their series.
pub fn metric(name: &str) -> Option<&'static Metric> {
    let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
    METRICS.iter().find(|m| {
        m.name == name && m.kind != Type::Histogram
            || m.kind == Type::Histogram && base.is_some_and(|base| m.name == base)
    })
}

/// The metrics as a table of Markdown, for the documentation.
pub fn table() -> String {
    let mut table = String::from("| Metric | Type | Labels | Of | What it says |\n|---|---|---|---|---|\n");
    for m in METRICS {
        let labels: Vec<String> = m.labels.iter().map(|l| format!("`{l}`")).collect();
        let (labels, kind) = (labels.join(", "), m.kind.name());
        let of = match m.of {
            Of::Process => "process",
            Of::Shared => "all",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| `{}` | {kind} | {labels} | {of} | {} |", m.name, m.help);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_used_once_and_follow_the_conventions() {
        for (n, m) in METRICS.iter().enumerate() {
            assert!(METRICS[..n].iter().all(|other| other.name != m.name), "{} twice", m.name);
            assert!(m.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
            assert_eq!(m.name.ends_with("_total"), m.kind == Type::Counter, "{}", m.name);
            assert!(m.kind != Type::Histogram || m.name.ends_with("_seconds"), "{}", m.name);
            assert!(!m.help.is_empty() && !m.help.contains('\n') && m.labels.len() <= 3, "{}", m.name);
        }
        assert!(BUCKETS_MS.is_sorted());
    }

    #[test]
    fn a_histogram_is_found_by_its_series() {
        assert_eq!(metric("tidegate_job_wait_seconds_bucket").map(|m| m.name), Some(WAIT.name));
        assert_eq!(metric("tidegate_job_wait_seconds"), None, "it has no series of its own name");
        assert_eq!(metric("tidegate_queue_jobs").map(|m| m.name), Some(JOBS.name));
        assert_eq!(metric("tidegate_queue_jobs_sum"), None);
    }
}
