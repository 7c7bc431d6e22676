//! A worker takes a lane and does what waits in it, in one transaction: lock the row, run the core, write, commit.
//!
//! A connection that is lost is made again and the transaction repeated, as long as somebody waits for it. If it was
//! lost during the commit, the row's marks say whether that was done: nothing is done twice, and no reply is made up.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::gates::{Holder, Micros};
use tokio_postgres::error::SqlState;

use super::domains::{self, Known, Missing, unknown};
use super::ear::payloads;
use super::job::{Failed, Job};
use super::lanes::{BATCH, LaneKey, Remembered};
use super::link::{Link, Locked, Written, unreachable};
use super::state::{Unreadable, decode, encode};
use super::{Shared, schema};
use crate::GatesError;

/// Pauses before a failed transaction is tried again: doubled from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Works for ever; ended with its task.
pub(super) async fn work(shared: Arc<Shared>) {
    let mut worker = Worker { shared: shared.clone(), link: None };
    loop {
        let key = shared.lanes.next().await;
        let task = Task {
            seen: None,
            remembered: shared.lanes.remembered(&key),
            batch: shared.lanes.take(&key, BATCH),
            unsure: None,
            key,
        };
        let (key, state) = worker.serve(task).await;
        shared.lanes.done(key, state);
    }
}

/// What a worker is at.
struct Task {
    key: LaneKey,
    batch: Vec<Box<dyn Job>>,
    remembered: Option<Box<Remembered>>,
    /// Settings of a state that this process has seen: if there is none now, it was lost.
    seen: Option<i64>,
    /// Mark of a transaction whose commit was not answered.
    unsure: Option<i64>,
}

/// How an attempt went.
enum Step {
    /// It is committed.
    Done(Option<Box<Remembered>>),
    /// Something had to be done first: try again at once.
    Again,
    /// The partition is another one now.
    Moved,
}

struct Worker {
    shared: Arc<Shared>,
    link: Option<Link>,
}

impl Worker {
    async fn serve(&mut self, mut task: Task) -> (LaneKey, Option<Box<Remembered>>) {
        task.seen = task.remembered.as_ref().map(|r| r.layout);
        let mut pause = FIRST_PAUSE;
        loop {
            task.batch.retain(|job| !job.abandoned());
            if task.batch.is_empty() {
                let sure = task.unsure.is_none();
                return (task.key, task.remembered.filter(|_| sure));
            }
            let attempt = tokio::time::timeout(self.shared.options.patience, self.attempt(&mut task)).await;
            let error = match attempt {
                Ok(Ok(Step::Done(state))) => {
                    self.shared.turns.wake(&woken(&task.batch));
                    task.batch.into_iter().for_each(Job::deliver);
                    return (task.key, state);
                }
                Ok(Ok(Step::Again)) => continue,
                Ok(Ok(Step::Moved)) => {
                    task.batch.into_iter().for_each(|job| job.fail(Failed::Moved));
                    return (task.key, None);
                }
                Ok(Err(error)) => error,
                Err(late) => GatesError::Unreachable(Box::new(late)),
            };
            // Whatever state the connection is in, its transaction ends with it.
            self.link = None;
            match trouble(&error) {
                Trouble::Passing => {}
                Trouble::NoTables => {
                    let made = schema::ensure(&self.shared.address, &self.shared.options).await;
                    tracing::warn!(
                        made = made.is_ok(),
                        "The tables of the gates are not there; they are made again."
                    );
                }
                Trouble::Lasting => {
                    task.batch.into_iter().for_each(|job| job.fail(Failed::Error(again(&error))));
                    return (task.key, None);
                }
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    async fn link(&mut self) -> Result<&Link, GatesError> {
        let link = match self.link.take().filter(|link| !link.is_closed()) {
            Some(link) => link,
            None => Link::open(&self.shared.address, &self.shared.options).await?,
        };
        Ok(self.link.insert(link))
    }

    async fn attempt(&mut self, task: &mut Task) -> Result<Step, GatesError> {
        let shared = self.shared.clone();
        let link = self.link().await?;
        let domain = &*task.key.domain;
        let known = match shared.domains.get(domain) {
            Some(known) => known,
            None => shared.domains.load(link, domain).await?.ok_or_else(|| unknown(domain))?,
        };
        if known.set.split() != task.key.split {
            return Ok(Step::Moved);
        }
        let have = task.remembered.as_ref().map_or(0, |r| r.mark);
        let (locked, head) = link.lock(&task.key, have).await.map_err(unreachable)?;
        let Some((version, clock)) = head else {
            link.roll_back().await?;
            shared.domains.make_again(link, domain).await?;
            return Ok(Step::Again);
        };
        shared.set_clock(clock);
        if version != known.version {
            link.roll_back().await?;
            shared.domains.load(link, domain).await?.ok_or_else(|| unknown(domain))?;
            return Ok(Step::Again);
        }
        let Some(locked) = locked else {
            link.roll_back().await?;
            let lost = (task.seen == Some(known.layout)).then_some(0);
            return make(&shared, link, &known, task, lost).await;
        };
        if task.unsure.take().is_some_and(|mark| locked.marks.contains(&mark)) {
            link.roll_back().await?;
            return Ok(Step::Done(None));
        }
        run(&shared, link, &known, task, locked, clock).await
    }
}

/// Makes the partition, which is not there or (`lost`) cannot be read.
async fn make(
    shared: &Shared,
    link: &Link,
    known: &Known,
    task: &mut Task,
    lost: Option<i64>,
) -> Result<Step, GatesError> {
    let now = task.batch.first().and_then(|job| job.now());
    let missing = Missing { key: &task.key, now, mark: shared.new_mark(), lost };
    if !domains::make(link, known, missing).await? {
        shared.domains.load(link, &task.key.domain).await?;
    }
    (task.remembered, task.seen, task.unsure) = (None, None, None);
    Ok(Step::Again)
}

/// Runs the operations on the locked state, and writes it.
async fn run(
    shared: &Shared,
    link: &Link,
    known: &Known,
    task: &mut Task,
    locked: Locked,
    clock: Micros,
) -> Result<Step, GatesError> {
    let domain = &*task.key.domain;
    let written_under = if locked.layout == known.layout {
        None
    } else {
        Some(shared.domains.earlier(link, domain, locked.layout).await?)
    };
    let remembered = task.remembered.take();
    let state = match (&written_under, locked.state, remembered) {
        (Some(None), _, _) => Err(Unreadable::Damaged("its settings are gone".into())),
        (_, None, Some(remembered)) => Ok(remembered.state),
        (_, None, None) => Err(Unreadable::Damaged("there is none".into())),
        (None, Some(bytes), _) => decode(&known.set, &bytes),
        (Some(Some(old)), Some(bytes), _) => decode(old, &bytes),
    };
    let mut state = match state {
        Ok(state) => state,
        Err(Unreadable::Newer(format)) => {
            link.roll_back().await?;
            return Err(GatesError::Corrupt(format!("a newer version wrote it, in format {format}")));
        }
        Err(Unreadable::Damaged(why)) => {
            link.roll_back().await?;
            tracing::error!(domain, part = &*task.key.part, "The state of gates cannot be read: {why}");
            let mark = locked.marks.first().copied();
            return make(shared, link, known, task, mark).await;
        }
    };
    // What came while the lock was waited for goes along.
    task.batch.extend(shared.lanes.take(&task.key, BATCH.saturating_sub(task.batch.len())));
    let first = task.batch.first().and_then(|job| job.now()).unwrap_or(clock);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        if let Some(Some(old)) = &written_under {
            state.reconfigure(old, &known.set, first);
        }
        state.heed(&known.set, first);
        task.batch.iter_mut().for_each(|job| job.run(&known.set, &mut state, clock));
        encode(&state)
    }));
    let bytes = ran.unwrap_or_else(|_| Err("the rules failed on it".into())).map_err(GatesError::Corrupt)?;
    let mark = shared.new_mark();
    let usage = state.usage();
    let new = Written {
        mark,
        layout: known.layout,
        state: &bytes,
        used_at: clock,
        due_at: state.next_wakeup(),
        usage: [usage.keys, usage.leases, usage.quarantined, usage.places].map(|n| n as i32),
        channel: &shared.channel,
        payloads: &payloads(&shared.speaker, &task.key, &woken(&task.batch)),
    };
    task.unsure = Some(mark);
    link.write(&task.key, new).await?;
    task.unsure = None;
    Ok(Step::Done(Some(Box::new(Remembered { mark, layout: known.layout, state }))))
}

/// Who should ask now, each once.
fn woken(batch: &[Box<dyn Job>]) -> Vec<Holder> {
    let mut all: Vec<Holder> = batch.iter().flat_map(|job| job.woken()).copied().collect();
    let mut seen = std::collections::HashSet::with_capacity(all.len());
    all.retain(|holder| seen.insert(*holder));
    all
}

/// Whether it makes sense to try again.
enum Trouble {
    Passing,
    NoTables,
    Lasting,
}

fn trouble(error: &GatesError) -> Trouble {
    let GatesError::Unreachable(cause) = error else { return Trouble::Lasting };
    let Some(db) = cause.downcast_ref::<tokio_postgres::Error>().and_then(|e| e.as_db_error()) else {
        return Trouble::Passing;
    };
    match &db.code().code()[..2] {
        _ if *db.code() == SqlState::UNDEFINED_TABLE || *db.code() == SqlState::INVALID_SCHEMA_NAME => {
            Trouble::NoTables
        }
        // Lost connections, resources, locks, deadlocks, shutdown, sessions ended by the server; also a cached plan or
        // transaction that is no more.
        "08" | "25" | "26" | "40" | "53" | "55" | "57" | "58" | "0A" => Trouble::Passing,
        _ => Trouble::Lasting,
    }
}

/// The same error for one more caller.
fn again(error: &GatesError) -> GatesError {
    match error {
        GatesError::UnknownDomain { domain } => unknown(domain),
        GatesError::Corrupt(what) => GatesError::Corrupt(what.clone()),
        other => {
            let cause =
                std::error::Error::source(other).map_or_else(|| other.to_string(), ToString::to_string);
            GatesError::Unreachable(cause.into())
        }
    }
}
