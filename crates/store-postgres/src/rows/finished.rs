//! Lists of finished jobs: which are the oldest of a queue, for deleting them.
//!
//! Each commit leaves a list for each queue, time and state with which jobs were completed or cancelled (several, if their numbers lie far apart). Every such job is on one list until
//! it is deleted, in whatever way: lists that were read in a transaction are kept until it ends, those of other deleted jobs are
//! read before they are sent, and a list goes with the last of its jobs.

use std::collections::{BTreeMap, HashMap};

use tidegate_core::hash::KeySet;
use tidegate_core::ids::Seq;
use tidegate_core::job::State;
use tidegate_core::lanes::QueueId;
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{DoneRow, JobRows as _, Reads};
use tokio_postgres::Row;

use super::gathered::Gathered;
use super::runs::Runs;
use super::send::{Requests, send, state_code, state_of};
use super::{PgRows, column, signed, unsigned};
use crate::link::Link;
use crate::statements::Sql;

/// Most runs on one list: it is written anew whenever a job is taken off it. 120 are two kilobytes.
const MOST_RUNS: usize = 120;

/// Most lists, and times of jobs that are looked for, in one statement.
const MOST_LISTS: usize = 1_000;

/// Lists read at once to begin with, how many times as many next, and most. A list has one job or some thousand.
const PAGE: (usize, usize, usize) = (64, 8, 4_096);

/// Lists of one time whose jobs are put into order. With more of them (the clock stood still), they come list by list.
const TIES: usize = 256;

/// Where the walk for the oldest lists of a queue begins: among the entries of what was deleted before, which stay
/// until they are vacuumed, it would take longer than everything else.
#[derive(Debug, Clone, Copy)]
struct Trail {
    /// When the oldest that was found last had finished.
    oldest: Timestamp,
    /// When those were looked for that have come late.
    looked: Timestamp,
}

impl Trail {
    /// Where to begin now. What has come since the last look is no older than that look, but for what is late.
    fn start(self, now: Timestamp, late_ms: i64) -> Timestamp {
        if self.is_time_to_look(now, late_ms) {
            self.oldest.min(self.looked).plus_ms(-late_ms)
        } else {
            self.oldest
        }
    }

    fn is_time_to_look(self, now: Timestamp, late_ms: i64) -> bool {
        now.since(self.looked) >= late_ms
    }
}

/// What a list is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListKey {
    queue: QueueId,
    at: Timestamp,
    no: i64,
}

/// First and last number of a run of consecutive ones.
type Run = (i64, i64);

/// A list as it is in the table.
struct List {
    key: ListKey,
    state: State,
    runs: Vec<Run>,
}

/// Lists that were read in this transaction, and where to look next.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// Their jobs.
    read: BTreeMap<ListKey, Vec<Run>>,
    /// Dead jobs that were looked for: they are on none.
    dead: KeySet<Seq>,
    /// Where the oldest lists are. Times of lists grow in the order of commits, unless the clock goes back.
    trails: HashMap<QueueId, Trail>,
    /// How late a list may come: by as much as a reading of the clock may be behind without being one that went back. Lists that are as late as that
    /// are looked for as often.
    late_ms: i64,
}

impl Lists {
    /// The transaction is over.
    pub(super) fn forget(&mut self) {
        self.read.clear();
        self.dead.clear();
    }

    /// How far a reading of the clock may be behind.
    pub(super) fn set_late(&mut self, ms: i64) {
        self.late_ms = ms;
    }

    pub(super) fn forget_trails(&mut self) {
        self.trails.clear();
    }

    /// This job is dead, so it is on no list.
    pub(super) fn is_dead(&mut self, seq: Seq) {
        self.dead.insert(seq);
    }

    /// Takes the jobs that are deleted off the lists that were read. Those that were on none of them.
    fn shorten(&mut self, gathered: &mut Gathered) -> Vec<Seq> {
        let mut deleted: Vec<i64> = gathered.deleted_jobs.iter().map(|seq| seq.0).collect();
        deleted.sort_unstable();
        let mut found = KeySet::default();
        for (key, runs) in &mut self.read {
            let before = found.len();
            let mut left = Vec::with_capacity(runs.len());
            for &(mut first, last) in runs.iter() {
                let from = deleted.partition_point(|number| *number < first);
                for number in deleted[from..].iter().take_while(|number| **number <= last) {
                    if first < *number {
                        left.push((first, number - 1));
                    }
                    first = number + 1;
                    found.insert(Seq(*number));
                }
                if first <= last {
                    left.push((first, last));
                }
            }
            if found.len() > before {
                gathered.lists.insert(*key, left.clone());
                *runs = left;
            }
        }
        self.read.retain(|_, runs| !runs.is_empty());
        let elsewhere = deleted.into_iter().map(Seq);
        elsewhere.filter(|seq| !found.contains(seq) && !self.dead.contains(seq)).collect()
    }
}

impl PgRows {
    /// The oldest completed or cancelled jobs of a queue.
    pub(super) fn oldest_finished(
        &mut self,
        queue: QueueId,
        limit: usize,
    ) -> Result<Vec<(Timestamp, Seq, State)>> {
        self.send_gathered()?;
        let (now, late_ms, trail) = (self.now, self.lists.late_ms, self.lists.trails.get(&queue).copied());
        let from = trail.map_or(Timestamp(i64::MIN), |trail| trail.start(now, late_ms));
        let mut runs = vec![];
        for List { key, state, runs: of } in self.oldest_lists(queue, from, limit)? {
            runs.extend(of.iter().map(|run| (key.at, *run, state)));
            self.lists.read.insert(key, of);
        }
        // Lists of one time are in no order of their jobs.
        runs.sort_unstable_by_key(|(at, run, _)| (*at, *run));
        let jobs = runs.iter().flat_map(|(at, (first, last), state)| {
            (*first..=*last).map(move |number| (*at, Seq(number), *state))
        });
        let oldest: Vec<(Timestamp, Seq, State)> = jobs.take(limit).collect();
        if let Some((at, _, _)) = oldest.first() {
            // A job may have finished at a time that is still ahead, if the clock went back since. A list may bear the
            // time at which its caller began to wait for the lock: it is found by the next look for such.
            let looked =
                trail.filter(|trail| !trail.is_time_to_look(now, late_ms)).map_or(now, |trail| trail.looked);
            self.lists.trails.insert(queue, Trail { oldest: (*at).min(now), looked });
        }
        Ok(oldest)
    }

    /// The oldest lists from a time on that have so many jobs together, and the others of the last one's time.
    fn oldest_lists(&self, queue: QueueId, from: Timestamp, limit: usize) -> Result<Vec<List>> {
        // One more than is needed: that it is of another time says that there are no others of the last one's.
        let (mut lists, mut found, mut page): (Vec<List>, usize, usize) = (vec![], 0, PAGE.0.min(limit + 1));
        let (mut after, mut ties) = ((from, -1), 0);
        while found < limit || (ties > 0 && ties < TIES) {
            // As many as are missing, or more of the last time.
            let missing = (limit.saturating_sub(found)).max(1) as i64;
            let rows = self.query(
                Sql::FinishedOldest,
                &[&signed(queue.0), &after.0.0, &after.1, &(page as i64), &missing],
            )?;
            let mut read: Vec<List> = rows.iter().map(|row| read_list(queue, row)).collect::<Result<_>>()?;
            read.sort_unstable_by_key(|list| list.key);
            let is_last = read.len() < page;
            let Some(last) = read.last().map(|list| list.key) else { break };
            found += read.iter().map(|list| count(&list.runs)).sum::<usize>();
            lists.extend(read);
            let of_last: Vec<usize> =
                lists.iter().rev().take_while(|l| l.key.at == last.at).map(|l| count(&l.runs)).collect();
            // Whether the last that is wanted is of the last time.
            ties = if found - of_last.iter().sum::<usize>() < limit { of_last.len() } else { 0 };
            let most = if found < limit { PAGE.2 } else { TIES };
            (after, page) = ((last.at, last.no), (page * PAGE.1).min(most));
            if is_last {
                break;
            }
        }
        Ok(lists)
    }

    /// Takes deleted jobs off their lists, before they are sent.
    pub(super) fn take_off_lists(&mut self) -> Result<()> {
        if self.gathered.deleted_jobs.is_empty() {
            return Ok(());
        }
        let elsewhere = self.lists.shorten(&mut self.gathered);
        if elsewhere.is_empty() {
            return Ok(());
        }
        self.will_read(&Reads { done: elsewhere.clone(), ..Reads::default() })?;
        let mut of: BTreeMap<(QueueId, Timestamp), (i64, i64)> = BTreeMap::new();
        for seq in elsewhere {
            let Some(Some(mark)) = self.fetched.done.get(&seq) else { continue };
            if mark.state != State::Dead {
                let (low, high) = of.entry((mark.queue, mark.at)).or_insert((seq.0, seq.0));
                (*low, *high) = ((*low).min(seq.0), (*high).max(seq.0));
            }
        }
        let of: Vec<_> = of.into_iter().collect();
        for some in of.chunks(MOST_LISTS) {
            let queues: Vec<i32> = some.iter().map(|((queue, _), _)| signed(queue.0)).collect();
            let times: Vec<i64> = some.iter().map(|((_, at), _)| at.0).collect();
            let (low, high): (Vec<i64>, Vec<i64>) = some.iter().map(|(_, range)| *range).unzip();
            for row in self.query(Sql::FinishedFind, &[&queues, &times, &low, &high])? {
                let List { key, runs, .. } = read_list(QueueId(unsigned(column(&row, 4)?)), &row)?;
                self.lists.read.insert(key, runs);
            }
        }
        if !of.is_empty() {
            self.lists.shorten(&mut self.gathered);
        }
        Ok(())
    }
}

fn read_list(queue: QueueId, row: &Row) -> Result<List> {
    let key = ListKey { queue, at: Timestamp(column(row, 0)?), no: column(row, 1)? };
    let runs: Vec<i64> = column(row, 3)?;
    let runs = runs.chunks_exact(2).map(|run| (run[0], run[1])).collect();
    Ok(List { key, state: state_of(column(row, 2)?)?, runs })
}

/// How many jobs they are.
fn count(runs: &[Run]) -> usize {
    runs.iter().map(|(first, last)| (last - first + 1).max(0) as usize).sum()
}

impl Gathered {
    /// A mark was made: its job is on a list. Dead letters have an index of their own.
    pub(super) fn list(&mut self, seq: Seq, row: &DoneRow) -> Result<()> {
        if row.state != State::Dead {
            self.finished.entry((row.queue, row.at, state_code(row.state)?)).or_default().push(seq);
        }
        Ok(())
    }

    pub(super) fn send_lists<'a>(&'a self, link: &'a Link, requests: &mut Requests<'a>) {
        let (mut queues, mut times, mut states, mut new) = (vec![], vec![], vec![], Slices::default());
        for ((queue, at, state), jobs) in &self.finished {
            let Runs { first, last } =
                Runs::of(jobs.iter().copied().filter(|seq| !self.deleted_jobs.contains(seq)));
            let all: Vec<Run> = first.into_iter().zip(last).collect();
            for runs in all.chunks(MOST_RUNS) {
                new.add(runs);
                queues.push(signed(queue.0));
                times.push(at.0);
                states.push(*state);
            }
        }
        if !queues.is_empty() {
            let Slices { jobs, begins, ends, runs } = new;
            send!(link, requests, Sql::FinishedAdd, queues, times, states, jobs, begins, ends, runs);
        }
        let (gone, shorter): (Vec<_>, Vec<_>) = self.lists.iter().partition(|(_, runs)| runs.is_empty());
        for some in gone.chunks(MOST_LISTS) {
            let Keys { queues, times, numbers } = some.iter().map(|(key, _)| **key).collect();
            send!(link, requests, Sql::FinishedDelete, queues, times, numbers);
        }
        for some in shorter.chunks(MOST_LISTS) {
            let Keys { queues, times, numbers } = some.iter().map(|(key, _)| **key).collect();
            let mut left = Slices::default();
            for (_, runs) in some {
                left.add(runs);
            }
            let Slices { jobs, begins, ends, runs } = left;
            send!(link, requests, Sql::FinishedPut, queues, times, numbers, jobs, begins, ends, runs);
        }
    }
}

/// Keys of lists, as params.
#[derive(Default)]
struct Keys {
    queues: Vec<i32>,
    times: Vec<i64>,
    numbers: Vec<i64>,
}

impl FromIterator<ListKey> for Keys {
    fn from_iter<I: IntoIterator<Item = ListKey>>(keys: I) -> Self {
        let mut all = Self::default();
        for key in keys {
            all.queues.push(signed(key.queue.0));
            all.times.push(key.at.0);
            all.numbers.push(key.no);
        }
        all
    }
}

/// The runs of several lists one after the other, as params: an array of arrays would have to be as wide everywhere.
#[derive(Default)]
struct Slices {
    jobs: Vec<i32>,
    begins: Vec<i32>,
    ends: Vec<i32>,
    runs: Vec<i64>,
}

impl Slices {
    fn add(&mut self, runs: &[Run]) {
        self.jobs.push(count(runs) as i32);
        self.begins.push(self.runs.len() as i32 + 1);
        self.runs.extend(runs.iter().flat_map(|(first, last)| [first, last]));
        self.ends.push(self.runs.len() as i32);
    }
}
