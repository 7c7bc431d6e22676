//! Where a schedule stands, and what its ledger keeps of each tick.

use serde::{Deserialize, Serialize};

use super::settings::ScheduleSettings;
use super::times::Tick;
use crate::ids::{JobId, KindName, ScheduleName, Seq};
use crate::job::State;
use crate::time::Timestamp;

/// What a schedule does, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    /// Kind of its jobs.
    pub kind: KindName,
    /// Everything else.
    pub settings: ScheduleSettings,
}

/// Where a schedule stands. All that is needed to go on after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleState {
    /// Since when there is this schedule.
    pub created_at: Timestamp,
    /// Ticks up to here are decided. It only goes forward: whatever the clock and the rules of zones do, no tick is decided twice.
    pub cursor: Tick,
    /// Who paused it and when, while it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// Ticks that are due and wait, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingTick>,
    /// Runs that are not finished.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<OpenRun>,
    /// The latest tick whose run has completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Timestamp>,
    /// What the ledger says last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<TickEntry>,
    /// Number of the next entry in the ledger.
    pub next_no: u64,
    /// A document of the registry describes it: it is changed there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub managed: bool,
    /// Since when its document no longer has it: nothing of it runs, its ledger stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired: Option<Timestamp>,
}

impl ScheduleState {
    /// A new schedule: what was before is not owed.
    pub fn new(now: Timestamp) -> Self {
        Self {
            created_at: now,
            cursor: Tick::from(now),
            paused: None,
            waiting: vec![],
            open: vec![],
            completed: None,
            last: None,
            next_no: 0,
            managed: false,
            retired: None,
        }
    }
}

/// That a schedule is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// By whom.
    pub by: String,
    /// Since when.
    pub since: Timestamp,
}

/// A tick that is due and waits for another run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingTick {
    /// When it was planned.
    pub planned: Timestamp,
    /// When it was due: planned, and put off by its jitter.
    pub due: Timestamp,
    /// Whether it makes up for a missed one; such a tick is not skipped because of an earlier run.
    #[serde(default)]
    pub made_up: bool,
}

/// A run that is not finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRun {
    /// Its job.
    pub seq: Seq,
    /// What the ledger says of it.
    pub entry: TickEntry,
}

/// One line of the ledger: a tick, or several that were skipped for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TickEntry {
    /// Number of the line, counted from 0 for each schedule.
    pub no: u64,
    /// When the tick was planned; the first one, if there are several.
    pub planned: Timestamp,
    /// When this was decided.
    pub at: Timestamp,
    /// What was decided.
    pub what: Decided,
}

/// What became of a tick.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decided", rename_all = "snake_case")]
pub enum Decided {
    /// Its job was enqueued.
    Fired {
        /// The job.
        job: JobId,
        /// How late.
        late_ms: i64,
        /// Whether somebody asked for it, outside the schedule.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_hand: bool,
        /// How it ended, and when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Ended>,
    },
    /// It was not.
    Skipped {
        /// Why.
        reason: SkipReason,
        /// The same in a sentence, with names.
        note: String,
        /// The last one, if there are several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<Timestamp>,
        /// How many; `None`: too many to be counted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        count: Option<u64>,
    },
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Completed, dead or cancelled.
    pub state: State,
    /// When.
    pub at: Timestamp,
}

/// Why a tick was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Nobody was there to fire it, and `missed` does not ask for it to be made up for.
    Missed,
    /// An earlier run was not finished.
    Overlap,
    /// The schedule was paused.
    Paused,
    /// The schedule was changed before it could run.
    Edited,
    /// A schedule that it waits for did not complete its run that day.
    After,
    /// As many runs or ticks wait already as may.
    Full,
    /// Its job was refused.
    Refused,
}

impl SkipReason {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Missed => "missed",
            Self::Overlap => "overlap",
            Self::Paused => "paused",
            Self::Edited => "edited",
            Self::After => "after",
            Self::Full => "full",
            Self::Refused => "refused",
        }
    }
}

/// Which tick of which schedule a job is the run of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOf {
    /// The schedule.
    pub schedule: ScheduleName,
    /// When the tick was planned.
    pub planned: Timestamp,
    /// Its line in the ledger.
    pub no: u64,
}
