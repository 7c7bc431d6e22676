//! What is done with dead letters page by page, over any store.

use std::time::Duration;

use tidegate_core::failure::Category;
use tidegate_core::ids::{ConnectorName, JobId, KindName, Seq, TenantId};
use tidegate_core::job::{Review, State};
use tidegate_core::limits;
use tidegate_core::time::Timestamp;

use crate::params::{JobQuery, ProcessLetters, ProcessedLetters, Reauthorized, Recovered};
use crate::{Result, Store};

/// Longest and shortest time between two looks at whether the processor has something to do: another process may have begun.
const LOOK: (Duration, Duration) = (Duration::from_mins(1), Duration::from_secs(1));

/// Does what is due of the processor's work: page after page until all letters of the run were looked at. Returns what was done,
/// and when to look again.
pub async fn tend(
    store: &dyn Store,
    every_ms: i64,
    now: impl Fn() -> Timestamp,
) -> Result<(ProcessedLetters, Duration)> {
    let mut done = ProcessedLetters::default();
    loop {
        let page = store.process_letters(ProcessLetters { every_ms, at_once: false, now: now() }).await?;
        store.feed().meter().count_letters(&page);
        done.add(&page);
        if !page.more {
            break;
        }
    }
    let next = done.next_run.map_or(i64::MAX, |at| at.since(now())).max(0).cast_unsigned();
    Ok((done, Duration::from_millis(next).clamp(LOOK.1, LOOK.0)))
}

/// Whose new grant it is, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Who authorized again; all if nobody is named.
    pub tenant: Option<TenantId>,
    /// For this API; all if none is named.
    pub connector: Option<ConnectorName>,
    /// Jobs of this kind; all if none is named.
    pub kind: Option<KindName>,
}

impl Grant {
    /// The letters that waited for it.
    pub fn query(&self) -> JobQuery {
        JobQuery {
            states: vec![State::Dead],
            review: Some(Review::PendingReview),
            category: Some(Category::PermanentAuth),
            tenant: self.tenant.clone(),
            connector: self.connector.clone(),
            kind: self.kind.clone(),
            limit: limits::MAX_PAGE,
            ..JobQuery::default()
        }
    }
}

/// What a new grant did, a page at a time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Granted {
    /// Letters with what became of them.
    pub letters: Vec<(JobId, Recovered)>,
    /// Where to go on; `None`: that was all.
    pub next: Option<Seq>,
}

/// Searches that find nothing before an answer says so.
const IN_VAIN: usize = 10;

/// Recovers the letters that waited for this grant among the next that one search looks at; settles them instead if `mint` gives no id.
pub async fn reauthorize(
    store: &dyn Store,
    grant: &Grant,
    after: Option<Seq>,
    by: &str,
    mut mint: impl FnMut() -> Option<JobId> + Send,
    now: Timestamp,
) -> Result<Granted> {
    let mut page = store.search(JobQuery { cursor: after, ..grant.query() }).await?;
    // Who knows nothing of `after` begins anew each time, and would be shown for ever that there is nothing so far.
    for _ in 1..IN_VAIN {
        let Some(cursor) = page.next.filter(|_| page.jobs.is_empty()) else { break };
        page = store.search(JobQuery { cursor: Some(cursor), ..grant.query() }).await?;
    }
    let letters: Vec<Reauthorized> =
        page.jobs.iter().map(|job| Reauthorized { dead: job.id, new_id: mint() }).collect();
    let dead: Vec<JobId> = letters.iter().map(|letter| letter.dead).collect();
    let replies =
        if letters.is_empty() { vec![] } else { store.reauthorized(letters, by.to_owned(), now).await? };
    Ok(Granted { letters: dead.into_iter().zip(replies).collect(), next: page.next })
}
