//! An accepted configuration as numbers, with what follows from it: scopes, which is narrower than which, and how the
//! domain's state is split.

use std::sync::Arc;

use super::breaker::BreakerRule;
use super::call::{KeyMap, Target};
use super::check::InvalidGates;
use super::config::{Gate, GateSet, Kind, Part, Unit};
use super::level::LevelRule;
use super::pool::{AdaptiveRule, PoolRule};
use super::quota::QuotaRule;
use super::smooth::SmoothRule;
use super::units::{Micros, NANO, Points, ceil_div};
use super::window::WindowRule;
use super::{MAX_LEVELS, MAX_SCOPES};

/// Order added per level where ageing is off: twelve days, so nothing of a lower level is ever first.
const NO_AGEING: Micros = 1 << 40;

/// A gate set ready for use.
#[derive(Debug, Clone)]
pub struct Compiled {
    pub(super) set: GateSet,
    pub(super) gates: Vec<GateRule>,
    /// The gates beside each other that have the same scope: the first, and how many.
    runs: Vec<(usize, usize)>,
    /// Gates that are slots or locks, a bit each.
    pub(super) pools: u32,
    pub(super) scopes: Vec<ScopeRule>,
    pub(super) split: u8,
    pub(super) line: LineRule,
    pub(super) quarantine: Micros,
    pub(super) use_by: Micros,
    /// How long after a loss a key still differs from one that nobody has used.
    pub(super) recovery: Micros,
    /// Gates that an operator has switched off, a bit each.
    pub(super) disabled: u32,
    /// Breakers that an operator has opened for all keys, and until when: for partitions that are made.
    pub(super) orders: Vec<(Arc<str>, Micros)>,
    /// Named where no gate is to blame.
    pub(super) line_name: Arc<str>,
}

#[derive(Debug, Clone)]
pub(super) struct LineRule {
    pub levels: u8,
    pub step: Micros,
    pub max_wait: Micros,
    pub max: u32,
    pub grace: Micros,
    /// Milli points of one tenant in the main line; 0: no shares.
    pub quantum: i64,
}

#[derive(Debug, Clone)]
pub(super) struct GateRule {
    pub name: Arc<str>,
    /// Its number in the set, and the bit that stands for it.
    pub number: usize,
    pub bit: u32,
    pub scope: usize,
    /// Its number among the gates of its scope.
    pub at: usize,
    rule: Rule,
    /// None where no key differs: nearly always, and asked several times per call.
    overrides: Option<Box<KeyMap<Box<str>, Rule>>>,
}

impl GateRule {
    #[inline]
    pub(super) fn rule(&self, key: &str) -> &Rule {
        match &self.overrides {
            None => &self.rule,
            Some(others) => self.rule_of_key(others, key),
        }
    }

    /// Not in line: the loops over gates would prepare a hash of the key that hardly any of them needs.
    #[inline(never)]
    fn rule_of_key<'a>(&'a self, others: &'a KeyMap<Box<str>, Rule>, key: &str) -> &'a Rule {
        others.get(key).unwrap_or(&self.rule)
    }
}

/// What a gate asks for. Its kind is a byte of its own, as that of `GateState`.
#[derive(Debug, Clone)]
#[repr(u8)]
pub(super) enum Rule {
    Smooth(SmoothRule),
    Window(WindowRule),
    Level(LevelRule),
    Pool(PoolRule),
    Breaker(BreakerRule),
    Quota(QuotaRule),
}

impl Rule {
    pub(super) fn is_rate(&self) -> bool {
        matches!(self, Self::Smooth(_) | Self::Window(_) | Self::Level(_))
    }

    /// How long it takes from nothing to everything.
    fn recovery(&self) -> Micros {
        let window = |r: &WindowRule| r.every + r.grain;
        match self {
            Self::Smooth(r) => ceil_div(r.burst * r.every, r.rate),
            Self::Window(r) => window(r),
            Self::Level(r) => ceil_div(r.capacity * NANO, r.rate),
            Self::Quota(r) => r.cost.as_ref().map_or(0, window),
            Self::Pool(_) | Self::Breaker(_) => 0,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct ScopeRule {
    pub mask: u8,
    pub only: Vec<Box<str>>,
    /// Scopes that are narrower, a bit each.
    pub narrower: u8,
    /// Its gates.
    pub gates: Vec<usize>,
    /// Whether tenants share its line.
    pub fair: bool,
    pub has_pool: bool,
    pub has_level: bool,
    pub whose: Whose,
}

/// Whom the gates of a scope let pass together, as far as a [`Room`](super::Room) can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Everybody who calls this connector.
    Everybodys,
    /// Those of one tenant or account.
    Own,
    /// Those of some endpoints or subjects.
    Narrower,
}

impl Whose {
    /// Of a scope by these parts (a bit each, in the order of [`Part::ALL`]), `limited` to some endpoints or not.
    pub fn of(parts: u8, limited: bool) -> Self {
        match parts & !mask(&[Part::Connector]) {
            _ if limited || parts & mask(&[Part::Endpoint, Part::Subject]) != 0 => Self::Narrower,
            0 => Self::Everybodys,
            _ => Self::Own,
        }
    }
}

impl ScopeRule {
    pub(super) fn applies(&self, target: &Target) -> bool {
        self.only.is_empty() || self.only.iter().any(|e| **e == *target.part(Part::Endpoint))
    }
}

fn mask(parts: &[Part]) -> u8 {
    parts.iter().fold(0, |mask, part| mask | 1 << *part as u8)
}

impl Compiled {
    /// The gates in order, those beside each other that have the same scope together, with the number of that scope: to find a
    /// key's state takes about as long as to ask one of its gates.
    #[inline]
    pub(super) fn by_scope(&self) -> impl Iterator<Item = (usize, &[GateRule])> {
        self.runs.iter().map(|(first, count)| {
            let gates = &self.gates[*first..][..*count];
            (gates[0].scope, gates)
        })
    }

    /// Checks a set and makes it ready.
    pub fn new(set: GateSet) -> Result<Self, InvalidGates> {
        set.check()?;
        let line = LineRule {
            levels: set.line.levels,
            step: if set.line.ageing { set.line.max_wait.0 / i64::from(set.line.levels) } else { NO_AGEING },
            max_wait: set.line.max_wait.0,
            max: set.line.max,
            grace: set.line.grace.0,
            quantum: set.fair.as_ref().map_or(0, |f| f.quantum.0),
        };
        let mut scopes: Vec<ScopeRule> = Vec::with_capacity(MAX_SCOPES);
        let mut gates = Vec::with_capacity(set.gates.len());
        for (i, gate) in set.gates.iter().enumerate() {
            let scope = place_scope(&mut scopes, gate);
            let here = &mut scopes[scope];
            let rule = rule_of(&gate.gate);
            here.has_pool |= matches!(rule, Rule::Pool(_));
            here.has_level |= matches!(rule, Rule::Level(_));
            let others = gate.overrides.iter().map(|(k, v)| (Box::from(k.as_str()), rule_of(v)));
            let overrides = (!gate.overrides.is_empty()).then(|| Box::new(others.collect()));
            gates.push(GateRule {
                name: Arc::from(gate.name.as_str()),
                number: i,
                bit: 1 << i,
                scope,
                at: here.gates.len(),
                rule,
                overrides,
            });
            here.gates.push(i);
        }
        let narrower: Vec<u8> = (0..scopes.len()).map(|s| narrower_than(&scopes, s)).collect();
        for (scope, narrower) in scopes.iter_mut().zip(narrower) {
            scope.narrower = narrower;
            scope.fair = line.quantum > 0 && scope.mask & mask(&[Part::Tenant]) == 0;
        }
        // Endpoint classes and subjects are too many and too short-lived to split by.
        let split =
            scopes.iter().fold(mask(&[Part::Connector, Part::Tenant, Part::Account]), |m, s| m & s.mask);
        let beside = gates.chunk_by(|a: &GateRule, b| a.scope == b.scope);
        let runs = beside.map(|run| (run[0].number, run.len())).collect();
        let pools = gates.iter().filter(|g| matches!(g.rule, Rule::Pool(_)));
        let pools = pools.fold(0, |bits, gate| bits | gate.bit);
        let rules = gates
            .iter()
            .flat_map(|g: &GateRule| g.overrides.iter().flat_map(|others| others.values()).chain([&g.rule]));
        let recovery = rules.map(Rule::recovery).max().unwrap_or(0);
        Ok(Self {
            recovery,
            gates,
            runs,
            pools,
            scopes,
            split,
            line,
            quarantine: set.quarantine.0,
            use_by: set.use_by.0,
            disabled: 0,
            orders: Vec::new(),
            line_name: Arc::from("line"),
            set,
        })
    }

    /// The configuration it was made from.
    pub fn set(&self) -> &GateSet {
        &self.set
    }

    /// The same with these gates switched off; the names that are no gates come back.
    pub fn disable<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        self.disabled = 0;
        let mut unknown = Vec::new();
        for name in names {
            match self.gates.iter().position(|g| *g.name == *name) {
                Some(i) => self.disabled |= 1 << i,
                None => unknown.push(name),
            }
        }
        unknown
    }

    /// The same with these breakers open until then, by the callers' clock, in every partition that is made.
    pub fn order<'a>(&mut self, orders: impl IntoIterator<Item = (&'a str, Micros)>) {
        let known = orders.into_iter().filter(|(name, _)| self.is_breaker(name));
        self.orders = known.map(|(name, until)| (Arc::from(name), until)).collect();
    }

    /// Until when a breaker is ordered to be open for all keys, if it is then.
    pub fn ordered(&self, gate: &str, now: Micros) -> Option<Micros> {
        self.orders.iter().find(|(name, until)| **name == *gate && *until > now).map(|(_, until)| *until)
    }

    /// Whether this is the name of a breaker.
    pub fn is_breaker(&self, name: &str) -> bool {
        self.gates.iter().any(|g| *g.name == *name && matches!(g.rule(""), Rule::Breaker(_)))
    }

    /// The key of the partition that this target belongs to; empty if the domain is one.
    pub fn partition_into(&self, target: &Target, key: &mut String) {
        target.key_into(self.split, key);
    }

    /// The same key; what has to be made is put into `made`.
    #[inline]
    pub fn partition<'a>(&self, target: &'a Target, made: &'a mut String) -> &'a str {
        target.key(self.split, made)
    }

    /// Whether the domain's state is split at all.
    pub fn is_split(&self) -> bool {
        self.split != 0
    }

    /// By which parts it is split, a bit each in the order of [`Part::ALL`].
    pub fn split(&self) -> u8 {
        self.split
    }

    /// Level of a priority: 0 is the highest.
    pub(super) fn level(&self, priority: u8) -> u8 {
        priority.clamp(1, self.line.levels) - 1
    }

    pub(super) fn enabled(&self, gate: usize) -> bool {
        self.disabled & (1 << gate) == 0
    }
}

fn place_scope(scopes: &mut Vec<ScopeRule>, gate: &Gate) -> usize {
    let mut only: Vec<Box<str>> = gate.only.iter().map(|e| Box::from(e.as_str())).collect();
    only.sort_unstable();
    only.dedup();
    let mask = mask(&gate.per);
    if let Some(at) = scopes.iter().position(|s| s.mask == mask && s.only == only) {
        return at;
    }
    scopes.push(ScopeRule {
        mask,
        whose: Whose::of(mask, !only.is_empty()),
        only,
        narrower: 0,
        gates: Vec::new(),
        fair: false,
        has_pool: false,
        has_level: false,
    });
    scopes.len() - 1
}

/// Scopes all of whose users also pass this one.
fn narrower_than(scopes: &[ScopeRule], of: usize) -> u8 {
    let broad = &scopes[of];
    let is = |s: &ScopeRule| {
        s.mask & broad.mask == broad.mask
            && (broad.only.is_empty()
                || (!s.only.is_empty() && s.only.iter().all(|e| broad.only.contains(e))))
    };
    let narrower = scopes.iter().enumerate().filter(|(i, s)| *i != of && is(s));
    narrower.fold(0, |bits, (i, _)| bits | 1 << i)
}

fn milli(points: f64) -> i64 {
    Points::from_f64(points).unwrap_or_default().0
}

fn rule_of(kind: &Kind) -> Rule {
    let scale = |unit: Unit| if unit == Unit::Cost { 1_000 } else { 1 };
    match kind {
        Kind::Smooth(s) => Rule::Smooth(SmoothRule {
            rate: s.rate * scale(s.unit),
            every: s.every.0,
            burst: s.burst * scale(s.unit),
            unit: s.unit,
        }),
        Kind::Window(w) => Rule::Window(WindowRule::new(w.max * scale(w.unit), w.every.0, w.unit)),
        Kind::Reported(r) => Rule::Level(LevelRule {
            capacity: milli(r.capacity),
            rate: milli(r.restore_per_s),
            known: r.known,
        }),
        Kind::Slots(s) => {
            let mut reserved = [0; MAX_LEVELS];
            s.reserved.iter().for_each(|(priority, kept)| reserved[usize::from(*priority) - 1] = *kept);
            let adaptive = s.adaptive.as_ref().map(|a| AdaptiveRule {
                floor: a.floor,
                ceiling: a.ceiling,
                backoff: (a.backoff * 1_000.0).round() as i64,
            });
            Rule::Pool(PoolRule { limit: s.limit, reserved, poll: s.poll.0, lock: false, adaptive })
        }
        Kind::Lock(l) => Rule::Pool(PoolRule {
            limit: 1,
            reserved: [0; MAX_LEVELS],
            poll: l.poll.0,
            lock: true,
            adaptive: None,
        }),
        Kind::Breaker(b) => Rule::Breaker(BreakerRule {
            failures: b.failures,
            ratio: b.ratio.map(|r| (r * 1_000.0).round() as i64),
            half: b.window.0 / 2,
            open: b.open.0,
            probes: b.probes,
            ramp: b.ramp.0,
        }),
        Kind::Quota(q) => Rule::Quota(QuotaRule {
            slots: q.slots,
            cost: q.cost.as_ref().map(|c| WindowRule::new(milli(c.max), c.every.0, Unit::Cost)),
            hoarding: q.hoarding,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{Lock, Slots};
    use super::*;

    fn lock(name: &str) -> Gate {
        Gate::new(name, Kind::Lock(Lock::default()))
    }

    #[test]
    fn narrower_is_whose_users_all_pass_the_broader_one() {
        let gates = vec![
            lock("all"),
            lock("account").per(&[Part::Account]),
            lock("bulk").per(&[Part::Account]).only(&["bulk"]),
            lock("tenant").per(&[Part::Tenant]),
        ];
        let c = Compiled::new(GateSet::of(gates)).unwrap();
        let narrower: Vec<u8> = c.scopes.iter().map(|s| s.narrower).collect();
        assert_eq!(narrower, [0b1110, 0b0100, 0, 0]);
        assert!(!c.is_split());
    }

    #[test]
    fn a_domain_is_split_by_what_all_gates_have() {
        let gates = vec![
            lock("a").per(&[Part::Account]),
            Gate::new("b", Kind::Slots(Slots::of(3))).per(&[Part::Account, Part::Endpoint]),
        ];
        let c = Compiled::new(GateSet::of(gates)).unwrap();
        let target = Target::new("shopify").unwrap().with(Part::Account, "shop-a").unwrap();
        let mut key = String::new();
        c.partition_into(&target.with(Part::Endpoint, "bulk").unwrap(), &mut key);
        assert_eq!(key, "shop-a");
    }
}
