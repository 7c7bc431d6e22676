//! Smooth rate: the generic cell rate algorithm, kept as a level instead of a time of arrival.
//!
//! N units per T with a burst of B. The level is counted in 1/N µs of emission time: one unit adds T, one microsecond
//! drains N. So nothing is ever rounded. At most B + N/T × W units pass in any window of length W.

use serde::{Deserialize, Serialize};

use super::Start;
use super::config::Unit;
use super::reply::Because;
use super::units::{MAX_PRODUCT, Micros, SOON, ceil_div, fits};

/// The settings, in the gate's own units: calls, or milli points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SmoothRule {
    /// N: units…
    pub rate: i64,
    /// …per T.
    pub every: Micros,
    /// B: units at once.
    pub burst: i64,
    /// What is counted.
    pub unit: Unit,
}

/// The state of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Smooth {
    level: i64,
    at: Micros,
}

impl Smooth {
    pub(super) fn fresh(rule: &SmoothRule, start: Start, t: Micros) -> Self {
        let mut new = Self { level: 0, at: t };
        if let Start::Empty { at } = start {
            new = Self { level: rule.burst * rule.every, at };
        }
        new.advance(rule, t);
        new
    }

    #[inline]
    pub(super) fn advance(&mut self, rule: &SmoothRule, t: Micros) {
        // What cannot be represented is more than any level.
        self.level = (self.level - (t - self.at).saturating_mul(rule.rate)).max(0);
        self.at = t;
    }

    /// Whether `own` units pass after at most `ahead` of the calls ahead, as far as it can be seen without a division: a burst can
    /// be counted, whatever is not more than that, too.
    #[inline]
    pub(super) fn passes(&self, rule: &SmoothRule, own: i64, ahead: i64) -> bool {
        own + ahead <= rule.burst && self.level + (own + ahead - rule.burst) * rule.every <= 0
    }

    /// Whether `own` units pass after those of the calls ahead, `ahead.0` at most and `ahead.1` about; if not, why and when.
    pub(super) fn check(&self, rule: &SmoothRule, own: i64, ahead: (i64, i64)) -> Option<(Because, Micros)> {
        if self.passes(rule, own, ahead.0) {
            return None;
        }
        let over = |ahead: i64| {
            let need = (own + ahead).min(MAX_PRODUCT / rule.every);
            self.level + need * rule.every - rule.burst * rule.every
        };
        if over(ahead.0) <= 0 {
            return None;
        }
        let wait = ceil_div(over(ahead.1).max(0), rule.rate);
        let free = (rule.burst * rule.every - self.level).div_euclid(rule.every);
        let because =
            Because::Smooth { free, need: own, rate: rule.rate, every: rule.every, unit: rule.unit };
        Some((because, self.at + if ahead.0 == ahead.1 { wait } else { wait.max(SOON) }))
    }

    pub(super) fn spend(&mut self, rule: &SmoothRule, units: i64) {
        self.level += units * rule.every;
    }

    /// How many further calls of `units` would pass now, `most` at most.
    pub(super) fn remaining(&self, rule: &SmoothRule, units: i64, most: i64) -> i64 {
        fits(rule.burst * rule.every - self.level, units * rule.every, most)
    }

    pub(super) fn at_rest(&self) -> bool {
        self.level == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(rate: i64, every: Micros, burst: i64) -> SmoothRule {
        SmoothRule { rate, every, burst, unit: Unit::Calls }
    }

    #[test]
    fn the_retry_time_is_exact_to_the_microsecond() {
        let r = rule(3, 1_000_000, 1);
        let mut g = Smooth::fresh(&r, Start::Full, 0);
        g.spend(&r, 1);
        let (_, at) = g.check(&r, 1, (0, 0)).unwrap();
        assert_eq!(at, 333_334);
        g.advance(&r, at - 1);
        assert!(g.check(&r, 1, (0, 0)).is_some());
        g.advance(&r, at);
        assert!(g.check(&r, 1, (0, 0)).is_none());
    }

    #[test]
    fn an_empty_start_has_no_burst() {
        let r = rule(10, 1_000_000, 5);
        let g = Smooth::fresh(&r, Start::Empty { at: 1_000 }, 1_000);
        assert_eq!(g.check(&r, 1, (0, 0)).unwrap().1, 101_000);
        assert!(Smooth::fresh(&r, Start::Empty { at: 1_000 }, 501_000).check(&r, 5, (0, 0)).is_none());
    }

    proptest! {
        #[test]
        fn never_more_than_burst_plus_rate_in_any_window(
            rate in 1i64..50, every in 1_000i64..2_000_000, burst in 1i64..20,
            steps in prop::collection::vec((0i64..300_000, 1i64..4), 1..200),
        ) {
            let r = rule(rate, every, burst);
            let (mut g, mut t, mut passed) = (Smooth::fresh(&r, Start::Full, 0), 0, Vec::new());
            for (step, units) in steps {
                t += step;
                g.advance(&r, t);
                if units <= burst && g.check(&r, units, (0, 0)).is_none() {
                    g.spend(&r, units);
                    passed.push((t, units));
                }
            }
            for (i, (from, _)) in passed.iter().enumerate() {
                let mut sum = 0;
                for (to, units) in &passed[i..] {
                    sum += units;
                    // sum ≤ burst + rate × (to − from) / every, without division.
                    prop_assert!(i128::from(sum - burst) * i128::from(every) <= i128::from(rate) * i128::from(to - from));
                }
            }
        }

        #[test]
        fn whoever_comes_back_when_told_passes(
            rate in 1i64..1000, every in 1_000i64..90_000_000, burst in 1i64..20, spent in 1i64..20, need in 1i64..20,
        ) {
            let r = rule(rate, every, burst);
            let need = need.min(burst);
            let mut g = Smooth::fresh(&r, Start::Full, 0);
            g.spend(&r, spent.min(burst));
            if let Some((_, at)) = g.check(&r, need, (0, 0)) {
                let mut early = g;
                early.advance(&r, at - 1);
                prop_assert!(early.check(&r, need, (0, 0)).is_some());
                g.advance(&r, at);
                prop_assert!(g.check(&r, need, (0, 0)).is_none());
            }
        }
    }
}
