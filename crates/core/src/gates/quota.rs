//! Quota: what one key, usually a tenant, may have at a time and spend in a window. Live calls are counted by their leases
//! (G6); violations and hoarding are counted to be alerted on.

use serde::{Deserialize, Serialize};

use super::Start;
use super::level::FORGET;
use super::pool::Patience;
use super::reply::Because;
use super::units::{Micros, Points, SECOND};
use super::window::{Window, WindowRule};

/// The settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QuotaRule {
    /// Calls at a time.
    pub slots: Option<u32>,
    /// Milli points per window.
    pub cost: Option<WindowRule>,
    /// Live and waiting calls that are called hoarding.
    pub hoarding: u32,
}

/// How often the first in line asks again.
const POLL: Micros = SECOND;

/// The state of one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Quota {
    window: Option<Window>,
    violations: u32,
    hoards: u32,
    violated_at: Micros,
}

/// What the key has now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    pub live: u32,
    pub waiting: u32,
    pub ahead: u32,
    pub cost: i64,
    pub cost_ahead: (i64, i64),
}

impl Quota {
    pub(super) fn fresh(rule: &QuotaRule, start: Start, t: Micros) -> Self {
        Self {
            window: rule.cost.map(|w| Window::fresh(&w, start, t)),
            violations: 0,
            hoards: 0,
            violated_at: 0,
        }
    }

    /// Lets time pass. What was counted is forgotten an hour after the last violation.
    pub(super) fn advance(&mut self, rule: &QuotaRule, t: Micros) {
        if t - self.violated_at >= FORGET {
            (self.violations, self.hoards) = (0, 0);
        }
        match (&mut self.window, &rule.cost) {
            (Some(window), Some(rule)) => window.advance(rule, t),
            (window @ None, Some(rule)) => *window = Some(Window::fresh(rule, Start::Full, t)),
            (window, None) => *window = None,
        }
    }

    #[inline]
    pub(super) fn passes(&self, rule: &QuotaRule, usage: Usage) -> bool {
        rule.slots.is_none_or(|max| usage.live + usage.ahead < max)
            && match (&self.window, &rule.cost) {
                (Some(window), Some(rule)) => {
                    usage.cost <= rule.max && window.passes(rule, usage.cost, usage.cost_ahead.0)
                }
                _ => true,
            }
    }

    pub(super) fn check(
        &self,
        rule: &QuotaRule,
        t: Micros,
        usage: Usage,
        patience: Patience,
    ) -> Option<(Because, Micros)> {
        if let Some(max) = rule.slots
            && usage.live + usage.ahead >= max
        {
            let hoarding = usage.live + usage.waiting >= rule.hoarding;
            let because = Because::QuotaSlots { live: usage.live, max, hoarding };
            return Some((because, t + patience.poll(POLL, usage.ahead, max)));
        }
        let (window, rule) = (self.window.as_ref()?, rule.cost.as_ref()?);
        let at = window.check(rule, t, usage.cost, usage.cost_ahead)?;
        let (used, need, max) = (Points(window.used()), Points(usage.cost), Points(rule.max));
        Some((Because::QuotaCost { used, need, max, every: rule.every }, at))
    }

    /// Somebody new had to wait because of it.
    pub(super) fn violated(&mut self, t: Micros, because: Because) {
        self.violated_at = t;
        self.violations = self.violations.saturating_add(1);
        if matches!(because, Because::QuotaSlots { hoarding: true, .. }) {
            self.hoards = self.hoards.saturating_add(1);
        }
    }

    pub(super) fn spend(&mut self, rule: &QuotaRule, t: Micros, cost: i64) {
        if let (Some(window), Some(rule)) = (&mut self.window, &rule.cost)
            && cost > 0
        {
            window.spend(rule, t, cost);
        }
    }

    /// How many further calls of this cost would pass now, `most` at most.
    pub(super) fn remaining(&self, rule: &QuotaRule, live: u32, cost: i64, most: i64) -> i64 {
        let slots = rule.slots.map_or(most, |max| most.min(i64::from(max.saturating_sub(live))));
        match (&self.window, &rule.cost) {
            (Some(window), Some(rule)) => window.remaining(rule, cost.max(1), slots),
            _ => slots,
        }
    }

    /// Violations, hoarding, and cost in the window.
    pub(super) fn figures(&self) -> (u32, u32, i64) {
        (self.violations, self.hoards, self.window.as_ref().map_or(0, Window::used))
    }

    pub(super) fn at_rest(&self) -> bool {
        self.violations == 0 && self.window.as_ref().is_none_or(Window::at_rest)
    }
}
