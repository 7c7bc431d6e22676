//! The data directory: where it is, whether there is anything in it, opening, closing and copying it. The only place
//! that knows which store is behind the commands.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_core::codes;
use tidegate_store::Store;
use tidegate_store_sqlite::SqliteStore;

use crate::args::Global;
use crate::error::{Failure, Result};
use crate::output::Bulk;
use crate::parse;

/// Directory where nothing else is named.
const DEFAULT_DIR: &str = "./tidegate-data";
/// Names the directory, if `--dir` does not.
const DIR_VARIABLE: &str = "TIDEGATE_DATA";
/// File that makes a directory a data directory.
const DATABASE: &str = "tidegate.db";

/// An open data directory.
pub(crate) struct Data {
    /// Its store.
    pub(crate) store: Arc<dyn Store>,
}

impl Data {
    /// Lets go of the files.
    pub(crate) async fn close(&self) -> Result<()> {
        Ok(self.store.close().await?)
    }
}

/// The directory that is meant.
pub(crate) fn directory(global: &Global) -> PathBuf {
    let variable = || std::env::var_os(DIR_VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from);
    global.dir.clone().or_else(variable).unwrap_or_else(|| PathBuf::from(DEFAULT_DIR))
}

/// Whether a directory holds data.
pub(crate) fn exists(dir: &Path) -> bool {
    dir.join(DATABASE).is_file()
}

/// The directory, if it holds data.
pub(crate) fn existing_directory(global: &Global) -> Result<PathBuf> {
    let dir = directory(global);
    if exists(&dir) {
        Ok(dir)
    } else {
        Err(Failure::new(codes::NO_DATA, format!("no data at {}", dir.display())))
    }
}

/// Opens a directory that holds data; never makes one.
pub(crate) async fn existing(global: &Global) -> Result<Data> {
    open(&existing_directory(global)?).await
}

/// Opens a directory, making it if need be.
pub(crate) async fn open_or_create(global: &Global) -> Result<Data> {
    open(&directory(global)).await
}

/// Opens this directory, making it if need be.
pub(crate) async fn open(dir: &Path) -> Result<Data> {
    let dir = dir.to_owned();
    let store = blocking(move || SqliteStore::open(dir, parse::now())).await??;
    Ok(Data { store: Arc::new(store) })
}

/// What became of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copied {
    /// It is there.
    Whole,
    /// Ctrl-C; nothing is there.
    Interrupted,
}

/// Thrown through a copy to end it early.
struct Stop;

/// Copies a data directory, whoever owns it, into a file that must not exist.
pub(crate) async fn backup(dir: PathBuf, file: PathBuf, bulk: Arc<Bulk>) -> Result<Copied> {
    let copy = tokio::task::spawn_blocking(move || {
        tidegate_store_sqlite::backup(&dir, &file, |done, total| {
            bulk.set(done, total);
            if bulk.interrupted() {
                // A copy has no other way to be stopped. Unwinding removes the half-written file.
                resume_unwind(Box::new(Stop));
            }
        })
    });
    match copy.await {
        Ok(done) => Ok(done.map(|()| Copied::Whole)?),
        Err(e) => match e.try_into_panic() {
            Ok(panic) if panic.is::<Stop>() => Ok(Copied::Interrupted),
            Ok(panic) => resume_unwind(panic),
            Err(e) => Err(Failure::new(codes::INTERNAL, e.to_string())),
        },
    }
}

/// Makes a data directory from a backup.
pub(crate) async fn restore(file: &Path, dir: &Path) -> Result<()> {
    let (file, dir) = (file.to_owned(), dir.to_owned());
    Ok(blocking(move || tidegate_store_sqlite::restore(&file, &dir, parse::now())).await??)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{ColorChoice, Output};

    #[tokio::test]
    async fn an_interrupted_backup_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("data"), dir.path().join("copy.tidegate"));
        let data = open(&from).await.unwrap();
        let bulk = Arc::new(Bulk::start(&Output::detect(true, ColorChoice::Never), "Backing up", 0));
        bulk.interrupt();
        assert_eq!(backup(from.clone(), to.clone(), bulk).await.unwrap(), Copied::Interrupted);
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["data"], "no copy, whole or half");

        let bulk = Arc::new(Bulk::start(&Output::detect(true, ColorChoice::Never), "Backing up", 0));
        assert_eq!(backup(from, to.clone(), bulk).await.unwrap(), Copied::Whole);
        assert!(to.is_file());
        data.close().await.unwrap();
    }
}
