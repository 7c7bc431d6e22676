//! `tidegate enqueue`: one job from flags, or many from a file, in one commit.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use clap::Args;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tidegate_core::codes;
use tidegate_core::ids::UniqueKey;
use tidegate_core::job::{OnConflict, Unique, UniqueScope};
use tidegate_core::limits;
use tidegate_core::payload;
use tidegate_core::time::Timestamp;
use tidegate_core::why::grouped;
use tidegate_store::params::{EnqueueOutcome, Enqueued, NewJob};

use super::queues::policy;
use crate::args::Global;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Output, plural};
use crate::parse;

/// Room for the fields around a payload in one line of a file.
const LINE_MAX: usize = limits::MAX_PAYLOAD_BYTES + 64 * 1024;

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
    /// Many jobs: a file with one JSON object per line, or - for standard input; all or nothing
    #[arg(long, value_name = "FILE")]
    from: Option<String>,
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
}

/// One job as text: a line of a file, or the flags.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    kind: Option<String>,
    data: Option<Box<RawValue>>,
    queue: Option<String>,
    tenant: Option<String>,
    group: Option<String>,
    priority: Option<String>,
    delay: Option<String>,
    at: Option<String>,
    timeout: Option<String>,
    max_attempts: Option<u32>,
    retry: Option<String>,
    unique: Option<String>,
    unique_while: Option<String>,
    on_conflict: Option<String>,
    id: Option<String>,
}

/// Enqueues and prints the ids.
pub(crate) async fn run(args: EnqueueArgs, global: &Global, output: &Output) -> Result<()> {
    // Everything is read and checked before the store is opened, so a mistake leaves nothing behind.
    let now = parse::now();
    let jobs = match &args.from {
        Some(source) => from_lines(source, args.kind.as_deref(), now)?,
        None => vec![from_flags(args, now)?],
    };
    let single = jobs.len() == 1;
    let data = data::open_or_create(global).await?;
    let enqueued = data.store.enqueue(jobs, now).await;
    data.close().await?;
    let enqueued = enqueued.map_err(|e| match e.code {
        codes::UNKNOWN_KIND => Failure::from(e).hint(
            "`tidegate kinds ls` lists them; a worker's handlers register theirs, or use `tidegate kinds set NAME --queue QUEUE`",
        ),
        _ => e.into(),
    })?;
    output.answer(&json!({ "jobs": enqueued }), || match enqueued.as_slice() {
        [one] if single => sentence(*one),
        many => {
            let created = many.iter().filter(|e| e.outcome == EnqueueOutcome::Created).count();
            let existing = many.len() - created;
            let rest =
                if existing > 0 { format!("; {} existed", grouped(existing as u64)) } else { String::new() };
            format!("Enqueued {}{rest}.", plural(created as u64, "job"))
        }
    })
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
    };
    build(&spec, None, payload, now)
}

fn from_lines(source: &str, kind: Option<&str>, now: Timestamp) -> Result<Vec<NewJob>> {
    let mut reader: Box<dyn BufRead> =
        if source == "-" { Box::new(io::stdin().lock()) } else { Box::new(BufReader::new(open(source)?)) };
    let mut jobs = vec![];
    for number in 1_u64.. {
        let mut line = String::new();
        let read = reader.by_ref().take(LINE_MAX as u64 + 1).read_line(&mut line);
        let at = |f: Failure| f.detail(format!("in line {number} of {source}; nothing was stored"));
        match read.map_err(|e| at(Failure::new(codes::INVALID_REQUEST, e.to_string())))? {
            0 => break,
            n if n > LINE_MAX => {
                let refused = Failure::new(
                    codes::INVALID_PAYLOAD,
                    "the payload is not acceptable: the line is too long",
                );
                return Err(at(refused));
            }
            _ if line.trim().is_empty() => continue,
            _ => {}
        }
        if jobs.len() == limits::MAX_ENQUEUE_BATCH {
            let most = grouped(limits::MAX_ENQUEUE_BATCH as u64);
            return Err(Failure::new(codes::INVALID_BATCH, format!("{source} holds more than {most} jobs"))
                .detail("nothing was stored")
                .hint(format!("split it: `split -l {} {source}`", limits::MAX_ENQUEUE_BATCH)));
        }
        jobs.push(from_line(&line, kind, now).map_err(at)?);
    }
    if jobs.is_empty() {
        return Err(Failure::new(codes::INVALID_BATCH, format!("{source} holds no job"))
            .hint("one JSON object per line, such as {\"kind\":\"invoice.send\",\"data\":{\"order\":7}}"));
    }
    Ok(jobs)
}

fn from_line(line: &str, kind: Option<&str>, now: Timestamp) -> Result<NewJob> {
    // Depth first: the parser below gives up near its own limit with a less helpful message.
    if payload::depth(line) > limits::MAX_PAYLOAD_DEPTH + 1 {
        return Err(tidegate_core::payload::InvalidPayload::TooDeep.into());
    }
    let spec: Spec = serde_json::from_str(line).map_err(|e| {
        Failure::new(codes::INVALID_REQUEST, format!("a job could not be read: {e}"))
            .hint("a line looks like {\"kind\":\"invoice.send\",\"data\":{\"order\":7},\"tenant\":\"acme\"}")
    })?;
    let payload = parse::payload(spec.data.as_ref().map_or("null", |d| d.get()))?;
    build(&spec, kind, payload, now)
}

fn build(spec: &Spec, kind: Option<&str>, payload: payload::Payload, now: Timestamp) -> Result<NewJob> {
    let kind = spec.kind.as_deref().or(kind).ok_or_else(|| {
        Failure::new(codes::INVALID_REQUEST, "a job names no kind")
            .hint("give every line a \"kind\", or name one: tidegate enqueue KIND --from FILE")
    })?;
    let id = spec.id.as_deref().map(parse::job_id).transpose()?;
    let mut job = NewJob::new(id.unwrap_or_else(parse::new_id), parse::name(kind)?, payload);
    job.id_may_exist = id.is_some();
    job.queue = parse::optional_name(spec.queue.as_deref())?;
    job.tenant = parse::optional_name(spec.tenant.as_deref())?;
    job.group = parse::optional_name(spec.group.as_deref())?;
    job.priority = spec.priority.as_deref().map(parse::word).transpose()?;
    job.run_at = run_at(spec, now)?;
    job.timeout_ms = spec.timeout.as_deref().map(parse::span).transpose()?;
    job.max_attempts = spec.max_attempts;
    job.retry = spec.retry.as_deref().map(policy).transpose()?;
    job.unique = unique(spec)?;
    Ok(job)
}

fn run_at(spec: &Spec, now: Timestamp) -> Result<Option<Timestamp>> {
    let run_at = match (&spec.delay, &spec.at) {
        (Some(_), Some(_)) => {
            return Err(Failure::new(codes::INVALID_TIME, "a job names both a delay and a time"));
        }
        (Some(delay), None) => Some(now.plus_ms(parse::span(delay)?)),
        (None, Some(at)) => Some(parse::instant(at)?),
        (None, None) => None,
    };
    match run_at {
        Some(t) if t.since(now) > limits::MAX_DELAY_MS => {
            let named = spec.delay.as_ref().or(spec.at.as_ref()).map_or("", String::as_str);
            Err(Failure::new(codes::INVALID_TIME, format!("{named:?} is more than ten years ahead")))
        }
        other => Ok(other),
    }
}

fn unique(spec: &Spec) -> Result<Option<Unique>> {
    let Some(key) = &spec.unique else { return Ok(None) };
    let scope = match spec.unique_while.as_deref() {
        None | Some("running") => UniqueScope::PendingOrRunning,
        Some("pending") => UniqueScope::Pending,
        Some(span) => UniqueScope::PeriodMs(parse::span(span)?),
    };
    let on_conflict = match spec.on_conflict.as_deref() {
        None | Some("keep") => OnConflict::Keep,
        Some("replace") => OnConflict::Replace,
        Some("hasten") => OnConflict::Hasten,
        Some(other) => {
            let shown: String = other.chars().take(40).collect();
            return Err(Failure::new(codes::INVALID_REQUEST, format!("{shown:?} is not a conflict mode"))
                .hint("use keep, replace or hasten"));
        }
    };
    Ok(Some(Unique { key: UniqueKey::new(key)?, scope, on_conflict }))
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
