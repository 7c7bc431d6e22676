//! `tidegate tail`: what happens to jobs, as it happens.

use clap::Args;
use serde_json::{Value, json};
use tidegate_core::codes;
use tidegate_core::ids::{JobId, KindName, QueueName, TenantId};
use tidegate_core::time::Timestamp;
use tidegate_store::feed::{Delivery, EventId, Happened, JobEvent};

use super::facts;
use crate::config::{Config, nearest};
use crate::data::{self, Target};
use crate::error::{Failure, Result};
use crate::output::{Output, Style, clean, print, short_when};
use crate::parse;

/// Names of events.
const EVENTS: [&str; 10] = [
    "enqueued",
    "started",
    "completed",
    "retry",
    "snoozed",
    "released",
    "stalled",
    "dead",
    "cancelled",
    "reauthorize",
];

/// Arguments of `tail`.
#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// Only this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only this kind
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only this job
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Only these events: enqueued, started, completed, retry, snoozed, released, stalled, dead, cancelled
    #[arg(long = "event", value_name = "EVENT", value_delimiter = ',')]
    events: Vec<String>,
    /// End after this many events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

/// Which events are wanted.
#[derive(Debug)]
struct Wanted {
    queue: Option<QueueName>,
    kind: Option<KindName>,
    tenant: Option<TenantId>,
    job: Option<JobId>,
    events: Vec<String>,
}

impl Wanted {
    fn of(args: &TailArgs) -> Result<Self> {
        if let Some(unknown) = args.events.iter().find(|e| !EVENTS.contains(&e.as_str())) {
            let shown: String = unknown.chars().take(40).collect();
            let meant = nearest(&shown, EVENTS).map_or(String::new(), |e| format!("; did you mean {e}?"));
            return Err(Failure::new(codes::INVALID_REQUEST, format!("{shown:?} is not an event{meant}"))
                .hint(format!("events are {}", EVENTS.join(", "))));
        }
        Ok(Self {
            queue: parse::optional_name(args.queue.as_deref())?,
            kind: parse::optional_name(args.kind.as_deref())?,
            tenant: parse::optional_name(args.tenant.as_deref())?,
            job: args.job.as_deref().map(parse::job_id).transpose()?,
            events: args.events.clone(),
        })
    }

    fn fits(&self, event: &JobEvent) -> bool {
        self.queue.as_ref().is_none_or(|q| *q == event.queue)
            && self.kind.as_ref().is_none_or(|k| *k == event.kind)
            && self.tenant.as_ref().is_none_or(|t| event.tenant.as_ref() == Some(t))
            && self.job.is_none_or(|j| j == event.id)
            && (self.events.is_empty() || self.events.iter().any(|e| e == name(&event.what)))
    }
}

/// Follows until Ctrl-C.
pub(crate) async fn run(args: TailArgs, config: &Config, output: &Output) -> Result<()> {
    let wanted = Wanted::of(&args)?;
    let target = data::target(config)?;
    if !target.is_shared() {
        let what = match target {
            Target::Directory(dir) => format!(
                "{} is an embedded directory: only its own process hears what happens in it",
                dir.display()
            ),
            _ => "only the process itself hears what happens in its memory".into(),
        };
        return Err(Failure::new(codes::INVALID_REQUEST, what)
            .hint("run `tidegate serve --dir DIR` and follow the server: tidegate tail --store http://127.0.0.1:7433"));
    }
    let data = data::existing(config).await?;
    let mut subscription = data.store.feed().subscribe(None);
    output.note("Following; Ctrl-C ends.");
    let mut left = args.limit.unwrap_or(u64::MAX);
    let ctrl_c = tokio::signal::ctrl_c();
    let mut ctrl_c = std::pin::pin!(ctrl_c);
    while left > 0 {
        let delivery = tokio::select! {
            delivery = subscription.next() => delivery,
            _ = &mut ctrl_c => break,
        };
        match delivery {
            Delivery::Gap if output.json => print(&(json!({ "gap": true }).to_string() + "\n"))?,
            Delivery::Gap => output.note("… some events were missed; what follows is newer"),
            Delivery::Events(events) => {
                let mut text = String::new();
                for (id, event) in events
                    .iter()
                    .filter(|(_, e)| wanted.fits(e))
                    .take(usize::try_from(left).unwrap_or(usize::MAX))
                {
                    left -= 1;
                    text += &if output.json { json_line(*id, event)? } else { line(event, output.style) };
                    text.push('\n');
                }
                print(&text)?;
            }
        }
    }
    drop(subscription);
    data.close().await
}

fn name(what: &Happened) -> &'static str {
    match what {
        Happened::Enqueued { .. } => EVENTS[0],
        Happened::Started { .. } => EVENTS[1],
        Happened::Completed => EVENTS[2],
        Happened::Retry { .. } => EVENTS[3],
        Happened::Snoozed { .. } => EVENTS[4],
        Happened::Released => EVENTS[5],
        Happened::Stalled => EVENTS[6],
        Happened::Dead { .. } => EVENTS[7],
        Happened::Cancelled => EVENTS[8],
        Happened::Reauthorize { .. } => EVENTS[9],
    }
}

fn json_line(id: EventId, event: &JobEvent) -> Result<String> {
    let mut value: Value = facts(event)?;
    value["event_id"] = id.to_string().into();
    Ok(value.to_string())
}

fn line(event: &JobEvent, style: Style) -> String {
    let name = format!("{:<9}", name(&event.what));
    let name = match event.what {
        Happened::Dead { .. } => style.red(&name),
        Happened::Completed => style.green(&name),
        Happened::Retry { .. } | Happened::Stalled | Happened::Cancelled => style.yellow(&name),
        _ => name,
    };
    let detail = match &event.what {
        Happened::Enqueued { state } => state.to_string(),
        Happened::Started { worker, attempt } => format!("attempt {attempt} on {worker}"),
        Happened::Retry { run_at, code } => format!("{} after {code}", short_when(*run_at, event.at)),
        Happened::Snoozed { run_at } => short_when(*run_at, event.at),
        Happened::Dead { code } => code.clone(),
        Happened::Completed | Happened::Released | Happened::Stalled | Happened::Cancelled => String::new(),
        Happened::Reauthorize { again: true } => "its tenant is reminded to authorize again".into(),
        Happened::Reauthorize { again: false } => "its tenant is asked to authorize again".into(),
    };
    let tenant = event.tenant.as_ref().map_or(String::new(), |t| format!("  {t}"));
    let text =
        format!("{}  {name}  {}  {}{tenant}  {}", clock(event.at), event.id, event.kind, clean(&detail));
    text.trim_end().to_owned()
}

fn clock(t: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(t.0)
        .map_or_else(|_| t.to_string(), |t| t.strftime("%H:%M:%S.%3fZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(what: Happened) -> JobEvent {
        JobEvent {
            at: Timestamp(1_000),
            id: JobId::from_parts(0, 1),
            queue: "billing".parse().unwrap(),
            kind: "invoice.send".parse().unwrap(),
            tenant: Some("acme".parse().unwrap()),
            here: tidegate_store::feed::Here(true),
            what,
        }
    }

    #[test]
    fn every_event_has_its_name_and_a_line_that_fits() {
        let (worker, code) = ("w".parse().unwrap(), "HTTP_503".to_owned());
        let run_at = Timestamp(31_000);
        let all = [
            Happened::Enqueued { state: tidegate_core::job::State::Ready },
            Happened::Started { worker, attempt: 2 },
            Happened::Completed,
            Happened::Retry { run_at, code: code.clone() },
            Happened::Snoozed { run_at },
            Happened::Released,
            Happened::Stalled,
            Happened::Dead { code },
            Happened::Cancelled,
            Happened::Reauthorize { again: true },
        ];
        for (what, expected) in all.into_iter().zip(EVENTS) {
            assert_eq!(name(&what), expected);
            let event = event(what);
            assert_eq!(facts(&event).unwrap()["event"], expected);
            let line = line(&event, Style::plain());
            assert!(line.starts_with("00:00:01.000Z  ") && line.contains("invoice.send  acme"), "{line}");
        }
    }
}
