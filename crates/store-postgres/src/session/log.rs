//! The log of all commits: following it, and what a crash of the server means for it.

use std::time::{Duration, Instant};

use tidegate_core::codes;
use tidegate_core::ids::{LeaseId, Seq};
use tidegate_core::time::Timestamp;
use tidegate_store::machine;
use tidegate_store::{Error, Result};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{Behind, FOLLOW, Mark, Session};
use crate::error::OrStore;
use crate::rows::Numbers;
use crate::statements::Sql;

/// Leases of one era, between two crashes of the server: the low bits of a number count them.
const LEASE_BITS: u32 = 32;

/// Events are made for this long after the last follower left.
const WATCHED_FOR: Duration = Duration::from_mins(1);

impl Session {
    /// Reads what others committed, outside any transaction. Says whether there is more.
    pub(super) fn catch_up(&mut self) -> Result<bool, Behind> {
        let from = self.mark.version;
        let machine = self.machine()?;
        let rows = machine.rows_mut();
        let log = rows.runtime().block_on(rows.link().query(Sql::LogAfter, &[&from, &FOLLOW]))?;
        self.follow(&log)?;
        Ok(log.len() as i64 == FOLLOW)
    }

    /// Brings the memory up to date, if that can be done at once. What stands in the way shows at the next operation.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        self.mend()?;
        loop {
            match self.catch_up() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(Behind::Error(error)) => {
                    self.note(&error);
                    return Err(error);
                }
                Err(Behind::Lost) => {
                    self.discard();
                    return self.mend();
                }
            }
        }
    }

    /// Applies rows of the log, which begin with what the machine knows: the last row that it knows must be among them.
    pub(super) fn follow(&mut self, log: &[Row]) -> Result<(), Behind> {
        let mut rows = log.iter();
        let mut known = rows.next().map(read_position).transpose()?;
        while known.is_some_and(|(mark, _, _)| mark.version < self.mark.version) {
            known = rows.next().map(read_position).transpose()?;
        }
        if known.is_none_or(|(mark, _, _)| mark != self.mark) {
            return Err(Behind::Lost);
        }
        let watched = self.watched();
        for row in rows {
            let (mark, _, now) = read_position(row)?;
            if mark.version != self.mark.version + 1 {
                return Err(Behind::Lost);
            }
            // What a newer version wrote and this one does not understand is in the rows all the same.
            let bytes: Option<&[u8]> = row.try_get(5).or_store()?;
            let Some(bytes) = bytes else { return Err(Behind::Lost) };
            let machine = self.machine()?;
            machine.watch(watched);
            let followed = machine::decode(bytes).and_then(|changes| {
                for change in &changes {
                    machine.rows_mut().heed(change);
                }
                machine.follow(&changes)
            });
            if let Err(error) = followed {
                tracing::warn!(version = mark.version, "A change could not be followed: {error}");
                return Err(Behind::Lost);
            }
            let events = machine.take_events();
            machine.rows_mut().set_time(now);
            self.mark = mark;
            self.scout.note_rival();
            self.publish(watched, events);
        }
        Ok(())
    }

    /// Whether events are worth making: somebody follows, or did a moment ago and may come back.
    pub(super) fn watched(&mut self) -> bool {
        if self.feed.watched() {
            self.last_watched = Some(Instant::now());
        }
        self.last_watched.is_some_and(|at| at.elapsed() < WATCHED_FOR)
    }

    pub(super) fn publish(&self, watched: bool, events: Vec<tidegate_store::feed::JobEvent>) {
        let version = self.mark.version.cast_unsigned();
        if watched {
            self.feed.publish(version, events);
        } else {
            self.feed.skip_to(version);
        }
    }

    /// After a crash of the server, the numbers of claims that did not wait for its disk may be in use although it has
    /// forgotten them. They are skipped, durably, and with a version left out so that everybody rebuilds.
    pub(super) fn revive(&mut self) -> Result<()> {
        let stamp = self.random.next_u64().cast_signed();
        let rows = self.machine()?.rows_mut();
        let (runtime, link) = (rows.runtime(), rows.link());
        runtime.block_on(async {
            // Another process may have done it while this one waited for the lock.
            let alive = link.query(Sql::HeadAlive, &[]).await?;
            let alive: bool = alive.first().map_or(Ok(true), |row| row.try_get(0).or_store())?;
            if alive {
                return Ok(());
            }
            let last = link.query(Sql::LogLast, &[]).await?;
            let last = last.first().ok_or_else(|| Error::new(codes::CORRUPT, "the log is empty"))?;
            let (mark, numbers, now) = read_position(last)?;
            let lease = ((numbers.next_lease.0 >> LEASE_BITS) + 1) << LEASE_BITS;
            let (version, seq, nothing) = (mark.version + 2, numbers.next_seq.0, Vec::<u8>::new());
            let params: &[&(dyn ToSql + Sync)] = &[&version, &stamp, &seq, &lease, &now.0, &nothing];
            link.execute(Sql::LogAppend, params).await?;
            link.execute(Sql::HeadRevive, &[]).await?;
            link.batch("COMMIT").await
        })
    }
}

pub(super) fn read_position(row: &Row) -> Result<(Mark, Numbers, Timestamp)> {
    let number = |i: usize| row.try_get::<_, i64>(i).or_store();
    let mark = Mark { version: number(0)?, stamp: number(1)? };
    let numbers = Numbers { next_seq: Seq(number(2)?), next_lease: LeaseId(number(3)?) };
    Ok((mark, numbers, Timestamp(number(4)?)))
}
