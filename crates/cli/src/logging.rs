//! Log lines on standard error, for `TIDEGATE_LOG=debug` (or `error`, `warn`, `info`, `trace`). Without it a command
//! that ends shows only errors, because its answer is its output and not its log; one that stays says what it does.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Starts logging from this level on.
pub(crate) fn install(level: &str) {
    let level = level.parse().unwrap_or(LevelFilter::ERROR);
    // Fails only if something was installed before, and nothing was.
    let _ = tracing::subscriber::set_global_default(Lines { level, spans: AtomicU64::new(1) });
}

struct Lines {
    level: LevelFilter,
    spans: AtomicU64,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed).max(1))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let Line { message, fields } = line;
        let metadata = event.metadata();
        let now = jiff::Timestamp::now();
        let text = format!("{now:.3} {:5} {}: {message}{fields}\n", metadata.level(), metadata.target());
        // Nothing can be done where standard error is gone.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
