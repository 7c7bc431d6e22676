//! `tidegate schedules`: what runs when. Look, put, pause, run, see what became of each tick, fill dates of the past.

mod backfill;
mod look;
mod put;

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_core::codes;
use tidegate_core::ids::ScheduleName;
use tidegate_store::Store;
use tidegate_store::params::ScheduleView;
use tidegate_wire::nearest;
use tidegate_wire::schedules::Schedule;

use super::parks::OPERATOR;
use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::Output;
use crate::parse;

/// Commands on schedules.
#[derive(Debug, Subcommand)]
pub(crate) enum SchedulesCommand {
    /// List schedules
    #[command(
        visible_alias = "list",
        after_help = "Examples:
  tidegate schedules ls
  tidegate schedules ls --json | jq -r '.schedules[] | select(.paused != null) | .name'"
    )]
    Ls,
    /// Show one schedule: when it runs, what it waits for, what came last
    #[command(after_help = "Examples:
  tidegate schedules show streak-check")]
    Show(NameArgs),
    /// Add a schedule or change it; what is not given stays
    #[command(after_help = "Examples:
  tidegate schedules put streak-check --kind streak-check --cron '30 0 * * *' --zone America/Sao_Paulo
  tidegate schedules put metrics --kind queue-metrics --every 5m --jitter 20s
  tidegate schedules put graph --kind graph.build --cron '15 4 * * *' --after aggregate --overlap queue
  tidegate schedules put launch --kind mail.send --at 2026-12-24T18:00 --zone Europe/Berlin --data '{\"to\":\"all\"}'
  tidegate schedules put metrics --every 1m        change the times; they begin now

Cron has five fields (minute, hour, day of month, month, day of week), or six with seconds first; names, \
ranges, steps and lists; @hourly, @daily, @weekly, @monthly, @yearly. A time that the clock of the zone \
jumps over comes right after the jump, one that it shows twice comes once; schedules of every hour follow \
the hours that pass.")]
    Put(Box<put::PutArgs>),
    /// Pause a schedule: what comes until it is resumed is skipped
    #[command(after_help = "Examples:
  tidegate schedules pause streak-check --by ada")]
    Pause(PauseArgs),
    /// Go on with a schedule; what came during the pause is not made up for
    #[command(after_help = "Examples:
  tidegate schedules resume streak-check")]
    Resume(NameArgs),
    /// Run its job now, outside its times
    #[command(after_help = "Examples:
  tidegate schedules run streak-check")]
    Run(NameArgs),
    /// When a schedule runs next, by UTC and by its own clock
    #[command(after_help = "Examples:
  tidegate schedules next streak-check -n 5
  tidegate schedules next --cron '30 2 * * *' --zone America/New_York    before there is a schedule")]
    Next(look::NextArgs),
    /// What became of its ticks: fired, how late, how it ended; or skipped, and why
    #[command(after_help = "Examples:
  tidegate schedules history streak-check
  tidegate schedules history streak-check --limit 200 --json | jq '.ticks[] | select(.skipped)'")]
    History(look::HistoryArgs),
    /// Delete a schedule and its history; jobs that it enqueued stay
    #[command(
        visible_alias = "remove",
        after_help = "Examples:
  tidegate schedules rm streak-check"
    )]
    Rm(NameArgs),
    /// Enqueue a kind once for each date of a range
    #[command(after_help = "Examples:
  tidegate schedules backfill daily-feature-aggregation --days 28 --data '{\"backfill\":true}'
  tidegate schedules backfill report.build --from 2026-10-18 --to 2026-11-14 --stagger 30s --dry-run

Each job gets its date as the field `date` of its payload. A date that was filled in the last 30 days is \
left alone; --label NAME fills it again.")]
    Backfill(backfill::BackfillArgs),
}

/// One schedule.
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// The schedule
    name: String,
}

/// Arguments of `schedules pause`.
#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// The schedule
    name: String,
    /// Who pauses it
    #[arg(long, value_name = "NAME", default_value = OPERATOR)]
    by: String,
}

/// Runs a command on schedules.
pub(crate) async fn run(command: SchedulesCommand, config: &Config, output: &Output) -> Result<()> {
    match command {
        SchedulesCommand::Ls => look::ls(config, output).await,
        SchedulesCommand::Show(args) => look::show(&args.name, config, output).await,
        SchedulesCommand::Put(args) => put::put(*args, config, output).await,
        SchedulesCommand::Pause(args) => pause(&args, config, output).await,
        SchedulesCommand::Resume(args) => resume(&args.name, config, output).await,
        SchedulesCommand::Run(args) => run_now(&args.name, config, output).await,
        SchedulesCommand::Next(args) => look::next(&args, config, output).await,
        SchedulesCommand::History(args) => look::history(&args, config, output).await,
        SchedulesCommand::Rm(args) => remove(&args.name, config, output).await,
        SchedulesCommand::Backfill(args) => backfill::backfill(args, config, output).await,
    }
}

/// A schedule for programs.
fn schedule_json(schedule: &ScheduleView) -> Schedule {
    Schedule::from(schedule.clone())
}

/// The schedule, or the error that names the nearest.
async fn named(store: &dyn Store, name: &ScheduleName) -> Result<ScheduleView> {
    if let Some(schedule) = store.schedule(name.clone()).await? {
        return Ok(schedule);
    }
    let all = store.schedules().await?;
    let failure = Failure::new(codes::SCHEDULE_NOT_FOUND, format!("there is no schedule {name}"));
    Err(match nearest(name.as_str(), all.iter().map(|s| s.name.as_str())) {
        Some(near) => failure.hint(format!("did you mean {near}?")),
        None => failure,
    })
}

/// What the store said about a schedule, with what to do if it is a retired one: nothing of that can be waited for.
fn refused(error: tidegate_store::Error, schedule: &ScheduleView) -> Failure {
    if error.code != codes::WRONG_SCHEDULE_STATE || schedule.retired.is_none() {
        return error.into();
    }
    let ScheduleView { name, kind, document, .. } = schedule;
    let document = document.as_deref().unwrap_or("its document");
    Failure::from(error).hint(format!(
        "write it into {document} again and apply that with `tidegate registry apply FILE`, or put one of your own in its place: tidegate schedules put {name} --kind {kind} --cron '0 3 * * *'"
    ))
}

async fn pause(args: &PauseArgs, config: &Config, output: &Output) -> Result<()> {
    let name: ScheduleName = parse::name(&args.name)?;
    let data = data::existing(config).await?;
    let before = named(&*data.store, &name).await?;
    let paused = data.store.pause_schedule(name.clone(), args.by.clone(), parse::now()).await;
    data.close().await?;
    let schedule = paused.map_err(|e| refused(e, &before))?;
    let was_paused = before.paused.is_some();
    output.answer(&json!({ "schedule": schedule_json(&schedule), "was_paused": was_paused }), || {
        if let Some(pause) = &before.paused {
            return format!("Schedule {name} was paused already, by {}.", pause.by);
        }
        format!(
            "Paused schedule {name}. What runs goes on; `tidegate schedules resume {name}` goes on with it."
        )
    })
}

async fn resume(name: &str, config: &Config, output: &Output) -> Result<()> {
    let name: ScheduleName = parse::name(name)?;
    let data = data::existing(config).await?;
    let before = named(&*data.store, &name).await?;
    let resumed = data.store.resume_schedule(name.clone(), parse::now()).await;
    data.close().await?;
    let schedule = resumed.map_err(|e| refused(e, &before))?;
    let was_paused = before.paused.is_some();
    output.answer(&json!({ "schedule": schedule_json(&schedule), "was_paused": was_paused }), || {
        let done = if was_paused {
            format!("Resumed schedule {name}")
        } else {
            format!("Schedule {name} was not paused")
        };
        format!("{done}; {}.", look::next_sentence(&schedule))
    })
}

async fn run_now(name: &str, config: &Config, output: &Output) -> Result<()> {
    let name: ScheduleName = parse::name(name)?;
    let data = data::existing(config).await?;
    let schedule = named(&*data.store, &name).await?;
    let job = data.store.run_schedule(name.clone(), parse::now()).await;
    data.close().await?;
    let job = job.map_err(|e| refused(e, &schedule))?;
    output.answer(&json!({ "schedule": name, "job": job }), || {
        format!("Enqueued {job} for schedule {name}. `tidegate why {job}` says where it stands.")
    })
}

async fn remove(name: &str, config: &Config, output: &Output) -> Result<()> {
    let name: ScheduleName = parse::name(name)?;
    let data = data::existing(config).await?;
    named(&*data.store, &name).await?;
    let removed = data.store.delete_schedule(name.clone(), parse::now()).await;
    data.close().await?;
    output.answer(&json!({ "removed": removed?, "schedule": name }), || {
        format!("Deleted schedule {name} and its history; jobs that it enqueued stay.")
    })
}
