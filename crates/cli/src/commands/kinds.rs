//! `tidegate kinds`: the registry of kinds. Handlers register theirs; this is for looking, and for kinds whose
//! handler is not written in Rust or does not run yet.

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_core::codes;
use tidegate_core::ids::{KindName, QueueName};
use tidegate_core::registry::KindSettings;
use tidegate_core::time::Millis;

use super::facts;
use super::queues::{differences, policy, retry_text};
use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table, dash};
use crate::parse;

/// Commands on kinds.
#[derive(Debug, Subcommand)]
pub(crate) enum KindsCommand {
    /// List kinds
    #[command(
        visible_alias = "list",
        after_help = "Examples:
  tidegate kinds ls
  tidegate kinds ls --json"
    )]
    Ls,
    /// Add a kind or change its settings; what is not given stays
    #[command(after_help = "Examples:
  tidegate kinds set hello --queue default
  tidegate kinds set report.build --queue reports --timeout 5m --priority low
  tidegate kinds set shop.sync --queue shops --connector shopify")]
    Set(SetArgs),
}

/// Arguments of `kinds set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The kind
    kind: String,
    /// Queue its jobs go to; added if it does not exist
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// What it does, for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Priority of its jobs: critical, high, medium, low
    #[arg(long, value_name = "PRIORITY")]
    priority: Option<String>,
    /// Timeout of one attempt
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    timeout: Option<String>,
    /// Cap on attempts over all categories
    #[arg(long, value_name = "N|none", allow_hyphen_values = true)]
    max_attempts: Option<String>,
    /// The API its jobs call, for parks and gates
    #[arg(long, value_name = "CONNECTOR|none")]
    connector: Option<String>,
    /// Retry policy of its own, or `inherit`
    #[arg(long, value_name = "POLICY")]
    retry: Option<String>,
}

/// Runs a command on kinds.
pub(crate) async fn run(command: KindsCommand, config: &Config, output: &Output) -> Result<()> {
    match command {
        KindsCommand::Ls => ls(config, output).await,
        KindsCommand::Set(args) => set(&args, config, output).await,
    }
}

async fn ls(config: &Config, output: &Output) -> Result<()> {
    let data = data::existing(config).await?;
    let kinds = data.store.kinds().await?;
    data.close().await?;
    output.answer(&json!({ "kinds": facts(&kinds)? }), || {
        if kinds.is_empty() {
            return "No kinds yet; a worker's handlers register theirs, or `tidegate kinds set NAME --queue QUEUE`.".into();
        }
        let mut table = Table::new(vec![
            Column::text("KIND", 12),
            Column::text("QUEUE", 8),
            Column::fixed("PRIORITY"),
            Column::fixed("TIMEOUT"),
            Column::number("ATTEMPTS").optional(1),
            Column::text("DESCRIPTION", 12).optional(2),
        ]);
        for kind in &kinds {
            let s = &kind.settings;
            table.row(vec![
                kind.name.to_string(),
                s.queue.to_string(),
                s.priority.to_string(),
                Millis(s.timeout_ms).to_string(),
                dash(s.max_attempts.map(|n| n.to_string()).as_deref()),
                dash(Some(&s.description)),
            ]);
        }
        table.render(output)
    })
}

async fn set(args: &SetArgs, config: &Config, output: &Output) -> Result<()> {
    let name: KindName = parse::name(&args.kind)?;
    let queue: Option<QueueName> = parse::optional_name(args.queue.as_deref())?;
    // Everything is read before a directory is made, so a mistake leaves nothing behind.
    let placeholder = QueueName::new("default")?;
    apply(args, KindSettings::new(queue.clone().unwrap_or(placeholder)))?;
    let data =
        if queue.is_some() { data::open_or_create(config).await? } else { data::existing(config).await? };
    let now = parse::now();
    let before = data.store.kinds().await?.into_iter().find(|k| k.name == name).map(|k| k.settings);
    if let Some(managed) = before.as_ref().filter(|settings| settings.managed) {
        return Err(described(&name, managed));
    }
    let base = match (&before, &queue) {
        (Some(settings), Some(queue)) => KindSettings { queue: queue.clone(), ..settings.clone() },
        (Some(settings), None) => settings.clone(),
        (None, Some(queue)) => KindSettings::new(queue.clone()),
        (None, None) => {
            return Err(Failure::new(codes::UNKNOWN_KIND, format!("there is no kind {name}"))
                .hint(format!("to add it, name its queue: tidegate kinds set {name} --queue QUEUE")));
        }
    };
    let settings = apply(args, base)?;
    data.store.ensure_queue(settings.queue.clone(), now).await?;
    data.store.put_kind(name.clone(), settings.clone()).await?;
    data.close().await?;
    output.answer(
        &json!({ "kind": name, "created": before.is_none(), "settings": facts(&settings)? }),
        || {
            let Some(before) = &before else {
                let usual = parts(&KindSettings::new(settings.queue.clone()));
                // Where its jobs go and how long they may take is worth a word, whatever it is.
                let set = parts(&settings).into_iter().zip(usual);
                let set = set
                    .filter(|((name, new), (_, usual))| new != usual || ["queue", "timeout"].contains(name));
                let set: Vec<String> = set.map(|((name, new), _)| format!("{name} {new}")).collect();
                return format!("Added kind {name}: {}.", set.join(", "));
            };
            match differences(parts(before), parts(&settings)).as_slice() {
                [] => format!("Kind {name} has these settings already."),
                changes => format!("Changed kind {name}: {}.", changes.join(", ")),
            }
        },
    )
}

/// What `kinds set` can set, in words.
fn parts(settings: &KindSettings) -> Vec<(&'static str, String)> {
    let none = || "none".to_owned();
    let retry = settings.policy.clone().or_else(|| settings.retry.as_ref().map(retry_text));
    let quoted = |text: &String| format!("{text:?}");
    vec![
        ("queue", settings.queue.to_string()),
        ("description", Some(&settings.description).filter(|d| !d.is_empty()).map_or_else(none, quoted)),
        ("priority", settings.priority.to_string()),
        ("timeout", Millis(settings.timeout_ms).to_string()),
        ("max attempts", settings.max_attempts.map_or_else(none, |n| n.to_string())),
        ("connector", settings.connector.as_ref().map_or_else(none, ToString::to_string)),
        ("retry", retry.unwrap_or_else(|| "as its queue".into())),
    ]
}

/// A kind of a document is changed there: what is set beside it would be gone with the next apply.
fn described(name: &KindName, settings: &KindSettings) -> Failure {
    let document = settings.document.as_deref().unwrap_or("the registry's document");
    Failure::new(codes::KIND_MANAGED, format!("kind {name} is described by {document}: change it there")).hint(
        format!("`tidegate registry show {name}` prints it as it is; change the document and apply it with `tidegate registry apply FILE` (one that the document no longer names is written there again)"),
    )
}

fn apply(args: &SetArgs, mut settings: KindSettings) -> Result<KindSettings> {
    if let Some(text) = &args.description {
        settings.description.clone_from(text);
    }
    if let Some(text) = &args.priority {
        settings.priority = parse::word(text)?;
    }
    if let Some(text) = &args.timeout {
        settings.timeout_ms = parse::span(text)?;
    }
    if let Some(text) = &args.max_attempts {
        settings.max_attempts = parse::or_none(text, |t| parse::number("max-attempts", t))?;
    }
    if let Some(text) = &args.connector {
        settings.connector = parse::or_none(text, parse::name)?;
    }
    if let Some(text) = &args.retry {
        settings.retry = if text == "inherit" { None } else { Some(policy(text)?) };
        settings.policy = settings.retry.is_some().then(|| text.clone());
    }
    settings.check().map_err(|e| Failure::new(codes::INVALID_SETTING, e))?;
    Ok(settings)
}
