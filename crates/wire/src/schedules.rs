//! Schedules on the wire. Their settings are the same JSON everywhere: spans are text, like `30s`, because people write them.

use serde::{Deserialize, Serialize};
use tidegate_core::ids::{JobId, KindName, ScheduleName};
use tidegate_core::job::State;
use tidegate_core::schedule::{self, Decided, Ended, Pause, ScheduleSettings, SkipReason, TickEntry};
use tidegate_core::time::Timestamp;
use tidegate_store::params::{self, EnqueueOutcome, ScheduleChange, ScheduleView};

use crate::{Problem, Time};

/// All schedules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schedules {
    /// The schedules, by name.
    pub schedules: Vec<Schedule>,
}

/// A schedule, and where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schedule {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: ScheduleName,
    /// Kind of its jobs.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub kind: KindName,
    /// Its settings.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::ScheduleSettings))]
    pub settings: ScheduleSettings,
    /// Since when there is this schedule.
    pub created_at: Time,
    /// Ticks up to here are decided.
    pub decided_until: Time,
    /// When its next tick is planned; `null` if there is none, or while it is paused.
    pub next: Option<Time>,
    /// Who paused it, while it is paused.
    pub paused: Option<PausedBy>,
    /// Ticks that are due and wait for another run.
    pub waiting: Vec<Waiting>,
    /// Runs that are not finished.
    pub open: Vec<Tick>,
    /// The latest tick whose run has completed.
    pub completed: Option<Time>,
    /// The last line of its ledger.
    pub last: Option<Tick>,
    /// The document of the registry that describes it; `null`: somebody's own.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(example = "registry.toml"))]
    pub document: Option<String>,
    /// Since when that document no longer has it: it does not run, its ledger stays.
    #[serde(default)]
    pub retired: Option<Time>,
}

/// That a schedule is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PausedBy {
    /// By whom.
    pub by: String,
    /// Since when.
    pub since: Time,
}

/// A tick that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Waiting {
    /// When it was planned.
    pub planned: Time,
    /// When it was due.
    pub due: Time,
    /// Whether it makes up for a missed one.
    pub made_up: bool,
}

/// One line of a ledger: a tick, or several that were skipped for the same reason. It has either `fired` or `skipped`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tick {
    /// Number of the line.
    pub no: u64,
    /// When it was planned; the first one, if there are several.
    pub planned: Time,
    /// When this was decided.
    pub at: Time,
    /// It was fired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired: Option<Fired>,
    /// It was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Skipped>,
}

/// A tick that was fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Fired {
    /// Its job.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub job: JobId,
    /// How late.
    pub late_ms: i64,
    /// Whether somebody asked for it, outside the schedule.
    pub by_hand: bool,
    /// How the run ended; `null` while it has not.
    pub ended: Option<RunEnd>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunEnd {
    /// Completed, dead or cancelled.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::State))]
    pub state: State,
    /// When.
    pub at: Time,
}

/// Why ticks were skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Skipped {
    /// Why, in a word.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::SkipReason))]
    pub reason: SkipReason,
    /// Why, in a sentence.
    pub note: String,
    /// The last one, if there are several.
    pub last: Option<Time>,
    /// How many; `null`: too many to be counted.
    pub count: Option<u64>,
}

impl From<TickEntry> for Tick {
    fn from(e: TickEntry) -> Self {
        let (fired, skipped) = match e.what {
            Decided::Fired { job, late_ms, by_hand, ended } => {
                let ended = ended.map(|e| RunEnd { state: e.state, at: Time(e.at) });
                (Some(Fired { job, late_ms, by_hand, ended }), None)
            }
            Decided::Skipped { reason, note, last, count } => {
                (None, Some(Skipped { reason, note, last: last.map(Time), count }))
            }
        };
        Self { no: e.no, planned: Time(e.planned), at: Time(e.at), fired, skipped }
    }
}

impl TryFrom<Tick> for TickEntry {
    type Error = Problem;
    fn try_from(t: Tick) -> Result<Self, Problem> {
        let what = match (t.fired, t.skipped) {
            (Some(Fired { job, late_ms, by_hand, ended }), None) => {
                let ended = ended.map(|e| Ended { state: e.state, at: e.at.0 });
                Decided::Fired { job, late_ms, by_hand, ended }
            }
            (None, Some(Skipped { reason, note, last, count })) => {
                Decided::Skipped { reason, note, last: last.map(|t| t.0), count }
            }
            _ => return Err(Problem::invalid("a tick is either `fired` or `skipped`")),
        };
        Ok(Self { no: t.no, planned: t.planned.0, at: t.at.0, what })
    }
}

impl From<ScheduleView> for Schedule {
    fn from(s: ScheduleView) -> Self {
        let waiting = |w: schedule::WaitingTick| Waiting {
            planned: Time(w.planned),
            due: Time(w.due),
            made_up: w.made_up,
        };
        Self {
            name: s.name,
            kind: s.kind,
            settings: s.settings,
            created_at: Time(s.created_at),
            decided_until: Time(s.decided_until),
            next: s.next.map(Time),
            paused: s.paused.map(|p| PausedBy { by: p.by, since: Time(p.since) }),
            waiting: s.waiting.into_iter().map(waiting).collect(),
            open: s.open.into_iter().map(Tick::from).collect(),
            completed: s.completed.map(Time),
            last: s.last.map(Tick::from),
            document: s.document,
            retired: s.retired.map(Time),
        }
    }
}

impl TryFrom<Schedule> for ScheduleView {
    type Error = Problem;
    fn try_from(s: Schedule) -> Result<Self, Problem> {
        let waiting =
            |w: Waiting| schedule::WaitingTick { planned: w.planned.0, due: w.due.0, made_up: w.made_up };
        Ok(Self {
            name: s.name,
            kind: s.kind,
            settings: s.settings,
            created_at: s.created_at.0,
            decided_until: s.decided_until.0,
            next: s.next.map(|t| t.0),
            paused: s.paused.map(|p| Pause { by: p.by, since: p.since.0 }),
            waiting: s.waiting.into_iter().map(waiting).collect(),
            open: s.open.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            completed: s.completed.map(|t| t.0),
            last: s.last.map(TryInto::try_into).transpose()?,
            document: s.document,
            retired: s.retired.map(|t| t.0),
        })
    }
}

/// Which tick of which schedule a job is the run of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunOf {
    /// The schedule.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub schedule: ScheduleName,
    /// When the tick was planned.
    pub planned: Time,
    /// Its line in the ledger.
    pub no: u64,
}

impl From<schedule::RunOf> for RunOf {
    fn from(run: schedule::RunOf) -> Self {
        Self { schedule: run.schedule, planned: Time(run.planned), no: run.no }
    }
}

impl From<RunOf> for schedule::RunOf {
    fn from(run: RunOf) -> Self {
        Self { schedule: run.schedule, planned: run.planned.0, no: run.no }
    }
}

/// What a schedule does, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PutSchedule {
    /// Kind of its jobs.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "daily-feature-aggregation"))]
    pub kind: KindName,
    /// Everything else.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::ScheduleSettings))]
    pub settings: ScheduleSettings,
}

/// What a put did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PutReply {
    /// Whether it is new, changed, or what it was.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::ScheduleChange))]
    pub outcome: ScheduleChange,
}

/// Who pauses a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PauseSchedule {
    /// Who; the name of the key if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(example = "ada"))]
    pub by: Option<String>,
}

/// A run that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunReply {
    /// Its job.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub job: JobId,
}

/// Lines of a ledger, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ticks {
    /// The lines.
    pub ticks: Vec<Tick>,
    /// Ask with `before` for the lines before these; `null` at the end.
    pub next: Option<u64>,
}

/// When a schedule runs next, and what must be known with it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NextRuns {
    /// The runs, in order.
    pub runs: Vec<NextRun>,
    /// Who paused it: these would be its runs if it were resumed now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<PausedBy>,
    /// When the first run was planned that nobody fired before the pause: a resume decides by its rule for missed ticks, and may enqueue a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Time>,
    /// Since when its document no longer has it: there are no runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired: Option<Time>,
    /// When the run was planned that nobody fired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue: Option<Time>,
}

/// A run that is planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NextRun {
    /// When it is planned.
    pub planned: Time,
    /// When it runs: planned, and put off by its jitter.
    pub due: Time,
    /// What the clock of its zone shows when it is planned.
    #[cfg_attr(feature = "openapi", schema(example = "2026-11-16T00:01:00-03:00[America/Sao_Paulo]"))]
    pub local: String,
}

/// Whoever fires schedules has fired a tick by then.
const FIRED_WITHIN_MS: i64 = 2_000;

impl NextRuns {
    /// The next runs of a schedule as it stands, or what is wrong with its settings. What has come and was not fired is not among them.
    pub fn of(schedule: &ScheduleView, n: usize, now: Timestamp) -> Result<Self, String> {
        if let Some(at) = schedule.retired {
            return Ok(Self { retired: Some(Time(at)), ..Self::default() });
        }
        let after = |from, n| Self::after(&schedule.name, &schedule.settings, from, n);
        let undecided = schedule.decided_until;
        let first = after(undecided, 1)?.runs.pop();
        if let Some(pause) = &schedule.paused {
            let missed = first.filter(|run| run.due.0 <= pause.since).map(|run| run.planned);
            let paused = Some(PausedBy { by: pause.by.clone(), since: Time(pause.since) });
            return Ok(Self { paused, missed, ..after(undecided.max(now), n)? });
        }
        let overdue = first.filter(|run| now.since(run.due.0) > FIRED_WITHIN_MS).map(|run| run.planned);
        let from = if overdue.is_some() { undecided.max(now) } else { undecided };
        Ok(Self { overdue, ..after(from, n)? })
    }

    /// The next runs of a schedule after this time, or what is wrong with its settings.
    pub fn after(
        name: &ScheduleName,
        settings: &ScheduleSettings,
        from: Timestamp,
        n: usize,
    ) -> Result<Self, String> {
        let compiled = settings.compile()?;
        let run = |tick: schedule::Tick| NextRun {
            planned: Time(tick.at),
            due: Time(compiled.due_at(name, tick.at)),
            local: compiled.local(tick.at),
        };
        let runs = compiled.times.after(schedule::Tick::from(from)).take(n).map(run).collect();
        Ok(Self { runs, ..Self::default() })
    }
}

/// One job for each date of a range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Backfill(pub schedule::Backfill);

/// What a backfill did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Backfilled {
    /// Jobs that are new.
    pub created: u64,
    /// Dates that had been filled before.
    pub kept: u64,
    /// The jobs, by date.
    pub jobs: Vec<BackfilledDate>,
}

/// The job of a date.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BackfilledDate {
    /// The date.
    #[cfg_attr(feature = "openapi", schema(example = "2026-11-01"))]
    pub date: String,
    /// Its job: the new one, or the one that was there.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub job: JobId,
    /// What was done.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::EnqueueOutcome))]
    pub outcome: EnqueueOutcome,
}

impl Backfilled {
    /// From the replies to the jobs of these dates.
    pub fn new(dates: impl IntoIterator<Item = String>, replies: &[params::Enqueued]) -> Self {
        let jobs: Vec<_> = dates
            .into_iter()
            .zip(replies)
            .map(|(date, reply)| BackfilledDate { date, job: reply.id, outcome: reply.outcome })
            .collect();
        let created = jobs.iter().filter(|job| job.outcome == EnqueueOutcome::Created).count() as u64;
        Self { created, kept: jobs.len() as u64 - created, jobs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    /// Every hour, decided until the beginning of 1970.
    fn hourly() -> ScheduleView {
        ScheduleView {
            name: ScheduleName::new("s").unwrap(),
            kind: KindName::new("k").unwrap(),
            settings: ScheduleSettings::every("1h"),
            created_at: Timestamp(0),
            decided_until: Timestamp(0),
            next: Some(Timestamp(HOUR)),
            paused: None,
            waiting: vec![],
            open: vec![],
            completed: None,
            last: None,
            document: None,
            retired: None,
        }
    }

    fn planned(next: &NextRuns) -> Vec<i64> {
        next.runs.iter().map(|run| run.planned.0.0 / HOUR).collect()
    }

    #[test]
    fn what_nobody_fired_is_overdue_and_not_next() {
        let soon = NextRuns::of(&hourly(), 2, Timestamp(HOUR + FIRED_WITHIN_MS)).unwrap();
        assert_eq!((planned(&soon), soon.overdue), (vec![1, 2], None), "it is about to be fired");
        let late = NextRuns::of(&hourly(), 2, Timestamp(3 * HOUR + 1)).unwrap();
        assert_eq!((planned(&late), late.overdue), (vec![4, 5], Some(Time(Timestamp(HOUR)))));
    }

    #[test]
    fn a_retired_schedule_has_no_next_runs() {
        let schedule = ScheduleView { retired: Some(Timestamp(7)), ..hourly() };
        let next = NextRuns::of(&schedule, 2, Timestamp(3 * HOUR)).unwrap();
        assert_eq!(next, NextRuns { retired: Some(Time(Timestamp(7))), ..NextRuns::default() });
    }

    #[test]
    fn a_paused_schedule_says_what_a_resume_decides_about() {
        let paused = |since| ScheduleView { paused: Some(Pause { by: "ada".into(), since }), ..hourly() };
        let next = |since| NextRuns::of(&paused(since), 1, Timestamp(5 * HOUR)).unwrap();
        let before = next(Timestamp(HOUR - 1));
        assert_eq!((planned(&before), before.missed, before.overdue), (vec![6], None, None));
        assert_eq!(before.paused.map(|paused| paused.by), Some("ada".into()));
        let after = next(Timestamp(2 * HOUR));
        assert_eq!((planned(&after), after.missed), (vec![6], Some(Time(Timestamp(HOUR)))));
    }
}
