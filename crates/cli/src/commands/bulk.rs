//! Commands over many jobs: show what will be touched, ask, work in small durable steps behind a bar. Ctrl-C stops
//! between two steps; the same command goes on where it stopped.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_core::codes;
use tidegate_core::ids::{JobId, Seq, TenantId};
use tidegate_core::job::{DeadLetter, Resolution, Review};
use tidegate_core::why::grouped;
use tidegate_store::Store;
use tidegate_store::params::{CancelJob, CancelReply, Causes, Erase, JobQuery, Recover, Recovered, Resolve};
use tokio::task::JoinSet;

use super::dead::{Died, causes_table};
use super::filter::{self, Affected, Filter};
use super::jobs;
use crate::args::Consent;
use crate::config::Config;
use crate::consent::{self, Decision};
use crate::data::{self, Data};
use crate::error::{Failure, Result};
use crate::output::{Bulk, Output, clean, plural, short_when};
use crate::parse;

/// Writes in one step: concurrent ones share a commit, and Ctrl-C is looked at after each step.
const STEP: usize = 256;
/// Letters recovered in one commit: larger ones gain nothing, and hold up others for longer.
const RECOVER_STEP: usize = 1_000;
/// Rows an erase looks at in one step.
const ERASE_SCAN: usize = 10_000;

/// What came of bulk work.
struct Tally {
    done: u64,
    skipped: u64,
    interrupted: bool,
}

/// Cancels everything that fits the query.
pub(crate) async fn cancel(
    query: JobQuery,
    matching: &Filter,
    note: &str,
    consent: Consent,
    config: &Config,
    output: &Output,
) -> Result<()> {
    let data = data::existing(config).await?;
    let affected = filter::affected(&*data.store, matching.by_store_clock(query)?, output).await?;
    let words = matching.words();
    let what = format!("Cancel {} ({words})?", plural(affected.ids.len() as u64, "job"));
    let shown = Shown::jobs(&affected, output);
    if let Some(answer) = decide(&data, &affected, matching, shown, (&what, consent), output).await? {
        data.close().await?;
        return answer.print(output, "cancel");
    }
    let bulk = Bulk::start(output, "Cancelling", affected.ids.len() as u64);
    let note = note.to_owned();
    let tally = concurrently(&data.store, &affected.ids, &bulk, move |store, id| {
        let note = note.clone();
        async move {
            let reply = store.cancel(CancelJob { id, note, cascade: false, now: parse::now() }).await;
            Ok(!matches!(reply?, CancelReply::AlreadyFinished(_)))
        }
    })
    .await?;
    drop(bulk);
    data.close().await?;
    tally.print(output, "cancelled", "finished meanwhile")
}

/// Recovers dead letters as new jobs.
pub(crate) async fn recover(which: Which, consent: Consent, config: &Config, output: &Output) -> Result<()> {
    let data = data::existing(config).await?;
    let ids = match which {
        Which::Named(ids) => {
            if consent.dry_run {
                let mut died = Died::default();
                for &id in &ids {
                    died.count(&super::get(&*data.store, id).await?);
                }
                data.close().await?;
                let shown = Shown::default().with_causes(died, output);
                return Answer::DryRun { jobs: ids.len() as u64, shown }.print(output, "recover");
            }
            ids
        }
        Which::Matching(matching) => match matching.ids(&data, "Recover", consent, output).await? {
            Ok(ids) => ids,
            Err(answer) => {
                data.close().await?;
                return answer.print(output, "recover");
            }
        },
    };
    let single = (ids.len() == 1).then(|| ids[0]);
    let bulk = Bulk::start(output, "Recovering", ids.len() as u64);
    let mut tally = Tally { done: 0, skipped: 0, interrupted: false };
    let mut rows: Vec<Value> = vec![];
    for step in ids.chunks(RECOVER_STEP) {
        if bulk.interrupted() {
            tally.interrupted = true;
            break;
        }
        let letters = step.iter().map(|&dead| Recover { dead, new_id: parse::new_id() }).collect();
        for (id, reply) in step.iter().zip(data.store.recover(letters, parse::now()).await?) {
            match reply {
                Recovered::As(_) => tally.done += 1,
                Recovered::NotDead if single.is_some() => return Err(not_dead(&*data.store, *id).await?),
                Recovered::Already(_) | Recovered::NotDead | Recovered::Resolved => tally.skipped += 1,
            }
            rows.push(json!({ "dead": id, "reply": reply }));
        }
        bulk.add(step.len() as u64);
    }
    drop(bulk);
    data.close().await?;
    let tally = tally.whole("recovered")?;
    let mut value = tally.json("recovered");
    value["letters"] = rows.clone().into();
    output.answer(&value, || match rows.as_slice() {
        [one] => {
            let line = |key: &str| one["reply"][key].as_str().map(str::to_owned);
            match (line("as"), line("already")) {
                (Some(new), _) => format!("Recovered as {new}, with a fresh attempt budget."),
                (_, Some(old)) => format!("It was recovered before, as {old}; nothing was changed."),
                _ => tally.words("recovered", "were recovered before or are not dead"),
            }
        }
        _ => tally.words("recovered", "were recovered before or are not dead"),
    })
}

/// Settles dead letters without running them again.
pub(crate) async fn resolve(
    which: Which,
    resolution: Resolution,
    by: String,
    consent: Consent,
    config: &Config,
    output: &Output,
) -> Result<()> {
    let data = data::existing(config).await?;
    let ids = match which {
        Which::Named(ids) => {
            let (mut settled, mut died) = (None, Died::default());
            for &id in &ids {
                let job = super::get(&*data.store, id).await?;
                died.count(&job);
                match job.dead {
                    None => return Err(not_dead(&*data.store, id).await?),
                    Some(letter) => settled = (letter.review != Review::PendingReview).then_some(letter),
                }
            }
            if consent.dry_run {
                data.close().await?;
                let shown = Shown::default().with_causes(died, output);
                return Answer::DryRun { jobs: ids.len() as u64, shown }.print(output, "resolve");
            }
            if let ([id], Some(letter)) = (ids.as_slice(), settled) {
                data.close().await?;
                return settled_before(*id, &letter, output);
            }
            ids
        }
        Which::Matching(matching) => match matching.ids(&data, "Resolve", consent, output).await? {
            Ok(ids) => ids,
            Err(answer) => {
                data.close().await?;
                return answer.print(output, "resolve");
            }
        },
    };
    let bulk = Bulk::start(output, "Resolving", ids.len() as u64);
    let tally = concurrently(&data.store, &ids, &bulk, move |store, id| {
        let by = by.clone();
        async move {
            store.resolve(Resolve { id, resolution, by, now: parse::now() }).await?;
            Ok(true)
        }
    })
    .await?;
    drop(bulk);
    data.close().await?;
    tally.print(output, "resolved", "had been settled before")
}

/// Settling a letter twice changes nothing, and says what was decided the first time.
fn settled_before(id: JobId, letter: &DeadLetter, output: &Output) -> Result<()> {
    let value =
        json!({ "dry_run": false, "resolved": 0, "skipped": 1, "settled_before": super::facts(letter)? });
    output.answer(&value, || {
        let how = match (&letter.resolution, letter.recovered_as) {
            (_, Some(job)) => format!("recovered as {job}"),
            (Some(how), None) => words(*how),
            (None, None) => letter.review.as_str().replace('_', " "),
        };
        let by = letter.resolved_by.as_ref().map_or(String::new(), |by| format!(" by {}", clean(by)));
        let at = letter.resolved_at.map_or(String::new(), |t| format!(", {}", short_when(t, parse::now())));
        format!("{id} was settled before ({how}{by}{at}); nothing was changed.")
    })
}

fn words(resolution: Resolution) -> String {
    serde_json::to_value(resolution)
        .ok()
        .and_then(|v| v.as_str().map(|s| s.replace('_', " ")))
        .unwrap_or_default()
}

/// Erases a tenant.
pub(crate) async fn erase(
    tenant: TenantId,
    consent: Consent,
    config: &Config,
    output: &Output,
) -> Result<()> {
    let data = data::existing(config).await?;
    let query = JobQuery { tenant: Some(tenant.clone()), limit: 1_000, ..JobQuery::default() };
    let affected = filter::affected(&*data.store, query, output).await?;
    let what = format!("Erase {} of tenant {tenant}, for good?", plural(affected.ids.len() as u64, "job"));
    let shown = Shown::jobs(&affected, output);
    let all = Filter::default();
    if let Some(answer) = decide(&data, &affected, &all, shown, (&what, consent), output).await? {
        data.close().await?;
        return answer.print(output, "erase");
    }
    let bulk = Bulk::start(output, "Erasing", affected.ids.len() as u64);
    let mut tally = Tally { done: 0, skipped: 0, interrupted: false };
    let mut after = Some(Seq(0));
    while let Some(from) = after {
        if bulk.interrupted() {
            tally.interrupted = true;
            break;
        }
        let step = Erase { tenant: tenant.clone(), after: from, scan: ERASE_SCAN, now: parse::now() };
        let erased = data.store.erase(step).await?;
        tally.done += erased.erased;
        bulk.add(erased.erased);
        after = erased.next;
    }
    drop(bulk);
    data.close().await?;
    tally.print(output, "erased", "were left")
}

/// Which dead letters are meant.
pub(crate) enum Which {
    /// These.
    Named(Vec<JobId>),
    /// All that fit.
    Matching(Box<Matching>),
}

/// Dead letters by a filter.
pub(crate) struct Matching {
    /// Which.
    pub(crate) query: JobQuery,
    /// The filter that was given.
    pub(crate) filter: Filter,
    /// All that was given, in words.
    pub(crate) words: String,
}

impl Matching {
    /// The letters, once it is decided that something is done with them; else the answer.
    async fn ids(
        self: Box<Self>,
        data: &Data,
        verb: &str,
        consent: Consent,
        output: &Output,
    ) -> Result<std::result::Result<Vec<JobId>, Answer>> {
        let Self { query, filter, words } = *self;
        let mut affected = filter::affected(&*data.store, filter.by_store_clock(query)?, output).await?;
        let what = format!("{verb} {} ({words})?", plural(affected.ids.len() as u64, "dead letter"));
        let died = std::mem::take(&mut affected.died);
        let shown = Shown::jobs(&affected, output).with_causes(died, output);
        let answer = decide(data, &affected, &filter, shown, (&what, consent), output).await?;
        Ok(answer.map_or(Ok(affected.ids), Err))
    }
}

async fn not_dead(store: &dyn Store, id: JobId) -> Result<Failure> {
    let job = super::get(store, id).await?;
    Ok(Failure::new(codes::WRONG_STATE, format!("{id} is {}, not dead", job.state)))
}

/// What is shown of jobs before something is done with them.
#[derive(Default)]
struct Shown {
    text: String,
    causes: Option<Causes>,
}

impl Shown {
    /// The first few jobs.
    fn jobs(affected: &Affected, output: &Output) -> Self {
        let (sample, total) = (&affected.sample, affected.ids.len());
        let mut text = jobs::table(sample, parse::now()).render(output);
        if total > sample.len() {
            let _ = writeln!(text, "… and {} more", grouped((total - sample.len()) as u64));
        }
        Self { text, causes: None }
    }

    /// The same with what the letters died of.
    fn with_causes(self, died: Died, output: &Output) -> Self {
        let causes = died.causes();
        let table = causes.as_ref().map(|causes| causes_table(causes, output)).unwrap_or_default();
        let gap = if self.text.is_empty() || table.is_empty() { "" } else { "\n" };
        Self { text: format!("{}{gap}{table}", self.text), causes }
    }
}

/// An answer without work.
enum Answer {
    /// Nothing fits; what was named and does not exist, if that is why.
    Nothing(Option<String>),
    DryRun {
        jobs: u64,
        shown: Shown,
    },
    Declined,
}

impl Answer {
    fn print(&self, output: &Output, verb: &str) -> Result<()> {
        let (n, dry_run) = match self {
            Self::DryRun { jobs, .. } => (*jobs, true),
            Self::Nothing(_) | Self::Declined => (0, false),
        };
        let mut value = json!({ "dry_run": dry_run });
        value[format!("would_{verb}")] = n.into();
        match self {
            Self::Nothing(Some(unknown)) => value["hint"] = unknown.as_str().into(),
            Self::DryRun { shown: Shown { causes: Some(causes), .. }, .. } => {
                value["causes"] = super::facts(&causes.causes)?;
                value["of_other_causes"] = causes.other.into();
            }
            Self::Nothing(None) | Self::DryRun { .. } | Self::Declined => {}
        }
        output.answer(&value, || match self {
            Self::Nothing(None) => "Nothing fits; nothing was changed.".into(),
            Self::Nothing(Some(unknown)) => format!("Nothing fits; nothing was changed. {unknown}"),
            Self::DryRun { jobs, shown } => {
                format!("{}Would {verb} {}; nothing was changed.", shown.text, plural(*jobs, "job"))
            }
            Self::Declined => "Nothing was changed.".into(),
        })
    }
}

/// Asks; `None` is a yes.
async fn decide(
    data: &Data,
    affected: &Affected,
    filter: &Filter,
    shown: Shown,
    (question, consent): (&str, Consent),
    output: &Output,
) -> Result<Option<Answer>> {
    if affected.ids.is_empty() {
        return Ok(Some(Answer::Nothing(filter.unknown(&*data.store).await)));
    }
    Ok(match consent::ask(consent, question, &shown.text, output)? {
        Decision::Go => None,
        Decision::DryRun => Some(Answer::DryRun { jobs: affected.ids.len() as u64, shown }),
        Decision::Declined => Some(Answer::Declined),
    })
}

/// Runs one write per job, a step's worth at a time: they share commits.
async fn concurrently<F, Fut>(store: &Arc<dyn Store>, ids: &[JobId], bulk: &Bulk, write: F) -> Result<Tally>
where
    F: Fn(Arc<dyn Store>, JobId) -> Fut,
    Fut: Future<Output = Result<bool, tidegate_store::Error>> + Send + 'static,
{
    let mut tally = Tally { done: 0, skipped: 0, interrupted: false };
    for step in ids.chunks(STEP) {
        if bulk.interrupted() {
            tally.interrupted = true;
            break;
        }
        let mut writes = JoinSet::new();
        for &id in step {
            writes.spawn(write(store.clone(), id));
        }
        while let Some(written) = writes.join_next().await {
            let written = written.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))?;
            match written {
                Ok(true) => tally.done += 1,
                Ok(false) => tally.skipped += 1,
                // Pruned or changed between the look and the write: not this command's any more.
                Err(e) if matches!(e.code, codes::JOB_NOT_FOUND | codes::WRONG_STATE) => tally.skipped += 1,
                Err(e) => {
                    let done = plural(tally.done, "job");
                    return Err(
                        Failure::from(e).detail(format!("{done} were done; the same command goes on"))
                    );
                }
            }
            bulk.add(1);
        }
    }
    Ok(tally)
}

impl Tally {
    fn json(&self, verb: &str) -> Value {
        let mut value = json!({ "dry_run": false, "skipped": self.skipped });
        value[verb] = self.done.into();
        value
    }

    fn words(&self, verb: &str, skipped: &str) -> String {
        let mut text = format!("{} {verb}.", plural(self.done, "job"));
        if self.skipped > 0 {
            let _ = write!(text, " {} {skipped}.", plural(self.skipped, "job"));
        }
        text
    }

    /// Ctrl-C is an error that says how far it came: a script must not take half of the work for all of it.
    fn whole(self, verb: &str) -> Result<Self> {
        if self.interrupted {
            let done = plural(self.done, "job");
            return Err(Failure::new(codes::INTERRUPTED, format!("stopped by Ctrl-C with {done} {verb}")));
        }
        Ok(self)
    }

    fn print(self, output: &Output, verb: &str, skipped: &str) -> Result<()> {
        let tally = self.whole(verb)?;
        output.answer(&tally.json(verb), || tally.words(verb, skipped))
    }
}
