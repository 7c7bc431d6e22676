//! Every setting, in one table: its name in the file, what it holds, what it is where nobody says anything, the
//! environment variable that names it, and what it is for. The file reader, the environment, `config show`, the checks
//! and the documentation of settings are all made from it.

use tidegate_core::time::Millis;
use tidegate_core::{codes, letters, limits};

/// What a setting holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Text.
    Text,
    /// The URL of a store, or a directory.
    Store,
    /// Where gates are decided.
    Gates,
    /// Text that is never shown.
    Secret,
    /// A file.
    Path,
    /// A whole number in this range.
    Count(u64, u64),
    /// A span such as `30s`, from this many milliseconds to that many.
    Span(i64, i64),
    /// A URL that begins with `http://` or `https://`; a password in it is not shown.
    Url,
    /// A number from 0 to 1.
    Ratio,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Names, as a list in the file or separated by commas elsewhere.
    Names,
}

/// A setting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// Its name in the file: `section.name`, or `name` at the top.
    pub(crate) key: &'static str,
    /// What it holds.
    pub(crate) holds: Holds,
    /// What it is where nobody says anything.
    pub(crate) default: Option<&'static str>,
    /// Variables that name it; the first one wins.
    pub(crate) env: &'static [&'static str],
    /// What it is for.
    pub(crate) help: &'static str,
}

/// How an address of gates begins.
const SCHEMES: [&str; 6] =
    ["memory:", "redis://", "rediss://", "redis+unix://", "postgres://", "postgresql://"];

const DAY_MS: i64 = 24 * 3_600_000;

/// All settings, in the order in which they are shown.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        key: "store",
        holds: Holds::Store,
        default: Some("./tidegate-data"),
        env: &["TIDEGATE_STORE", "TIDEGATE_DATA"],
        help: "where jobs live: a directory, sqlite:PATH, postgres://… or http://… of a server",
    },
    Setting {
        key: "key",
        holds: Holds::Secret,
        default: None,
        env: &["TIDEGATE_KEY"],
        help: "API key for a store behind a server",
    },
    Setting {
        key: "ca",
        holds: Holds::Path,
        default: None,
        env: &["TIDEGATE_CA"],
        help: "certificates (PEM) to trust beside the system's, for a store at https://…",
    },
    Setting {
        key: "gates.url",
        holds: Holds::Gates,
        default: None,
        env: &["TIDEGATE_GATES"],
        help: "where gates are decided: memory: (this process alone), redis://… or postgres://…",
    },
    Setting {
        key: "gates.file",
        holds: Holds::Path,
        default: None,
        env: &["TIDEGATE_GATES_FILE"],
        help: "settings of the gates, TOML or JSON: docs/guides/gates.md",
    },
    Setting {
        key: "alerts.file",
        holds: Holds::Path,
        default: None,
        env: &["TIDEGATE_ALERTS_FILE"],
        help: "rules and channels of alerts, TOML: docs/guides/observing.md",
    },
    Setting {
        key: "letters.every",
        holds: Holds::Span(*letters::EVERY_RANGE_MS.start(), *letters::EVERY_RANGE_MS.end()),
        default: Some("15m"),
        env: &["TIDEGATE_LETTERS_EVERY"],
        help: "time between two runs of the processor of dead letters, in `serve` and `work`: docs/guides/letters.md",
    },
    Setting {
        key: "server.bind",
        holds: Holds::Text,
        default: Some("127.0.0.1:7433"),
        env: &["TIDEGATE_BIND"],
        help: "address and port that `serve` listens on",
    },
    Setting {
        key: "server.role",
        holds: Holds::Word(&["all", "api", "maintenance"]),
        default: Some("all"),
        env: &["TIDEGATE_ROLE"],
        help: "what `serve` does: api, maintenance (promote, rescue, prune), or all",
    },
    Setting {
        key: "server.tls_cert",
        holds: Holds::Path,
        default: None,
        env: &["TIDEGATE_TLS_CERT"],
        help: "certificate chain (PEM); with tls_key, `serve` speaks HTTPS",
    },
    Setting {
        key: "server.tls_key",
        holds: Holds::Path,
        default: None,
        env: &["TIDEGATE_TLS_KEY"],
        help: "private key of the certificate (PEM)",
    },
    Setting {
        key: "server.max_connections",
        holds: Holds::Count(1, 1_000_000),
        default: Some("16384"),
        env: &["TIDEGATE_MAX_CONNECTIONS"],
        help: "connections at a time; beyond that the longest idle one makes room",
    },
    Setting {
        key: "server.max_body_bytes",
        holds: Holds::Count(1_024, 1 << 30),
        default: Some("16777216"),
        env: &["TIDEGATE_MAX_BODY_BYTES"],
        help: "largest request body",
    },
    Setting {
        key: "server.requests_per_second",
        holds: Holds::Count(1, 10_000_000),
        default: None,
        env: &["TIDEGATE_REQUESTS_PER_SECOND"],
        help: "requests of one key or address; 10,000 unless said, as many as they like on loopback",
    },
    Setting {
        key: "server.drain",
        holds: Holds::Span(0, DAY_MS),
        default: Some("10s"),
        env: &["TIDEGATE_SERVER_DRAIN"],
        help: "time that requests have to finish at shutdown",
    },
    Setting {
        key: "server.registry",
        holds: Holds::Path,
        default: None,
        env: &["TIDEGATE_REGISTRY"],
        help: "queues, kinds and policies, TOML or JSON, that `serve` applies at start and when the file changes: docs/guides/registry.md",
    },
    Setting {
        key: "server.metrics_by_tenant",
        holds: Holds::Word(&["no", "yes"]),
        default: Some("no"),
        env: &["TIDEGATE_METRICS_BY_TENANT"],
        help: "whether /metrics names the 50 busiest tenants",
    },
    Setting {
        key: "worker.name",
        holds: Holds::Text,
        default: None,
        env: &["TIDEGATE_WORKER_NAME"],
        help: "name of the worker in leases and in `workers ls`; host and process id unless said",
    },
    Setting {
        key: "worker.concurrency",
        holds: Holds::Count(1, 100_000),
        default: Some("10"),
        env: &["TIDEGATE_CONCURRENCY"],
        help: "jobs that `work` runs at a time",
    },
    Setting {
        key: "worker.queues",
        holds: Holds::Names,
        default: None,
        env: &["TIDEGATE_QUEUES"],
        help: "queues that `work` serves beside those of its kinds",
    },
    Setting {
        key: "worker.lease",
        holds: Holds::Span(*limits::LEASE_MS.start(), *limits::LEASE_MS.end()),
        default: Some("30s"),
        env: &["TIDEGATE_LEASE"],
        help: "how long a lease holds without a heartbeat; a crashed worker's jobs wait this long",
    },
    Setting {
        key: "worker.drain",
        holds: Holds::Span(0, limits::MAX_TIMEOUT_MS),
        default: Some("45s"),
        env: &["TIDEGATE_DRAIN"],
        help: "time that jobs have to finish at shutdown",
    },
    Setting {
        key: "worker.grace",
        holds: Holds::Span(0, limits::MAX_TIMEOUT_MS),
        default: Some("5s"),
        env: &["TIDEGATE_GRACE"],
        help: "time between asking a job to stop and killing it",
    },
    Setting {
        key: "worker.metrics",
        holds: Holds::Text,
        default: None,
        env: &["TIDEGATE_WORKER_METRICS"],
        help: "address and port where `work` serves /metrics and /health; nowhere unless said",
    },
    Setting {
        key: "telemetry.otlp_endpoint",
        holds: Holds::Url,
        default: None,
        env: &["TIDEGATE_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"],
        help: "collector of OpenTelemetry that `serve` and `work` send traces to (OTLP over HTTP); nowhere unless said",
    },
    Setting {
        key: "telemetry.service_name",
        holds: Holds::Text,
        default: Some("tidegate"),
        env: &["TIDEGATE_SERVICE_NAME", "OTEL_SERVICE_NAME"],
        help: "service.name of the traces",
    },
    Setting {
        key: "telemetry.sample",
        holds: Holds::Ratio,
        default: Some("1"),
        env: &["TIDEGATE_TRACE_SAMPLE"],
        help: "part of the traces that is recorded, from 0 to 1; where a job carries a context, that decides",
    },
    Setting {
        key: "telemetry.tenants",
        holds: Holds::Word(&["no", "yes"]),
        default: Some("no"),
        env: &["TIDEGATE_TRACE_TENANTS"],
        help: "whether spans name the tenant",
    },
    Setting {
        key: "log.jobs",
        holds: Holds::Word(&["off", "json", "text"]),
        default: Some("off"),
        env: &["TIDEGATE_LOG_JOBS"],
        help: "a line on standard output for what `serve` and `work` do to each job; never its payload",
    },
    Setting {
        key: "log.jobs_sample",
        holds: Holds::Count(1, 1_000_000),
        default: Some("1"),
        env: &["TIDEGATE_LOG_JOBS_SAMPLE"],
        help: "of how many jobs one is in the job log, with all its lines; failures always are",
    },
    Setting {
        key: "log.level",
        holds: Holds::Word(&["off", "error", "warn", "info", "debug", "trace"]),
        default: None,
        env: &["TIDEGATE_LOG"],
        help: "log lines on standard error: error unless said; info for serve and work",
    },
];

/// The setting of this name.
pub(crate) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|s| s.key == key)
}

/// Sections of the file.
pub(crate) fn sections() -> impl Iterator<Item = &'static str> {
    let mut seen: Vec<&'static str> =
        SETTINGS.iter().filter_map(|s| Some(s.key.split_once('.')?.0)).collect();
    seen.dedup();
    seen.into_iter()
}

impl Holds {
    /// What is expected, for a message.
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Text | Self::Secret => "text".into(),
            Self::Store => "a directory, sqlite:PATH, postgres://… or http://…".into(),
            Self::Gates => "memory:, redis://… or postgres://…".into(),
            Self::Path => "a path".into(),
            Self::Count(from, to) => format!("a whole number from {from} to {to}"),
            Self::Span(from, to) => {
                format!("a span such as \"30s\", from {} to {}", Millis(from), Millis(to))
            }
            Self::Url => "a URL such as http://127.0.0.1:4318".into(),
            Self::Ratio => "a number from 0 to 1".into(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::Names => "a list of names".into(),
        }
    }

    /// What to do about a flag whose value is wrong.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::Store => codes::INVALID_STORE_URL.hint,
            Self::Gates => codes::INVALID_GATES_URL.hint,
            _ => "`tidegate config show --verbose` says what each setting is for",
        }
    }

    /// Says what is wrong with a value, if anything.
    pub(crate) fn check(self, text: &str) -> Result<(), String> {
        let refuse = || {
            let shown: String = text.chars().take(60).collect();
            Err(format!("{shown:?} is not {}", self.expected()))
        };
        match self {
            Self::Text | Self::Path | Self::Store if text.trim().is_empty() => refuse(),
            Self::Secret if text.trim().is_empty() => Err("it is empty".into()),
            Self::Text | Self::Path | Self::Secret | Self::Names => Ok(()),
            Self::Store => crate::data::Target::parse(text).map(drop),
            // The rest may hold a password.
            Self::Gates if SCHEMES.iter().any(|s| text.starts_with(s)) => Ok(()),
            Self::Gates => Err(format!("it is not {}", self.expected())),
            Self::Count(from, to) => match text.parse::<u64>() {
                Ok(n) if (from..=to).contains(&n) => Ok(()),
                _ => refuse(),
            },
            Self::Span(from, to) => match text.parse::<Millis>() {
                Ok(Millis(ms)) if (from..=to).contains(&ms) => Ok(()),
                _ => refuse(),
            },
            // It may hold a password.
            Self::Url => tidegate_server::outgoing::Client::check(text)
                .map_err(|_| format!("it is not {}", self.expected())),
            Self::Ratio => match text.parse::<f64>() {
                Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(()),
                _ => refuse(),
            },
            Self::Word(words) if words.contains(&text) => Ok(()),
            Self::Word(_) => refuse(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_and_variables_are_used_once_and_defaults_pass_their_own_check() {
        let keys: HashSet<_> = SETTINGS.iter().map(|s| s.key).collect();
        let variables: Vec<_> = SETTINGS.iter().flat_map(|s| s.env).collect();
        assert_eq!(keys.len(), SETTINGS.len());
        assert_eq!(variables.iter().collect::<HashSet<_>>().len(), variables.len());
        for setting in SETTINGS {
            assert_eq!(setting.default.map_or(Ok(()), |d| setting.holds.check(d)), Ok(()), "{}", setting.key);
            assert!(setting.key.split('.').count() <= 2 && !setting.help.is_empty());
        }
        assert_eq!(
            sections().collect::<Vec<_>>(),
            ["gates", "alerts", "letters", "server", "worker", "telemetry", "log"]
        );
    }
}
