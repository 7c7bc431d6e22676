//! The state of a domain, or of the part of a domain that shares a key: leases, places, scopes, and the clock.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::breaker::{Heard, Vote};
use super::call::{Holder, KeyMap, Target};
use super::compiled::{Compiled, Rule};
use super::level::{Charge, Mark};
use super::line::{Manner, Spot, Ticket};
use super::reply::{Admission, Because, Freed, Permit, Wait};
use super::scope::{GateState, Scope};
use super::slab::Slab;
use super::units::{Micros, Points, SECOND, SOON};
use super::{MAX_SCOPES, MAX_WOKEN, PURGE_BATCH, Start};

/// A clock that goes back by less is only read out of order.
const CLOCK_SLACK: Micros = SECOND;
/// No scope.
pub(super) const NONE: u32 = u32::MAX;

/// What an admission holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lease {
    pub target: Arc<Target>,
    pub holder: Holder,
    pub fence: i64,
    pub ask: u64,
    pub level: u8,
    pub process: u64,
    pub cost: i64,
    pub length: Micros,
    pub admitted_at: Micros,
    pub use_by: Micros,
    pub ends: Micros,
    pub mark: Mark,
    /// Its scope keys, by the number of the scope.
    pub scopes: [u32; MAX_SCOPES],
    /// Gates that hold something for it, a bit each.
    pub held: u32,
    /// Breakers for which it is a probe, a bit each.
    pub probes: u32,
    /// Nobody's any more; its slots stay taken.
    pub quarantined: bool,
}

/// A place in line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub target: Arc<Target>,
    pub holder: Holder,
    pub seq: u64,
    pub level: u8,
    pub cost: i64,
    pub arrived: Micros,
    pub retry_at: Micros,
    pub ends: Micros,
    pub gate: Arc<str>,
    /// Where it stands, by the number of the scope.
    pub stands: [Option<(u32, Spot)>; MAX_SCOPES],
}

impl Place {
    pub(super) fn ticket(&self, place: u32) -> Ticket<'_> {
        Ticket {
            place,
            seq: self.seq,
            level: self.level,
            cost: self.cost,
            arrived: self.arrived,
            tenant: self.target.part(super::Part::Tenant),
        }
    }
}

/// The state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Partition {
    pub(super) last: Micros,
    pub(super) offset: Micros,
    pub(super) fence: i64,
    pub(super) seq: u64,
    pub(super) start: Start,
    pub(super) scopes: Slab<Scope>,
    pub(super) leases: Slab<Lease>,
    pub(super) places: Slab<Place>,
    /// Breakers that an operator has opened for all keys, also those to come, and until when by the callers' clock.
    pub(super) orders: Vec<(Arc<str>, Micros)>,
    pub(super) sweep: u32,
    /// Keys to look at, for those that were made.
    pub(super) made: u32,
    #[serde(skip)]
    pub(super) index: Index,
}

/// What can be found again from the rest.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    /// Scope keys, by the number of the scope.
    pub scopes: Vec<KeyMap<Box<str>, u32>>,
    /// The only key of a scope that covers the whole domain.
    pub roots: [Option<u32>; MAX_SCOPES],
    pub leases: KeyMap<Holder, u32>,
    /// Leases in quarantine, by their fence.
    pub shut: KeyMap<i64, u32>,
    /// Ends of leases in order. The first entry of a lease is never later than its end.
    lease_ends: VecDeque<(Micros, i64, u32)>,
    pub places: KeyMap<Holder, u32>,
    /// Ends of places in order, those of one instant by their holders.
    place_ends: BTreeSet<(Micros, Holder)>,
    key: String,
}

impl Partition {
    /// A state that nobody has used.
    pub fn new(set: &Compiled, start: Start) -> Self {
        let mut new = Self {
            last: 0,
            offset: 0,
            fence: 0,
            seq: 0,
            start,
            scopes: Slab::default(),
            leases: Slab::default(),
            places: Slab::default(),
            orders: set.orders.clone(),
            sweep: 0,
            made: 0,
            index: Index::default(),
        };
        new.reindex(set);
        new
    }

    /// Finds again what is not serialised: call it once after reading a state back.
    pub fn reindex(&mut self, set: &Compiled) {
        let mut index = Index { scopes: vec![KeyMap::default(); set.scopes.len()], ..Index::default() };
        for (at, scope) in self.scopes.iter() {
            index.scopes[scope.rule].insert(scope.key.clone(), at);
            if set.scopes[scope.rule].mask == 0 {
                index.roots[scope.rule] = Some(at);
            }
        }
        for (at, lease) in self.leases.iter() {
            if lease.quarantined {
                index.shut.insert(lease.fence, at);
            } else {
                index.leases.insert(lease.holder, at);
            }
            index.lease_ends.push_back((lease.ends, lease.fence, at));
        }
        index.lease_ends.make_contiguous().sort_unstable();
        for (at, place) in self.places.iter() {
            index.places.insert(place.holder, at);
            index.place_ends.insert((place.ends, place.holder));
        }
        self.index = index;
    }

    /// Whether nobody holds or waits for anything.
    pub fn is_idle(&self) -> bool {
        self.leases.len() == 0 && self.places.len() == 0
    }

    /// Whether nothing would change if the state were forgotten.
    pub fn at_rest(&mut self, set: &Compiled, now: Micros) -> bool {
        let t = now + self.offset;
        self.recover(set, t);
        if self.orders.iter().any(|(_, until)| *until > now) {
            return false;
        }
        if !self.is_idle() || self.offset != 0 || t < self.last || self.start != Start::Full {
            return false;
        }
        (0..self.scopes.slots() as u32).all(|at| self.scopes.get_mut(at).is_none_or(|s| s.at_rest(set, t)))
    }

    /// When a lease or a place ends next.
    pub fn next_wakeup(&self) -> Option<Micros> {
        let lease = self.index.lease_ends.front().map(|(end, ..)| *end);
        let place = self.index.place_ends.first().map(|(end, _)| *end);
        [lease, place].into_iter().flatten().min().map(|t| t - self.offset)
    }

    /// The time of this state: never back, never standing still.
    pub(super) fn clock(&mut self, now: Micros) -> Micros {
        let mut t = now + self.offset;
        if t < self.last {
            if self.last - t > CLOCK_SLACK {
                self.offset += self.last - t;
            }
            t = self.last;
        }
        self.last = t;
        t
    }

    /// The keys of a target, by the number of the scope; made if they are new.
    pub(super) fn resolve(&mut self, set: &Compiled, target: &Target, t: Micros) -> [u32; MAX_SCOPES] {
        self.recover(set, t);
        self.sweep(set, t);
        let mut ids = [NONE; MAX_SCOPES];
        for (s, rule) in set.scopes.iter().enumerate() {
            if !rule.applies(target) {
                continue;
            }
            ids[s] = match self.index.roots[s] {
                Some(at) => at,
                None => self.find_or_make(set, s, target, t),
            };
        }
        ids
    }

    fn find_or_make(&mut self, set: &Compiled, s: usize, target: &Target, t: Micros) -> u32 {
        let key = target.key(set.scopes[s].mask, &mut self.index.key);
        if let Some(at) = self.index.scopes[s].get(key) {
            return *at;
        }
        let key: Box<str> = key.into();
        self.make(set, s, &key, t)
    }

    pub(super) fn make(&mut self, set: &Compiled, s: usize, key: &str, t: Micros) -> u32 {
        self.made += 2;
        let at = self.scopes.insert(Scope::fresh(set, s, key, self.start, t));
        self.index.scopes[s].insert(key.into(), at);
        if set.scopes[s].mask == 0 {
            self.index.roots[s] = Some(at);
        }
        at
    }

    /// After a loss: once everything could have come back, a key that is made starts as if nothing had been lost.
    fn recover(&mut self, set: &Compiled, t: Micros) {
        if let Start::Empty { at } = self.start
            && t - at >= set.recovery
        {
            self.start = Start::Full;
        }
    }

    /// Forgets keys at rest, two for every new one, so that their number follows what is in use. Never between finding
    /// the keys of a call and holding them.
    fn sweep(&mut self, set: &Compiled, t: Micros) {
        for _ in 0..std::mem::take(&mut self.made).min(MAX_SCOPES as u32 * 2) {
            if self.scopes.slots() == 0 {
                return;
            }
            self.sweep = (self.sweep + 1) % self.scopes.slots() as u32;
            let at = self.sweep;
            // After a loss a key is not the same as a new one until everything could have come back.
            if self.start == Start::Full && self.scopes.get_mut(at).is_some_and(|s| s.at_rest(set, t)) {
                self.forget(at);
            }
        }
    }

    pub(super) fn forget(&mut self, at: u32) {
        if let Some(scope) = self.scopes.remove(at) {
            self.index.scopes[scope.rule].remove(&scope.key);
            if self.index.roots[scope.rule] == Some(at) {
                self.index.roots[scope.rule] = None;
            }
        }
    }

    #[inline]
    pub(super) fn insert_lease(&mut self, lease: Lease) {
        let (holder, end, fence) = (lease.holder, lease.ends, lease.fence);
        let at = self.leases.insert(lease);
        self.index.leases.insert(holder, at);
        self.note_end(end, fence, at);
    }

    fn note_end(&mut self, end: Micros, fence: i64, at: u32) {
        let ends = &mut self.index.lease_ends;
        if ends.back().is_none_or(|last| last.0 <= end) {
            ends.push_back((end, fence, at));
        } else {
            let place = ends.partition_point(|e| (e.0, e.1) < (end, fence));
            ends.insert(place, (end, fence, at));
        }
        // Entries of settled leases are dropped when they outnumber the living.
        if ends.len() > 2 * self.leases.len() + PURGE_BATCH {
            let leases = &self.leases;
            ends.retain(|(_, fence, at)| leases.get(*at).is_some_and(|l| l.fence == *fence));
        }
    }

    /// The first lease whose end has come, if any.
    fn due_lease(&mut self, t: Micros) -> Option<u32> {
        self.first_end().filter(|(end, _)| *end <= t).map(|(_, at)| at)
    }

    /// When the first lease ends that nobody renews.
    pub(super) fn next_lease_end(&mut self) -> Option<Micros> {
        self.first_end().map(|(end, _)| end)
    }

    /// When the first place of another one ends that does not ask.
    pub(super) fn next_place_end(&self, own: &Holder) -> Option<Micros> {
        self.index.place_ends.iter().find(|(_, holder)| holder != own).map(|(end, _)| *end)
    }

    /// The lease that ends first, and when; forgets entries of leases that went otherwise.
    fn first_end(&mut self) -> Option<(Micros, u32)> {
        while let Some((end, fence, at)) = self.index.lease_ends.front().copied() {
            match self.leases.get(at).filter(|l| l.fence == fence) {
                Some(lease) if lease.ends > end => {
                    let later = lease.ends;
                    self.index.lease_ends.pop_front();
                    self.note_end(later, fence, at);
                }
                Some(_) => return Some((end, at)),
                None => {
                    self.index.lease_ends.pop_front();
                }
            }
        }
        None
    }

    /// Clears away what has lapsed, up to a bound; whether more is due, and how many went. Scope keys that were touched
    /// are added to `touched`.
    #[inline]
    pub(super) fn purge(&mut self, set: &Compiled, t: Micros, touched: &mut Vec<u32>) -> (bool, u32) {
        if self.due_lease(t).is_none() && self.places.len() == 0 {
            return (false, 0);
        }
        self.purge_due(set, t, touched)
    }

    #[inline(never)]
    fn purge_due(&mut self, set: &Compiled, t: Micros, touched: &mut Vec<u32>) -> (bool, u32) {
        let (mut gone, mut more) = (0, true);
        for _ in 0..PURGE_BATCH {
            let Some(at) = self.due_lease(t) else {
                more = false;
                break;
            };
            self.lapse(set, t, at, touched);
            gone += 1;
        }
        if self.places.len() == 0 {
            return (more && self.due_lease(t).is_some(), gone);
        }
        for _ in 0..PURGE_BATCH {
            let due = self.index.place_ends.first().filter(|(end, _)| *end <= t);
            let Some(at) = due.and_then(|(_, holder)| self.index.places.get(holder).copied()) else { break };
            self.remove_place(set, t, at, false, touched);
            gone += 1;
        }
        more = more && self.due_lease(t).is_some();
        (more || self.index.place_ends.first().is_some_and(|(end, _)| *end <= t), gone)
    }

    /// A lease has come to its end without being settled.
    pub(super) fn lapse(&mut self, set: &Compiled, t: Micros, at: u32, touched: &mut Vec<u32>) {
        let Some(lease) = self.leases.get(at) else { return };
        if lease.quarantined {
            self.give_back(set, at, touched);
            return;
        }
        let charge = Charge { cost: lease.cost, actual: None, throttled: false };
        let (holder, ends) = (lease.holder, lease.ends);
        self.end_call(set, t, at, Vote::Neutral, charge);
        self.index.leases.remove(&holder);
        if set.quarantine > 0 && self.holds_pool(set, at) {
            self.quarantine(at, ends + set.quarantine);
        } else {
            self.give_back(set, at, touched);
        }
    }

    /// Tells buckets and breakers that a call is over, without an observation.
    pub(super) fn end_call(&mut self, set: &Compiled, t: Micros, at: u32, vote: Vote, charge: Charge) {
        let Some(lease) = self.leases.get_mut(at) else { return };
        for (i, rule) in set.gates.iter().enumerate().filter(|(i, _)| lease.held & (1 << i) != 0) {
            let Some(scope) = self.scopes.get_mut(lease.scopes[rule.scope]) else { continue };
            match (&mut scope.gates[rule.at], rule.rule(&scope.key)) {
                (GateState::Level(level), Rule::Level(r)) => {
                    level.advance(r, t);
                    level.settle(lease.mark, charge, None);
                }
                (GateState::Breaker(breaker), Rule::Breaker(r)) => {
                    let probe = lease.probes & (1 << i) != 0;
                    let from = Heard { process: lease.process, fence: lease.fence, probe };
                    let _ = breaker.hear(r, t, from, vote);
                }
                _ => {}
            }
        }
    }

    pub(super) fn holds_pool(&self, set: &Compiled, at: u32) -> bool {
        self.leases.get(at).is_some_and(|lease| lease.held & set.pools != 0)
    }

    pub(super) fn quarantine(&mut self, at: u32, until: Micros) {
        if let Some(lease) = self.leases.get_mut(at) {
            lease.quarantined = true;
            lease.ends = until;
        }
        if let Some(fence) = self.leases.get(at).map(|l| l.fence) {
            self.index.shut.insert(fence, at);
            self.note_end(until, fence, at);
        }
    }

    /// Takes a lease away and gives back its slots.
    pub(super) fn give_back(&mut self, set: &Compiled, at: u32, touched: &mut Vec<u32>) {
        let Some(lease) = self.leases.get(at) else { return };
        if lease.quarantined {
            self.index.shut.remove(&lease.fence);
        }
        let mut pools = lease.held & set.pools;
        while pools != 0 {
            let gate = &set.gates[pools.trailing_zeros() as usize];
            pools &= !gate.bit;
            if let Some(scope) = self.scopes.get_mut(lease.scopes[gate.scope])
                && let GateState::Pool(pool) = &mut scope.gates[gate.at]
            {
                pool.give_back(usize::from(lease.level));
            }
        }
        for id in &lease.scopes[..set.scopes.len()] {
            if let Some(scope) = self.scopes.get_mut(*id) {
                scope.live = scope.live.saturating_sub(1);
                if !scope.line.is_empty() {
                    touched.push(*id);
                }
            }
        }
        self.leases.discard(at);
    }

    /// Changes when a place ends.
    pub(super) fn place_until(&mut self, at: u32, ends: Micros) {
        if let Some(place) = self.places.get_mut(at) {
            self.index.place_ends.remove(&(place.ends, place.holder));
            place.ends = ends;
            self.index.place_ends.insert((ends, place.holder));
        }
    }

    pub(super) fn insert_place(&mut self, place: Place) -> u32 {
        let (holder, ends) = (place.holder, place.ends);
        let at = self.places.insert(place);
        self.index.places.insert(holder, at);
        self.index.place_ends.insert((ends, holder));
        at
    }

    /// Takes a place away. `admitted`: because it passed.
    pub(super) fn remove_place(
        &mut self,
        set: &Compiled,
        t: Micros,
        at: u32,
        admitted: bool,
        touched: &mut Vec<u32>,
    ) {
        for s in 0..set.scopes.len() {
            if let Some(id) = self.unstand(set, t, at, s, admitted) {
                touched.push(id);
            }
        }
        if let Some(place) = self.places.remove(at) {
            self.index.places.remove(&place.holder);
            self.index.place_ends.remove(&(place.ends, place.holder));
        }
    }

    pub(super) fn manner(set: &Compiled, s: usize, t: Micros) -> Manner<'_> {
        Manner { rule: &set.line, fair: set.scopes[s].fair, t }
    }

    /// Lets a place stand in the line of scope `s`.
    pub(super) fn stand(&mut self, set: &Compiled, t: Micros, at: u32, s: usize, id: u32) {
        let (Some(place), Some(scope)) = (self.places.get_mut(at), self.scopes.get_mut(id)) else { return };
        let spot = scope.line.stand(Self::manner(set, s, t), place.ticket(at));
        place.stands[s] = Some((id, spot));
    }

    /// Takes a place out of the line of scope `s`; the scope key, if it stood there.
    pub(super) fn unstand(
        &mut self,
        set: &Compiled,
        t: Micros,
        at: u32,
        s: usize,
        admitted: bool,
    ) -> Option<u32> {
        let place = self.places.get_mut(at)?;
        let (id, spot) = place.stands[s].take()?;
        let came =
            self.scopes.get_mut(id)?.line.leave(Self::manner(set, s, t), place.ticket(at), spot, admitted);
        for came in came {
            if let Some(other) = self.places.get_mut(came.place) {
                other.stands[s] = Some((id, came.spot));
            }
        }
        Some(id)
    }

    /// Who should ask now, of those that wait for these scope keys: as many as could fit, at most `most` in all. Whoever is called and
    /// does not come lets others pass soon, whatever time it was told.
    #[inline]
    pub(super) fn wake(
        &mut self,
        set: &Compiled,
        t: Micros,
        touched: &mut Vec<u32>,
        most: usize,
    ) -> Vec<Holder> {
        let mut woken = Vec::new();
        if !touched.is_empty() && self.places.len() > 0 {
            self.call_up(set, t, touched, most, None, &mut woken);
        }
        woken
    }

    /// The same beside those who are called already, without this one. Whoever waits for a gate of another scope keeps its time.
    pub(super) fn call_up(
        &mut self,
        set: &Compiled,
        t: Micros,
        touched: &mut Vec<u32>,
        most: usize,
        except: Option<Holder>,
        woken: &mut Vec<Holder>,
    ) {
        for (at, ends) in self.first_in_line(set, t, touched, most, except, woken) {
            self.place_until(at, ends.min(t + set.line.grace));
        }
    }

    /// Adds the first of these lines to those who are called. The places of those among them that wait for a gate of that line, and
    /// when they end so far.
    fn first_in_line(
        &self,
        set: &Compiled,
        t: Micros,
        touched: &mut Vec<u32>,
        most: usize,
        except: Option<Holder>,
        woken: &mut Vec<Holder>,
    ) -> Vec<(u32, Micros)> {
        let mut due = Vec::new();
        touched.sort_unstable();
        touched.dedup();
        // In an order that does not depend on how keys are numbered here.
        touched.sort_by_key(|id| self.scopes.get(*id).map(|s| (s.rule, &s.key)));
        for id in touched.iter() {
            let Some(scope) = self.scopes.get(*id).filter(|s| !s.line.is_empty()) else { continue };
            let fit = match scope.free(set) {
                Some(free) => free as usize,
                None => usize::from(self.calls_first(set, t, scope)),
            };
            let gates = &set.scopes[scope.rule].gates;
            for at in scope.line.first(fit.min(most)) {
                let Some(place) = self.places.get(at) else { continue };
                let holder = place.holder;
                if Some(holder) != except && !woken.contains(&holder) && woken.len() < most {
                    woken.push(holder);
                    due.extend(
                        gates.iter().any(|i| set.gates[*i].name == place.gate).then_some((at, place.ends)),
                    );
                }
            }
        }
        due
    }

    /// The first of this scope key's line, and what it waits for if that is a gate of this scope.
    fn first_awaits<'a>(&'a self, set: &'a Compiled, scope: &Scope) -> Option<(&'a Place, Option<&'a Rule>)> {
        let place = scope.line.first(1).next().and_then(|place| self.places.get(place))?;
        let gates = &set.scopes[scope.rule].gates;
        let gate = gates.iter().map(|i| &set.gates[*i]).find(|gate| gate.name == place.gate);
        Some((place, gate.map(|gate| gate.rule(&scope.key))))
    }

    /// Whether something may have happened to what the first of this line waits for. Where time alone decides, everybody has been
    /// told the time. Who was told the time of a wider scope's gate asks, too, if nothing here is in its way: it stands in no other line.
    fn calls_first(&self, set: &Compiled, t: Micros, scope: &Scope) -> bool {
        let event = |rule: &Rule| matches!(rule, Rule::Breaker(_) | Rule::Quota(_));
        match self.first_awaits(set, scope) {
            Some((_, Some(rule))) if event(rule) => true,
            Some((place, Some(Rule::Level(_)))) => buckets_have(set, t, scope, place),
            Some((place, None)) => {
                let here = &set.scopes[scope.rule];
                here.gates.iter().any(|i| event(set.gates[*i].rule(&scope.key)))
                    || (here.has_level && buckets_have(set, t, scope, place))
            }
            Some((_, Some(_))) | None => false,
        }
    }

    /// Whether the first of this scope key's line waits for a bucket that has enough for it.
    pub(super) fn first_hopes(&self, set: &Compiled, t: Micros, scope: &Scope) -> bool {
        match self.first_awaits(set, scope) {
            Some((place, Some(Rule::Level(_)))) => buckets_have(set, t, scope, place),
            _ => false,
        }
    }

    pub(super) fn permit(&self, lease: &Lease) -> Permit {
        Permit {
            target: lease.target.clone(),
            holder: lease.holder,
            fence: lease.fence,
            cost: Points(lease.cost),
            admitted_at: lease.admitted_at - self.offset,
            use_by: lease.use_by - self.offset,
            expires_at: lease.ends - self.offset,
        }
    }

    pub(super) fn purging(&self, set: &Compiled, t: Micros) -> Admission {
        Admission::Wait(Wait {
            gate: set.line_name.clone(),
            because: Because::Purging,
            retry_at: t + 1_000 - self.offset,
            position: None,
            arrived: t - self.offset,
            woken: Vec::new(),
        })
    }

    /// Clears away what has lapsed by now.
    pub fn expire(&mut self, set: &Compiled, now: Micros) -> Freed {
        let t = self.clock(now);
        let mut touched = Vec::new();
        let (more, gone) = self.purge(set, t, &mut touched);
        Freed { gone, more, woken: self.wake(set, t, &mut touched, MAX_WOKEN) }
    }
}

/// Whether the buckets of this scope key have enough for this one, or will have it much sooner than it was told, because something
/// came back, they fill faster by now, or those before it have gone.
fn buckets_have(set: &Compiled, t: Micros, scope: &Scope, place: &Place) -> bool {
    let much_sooner = place.retry_at - SOON.max((place.retry_at - t) / 8);
    if scope.cool_until > t && scope.cool_until >= much_sooner {
        return false;
    }
    set.scopes[scope.rule].gates.iter().filter(|i| set.enabled(**i)).all(|i| {
        match &scope.gates[set.gates[*i].at] {
            GateState::Level(level) => level.check(place.cost, (0, 0)).is_none_or(|(_, at)| at < much_sooner),
            _ => true,
        }
    })
}
