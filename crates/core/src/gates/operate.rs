//! What an operator sees and does: who holds and waits, what each gate has, and the levers of an emergency.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::breaker::{Breaker, BreakerRule, Vote};
use super::call::{Holder, Target};
use super::compiled::{Compiled, Rule};
use super::level::Charge;
use super::line::Spot;
use super::partition::{Lease, Partition};
use super::reply::{BreakerState, Freed};
use super::scope::GateState;
use super::units::{Micros, Points};
use super::{MAX_WOKEN, PURGE_BATCH};

/// One lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderView {
    /// For whom.
    pub target: Arc<Target>,
    /// By whom.
    pub holder: Holder,
    /// Number of the admission.
    pub fence: i64,
    /// Since when.
    pub admitted_at: Micros,
    /// Until when.
    pub expires_at: Micros,
    /// What it reserved.
    pub cost: Points,
    /// Whether it is in quarantine.
    pub quarantined: bool,
}

/// One place in line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaiterView {
    /// For whom.
    pub target: Arc<Target>,
    /// By whom.
    pub holder: Holder,
    /// The gate it was last refused by.
    pub gate: Arc<str>,
    /// Since when.
    pub arrived: Micros,
    /// When it is to ask again.
    pub retry_at: Micros,
    /// Until when the place lasts.
    pub expires_at: Micros,
    /// 1 is the highest.
    pub priority: u8,
    /// What it needs.
    pub cost: Points,
    /// Those before it where it stands.
    pub ahead: u32,
}

/// One gate and key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum GateView {
    /// A smooth rate.
    Smooth {
        /// Units that would pass now.
        free: i64,
    },
    /// A window.
    Window {
        /// Units in the window.
        used: i64,
        /// Units allowed.
        max: i64,
    },
    /// A reported bucket.
    Reported {
        /// What is left, as far as we know.
        level: Points,
        /// Its size.
        capacity: Points,
        /// Cost of unanswered calls.
        in_flight: Points,
        /// What others have used.
        foreign: Points,
    },
    /// Slots or a lock.
    Slots {
        /// Taken.
        used: u32,
        /// Allowed now.
        limit: u32,
    },
    /// A breaker.
    Breaker {
        /// What it does.
        state: BreakerState,
    },
    /// A quota.
    Quota {
        /// Live calls.
        live: u32,
        /// Cost in the window.
        cost: Points,
        /// How often somebody had to wait because of it.
        violations: u32,
        /// How often that was hoarding.
        hoards: u32,
    },
}

/// One scope key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeView {
    /// Its key; empty is the whole domain.
    pub key: String,
    /// Live leases, with those in quarantine.
    pub live: u32,
    /// Places in its line.
    pub waiting: u32,
    /// Its gates.
    pub gates: Vec<(Arc<str>, GateView)>,
}

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PartitionView {
    /// Keys with state.
    pub keys: u32,
    /// Leases.
    pub leases: u32,
    /// Of these in quarantine.
    pub quarantined: u32,
    /// Places.
    pub places: u32,
}

/// What an operator tells a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerOrder {
    /// Close, and forget what was counted.
    Reset,
    /// Open for so long.
    Trip {
        /// How long.
        lasts: Micros,
    },
}

impl Partition {
    /// Who holds, in the order of admission, at most `most`.
    pub fn holders(&self, most: usize) -> Vec<HolderView> {
        let mut all: Vec<&Lease> = self.leases.iter().map(|(_, l)| l).collect();
        all.sort_unstable_by_key(|l| l.fence);
        all.into_iter().take(most).map(|l| self.view(l)).collect()
    }

    fn view(&self, lease: &Lease) -> HolderView {
        HolderView {
            target: lease.target.clone(),
            holder: lease.holder,
            fence: lease.fence,
            admitted_at: lease.admitted_at - self.offset,
            expires_at: lease.ends - self.offset,
            cost: Points(lease.cost),
            quarantined: lease.quarantined,
        }
    }

    /// Who waits, in the order of arrival, at most `most`.
    pub fn waiters(&self, set: &Compiled, most: usize) -> Vec<WaiterView> {
        let mut all: Vec<_> = self.places.iter().collect();
        all.sort_unstable_by_key(|(_, p)| p.seq);
        let view = |(at, p): (u32, &super::partition::Place)| {
            let stands = p.stands.iter().enumerate().filter_map(|(s, stand)| stand.map(|stand| (s, stand)));
            let ahead = stands.filter_map(|(s, (id, spot))| {
                let line = &self.scopes.get(id)?.line;
                Some(line.ahead_of(Self::manner(set, s, self.last), p.ticket(at), spot).count)
            });
            WaiterView {
                target: p.target.clone(),
                holder: p.holder,
                gate: p.gate.clone(),
                arrived: p.arrived - self.offset,
                retry_at: p.retry_at - self.offset,
                expires_at: p.ends - self.offset,
                priority: p.level + 1,
                cost: Points(p.cost),
                ahead: ahead.max().unwrap_or(0),
            }
        };
        all.into_iter().take(most).map(view).collect()
    }

    /// What every gate and key has now, at most `most` keys.
    pub fn inspect(&mut self, set: &Compiled, now: Micros, most: usize) -> Vec<ScopeView> {
        let t = self.clock(now);
        let now = t - self.offset;
        let mut views = Vec::new();
        for at in 0..self.scopes.slots() as u32 {
            let Some(scope) = self.scopes.get_mut(at) else { continue };
            if views.len() >= most {
                break;
            }
            let mut gates = Vec::new();
            for (state, gate) in scope.gates.iter_mut().zip(&set.scopes[scope.rule].gates) {
                let gate = &set.gates[*gate];
                let rule = gate.rule(&scope.key);
                state.advance(rule, t);
                let ordered = self.orders.iter().any(|(name, until)| *name == gate.name && *until > now);
                let view = match view_gate(state, rule, scope.live, t) {
                    GateView::Breaker { .. } if ordered => GateView::Breaker { state: BreakerState::Open },
                    view => view,
                };
                gates.push((gate.name.clone(), view));
            }
            let (live, waiting) = (scope.live, scope.line.len());
            views.push(ScopeView { key: scope.key.to_string(), live, waiting, gates });
        }
        views.sort_by(|a, b| a.key.cmp(&b.key));
        views
    }

    /// How much there is.
    pub fn usage(&self) -> PartitionView {
        PartitionView {
            keys: self.scopes.len() as u32,
            leases: self.leases.len() as u32,
            quarantined: self.index.shut.len() as u32,
            places: self.places.len() as u32,
        }
    }

    /// Ends the leases of a holder, also in quarantine, as if they had never been. Returns what went, or would go.
    pub fn force_release(
        &mut self,
        set: &Compiled,
        now: Micros,
        holder: &Holder,
        dry_run: bool,
    ) -> (Vec<HolderView>, Freed) {
        let t = self.clock(now);
        let found: Vec<u32> =
            self.leases.iter().filter(|(_, l)| l.holder == *holder).map(|(at, _)| at).collect();
        let views = found.iter().filter_map(|at| self.leases.get(*at)).map(|l| self.view(l)).collect();
        let mut touched = Vec::new();
        let mut freed = Freed { gone: 0, more: false, woken: Vec::new() };
        if dry_run {
            return (views, freed);
        }
        for at in found {
            let Some(lease) = self.leases.get(at) else { continue };
            if !lease.quarantined {
                let charge = Charge { cost: lease.cost, actual: None, throttled: false };
                self.end_call(set, t, at, Vote::Neutral, charge);
                self.index.leases.remove(holder);
            }
            self.give_back(set, at, &mut touched);
            freed.gone += 1;
        }
        freed.woken = self.wake(set, t, &mut touched, MAX_WOKEN);
        (views, freed)
    }

    /// Puts a waiter before all others in the lines it stands in, and in those that it comes to later, as if it had arrived before
    /// all of them. False if it does not wait.
    pub fn promote(&mut self, set: &Compiled, now: Micros, holder: &Holder) -> bool {
        let t = self.clock(now);
        let Some(at) = self.index.places.get(holder).copied() else { return false };
        for s in 0..set.scopes.len() {
            let Some((id, spot)) = self.places.get(at).and_then(|p| p.stands[s]) else {
                self.arrive_first(set, at, s);
                continue;
            };
            // From a side line it goes to the front as if it had come in now; others may come in for it.
            let aside = spot == Spot::Side && self.unstand(set, t, at, s, false).is_some();
            let (Some(place), Some(scope)) = (self.places.get_mut(at), self.scopes.get_mut(id)) else {
                continue;
            };
            let ticket = place.ticket(at);
            let spot = if aside { scope.line.stand_in_main(Self::manner(set, s, t), ticket) } else { spot };
            place.stands[s] = Some((id, scope.line.bring_forward(place.ticket(at), spot)));
        }
        true
    }

    /// Lets a place have arrived before all who stand in a line of its call that it does not stand in.
    fn arrive_first(&mut self, set: &Compiled, at: u32, s: usize) {
        let Some(place) = self.places.get_mut(at) else { return };
        if !set.scopes[s].applies(&place.target) {
            return;
        }
        let mut made = String::new();
        let key = place.target.key(set.scopes[s].mask, &mut made);
        let id = self.index.scopes[s].get(key).copied();
        let front = id.and_then(|id| self.scopes.get(id)).and_then(|scope| scope.line.front());
        if let Some(front) = front {
            place.arrived = place.arrived.min(front - 1 - i64::from(place.level) * set.line.step);
        }
    }

    /// Carries out what operators have said about all keys of breakers and this state was not told, by the orders of the set: whoever
    /// was to tell it may have died on the way, or was overtaken by another one.
    pub fn heed(&mut self, set: &Compiled, now: Micros) {
        if self.orders == set.orders {
            return;
        }
        let t = self.clock(now);
        let now = t - self.offset;
        let standing = |until: &Micros| *until > now;
        for order in &set.orders {
            let (gate, until) = order;
            if standing(until) && !self.orders.contains(order) {
                self.order_breaker(set, now, gate, None, BreakerOrder::Trip { lasts: until - now });
            }
        }
        let stands = |gate: &str| set.orders.iter().any(|(name, until)| **name == *gate && standing(until));
        let (kept, over): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.orders).into_iter().partition(|(gate, _)| stands(gate));
        self.orders = kept;
        for (gate, until) in over {
            let ordered = until + self.offset;
            self.each_breaker(set, &gate, None, |rule, breaker| breaker.take_back(rule, t, ordered));
        }
    }

    /// Every breaker of a gate that has state, or that of one key. How many there are.
    fn each_breaker(
        &mut self,
        set: &Compiled,
        gate: &str,
        key: Option<&str>,
        mut act: impl FnMut(&BreakerRule, &mut Breaker),
    ) -> u32 {
        let Some(gate) = set.gates.iter().find(|g| *g.name == *gate) else { return 0 };
        let mut found = 0;
        for at in 0..self.scopes.slots() as u32 {
            let Some(scope) = self.scopes.get_mut(at) else { continue };
            if scope.rule != gate.scope || key.is_some_and(|k| *k != *scope.key) {
                continue;
            }
            let settings = gate.rule(&scope.key);
            if let (GateState::Breaker(breaker), Rule::Breaker(r)) = (&mut scope.gates[gate.at], settings) {
                act(r, breaker);
                found += 1;
            }
        }
        found
    }

    /// Resets or trips a breaker; of one key that has state, or of all. How many keys have changed. A trip of all also holds
    /// for keys that come later, and for keys at rest, which are the same: for these it is over when its time is. One key is reset
    /// where no order to all stands.
    pub fn order_breaker(
        &mut self,
        set: &Compiled,
        now: Micros,
        gate: &str,
        key: Option<&str>,
        order: BreakerOrder,
    ) -> u32 {
        let t = self.clock(now);
        let Some(rule) = set.gates.iter().find(|g| *g.name == *gate) else { return 0 };
        if set.scopes[rule.scope].mask == 0 && self.index.roots[rule.scope].is_none() {
            // The whole domain has one key, so there is none to come later.
            self.make(set, rule.scope, "", t);
        }
        let all = key.is_none() && set.scopes[rule.scope].mask != 0;
        let is_breaker = matches!(rule.rule(""), Rule::Breaker(_));
        if is_breaker && (key.is_none() || order == BreakerOrder::Reset) {
            let past = t - self.offset;
            self.orders.retain(|(name, until)| *name != rule.name && *until > past);
        }
        if let (BreakerOrder::Trip { lasts }, true, None) = (order, is_breaker, key) {
            self.orders.push((rule.name.clone(), now + lasts));
        }
        let began = now + self.offset;
        self.each_breaker(set, gate, key, |r, breaker| match order {
            BreakerOrder::Reset => breaker.reset(),
            BreakerOrder::Trip { .. } if all && breaker.at_rest(r, t) => {}
            BreakerOrder::Trip { lasts } => {
                let _ = breaker.open(began + lasts);
            }
        })
    }

    /// Makes sure that a breaker has state for this target, so that it can be tripped before its first call.
    pub fn touch(&mut self, set: &Compiled, now: Micros, target: &Target) {
        let t = self.clock(now);
        let _ = self.resolve(set, target, t);
    }

    /// Forgets everything except the clock and the fence. What went, or would go.
    pub fn clear(&mut self, set: &Compiled, dry_run: bool) -> PartitionView {
        let usage = self.usage();
        if !dry_run {
            let (last, offset, fence) = (self.last, self.offset, self.fence);
            *self = Self { last, offset, fence, ..Self::new(set, self.start) };
        }
        usage
    }

    /// How many steps of [`Self::expire`] would be needed at most.
    pub fn purge_steps(&self) -> usize {
        (self.leases.len() + self.places.len()) / PURGE_BATCH + 1
    }
}

fn view_gate(state: &GateState, rule: &Rule, live: u32, t: Micros) -> GateView {
    match (state, rule) {
        (GateState::Smooth(g), Rule::Smooth(r)) => GateView::Smooth { free: g.remaining(r, 1, i64::MAX) },
        (GateState::Window(g), Rule::Window(r)) => GateView::Window { used: g.used(), max: r.max },
        (GateState::Level(g), _) => {
            let (level, capacity, in_flight, foreign) = g.figures();
            GateView::Reported {
                level: Points(level),
                capacity: Points(capacity),
                in_flight: Points(in_flight),
                foreign: Points(foreign),
            }
        }
        (GateState::Pool(g), Rule::Pool(r)) => GateView::Slots { used: g.used(), limit: g.limit(r) },
        (GateState::Breaker(g), Rule::Breaker(r)) => GateView::Breaker { state: g.state(r, t) },
        (GateState::Quota(g), _) => {
            let (violations, hoards, cost) = g.figures();
            GateView::Quota { live, cost: Points(cost), violations, hoards }
        }
        (GateState::Smooth(_), _) => GateView::Smooth { free: 0 },
        (GateState::Window(g), _) => GateView::Window { used: g.used(), max: 0 },
        (GateState::Pool(g), _) => GateView::Slots { used: g.used(), limit: 0 },
        (GateState::Breaker(_), _) => GateView::Breaker { state: BreakerState::Closed },
    }
}
