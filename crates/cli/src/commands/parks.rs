//! `tidegate parks`: every stop on a queue, a group, a connector, or a group on a connector. Removing one leaves the
//! others. Pausing a queue or a group is adding a park; both ways see the same parks.

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_core::codes;
use tidegate_core::ids::QueueName;
use tidegate_core::job::{Park, ParkScope};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::Store;

use super::facts;
use crate::config::{Config, nearest};
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table, short_when};
use crate::parse;

/// Who parks where nobody is named.
pub(crate) const OPERATOR: &str = "operator";

/// Commands on parks.
#[derive(Debug, Subcommand)]
pub(crate) enum ParksCommand {
    /// List parks
    #[command(
        visible_alias = "list",
        after_help = "Examples:
  tidegate parks ls
  tidegate parks ls --json | jq '.parks[] | select(.until == null)'"
    )]
    Ls,
    /// Stop a scope; what runs goes on
    #[command(after_help = "Examples:
  tidegate parks add --connector shopify --reason 'their outage' --for 30m
  tidegate parks add --group acme --connector shopify --by support
  tidegate parks add --queue reports --reason 'month end'")]
    Add(AddArgs),
    /// Let a scope go on, as far as this park is concerned
    #[command(
        visible_alias = "remove",
        after_help = "Examples:
  tidegate parks rm --connector shopify
  tidegate parks rm --group acme --connector shopify --by support"
    )]
    Rm(RmArgs),
}

/// What to stop: a queue, a group, a connector, or a group on a connector.
#[derive(Debug, Args)]
pub(crate) struct ScopeArgs {
    /// A queue
    #[arg(long, value_name = "QUEUE", conflicts_with_all = ["group", "connector"])]
    queue: Option<String>,
    /// A group, in every queue; with --connector, only its calls of that API
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Everything that calls this API
    #[arg(long, value_name = "CONNECTOR")]
    connector: Option<String>,
}

/// Arguments of `parks add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    stop: StopArgs,
}

/// How something is stopped.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Why, for whoever looks next
    #[arg(long, value_name = "TEXT", default_value = "no reason given")]
    reason: String,
    /// End by itself after this time
    #[arg(long = "for", value_name = "SPAN", allow_hyphen_values = true)]
    span: Option<String>,
    /// Who stops it; one park per scope and owner
    #[arg(long, value_name = "NAME", default_value = OPERATOR)]
    by: String,
}

/// Arguments of `parks rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    /// Whose park to remove
    #[arg(long, value_name = "NAME", default_value = OPERATOR)]
    by: String,
}

/// Runs a command on parks.
pub(crate) async fn run(command: ParksCommand, config: &Config, output: &Output) -> Result<()> {
    match command {
        ParksCommand::Ls => ls(config, output).await,
        ParksCommand::Add(args) => {
            let scope = scope_of(&args.scope)?;
            let back = format!("parks rm {}", flags(&scope));
            stop(scope, args.stop, &back, config, output).await
        }
        ParksCommand::Rm(args) => release(scope_of(&args.scope)?, args.by, config, output).await,
    }
}

async fn ls(config: &Config, output: &Output) -> Result<()> {
    let data = data::existing(config).await?;
    let now = parse::now();
    let mut parks = data.store.parks().await?;
    data.close().await?;
    // One that has ended is removed with the next claim; it stops nothing any more.
    parks.retain(|p| p.until.is_none_or(|t| t > now));
    parks.sort_by(|a, b| (&a.scope, &a.by).cmp(&(&b.scope, &b.by)));
    output.answer(&json!({ "parks": facts(&parks)? }), || {
        if parks.is_empty() {
            return "Nothing is parked or paused.".into();
        }
        table(&parks, now).render(output)
    })
}

fn table(parks: &[Park], now: Timestamp) -> Table {
    let mut table = Table::new(vec![
        Column::text("SCOPE", 20),
        Column::text("BY", 8),
        Column::fixed("ENDS"),
        Column::text("REASON", 12),
    ]);
    for park in parks {
        let ends = park.until.map_or_else(|| "when removed".into(), |t| short_when(t, now));
        table.row(vec![park.scope.to_string(), park.by.clone(), ends, park.reason.clone()]);
    }
    table
}

fn scope_of(args: &ScopeArgs) -> Result<ParkScope> {
    let ScopeArgs { queue, group, connector } = args;
    match (queue, group, connector) {
        (Some(queue), None, None) => Ok(ParkScope::Queue(parse::name(queue)?)),
        (None, Some(group), None) => Ok(ParkScope::Group(parse::name(group)?)),
        (None, None, Some(connector)) => Ok(ParkScope::Connector(parse::name(connector)?)),
        (None, Some(group), Some(connector)) => {
            Ok(ParkScope::GroupOnConnector(parse::name(group)?, parse::name(connector)?))
        }
        _ => Err(Failure::new(codes::INVALID_REQUEST, "no scope is named")
            .hint("name --queue, --group, --connector, or --group with --connector")),
    }
}

fn flags(scope: &ParkScope) -> String {
    match scope {
        ParkScope::Queue(q) => format!("--queue {q}"),
        ParkScope::Group(g) => format!("--group {g}"),
        ParkScope::Connector(c) => format!("--connector {c}"),
        ParkScope::GroupOnConnector(g, c) => format!("--group {g} --connector {c}"),
    }
}

/// A queue must exist; groups and connectors may be stopped before their first job.
async fn known(scope: &ParkScope, store: &dyn Store) -> Result<()> {
    let ParkScope::Queue(name) = scope else { return Ok(()) };
    let queues = store.settings().await?;
    if queues.iter().any(|(q, _)| q == name) {
        return Ok(());
    }
    Err(no_queue(name, queues.iter().map(|(q, _)| q)))
}

/// That there is no such queue, with the one that was probably meant.
pub(crate) fn no_queue<'q>(name: &QueueName, known: impl Iterator<Item = &'q QueueName>) -> Failure {
    let near = nearest(name.as_str(), known.map(QueueName::as_str));
    let near = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
    Failure::new(codes::UNKNOWN_QUEUE, format!("there is no queue {name}{near}"))
}

/// Stops a scope. `back` is the command that lets it go on.
pub(crate) async fn stop(
    scope: ParkScope,
    args: StopArgs,
    back: &str,
    config: &Config,
    output: &Output,
) -> Result<()> {
    let span = args.span.as_deref().map(parse::span).transpose()?;
    let data = data::existing(config).await?;
    let now = parse::now();
    known(&scope, &*data.store).await?;
    let park = Park { scope, by: args.by, reason: args.reason, until: span.map(|ms| now.plus_ms(ms)) };
    data.store.park(park.clone(), now).await?;
    data.close().await?;
    output.answer(&json!({ "paused": facts(&park)? }), || {
        let by = if park.by == OPERATOR { String::new() } else { format!(" --by {}", park.by) };
        let until = span.map_or(String::new(), |ms| format!(" for {}", Millis(ms)));
        format!(
            "Paused {}{until}: {}. What runs goes on; `tidegate {back}{by}` lets the rest go on.",
            park.scope,
            park.reason.trim_end_matches('.')
        )
    })
}

/// Lets a scope go on, as far as this owner's park is concerned.
pub(crate) async fn release(scope: ParkScope, by: String, config: &Config, output: &Output) -> Result<()> {
    let data = data::existing(config).await?;
    let now = parse::now();
    known(&scope, &*data.store).await?;
    let removed = data.store.unpark(scope.clone(), by.clone(), now).await?;
    let left: Vec<Park> = data.store.parks().await?.into_iter().filter(|p| p.scope == scope).collect();
    data.close().await?;
    let others: Vec<&str> = left.iter().map(|p| p.by.as_str()).collect();
    if !removed {
        let failure = Failure::new(codes::PARK_NOT_FOUND, format!("{scope} is not paused by {by}"));
        return Err(if others.is_empty() {
            failure
        } else {
            failure.hint(format!("it is paused by {}: name one with --by", others.join(", ")))
        });
    }
    output.answer(&json!({ "resumed": facts(&scope)?, "by": by, "still_paused_by": others }), || {
        if others.is_empty() {
            format!("Resumed {scope}.")
        } else {
            format!("Removed {by}'s pause of {scope}; it is still paused by {}.", others.join(", "))
        }
    })
}
