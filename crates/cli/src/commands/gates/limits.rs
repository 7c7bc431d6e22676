//! What gates are set to, in words.

use tidegate::gates::GateSet;
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
        table.row(vec![gate.name.clone(), key_of(gate), limit(gate), degraded(gate.degraded).into()]);
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
            format!("{rate}, {} at once", number(s.burst))
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

/// Whole points are grouped.
fn points(n: f64) -> String {
    if n.fract() == 0.0 { number(n as i64) } else { n.to_string() }
}

fn unit(unit: Unit) -> &'static str {
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

fn degraded(degraded: Degraded) -> &'static str {
    match degraded {
        Degraded::Local => "its share",
        Degraded::Open => "all",
        Degraded::Closed => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_told_as_they_were_set() {
        for (ratio, text) in [(0.5, "50"), (1.0, "100"), (0.004, "0.4"), (0.07, "7"), (0.125, "12.5")] {
            let b = Breaker { ratio: Some(ratio), ..Breaker::default() };
            assert!(breaker(&b).contains(&format!("after {text} % failures")), "{}", breaker(&b));
        }
    }
}
