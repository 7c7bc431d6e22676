//! When a schedule ticks: from a cursor to the next tick, always forward.
//!
//! What a change of the clock does to a cron expression in a zone:
//!
//! - An expression that names hours follows the **wall clock**. A time that the clock jumps over comes at the first instant after the
//!   jump; a time that the clock shows twice comes once, the first time.
//! - An expression for every hour (`*/5 * * * *`, `30 * * * *`) follows the **hours that pass**: it neither pauses while an hour
//!   is repeated nor runs more often after a jump.
//!
//! A tick of the wall clock remembers what the clock showed. The next one must show more, so that new rules of a zone, which move
//! the same wall-clock time to a later instant, do not bring it twice.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use serde::{Deserialize, Serialize};

use super::cron::Cron;
use super::zone::Zone;
use crate::time::Timestamp;

/// A point on a schedule: a tick, or how far it has been looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tick {
    /// When.
    pub at: Timestamp,
    /// What the clock of its zone showed, for a schedule that follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<DateTime>,
}

impl From<Timestamp> for Tick {
    fn from(at: Timestamp) -> Self {
        Self { at, wall: None }
    }
}

/// When a schedule ticks.
#[derive(Debug, Clone, PartialEq)]
pub enum Times {
    /// By a cron expression in a zone.
    Cron(Cron, Zone),
    /// Every so many milliseconds, counted from an anchor: no delay adds up.
    Every {
        /// The interval.
        every_ms: i64,
        /// One of its ticks.
        anchor: Timestamp,
    },
    /// Once.
    At(Timestamp),
}

impl Times {
    /// The first tick after this one.
    pub fn next(&self, after: Tick) -> Option<Tick> {
        match self {
            Self::Cron(cron, zone) if cron.is_hourly() => {
                next_of_hours(cron, zone.time_zone(), after.at).map(Tick::from)
            }
            Self::Cron(cron, zone) => next_of_wall(cron, zone.time_zone(), after),
            Self::Every { every_ms, anchor } => {
                let passed = after.at.0.checked_sub(anchor.0)?.div_euclid(*every_ms);
                let next = passed.checked_add(1)?.checked_mul(*every_ms)?;
                anchor.0.checked_add(next).map(|at| Tick::from(Timestamp(at)))
            }
            Self::At(at) => (*at > after.at).then_some(Tick::from(*at)),
        }
    }

    /// The ticks after this one, in order.
    pub fn after(&self, tick: Tick) -> impl Iterator<Item = Tick> + '_ {
        std::iter::successors(self.next(tick), |tick| self.next(*tick))
    }
}

/// The first wall-clock time after the cursor's whose instant is after the cursor's.
fn next_of_wall(cron: &Cron, zone: &TimeZone, after: Tick) -> Option<Tick> {
    let mut wall = zone.to_datetime(instant(after.at)?);
    if let Some(shown) = after.wall {
        wall = wall.max(shown);
    }
    loop {
        // Those shown for the second time are passed over: their instant was the first time.
        wall = cron.next(wall)?;
        let at = instant_of(zone, wall)?;
        if at > after.at {
            return Some(Tick { at, wall: Some(wall) });
        }
    }
}

/// When a zone's clock first shows this, or has just jumped over it.
pub(super) fn instant_of(zone: &TimeZone, wall: DateTime) -> Option<Timestamp> {
    let at = match zone.to_ambiguous_timestamp(wall).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(wall).ok()?,
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(wall).ok()?,
        AmbiguousOffset::Gap { after, .. } => {
            // With the later offset it would be before the jump.
            let early = after.to_timestamp(wall).ok()?;
            zone.following(early).next()?.timestamp()
        }
    };
    Some(Timestamp(at.as_millisecond()))
}

/// The first named time while the zone's offset stays as it is; else from the next change of the offset on.
fn next_of_hours(cron: &Cron, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let mut from = instant(after)?;
    let mut offset = zone.to_offset(from);
    let mut wall = cron.next(offset.to_datetime(from));
    // An expression may leave out months; a zone has few changes in one lifetime.
    loop {
        let at = offset.to_timestamp(wall?).ok()?;
        let Some(change) = zone.following(from).next().filter(|change| change.timestamp() <= at) else {
            return Some(Timestamp(at.as_millisecond()));
        };
        from = change.timestamp();
        offset = change.offset();
        let shown = offset.to_datetime(from);
        wall = if cron.matches(shown) { Some(shown) } else { cron.next(shown) };
    }
}

fn instant(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_millisecond(at.0).ok()
}
