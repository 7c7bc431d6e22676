//! How the database is, for `doctor` and health checks.

use std::time::{Duration, Instant};

use serde::Serialize;
use tidegate_core::time::Timestamp;
use tidegate_store::{Error, Result};
use tokio_postgres::Row;

use crate::error::OrStore;
use crate::link::Link;
use crate::statements::Sql;

/// A clock that differs from the server's by more than this makes leases end early or late.
const CLOCKS_APART_MS: i64 = 500;

/// Longest log that is healthy: it is pruned, so a longer one says that it is not.
const LONG_LOG: i64 = 200_000;

/// Rows of the inbox beyond which they are not counted.
const INBOX_COUNTED: i64 = 10_000;

/// How the database is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PgHealth {
    /// The server's version.
    pub server_version: String,
    /// Time of one round trip.
    pub round_trip_ms: f64,
    /// How far the server's clock is ahead of the caller's.
    pub clock_ahead_ms: i64,
    /// Age of the oldest open snapshot that keeps the server from cleaning up, as far as this role may see.
    pub oldest_snapshot_s: i64,
    /// Commits in the log.
    pub log_rows: i64,
    /// Jobs in the inbox, waiting to be taken over; counted up to 10,001.
    pub inbox_rows: i64,
    /// Whether other processes' commits are heard of at once. If not, they are found by polling.
    pub listening: bool,
    /// What somebody should look at.
    pub warnings: Vec<String>,
}

pub(crate) async fn look(
    link: &Link,
    listening: bool,
    wants_to_listen: bool,
    old_snapshot: Duration,
    now: Timestamp,
) -> Result<PgHealth> {
    let began = Instant::now();
    let rows = link.query(Sql::HealthLook, &[]).await?;
    let round_trip_ms = began.elapsed().as_secs_f64() * 1_000.0;
    let row = rows.first().ok_or_else(|| Error::internal("the server said nothing about itself"))?;
    let number = |i: usize| number(row, i);
    let mut health = PgHealth {
        server_version: row.try_get(0).or_store()?,
        round_trip_ms,
        clock_ahead_ms: number(1)? - now.0,
        oldest_snapshot_s: number(2)?.max(number(3)?),
        log_rows: number(4)?,
        inbox_rows: number(5)?,
        listening,
        warnings: vec![],
    };
    health.warnings = warnings(&health, wants_to_listen, old_snapshot);
    Ok(health)
}

fn number(row: &Row, index: usize) -> Result<i64> {
    row.try_get(index).or_store()
}

fn warnings(health: &PgHealth, wants_to_listen: bool, old_snapshot: Duration) -> Vec<String> {
    let mut warnings = vec![];
    let seconds = health.oldest_snapshot_s;
    if seconds >= old_snapshot.as_secs() as i64 {
        warnings.push(format!(
            "a transaction has been open for {seconds} s and keeps the database from cleaning up; see pg_stat_activity"
        ));
    }
    if health.clock_ahead_ms.abs() > CLOCKS_APART_MS {
        let ms = health.clock_ahead_ms;
        warnings.push(format!("the clocks of this machine and the database are {ms} ms apart"));
    }
    if health.log_rows > LONG_LOG {
        warnings.push(format!("the log has {} rows and is not pruned", health.log_rows));
    }
    if health.inbox_rows > INBOX_COUNTED {
        warnings.push(format!("more than {INBOX_COUNTED} jobs wait in the inbox"));
    }
    if wants_to_listen && !health.listening {
        warnings.push("LISTEN does not work; other processes' commits are found by polling".to_owned());
    }
    warnings
}
