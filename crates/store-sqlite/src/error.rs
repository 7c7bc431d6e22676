//! From SQLite's errors to the store's: whether the disk is full, the file is damaged, or it just did not work.

use rusqlite::ffi::{self, ErrorCode};
use tidegate_core::codes;
use tidegate_store::{Error, Result};

/// Turns results of SQLite into results of the store.
pub(crate) trait OrStore<T> {
    /// The same result with the store's error.
    fn or_store(self) -> Result<T>;
}

impl<T> OrStore<T> for rusqlite::Result<T> {
    fn or_store(self) -> Result<T> {
        self.map_err(|e| from_sqlite(&e))
    }
}

/// The store's error for an error of SQLite. Never names values, which may be personal data.
pub(crate) fn from_sqlite(error: &rusqlite::Error) -> Error {
    let rusqlite::Error::SqliteFailure(failure, message) = error else {
        return Error::new(codes::CORRUPT, format!("a stored value could not be read: {error}"));
    };
    // Growing the shared-memory file of the write-ahead log fails with a code of its own when the disk is full.
    let full = failure.code == ErrorCode::DiskFull || failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE;
    let said = message.as_deref().unwrap_or("no further detail");
    let number = failure.extended_code;
    match failure.code {
        _ if full => {
            Error::new(codes::STORE_FULL, "the disk that holds the store is full; nothing was stored")
        }
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            Error::new(codes::CORRUPT, format!("the database file is damaged: {said} (SQLite code {number})"))
        }
        ErrorCode::ConstraintViolation => Error::new(
            codes::INTERNAL,
            format!("a row would break a rule of the store: {said} (SQLite code {number})"),
        ),
        _ => Error::new(codes::STORE_FAILED, format!("SQLite failed: {said} (code {number})")),
    }
}

/// The store's error for a failed call of the operating system.
pub(crate) fn from_io(what: &str, error: &std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::StorageFull {
        return Error::new(codes::STORE_FULL, format!("{what} failed: the disk is full"));
    }
    Error::new(codes::STORE_FAILED, format!("{what} failed: {error}"))
}

/// A stored value that cannot be right.
pub(crate) fn corrupt(what: &str, error: impl std::fmt::Display) -> Error {
    Error::new(codes::CORRUPT, format!("the store holds {what} that cannot be read: {error}"))
}
