//! Schedules, and where they stand.

use serde::{Deserialize, Serialize};
use tidegate_core::ids::{KindName, ScheduleName};
use tidegate_core::schedule::{Pause, ScheduleSettings, ScheduleSpec, TickEntry, WaitingTick};
use tidegate_core::time::Timestamp;

/// Add a schedule or change it.
#[derive(Debug, Clone, PartialEq)]
pub struct PutSchedule {
    /// Its name.
    pub name: ScheduleName,
    /// What it does, and when.
    pub spec: ScheduleSpec,
    /// Now.
    pub now: Timestamp,
}

/// What a put did to a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleChange {
    /// It is new.
    Created,
    /// It has other settings than before.
    Changed,
    /// It is what it was.
    Unchanged,
}

/// A schedule, and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleView {
    /// Its name.
    pub name: ScheduleName,
    /// Kind of its jobs.
    pub kind: KindName,
    /// Its settings.
    pub settings: ScheduleSettings,
    /// Since when there is this schedule.
    pub created_at: Timestamp,
    /// Ticks up to here are decided.
    pub decided_until: Timestamp,
    /// When its next tick is planned.
    pub next: Option<Timestamp>,
    /// Who paused it, while it is paused.
    pub paused: Option<Pause>,
    /// Ticks that are due and wait.
    pub waiting: Vec<WaitingTick>,
    /// Runs that are not finished.
    pub open: Vec<TickEntry>,
    /// The latest tick whose run has completed.
    pub completed: Option<Timestamp>,
    /// The last line of its ledger.
    pub last: Option<TickEntry>,
    /// The document of the registry that describes it; `None`: somebody's own.
    pub document: Option<String>,
    /// Since when that document no longer has it.
    pub retired: Option<Timestamp>,
}

/// Which lines of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TickQuery {
    /// Whose.
    pub name: ScheduleName,
    /// With smaller numbers than this.
    pub before: Option<u64>,
    /// At most so many.
    pub limit: usize,
}
