//! Rows in SQLite: [`SqliteRows`] keeps what the machine decides.
//!
//! All changes between [`SqliteRows::begin`] and [`SqliteRows::commit`] become durable together, or not at all. New
//! jobs, finished marks and changed letters are gathered and written many at a time, before anything reads them and at the latest with
//! the commit; so a broken rule (an id that exists) may show up at the commit.

mod batch;
mod claims;
mod flows;
mod jobs;
mod letters;
mod names;
mod records;
mod scan;
mod schedules;
mod times;
mod versions;

use std::fs::OpenOptions;
use std::io::Read as _;
use std::path::Path;
use std::rc::Rc;

use rusqlite::Connection;
use rusqlite::types::Value;
use tidegate_core::ids::Seq;
use tidegate_store::Result;
use tidegate_store::rows::{DoneRow, JobRow};

use crate::error::{OrStore, from_io};
use crate::syncer;

/// Text of a statement: `sql!("jobs/get")` is `sql/jobs/get.sql`.
macro_rules! sql {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, ".sql"))
    };
}
pub(crate) use claims::read_seqs;
pub(crate) use letters::{causes, numbers, whole};
pub(crate) use sql;

/// Frames in the write-ahead log, and how many of them the database file has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogSize {
    pub(crate) frames: i64,
    pub(crate) copied: i64,
}

/// How much a checkpoint does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checkpoint {
    /// Nothing; asks for the size of the log.
    Look,
    /// Copies what no reader holds back.
    Passive,
    /// Copies all and empties the log.
    Truncate,
}

/// Bytes before the first frame of the log, and before the page of each.
const LOG_HEADER: i64 = 32;
const LOG_FRAME_HEADER: i64 = 24;

/// Frames for which room is made in the log at a time (4 MiB).
const LOG_AHEAD: i64 = 512;

/// Rows of a store in one SQLite connection.
#[derive(Debug)]
pub struct SqliteRows {
    conn: Connection,
    new_jobs: Vec<(Seq, JobRow)>,
    new_done: Vec<(Seq, DoneRow)>,
    /// Letters that were changed, as they are stored.
    letters: Vec<(Seq, batch::LetterText)>,
    /// Whether anything ever waits for the disk; not in some tests.
    waits: bool,
}

impl SqliteRows {
    /// Rows on a connection with the current schema.
    pub(crate) fn new(conn: Connection, synchronous: bool) -> Self {
        Self {
            conn,
            new_jobs: Vec::with_capacity(batch::LARGEST),
            new_done: Vec::with_capacity(batch::LARGEST),
            letters: Vec::with_capacity(batch::LARGEST),
            waits: synchronous,
        }
    }

    /// Begins a transaction that writes.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.conn.prepare_cached("BEGIN IMMEDIATE").and_then(|mut s| s.execute([])).or_store()?;
        Ok(())
    }

    /// Commits everything since `begin` to the log. Safe from the death of the process from here on, and from a power
    /// failure once the log is synced.
    pub(crate) fn commit(&mut self) -> Result<()> {
        self.flush_jobs()?;
        self.flush_done()?;
        self.flush_letters()?;
        self.conn.prepare_cached("COMMIT").and_then(|mut s| s.execute([])).or_store()?;
        Ok(())
    }

    /// Waits until what was committed is on disk.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let Some(path) = self.conn.path().filter(|_| self.waits) else { return Ok(()) };
        syncer::sync(&syncer::log_of(Path::new(path)))
    }

    /// Fills the log's file with zeros ahead of its `frames`, and says for how many frames there is room then. A commit that
    /// makes the file longer waits for the file system's journal as well as for the data; measured, that made one
    /// commit in twenty wait for several milliseconds. SQLite reads no further than the last frame it wrote.
    pub(crate) fn make_room_in_log(&mut self, frames: i64) -> Result<i64> {
        let Some(path) = self.conn.path().filter(|_| self.waits) else { return Ok(i64::MAX) };
        let page: i64 = self.conn.pragma_query_value(None, "page_size", |row| row.get(0)).or_store()?;
        let frame = page + LOG_FRAME_HEADER;
        let filled = OpenOptions::new().append(true).open(format!("{path}-wal")).and_then(|mut log| {
            let wanted = u64::try_from(LOG_HEADER + (frames + LOG_AHEAD) * frame).unwrap_or(0);
            let missing = wanted.saturating_sub(log.metadata()?.len());
            std::io::copy(&mut std::io::repeat(0).take(missing), &mut log)?;
            log.sync_data()
        });
        filled.map_err(|e| from_io("making room in the write-ahead log", &e))?;
        Ok(frames + LOG_AHEAD)
    }

    /// Moves the write-ahead log into the database file. Never waits for readers.
    pub(crate) fn checkpoint(&mut self, how: Checkpoint) -> Result<LogSize> {
        let text = match how {
            Checkpoint::Look => "PRAGMA wal_checkpoint(NOOP)",
            Checkpoint::Passive => "PRAGMA wal_checkpoint(PASSIVE)",
            Checkpoint::Truncate => "PRAGMA wal_checkpoint(TRUNCATE)",
        };
        let mut statement = self.conn.prepare_cached(text).or_store()?;
        statement.query_row([], |row| Ok(LogSize { frames: row.get(1)?, copied: row.get(2)? })).or_store()
    }
}

/// A parameter that stands for many numbers: one statement for all of them.
fn array(jobs: &[Seq]) -> Rc<Vec<Value>> {
    Rc::new(jobs.iter().map(|seq| Value::Integer(seq.0)).collect())
}
