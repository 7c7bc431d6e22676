//! Traces of what this process does to jobs, if a collector is named.

use std::time::Duration;

use clap::Args;
use tidegate::{Telemetry, TelemetryOptions};
use tidegate_core::codes;

use crate::config::Config;
use crate::error::{Failure, Result};

/// Longest time that the end waits for the last spans to be sent.
const LAST: Duration = Duration::from_secs(5);

/// Flags of commands that record traces.
#[derive(Debug, Args)]
pub(crate) struct TelemetryArgs {
    /// Send traces to the OpenTelemetry collector at this URL, as OTLP over HTTP
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// Part of the traces that is recorded, from 0 to 1 [default: 1]
    #[arg(long, value_name = "RATIO")]
    trace_sample: Option<String>,
}

impl TelemetryArgs {
    /// Puts them over the settings.
    pub(crate) fn over(&self, config: &mut Config) -> Result<()> {
        config.flag("telemetry.otlp_endpoint", "--otlp-endpoint", self.otlp_endpoint.as_deref())?;
        config.flag("telemetry.sample", "--trace-sample", self.trace_sample.as_deref())
    }
}

/// Begins to record, if a collector is named.
pub(crate) fn start(config: &Config) -> Result<Option<Telemetry>> {
    let Some(endpoint) = config.text("telemetry.otlp_endpoint") else { return Ok(None) };
    let options = TelemetryOptions {
        service_name: config.text("telemetry.service_name").unwrap_or_default().to_owned(),
        sample: config.text("telemetry.sample").and_then(|t| t.parse().ok()).unwrap_or_default(),
        tenants: config.text("telemetry.tenants") == Some("yes"),
        ..TelemetryOptions::default()
    };
    let telemetry = Telemetry::otlp(endpoint, &options).map_err(|why| {
        Failure::new(codes::INVALID_SETTING, format!("traces cannot be sent: {why}"))
            .hint("name a collector like http://127.0.0.1:4318 in --otlp-endpoint")
    })?;
    Ok(Some(telemetry))
}

/// Sends what waits, for a while, and says if spans were lost.
pub(crate) async fn end(telemetry: Option<Telemetry>) {
    let Some(telemetry) = telemetry else { return };
    let flushed = telemetry.flush(LAST).await;
    let (sent, dropped) = (telemetry.sent(), telemetry.dropped());
    if !flushed || dropped > 0 {
        tracing::warn!(sent, dropped, flushed, "not all spans of this process were sent");
    }
}
