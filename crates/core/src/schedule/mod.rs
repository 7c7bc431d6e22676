//! Schedules: when they tick, and what becomes of each tick. Pure: `now` is an argument, zones are part of the program.
//!
//! - [`ScheduleSettings`]: what people write.
//! - [`cron`], [`times`], [`zone`]: from settings to ticks.

pub mod cron;
mod settings;
mod span;
pub mod times;
pub mod zone;

pub use self::cron::Cron;
pub use self::settings::{Missed, Overlap, ScheduleSettings};
pub use self::span::Span;
pub use self::times::{Tick, Times};
pub use self::zone::Zone;
