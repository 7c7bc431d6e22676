//! Reported level: a model of the provider's bucket that follows what its answers say (G8, G9).
//!
//! Kept in nano points, so that a rate in milli points per second adds whole numbers per microsecond. The level may be
//! negative. After an answer: `level = clamp(model, low, high)` with
//! - `high` = reported − cost of all calls still unanswered: what G9 allows at most;
//! - `low` = `high` − what was answered of the calls admitted after this one: so much is there, provided that the provider
//!   charges calls in the order in which they were sent. It contains the refunds, also those of answers that never came.
//!
//! A second, unclamped account of what we alone would have left (`shadow`) shows what others use.

use serde::{Deserialize, Serialize};

use super::Start;
use super::call::Observed;
use super::reply::Because;
use super::units::{MAX_PRODUCT, Micros, NANO, Points, SECOND, SOON, ceil_div, fits};

/// The settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LevelRule {
    /// Size in milli points.
    pub capacity: i64,
    /// Milli points per second.
    pub rate: i64,
    /// Whether the size is known, and not a guess.
    pub known: bool,
}

/// How long what was learned is kept without use.
pub(super) const FORGET: Micros = 3_600 * SECOND;
/// Time in which the margin falls to nothing.
const MARGIN_FALLS: Micros = 600 * SECOND;
/// Most nano points unanswered at a time; more could not be counted exactly.
const MAX_IN_FLIGHT: i64 = MAX_PRODUCT;
/// How long to wait while the bucket is cut below the cost.
const CUT_RETRY: Micros = 5 * SECOND;
/// Costs are counted modulo this (milli points); differences of what happens within a lease stay exact.
const WRAP: i64 = 1 << 50;

/// The state of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Level {
    level: i64,
    at: Micros,
    used_at: Micros,
    in_flight: i64,
    /// Sending time of the newest observation that counted.
    sent: Micros,
    capacity: i64,
    highest: i64,
    highest_at: Micros,
    observed: bool,
    rate: i64,
    /// Milli points that were answered, and that were admitted, ever.
    answered: i64,
    admitted: i64,
    margin: i64,
    margin_at: Micros,
    /// The level if nobody else used the bucket.
    shadow: i64,
    /// Milli points that others have used, ever.
    foreign: i64,
}

/// What a call takes with it, to be compared when its answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Mark {
    answered: i64,
    admitted: i64,
    at: Micros,
}

/// Milli points that were answered and admitted since a call was.
#[derive(Debug, Clone, Copy)]
struct Since {
    answered: i64,
    admitted: i64,
}

/// How a call's cost ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Charge {
    /// Milli points that were reserved.
    pub cost: i64,
    /// Milli points that were charged, if known.
    pub actual: Option<i64>,
    /// Whether the provider refused it.
    pub throttled: bool,
}

impl Level {
    pub(super) fn fresh(rule: &LevelRule, start: Start, t: Micros) -> Self {
        let full = rule.capacity * NANO;
        let (level, at) = match start {
            Start::Full => (full, t),
            Start::Empty { at } => (0, at),
        };
        let mut new = Self {
            level,
            at,
            used_at: t,
            in_flight: 0,
            sent: 0,
            capacity: full,
            highest: full,
            highest_at: t,
            observed: false,
            rate: rule.rate,
            answered: 0,
            admitted: 0,
            margin: 0,
            margin_at: t,
            shadow: level,
            foreign: 0,
        };
        new.refill(t);
        new
    }

    /// Lets time pass. What was learned is forgotten after an hour without use.
    #[inline]
    pub(super) fn advance(&mut self, rule: &LevelRule, t: Micros) {
        if t - self.used_at >= FORGET && self.in_flight == 0 {
            *self = Self::fresh(rule, Start::Full, t);
            return;
        }
        if !self.observed {
            (self.capacity, self.highest, self.rate) =
                (rule.capacity * NANO, rule.capacity * NANO, rule.rate);
            // Not since when the key was made: a bucket at rest is the same as a new one.
            self.highest_at = t;
        }
        self.refill(t);
    }

    fn refill(&mut self, t: Micros) {
        let elapsed = t - self.at;
        self.level = self.refilled(self.level, elapsed);
        self.shadow = self.refilled(self.shadow, elapsed);
        self.at = t;
    }

    fn refilled(&self, level: i64, elapsed: Micros) -> i64 {
        // What cannot be represented is more than any capacity.
        level.saturating_add(elapsed.saturating_mul(self.rate)).min(self.capacity)
    }

    /// What is kept back now: it falls linearly after the last refusal.
    fn margin(&self) -> i64 {
        let gone = self.at - self.margin_at;
        if self.margin == 0 || gone >= MARGIN_FALLS {
            return 0;
        }
        // In thousandths, so that the product stays small.
        self.margin / 1_000 * (1_000 - gone * 1_000 / MARGIN_FALLS)
    }

    /// Whether this cost can ever pass: the capacity that refuses it, if not.
    pub(super) fn never(&self, rule: &LevelRule, cost: i64) -> Option<i64> {
        let highest = self.highest / NANO;
        ((rule.known || self.observed) && cost > highest).then_some(highest)
    }

    /// Whether `cost` (milli points) passes after the calls ahead, which cost `ahead` at most: a cost above any size that was
    /// seen never does.
    #[inline]
    pub(super) fn passes(&self, cost: i64, ahead: i64) -> bool {
        let fits = cost * NANO <= self.capacity.min(self.highest);
        fits && self.short(cost, ahead, self.kept_back(cost)) <= 0
    }

    /// What is kept back from a call of this cost, which can be no more than the rest of the bucket.
    #[inline]
    fn kept_back(&self, cost: i64) -> i64 {
        self.margin().min(self.capacity - cost * NANO)
    }

    /// How much is missing for `cost` after calls that cost `ahead`, with this margin; none is missing if it is not positive.
    #[inline]
    fn short(&self, cost: i64, ahead: i64, margin: i64) -> i64 {
        let need = (ahead + cost).min(MAX_PRODUCT / NANO) * NANO;
        (need + margin - self.level).max(self.in_flight + need - MAX_IN_FLIGHT)
    }

    /// Whether `cost` (milli points) passes after the calls ahead, which cost `ahead.0` at most and `ahead.1` about; if not,
    /// why and when.
    pub(super) fn check(&self, cost: i64, ahead: (i64, i64)) -> Option<(Because, Micros)> {
        if cost * NANO > self.capacity {
            let because = Because::Cut { capacity: Points(self.capacity / NANO), need: Points(cost) };
            return Some((because, self.at + CUT_RETRY));
        }
        let margin = self.kept_back(cost);
        if self.short(cost, ahead.0, margin) <= 0 {
            return None;
        }
        let wait = ceil_div(self.short(cost, ahead.1, margin).max(0), self.rate);
        let because = Because::Level {
            level: Points(self.level.div_euclid(NANO)),
            capacity: Points(self.capacity / NANO),
            need: Points(cost),
            margin: Points(margin / NANO),
            restore_per_s: Points(self.rate),
        };
        Some((because, self.at + if ahead.0 == ahead.1 { wait } else { wait.max(SOON) }))
    }

    pub(super) fn spend(&mut self, cost: i64) -> Mark {
        self.level -= cost * NANO;
        self.shadow -= cost * NANO;
        self.in_flight += cost * NANO;
        self.used_at = self.at;
        self.admitted = (self.admitted + cost) % WRAP;
        Mark { answered: self.answered, admitted: self.admitted, at: self.at }
    }

    /// How many further calls of this cost would pass now, `most` at most.
    pub(super) fn remaining(&self, cost: i64, most: i64) -> i64 {
        fits(self.level - self.kept_back(cost), cost.max(1) * NANO, most)
    }

    /// The call was answered, lapsed or was never sent. Returns foreign use in milli points, if any was noticed.
    #[inline]
    pub(super) fn settle(&mut self, mark: Mark, charge: Charge, observed: Option<Observed>) -> i64 {
        let Charge { cost, actual, throttled } = charge;
        self.in_flight -= cost * NANO;
        self.used_at = self.at;
        let back = cost - if throttled { 0 } else { actual.unwrap_or(cost) };
        self.shadow = (self.shadow + back * NANO).min(self.capacity);
        let said = observed.and_then(|o| o.level).is_some();
        if !said {
            // A reported level contains the refund already (G9).
            self.level = (self.level + back * NANO).min(self.capacity);
        }
        let answered = self.answered;
        if !throttled {
            self.answered = (self.answered + cost) % WRAP;
        }
        if observed.is_none() && !throttled {
            return 0;
        }
        self.learn_from(mark, charge, observed, answered)
    }

    /// What an answer says; `answered` is what was before it.
    #[inline(never)]
    fn learn_from(&mut self, mark: Mark, charge: Charge, observed: Option<Observed>, answered: i64) -> i64 {
        let mut foreign = 0;
        if let Some(observed) = observed {
            let since = Since {
                answered: (answered - mark.answered).rem_euclid(WRAP),
                admitted: (self.admitted - mark.admitted).rem_euclid(WRAP),
            };
            foreign = self.observe(mark, observed, Some(since));
        }
        if charge.throttled {
            let cost = charge.cost * NANO;
            self.raise_margin(self.margin() + cost.max(self.capacity / 20), self.capacity / 2);
            if observed.and_then(|o| o.level).is_none() {
                // It had less than the cost; nobody said how much.
                self.level = self.level.min(cost - 1 - self.in_flight);
            }
        }
        foreign
    }

    /// Takes in a report. `since`: what happened since that call was admitted; unknown if its lease is gone, and then the
    /// report only lowers.
    fn observe(&mut self, mark: Mark, observed: Observed, since: Option<Since>) -> i64 {
        if mark.at < self.sent {
            return 0;
        }
        self.sent = mark.at;
        self.learn(observed);
        let Some(Points(reported)) = observed.level.filter(|l| l.0.abs() <= Points::MAX.0) else { return 0 };
        let high = reported * NANO - self.in_flight;
        let Some(since) = since else {
            self.level = self.level.min(high).min(self.capacity);
            return 0;
        };
        let nano = |milli: i64| milli.min(MAX_PRODUCT / NANO) * NANO;
        let low = high - nano(since.answered.min(since.admitted));
        self.level = self.level.max(low).min(high).min(self.capacity);
        // Since it was sent our own account has gained at most this; what is missing beyond it, others have used.
        let gained = (self.at - mark.at).min(MAX_PRODUCT / self.rate) * self.rate;
        let foreign = (self.shadow - gained - nano(since.answered) - reported * NANO).max(0);
        if foreign > 0 {
            self.shadow -= foreign;
            self.foreign = (self.foreign + foreign / NANO) % WRAP;
            self.raise_margin(foreign.min(self.capacity) * 2, self.capacity / 4);
        }
        self.shadow = self.shadow.max(low).min(self.capacity);
        foreign / NANO
    }

    /// A report of a call whose lease is gone.
    pub(super) fn late(&mut self, sent: Micros, observed: Observed) {
        self.observe(Mark { at: sent, ..Mark::default() }, observed, None);
    }

    fn learn(&mut self, observed: Observed) {
        if let Some(Points(capacity @ 1..)) = observed.capacity.filter(|c| *c <= Points::MAX) {
            self.observed = true;
            self.capacity = capacity * NANO;
            if self.capacity >= self.highest || self.at - self.highest_at >= FORGET {
                (self.highest, self.highest_at) = (self.capacity, self.at);
            }
        }
        if let Some(Points(rate @ 1..)) = observed.restore_per_s.filter(|r| *r <= Points::MAX) {
            self.observed = true;
            self.rate = rate;
        }
    }

    /// At least `to`, at most `most`; never lower than it is.
    fn raise_margin(&mut self, to: i64, most: i64) {
        let now = self.margin();
        if to.min(most) > now {
            (self.margin, self.margin_at) = (to.min(most), self.at);
        }
    }

    /// Level, capacity, cost in flight and foreign use, in milli points.
    pub(super) fn figures(&self) -> (i64, i64, i64, i64) {
        (self.level.div_euclid(NANO), self.capacity / NANO, self.in_flight / NANO, self.foreign)
    }

    pub(super) fn at_rest(&self, t: Micros) -> bool {
        let plain = !self.observed && self.margin() == 0 && self.level == self.capacity && self.foreign == 0;
        self.in_flight == 0 && (t - self.used_at >= FORGET || (plain && self.sent == 0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULE: LevelRule = LevelRule { capacity: 100_000, rate: 50_000, known: false };

    fn reported(points: u32) -> Observed {
        Observed { level: Some(Points::whole(points)), ..Observed::default() }
    }

    fn charge(cost: i64, actual: Option<i64>) -> Charge {
        Charge { cost, actual, throttled: false }
    }

    #[test]
    fn the_wait_is_the_one_of_the_sentence() {
        let mut l = Level::fresh(&RULE, Start::Full, 0);
        let _ = l.spend(60_000);
        let (because, at) = l.check(52_000, (0, 0)).unwrap();
        assert_eq!(because.to_string(), "bucket 40 of 100, needs 52, at 50/s");
        assert_eq!(at, 240_000);
        l.advance(&RULE, 240_000);
        assert!(l.check(52_000, (0, 0)).is_none());
    }

    #[test]
    fn a_report_does_not_overwrite_what_is_in_flight() {
        let mut l = Level::fresh(&RULE, Start::Full, 0);
        let a = l.spend(40_000);
        let _b = l.spend(40_000);
        l.settle(a, charge(40_000, None), Some(reported(60)));
        assert_eq!(l.figures().0, 20_000);
    }

    #[test]
    fn an_older_report_does_not_count() {
        let mut l = Level::fresh(&RULE, Start::Full, 0);
        let old = l.spend(10_000);
        l.advance(&RULE, 100_000);
        let new = l.spend(10_000);
        l.advance(&RULE, 200_000);
        l.settle(new, charge(10_000, None), Some(reported(30)));
        let level = l.figures().0;
        l.settle(old, charge(10_000, None), Some(reported(5)));
        assert_eq!(l.figures().0, level);
    }

    #[test]
    fn a_refund_that_was_lost_is_found_again() {
        let mut l = Level::fresh(&RULE, Start::Full, 0);
        let lost = l.spend(80_000);
        l.settle(lost, charge(80_000, None), None);
        let next = l.spend(10_000);
        l.settle(next, charge(10_000, Some(10_000)), Some(reported(70)));
        assert_eq!(l.figures().0, 70_000);
    }

    #[test]
    fn nonsense_in_a_report_is_ignored() {
        let mut l = Level::fresh(&RULE, Start::Full, 0);
        let mark = l.spend(10_000);
        let nonsense = Observed {
            level: Some(Points(i64::MAX)),
            capacity: Some(Points(-5)),
            restore_per_s: Some(Points(0)),
        };
        l.settle(mark, charge(10_000, None), Some(nonsense));
        assert_eq!((l.figures().0, l.figures().1, l.rate), (90_000, 100_000, 50_000));
    }

    #[test]
    fn a_cost_above_a_guess_or_during_a_cut_waits_and_above_what_was_seen_is_refused() {
        let mut l = Level::fresh(&RULE, Start::Full, 0);
        assert_eq!(l.never(&RULE, 500_000), None);
        assert!(matches!(l.check(500_000, (0, 0)), Some((Because::Cut { .. }, _))));
        let seen = |n| Some(Observed { capacity: Some(Points::whole(n)), ..Observed::default() });
        let mark = l.spend(1_000);
        l.settle(mark, charge(1_000, None), seen(200));
        assert_eq!(l.never(&RULE, 150_000), None);
        assert_eq!(l.never(&RULE, 500_000), Some(200_000));
        let mark = l.spend(1_000);
        l.settle(mark, charge(1_000, None), seen(100));
        assert_eq!(l.never(&RULE, 150_000), None, "cut for a while");
        assert!(l.check(150_000, (0, 0)).is_some());
    }

    #[test]
    fn foreign_use_is_noticed_and_kept_clear_of() {
        let mut l = Level::fresh(&RULE, Start::Full, 0);
        let mark = l.spend(10_000);
        assert_eq!(l.settle(mark, charge(10_000, Some(10_000)), Some(reported(80))), 10_000);
        assert_eq!(l.margin() / NANO, 20_000);
        l.advance(&RULE, MARGIN_FALLS);
        assert_eq!(l.margin(), 0);
    }

    proptest! {
        /// The provider charges in the order of sending, refunds and answers in any order; nobody else uses it. Then what
        /// we believe is never above what it has, once calls under way are taken off. (Not near the brim: a full
        /// bucket gains nothing while a call is under way, and our account of it does, until the next report.)
        #[test]
        fn never_above_what_the_provider_has(
            steps in prop::collection::vec((0i64..400_000, 0usize..3, 1i64..60, 0i64..60, any::<bool>()), 1..150),
        ) {
            let rule = LevelRule { capacity: 900_000_000, rate: 40_000, known: true };
            let mut ours = Level::fresh(&rule, Start::Empty { at: 0 }, 0);
            let (mut theirs, mut t) = (0, 0i64);
            // (mark, cost, actual, arrived, sampled level)
            let mut flying: Vec<(Mark, i64, i64, bool, Option<i64>)> = Vec::new();
            for (step, what, cost, actual, known) in steps {
                t += step;
                theirs = (theirs + step * rule.rate).min(rule.capacity * NANO);
                ours.advance(&rule, t);
                let cost = cost * 1_000;
                let pick = |n: usize| (t as usize / 7) % n;
                match what {
                    0 if ours.check(cost, (0, 0)).is_none() => {
                        let mark = ours.spend(cost);
                        flying.push((mark, cost, (actual * 1_000).min(cost), false, None));
                    }
                    1 if !flying.is_empty() => {
                        let n = pick(flying.len());
                        // The oldest that has not arrived, or one that has.
                        let n = if flying[n].3 { n } else { flying.iter().position(|f| !f.3).unwrap_or(n) };
                        let f = &mut flying[n];
                        if !f.3 {
                            prop_assert!(theirs >= f.1 * NANO, "would be throttled");
                            theirs -= f.1 * NANO;
                            f.3 = true;
                        } else if f.4.is_none() {
                            theirs = (theirs + (f.1 - f.2) * NANO).min(rule.capacity * NANO);
                            f.4 = Some(theirs / NANO);
                        }
                    }
                    _ if !flying.is_empty() => {
                        let n = pick(flying.len());
                        if let Some(sampled) = flying[n].4 {
                            let f = flying.remove(n);
                            let said = Observed { level: Some(Points(sampled)), ..Observed::default() };
                            ours.settle(f.0, charge(f.1, known.then_some(f.2)), Some(said));
                        }
                    }
                    _ => {}
                }
                let under_way: i64 = flying.iter().filter(|f| !f.3).map(|f| f.1 * NANO).sum();
                prop_assert!(ours.level <= theirs - under_way, "{} > {}", ours.level, theirs - under_way);
            }
        }
    }
}
