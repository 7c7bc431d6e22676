//! Which ticks are due now, and which of them were missed.

use std::ops::Range;

use super::settings::{Compiled, Missed};
use super::state::{ScheduleState, WaitingTick};
use super::times::{Tick, instant_of};
use crate::ids::ScheduleName;
use crate::limits;
use crate::seed::Seed;
use crate::time::Timestamp;

/// Spans within which recent ticks are looked for, when there are too many to look at all of them.
const LOOK_BACK_MS: [i64; 7] =
    [60_000, 600_000, 3_600_000, 6 * 3_600_000, 24 * 3_600_000, 10 * 24 * 3_600_000, 366 * 24 * 3_600_000];

/// What has come due since a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Ticks that were missed and are not made up for.
    pub skipped: Option<Passed>,
    /// Ticks to run, in order.
    pub ticks: Vec<WaitingTick>,
    /// Everything up to here is in one of the two.
    pub cursor: Tick,
}

/// Ticks that have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// The first.
    pub first: Timestamp,
    /// The last; if they were not counted, a time before the next one.
    pub last: Timestamp,
    /// How many, if they were counted.
    pub count: Option<u64>,
}

impl Compiled {
    /// When a tick is to run: as planned, put off by its jitter, which is always the same for the same tick.
    pub fn due_at(&self, name: &ScheduleName, planned: Timestamp) -> Timestamp {
        if self.jitter_ms == 0 {
            return planned;
        }
        let hash = name.as_str().bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, b| {
            (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut seed = Seed::new(hash ^ planned.0.cast_unsigned());
        planned.plus_ms(seed.below(self.jitter_ms as u64) as i64)
    }

    /// When the schedule must be looked at next.
    pub fn attention(
        &self,
        name: &ScheduleName,
        waits_for_others: bool,
        state: &ScheduleState,
    ) -> Option<Timestamp> {
        if state.paused.is_some() || state.retired.is_some() {
            return None;
        }
        let tick = self.times.next(state.cursor).map(|tick| self.due_at(name, tick.at));
        // Whoever waits for others waits until the day is over; those it waits for wake it earlier.
        let day = state.waiting.first().filter(|_| waits_for_others).map(|tick| self.day(tick.planned).end);
        [tick, day].into_iter().flatten().min()
    }

    /// What had come due by a time. How late that is counts from now: what a pause kept back is as old as it is.
    pub fn due(
        &self,
        name: &ScheduleName,
        missed: Missed,
        cursor: Tick,
        by: Timestamp,
        now: Timestamp,
    ) -> Option<Due> {
        let is_due = |tick: &Tick| self.due_at(name, tick.at) <= by;
        let first = self.times.next(cursor).filter(is_due)?;
        let (ticks, uncounted) = self.recent(cursor, by, is_due);
        let late = |tick: &&Tick| now.since(self.due_at(name, tick.at)) > self.grace_ms;
        let n_missed = ticks.iter().take_while(late).count();
        let (late, in_time) = ticks.split_at(n_missed);
        let run = match missed {
            Missed::Skip => 0,
            // A tick that is in time makes up for those before it.
            Missed::RunOnce => usize::from(in_time.is_empty()),
            Missed::RunAll(n) => n as usize,
        };
        let (skipped, made_up) = late.split_at(late.len().saturating_sub(run));
        let waiting = |tick: &Tick, made_up: bool| WaitingTick {
            planned: tick.at,
            due: self.due_at(name, tick.at),
            made_up,
        };
        let last = skipped.last().map(|tick| tick.at).or(uncounted);
        let runs = made_up.iter().map(|t| waiting(t, true)).chain(in_time.iter().map(|t| waiting(t, false)));
        Some(Due {
            skipped: last.map(|last| Passed {
                first: first.at,
                last,
                count: uncounted.is_none().then_some(skipped.len() as u64),
            }),
            ticks: runs.collect(),
            cursor: ticks.last().copied().or(uncounted.map(Tick::from)).unwrap_or(first),
        })
    }

    /// All ticks that fit, up to a time: those that pass while the schedule does not run.
    pub fn passed(&self, cursor: Tick, until: Timestamp) -> Option<(Passed, Tick)> {
        let is_due = |tick: &Tick| tick.at <= until;
        let first = self.times.next(cursor).filter(is_due)?;
        let (ticks, uncounted) = self.recent(cursor, until, is_due);
        let last = ticks.last().copied().or(uncounted.map(Tick::from)).unwrap_or(first);
        let count = uncounted.is_none().then_some(ticks.len() as u64);
        Some((Passed { first: first.at, last: last.at, count }, last))
    }

    /// The latest ticks after the cursor, as many as are looked at; and if there are earlier ones, a time after them.
    fn recent(
        &self,
        cursor: Tick,
        until: Timestamp,
        is_due: impl Fn(&Tick) -> bool,
    ) -> (Vec<Tick>, Option<Timestamp>) {
        let from = |tick: Tick| -> Vec<Tick> {
            self.times.after(tick).take_while(&is_due).take(limits::TICKS_LOOKED_AT + 1).collect()
        };
        let all = from(cursor);
        if all.len() <= limits::TICKS_LOOKED_AT {
            return (all, None);
        }
        let spans = LOOK_BACK_MS.iter().map(|span| until.plus_ms(-span)).filter(|at| *at > cursor.at);
        let mut best = (vec![], until);
        for start in spans {
            let ticks = from(Tick::from(start));
            if ticks.len() > limits::TICKS_LOOKED_AT {
                break;
            }
            best = (ticks, start);
        }
        (best.0, Some(best.1))
    }

    /// The day of the schedule's zone that this time is in.
    pub fn day(&self, at: Timestamp) -> Range<Timestamp> {
        let zone = self.zone.time_zone();
        let whole = || {
            let date = zone.to_datetime(jiff::Timestamp::from_millisecond(at.0).ok()?).date();
            let midnight = |date: jiff::civil::Date| instant_of(zone, date.at(0, 0, 0, 0));
            Some(midnight(date)?..midnight(date.tomorrow().ok()?)?)
        };
        whole().unwrap_or(at..Timestamp(i64::MAX))
    }

    /// What the clock of the zone shows then, with its offset and its name.
    pub fn local(&self, at: Timestamp) -> String {
        jiff::Timestamp::from_millisecond(at.0)
            .map_or_else(|_| at.to_string(), |at| at.to_zoned(self.zone.time_zone().clone()).to_string())
    }

    /// Whether there is a tick within these times.
    pub fn ticks_within(&self, day: &Range<Timestamp>) -> bool {
        self.times.next(Tick::from(day.start.plus_ms(-1))).is_some_and(|tick| tick.at < day.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::ScheduleSettings;

    fn at(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    fn name() -> ScheduleName {
        ScheduleName::new("s").unwrap()
    }

    fn due(settings: &ScheduleSettings, cursor: &str, now: &str) -> Option<Due> {
        due_by(settings, cursor, now, now)
    }

    fn due_by(settings: &ScheduleSettings, cursor: &str, by: &str, now: &str) -> Option<Due> {
        let compiled = settings.compile().unwrap();
        compiled.due(&name(), settings.missed, Tick::from(at(cursor)), at(by), at(now))
    }

    fn planned(due: &Due) -> Vec<String> {
        due.ticks.iter().map(|t| t.planned.to_string()[11..19].to_owned()).collect()
    }

    #[test]
    fn what_is_late_by_more_than_the_grace_was_missed() {
        let mut settings = ScheduleSettings::every("5m");
        let (from, soon, later) = ("2026-11-15T10:00:00Z", "2026-11-15T10:05:30Z", "2026-11-15T10:31:30Z");
        assert_eq!(due(&settings, from, "2026-11-15T10:04:59Z"), None);
        let in_time = due(&settings, from, soon).unwrap();
        assert_eq!((planned(&in_time), in_time.skipped), (vec!["10:05:00".to_owned()], None));
        for (missed, run, skipped) in [
            (Missed::Skip, vec![], 6),
            (Missed::RunOnce, vec!["10:30:00"], 5),
            (Missed::RunAll(3), vec!["10:20:00", "10:25:00", "10:30:00"], 3),
        ] {
            settings.missed = missed;
            let found = due(&settings, from, later).unwrap();
            assert_eq!(planned(&found), run, "{missed:?}");
            let passed = found.skipped.unwrap();
            assert_eq!(
                (passed.first, passed.count),
                (at("2026-11-15T10:05:00Z"), Some(skipped)),
                "{missed:?}"
            );
            assert_eq!(found.cursor.at, at("2026-11-15T10:30:00Z"));
        }
        // One that is in time makes up for the others.
        settings.missed = Missed::RunOnce;
        let found = due(&settings, from, "2026-11-15T10:30:10Z").unwrap();
        assert_eq!((planned(&found), found.skipped.unwrap().count), (vec!["10:30:00".to_owned()], Some(5)));
        assert!(!found.ticks[0].made_up);
    }

    /// In time when the schedule was paused, and long past when it is resumed.
    #[test]
    fn how_late_a_tick_is_counts_from_now() {
        let mut settings = ScheduleSettings::every("10s");
        let (from, by, now) = ("2026-11-15T10:00:00Z", "2026-11-15T10:00:35Z", "2026-11-22T10:00:00Z");
        for (missed, run, skipped) in [
            (Missed::Skip, vec![], Some(3)),
            (Missed::RunOnce, vec!["10:00:30"], Some(2)),
            (Missed::RunAll(5), vec!["10:00:10", "10:00:20", "10:00:30"], None),
        ] {
            settings.missed = missed;
            let found = due_by(&settings, from, by, now).unwrap();
            assert_eq!(planned(&found), run, "{missed:?}");
            assert!(found.ticks.iter().all(|tick| tick.made_up), "{missed:?}");
            assert_eq!(found.skipped.and_then(|passed| passed.count), skipped, "{missed:?}");
            assert_eq!(found.cursor.at, at("2026-11-15T10:00:30Z"), "nothing after the pause began");
        }
        assert_eq!(due_by(&settings, from, by, by).unwrap().skipped, None, "all of them in time");
    }

    #[test]
    fn a_year_away_costs_little_and_says_so() {
        let settings = ScheduleSettings { missed: Missed::RunAll(2), ..ScheduleSettings::every("1s") };
        let found = due(&settings, "2025-11-15T10:00:00Z", "2026-11-15T10:00:00Z").unwrap();
        // A minute of them is in time.
        assert_eq!(found.ticks.len(), 61 + 2);
        let passed = found.skipped.unwrap();
        assert_eq!((passed.count, passed.first), (None, at("2025-11-15T10:00:01Z")));
        assert_eq!(found.ticks[0].planned, passed.last.plus_ms(1_000));
        assert_eq!(found.cursor.at, at("2026-11-15T10:00:00Z"));
    }

    #[test]
    fn jitter_is_the_same_for_the_same_tick_and_within_its_bound() {
        let settings = ScheduleSettings { jitter: Some("30s".into()), ..ScheduleSettings::every("1m") };
        let compiled = settings.compile().unwrap();
        let offsets: Vec<i64> = (0..200)
            .map(|n| {
                let planned = Timestamp(60_000 * n);
                assert_eq!(compiled.due_at(&name(), planned), compiled.due_at(&name(), planned));
                compiled.due_at(&name(), planned).since(planned)
            })
            .collect();
        assert!(offsets.iter().all(|ms| (0..30_000).contains(ms)));
        assert!(offsets.iter().max() > Some(&28_000) && offsets.iter().min() < Some(&2_000));
        let other = ScheduleName::new("t").unwrap();
        assert!(
            (0..200).any(|n| compiled.due_at(&other, Timestamp(60_000 * n))
                != Timestamp(60_000 * n + offsets[n as usize]))
        );
    }

    #[test]
    fn a_day_is_the_zones_own() {
        let compiled = ScheduleSettings::cron("@daily", "America/New_York").compile().unwrap();
        let day = compiled.day(at("2026-11-01T12:00:00Z"));
        assert_eq!((day.start, day.end), (at("2026-11-01T04:00:00Z"), at("2026-11-02T05:00:00Z")));
        assert!(compiled.ticks_within(&day));
        let weekly = ScheduleSettings::cron("0 0 * * 1", "America/New_York").compile().unwrap();
        assert!(!weekly.ticks_within(&day));
    }
}
