//! The admission: all gates of a call, all or nothing, in one step.

use std::sync::Arc;

use super::breaker::{Asker, Vote};
use super::call::{Call, Holder, PERMIT_LEASE};
use super::compiled::{Compiled, Rule, Whose};
use super::config::Unit;
use super::level::{Charge, Mark};
use super::line::Ticket;
use super::partition::{Lease, NONE, Partition, Place};
use super::pool::{Ahead, Patience};
use super::quota::Usage;
use super::reply::{Admission, Admitted, Because, Never, Refused, Room, Wait};
use super::scope::{GateState, Scope};
use super::units::{Micros, Points};
use super::{MAX_SCOPES, MAX_WOKEN, Part};

/// Who is refused, by what, until when.
struct Refusals {
    /// The gate that lets the call in last.
    gate: usize,
    because: Because,
    retry_at: Micros,
    /// The latest time per scope; 0: the scope lets it pass.
    scopes: [Micros; MAX_SCOPES],
}

/// A call on its way through the gates.
struct Passage<'a> {
    set: &'a Compiled,
    call: &'a Call,
    t: Micros,
    ids: [u32; MAX_SCOPES],
    stand: &'a Stand,
    /// In how long the next lease ends, and the next place of another one, as far as that was asked.
    silent: (Micros, Micros),
}

impl Passage<'_> {
    fn patience(&self) -> Patience {
        let most = self.call.lease - self.set.line.grace;
        let (lapse, gone) = self.silent;
        Patience { waited: self.t - self.stand.arrived, most, lapse, gone }
    }
}

/// Where a call stands.
struct Stand {
    level: u8,
    arrived: Micros,
    place: Option<u32>,
    /// Who is ahead of it, by the number of the scope; none where nobody waits.
    ahead: Option<[Ahead; MAX_SCOPES]>,
}

impl Stand {
    #[inline]
    fn ahead(&self, scope: usize) -> Ahead {
        self.ahead.as_ref().map_or(Ahead::default(), |ahead| ahead[scope])
    }
}

fn units(unit: Unit, call: &Call) -> i64 {
    match unit {
        Unit::Calls => 1,
        Unit::Cost => call.cost.0,
    }
}

/// Units of the calls ahead: at most, and about.
fn units_ahead(unit: Unit, ahead: Ahead) -> (i64, i64) {
    match unit {
        Unit::Calls => (i64::from(ahead.count), i64::from(ahead.count)),
        Unit::Cost => (ahead.cost, ahead.likely),
    }
}

impl Partition {
    /// Asks all gates of the call at once. Nothing is reserved unless all let it pass.
    pub fn admit(&mut self, set: &Compiled, now: Micros, call: &Call) -> Admission {
        let t = self.clock(now);
        let mut freed = Vec::new();
        let (purging, _) = self.purge(set, t, &mut freed);
        let mut reply = match self.known_holder(set, t, call, &mut freed) {
            Some(reply) => reply,
            None if purging => self.purging(set, t),
            None => self.judged(set, t, call, &mut freed),
        };
        if !freed.is_empty() {
            self.call_for(set, t, &mut freed, call, &mut reply);
        }
        reply
    }

    /// Calls those who may have what had lapsed or the caller gave up, beside those whom the reply names.
    #[inline(never)]
    fn call_for(
        &mut self,
        set: &Compiled,
        t: Micros,
        freed: &mut Vec<u32>,
        call: &Call,
        reply: &mut Admission,
    ) {
        let woken = match reply {
            Admission::Admitted(admitted) => &mut admitted.woken,
            Admission::Wait(wait) => &mut wait.woken,
            Admission::Refused(refused) => &mut refused.woken,
        };
        self.call_up(set, t, freed, MAX_WOKEN, Some(call.holder), woken);
    }

    /// The call of somebody who holds nothing.
    #[inline]
    fn judged(&mut self, set: &Compiled, t: Micros, call: &Call, freed: &mut Vec<u32>) -> Admission {
        let valid = (0..=Points::MAX.0).contains(&call.cost.0) && PERMIT_LEASE.contains(&call.lease);
        if !valid {
            return self.refuse(set, t, call, (None, Never::Invalid), freed);
        }
        if call.deadline.is_some_and(|d| d + self.offset <= t) {
            return self.refuse(set, t, call, (None, Never::Deadline), freed);
        }
        let ids = self.resolve(set, &call.target, t);
        let stand = if self.places.len() == 0 {
            let arrived = self.arrival(set, call, t);
            Stand { level: set.level(call.priority), arrived, place: None, ahead: None }
        } else {
            self.stand_of(set, call, t, &ids)
        };
        let passage = Passage { set, call, t, ids, stand: &stand, silent: (Micros::MAX, Micros::MAX) };
        if self.passes(&passage) {
            debug_assert!(
                self.would_pass(&passage),
                "the short question and the long one have the same answer"
            );
            self.commit(&passage)
        } else {
            self.ask_why(&passage, freed)
        }
    }

    /// The same for a call that does not simply pass: found out gate by gate, with reasons and times.
    #[inline(never)]
    fn ask_why(&mut self, p: &Passage<'_>, freed: &mut Vec<u32>) -> Admission {
        let after = |end: Option<Micros>| end.map_or(Micros::MAX, |end| end - p.t);
        let silent = (after(self.next_lease_end()), after(self.next_place_end(&p.call.holder)));
        let (p, mut refusals) = (&Passage { silent, ..*p }, None);
        if let Some((gate, never)) = self.judge(p, &mut refusals) {
            return self.refuse(p.set, p.t, p.call, (Some(gate), never), freed);
        }
        match refusals {
            None => self.commit(p),
            Some(refusals) => self.keep_place(p, &refusals, freed),
        }
    }

    /// A holder that has a lease already: the same permit again, or an end of the old one.
    fn known_holder(
        &mut self,
        set: &Compiled,
        t: Micros,
        call: &Call,
        touched: &mut Vec<u32>,
    ) -> Option<Admission> {
        let at = *self.index.leases.get(&call.holder)?;
        let lease = self.leases.get(at)?;
        if lease.ends <= t {
            self.lapse(set, t, at, touched);
            return None;
        }
        match call.ask.cmp(&lease.ask) {
            std::cmp::Ordering::Equal => {
                let permit = self.permit(lease);
                Some(Admission::Admitted(Admitted {
                    permit,
                    remaining: 0,
                    room: Room::NONE,
                    woken: Vec::new(),
                }))
            }
            std::cmp::Ordering::Less => {
                let refused =
                    Refused { gate: set.line_name.clone(), because: Never::StaleAsk, woken: Vec::new() };
                Some(Admission::Refused(refused))
            }
            std::cmp::Ordering::Greater => {
                let charge = Charge { cost: lease.cost, actual: Some(0), throttled: false };
                self.end_call(set, t, at, Vote::Neutral, charge);
                self.index.leases.remove(&call.holder);
                self.give_back(set, at, touched);
                None
            }
        }
    }

    fn refuse(
        &mut self,
        set: &Compiled,
        t: Micros,
        call: &Call,
        (gate, because): (Option<usize>, Never),
        freed: &mut Vec<u32>,
    ) -> Admission {
        if let Some(at) = self.index.places.get(&call.holder).copied() {
            self.remove_place(set, t, at, false, freed);
        }
        let gate = gate.map_or(&set.line_name, |g| &set.gates[g].name).clone();
        Admission::Refused(Refused { gate, because, woken: Vec::new() })
    }

    /// Where the call stands beside those who wait.
    #[inline(never)]
    fn stand_of(&self, set: &Compiled, call: &Call, t: Micros, ids: &[u32; MAX_SCOPES]) -> Stand {
        let level = set.level(call.priority);
        let mut ahead = [Ahead::default(); MAX_SCOPES];
        let place = self.index.places.get(&call.holder).copied();
        let kept = place.and_then(|at| self.places.get(at));
        let arrived = kept.map_or_else(|| self.arrival(set, call, t), |p| p.arrived);
        let newcomer = Ticket {
            place: NONE,
            seq: kept.map_or(u64::MAX, |p| p.seq),
            level: kept.map_or(level, |p| p.level),
            cost: call.cost.0,
            arrived,
            tenant: call.target.part(Part::Tenant),
        };
        for (s, id) in ids.iter().enumerate() {
            let Some(scope) = self.scopes.get(*id).filter(|s| !s.line.is_empty()) else { continue };
            let how = Self::manner(set, s, t);
            ahead[s] = match (kept, place) {
                (Some(p), Some(at)) if p.stands[s].is_some_and(|(here, _)| here == *id) => {
                    let Some((_, spot)) = p.stands[s] else { continue };
                    scope.line.ahead_of(how, p.ticket(at), spot)
                }
                _ => scope.line.ahead_of_new(how, newcomer),
            };
        }
        Stand { level: newcomer.level, arrived, place, ahead: Some(ahead) }
    }

    fn arrival(&self, set: &Compiled, call: &Call, t: Micros) -> Micros {
        let since = call.since.map(|s| s + self.offset).filter(|s| *s <= t && t - *s <= set.line.max_wait);
        since.unwrap_or(t)
    }

    /// Lets time pass for the gates, and asks whether the call passes them all, as it nearly always does. False also where that
    /// is not so simple.
    #[inline]
    fn passes(&mut self, p: &Passage<'_>) -> bool {
        if p.set.disabled != 0 || self.orders.iter().any(|(_, until)| until + self.offset > p.t) {
            return false;
        }
        p.set.by_scope().all(|(number, gates)| {
            let Some(scope) = self.scopes.get_mut(p.ids[number]) else { return true };
            let here = Here::of(scope, p.stand.ahead(number));
            scope.states(gates).all(|(_, rule, state)| let_through(p, here, state, rule))
        })
    }

    /// What the long question says, without a look at the short one.
    fn would_pass(&mut self, p: &Passage<'_>) -> bool {
        let mut refusals = None;
        self.judge(p, &mut refusals).is_none() && refusals.is_none()
    }

    /// Lets time pass for every gate, and asks it; nothing is spent. The first gate that will never let this call pass, if any.
    fn judge(&mut self, p: &Passage<'_>, found: &mut Option<Refusals>) -> Option<(usize, Never)> {
        let mut refused = None;
        for (number, gates) in p.set.by_scope() {
            let Some(scope) = self.scopes.get_mut(p.ids[number]) else { continue };
            let here = Here::of(scope, p.stand.ahead(number));
            for (gate, rule, state) in scope.states(gates) {
                let i = gate.number;
                if refused.is_some() || !p.set.enabled(i) {
                    state.advance(rule, p.t);
                    continue;
                }
                let ordered = ordered_open(&self.orders, &gate.name).map_or(0, |until| until + self.offset);
                let (because, retry_at) = match ask(p, here, state, rule) {
                    Said::Never(never) => {
                        refused = Some((i, never));
                        continue;
                    }
                    _ if ordered > p.t => (Because::BreakerOpen, ordered),
                    Said::Passes => continue,
                    Said::Waits(because, retry_at) => (because, retry_at),
                };
                let found =
                    found.get_or_insert(Refusals { gate: i, because, retry_at, scopes: [0; MAX_SCOPES] });
                if retry_at > found.retry_at {
                    (found.gate, found.because, found.retry_at) = (i, because, retry_at);
                }
                found.scopes[number] = found.scopes[number].max(retry_at);
            }
        }
        refused
    }

    fn commit(&mut self, p: &Passage<'_>) -> Admission {
        let (set, call, t) = (p.set, p.call, p.t);
        let mut touched = Vec::new();
        if let Some(place) = p.stand.place {
            self.remove_place(set, t, place, true, &mut touched);
        }
        self.fence = (self.fence + 1).max(t);
        let (mut held, mut probes, mut mark) = (0u32, 0u32, Mark::default());
        let (mut remaining, mut room) = (i64::from(u32::MAX), Room::PLENTY);
        for id in &p.ids[..set.scopes.len()] {
            if let Some(scope) = self.scopes.get_mut(*id) {
                scope.live += 1;
            }
        }
        for (number, gates) in set.by_scope() {
            let Some(scope) = self.scopes.get_mut(p.ids[number]) else { continue };
            let (live, waiting) = (scope.live, scope.line.len());
            let mut left = i64::from(u32::MAX);
            for (gate, rule, state) in scope.states(gates) {
                if set.disabled & gate.bit != 0 {
                    continue;
                }
                let of_gate = match (state, rule) {
                    (GateState::Smooth(g), Rule::Smooth(r)) => {
                        let units = units(r.unit, call);
                        g.spend(r, units);
                        g.remaining(r, units.max(1), left)
                    }
                    (GateState::Window(g), Rule::Window(r)) => {
                        let units = units(r.unit, call);
                        if units > 0 {
                            g.spend(r, t, units);
                        }
                        g.remaining(r, units.max(1), left)
                    }
                    (GateState::Level(g), Rule::Level(_)) => {
                        mark = g.spend(call.cost.0);
                        g.remaining(call.cost.0, left)
                    }
                    (GateState::Pool(g), Rule::Pool(r)) => {
                        g.take(usize::from(p.stand.level));
                        i64::from(g.free(r))
                    }
                    (GateState::Breaker(g), Rule::Breaker(r)) => {
                        probes |= if g.pass(r, t, self.fence) { gate.bit } else { 0 };
                        g.remaining(r)
                    }
                    (GateState::Quota(g), Rule::Quota(r)) => {
                        g.spend(r, t, call.cost.0);
                        g.remaining(r, live, call.cost.0, left)
                    }
                    _ => continue,
                };
                held |= gate.bit;
                left = left.min(of_gate);
            }
            remaining = remaining.min(left);
            match set.scopes[number].whose {
                Whose::Everybodys => room.shared = room.shared.min(after(left, waiting)),
                Whose::Own => room.own = room.own.min(after(left, waiting)),
                Whose::Narrower => {}
            }
        }
        let lease = Lease {
            target: call.target.clone(),
            holder: call.holder,
            fence: self.fence,
            ask: call.ask,
            level: p.stand.level,
            process: call.process,
            cost: call.cost.0,
            length: call.lease,
            admitted_at: t,
            use_by: t + set.use_by,
            ends: t + call.lease,
            mark,
            scopes: p.ids,
            held,
            probes,
            quarantined: false,
        };
        let permit = self.permit(&lease);
        self.insert_lease(lease);
        if touched.is_empty() {
            return Admission::Admitted(Admitted {
                permit,
                remaining: remaining as u32,
                room,
                woken: Vec::new(),
            });
        }
        let woken = self.wake(set, t, &mut touched, 1);
        Admission::Admitted(Admitted { permit, remaining: remaining as u32, room, woken })
    }

    /// Who stands before a call that a bucket refuses, and could pass: it was called and has not heard it, or what it was told is long
    /// out of date. Nobody settles anything while all wait for it, so who asks finds it out.
    fn overdue(&mut self, p: &Passage<'_>, refusals: &Refusals) -> Vec<Holder> {
        let mut touched: Vec<u32> = (0..p.set.scopes.len())
            .filter(|s| refusals.scopes[*s] > 0 && p.set.scopes[*s].has_level && p.stand.ahead(*s).count > 0)
            .map(|s| p.ids[s])
            .filter(|id| self.scopes.get(*id).is_some_and(|scope| self.first_hopes(p.set, p.t, scope)))
            .collect();
        self.wake(p.set, p.t, &mut touched, 1)
    }

    /// Nothing was reserved; the call may keep a place in line.
    fn keep_place(&mut self, p: &Passage<'_>, refusals: &Refusals, freed: &mut Vec<u32>) -> Admission {
        let (set, t) = (p.set, p.t);
        let gate = set.gates[refusals.gate].name.clone();
        let binding = binding(set, &refusals.scopes);
        let stands = (1 << binding) | set.scopes[binding].narrower;
        let full = self.scopes.get(p.ids[binding]).is_some_and(|s| s.line.len() >= set.line.max);
        let late = p.call.deadline.is_some_and(|d| refusals.retry_at >= d + self.offset);
        let wanted = p.call.place && !late;
        let mut reply = Wait {
            gate,
            because: refusals.because,
            retry_at: refusals.retry_at - self.offset,
            position: None,
            arrived: p.stand.arrived - self.offset,
            woken: self.overdue(p, refusals),
        };
        let at = match p.stand.place {
            Some(at) if wanted => at,
            Some(at) => {
                self.remove_place(set, t, at, false, freed);
                return Admission::Wait(reply);
            }
            None if !wanted => return Admission::Wait(reply),
            None if full => {
                let waiting = self.scopes.get(p.ids[binding]).map_or(0, |s| s.line.len());
                reply.because = Because::QueueFull { waiting };
                return Admission::Wait(reply);
            }
            None => {
                self.note_violation(p, refusals);
                self.new_place(p)
            }
        };
        for s in 0..set.scopes.len() {
            let wanted = stands & (1 << s) != 0 && p.ids[s] != NONE;
            let stood = self.places.get(at).and_then(|place| place.stands[s]).map(|(id, _)| id);
            match (wanted, stood) {
                (true, Some(id)) if id == p.ids[s] => {}
                (true, _) => {
                    let _ = self.unstand(set, t, at, s, false);
                    self.stand(set, t, at, s, p.ids[s]);
                }
                (false, _) => {
                    let _ = self.unstand(set, t, at, s, false);
                }
            }
        }
        if let Some(place) = self.places.get_mut(at) {
            place.retry_at = refusals.retry_at;
            place.gate = reply.gate.clone();
        }
        self.place_until(at, refusals.retry_at + set.line.grace);
        reply.position = Some(p.stand.ahead(binding).count + 1);
        Admission::Wait(reply)
    }

    fn new_place(&mut self, p: &Passage<'_>) -> u32 {
        self.seq += 1;
        self.insert_place(Place {
            target: p.call.target.clone(),
            holder: p.call.holder,
            seq: self.seq,
            level: p.stand.level,
            cost: p.call.cost.0,
            arrived: p.stand.arrived,
            retry_at: p.t,
            ends: p.t,
            gate: p.set.line_name.clone(),
            stands: [None; MAX_SCOPES],
        })
    }

    fn note_violation(&mut self, p: &Passage<'_>, refusals: &Refusals) {
        let gate = &p.set.gates[refusals.gate];
        if let Some(scope) = self.scopes.get_mut(p.ids[gate.scope])
            && let GateState::Quota(quota) = &mut scope.gates[gate.at]
        {
            quota.violated(p.t, refusals.because);
        }
    }
}

/// In whose line a refused call stands: the narrowest that refuses it, the latest of those.
fn binding(set: &Compiled, scopes: &[Micros; MAX_SCOPES]) -> usize {
    let refusing = scopes.iter().enumerate().fold(0u8, |bits, (s, at)| bits | u8::from(*at > 0) << s);
    let mut best = (0, 0);
    for (s, at) in scopes.iter().enumerate().take(set.scopes.len()) {
        if *at > best.1 && set.scopes[s].narrower & refusing == 0 {
            best = (s, *at);
        }
    }
    best.0
}

/// What is left for others, after those that wait.
#[inline]
fn after(left: i64, waiting: u32) -> u32 {
    if left >= i64::from(u32::MAX) { u32::MAX } else { (left - i64::from(waiting)).max(0) as u32 }
}

/// Until when an operator keeps this breaker open for all keys, by the callers' clock, if that was ordered.
fn ordered_open(orders: &[(Arc<str>, Micros)], gate: &str) -> Option<Micros> {
    orders.iter().find(|(name, _)| **name == *gate).map(|(_, until)| *until)
}

/// What the gates of a scope are told of its key.
#[derive(Clone, Copy)]
struct Here {
    ahead: Ahead,
    cool_until: Micros,
    live: u32,
    waiting: u32,
}

impl Here {
    #[inline]
    fn of(scope: &Scope, ahead: Ahead) -> Self {
        Self { ahead, cool_until: scope.cool_until, live: scope.live, waiting: scope.line.len() }
    }

    fn usage(self, cost: i64) -> Usage {
        Usage {
            live: self.live,
            waiting: self.waiting,
            ahead: self.ahead.count,
            cost,
            cost_ahead: (self.ahead.cost, self.ahead.likely),
        }
    }
}

/// Lets time pass for one gate, and asks whether the call simply passes: no more than `ask` says, without the reason.
#[inline]
fn let_through(passage: &Passage<'_>, here: Here, state: &mut GateState, rule: &Rule) -> bool {
    let (call, ahead, t) = (passage.call, here.ahead, passage.t);
    let cost = call.cost.0;
    match (state, rule) {
        (GateState::Smooth(g), Rule::Smooth(r)) => {
            g.advance(r, t);
            here.cool_until <= t && g.passes(r, units(r.unit, call), units_ahead(r.unit, ahead).0)
        }
        (GateState::Window(g), Rule::Window(r)) => {
            g.advance(r, t);
            here.cool_until <= t && g.passes(r, units(r.unit, call), units_ahead(r.unit, ahead).0)
        }
        (GateState::Level(g), Rule::Level(r)) => {
            g.advance(r, t);
            here.cool_until <= t && g.passes(cost, ahead.cost)
        }
        (GateState::Pool(g), Rule::Pool(r)) => {
            g.advance(t);
            g.passes(r, usize::from(passage.stand.level), ahead)
        }
        (GateState::Breaker(g), Rule::Breaker(_)) => g.passes(t, call.process),
        (GateState::Quota(g), Rule::Quota(r)) => {
            g.advance(r, t);
            g.passes(r, here.usage(cost))
        }
        _ => true,
    }
}

/// What one gate says.
enum Said {
    Passes,
    Waits(Because, Micros),
    Never(Never),
}

impl Said {
    #[inline]
    fn of(wait: Option<(Because, Micros)>) -> Self {
        wait.map_or(Self::Passes, |(because, at)| Self::Waits(because, at))
    }

    /// A gate of a rate: its capacity comes first, then what the provider said.
    #[inline]
    fn of_rate(
        cost: i64,
        capacity: i64,
        cooling: Option<Micros>,
        check: impl FnOnce() -> Option<(Because, Micros)>,
    ) -> Self {
        if cost > capacity {
            return Self::Never(Never::CostAboveCapacity { cost, capacity });
        }
        match cooling {
            Some(until) => Self::Waits(Because::CoolingDown, until),
            None => Self::of(check()),
        }
    }
}

/// Lets time pass for one gate, and asks it.
#[inline]
fn ask(passage: &Passage<'_>, here: Here, state: &mut GateState, rule: &Rule) -> Said {
    let (call, ahead, t) = (passage.call, here.ahead, passage.t);
    let cooling = (here.cool_until > t).then_some(here.cool_until);
    match (state, rule) {
        (GateState::Smooth(g), Rule::Smooth(r)) => {
            g.advance(r, t);
            let own = units(r.unit, call);
            Said::of_rate(own, r.burst, cooling, || g.check(r, own, units_ahead(r.unit, ahead)))
        }
        (GateState::Window(g), Rule::Window(r)) => {
            g.advance(r, t);
            let own = units(r.unit, call);
            Said::of_rate(own, r.max, cooling, || {
                let at = g.check(r, t, own, units_ahead(r.unit, ahead))?;
                Some((g.because(r, own), at))
            })
        }
        (GateState::Level(g), Rule::Level(r)) => {
            g.advance(r, t);
            let (cost, ahead) = (call.cost.0, (ahead.cost, ahead.likely));
            let capacity = g.never(r, cost).unwrap_or(i64::MAX);
            Said::of_rate(cost, capacity, cooling, || g.check(cost, ahead))
        }
        (GateState::Pool(g), Rule::Pool(r)) => {
            g.advance(t);
            Said::of(g.check(r, t, usize::from(passage.stand.level), ahead, passage.patience()))
        }
        (GateState::Breaker(g), Rule::Breaker(r)) => {
            let asker = Asker { process: call.process, live: here.live, ahead: ahead.count };
            Said::of(g.check(r, t, asker))
        }
        (GateState::Quota(g), Rule::Quota(r)) => {
            g.advance(r, t);
            let capacity = r.cost.map_or(i64::MAX, |w| w.max);
            Said::of_rate(call.cost.0, capacity, None, || {
                g.check(r, t, here.usage(call.cost.0), passage.patience())
            })
        }
        _ => Said::Passes,
    }
}
