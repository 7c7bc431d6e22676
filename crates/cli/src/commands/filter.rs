//! Which jobs are meant: the filters that listing, searching and bulk commands share.

use clap::Args;
use tidegate_core::ids::{JobId, Seq};
use tidegate_core::job::{Job, State};
use tidegate_core::limits;
use tidegate_core::near::nearest;
use tidegate_core::time::Timestamp;
use tidegate_store::Store;
use tidegate_store::params::JobQuery;

use super::dead::Died;
use crate::error::Result;
use crate::output::{Bulk, Output};
use crate::parse;

/// Filters; together they narrow.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Filter {
    /// In this queue
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// Of this kind
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// Of this tenant
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// Of this group
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// Enqueued since: 15m, 2h, or 2026-01-31T08:00:00Z
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    pub(crate) since: Option<String>,
    /// With this text in payload or errors
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) text: Option<String>,
}

impl Filter {
    /// Whether nothing was named.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { queue, kind, tenant, group, since, text } = self;
        [queue, kind, tenant, group, since, text].iter().all(|f| f.is_none())
    }

    /// The query, over jobs in these states.
    pub(crate) fn query(&self, states: Vec<State>, now: Timestamp) -> Result<JobQuery> {
        Ok(JobQuery {
            states,
            queue: parse::optional_name(self.queue.as_deref())?,
            kind: parse::optional_name(self.kind.as_deref())?,
            tenant: parse::optional_name(self.tenant.as_deref())?,
            group: parse::optional_name(self.group.as_deref())?,
            created_from: self.since.as_deref().map(|s| parse::since(s, now)).transpose()?,
            text: self.text.clone(),
            limit: limits::MAX_PAGE,
            ..JobQuery::default()
        })
    }

    /// The same query once the store is open: a span counts back from now by its clock.
    pub(crate) fn by_store_clock(&self, query: JobQuery) -> Result<JobQuery> {
        let since = self.since.as_deref().map(|s| parse::since(s, parse::now())).transpose()?;
        Ok(JobQuery { created_from: since, ..query })
    }

    /// The filter in words: `queue billing, tenant acme`.
    pub(crate) fn words(&self) -> String {
        let Self { queue, kind, tenant, group, since, text } = self;
        let named = [
            ("queue", queue),
            ("kind", kind),
            ("tenant", tenant),
            ("group", group),
            ("enqueued since", since),
            ("with text", text),
        ];
        let words: Vec<String> =
            named.iter().filter_map(|(name, value)| value.as_ref().map(|v| format!("{name} {v}"))).collect();
        if words.is_empty() { "all queues".into() } else { words.join(", ") }
    }
}

impl Filter {
    /// What is named that does not exist, for a command that found nothing. `None` as well where that cannot be asked.
    pub(crate) async fn unknown(&self, store: &dyn Store) -> Option<String> {
        if let Some(kind) = &self.kind {
            let known = store.kinds().await.ok()?;
            let known: Vec<&str> = known.iter().map(|k| k.name.as_str()).collect();
            if let Some(said) = not_among("kind", kind, &known) {
                return Some(said);
            }
        }
        let queue = self.queue.as_ref()?;
        let known = store.settings().await.ok()?;
        let known: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
        not_among("queue", queue, &known)
    }
}

fn not_among(what: &str, name: &str, known: &[&str]) -> Option<String> {
    if known.contains(&name) {
        return None;
    }
    let near = nearest(name, known.iter().copied());
    let near = near.map_or_else(|| ".".into(), |near| format!("; did you mean `{near}`?"));
    Some(format!("No {what} `{name}` is registered{near}"))
}

/// Jobs found, and where to go on.
#[derive(Debug)]
pub(crate) struct Found {
    /// The jobs, newest first.
    pub(crate) jobs: Vec<Job>,
    /// Where to go on.
    pub(crate) next: Option<Seq>,
}

/// Up to `limit` jobs. One page of the store looks at a bounded number of rows; this goes on until enough are found.
pub(crate) async fn find(store: &dyn Store, mut query: JobQuery, limit: usize) -> Result<Found> {
    let mut jobs = vec![];
    loop {
        query.limit = (limit - jobs.len()).min(limits::MAX_PAGE);
        let page = store.search(query.clone()).await?;
        jobs.extend(page.jobs);
        if page.next.is_none() || jobs.len() >= limit {
            return Ok(Found { jobs, next: page.next });
        }
        query.cursor = page.next;
    }
}

/// Ids of all jobs that fit, and the first few in full for a preview.
#[derive(Debug, Default)]
pub(crate) struct Affected {
    /// All of them.
    pub(crate) ids: Vec<JobId>,
    /// The first few.
    pub(crate) sample: Vec<Job>,
    /// What those that are dead died of.
    pub(crate) died: Died,
}

/// Jobs shown before a question.
const SAMPLE: usize = 5;

/// Everything a bulk command will touch.
pub(crate) async fn affected(store: &dyn Store, mut query: JobQuery, output: &Output) -> Result<Affected> {
    let mut all = Affected::default();
    let bulk = Bulk::looking(output, "Finding", 0);
    loop {
        let page = store.search(query.clone()).await?;
        bulk.add(page.jobs.len() as u64);
        for job in page.jobs {
            all.ids.push(job.id);
            all.died.count(&job);
            if all.sample.len() < SAMPLE {
                all.sample.push(job);
            }
        }
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => return Ok(all),
        }
    }
}
