//! Numbers, times and foreign text for people; times for programs.

use jiff::tz::{Offset, TimeZone};
use serde_json::Value;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_core::why::grouped;

const HOUR_MS: i64 = 3_600_000;

/// A time in a table: relative up to an hour, then the clock, then the date, in UTC.
pub(crate) fn short_when(t: Timestamp, now: Timestamp) -> String {
    short_when_in(t, now, &TimeZone::UTC)
}

/// The same by the clock of a zone, with what it is ahead of UTC: `Nov 17 00:30 -03`.
pub(crate) fn short_when_in(t: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let ms = t.since(now);
    match ms {
        -999..=999 => "now".into(),
        1_000..HOUR_MS => format!("in {}", coarse(ms)),
        _ if -HOUR_MS < ms && ms < 0 => format!("{} ago", coarse(-ms)),
        _ => {
            // The year only where it is not the obvious one.
            let near = ms.abs() < 180 * 24 * HOUR_MS;
            let format = if near { "%b %d %H:%M" } else { "%Y-%m-%d" };
            let local = jiff::Timestamp::from_millisecond(t.0).map(|t| t.to_zoned(zone.clone()));
            local.map_or_else(
                |_| t.to_string(),
                |local| {
                    format!(
                        "{}{}",
                        local.strftime(format),
                        if near { ahead(local.offset()) } else { String::new() }
                    )
                },
            )
        }
    }
}

/// What a clock is ahead of UTC, as short as it can be said.
fn ahead(offset: Offset) -> String {
    let minutes = offset.seconds() / 60;
    let sign = if minutes < 0 { '-' } else { '+' };
    match (minutes.abs() / 60, minutes.abs() % 60) {
        (0, 0) => "Z".into(),
        (hours, 0) => format!(" {sign}{hours:02}"),
        (hours, rest) => format!(" {sign}{hours:02}:{rest:02}"),
    }
}

/// How long something has lasted.
pub(crate) fn elapsed(since: Timestamp, now: Timestamp) -> String {
    coarse(now.since(since).max(0))
}

/// A span with one unit, rounded, for narrow columns.
fn coarse(ms: i64) -> String {
    match ms {
        60_000..HOUR_MS => format!("{} m", (ms + 30_000) / 60_000),
        HOUR_MS..86_400_000 => format!("{} h", (ms + HOUR_MS / 2) / HOUR_MS),
        86_400_000.. => format!("{} d", (ms + 12 * HOUR_MS) / 86_400_000),
        _ => Millis(ms).to_string(),
    }
}

/// A time in full, for `show`.
pub(crate) fn stamp(t: Timestamp, now: Timestamp) -> String {
    let full = jiff::Timestamp::from_millisecond(t.0)
        .map_or_else(|_| t.to_string(), |t| t.strftime("%Y-%m-%d %H:%M:%S.%3f UTC").to_string());
    if now.since(t).abs() < HOUR_MS { format!("{full} ({})", short_when(t, now)) } else { full }
}

/// A count with its noun: `1 job`, `1,204 jobs`.
pub(crate) fn plural(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{} {noun}s", grouped(n)) }
}

/// What stands where there is nothing.
pub(crate) const NOTHING: &str = "–";

/// The text, or a dash where there is none.
pub(crate) fn dash(text: Option<&str>) -> String {
    text.filter(|t| !t.is_empty()).map_or_else(|| NOTHING.to_owned(), clean)
}

/// Foreign text in one line, without anything that could steer a terminal.
pub(crate) fn clean(text: &str) -> String {
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    flat.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Fields that hold an instant. Programs get them as RFC 3339 text, which carries its unit.
const INSTANTS: [&str; 24] = [
    "asked_at",
    "at",
    "created_at",
    "created_before",
    "created_from",
    "expected_start",
    "finished_at",
    "first_at",
    "first_died_at",
    "free_at",
    "last_at",
    "lease_until",
    "next_wakeup",
    "oldest_ready",
    "planned",
    "ready_at",
    "resolved_at",
    "retry_at",
    "run_at",
    "seen_at",
    "since",
    "until",
    "started_at",
    "told_at",
];

/// Replaces instants in milliseconds by RFC 3339 text, at every depth.
pub(crate) fn times_as_text(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value.as_i64() {
                    Some(ms) if INSTANTS.contains(&key.as_str()) => *value = Timestamp(ms).to_string().into(),
                    _ => times_as_text(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(times_as_text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_763_000_000_000);

    #[test]
    fn times_in_tables_stay_short() {
        for (ms, text) in [
            (500, "now"),
            (12_000, "in 12 s"),
            (-240_000, "4 m ago"),
            (-7_200_000, "Nov 13 00:13Z"),
            (400 * 24 * HOUR_MS, "2026-12-18"),
        ] {
            assert_eq!(short_when(NOW.plus_ms(ms), NOW), text);
        }
    }

    #[test]
    fn times_of_a_zone_say_so() {
        let in_zone = |name: &str, ms| {
            let zone: tidegate_core::schedule::Zone = name.parse().unwrap();
            short_when_in(NOW.plus_ms(ms), NOW, zone.time_zone())
        };
        assert_eq!(in_zone("America/Sao_Paulo", 7_200_000), "Nov 13 01:13 -03");
        assert_eq!(in_zone("Asia/Kolkata", 7_200_000), "Nov 13 09:43 +05:30");
        assert_eq!(in_zone("UTC", 7_200_000), "Nov 13 04:13Z");
        assert_eq!(in_zone("Asia/Kolkata", 240_000), "in 4 m", "the same everywhere");
    }

    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        assert_eq!(clean("a\u{1b}[31mb\r\n\tc"), "a [31mb c");
    }

    #[test]
    fn programs_get_instants_as_text_and_spans_with_their_unit() {
        let mut value =
            serde_json::json!({"at": 0, "timeout_ms": 5, "list": [{"until": null, "since": 1000}]});
        times_as_text(&mut value);
        let text = value.to_string();
        assert!(
            text.contains("\"at\":\"1970-01-01T00:00:00.000Z\"") && text.contains("\"timeout_ms\":5"),
            "{text}"
        );
        assert!(
            text.contains("\"since\":\"1970-01-01T00:00:01.000Z\"") && text.contains("\"until\":null"),
            "{text}"
        );
    }
}
