//! Caution: what a gate has refused comes back one job at a time.
//!
//! A gate's park says when to come back, not how many may then pass. Were all of a scope's jobs handed out when it ends, most
//! would be refused and put back. So the scope yields one job; when that was admitted, as many more as gates have room for beside those
//! that wait, in helpings. If there is none, the next ones to ask are those that were refused and come back at their time, and they go
//! before the other lanes of their connector; only where nobody waits, one more finds out when to come back. So a job is claimed in vain
//! once, and at most one per admission.
//!
//! - Whoever was refused a connector is kept by nothing narrower when it comes back: others of its account were refused later, and for it.
//! - A caution begins with a park by gates ([`GATE_PARK`]) and ends [`LASTS_MS`] after the last word from them: a scope whose
//!   jobs ask no gate is not held up for longer than that.
//! - A job that ends in whatever way no longer asks, and one that is cancelled while it is put off is not waited for, so a
//!   scope is never closed while nothing of it runs or comes back.
//! - Processes over the same rows tell each other, so it holds for all of them together. A restart begins anew with the parks.

use std::collections::BTreeSet;

use super::parks::scopes_of;
use super::{LaneId, Lanes};
use crate::gates::Room;
use crate::hash::KeyMap;
use crate::ids::Seq;
use crate::job::ParkScope;
use crate::time::Timestamp;

/// What the owner of a park by gates begins with; the domain follows.
pub const GATE_PARK: &str = "gate:";
/// How long a caution lasts after the last word from the gates.
const LASTS_MS: i64 = 5_000;
/// Of those that a gate says remain, a sixteenth may ask at a time, at least this many: a gate that opens once a second has room for a
/// second's worth, and whoever shares store and worker with these would wait for all of them. Each that is admitted makes it one
/// more, up to a quarter, until one is refused: where answers take long, a sixteenth would not use what is allowed.
const LEAST_HELPING: u32 = 4;
/// Most jobs of a scope that may ask at a time under caution: more is as good as none.
const MOST: u32 = 1_024;
/// Refused jobs of a scope that are known.
const MOST_REFUSED: usize = 10_000;
/// How long one that is back holds its scope open for itself, and its place in line with it: it may be of a queue that nobody serves, or
/// that is full.
const AWAITED_MS: i64 = 2_000;

/// What is known of a scope that a gate has refused.
#[derive(Debug)]
pub(super) struct Caution {
    /// Jobs that may ask at a time.
    budget: u32,
    /// How many were admitted since the last refusal.
    admitted: u32,
    /// Jobs that were handed out and have not been answered.
    asking: BTreeSet<Seq>,
    /// Jobs that were refused and come back by themselves.
    refused: BTreeSet<Seq>,
    /// Those of them that are back and have not asked.
    back: BTreeSet<Seq>,
    /// Whether there is room for nobody but those who are waited for, as far as gates have said.
    full: bool,
    /// Whether it counts as a park of its scope now.
    closed: bool,
    /// Whether those who are back come before the others of its scope now.
    first: bool,
    until: Timestamp,
}

/// Refused jobs that are back, because their time or their turn has come, and have not asked; until when that is waited for, and the
/// lane where they are ready.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    jobs: KeyMap<Seq, (Timestamp, LaneId)>,
    ends: BTreeSet<(Timestamp, Seq)>,
}

impl Awaited {
    fn insert(&mut self, seq: Seq, lane: LaneId, until: Timestamp) {
        self.remove(seq);
        self.jobs.insert(seq, (until, lane));
        self.ends.insert((until, seq));
    }

    fn remove(&mut self, seq: Seq) -> Option<LaneId> {
        let (until, lane) = self.jobs.remove(&seq)?;
        self.ends.remove(&(until, seq));
        Some(lane)
    }

    fn lane(&self, seq: Seq) -> Option<LaneId> {
        self.jobs.get(&seq).map(|(_, lane)| *lane)
    }

    fn has(&self, seq: Seq, now: Timestamp) -> bool {
        self.jobs.get(&seq).is_some_and(|(until, _)| now < *until)
    }

    /// The first that is not waited for any more.
    fn expired(&self, now: Timestamp) -> Option<Seq> {
        self.ends.first().filter(|(until, _)| *until <= now).map(|(_, seq)| *seq)
    }

    /// When the first is not waited for any more.
    pub(super) fn end(&self) -> Option<Timestamp> {
        self.ends.first().map(|(until, _)| *until)
    }
}

/// How many may ask at a time where a gate says that so many would pass, after so many were admitted in a row.
fn helping(remaining: u32, admitted: u32) -> u32 {
    let least = LEAST_HELPING.max(remaining / 16);
    least.max(admitted.min(remaining / 4)).min(remaining).min(MOST)
}

impl Lanes {
    /// A gate has refused this scope until then.
    pub(super) fn begin_caution(&mut self, scope: &ParkScope, until: Timestamp, now: Timestamp) {
        let until = until.plus_ms(LASTS_MS);
        let caution = self.cautions.entry(scope.clone()).or_insert_with(|| Caution {
            budget: 1,
            admitted: 0,
            asking: BTreeSet::new(),
            refused: BTreeSet::new(),
            back: BTreeSet::new(),
            full: true,
            closed: false,
            first: false,
            until,
        });
        (caution.budget, caution.admitted, caution.full) = (1, 0, true);
        let until = until.max(caution.until);
        self.shift_end(scope, until);
        self.review(scope, now);
    }

    /// Whether any scope is under caution.
    pub fn is_cautious(&self) -> bool {
        !self.cautions.is_empty()
    }

    /// Jobs that were handed out under caution and have not been answered.
    pub fn asking(&self) -> impl Iterator<Item = Seq> {
        self.cautions.values().flat_map(|c| c.asking.iter().copied())
    }

    /// A gate has admitted a job of this lane, and said how many more would pass. True if more may be handed out now.
    pub fn admitted(&mut self, lane: LaneId, seq: Seq, room: Room, now: Timestamp) -> bool {
        let mut opened = false;
        self.expire_awaited(now);
        for scope in self.cautioned(lane) {
            let Some(caution) = self.cautions.get_mut(&scope) else { continue };
            // What was refused since knows better.
            if caution.asking.remove(&seq) {
                caution.admitted = caution.admitted.saturating_add(1);
                let remaining = match scope {
                    ParkScope::Connector(_) => room.shared,
                    _ => room.own,
                };
                caution.full = remaining == 0;
                caution.budget = match remaining.saturating_add(caution.back.len() as u32) {
                    0 => u32::from(caution.refused.is_empty()),
                    n => helping(n, caution.admitted),
                };
                let until = caution.until.max(now.plus_ms(LASTS_MS));
                self.shift_end(&scope, until);
                opened |= self.review(&scope, now);
            }
        }
        opened
    }

    /// A gate has refused this scope to a job of this lane, which comes back at this time. Wider scopes go on: what keeps one tenant
    /// waiting until tomorrow says nothing about the others. In narrower ones it stands first when it comes.
    pub fn refused(&mut self, lane: LaneId, refused: &ParkScope, seq: Seq, until: Timestamp, now: Timestamp) {
        for scope in self.cautioned(lane).into_iter().filter(|scope| refused.covers(scope)) {
            let Some(caution) = self.cautions.get_mut(&scope) else { continue };
            if scope == *refused {
                (caution.budget, caution.admitted, caution.full) = (caution.budget.min(1), 0, true);
            }
            if caution.refused.len() < MOST_REFUSED {
                caution.refused.insert(seq);
                let until = caution.until.max(until.plus_ms(LASTS_MS));
                self.shift_end(&scope, until);
            }
            self.line_up(&scope, now);
        }
    }

    /// The scopes of a lane that gates are known to have refused to this job, which has not come back.
    pub fn refused_to(&self, lane: LaneId, seq: Seq) -> Vec<ParkScope> {
        let scopes = self.cautioned(lane).into_iter();
        scopes.filter(|s| self.cautions.get(s).is_some_and(|c| c.refused.contains(&seq))).collect()
    }

    /// A job is back in this lane: one that was refused may ask.
    pub(super) fn is_back(&mut self, lane: LaneId, seq: Seq, now: Timestamp) {
        let refused = self.refused_to(lane, seq);
        if refused.is_empty() {
            return;
        }
        self.expire_awaited(now);
        self.is_not_awaited(seq, now);
        self.awaited.insert(seq, lane, now.plus_ms(AWAITED_MS));
        for scope in self.cautioned(lane) {
            let Some(caution) = self.cautions.get_mut(&scope) else { continue };
            caution.refused.remove(&seq);
            if refused.iter().any(|refused| refused.covers(&scope)) {
                caution.back.insert(seq);
                caution.budget = caution.budget.max(helping(caution.back.len() as u32, caution.admitted));
                self.shift_awaited(&scope, lane, true, now);
                self.review(&scope, now);
            }
        }
    }

    /// Forgets those that are not waited for any more.
    pub(super) fn expire_awaited(&mut self, now: Timestamp) {
        while let Some(seq) = self.awaited.expired(now) {
            self.is_not_awaited(seq, now);
        }
    }

    /// A job that was back has asked, is not ready any more, or has not come for long.
    pub(super) fn is_not_awaited(&mut self, seq: Seq, now: Timestamp) {
        let Some(lane) = self.awaited.remove(seq) else { return };
        for scope in self.cautioned(lane) {
            if self.cautions.get_mut(&scope).is_some_and(|c| c.back.remove(&seq)) {
                self.shift_awaited(&scope, lane, false, now);
                self.line_up(&scope, now);
            }
        }
    }

    /// One of this lane is awaited in this scope, or not any more: what is narrower than a connector has few lanes, which need no order.
    fn shift_awaited(&mut self, scope: &ParkScope, lane: LaneId, up: bool, now: Timestamp) {
        let ParkScope::Connector(_) = scope else { return };
        let Some(l) = self.lanes.get_mut(&lane) else { return };
        let before = l.awaited;
        l.awaited = if up { before + 1 } else { before.saturating_sub(1) };
        if (before == 0) != (l.awaited == 0) {
            self.refresh(lane, now);
        }
    }

    /// Whether somebody was called back to this scope and has not asked. Who asks before it may be refused because of the
    /// other's place in line: that is no reason to close the scope to the other.
    pub fn awaits(&self, scope: &ParkScope, now: Timestamp) -> bool {
        self.cautions.get(scope).is_some_and(|c| c.back.iter().any(|seq| self.awaited.has(*seq, now)))
    }

    /// A job of this lane that was put off is gone: where it was the last that would have come back to ask, another finds out
    /// instead. True if more may be handed out now.
    pub fn comes_no_more(&mut self, lane: LaneId, seq: Seq, now: Timestamp) -> bool {
        let mut opened = false;
        for scope in self.cautioned(lane) {
            let Some(caution) = self.cautions.get_mut(&scope) else { continue };
            if caution.refused.remove(&seq) && caution.refused.is_empty() {
                caution.budget = caution.budget.max(1);
                opened |= self.review(&scope, now);
            }
        }
        opened
    }

    /// A job of this lane no longer runs.
    pub fn answered(&mut self, lane: LaneId, seq: Seq, now: Timestamp) {
        for scope in self.cautioned(lane) {
            if self.cautions.get_mut(&scope).is_some_and(|c| c.asking.remove(&seq)) {
                self.review(&scope, now);
            }
        }
    }

    /// How many jobs of this lane may be handed out as far as gates are concerned.
    pub(super) fn may_ask(&self, lane: LaneId) -> u32 {
        let free = |c: &Caution| c.budget.saturating_sub(c.asking.len() as u32);
        let scopes = self.cautioned(lane).into_iter();
        scopes.filter_map(|s| self.cautions.get(&s)).map(free).min().unwrap_or(u32::MAX)
    }

    /// Jobs of this lane were handed out.
    pub(super) fn ask(&mut self, lane: LaneId, jobs: impl Iterator<Item = Seq> + Clone, now: Timestamp) {
        for scope in self.cautioned(lane) {
            if let Some(caution) = self.cautions.get_mut(&scope) {
                caution.asking.extend(jobs.clone());
                self.review(&scope, now);
            }
        }
        for seq in jobs {
            self.is_not_awaited(seq, now);
        }
    }

    /// Cautions that cover a lane and are closed: they count as parks.
    pub(super) fn closed_on(&self, scope: &ParkScope) -> usize {
        usize::from(self.cautions.get(scope).is_some_and(|c| c.closed))
    }

    /// When the first caution ends.
    pub(super) fn caution_end(&self) -> Option<Timestamp> {
        self.caution_ends.first().map(|(at, _)| *at)
    }

    /// Forgets cautions whose time is over.
    pub(super) fn end_cautions(&mut self, now: Timestamp) {
        while let Some((_, scope)) = self.caution_ends.first().filter(|(at, _)| *at <= now).cloned() {
            self.forget_caution(&scope, now);
        }
    }

    /// The clock went back: all ends lie anywhere.
    pub(super) fn forget_cautions(&mut self, now: Timestamp) {
        while let Some((_, scope)) = self.caution_ends.first().cloned() {
            self.forget_caution(&scope, now);
        }
    }

    fn forget_caution(&mut self, scope: &ParkScope, now: Timestamp) {
        let back = self.cautions.get_mut(scope).map(|c| std::mem::take(&mut c.back)).unwrap_or_default();
        self.line_up(scope, now);
        let Some(caution) = self.cautions.remove(scope) else { return };
        for seq in back {
            let Some(lane) = self.awaited.lane(seq) else { continue };
            self.shift_awaited(scope, lane, false, now);
            if !self
                .cautioned(lane)
                .iter()
                .any(|s| self.cautions.get(s).is_some_and(|c| c.back.contains(&seq)))
            {
                self.awaited.remove(seq);
            }
        }
        self.caution_ends.remove(&(caution.until, scope.clone()));
        if caution.closed {
            self.shift_parks(scope, false, now);
        }
    }

    fn shift_end(&mut self, scope: &ParkScope, until: Timestamp) {
        let Some(caution) = self.cautions.get_mut(scope) else { return };
        self.caution_ends.remove(&(caution.until, scope.clone()));
        caution.until = until;
        self.caution_ends.insert((until, scope.clone()));
    }

    /// Lets those who are back go before the others of a connector, or not any more: there is room for them alone.
    fn line_up(&mut self, scope: &ParkScope, now: Timestamp) {
        let (ParkScope::Connector(connector), Some(caution)) = (scope, self.cautions.get_mut(scope)) else {
            return;
        };
        let first = caution.full && !caution.back.is_empty();
        if first == std::mem::replace(&mut caution.first, first) {
            return;
        }
        for id in self.lanes_of_connector.get(connector).cloned().unwrap_or_default() {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            lane.behind = if first { lane.behind + 1 } else { lane.behind.saturating_sub(1) };
            // A lane that is stopped has no position.
            if lane.active.is_some() {
                self.refresh(id, now);
            }
        }
    }

    /// Whether those who are back go before the others of this scope.
    pub(super) fn is_behind(&self, scope: &ParkScope) -> bool {
        self.cautions.get(scope).is_some_and(|c| c.first)
    }

    /// Closes or opens a scope. True if it opened.
    fn review(&mut self, scope: &ParkScope, now: Timestamp) -> bool {
        self.line_up(scope, now);
        let Some(caution) = self.cautions.get_mut(scope) else { return false };
        let closed = caution.asking.len() as u32 >= caution.budget;
        if closed == std::mem::replace(&mut caution.closed, closed) {
            return false;
        }
        self.shift_parks(scope, closed, now);
        !closed
    }

    /// The scopes of a lane that are under caution.
    fn cautioned(&self, lane: LaneId) -> Vec<ParkScope> {
        if self.cautions.is_empty() {
            return vec![];
        }
        let Some(key) = self.lane_key(lane) else { return vec![] };
        scopes_of(key).into_iter().filter(|s| self.cautions.contains_key(s)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpings_grow_while_nobody_is_refused() {
        assert_eq!((helping(3, 1), helping(200, 1)), (3, 12), "never more than remain");
        assert_eq!((helping(200, 30), helping(200, 100)), (30, 50));
        assert_eq!(helping(u32::MAX, 1), MOST);
    }

    #[test]
    fn those_who_are_back_are_waited_for_until_they_ask_or_their_time_is_over() {
        let (mut awaited, at, lane) = (Awaited::default(), Timestamp, LaneId(1));
        assert!(!awaited.has(Seq(1), at(0)));
        awaited.insert(Seq(1), lane, at(10));
        awaited.insert(Seq(1), LaneId(2), at(15));
        assert_eq!(awaited.jobs.len(), 1, "who came back again counts once");
        awaited.insert(Seq(2), lane, at(20));
        assert!(awaited.has(Seq(1), at(14)) && !awaited.has(Seq(1), at(15)));
        assert_eq!((awaited.expired(at(14)), awaited.expired(at(15))), (None, Some(Seq(1))));
        assert_eq!(awaited.remove(Seq(1)), Some(LaneId(2)));
        awaited.remove(Seq(2));
        assert!(awaited.jobs.is_empty() && awaited.ends.is_empty(), "nothing of them is left");
    }
}
