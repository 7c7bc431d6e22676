//! Real processes, really killed.
//!
//! `victim` is a small program on the library: it enqueues numbered jobs, runs them, and writes what it saw to plain
//! files with one system call a line. The tests kill it again and again and then judge by those files and by reading
//! the database with SQLite itself, without any of Tidegate's own counters.

pub mod flow;
pub mod gates;

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tidegate_core::ids::JobId;

/// The files of one ordeal.
#[derive(Debug, Clone)]
pub struct Files {
    /// The data directory.
    pub data: PathBuf,
    /// Numbers whose enqueue was acknowledged: `first count` a line.
    pub acknowledged: PathBuf,
    /// Runs: `start NUMBER LEASE LEASE_UNTIL_MS NOW_MS` and `end NUMBER LEASE NOW_MS` a line.
    pub runs: PathBuf,
}

impl Files {
    /// Files under this directory.
    pub fn under(dir: &Path) -> Self {
        Self { data: dir.join("data"), acknowledged: dir.join("acknowledged"), runs: dir.join("runs") }
    }
}

/// A file to which whole lines are appended, each in one write: a killed process leaves no half line behind.
#[derive(Debug)]
pub struct Lines(File);

impl Lines {
    /// Opens or makes the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().create(true).append(true).open(path)?))
    }

    /// Appends a line.
    pub fn add(&self, parts: &[i64], word: &str) -> io::Result<()> {
        let mut line = word.to_owned();
        for part in parts {
            let _ = write!(line, " {part}");
        }
        line.push('\n');
        (&self.0).write_all(line.as_bytes())
    }
}

/// Words of each whole line of a file; empty if there is none. What comes after the last line is being written.
pub fn read(path: &Path) -> io::Result<Vec<Vec<String>>> {
    if !path.exists() {
        return Ok(vec![]);
    }
    let text = std::fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    Ok(whole.lines().map(|l| l.split(' ').map(str::to_owned).collect()).collect())
}

/// The id of the numbered job: the same in every process, so that an enqueue can be sent again.
pub fn id_of(number: u64) -> JobId {
    JobId::from_parts(1_700_000_000_000 + number, u128::from(number))
}

/// The number of a job.
pub fn number_of(id: JobId) -> u64 {
    (id.uuid().as_u128() >> 80) as u64 - 1_700_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_their_ids() {
        for n in [0, 1, 49_999] {
            assert_eq!(number_of(id_of(n)), n);
        }
    }
}
