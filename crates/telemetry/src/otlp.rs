//! OTLP over HTTP, in its JSON encoding: <https://opentelemetry.io/docs/specs/otlp/>.

use async_trait::async_trait;
use serde_json::{Value as Json, json};
use tidegate_outgoing::{Client, Request};

use crate::{Event, Exporter, Kind, NotSent, Span, Value};

/// Where a collector takes traces, below its own address.
const PATH: &str = "v1/traces";
/// Longest answer that is read.
const MAX_ANSWER: usize = 4_096;

/// A collector.
pub(crate) struct Otlp {
    url: String,
    client: Client,
    resource: Json,
}

impl Otlp {
    pub(crate) fn new(endpoint: &str, service_name: &str) -> Result<Self, String> {
        Client::check(endpoint)?;
        let client = Client::new(endpoint.starts_with("https:"))?;
        let url = format!("{}/{PATH}", endpoint.trim_end_matches('/'));
        let (name, version) = (Value::from(service_name), Value::from(env!("CARGO_PKG_VERSION")));
        let pid = Value::from(i64::from(std::process::id()));
        let facts = [("service.name", name), ("service.version", version), ("process.pid", pid)];
        Ok(Self { url, client, resource: json!({ "attributes": attributes(&facts) }) })
    }

    fn body(&self, spans: &[Span]) -> String {
        let spans: Vec<Json> = spans.iter().map(span).collect();
        let scope = json!({ "name": "tidegate", "version": env!("CARGO_PKG_VERSION") });
        json!({ "resourceSpans": [{
            "resource": self.resource,
            "scopeSpans": [{ "scope": scope, "spans": spans }],
        }] })
        .to_string()
    }
}

#[async_trait]
impl Exporter for Otlp {
    async fn export(&self, spans: &[Span]) -> Result<u64, NotSent> {
        let request = Request {
            method: "POST",
            url: &self.url,
            headers: vec![("content-type", "application/json".to_owned())],
            body: self.body(spans),
            max_answer: MAX_ANSWER,
        };
        let answer =
            self.client.send(request).await.map_err(|e| NotSent::Later { why: e.why, after: None })?;
        match answer.status {
            200..=299 => Ok(rejected(&answer.text)),
            429 | 502..=504 => {
                let (why, after) =
                    (format!("the collector answered {}", answer.status), answer.retry_after());
                Err(NotSent::Later { why, after })
            }
            status => Err(NotSent::Refused(format!("the collector answered {status}"))),
        }
    }
}

/// How many spans the answer says were not taken: a number, as text or not.
fn rejected(answer: &str) -> u64 {
    let answer: Json = serde_json::from_str(answer).unwrap_or_default();
    let said = &answer["partialSuccess"]["rejectedSpans"];
    said.as_u64().or_else(|| said.as_str()?.parse().ok()).unwrap_or(0)
}

fn span(span: &Span) -> Json {
    let mut json = json!({
        "traceId": format!("{:032x}", span.context.trace()),
        "spanId": id(span.context.span()),
        "name": span.name,
        "kind": match span.kind { Kind::Producer => 4, Kind::Consumer => 5 },
        "startTimeUnixNano": span.began_ns.to_string(),
        "endTimeUnixNano": span.ended_ns.to_string(),
        "attributes": attributes(&span.attributes),
        "flags": 1,
    });
    if let Some(parent) = span.parent {
        json["parentSpanId"] = id(parent).into();
    }
    if !span.events.is_empty() {
        json["events"] = span.events.iter().map(event).collect();
    }
    if span.failed {
        json["status"] = json!({ "code": 2 });
    }
    json
}

fn id(span: u64) -> String {
    format!("{span:016x}")
}

fn event(event: &Event) -> Json {
    json!({
        "name": event.name,
        "timeUnixNano": event.at_ns.to_string(),
        "attributes": attributes(&event.attributes),
    })
}

fn attributes(attributes: &[(&'static str, Value)]) -> Json {
    let one = |(name, value): &(&'static str, Value)| {
        let value = match value {
            Value::Text(text) => json!({ "stringValue": text }),
            Value::Number(number) => json!({ "intValue": number.to_string() }),
        };
        json!({ "key": name, "value": value })
    };
    attributes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_may_reject_some() {
        assert_eq!(rejected(r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"x"}}"#), 3);
        assert_eq!(rejected(r#"{"partialSuccess":{"rejectedSpans":2}}"#), 2);
        for none in ["", "{}", "ok", r#"{"partialSuccess":{}}"#] {
            assert_eq!(rejected(none), 0, "{none}");
        }
    }

    #[test]
    fn the_path_is_put_behind_the_address_of_the_collector() {
        for (endpoint, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://otel.example/base/", "https://otel.example/base/v1/traces"),
        ] {
            assert_eq!(Otlp::new(endpoint, "x").unwrap().url, url);
        }
    }
}
