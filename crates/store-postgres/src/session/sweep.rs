//! Keeping the log short, on a connection of its own: deleting the rows of large commits takes the server tens of
//! milliseconds, and nobody is to wait for that.

use tidegate_store::Result;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;

use super::Session;
use crate::error::OrStore;
use crate::link::{Address, Link};
use crate::options::PgOptions;
use crate::statements::Sql;

/// Commits between two steps, and rows looked at in one: more than have come since.
const EVERY: i64 = 128;
const ROWS: i64 = 2 * EVERY;

/// Rows kept in the log, and their age in seconds. A process that is further behind rebuilds its memory from rows.
const LOG_ROWS: i64 = 50_000;
const LOG_SECONDS: f64 = 60.0;

/// Ends with its connection and the oldest version that is left.
type Step = JoinHandle<Result<(Link, i64)>>;

/// The connection, and how far it has come.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    link: Option<Link>,
    under_way: Option<Step>,
    /// Versions below this are gone.
    gone: i64,
    /// The newest version when the last step began.
    looked: i64,
}

impl Sweep {
    /// Another server may be behind the same address: what was known about the places of rows is not.
    pub(super) fn start_over(&mut self, version: i64) {
        (self.gone, self.looked) = (0, version);
        self.under_way = None;
    }

    /// Takes the next step, unless the last one is still under way. The runtime takes it while the writer waits.
    fn step(&mut self, runtime: &Runtime, address: &Address, options: &PgOptions, newest: i64) {
        if newest - self.looked < EVERY || self.under_way.as_ref().is_some_and(|step| !step.is_finished()) {
            return;
        }
        self.looked = newest;
        match self.under_way.take().map(|step| runtime.block_on(step)) {
            Some(Ok(Ok((link, gone)))) => (self.link, self.gone) = (Some(link), gone),
            Some(Ok(Err(error))) => tracing::debug!("The log was not pruned: {error}"),
            Some(Err(_)) | None => {}
        }
        let link = self.link.take().filter(|link| !link.is_closed());
        let (address, options, gone) = (address.clone(), options.clone(), self.gone);
        self.under_way = Some(runtime.spawn(async move {
            let link = match link {
                Some(link) => link,
                None => Link::open(&address, &options, &[Sql::LogPrune, Sql::LogFirst]).await?,
            };
            let params: &[&(dyn ToSql + Sync)] = &[&gone, &LOG_ROWS, &LOG_SECONDS, &newest, &ROWS];
            link.execute(Sql::LogPrune, params).await?;
            let first = link.query(Sql::LogFirst, &[&gone]).await?;
            let first = first.first().map(|row| row.try_get(0).or_store()).transpose()?;
            Ok((link, first.unwrap_or(gone)))
        }));
    }
}

impl Session {
    /// Forgets old rows of the log, now and then.
    pub(crate) fn prune_log(&mut self) {
        let Self { runtime, address, options, sweep, mark, .. } = self;
        sweep.step(runtime, address, options, mark.version);
    }
}
