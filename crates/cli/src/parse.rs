//! Text of the command line into checked values, each with the error code that fits.

use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::value::RawValue;
use tidegate_core::codes;
use tidegate_core::ids::{InvalidName, JobId};
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::registry::Limiter;
use tidegate_core::time::{Millis, Timestamp};

use crate::error::{Failure, Result};

/// How far the clock of the store that was opened last is ahead of this machine's.
static AHEAD_MS: AtomicI64 = AtomicI64::new(0);

/// Now, by the clock of the store: what is due, how old something is and when a lease ends is the same wherever a
/// command runs. Before a store is open it is this machine's clock.
pub(crate) fn now() -> Timestamp {
    wall().plus_ms(AHEAD_MS.load(Ordering::Relaxed))
}

/// Now, by this machine's clock, for comparing it with others.
pub(crate) fn wall() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_millisecond())
}

/// From now on [`now`] goes by a clock that is this far ahead.
pub(crate) fn set_clock_ahead(ms: i64) {
    AHEAD_MS.store(ms, Ordering::Relaxed);
}

/// A fresh id.
pub(crate) fn new_id() -> JobId {
    JobId::from_uuid(uuid::Uuid::now_v7())
}

/// A name of any of the checked types.
pub(crate) fn name<T: FromStr<Err = InvalidName>>(text: &str) -> Result<T> {
    Ok(text.parse()?)
}

/// The same where it may be missing.
pub(crate) fn optional_name<T: FromStr<Err = InvalidName>>(text: Option<&str>) -> Result<Option<T>> {
    text.map(name).transpose()
}

/// A job id.
pub(crate) fn job_id(text: &str) -> Result<JobId> {
    text.parse().map_err(|e: InvalidName| {
        Failure::new(codes::INVALID_NAME, e.to_string()).hint("`tidegate jobs ls` prints whole ids to copy")
    })
}

/// One of a closed set of words.
pub(crate) fn word<T: FromStr<Err = String>>(text: &str) -> Result<T> {
    text.parse().map_err(|e: String| Failure::new(codes::INVALID_REQUEST, e))
}

/// A span such as `30s`, in milliseconds.
pub(crate) fn span(text: &str) -> Result<i64> {
    let Millis(ms) = text.parse().map_err(|e| Failure::new(codes::INVALID_TIME, format!("{e}")))?;
    Ok(ms)
}

/// An instant such as `2026-01-31T08:00:00Z`.
pub(crate) fn instant(text: &str) -> Result<Timestamp> {
    let parsed: jiff::Timestamp = text.parse().map_err(|_| {
        let shown: String = text.chars().take(40).collect();
        Failure::new(codes::INVALID_TIME, format!("{shown:?} is not a time"))
            .hint("write it like 2026-01-31T08:00:00Z or 2026-01-31T08:00:00-03:00")
    })?;
    Ok(Timestamp(parsed.as_millisecond()))
}

/// A start in the past: a span back from now, or an instant.
pub(crate) fn since(text: &str, now: Timestamp) -> Result<Timestamp> {
    match text.parse::<Millis>() {
        Ok(Millis(ms)) => Ok(now.plus_ms(-ms)),
        Err(_) => instant(text).map_err(|_| {
            let shown: String = text.chars().take(40).collect();
            Failure::new(codes::INVALID_TIME, format!("{shown:?} is neither a span nor a time"))
                .hint("write --since 15m, --since 2h or --since 2026-01-31T08:00:00Z")
        }),
    }
}

/// `none`, or a value.
pub(crate) fn or_none<T>(text: &str, parse: impl FnOnce(&str) -> Result<T>) -> Result<Option<T>> {
    if text == "none" { Ok(None) } else { parse(text).map(Some) }
}

/// A number of a setting.
pub(crate) fn number<T: FromStr>(what: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(40).collect();
        Failure::new(codes::INVALID_SETTING, format!("{what}: {shown:?} is not a whole number in range"))
    })
}

/// A limiter such as `30/1s`.
pub(crate) fn limiter(text: &str) -> Result<Limiter> {
    let refuse = || {
        let shown: String = text.chars().take(40).collect();
        Failure::new(codes::INVALID_SETTING, format!("limiter: {shown:?} is not a number per span"))
            .hint("write it like 30/1s or 1000/1h, or `none`")
    };
    let (max, per) = text.split_once('/').ok_or_else(refuse)?;
    let max = max.trim().parse().map_err(|_| refuse())?;
    let Millis(per_ms) = per.parse().map_err(|_| refuse())?;
    Ok(Limiter { max, per_ms })
}

/// A payload: checked for size and depth first, so that parsing it is safe, then for being one JSON value.
pub(crate) fn payload(text: &str) -> Result<Payload> {
    let payload = Payload::from_json_text(text.trim(), limits::MAX_PAYLOAD_BYTES)?;
    serde_json::from_str::<&RawValue>(payload.as_str()).map_err(|e| {
        Failure::new(codes::INVALID_PAYLOAD, format!("the payload is not JSON: {e}")).hint(
            r#"quote it for the shell, and text in it for JSON: --data '{"name":"you"}', --data '"you"'"#,
        )
    })?;
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limiters_are_read_as_they_are_shown() {
        assert_eq!(limiter("30/1s").unwrap(), Limiter { max: 30, per_ms: 1_000 });
        for bad in ["30", "x/1s", "30/soon", "-1/1s", "30/"] {
            assert_eq!(limiter(bad).unwrap_err().code(), codes::INVALID_SETTING, "{bad}");
        }
    }

    #[test]
    fn payloads_are_one_json_value_of_bounded_depth() {
        assert!(payload(" {\"a\": [1, 2]} \n").is_ok());
        let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
        for bad in ["", "{", "{} {}", "nope", "{'a':1}", deep.as_str()] {
            assert_eq!(payload(bad).unwrap_err().code(), codes::INVALID_PAYLOAD);
        }
    }

    #[test]
    fn times_say_what_they_expect() {
        assert_eq!(since("1h", Timestamp(3_600_000)).unwrap(), Timestamp(0));
        assert_eq!(instant("1970-01-01T00:00:01Z").unwrap(), Timestamp(1_000));
        for bad in ["yesterday", "2026-13-01T00:00:00Z", "-5m", ""] {
            assert_eq!(since(bad, Timestamp(0)).unwrap_err().code(), codes::INVALID_TIME, "{bad}");
        }
    }
}
