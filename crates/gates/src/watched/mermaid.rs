//! Lives of permits as a sequence diagram in Mermaid, which GitHub and many editors draw.

use std::fmt::Write as _;

use tidegate_core::gates::{Holder, Micros};

use super::trace::{Event, Trace, What};

/// Text that ends no line and begins no entity.
fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '#' => safe.push_str("#35;"),
            ';' => safe.push(','),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

/// The diagram: who asks on the left, the gates on the right, in the order of what happened.
pub fn mermaid(domain: &str, traces: &[Trace]) -> String {
    let mut text = String::from("sequenceDiagram\n");
    let mut holders: Vec<Holder> = Vec::new();
    for trace in traces {
        if !holders.contains(&trace.holder) {
            holders.push(trace.holder);
        }
    }
    for (n, holder) in holders.iter().enumerate() {
        let _ = writeln!(text, "    participant J{n} as {}", plain(holder.as_str()));
    }
    let _ = writeln!(text, "    participant G as gates of {}", plain(domain));
    let from = traces.iter().map(Trace::began).min().unwrap_or(0);
    let mut events: Vec<(usize, &Trace, &Event)> = traces
        .iter()
        .flat_map(|t| {
            let n = holders.iter().position(|h| *h == t.holder).unwrap_or(0);
            t.events.iter().map(move |e| (n, t, e))
        })
        .collect();
    events.sort_by_key(|(_, _, e)| e.at);
    for (n, trace, event) in events {
        line(&mut text, n, trace, event, from);
    }
    if events_of(traces) == 0 {
        text.push_str("    Note over G: nothing was asked lately\n");
    }
    text
}

fn events_of(traces: &[Trace]) -> usize {
    traces.iter().map(|t| t.events.len()).sum()
}

fn line(text: &mut String, n: usize, trace: &Trace, event: &Event, from: Micros) {
    let at = format!("+{:.3} s", (event.at - from) as f64 / 1e6);
    let detail = plain(&event.what.detail(event.at));
    let name = event.what.name();
    let _ = match &event.what {
        What::Asked => {
            writeln!(text, "    J{n}->>G: {at} asks, costs {}, priority {}", trace.cost, trace.priority)
        }
        What::Waited { .. } => writeln!(text, "    G-->>J{n}: {at} wait, {detail}"),
        What::Admitted { .. } | What::Refused { .. } => {
            writeln!(text, "    G-->>J{n}: {at} {name}, {detail}")
        }
        What::Renewed { .. } | What::Settled { .. } => writeln!(text, "    J{n}->>G: {at} {name}, {detail}"),
        What::Cancelled => writeln!(text, "    J{n}->>G: {at} gives up its place"),
        What::Unanswered => writeln!(text, "    J{n}-xG: {at} no answer"),
        What::Expired | What::Promoted | What::ForceReleased => {
            writeln!(text, "    Note over J{n},G: {at} {name}")
        }
    };
}
