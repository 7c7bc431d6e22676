//! `tidegate queues`: what waits and runs in each queue; pausing, resuming, limits.

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_core::codes;
use tidegate_core::ids::QueueName;
use tidegate_core::job::{Park, ParkScope};
use tidegate_core::registry::{Limiter, QueueSettings};
use tidegate_core::retry::RetryPolicy;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_core::why::grouped;
use tidegate_store::params::QueueView;

use super::facts;
use super::parks::{self, OPERATOR, StopArgs};
use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table, elapsed, plural, short_when};
use crate::parse;

/// Commands on queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QueuesCommand {
    /// List queues
    #[command(
        visible_alias = "list",
        after_help = "Examples:
  tidegate queues ls
  tidegate queues ls --json | jq '.queues[] | select(.ready > 1000) | .name'"
    )]
    Ls,
    /// Stop a queue, or a group in every queue; what runs goes on
    #[command(after_help = "Examples:
  tidegate queues pause reports --reason 'month end'
  tidegate queues pause --group acme --reason 'shop is closed' --for 30m")]
    Pause(PauseArgs),
    /// Let a paused queue or group go on
    #[command(after_help = "Examples:
  tidegate queues resume reports
  tidegate queues resume --group acme")]
    Resume(ResumeArgs),
    /// Add a queue or change its settings, live; what is not given stays
    #[command(after_help = "Examples:
  tidegate queues set billing --concurrency 50 --group-concurrency 2
  tidegate queues set shopify --limiter 30/1s
  tidegate queues set shopify --limiter none --max-ready 100000")]
    Set(Box<SetArgs>),
}

/// What to stop.
#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = false)]
pub(crate) struct Scope {
    /// The queue
    queue: Option<String>,
    /// A group, in every queue
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

impl Scope {
    fn resolve(&self) -> Result<ParkScope> {
        match (&self.queue, &self.group) {
            (Some(queue), None) => Ok(ParkScope::Queue(parse::name(queue)?)),
            (None, Some(group)) => Ok(ParkScope::Group(parse::name(group)?)),
            _ => Err(Failure::new(codes::INVALID_REQUEST, "name a queue or a --group")
                .hint("`tidegate queues pause reports`, or `tidegate queues pause --group acme`")),
        }
    }
}

/// Arguments of `queues pause`.
#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    stop: StopArgs,
}

/// Arguments of `queues resume`.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    scope: Scope,
    /// Whose pause to end
    #[arg(long, value_name = "NAME", default_value = OPERATOR)]
    by: String,
}

/// Arguments of `queues set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The queue
    queue: String,
    /// Jobs running at a time, over all workers
    #[arg(long, value_name = "N|none", allow_hyphen_values = true)]
    concurrency: Option<String>,
    /// Jobs running at a time in one worker
    #[arg(long, value_name = "N|none", allow_hyphen_values = true)]
    worker_concurrency: Option<String>,
    /// Jobs of one group running at a time
    #[arg(long, value_name = "N|none", allow_hyphen_values = true)]
    group_concurrency: Option<String>,
    /// Starts in any window of time
    #[arg(long, value_name = "N/SPAN|none", allow_hyphen_values = true)]
    limiter: Option<String>,
    /// Ready jobs beyond which enqueue is refused
    #[arg(long, value_name = "N|none", allow_hyphen_values = true)]
    max_ready: Option<String>,
    /// The same for one tenant
    #[arg(long, value_name = "N|none", allow_hyphen_values = true)]
    max_ready_per_tenant: Option<String>,
    /// Share of a worker that serves several queues, 1 to 100
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    weight: Option<String>,
    /// Time within which ageing brings the lowest priority level with the highest
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    max_wait: Option<String>,
    /// Completed and cancelled jobs kept
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    retention_count: Option<String>,
    /// How long they are kept
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    retention_age: Option<String>,
    /// Retry policy
    #[arg(help = "Retry policy: standard, none, critical, external_api, database, webhook, gamification")]
    #[arg(long, value_name = "POLICY")]
    retry: Option<String>,
}

/// Runs a command on queues.
pub(crate) async fn run(command: QueuesCommand, config: &Config, output: &Output) -> Result<()> {
    match command {
        QueuesCommand::Ls => ls(config, output).await,
        QueuesCommand::Pause(args) => {
            let scope = args.scope.resolve()?;
            let back = match &scope {
                ParkScope::Queue(q) => format!("queues resume {q}"),
                other => format!("queues resume --{other}"),
            };
            parks::stop(scope, args.stop, &back, config, output).await
        }
        QueuesCommand::Resume(args) => parks::release(args.scope.resolve()?, args.by, config, output).await,
        QueuesCommand::Set(args) => set(&args, config, output).await,
    }
}

async fn ls(config: &Config, output: &Output) -> Result<()> {
    let data = data::existing(config).await?;
    let now = parse::now();
    let queues = data.store.queues(now).await?;
    data.close().await?;
    let json = json!({ "queues": facts(&queues)? });
    output.answer(&json, || {
        if queues.is_empty() {
            return "No queues yet; a worker's handlers register theirs, or `tidegate queues set NAME` adds one.".into();
        }
        table(&queues, now).render(output)
    })
}

/// A table of queues.
pub(crate) fn table(queues: &[QueueView], now: Timestamp) -> Table {
    let mut table = Table::new(vec![
        Column::text("QUEUE", 10),
        Column::number("READY"),
        Column::number("SCHEDULED"),
        Column::number("RUNNING"),
        Column::fixed("LIMIT"),
        Column::fixed("OLDEST"),
        Column::number("RATE/MIN"),
        Column::text("STATE", 12),
    ]);
    for queue in queues {
        table.row(row(queue, now));
    }
    table
}

fn row(queue: &QueueView, now: Timestamp) -> Vec<String> {
    let limit = queue.settings.concurrency.map_or_else(|| "∞".into(), |n| grouped(n.into()));
    vec![
        queue.name.to_string(),
        grouped(queue.ready),
        grouped(queue.scheduled),
        format!("{}/{limit}", grouped(queue.running)),
        queue.settings.limiter.map_or_else(|| "–".into(), limiter_text),
        queue.oldest_ready.map_or_else(|| "–".into(), |t| elapsed(t, now)),
        grouped(queue.completed_last_minute),
        state(queue, now),
    ]
}

fn state(queue: &QueueView, now: Timestamp) -> String {
    let one = |p: &Park| {
        let until = p.until.map_or(String::new(), |t| format!(" until {}", short_when(t, now)));
        format!("paused by {}{until}: {}", p.by, p.reason)
    };
    let mut parts: Vec<String> = queue.parks.iter().map(one).collect();
    if queue.parked_groups > 0 {
        parts.push(format!("{} parked", plural(queue.parked_groups, "group")));
    }
    if parts.is_empty() { "ok".into() } else { parts.join("; ") }
}

/// A limiter as it is written: `30/1s`.
pub(crate) fn limiter_text(limiter: Limiter) -> String {
    let ms = limiter.per_ms;
    let per = match ms {
        _ if ms % 86_400_000 == 0 => format!("{}d", ms / 86_400_000),
        _ if ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        _ if ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        _ if ms % 1_000 == 0 => format!("{}s", ms / 1_000),
        _ => format!("{ms}ms"),
    };
    format!("{}/{per}", limiter.max)
}

async fn set(args: &SetArgs, config: &Config, output: &Output) -> Result<()> {
    let name: QueueName = parse::name(&args.queue)?;
    // Everything is read before a directory is made, so a mistake leaves nothing behind.
    apply(args, QueueSettings::default())?;
    let data = data::open_or_create(config).await?;
    let now = parse::now();
    let existing = data.store.queues(now).await?.into_iter().find(|q| q.name == name);
    let before = existing.as_ref().map(|q| q.settings.clone());
    let settings = apply(args, before.clone().unwrap_or_default())?;
    data.store.put_queue(name.clone(), settings.clone(), now).await?;
    data.close().await?;
    let value = json!({ "queue": name, "created": before.is_none(), "settings": facts(&settings)? });
    output.answer(&value, || {
        let verb = if before.is_none() { "Added" } else { "Changed" };
        let changes = changes(before.as_ref().unwrap_or(&QueueSettings::default()), &settings);
        match (before.is_none(), changes.is_empty()) {
            (true, true) => format!("Added queue {name} with the default settings."),
            (false, true) => format!("Queue {name} has these settings already."),
            _ => format!("{verb} queue {name}: {}.", changes.join(", ")),
        }
    })
}

fn apply(args: &SetArgs, mut settings: QueueSettings) -> Result<QueueSettings> {
    fn count<T: std::str::FromStr>(what: &'static str, text: &str) -> Result<Option<T>> {
        parse::or_none(text, |t| parse::number(what, t))
    }
    if let Some(t) = &args.concurrency {
        settings.concurrency = count("concurrency", t)?;
    }
    if let Some(t) = &args.worker_concurrency {
        settings.worker_concurrency = count("worker-concurrency", t)?;
    }
    if let Some(t) = &args.group_concurrency {
        settings.group_concurrency = count("group-concurrency", t)?;
    }
    if let Some(t) = &args.limiter {
        settings.limiter = parse::or_none(t, parse::limiter)?;
    }
    if let Some(t) = &args.max_ready {
        settings.max_ready = count("max-ready", t)?;
    }
    if let Some(t) = &args.max_ready_per_tenant {
        settings.max_ready_per_tenant = count("max-ready-per-tenant", t)?;
    }
    if let Some(t) = &args.weight {
        settings.weight = parse::number("weight", t)?;
    }
    if let Some(t) = &args.max_wait {
        settings.max_wait_ms = parse::span(t)?;
    }
    if let Some(t) = &args.retention_count {
        settings.retention.count = parse::number("retention-count", t)?;
    }
    if let Some(t) = &args.retention_age {
        settings.retention.age_ms = parse::span(t)?;
    }
    if let Some(t) = &args.retry {
        settings.retry = policy(t)?;
        settings.policy = Some(t.clone());
    }
    settings.check().map_err(|e| Failure::new(codes::INVALID_SETTING, e))?;
    Ok(settings)
}

/// A retry policy by its name.
pub(crate) fn policy(name: &str) -> Result<RetryPolicy> {
    RetryPolicy::named(name).ok_or_else(|| {
        let shown: String = name.chars().take(40).collect();
        Failure::new(codes::INVALID_SETTING, format!("{shown:?} is not a retry policy"))
            .hint(format!("the policies are {}", RetryPolicy::NAMES.join(", ")))
    })
}

/// What differs between two settings of a queue.
fn changes(before: &QueueSettings, after: &QueueSettings) -> Vec<String> {
    let parts = |s: &QueueSettings| -> Vec<(&'static str, String)> {
        let none = || "none".to_owned();
        let count = |n: Option<u64>| n.map_or_else(none, grouped);
        vec![
            ("concurrency", count(s.concurrency.map(u64::from))),
            ("worker concurrency", count(s.worker_concurrency.map(u64::from))),
            ("group concurrency", count(s.group_concurrency.map(u64::from))),
            ("limiter", s.limiter.map_or_else(none, limiter_text)),
            ("max ready", count(s.max_ready)),
            ("max ready per tenant", count(s.max_ready_per_tenant)),
            ("weight", s.weight.to_string()),
            ("max wait", Millis(s.max_wait_ms).to_string()),
            ("retention", format!("{} jobs or {}", grouped(s.retention.count), Millis(s.retention.age_ms))),
            ("retry", s.policy.clone().unwrap_or_else(|| retry_text(&s.retry))),
        ]
    };
    differences(parts(before), parts(after))
}

/// What differs of settings in words, as `name new (was old)`.
pub(crate) fn differences(
    before: Vec<(&'static str, String)>,
    after: Vec<(&'static str, String)>,
) -> Vec<String> {
    let pairs = before.into_iter().zip(after);
    pairs.filter(|(b, a)| b != a).map(|((name, old), (_, new))| format!("{name} {new} (was {old})")).collect()
}

pub(crate) fn retry_text(policy: &RetryPolicy) -> String {
    let known = RetryPolicy::NAMES.into_iter().find(|n| RetryPolicy::named(n).as_ref() == Some(policy));
    known.map_or_else(|| format!("own, {} attempts", policy.max_attempts), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limiter_is_shown_as_it_is_written() {
        for text in ["30/1s", "1000/1h", "5/250ms", "7/2m", "9/1d"] {
            assert_eq!(limiter_text(parse::limiter(text).unwrap()), text);
        }
    }
}
