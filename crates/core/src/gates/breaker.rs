//! Breaker: stops calls to a service that fails, lets a few try after a while, and brings the load back in steps.
//!
//! Failures are counted per process, in two half windows. It opens for all only if the counts of all reach the threshold
//! and most of the processes that had answers see failures; a process that fails alone is stopped alone. Probes are leases
//! with fences: one that dies gives its place back, one that answers late says nothing about the service any more. But it is out
//! until it ends, whatever became of the breaker meanwhile: never are more probes out than are set.

use serde::{Deserialize, Serialize};

use super::reply::{Because, BreakerState};
use super::units::{Micros, SECOND};

/// The settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BreakerRule {
    /// Failures that open it, or calls that a ratio needs.
    pub failures: u32,
    /// Share of failures that opens it, in thousandths.
    pub ratio: Option<i64>,
    /// Half of the window.
    pub half: Micros,
    /// How long it stays open.
    pub open: Micros,
    /// How many may try.
    pub probes: u32,
    /// Time in which the load comes back.
    pub ramp: Micros,
}

impl BreakerRule {
    /// Whether this is the number of the half window.
    #[inline]
    fn is_half(&self, half: i64, t: Micros) -> bool {
        (0..self.half).contains(&(t - half * self.half))
    }
}

/// Most processes whose votes are kept.
pub(super) const MAX_PROCESSES: usize = 64;
/// Steps in which the load comes back.
const RAMP_STEPS: i64 = 8;
/// How often to ask again while others try.
const PROBE_POLL: Micros = SECOND;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
enum Phase {
    #[default]
    Closed,
    Open {
        until: Micros,
    },
    Half {
        /// Probes of this time that are out.
        out: u32,
        good: u32,
        /// Leases with a higher fence are probes of this time.
        fence: i64,
    },
    Ramp {
        since: Micros,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Votes {
    process: u64,
    half: i64,
    ok: [u32; 2],
    bad: [u32; 2],
    open_until: Micros,
}

impl Votes {
    fn advance(&mut self, half: i64) {
        match half - self.half {
            0 => return,
            1 => (self.ok, self.bad) = ([self.ok[1], 0], [self.bad[1], 0]),
            _ => (self.ok, self.bad) = ([0; 2], [0; 2]),
        }
        self.half = half;
    }

    fn bad(&self) -> u32 {
        self.bad[0] + self.bad[1]
    }

    fn all(&self) -> u32 {
        self.bad() + self.ok[0] + self.ok[1]
    }
}

/// The state of one key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Breaker {
    phase: Phase,
    /// Probes of earlier times that are still out.
    earlier: u32,
    votes: Vec<Votes>,
}

/// What an answer says about the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vote {
    Good,
    Bad,
    Neutral,
}

impl Breaker {
    /// Whether a call passes because nothing is wrong, neither for all nor for its process.
    #[inline]
    pub(super) fn passes(&self, t: Micros, process: u64) -> bool {
        self.phase == Phase::Closed && self.stopped_alone(t, process).is_none()
    }

    /// Until when this process is stopped alone, if it is.
    #[inline]
    fn stopped_alone(&self, t: Micros, process: u64) -> Option<Micros> {
        let mine = self.votes.iter().find(|v| v.process == process).map(|v| v.open_until);
        mine.filter(|until| t < *until)
    }

    /// Whether a call passes; if not, why and when.
    pub(super) fn check(&self, rule: &BreakerRule, t: Micros, who: Asker) -> Option<(Because, Micros)> {
        match self.phase {
            Phase::Open { until } if t < until => return Some((Because::BreakerOpen, until)),
            Phase::Open { .. } | Phase::Half { .. } if self.taken() + who.ahead >= rule.probes => {
                return Some((Because::BreakerProbing { probes: rule.probes }, t + PROBE_POLL));
            }
            Phase::Ramp { since } => {
                let step = (t - since) * RAMP_STEPS / rule.ramp.max(1);
                let allowed = rule.probes.saturating_mul(1 << step.clamp(0, RAMP_STEPS) as u32);
                if step < RAMP_STEPS && who.live + who.ahead >= allowed {
                    let next = since + (step + 1) * rule.ramp / RAMP_STEPS;
                    return Some((Because::BreakerRamp { live: who.live, allowed }, next.max(t + 1)));
                }
            }
            Phase::Open { .. } | Phase::Half { .. } | Phase::Closed => {}
        }
        self.stopped_alone(t, who.process).map(|until| (Because::BreakerProcess, until))
    }

    /// How many of the places for probes are taken: by what is out, and by answers that this time already has where more
    /// would be of no use. One that hangs from an earlier time takes a place, and does not keep the others from closing it.
    fn taken(&self) -> u32 {
        match self.phase {
            Phase::Half { out, good, .. } => out + good.max(self.earlier),
            Phase::Open { .. } | Phase::Closed | Phase::Ramp { .. } => self.earlier,
        }
    }

    /// A call with this fence passes. Whether it is a probe.
    pub(super) fn pass(&mut self, rule: &BreakerRule, t: Micros, fence: i64) -> bool {
        match &mut self.phase {
            Phase::Open { .. } => {
                self.phase = Phase::Half { out: 1, good: 0, fence: fence - 1 };
                true
            }
            Phase::Half { out, .. } => {
                *out += 1;
                true
            }
            Phase::Ramp { since } if t - *since >= rule.ramp => {
                self.phase = Phase::Closed;
                false
            }
            Phase::Ramp { .. } | Phase::Closed => false,
        }
    }

    /// A call ended, or lapsed (`Neutral`). What the breaker turned to, if it did.
    #[inline]
    pub(super) fn hear(
        &mut self,
        rule: &BreakerRule,
        t: Micros,
        from: Heard,
        vote: Vote,
    ) -> Option<BreakerState> {
        // Nearly always: one process, and nothing is wrong.
        if self.phase == Phase::Closed
            && vote == Vote::Good
            && !from.probe
            && let [only] = &mut self.votes[..]
            && only.process == from.process
            && rule.is_half(only.half, t)
        {
            only.ok[1] += 1;
            return None;
        }
        self.hear_out(rule, t, from, vote)
    }

    #[inline(never)]
    fn hear_out(&mut self, rule: &BreakerRule, t: Micros, from: Heard, vote: Vote) -> Option<BreakerState> {
        if let Phase::Half { out, good, fence } = &mut self.phase {
            if !from.probe {
                return None;
            }
            if from.fence <= *fence {
                self.earlier = self.earlier.saturating_sub(1);
                return None;
            }
            *out = out.saturating_sub(1);
            match vote {
                Vote::Neutral => None,
                Vote::Bad => Some(self.open(t + rule.open)),
                Vote::Good => {
                    *good += 1;
                    (*good >= rule.probes).then(|| self.close(rule, t))
                }
            }
        } else if from.probe {
            self.earlier = self.earlier.saturating_sub(1);
            None
        } else if matches!(self.phase, Phase::Open { .. }) || vote == Vote::Neutral {
            None
        } else {
            self.count(rule, t, from.process, vote)
        }
    }

    fn count(&mut self, rule: &BreakerRule, t: Micros, process: u64, vote: Vote) -> Option<BreakerState> {
        let half = self.half(rule, t);
        for votes in &mut self.votes {
            votes.advance(half);
        }
        let at = self.seat(process, half);
        let mine = &mut self.votes[at];
        if vote == Vote::Good {
            mine.ok[1] += 1;
            return None;
        }
        mine.bad[1] += 1;
        let own = mine.bad();
        let (mut bad, mut all, mut active, mut failing) = (0u32, 0u32, 0u32, 0u32);
        for votes in self.votes.iter().filter(|v| v.all() > 0) {
            bad += votes.bad();
            all += votes.all();
            active += 1;
            failing += u32::from(votes.bad() * 2 >= votes.all());
        }
        let reached = |bad: u32, all: u32| match rule.ratio {
            None => bad >= rule.failures,
            Some(ratio) => all >= rule.failures && i64::from(bad) * 1_000 >= ratio * i64::from(all),
        };
        if reached(bad, all) && failing * 2 > active {
            return Some(self.open(t + rule.open));
        }
        let mine = &mut self.votes[at];
        if reached(own, mine.all()) && t >= mine.open_until {
            mine.open_until = t + rule.open;
            (mine.ok, mine.bad) = ([0; 2], [0; 2]);
            return Some(BreakerState::OpenForProcess);
        }
        None
    }

    /// Which half window it is: nearly always that of the last vote, which takes no division to see.
    fn half(&self, rule: &BreakerRule, t: Micros) -> i64 {
        let last = self.votes.first().map(|v| v.half);
        last.filter(|half| rule.is_half(*half, t)).unwrap_or_else(|| t / rule.half)
    }

    /// Where the votes of this process are; the longest silent one makes room.
    fn seat(&mut self, process: u64, half: i64) -> usize {
        if let Some(at) = self.votes.iter().position(|v| v.process == process) {
            return at;
        }
        let new = Votes { process, half, ok: [0; 2], bad: [0; 2], open_until: 0 };
        if self.votes.len() < MAX_PROCESSES {
            self.votes.push(new);
            return self.votes.len() - 1;
        }
        let silent = self.votes.iter().enumerate().min_by_key(|(i, v)| (v.all(), *i)).map_or(0, |(i, _)| i);
        self.votes[silent] = new;
        silent
    }

    /// Opens it until then.
    pub(super) fn open(&mut self, until: Micros) -> BreakerState {
        self.turn(Phase::Open { until });
        BreakerState::Open
    }

    /// A new time begins: votes are forgotten, probes that are out are those of an earlier one.
    fn turn(&mut self, phase: Phase) {
        if let Phase::Half { out, .. } = self.phase {
            self.earlier += out;
        }
        self.phase = phase;
        self.votes.clear();
    }

    fn close(&mut self, rule: &BreakerRule, t: Micros) -> BreakerState {
        if rule.ramp == 0 {
            self.turn(Phase::Closed);
            return BreakerState::Closed;
        }
        self.turn(Phase::Ramp { since: t });
        BreakerState::Ramp
    }

    /// An order that kept it open until then was taken back: closes what is open by it, and what is open for longer than failures open it.
    pub(super) fn take_back(&mut self, rule: &BreakerRule, t: Micros, ordered: Micros) {
        if let Phase::Open { until } = self.phase
            && (until == ordered || until > t + rule.open)
        {
            self.reset();
        }
    }

    /// Closes it at once and forgets what it counted.
    pub(super) fn reset(&mut self) {
        self.turn(Phase::Closed);
    }

    pub(super) fn state(&self, rule: &BreakerRule, t: Micros) -> BreakerState {
        match self.phase {
            Phase::Open { until } if t < until => BreakerState::Open,
            Phase::Open { .. } | Phase::Half { .. } => BreakerState::HalfOpen,
            Phase::Ramp { since } if t - since < rule.ramp => BreakerState::Ramp,
            Phase::Ramp { .. } | Phase::Closed => BreakerState::Closed,
        }
    }

    /// How many probes are out, of whatever time.
    #[cfg(test)]
    pub(super) fn probes_out(&self) -> u32 {
        match self.phase {
            Phase::Half { out, .. } => out + self.earlier,
            Phase::Open { .. } | Phase::Closed | Phase::Ramp { .. } => self.earlier,
        }
    }

    /// How many further calls would pass now.
    pub(super) fn remaining(&self, rule: &BreakerRule) -> i64 {
        match self.phase {
            Phase::Half { .. } => i64::from(rule.probes.saturating_sub(self.taken())),
            Phase::Open { .. } | Phase::Closed | Phase::Ramp { .. } => i64::from(u32::MAX),
        }
    }

    pub(super) fn at_rest(&self, rule: &BreakerRule, t: Micros) -> bool {
        let calm = match self.phase {
            Phase::Closed => true,
            Phase::Ramp { since } => t - since >= rule.ramp,
            Phase::Open { .. } | Phase::Half { .. } => false,
        };
        let half = t / rule.half;
        calm && self.earlier == 0 && self.votes.iter().all(|v| half - v.half > 1 && t >= v.open_until)
    }
}

/// Who asks to pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker {
    pub process: u64,
    /// Live calls of the key.
    pub live: u32,
    /// Calls before it in line.
    pub ahead: u32,
}

/// Whose call ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heard {
    pub process: u64,
    pub fence: i64,
    pub probe: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: BreakerRule = BreakerRule {
        failures: 5,
        ratio: None,
        half: 30 * SECOND,
        open: 60 * SECOND,
        probes: 2,
        ramp: 8 * SECOND,
    };

    fn hear(b: &mut Breaker, t: Micros, process: u64, vote: Vote) -> Option<BreakerState> {
        b.hear(&RULE, t, Heard { process, fence: t, probe: false }, vote)
    }

    fn asker(live: u32) -> Asker {
        Asker { process: 1, live, ahead: 0 }
    }

    fn opened() -> Breaker {
        let mut b = Breaker::default();
        let last = (0..5).filter_map(|i| hear(&mut b, i, 1, Vote::Bad)).last();
        assert_eq!(last, Some(BreakerState::Open));
        b
    }

    #[test]
    fn failures_in_the_window_open_it_and_older_ones_do_not_count() {
        let mut b = Breaker::default();
        for i in 0..4 {
            assert_eq!(hear(&mut b, i, 1, Vote::Bad), None);
        }
        assert_eq!(hear(&mut b, 61 * SECOND, 1, Vote::Bad), None);
        assert_eq!(b.check(&RULE, 61 * SECOND, asker(0)), None);
        assert_eq!(opened().check(&RULE, 10, asker(0)), Some((Because::BreakerOpen, 4 + 60 * SECOND)));
    }

    #[test]
    fn one_bad_process_stops_itself_alone() {
        let mut b = Breaker::default();
        for process in 2..5 {
            (0..10).for_each(|i| assert_eq!(hear(&mut b, i, process, Vote::Good), None));
        }
        let turned = (0..5).filter_map(|i| hear(&mut b, 20 + i, 1, Vote::Bad)).last();
        assert_eq!(turned, Some(BreakerState::OpenForProcess));
        assert_eq!(b.check(&RULE, 30, asker(0)).unwrap().0, Because::BreakerProcess);
        assert_eq!(b.check(&RULE, 30, Asker { process: 2, live: 0, ahead: 0 }), None);
        assert_eq!(b.check(&RULE, 25 + 60 * SECOND, asker(0)), None);
    }

    #[test]
    fn half_open_lets_as_many_try_as_set_and_a_dead_probe_gives_its_place_back() {
        let mut b = opened();
        let t = 61 * SECOND;
        for fence in [100, 101] {
            assert_eq!(b.check(&RULE, t, asker(0)), None);
            assert!(b.pass(&RULE, t, fence));
        }
        assert!(b.check(&RULE, t, asker(2)).is_some());
        let dead = Heard { process: 1, fence: 100, probe: true };
        assert_eq!(b.hear(&RULE, t + 1, dead, Vote::Neutral), None);
        assert_eq!(b.check(&RULE, t + 1, asker(1)), None);
    }

    #[test]
    fn a_probe_of_an_earlier_time_changes_nothing() {
        let mut b = opened();
        assert!(b.pass(&RULE, 61 * SECOND, 100));
        b.open(70 * SECOND);
        assert!(b.pass(&RULE, 71 * SECOND, 200));
        let late = Heard { process: 1, fence: 100, probe: true };
        assert_eq!(b.hear(&RULE, 72 * SECOND, late, Vote::Good), None);
        assert_eq!(b.phase, Phase::Half { out: 1, good: 0, fence: 199 });
    }

    #[test]
    fn a_probe_that_is_still_out_takes_a_place_in_every_later_time_until_it_ends() {
        let probe = |fence| Heard { process: 1, fence, probe: true };
        let mut b = opened();
        for fence in [100, 101] {
            assert!(b.pass(&RULE, 61 * SECOND, fence));
        }
        assert_eq!(b.hear(&RULE, 62 * SECOND, probe(100), Vote::Bad), Some(BreakerState::Open));
        let t = 123 * SECOND;
        assert!(b.check(&RULE, t, Asker { ahead: 1, ..asker(1) }).is_some(), "one is out, one is ahead");
        assert_eq!(b.check(&RULE, t, asker(1)), None);
        assert!(b.pass(&RULE, t, 200));
        assert_eq!(b.remaining(&RULE), 0);
        assert!(b.check(&RULE, t, asker(2)).is_some(), "two are out");
        // Also over a time of an operator's making.
        b.reset();
        let _ = b.open(t);
        assert!(b.check(&RULE, t + 1, asker(2)).is_some(), "two are still out");
        assert!(!b.at_rest(&RULE, t + 1));
        assert_eq!(b.hear(&RULE, t + 2, probe(101), Vote::Neutral), None);
        assert_eq!(b.check(&RULE, t + 2, asker(1)), None);
        assert!(b.pass(&RULE, t + 2, 300));
        assert!(b.check(&RULE, t + 2, asker(2)).is_some(), "two again");
    }

    #[test]
    fn a_reset_forgets_failures_and_what_a_process_did() {
        let mut b = opened();
        b.reset();
        for round in 0..2 {
            let t = 10 + round * 10;
            let turned: Vec<_> = (0..5).filter_map(|i| hear(&mut b, t + i, 1, Vote::Bad)).collect();
            assert_eq!(turned, [BreakerState::Open], "five again, not one");
            b.reset();
        }
        for i in 0..10 {
            assert_eq!(hear(&mut b, 40 + i, 2, Vote::Good), None);
        }
        let turned: Vec<_> = (0..5).filter_map(|i| hear(&mut b, 60 + i, 1, Vote::Bad)).collect();
        assert_eq!(turned, [BreakerState::OpenForProcess]);
        b.reset();
        assert_eq!(b.check(&RULE, 70, asker(0)), None, "it may call again");
        assert_eq!(hear(&mut b, 71, 1, Vote::Bad), None);
    }

    #[test]
    fn a_probe_that_hangs_does_not_keep_the_others_from_closing_it() {
        let mut b = opened();
        assert!(b.pass(&RULE, 61 * SECOND, 100));
        let _ = b.open(70 * SECOND);
        for (fence, turned) in [(200, None), (201, Some(BreakerState::Ramp))] {
            assert_eq!(b.check(&RULE, 71 * SECOND, asker(1)), None);
            assert!(b.pass(&RULE, 71 * SECOND, fence));
            let good = Heard { process: 1, fence, probe: true };
            assert_eq!(b.hear(&RULE, 71 * SECOND, good, Vote::Good), turned);
        }
    }

    #[test]
    fn good_probes_close_it_and_the_load_comes_back_in_steps() {
        let mut b = opened();
        let t = 61 * SECOND;
        for fence in [100, 101] {
            assert!(b.pass(&RULE, t, fence));
        }
        let probe = |fence| Heard { process: 1, fence, probe: true };
        assert_eq!(b.hear(&RULE, t, probe(100), Vote::Good), None);
        assert_eq!(b.hear(&RULE, t, probe(101), Vote::Good), Some(BreakerState::Ramp));
        assert_eq!(b.check(&RULE, t, asker(1)), None);
        assert_eq!(b.check(&RULE, t, asker(2)).unwrap().1, t + SECOND);
        assert_eq!(b.check(&RULE, t + SECOND, asker(2)), None);
        assert!(b.check(&RULE, t + SECOND, asker(4)).is_some());
        assert_eq!(b.check(&RULE, t + 8 * SECOND, asker(100_000)), None);
    }

    #[test]
    fn a_bad_probe_opens_it_again() {
        let mut b = opened();
        assert!(b.pass(&RULE, 61 * SECOND, 100));
        let probe = Heard { process: 1, fence: 100, probe: true };
        assert_eq!(b.hear(&RULE, 62 * SECOND, probe, Vote::Bad), Some(BreakerState::Open));
        assert_eq!(b.check(&RULE, 63 * SECOND, asker(0)).unwrap().1, 122 * SECOND);
    }

    #[test]
    fn a_ratio_needs_enough_calls() {
        let rule = BreakerRule { ratio: Some(500), failures: 10, ..RULE };
        let mut b = Breaker::default();
        let mut say = |t, vote| b.hear(&rule, t, Heard { process: 1, fence: t, probe: false }, vote);
        assert!((0..9).all(|t| say(t, Vote::Bad).is_none()));
        assert_eq!(say(9, Vote::Bad), Some(BreakerState::Open));
    }
}
