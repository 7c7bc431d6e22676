//! Schedules: when they tick, and what becomes of each tick. Pure: `now` is an argument, zones are part of the program.
//!
//! - [`ScheduleSettings`]: what people write.
//! - [`cron`], [`times`], [`zone`]: from settings to ticks.
//! - [`Due`]: which ticks have come, and which were missed.
//! - [`ScheduleState`], [`TickEntry`]: what is kept of it.

mod backfill;
pub mod cron;
mod due;
mod settings;
mod span;
mod state;
pub mod times;
pub mod zone;

pub use self::backfill::{Backfill, BackfillRun};
pub use self::cron::Cron;
pub use self::due::{Due, Passed};
pub use self::settings::{Compiled, Missed, Overlap, ScheduleSettings};
pub use self::span::Span;
pub use self::state::{
    Decided, Ended, OpenRun, Pause, RunOf, ScheduleSpec, ScheduleState, SkipReason, TickEntry, WaitingTick,
};
pub use self::times::{Tick, Times};
pub use self::zone::Zone;
