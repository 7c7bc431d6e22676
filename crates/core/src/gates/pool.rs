//! Slots and locks: so many leases at a time, with slots kept for a priority, and a limit that may follow the provider's
//! refusals (additive increase, multiplicative decrease).
//!
//! `used` changes only together with a lease; it is never a count of its own that could drift.

use serde::{Deserialize, Serialize};

use super::MAX_LEVELS;
use super::level::FORGET;
use super::reply::Because;
use super::units::{Micros, SECOND};

/// The settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PoolRule {
    /// Leases at a time.
    pub limit: u32,
    /// Slots kept per level.
    pub reserved: [u32; MAX_LEVELS],
    /// How often the first in line asks again.
    pub poll: Micros,
    /// Whether it is a lock.
    pub lock: bool,
    /// A limit that moves.
    pub adaptive: Option<AdaptiveRule>,
}

/// Settings of a limit that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AdaptiveRule {
    /// Never below.
    pub floor: u32,
    /// Never above.
    pub ceiling: u32,
    /// What is left of the limit after a refusal, in thousandths.
    pub backoff: i64,
}

/// Longest time until a waiter asks again by itself, and until the first ones do.
const MAX_POLL: Micros = 10 * SECOND;
const MAX_FIRST_POLL: Micros = 5 * SECOND;

/// The state of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Pool {
    used: u32,
    by_level: [u32; MAX_LEVELS],
    /// Moving limit in thousandths; 0: not moved yet.
    moving: i64,
    /// When the limit was last cut, and last changed at all.
    cut_at: Micros,
    moved_at: Micros,
}

/// How many are before a call in its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ahead {
    /// All of them.
    pub count: u32,
    /// Those of its own level.
    pub own_level: u32,
    /// Their cost, at most: so much must be left for them.
    pub cost: i64,
    /// Their cost, about: so long it takes until they have gone.
    pub likely: i64,
}

/// Of somebody who waits for a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// How long it has waited.
    pub waited: Micros,
    /// How long its place may last: if it is dead, that is gone as soon as a lease would be.
    pub most: Micros,
    /// In how long the next lease ends, if nobody renews it.
    pub lapse: Micros,
    /// In how long the next place of another one ends, if it does not ask.
    pub gone: Micros,
}

impl Patience {
    /// How soon it asks again where so many stand before it. It would be called, so the first ones ask soon, and less often the longer they
    /// have waited, the others hardly ever; but all of them when a lease would end in silence, and the first ones when a place would, since
    /// then nobody is called.
    pub(super) fn poll(self, poll: Micros, ahead: u32, limit: u32) -> Micros {
        let turns = (i64::from(ahead / limit.max(1)) + 1).min(1_000);
        let first = poll.max((2 * self.waited).min(MAX_FIRST_POLL));
        let silent = if turns == 1 { self.lapse.min(self.gone) } else { self.lapse };
        first.saturating_mul(turns * turns).min(MAX_POLL.min(self.most).min(silent).max(poll))
    }
}

impl Pool {
    pub(super) fn advance(&mut self, t: Micros) {
        if self.moving != 0 && t - self.moved_at >= FORGET {
            self.moving = 0;
        }
    }

    /// The limit now.
    pub(super) fn limit(&self, rule: &PoolRule) -> u32 {
        match rule.adaptive {
            Some(a) if self.moving != 0 => ((self.moving / 1_000) as u32).clamp(a.floor, a.ceiling),
            _ => rule.limit,
        }
    }

    pub(super) fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn free(&self, rule: &PoolRule) -> u32 {
        self.limit(rule).saturating_sub(self.used)
    }

    /// Whether a call of this level passes after the calls ahead.
    #[inline]
    pub(super) fn passes(&self, rule: &PoolRule, level: usize, ahead: Ahead) -> bool {
        let limit = self.limit(rule);
        let kept = if rule.reserved == [0; MAX_LEVELS] { 0 } else { self.kept(rule, level) };
        let common = self.used + kept + ahead.count < limit;
        common || (self.used < limit && self.by_level[level] + ahead.own_level < rule.reserved[level])
    }

    /// Free slots that are kept for other levels.
    fn kept(&self, rule: &PoolRule, level: usize) -> u32 {
        let others = (0..MAX_LEVELS).filter(|l| *l != level);
        others.map(|l| rule.reserved[l].saturating_sub(self.by_level[l])).sum()
    }

    /// Why it does not pass, and when to ask again where it has waited for so long.
    pub(super) fn check(
        &self,
        rule: &PoolRule,
        t: Micros,
        level: usize,
        ahead: Ahead,
        patience: Patience,
    ) -> Option<(Because, Micros)> {
        if self.passes(rule, level, ahead) {
            return None;
        }
        let limit = self.limit(rule);
        let because = if rule.lock { Because::Locked } else { Because::Slots { used: self.used, limit } };
        Some((because, t + patience.poll(rule.poll, ahead.count, limit)))
    }

    pub(super) fn take(&mut self, level: usize) {
        self.used += 1;
        self.by_level[level] += 1;
    }

    pub(super) fn give_back(&mut self, level: usize) {
        self.used = self.used.saturating_sub(1);
        self.by_level[level] = self.by_level[level].saturating_sub(1);
    }

    /// The provider refused a call that was admitted at `admitted`. The limit before and after, if it moved.
    pub(super) fn refused(&mut self, rule: &PoolRule, t: Micros, admitted: Micros) -> Option<(u32, u32)> {
        let a = rule.adaptive?;
        // Calls that were under way at the last cut say nothing about the limit since.
        if self.cut_at != 0 && admitted <= self.cut_at {
            return None;
        }
        let before = self.limit(rule);
        let now = if self.moving == 0 { i64::from(rule.limit) * 1_000 } else { self.moving };
        self.moving = (now * a.backoff / 1_000).max(i64::from(a.floor) * 1_000);
        (self.cut_at, self.moved_at) = (t, t);
        let after = self.limit(rule);
        (before != after).then_some((before, after))
    }

    /// A call went well while the pool was used: the limit before and after, if it moved.
    #[inline]
    pub(super) fn went_well(&mut self, rule: &PoolRule, t: Micros) -> Option<(u32, u32)> {
        self.use_well(rule, rule.adaptive?, t)
    }

    fn use_well(&mut self, rule: &PoolRule, a: AdaptiveRule, t: Micros) -> Option<(u32, u32)> {
        let before = self.limit(rule);
        if u64::from(self.used) * 4 < u64::from(before) * 3 {
            return None;
        }
        let now = if self.moving == 0 { i64::from(rule.limit) * 1_000 } else { self.moving };
        self.moving = (now + 1_000_000 / now).min(i64::from(a.ceiling) * 1_000);
        self.moved_at = t;
        let after = self.limit(rule);
        (before != after).then_some((before, after))
    }

    /// Takes over a limit that was learned; what is used is counted from the leases.
    pub(super) fn keep_limit(&mut self, was: Self) {
        *self = Self { used: self.used, by_level: self.by_level, ..was };
    }

    pub(super) fn at_rest(&self, t: Micros) -> bool {
        self.used == 0 && (self.moving == 0 || t - self.moved_at >= FORGET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENT: Patience =
        Patience { waited: 0, most: 60 * SECOND, lapse: Micros::MAX, gone: Micros::MAX };

    fn rule(limit: u32) -> PoolRule {
        PoolRule { limit, reserved: [0; MAX_LEVELS], poll: SECOND, lock: false, adaptive: None }
    }

    fn ahead(count: u32) -> Ahead {
        Ahead { count, ..Ahead::default() }
    }

    #[test]
    fn the_first_ask_less_often_the_longer_they_wait_and_the_others_hardly_ever() {
        let patience = |waited| Patience { waited, ..PATIENT };
        let asks = |ahead, waited| patience(waited).poll(SECOND, ahead, 2) / SECOND;
        assert_eq!([asks(0, 0), asks(1, SECOND), asks(0, 2 * SECOND), asks(0, 60 * SECOND)], [1, 2, 4, 5]);
        assert_eq!([asks(2, 0), asks(4, 0), asks(u32::MAX, 0)], [4, 9, 10]);
        assert_eq!(patience(0).poll(30 * SECOND, 9, 1), 30 * SECOND, "as often as the setting says");
        let most = 8 * SECOND;
        assert_eq!(Patience { most, ..patience(0) }.poll(SECOND, 40, 2), most, "no longer than a lease");
        let lapse = 3 * SECOND;
        let lapses = Patience { lapse, ..patience(60 * SECOND) };
        assert_eq!((lapses.poll(SECOND, 1, 2), lapses.poll(SECOND, 9, 2)), (lapse, lapse));
        let gone = Patience { gone: lapse, ..patience(60 * SECOND) };
        assert_eq!((gone.poll(SECOND, 1, 2), gone.poll(SECOND, 9, 2)), (lapse, MAX_POLL));
    }

    #[test]
    fn those_ahead_keep_their_slots() {
        let (r, mut p) = (rule(3), Pool::default());
        p.take(0);
        assert!(p.check(&r, 0, 0, ahead(1), PATIENT).is_none());
        assert_eq!(p.check(&r, 0, 0, ahead(2), PATIENT).unwrap().1, SECOND);
        assert_eq!(p.check(&r, 0, 0, ahead(7), PATIENT).unwrap().1, 9 * SECOND);
    }

    #[test]
    fn a_reserved_slot_is_for_its_level_alone() {
        let mut r = rule(3);
        r.reserved[2] = 1;
        let mut p = Pool::default();
        p.take(0);
        p.take(0);
        assert!(p.check(&r, 0, 0, ahead(0), PATIENT).is_some());
        assert!(p.check(&r, 0, 2, ahead(5), PATIENT).is_none(), "those ahead of other levels cannot use it");
        assert!(p.check(&r, 0, 2, Ahead { count: 6, own_level: 1, ..Ahead::default() }, PATIENT).is_some());
        p.take(2);
        assert!(p.check(&r, 0, 2, ahead(0), PATIENT).is_some());
    }

    #[test]
    fn a_moving_limit_falls_once_per_generation_and_rises_by_one_per_round() {
        let adaptive = AdaptiveRule { floor: 2, ceiling: 20, backoff: 750 };
        let (r, mut p) = (PoolRule { adaptive: Some(adaptive), ..rule(8) }, Pool::default());
        (0..8).for_each(|_| p.take(0));
        assert_eq!(p.refused(&r, 100, 50), Some((8, 6)));
        assert_eq!(p.refused(&r, 110, 60), None, "it was under way at the cut");
        assert_eq!(p.refused(&r, 200, 150), Some((6, 4)));
        for t in 0..20 {
            let _ = p.refused(&r, 1_000 + 10 * t, 995 + 10 * t);
        }
        assert_eq!(p.limit(&r), 2);
        let rises = (0..200).filter_map(|t| p.went_well(&r, 10_000 + t)).count();
        assert_eq!((p.limit(&r), rises), (11, 9), "it stops where it is not used");
        let mut idle = Pool::default();
        assert_eq!(idle.went_well(&r, 0), None, "an idle pool learns nothing");
        p.advance(20_000 + FORGET);
        assert_eq!(p.limit(&r), 8);
    }
}
