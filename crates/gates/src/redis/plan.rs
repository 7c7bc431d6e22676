//! A gate set as the scripts want it: numbers in the gates' own units, scopes with their relations, as a table at the head of
//! each script. Read once per set by the server, instead of once per call: an argument would cost more than the decision.

use std::sync::Arc;

use tidegate_core::gates::config::{GateSet, Kind, Window};
use tidegate_core::gates::{
    Compiled, Gate, MAX_LEVELS, Micros, PARTS, Part, Points, SECOND, Unit, hash_bytes,
};

use super::scripts::{Library, Scripts};

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
    pub(super) scripts: Arc<Scripts>,
}

impl Plan {
    pub(super) fn new(compiled: Compiled, library: &Library) -> Self {
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
        let mut new = Self { compiled, scopes, gates, ttl, scripts: Arc::default() };
        new.scripts = library.of(&new.table());
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

    /// The set as a table of Lua, to stand at the head of the scripts.
    fn table(&self) -> String {
        let (set, line) = (self.set(), &self.set().line);
        let step = if line.ageing { line.max_wait.0 / i64::from(line.levels) } else { NO_AGEING };
        let gates = set.gates.iter().zip(&self.gates).map(|(gate, (scope, id))| {
            let overrides = gate.overrides.iter().map(|(key, kind)| (key.as_str(), rule(kind)));
            let overrides = if gate.overrides.is_empty() { truth(false) } else { table(overrides) };
            table([
                ("s", number(*scope as i64 + 1)),
                ("id", number(*id)),
                ("name", quoted(&gate.name)),
                ("k", quoted(kind_name(&gate.gate))),
                ("off", truth(false)),
                ("r", rule(&gate.gate)),
                ("o", overrides),
            ])
        });
        table([
            ("step", number(step)),
            ("max_wait", number(line.max_wait.0)),
            ("max", number(line.max.into())),
            ("grace", number(line.grace.0)),
            ("quantum", number(set.fair.as_ref().map_or(0, |f| f.quantum.0))),
            ("quarantine", number(set.quarantine.0)),
            ("use_by", number(set.use_by.0)),
            ("ttl", number(self.ttl)),
            ("scopes", list((0..self.scopes.len()).map(|s| self.scope(s)))),
            ("gates", list(gates)),
        ])
    }

    fn scope(&self, s: usize) -> String {
        let scope = &self.scopes[s];
        let here =
            || self.set().gates.iter().zip(&self.gates).filter(|(_, (at, _))| *at == s).map(|(g, _)| &g.gate);
        let narrower = (0..self.scopes.len()).filter(|n| *n != s && is_narrower(&self.scopes[*n], scope));
        let parts = (0..PARTS).filter(|i| scope.mask & (1 << i) != 0);
        let only = scope.only.iter().map(|endpoint| (endpoint.as_str(), truth(true)));
        table([
            ("id", quoted(&scope.id)),
            ("root", truth(scope.mask == self.compiled.split())),
            ("fair", truth(self.set().fair.is_some() && scope.mask & (1 << Part::Tenant as u8) == 0)),
            ("pool", truth(here().any(|k| matches!(k, Kind::Slots(_) | Kind::Lock(_))))),
            (
                "other",
                truth(here().any(|k| matches!(k, Kind::Reported(_) | Kind::Breaker(_) | Kind::Quota(_)))),
            ),
            ("parts", list(parts.map(|i| number(i as i64 + 1)))),
            ("narrower", list(narrower.map(|n| number(n as i64 + 1)))),
            ("only", if scope.only.is_empty() { truth(false) } else { table(only) }),
        ])
    }
}

/// The argument that goes with every call: when all state was lost (-1: never), and which gates are switched off.
pub(super) fn circumstances(set: &GateSet, off: &dyn Fn(&str) -> bool, lost: Option<Micros>) -> Vec<u8> {
    let mut text = lost.unwrap_or(-1).to_string();
    if set.gates.iter().any(|g| off(&g.name)) {
        text.push(',');
        text.extend(set.gates.iter().map(|g| if off(&g.name) { '1' } else { '0' }));
    }
    text.into_bytes()
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

fn number(n: i64) -> String {
    n.to_string()
}

fn truth(is: bool) -> String {
    is.to_string()
}

/// A text of Lua: whatever is no letter or digit is written as its number.
fn quoted(text: &str) -> String {
    let inner: String = text
        .bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("\\{b:03}") })
        .collect();
    format!("'{inner}'")
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("{{{}}}", items.collect::<Vec<_>>().join(","))
}

fn table<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> String {
    list(pairs.into_iter().map(|(key, value)| format!("[{}]={value}", quoted(key))))
}

fn window(max: i64, every: Micros, unit: Unit) -> String {
    let exact = unit == Unit::Calls && max <= EXACT_UP_TO;
    table([
        ("max", number(max)),
        ("every", number(every)),
        ("grain", number(if exact { 1 } else { (every + TICKS - 1) / TICKS })),
        ("unit", number(i64::from(unit == Unit::Cost))),
    ])
}

fn rule(kind: &Kind) -> String {
    match kind {
        Kind::Smooth(s) => table([
            ("rate", number(s.rate * scale(s.unit))),
            ("every", number(s.every.0)),
            ("burst", number(s.burst * scale(s.unit))),
            ("unit", number(i64::from(s.unit == Unit::Cost))),
        ]),
        Kind::Window(Window { max, every, unit }) => window(max * scale(*unit), every.0, *unit),
        Kind::Reported(r) => table([
            ("capacity", number(milli(r.capacity))),
            ("rate", number(milli(r.restore_per_s))),
            ("known", truth(r.known)),
        ]),
        Kind::Slots(s) => {
            let mut pairs = vec![("limit", number(s.limit.into())), ("poll", number(s.poll.0))];
            if !s.reserved.is_empty() {
                let kept = |priority| s.reserved.get(&priority).copied().unwrap_or(0);
                pairs.push(("reserved", list((1..=MAX_LEVELS as u8).map(|p| number(kept(p).into())))));
            }
            if let Some(a) = &s.adaptive {
                pairs.push(("floor", number(a.floor.into())));
                pairs.push(("ceiling", number(a.ceiling.into())));
                pairs.push(("backoff", number((a.backoff * 1_000.0).round() as i64)));
            }
            table(pairs)
        }
        Kind::Lock(l) => table([("limit", number(1)), ("poll", number(l.poll.0)), ("lock", truth(true))]),
        Kind::Breaker(b) => table([
            ("failures", number(b.failures.into())),
            ("ratio", b.ratio.map_or_else(|| truth(false), |r| number((r * 1_000.0).round() as i64))),
            ("half", number(b.window.0 / 2)),
            ("open", number(b.open.0)),
            ("probes", number(b.probes.into())),
            ("ramp", number(b.ramp.0)),
        ]),
        Kind::Quota(q) => table([
            ("slots", q.slots.map_or_else(|| truth(false), |n| number(n.into()))),
            ("hoarding", number(q.hoarding.into())),
            (
                "window",
                q.cost.as_ref().map_or_else(|| truth(false), |c| window(milli(c.max), c.every.0, Unit::Cost)),
            ),
        ]),
    }
}
