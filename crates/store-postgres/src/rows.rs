//! Rows in Postgres: [`PgRows`] keeps what the machine decides.
//!
//! The machine reads and writes rows one by one; a round trip for each would take most of its time. So
//!
//! - what it is going to read is fetched in advance, many rows at a time (`will_read`, `will_look_up`), and kept until
//!   the transaction ends: nobody else can change it, because the head row is locked or the snapshot is fixed;
//! - what it writes is gathered ([`Gathered`]) and sent with the commit, many rows a statement. Reads by key see what was
//!   gathered; reads of ranges send it first.
//!
//! So a broken rule (an id that exists) shows up at the commit.

mod claims;
mod copy;
mod fetched;
mod finished;
mod flows;
pub(crate) mod foreseen;
mod gathered;
mod jobs;
pub(crate) mod letters;
mod names;
mod runs;
mod scan;
mod schedules;
pub(crate) mod send;
mod times;
mod versions;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use tidegate_core::ids::{LeaseId, Seq};
use tidegate_core::time::Timestamp;
use tidegate_store::machine::{Change, Fate, StoredJobs};
use tidegate_store::rows::DoneRow;
use tidegate_store::{Error, Result};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql};

use self::fetched::Fetched;
use self::finished::Lists;
use self::foreseen::Foreseen;
pub(crate) use self::gathered::Gathered;
use self::runs::Runs;
use crate::error::OrStore;
use crate::link::{Link, Request};
use crate::statements::Sql;

/// The numbers that a rebuilt machine goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) next_seq: Seq,
    pub(crate) next_lease: LeaseId,
}

/// Rows of a store on one connection. Belongs to the thread of its runtime.
#[derive(Debug)]
pub(crate) struct PgRows {
    runtime: Rc<Runtime>,
    link: Arc<Link>,
    numbers: Numbers,
    /// Statement that walks over all jobs.
    scan: String,
    gathered: Gathered,
    fetched: Fetched,
    foreseen: Foreseen,
    /// Jobs of this transaction that are being copied.
    copying: Vec<JoinHandle<Result<()>>>,
    lists: Lists,
    /// Nothing is scheduled before this time: the walk for what is due begins here, for the same reason.
    due_from: Timestamp,
    /// When the last change was made.
    now: Timestamp,
}

impl PgRows {
    /// Rows on a connection. `numbers` are asked for by a machine that is opened over them.
    pub(crate) fn new(runtime: Rc<Runtime>, link: Link, numbers: Numbers, scan: String) -> Self {
        Self {
            runtime,
            link: Arc::new(link),
            numbers,
            scan,
            gathered: Gathered::default(),
            fetched: Fetched::default(),
            foreseen: Foreseen::default(),
            copying: vec![],
            lists: Lists::default(),
            due_from: Timestamp(i64::MIN),
            now: Timestamp(i64::MIN),
        }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// The connection, for requests that are under way while the machine changes.
    pub(crate) fn shared_link(&self) -> Arc<Link> {
        self.link.clone()
    }

    /// What is known before it is decided.
    pub(crate) fn foreseen(&mut self) -> &mut Foreseen {
        &mut self.foreseen
    }

    /// Rows of marks as the server takes them.
    pub(crate) fn marks_to_copy(marks: &BTreeMap<Seq, DoneRow>) -> Result<Bytes> {
        copy::done(marks)
    }

    /// Takes marks back that were written in this transaction.
    pub(crate) fn take_back(&self, marks: impl IntoIterator<Item = Seq>) -> Result<()> {
        let Runs { first, last } = Runs::of(marks);
        self.runtime.block_on(self.link.execute(Sql::DoneTakeBack, &[&first, &last])).map(drop)
    }

    /// When the last change was made, as far as known.
    pub(crate) fn time(&self) -> Timestamp {
        self.now
    }

    /// Puts another connection in place of this one. Only between transactions.
    pub(crate) fn replace_link(&mut self, link: Link) {
        self.link = Arc::new(link);
    }

    /// A job was scheduled for this time, here or elsewhere.
    pub(crate) fn scheduled(&mut self, run_at: Timestamp) {
        self.due_from = self.due_from.min(run_at);
    }

    /// Somebody else made this change.
    pub(crate) fn heed(&mut self, change: &Change) {
        match change {
            Change::Queue(queue) => self.foreseen.name_queue(&queue.name, queue.id),
            Change::Stored(StoredJobs { later: Some(at), .. })
            | Change::LetGo { fate: Fate::Scheduled(at, _), .. }
            | Change::Unblocked { later: Some(at), .. }
            | Change::NextDue(Some(at)) => self.scheduled(*at),
            Change::Rebased(_) => self.clock_went_back(),
            _ => {}
        }
    }

    /// Jobs may finish earlier than others that finished before.
    pub(crate) fn clock_went_back(&mut self) {
        self.lists.forget_trails();
    }

    /// How far the time of an operation may be behind the latest one.
    pub(crate) fn tolerate_late_readings(&mut self, ms: i64) {
        self.lists.set_late(ms);
    }

    /// A change was made at this time.
    pub(crate) fn set_time(&mut self, now: Timestamp) {
        if now < self.now {
            self.clock_went_back();
        }
        self.now = now;
    }

    /// What a machine that is opened over these rows goes on with.
    pub(crate) fn set_numbers(&mut self, numbers: Numbers) {
        self.numbers = numbers;
        self.lists.forget_trails();
        self.due_from = Timestamp(i64::MIN);
        self.forget();
    }

    /// What the writer of this connection waits with.
    pub(crate) fn runtime(&self) -> Rc<Runtime> {
        self.runtime.clone()
    }

    /// Whether anything is to be written.
    pub(crate) fn is_clean(&self) -> bool {
        self.gathered.is_empty() && self.foreseen.is_quiet()
    }

    /// Forgets what was fetched and gathered: the transaction is over.
    pub(crate) fn forget(&mut self) {
        self.gathered = Gathered::default();
        self.fetched = Fetched::default();
        self.foreseen.forget();
        self.lists.forget();
        // What is still on its way is in order before whatever ends the transaction.
        self.copying.clear();
    }

    /// Sends new jobs while the machine goes on: the server works on them meanwhile. Whether it took them is asked at the commit.
    /// One copy at a time, because each waits for the server before it sends its rows: the further away the server is, the fewer
    /// there are.
    fn copy_meanwhile(&mut self) -> Result<()> {
        // The connection writes what it was given, and reads what came for those before.
        self.runtime.block_on(tokio::task::yield_now());
        if self.copying.last().is_some_and(|copy| !copy.is_finished()) {
            return Ok(());
        }
        let (link, rows) = (self.link.clone(), self.gathered.take_piece()?);
        let (sent, is_sent) = oneshot::channel();
        self.copying.push(self.runtime.spawn(async move {
            let mut copy = pin!(link.copy(Sql::JobsCopy, rows));
            // It is sent when it is first asked for its answer; nothing that comes later may overtake it.
            let early = poll_fn(|cx| Poll::Ready(copy.as_mut().poll(cx))).await;
            let _ = sent.send(());
            match early {
                Poll::Ready(answer) => answer,
                Poll::Pending => copy.await,
            }
        }));
        self.runtime.block_on(async {
            let _ = is_sent.await;
            tokio::task::yield_now().await;
        });
        Ok(())
    }

    /// What made a transaction fail: if the server refused a copy, it refuses everything after that without saying why.
    pub(crate) fn cause_of(&mut self, error: Error) -> Error {
        let copied = std::mem::take(&mut self.copying).into_iter().map(copied_in_full).collect();
        let answers = self.runtime.block_on(crate::link::all(copied));
        answers.into_iter().find_map(Result::err).unwrap_or(error)
    }

    fn query(&self, sql: Sql, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.runtime.block_on(self.link.query(sql, params))
    }

    /// Sends what was gathered so far, before a read of a range.
    fn send_gathered(&mut self) -> Result<()> {
        self.gathered.unmarked.extend(self.foreseen.take_wrong(false));
        self.take_off_lists()?;
        if self.gathered.is_empty() {
            return Ok(());
        }
        let requests = self.gathered.requests(&self.link)?;
        let answers = self.runtime.block_on(crate::link::all(requests));
        for answer in answers {
            answer?;
        }
        self.fetched.absorb(std::mem::take(&mut self.gathered));
        Ok(())
    }

    /// Sends what was gathered together with `more`, and then commits: one round trip.
    pub(crate) fn commit(&mut self, more: impl FnOnce(&Link) -> Vec<Request<'_, ()>>) -> Result<()> {
        self.gathered.unmarked.extend(self.foreseen.take_wrong(true));
        if let Err(error) = self.take_off_lists() {
            return Err(self.cause_of(error));
        }
        let copied = std::mem::take(&mut self.copying).into_iter();
        let mut requests: Vec<Request<'_, ()>> = copied.map(copied_in_full).collect();
        requests.extend(self.gathered.requests(&self.link)?);
        requests.extend(more(&self.link));
        let (commit, rollback) = (self.link.batch("COMMIT"), self.link.batch("ROLLBACK"));
        let sent = crate::link::finish(requests, Box::pin(commit), Box::pin(rollback));
        let committed = self.runtime.block_on(sent);
        self.forget();
        committed
    }
}

/// Waits for the answer to a copy that is under way.
fn copied_in_full(copy: JoinHandle<Result<()>>) -> Request<'static, ()> {
    Box::pin(async {
        let gave_up = |e| Error::internal(format!("copying jobs met a defect: {e}"));
        copy.await.map_err(gave_up)?
    })
}

/// Reads a column.
fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T> {
    row.try_get(index).or_store()
}

/// An unsigned number as a signed column keeps it.
fn signed(number: u32) -> i32 {
    number.cast_signed()
}

/// Back again.
fn unsigned(column: i32) -> u32 {
    column.cast_unsigned()
}
