//! Many jobs from a file: checked as a whole first where that is possible, then stored batch by batch behind a bar. Each
//! batch is one commit. Whatever stops it, running the same command again goes on: see [`super::rows`].

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde_json::json;
use tidegate_core::codes;
use tidegate_core::ids::{KindName, QueueName};
use tidegate_core::why::grouped;
use tidegate_store::Store;
use tidegate_store::params::{EnqueueOutcome, Enqueued};
use tokio::sync::mpsc;

use super::rows::{self, Common, Format, Row};
use super::unknown_kind;
use crate::commands::parks::no_queue;
use crate::config::{Config, nearest};
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Bulk, Output, plural};

/// Most different kinds and queues that one file may name.
const NAMES_MAX: usize = 10_000;
/// Ids printed for programs; beyond that only counts.
const IDS_MAX: usize = 10_000;
/// Batches read ahead of the store.
const AHEAD: usize = 2;

/// What to enqueue.
#[derive(Debug)]
pub(super) struct Many {
    /// Path, or `-`.
    pub(super) source: String,
    pub(super) format: Format,
    pub(super) common: Common,
    pub(super) batch: usize,
}

/// Names used by a file, each with the first line that uses it, and its number of rows.
#[derive(Debug, Default)]
struct Survey {
    kinds: BTreeMap<KindName, u64>,
    queues: BTreeMap<QueueName, u64>,
    rows: u64,
}

#[derive(Debug, Default)]
struct Tally {
    created: u64,
    existed: u64,
    /// The last line that is stored.
    line: u64,
    ids: Vec<Enqueued>,
}

/// Enqueues the file.
pub(super) async fn run(mut many: Many, config: &Config, output: &Output) -> Result<()> {
    // Standard input and pipes can be read only once: what is wrong there is found on the way.
    let readable_twice = many.source != "-" && Path::new(&many.source).is_file();
    let survey = if readable_twice { Some(survey(&many)?) } else { None };
    if data::missing(config)?.is_some() {
        return Err(refused_by_none(&many, survey.as_ref(), output).await);
    }
    let data = data::open_or_create(config).await?;
    // Delays count from now by the store's clock, which is known only here.
    many.common.now = crate::parse::now();
    if let Some(survey) = &survey {
        let known = known(&*data.store, survey, &many.source).await;
        if known.is_err() {
            data.close().await?;
        }
        known?;
    }
    let bulk = Bulk::start(output, "Enqueueing", survey.as_ref().map_or(0, |s| s.rows));
    let mut tally = Tally::default();
    let stored = store_all(&*data.store, &many, &mut tally, &bulk).await;
    drop(bulk);
    data.close().await?;
    stored.map_err(|f| resumable(f, &many, &tally))?;
    if tally.created + tally.existed == 0 {
        return Err(nothing(&many.source));
    }
    answer(&tally, &many, output)
}

/// A store that is not there yet knows no kind, so it takes no job: an empty one says so, and nothing is made.
async fn refused_by_none(many: &Many, survey: Option<&Survey>, output: &Output) -> Failure {
    let store = data::empty();
    if let Some(survey) = survey
        && let Err(failure) = known(&*store, survey, &many.source).await
    {
        return failure;
    }
    let bulk = Bulk::start(output, "Enqueueing", 0);
    let mut tally = Tally::default();
    match store_all(&*store, many, &mut tally, &bulk).await {
        Err(failure) => resumable(failure, many, &tally),
        Ok(()) => nothing(&many.source),
    }
}

fn open(source: &str) -> Result<Box<dyn BufRead + Send>> {
    if source == "-" {
        Ok(Box::new(BufReader::new(io::stdin())))
    } else {
        Ok(Box::new(BufReader::new(super::open(source)?)))
    }
}

fn nothing(source: &str) -> Failure {
    Failure::new(codes::INVALID_BATCH, format!("{source} holds no job"))
        .hint("one JSON object per line, such as {\"kind\":\"invoice.send\",\"data\":{\"order\":7}}; or CSV with a header")
}

/// Reads the whole file without storing anything.
fn survey(many: &Many) -> Result<Survey> {
    let mut survey = Survey::default();
    for row in rows::read(open(&many.source)?, many.format, many.common.clone()) {
        let refuse =
            |line, f: Failure| f.detail(format!("in line {line} of {}; nothing was stored", many.source));
        let Row { line, job } = row.map_err(|(line, f)| refuse(line, f))?;
        survey.rows += 1;
        survey.kinds.entry(job.kind).or_insert(line);
        if let Some(queue) = job.queue {
            survey.queues.entry(queue).or_insert(line);
        }
        if survey.kinds.len().max(survey.queues.len()) > NAMES_MAX {
            let most = grouped(NAMES_MAX as u64);
            return Err(refuse(
                line,
                Failure::new(codes::INVALID_BATCH, format!("it names more than {most} kinds or queues")),
            ));
        }
    }
    if survey.rows == 0 { Err(nothing(&many.source)) } else { Ok(survey) }
}

/// Whether the store knows every kind and queue.
async fn known(store: &dyn Store, survey: &Survey, source: &str) -> Result<()> {
    let place = |line: &u64, f: Failure| f.detail(format!("in line {line} of {source}; nothing was stored"));
    let kinds = store.kinds().await?;
    for (kind, line) in &survey.kinds {
        if !kinds.iter().any(|k| k.name == *kind) {
            let near = nearest(kind.as_str(), kinds.iter().map(|k| k.name.as_str()));
            let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
            return Err(place(line, unknown_kind(format!("kind `{kind}` is not registered{near}"))));
        }
    }
    let queues = store.settings().await?;
    for (queue, line) in &survey.queues {
        if !queues.iter().any(|(name, _)| name == queue) {
            return Err(place(line, no_queue(queue, queues.iter().map(|(name, _)| name))));
        }
    }
    Ok(())
}

type Batch = Result<Vec<Row>, (u64, Failure)>;

/// Reads in a thread of its own, so that Ctrl-C is heard while a pipe says nothing.
fn read_batches(many: &Many, source: Box<dyn BufRead + Send>) -> mpsc::Receiver<Batch> {
    let (send, batches) = mpsc::channel(AHEAD);
    let (format, common, size) = (many.format, many.common.clone(), many.batch);
    tokio::task::spawn_blocking(move || {
        let mut batch = Vec::with_capacity(size);
        for row in rows::read(source, format, common) {
            match row {
                Ok(row) => batch.push(row),
                Err(wrong) => {
                    // What comes before a mistake is stored.
                    if batch.is_empty() || send.blocking_send(Ok(std::mem::take(&mut batch))).is_ok() {
                        let _ = send.blocking_send(Err(wrong));
                    }
                    return;
                }
            }
            if batch.len() == size && send.blocking_send(Ok(std::mem::take(&mut batch))).is_err() {
                return;
            }
        }
        if !batch.is_empty() {
            let _ = send.blocking_send(Ok(batch));
        }
    });
    batches
}

async fn store_all(store: &dyn Store, many: &Many, tally: &mut Tally, bulk: &Bulk) -> Result<()> {
    let mut batches = read_batches(many, open(&many.source)?);
    loop {
        let batch = tokio::select! {
            biased;
            () = bulk.interruption() => {
                return Err(Failure::new(codes::INTERRUPTED, "stopped by Ctrl-C"));
            }
            batch = batches.recv() => batch,
        };
        let Some(batch) = batch else { return Ok(()) };
        let batch = batch.map_err(|(line, f)| f.detail(format!("in line {line} of {}", many.source)))?;
        let lines: Vec<u64> = batch.iter().map(|r| r.line).collect();
        let jobs = batch.into_iter().map(|r| r.job).collect();
        let replies = store.enqueue(jobs, crate::parse::now()).await.map_err(|e| located(e, &lines, many))?;
        let created = replies.iter().filter(|r| r.outcome == EnqueueOutcome::Created).count() as u64;
        tally.created += created;
        tally.existed += replies.len() as u64 - created;
        tally.line = lines.last().copied().unwrap_or(tally.line);
        if tally.ids.len() < IDS_MAX {
            tally.ids.extend(&replies);
        }
        bulk.add(replies.len() as u64);
    }
}

/// A refusal of the store says `job 3 of 1000: …`; people look for the line.
fn located(error: tidegate_store::Error, lines: &[u64], many: &Many) -> Failure {
    let place = error.detail.strip_prefix("job ").and_then(|rest| {
        let (number, rest) = rest.split_once(" of ")?;
        let (_, what) = rest.split_once(": ")?;
        Some((*lines.get(number.parse::<usize>().ok()?.checked_sub(1)?)?, what.to_owned()))
    });
    let source = &many.source;
    match (place, lines) {
        (Some((line, what)), _) => {
            Failure::new(error.code, what).detail(format!("in line {line} of {source}"))
        }
        (None, [first, .., last]) => {
            Failure::from(error).detail(format!("in lines {first} to {last} of {source}"))
        }
        (None, [line]) => Failure::from(error).detail(format!("in line {line} of {source}")),
        (None, []) => error.into(),
    }
}

/// Says how far it came and how to go on.
fn resumable(failure: Failure, many: &Many, tally: &Tally) -> Failure {
    let done = tally.created + tally.existed;
    if done == 0 {
        return failure.detail("nothing was stored");
    }
    let stored = format!("everything up to line {} is stored: {}", grouped(tally.line), plural(done, "job"));
    let interrupted = failure.code() == codes::INTERRUPTED;
    let failure = failure.detail(stored).detail(
        "ids are derived from each line and its number, so what is stored is recognised and not stored twice",
    );
    let again = if many.source == "-" { "send the same input again" } else { "run the same command again" };
    failure.hint(if interrupted {
        format!("{again} to go on")
    } else {
        format!("mend it, then {again} to go on")
    })
}

fn answer(tally: &Tally, many: &Many, output: &Output) -> Result<()> {
    let mut value = json!({
        "enqueued": tally.created,
        "existed": tally.existed,
        "last_line": tally.line,
        "run": many.common.run,
    });
    if tally.created + tally.existed <= IDS_MAX as u64 {
        value["jobs"] = json!(tally.ids);
    }
    output.answer(&value, || {
        let rest = match tally.existed {
            0 => String::new(),
            n => format!(
                "; {} existed, left alone (the same line enqueued before; --run NAME enqueues the file anew)",
                grouped(n)
            ),
        };
        format!("Enqueued {}{rest}.", plural(tally.created, "job"))
    })
}

/// The format of a file by its name.
pub(super) fn format_of(source: &str, named: Option<Format>) -> Format {
    let csv = Path::new(source).extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"));
    named.unwrap_or(if csv { Format::Csv } else { Format::Jsonl })
}
