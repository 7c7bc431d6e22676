//! Settings of a schedule, and what makes them acceptable.

use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};

use super::cron::Cron;
use super::span::Span;
use super::times::{Times, instant_of};
use super::zone::Zone;
use crate::ids::{GroupKey, ScheduleName, TenantId};
use crate::job::Priority;
use crate::limits;
use crate::payload::Payload;
use crate::schema::Schema;
use crate::time::Timestamp;

/// What becomes of a tick while a job of an earlier one is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is skipped.
    #[default]
    Skip,
    /// It waits until that job is finished.
    Queue,
    /// It runs beside it.
    Allow,
}

/// What becomes of ticks that came while nobody was there to fire them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// They are skipped.
    Skip,
    /// The newest of them runs.
    #[default]
    RunOnce,
    /// The newest of them run, up to this many.
    RunAll(u32),
}

/// Settings of a schedule. Exactly one of `cron`, `every` and `at` says when.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleSettings {
    /// A cron expression: five fields, six with seconds first, or `@daily` and its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// An interval, like `30s` or `6h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// Once, at this time: with an offset, or by the clock of `zone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// IANA name of the time zone whose clock counts. UTC if it is not named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// One tick of the interval; the others are counted from it. The beginning of 1970 in UTC if it is not named, so that `5m` means
    /// the full five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// What becomes of a tick while an earlier run is not finished.
    pub overlap: Overlap,
    /// What becomes of ticks that nobody was there to fire.
    pub missed: Missed,
    /// A tick that is late by more than this was missed. One minute if it is not named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<String>,
    /// Each run is put off by up to this, always by the same for the same tick, so that many schedules do not run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<String>,
    /// Schedules whose run of the same day must have completed before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ScheduleName>,
    /// Payload of its jobs; `{}` if it is not named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<serde_json::Value>,
    /// Whose its jobs are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Group of its jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupKey>,
    /// Priority of its jobs, if other than their kind's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// What it is for, in a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// Settings, understood: what is needed to fire.
#[derive(Debug, Clone, PartialEq)]
pub struct Compiled {
    /// When it ticks.
    pub times: Times,
    /// The zone whose days count.
    pub zone: Zone,
    /// A tick that is late by more than this was missed.
    pub grace_ms: i64,
    /// Runs are put off by less than this.
    pub jitter_ms: i64,
    /// Payload of its jobs.
    pub payload: Payload,
}

impl ScheduleSettings {
    /// By a cron expression in a zone, with everything else as usual.
    pub fn cron(expression: impl Into<String>, zone: impl Into<String>) -> Self {
        Self { cron: Some(expression.into()), zone: Some(zone.into()), ..Self::default() }
    }

    /// By an interval, with everything else as usual.
    pub fn every(span: impl Into<String>) -> Self {
        Self { every: Some(span.into()), ..Self::default() }
    }

    /// Once, with everything else as usual.
    pub fn at(time: impl Into<String>) -> Self {
        Self { at: Some(time.into()), ..Self::default() }
    }

    /// Says what is wrong with the settings, if anything, beginning with the name of the field.
    pub fn check(&self) -> Result<(), String> {
        self.checked().map(drop)
    }

    /// Understands settings that somebody writes now. More is asked of them than of those that are kept, which must go on.
    pub fn checked(&self) -> Result<Compiled, String> {
        let compiled = self.compile()?;
        match compiled.times {
            Times::Every { every_ms, .. } if compiled.jitter_ms >= every_ms => Err(format!(
                "jitter: runs put off by up to {} would overtake each other: it must be shorter than the interval, {}",
                Span(compiled.jitter_ms),
                Span(every_ms)
            )),
            _ => Ok(compiled),
        }
    }

    /// Whether both tick at the same times: a schedule that only runs differently owes what it owed.
    pub fn ticks_like(&self, other: &Self) -> bool {
        (&self.cron, &self.every, &self.at, &self.zone, &self.anchor)
            == (&other.cron, &other.every, &other.at, &other.zone, &other.anchor)
    }

    /// The settings as people may see them, if the payload looks like this: without its secrets.
    #[must_use]
    pub fn shown(&self, schema: &Schema) -> Self {
        let payload = self.payload.as_ref().map(|payload| schema.masked(payload));
        Self { payload, ..self.clone() }
    }

    /// Understands the settings, or says what is wrong with them.
    pub fn compile(&self) -> Result<Compiled, String> {
        let zone = match &self.zone {
            None => Zone::utc(),
            Some(name) => name.parse().map_err(|e| format!("zone: {e}"))?,
        };
        if self.after.len() > limits::MAX_SCHEDULE_AFTER {
            return Err(format!("after: at most {} schedules", limits::MAX_SCHEDULE_AFTER));
        }
        if self.description.len() > limits::MAX_NOTE_BYTES {
            return Err(format!("description: at most {} bytes", limits::MAX_NOTE_BYTES));
        }
        if let Missed::RunAll(n) = self.missed
            && !(1..=limits::MAX_MISSED_RUNS).contains(&n)
        {
            return Err(format!("missed: run_all takes 1 to {}", limits::MAX_MISSED_RUNS));
        }
        let span = |field: &str, text: &Option<String>, default: i64, most: i64| match text {
            None => Ok(default),
            Some(text) => {
                let Span(ms) = text.parse().map_err(|e| format!("{field}: {e}"))?;
                if ms <= most { Ok(ms) } else { Err(format!("{field}: at most {}", Span(most))) }
            }
        };
        Ok(Compiled {
            times: self.times(&zone)?,
            grace_ms: span("grace", &self.grace, limits::DEFAULT_GRACE_MS, limits::MAX_GRACE_MS)?,
            jitter_ms: span("jitter", &self.jitter, 0, limits::MAX_JITTER_MS)?,
            payload: self.payload()?,
            zone,
        })
    }

    fn times(&self, zone: &Zone) -> Result<Times, String> {
        if self.anchor.is_some() && self.every.is_none() {
            return Err("anchor: goes with `every` alone".into());
        }
        match (&self.cron, &self.every, &self.at) {
            (Some(cron), None, None) => {
                let cron: Cron = cron.parse().map_err(|e| format!("cron: {e}"))?;
                Ok(Times::Cron(cron, zone.clone()))
            }
            (None, Some(every), None) => {
                let Span(every_ms) = every.parse().map_err(|e| format!("every: {e}"))?;
                if !(limits::MIN_INTERVAL_MS..=limits::MAX_DELAY_MS).contains(&every_ms) {
                    return Err(format!("every: between {} and ten years", Span(limits::MIN_INTERVAL_MS)));
                }
                let anchor = match &self.anchor {
                    None => Timestamp(0),
                    Some(text) => point(text, zone).map_err(|e| format!("anchor: {e}"))?,
                };
                Ok(Times::Every { every_ms, anchor })
            }
            (None, None, Some(at)) => Ok(Times::At(point(at, zone).map_err(|e| format!("at: {e}"))?)),
            (None, None, None) => Err("one of `cron`, `every` and `at` must say when".into()),
            _ => Err("only one of `cron`, `every` and `at` can say when".into()),
        }
    }

    fn payload(&self) -> Result<Payload, String> {
        let text = self.payload.as_ref().map_or_else(|| "{}".to_owned(), ToString::to_string);
        Payload::from_json_text(text, limits::MAX_SCHEDULE_PAYLOAD_BYTES).map_err(|e| format!("payload: {e}"))
    }
}

/// A point in time: with an offset, or what the clock of the zone shows.
fn point(text: &str, zone: &Zone) -> Result<Timestamp, String> {
    let text = text.trim();
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Ok(Timestamp(at.as_millisecond()));
    }
    let refuse = || {
        format!(
            "{:?} is not a time; write it like 2026-12-24T18:00:00Z, or like 2026-12-24T18:00 by the clock of the zone",
            text.chars().take(40).collect::<String>()
        )
    };
    let wall: DateTime = text.parse().map_err(|_| refuse())?;
    instant_of(zone.time_zone(), wall).ok_or_else(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_from_what_people_write() {
        let text = r#"{"cron":"1 0 * * *","zone":"America/Sao_Paulo","overlap":"queue","missed":{"run_all":3},
            "jitter":"30s","after":["daily-feature-aggregation"],"payload":{"b":1}}"#;
        let settings: ScheduleSettings = serde_json::from_str(text).unwrap();
        let compiled = settings.compile().unwrap();
        assert_eq!((compiled.jitter_ms, compiled.grace_ms), (30_000, limits::DEFAULT_GRACE_MS));
        assert_eq!(compiled.payload.as_str(), r#"{"b":1}"#);
        let again: ScheduleSettings =
            serde_json::from_str(&serde_json::to_string(&settings).unwrap()).unwrap();
        assert_eq!(again, settings);
        assert_eq!(
            serde_json::to_string(&ScheduleSettings::every("5m")).unwrap(),
            r#"{"every":"5m","overlap":"skip","missed":"run_once"}"#
        );
        assert!(serde_json::from_str::<ScheduleSettings>(r#"{"cron":"@daily","tz":"UTC"}"#).is_err());
    }

    #[test]
    fn what_is_wrong_is_said_with_the_field() {
        let cron = || ScheduleSettings::cron("@daily", "UTC");
        let some = |text: &str| Some(text.to_owned());
        for (settings, says) in [
            (ScheduleSettings::default(), "one of `cron`, `every` and `at`"),
            (ScheduleSettings { every: some("5m"), ..cron() }, "only one of"),
            (ScheduleSettings::cron("0 0 * * 8", "UTC"), "cron: day of week: 8"),
            (ScheduleSettings::cron("@daily", "Mars/Base"), "zone: \"Mars/Base\""),
            (ScheduleSettings::every("10ms"), "every: between 1s"),
            (ScheduleSettings::every("soon"), "every: \"soon\""),
            (ScheduleSettings::at("tomorrow"), "at: \"tomorrow\""),
            (ScheduleSettings { anchor: some("2026-01-01T00:00Z"), ..cron() }, "anchor: goes with"),
            (ScheduleSettings { jitter: some("2d"), ..cron() }, "jitter: at most"),
            (
                ScheduleSettings { jitter: some("5m"), ..ScheduleSettings::every("5m") },
                "jitter: runs put off by up to 5m would overtake each other: it must be shorter than the interval, 5m",
            ),
            (ScheduleSettings { grace: some("x"), ..cron() }, "grace: \"x\""),
            (ScheduleSettings { missed: Missed::RunAll(0), ..cron() }, "missed: run_all"),
        ] {
            let error = settings.check().unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
        // One that is kept from before goes on.
        let kept = ScheduleSettings { jitter: some("10m"), ..ScheduleSettings::every("5m") };
        assert!(kept.compile().is_ok());
    }

    #[test]
    fn a_single_time_is_by_the_clock_of_the_zone_unless_it_has_an_offset() {
        let at = |text: &str, zone: &str| {
            let settings = ScheduleSettings { zone: Some(zone.into()), ..ScheduleSettings::at(text) };
            match settings.compile().unwrap().times {
                Times::At(at) => at.to_string(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(at("2026-12-24T18:00", "America/Sao_Paulo"), "2026-12-24T21:00:00.000Z");
        assert_eq!(at("2026-12-24T18:00:00Z", "America/Sao_Paulo"), "2026-12-24T18:00:00.000Z");
        assert_eq!(at("2026-12-24T18:00:00-05:00", "UTC"), "2026-12-24T23:00:00.000Z");
    }
}
