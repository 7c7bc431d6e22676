//! `tidegate workers`: who is alive, and asking one to drain.

use clap::Subcommand;
use serde_json::json;
use tidegate::presence::{self, Seen};
use tidegate_core::codes;
use tidegate_core::time::Timestamp;
use tidegate_core::why::grouped;

use super::facts;
use crate::config::{Config, nearest};
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table, dash, elapsed};
use crate::parse;

/// Commands on workers.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkersCommand {
    /// List workers and servers that are alive
    #[command(
        visible_alias = "list",
        after_help = "Examples:
  tidegate workers ls
  tidegate workers ls --json | jq -r '.workers[] | select(.version != \"0.1.0\") | .name'"
    )]
    Ls,
    /// Ask one to take no more jobs and to end when what it has is done
    #[command(after_help = "Examples:
  tidegate workers drain web-1-4711-1

It hears of it within 5 seconds. What it has not finished in its drain time goes back to the queue.")]
    Drain {
        /// Name of the worker
        name: String,
        /// Who asks, for its log
        #[arg(long, value_name = "NAME", default_value = "operator")]
        by: String,
    },
}

/// Runs a command on workers.
pub(crate) async fn run(command: WorkersCommand, config: &Config, output: &Output) -> Result<()> {
    match command {
        WorkersCommand::Ls => ls(config, output).await,
        WorkersCommand::Drain { name, by } => drain(&name, &by, config, output).await,
    }
}

async fn ls(config: &Config, output: &Output) -> Result<()> {
    let data = data::existing(config).await?;
    let now = parse::now();
    let seen = presence::list(&*data.store, now).await?;
    data.close().await?;
    output.answer(&json!({ "workers": facts(&seen)? }), || {
        if seen.is_empty() {
            return "Nobody is alive; `tidegate work --help` shows how to start a worker.".into();
        }
        table(&seen, now).render(output)
    })
}

/// Who is alive, as a table.
pub(crate) fn table(seen: &[Seen], now: Timestamp) -> Table {
    let mut table = Table::new(vec![
        Column::fixed("NAME"),
        Column::fixed("ROLE"),
        Column::number("RUNNING"),
        Column::text("SERVES", 10),
        Column::text("HOST", 8).optional(3),
        Column::number("PID").optional(2),
        Column::fixed("VERSION").optional(1),
        Column::fixed("UP"),
        Column::fixed("STATE"),
    ]);
    for one in seen {
        let p = &one.presence;
        let running = match p.concurrency {
            0 => "–".into(),
            n => format!("{}/{}", grouped(p.running), grouped(n)),
        };
        let up = p.started_at.parse::<jiff::Timestamp>().map(|t| Timestamp(t.as_millisecond()));
        table.row(vec![
            one.name.clone(),
            dash(Some(&p.role)),
            running,
            dash(Some(&p.url.clone().unwrap_or_else(|| p.queues.join(",")))),
            dash(Some(&p.host)),
            p.pid.to_string(),
            dash(Some(&p.version)),
            up.map_or_else(|_| "–".into(), |t| elapsed(t, now)),
            if p.draining { "draining".into() } else { "ok".into() },
        ]);
    }
    table
}

async fn drain(name: &str, by: &str, config: &Config, output: &Output) -> Result<()> {
    let data = data::existing(config).await?;
    let now = parse::now();
    let asked = presence::ask_to_drain(&*data.store, name, by, now).await;
    let seen = presence::list(&*data.store, now).await?;
    data.close().await?;
    asked.map_err(|e| match e.code {
        codes::WORKER_NOT_FOUND => {
            let meant = nearest(name, seen.iter().map(|s| s.name.as_str()));
            let meant = meant.map_or(String::new(), |m| format!("; did you mean {m}?"));
            Failure::new(e.code, format!("{}{meant}", e.detail))
        }
        _ => e.into(),
    })?;
    let one = seen.iter().find(|s| s.name == name);
    output.answer(&json!({ "asked": name, "by": by }), || {
        let running = one.map_or(0, |s| s.presence.running);
        let rest = if running > 0 { format!("; it runs {}", crate::output::plural(running, "job")) } else { String::new() };
        format!("Asked {name} to drain{rest}. It hears of it within 5 seconds; `tidegate workers ls` shows when it is gone.")
    })
}
