//! `tidegate registry`: queues, kinds and retry policies as one document, to keep beside the code and to carry from one store
//! to another. Applying a document adds and changes what it names and leaves everything else alone.

mod file;
mod history;
mod said;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tidegate_core::codes;
use tidegate_core::policies::Policies;
use tidegate_core::registry::{Counts, Document, Problem, Reading, written};
use tidegate_store::offer;
use tidegate_store::params::{Apply, Wanted};

pub(crate) use self::file::{format_of, known_as, text_of};
use self::said::{Said, say};
use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Output, clean, print};
use crate::parse;

/// What to do about a document that names what it does not have.
const LOOKS_ALONE: &str = "validate looks at the document alone; if the store has it, `tidegate registry diff FILE` looks there too";
/// What to do about one that is wrong by itself.
const MEND: &str = "mend these places; docs/guides/registry.md shows what can be written";

/// Commands on the registry.
#[derive(Debug, Subcommand)]
pub(crate) enum RegistryCommand {
    /// Check a document and name every mistake with its place; no store is needed
    #[command(after_help = "Examples:
  tidegate registry validate registry.toml
  tidegate registry validate examples/communities/registry.toml --json")]
    Validate(FileArgs),
    /// Print queues, kinds and policies as TOML or JSON; settings that are the defaults are left out
    #[command(after_help = "Examples:
  tidegate registry show > registry.toml
  tidegate registry show invoice.send
  tidegate registry show --file registry.toml --json
  tidegate registry show --format json --full")]
    Show(ShowArgs),
    /// Show what applying a document would change
    #[command(after_help = "Examples:
  tidegate registry diff registry.toml
  tidegate registry diff registry.toml --json")]
    Diff(FileArgs),
    /// Add and change the queues, kinds and policies that a file names; what it does not name stays
    #[command(after_help = "Examples:
  tidegate registry apply registry.toml --dry-run
  tidegate registry apply registry.toml

A file looks like this:
  [queues.billing]
  concurrency = 50
  limiter = { max = 30, per = \"1s\" }

  [kinds.\"invoice.send\"]
  queue = \"billing\"
  timeout = \"30s\"
  schema = { type = \"object\", required = [\"order\"], properties = { order = { type = \"integer\" } } }")]
    Apply(ApplyArgs),
    /// List what was applied and refused, newest first
    #[command(after_help = "Examples:
  tidegate registry history
  tidegate registry history --limit 5 --json")]
    History(HistoryArgs),
    /// Make the registry what it was from a version on
    #[command(after_help = "Examples:
  tidegate registry rollback 7 --dry-run
  tidegate registry rollback 7")]
    Rollback(RollbackArgs),
}

/// How a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Toml,
    Json,
}

/// A document.
#[derive(Debug, Args)]
pub(crate) struct FileArgs {
    /// TOML or JSON (by its ending); `-` reads TOML from standard input
    file: PathBuf,
}

/// Arguments of `registry show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Only queues and kinds of these names
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Show this document instead of what the store has
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// toml or json
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "toml", hide_possible_values = true)]
    format: Format,
    /// Settings that are the defaults too
    #[arg(long)]
    full: bool,
}

/// Arguments of `registry apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// TOML or JSON (by its ending); `-` reads TOML from standard input
    file: PathBuf,
    /// Show what would change and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `registry history`.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Most versions to list
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,
}

/// Arguments of `registry rollback`.
#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    /// The version, as `registry history` numbers it
    #[arg(value_name = "VERSION")]
    number: u64,
    /// Show what would change and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// Runs a command on the registry.
pub(crate) async fn run(command: RegistryCommand, config: &Config, output: &Output) -> Result<()> {
    match command {
        RegistryCommand::Validate(args) => validate(&args, output),
        RegistryCommand::Show(args) => show(&args, config, output).await,
        RegistryCommand::Diff(args) => {
            apply(&ApplyArgs { file: args.file, dry_run: true }, config, output).await
        }
        RegistryCommand::Apply(args) => apply(&args, config, output).await,
        RegistryCommand::History(args) => history::list(args.limit, config, output).await,
        RegistryCommand::Rollback(args) => rollback(&args, config, output).await,
    }
}

fn validate(args: &FileArgs, output: &Output) -> Result<()> {
    let reading = file::read(&args.file)?;
    let problems = reading.alone();
    if !problems.is_empty() {
        let hint = if reading.leans_on_a_store() { LOOKS_ALONE } else { MEND };
        return Err(file::refused(&args.file, &problems).hint(hint));
    }
    let document = reading.document();
    let counts = Counts::of(&document.entries());
    let mut value = serde_json::to_value(counts)?;
    value["valid"] = true.into();
    value["hash"] = document.hash().into();
    output.answer(&value, || format!("{} is right: {counts}.", args.file.display()))
}

async fn show(args: &ShowArgs, config: &Config, output: &Output) -> Result<()> {
    let mut document = if let Some(file) = &args.file {
        file::read(file)?.into_document().map_err(|problems| file::refused(file, &problems))?
    } else {
        let data = data::existing(config).await?;
        let document = data.store.registry().await?;
        data.close().await?;
        document
    };
    if !args.names.is_empty() {
        only(&mut document, &args.names)?;
    }
    let value = written(&document, args.full);
    if output.json || args.format == Format::Json {
        return print(&(serde_json::to_string_pretty(&value)? + "\n"));
    }
    let text = toml::to_string_pretty(&value).map_err(|e| {
        Failure::new(codes::INVALID_REQUEST, format!("it cannot be written as TOML: {e}"))
            .hint("a schema that says `null` can be written as JSON: --format json")
    })?;
    print(if text.is_empty() { "# No queues and no kinds.\n" } else { &text })
}

/// Leaves the queues and kinds of these names.
fn only(document: &mut Document, names: &[String]) -> Result<()> {
    let wanted = |name: &str| names.iter().any(|n| n == name);
    let known = |name: &String| {
        document.queues.keys().any(|q| q.as_str() == name)
            || document.kinds.keys().any(|k| k.as_str() == name)
    };
    if let Some(unknown) = names.iter().find(|n| !known(n)) {
        let shown: String = unknown.chars().take(60).collect();
        return Err(Failure::new(codes::UNKNOWN_KIND, format!("there is no queue or kind {shown:?}"))
            .hint("`tidegate queues ls` and `tidegate kinds ls` list them"));
    }
    document.queues.retain(|name, _| wanted(name.as_str()));
    document.kinds.retain(|name, _| wanted(name.as_str()));
    document.policies = Policies::default();
    Ok(())
}

async fn apply(args: &ApplyArgs, config: &Config, output: &Output) -> Result<()> {
    let (reading, source) = (file::read(&args.file)?, known_as(&args.file));
    if !reading.is_sound() {
        let found = mistakes(&reading, &source, config).await;
        return Err(match found {
            Ok(problems) => file::refused(&args.file, &problems),
            // What the store has nobody knows, so nothing is called missing.
            Err(why) => {
                let unread = reading.into_document().err().unwrap_or_default();
                let why = format!("the store was not asked for what it names: {}", clean(why.message()));
                file::refused(&args.file, &unread).detail(why)
            }
        });
    }
    let document = reading.into_document().map_err(|problems| file::refused(&args.file, &problems))?;
    let this = document.identity(&source);
    let this = Some(&this);
    let wanted = Wanted::Document(Box::new(document));
    let apply = Apply { wanted, by: who(), source, dry_run: args.dry_run, now: parse::now() };
    let refused = |e| file::refused_by_store(&args.file.display().to_string(), e);
    // Where there is no store yet an empty one is asked first, so a mistake leaves nothing behind.
    let missing = data::missing(config)?;
    if let Some(dir) = &missing {
        let dry = Apply { dry_run: true, ..apply.clone() };
        let would = data::empty().apply(dry).await.map_err(refused)?;
        if args.dry_run {
            return say(&would, &Said { dry_run: true, this, missing: Some(dir) }, output);
        }
    }
    let data =
        if args.dry_run { data::existing(config).await? } else { data::open_or_create(config).await? };
    let applied = data.store.apply(apply).await;
    data.close().await?;
    say(&applied.map_err(refused)?, &Said { dry_run: args.dry_run, this, missing: None }, output)
}

/// Everything that is wrong with a document that could not be read as a whole, in the store that is meant.
async fn mistakes(reading: &Reading, source: &str, config: &Config) -> Result<Vec<Problem>> {
    if data::missing(config)?.is_some() {
        return Ok(offer::mistakes(&*data::empty(), reading, source).await?);
    }
    let data = data::existing(config).await?;
    let found = offer::mistakes(&*data.store, reading, source).await;
    data.close().await?;
    Ok(found?)
}

async fn rollback(args: &RollbackArgs, config: &Config, output: &Output) -> Result<()> {
    let data = data::existing(config).await?;
    let apply = Apply {
        wanted: Wanted::Version(args.number),
        by: who(),
        source: format!("rollback to {}", args.number),
        dry_run: args.dry_run,
        now: parse::now(),
    };
    let applied = data.store.apply(apply).await;
    data.close().await?;
    let source = format!("version {}", args.number);
    let applied = applied.map_err(|e| file::refused_by_store(&source, e))?;
    say(&applied, &Said { dry_run: args.dry_run, this: None, missing: None }, output)
}

/// Who changes it, as the system knows them.
pub(crate) fn who() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    if user.is_empty() { "command line".into() } else { user }
}
