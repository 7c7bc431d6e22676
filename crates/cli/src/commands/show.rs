//! One job in full, for people.

use std::fmt::Write as _;

use tidegate_core::failure::ErrorEntry;
use tidegate_core::ids::TenantId;
use tidegate_core::job::{Dependency, Job, Waits};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_core::why::Why;

use crate::output::{Output, clean, dash, stamp};

/// Jobs that it waits for and that are shown.
pub(crate) const DEPENDENCIES: usize = 20;

/// Everything about a job: where it stands and why, what it carries, what went wrong.
pub(crate) fn job_text(
    job: &Job,
    why: &Why,
    waits: &[Dependency],
    now: Timestamp,
    output: &Output,
) -> String {
    let style = output.style;
    let mut text =
        format!("{}  {}\n{}\n\n", style.bold(&job.id.to_string()), job.state, clean(&why.sentence(now)));
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {}  {value}", style.cyan(&format!("{name:<9}")));
    };
    line("kind", job.kind.to_string());
    line("queue", job.queue.to_string());
    line("tenant", dash(job.tenant.as_ref().map(TenantId::as_str)));
    line("group", dash(Some(job.group.as_str())));
    if let Some(connector) = &job.connector {
        line("connector", connector.to_string());
    }
    line("priority", job.priority.to_string());
    line("attempt", format!("{} of {}", job.attempt, why.max_attempts));
    line("timeout", Millis(job.timeout_ms).to_string());
    line("enqueued", stamp(job.created_at, now));
    line("run at", stamp(job.run_at, now));
    if let Some(at) = job.finished_at {
        line("finished", stamp(at, now));
    }
    if let Some(unique) = &job.unique {
        line("unique", clean(unique.key.as_str()));
    }
    if job.snoozes > 0 {
        line("snoozes", job.snoozes.to_string());
    }
    if job.lone_stalls > 0 {
        line("stalls", format!("{} on its own", job.lone_stalls));
    }
    if let Some(progress) = &job.progress {
        line("progress", format!("{:.0} %  {}", progress.fraction * 100.0, clean(&progress.note)));
    }
    if let Some(run) = &job.schedule {
        line("schedule", format!("{}, planned {}", run.schedule, stamp(run.planned, now)));
    }
    if let Some(trace) = &job.trace {
        line("trace", clean(trace));
    }
    if let Some(origin) = job.recovered_from {
        line("recovers", origin.to_string());
    }
    if let Some(Waits { total, open, on_dead }) = job.waits {
        line("after", format!("{total}, {open} of them open; if one is dead: {}", on_dead.as_str()));
    }
    if let Some(letter) = &job.dead {
        line("category", letter.category.as_str().into());
        line("review", letter.review.as_str().replace('_', " "));
        if let Some(how) = letter.resolution {
            let by = letter.resolved_by.as_deref().map_or(String::new(), |by| format!(", by {}", clean(by)));
            let at = letter.resolved_at.map_or(String::new(), |at| format!(", {}", stamp(at, now)));
            line("settled", format!("{}{by}{at}", how.as_str().replace('_', " ")));
        }
        if let Some(next) = letter.recovered_as {
            line("now", next.to_string());
        }
    }
    if !waits.is_empty() {
        let one = |d: &Dependency| format!("{}  {}", d.id, d.state);
        let more = job.waits.map_or(0, |w| w.total as usize).saturating_sub(waits.len());
        let mut lines: Vec<String> = waits.iter().map(one).collect();
        lines.extend((more > 0).then(|| format!("and {more} more")));
        section(&mut text, "waits for", &lines.join("\n"), output);
    }
    section(&mut text, "payload", &indented(job.payload.as_str()), output);
    if let Some(result) = &job.result {
        section(&mut text, "result", &indented(result.as_str()), output);
    }
    if !job.errors.is_empty() {
        let errors: Vec<String> = job.errors.iter().map(|e| error_text(e, now)).collect();
        section(&mut text, "errors", &errors.join("\n"), output);
    }
    if !job.log.is_empty() {
        let log: Vec<String> =
            job.log.iter().map(|l| format!("{}  {}", clock(l.at), clean(&l.line))).collect();
        section(&mut text, "log", &log.join("\n"), output);
    }
    text
}

fn error_text(error: &ErrorEntry, now: Timestamp) -> String {
    let what = format!("{} ({}) {}", clean(&error.code), error.category.as_str(), clean(&error.message));
    format!("attempt {}, {}\n  {what}", error.attempt, stamp(error.at, now))
}

fn section(text: &mut String, title: &str, body: &str, output: &Output) {
    let _ = writeln!(text, "\n  {}", output.style.cyan(title));
    for line in body.lines() {
        let _ = writeln!(text, "    {}", line.replace(char::is_control, "·"));
    }
}

fn clock(t: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(t.0)
        .map_or_else(|_| t.to_string(), |t| t.strftime("%H:%M:%S.%3fZ").to_string())
}

/// JSON with a line per element, its text otherwise as it was sent: numbers keep all their digits, keys their order.
fn indented(json: &str) -> String {
    let (mut text, mut depth, mut in_string, mut escaped) = (String::new(), 0usize, false, false);
    let mut chars = json.chars().filter(|c| !matches!(c, '\n' | '\r' | '\t')).peekable();
    while let Some(c) = chars.next() {
        if in_string {
            text.push(c);
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        let newline = |text: &mut String, depth: usize| {
            text.push('\n');
            text.push_str(&"  ".repeat(depth));
        };
        match c {
            '"' => {
                in_string = true;
                text.push(c);
            }
            '{' | '[' => {
                while chars.peek() == Some(&' ') {
                    chars.next();
                }
                text.push(c);
                if let Some('}' | ']') = chars.peek() {
                    text.extend(chars.next());
                } else {
                    depth += 1;
                    newline(&mut text, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                newline(&mut text, depth);
                text.push(c);
            }
            ',' => {
                text.push(c);
                newline(&mut text, depth);
            }
            ':' => text.push_str(": "),
            ' ' => {}
            _ => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_indented_without_changing_their_values() {
        let sent = r#"{"b": 12345678901234567890.10, "a":["x, {y}", {}], "e":[ ]}"#;
        let shown = indented(sent);
        assert_eq!(
            shown,
            "{\n  \"b\": 12345678901234567890.10,\n  \"a\": [\n    \"x, {y}\",\n    {}\n  ],\n  \"e\": []\n}"
        );
    }
}
