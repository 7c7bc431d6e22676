//! Alerts of a server: what was measured is judged by the rules of [`tidegate_core::alerts`], what somebody is to be told becomes a
//! job, and whoever has the role delivers it.
//!
//! - What is known of incidents, and silences, are records: they survive restarts and are the same for every process.
//! - Of several processes one evaluates: it says so in a record that it renews. Two that meet find the same tellings, and their
//!   jobs have the same unique key.
//! - A telling is one job per channel in [`QUEUE`]: a channel that is down is tried again for about a day, then it is a dead letter.

mod channel;
mod deliver;
mod evaluator;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::alerts::{Incident, MAX_SILENCE_MS, Phase, Severity, Silence, Telling, What, is_target};
use tidegate_core::codes;
use tidegate_core::ids::{JobId, KindName, QueueName};
use tidegate_core::job::{OnConflict, OnDead, Unique, UniqueScope};
use tidegate_core::near::is_slip;
use tidegate_core::payload::Payload;
use tidegate_core::registry::KindSettings;
use tidegate_core::retry::{Backoff, Jitter, RetryPolicy};
use tidegate_core::time::Timestamp;
use tidegate_core::{ids, limits};
use tidegate_store::params::{NewJob, Record, Shelf};
use tidegate_store::{Error, Result, Store};
use tidegate_wire::alerts::{Alert, NewSilence, SilenceView};

pub(crate) use self::deliver::deliver;
pub(crate) use self::evaluator::watch;
pub use self::settings::{AlertSettings, Channel};
use crate::Clock;
use crate::mint::Mint;

/// Queue of what the program does for itself.
pub const QUEUE: &str = "tidegate.internal";
/// Kind of a telling.
pub const KIND: &str = "tidegate.alert";
/// Kinds that begin like this are the program's own: nobody else enqueues them.
pub const RESERVED: &str = tidegate_core::limits::RESERVED_KINDS;

/// How long it is known that something was told.
const TOLD_MS: i64 = 30 * 24 * 3_600_000;
/// The record by which a process says that it evaluates.
pub(crate) const EVALUATOR: &str = "#evaluator";

/// What evaluating and delivering need.
pub(crate) struct Post {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) settings: Arc<AlertSettings>,
    pub(crate) clock: Clock,
    pub(crate) mint: Mint,
    /// This run of the process.
    pub(crate) process: u64,
}

impl Post {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now().plus_ms(self.store.clock_ahead_ms())
    }
}

/// What a job of [`KIND`] carries: no secret, and nothing of any job's payload.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Errand {
    pub(crate) channel: String,
    pub(crate) incident: String,
    pub(crate) telling: Telling,
}

/// Incidents that are open or about to be, the worst first.
pub async fn list(store: &dyn Store, now: Timestamp) -> Result<Vec<Alert>> {
    let silences = silences(store, now).await?;
    let mut open: Vec<Incident> =
        incidents(store, now).await?.into_iter().filter(|i| i.phase != Phase::Quiet).collect();
    open.sort_by(|a, b| {
        let firing = |i: &Incident| i.phase == Phase::Firing;
        firing(b).cmp(&firing(a)).then(b.severity.cmp(&a.severity)).then(a.since.cmp(&b.since))
    });
    let silent = |i: &Incident| silences.iter().any(|(_, s)| s.covers(&i.rule, &i.target, now));
    Ok(open.into_iter().map(|i| (silent(&i), i)).map(|(silent, i)| Alert::new(i, silent)).collect())
}

pub(crate) async fn incidents(store: &dyn Store, now: Timestamp) -> Result<Vec<Incident>> {
    let records = store.records(Shelf::Alerts, now).await?;
    // What cannot be read was written by another version: it is begun anew.
    Ok(records.iter().filter_map(|r| serde_json::from_str(&r.body).ok()).collect())
}

/// Silences that have not ended, with their ids.
pub(crate) async fn silences(store: &dyn Store, now: Timestamp) -> Result<Vec<(String, Silence)>> {
    let records = store.records(Shelf::Silences, now).await?;
    let read = |r: Record| Some((r.key, serde_json::from_str(&r.body).ok()?));
    Ok(records.into_iter().filter_map(read).collect())
}

/// The silences as they are shown.
pub async fn list_silences(store: &dyn Store, now: Timestamp) -> Result<Vec<SilenceView>> {
    let silences = silences(store, now).await?;
    Ok(silences.into_iter().map(|(id, s)| SilenceView::new(id, s)).collect())
}

/// Begins a silence. `by` is who asks.
pub async fn silence(
    store: &dyn Store,
    settings: &AlertSettings,
    new: NewSilence,
    by: String,
    now: Timestamp,
) -> Result<SilenceView> {
    let refuse = |why: &str| Error::new(codes::INVALID_REQUEST, why.to_owned());
    let for_ms = i64::try_from(new.for_ms).unwrap_or(i64::MAX);
    if !(1..=MAX_SILENCE_MS).contains(&for_ms) {
        return Err(refuse("a silence lasts for 1 ms to 30 days"));
    }
    let long = |text: &Option<String>| text.as_ref().is_some_and(|t| t.is_empty() || t.len() > 256);
    if long(&new.rule) || long(&new.target) || by.len() > limits::MAX_NAME_BYTES {
        return Err(refuse("names of rules and targets have 1 to 256 bytes"));
    }
    if new.why.trim().is_empty() || new.why.len() > limits::MAX_NOTE_BYTES {
        return Err(refuse("say why, in at most 1,024 bytes"));
    }
    if let Some(target) = new.target.as_deref().filter(|target| !is_target(target)) {
        return Err(refuse(&format!(
            "{target:?} is no target: it is queue:NAME, kind:NAME, domain:NAME or system"
        )));
    }
    if let Some(rule) = &new.rule {
        // Another process may judge by rules of its own: only what looks like a slip is refused.
        let rules = settings.in_force(&store.kinds().await?);
        let unknown = rules.iter().all(|known| known.id != *rule);
        if let Some(meant) = rules.iter().find(|known| unknown && is_slip(rule, &known.id)) {
            return Err(refuse(&format!("there is no rule {rule:?}; did you mean {:?}?", meant.id)));
        }
    }
    let silence =
        Silence { rule: new.rule, target: new.target, until: now.plus_ms(for_ms), by, why: new.why };
    let id = format!("sil_{:012x}", Mint::random().seed() >> 16);
    let body = serde_json::to_string(&silence).map_err(|e| Error::internal(e.to_string()))?;
    let record = Record { shelf: Shelf::Silences, key: id.clone(), body, expires: Some(silence.until) };
    store.put_record(record, now).await?;
    Ok(SilenceView::new(id, silence))
}

/// Ends a silence. False if there is none.
pub async fn unsilence(store: &dyn Store, id: &str) -> Result<bool> {
    store.delete_record(Shelf::Silences, id.to_owned()).await
}

/// Begins to tell a channel that it is tried. Returns the job that does it; none where the channel is a log, which has it then.
pub async fn test(
    store: &dyn Store,
    settings: &AlertSettings,
    channel: &str,
    now: Timestamp,
) -> Result<Option<String>> {
    if !settings.channels.contains_key(channel) {
        let known: Vec<&str> = settings.channels.keys().map(String::as_str).collect();
        let detail = format!("no channel {channel:?} is set up; there are: {}", known.join(", "));
        return Err(Error::new(codes::CHANNEL_NOT_FOUND, detail));
    }
    let mint = Mint::random();
    let telling = Telling {
        what: What::Test,
        rule: "test".into(),
        target: "system".into(),
        number: mint.seed() >> 16,
        nth: 0,
        severity: Severity::Info,
        message: "A test from Tidegate: this channel works".into(),
        runbook: "README.md".into(),
        channels: vec![channel.to_owned()],
        since: now,
        at: now,
    };
    let jobs = hand_out(store, settings, &telling, &Told::new(), &mint, now).await?;
    Ok(jobs.values().next().map(ToString::to_string))
}

/// The job that told each channel last.
type Told = BTreeMap<String, JobId>;

/// Hands a telling to its channels: to the log at once, to the others as jobs, which are there once whoever asks. Each waits for
/// the one that told its channel before: what is over must not be told before that it began, or a pager stays open for ever.
pub(crate) async fn tell(post: &Post, telling: &Telling, before: &Told) -> Result<Told> {
    hand_out(&*post.store, &post.settings, telling, before, &post.mint, post.now()).await
}

async fn hand_out(
    store: &dyn Store,
    settings: &AlertSettings,
    telling: &Telling,
    before: &Told,
    mint: &Mint,
    now: Timestamp,
) -> Result<Told> {
    let mut logged = false;
    let (mut names, mut jobs) = (vec![], vec![]);
    for name in &telling.channels {
        if *settings.channel(name) == Channel::Log {
            if !std::mem::replace(&mut logged, true) {
                log(telling, &settings.runbooks);
            }
            continue;
        }
        let mut job = errand(telling, name, mint, now)?;
        if let Some(earlier) = before.get(name)
            && is_under_way(store, *earlier).await?
        {
            // An earlier word that nobody could be told is no reason to keep quiet about this one.
            (job.after, job.on_dead) = (vec![*earlier], OnDead::Ignore);
        }
        names.push(name.clone());
        jobs.push(job);
    }
    if jobs.is_empty() {
        return Ok(Told::new());
    }
    ensure(store, now).await?;
    let jobs = store.enqueue(jobs, now).await?;
    Ok(names.into_iter().zip(jobs.into_iter().map(|e| e.id)).collect())
}

/// A finished one need not be waited for, and may be gone by now.
async fn is_under_way(store: &dyn Store, job: JobId) -> Result<bool> {
    Ok(store.get(job).await?.is_some_and(|job| !job.state.is_final()))
}

fn errand(telling: &Telling, channel: &str, mint: &Mint, now: Timestamp) -> Result<NewJob> {
    let internal = |e: String| Error::internal(e);
    let kind = KindName::new(KIND).map_err(|e| internal(e.to_string()))?;
    let errand =
        Errand { channel: channel.to_owned(), incident: telling.incident(), telling: telling.clone() };
    let body = serde_json::to_string(&errand).map_err(|e| internal(e.to_string()))?;
    let mut job = NewJob::new(mint.job_id(now), kind, Payload::trusted(body));
    job.unique = Some(Unique {
        key: ids::UniqueKey::new(telling.key(channel)).map_err(|e| internal(e.to_string()))?,
        scope: UniqueScope::PeriodMs(TOLD_MS),
        on_conflict: OnConflict::Keep,
    });
    Ok(job)
}

/// Queue and kind of tellings, made with the first of them.
async fn ensure(store: &dyn Store, now: Timestamp) -> Result<()> {
    let internal = |e: ids::InvalidName| Error::internal(e.to_string());
    let queue = QueueName::new(QUEUE).map_err(internal)?;
    let kind = KindName::new(KIND).map_err(internal)?;
    if store.kinds().await?.iter().any(|k| k.name == kind) {
        return Ok(());
    }
    store.ensure_queue(queue.clone(), now).await?;
    let mut settings = KindSettings::new(queue);
    settings.description = "Tells a channel of an alert.".into();
    settings.retry = Some(RetryPolicy {
        max_attempts: limits::MAX_ATTEMPTS,
        backoff: Backoff::Exponential { base_ms: 1_000, factor: 2.0, cap_ms: 15 * 60_000 },
        jitter: Jitter::PlusTenth,
        retry_on: vec![],
        no_retry_on: vec![],
    });
    store.put_kind(kind, settings).await
}

fn log(telling: &Telling, runbooks: &str) {
    let text = channel::text(telling, &format!("{runbooks}{}", telling.runbook));
    match (telling.what, telling.severity) {
        (What::Resolved | What::Test, _) | (_, Severity::Info) => tracing::info!("alert: {text}"),
        (_, Severity::Warning) => tracing::warn!("alert: {text}"),
        (_, Severity::Error | Severity::Critical) => tracing::error!("alert: {text}"),
    }
}
