//! The end of a call: what it held is given back, and what its answer says is learned.

use std::sync::Arc;

use super::breaker::{Heard, Vote};
use super::call::{End, Failure, Holder, Outcome};
use super::compiled::{Compiled, GateRule, Rule};
use super::level::Charge;
use super::partition::{NONE, Partition};
use super::reply::{Change, Freed, LeaseEnd, Permit, Renewal, Settled};
use super::scope::GateState;
use super::units::{Micros, Points, SECOND};
use super::{MAX_SCOPES, MAX_WOKEN};

/// How long to stay away after a refusal that named no time and no level.
const COOL_DOWN: Micros = SECOND;
/// Longest time a provider is believed (J8).
const MAX_COOL_DOWN: Micros = 24 * 3_600 * SECOND;

/// Whether nobody knows if the provider is still at it.
fn is_unknown(end: End) -> bool {
    matches!(end, End::Abandoned | End::Failed(Failure::TimedOut))
}

/// Adds a change of this gate. Not in line: most calls change nothing.
#[cold]
#[inline(never)]
fn note(changes: &mut Vec<Change>, gate: &GateRule, change: impl FnOnce(Arc<str>) -> Change) {
    changes.push(change(gate.name.clone()));
}

impl Partition {
    /// Ends the call of this permit. Doing it twice changes nothing.
    pub fn settle(&mut self, set: &Compiled, now: Micros, permit: &Permit, outcome: &Outcome) -> Settled {
        let t = self.clock(now);
        let mut touched = Vec::new();
        self.purge(set, t, &mut touched);
        let Some(at) = self.take_held(permit, t) else {
            return self.settle_late(set, t, permit, outcome, touched);
        };
        let unknown_end = is_unknown(outcome.end);
        let mut changes = Vec::new();
        self.learn(set, t, at, outcome, &mut changes);
        let state = if unknown_end && set.quarantine > 0 && self.holds_pool(set, at) {
            let until = t + set.quarantine;
            self.quarantine(at, until);
            LeaseEnd::Quarantined { until: until - self.offset }
        } else {
            self.give_back(set, at, &mut touched);
            LeaseEnd::Released
        };
        Settled { state, woken: self.wake(set, t, &mut touched, MAX_WOKEN), changes }
    }

    /// The same where the lease is in quarantine, or gone.
    #[inline(never)]
    fn settle_late(
        &mut self,
        set: &Compiled,
        t: Micros,
        permit: &Permit,
        outcome: &Outcome,
        mut touched: Vec<u32>,
    ) -> Settled {
        let state = match self.shut_by(permit, t) {
            Some((at, _)) if !is_unknown(outcome.end) => {
                self.give_back(set, at, &mut touched);
                LeaseEnd::Released
            }
            Some(_) => LeaseEnd::Gone,
            None => {
                self.late_report(set, t, permit, outcome);
                LeaseEnd::Gone
            }
        };
        let woken = self.wake(set, t, &mut touched, MAX_WOKEN);
        Settled { state, woken, changes: Vec::new() }
    }

    /// The lease of this permit, unless it is in quarantine; it is no longer found by its holder.
    fn take_held(&mut self, permit: &Permit, t: Micros) -> Option<u32> {
        let at = self.index.leases.remove(&permit.holder)?;
        if self.leases.get(at).is_some_and(|l| l.fence == permit.fence && l.ends > t) {
            return Some(at);
        }
        self.index.leases.insert(permit.holder, at);
        None
    }

    /// The lease of this permit, and whether it is in quarantine.
    fn held_by(&self, permit: &Permit, t: Micros) -> Option<(u32, bool)> {
        if let Some(at) = self.index.leases.get(&permit.holder)
            && self.leases.get(*at).is_some_and(|l| l.fence == permit.fence && l.ends > t)
        {
            return Some((*at, false));
        }
        self.shut_by(permit, t)
    }

    fn shut_by(&self, permit: &Permit, t: Micros) -> Option<(u32, bool)> {
        let at = *self.index.shut.get(&permit.fence)?;
        let shut = self.leases.get(at)?;
        (shut.holder == permit.holder && shut.ends > t).then_some((at, true))
    }

    fn learn(&mut self, set: &Compiled, t: Micros, at: u32, outcome: &Outcome, changes: &mut Vec<Change>) {
        let Some(lease) = self.leases.get(at) else { return };
        let throttled = matches!(outcome.end, End::Throttled { .. });
        let charge = Charge {
            cost: lease.cost,
            actual: if outcome.end == End::Unused {
                Some(0)
            } else {
                outcome.actual.map(|p| p.0.clamp(0, Points::MAX.0))
            },
            throttled,
        };
        let vote = match outcome.end {
            End::Ok | End::Failed(Failure::Request) => Vote::Good,
            End::Failed(Failure::Network | Failure::Server | Failure::TimedOut) => Vote::Bad,
            End::Throttled { .. } | End::Abandoned | End::Unused => Vote::Neutral,
        };
        for (number, gates) in set.by_scope() {
            let Some(scope) = self.scopes.get_mut(lease.scopes[number]) else { continue };
            for (gate, rule, state) in scope.states(gates) {
                if lease.held & gate.bit == 0 {
                    continue;
                }
                match (state, rule) {
                    (GateState::Level(level), Rule::Level(r)) => {
                        level.advance(r, t);
                        let cost = level.settle(lease.mark, charge, outcome.observed);
                        if cost > 0 {
                            note(changes, gate, |gate| Change::ForeignUse { gate, cost: Points(cost) });
                        }
                    }
                    (GateState::Breaker(breaker), Rule::Breaker(r)) => {
                        let probe = lease.probes & gate.bit != 0;
                        let from = Heard { process: lease.process, fence: lease.fence, probe };
                        if let Some(to) = breaker.hear(r, t, from, vote) {
                            note(changes, gate, |gate| Change::Breaker { gate, to });
                        }
                    }
                    (GateState::Pool(pool), Rule::Pool(r)) => {
                        pool.advance(t);
                        let moved = match outcome.end {
                            End::Throttled { .. } => pool.refused(r, t, lease.admitted_at),
                            End::Ok => pool.went_well(r, t),
                            End::Failed(_) | End::Abandoned | End::Unused => None,
                        };
                        if let Some((from, to)) = moved {
                            let refused = throttled;
                            note(changes, gate, |gate| Change::Limit { gate, from, to, refused });
                        }
                    }
                    _ => {}
                }
            }
        }
        if let End::Throttled { retry_after } = outcome.end {
            let ids = lease.scopes;
            let said = outcome.observed.and_then(|o| o.level).is_some();
            let pause = match retry_after {
                Some(after) => after.clamp(0, MAX_COOL_DOWN),
                None if said => 0,
                None => COOL_DOWN,
            };
            self.cool_down(set, &ids, t + pause);
        }
    }

    /// Closes the scope of the narrowest rate gate of the call until then.
    #[inline(never)]
    fn cool_down(&mut self, set: &Compiled, ids: &[u32; MAX_SCOPES], until: Micros) {
        let mut narrowest: Option<(u32, usize)> = None;
        for (_, gate) in set.gates.iter().enumerate().filter(|(i, _)| set.enabled(*i)) {
            let scope = &set.scopes[gate.scope];
            if ids[gate.scope] == NONE || !gate.rule("").is_rate() {
                continue;
            }
            let width = scope.mask.count_ones() * 2 + u32::from(!scope.only.is_empty());
            if narrowest.is_none_or(|(best, _)| width > best) {
                narrowest = Some((width, gate.scope));
            }
        }
        if let Some((_, s)) = narrowest
            && let Some(scope) = self.scopes.get_mut(ids[s])
        {
            scope.cool_until = scope.cool_until.max(until);
        }
    }

    /// An answer came after its lease had gone: a reported level may still lower the bucket.
    fn late_report(&mut self, set: &Compiled, t: Micros, permit: &Permit, outcome: &Outcome) {
        let Some(observed) = outcome.observed else { return };
        let ids = self.resolve(set, &permit.target, t);
        for gate in &set.gates {
            let Some(scope) = self.scopes.get_mut(ids[gate.scope]) else { continue };
            if let (GateState::Level(level), Rule::Level(r)) =
                (&mut scope.gates[gate.at], gate.rule(&scope.key))
            {
                level.advance(r, t);
                level.late(permit.admitted_at + self.offset, observed);
            }
        }
    }

    /// Makes the permit last longer. What has lapsed is left to those whose answer can call whoever may have it.
    pub fn renew(&mut self, now: Micros, permit: &Permit) -> Renewal {
        let t = self.clock(now);
        let held = self.held_by(permit, t).filter(|(_, quarantined)| !quarantined);
        let Some(lease) = held.and_then(|(at, _)| self.leases.get_mut(at)) else { return Renewal::Gone };
        lease.ends = lease.ends.max(t + lease.length);
        Renewal::Renewed { expires_at: lease.ends - self.offset }
    }

    /// Gives up a place in line.
    pub fn cancel_wait(&mut self, set: &Compiled, now: Micros, holder: &Holder) -> Freed {
        let t = self.clock(now);
        let mut touched = Vec::new();
        let (more, _) = self.purge(set, t, &mut touched);
        let place = self.index.places.get(holder).copied();
        if let Some(at) = place {
            self.remove_place(set, t, at, false, &mut touched);
        }
        Freed { gone: u32::from(place.is_some()), more, woken: self.wake(set, t, &mut touched, MAX_WOKEN) }
    }
}
