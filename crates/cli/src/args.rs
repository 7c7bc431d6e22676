//! The command line: every command, flag and example, in one place.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::bench::BenchArgs;
use crate::commands;
use crate::demo::DemoArgs;
use crate::output::ColorChoice;

/// Durable background jobs that keep to other people's limits.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  tidegate demo                         see it run for 20 seconds
  tidegate queues ls                    what waits, what runs, what is paused
  tidegate why job_01JD…                why a job is where it is
  tidegate dead recover --queue billing try dead letters again")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Data directory
    #[arg(help = "Data directory [env: TIDEGATE_DATA] [default: ./tidegate-data]")]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Everywhere")]
    pub(crate) dir: Option<PathBuf>,
    /// The same facts as JSON, with units in the names
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub(crate) json: bool,
    /// When to colour
    #[arg(help = "When to colour; NO_COLOR is respected")]
    #[arg(long, global = true, value_enum, default_value_t, hide_possible_values = true)]
    #[arg(value_name = "auto|always|never", help_heading = "Everywhere")]
    pub(crate) color: ColorChoice,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a realistic load and prove that nothing is lost
    #[command(after_help = "Examples:
  tidegate demo                      about 20 seconds in a temporary directory
  tidegate demo --seconds 5 --json   the summary for a program
  tidegate demo --dir ./demo --keep  leave it running; look at it with Ctrl-C, then `tidegate queues ls --dir ./demo`")]
    Demo(DemoArgs),
    /// Measure
    #[command(after_help = "Examples:
  tidegate bench jobs --jobs 100000 --json")]
    Bench(BenchArgs),
    /// Enqueue a job, or many in one commit
    #[command(after_help = "Examples:
  tidegate enqueue invoice.send --data '{\"order\":7}' --tenant acme
  tidegate enqueue report.build --data @report.json --delay 10m --priority low
  tidegate enqueue --from jobs.jsonl    one JSON object per line, all or nothing:
                                        {\"kind\":\"invoice.send\",\"data\":{\"order\":7},\"tenant\":\"acme\"}")]
    Enqueue(commands::enqueue::EnqueueArgs),
    /// Look at jobs, find, cancel and retry them
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate jobs ls --state ready --queue billing
  tidegate jobs show job_01JD…"
    )]
    Jobs(commands::jobs::JobsCommand),
    /// Look at queues, pause, resume and change them
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate queues ls
  tidegate queues pause reports --reason 'month end'"
    )]
    Queues(commands::queues::QueuesCommand),
    /// Look at kinds of jobs, add and change them
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate kinds ls
  tidegate kinds set hello --queue default"
    )]
    Kinds(commands::kinds::KindsCommand),
    /// Look at dead letters, recover or resolve them
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate dead ls
  tidegate dead recover --kind invoice.send --dry-run"
    )]
    Dead(commands::dead::DeadCommand),
    /// Say in one sentence why a job is where it is
    #[command(after_help = "Examples:
  tidegate why job_01JD0000000000000000000000
  tidegate why job_01JD0000000000000000000000 --json")]
    Why(commands::why::WhyArgs),
    /// Copy the data into one file while everything runs
    #[command(after_help = "Examples:
  tidegate backup monday.tidegate
  tidegate backup monday.tidegate --force   replace the file")]
    Backup(commands::backup::BackupArgs),
    /// Make a data directory from a backup
    #[command(after_help = "Examples:
  tidegate restore monday.tidegate --dir ./restored")]
    Restore(commands::backup::RestoreArgs),
    /// Explain an error code
    #[command(after_help = "Examples:
  tidegate explain TG2007
  tidegate explain            all of them")]
    Explain(commands::explain::ExplainArgs),
}

/// How a command that changes many things is let loose.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Consent {
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Show what would be touched and do nothing
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}
