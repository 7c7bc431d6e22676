//! Search: which jobs may fit, found on a connection beside the writer's.
//!
//! A reader finds jobs that may fit ([`Search::more`]), and reads those of them that are finished; the writer adds what it alone knows, and
//! looks at each of them exactly, with the one definition of a fit ([`JobQuery::matches`]). One page looks at no more than
//! [`limits::MAX_SEARCH_SCAN`] rows and hands back where to go on.
//!
//! States with few jobs are found from their own lists: dead, cancelled and blocked by index, running from the leases,
//! scheduled from the schedule if that is short. Everything else walks the jobs from the newest.

use tidegate_core::ids::{GroupKey, JobId, KindName, QueueName, Seq, TenantId};
use tidegate_core::job::State;
use tidegate_core::limits;
use tidegate_store::Result;
use tidegate_store::params::JobQuery;
use tidegate_store::rows::Candidate;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::error::{OrStore, corrupt};
use crate::link::Link;
use crate::rows::letters::finished;
use crate::statements::Sql;

/// A schedule up to this length is listed; a longer one is looked up job by job.
const SHORT_SCHEDULE: usize = 50_000;

/// Most jobs of a state that are listed at a time: the largest page, and the one that tells whether there is a next one.
const PIECE: usize = limits::MAX_PAGE + 1;

/// Fewest jobs asked for at a time, since some may turn out not to fit.
const FEWEST: usize = 32;

/// Where one page stands.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    query: JobQuery,
    /// Jobs from this number on were looked at.
    before: i64,
    /// Nothing is looked at below this number.
    floor: Option<i64>,
    /// Jobs to look at, newest last, instead of all.
    listed: Option<Vec<i64>>,
    /// Rows that the page may look at.
    scan: usize,
}

/// What a reader found.
#[derive(Debug)]
pub(crate) struct Candidates {
    /// The jobs, newest first.
    pub(crate) jobs: Vec<Candidate>,
    /// Where to go on, if these are used up.
    pub(crate) rest: Rest,
}

/// What is left after some candidates.
#[derive(Debug)]
pub(crate) enum Rest {
    /// More of this page.
    Page(Box<Search>),
    /// Another page, from this cursor.
    Cursor(Seq),
    /// Nothing.
    End,
}

impl Search {
    /// The first step of a page.
    pub(crate) fn new(query: JobQuery) -> Self {
        Self::bounded(query, limits::MAX_SEARCH_SCAN)
    }

    /// The first step of a page that looks at no more than this many rows.
    pub(crate) fn bounded(query: JobQuery, scan: usize) -> Self {
        let before = query.cursor.map_or(i64::MAX, |seq| seq.0);
        Self { query, before, floor: None, listed: None, scan }
    }

    /// Finds up to about `want` more candidates.
    pub(crate) async fn more(mut self, link: &Link, want: usize) -> Result<Candidates> {
        let want = want.max(FEWEST);
        let first_step = self.floor.is_none();
        if first_step {
            // The newest job bounds the walk from above, and so the rows that are looked at.
            let Some(newest) = newest(link, self.before).await? else {
                return Ok(Candidates { jobs: vec![], rest: Rest::End });
            };
            self.before = newest + 1;
            self.floor = Some(self.before.saturating_sub(self.scan as i64));
            self.listed = self.list(link).await?;
        }
        let (seqs, rest) = match self.listed.take() {
            Some(list) => self.walk_list(link, list, want).await?,
            None => self.walk_all(link, want).await?,
        };
        Ok(Candidates { jobs: candidates(link, seqs).await?, rest })
    }

    async fn walk_all(mut self, link: &Link, want: usize) -> Result<(Vec<Seq>, Rest)> {
        let floor = self.floor.unwrap_or(0);
        let seqs = self.filter(link, Sql::SearchWindow, &floor, want).await?;
        if seqs.len() == want {
            self.before = seqs.last().map_or(floor, |seq| seq.0);
            return Ok((seqs, Rest::Page(Box::new(self))));
        }
        let rest = newest(link, floor).await?.map_or(Rest::End, |seq| Rest::Cursor(Seq(seq + 1)));
        Ok((seqs, rest))
    }

    async fn walk_list(mut self, link: &Link, mut list: Vec<i64>, want: usize) -> Result<(Vec<Seq>, Rest)> {
        let mut seqs: Vec<Seq> = vec![];
        loop {
            if !list.is_empty() {
                seqs.extend(self.filter(link, Sql::SearchListed, &list, want - seqs.len()).await?);
            }
            let oldest = list.first().copied().unwrap_or(self.before);
            self.before = if seqs.len() == want { seqs.last().map_or(oldest, |seq| seq.0) } else { oldest };
            if self.before > oldest {
                list.retain(|seq| *seq < self.before);
                self.listed = Some(list);
                return Ok((seqs, Rest::Page(Box::new(self))));
            }
            if self.floor != Some(self.before) {
                return Ok((seqs, Rest::End));
            }
            // It was cut here.
            self.scan = self.scan.saturating_sub(PIECE);
            if self.scan == 0 {
                return Ok((seqs, Rest::Cursor(Seq(self.before))));
            }
            list = self.list(link).await?.unwrap_or_default();
            if seqs.len() == want {
                self.listed = Some(list);
                return Ok((seqs, Rest::Page(Box::new(self))));
            }
        }
    }

    /// The next jobs of a state that has few, newest last. `None`: walk all jobs.
    async fn list(&mut self, link: &Link) -> Result<Option<Vec<i64>>> {
        let most = self.scan.min(PIECE);
        let mut list = match self.states() {
            [State::Dead] => ended(link, 2, self.before, most).await?,
            [State::Cancelled] => ended(link, 3, self.before, most).await?,
            [State::Running] => numbers(&link.query(Sql::SearchRunning, &[&self.before]).await?)?,
            [State::Scheduled] => match scheduled(link, self.before).await? {
                Some(list) => list,
                None => return Ok(None),
            },
            [State::Blocked] => {
                numbers(&link.query(Sql::SearchBlocked, &[&self.before, &(most as i64)]).await?)?
            }
            _ => return Ok(None),
        };
        list.sort_unstable();
        // A list that was cut has a floor, from which the next piece or the next page goes on.
        self.floor = Some(list.first().copied().filter(|_| list.len() == most).unwrap_or(i64::MIN));
        Ok(Some(list))
    }

    fn states(&self) -> &[State] {
        if self.query.wants_letters() { &[State::Dead] } else { &self.query.states }
    }

    /// Jobs before where this stands that may fit, among those that the first param of the statement says.
    async fn filter(
        &self,
        link: &Link,
        sql: Sql,
        among: &(dyn ToSql + Sync),
        limit: usize,
    ) -> Result<Vec<Seq>> {
        let (filter, limit) = (Filter::new(&self.query, self.states())?, limit as i64);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![among, &self.before];
        params.extend(filter.params());
        params.push(&limit);
        Ok(numbers(&link.query(sql, &params).await?)?.into_iter().map(Seq).collect())
    }
}

/// Jobs by their ids, as far as they exist.
pub(crate) async fn find(link: &Link, ids: &[JobId]) -> Result<Vec<Candidate>> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    let found = link.query(Sql::JobsFind, &[&ids]).await?;
    let seqs = found.iter().map(|row| row.try_get(1).or_store().map(Seq)).collect::<Result<Vec<Seq>>>()?;
    candidates(link, seqs).await
}

/// Jobs by their numbers; those that are finished with all that is kept of them.
async fn candidates(link: &Link, seqs: Vec<Seq>) -> Result<Vec<Candidate>> {
    let mut read = finished(link, &seqs).await?;
    let candidate = |seq| read.remove(&seq).map_or(Candidate::Open(seq), Candidate::Finished);
    Ok(seqs.into_iter().map(candidate).collect())
}

/// The conditions of a query, as the statements take them.
struct Filter<'a> {
    kind: Option<&'a str>,
    tenant: Option<&'a str>,
    queue: Option<&'a str>,
    group: Option<&'a str>,
    from: Option<i64>,
    before: Option<i64>,
    text: Option<String>,
    in_json: Option<String>,
    review: Option<String>,
    states: Option<i32>,
}

impl<'a> Filter<'a> {
    fn new(query: &'a JobQuery, states: &[State]) -> Result<Self> {
        let in_json = query.text.as_deref().map(inside_json).transpose()?;
        // A text column cannot hold a zero byte, and a payload has none: its escape stands in for it.
        let text = query
            .text
            .clone()
            .map(|t| if t.contains('\0') { in_json.clone().unwrap_or_default() } else { t });
        Ok(Self {
            kind: query.kind.as_ref().map(KindName::as_str),
            tenant: query.tenant.as_ref().map(TenantId::as_str),
            queue: query.queue.as_ref().map(QueueName::as_str),
            group: query.group.as_ref().map(GroupKey::as_str),
            from: query.created_from.map(|t| t.0),
            before: query.created_before.map(|t| t.0),
            text,
            in_json,
            review: query.in_letter(),
            states: states.iter().map(|s| state_bit(*s)).reduce(|a, b| a | b),
        })
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 10] {
        [
            &self.kind,
            &self.tenant,
            &self.queue,
            &self.group,
            &self.from,
            &self.before,
            &self.text,
            &self.in_json,
            &self.review,
            &self.states,
        ]
    }
}

/// The bit of a state in the window's filter. Running jobs and suspects cannot be told from ready ones here.
fn state_bit(state: State) -> i32 {
    match state {
        State::Completed => 2,
        State::Dead => 4,
        State::Cancelled => 8,
        State::Scheduled => 16,
        State::Ready | State::Running => 32,
        State::Blocked => 64,
    }
}

/// Text as it stands inside a JSON string; escapes are made character by character, so a part stays a part.
fn inside_json(text: &str) -> Result<String> {
    let quoted = serde_json::to_string(text).map_err(|e| corrupt("a text", e))?;
    Ok(quoted[1..quoted.len() - 1].to_owned())
}

async fn newest(link: &Link, before: i64) -> Result<Option<i64>> {
    let rows = link.query(Sql::SearchNewest, &[&before]).await?;
    rows.first().map(|row| row.try_get(0).or_store()).transpose()
}

async fn ended(link: &Link, state: i16, before: i64, most: usize) -> Result<Vec<i64>> {
    numbers(&link.query(Sql::SearchFinished, &[&state, &before, &(most as i64)]).await?)
}

/// The scheduled jobs, unless there are many.
async fn scheduled(link: &Link, before: i64) -> Result<Option<Vec<i64>>> {
    let found = numbers(&link.query(Sql::SearchScheduled, &[&before, &(SHORT_SCHEDULE as i64 + 1)]).await?)?;
    Ok((found.len() <= SHORT_SCHEDULE).then_some(found))
}

fn numbers(rows: &[Row]) -> Result<Vec<i64>> {
    rows.iter().map(|row| row.try_get(0).or_store()).collect()
}
