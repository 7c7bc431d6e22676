//! What should have been, and whether it was.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::DateTime;
use tidegate_core::ids::{JobId, ScheduleName};
use tidegate_core::schedule::{Cron, Decided, TickEntry, Zone};
use tidegate_core::time::Timestamp;

const MINUTE: i64 = 60_000;

/// The ticks of many cron expressions by the documentation's words, found by looking at every minute.
#[derive(Debug, Default)]
pub struct Expected(BTreeMap<ScheduleName, BTreeSet<Timestamp>>);

/// An expression while its minutes are walked over.
struct Walked {
    name: ScheduleName,
    cron: Cron,
    ticks: BTreeSet<Timestamp>,
}

impl Expected {
    /// Walks from one time to another, once for each zone.
    ///
    /// # Panics
    ///
    /// If an expression is none.
    pub fn walk<'a>(
        schedules: impl IntoIterator<Item = (&'a ScheduleName, &'a str, &'a str)>,
        from: Timestamp,
        to: Timestamp,
    ) -> Self {
        let mut zones: BTreeMap<&str, Vec<Walked>> = BTreeMap::new();
        for (name, cron, zone) in schedules {
            let cron = cron.parse().expect("an expression");
            let walked = Walked { name: name.clone(), cron, ticks: BTreeSet::new() };
            zones.entry(zone).or_default().push(walked);
        }
        let mut all = BTreeMap::new();
        for (zone, mut walked) in zones {
            walk_zone(&zone.parse().expect("a zone"), &mut walked, from, to);
            all.extend(walked.into_iter().map(|w| (w.name, w.ticks)));
        }
        Self(all)
    }

    /// How many ticks there are.
    pub fn count(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }
}

fn walk_zone(zone: &Zone, walked: &mut [Walked], from: Timestamp, to: Timestamp) {
    let shown = |at: Timestamp| -> DateTime {
        zone.time_zone().to_datetime(jiff::Timestamp::from_millisecond(at.0).expect("a time"))
    };
    let minute = jiff::SignedDuration::from_mins(1);
    let mut at = from;
    let mut before = shown(at);
    // The latest that the clock has shown: what is not later has been.
    let mut latest = before;
    while at < to {
        at = at.plus_ms(MINUTE);
        let now = shown(at);
        let next = before.saturating_add(minute);
        for w in walked.iter_mut() {
            let named = if w.cron.is_hourly() {
                w.cron.matches(now)
            } else {
                let jumped = std::iter::successors(Some(next), |t| Some(t.saturating_add(minute)))
                    .take_while(|t| *t < now)
                    .any(|t| w.cron.matches(t));
                jumped || (now > latest && w.cron.matches(now))
            };
            if named {
                w.ticks.insert(at);
            }
        }
        latest = latest.max(now);
        before = now;
    }
}

/// Sees every line of every ledger, and judges.
#[derive(Debug, Default)]
pub struct Referee {
    decided: BTreeMap<ScheduleName, BTreeMap<Timestamp, u64>>,
    jobs: BTreeSet<JobId>,
    /// Ticks that were fired.
    pub fired: u64,
    /// Ticks that were skipped, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
}

impl Referee {
    /// A line that is new.
    pub fn see(&mut self, name: &ScheduleName, entry: &TickEntry, expected: &Expected) -> Result<(), String> {
        let ticks = expected.0.get(name).ok_or_else(|| format!("{name} is not known"))?;
        let of = self.decided.entry(name.clone()).or_default();
        let mut decide = |at: Timestamp| match of.insert(at, entry.no) {
            Some(no) => Err(format!("{name}: the tick of {at} was decided in lines {no} and {}", entry.no)),
            None => Ok(()),
        };
        match &entry.what {
            Decided::Fired { job, .. } => {
                decide(entry.planned)?;
                if !self.jobs.insert(*job) {
                    return Err(format!("{name}: job {job} was fired twice"));
                }
                self.fired += 1;
            }
            Decided::Skipped { reason, note, last, count } => {
                if note.is_empty() {
                    return Err(format!("{name}: line {} does not say why", entry.no));
                }
                let range: Vec<Timestamp> =
                    ticks.range(entry.planned..=last.unwrap_or(entry.planned)).copied().collect();
                if count.is_some_and(|n| n != range.len() as u64) {
                    return Err(format!(
                        "{name}: line {} says {count:?}, there were {}",
                        entry.no,
                        range.len()
                    ));
                }
                range.iter().try_for_each(|at| decide(*at))?;
                *self.skipped.entry(reason.word()).or_default() += range.len() as u64;
            }
        }
        if !ticks.contains(&entry.planned) {
            return Err(format!("{name}: there is no tick at {}", entry.planned));
        }
        Ok(())
    }

    /// At the end, every tick up to then must have been decided.
    pub fn judge(&self, expected: &Expected, upto: Timestamp) -> Result<(), String> {
        for (name, ticks) in &expected.0 {
            let decided = self.decided.get(name);
            for at in ticks.range(..=upto) {
                if !decided.is_some_and(|of| of.contains_key(at)) {
                    return Err(format!("{name}: nobody decided the tick of {at}"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(no: u64, planned: Timestamp, what: Decided) -> TickEntry {
        TickEntry { no, planned, at: planned, what }
    }

    fn fired(n: u64) -> Decided {
        Decided::Fired { job: JobId::from_parts(1, n.into()), late_ms: 0, by_hand: false, ended: None }
    }

    #[test]
    fn the_referee_notices_what_is_fired_twice_made_up_or_forgotten() {
        let name = ScheduleName::new("s").unwrap();
        let (from, to) = (Timestamp(0), Timestamp(10 * MINUTE));
        let expected = Expected::walk([(&name, "*/5 * * * *", "UTC")], from, to);
        assert_eq!(expected.count(), 2);
        let (five, ten) = (Timestamp(5 * MINUTE), Timestamp(10 * MINUTE));
        let mut referee = Referee::default();
        referee.see(&name, &line(0, five, fired(1)), &expected).unwrap();
        assert!(referee.judge(&expected, ten).unwrap_err().contains("nobody decided"));
        assert!(
            referee
                .see(&name, &line(1, five, fired(2)), &expected)
                .unwrap_err()
                .contains("decided in lines 0 and 1")
        );
        assert!(
            referee.see(&name, &line(2, Timestamp(7), fired(3)), &expected).unwrap_err().contains("no tick")
        );
        assert!(referee.see(&name, &line(3, ten, fired(1)), &expected).unwrap_err().contains("fired twice"));
        let mut referee = Referee::default();
        referee.see(&name, &line(0, five, fired(1)), &expected).unwrap();
        referee.see(&name, &line(1, ten, fired(2)), &expected).unwrap();
        referee.judge(&expected, ten).unwrap();
    }
}
