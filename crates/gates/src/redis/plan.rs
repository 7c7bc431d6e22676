//! A gate set as the functions want it: numbers in the gates' own units, scopes with their relations, as JSON. The server reads
//! it once per set, under a name, instead of once per call: an argument would cost more than the decision.

use serde_json::{Value, json};
use tidegate_core::gates::config::{GateSet, Kind, Window};
use tidegate_core::gates::{
    Compiled, Gate, MAX_LEVELS, Micros, PARTS, Part, Points, SECOND, Unit, Whose, hash_bytes,
};

/// Most units of a window whose instants are kept one by one, and ticks where they are not.
const EXACT_UP_TO: i64 = 10_000;
const TICKS: i64 = 128;
/// Order added per level where ageing is off.
const NO_AGEING: Micros = 1 << 40;
/// Shortest life of a key that nobody touches: longer than anything a provider can ask for (a day), a lease, what is learned.
const SHORTEST_LIFE: Micros = 25 * 3_600 * SECOND;

/// One scope: a distinct pair of `per` and `only`.
#[derive(Debug)]
struct Scope {
    mask: u8,
    only: Vec<String>,
    id: String,
}

/// What a domain's scripts need.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) compiled: Compiled,
    scopes: Vec<Scope>,
    /// Per gate: its scope and its number in state.
    gates: Vec<(usize, i64)>,
    /// Seconds after which an untouched key may go.
    pub(super) ttl: i64,
    /// The name that the functions know the set by, and the set.
    pub(super) name: String,
    pub(super) definition: String,
}

impl Plan {
    pub(super) fn new(compiled: Compiled) -> Self {
        let mut scopes: Vec<Scope> = Vec::new();
        let mut gates = Vec::new();
        for gate in &compiled.set().gates {
            let at = place(&mut scopes, gate);
            let name = format!("{}/{}/{}", scopes[at].id, gate.name, kind_name(&gate.gate));
            gates.push((at, (hash_bytes(name.as_bytes()) >> 12) as i64));
        }
        let set = compiled.set();
        let kinds = set.gates.iter().flat_map(|g| g.overrides.values().chain([&g.gate]));
        let longest = kinds.map(memory).chain([set.quarantine.0, set.line.max_wait.0]).max().unwrap_or(0);
        let ttl = (longest + SHORTEST_LIFE) / SECOND;
        let mut new = Self { compiled, scopes, gates, ttl, name: String::new(), definition: String::new() };
        new.definition = new.describe().to_string();
        new.name = format!("{:016x}", hash_bytes(new.definition.as_bytes()));
        new
    }

    fn set(&self) -> &GateSet {
        self.compiled.set()
    }

    /// The number that this gate has in state.
    pub(super) fn id_of(&self, gate: &str) -> Option<i64> {
        let at = self.set().gates.iter().position(|g| g.name == gate)?;
        Some(self.gates[at].1)
    }

    /// Level of a priority: 0 is the highest.
    pub(super) fn level(&self, priority: u8) -> u8 {
        priority.clamp(1, self.set().line.levels) - 1
    }

    fn describe(&self) -> Value {
        let (set, line) = (self.set(), &self.set().line);
        let step = if line.ageing { line.max_wait.0 / i64::from(line.levels) } else { NO_AGEING };
        let gates = set.gates.iter().zip(&self.gates).map(|(gate, (scope, id))| {
            let overrides: serde_json::Map<String, Value> =
                gate.overrides.iter().map(|(key, kind)| (key.clone(), rule(kind))).collect();
            json!({
                "s": scope + 1,
                "id": id,
                "name": gate.name,
                "k": kind_name(&gate.gate),
                "r": rule(&gate.gate),
                "o": if overrides.is_empty() { json!(false) } else { json!(overrides) },
            })
        });
        json!({
            "step": step,
            "max_wait": line.max_wait.0,
            "max": line.max,
            "grace": line.grace.0,
            "quantum": set.fair.as_ref().map_or(0, |f| f.quantum.0),
            "quarantine": set.quarantine.0,
            "use_by": set.use_by.0,
            "ttl": self.ttl,
            "scopes": (0..self.scopes.len()).map(|s| self.scope(s)).collect::<Vec<_>>(),
            "gates": gates.collect::<Vec<_>>(),
        })
    }

    fn scope(&self, s: usize) -> Value {
        let scope = &self.scopes[s];
        let here =
            || self.set().gates.iter().zip(&self.gates).filter(|(_, (at, _))| *at == s).map(|(g, _)| &g.gate);
        let narrower = (0..self.scopes.len()).filter(|n| *n != s && is_narrower(&self.scopes[*n], scope));
        let parts = (0..PARTS).filter(|i| scope.mask & (1 << i) != 0);
        let only: serde_json::Map<String, Value> =
            scope.only.iter().map(|endpoint| (endpoint.clone(), json!(true))).collect();
        json!({
            "id": scope.id,
            "number": hash_bytes(scope.id.as_bytes()) >> 12,
            "root": scope.mask == self.compiled.split(),
            "whose": Whose::of(scope.mask, !scope.only.is_empty()) as u8,
            "fair": self.set().fair.is_some() && scope.mask & (1 << Part::Tenant as u8) == 0,
            "pool": here().any(|k| matches!(k, Kind::Slots(_) | Kind::Lock(_))),
            "level": here().any(|k| matches!(k, Kind::Reported(_))),
            "parts": parts.map(|i| i + 1).collect::<Vec<_>>(),
            "narrower": narrower.map(|n| n + 1).collect::<Vec<_>>(),
            "only": if only.is_empty() { json!(false) } else { json!(only) },
        })
    }
}

/// What goes with every call if it is unusual: when all state was lost (-1: never), which gates are switched off, and what was said of
/// breakers for all keys, by their numbers: until when they are open (0: not any more), and when that was said.
pub(super) fn circumstances(
    set: &GateSet,
    off: &dyn Fn(&str) -> bool,
    order: &dyn Fn(&str) -> Option<(Micros, Micros)>,
    lost: Option<Micros>,
) -> Option<String> {
    let any = set.gates.iter().any(|g| off(&g.name));
    let numbered = set.gates.iter().enumerate();
    let orders: Vec<String> = numbered
        .filter_map(|(i, g)| {
            let (until, at) = order(&g.name)?;
            Some(format!("{}:{until}:{at}", i + 1))
        })
        .collect();
    if !any && orders.is_empty() && lost.is_none() {
        return None;
    }
    let mut text = format!("{};", lost.unwrap_or(-1));
    if any {
        text.extend(set.gates.iter().map(|g| if off(&g.name) { '1' } else { '0' }));
    }
    Some(format!("{text};{}", orders.join(",")))
}

fn place(scopes: &mut Vec<Scope>, gate: &Gate) -> usize {
    let mut only = gate.only.clone();
    only.sort_unstable();
    only.dedup();
    let mask = gate.per.iter().fold(0u8, |mask, part| mask | 1 << *part as u8);
    if let Some(at) = scopes.iter().position(|s| s.mask == mask && s.only == only) {
        return at;
    }
    // Stable over changes of the set: state is found by it.
    let id = if only.is_empty() {
        format!("{mask:x}")
    } else {
        format!("{mask:x}-{:x}", hash_bytes(only.join("/").as_bytes()))
    };
    scopes.push(Scope { mask, only, id });
    scopes.len() - 1
}

/// Whether all users of `a` also pass `b`.
fn is_narrower(a: &Scope, b: &Scope) -> bool {
    a.mask & b.mask == b.mask
        && (b.only.is_empty() || (!a.only.is_empty() && a.only.iter().all(|e| b.only.contains(e))))
}

fn kind_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Smooth(_) => "smooth",
        Kind::Window(_) => "window",
        Kind::Reported(_) => "level",
        Kind::Slots(_) | Kind::Lock(_) => "pool",
        Kind::Breaker(_) => "breaker",
        Kind::Quota(_) => "quota",
    }
}

/// How long a gate's state differs from a new one at most, beyond an hour.
fn memory(kind: &Kind) -> Micros {
    match kind {
        Kind::Smooth(s) => (s.burst / s.rate.max(1) + 1).saturating_mul(s.every.0),
        Kind::Window(w) => 2 * w.every.0,
        Kind::Quota(q) => q.cost.as_ref().map_or(0, |c| 2 * c.every.0),
        Kind::Breaker(b) => b.window.0 + b.open.0 + b.ramp.0,
        Kind::Reported(_) | Kind::Slots(_) | Kind::Lock(_) => 0,
    }
}

fn milli(points: f64) -> i64 {
    Points::from_f64(points).unwrap_or_default().0
}

fn scale(unit: Unit) -> i64 {
    if unit == Unit::Cost { 1_000 } else { 1 }
}

fn window(max: i64, every: Micros, unit: Unit) -> Value {
    let exact = unit == Unit::Calls && max <= EXACT_UP_TO;
    let grain = if exact { 1 } else { (every + TICKS - 1) / TICKS };
    // Every entry is worth a unit at least, and ticks of a window are at most two more than it is long.
    let ring = if exact { max } else { TICKS + 2 };
    json!({ "max": max, "every": every, "grain": grain, "ring": ring, "unit": i64::from(unit == Unit::Cost) })
}

fn rule(kind: &Kind) -> Value {
    match kind {
        Kind::Smooth(s) => json!({
            "rate": s.rate * scale(s.unit),
            "every": s.every.0,
            "burst": s.burst * scale(s.unit),
            "unit": i64::from(s.unit == Unit::Cost),
        }),
        Kind::Window(Window { max, every, unit }) => window(max * scale(*unit), every.0, *unit),
        Kind::Reported(r) => {
            json!({ "capacity": milli(r.capacity), "rate": milli(r.restore_per_s), "known": r.known })
        }
        Kind::Slots(s) => {
            let mut rule = json!({ "limit": s.limit, "poll": s.poll.0 });
            if !s.reserved.is_empty() {
                let kept = |priority| s.reserved.get(&priority).copied().unwrap_or(0);
                rule["reserved"] = (1..=MAX_LEVELS as u8).map(kept).collect();
            }
            if let Some(a) = &s.adaptive {
                rule["floor"] = a.floor.into();
                rule["ceiling"] = a.ceiling.into();
                rule["backoff"] = ((a.backoff * 1_000.0).round() as i64).into();
            }
            rule
        }
        Kind::Lock(l) => json!({ "limit": 1, "poll": l.poll.0, "lock": true }),
        Kind::Breaker(b) => json!({
            "failures": b.failures,
            "ratio": b.ratio.map_or(json!(false), |r| json!((r * 1_000.0).round() as i64)),
            "half": b.window.0 / 2,
            "open": b.open.0,
            "probes": b.probes,
            "ramp": b.ramp.0,
        }),
        Kind::Quota(q) => json!({
            "slots": q.slots.map_or(json!(false), |n| json!(n)),
            "hoarding": q.hoarding,
            "window": q.cost.as_ref().map_or(json!(false), |c| window(milli(c.max), c.every.0, Unit::Cost)),
        }),
    }
}
