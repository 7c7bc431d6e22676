//! Keeping the log short, on a connection of its own: deleting the rows of large commits takes the server a hundred
//! milliseconds, and its disk as well. Nobody is to wait for that, so it is done bit by bit.

use std::time::Duration;

use tidegate_pg::Address;
use tidegate_store::Result;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;

use super::Session;
use crate::error::OrStore;
use crate::link::Link;
use crate::options::PgOptions;
use crate::statements::Sql;

/// Commits between two sweeps.
const EVERY: i64 = 128;

/// Rows and bytes deleted at once, and the pause after that: up to 50 MB a second, in bits that a commit at the same time does
/// not feel.
const ROWS: i64 = 256;
const BYTES: i64 = 1 << 20;
const PAUSE: Duration = Duration::from_millis(20);

/// Rows kept in the log, and their age in seconds. A process that is further behind rebuilds its memory from rows.
const LOG_ROWS: i64 = 50_000;
const LOG_SECONDS: f64 = 60.0;

/// Ends with its connection and the oldest version that is left.
type UnderWay = JoinHandle<Result<(Link, i64)>>;

/// The connection, and how far it has come.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    link: Option<Link>,
    under_way: Option<UnderWay>,
    /// Versions below this are gone.
    gone: i64,
    /// The newest version when the last one began.
    looked: i64,
}

impl Sweep {
    /// Another server may be behind the same address: what was known about the places of rows is not.
    pub(super) fn start_over(&mut self, version: i64) {
        (self.gone, self.looked) = (0, version);
        if let Some(sweep) = self.under_way.take() {
            sweep.abort();
        }
    }

    /// Begins the next sweep, unless the last one is still under way. The runtime goes on with it while the writer
    /// waits.
    fn begin(&mut self, runtime: &Runtime, address: &Address, options: &PgOptions, newest: i64) {
        if newest - self.looked < EVERY || self.under_way.as_ref().is_some_and(|sweep| !sweep.is_finished()) {
            return;
        }
        self.looked = newest;
        match self.under_way.take().map(|sweep| runtime.block_on(sweep)) {
            Some(Ok(Ok((link, gone)))) => (self.link, self.gone) = (Some(link), gone),
            Some(Ok(Err(error))) => tracing::debug!("The log was not pruned: {error}"),
            Some(Err(_)) | None => {}
        }
        let link = self.link.take().filter(|link| !link.is_closed());
        let (address, options, mut gone) = (address.clone(), options.clone(), self.gone);
        self.under_way = Some(runtime.spawn(async move {
            let link = match link {
                Some(link) => link,
                None => Link::open(&address, &options, &[Sql::LogPrune, Sql::LogFirst]).await?,
            };
            loop {
                let params: &[&(dyn ToSql + Sync)] = &[&gone, &LOG_ROWS, &LOG_SECONDS, &ROWS, &BYTES];
                let deleted = link.execute(Sql::LogPrune, params).await?;
                let first = link.query(Sql::LogFirst, &[&gone]).await?;
                gone = first.first().map_or(Ok(gone), |row| row.try_get(0).or_store())?;
                if deleted == 0 {
                    return Ok((link, gone));
                }
                tokio::time::sleep(PAUSE).await;
            }
        }));
    }
}

impl Session {
    /// Forgets old rows of the log, now and then.
    pub(crate) fn prune_log(&mut self) {
        let Self { runtime, address, options, sweep, mark, .. } = self;
        sweep.begin(runtime, address, options, mark.version);
    }
}
