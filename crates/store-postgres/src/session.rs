//! One process's part in the shared store: a machine that is kept equal to everybody else's, and transactions.
//!
//! The order of all commits is the order in which the head row was locked. A transaction that writes locks it, reads in
//! the next statement what others committed since, follows them, does its own work and commits with its changes. The
//! lock and the read must be two statements: the snapshot of the first may be older than its lock.
//!
//! Transactions that only read take a fixed snapshot instead: memory and rows are then of the same moment.

mod log;
mod scout;
mod sweep;

use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use tidegate_core::codes;
use tidegate_core::ids::{LeaseId, Seq};
use tidegate_core::time::Timestamp;
use tidegate_pg::Address;
use tidegate_store::machine::{self, Change, Machine, PendingSignals};
use tidegate_store::{Error, Feed, Result};
use tokio::runtime::Runtime;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use self::log::read_position;
use self::scout::Scout;
use self::sweep::Sweep;
use crate::error::{OrStore, is_lock_timeout};
use crate::link::{Link, Request, all};
use crate::listener::Heard;
use crate::options::PgOptions;
use crate::rows::foreseen::{Ahead, Completion};
use crate::rows::send::COPY_FROM;
use crate::rows::{Numbers, PgRows};
use crate::statements::{SCAN, Sql, WRITER, in_schema};
use crate::task::PgMachine;

/// Rows of the log read at once.
const FOLLOW: i64 = 1_000;

/// Rows of the log read while the lock is held. Whoever finds that many is further behind, lets go and catches up first.
const FOLLOW_INSIDE: i64 = 16;

/// Rows of the log that come with the lock while others are at it: who followed them until then knows all but the last one
/// or two. Of the third it is only asked whether it is known.
const NEWEST: i64 = 3;

/// How often to let go for that before the lock is kept while everything is read.
const PATIENCE: u32 = 4;

/// A place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) version: i64,
    pub(crate) stamp: i64,
}

/// Why a machine cannot follow.
enum Behind {
    /// The log does not go on from where the machine is: rebuild it from rows.
    Lost,
    /// Something else.
    Error(Error),
}

impl From<Error> for Behind {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// What a commit did.
pub(crate) struct Committed {
    /// What to signal.
    pub(crate) signals: PendingSignals,
    /// Whether callers must not be answered before the server's log is on disk.
    pub(crate) to_flush: bool,
    /// Whether this holds for those, too, who could live with a crash that forgets what they did.
    pub(crate) keep: bool,
}

/// What a transaction that writes was opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// A machine and its connection.
pub(crate) struct Session {
    runtime: Rc<Runtime>,
    address: Address,
    options: PgOptions,
    feed: Feed,
    /// Gone while there is no machine: `spare` has the connection then, if there is one.
    machine: Option<Box<PgMachine>>,
    spare: Option<PgRows>,
    /// The connection is of no use.
    severed: bool,
    /// Operations were applied that are not committed: the memory is ahead of the rows.
    dirty: bool,
    mark: Mark,
    /// How often the memory was rebuilt.
    rebuilds: u64,
    /// Marks to be written before the lock is waited for.
    ahead: Ahead,
    /// Follows the others while the lock is waited for.
    scout: Scout,
    /// Keeps the log short.
    sweep: Sweep,
    heard: Arc<Heard>,
    /// Whether the operations of this transaction make events.
    watching: bool,
    last_watched: Option<Instant>,
    random: tidegate_core::seed::Seed,
}

impl Session {
    /// A session without connection.
    pub(crate) fn new(
        runtime: Rc<Runtime>,
        address: Address,
        options: PgOptions,
        feed: Feed,
        heard: Arc<Heard>,
    ) -> Self {
        // Stamps need not be secret, only different.
        let seed = uuid::Uuid::now_v7().as_u128();
        let seed = (seed >> 64) as u64 ^ seed as u64;
        Self {
            runtime,
            address,
            options,
            feed,
            machine: None,
            spare: None,
            severed: false,
            dirty: false,
            mark: Mark { version: 0, stamp: 0 },
            rebuilds: 0,
            ahead: Ahead::default(),
            scout: Scout::default(),
            sweep: Sweep::default(),
            heard,
            watching: false,
            last_watched: None,
            random: tidegate_core::seed::Seed::new(seed),
        }
    }

    /// The machine, while there is one.
    pub(crate) fn machine(&mut self) -> Result<&mut PgMachine> {
        self.machine.as_deref_mut().ok_or_else(|| Error::internal("there is no machine"))
    }

    /// Version of the last commit that the machine knows.
    pub(crate) fn version(&self) -> i64 {
        self.mark.version
    }

    /// The newest commit that the machine knows.
    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }

    /// How often the memory was rebuilt.
    pub(crate) fn rebuilds(&self) -> u64 {
        self.rebuilds
    }

    /// The rows, with the machine or without.
    fn rows(&mut self) -> Option<&mut PgRows> {
        match &mut self.machine {
            Some(machine) => Some(machine.rows_mut()),
            None => self.spare.as_mut(),
        }
    }

    /// Whether the connection is there, as far as known.
    fn is_connected(&mut self) -> bool {
        !self.severed && self.rows().is_some_and(|rows| !rows.link().is_closed())
    }

    /// Operations are about to be applied.
    pub(crate) fn dirty(&mut self) {
        self.dirty = true;
    }

    /// Whether the memory may be ahead of the rows.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Takes note of an error: after some, the connection is of no use although it may not know yet.
    pub(crate) fn note(&mut self, error: &Error) {
        self.severed |= error.code == codes::STORE_UNREACHABLE;
    }

    /// Makes the session ready: connected, with a machine.
    pub(crate) fn mend(&mut self) -> Result<()> {
        if !self.is_connected() {
            self.connect()?;
        }
        if self.machine.is_none() {
            self.rebuild()?;
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<()> {
        let link = self.runtime.block_on(Link::open(&self.address, &self.options, WRITER))?;
        self.severed = false;
        match (&mut self.machine, &mut self.spare) {
            (Some(machine), _) => machine.rows_mut().replace_link(link),
            (None, Some(rows)) => rows.replace_link(link),
            (None, spare @ None) => {
                let numbers = Numbers { next_seq: Seq(1), next_lease: LeaseId(1) };
                let scan = in_schema(SCAN, &self.options.schema);
                *spare = Some(PgRows::new(self.runtime.clone(), link, numbers, scan));
            }
        }
        Ok(())
    }

    /// Throws the machine away: its memory is ahead of the rows, or behind what the log still has.
    pub(crate) fn discard(&mut self) {
        self.dirty = false;
        if let Some(machine) = self.machine.take() {
            let mut rows = machine.into_rows();
            rows.forget();
            self.spare = Some(rows);
        }
    }

    /// Ends a transaction that failed. The connection is given up if even that fails.
    pub(crate) fn roll_back(&mut self) {
        let runtime = self.runtime.clone();
        let severed = self.severed;
        let Some(rows) = self.rows() else { return };
        rows.forget();
        // A connection that is gone has rolled back by itself.
        if !severed
            && !rows.link().is_closed()
            && let Err(error) = runtime.block_on(rows.link().batch("ROLLBACK"))
        {
            self.note(&error);
        }
    }

    /// Rebuilds the machine from one snapshot, without holding up anybody.
    fn rebuild(&mut self) -> Result<()> {
        let Some(mut rows) = self.spare.take() else { return Err(Error::internal("there is no connection")) };
        let began = Instant::now();
        let settings = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; \
             SET LOCAL enable_seqscan = on; SET LOCAL enable_mergejoin = on; SET LOCAL enable_hashjoin = on; \
             SET LOCAL plan_cache_mode = auto;";
        let opened = self.runtime.block_on(async {
            let link = rows.link();
            link.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
            link.batch(settings).await?;
            link.query(Sql::LogLast, &[]).await
        });
        let last = opened.and_then(|found| {
            let row = found.first().ok_or_else(|| Error::new(codes::CORRUPT, "the log is empty"))?;
            read_position(row)
        });
        let (mark, numbers, now) = match last {
            Ok(last) => last,
            Err(error) => {
                self.spare = Some(rows);
                self.note(&error);
                self.roll_back();
                return Err(error);
            }
        };
        rows.set_numbers(numbers);
        // The machine keeps the rows even if this fails, so the connection goes with it.
        let mut machine = Box::new(Machine::open(rows, now)?);
        if !machine.rows_mut().is_clean() {
            return Err(Error::internal("rebuilding the memory would have written rows"));
        }
        let rows = machine.rows_mut();
        rows.forget();
        self.runtime.block_on(rows.link().batch("COMMIT"))?;
        machine.record_changes(true);
        let late_ms = self.options.late.as_millis() as i64;
        machine.tolerate_late_readings(late_ms);
        machine.rows_mut().tolerate_late_readings(late_ms);
        self.sweep.start_over(mark.version);
        self.rebuilds += 1;
        machine.rows_mut().set_time(now);
        self.mark = mark;
        self.machine = Some(machine);
        // What happened meanwhile was not turned into events.
        self.feed.skip_to(mark.version.cast_unsigned());
        let took = began.elapsed().as_millis() as u64;
        tracing::info!(version = mark.version, took_ms = took, "Read the store's rows into memory.");
        Ok(())
    }

    /// The next transaction is going to complete these jobs. Their marks are written at its beginning.
    pub(crate) fn foresee(&mut self, completions: Vec<Completion>, now: Timestamp) -> Result<()> {
        self.ahead = Ahead::default();
        if completions.len() >= COPY_FROM {
            self.mend()?;
            let version = self.mark.version;
            let machine = self.machine()?;
            let at = machine.rows_mut().time().max(now);
            let mut ahead = Ahead { version, ..Ahead::default() };
            for (ticket, result) in completions {
                let mark =
                    machine.holds(ticket).then(|| machine.rows_mut().foreseen().mark(ticket, result, at));
                if let Some(mark) = mark.flatten() {
                    ahead.tickets.push(ticket);
                    ahead.marks.insert(ticket.seq, mark);
                }
            }
            self.ahead = ahead;
        }
        Ok(())
    }

    /// Marks were written ahead. Those of jobs that somebody else took while the lock was waited for are taken back.
    fn written(&mut self, mut ahead: Ahead) -> Result<()> {
        let current = ahead.version == self.mark.version;
        let machine = self.machine()?;
        if !current {
            let lost: BTreeSet<Seq> =
                ahead.tickets.iter().filter(|ticket| !machine.holds(**ticket)).map(|t| t.seq).collect();
            if !lost.is_empty() {
                ahead.marks.retain(|seq, _| !lost.contains(seq));
                machine.rows_mut().take_back(lost)?;
            }
        }
        machine.rows_mut().foreseen().written(ahead.marks);
        Ok(())
    }

    /// Opens a transaction with memory and rows of the same moment. Mends what can be mended: nothing was done yet.
    pub(crate) fn begin(&mut self, kind: Kind) -> Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            self.mend()?;
            let foreseen = !self.ahead.marks.is_empty();
            let error = match self.try_begin(kind, 0) {
                Ok(()) => return Ok(()),
                Err(Behind::Lost) => {
                    self.roll_back();
                    self.discard();
                    Error::new(codes::STORE_FAILED, "the store changes faster than its rows can be read")
                }
                Err(Behind::Error(error)) => {
                    self.note(&error);
                    self.roll_back();
                    if is_lock_timeout(&error) && tries < 3 && self.free_lock() {
                        continue;
                    }
                    error
                }
            };
            // What was foreseen may be what the server refuses; the next try is without it.
            if foreseen && tries < 3 {
                continue;
            }
            if tries == 3 || (self.is_connected() && self.machine.is_some()) {
                return Err(error);
            }
        }
    }

    /// What made operations fail.
    pub(crate) fn cause_of(&mut self, error: Error) -> Error {
        match self.rows() {
            Some(rows) => rows.cause_of(error),
            None => error,
        }
    }

    /// Ends the session of whoever stands still with the lock. Whether there was one.
    fn free_lock(&mut self) -> bool {
        let freed = self.end_who_stands_still();
        match &freed {
            Ok(true) => tracing::warn!("A session that stood still with the lock of the store was ended."),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!("Who stands still with the lock of the store could not be asked: {error}");
            }
        }
        freed.unwrap_or(false)
    }

    /// Looks twice, as long apart as anybody may stand still: one that copies slowly has gone on meanwhile.
    fn end_who_stands_still(&mut self) -> Result<bool> {
        let (nobody, nothing): (Option<i32>, Option<i64>) = (None, None);
        let found = self.ask(Sql::HeadFree, &[&nobody, &nothing])?;
        let Some(row) = found.first() else { return Ok(false) };
        let (holder, sent): (i32, i64) = (row.try_get(0).or_store()?, row.try_get(1).or_store()?);
        std::thread::sleep(self.options.idle_in_transaction);
        let found = self.ask(Sql::HeadFree, &[&holder, &sent])?;
        found.first().map_or(Ok(false), |row| row.try_get(2).or_store())
    }

    fn try_begin(&mut self, kind: Kind, tries: u32) -> Result<(), Behind> {
        let writes = kind == Kind::Write;
        // Others are at it: what they did is followed before the lock is asked for, and while it is waited for.
        let rivals = writes && self.scout.has_rivals();
        if rivals && self.heard.version() > self.mark.version {
            while self.catch_up()? {}
        }
        let ahead = if writes { std::mem::take(&mut self.ahead) } else { Ahead::default() };
        let rows_to_copy =
            if ahead.marks.is_empty() { None } else { Some(PgRows::marks_to_copy(&ahead.marks)?) };
        let settings = self.options.pooled.then(|| self.options.settings(true));
        let from = self.mark.version;
        let most = if writes && tries < PATIENCE { FOLLOW_INSIDE } else { FOLLOW };
        let rows = self.machine()?.rows_mut();
        let (runtime, shared) = (rows.runtime(), rows.shared_link());
        let link = &*shared;
        let mut requests: Vec<Request<'_, Vec<Row>>> = vec![Box::pin(async move {
            link.batch(if writes { "BEGIN" } else { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" })
                .await?;
            Ok(vec![])
        })];
        if let Some(settings) = settings {
            requests.push(Box::pin(async move {
                link.batch(&settings).await?;
                Ok(vec![])
            }));
        }
        if let Some(copied) = rows_to_copy {
            requests.push(Box::pin(async move {
                link.copy(Sql::DoneCopy, copied).await?;
                Ok(vec![])
            }));
        }
        if writes {
            requests.push(Box::pin(async move { link.query(Sql::HeadLock, &[]).await }));
        }
        requests.push(Box::pin(async move {
            if rivals {
                return link.query(Sql::LogNewest, &[&from, &NEWEST]).await;
            }
            link.query(Sql::LogAfter, &[&from, &most]).await
        }));
        let mut answers = if rivals {
            self.wait_and_follow(&runtime, pin!(all(requests)))?
        } else {
            runtime.block_on(all(requests))
        };
        let mut log = answers.pop().unwrap_or_else(|| Ok(vec![]));
        if rivals && let Ok(newest) = &mut log {
            newest.reverse();
            let (from, oldest) = (self.mark.version, newest.first().map(read_position).transpose()?);
            if oldest.is_none_or(|(mark, _, _)| mark.version > from) {
                log = runtime.block_on(link.query(Sql::LogAfter, &[&from, &most]));
            }
        }
        let lock = if writes { answers.pop() } else { None };
        for answer in answers {
            answer?;
        }
        let (alive, readable_from) = match lock.transpose()?.as_deref() {
            Some([row, ..]) => (row.try_get(0).or_store()?, row.try_get(1).or_store()?),
            Some([]) => (false, 0),
            None => (true, 0),
        };
        // Somebody may have migrated since this process started.
        crate::schema::may_use(readable_from)?;
        if !alive {
            if !ahead.marks.is_empty() {
                // Reviving commits, and nothing has decided on these marks: what they are about may be lost.
                self.roll_back();
                return self.try_begin(kind, tries + 1);
            }
            self.revive()?;
            return Err(Behind::Lost);
        }
        let log = log?;
        let whole = (log.len() as i64) < most;
        self.follow(&log)?;
        if whole {
            return Ok(self.written(ahead)?);
        }
        // Far behind: the rest is read without holding up anybody.
        self.roll_back();
        // Not with the marks again: they would be older than their time says.
        drop(ahead);
        while self.catch_up()? {}
        self.try_begin(kind, tries + 1)
    }

    /// Readies the machine for operations of a transaction. What it followed is known to be committed: it is returned.
    pub(crate) fn start(&mut self) -> Result<PendingSignals> {
        let watched = self.watched();
        self.watching = watched;
        let machine = self.machine()?;
        machine.watch(watched);
        machine.measure();
        Ok(machine.take_signals())
    }

    /// Commits what the operations did. If they must survive a crash, a patient commit waits until they do, and any
    /// other says that somebody has to.
    pub(crate) fn commit(&mut self, durable: bool, patient: bool) -> Result<Committed> {
        let (next, stamp) = (self.mark.version + 1, self.random.next_u64().cast_signed());
        // As it was when the operations ran: who came since has missed nothing that was promised.
        let watched = self.watching;
        let channel = self.options.schema.name().to_owned();
        let durable_claims = self.options.durable_claims;
        let machine = self.machine()?;
        let changes = machine.take_changes();
        let position = machine.position();
        let keep = durable_claims || machine.must_keep();
        let durable = durable || keep;
        let signals = machine.take_signals();
        let events = machine.take_events();
        let wakes = signals.work || !signals.cancels.is_empty();
        let logged = !changes.is_empty();
        let rows = machine.rows_mut();
        // The clock may have gone back and forth since: the time of the commit does not tell.
        if changes.iter().any(|change| matches!(change, Change::Rebased(_))) {
            rows.clock_went_back();
        }
        let changes = machine::encode(&changes)?;
        let idle = rows.is_clean() && !logged;
        // What was seen and found to be so already may not be on disk yet either: others do not wait inside the lock.
        // And what leaves no row in the log could not be found there again after a crash.
        let waits = durable && (patient || !logged) && !idle;
        rows.commit(|link| {
            let mut more: Vec<Request<'_, ()>> = vec![];
            if logged {
                let (seq, lease, now) = (position.next_seq.0, position.next_lease.0, position.now.0);
                more.push(Box::pin(async move {
                    let params: &[&(dyn ToSql + Sync)] = &[&next, &stamp, &seq, &lease, &now, &changes];
                    link.execute(Sql::LogAppend, params).await.map(drop)
                }));
            }
            if logged && wakes {
                more.push(Box::pin(async move {
                    link.query(Sql::LogNotify, &[&channel, &format!("c{next}")]).await.map(drop)
                }));
            }
            if !waits && !idle {
                more.push(Box::pin(link.batch("SET LOCAL synchronous_commit = off")));
            }
            more
        })?;
        self.dirty = false;
        let feed = self.feed.clone();
        self.machine()?.count_seen(feed.meter());
        if logged {
            self.machine()?.rows_mut().set_time(position.now);
            self.mark = Mark { version: next, stamp };
            self.publish(watched, events);
        }
        Ok(Committed { signals, to_flush: durable && !waits, keep })
    }

    /// Reads rows, inside a transaction or not.
    pub(crate) fn ask(&mut self, sql: Sql, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.mend()?;
        let rows = self.machine()?.rows_mut();
        let answer = rows.runtime().block_on(rows.link().query(sql, params));
        if let Err(error) = &answer {
            self.note(error);
        }
        answer
    }

    /// Ends a transaction that wrote nothing.
    pub(crate) fn finish_reading(&mut self) -> Result<()> {
        let rows = self.machine()?.rows_mut();
        rows.commit(|_| vec![])
    }
}
