//! The job log: a line on standard output for what this process does to jobs, as JSON (S1 §6.3) or as text. It is made from the
//! store's events, which carry names, ids and codes: a payload cannot get into it.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::io::Write as _;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use tidegate_core::ids::JobId;
use tidegate_core::time::Timestamp;
use tidegate_store::Store;
use tidegate_store::feed::{Delivery, Happened, JobEvent};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::error::Result;

/// Running jobs whose start is remembered, for the duration; beyond that it is left out.
const MAX_RUNNING: usize = 100_000;

/// Flags of commands that keep a job log.
#[derive(Debug, Args)]
pub(crate) struct JobLogArgs {
    /// A line on standard output for what happens to each job: json, text or off [default: off]
    #[arg(long = "log", value_name = "FORMAT")]
    format: Option<String>,
    /// Of how many jobs one is logged [default: 1]
    #[arg(long = "log-sample", value_name = "N")]
    sample: Option<String>,
}

impl JobLogArgs {
    /// Puts them over the settings.
    pub(crate) fn over(&self, config: &mut Config) -> Result<()> {
        config.flag("log.jobs", "--log", self.format.as_deref())?;
        config.flag("log.jobs_sample", "--log-sample", self.sample.as_deref())
    }
}

/// The log, if one is wanted.
pub(crate) struct JobLog(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl JobLog {
    /// Begins to follow the store.
    pub(crate) fn start(config: &Config, store: &Arc<dyn Store>) -> Self {
        let format = match config.text("log.jobs") {
            Some("json") => Format::Json,
            Some("text") => Format::Text,
            _ => return Self(None),
        };
        let mut lines = Lines { format, sample: config.count("log.jobs_sample"), started: HashMap::new() };
        // Subscribed before anything runs: nothing is missed.
        let mut events = store.feed().subscribe(None);
        let (stop, mut stopped) = oneshot::channel();
        let following = tokio::spawn(async move {
            loop {
                let (delivery, last) = tokio::select! {
                    biased;
                    delivery = events.next() => (Some(delivery), false),
                    _ = &mut stopped => (events.ready(), true),
                };
                if let Some(delivery) = delivery {
                    write(&lines.of(&delivery));
                } else if last {
                    return;
                }
            }
        });
        Self(Some((stop, following)))
    }

    /// Writes what has happened so far, and ends.
    pub(crate) async fn end(self) {
        if let Some((stop, following)) = self.0 {
            let _ = stop.send(());
            let _ = following.await;
        }
    }
}

fn write(text: &str) {
    // Nothing can be done where standard output is gone; jobs go on.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Text,
}

struct Lines {
    format: Format,
    /// One of so many jobs.
    sample: u64,
    /// When running jobs started, and their attempt.
    started: HashMap<JobId, (Timestamp, u32)>,
}

impl Lines {
    fn of(&mut self, delivery: &Delivery) -> String {
        match delivery {
            Delivery::Gap => {
                tracing::warn!("the job log has a gap: more happened than could be followed");
                String::new()
            }
            Delivery::Events(events) => {
                let own = events.iter().filter(|(_, e)| e.here.0);
                own.filter_map(|(_, event)| self.line(event)).collect()
            }
        }
    }

    fn line(&mut self, event: &JobEvent) -> Option<String> {
        let began = match &event.what {
            Happened::Started { attempt, .. } => {
                if self.started.len() < MAX_RUNNING {
                    self.started.insert(event.id, (event.at, *attempt));
                }
                None
            }
            Happened::Enqueued { .. } => None,
            _ => self.started.remove(&event.id),
        };
        let (level, name) = names(&event.what);
        if level == "info" && !self.is_sampled(event.id) {
            return None;
        }
        let attempt = match &event.what {
            Happened::Started { attempt, .. } => Some(*attempt),
            _ => began.map(|(_, attempt)| attempt),
        };
        let ms = began.map(|(at, _)| event.at.since(at).max(0));
        let error = match &event.what {
            Happened::Retry { code, .. } | Happened::Dead { code } => Some(code.as_str()),
            Happened::Stalled => Some("LEASE_LOST"),
            _ => None,
        };
        let message = format!("[{}] {}:{} - {name}", event.queue, event.kind, event.id);
        Some(match self.format {
            Format::Text => {
                let more = [ms.map(|ms| format!(" {ms} ms")), error.map(|code| format!(" {code}"))];
                format!(
                    "{} {level:5} {message}{}\n",
                    event.at,
                    more.into_iter().flatten().collect::<String>()
                )
            }
            Format::Json => {
                let mut line = json!({
                    "level": level,
                    "event": name,
                    "queue": event.queue,
                    "job_id": event.id.to_string(),
                    "job_name": event.kind,
                    "timestamp": event.at.to_string(),
                    "message": message,
                    "service": "tidegate",
                });
                let facts = [
                    ("duration_ms", ms.map(Value::from)),
                    ("attempt", attempt.map(Value::from)),
                    ("error", error.map(Value::from)),
                    ("tenant", event.tenant.as_ref().map(|t| Value::from(t.as_str()))),
                    ("metadata", metadata(&event.what)),
                ];
                if let Value::Object(line) = &mut line {
                    line.extend(facts.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?))));
                }
                format!("{line}\n")
            }
        })
    }

    /// The same jobs in every process: all lines of a job are there, or none.
    fn is_sampled(&self, id: JobId) -> bool {
        let mut hasher = DefaultHasher::new();
        id.uuid().hash(&mut hasher);
        hasher.finish().is_multiple_of(self.sample.max(1))
    }
}

/// Level and event of a line. S1's names, and those of what it does not know.
fn names(what: &Happened) -> (&'static str, &'static str) {
    match what {
        Happened::Enqueued { .. } => ("info", "added"),
        Happened::Started { .. } => ("info", "started"),
        Happened::Completed => ("info", "completed"),
        Happened::Retry { .. } => ("warn", "retrying"),
        Happened::Snoozed { .. } => ("info", "snoozed"),
        Happened::Released => ("info", "released"),
        Happened::Stalled => ("warn", "stalled"),
        Happened::Dead { .. } => ("error", "failed"),
        Happened::Cancelled => ("info", "cancelled"),
        Happened::Reauthorize { .. } => ("warn", "reauthorize"),
    }
}

fn metadata(what: &Happened) -> Option<Value> {
    match what {
        Happened::Retry { run_at, .. } | Happened::Snoozed { run_at } => {
            Some(json!({ "run_at": run_at.to_string() }))
        }
        Happened::Enqueued { state } => Some(json!({ "state": state })),
        Happened::Started { worker, .. } => Some(json!({ "worker": worker.as_str() })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_store::feed::{EventId, Here, SharedEvent};

    use super::*;

    fn lines(format: Format, sample: u64) -> Lines {
        Lines { format, sample, started: HashMap::new() }
    }

    fn event(n: u128, at: i64, what: Happened) -> (EventId, SharedEvent) {
        let event = JobEvent {
            at: Timestamp(at),
            id: JobId::from_parts(0, n),
            queue: "billing".parse().unwrap(),
            kind: "invoice.send".parse().unwrap(),
            tenant: None,
            here: Here(true),
            what,
        };
        (EventId { origin: 1, commit: 1, place: 0 }, event.into())
    }

    #[test]
    fn lines_have_the_fields_of_the_source() {
        let started = Happened::Started { worker: "w".parse().unwrap(), attempt: 2 };
        let events =
            vec![event(1, 1_000, started), event(1, 3_500, Happened::Dead { code: "HTTP_500".into() })];
        let text = lines(Format::Json, 1).of(&Delivery::Events(events));
        let read: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!((&read[0]["event"], &read[0]["attempt"]), (&json!("started"), &json!(2)));
        let failed = &read[1];
        assert_eq!((&failed["level"], &failed["event"]), (&json!("error"), &json!("failed")));
        assert_eq!((&failed["duration_ms"], &failed["error"]), (&json!(2_500), &json!("HTTP_500")));
        let message = format!("[billing] invoice.send:{} - failed", JobId::from_parts(0, 1));
        assert_eq!((&failed["message"], &failed["job_name"]), (&json!(message), &json!("invoice.send")));
        assert_eq!(failed["timestamp"], "1970-01-01T00:00:03.500Z");
    }

    #[test]
    fn a_sample_has_whole_jobs_and_every_failure() {
        let mut log = lines(Format::Text, 10);
        let mut whole = 0;
        for n in 0..1_000 {
            let started = Happened::Started { worker: "w".parse().unwrap(), attempt: 1 };
            let both = vec![event(n, 0, started), event(n, 5, Happened::Completed)];
            let found = log.of(&Delivery::Events(both)).lines().count();
            assert!(found == 0 || found == 2, "all lines of a job, or none");
            whole += found / 2;
        }
        assert!((50..200).contains(&whole), "{whole} of 1,000");
        let dead = (0..100).map(|n| event(n, 9, Happened::Dead { code: "X".into() })).collect();
        assert_eq!(log.of(&Delivery::Events(dead)).lines().count(), 100);
    }

    #[test]
    fn what_another_process_did_is_not_logged_here() {
        let (id, elsewhere) = event(1, 0, Happened::Completed);
        let elsewhere = JobEvent { here: Here(false), ..(*elsewhere).clone() };
        let text = lines(Format::Text, 1).of(&Delivery::Events(vec![(id, elsewhere.into())]));
        assert_eq!(text, "");
    }
}
