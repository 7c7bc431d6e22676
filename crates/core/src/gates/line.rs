//! The line of one scope: who is before whom.
//!
//! Order is a number that never changes: base + level × step (G4). One queue per level, so that slots kept for a level can
//! be given to its own first. Where tenants share (deficit round robin), only places worth a quantum per tenant and level
//! stand in the main line; the others wait in their tenant's side line and come in when one of theirs has been admitted.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::compiled::LineRule;
use super::pool::Ahead;
use super::units::{Micros, ceil_div};

/// Most rounds that one admission can owe.
const MAX_ROUNDS: i64 = 64;

/// Someone in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    order: i64,
    seq: u64,
    place: u32,
}

/// Places of one tenant and level.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Group {
    /// Cost in the main line, and how many.
    standing: i64,
    count: u32,
    /// Its next place comes in no earlier.
    owed: Micros,
    side: VecDeque<Aside>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Aside {
    arrived: Micros,
    seq: u64,
    place: u32,
    cost: i64,
}

/// Where a place stands in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Spot {
    /// In the main line, since then.
    Main { order: i64, since: Micros },
    /// Behind others of its tenant.
    Side,
}

/// A place, as a line sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket<'a> {
    pub place: u32,
    pub seq: u64,
    pub level: u8,
    pub cost: i64,
    pub arrived: Micros,
    pub tenant: &'a str,
}

/// A place that came from its side line into the main one.
pub(super) struct Came {
    pub place: u32,
    pub spot: Spot,
}

/// How the line goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner<'a> {
    pub rule: &'a LineRule,
    /// Whether tenants share.
    pub fair: bool,
    pub t: Micros,
}

/// The line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Line {
    levels: Vec<VecDeque<Entry>>,
    count: u32,
    cost: i64,
    largest: i64,
    /// By tenant and level.
    #[serde(with = "pairs")]
    groups: BTreeMap<(Box<str>, u8), Group>,
}

/// A map as a list of pairs: JSON has no keys of two parts.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    type Key = (Box<str>, u8);

    pub(super) fn serialize<V: Serialize, S: Serializer>(
        map: &BTreeMap<Key, V>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_seq(map)
    }

    pub(super) fn deserialize<'de, V: Deserialize<'de>, D: Deserializer<'de>>(
        d: D,
    ) -> Result<BTreeMap<Key, V>, D::Error> {
        Vec::<(Key, V)>::deserialize(d).map(|pairs| pairs.into_iter().collect())
    }
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn len(&self) -> u32 {
        self.count
    }

    /// Puts a place into the line.
    pub(super) fn stand(&mut self, how: Manner<'_>, ticket: Ticket<'_>) -> Spot {
        self.count += 1;
        self.cost += ticket.cost;
        self.largest = self.largest.max(ticket.cost);
        if !how.fair {
            return self.enter(how, ticket.level, ticket.seq, ticket.place, ticket.arrived);
        }
        let key = (Box::from(ticket.tenant), ticket.level);
        let group = self.groups.entry(key).or_default();
        if group.count > 0 && group.standing + ticket.cost > how.rule.quantum || !group.side.is_empty() {
            let aside =
                Aside { arrived: ticket.arrived, seq: ticket.seq, place: ticket.place, cost: ticket.cost };
            let at = group.side.partition_point(|a| (a.arrived, a.seq) < (aside.arrived, aside.seq));
            group.side.insert(at, aside);
            return Spot::Side;
        }
        group.standing += ticket.cost;
        group.count += 1;
        let base = how.t.max(group.owed);
        self.enter(how, ticket.level, ticket.seq, ticket.place, base)
    }

    /// Puts a place into the main line, whatever its tenant has there.
    pub(super) fn stand_in_main(&mut self, how: Manner<'_>, ticket: Ticket<'_>) -> Spot {
        self.count += 1;
        self.cost += ticket.cost;
        self.largest = self.largest.max(ticket.cost);
        if how.fair {
            let group = self.groups.entry((Box::from(ticket.tenant), ticket.level)).or_default();
            group.standing += ticket.cost;
            group.count += 1;
        }
        self.enter(how, ticket.level, ticket.seq, ticket.place, how.t)
    }

    fn enter(&mut self, how: Manner<'_>, level: u8, seq: u64, place: u32, base: Micros) -> Spot {
        if self.levels.len() <= usize::from(level) {
            self.levels.resize_with(usize::from(level) + 1, VecDeque::new);
        }
        let order = base + i64::from(level) * how.rule.step;
        let queue = &mut self.levels[usize::from(level)];
        let at = queue.partition_point(|e| (e.order, e.seq) < (order, seq));
        queue.insert(at, Entry { order, seq, place });
        Spot::Main { order, since: base }
    }

    /// Takes a place out. `admitted`: it passed, and its tenant owes what it cost beyond the quantum. Who came in instead.
    pub(super) fn leave(
        &mut self,
        how: Manner<'_>,
        ticket: Ticket<'_>,
        spot: Spot,
        admitted: bool,
    ) -> Vec<Came> {
        self.count -= 1;
        self.cost -= ticket.cost;
        if self.count == 0 {
            self.largest = 0;
        }
        if let Spot::Main { order, .. } = spot
            && let Some(queue) = self.levels.get_mut(usize::from(ticket.level))
        {
            let at = queue.partition_point(|e| (e.order, e.seq) < (order, ticket.seq));
            if queue.get(at).is_some_and(|e| e.place == ticket.place) {
                queue.remove(at);
            }
        }
        if how.fair { self.leave_group(how, ticket, spot, admitted) } else { Vec::new() }
    }

    fn leave_group(&mut self, how: Manner<'_>, ticket: Ticket<'_>, spot: Spot, admitted: bool) -> Vec<Came> {
        let key = (Box::from(ticket.tenant), ticket.level);
        let Some(group) = self.groups.get_mut(&key) else { return Vec::new() };
        match spot {
            Spot::Side => group.side.retain(|a| a.place != ticket.place),
            Spot::Main { since, .. } => {
                group.standing -= ticket.cost;
                group.count -= 1;
                if admitted {
                    let rounds = ceil_div(ticket.cost, how.rule.quantum).clamp(1, MAX_ROUNDS);
                    group.owed = how.t + (rounds - 1) * (how.t - since).max(0);
                }
            }
        }
        let mut coming = Vec::new();
        while let Some(next) = group.side.front().copied()
            && (group.count == 0 || group.standing + next.cost <= how.rule.quantum)
        {
            group.side.pop_front();
            group.standing += next.cost;
            group.count += 1;
            coming.push((next, how.t.max(group.owed)));
        }
        let done = group.count == 0 && group.side.is_empty() && group.owed <= how.t;
        let came = coming
            .into_iter()
            .map(|(a, base)| Came {
                place: a.place,
                spot: self.enter(how, ticket.level, a.seq, a.place, base),
            })
            .collect();
        if done {
            self.groups.remove(&key);
        }
        came
    }

    /// How many are before a place that stands here.
    pub(super) fn ahead_of(&self, how: Manner<'_>, ticket: Ticket<'_>, spot: Spot) -> Ahead {
        let mut ahead = match spot {
            Spot::Main { order, .. } => self.before(order, ticket.level, ticket.seq),
            Spot::Side => {
                let order = how.t + i64::from(ticket.level) * how.rule.step;
                let mut ahead = self.before(order, ticket.level, u64::MAX);
                let group = self.groups.get(&(Box::from(ticket.tenant), ticket.level));
                let own = group.map_or(0, |g| {
                    g.side.partition_point(|a| (a.arrived, a.seq) < (ticket.arrived, ticket.seq)) as u32
                });
                ahead.count += own;
                ahead.own_level += own;
                ahead
            }
        };
        self.weigh(&mut ahead, self.cost - ticket.cost);
        ahead
    }

    /// The cost of those ahead, of which all others in the line together are `all`.
    fn weigh(&self, ahead: &mut Ahead, all: i64) {
        let count = i64::from(ahead.count);
        ahead.cost = all.min(count * self.largest);
        ahead.likely = ahead.cost.min(count * ceil_div(self.cost, i64::from(self.count).max(1)));
    }

    /// How many would be before a call that comes now.
    pub(super) fn ahead_of_new(&self, how: Manner<'_>, ticket: Ticket<'_>) -> Ahead {
        let level = ticket.level;
        let mut base = ticket.arrived;
        let mut own = 0;
        if how.fair {
            base = how.t;
            if let Some(group) = self.groups.get(&(Box::from(ticket.tenant), level)) {
                base = base.max(group.owed);
                own =
                    group.side.partition_point(|a| (a.arrived, a.seq) < (ticket.arrived, ticket.seq)) as u32;
            }
        }
        let mut ahead = self.before(base + i64::from(level) * how.rule.step, level, ticket.seq);
        ahead.count += own;
        ahead.own_level += own;
        self.weigh(&mut ahead, self.cost);
        ahead
    }

    /// Those of the main line that come before (order, level, seq).
    fn before(&self, order: i64, level: u8, seq: u64) -> Ahead {
        let mut ahead = Ahead::default();
        for (l, queue) in self.levels.iter().enumerate() {
            let here = match l.cmp(&usize::from(level)) {
                std::cmp::Ordering::Less => queue.partition_point(|e| e.order <= order),
                std::cmp::Ordering::Equal => queue.partition_point(|e| (e.order, e.seq) < (order, seq)),
                std::cmp::Ordering::Greater => queue.partition_point(|e| e.order < order),
            } as u32;
            ahead.count += here;
            if l == usize::from(level) {
                ahead.own_level = here;
            }
        }
        ahead
    }

    /// The first `n` of the main line.
    pub(super) fn first(&self, n: usize) -> impl Iterator<Item = u32> {
        let mut at = vec![0; self.levels.len()];
        let mut found = Vec::with_capacity(n.min(self.count as usize));
        while found.len() < n {
            let heads =
                self.levels.iter().enumerate().filter_map(|(l, q)| q.get(at[l]).map(|e| (e.order, l, e)));
            let Some((_, l, entry)) = heads.min_by_key(|(order, l, _)| (*order, *l)) else { break };
            found.push(entry.place);
            at[l] += 1;
        }
        found.into_iter()
    }

    /// The smallest order in the main line.
    pub(super) fn front(&self) -> Option<i64> {
        self.levels.iter().filter_map(|q| q.front().map(|e| e.order)).min()
    }

    /// Puts a place that stands in the main line before all others.
    pub(super) fn bring_forward(&mut self, ticket: Ticket<'_>, spot: Spot) -> Spot {
        let (Some(front), Spot::Main { order, since }) = (self.front(), spot) else { return spot };
        let Some(queue) = self.levels.get_mut(usize::from(ticket.level)) else { return spot };
        let at = queue.partition_point(|e| (e.order, e.seq) < (order, ticket.seq));
        let Some(mut entry) = queue.remove(at) else { return spot };
        entry.order = front - 1;
        queue.push_front(entry);
        Spot::Main { order: front - 1, since }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: LineRule = LineRule { levels: 3, step: 100, max_wait: 300, max: 100, grace: 10, quantum: 10 };

    fn ticket(place: u32, level: u8, cost: i64, arrived: Micros, tenant: &str) -> Ticket<'_> {
        Ticket { place, seq: u64::from(place), level, cost, arrived, tenant }
    }

    fn manner(fair: bool, t: Micros) -> Manner<'static> {
        Manner { rule: &RULE, fair, t }
    }

    #[test]
    fn the_order_is_arrival_plus_level_times_step() {
        let mut line = Line::default();
        for (place, level, at) in [(0, 2, 0), (1, 0, 150), (2, 0, 201), (3, 1, 60)] {
            line.stand(manner(false, at), ticket(place, level, 1, at, "a"));
        }
        assert_eq!(line.first(9).collect::<Vec<_>>(), [1, 3, 0, 2]);
        let newcomer = line.ahead_of_new(manner(false, 161), ticket(9, 0, 1, 161, "a"));
        assert_eq!((newcomer.count, newcomer.own_level), (2, 1));
    }

    #[test]
    fn the_first_of_each_tenant_take_turns() {
        let mut line = Line::default();
        let mut spots = Vec::new();
        for place in 0..6 {
            let tenant = if place < 5 { "heavy" } else { "light" };
            spots.push(
                line.stand(manner(true, i64::from(place)), ticket(place, 0, 10, i64::from(place), tenant)),
            );
        }
        assert_eq!(line.first(9).collect::<Vec<_>>(), [0, 5]);
        let came = line.leave(manner(true, 20), ticket(0, 0, 10, 0, "heavy"), spots[0], true);
        assert_eq!(came.iter().map(|c| c.place).collect::<Vec<_>>(), [1]);
        assert_eq!(line.first(9).collect::<Vec<_>>(), [5, 1]);
    }

    #[test]
    fn a_costly_call_skips_rounds() {
        let mut line = Line::default();
        let first = line.stand(manner(true, 0), ticket(0, 0, 30, 0, "a"));
        line.stand(manner(true, 0), ticket(1, 0, 10, 0, "a"));
        let came = line.leave(manner(true, 50), ticket(0, 0, 30, 0, "a"), first, true);
        assert_eq!(came[0].spot, Spot::Main { order: 150, since: 150 }, "two rounds of 50 are owed");
    }

    #[test]
    fn cost_ahead_is_exact_at_the_end_and_for_equal_costs() {
        let mut line = Line::default();
        for (place, cost) in [(0, 5), (1, 70), (2, 5)] {
            line.stand(manner(false, 0), ticket(place, 0, cost, i64::from(place), "a"));
        }
        let how = manner(false, 10);
        assert_eq!(line.ahead_of_new(how, ticket(9, 0, 1, 10, "a")).cost, 80);
        assert_eq!(line.ahead_of(how, ticket(1, 0, 70, 1, "a"), Spot::Main { order: 1, since: 1 }).cost, 10);
    }
}
