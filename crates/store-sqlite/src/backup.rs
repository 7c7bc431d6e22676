//! Backup while writes go on, and restore into a new directory.
//!
//! A backup is one consistent snapshot: a read transaction is held on the source for its whole length, so commits of
//! the writer neither show up in it nor make it start over. It holds everything that was acknowledged before the call.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use tidegate_core::codes;
use tidegate_core::time::Timestamp;
use tidegate_store::{Error, Result};

use crate::error::{OrStore, from_io};
use crate::owner::{Owner, Ownership};
use crate::rows::sql;
use crate::schema;
use crate::store::DATABASE;

/// Pages copied between two reports of progress.
const STEP_PAGES: i32 = 256;

/// Runs that a restored store skips, so that its lease numbers are larger than any that the original handed out after
/// the backup.
const RUNS_SKIPPED: i64 = 1 << 10;

/// Backs up the store in a data directory, whoever owns it, to a file that must not exist.
pub fn backup(dir: &Path, to: &Path, progress: impl FnMut(u64, u64)) -> Result<()> {
    let path = dir.join(DATABASE);
    if !path.exists() {
        let detail = format!("{} holds no Tidegate database", dir.display());
        return Err(Error::new(codes::STORE_FAILED, detail));
    }
    backup_file(&path, to, progress)
}

/// Backs up a database file.
pub(crate) fn backup_file(from: &Path, to: &Path, mut progress: impl FnMut(u64, u64)) -> Result<()> {
    refuse_existing(to)?;
    let part = Part::beside(to)?;
    let source = schema::open_reader(from)?;
    schema::refuse_foreign(&source)?;
    // From here on the source shows the state of this moment.
    source.execute_batch("BEGIN").or_store()?;
    schema::version(&source)?;
    let mut target = Connection::open(&part.path).or_store()?;
    // The copy is worthless until it is complete; it reaches the disk in one go at the end.
    target.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF").or_store()?;
    {
        let copy = Backup::new(&source, &mut target).or_store()?;
        loop {
            let step = copy.step(STEP_PAGES).or_store()?;
            let state = copy.progress();
            let total = u64::try_from(state.pagecount).unwrap_or(0);
            progress(total - u64::try_from(state.remaining).unwrap_or(0), total);
            match step {
                StepResult::Done => break,
                StepResult::More => {}
                StepResult::Busy | StepResult::Locked => {
                    return Err(Error::new(
                        codes::STORE_FAILED,
                        "the backup's own file is locked by another program",
                    ));
                }
                other => return Err(Error::internal(format!("a backup step ended with {other:?}"))),
            }
        }
    }
    target.close().map_err(|(_, e)| e).or_store()?;
    part.finish(to)
}

/// Restores a backup into a directory that holds no database. The copy is checked before it takes its place.
pub fn restore(from: &Path, into_dir: &Path, now: Timestamp) -> Result<()> {
    if !from.is_file() {
        return Err(Error::new(codes::STORE_FAILED, format!("{} is not a file", from.display())));
    }
    let log = with_suffix(from, "-wal");
    if fs::metadata(&log).is_ok_and(|m| m.len() > 0) {
        let detail =
            format!("{} is a live database, not a backup; make one with `tidegate backup`", from.display());
        return Err(Error::new(codes::STORE_FAILED, detail));
    }
    fs::create_dir_all(into_dir).map_err(|e| from_io(&format!("creating {}", into_dir.display()), &e))?;
    let owner = Owner { pid: std::process::id(), since: now, url: None };
    let _ownership = Ownership::take(into_dir, &owner)?;
    let to = into_dir.join(DATABASE);
    refuse_existing(&to)?;
    refuse_existing(&with_suffix(&to, "-wal"))?;
    let part = Part::beside(&to)?;
    fs::copy(from, &part.path).map_err(|e| from_io(&format!("copying {}", from.display()), &e))?;
    check(&part.path).map_err(|e| match e.code {
        codes::CORRUPT => Error::new(codes::NOT_A_BACKUP, format!("{}: {}", from.display(), e.detail)),
        _ => e,
    })?;
    part.finish(&to)
}

/// Checks a copy, and lets its lease numbers begin anew.
fn check(path: &Path) -> Result<()> {
    let conn = Connection::open(path).or_store()?;
    schema::refuse_foreign(&conn)?;
    if schema::version(&conn)? == 0 {
        return Err(Error::new(codes::CORRUPT, "the backup holds no Tidegate database"));
    }
    let verdict: String = conn.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).or_store()?;
    if verdict != "ok" {
        return Err(Error::new(codes::CORRUPT, format!("the backup is damaged: {verdict}")));
    }
    conn.query_row(sql!("meta/add"), rusqlite::params!["epoch", RUNS_SKIPPED], |_| Ok(())).or_store()?;
    conn.close().map_err(|(_, e)| e).or_store()
}

/// A file in the making; removed unless it is finished.
struct Part {
    path: PathBuf,
}

impl Part {
    fn beside(to: &Path) -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = with_suffix(to, &format!(".{}-{number}.part", std::process::id()));
        File::create_new(&path).map_err(|e| from_io(&format!("creating {}", path.display()), &e))?;
        Ok(Self { path })
    }

    /// Brings the file to the disk and gives it its name.
    fn finish(self, to: &Path) -> Result<()> {
        let at = |e: std::io::Error| from_io(&format!("writing {}", to.display()), &e);
        File::open(&self.path).and_then(|f| f.sync_all()).map_err(at)?;
        refuse_existing(to)?;
        fs::rename(&self.path, to).map_err(at)?;
        let dir = to.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir).and_then(|d| d.sync_all()).map_err(at)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            // Gone already after it was finished; otherwise worth nothing.
            let _ = fs::remove_file(with_suffix(&self.path, suffix));
        }
    }
}

fn refuse_existing(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        let detail = format!("{} exists and is left alone", path.display());
        return Err(Error::new(codes::STORE_FAILED, detail));
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}
