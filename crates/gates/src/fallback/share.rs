//! A process's share of a domain's gates (G11): what it may do by itself while nobody can be asked.
//!
//! A limit is divided by the number of processes; what is left over goes to the first of them, one each. So the shares are
//! never more than the limit together, and only as many processes as the limit have one. A gate of which a process has no
//! share is *closed* to it: its calls wait. So are locks, and pools with fewer slots than there are processes, unless they are
//! configured as `open`.

use std::collections::BTreeMap;

use tidegate_core::gates::config::{Adaptive, Degraded, Quota, QuotaCost, Reported, Slots, Smooth, Window};
use tidegate_core::gates::{Gate, GateSet, Kind, Micros, Part, SECOND, Span, Target};

/// Longest time for which what was admitted locally is remembered after the backend came back.
const LONGEST_MEMORY: Micros = 60 * SECOND;
/// Stands for a set all of whose gates are open or closed.
const UNLIMITED: u32 = 100_000;

/// Which of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seat {
    pub processes: u32,
    /// 0 is the first.
    pub rank: u32,
}

impl Seat {
    fn of(self, limit: i64) -> i64 {
        let n = i64::from(self.processes.max(1));
        limit / n + i64::from(i64::from(self.rank) < limit % n)
    }
}

/// A process's share.
#[derive(Debug)]
pub(super) struct Share {
    /// Its gates; those that are open are left out.
    pub set: GateSet,
    /// The same gates with their whole limits: what held before the outage is taken over under these.
    pub whole: GateSet,
    closed: Vec<Closed>,
    /// How long what is admitted counts.
    pub memory: Micros,
}

#[derive(Debug)]
struct Closed {
    gate: std::sync::Arc<str>,
    mask: u8,
    only: Vec<String>,
    base: bool,
    keys: BTreeMap<String, bool>,
}

impl Share {
    pub(super) fn new(set: &GateSet, seat: Seat) -> Self {
        let mut share = Self {
            set: GateSet { gates: Vec::new(), ..set.clone() },
            whole: GateSet { gates: Vec::new(), ..set.clone() },
            closed: Vec::new(),
            memory: 0,
        };
        for gate in set.gates.iter().filter(|g| g.degraded != Degraded::Open) {
            let part = |kind: &Kind| part_of(kind, seat).filter(|_| gate.degraded == Degraded::Local);
            let (base, keys) =
                (part(&gate.gate), gate.overrides.iter().map(|(k, kind)| (k, kind, part(kind))));
            let keys: Vec<_> = keys.collect();
            if base.is_none() || keys.iter().any(|(.., part)| part.is_none()) {
                share.closed.push(Closed {
                    gate: gate.name.as_str().into(),
                    mask: gate.per.iter().fold(0, |mask, part| mask | 1 << *part as u8),
                    only: gate.only.clone(),
                    base: base.is_none(),
                    keys: keys.iter().map(|(key, _, part)| ((*key).clone(), part.is_none())).collect(),
                });
            }
            if base.is_none() && keys.iter().all(|(.., part)| part.is_none()) {
                continue;
            }
            share.memory = share.memory.max(memory(&gate.gate));
            let overrides = keys.iter().map(|(key, kind, part)| {
                ((*key).clone(), part.clone().unwrap_or_else(|| without_reserve(kind)))
            });
            share.whole.gates.push(Gate { gate: without_reserve(&gate.gate), ..gate.clone() });
            share.set.gates.push(Gate {
                gate: base.unwrap_or_else(|| without_reserve(&gate.gate)),
                overrides: overrides.collect(),
                ..gate.clone()
            });
        }
        if share.set.gates.is_empty() {
            let open = Gate::new("open", Kind::Slots(Slots::of(UNLIMITED)));
            share.set.gates.push(open.clone());
            share.whole.gates.push(open);
        }
        share.memory = share.memory.min(LONGEST_MEMORY);
        share
    }

    /// The gates that are closed to this target.
    pub(super) fn closed_to(&self, target: &Target) -> impl Iterator<Item = &std::sync::Arc<str>> {
        let mut key = String::new();
        let closed = self.closed.iter().filter(move |c| {
            if !c.only.is_empty() && !c.only.iter().any(|e| *e == target.part(Part::Endpoint)) {
                return false;
            }
            target.key_into(c.mask, &mut key);
            c.keys.get(&key).copied().unwrap_or(c.base)
        });
        closed.map(|c| &c.gate)
    }
}

/// Whether two may never have it at once.
pub(super) fn is_lock(kind: &Kind) -> bool {
    matches!(kind, Kind::Lock(_)) || matches!(kind, Kind::Slots(s) if s.limit == 1)
}

/// Slots kept for priorities cannot be divided; locally there are none.
fn without_reserve(kind: &Kind) -> Kind {
    match kind {
        Kind::Slots(s) => Kind::Slots(Slots { reserved: BTreeMap::new(), ..s.clone() }),
        other => other.clone(),
    }
}

/// The part of a gate that a process has; none: nothing.
fn part_of(kind: &Kind, seat: Seat) -> Option<Kind> {
    let n = i64::from(seat.processes.max(1));
    match kind {
        Kind::Smooth(s) => {
            let burst = Some(seat.of(s.burst)).filter(|b| *b > 0)?;
            // As many as have a part of the burst share the rate: it stays exact if the time grows instead.
            let holders = n.min(s.burst);
            Some(Kind::Smooth(slower(&Smooth { burst, ..s.clone() }, holders)))
        }
        Kind::Window(w) => {
            let max = Some(seat.of(w.max)).filter(|m| *m > 0)?;
            Some(Kind::Window(Window { max, ..w.clone() }))
        }
        Kind::Reported(r) => {
            let part = |points: f64| (points / n as f64).max(0.001);
            Some(Kind::Reported(Reported {
                capacity: part(r.capacity),
                restore_per_s: part(r.restore_per_s),
                // A call above the share waits; it is not refused for ever.
                known: false,
            }))
        }
        Kind::Slots(s) if i64::from(s.limit) < n => None,
        Kind::Slots(s) => {
            let part = |limit: u32| seat.of(i64::from(limit)) as u32;
            let limit = part(s.limit);
            let adaptive = s.adaptive.as_ref().map(|a| Adaptive {
                floor: part(a.floor).clamp(1, limit),
                ceiling: part(a.ceiling).max(limit),
                ..a.clone()
            });
            Some(Kind::Slots(Slots { limit, reserved: BTreeMap::new(), adaptive, ..s.clone() }))
        }
        Kind::Lock(_) => None,
        Kind::Breaker(b) => Some(Kind::Breaker(b.clone())),
        Kind::Quota(q) => {
            let slots = match q.slots {
                Some(slots) => Some(Some(seat.of(i64::from(slots)) as u32).filter(|s| *s > 0)?),
                None => None,
            };
            let cost = q.cost.as_ref().map(|c| QuotaCost { max: (c.max / n as f64).max(0.001), ..c.clone() });
            Some(Kind::Quota(Quota { slots, cost, ..q.clone() }))
        }
    }
}

/// The rate divided: by a longer time where that can be written, otherwise by a lower number, rounded down.
fn slower(s: &Smooth, by: i64) -> Smooth {
    let longer = Smooth { every: Span(s.every.0.saturating_mul(by)), ..s.clone() };
    let set = GateSet::of(vec![Gate::new("rate", Kind::Smooth(longer.clone()))]);
    if set.check().is_ok() {
        return longer;
    }
    Smooth { rate: (s.rate / by).max(1), ..s.clone() }
}

/// How long an admission counts.
fn memory(kind: &Kind) -> Micros {
    match kind {
        Kind::Smooth(s) => (s.burst as f64 / s.rate as f64 * s.every.0 as f64) as Micros,
        Kind::Window(w) => w.every.0,
        Kind::Reported(r) => (r.capacity / r.restore_per_s * SECOND as f64) as Micros,
        Kind::Quota(q) => q.cost.as_ref().map_or(0, |c| c.every.0),
        Kind::Slots(_) | Kind::Lock(_) | Kind::Breaker(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::gates::config::{Breaker, Lock};
    use tidegate_core::gates::{Compiled, Points, Unit};

    use super::*;

    /// What one gate's limit is worth in its own units (milli points where it counts cost): the bound of the overshoot.
    fn worth(kind: &Kind) -> i64 {
        let scale = |unit: Unit| if unit == Unit::Cost { 1_000 } else { 1 };
        match kind {
            Kind::Smooth(s) => s.burst * scale(s.unit),
            Kind::Window(w) => w.max * scale(w.unit),
            Kind::Reported(r) => Points::from_f64(r.capacity).unwrap_or_default().0,
            Kind::Slots(s) => s.limit.into(),
            Kind::Lock(_) | Kind::Breaker(_) => 0,
            Kind::Quota(q) => q.slots.unwrap_or(0).into(),
        }
    }

    fn shares(kind: &Kind, processes: u32) -> Vec<Option<Kind>> {
        (0..processes).map(|rank| part_of(kind, Seat { processes, rank })).collect()
    }

    #[test]
    fn shares_are_never_more_than_the_limit_together() {
        for limit in 1..40_i64 {
            for n in 1..20 {
                let window = Kind::Window(Window { max: limit, every: Span::secs(1), unit: Unit::Calls });
                let smooth =
                    Kind::Smooth(Smooth { rate: 10, every: Span::secs(1), burst: limit, unit: Unit::Calls });
                let slots = Kind::Slots(Slots::of(limit as u32));
                let quota = Kind::Quota(Quota::slots(limit as u32));
                for kind in [window, smooth, slots, quota] {
                    let all = shares(&kind, n);
                    let sum: i64 = all.iter().flatten().map(worth).sum();
                    let closed = matches!(kind, Kind::Slots(_)) && limit < i64::from(n);
                    assert_eq!(sum, if closed { 0 } else { limit }, "{kind:?} for {n}");
                    let rate: f64 = all.iter().flatten().map(rate_of).sum();
                    assert!((rate - rate_of(&kind)).abs() < 1e-9, "{kind:?} for {n}: {rate}");
                }
            }
        }
    }

    fn rate_of(kind: &Kind) -> f64 {
        match kind {
            Kind::Smooth(s) => s.rate as f64 / s.every.0 as f64,
            _ => 0.0,
        }
    }

    fn target(account: &str) -> Target {
        Target::new("d").unwrap().with(Part::Account, account).unwrap()
    }

    #[test]
    fn locks_and_small_pools_are_closed_and_open_gates_are_not_asked() {
        let seat = Seat { processes: 4, rank: 0 };
        let lock = Gate::new("lock", Kind::Lock(Lock::default())).per(&[Part::Account]).only(&["bulk"]);
        let mut small = Gate::new("small", Kind::Slots(Slots::of(8))).per(&[Part::Account]);
        small.overrides.insert("tiny".into(), Kind::Slots(Slots::of(3)));
        let share = Share::new(&GateSet::of(vec![lock.clone(), small.clone()]), seat);
        assert_eq!(share.closed_to(&target("a")).next(), None, "the lock is for bulk calls");
        assert_eq!(share.closed_to(&target("tiny")).next().unwrap().as_ref(), "small");
        let bulk = target("a").with(Part::Endpoint, "bulk").unwrap();
        assert_eq!(share.closed_to(&bulk).next().unwrap().as_ref(), "lock");
        assert_eq!(share.set.gates[0].gate, Kind::Slots(Slots::of(2)));
        assert!(Compiled::new(share.set).is_ok() && Compiled::new(share.whole).is_ok());

        let open = Gate { degraded: Degraded::Open, ..lock };
        let share = Share::new(&GateSet::of(vec![open]), seat);
        assert_eq!(share.closed_to(&bulk).next(), None);
        assert_eq!(share.set.gates[0].gate, Kind::Slots(Slots::of(UNLIMITED)));
        let shut = Gate { degraded: Degraded::Closed, ..small };
        assert!(Share::new(&GateSet::of(vec![shut]), seat).closed_to(&target("a")).next().is_some());
    }

    #[test]
    fn every_share_of_every_kind_is_an_acceptable_set() {
        let kinds = || {
            [
                Kind::Smooth(Smooth { rate: 9, every: Span::secs(3_600), burst: 500, unit: Unit::Cost }),
                Kind::Window(Window { max: 3, every: Span::secs(60), unit: Unit::Calls }),
                Kind::Reported(Reported { capacity: 1_000.0, restore_per_s: 50.0, known: true }),
                Kind::Slots(Slots {
                    adaptive: Some(Adaptive { floor: 2, ceiling: 90, backoff: 0.75 }),
                    reserved: [(1, 9)].into(),
                    ..Slots::of(9)
                }),
                Kind::Lock(Lock::default()),
                Kind::Breaker(Breaker::default()),
                Kind::Quota(Quota {
                    slots: Some(2),
                    cost: Some(QuotaCost { max: 0.5, every: Span::secs(1) }),
                    hoarding: 100,
                }),
            ]
        };
        for processes in [1, 2, 3, 7, 1_000] {
            for rank in [0, processes / 2, processes - 1] {
                let gates =
                    kinds().into_iter().enumerate().map(|(i, k)| Gate::new(&format!("g{i}"), k)).collect();
                let share = Share::new(&GateSet::of(gates), Seat { processes, rank });
                assert_eq!(share.set.check(), Ok(()), "{processes} processes, rank {rank}");
                // The last of a thousand have no part of the rates with a long memory.
                let memory = if rank < 3 { LONGEST_MEMORY } else { 20 * SECOND };
                assert!((memory..=LONGEST_MEMORY).contains(&share.memory));
            }
        }
    }
}
