//! `tidegate schedules backfill`.

use clap::Args;
use jiff::ToSpan as _;
use jiff::civil::Date;
use tidegate_core::codes;
use tidegate_core::ids::KindName;
use tidegate_core::schedule::{Backfill, BackfillRun, Zone};
use tidegate_core::time::Millis;
use tidegate_store::params::NewJob;
use tidegate_wire::schedules::Backfilled;

use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Output, plural};
use crate::parse;

/// Arguments of `schedules backfill`.
#[derive(Debug, Args)]
pub(crate) struct BackfillArgs {
    /// Kind of the jobs
    kind: String,
    /// The first date, like 2026-10-18
    #[arg(long, value_name = "DATE", required_unless_present = "days")]
    from: Option<String>,
    /// The last date; yesterday if it is not given
    #[arg(long, value_name = "DATE")]
    to: Option<String>,
    /// So many days up to the last date, in place of --from
    #[arg(long, value_name = "N", conflicts_with = "from")]
    days: Option<i64>,
    /// Zone that says what day it is
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,
    /// Time between two jobs
    #[arg(long, value_name = "SPAN", default_value = "5s")]
    stagger: String,
    /// Payload of the jobs, an object; each gets its date
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Field of the payload that gets the date
    #[arg(long, value_name = "FIELD", default_value = "date")]
    field: String,
    /// Fill dates again that were filled under another label
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// Show what would be enqueued and do nothing
    #[arg(long)]
    dry_run: bool,
}

fn refuse(why: String) -> Failure {
    Failure::new(codes::INVALID_REQUEST, why).hint("`tidegate schedules backfill --help` has examples")
}

fn read(args: BackfillArgs) -> Result<(Backfill, bool)> {
    let kind: KindName = parse::name(&args.kind)?;
    let payload = args
        .data
        .as_deref()
        .map(|text| -> Result<_> { Ok(serde_json::from_str(parse::payload(text)?.as_str())?) });
    let to = match args.to {
        Some(to) => to,
        None => yesterday(&args.zone)?.to_string(),
    };
    let from = match (args.from, args.days) {
        (Some(from), _) => from,
        (None, Some(days)) if days >= 1 => {
            let last: Date = to
                .parse()
                .map_err(|_| refuse(format!("to: {to:?} is not a date; write it like 2026-10-18")))?;
            last.saturating_sub((days - 1).min(100_000).days()).to_string()
        }
        (None, _) => return Err(refuse("days: at least 1".into())),
    };
    let (stagger, field) = (Some(args.stagger), Some(args.field));
    let backfill =
        Backfill { kind, from, to, stagger, payload: payload.transpose()?, field, label: args.label };
    Ok((backfill, args.dry_run))
}

fn yesterday(zone: &str) -> Result<Date> {
    let zone: Zone = zone.parse().map_err(|e| refuse(format!("zone: {e}")))?;
    let now = jiff::Timestamp::from_millisecond(parse::now().0).map_err(|e| refuse(e.to_string()))?;
    now.to_zoned(zone.time_zone().clone()).date().yesterday().map_err(|e| refuse(e.to_string()))
}

pub(super) async fn backfill(args: BackfillArgs, config: &Config, output: &Output) -> Result<()> {
    let (backfill, dry_run) = read(args)?;
    let runs = backfill.runs().map_err(refuse)?;
    if dry_run {
        let dates: Vec<String> = runs.iter().map(|run| run.date.to_string()).collect();
        return output.answer(&serde_json::json!({ "kind": backfill.kind, "dates": dates }), || {
            format!(
                "Would enqueue {} of {}: {}.",
                plural(runs.len() as u64, "job"),
                backfill.kind,
                span(&runs)
            )
        });
    }
    let data = data::existing(config).await?;
    let now = parse::now();
    let jobs = runs
        .iter()
        .map(|run| NewJob::of_backfill(parse::new_id(), backfill.kind.clone(), run, now))
        .collect();
    let replies = data.store.enqueue(jobs, now).await;
    data.close().await?;
    let done = Backfilled::new(runs.iter().map(|run| run.date.to_string()), &replies?);
    output.answer(&done, || {
        if done.created == 0 {
            return nothing_new(&backfill.kind, &runs);
        }
        let kept = if done.kept == 0 {
            String::new()
        } else {
            format!("; {} had been filled before", plural(done.kept, "date"))
        };
        format!("Enqueued {} of {}: {}{kept}.", plural(done.created, "job"), backfill.kind, span(&runs))
    })
}

fn nothing_new(kind: &KindName, runs: &[BackfillRun]) -> String {
    let dates = match (runs.first(), runs.last()) {
        (Some(first), Some(last)) if first.date != last.date => {
            format!("all {} dates from {} to {}", runs.len(), first.date, last.date)
        }
        (Some(first), _) => first.date.to_string(),
        (None, _) => "no date".into(),
    };
    format!("Nothing to enqueue of {kind}: {dates} had been filled before. `--label NAME` fills them again.")
}

fn span(runs: &[BackfillRun]) -> String {
    match (runs.first(), runs.last()) {
        (Some(first), Some(last)) if first.date != last.date => {
            format!("{} to {}, the last one in {}", first.date, last.date, Millis(last.delay_ms))
        }
        (Some(first), _) => first.date.to_string(),
        (None, _) => "no date".into(),
    }
}
