//! CSV with a header. Columns are fields of the payload, as text; `name:json` is read as JSON, so that numbers can be
//! numbers. Columns that begin with `@` are about the job itself: `@kind`, `@tenant`, `@delay`, …, or `@data` for the
//! whole payload as JSON. `@after` holds job ids, separated by spaces. An empty cell says nothing.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value};
use tidegate_core::codes;
use tidegate_store::params::NewJob;

use super::rows::{Common, READ_MAX, Row};
use super::spec::Spec;
use crate::config::nearest;
use crate::error::{Failure, Result};
use crate::parse;

/// Columns about the job itself.
const JOB: [&str; 18] = [
    "kind",
    "data",
    "queue",
    "tenant",
    "group",
    "priority",
    "delay",
    "at",
    "timeout",
    "max_attempts",
    "retry",
    "unique",
    "unique_while",
    "on_conflict",
    "id",
    "after",
    "on_dead",
    "traceparent",
];

/// What a column is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Column {
    /// A field of the payload, as text.
    Text(String),
    /// A field of the payload, as JSON.
    Json(String),
    /// About the job itself.
    Job(&'static str),
}

/// The records of a file.
pub(super) struct Records<'a> {
    reader: csv::Reader<Bounded<'a>>,
    read: Arc<AtomicU64>,
    header: Option<(Vec<Column>, String)>,
    common: Common,
    over: bool,
}

impl<'a> Records<'a> {
    pub(super) fn new(source: Box<dyn BufRead + Send + 'a>, common: Common) -> Self {
        let read = Arc::new(AtomicU64::new(0));
        let reader = csv::Reader::from_reader(Bounded { source, read: read.clone() });
        Self { reader, read, header: None, common, over: false }
    }

    fn step(&mut self) -> Result<Option<Row>, (u64, Failure)> {
        if self.header.is_none() {
            let names = self.reader.headers().map_err(|e| unreadable(&e))?.clone();
            let columns: Result<Vec<Column>> = names.iter().map(column).collect();
            let text = names.iter().collect::<Vec<_>>().join("\u{1f}");
            self.header = Some((columns.map_err(|f| (1, f))?, text));
        }
        self.read.store(0, Ordering::Relaxed);
        let mut record = csv::StringRecord::new();
        if !self.reader.read_record(&mut record).map_err(|e| unreadable(&e))? {
            return Ok(None);
        }
        let line = record.position().map_or(0, csv::Position::line);
        let (columns, header) =
            self.header.as_ref().map(|(c, h)| (c.as_slice(), h.as_str())).unwrap_or_default();
        let job = job(&self.common, columns, header, &record, line).map_err(|f| (line, f))?;
        Ok(Some(Row { line, job }))
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Row, (u64, Failure)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let step = self.step();
        self.over = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}

fn unreadable(error: &csv::Error) -> (u64, Failure) {
    let line = error.position().map_or(1, csv::Position::line);
    let what = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("the record has {len} fields, the header has {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "it is not UTF-8".into(),
        _ => error.to_string(),
    };
    (line, Failure::new(codes::INVALID_REQUEST, what).hint("check the commas and quotes of that line"))
}

fn column(name: &str) -> Result<Column> {
    let name = name.trim();
    if let Some(job) = name.strip_prefix('@') {
        return JOB.into_iter().find(|k| *k == job).map(Column::Job).ok_or_else(|| {
            let shown: String = job.chars().take(40).collect();
            let meant = nearest(&shown, JOB).map_or(String::new(), |k| format!("; did you mean @{k}?"));
            Failure::new(codes::INVALID_REQUEST, format!("there is no column @{shown}{meant}"))
                .hint("columns with @ are about the job: @kind, @tenant, @delay, …; others are fields of the payload")
        });
    }
    if name.is_empty() {
        return Err(Failure::new(codes::INVALID_REQUEST, "a column has no name")
            .hint("the first line of a CSV file names its columns"));
    }
    Ok(name.strip_suffix(":json").map_or_else(|| Column::Text(name.into()), |n| Column::Json(n.into())))
}

fn job(
    common: &Common,
    columns: &[Column],
    header: &str,
    record: &csv::StringRecord,
    line: u64,
) -> Result<NewJob> {
    let (mut spec, mut fields, mut whole) = (Spec::default(), Map::new(), None);
    for (column, cell) in columns.iter().zip(record) {
        match column {
            Column::Text(name) => {
                fields.insert(name.clone(), Value::from(cell));
            }
            Column::Json(name) if !cell.trim().is_empty() => {
                parse::payload(cell)?;
                let value = serde_json::from_str(cell)?;
                fields.insert(name.clone(), value);
            }
            Column::Job(field) if !cell.trim().is_empty() => match *field {
                "data" => whole = Some(cell.to_owned()),
                "after" => spec.after = cell.split_whitespace().map(str::to_owned).collect(),
                "max_attempts" => spec.max_attempts = Some(parse::number("@max_attempts", cell.trim())?),
                _ => *slot(&mut spec, field) = Some(cell.trim().to_owned()),
            },
            Column::Json(_) | Column::Job(_) => {}
        }
    }
    let data = match (whole, fields.is_empty()) {
        (Some(_), false) => {
            return Err(Failure::new(
                codes::INVALID_REQUEST,
                "a row has @data and other columns for its payload",
            )
            .hint("either @data holds the whole payload, or the columns are its fields"));
        }
        (Some(data), true) => data,
        (None, true) => "null".into(),
        (None, false) => Value::Object(fields).to_string(),
    };
    let text = record.iter().collect::<Vec<_>>().join("\u{1f}");
    common.job(&spec, &data, line, header, &text)
}

fn slot<'a>(spec: &'a mut Spec, field: &str) -> &'a mut Option<String> {
    match field {
        "kind" => &mut spec.kind,
        "queue" => &mut spec.queue,
        "tenant" => &mut spec.tenant,
        "group" => &mut spec.group,
        "priority" => &mut spec.priority,
        "delay" => &mut spec.delay,
        "at" => &mut spec.at,
        "timeout" => &mut spec.timeout,
        "retry" => &mut spec.retry,
        "unique" => &mut spec.unique,
        "unique_while" => &mut spec.unique_while,
        "on_conflict" => &mut spec.on_conflict,
        "on_dead" => &mut spec.on_dead,
        "traceparent" => &mut spec.traceparent,
        _ => &mut spec.id,
    }
}

/// A reader that refuses a record without end, such as one whose quote is never closed.
struct Bounded<'a> {
    source: Box<dyn BufRead + Send + 'a>,
    read: Arc<AtomicU64>,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(buffer)?;
        if self.read.fetch_add(n as u64, Ordering::Relaxed) + n as u64 > READ_MAX {
            return Err(io::Error::other("a record is longer than a job can be; is a quote left open?"));
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::time::Timestamp;

    use super::*;

    fn rows(text: &str) -> Vec<Result<Row, (u64, Failure)>> {
        let common = Common { kind: Some("invoice.send".into()), run: String::new(), now: Timestamp(0) };
        Records::new(Box::new(text.as_bytes()), common).collect()
    }

    #[test]
    fn columns_become_the_payload_and_the_job() {
        let text = "order:json,name,@tenant,@delay\n7,\"Ada, Countess\",acme,5s\n8,Grace,,\n";
        let rows: Vec<Row> = rows(text).into_iter().map(Result::unwrap).collect();
        assert_eq!(rows[0].job.payload.as_str(), "{\"name\":\"Ada, Countess\",\"order\":7}");
        assert_eq!(rows[0].job.tenant.as_ref().unwrap().as_str(), "acme");
        assert_eq!((rows[0].job.run_at, rows[0].line), (Some(Timestamp(5_000)), 2));
        assert_eq!((rows[1].job.tenant.as_ref(), rows[1].job.run_at, rows[1].line), (None, None, 3));
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, line, said) in [
            ("@tenannt\nx\n", 1, "did you mean @tenant?"),
            ("a,b\n1,2\n3\n", 3, "has 1 fields, the header has 2"),
            ("a,\n1,2\n", 1, "no name"),
            ("@data,a\n1,2\n", 2, "@data and other columns"),
            ("n:json\n{\n", 2, "not JSON"),
            ("@max_attempts\nmany\n", 2, "not a whole number"),
        ] {
            let (at, failure) = rows(text).into_iter().find_map(Result::err).unwrap();
            let told = failure.json().to_string();
            assert_eq!(at, line, "{text}: {told}");
            assert!(told.contains(said), "{told}");
        }
    }

    #[test]
    fn a_quote_that_is_never_closed_does_not_fill_the_memory() {
        let endless = Box::new(io::BufReader::new("a\n\"".as_bytes().chain(io::repeat(b'x'))));
        let common = Common { kind: Some("k".into()), run: String::new(), now: Timestamp(0) };
        let first = Records::new(endless, common).next().unwrap();
        assert!(first.unwrap_err().1.json().to_string().contains("quote left open"));
    }
}
