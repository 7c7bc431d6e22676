//! What gates hold, who waits, how much there is.

use serde_json::{Value, json};
use tidegate::gates::{
    Backend, Change, DomainUsage, GateSet, GateView, HolderView, Note, Order, ScopeView, Switch, WaiterView,
};
use tidegate_core::gates::config::Unit;
use tidegate_core::gates::{BreakerState, Micros};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_core::why::grouped;

use super::limits;
use crate::error::Result;
use crate::output::{Column, Output, Table, elapsed, short_when};

/// A time of the gates' clock, in the milliseconds that people's times are in.
fn stamp(at: Micros) -> Timestamp {
    Timestamp(at / 1_000)
}

fn text(at: Micros) -> Value {
    stamp(at).to_string().into()
}

pub(super) async fn ls(backend: &dyn Backend, output: &Output) -> Result<()> {
    let rows = troubles(backend).await?;
    let value: Vec<Value> = rows.iter().map(|(usage, trouble)| with_trouble(usage, trouble)).collect();
    output.answer(&json!({ "domains": value }), || {
        if rows.is_empty() {
            return "No gates are set; docs/guides/gates.md shows how.".into();
        }
        let mut table = Table::new(vec![
            Column::text("DOMAIN", 12),
            Column::number("HELD"),
            Column::number("WAITING"),
            Column::number("QUARANTINED").optional(1),
            Column::number("KEYS"),
            Column::text("STATE", 40),
        ]);
        for (usage, trouble) in &rows {
            let total = &usage.total;
            table.row(vec![
                usage.domain.clone(),
                grouped(total.leases.into()),
                grouped(total.places.into()),
                grouped(total.quarantined.into()),
                grouped(total.keys.into()),
                trouble.sentence().unwrap_or_else(|| "ok".into()),
            ]);
        }
        table.render(output)
    })
}

/// What of a domain is not as on a usual day.
pub(crate) struct Trouble {
    off: Vec<Switch>,
    /// Breakers that are open by order.
    orders: Vec<Order>,
    /// Those of other breakers that are not closed: gate, key, and what they do.
    tripped: Vec<(String, String, BreakerState)>,
    now: Timestamp,
}

impl Trouble {
    /// All of it; none if all is as usual.
    pub(crate) fn sentence(&self) -> Option<String> {
        let mut parts: Vec<String> = self.orders.iter().map(|order| ordered(order, self.now)).collect();
        if let [(gate, key, state), more @ ..] = &self.tripped[..] {
            let of = if key.is_empty() { String::new() } else { format!(" for {key}") };
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            parts.push(format!("{gate} {}{of}{more}", state_of(*state)));
        }
        parts.extend(switched_off(&self.off));
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Who switched off what, and why; what was switched off together is said together.
fn switched_off(off: &[Switch]) -> Vec<String> {
    let mut said: Vec<(&Note, Vec<&str>)> = vec![];
    for switch in off {
        match said.iter_mut().find(|(note, _)| **note == switch.note) {
            Some((_, gates)) => gates.push(&switch.gate),
            None => said.push((&switch.note, vec![&switch.gate])),
        }
    }
    said.iter()
        .map(|(note, gates)| format!("{} off by {}: {}", gates.join(", "), note.who, note.why))
        .collect()
}

/// Every domain, and what is wrong with it.
pub(crate) async fn troubles(backend: &dyn Backend) -> Result<Vec<(DomainUsage, Trouble)>> {
    let mut rows = vec![];
    for usage in backend.usage().await? {
        let off = backend.switches(&usage.domain).await?;
        let orders = backend.orders(&usage.domain).await?;
        let by_order = |gate: &str| orders.iter().any(|order| order.gate == *gate);
        let scopes = backend.inspect(None, &usage.domain, super::KEYS_LOOKED_AT).await?;
        let gates = scopes.iter().flat_map(|scope| scope.gates.iter().map(move |gate| (&scope.key, gate)));
        let tripped = gates.filter_map(|(key, (gate, view))| match view {
            GateView::Breaker { state: BreakerState::Closed } => None,
            GateView::Breaker { state } if !by_order(gate) => Some((gate.to_string(), key.clone(), *state)),
            _ => None,
        });
        let (tripped, now) = (tripped.collect(), stamp(backend.clock()));
        let trouble = Trouble { off, orders, tripped, now };
        rows.push((usage, trouble));
    }
    Ok(rows)
}

/// An order, in a sentence.
fn ordered(order: &Order, now: Timestamp) -> String {
    let Order { gate, until, note, .. } = order;
    let left = Millis((stamp(*until).since(now)).max(0));
    format!("{gate} open for all, {left} left, by {}: {}", note.who, note.why)
}

fn with_trouble(usage: &DomainUsage, trouble: &Trouble) -> Value {
    let mut value = usage_json(usage);
    value["off"] = trouble.off.iter().map(switch_json).collect();
    value["orders"] = trouble.orders.iter().map(order_json).collect();
    let tripped = trouble.tripped.iter();
    value["tripped"] =
        tripped.map(|(gate, key, state)| json!({ "gate": gate, "key": key, "state": state })).collect();
    value
}

pub(super) fn usage_json(usage: &DomainUsage) -> Value {
    json!({
        "domain": usage.domain,
        "held": usage.total.leases,
        "waiting": usage.total.places,
        "quarantined": usage.total.quarantined,
        "keys": usage.total.keys,
        "partitions": usage.partitions,
        "size_bytes": usage.bytes,
    })
}

pub(super) fn switch_json(switch: &Switch) -> Value {
    json!({ "gate": switch.gate, "since": text(switch.at), "by": switch.note.who, "reason": switch.note.why })
}

fn order_json(order: &Order) -> Value {
    let Order { gate, until, at, note } = order;
    json!({ "gate": gate, "until": text(*until), "since": text(*at), "by": note.who, "reason": note.why })
}

pub(super) async fn usage(backend: &dyn Backend, output: &Output) -> Result<()> {
    let domains = backend.usage().await?;
    let value: Vec<Value> = domains.iter().map(usage_json).collect();
    output.answer(&json!({ "domains": value }), || {
        let mut table = Table::new(vec![
            Column::text("DOMAIN", 12),
            Column::number("PARTITIONS"),
            Column::number("KEYS"),
            Column::number("PERMITS"),
            Column::number("PLACES"),
            Column::number("MEMORY"),
        ]);
        for usage in &domains {
            table.row(vec![
                usage.domain.clone(),
                grouped(usage.partitions.into()),
                grouped(usage.total.keys.into()),
                grouped(usage.total.leases.into()),
                grouped(usage.total.places.into()),
                format!("{} kB", grouped(usage.bytes.div_ceil(1_000))),
            ]);
        }
        table.render(output)
    })
}

pub(super) async fn show(backend: &dyn Backend, domain: &str, most: usize, output: &Output) -> Result<()> {
    let set = backend.gates_of(domain).await?;
    let scopes = backend.inspect(None, domain, most).await?;
    let holders = backend.holders(domain, most).await?;
    let waiters = backend.waiters(domain, most).await?;
    let off = backend.switches(domain).await?;
    let orders = backend.orders(domain).await?;
    let changes = backend.changes(domain).await?;
    let now = stamp(backend.clock());
    let value = json!({
        "domain": domain,
        "settings": set,
        "keys": scopes.iter().map(scope_json).collect::<Vec<_>>(),
        "holders": holders.iter().map(holder_json).collect::<Vec<_>>(),
        "waiters": waiters.iter().map(waiter_json).collect::<Vec<_>>(),
        "off": off.iter().map(switch_json).collect::<Vec<_>>(),
        "orders": orders.iter().map(order_json).collect::<Vec<_>>(),
        "changes": changes.iter().map(change_json).collect::<Vec<_>>(),
    });
    output.answer(&value, || {
        let mut text: Vec<String> = set.iter().map(|set| limits::table(set).render(output)).collect();
        text.push(keys_table(set.as_ref(), &scopes, &off, output));
        let said = orders.iter().map(|order| ordered(order, now)).chain(switched_off(&off));
        text.extend(said.map(|said| output.style.yellow(&format!("{said}\n"))));
        if !holders.is_empty() {
            text.push(holders_table(&holders, now).render(output));
        }
        if !waiters.is_empty() {
            text.push(waiters_table(&waiters, now).render(output));
        }
        if let Some(last) = changes.last() {
            let Change { at, what, note } = last;
            let when = short_when(stamp(*at), now);
            let line = format!("Last change: {what} by {}, {when}: {}", note.who, note.why);
            text.push(output.style.dim(&line));
        }
        text.join("\n")
    })
}

fn keys_table(set: Option<&GateSet>, scopes: &[ScopeView], off: &[Switch], output: &Output) -> String {
    if scopes.is_empty() {
        return "Nothing was asked lately: no key has state.\n".into();
    }
    let mut table = Table::new(vec![
        Column::text("KEY", 12),
        Column::text("GATE", 8),
        Column::text("NOW", 24),
        Column::number("LIVE"),
        Column::number("WAITING"),
    ]);
    for scope in scopes {
        for (name, view) in &scope.gates {
            let is_off = off.iter().any(|s| s.gate == **name);
            let unit = set.map_or(Unit::Calls, |set| limits::unit_of(set, name, &scope.key));
            table.row(vec![
                if scope.key.is_empty() { super::ALL_KEYS.into() } else { scope.key.clone() },
                name.to_string(),
                if is_off { "off".into() } else { sentence(view, unit) },
                grouped(scope.live.into()),
                grouped(scope.waiting.into()),
            ]);
        }
    }
    table.render(output)
}

fn sentence(view: &GateView, unit: Unit) -> String {
    let (counted, units) = (|n| limits::counted(n, unit), limits::unit(unit));
    match view {
        GateView::Smooth { free } => format!("{}{units} would pass", counted(*free)),
        GateView::Window { used, max } => format!("{} of {}{units} used", counted(*used), counted(*max)),
        GateView::Reported { level, capacity, in_flight, foreign } => {
            let others = if foreign.0 > 0 { format!(", {foreign} used by others") } else { String::new() };
            format!("{level} of {capacity} left, {in_flight} in flight{others}")
        }
        GateView::Slots { used, limit } => format!("{used} of {limit} taken"),
        GateView::Breaker { state } => state_of(*state).into(),
        GateView::Quota { live, cost, violations, hoards } => {
            let hoards = if *hoards > 0 { format!(", hoarding {hoards} times") } else { String::new() };
            format!("{live} live, {cost} spent, {violations} had to wait{hoards}")
        }
    }
}

fn state_of(breaker: BreakerState) -> &'static str {
    match breaker {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::HalfOpen => "half open",
        BreakerState::Ramp => "closed, load comes back",
        BreakerState::OpenForProcess => "open for one process",
    }
}

pub(super) fn holders_table(holders: &[HolderView], now: Timestamp) -> Table {
    let mut table = Table::new(vec![
        Column::fixed("HOLDER"),
        Column::text("FOR", 10),
        Column::number("COST").optional(1),
        Column::fixed("SINCE"),
        Column::fixed("LASTS"),
    ]);
    for h in holders {
        let ends = stamp(h.expires_at);
        let lasts = if ends > now { short_when(ends, now) } else { "over: free".into() };
        table.row(vec![
            h.holder.to_string(),
            format!("{:?}", h.target),
            h.cost.to_string(),
            elapsed(stamp(h.admitted_at), now),
            if h.quarantined { format!("{lasts}, quarantined") } else { lasts },
        ]);
    }
    table
}

fn waiters_table(waiters: &[WaiterView], now: Timestamp) -> Table {
    let mut table = Table::new(vec![
        Column::fixed("WAITER"),
        Column::text("GATE", 8),
        Column::number("NEEDS").optional(1),
        Column::fixed("WAITED"),
        Column::fixed("ASKS AGAIN"),
        Column::number("AHEAD"),
    ]);
    for w in waiters {
        table.row(vec![
            w.holder.to_string(),
            w.gate.to_string(),
            w.cost.to_string(),
            elapsed(stamp(w.arrived), now),
            short_when(stamp(w.retry_at), now),
            grouped(w.ahead.into()),
        ]);
    }
    table
}

fn scope_json(scope: &ScopeView) -> Value {
    let gates: serde_json::Map<String, Value> =
        scope.gates.iter().map(|(name, view)| (name.to_string(), json!(view))).collect();
    json!({ "key": scope.key, "live": scope.live, "waiting": scope.waiting, "gates": gates })
}

pub(super) fn holder_json(h: &HolderView) -> Value {
    json!({
        "holder": h.holder, "target": h.target, "cost": h.cost, "since": text(h.admitted_at),
        "expires_at": text(h.expires_at), "quarantined": h.quarantined,
    })
}

fn waiter_json(w: &WaiterView) -> Value {
    json!({
        "holder": w.holder, "target": w.target, "gate": w.gate, "cost": w.cost, "priority": w.priority,
        "since": text(w.arrived), "retry_at": text(w.retry_at), "ahead": w.ahead,
    })
}

fn change_json(change: &Change) -> Value {
    json!({ "at": text(change.at), "what": change.what, "by": change.note.who, "reason": change.note.why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_costs_is_told_in_points() {
        let (window, smooth) =
            (GateView::Window { used: 250_000, max: 1_000_000 }, GateView::Smooth { free: 50_500 });
        assert_eq!(sentence(&window, Unit::Cost), "250 of 1,000 points used");
        assert_eq!(sentence(&smooth, Unit::Cost), "50.5 points would pass");
        assert_eq!(sentence(&window, Unit::Calls), "250,000 of 1,000,000 used");
    }
}
