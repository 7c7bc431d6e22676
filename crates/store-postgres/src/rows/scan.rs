//! The walk over all jobs at a start: one ordered stream in Postgres' binary form, read as it comes.

use std::pin::pin;

use bytes::Buf as _;
use tidegate_core::ids::{LeaseId, Seq};
use tidegate_core::lanes::LaneId;
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::rows::{Scanned, ScannedState, Stored, TenantNo};

use super::send::state_of;
use super::unsigned;
use crate::error::{OrStore, corrupt};
use crate::link::Link;

/// Signature, flags and length of the extension: the stream begins with these.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
const HEADER: usize = SIGNATURE.len() + 8;

pub(super) async fn scan(link: &Link, text: &str, visit: &mut dyn FnMut(Scanned)) -> Result<()> {
    let mut stream = pin!(link.client().copy_out(text).await.or_store()?);
    let mut first = true;
    // The server sends one message per row, the header with the first and the end mark as the last.
    while let Some(chunk) = next(&mut stream).await {
        let chunk = chunk.or_store()?;
        let mut fields = Fields(&chunk);
        if std::mem::take(&mut first) {
            fields.skip_header()?;
        }
        while fields.0.has_remaining() {
            match fields.take(2)?.get_i16() {
                -1 => return Ok(()),
                15 => visit(read(&mut fields)?),
                other => return Err(damaged(format!("a row of {other} columns"))),
            }
        }
    }
    Err(damaged("the stream ended early"))
}

async fn next<S: futures_core::Stream + ?Sized>(stream: &mut std::pin::Pin<&mut S>) -> Option<S::Item> {
    std::future::poll_fn(|cx| stream.as_mut().poll_next(cx)).await
}

fn read(fields: &mut Fields<'_>) -> Result<Scanned> {
    let seq = Seq(fields.long()?.ok_or_else(|| damaged("a number is missing"))?);
    let run_at = Timestamp(fields.long()?.ok_or_else(|| damaged("a time is missing"))?);
    let lane = LaneId(unsigned(fields.int()?.ok_or_else(|| damaged("a lane is missing"))?));
    let tenant = fields.int()?.map(|t| TenantNo(unsigned(t)));
    let state = fields.short()?;
    let finished_at = fields.long()?.map(Timestamp);
    let delayed = fields.flag()?.unwrap_or(false);
    let blocked = fields.flag()?.unwrap_or(false);
    let waits = fields.flag()?.unwrap_or(false);
    let has_state = fields.flag()?.unwrap_or(false);
    let scanned_state = ScannedState {
        lane: fields.int()?.map(|l| LaneId(unsigned(l))),
        settled: fields.long()?.map(LeaseId),
        suspect: fields.flag()?.unwrap_or(false),
        lone_stalls: fields.int()?.map_or(0, unsigned),
        run_at: fields.long()?.map(Timestamp),
    };
    let stored = match state {
        Some(code) => {
            Stored::Finished(state_of(code)?, finished_at.ok_or_else(|| damaged("a time is missing"))?)
        }
        None if delayed => Stored::Delayed,
        None if blocked => Stored::Blocked,
        None => Stored::Open,
    };
    Ok(Scanned { seq, lane, tenant, run_at, waits, stored, state: has_state.then_some(scanned_state) })
}

/// What is left of a message. Parts of it are borrowed: to count owners for each was a sixth of all that client and server did while stores were opened
/// (sampled).
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(n).ok_or_else(|| damaged("a row is cut off"))?;
        self.0 = rest;
        Ok(part)
    }

    fn skip_header(&mut self) -> Result<()> {
        let mut header = self.take(HEADER)?;
        if !header.starts_with(SIGNATURE) {
            return Err(damaged("it does not begin as it should"));
        }
        header.advance(SIGNATURE.len() + 4);
        let extension = header.get_i32();
        self.take(usize::try_from(extension).unwrap_or(0)).map(drop)
    }

    fn field(&mut self, width: usize) -> Result<Option<&'a [u8]>> {
        match self.take(4)?.get_i32() {
            -1 => Ok(None),
            n if usize::try_from(n) == Ok(width) => self.take(width).map(Some),
            n => Err(damaged(format!("a column of {n} bytes"))),
        }
    }

    fn long(&mut self) -> Result<Option<i64>> {
        Ok(self.field(8)?.map(|mut b| b.get_i64()))
    }

    fn int(&mut self) -> Result<Option<i32>> {
        Ok(self.field(4)?.map(|mut b| b.get_i32()))
    }

    fn short(&mut self) -> Result<Option<i16>> {
        Ok(self.field(2)?.map(|mut b| b.get_i16()))
    }

    fn flag(&mut self) -> Result<Option<bool>> {
        Ok(self.field(1)?.map(|mut b| b.get_u8() != 0))
    }
}

fn damaged(why: impl std::fmt::Display) -> tidegate_store::Error {
    corrupt("a list of jobs", why)
}
