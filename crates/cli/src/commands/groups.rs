//! `tidegate groups`: what waits and runs of each group, and stopping one.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;
use tidegate_core::ids::GroupKey;
use tidegate_core::job::{Job, Park, ParkScope, State};
use tidegate_core::time::Timestamp;
use tidegate_core::why::grouped;
use tidegate_store::params::JobQuery;

use super::facts;
use super::filter;
use super::parks::{self, OPERATOR, StopArgs};
use crate::config::Config;
use crate::data;
use crate::error::Result;
use crate::output::{Column, Output, Table, elapsed, short_when};
use crate::parse;

/// Commands on groups.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupsCommand {
    /// List groups with open jobs or a park, busiest first
    #[command(
        visible_alias = "list",
        after_help = "Examples:
  tidegate groups ls
  tidegate groups ls --queue billing --scan 100000

A group is the key of fairness, group limits and parks: the one named at enqueue, else the tenant."
    )]
    Ls(ListArgs),
    /// Stop a group in every queue; what runs goes on
    #[command(after_help = "Examples:
  tidegate groups pause acme --reason 'shop is closed' --for 30m")]
    Pause {
        /// The group
        group: String,
        #[command(flatten)]
        stop: StopArgs,
    },
    /// Let a paused group go on
    #[command(after_help = "Examples:
  tidegate groups resume acme
  tidegate groups resume acme --by support")]
    Resume {
        /// The group
        group: String,
        /// Whose pause to end
        #[arg(long, value_name = "NAME", default_value = OPERATOR)]
        by: String,
    },
}

/// Arguments of `groups ls`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only jobs in this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Most groups to show
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Open jobs to look at, newest first
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    scan: u32,
}

/// What is known of a group.
#[derive(Debug, Default, Serialize)]
struct Seen {
    ready: u64,
    scheduled: u64,
    running: u64,
    /// When its oldest ready job became ready.
    oldest_ready: Option<Timestamp>,
    parks: Vec<Park>,
}

impl Seen {
    fn add(&mut self, job: &Job) {
        match job.state {
            State::Ready => {
                self.ready += 1;
                self.oldest_ready = Some(self.oldest_ready.map_or(job.run_at, |t| t.min(job.run_at)));
            }
            State::Running => self.running += 1,
            _ => self.scheduled += 1,
        }
    }

    fn open(&self) -> u64 {
        self.ready + self.scheduled + self.running
    }
}

/// Runs a command on groups.
pub(crate) async fn run(command: GroupsCommand, config: &Config, output: &Output) -> Result<()> {
    match command {
        GroupsCommand::Ls(args) => ls(args, config, output).await,
        GroupsCommand::Pause { group, stop } => {
            let group: GroupKey = parse::name(&group)?;
            let back = format!("groups resume {group}");
            parks::stop(ParkScope::Group(group), stop, &back, config, output).await
        }
        GroupsCommand::Resume { group, by } => {
            parks::release(ParkScope::Group(parse::name(&group)?), by, config, output).await
        }
    }
}

async fn ls(args: ListArgs, config: &Config, output: &Output) -> Result<()> {
    let query = JobQuery {
        states: vec![State::Ready, State::Scheduled, State::Running, State::Blocked],
        queue: parse::optional_name(args.queue.as_deref())?,
        ..JobQuery::default()
    };
    let data = data::existing(config).await?;
    let now = parse::now();
    let found = filter::find(&*data.store, query, args.scan as usize).await?;
    let parks = data.store.parks().await?;
    data.close().await?;
    let whole = found.next.is_none();
    let mut groups: BTreeMap<String, Seen> = BTreeMap::new();
    for job in &found.jobs {
        groups.entry(job.group.to_string()).or_default().add(job);
    }
    for park in parks.into_iter().filter(|p| p.until.is_none_or(|t| t > now)) {
        if let ParkScope::Group(group) | ParkScope::GroupOnConnector(group, _) = &park.scope {
            groups.entry(group.to_string()).or_default().parks.push(park);
        }
    }
    let mut rows: Vec<(String, Seen)> = groups.into_iter().collect();
    rows.sort_by_key(|(_, seen)| std::cmp::Reverse(seen.open()));
    let more = rows.len().saturating_sub(args.limit as usize);
    rows.truncate(args.limit as usize);
    let json: Vec<_> = rows
        .iter()
        .map(|(name, seen)| {
            let mut value = facts(seen)?;
            value["group"] = name.clone().into();
            Ok(value)
        })
        .collect::<Result<_>>()?;
    let value = json!({ "groups": json, "jobs_looked_at": found.jobs.len(), "all_open_jobs_seen": whole });
    output.answer(&value, || {
        if rows.is_empty() {
            return "No group has open jobs or a park.".into();
        }
        let mut text = table(&rows, now).render(output);
        let mut rest = vec![];
        if more > 0 {
            rest.push(format!("{} more groups: --limit shows them.", grouped(more as u64)));
        }
        if !whole {
            let looked = grouped(found.jobs.len() as u64);
            rest.push(format!("Counted over the newest {looked} open jobs; --scan looks at more."));
        }
        if !rest.is_empty() {
            text += &output.style.dim(&rest.join(" "));
        }
        text
    })
}

fn table(rows: &[(String, Seen)], now: Timestamp) -> Table {
    let mut table = Table::new(vec![
        Column::text("GROUP", 12),
        Column::number("READY"),
        Column::number("SCHEDULED"),
        Column::number("RUNNING"),
        Column::fixed("OLDEST"),
        Column::text("STATE", 16),
    ]);
    for (name, seen) in rows {
        let park = |p: &Park| {
            let on = match &p.scope {
                ParkScope::GroupOnConnector(_, connector) => format!(" on {connector}"),
                _ => String::new(),
            };
            let until = p.until.map_or(String::new(), |t| format!(" until {}", short_when(t, now)));
            format!("paused{on} by {}{until}: {}", p.by, p.reason)
        };
        let parks: Vec<String> = seen.parks.iter().map(park).collect();
        table.row(vec![
            if name.is_empty() { "(none)".into() } else { name.clone() },
            grouped(seen.ready),
            grouped(seen.scheduled),
            grouped(seen.running),
            seen.oldest_ready.map_or_else(|| "–".into(), |t| elapsed(t, now)),
            if parks.is_empty() { "ok".into() } else { parks.join("; ") },
        ]);
    }
    table
}
