//! The end of a call: what it held is given back, and what its answer says is learned.

use super::breaker::{Heard, Vote};
use super::call::{End, Failure, Holder, Outcome};
use super::compiled::{Compiled, Rule};
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

impl Partition {
    /// Ends the call of this permit. Doing it twice changes nothing.
    pub fn settle(&mut self, set: &Compiled, now: Micros, permit: &Permit, outcome: &Outcome) -> Settled {
        let t = self.clock(now);
        let mut touched = Vec::new();
        self.purge(set, t, &mut touched);
        let mut changes = Vec::new();
        let Some((at, quarantined)) = self.take_held(permit, t) else {
            self.late_report(set, t, permit, outcome);
            let woken = self.wake(set, &mut touched, MAX_WOKEN);
            return Settled { state: LeaseEnd::Gone, woken, changes };
        };
        let unknown_end = matches!(outcome.end, End::Abandoned | End::Failed(Failure::TimedOut));
        if quarantined {
            let state = if unknown_end { LeaseEnd::Gone } else { LeaseEnd::Released };
            if !unknown_end {
                self.give_back(set, at, &mut touched);
            }
            let woken = self.wake(set, &mut touched, MAX_WOKEN);
            return Settled { state, woken, changes };
        }
        self.learn(set, t, at, outcome, &mut changes);
        let state = if unknown_end && set.quarantine > 0 && self.holds_pool(set, at) {
            let until = t + set.quarantine;
            self.quarantine(at, until);
            LeaseEnd::Quarantined { until: until - self.offset }
        } else {
            self.give_back(set, at, &mut touched);
            LeaseEnd::Released
        };
        Settled { state, woken: self.wake(set, &mut touched, MAX_WOKEN), changes }
    }

    /// The same as `held_by`; a lease that is found is no longer found by its holder.
    fn take_held(&mut self, permit: &Permit, t: Micros) -> Option<(u32, bool)> {
        if let Some(at) = self.index.leases.remove(&permit.holder) {
            if self.leases.get(at).is_some_and(|l| l.fence == permit.fence && l.ends > t) {
                return Some((at, false));
            }
            self.index.leases.insert(permit.holder, at);
        }
        self.shut_by(permit, t)
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
            for (i, rule) in gates.filter(|(i, _)| lease.held & (1 << i) != 0) {
                let name = &rule.name;
                match (&mut scope.gates[rule.at], rule.rule(&scope.key)) {
                    (GateState::Level(level), Rule::Level(r)) => {
                        level.advance(r, t);
                        let cost = level.settle(lease.mark, charge, outcome.observed);
                        if cost > 0 {
                            changes.push(Change::ForeignUse { gate: name.clone(), cost: Points(cost) });
                        }
                    }
                    (GateState::Breaker(breaker), Rule::Breaker(r)) => {
                        let probe = lease.probes & (1 << i) != 0;
                        let from = Heard { process: lease.process, fence: lease.fence, probe };
                        if let Some(to) = breaker.hear(r, t, from, vote) {
                            changes.push(Change::Breaker { gate: name.clone(), to });
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
                            changes.push(Change::Limit { gate: name.clone(), from, to, refused: throttled });
                        }
                    }
                    _ => {}
                }
            }
        }
        let ids = lease.scopes;
        if let End::Throttled { retry_after } = outcome.end {
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

    /// Makes the permit last longer.
    pub fn renew(&mut self, set: &Compiled, now: Micros, permit: &Permit) -> Renewal {
        let t = self.clock(now);
        self.purge(set, t, &mut Vec::new());
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
        Freed { gone: u32::from(place.is_some()), more, woken: self.wake(set, &mut touched, MAX_WOKEN) }
    }
}
