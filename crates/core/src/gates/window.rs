//! Exact sliding window: at most N units in every window of T.
//!
//! A log of what passed. With a grain of one microsecond the log has one entry per call and the count is exact; with a
//! coarser grain entries are joined, and each counts until the last microsecond of its tick has left the window: never
//! too many, at most one tick's worth too few.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Start;
use super::config::Unit;
use super::reply::Because;
use super::units::{Micros, SOON, ceil_div, fits};

/// Most units whose instants are kept one by one.
pub(super) const EXACT_UP_TO: i64 = 10_000;
/// Ticks per window where they are not.
pub(super) const TICKS: i64 = 128;

/// The settings, in the gate's own units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WindowRule {
    /// N.
    pub max: i64,
    /// T.
    pub every: Micros,
    /// Length of a tick.
    pub grain: Micros,
    /// What is counted.
    pub unit: Unit,
}

impl WindowRule {
    /// With the grain that fits.
    pub(super) fn new(max: i64, every: Micros, unit: Unit) -> Self {
        let exact = unit == Unit::Calls && max <= EXACT_UP_TO;
        Self { max, every, grain: if exact { 1 } else { ceil_div(every, TICKS) }, unit }
    }

    /// When an entry leaves the window.
    fn leaves(&self, tick: i64) -> Micros {
        (tick + 1) * self.grain - 1 + self.every
    }
}

/// The state of one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Window {
    grain: Micros,
    total: i64,
    log: VecDeque<(i64, i64)>,
}

impl Window {
    pub(super) fn fresh(rule: &WindowRule, start: Start, t: Micros) -> Self {
        let mut new = Self { grain: rule.grain, total: 0, log: VecDeque::new() };
        if let Start::Empty { at } = start {
            // One entry for all: nothing passes until a whole window has gone by.
            new.log.push_back((at / rule.grain, rule.max));
            new.total = rule.max;
            new.advance(rule, t);
        }
        new
    }

    pub(super) fn advance(&mut self, rule: &WindowRule, t: Micros) {
        if self.grain != rule.grain {
            let old = self.grain;
            self.log.iter_mut().for_each(|(tick, _)| *tick = ((*tick + 1) * old - 1) / rule.grain);
            self.grain = rule.grain;
        }
        while let Some((tick, units)) = self.log.front().copied()
            && rule.leaves(tick) <= t
        {
            self.total -= units;
            self.log.pop_front();
        }
    }

    pub(super) fn used(&self) -> i64 {
        self.total
    }

    /// Whether `own` units pass after at most `ahead` of the calls ahead.
    #[inline]
    pub(super) fn passes(&self, rule: &WindowRule, own: i64, ahead: i64) -> bool {
        self.total + own + ahead <= rule.max
    }

    /// Whether `own` units pass after those of the calls ahead, `ahead.0` at most and `ahead.1` about; if not, when.
    pub(super) fn check(&self, rule: &WindowRule, t: Micros, own: i64, ahead: (i64, i64)) -> Option<Micros> {
        if self.passes(rule, own, ahead.0) {
            return None;
        }
        let need = (own + ahead.1).max(1);
        let at = self.room_at(rule, t, need);
        Some(if ahead.0 == ahead.1 { at } else { at.max(t + SOON) })
    }

    /// When there is room for `need`, if everything that comes until then is needed for it.
    fn room_at(&self, rule: &WindowRule, t: Micros, need: i64) -> Micros {
        let windows = (need - 1) / rule.max;
        let rest = need - windows * rule.max;
        let surplus = self.total + rest - rule.max;
        let base = if surplus <= 0 { t } else { self.freed_at(rule, surplus) };
        base + windows * rule.every
    }

    /// When the oldest entries worth `units` have left.
    fn freed_at(&self, rule: &WindowRule, units: i64) -> Micros {
        let mut left = units;
        for (tick, worth) in &self.log {
            left -= worth;
            if left <= 0 {
                return rule.leaves(*tick);
            }
        }
        self.log.back().map_or(0, |(tick, _)| rule.leaves(*tick))
    }

    pub(super) fn because(&self, rule: &WindowRule, own: i64) -> Because {
        Because::Window { used: self.total, need: own, max: rule.max, every: rule.every, unit: rule.unit }
    }

    pub(super) fn spend(&mut self, rule: &WindowRule, t: Micros, units: i64) {
        let tick = t / rule.grain;
        self.total += units;
        match self.log.back_mut() {
            Some((last, worth)) if *last == tick => *worth += units,
            _ => self.log.push_back((tick, units)),
        }
    }

    /// How many further calls of `units` would pass now, `most` at most.
    pub(super) fn remaining(&self, rule: &WindowRule, units: i64, most: i64) -> i64 {
        fits(rule.max - self.total, units, most)
    }

    pub(super) fn at_rest(&self) -> bool {
        self.log.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn never_more_than_n_in_any_window_and_the_told_time_is_right(
            max in 1i64..12, every in 1_000i64..500_000, coarse in any::<bool>(),
            steps in prop::collection::vec((0i64..60_000, 1i64..3), 1..300),
        ) {
            let mut rule = WindowRule::new(max, every, Unit::Calls);
            if coarse {
                rule.grain = ceil_div(every, TICKS);
            }
            let (mut w, mut t, mut passed) = (Window::fresh(&rule, Start::Full, 0), 0, Vec::new());
            for (step, units) in steps {
                t += step;
                let units = units.min(max);
                w.advance(&rule, t);
                match w.check(&rule, t, units, (0, 0)) {
                    None => {
                        w.spend(&rule, t, units);
                        passed.push((t, units));
                    }
                    Some(at) => {
                        prop_assert!(at > t);
                        let mut then = w.clone();
                        then.advance(&rule, at - 1);
                        prop_assert!(then.check(&rule, at - 1, units, (0, 0)).is_some());
                        then.advance(&rule, at);
                        prop_assert!(then.check(&rule, at, units, (0, 0)).is_none());
                    }
                }
            }
            for (i, (from, _)) in passed.iter().enumerate() {
                let sum: i64 = passed[i..].iter().take_while(|(at, _)| *at < from + every).map(|(_, u)| u).sum();
                prop_assert!(sum <= max);
            }
        }

        #[test]
        fn a_change_of_settings_never_lets_more_than_the_new_limit_pass(
            old in 1i64..40, new in 1i64..40, every in 2_000i64..100_000, grain in any::<bool>(),
            steps in prop::collection::vec(0i64..4_000, 1..100),
        ) {
            let first = WindowRule::new(old, every, Unit::Calls);
            let mut second = WindowRule::new(new, every, Unit::Calls);
            if grain {
                second.grain = ceil_div(every, TICKS);
            }
            let (mut w, mut t, mut passed) = (Window::fresh(&first, Start::Full, 0), 0, Vec::new());
            for (i, step) in steps.iter().enumerate() {
                t += step;
                let (rule, late) = if i < steps.len() / 2 { (&first, false) } else { (&second, true) };
                w.advance(rule, t);
                if w.check(rule, t, 1, (0, 0)).is_none() {
                    w.spend(rule, t, 1);
                    passed.push((t, late));
                }
            }
            for (to, late) in &passed {
                if *late {
                    let sum = passed.iter().filter(|(at, _)| at <= to && *at > to - every).count();
                    prop_assert!(sum as i64 <= new);
                }
            }
        }
    }
}
