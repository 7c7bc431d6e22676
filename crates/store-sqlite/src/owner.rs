//! One owner per data directory: an exclusive lock on a file that says who holds it.
//!
//! The lock is the operating system's and ends with the process, however it ends; the text in the file is for people
//! and for the error message, and is only believed while somebody holds the lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidegate_core::codes;
use tidegate_core::time::Timestamp;
use tidegate_store::{Error, Result};

use crate::error::from_io;

const LOCK_FILE: &str = "owner.lock";

/// Longest text read from a lock file.
const MAX_BYTES: u64 = 4_096;

/// Who holds a data directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    pub(crate) since: Timestamp,
    /// Where it can be talked to, if it listens.
    pub(crate) url: Option<String>,
}

/// Holding a data directory; dropping it lets go.
#[derive(Debug)]
#[must_use]
pub(crate) struct Ownership {
    file: File,
}

impl Ownership {
    /// Takes the directory, or says who has it.
    pub(crate) fn take(dir: &Path, owner: &Owner) -> Result<Self> {
        let path = dir.join(LOCK_FILE);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(|e| from_io(&format!("opening {}", path.display()), &e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(owned(dir, read_owner(&mut file).as_ref())),
            Err(TryLockError::Error(e)) => return Err(from_io(&format!("locking {}", path.display()), &e)),
        }
        let mut ownership = Self { file };
        ownership.write(owner).map_err(|e| from_io(&format!("writing {}", path.display()), &e))?;
        Ok(ownership)
    }

    fn write(&mut self, owner: &Owner) -> std::io::Result<()> {
        let text = serde_json::to_vec(owner)?;
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(&text)
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        // Nobody believes the text without the lock; emptying it only saves a reader from wondering.
        let _ = self.file.set_len(0);
    }
}

fn read_owner(file: &mut File) -> Option<Owner> {
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn owned(dir: &Path, owner: Option<&Owner>) -> Error {
    let dir = dir.display();
    let detail = match owner {
        Some(Owner { pid, since, url }) => {
            let at = url.as_ref().map_or(String::new(), |url| format!(" and answers at {url}"));
            format!("{dir} is in use by process {pid}, which has held it since {since}{at}")
        }
        // The owner locks before it writes; it has only just begun.
        None => format!("{dir} is in use by another process, which has just taken it"),
    };
    Error::new(codes::STORE_OWNED, detail)
}
