//! Following the others while the lock is waited for.
//!
//! A process that waits for its turn has nothing else to do, and what it follows meanwhile it need not follow while it
//! holds up everybody else. The connection is busy waiting, so this takes another one.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_store::Result;
use tokio::runtime::Runtime;
use tokio_postgres::Row;

use super::{Behind, FOLLOW, Session};
use crate::link::Link;
use crate::listener::Heard;
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

/// When to look at the log again.
struct Lookout {
    heard: Arc<Heard>,
    /// The newest commit that was heard of when a look found nothing: not worth another one. Somebody may say what is not so, and
    /// a database that was brought back from a backup begins below what was heard of it.
    in_vain: i64,
}

impl Lookout {
    /// Waits until there may be something after this version. The newest commit that was heard of by then.
    async fn wait(&self, from: i64) -> i64 {
        // Heard or not, it is looked at.
        let _ = tokio::time::timeout(LOOK, self.heard.beyond(from.max(self.in_vain))).await;
        self.heard.version()
    }

    /// What a look brought.
    fn note(&mut self, newest: i64, found: bool) {
        if !found {
            self.in_vain = newest;
        }
    }
}

/// What came first.
enum First<T> {
    Answer(T),
    Log(i64, Result<Vec<Row>>),
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
        let mut lookout = Lookout { heard: self.heard.clone(), in_vain: 0 };
        loop {
            let from = self.mark.version;
            let Some(link) = &self.scout.link else { return Ok(runtime.block_on(answer)) };
            let news = async {
                let newest = lookout.wait(from).await;
                (newest, link.query(Sql::LogAfter, &[&from, &FOLLOW]).await)
            };
            let first = runtime.block_on(async {
                tokio::select! {
                    biased;
                    answer = &mut answer => First::Answer(answer),
                    (newest, log) = news => First::Log(newest, log),
                }
            });
            match first {
                First::Answer(answer) => return Ok(answer),
                First::Log(newest, Ok(log)) => {
                    lookout.note(newest, !log.is_empty());
                    self.follow(&log)?;
                }
                First::Log(_, Err(error)) => {
                    tracing::debug!("Others cannot be followed while the lock is waited for: {error}");
                    self.scout.link = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_commit_that_is_heard_of_and_not_found_is_not_looked_for_without_a_pause() {
        let mut lookout = Lookout { heard: Arc::default(), in_vain: 0 };
        let began = Instant::now();
        lookout.heard.hear("c900");
        assert_eq!(lookout.wait(7).await, 900);
        assert_eq!(began.elapsed(), Duration::ZERO, "it is looked for at once");
        lookout.note(900, true);
        lookout.wait(8).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "and so is what comes after what was found");
        lookout.note(900, false);
        lookout.wait(8).await;
        assert_eq!(began.elapsed(), LOOK, "not again before it is time");
        lookout.heard.hear("c901");
        assert_eq!((lookout.wait(8).await, began.elapsed()), (901, LOOK), "unless there is news");
    }
}
