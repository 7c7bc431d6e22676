//! Looking at schedules: all, one, what comes, what was.

use clap::Args;
use serde_json::json;
use tidegate_core::codes;
use tidegate_core::ids::ScheduleName;
use tidegate_core::schedule::{Decided, Missed, Overlap, ScheduleSettings, TickEntry};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::params::{ScheduleView, TickQuery};
use tidegate_wire::Time;
use tidegate_wire::schedules::{NextRuns, Tick};

use super::put::TimeArgs;
use super::{named, schedule_json};
use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Column, Output, Table, dash, plural, short_when, short_when_in, stamp};
use crate::parse;

/// Arguments of `schedules next`.
#[derive(Debug, Args)]
pub(crate) struct NextArgs {
    /// The schedule; not needed with --cron, --every or --at
    #[arg(required_unless_present_any = ["cron", "every", "at"])]
    name: Option<String>,
    /// How many
    #[arg(short, long, value_name = "N", default_value_t = 10)]
    n: usize,
    #[command(flatten)]
    times: TimeArgs,
}

/// Arguments of `schedules history`.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// The schedule
    name: String,
    /// At most so many lines
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Lines with smaller numbers than this
    #[arg(long, value_name = "NO")]
    before: Option<u64>,
}

/// When it ticks, in a few words.
pub(super) fn when(settings: &ScheduleSettings) -> String {
    let zone = settings.zone.as_deref().map_or(String::new(), |zone| format!(" {zone}"));
    if let Some(cron) = &settings.cron {
        return format!("{cron}{zone}");
    }
    if let Some(every) = &settings.every {
        return format!("every {every}");
    }
    settings.at.as_ref().map_or_else(String::new, |at| format!("at {at}{zone}"))
}

/// How the sentence about the next run begins; beside the word "next" it says the time alone.
const NEXT_RUN: &str = "next run ";

/// When a schedule runs next that its document no longer has.
const RETIRED: &str = "none: its document no longer has it; its history stays";

/// When it runs next, in a sentence.
pub(super) fn next_sentence(schedule: &ScheduleView) -> String {
    if schedule.retired.is_some() {
        return RETIRED.into();
    }
    match (&schedule.paused, schedule.next) {
        (Some(pause), _) => format!("paused by {}", pause.by),
        (None, Some(next)) => format!("{NEXT_RUN}{}", local(&schedule.settings, next)),
        (None, None) => "it has no further runs".into(),
    }
}

/// A time in a table, by the clock of the schedule's zone: that is the one its times are written in.
fn by_its_clock(settings: &ScheduleSettings, at: Timestamp, now: Timestamp) -> String {
    settings
        .compile()
        .map_or_else(|_| short_when(at, now), |compiled| short_when_in(at, now, compiled.zone.time_zone()))
}

fn local(settings: &ScheduleSettings, at: Timestamp) -> String {
    settings.compile().map_or_else(|_| at.to_string(), |compiled| readable(&compiled.local(at)))
}

/// A local time without the name of its zone, which is said elsewhere: `2026-11-17 00:30:00-03:00`.
fn readable(local: &str) -> String {
    local.split('[').next().unwrap_or(local).replacen('T', " ", 1)
}

/// What a line of the ledger says, in a few words.
fn outcome(entry: &TickEntry) -> String {
    match &entry.what {
        Decided::Fired { ended: Some(ended), .. } => ended.state.to_string(),
        Decided::Fired { ended: None, .. } => "not finished".into(),
        Decided::Skipped { reason, .. } => format!("skipped: {}", reason.word()),
    }
}

pub(super) async fn ls(config: &Config, output: &Output) -> Result<()> {
    let data = data::existing(config).await?;
    let now = parse::now();
    let schedules = data.store.schedules().await?;
    data.close().await?;
    let all: Vec<_> = schedules.iter().map(schedule_json).collect();
    output.answer(&json!({ "schedules": all }), || {
        if schedules.is_empty() {
            return "No schedules yet; `tidegate schedules put NAME --kind KIND --cron '0 3 * * *'` adds one.".into();
        }
        table(&schedules, now).render(output)
    })
}

fn table(schedules: &[ScheduleView], now: Timestamp) -> Table {
    let mut table = Table::new(vec![
        // Whole names are what other commands take; of a kind the name often says the same.
        Column::text("SCHEDULE", 24),
        Column::text("KIND", 10).optional(3),
        Column::text("WHEN", 22),
        Column::fixed("NEXT"),
        Column::fixed("LAST").optional(2),
        Column::text("RESULT", 9),
        Column::number("WAITING").optional(4),
        Column::path("MANAGED BY", 10, 24).optional(1),
    ]);
    for s in schedules {
        let next = match (&s.paused, s.next) {
            _ if s.retired.is_some() => "retired".into(),
            (Some(_), _) => "paused".into(),
            (None, next) => dash(next.map(|t| by_its_clock(&s.settings, t, now)).as_deref()),
        };
        table.row(vec![
            s.name.to_string(),
            s.kind.to_string(),
            when(&s.settings),
            next,
            dash(s.last.as_ref().map(|entry| short_when(entry.at, now)).as_deref()),
            dash(s.last.as_ref().map(outcome).as_deref()),
            s.waiting.len().to_string(),
            dash(s.document.as_deref()),
        ]);
    }
    table
}

pub(super) async fn show(name: &str, config: &Config, output: &Output) -> Result<()> {
    let name: ScheduleName = parse::name(name)?;
    let data = data::existing(config).await?;
    let now = parse::now();
    let schedule = named(&*data.store, &name).await;
    data.close().await?;
    let schedule = schedule?;
    output.answer(&json!({ "schedule": schedule_json(&schedule) }), || described(&schedule, now))
}

fn described(schedule: &ScheduleView, now: Timestamp) -> String {
    let settings = &schedule.settings;
    let mut lines = vec![format!("schedule  {}", schedule.name)];
    let mut line = |what: &str, text: String| lines.push(format!("{what:<9} {text}"));
    if !settings.description.is_empty() {
        line("for", settings.description.clone());
    }
    line("kind", schedule.kind.to_string());
    if let Some(document) = &schedule.document {
        line("managed", format!("by the registry's document {document}; it is changed there"));
    }
    line("when", when(settings));
    let next = next_sentence(schedule);
    line("next", next.strip_prefix(NEXT_RUN).unwrap_or(&next).to_owned());
    line("overlap", overlap(settings.overlap).into());
    line("missed", missed(settings.missed));
    if let Some(jitter) = &settings.jitter {
        line("jitter", format!("up to {jitter}"));
    }
    if !settings.after.is_empty() {
        let names: Vec<&str> = settings.after.iter().map(ScheduleName::as_str).collect();
        line("after", format!("{} of the same day", names.join(", ")));
    }
    if let Some(payload) = &settings.payload {
        line("payload", payload.to_string());
    }
    for run in &schedule.open {
        if let Decided::Fired { job, .. } = &run.what {
            line("running", format!("{job}, planned {}", stamp(run.planned, now)));
        }
    }
    for tick in &schedule.waiting {
        line("waiting", format!("planned {}", stamp(tick.planned, now)));
    }
    if let Some(last) = &schedule.last {
        line("last", format!("{}, planned {}", outcome(last), stamp(last.planned, now)));
        if let Decided::Skipped { note, .. } = &last.what {
            line("", note.clone());
        }
    }
    line("since", stamp(schedule.created_at, now));
    lines.join("\n") + "\n"
}

fn overlap(overlap: Overlap) -> &'static str {
    match overlap {
        Overlap::Skip => "a tick is skipped while an earlier run is not finished",
        Overlap::Queue => "a tick waits while an earlier run is not finished",
        Overlap::Allow => "runs may overlap",
    }
}

fn missed(missed: Missed) -> String {
    match missed {
        Missed::Skip => "missed ticks are skipped".into(),
        Missed::RunOnce => "the newest missed tick is run".into(),
        Missed::RunAll(n) => format!("the newest {n} missed ticks are run"),
    }
}

/// What is said of a run that nobody fired.
fn unfired(next: &NextRuns, now: Timestamp) -> String {
    let overdue = |planned: Time| {
        let planned = stamp(planned.0, now);
        format!(
            "The run planned for {planned} is overdue: nobody fires schedules; start `tidegate serve` or a worker.\n"
        )
    };
    let missed = |planned: Time| {
        let planned = stamp(planned.0, now);
        format!(
            "Nobody fired the run planned for {planned}: when it is resumed, its rule for missed ticks decides.\n"
        )
    };
    next.overdue.map(overdue).or_else(|| next.missed.map(missed)).unwrap_or_default()
}

fn upcoming(next: &NextRuns, now: Timestamp, output: &Output) -> String {
    if next.retired.is_some() {
        return RETIRED.into();
    }
    let unfired = unfired(next, now);
    if next.runs.is_empty() {
        // A pause does not matter to what has no runs.
        return unfired + "It has no further runs.";
    }
    let paused = next.paused.as_ref().map_or_else(String::new, |pause| {
        let since = stamp(pause.since.0, now);
        format!("Paused by {} since {since}: these would be its runs if it were resumed now.\n", pause.by)
    });
    let mut table = Table::new(vec![
        Column::fixed("PLANNED"),
        Column::fixed("IN").optional(1),
        Column::text("LOCAL", 20),
    ]);
    for run in &next.runs {
        let ahead = run.due.0.since(now);
        let ahead = if ahead > 0 { Millis(ahead).to_string() } else { "now".into() };
        table.row(vec![run.planned.to_string(), ahead, readable(&run.local)]);
    }
    paused + &unfired + &table.render(output)
}

pub(super) async fn next(args: &NextArgs, config: &Config, output: &Output) -> Result<()> {
    let n = args.n.clamp(1, 1_000);
    let found = if args.times.says_when() {
        let mut settings = ScheduleSettings::default();
        args.times.apply(&mut settings);
        let name = parse::optional_name(args.name.as_deref())?.map_or_else(|| parse::name("new"), Ok)?;
        NextRuns::after(&name, &settings, parse::now(), n)
    } else {
        let name: ScheduleName = parse::name(args.name.as_deref().unwrap_or_default())?;
        let data = data::existing(config).await?;
        let schedule = named(&*data.store, &name).await;
        data.close().await?;
        NextRuns::of(&schedule?, n, parse::now())
    };
    let found = found.map_err(|why| Failure::new(codes::INVALID_SCHEDULE, why))?;
    output.answer(&found, || upcoming(&found, parse::now(), output))
}

pub(super) async fn history(args: &HistoryArgs, config: &Config, output: &Output) -> Result<()> {
    let name: ScheduleName = parse::name(&args.name)?;
    let data = data::existing(config).await?;
    let now = parse::now();
    let found = match named(&*data.store, &name).await {
        Ok(_) => {
            let query = TickQuery { name: name.clone(), before: args.before, limit: args.limit.max(1) };
            data.store.schedule_ticks(query).await.map_err(Failure::from)
        }
        Err(failure) => Err(failure),
    };
    data.close().await?;
    let lines = found?;
    let all: Vec<Tick> = lines.iter().cloned().map(Tick::from).collect();
    output.answer(&json!({ "schedule": name, "ticks": all }), || {
        if lines.is_empty() {
            return format!("Schedule {name} has not ticked yet.");
        }
        ledger(&lines, now).render(output)
    })
}

fn ledger(lines: &[TickEntry], now: Timestamp) -> Table {
    let mut table = Table::new(vec![
        Column::number("NO").optional(3),
        Column::fixed("PLANNED"),
        Column::number("LATE"),
        Column::fixed("RESULT"),
        Column::text("JOB OR REASON", 20),
    ]);
    for entry in lines {
        let (late, what) = match &entry.what {
            Decided::Fired { job, late_ms, by_hand, .. } => {
                let by_hand = if *by_hand { " (by hand)" } else { "" };
                (Millis(*late_ms).to_string(), format!("{job}{by_hand}"))
            }
            Decided::Skipped { note, last, count, .. } => {
                let many = match (count, last) {
                    (Some(1), _) => String::new(),
                    (Some(n), _) => format!(
                        "{} to {}: ",
                        plural(*n, "tick"),
                        dash(last.map(|t| short_when(t, now)).as_deref())
                    ),
                    (None, _) => "more than can be counted: ".into(),
                };
                ("–".into(), format!("{many}{note}"))
            }
        };
        table.row(vec![entry.no.to_string(), short_when(entry.planned, now), late, outcome(entry), what]);
    }
    table
}
