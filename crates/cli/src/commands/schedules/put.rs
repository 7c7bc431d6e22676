//! `tidegate schedules put`.

use clap::Args;
use serde_json::json;
use tidegate_core::codes;
use tidegate_core::ids::{KindName, ScheduleName};
use tidegate_core::schedule::{Missed, Overlap, ScheduleSettings, ScheduleSpec, Times};
use tidegate_core::time::Timestamp;
use tidegate_store::params::{PutSchedule, ScheduleChange};

use super::{look, named, schedule_json};
use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::Output;
use crate::parse;

/// Arguments of `schedules put`.
#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The schedule
    name: String,
    /// Kind of its jobs
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    #[command(flatten)]
    pub(super) times: TimeArgs,
    /// What becomes of a tick while an earlier run is not finished: skip, queue, allow
    #[arg(long, value_name = "RULE")]
    overlap: Option<String>,
    /// What becomes of ticks that nobody was there to fire: skip, `run_once`, or `run_all:N`
    #[arg(long, value_name = "RULE")]
    missed: Option<String>,
    /// A tick that is late by more than this was missed
    #[arg(long, value_name = "SPAN|none")]
    grace: Option<String>,
    /// Put each run off by up to this, always by the same for the same tick
    #[arg(long, value_name = "SPAN|none")]
    jitter: Option<String>,
    /// Schedules whose run of the same day must have completed before, or `none`
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    after: Vec<String>,
    /// Payload of its jobs
    #[arg(long, value_name = "JSON|none")]
    data: Option<String>,
    /// Whose its jobs are
    #[arg(long, value_name = "TENANT|none")]
    tenant: Option<String>,
    /// Group of its jobs
    #[arg(long, value_name = "GROUP|none")]
    group: Option<String>,
    /// Priority of its jobs, if other than their kind's
    #[arg(long, value_name = "PRIORITY|none")]
    priority: Option<String>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

/// When a schedule ticks.
#[derive(Debug, Clone, Args)]
pub(crate) struct TimeArgs {
    /// A cron expression
    #[arg(long, value_name = "CRON", conflicts_with_all = ["every", "at"])]
    pub(super) cron: Option<String>,
    /// An interval
    #[arg(long, value_name = "SPAN", conflicts_with = "at")]
    pub(super) every: Option<String>,
    /// Once, at this time
    #[arg(long, value_name = "TIME")]
    pub(super) at: Option<String>,
    /// Time zone whose clock counts, like `America/Sao_Paulo`; UTC if there is none
    #[arg(long, value_name = "ZONE")]
    pub(super) zone: Option<String>,
    /// One tick of the interval; the others are counted from it
    #[arg(long, value_name = "TIME|none")]
    pub(super) anchor: Option<String>,
}

impl TimeArgs {
    /// Whether anything is said about when.
    pub(super) fn says_when(&self) -> bool {
        self.cron.is_some() || self.every.is_some() || self.at.is_some()
    }

    pub(super) fn apply(&self, settings: &mut ScheduleSettings) {
        if self.says_when() {
            settings.cron.clone_from(&self.cron);
            settings.every.clone_from(&self.every);
            settings.at.clone_from(&self.at);
            if self.every.is_none() {
                settings.anchor = None;
            }
        }
        set(&mut settings.zone, self.zone.as_deref());
        set(&mut settings.anchor, self.anchor.as_deref());
    }
}

/// What is not given stays; `none` takes it away.
fn set(field: &mut Option<String>, given: Option<&str>) {
    if let Some(text) = given {
        *field = (text != "none").then(|| text.to_owned());
    }
}

fn apply(args: &PutArgs, mut settings: ScheduleSettings) -> Result<ScheduleSettings> {
    args.times.apply(&mut settings);
    if let Some(text) = &args.overlap {
        settings.overlap = overlap(text)?;
    }
    if let Some(text) = &args.missed {
        settings.missed = missed(text)?;
    }
    set(&mut settings.grace, args.grace.as_deref());
    set(&mut settings.jitter, args.jitter.as_deref());
    match args.after.as_slice() {
        [] => {}
        [none] if none == "none" => settings.after.clear(),
        names => settings.after = names.iter().map(|n| parse::name(n)).collect::<Result<_>>()?,
    }
    if let Some(text) = &args.data {
        settings.payload = parse::or_none(text, |t| Ok(serde_json::from_str(parse::payload(t)?.as_str())?))?;
    }
    if let Some(text) = &args.tenant {
        settings.tenant = parse::or_none(text, parse::name)?;
    }
    if let Some(text) = &args.group {
        settings.group = parse::or_none(text, parse::name)?;
    }
    if let Some(text) = &args.priority {
        settings.priority = parse::or_none(text, parse::word)?;
    }
    if let Some(text) = &args.description {
        settings.description.clone_from(text);
    }
    settings.check().map_err(|why| Failure::new(codes::INVALID_SCHEDULE, why))?;
    Ok(settings)
}

fn overlap(text: &str) -> Result<Overlap> {
    match text {
        "skip" => Ok(Overlap::Skip),
        "queue" => Ok(Overlap::Queue),
        "allow" => Ok(Overlap::Allow),
        _ => Err(Failure::new(
            codes::INVALID_SCHEDULE,
            format!("overlap: {text:?} is not skip, queue or allow"),
        )),
    }
}

fn missed(text: &str) -> Result<Missed> {
    let refuse = || {
        let detail = format!("missed: {text:?} is not skip, run_once or run_all:N");
        Failure::new(codes::INVALID_SCHEDULE, detail)
    };
    match text.replace('-', "_").as_str() {
        "skip" => Ok(Missed::Skip),
        "run_once" => Ok(Missed::RunOnce),
        other => {
            let n = other.strip_prefix("run_all:").and_then(|n| n.parse().ok());
            n.map(Missed::RunAll).ok_or_else(refuse)
        }
    }
}

/// Refuses a single time that has passed: nothing would ever run.
fn refuse_the_past(settings: &ScheduleSettings, now: Timestamp) -> Result<()> {
    match settings.compile().map(|compiled| compiled.times) {
        Ok(Times::At(at)) if at <= now => {
            Err(Failure::new(codes::INVALID_SCHEDULE, format!("at: {at} has passed, it would never run"))
                .hint("name a time to come; `tidegate enqueue KIND` enqueues a job now"))
        }
        _ => Ok(()),
    }
}

pub(super) async fn put(args: PutArgs, config: &Config, output: &Output) -> Result<()> {
    let name: ScheduleName = parse::name(&args.name)?;
    let kind: Option<KindName> = parse::optional_name(args.kind.as_deref())?;
    let data = data::existing(config).await?;
    let now = parse::now();
    // In the place of one that its document no longer has, it begins anew.
    let before = data.store.schedule(name.clone()).await?.filter(|s| s.retired.is_none());
    let kind = kind.or_else(|| before.as_ref().map(|s| s.kind.clone())).ok_or_else(|| {
        Failure::new(codes::INVALID_SCHEDULE, format!("schedule {name} is new and has no kind"))
            .hint(format!("name it: tidegate schedules put {name} --kind KIND --cron '0 3 * * *'"))
    })?;
    let settings = apply(&args, before.as_ref().map(|s| s.settings.clone()).unwrap_or_default())?;
    // The same again, after its time has come, changes nothing and stays right.
    if before.is_none_or(|s| !s.settings.ticks_like(&settings)) {
        refuse_the_past(&settings, now)?;
    }
    let change = data
        .store
        .put_schedule(PutSchedule { name: name.clone(), spec: ScheduleSpec { kind, settings }, now })
        .await;
    let schedule = match change {
        Ok(_) => named(&*data.store, &name).await,
        Err(_) => Err(Failure::new(codes::INTERNAL, "")),
    };
    data.close().await?;
    let (change, schedule) = (change?, schedule?);
    output.answer(&json!({ "outcome": change, "schedule": schedule_json(&schedule) }), || {
        let verb = match change {
            ScheduleChange::Created => "Added",
            ScheduleChange::Changed => "Changed",
            ScheduleChange::Unchanged => "Nothing to change in",
        };
        format!(
            "{verb} schedule {name}: {}; {}.",
            look::when(&schedule.settings),
            look::next_sentence(&schedule)
        )
    })
}
