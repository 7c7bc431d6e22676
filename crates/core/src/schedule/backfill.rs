//! Backfill: one job for each date of a range, some time apart, once.

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::span::Span;
use crate::ids::{KindName, UniqueKey};
use crate::limits;
use crate::payload::Payload;

/// A kind for a range of dates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backfill {
    /// Kind of the jobs.
    pub kind: KindName,
    /// The first date, like `2026-10-18`.
    pub from: String,
    /// The last date.
    pub to: String,
    /// Time between two jobs. Five seconds if it is not named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stagger: Option<String>,
    /// Payload of the jobs, an object; each gets its date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<serde_json::Value>,
    /// Field of the payload that gets the date. `date` if it is not named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Dates that were filled under another label are filled again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// One job of a backfill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackfillRun {
    /// Its date.
    pub date: Date,
    /// How long after the beginning.
    pub delay_ms: i64,
    /// What to do.
    pub payload: Payload,
    /// Makes it the only one of its date.
    pub key: UniqueKey,
}

impl Backfill {
    /// The jobs, in order of their dates, or what is wrong.
    pub fn runs(&self) -> Result<Vec<BackfillRun>, String> {
        let date = |field: &str, text: &str| -> Result<Date, String> {
            text.parse().map_err(|_| {
                let given: String = text.chars().take(40).collect();
                format!("{field}: {given:?} is not a date; write it like 2026-10-18")
            })
        };
        let (from, to) = (date("from", &self.from)?, date("to", &self.to)?);
        if from > to {
            return Err(format!("to: {to} is before {from}"));
        }
        let stagger = match &self.stagger {
            None => limits::DEFAULT_STAGGER_MS,
            Some(text) => text.parse::<Span>().map_err(|e| format!("stagger: {e}"))?.0,
        };
        if stagger > limits::MAX_STAGGER_MS {
            return Err(format!("stagger: at most {}", Span(limits::MAX_STAGGER_MS)));
        }
        let mut object = match &self.payload {
            None => serde_json::Map::new(),
            Some(serde_json::Value::Object(object)) => object.clone(),
            Some(_) => return Err("payload: must be an object, which gets the date".into()),
        };
        let field = self.field.as_deref().unwrap_or("date");
        let mut runs = vec![];
        let mut next = Some(from);
        while let Some(date) = next.filter(|date| *date <= to) {
            if runs.len() == limits::MAX_BACKFILL_DATES {
                return Err(format!("to: more than {} dates", limits::MAX_BACKFILL_DATES));
            }
            object.insert(field.to_owned(), date.to_string().into());
            let text = serde_json::Value::Object(object.clone()).to_string();
            let payload = Payload::from_json_text(text, limits::MAX_PAYLOAD_BYTES)
                .map_err(|e| format!("payload: {e}"))?;
            let key =
                UniqueKey::new(format!("backfill:{}:{date}", self.label.as_deref().unwrap_or_default()))
                    .map_err(|e| format!("label: {e}"))?;
            runs.push(BackfillRun { date, delay_ms: stagger * runs.len() as i64, payload, key });
            next = date.tomorrow().ok();
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backfill(from: &str, to: &str) -> Backfill {
        let kind = KindName::new("daily-feature-aggregation").unwrap();
        let payload = Some(serde_json::json!({"backfill": true}));
        Backfill { kind, from: from.into(), to: to.into(), stagger: None, payload, field: None, label: None }
    }

    #[test]
    fn every_date_is_one_job_five_seconds_apart() {
        let runs = backfill("2026-02-20", "2026-03-19").runs().unwrap();
        assert_eq!(runs.len(), 28);
        assert_eq!(runs[27].delay_ms, 27 * 5_000);
        assert_eq!(runs[9].payload.as_str(), r#"{"backfill":true,"date":"2026-03-01"}"#);
        assert_eq!(runs[9].key.as_str(), "backfill::2026-03-01");
        let again = Backfill { label: Some("v2".into()), ..backfill("2026-03-01", "2026-03-01") };
        assert_eq!(again.runs().unwrap()[0].key.as_str(), "backfill:v2:2026-03-01");
    }

    #[test]
    fn what_is_wrong_is_said_with_the_field() {
        for (backfill, says) in [
            (backfill("yesterday", "2026-03-01"), "from: \"yesterday\""),
            (backfill("2026-03-02", "2026-03-01"), "to: 2026-03-01 is before"),
            (backfill("1000-01-01", "2026-03-01"), "to: more than"),
            (Backfill { stagger: Some("x".into()), ..backfill("2026-03-01", "2026-03-01") }, "stagger:"),
            (Backfill { payload: Some(1.into()), ..backfill("2026-03-01", "2026-03-01") }, "payload:"),
        ] {
            let error = backfill.runs().unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
