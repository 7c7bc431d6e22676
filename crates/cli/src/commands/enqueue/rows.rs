//! Rows of a file as jobs: JSON lines or CSV, one at a time, each with its line.
//!
//! A row's id is derived from its line number, its text, the header of its file and the run's name. The same file
//! enqueued again therefore yields the same ids, and the store leaves alone what it has: a run that was cut off is gone
//! on with by running it again. Two equal rows of one file stay two jobs.

use std::io::{BufRead, Read};

use sha2::{Digest, Sha256};
use tidegate_core::codes;
use tidegate_core::ids::JobId;
use tidegate_core::limits;
use tidegate_core::payload::{self, InvalidPayload};
use tidegate_core::time::Timestamp;
use tidegate_store::params::NewJob;

use super::csv::Records;
use super::spec::Spec;
use crate::error::{Failure, Result};
use crate::parse;

/// Room for the fields around a payload in one line of a file.
const LINE_MAX: usize = limits::MAX_PAYLOAD_BYTES + 64 * 1024;
/// What is read of a line or a record before it is refused as too long.
pub(super) const READ_MAX: u64 = LINE_MAX as u64 + 1;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// One JSON object per line.
    Jsonl,
    /// Comma-separated, with a header.
    Csv,
}

/// A job with the line it is in.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) line: u64,
    pub(super) job: NewJob,
}

/// What the rows of one file have in common.
#[derive(Debug, Clone)]
pub(super) struct Common {
    /// Kind of rows that name none.
    pub(super) kind: Option<String>,
    /// Name of the run; another name, other ids.
    pub(super) run: String,
    /// Now.
    pub(super) now: Timestamp,
}

impl Common {
    fn id(&self, line: u64, header: &str, text: &str) -> JobId {
        let mut hash = Sha256::new();
        for part in ["tidegate enqueue --from", &self.run, self.kind.as_deref().unwrap_or(""), header, text] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        hash.update(line.to_le_bytes());
        let digest = hash.finalize();
        let random = digest.iter().take(16).fold(0_u128, |n, byte| (n << 8) | u128::from(*byte));
        // No time of its own: the same row has the same id whenever it is sent.
        JobId::from_parts(0, random)
    }

    pub(super) fn job(&self, spec: &Spec, data: &str, line: u64, header: &str, text: &str) -> Result<NewJob> {
        let payload = parse::payload(data)?;
        spec.build(self.kind.as_deref(), payload, || (self.id(line, header, text), true), self.now)
    }
}

/// The rows of a file, in order. A mistake is the error and the line it is in.
pub(super) fn read<'a>(
    source: Box<dyn BufRead + Send + 'a>,
    format: Format,
    common: Common,
) -> Box<dyn Iterator<Item = Result<Row, (u64, Failure)>> + Send + 'a> {
    match format {
        Format::Jsonl => Box::new(Lines { source, common, line: 0 }),
        Format::Csv => Box::new(Records::new(source, common)),
    }
}

struct Lines<'a> {
    source: Box<dyn BufRead + Send + 'a>,
    common: Common,
    line: u64,
}

impl Iterator for Lines<'_> {
    type Item = Result<Row, (u64, Failure)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut text = String::new();
            self.line += 1;
            let read = self.source.by_ref().take(READ_MAX).read_line(&mut text);
            let failed = match read {
                Ok(0) => return None,
                Ok(n) if n > LINE_MAX => Failure::new(
                    codes::INVALID_PAYLOAD,
                    "the payload is not acceptable: the line is too long",
                ),
                Ok(_) if text.trim().is_empty() => continue,
                Ok(_) => match self.parse(text.trim()) {
                    Ok(job) => return Some(Ok(Row { line: self.line, job })),
                    Err(failure) => failure,
                },
                Err(e) => Failure::new(codes::INVALID_REQUEST, e.to_string()),
            };
            return Some(Err((self.line, failed)));
        }
    }
}

impl Lines<'_> {
    fn parse(&self, text: &str) -> Result<NewJob> {
        // Depth first: the parser below gives up near its own limit with a less helpful message.
        if payload::depth(text) > limits::MAX_PAYLOAD_DEPTH + 1 {
            return Err(InvalidPayload::TooDeep.into());
        }
        let spec: Spec = serde_json::from_str(text).map_err(|e| {
            Failure::new(codes::INVALID_REQUEST, format!("a job could not be read: {e}")).hint(
                "a line looks like {\"kind\":\"invoice.send\",\"data\":{\"order\":7},\"tenant\":\"acme\"}",
            )
        })?;
        let data = spec.data.as_ref().map_or("null", |d| d.get());
        self.common.job(&spec, data, self.line, "", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str, format: Format, run: &str) -> Vec<JobId> {
        let common = Common { kind: Some("k".into()), run: run.into(), now: Timestamp(0) };
        read(Box::new(text.as_bytes()), format, common).map(|row| row.unwrap().job.id).collect()
    }

    #[test]
    fn the_same_row_has_the_same_id_and_equal_rows_have_two() {
        let text = "{\"data\":1}\n\n{\"data\":1}\n{\"data\":2}\n";
        let first = ids(text, Format::Jsonl, "");
        assert_eq!(first, ids(text, Format::Jsonl, ""));
        assert_eq!(
            ids(&format!("{text}{{\"data\":3}}\n"), Format::Jsonl, "")[..3],
            first[..],
            "a file may grow"
        );
        assert_ne!(first[0], first[1], "equal rows stay two jobs");
        assert_ne!(ids(text, Format::Jsonl, "again")[0], first[0]);
        let csv = "order\n7\n";
        assert_ne!(
            ids(csv, Format::Csv, ""),
            ids("number\n7\n", Format::Csv, ""),
            "another header, another job"
        );
    }
}
