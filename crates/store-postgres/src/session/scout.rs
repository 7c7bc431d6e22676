//! Following the others while the lock is waited for.
//!
//! A process that waits for its turn has nothing else to do, and what it follows meanwhile it need not follow while it
//! holds up everybody else. The connection is busy waiting, so this takes another one.

use std::pin::Pin;
use std::time::{Duration, Instant};

use tidegate_store::Result;
use tokio::runtime::Runtime;
use tokio_postgres::Row;

use super::{Behind, FOLLOW, Session};
use crate::link::Link;
use crate::statements::Sql;

/// Others count as being at it for this long after their last commit.
const RIVALS_FOR: Duration = Duration::from_secs(1);

/// Pause between two looks at the log while nothing is heard.
const LOOK: Duration = Duration::from_millis(10);

/// The connection, and whether it is needed.
#[derive(Debug, Default)]
pub(super) struct Scout {
    link: Option<Link>,
    /// When somebody else's commit was last followed.
    rivalled: Option<Instant>,
}

impl Scout {
    /// Somebody else committed.
    pub(super) fn note_rival(&mut self) {
        self.rivalled = Some(Instant::now());
    }

    /// Whether others commit, too.
    pub(super) fn has_rivals(&self) -> bool {
        self.rivalled.is_some_and(|at| at.elapsed() < RIVALS_FOR)
    }
}

/// What came first.
enum First<T> {
    Answer(T),
    Log(Result<Vec<Row>>),
}

impl Session {
    /// Waits for an answer of the server, and follows what others commit until it comes.
    pub(super) fn wait_and_follow<T>(
        &mut self,
        runtime: &Runtime,
        mut answer: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Behind> {
        if self.scout.link.as_ref().is_none_or(Link::is_closed) {
            let opened = Link::open(&self.address, &self.options, &[Sql::LogAfter]);
            // The lock may be here before the connection is.
            let first = runtime.block_on(async {
                tokio::select! {
                    biased;
                    answer = &mut answer => Ok(answer),
                    opened = opened => Err(opened),
                }
            });
            match first {
                Ok(answer) => return Ok(answer),
                Err(Ok(link)) => self.scout.link = Some(link),
                Err(Err(error)) => {
                    tracing::debug!("There is no connection to follow others with: {error}");
                    return Ok(runtime.block_on(answer));
                }
            }
        }
        loop {
            let (from, heard) = (self.mark.version, self.heard.clone());
            let Some(link) = &self.scout.link else { return Ok(runtime.block_on(answer)) };
            let news = async {
                // Heard or not, it is looked at.
                let _ = tokio::time::timeout(LOOK, heard.beyond(from)).await;
                link.query(Sql::LogAfter, &[&from, &FOLLOW]).await
            };
            let first = runtime.block_on(async {
                tokio::select! {
                    biased;
                    answer = &mut answer => First::Answer(answer),
                    log = news => First::Log(log),
                }
            });
            match first {
                First::Answer(answer) => return Ok(answer),
                First::Log(Ok(log)) => self.follow(&log)?,
                First::Log(Err(error)) => {
                    tracing::debug!("Others cannot be followed while the lock is waited for: {error}");
                    self.scout.link = None;
                }
            }
        }
    }
}
