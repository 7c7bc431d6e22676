//! `tidegate registry`: queues and kinds as one document, to keep beside the code and to carry from one store to
//! another. Applying a document adds and changes what it names and leaves everything else alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tidegate_core::codes;
use tidegate_core::ids::{KindName, QueueName};
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_store::Store;

use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Output, clean, plural, print};
use crate::parse;

/// Commands on the registry.
#[derive(Debug, Subcommand)]
pub(crate) enum RegistryCommand {
    /// Print queues and kinds as TOML or JSON; settings that are the defaults are left out
    #[command(after_help = "Examples:
  tidegate registry show > registry.toml
  tidegate registry show invoice.send
  tidegate registry show --format json --full")]
    Show(ShowArgs),
    /// Add and change the queues and kinds that a file names; what it does not name stays
    #[command(after_help = "Examples:
  tidegate registry apply registry.toml --dry-run
  tidegate registry apply registry.toml

A file looks like this:
  [queues.billing]
  concurrency = 50
  limiter = { max = 30, per_ms = 1000 }

  [kinds.\"invoice.send\"]
  queue = \"billing\"
  timeout_ms = 30000")]
    Apply(ApplyArgs),
}

/// How a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Toml,
    Json,
}

/// Arguments of `registry show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Only queues and kinds of these names
    #[arg(value_name = "NAME")]
    names: Vec<String>,
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

/// Queues and kinds.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Document {
    queues: BTreeMap<QueueName, QueueSettings>,
    kinds: BTreeMap<KindName, KindSettings>,
}

/// Runs a command on the registry.
pub(crate) async fn run(command: RegistryCommand, config: &Config, output: &Output) -> Result<()> {
    match command {
        RegistryCommand::Show(args) => show(&args, config, output).await,
        RegistryCommand::Apply(args) => apply(&args, config, output).await,
    }
}

async fn stored(store: &dyn Store) -> Result<Document> {
    Ok(Document {
        queues: store.settings().await?.into_iter().collect(),
        kinds: store.kinds().await?.into_iter().map(|k| (k.name, k.settings)).collect(),
    })
}

async fn show(args: &ShowArgs, config: &Config, output: &Output) -> Result<()> {
    let data = data::existing(config).await?;
    let mut document = stored(&*data.store).await?;
    data.close().await?;
    if !args.names.is_empty() {
        let wanted = |name: &str| args.names.iter().any(|n| n == name);
        let known = |name: &String| {
            document.queues.keys().any(|q| q.as_str() == name)
                || document.kinds.keys().any(|k| k.as_str() == name)
        };
        if let Some(unknown) = args.names.iter().find(|n| !known(n)) {
            let shown: String = unknown.chars().take(60).collect();
            return Err(Failure::new(codes::UNKNOWN_KIND, format!("there is no queue or kind {shown:?}"))
                .hint("`tidegate queues ls` and `tidegate kinds ls` list them"));
        }
        document.queues.retain(|name, _| wanted(name.as_str()));
        document.kinds.retain(|name, _| wanted(name.as_str()));
    }
    let value = written(&document, args.full)?;
    if output.json || args.format == Format::Json {
        return print(&(serde_json::to_string_pretty(&value)? + "\n"));
    }
    let text = toml::to_string_pretty(&value)
        .map_err(|e| Failure::new(codes::INTERNAL, format!("could not be written as TOML: {e}")))?;
    print(if text.is_empty() { "# No queues and no kinds.\n" } else { &text })
}

/// The document as it is written: nothing where there is nothing, and without defaults unless asked for.
fn written(document: &Document, full: bool) -> Result<Value> {
    let mut queues = Map::new();
    for (name, settings) in &document.queues {
        let usual = serde_json::to_value(QueueSettings::default())?;
        queues.insert(name.to_string(), said(serde_json::to_value(settings)?, (!full).then_some(&usual)));
    }
    let mut kinds = Map::new();
    for (name, settings) in &document.kinds {
        let mut usual = serde_json::to_value(KindSettings::new(settings.queue.clone()))?;
        // A kind is not one without its queue.
        usual["queue"] = Value::Null;
        kinds.insert(name.to_string(), said(serde_json::to_value(settings)?, (!full).then_some(&usual)));
    }
    let mut whole = Map::new();
    whole.extend(
        [("queues", queues), ("kinds", kinds)]
            .into_iter()
            .filter(|(_, m)| !m.is_empty())
            .map(|(k, m)| (k.to_owned(), m.into())),
    );
    Ok(whole.into())
}

/// The fields that say something.
fn said(settings: Value, usual: Option<&Value>) -> Value {
    let Value::Object(fields) = settings else { return settings };
    let keep = |(name, value): &(String, Value)| {
        !value.is_null() && usual.is_none_or(|u| u[name.as_str()] != *value)
    };
    Value::Object(fields.into_iter().filter(keep).map(|(k, v)| (k, without_nulls(v))).collect())
}

/// TOML has no null.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect(),
        ),
        other => other,
    }
}

/// One queue or kind that is not as the document wants it.
#[derive(Debug, Serialize)]
struct Difference {
    what: &'static str,
    name: String,
    change: &'static str,
    /// What differs, as (field, now, wanted).
    fields: Vec<(String, Value, Value)>,
}

async fn apply(args: &ApplyArgs, config: &Config, output: &Output) -> Result<()> {
    // Everything is read before a store is made, so a mistake leaves nothing behind.
    let wanted = read(&args.file)?;
    let data =
        if args.dry_run { data::existing(config).await? } else { data::open_or_create(config).await? };
    let there = stored(&*data.store).await?;
    check(&wanted, &there)?;
    let differences = differences(&there, &wanted)?;
    if !args.dry_run {
        write(&*data.store, &wanted, &there).await?;
    }
    data.close().await?;
    let same = wanted.queues.len() + wanted.kinds.len() - differences.len();
    let alone = there.queues.keys().filter(|q| !wanted.queues.contains_key(*q)).count()
        + there.kinds.keys().filter(|k| !wanted.kinds.contains_key(*k)).count();
    let value =
        json!({ "dry_run": args.dry_run, "changes": differences, "unchanged": same, "left_alone": alone });
    output.answer(&value, || {
        let mut text = String::new();
        for difference in &differences {
            let _ = writeln!(text, "{} {} {}", difference.change, difference.what, difference.name);
            for (field, now, then) in &difference.fields {
                let _ = writeln!(text, "    {field}: {} → {}", shown(now), shown(then));
            }
        }
        let done = if args.dry_run { "would change; nothing was changed" } else { "changed" };
        let _ =
            write!(text, "{} {done}", plural(differences.len() as u64, "entry").replace("entrys", "entries"));
        let _ =
            write!(text, "; {same} as wanted; {alone} in the store that the file does not name, left alone.");
        text
    })
}

fn shown(value: &Value) -> String {
    if value.is_null() { "–".into() } else { clean(&value.to_string()) }
}

fn read(file: &Path) -> Result<Document> {
    let shown = file.display();
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.map_err(|e| {
        Failure::new(codes::INVALID_REQUEST, format!("{shown} could not be read: {e}")).hint("check the path")
    })?;
    let refuse = |line: usize, what: &str| {
        Failure::new(codes::INVALID_SETTING, format!("{shown}:{line}: {}", clean(what)))
            .detail("nothing was changed")
            .hint("`tidegate registry show` prints a document that is right")
    };
    if file.extension().is_some_and(|e| e.eq_ignore_ascii_case("json")) {
        return serde_json::from_str(&text).map_err(|e| refuse(e.line(), &e.to_string()));
    }
    toml::from_str(&text).map_err(|e| {
        let at = e.span().map_or(0, |s| s.start);
        refuse(text.bytes().take(at).filter(|b| *b == b'\n').count() + 1, e.message())
    })
}

/// Everything must be acceptable before anything is written.
fn check(wanted: &Document, there: &Document) -> Result<()> {
    let refuse = |what: String| Failure::new(codes::INVALID_SETTING, what).detail("nothing was changed");
    for (name, settings) in &wanted.queues {
        settings.check().map_err(|e| refuse(format!("queue {name}: {e}")))?;
    }
    for (name, settings) in &wanted.kinds {
        settings.check().map_err(|e| refuse(format!("kind {name}: {e}")))?;
        if !wanted.queues.contains_key(&settings.queue) && !there.queues.contains_key(&settings.queue) {
            return Err(Failure::new(
                codes::UNKNOWN_QUEUE,
                format!("kind {name}: there is no queue {}", settings.queue),
            )
            .detail("nothing was changed")
            .hint(format!("add [queues.{}] to the file, even if it is empty", settings.queue)));
        }
    }
    Ok(())
}

fn differences(there: &Document, wanted: &Document) -> Result<Vec<Difference>> {
    let mut all = vec![];
    for (name, settings) in &wanted.queues {
        let now = there.queues.get(name).map(serde_json::to_value).transpose()?;
        all.extend(difference("queue", name.as_str(), now, &serde_json::to_value(settings)?));
    }
    for (name, settings) in &wanted.kinds {
        let now = there.kinds.get(name).map(serde_json::to_value).transpose()?;
        all.extend(difference("kind", name.as_str(), now, &serde_json::to_value(settings)?));
    }
    Ok(all)
}

fn difference(what: &'static str, name: &str, now: Option<Value>, then: &Value) -> Option<Difference> {
    let change = if now.is_some() { "change" } else { "add" };
    let now = now.unwrap_or_else(|| json!({}));
    let fields = then.as_object()?.iter();
    let fields: Vec<_> = fields
        .filter(|(field, value)| now[field.as_str()] != **value)
        .map(|(field, value)| (field.clone(), now[field.as_str()].clone(), value.clone()))
        .collect();
    let added = change == "add";
    (added || !fields.is_empty()).then(|| Difference {
        what,
        name: name.to_owned(),
        change,
        fields: if added { vec![] } else { fields },
    })
}

async fn write(store: &dyn Store, wanted: &Document, there: &Document) -> Result<()> {
    for (name, settings) in &wanted.queues {
        if there.queues.get(name) != Some(settings) {
            store.put_queue(name.clone(), settings.clone(), parse::now()).await?;
        }
    }
    for (name, settings) in &wanted.kinds {
        if there.kinds.get(name) != Some(settings) {
            store.put_kind(name.clone(), settings.clone()).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_applied_again() {
        let text = "[queues.billing]\nconcurrency = 5\nlimiter = { max = 30, per_ms = 1000 }\n\n[kinds.\"invoice.send\"]\nqueue = \"billing\"\nmax_attempts = 3\n";
        let document: Document = toml::from_str(text).unwrap();
        for full in [false, true] {
            let shown = toml::to_string_pretty(&written(&document, full).unwrap()).unwrap();
            assert_eq!(toml::from_str::<Document>(&shown).unwrap(), document, "{shown}");
            assert_eq!(shown.contains("weight"), full, "{shown}");
        }
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let there: Document = toml::from_str("[queues.a]\n[queues.b]\nweight = 2\n").unwrap();
        let wanted: Document = toml::from_str("[queues.a]\n[queues.b]\nweight = 3\n[queues.c]\n").unwrap();
        let found = differences(&there, &wanted).unwrap();
        let said: Vec<_> = found.iter().map(|d| (d.change, d.name.as_str(), d.fields.len())).collect();
        assert_eq!(said, [("change", "b", 1), ("add", "c", 0)]);
    }
}
