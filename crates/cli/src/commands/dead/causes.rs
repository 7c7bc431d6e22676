//! Dead letters by what they died of, and what is done to them together.

use serde_json::json;
use tidegate_core::why::grouped;
use tidegate_store::letters::{Grant, reauthorize};
use tidegate_store::params::{CauseQuery, Causes, ProcessLetters, ProcessedLetters, Recovered};

use super::super::filter::Filter;
use super::{CausesArgs, ReauthorizedArgs};
use crate::config::Config;
use crate::data;
use crate::error::Result;
use crate::output::{Column, Output, Table, plural, short_when};
use crate::parse;

pub(super) async fn list(args: CausesArgs, config: &Config, output: &Output) -> Result<()> {
    let query = CauseQuery {
        queue: parse::optional_name(args.queue.as_deref())?,
        kind: parse::optional_name(args.kind.as_deref())?,
        tenant: parse::optional_name(args.tenant.as_deref())?,
        limit: args.limit as usize,
    };
    let data = data::existing(config).await?;
    let found = data.store.causes(query).await?;
    let named = Filter { queue: args.queue, kind: args.kind, ..Filter::default() };
    let unknown = if found.total == 0 { named.unknown(&*data.store).await } else { None };
    data.close().await?;
    let value = super::super::facts(&found)?;
    output.answer(&value, || match unknown {
        _ if found.total > 0 => table(&found, output),
        Some(unknown) => format!("No dead letters that wait for review. {unknown}"),
        None => "No dead letters that wait for review.".into(),
    })
}

/// Causes with their letters.
pub(crate) fn table(found: &Causes, output: &Output) -> String {
    let now = parse::now();
    let mut table = Table::new(vec![
        Column::fixed("CAUSE"),
        Column::number("LETTERS"),
        Column::text("KIND", 10),
        Column::fixed("CATEGORY").optional(3),
        Column::text("ERROR", 16).below(),
        Column::fixed("FIRST").optional(2),
        Column::fixed("LAST").optional(1),
        Column::fixed("EXAMPLE").optional(4),
    ]);
    for cause in &found.causes {
        table.row(vec![
            cause.cause.map_or_else(|| "-".into(), |c| c.to_string()),
            grouped(cause.count),
            cause.kind.to_string(),
            cause.category.as_str().into(),
            format!("{}: {}", cause.code, cause.message),
            short_when(cause.first_at, now),
            short_when(cause.last_at, now),
            cause.example.to_string(),
        ]);
    }
    let mut text = table.render(output);
    if found.other > 0 {
        let other = format!("{} of other causes.", plural(found.other, "letter"));
        text += &output.style.dim(&other);
        text.push('\n');
    }
    text
}

pub(super) async fn reauthorized(args: ReauthorizedArgs, config: &Config, output: &Output) -> Result<()> {
    let grant = Grant {
        tenant: parse::optional_name(Some(&args.tenant))?,
        connector: parse::optional_name(args.connector.as_deref())?,
        kind: parse::optional_name(args.kind.as_deref())?,
    };
    let data = data::existing(config).await?;
    let (mut recovered, mut resolved, mut after) = (0_u64, 0_u64, None);
    loop {
        let mint = || (!args.resolve).then(parse::new_id);
        let page = reauthorize(&*data.store, &grant, after, "operator", mint, parse::now()).await?;
        for (_, became) in &page.letters {
            recovered += u64::from(matches!(became, Recovered::As(_)));
            resolved += u64::from(matches!(became, Recovered::Resolved));
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    data.close().await?;
    output.answer(&json!({ "recovered": recovered, "resolved": resolved }), || match (recovered, resolved) {
        (0, 0) => "No dead letters waited for this authorization.".into(),
        (0, n) => format!("{} resolved.", plural(n, "dead letter")),
        (n, _) => format!("{} recovered as new jobs.", plural(n, "dead letter")),
    })
}

pub(super) async fn process(config: &Config, output: &Output) -> Result<()> {
    let data = data::existing(config).await?;
    let every_ms = config.span_ms("letters.every");
    let mut done = ProcessedLetters::default();
    loop {
        let step = ProcessLetters { every_ms, at_once: true, now: parse::now() };
        done.add(&data.store.process_letters(step).await?);
        if !done.more {
            break;
        }
    }
    data.close().await?;
    let value = super::super::facts(&done)?;
    output.answer(&value, || {
        let ProcessedLetters { looked_at, retried, asked, reminded, abandoned, left, .. } = done;
        format!(
            "Looked at {}: {retried} run again, {asked} asked for authorization, {reminded} reminded, \
             {abandoned} given up, {left} left as they are.",
            plural(looked_at, "dead letter")
        )
    })
}
