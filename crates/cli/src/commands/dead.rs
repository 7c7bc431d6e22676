//! `tidegate dead`: dead letters.

mod causes;
mod died;

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_core::codes;
use tidegate_core::failure::Category;
use tidegate_core::ids::{JobId, Seq, TenantId};
use tidegate_core::job::{Job, Resolution, Review, State};
use tidegate_core::near::nearest;
use tidegate_core::time::Timestamp;
use tidegate_store::params::JobQuery;

pub(crate) use self::causes::table as causes_table;
pub(crate) use self::died::Died;
use super::bulk::{self, Matching, Which};
use super::filter::{self, Filter, Found};
use super::{get, job_json, show};
use crate::args::Consent;
use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table, dash, short_when};
use crate::parse;

/// Commands on dead letters.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadCommand {
    /// List dead letters, newest first
    #[command(
        visible_alias = "list",
        after_help = "Examples:
  tidegate dead ls
  tidegate dead ls --queue billing --since 1h
  tidegate dead ls --cause 4f8d504e01ab9d43
  tidegate dead ls --review all --json"
    )]
    Ls(ListArgs),
    /// Count the dead letters that wait for review by what they died of, most first
    #[command(after_help = "Errors that differ in numbers, ids, times and quoted text alone are one cause.

Examples:
  tidegate dead causes
  tidegate dead causes --queue billing --limit 5
  tidegate dead recover --cause 4f8d504e01ab9d43")]
    Causes(CausesArgs),
    /// Show everything about one dead letter
    #[command(after_help = "Examples:
  tidegate dead show job_01JD0000000000000000000000")]
    Show {
        /// Id of the job
        job: String,
    },
    /// Run dead letters again as new jobs with a fresh attempt budget; twice yields one job
    #[command(after_help = "Examples:
  tidegate dead recover job_01JD0000000000000000000000
  tidegate dead recover --kind invoice.send --since 2h --dry-run
  tidegate dead recover --cause 4f8d504e01ab9d43
  tidegate dead recover --category TRANSIENT_SERVER --queue billing
  tidegate dead recover --all --yes")]
    Recover(RecoverArgs),
    /// Settle dead letters without running them again
    #[command(after_help = "Examples:
  tidegate dead resolve job_01JD0000000000000000000000 --as config_fix
  tidegate dead resolve --cause 4f8d504e01ab9d43 --as config_fix
  tidegate dead resolve --tenant acme --as abandoned --yes")]
    Resolve(ResolveArgs),
    /// A tenant has authorized again: run its letters that waited for that
    #[command(after_help = "Examples:
  tidegate dead reauthorized acme
  tidegate dead reauthorized acme --connector shopify
  tidegate dead reauthorized acme --kind token.refresh --resolve")]
    Reauthorized(ReauthorizedArgs),
    /// Run the processor of dead letters now; it runs every 15 minutes by itself
    #[command(
        after_help = "It runs transient failures of the last hour again, at most three times; asks for authorization, once a day;
gives up what nobody settled for seven days; and leaves the rest.

Examples:
  tidegate dead process
  tidegate dead process --json"
    )]
    Process,
}

/// Arguments of `dead causes`.
#[derive(Debug, Args)]
pub(crate) struct CausesArgs {
    /// In this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Of this kind
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Most causes to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
}

/// Arguments of `dead reauthorized`.
#[derive(Debug, Args)]
pub(crate) struct ReauthorizedArgs {
    /// Who authorized again
    #[arg(value_name = "TENANT")]
    tenant: String,
    /// For this API alone
    #[arg(long, value_name = "CONNECTOR")]
    connector: Option<String>,
    /// Jobs of this kind alone
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Settle the letters instead of running them again
    #[arg(long)]
    resolve: bool,
}

/// Arguments of `dead ls`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    letters: LetterFilter,
    /// Review status
    #[arg(help = "Review status: pending_review, manual_resolved, auto_resolved, abandoned, or all")]
    #[arg(long, value_name = "STATUS", default_value = "pending_review")]
    review: String,
    /// Most letters to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Go on where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<i64>,
}

/// Arguments of `dead recover`.
#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    #[command(flatten)]
    which: WhichArgs,
    #[command(flatten)]
    consent: Consent,
}

/// Arguments of `dead resolve`.
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// How it was settled
    #[arg(help = "How it was settled: reauthorize, config_fix, manual_refresh, abandoned")]
    #[arg(long = "as", value_name = "HOW")]
    resolution: String,
    /// Who settled it
    #[arg(long, value_name = "NAME", default_value = "operator")]
    by: String,
    #[command(flatten)]
    consent: Consent,
}

/// Filters of letters; together they narrow.
#[derive(Debug, Args)]
struct LetterFilter {
    #[command(flatten)]
    filter: Filter,
    /// That died of this, as `dead causes` shows it
    #[arg(long, value_name = "CAUSE")]
    cause: Option<String>,
    /// Of this category
    #[arg(help = "Of this category, such as TRANSIENT_SERVER; `dead causes` shows them")]
    #[arg(long, value_name = "CATEGORY")]
    category: Option<String>,
}

impl LetterFilter {
    fn is_empty(&self) -> bool {
        self.filter.is_empty() && self.cause.is_none() && self.category.is_none()
    }

    fn query(&self) -> Result<JobQuery> {
        let query = self.filter.query(vec![State::Dead], parse::now())?;
        let cause = self.cause.as_deref().map(parse::word).transpose()?;
        let category = self.category.as_deref().map(category).transpose()?;
        Ok(JobQuery { cause, category, ..query })
    }

    /// The filter in words.
    fn words(&self) -> String {
        let named = [("cause", &self.cause), ("category", &self.category)];
        let named = named.iter().filter_map(|(name, value)| value.as_ref().map(|v| format!("{name} {v}")));
        let plain = Some(self.filter.words()).filter(|_| !self.filter.is_empty() || self.is_empty());
        plain.into_iter().chain(named).collect::<Vec<_>>().join(", ")
    }
}

/// A category, however its name is written.
fn category(text: &str) -> Result<Category> {
    let name = text.to_ascii_uppercase().replace('-', "_");
    Category::parse(&name).ok_or_else(|| {
        let known = Category::ALL.map(Category::as_str);
        let shown: String = text.chars().take(40).collect();
        let near = nearest(&name, known).map_or(String::new(), |near| format!("; did you mean {near}?"));
        Failure::new(codes::INVALID_REQUEST, format!("{shown:?} is not a category{near}"))
            .hint(format!("use one of {}", known.join(", ")))
    })
}

/// Letters by id, by filter, or all.
#[derive(Debug, Args)]
struct WhichArgs {
    /// Ids of the jobs
    #[arg(value_name = "JOB")]
    jobs: Vec<String>,
    #[command(flatten)]
    letters: LetterFilter,
    /// All that wait for review
    #[arg(long)]
    all: bool,
}

impl WhichArgs {
    fn resolve(&self) -> Result<Which> {
        let named = !self.jobs.is_empty();
        let filtered = !self.letters.is_empty() || self.all;
        match (named, filtered) {
            (true, false) => {
                let ids: Vec<JobId> = self.jobs.iter().map(|j| parse::job_id(j)).collect::<Result<_>>()?;
                Ok(Which::Named(ids))
            }
            (false, true) => {
                let query = JobQuery { review: Some(Review::PendingReview), ..self.letters.query()? };
                let (filter, words) = (self.letters.filter.clone(), self.letters.words());
                Ok(Which::Matching(Box::new(Matching { query, filter, words })))
            }
            (true, true) => Err(Failure::new(codes::INVALID_REQUEST, "job ids and filters cannot be mixed")
                .hint("name either the jobs or a filter")),
            (false, false) => Err(Failure::new(codes::INVALID_REQUEST, "no dead letter is named")
                .hint("name job ids, a filter such as --kind or --tenant, or --all")),
        }
    }
}

/// Runs a command on dead letters.
pub(crate) async fn run(command: DeadCommand, config: &Config, output: &Output) -> Result<()> {
    match command {
        DeadCommand::Ls(args) => ls(args, config, output).await,
        DeadCommand::Show { job } => one(&job, config, output).await,
        DeadCommand::Recover(args) => {
            bulk::recover(args.which.resolve()?, args.consent, config, output).await
        }
        DeadCommand::Resolve(args) => {
            let resolution: Resolution = parse::word(&args.resolution)?;
            bulk::resolve(args.which.resolve()?, resolution, args.by, args.consent, config, output).await
        }
        DeadCommand::Causes(args) => causes::list(args, config, output).await,
        DeadCommand::Reauthorized(args) => causes::reauthorized(args, config, output).await,
        DeadCommand::Process => causes::process(config, output).await,
    }
}

async fn ls(args: ListArgs, config: &Config, output: &Output) -> Result<()> {
    let mut query = args.letters.query()?;
    query.review = review(&args.review)?;
    query.cursor = args.cursor.map(Seq);
    let data = data::existing(config).await?;
    let (now, query) = (parse::now(), args.letters.filter.by_store_clock(query)?);
    let Found { jobs, next } = filter::find(&*data.store, query, args.limit as usize).await?;
    let unknown = if jobs.is_empty() { args.letters.filter.unknown(&*data.store).await } else { None };
    data.close().await?;
    let rows: Vec<_> = jobs.iter().map(job_json).collect::<Result<_>>()?;
    output.answer(&json!({ "letters": rows, "next_cursor": next }), || {
        if jobs.is_empty() {
            let waiting = if query_is_pending(&args.review) { " that wait for review" } else { "" };
            let unknown = unknown.map_or(String::new(), |said| format!(" {said}"));
            return format!("No dead letters{waiting} ({}).{unknown}", args.letters.words());
        }
        let mut text = table(&jobs, now).render(output);
        if let Some(Seq(next)) = next {
            text +=
                &output.style.dim(&format!("More: tidegate dead ls --cursor {next}, with the same filters."));
            text.push('\n');
        }
        text
    })
}

fn query_is_pending(review: &str) -> bool {
    review == Review::PendingReview.as_str()
}

fn review(text: &str) -> Result<Option<Review>> {
    const KNOWN: [Review; 4] =
        [Review::PendingReview, Review::ManualResolved, Review::AutoResolved, Review::Abandoned];
    if text == "all" {
        return Ok(None);
    }
    KNOWN.into_iter().find(|r| r.as_str() == text).map(Some).ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        let known = KNOWN.map(Review::as_str).join(", ");
        Failure::new(codes::INVALID_REQUEST, format!("{shown:?} is not a review status"))
            .hint(format!("use {known}, or all"))
    })
}

fn table(jobs: &[Job], now: Timestamp) -> Table {
    let mut table = Table::new(vec![
        Column::fixed("JOB"),
        Column::text("KIND", 14),
        Column::text("TENANT", 8).optional(2),
        Column::fixed("CATEGORY"),
        Column::number("TRY").optional(3),
        Column::text("ERROR", 12).below(),
        Column::fixed("REVIEW").optional(4),
        Column::fixed("DIED").optional(1),
    ]);
    for job in jobs {
        let Some(letter) = &job.dead else { continue };
        table.row(vec![
            job.id.to_string(),
            job.kind.to_string(),
            dash(job.tenant.as_ref().map(TenantId::as_str)),
            letter.category.as_str().into(),
            job.attempt.to_string(),
            format!("{}: {}", letter.code, letter.message),
            letter.review.as_str().replace('_', " "),
            short_when(job.finished_at.unwrap_or(job.run_at), now),
        ]);
    }
    table
}

async fn one(job: &str, config: &Config, output: &Output) -> Result<()> {
    let id = parse::job_id(job)?;
    let data = data::existing(config).await?;
    let now = parse::now();
    let job = get(&*data.store, id).await?;
    if job.dead.is_none() {
        return Err(Failure::new(codes::WRONG_STATE, format!("{id} is {}, not dead", job.state)));
    }
    let why = data.store.why(id, now).await?;
    data.close().await?;
    output.answer(&job_json(&job)?, || show::job_text(&job, &why, &[], now, output))
}
