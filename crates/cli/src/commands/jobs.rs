//! `tidegate jobs`: list, show, search, cancel, retry, prioritise, erase.

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_core::codes;
use tidegate_core::ids::{JobId, Seq, TenantId};
use tidegate_core::job::{Job, Priority, State};
use tidegate_core::time::Timestamp;
use tidegate_store::params::{CancelJob, CancelReply};

use super::filter::{self, Filter, Found};
use super::{bulk, get, job_json, show};
use crate::args::Consent;
use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table, dash, plural, short_when};
use crate::parse;

/// States in which a job can still be called off.
const CANCELLABLE: [State; 4] = [State::Blocked, State::Scheduled, State::Ready, State::Running];

/// Commands on jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List jobs, newest first
    #[command(
        visible_alias = "list",
        after_help = "Examples:
  tidegate jobs ls
  tidegate jobs ls --state ready,running --queue billing --since 1h
  tidegate jobs ls --tenant acme --limit 500 --json"
    )]
    Ls(ListArgs),
    /// Show everything about one job
    #[command(after_help = "Examples:
  tidegate jobs show job_01JD0000000000000000000000")]
    Show {
        /// Id of the job
        job: String,
    },
    /// Find jobs by text in payload or errors
    #[command(after_help = "Examples:
  tidegate jobs search HTTP_503 --since 2h
  tidegate jobs search '\"order\":7' --kind invoice.send")]
    Search {
        /// The text
        #[arg(value_name = "TEXT", allow_hyphen_values = true)]
        find: String,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Cancel jobs by id or by filter
    #[command(after_help = "Examples:
  tidegate jobs cancel job_01JD0000000000000000000000 --note 'ordered twice'
  tidegate jobs cancel --tenant acme --state scheduled --dry-run
  tidegate jobs cancel --queue reports --yes")]
    Cancel(CancelArgs),
    /// Run scheduled jobs now instead of at their time
    #[command(after_help = "Examples:
  tidegate jobs retry job_01JD0000000000000000000000")]
    Retry {
        /// Ids of the jobs
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<String>,
    },
    /// Change the priority of a job that is not finished
    #[command(after_help = "Examples:
  tidegate jobs prioritise job_01JD0000000000000000000000 critical")]
    Prioritise {
        /// Id of the job
        job: String,
        /// critical, high, medium or low
        priority: String,
    },
    /// Erase every job of a tenant, whatever its state
    #[command(after_help = "Examples:
  tidegate jobs erase --tenant acme --dry-run
  tidegate jobs erase --tenant acme --yes")]
    Erase {
        /// Whose
        #[arg(long, value_name = "TENANT")]
        tenant: String,
        #[command(flatten)]
        consent: Consent,
    },
}

/// What to list and how much of it.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// In these states: blocked, scheduled, ready, running, completed, dead, cancelled
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    state: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// Most jobs to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Go on where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<i64>,
}

/// Arguments of `jobs cancel`.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// Ids of the jobs
    #[arg(value_name = "JOB")]
    jobs: Vec<String>,
    /// In these states: blocked, scheduled, ready, running
    #[arg(long, value_name = "STATE", value_delimiter = ',', conflicts_with = "jobs")]
    state: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// By whom and why, for the record
    #[arg(long, value_name = "TEXT", default_value = "by operator")]
    note: String,
    /// Also those who wait for it, and those who wait for them
    #[arg(long, requires = "jobs")]
    cascade: bool,
    #[command(flatten)]
    consent: Consent,
}

/// Runs a command on jobs.
pub(crate) async fn run(command: JobsCommand, config: &Config, output: &Output) -> Result<()> {
    match command {
        JobsCommand::Ls(args) => ls(args, "jobs ls", config, output).await,
        JobsCommand::Show { job } => one(&job, config, output).await,
        JobsCommand::Search { find, mut list } => {
            let shown: String = find.chars().take(60).collect();
            list.filter.text = Some(find);
            ls(list, &format!("jobs search {shown:?}"), config, output).await
        }
        JobsCommand::Cancel(args) => cancel(args, config, output).await,
        JobsCommand::Retry { jobs } => retry(&jobs, config, output).await,
        JobsCommand::Prioritise { job, priority } => prioritise(&job, &priority, config, output).await,
        JobsCommand::Erase { tenant, consent } => {
            let tenant: TenantId = parse::name(&tenant)?;
            bulk::erase(tenant, consent, config, output).await
        }
    }
}

async fn ls(args: ListArgs, command: &str, config: &Config, output: &Output) -> Result<()> {
    let states = states(&args.state)?;
    let mut query = args.filter.query(states, parse::now())?;
    query.cursor = args.cursor.map(Seq);
    let data = data::existing(config).await?;
    let (now, query) = (parse::now(), args.filter.by_store_clock(query)?);
    let Found { jobs, next } = filter::find(&*data.store, query, args.limit as usize).await?;
    let unknown = if jobs.is_empty() { args.filter.unknown(&*data.store).await } else { None };
    data.close().await?;
    let rows: Vec<_> = jobs.iter().map(job_json).collect::<Result<_>>()?;
    output.answer(&json!({ "jobs": rows, "next_cursor": next }), || {
        if jobs.is_empty() {
            let unknown = unknown.map_or(String::new(), |said| format!(" {said}"));
            let states = args.state.join(" or ");
            let words = match (states.is_empty(), args.filter.is_empty()) {
                (true, _) => args.filter.words(),
                (false, true) => states,
                (false, false) => format!("{states}, {}", args.filter.words()),
            };
            return format!("No jobs ({words}).{unknown}");
        }
        let mut text = table(&jobs, now).render(output);
        if let Some(Seq(next)) = next {
            text += &output
                .style
                .dim(&format!("More: tidegate {command} --cursor {next}, with the same filters."));
            text.push('\n');
        }
        text
    })
}

fn states(names: &[String]) -> Result<Vec<State>> {
    names.iter().map(|s| parse::word(s)).collect()
}

/// A table of jobs.
pub(crate) fn table(jobs: &[Job], now: Timestamp) -> Table {
    let mut table = Table::new(vec![
        Column::fixed("JOB"),
        Column::fixed("STATE"),
        Column::text("KIND", 10),
        Column::text("QUEUE", 7).optional(2),
        Column::text("TENANT", 8).optional(1),
        Column::fixed("PRIORITY").optional(4),
        Column::number("TRY").optional(3),
        Column::fixed("WHEN"),
    ]);
    for job in jobs {
        table.row(vec![
            job.id.to_string(),
            job.state.to_string(),
            job.kind.to_string(),
            job.queue.to_string(),
            dash(job.tenant.as_ref().map(TenantId::as_str)),
            job.priority.to_string(),
            job.attempt.to_string(),
            short_when(moment(job), now),
        ]);
    }
    table
}

/// The time that matters in a job's state: when it will run, became ready, started or ended.
fn moment(job: &Job) -> Timestamp {
    match (&job.held, job.finished_at) {
        (Some(held), _) => held.since,
        (None, Some(at)) => at,
        (None, None) => job.run_at,
    }
}

async fn one(job: &str, config: &Config, output: &Output) -> Result<()> {
    let id = parse::job_id(job)?;
    let data = data::existing(config).await?;
    let now = parse::now();
    let job = get(&*data.store, id).await?;
    let why = data.store.why(id, now).await?;
    let waits = match job.waits {
        Some(_) => data.store.dependencies(id, None, 0, show::DEPENDENCIES).await?.jobs,
        None => vec![],
    };
    data.close().await?;
    output.answer(&job_json(&job)?, || show::job_text(&job, &why, &waits, now, output))
}

async fn cancel(args: CancelArgs, config: &Config, output: &Output) -> Result<()> {
    if args.jobs.is_empty() {
        if args.filter.is_empty() && args.state.is_empty() {
            return Err(Failure::new(codes::INVALID_REQUEST, "nothing is named to cancel")
                .hint("name job ids, or a filter such as --queue, --tenant or --state"));
        }
        let states = if args.state.is_empty() { CANCELLABLE.to_vec() } else { states(&args.state)? };
        if let Some(done) = states.iter().find(|s| s.is_final()) {
            return Err(Failure::new(
                codes::INVALID_REQUEST,
                format!("jobs that are {done} cannot be cancelled"),
            )
            .hint("use --state blocked, scheduled, ready or running"));
        }
        let query = args.filter.query(states, parse::now())?;
        return bulk::cancel(query, &args.filter, &args.note, args.consent, config, output).await;
    }
    if !args.filter.is_empty() {
        return Err(Failure::new(codes::INVALID_REQUEST, "job ids and filters cannot be mixed")
            .hint("name either the jobs or a filter"));
    }
    let ids: Vec<JobId> = args.jobs.iter().map(|j| parse::job_id(j)).collect::<Result<_>>()?;
    let data = data::existing(config).await?;
    if args.consent.dry_run {
        for &id in &ids {
            get(&*data.store, id).await?;
        }
        data.close().await?;
        return output.answer(&json!({ "dry_run": true, "would_cancel": ids.len() }), || {
            format!("Would cancel {}; nothing was changed.", plural(ids.len() as u64, "job"))
        });
    }
    let mut replies = vec![];
    for &id in &ids {
        let cancel = CancelJob { id, note: args.note.clone(), cascade: args.cascade, now: parse::now() };
        let reply = data.store.cancel(cancel).await;
        let done = plural(replies.len() as u64, "job");
        let so_far =
            |f: Failure| if ids.len() > 1 { f.detail(format!("{done} before it were cancelled")) } else { f };
        match reply.map_err(|e| so_far(e.into()))? {
            CancelReply::AlreadyFinished(state) => {
                return Err(so_far(Failure::new(codes::WRONG_STATE, format!("{id} is {state} already"))));
            }
            reply => replies.push((id, reply)),
        }
    }
    data.close().await?;
    let row = |(id, reply): &(JobId, CancelReply)| {
        let (alone, others) = reply.parts();
        json!({ "id": id, "reply": alone, "others": others })
    };
    let rows: Vec<_> = replies.iter().map(row).collect();
    output.answer(&json!({ "jobs": rows }), || {
        replies.iter().map(|(id, reply)| cancelled(*id, *reply)).collect()
    })
}

fn cancelled(id: JobId, reply: CancelReply) -> String {
    let (alone, others) = reply.parts();
    let waited = plural(others.into(), "job");
    match (alone, others) {
        (CancelReply::Requested, 0) => format!("{id} runs; its handler is told to stop.\n"),
        (CancelReply::Requested, _) => {
            format!("{id} runs; its handler is told to stop. Cancelled {waited} that waited for it.\n")
        }
        (_, 0) => format!("Cancelled {id}; it will not run.\n"),
        (_, _) => format!("Cancelled {id} and {waited} that waited for it; they will not run.\n"),
    }
}

async fn retry(jobs: &[String], config: &Config, output: &Output) -> Result<()> {
    let ids: Vec<JobId> = jobs.iter().map(|j| parse::job_id(j)).collect::<Result<_>>()?;
    let data = data::existing(config).await?;
    let mut rows = vec![];
    for &id in &ids {
        let job = get(&*data.store, id).await?;
        if job.state == State::Dead {
            return Err(Failure::new(codes::WRONG_STATE, format!("{id} is dead"))
                .hint(format!("`tidegate dead recover {id}` runs it again with a fresh attempt budget")));
        }
        if let (State::Running, Some(held)) = (job.state, &job.held) {
            let what = format!("{id} runs right now, attempt {} on {}", job.attempt, held.worker);
            return Err(Failure::new(codes::WRONG_STATE, what).hint(
                "let it end: if it fails it is tried again by itself; `tidegate jobs cancel` stops it for good",
            ));
        }
        rows.push((id, job.state, data.store.run_now(id, parse::now()).await?));
    }
    data.close().await?;
    let value: Vec<_> = rows.iter().map(|(id, _, state)| json!({ "id": id, "state": state })).collect();
    output.answer(&json!({ "jobs": value }), || {
        let line = |(id, before, state): &(JobId, State, State)| {
            if before == state {
                format!("{id} was {state} already; `tidegate why {id}` says what it waits for.\n")
            } else {
                format!("{id} is {state} now.\n")
            }
        };
        rows.iter().map(line).collect()
    })
}

async fn prioritise(job: &str, priority: &str, config: &Config, output: &Output) -> Result<()> {
    let id = parse::job_id(job)?;
    let priority: Priority = parse::word(priority)?;
    let data = data::existing(config).await?;
    data.store.reprioritise(id, priority, parse::now()).await?;
    data.close().await?;
    output.answer(&json!({ "id": id, "priority": priority }), || format!("{id} has priority {priority} now."))
}
