//! From Postgres' errors to the store's: out of reach, full, damaged, or a broken rule of ours.

use tidegate_core::codes::{self, Fault};
use tidegate_pg::NotConnected;
use tidegate_store::{Error, Result};
use tokio_postgres::error::SqlState;

/// Turns results of Postgres into results of the store.
pub(crate) trait OrStore<T> {
    /// The same result with the store's error.
    fn or_store(self) -> Result<T>;
}

impl<T> OrStore<T> for std::result::Result<T, tokio_postgres::Error> {
    fn or_store(self) -> Result<T> {
        self.map_err(|e| from_postgres(&e))
    }
}

impl<T> OrStore<T> for std::result::Result<T, NotConnected> {
    fn or_store(self) -> Result<T> {
        self.map_err(|e| match e {
            NotConnected::Driver(e) => from_postgres(&e),
            NotConnected::Silent => Error::new(codes::STORE_UNREACHABLE, e.to_string()),
        })
    }
}

/// The store's error for an error of Postgres. Never names values, which may be personal data.
pub(crate) fn from_postgres(error: &tokio_postgres::Error) -> Error {
    let Some(db) = error.as_db_error() else {
        let cause = std::error::Error::source(error).map_or(String::new(), |e| format!(": {e}"));
        return Error::new(
            codes::STORE_UNREACHABLE,
            format!("the database cannot be reached: {error}{cause}"),
        );
    };
    let (said, state) = (db.message(), db.code());
    let with = |code, what: &str| Error::new(code, format!("{what}: {said} (SQLSTATE {})", state.code()));
    match &state.code()[..2] {
        _ if *state == SqlState::DISK_FULL => with(codes::STORE_FULL, "the database's disk is full"),
        // The server ends a session that stands still inside a transaction.
        "25" if state.code() == "25P03" => with(codes::STORE_UNREACHABLE, "the session was ended"),
        // A broken rule names the rule, never the value.
        "22" | "23" => with(codes::INTERNAL, "a row would break a rule of the store"),
        "XX" => with(codes::CORRUPT, "the database is damaged"),
        "08" | "53" | "57" | "58" => with(codes::STORE_UNREACHABLE, "the database cannot be reached"),
        "28" | "3D" => with(codes::STORE_UNREACHABLE, "the database does not let us in"),
        _ => with(codes::STORE_FAILED, "the database refused"),
    }
}

/// Whether a lock was waited for in vain.
pub(crate) fn is_lock_timeout(error: &Error) -> bool {
    is(error, &SqlState::LOCK_NOT_AVAILABLE)
}

/// Whether others held what was needed, and may not the next time.
pub(crate) fn is_in_the_way(error: &Error) -> bool {
    is_lock_timeout(error) || is(error, &SqlState::T_R_DEADLOCK_DETECTED)
}

fn is(error: &Error, state: &SqlState) -> bool {
    error.detail.ends_with(&format!("(SQLSTATE {})", state.code()))
}

/// A stored value that cannot be right.
pub(crate) fn corrupt(what: &str, error: impl std::fmt::Display) -> Error {
    Error::new(codes::CORRUPT, format!("the store holds {what} that cannot be read: {error}"))
}

/// Whether the operation alone was refused and the machine is as it was before.
pub(crate) fn is_refusal(error: &Error) -> bool {
    match error.code.fault {
        Fault::Usage | Fault::NotFound | Fault::State => true,
        Fault::Ours | Fault::Unreachable => false,
    }
}
