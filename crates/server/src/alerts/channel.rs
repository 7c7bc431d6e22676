//! What a telling looks like at each channel.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tidegate_core::alerts::{Telling, What};

use super::settings::Channel;
use crate::outgoing::Request;

/// Largest answer that is read: it is shown in the job's error.
const MAX_ANSWER: usize = 256;
/// Size of SHA-256's blocks.
const BLOCK: usize = 64;

/// The request that tells it; none for the log.
pub(super) fn request<'c>(
    channel: &'c Channel,
    name: &str,
    telling: &Telling,
    runbooks: &str,
) -> Option<Request<'c>> {
    let runbook = format!("{runbooks}{}", telling.runbook);
    let (url, body, secret) = match channel {
        Channel::Log => return None,
        Channel::Slack { url } => (url, json!({ "text": text(telling, &runbook) }), None),
        Channel::PagerDuty { url, routing_key } => (url, event(telling, routing_key, &runbook), None),
        Channel::Webhook { url, secret } => (url, plain(telling, &runbook), secret.as_ref()),
    };
    let body = body.to_string();
    let mut headers = vec![
        ("content-type", "application/json".to_owned()),
        ("user-agent", concat!("tidegate/", env!("CARGO_PKG_VERSION")).to_owned()),
        ("idempotency-key", hex(&Sha256::digest(telling.key(name)))),
    ];
    if let Some(secret) = secret {
        let at = telling.at.0.to_string();
        headers.push(("x-tidegate-signature", format!("sha256={}", signature(secret, &at, &body))));
        headers.push(("x-tidegate-timestamp", at));
    }
    Some(Request { method: "POST", url, headers, body, max_answer: MAX_ANSWER })
}

/// One line for people.
pub(super) fn text(telling: &Telling, runbook: &str) -> String {
    let what = match telling.what {
        What::Fired => telling.severity.as_str().to_uppercase(),
        What::Repeated => format!("STILL {}", telling.severity.as_str().to_uppercase()),
        What::Resolved => "RESOLVED".into(),
        What::Test => "TEST".into(),
    };
    let Telling { rule, target, message, since, .. } = telling;
    format!("[{what}] {message} ({rule}, {target}, since {since}) → {runbook}")
}

fn event(telling: &Telling, routing_key: &str, runbook: &str) -> Value {
    let action = if telling.what == What::Resolved { "resolve" } else { "trigger" };
    json!({
        "routing_key": routing_key,
        "event_action": action,
        "dedup_key": telling.incident(),
        "payload": {
            "summary": telling.message,
            "source": telling.target,
            "severity": telling.severity.as_str(),
            "timestamp": telling.since.to_string(),
            "component": telling.rule,
            "custom_details": { "what": telling.what.as_str(), "incident": telling.incident() },
        },
        "links": [{ "href": runbook, "text": "Runbook" }],
        "client": "Tidegate",
    })
}

fn plain(telling: &Telling, runbook: &str) -> Value {
    json!({
        "event": telling.what.as_str(),
        "incident": telling.incident(),
        "rule": telling.rule,
        "target": telling.target,
        "number": telling.number,
        "nth": telling.nth,
        "severity": telling.severity.as_str(),
        "message": telling.message,
        "runbook": runbook,
        "since": telling.since.to_string(),
        "at": telling.at.to_string(),
    })
}

/// HMAC-SHA256 of the time, a dot and the body, as hexadecimal digits.
pub(crate) fn signature(secret: &str, at: &str, body: &str) -> String {
    let mut key = [0_u8; BLOCK];
    if secret.len() > BLOCK {
        key[..32].copy_from_slice(&Sha256::digest(secret));
    } else {
        key[..secret.len()].copy_from_slice(secret.as_bytes());
    }
    let pad = |with: u8| key.map(|byte| byte ^ with);
    let mut inner = Sha256::new();
    inner.update(pad(0x36));
    inner.update(format!("{at}.{body}"));
    let mut outer = Sha256::new();
    outer.update(pad(0x5c));
    outer.update(inner.finalize());
    hex(&outer.finalize())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use tidegate_core::alerts::Severity;
    use tidegate_core::time::Timestamp;

    use super::*;

    fn telling(what: What) -> Telling {
        Telling {
            what,
            rule: "queue_depth_high".into(),
            target: "queue:billing".into(),
            number: 3,
            nth: 0,
            severity: Severity::Critical,
            message: "Queue billing: 1,204 jobs wait".into(),
            runbook: "queue-stands-still.md".into(),
            channels: vec!["ops".into()],
            since: Timestamp(0),
            at: Timestamp(5_000),
        }
    }

    /// What `openssl` says.
    #[test]
    fn signatures_are_hmac_sha256() {
        // printf 'what do ya want. for nothing?' | openssl dgst -sha256 -hmac Jefe
        assert_eq!(
            signature("Jefe", "what do ya want", " for nothing?"),
            "ab2065b8987c48983f47a32020a95286d05c7938720abf8bfec9274ac25ed450"
        );
        assert_eq!(signature(&"k".repeat(65), "1", "b").len(), 64);
        assert_ne!(signature("a", "1", "b"), signature("a", "2", "b"));
    }

    #[test]
    fn channels_get_what_they_understand() {
        let pager = Channel::PagerDuty { url: "http://h/".into(), routing_key: "r".into() };
        let body = |channel: &Channel, what| -> Value {
            let request = request(channel, "ops", &telling(what), "https://wiki/").unwrap();
            serde_json::from_str(&request.body).unwrap()
        };
        let (fired, over) = (body(&pager, What::Fired), body(&pager, What::Resolved));
        assert_eq!((&fired["event_action"], &over["event_action"]), (&json!("trigger"), &json!("resolve")));
        assert_eq!(fired["dedup_key"], over["dedup_key"], "or it would stay open");
        assert_eq!(fired["payload"]["severity"], "critical");
        let slack = body(&Channel::Slack { url: "http://h/".into() }, What::Fired);
        let text = slack["text"].as_str().unwrap();
        assert!(
            text.starts_with("[CRITICAL] Queue billing")
                && text.ends_with("https://wiki/queue-stands-still.md")
        );
        let hook = Channel::Webhook { url: "http://h/".into(), secret: Some("s".into()) };
        let signed = request(&hook, "ops", &telling(What::Fired), "").unwrap();
        let header = |name: &str| signed.headers.iter().find(|(n, _)| *n == name).unwrap().1.clone();
        let expected = signature("s", &header("x-tidegate-timestamp"), &signed.body);
        assert_eq!(header("x-tidegate-signature"), format!("sha256={expected}"));
    }
}
