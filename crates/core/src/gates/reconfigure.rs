//! New settings for a state that is in use: gates are recognised by their scope, name and kind. What they know stays, leases
//! keep what they hold of them, and places stand where they stood if that line still exists.

use super::MAX_SCOPES;
use super::compiled::{Compiled, GateRule, ScopeRule};
use super::partition::{NONE, Partition};
use super::scope::GateState;
use super::units::Micros;

impl Partition {
    /// Goes from the settings `old` to `new`.
    pub fn reconfigure(&mut self, old: &Compiled, new: &Compiled, now: Micros) {
        let t = self.clock(now);
        let mut before = std::mem::replace(self, Self::new(new, self.start));
        (self.last, self.offset) = (before.last, before.offset);
        (self.fence, self.seq) = (before.fence, before.seq);
        self.orders = std::mem::take(&mut before.orders);
        for mut lease in before.leases.drain() {
            let ids = self.resolve(new, &lease.target, t);
            let held = new.gates.iter().enumerate().filter(|(_, gate)| {
                let was = old.gates.iter().position(|g| g.name == gate.name);
                was.is_some_and(|i| lease.held & (1 << i) != 0) && ids[gate.scope] != NONE
            });
            lease.held = held.fold(0, |bits, (i, _)| bits | 1 << i);
            // Probes of a breaker that starts anew are none of its own: their answers are those of plain calls.
            let probes = new.gates.iter().enumerate().filter(|(_, gate)| {
                let was = old.gates.iter().position(|g| g.name == gate.name);
                was.is_some_and(|i| lease.probes & (1 << i) != 0 && goes_on(old, i, new, gate))
            });
            lease.probes = probes.fold(0, |bits, (i, _)| bits | 1 << i);
            lease.scopes = ids;
            self.adopt(new, lease);
        }
        for scope in before.scopes.drain() {
            self.carry_over(old, new, scope, t);
        }
        let mut places: Vec<_> = before.places.drain().collect();
        places.sort_unstable_by_key(|p| p.seq);
        for mut place in places {
            let ids = self.resolve(new, &place.target, t);
            let stood: Vec<usize> = (0..MAX_SCOPES).filter(|s| place.stands[*s].is_some()).collect();
            place.stands = [None; MAX_SCOPES];
            place.level = place.level.min(new.line.levels - 1);
            let at = self.insert_place(place);
            let mut stands = false;
            for s in stood {
                if let Some(now_at) = same_scope(&old.scopes[s], new).filter(|s| ids[*s] != NONE) {
                    self.stand(new, t, at, now_at, ids[now_at]);
                    stands = true;
                }
            }
            if !stands {
                self.remove_place(new, t, at, false, &mut Vec::new());
            }
        }
    }

    fn adopt(&mut self, set: &Compiled, lease: super::partition::Lease) {
        for (i, gate) in set.gates.iter().enumerate() {
            let Some(scope) = self.scopes.get_mut(lease.scopes[gate.scope]) else { continue };
            if lease.held & (1 << i) != 0
                && let GateState::Pool(pool) = &mut scope.gates[gate.at]
            {
                pool.take(usize::from(lease.level));
            }
        }
        for id in lease.scopes.iter().filter(|id| **id != NONE) {
            if let Some(scope) = self.scopes.get_mut(*id) {
                scope.live += 1;
            }
        }
        self.insert_lease(lease);
    }

    fn carry_over(&mut self, old: &Compiled, new: &Compiled, scope: super::scope::Scope, t: Micros) {
        let Some(s) = same_scope(&old.scopes[scope.rule], new) else { return };
        let at = match self.index.scopes[s].get(&*scope.key).copied() {
            Some(at) => at,
            None => self.make(new, s, &scope.key, t),
        };
        let Some(here) = self.scopes.get_mut(at) else { return };
        here.cool_until = scope.cool_until;
        for (state, was) in scope.gates.into_iter().zip(&old.scopes[scope.rule].gates) {
            let name = &old.gates[*was].name;
            let Some(gate) = new.gates.iter().find(|g| g.name == *name && g.scope == s) else { continue };
            let kept = &mut here.gates[gate.at];
            match (state, kept) {
                (GateState::Pool(was), GateState::Pool(kept)) => kept.keep_limit(was),
                (state, kept) if state.fits(gate.rule(&here.key)) => *kept = state,
                _ => {}
            }
        }
    }
}

/// Whether a gate keeps the state that the one with this number of the old settings had.
fn goes_on(old: &Compiled, was: usize, new: &Compiled, gate: &GateRule) -> bool {
    let before = &old.gates[was];
    same_scope(&old.scopes[before.scope], new) == Some(gate.scope)
        && std::mem::discriminant(before.rule("")) == std::mem::discriminant(gate.rule(""))
}

fn same_scope(of: &ScopeRule, new: &Compiled) -> Option<usize> {
    new.scopes.iter().position(|s| s.mask == of.mask && s.only == of.only)
}
