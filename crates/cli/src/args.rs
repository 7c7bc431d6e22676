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
  tidegate demo                          see it run for 20 seconds
  tidegate serve                         a store for programs in any language
  tidegate work --kind hello --exec cat  a handler in one line
  tidegate queues ls                     what waits, what runs, what is paused
  tidegate why job_01JD…                 why a job is where it is
  tidegate dead recover --queue billing  try dead letters again
  tidegate doctor                        is everything as it should be?")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Where jobs live
    #[arg(
        help = "Where jobs live: a directory, sqlite:PATH, postgres://… or http://… [env: TIDEGATE_STORE] [default: ./tidegate-data]"
    )]
    #[arg(long, global = true, value_name = "URL", help_heading = "Everywhere", conflicts_with = "dir")]
    pub(crate) store: Option<String>,
    /// Data directory: the same as --store DIR
    #[arg(long, global = true, value_name = "DIR", help_heading = "Everywhere")]
    pub(crate) dir: Option<PathBuf>,
    /// API key for a store behind a server
    #[arg(help = "API key for a store behind a server; better in TIDEGATE_KEY, where `ps` does not show it")]
    #[arg(long, global = true, value_name = "KEY", help_heading = "Everywhere")]
    pub(crate) key: Option<String>,
    /// Configuration file
    #[arg(
        help = "Configuration file [env: TIDEGATE_CONFIG] [default: ./tidegate.toml, ~/.config/tidegate/config.toml]"
    )]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub(crate) config: Option<PathBuf>,
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
    /// Serve a store over HTTP, for programs in any language
    #[command(after_help = "Examples:
  tidegate serve                                       ./tidegate-data at http://127.0.0.1:7433
  tidegate serve --store postgres://localhost/jobs     any number of servers on one database
  tidegate serve --bind 0.0.0.0:7433 --tls-cert chain.pem --tls-key key.pem
  tidegate serve --role maintenance                    promote, rescue and prune, no API
  tidegate serve --gates-file gates.toml               with the gates that workers ask
  tidegate serve --alerts-file alerts.toml --log json  tell a channel of alerts; a line for what happens to each job

A server that other machines can reach needs a key: `tidegate keys create --role admin` makes the first. \
SIGTERM and Ctrl-C let requests finish; a second one stops at once.")]
    Serve(commands::serve::ServeArgs),
    /// Run jobs with a command or an HTTP endpoint as the handler
    #[command(after_help = "Examples:
  tidegate work --kind hello --exec 'jq -r .name'
  tidegate work --kind report.build --concurrency 4 -- python3 build_report.py
  tidegate work --queue default --url http://127.0.0.1:9000/jobs
  tidegate work --kind shop.sync --exec ./sync.sh --gate shopify --cost 52

A command gets the payload on standard input and TIDEGATE_JOB_ID, TIDEGATE_KIND, TIDEGATE_QUEUE, \
TIDEGATE_TENANT, TIDEGATE_GROUP and TIDEGATE_ATTEMPT in its environment. Its standard error is the job's \
log; the last line of its standard output, if it is JSON, or else all of it, is the result. Exit code 0 \
is done, 75 means try again later, other codes of sysexits.h have their meaning, and the rest fails as \
the kind's retry policy says. What opens the store is not in its environment, unless --pass-credentials \
is given.

An endpoint gets a POST with the payload. 2xx is done, 429 and 503 with Retry-After put the job off, \
other 4xx are final, 5xx are tried again. The header Idempotency-Key is the job's id.")]
    Work(Box<commands::work::WorkArgs>),
    /// Enqueue a job, or many from a file
    #[command(after_help = "Examples:
  tidegate enqueue invoice.send --data '{\"order\":7}' --tenant acme
  tidegate enqueue report.build --data @report.json --delay 10m --priority low
  tidegate enqueue --from jobs.jsonl
  tidegate enqueue invoice.send --from orders.csv
  zcat jobs.gz | tidegate enqueue --from - --format jsonl

JSON lines hold one object each:
  {\"kind\":\"invoice.send\",\"data\":{\"order\":7},\"tenant\":\"acme\"}
CSV has a header; its columns are fields of the payload, `name:json` is read as JSON, and columns with @ \
are about the job (@kind, @tenant, @group, @delay, @priority, …):
  order:json,customer,@tenant
  7,Ada,acme

A file is checked as a whole before anything is stored, then stored in commits of 1,000 jobs. Ids are \
derived from each line and its number: what was cut off is gone on with by running the same command \
again, and nothing is stored twice. --run NAME enqueues the same file anew.")]
    Enqueue(commands::enqueue::EnqueueArgs),
    /// Look at jobs, find, cancel and retry them
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate jobs ls --state ready --queue billing
  tidegate jobs show job_01JD…"
    )]
    Jobs(commands::jobs::JobsCommand),
    /// Say in one sentence why a job is where it is
    #[command(after_help = "Examples:
  tidegate why job_01JD0000000000000000000000
  tidegate why job_01JD0000000000000000000000 --json")]
    Why(commands::why::WhyArgs),
    /// Look at queues, pause, resume and change them
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate queues ls
  tidegate queues pause reports --reason 'month end'"
    )]
    Queues(commands::queues::QueuesCommand),
    /// Look at groups, pause and resume them
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate groups ls
  tidegate groups pause acme --reason 'shop is closed' --for 30m"
    )]
    Groups(commands::groups::GroupsCommand),
    /// Look at everything that is stopped; stop and release queues, groups and connectors
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate parks ls
  tidegate parks add --connector shopify --reason 'their outage' --for 30m"
    )]
    Parks(commands::parks::ParksCommand),
    /// Look at gates: what is held, who waits; release, promote, reset, disable
    #[command(after_help = "Examples:
  tidegate gates ls --store http://127.0.0.1:7433
  tidegate gates show shopify --gates redis://127.0.0.1 --gates-file gates.toml
  tidegate gates disable shopify points --reason 'limit lifted'

Gates that a server decides in its own process are asked at the server.")]
    Gates(commands::gates::GatesArgs),
    /// Judge the gates by their objectives: bar, what was measured, what to do
    #[command(after_help = "Examples:
  tidegate slo --store http://127.0.0.1:7433
  tidegate slo --gates redis://127.0.0.1 --gates-file gates.toml
  tidegate slo --json | jq '.verdicts[] | select(.standing == \"critical\")'
  tidegate slo --rules --json    the rules, for an alert engine

The exit code is 0 if nothing that was measured is beyond its bar, else 4.")]
    Slo(commands::slo::SloArgs),
    /// Look at alerts and their rules, silence them, try a channel
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate alerts ls
  tidegate alerts silence queue_depth_high --for 2h --why 'migration'"
    )]
    Alerts(commands::alerts::AlertsCommand),
    /// Look at kinds of jobs, add and change them
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate kinds ls
  tidegate kinds set hello --queue default"
    )]
    Kinds(commands::kinds::KindsCommand),
    /// Queues and kinds as one document: print it, apply it
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate registry show > registry.toml
  tidegate registry apply registry.toml --dry-run"
    )]
    Registry(commands::registry::RegistryCommand),
    /// Look at dead letters, recover or resolve them
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate dead ls
  tidegate dead recover --kind invoice.send --dry-run"
    )]
    Dead(commands::dead::DeadCommand),
    /// See who is alive, ask a worker to drain
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate workers ls
  tidegate workers drain web-1-4711-1"
    )]
    Workers(commands::workers::WorkersCommand),
    /// Watch queues, rates and workers live
    #[command(after_help = "Examples:
  tidegate top --store http://127.0.0.1:7433
  tidegate top --once                            one snapshot; so it is also without a terminal

q quits.")]
    Top(commands::top::TopArgs),
    /// Follow what happens to jobs, as it happens
    #[command(after_help = "Examples:
  tidegate tail --store http://127.0.0.1:7433
  tidegate tail --queue billing --event dead,retry
  tidegate tail --json | jq -r 'select(.event == \"dead\") | .id'

An embedded directory has no feed for other processes: follow the server that serves it.")]
    Tail(commands::tail::TailArgs),
    /// Check store, clock, disk, versions and configuration, and say what to do
    #[command(after_help = "Examples:
  tidegate doctor
  tidegate doctor --store postgres://localhost/jobs
  tidegate doctor --strict --json    for a probe: a warning is a failure too

The exit code is 0 if nothing fails, else that of the first failure (5: the store is out of reach).")]
    Doctor(commands::doctor::DoctorArgs),
    /// Make, list and revoke API keys
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate keys create --role admin
  tidegate keys ls"
    )]
    Keys(commands::keys::KeysCommand),
    /// Bring the schema of a Postgres database up to date
    #[command(after_help = "Examples:
  tidegate migrate --store postgres://localhost/jobs --dry-run
  tidegate migrate --store postgres://localhost/jobs --dry-run --sql > review.sql
  tidegate migrate --store postgres://localhost/jobs

`serve` and `work` migrate by themselves when they start, if their role may; this is for doing it before, \
with another role, or to look at the statements. An embedded directory migrates when it is opened.")]
    Migrate(commands::migrate::MigrateArgs),
    /// Copy the data into one file while everything runs
    #[command(after_help = "Examples:
  tidegate backup monday.tidegate
  tidegate backup monday.tidegate --force   replace the file")]
    Backup(commands::backup::BackupArgs),
    /// Make a data directory from a backup
    #[command(after_help = "Examples:
  tidegate restore monday.tidegate --dir ./restored")]
    Restore(commands::backup::RestoreArgs),
    /// Look at the configuration and check it
    #[command(
        subcommand,
        after_help = "Examples:
  tidegate config show
  tidegate config check tidegate.toml"
    )]
    Config(commands::config::ConfigCommand),
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
    /// Explain an error code
    #[command(after_help = "Examples:
  tidegate explain TG2007
  tidegate explain            all of them")]
    Explain(commands::explain::ExplainArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions zsh > ~/.zfunc/_tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish")]
    Completions(commands::shell::CompletionsArgs),
    /// Write manual pages into a directory
    #[command(after_help = "Examples:
  tidegate man ./man && man -l ./man/tidegate.1")]
    Man(commands::shell::ManArgs),
}

impl Command {
    /// What is logged where nobody says anything.
    pub(crate) fn default_log_level(&self) -> &'static str {
        if matches!(self, Self::Work(_) | Self::Serve(_)) { "info" } else { "error" }
    }
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
