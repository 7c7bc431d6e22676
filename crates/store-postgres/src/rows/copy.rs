//! Jobs in Postgres' binary form.

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_core::ids::Seq;
use tidegate_store::Result;
use tidegate_store::rows::JobRow;

use super::send::json;
use super::signed;

/// What comes before the first row: a signature, flags, and the length of nothing.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Columns of a job.
const COLUMNS: i16 = 11;

/// Bytes of a row without its texts.
const ROW: usize = 2 + COLUMNS as usize * 4 + 4 * 8 + 16 + 4 * 4;

/// The rows of these jobs, as `jobs/copy` takes them.
pub(super) fn rows(jobs: &[(Seq, JobRow)]) -> Result<Bytes> {
    let texts: usize = jobs.iter().map(|(_, job)| job.payload.as_str().len()).sum();
    let mut to = BytesMut::with_capacity(HEADER.len() + jobs.len() * ROW + texts + 2);
    to.put_slice(HEADER);
    for (seq, job) in jobs {
        to.put_i16(COLUMNS);
        for number in [seq.0, job.created_at.0, job.run_at.0, job.timeout_ms] {
            to.put_i32(8);
            to.put_i64(number);
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
    to.put_i16(-1);
    Ok(to.freeze())
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
