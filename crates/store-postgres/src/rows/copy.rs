//! Many rows in Postgres' binary form.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_core::ids::Seq;
use tidegate_store::Result;
use tidegate_store::rows::{DoneRow, JobRow};

use super::send::{json, state_code};
use super::signed;

/// What comes before the first row: a signature, flags, and the length of nothing.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Room for the fixed part of a row.
const ROW: usize = 128;

/// Jobs, as `jobs/copy` takes them.
pub(super) fn jobs(jobs: &[(Seq, JobRow)]) -> Result<Bytes> {
    let texts: usize = jobs.iter().map(|(_, job)| job.payload.as_str().len()).sum();
    let mut to = begin(jobs.len() * ROW + texts);
    for (seq, job) in jobs {
        to.put_i16(11);
        for number in [seq.0, job.created_at.0, job.run_at.0, job.timeout_ms] {
            long(&mut to, number);
        }
        text(&mut to, Some(job.id.uuid().as_bytes()));
        int(&mut to, Some(job.kind.0));
        int(&mut to, Some(job.lane.0));
        int(&mut to, job.tenant.map(|t| t.0));
        int(&mut to, job.max_attempts);
        let extra = job.extra.as_ref().map(|e| json("a job", e)).transpose()?;
        text(&mut to, extra.as_ref().map(String::as_bytes));
        text(&mut to, Some(job.payload.as_str().as_bytes()));
    }
    Ok(end(to))
}

/// Marks of finished jobs, as `done/copy` takes them.
pub(super) fn done(done: &BTreeMap<Seq, DoneRow>) -> Result<Bytes> {
    let mut to = begin(done.len() * ROW);
    for (seq, row) in done {
        to.put_i16(7);
        long(&mut to, seq.0);
        long(&mut to, row.at.0);
        int(&mut to, Some(row.queue.0));
        int(&mut to, Some(row.attempt));
        to.put_i32(2);
        to.put_i16(state_code(row.state)?);
        text(&mut to, row.result.as_ref().map(|r| r.as_str().as_bytes()));
        let letter = row.letter.as_ref().map(|l| json("a dead letter", l)).transpose()?;
        text(&mut to, letter.as_ref().map(String::as_bytes));
    }
    Ok(end(to))
}

fn begin(room: usize) -> BytesMut {
    let mut to = BytesMut::with_capacity(HEADER.len() + room + 2);
    to.put_slice(HEADER);
    to
}

fn end(mut to: BytesMut) -> Bytes {
    to.put_i16(-1);
    to.freeze()
}

fn long(to: &mut BytesMut, number: i64) {
    to.put_i32(8);
    to.put_i64(number);
}

fn int(to: &mut BytesMut, number: Option<u32>) {
    match number {
        Some(number) => {
            to.put_i32(4);
            to.put_i32(signed(number));
        }
        None => to.put_i32(-1),
    }
}

fn text(to: &mut BytesMut, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            to.put_i32(bytes.len() as i32);
            to.put_slice(bytes);
        }
        None => to.put_i32(-1),
    }
}
