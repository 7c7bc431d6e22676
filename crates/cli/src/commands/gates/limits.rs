//! What gates are set to, in words.

use tidegate::gates::GateSet;
use tidegate_core::gates::Points;
use tidegate_core::gates::config::{Breaker, Degraded, Gate, Kind, Part, Quota, Slots, Unit};
use tidegate_core::why::grouped;

use crate::output::{Column, Table};

/// Every gate of a domain, whether anything was asked of it or not.
pub(super) fn table(set: &GateSet) -> Table {
    let mut table = Table::new(vec![
        Column::text("GATE", 8),
        Column::text("FOR EACH", 8),
        Column::text("LETS PASS", 24),
        Column::text("WITHOUT BACKEND", 6).optional(1),
    ]);
    for gate in &set.gates {
        table.row(vec![gate.name.clone(), key_of(gate), limit(gate), alone(gate).into()]);
    }
    table
}

fn key_of(gate: &Gate) -> String {
    let parts = gate.per.iter().map(|part| match part {
        Part::Connector => "connector",
        Part::Tenant => "tenant",
        Part::Account => "account",
        Part::Endpoint => "endpoint",
        Part::Subject => "subject",
    });
    let parts: Vec<&str> = parts.collect();
    if parts.is_empty() { "(all)".into() } else { parts.join(", ") }
}

fn limit(gate: &Gate) -> String {
    let mut text = match &gate.gate {
        Kind::Smooth(s) => {
            let rate = format!("{}{} per {}", number(s.rate), unit(s.unit), s.every);
            format!("{rate}, {}{} at once", number(s.burst), unit(s.unit))
        }
        Kind::Window(w) => format!("{}{} per {}", number(w.max), unit(w.unit), w.every),
        Kind::Reported(r) => {
            format!("{} points, {}/s, or as reported", points(r.capacity), points(r.restore_per_s))
        }
        Kind::Slots(s) => slots(s),
        Kind::Lock(_) => "1 at a time".into(),
        Kind::Breaker(b) => breaker(b),
        Kind::Quota(q) => quota(q),
    };
    if !gate.only.is_empty() {
        text = format!("{text}; only {}", gate.only.join(", "));
    }
    match gate.overrides.len() {
        0 => text,
        1 => format!("{text}; 1 key has its own"),
        n => format!("{text}; {n} keys have their own"),
    }
}

fn number(n: i64) -> String {
    grouped(n.max(0).cast_unsigned())
}

/// What the gates of a set count for a key, if that is not told by what they have.
pub(super) fn unit_of(set: &GateSet, gate: &str, key: &str) -> Unit {
    let gate = set.gates.iter().find(|g| g.name == gate);
    match gate.map(|g| g.overrides.get(key).unwrap_or(&g.gate)) {
        Some(Kind::Smooth(s)) => s.unit,
        Some(Kind::Window(w)) => w.unit,
        _ => Unit::Calls,
    }
}

/// So many of a unit, as gates count: costs in thousandths of a point.
pub(super) fn counted(n: i64, unit: Unit) -> String {
    match unit {
        Unit::Calls => number(n),
        Unit::Cost => points(Points(n.max(0)).as_f64()),
    }
}

/// Whole points are grouped.
fn points(n: f64) -> String {
    if n.fract() == 0.0 { number(n as i64) } else { n.to_string() }
}

pub(super) fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Calls => "",
        Unit::Cost => " points",
    }
}

fn slots(slots: &Slots) -> String {
    let limit = grouped(slots.limit.into());
    match &slots.adaptive {
        None => format!("{limit} at a time"),
        Some(a) => format!("{limit} at a time, {} to {} as it learns", a.floor, a.ceiling),
    }
}

fn breaker(b: &Breaker) -> String {
    let trips = match b.ratio {
        None => format!("{} failures in {}", b.failures, b.window),
        Some(ratio) => format!("{} % failures of {} in {}", percent(ratio), b.failures, b.window),
    };
    format!("all; after {trips} none for {}", b.open)
}

/// Every digit that was set, and none that comes from calculating: 0.07 × 100 is 7.000000000000001.
fn percent(ratio: f64) -> f64 {
    (ratio * 1e11).round() / 1e9
}

fn quota(q: &Quota) -> String {
    let live = q.slots.map(|n| format!("{} at a time", grouped(n.into())));
    let cost = q.cost.as_ref().map(|c| format!("{} points per {}", points(c.max), c.every));
    live.into_iter().chain(cost).collect::<Vec<_>>().join(", ")
}

/// What a process lets pass by itself while the backend is out of reach.
fn alone(gate: &Gate) -> &'static str {
    match (gate.degraded, &gate.gate) {
        (Degraded::Open, _) => "all",
        (Degraded::Closed, _) | (Degraded::Local, Kind::Lock(_)) => "none",
        (Degraded::Local, Kind::Slots(s)) if s.limit == 1 => "none",
        // With more processes than slots it is none, and how many there are is not known here.
        (Degraded::Local, Kind::Slots(_)) => "its share, or none",
        (Degraded::Local, Kind::Breaker(_)) => "by its own count",
        (Degraded::Local, _) => "its share",
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::gates::Span;
    use tidegate_core::gates::config::{Lock, Smooth, Window};

    use super::*;

    #[test]
    fn ratios_are_told_as_they_were_set() {
        for (ratio, text) in [(0.5, "50"), (1.0, "100"), (0.004, "0.4"), (0.07, "7"), (0.125, "12.5")] {
            let b = Breaker { ratio: Some(ratio), ..Breaker::default() };
            assert!(breaker(&b).contains(&format!("after {text} % failures")), "{}", breaker(&b));
        }
    }

    #[test]
    fn costs_are_told_in_points() {
        let smooth = Smooth { rate: 10, every: Span::secs(60), burst: 50, unit: Unit::Cost };
        let mut gate = Gate::new("cost", Kind::Smooth(smooth));
        assert_eq!(limit(&gate), "10 points per 1 m, 50 points at once");
        let calls = Window { max: 9, every: Span::secs(1), unit: Unit::Calls };
        gate.overrides.insert("small".into(), Kind::Window(calls));
        let set = GateSet::of(vec![gate]);
        let told = |key: &str| counted(1_250_500, unit_of(&set, "cost", key));
        assert_eq!((told("acme"), told("small")), ("1250.5".into(), "1,250,500".into()));
        assert_eq!(counted(1_000_000, Unit::Cost), "1,000");
    }

    #[test]
    fn what_nobody_has_without_the_backend_is_not_called_a_share() {
        let told = |kind| alone(&Gate::new("it", kind));
        assert_eq!((told(Kind::Lock(Lock::default())), told(Kind::Slots(Slots::of(1)))), ("none", "none"));
        assert_eq!(told(Kind::Slots(Slots::of(2))), "its share, or none");
        assert_eq!(told(Kind::Breaker(Breaker::default())), "by its own count");
        assert_eq!(told(Kind::Quota(Quota::slots(3))), "its share");
        let open = Gate { degraded: Degraded::Open, ..Gate::new("it", Kind::Lock(Lock::default())) };
        assert_eq!(alone(&open), "all");
    }
}
