//! Opening the file: settings of a connection, and the schema brought up to date.
//!
//! `PRAGMA user_version` is the number of the last migration. An older file is migrated in one transaction, a newer
//! one is refused. Settings, with what was measured for each, are constants here.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tidegate_core::codes;
use tidegate_store::{Error, Result};

use crate::error::OrStore;

/// Migrations in order; the version of a file is how many of them it has had.
const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_init.sql"),
    include_str!("../migrations/0002_records.sql"),
    include_str!("../migrations/0003_schedules.sql"),
    include_str!("../migrations/0004_dependencies.sql"),
    include_str!("../migrations/0005_registry.sql"),
    include_str!("../migrations/0006_letters.sql"),
    include_str!("../migrations/0007_untold.sql"),
    include_str!("../migrations/0008_cause.sql"),
];

/// Version of the files this program writes.
pub(crate) const VERSION: i64 = MIGRATIONS.len() as i64;

/// Marks the file as ours, for `file(1)` and for people: `TdGt`.
const APPLICATION_ID: i64 = 0x5464_4774;

/// Measured against 4 KiB: 7 to 12 % less time of the writer for bulk work, 6 % more for single inserts, and a restart
/// that reads half as many pages. 16 KiB was worse at both.
const PAGE_BYTES: u32 = 8_192;

/// Page cache of the writer: holds the upper levels of all trees and the tail of each.
const CACHE_KIB: i64 = 32 * 1_024;

/// The log is cut to this size when it begins anew.
const LOG_BYTES: i64 = 64 << 20;

/// Page cache of a reader; a search walks pages once.
const READER_CACHE_KIB: i64 = 4 * 1_024;

/// Other tools may read the file and, briefly, lock it.
const BUSY: Duration = Duration::from_secs(5);

/// Statements kept ready; there are fewer than this.
const STATEMENTS: usize = 128;

/// How the writer's connection is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriterSettings {
    /// Whether a commit waits for the disk.
    pub(crate) synchronous: bool,
    /// Most pages the file may have: a full disk, for tests.
    pub(crate) max_pages: Option<u32>,
}

/// Opens the file for its one writer, creates or migrates the schema.
pub(crate) fn open_writer(path: &Path, settings: WriterSettings) -> Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags).or_store()?;
    conn.busy_timeout(BUSY).or_store()?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    rusqlite::vtab::array::load_module(&conn).or_store()?;
    refuse_foreign(&conn)?;
    conn.pragma_update(None, "page_size", PAGE_BYTES).or_store()?;
    let mode: String =
        conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).or_store()?;
    if mode != "wal" {
        let detail =
            format!("the data directory does not allow a write-ahead log (journal mode stayed {mode})");
        return Err(Error::new(codes::STORE_FAILED, detail));
    }
    // The log is synced by the syncer, who answers; here it is synced only before it is copied.
    conn.pragma_update(None, "synchronous", if settings.synchronous { "NORMAL" } else { "OFF" })
        .or_store()?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB).or_store()?;
    conn.pragma_update(None, "temp_store", "MEMORY").or_store()?;
    conn.pragma_update(None, "foreign_keys", false).or_store()?;
    // A log that a long backup made large does not stay large.
    conn.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(())).or_store()?;
    // The writer checkpoints itself, after it has answered.
    conn.pragma_update(None, "wal_autocheckpoint", 0).or_store()?;
    // A dropped store leaves its log to the next opener; `close` checkpoints in so many words.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).or_store()?;
    // Plans do not depend on what is bound: otherwise some statements are parsed again whenever it changes.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).or_store()?;
    if let Some(pages) = settings.max_pages {
        conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).or_store()?;
    }
    migrate(&mut conn)?;
    Ok(conn)
}

/// Opens the file for copying the log into it, beside the writer.
pub(crate) fn open_checkpointer(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).or_store()?;
    conn.pragma_update(None, "synchronous", "NORMAL").or_store()?;
    conn.pragma_update(None, "wal_autocheckpoint", 0).or_store()?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).or_store()?;
    Ok(conn)
}

/// Opens the file for reading beside the writer.
pub(crate) fn open_reader(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).or_store()?;
    conn.busy_timeout(BUSY).or_store()?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    rusqlite::vtab::array::load_module(&conn).or_store()?;
    conn.pragma_update(None, "cache_size", -READER_CACHE_KIB).or_store()?;
    conn.pragma_update(None, "query_only", true).or_store()?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).or_store()?;
    Ok(conn)
}

/// Version of the schema in the file; 0 for a new file.
pub(crate) fn version(conn: &Connection) -> Result<i64> {
    conn.pragma_query_value(None, "user_version", |row| row.get(0)).or_store()
}

/// Refuses a file that a newer version wrote, or another program.
pub(crate) fn refuse_foreign(conn: &Connection) -> Result<()> {
    let found = version(conn)?;
    if found > VERSION {
        let detail = format!("the database has version {found}; this program knows versions up to {VERSION}");
        return Err(Error::new(codes::STORE_NEWER, detail));
    }
    let id: i64 = conn.pragma_query_value(None, "application_id", |row| row.get(0)).or_store()?;
    let tables: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).or_store()?;
    if tables > 0 && id != APPLICATION_ID {
        return Err(Error::new(codes::CORRUPT, "the database file was not made by Tidegate"));
    }
    Ok(())
}

fn migrate(conn: &mut Connection) -> Result<()> {
    migrate_to(conn, VERSION)
}

/// Migrates an older file to this version.
pub(crate) fn migrate_to(conn: &mut Connection, wanted: i64) -> Result<()> {
    let done = version(conn)?;
    if done == wanted {
        return Ok(());
    }
    let transaction = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).or_store()?;
    for migration in MIGRATIONS[..wanted as usize].iter().skip(done as usize) {
        transaction.execute_batch(migration).or_store()?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).or_store()?;
    transaction.pragma_update(None, "user_version", wanted).or_store()?;
    transaction.commit().or_store()
}
