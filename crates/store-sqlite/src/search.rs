//! Search: which jobs may fit, found by a reader without the writer's help.
//!
//! A reader finds jobs that may fit ([`Search::more`]), and reads those of them that are finished; the writer adds what it alone knows, and
//! looks at each of them exactly, with the one definition of a fit ([`JobQuery::matches`]). One page looks at no more than
//! [`limits::MAX_SEARCH_SCAN`] rows and hands back where to go on.
//!
//! States with few jobs are found from their own lists: dead, cancelled and blocked by index, running from the leases,
//! scheduled from the schedule if that is short. Everything else walks the jobs from the newest.

use std::rc::Rc;

use rusqlite::types::{ToSql, Value};
use rusqlite::{Connection, OptionalExtension, params};
use tidegate_core::ids::{GroupKey, JobId, KindName, QueueName, Seq, TenantId};
use tidegate_core::job::State;
use tidegate_core::limits;
use tidegate_store::Result;
use tidegate_store::params::JobQuery;
use tidegate_store::rows::{Candidate, Finished};

use crate::error::{OrStore, corrupt};
use crate::rows::{numbers, read_seqs, sql, whole};

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
    pub(crate) fn more(mut self, conn: &Connection, want: usize) -> Result<Candidates> {
        let want = want.max(FEWEST);
        let first_step = self.floor.is_none();
        if first_step {
            // The newest job bounds the walk from above, and so the rows that are looked at.
            let Some(newest) = newest(conn, self.before)? else {
                return Ok(Candidates { jobs: vec![], rest: Rest::End });
            };
            self.before = newest + 1;
            self.floor = Some(self.before.saturating_sub(self.scan as i64));
            self.listed = self.list(conn)?;
        }
        let (seqs, rest) = match self.listed.take() {
            Some(list) => self.walk_list(conn, list, want)?,
            None => self.walk_all(conn, want)?,
        };
        Ok(Candidates { jobs: candidates(conn, &seqs)?, rest })
    }

    fn walk_all(mut self, conn: &Connection, want: usize) -> Result<(Vec<Seq>, Rest)> {
        let floor = self.floor.unwrap_or(0);
        let seqs = self.filter(conn, sql!("search/window"), &floor, want)?;
        if seqs.len() == want {
            self.before = seqs.last().map_or(floor, |seq| seq.0);
            return Ok((seqs, Rest::Page(Box::new(self))));
        }
        let rest = newest(conn, floor)?.map_or(Rest::End, |seq| Rest::Cursor(Seq(seq + 1)));
        Ok((seqs, rest))
    }

    fn walk_list(mut self, conn: &Connection, mut list: Vec<i64>, want: usize) -> Result<(Vec<Seq>, Rest)> {
        let mut seqs = vec![];
        loop {
            let numbers: Vec<Value> = list.iter().rev().copied().map(Value::Integer).collect();
            seqs.extend(self.filter(conn, sql!("search/listed"), &Rc::new(numbers), want - seqs.len())?);
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
            list = self.list(conn)?.unwrap_or_default();
            if seqs.len() == want {
                self.listed = Some(list);
                return Ok((seqs, Rest::Page(Box::new(self))));
            }
        }
    }

    /// The next jobs of a state that has few, newest last. `None`: walk all jobs.
    fn list(&mut self, conn: &Connection) -> Result<Option<Vec<i64>>> {
        let most = self.scan.min(PIECE);
        let mut list = match self.states() {
            [State::Dead] => finished(conn, 2, self.before, most)?,
            [State::Cancelled] => finished(conn, 3, self.before, most)?,
            [State::Running] => running(conn, self.before)?,
            [State::Scheduled] => match scheduled(conn, self.before)? {
                Some(list) => list,
                None => return Ok(None),
            },
            [State::Blocked] => blocked(conn, self.before, most)?,
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
    fn filter(&self, conn: &Connection, text: &str, among: &dyn ToSql, limit: usize) -> Result<Vec<Seq>> {
        let query = &self.query;
        let wanted = self.states().iter().map(|s| state_bit(*s)).reduce(|a, b| a | b);
        let in_json = query.text.as_deref().map(inside_json).transpose()?;
        let mut statement = conn.prepare_cached(text).or_store()?;
        let found = statement.query_map(
            params![
                among,
                self.before,
                query.kind.as_ref().map(KindName::as_str),
                query.tenant.as_ref().map(TenantId::as_str),
                query.queue.as_ref().map(QueueName::as_str),
                query.group.as_ref().map(GroupKey::as_str),
                query.created_from.map(|t| t.0),
                query.created_before.map(|t| t.0),
                query.text.as_deref(),
                in_json,
                query.in_letter(),
                wanted,
                limit as i64,
            ],
            |row| row.get(0).map(Seq),
        );
        found.and_then(Iterator::collect).or_store()
    }
}

/// Jobs by their ids, as far as they exist.
pub(crate) fn find(conn: &Connection, ids: &[JobId]) -> Result<Vec<Candidate>> {
    let seqs: Vec<Seq> = numbers(conn, ids)?.into_iter().flatten().collect();
    candidates(conn, &seqs)
}

/// Jobs by their numbers; those that are finished with all that is kept of them.
fn candidates(conn: &Connection, seqs: &[Seq]) -> Result<Vec<Candidate>> {
    let found = whole(conn, seqs)?.into_iter();
    let candidate = |(seq, finished): (Seq, Option<Box<Finished>>)| {
        finished.map_or(Candidate::Open(seq), Candidate::Finished)
    };
    Ok(found.map(candidate).collect())
}

/// The bit of a state in the window's filter. Running jobs and suspects cannot be told from ready ones here.
fn state_bit(state: State) -> i64 {
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

fn newest(conn: &Connection, before: i64) -> Result<Option<i64>> {
    let mut statement = conn.prepare_cached(sql!("search/newest")).or_store()?;
    Ok(statement.query_row([before], |row| row.get(0)).optional().or_store()?.flatten())
}

fn finished(conn: &Connection, state: i64, before: i64, most: usize) -> Result<Vec<i64>> {
    let mut statement = conn.prepare_cached(sql!("search/finished")).or_store()?;
    let found = statement.query_map(params![state, before, most as i64], |row| row.get(0));
    found.and_then(Iterator::collect).or_store()
}

fn blocked(conn: &Connection, before: i64, most: usize) -> Result<Vec<i64>> {
    let mut statement = conn.prepare_cached(sql!("search/blocked")).or_store()?;
    let found = statement.query_map(params![before, most as i64], |row| row.get(0));
    found.and_then(Iterator::collect).or_store()
}

/// Jobs under a lease; those settled since are among them.
fn running(conn: &Connection, before: i64) -> Result<Vec<i64>> {
    let mut statement = conn.prepare_cached(sql!("leases/jobs")).or_store()?;
    let mut rows = statement.query([]).or_store()?;
    let mut found = vec![];
    while let Some(row) = rows.next().or_store()? {
        let blob = row.get_ref(0).or_store()?;
        let seqs = read_seqs(blob.as_blob().map_err(|e| corrupt("a lease", e))?)?;
        found.extend(seqs.into_iter().map(|seq| seq.0).filter(|seq| *seq < before));
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The scheduled jobs, unless there are many.
fn scheduled(conn: &Connection, before: i64) -> Result<Option<Vec<i64>>> {
    let mut statement = conn.prepare_cached(sql!("search/scheduled")).or_store()?;
    let found = statement.query_map(params![before, SHORT_SCHEDULE as i64 + 1], |row| row.get(0));
    let found: Vec<i64> = found.and_then(Iterator::collect).or_store()?;
    Ok((found.len() <= SHORT_SCHEDULE).then_some(found))
}
