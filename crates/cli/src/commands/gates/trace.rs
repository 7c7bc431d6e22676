//! `tidegate gates trace` and `metrics`: the lives of permits, and the numbers of all of them.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tidegate::gates::watched::{Counts, Trace, TraceQuery, What, mermaid};
use tidegate::gates::{Backend, DomainReport};
use tidegate_core::gates::Micros;
use tidegate_core::time::Timestamp;
use tidegate_core::why::grouped;

use crate::error::Result;
use crate::output::{Column, Output, Table, print, short_when, wrapped};

/// Columns of the bar.
const BAR: usize = 40;
/// Columns before what an event says.
const INDENT: usize = 27;

pub(super) async fn trace(
    backend: &dyn Backend,
    domain: &str,
    query: &TraceQuery,
    as_diagram: bool,
    output: &Output,
) -> Result<()> {
    let traces = backend.traces(domain, query).await?;
    if as_diagram {
        return print(&mermaid(domain, &traces));
    }
    let now = backend.clock();
    output.answer(
        &json!({ "domain": domain, "traces": traces.iter().map(trace_json).collect::<Vec<_>>() }),
        || {
            if traces.is_empty() {
                let of = query.holder.as_ref().or(query.tenant.as_ref());
                let of = of.map_or(String::new(), |who| format!(" for {who}"));
                return format!("No permit of {domain}{of} was seen in the last hour.");
            }
            traces.iter().map(|t| timeline(t, now, output)).collect::<Vec<_>>().join("\n")
        },
    )
}

fn seconds(us: Micros) -> String {
    format!("{:.3} s", us as f64 / 1e6)
}

/// Head, bar, and one line per event with its distance from the first.
fn timeline(trace: &Trace, now: Micros, output: &Output) -> String {
    let (began, room) = (trace.began(), output.width.unwrap_or(usize::MAX));
    let when = short_when(Timestamp(began / 1_000), Timestamp(now / 1_000));
    let head = format!(
        "{} for {:?}, {when}, costs {}, priority {}",
        trace.holder, trace.target, trace.cost, trace.priority
    );
    let mut text = wrapped(&head, room.saturating_sub(2)).join("\n  ") + "\n";
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  {}  {}", bar(trace, now), lasted(trace, now));
    for (n, event) in trace.events.iter().enumerate() {
        if trace.left_out > 0 && n == trace.events.len() / 2 {
            let _ = writeln!(text, "  {:>12}  {} events left out", "…", trace.left_out);
        }
        let offset = format!("+{}", seconds(event.at - began));
        let front = format!("  {offset:>12}  {:<9}", event.what.name());
        let detail = event.what.detail(event.at);
        let lines = wrapped(&detail, room.saturating_sub(INDENT).max(20));
        for (n, line) in lines.iter().enumerate() {
            let front = if n == 0 { front.clone() } else { " ".repeat(INDENT - 2) };
            let _ = writeln!(text, "{}", format!("{front}  {line}").trim_end());
        }
        if lines.is_empty() {
            let _ = writeln!(text, "{}", front.trim_end());
        }
    }
    text
}

/// When it ended; now if it has not.
fn end(trace: &Trace, now: Micros) -> Micros {
    if trace.is_over() { trace.last() } else { now.max(trace.last()) }
}

/// Its life in one line: dots while it waited, blocks while it was held.
fn bar(trace: &Trace, now: Micros) -> String {
    let (began, end) = (trace.began(), end(trace, now));
    let whole = (end - began).max(1);
    let waited = trace.admitted().map_or(whole, |at| at - began);
    let dots = (waited as f64 / whole as f64 * BAR as f64) as usize;
    // Something that happened is seen, however short it was.
    let dots = if waited > 0 { dots.max(1) } else { 0 };
    let dots = if trace.admitted().is_some() { dots.min(BAR - 1) } else { BAR };
    format!("{}{}", "·".repeat(dots), "█".repeat(BAR - dots))
}

fn lasted(trace: &Trace, now: Micros) -> String {
    let end = end(trace, now);
    let last = trace.events.last().map(|e| &e.what);
    let state = match last {
        Some(What::Expired) => ", expired",
        _ if trace.is_over() => "",
        _ if trace.admitted().is_some() => ", held",
        _ => ", waits",
    };
    match trace.admitted() {
        Some(at) if at - trace.began() > 0 => {
            format!("waited {}, held {}{}", seconds(at - trace.began()), seconds(end - at), over(state))
        }
        Some(at) => format!("held {}{}", seconds(end - at), over(state)),
        None => format!("waited {}{}", seconds(end - trace.began()), over(state)),
    }
}

/// What is still so needs no further word but this.
fn over(state: &str) -> &str {
    match state {
        ", held" | ", waits" => " so far",
        other => other,
    }
}

fn trace_json(trace: &Trace) -> Value {
    let stamp = |at: Micros| Timestamp(at / 1_000).to_string();
    let events: Vec<Value> = trace
        .events
        .iter()
        .map(|e| {
            json!({
                "at": stamp(e.at),
                "offset_us": e.at - trace.began(),
                "event": e.what.name(),
                "detail": e.what.detail(e.at),
            })
        })
        .collect();
    json!({
        "holder": trace.holder, "target": trace.target, "cost": trace.cost, "priority": trace.priority,
        "over": trace.is_over(), "left_out": trace.left_out, "events": events,
    })
}

pub(super) async fn metrics(backend: &dyn Backend, domain: Option<&str>, output: &Output) -> Result<()> {
    let report = backend.report().await?;
    let shown: Vec<&DomainReport> =
        report.domains.iter().filter(|d| domain.is_none_or(|name| d.metrics.domain == name)).collect();
    if let (Some(domain), []) = (domain, shown.as_slice()) {
        super::known(backend, domain).await?;
    }
    let value = json!({
        "processes": report.processes,
        "backend": { "size_bytes": report.footprint.bytes, "keys": report.footprint.keys },
        "domains": shown.iter().map(|d| metrics_json(d)).collect::<Vec<_>>(),
    });
    output.answer(&value, || metrics_table(&shown, output))
}

fn metrics_json(domain: &DomainReport) -> Value {
    let m = &domain.metrics;
    let quantile = |share| m.recent.decisions.quantile(share).map(|us| us / 1_000.0);
    let tenants: Vec<Value> =
        m.tenants.iter().map(|t| json!({ "tenant": t.tenant, "held": t.held, "counts": t.counts })).collect();
    json!({
        "domain": m.domain, "held": m.held, "counts": m.total, "recent": m.recent.counts,
        "decision_ms": { "p50": quantile(0.5), "p95": quantile(0.95), "p99": quantile(0.99) },
        "wait_ms": {
            "p50": m.recent.waits.quantile(0.5).map(|us| us / 1_000.0),
            "p95": m.recent.waits.quantile(0.95).map(|us| us / 1_000.0),
            "longest": m.recent.waits.longest() / 1_000,
        },
        "failures_in_a_row": m.in_row, "live": domain.live, "tenants": tenants, "other_tenants": m.others,
    })
}

fn metrics_table(domains: &[&DomainReport], output: &Output) -> String {
    if domains.is_empty() {
        return "Nothing was asked of gates in the last hour.".into();
    }
    let mut table = Table::new(vec![
        Column::text("DOMAIN, TENANT", 14),
        Column::number("RESERVED"),
        Column::number("RELEASED"),
        Column::number("EXPIRED"),
        Column::number("QUARANTINED").optional(3),
        Column::number("WAITS"),
        Column::number("PROMOTED").optional(2),
        Column::number("HELD"),
        Column::fixed("SLOTS").optional(1),
        Column::fixed("BREAKERS").optional(1),
    ]);
    let row = |name: String, c: &Counts, held: u64, slots: String, breakers: String| {
        vec![
            name,
            grouped(c.reserved),
            grouped(c.released),
            grouped(c.expired),
            grouped(c.quarantined),
            grouped(c.waits),
            grouped(c.promoted),
            grouped(held),
            slots,
            breakers,
        ]
    };
    for domain in domains {
        let m = &domain.metrics;
        let slots = domain.live.filter(|l| l.slots > 0).map(|l| format!("{}/{}", l.slots_used, l.slots));
        let breakers = domain.live.map(|l| match l.breakers_open {
            0 => "closed".to_owned(),
            n => format!("{n} open"),
        });
        let dash = || "–".to_owned();
        table.row(row(
            m.domain.clone(),
            &m.total,
            m.held,
            slots.unwrap_or_else(dash),
            breakers.unwrap_or_else(dash),
        ));
        for tenant in &m.tenants {
            table.row(row(
                format!("· {}", tenant.tenant),
                &tenant.counts,
                tenant.held.into(),
                dash(),
                dash(),
            ));
        }
        if m.others.reserved + m.others.waits > 0 {
            table.row(row("· others".into(), &m.others, 0, dash(), dash()));
        }
    }
    table.render(output)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate::gates::watched::{DomainMetrics, Event, TenantSeen};
    use tidegate::gates::{Holder, Live, Part, Points};
    use tidegate_core::gates::{Because, End, LeaseEnd, SECOND, Target};

    use super::*;
    use crate::output::Style;

    const T: Micros = 1_763_000_000 * SECOND;

    fn at(width: usize) -> Output {
        let plain = Style::plain();
        Output { json: false, width: Some(width), style: plain, err_style: plain, err_width: None }
    }

    fn trace(events: Vec<(Micros, What)>) -> Trace {
        let target = Target::new("netsuite").unwrap().with(Part::Tenant, "acme").unwrap();
        Trace {
            holder: Holder::new("job_01JD0000000000000000000000#2").unwrap(),
            target: Arc::new(target.with(Part::Account, "tstdrv").unwrap()),
            cost: Points::whole(52),
            priority: 2,
            events: events.into_iter().map(|(at, what)| Event { at: T + at, what }).collect(),
            left_out: 0,
            expires_at: None,
        }
    }

    fn waited(at: Micros) -> What {
        let because = Because::Slots { used: 12, limit: 12 };
        What::Waited { gate: "slots".into(), because, retry_at: T + at + SECOND, position: Some(3) }
    }

    #[test]
    fn timelines_fit_80_and_120_columns() {
        let settled = What::Settled {
            end: End::Throttled { retry_after: Some(2 * SECOND) },
            state: LeaseEnd::Released,
        };
        let lives = [
            trace(vec![
                (0, What::Asked),
                (0, waited(0)),
                (240_000, What::Admitted { fence: 7, expires_at: T + 30_240_000 }),
                (10_000_000, What::Renewed { expires_at: T + 40_000_000 }),
                (12_500_000, settled),
            ]),
            Trace { left_out: 17, ..trace(vec![(0, What::Asked), (0, waited(0)), (SECOND, waited(SECOND))]) },
            trace(vec![
                (0, What::Asked),
                (0, What::Admitted { fence: 8, expires_at: T + 30 * SECOND }),
                (30 * SECOND, What::Expired),
            ]),
        ];
        for width in [80, 120] {
            let text: Vec<String> = lives.iter().map(|t| timeline(t, T + 60 * SECOND, &at(width))).collect();
            let text = text.join("\n");
            assert!(text.lines().all(|l| l.chars().count() <= width), "{text}");
            insta::assert_snapshot!(format!("trace_{width}"), text);
        }
    }

    #[test]
    fn numbers_fit_80_and_120_columns() {
        let counts = Counts {
            reserved: 12_040,
            released: 11_900,
            expired: 12,
            waits: 1_204,
            promoted: 1,
            ..Counts::default()
        };
        let domain = DomainReport {
            metrics: DomainMetrics {
                domain: "netsuite".into(),
                total: counts,
                held: 128,
                tenants: vec![TenantSeen { tenant: "acme".into(), counts, held: 100 }],
                others: Counts { reserved: 3, released: 3, ..Counts::default() },
                ..DomainMetrics::default()
            },
            live: Some(Live { slots_used: 128, slots: 130, breakers_open: 1, ..Live::default() }),
        };
        for width in [80, 120] {
            let text = metrics_table(&[&domain], &at(width));
            assert!(text.lines().all(|l| l.chars().count() <= width), "{text}");
            insta::assert_snapshot!(format!("metrics_{width}"), text);
        }
    }

    #[test]
    fn a_bar_shows_what_happened_however_short_it_was() {
        let held = |waited, end| {
            let admitted = What::Admitted { fence: 1, expires_at: T };
            bar(&trace(vec![(0, What::Asked), (waited, admitted), (end, What::Expired)]), T)
        };
        assert_eq!(held(1, 1_000_000).matches('·').count(), 1);
        assert_eq!(held(999_999, 1_000_000).matches('█').count(), 1);
        assert_eq!(held(0, 0).matches('█').count(), BAR);
        assert_eq!(bar(&trace(vec![(0, What::Asked)]), T + 5).matches('·').count(), BAR);
    }
}
