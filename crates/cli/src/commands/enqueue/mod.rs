//! `tidegate enqueue`: one job from flags, or many from a file.

mod csv;
mod many;
mod rows;
mod spec;

use std::fs::File;
use std::io::{self, Read};

use clap::Args;
use serde_json::json;
use tidegate_core::codes;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;
use tidegate_core::trace::TraceParent;
use tidegate_core::why::grouped;
use tidegate_store::params::{EnqueueOutcome, Enqueued, NewJob};

use self::many::Many;
use self::rows::{Common, Format};
use self::spec::Spec;
use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::Output;
use crate::parse;

/// Arguments of `enqueue`.
#[derive(Debug, Args)]
pub(crate) struct EnqueueArgs {
    /// Kind of the job; with --from, the kind of lines that name none
    #[arg(required_unless_present = "from")]
    kind: Option<String>,
    /// Payload: JSON, @FILE, or - for standard input
    #[arg(
        long,
        visible_alias = "data-json",
        value_name = "JSON",
        allow_hyphen_values = true,
        conflicts_with = "from"
    )]
    data: Option<String>,
    /// Many jobs: a file with one JSON object per line or CSV with a header, or - for standard input
    #[arg(long, value_name = "FILE")]
    from: Option<String>,
    /// jsonl or csv; by the file's ending unless said
    #[arg(long, value_enum, value_name = "FORMAT", requires = "from", hide_possible_values = true)]
    format: Option<Format>,
    /// Jobs in one commit, up to 10,000
    #[arg(long, value_name = "N", requires = "from", default_value_t = 1_000, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=limits::MAX_ENQUEUE_BATCH as i64))]
    batch: u32,
    /// Enqueue a file anew that was enqueued before: another name, other ids
    #[arg(long, value_name = "NAME", requires = "from", default_value = "", hide_default_value = true)]
    run: String,
    /// Queue other than the kind's
    #[arg(long, value_name = "QUEUE", conflicts_with = "from")]
    queue: Option<String>,
    /// Whose job it is
    #[arg(long, value_name = "TENANT", conflicts_with = "from")]
    tenant: Option<String>,
    /// Key of fairness and group limits, if not the tenant
    #[arg(long, value_name = "GROUP", conflicts_with = "from")]
    group: Option<String>,
    /// critical, high, medium or low
    #[arg(long, value_name = "PRIORITY", conflicts_with = "from")]
    priority: Option<String>,
    /// Run after this span: 250ms, 30s, 1h 30m
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true, conflicts_with_all = ["from", "at"])]
    delay: Option<String>,
    /// Run at this time: 2026-01-31T08:00:00Z
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, conflicts_with = "from")]
    at: Option<String>,
    /// Timeout of one attempt
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true, conflicts_with = "from")]
    timeout: Option<String>,
    /// Attempts in all
    #[arg(long, value_name = "N", allow_hyphen_values = true, conflicts_with = "from")]
    max_attempts: Option<String>,
    /// Retry policy by name
    #[arg(long, value_name = "POLICY", conflicts_with = "from")]
    retry: Option<String>,
    /// At most one job of the kind lives under this key
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, conflicts_with = "from")]
    unique: Option<String>,
    /// How long the key is held: pending, running (pending or running), or a span
    #[arg(
        long,
        value_name = "SCOPE",
        requires = "unique",
        default_value = "running",
        hide_default_value = true
    )]
    unique_while: String,
    /// If the key is taken: keep, replace or hasten
    #[arg(long, value_name = "MODE", requires = "unique", default_value = "keep", hide_default_value = true)]
    on_conflict: String,
    /// Id of the job, to send the same enqueue again safely
    #[arg(long, value_name = "ID", conflicts_with = "from")]
    id: Option<String>,
    /// Wait until this job is completed; may be given several times
    #[arg(long, value_name = "JOB", value_delimiter = ',', conflicts_with = "from")]
    after: Vec<String>,
    /// If a job that it waits for ends dead or cancelled: fail, ignore or wait
    #[arg(long, value_name = "RULE", requires = "after", default_value = "fail", hide_default_value = true)]
    on_dead: String,
    /// W3C trace context of the job; what TRACEPARENT in the environment says unless said
    #[arg(long, value_name = "CONTEXT", conflicts_with = "from")]
    traceparent: Option<String>,
}

/// Enqueues and prints the ids.
pub(crate) async fn run(args: EnqueueArgs, config: &Config, output: &Output) -> Result<()> {
    let now = parse::now();
    if let Some(source) = args.from {
        let common = Common { kind: args.kind, run: args.run, now };
        let format = many::format_of(&source, args.format);
        return many::run(Many { source, format, common, batch: args.batch as usize }, config, output).await;
    }
    // Everything is read and checked before the store is opened, so a mistake leaves nothing behind.
    let is_delayed = args.delay.is_some();
    let mut job = from_flags(args, now)?;
    if data::missing(config)?.is_some() {
        data::empty().enqueue(vec![job.clone()], now).await.map_err(refused)?;
    }
    let data = data::open_or_create(config).await?;
    let (checked, now) = (now, parse::now());
    if is_delayed {
        // A delay counts from now by the store's clock, which is known only here.
        job.run_at = job.run_at.map(|t| t.plus_ms(now.since(checked)));
    }
    let enqueued = data.store.enqueue(vec![job], now).await;
    data.close().await?;
    let enqueued = enqueued.map_err(refused)?;
    output.answer(&json!({ "jobs": enqueued }), || enqueued.iter().map(|one| sentence(*one)).collect())
}

fn refused(error: tidegate_store::Error) -> Failure {
    match error.code {
        codes::UNKNOWN_KIND => unknown_kind(error.detail),
        _ => error.into(),
    }
}

/// The error of a kind that is not registered.
fn unknown_kind(detail: String) -> Failure {
    Failure::new(codes::UNKNOWN_KIND, detail).hint(
        "`tidegate kinds ls` lists them; a worker's handlers register theirs, or use `tidegate kinds set NAME --queue QUEUE`",
    )
}

fn sentence(one: Enqueued) -> String {
    let id = one.id;
    match one.outcome {
        EnqueueOutcome::Created => format!("Enqueued {id}"),
        EnqueueOutcome::Kept => format!("{id} exists already and was left alone"),
        EnqueueOutcome::Replaced => format!("{id} existed and has the new payload"),
        EnqueueOutcome::Hastened => format!("{id} existed and comes sooner now"),
    }
}

fn from_flags(args: EnqueueArgs, now: Timestamp) -> Result<NewJob> {
    let payload = match args.data.as_deref() {
        None => "null".to_owned(),
        Some("-") => read_payload(io::stdin().lock())?,
        Some(text) => match text.strip_prefix('@') {
            Some(path) => read_payload(open(path)?)?,
            None => text.to_owned(),
        },
    };
    let payload = parse::payload(&payload)?;
    let max_attempts = args.max_attempts.as_deref().map(|t| parse::number("max-attempts", t)).transpose()?;
    let spec = Spec {
        kind: args.kind,
        data: None,
        queue: args.queue,
        tenant: args.tenant,
        group: args.group,
        priority: args.priority,
        delay: args.delay,
        at: args.at,
        timeout: args.timeout,
        max_attempts,
        retry: args.retry,
        unique_while: args.unique.is_some().then_some(args.unique_while),
        on_conflict: args.unique.is_some().then_some(args.on_conflict),
        unique: args.unique,
        id: args.id,
        on_dead: (!args.after.is_empty()).then_some(args.on_dead),
        after: args.after,
        traceparent: args.traceparent.or_else(around),
    };
    spec.build(None, payload, || (parse::new_id(), false), now)
}

/// The trace that this command is part of, as its environment says. What is no context is nobody's business here.
fn around() -> Option<String> {
    std::env::var("TRACEPARENT").ok().filter(|text| text.parse::<TraceParent>().is_ok())
}

fn open(path: &str) -> Result<File> {
    File::open(path).map_err(|e| {
        let what = Failure::new(codes::INVALID_REQUEST, format!("{path} could not be opened: {e}"));
        what.hint("check the path; `-` reads standard input")
    })
}

/// Reads a payload, but never much more than is allowed.
fn read_payload(source: impl Read) -> Result<String> {
    let mut text = String::new();
    // White space around the value is no part of it; some room for that.
    let bound = limits::MAX_PAYLOAD_BYTES as u64 + 4_096;
    source
        .take(bound + 1)
        .read_to_string(&mut text)
        .map_err(|e| Failure::new(codes::INVALID_PAYLOAD, format!("the payload could not be read: {e}")))?;
    if text.len() as u64 > bound {
        let most = grouped(limits::MAX_PAYLOAD_BYTES as u64);
        return Err(Failure::new(codes::INVALID_PAYLOAD, format!("the payload has more than {most} bytes"))
            .hint("keep large things elsewhere and their key in the payload"));
    }
    Ok(text)
}
