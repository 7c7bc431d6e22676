//! Waiting for the server's disk, outside the lock.
//!
//! A commit that waits for the disk holds up everybody's commits for that long. So the writer commits without waiting,
//! goes on with the next group and hands the callers over to a thread that has the server write its log down, once for all
//! groups that came meanwhile, of all processes. The log is written in order: whatever those groups had seen is on disk
//! with them. Callers are answered then, as late as before; only the others no longer wait.

use std::thread::JoinHandle;

use tidegate_core::codes;
use tidegate_pg::Address;
use tidegate_store::{Error, Result};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::error::OrStore;
use crate::link::Link;
use crate::options::PgOptions;
use crate::session::Mark;
use crate::statements::Sql;
use crate::task::Operation;

/// Groups that may wait for the disk before the writer waits, too.
const GROUPS: usize = 64;

/// Operations that wait to be answered.
type Callers = Vec<Box<dyn Operation>>;

/// A commit that did not wait for the disk, and who waits for it.
pub(crate) struct Flushed {
    /// Its row of the log: as long as that is there, so is all that came before it.
    pub(crate) mark: Mark,
    pub(crate) callers: Callers,
}

/// The writer's end. Dropping it answers what is left and ends the thread.
pub(crate) struct Flusher {
    groups: Option<mpsc::Sender<Flushed>>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    pub(crate) fn start(address: Address, options: PgOptions) -> Result<Self> {
        let failed =
            |e: std::io::Error| Error::new(codes::INTERNAL, format!("starting a thread failed: {e}"));
        let (groups, queue) = mpsc::channel(GROUPS);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let flush = move || Flush { runtime, address, options, link: None }.run(queue);
        let thread =
            std::thread::Builder::new().name("tidegate-flusher".into()).spawn(flush).map_err(failed)?;
        Ok(Self { groups: Some(groups), thread: Some(thread) })
    }

    /// Answers these callers when what they did is on disk. Must not be called inside a runtime.
    pub(crate) fn answer_later(&self, group: Flushed) {
        let Some(groups) = &self.groups else { return };
        if let Err(mpsc::error::SendError(group)) = groups.blocking_send(group) {
            answer(group.callers, Some(&Error::internal("the thread that waits for the disk is gone")));
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.groups.take();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to answer.
            let _ = thread.join();
        }
    }
}

struct Flush {
    runtime: Runtime,
    address: Address,
    options: PgOptions,
    link: Option<Link>,
}

impl Flush {
    fn run(mut self, mut queue: mpsc::Receiver<Flushed>) {
        while let Some(Flushed { mut mark, mut callers }) = queue.blocking_recv() {
            while let Ok(more) = queue.try_recv() {
                mark = more.mark;
                callers.extend(more.callers);
            }
            // A connection that was lost says nothing about what was committed. Asked again, the answer counts only if the
            // server still has the commit: it may have crashed and forgotten it, or be another one.
            let mut flushed = self.flush(mark);
            if flushed.is_err() {
                self.link = None;
                flushed = self.flush(mark);
            }
            answer(callers, flushed.err().as_ref());
        }
    }

    fn flush(&mut self, mark: Mark) -> Result<()> {
        if self.link.as_ref().is_none_or(Link::is_closed) {
            let open = Link::open(&self.address, &self.options, &[Sql::LogFlush]);
            self.link = Some(self.runtime.block_on(open)?);
        }
        let Some(link) = &self.link else { return Err(Error::internal("there is no connection")) };
        let rows = self.runtime.block_on(link.query(Sql::LogFlush, &[&mark.version, &mark.stamp]))?;
        let kept: bool = rows.first().map_or(Ok(false), |row| row.try_get(0).or_store())?;
        if kept {
            return Ok(());
        }
        Err(Error::new(
            codes::STORE_UNREACHABLE,
            "the database lost its last commits before they were on disk",
        ))
    }
}

fn answer(callers: Callers, undone: Option<&Error>) {
    for operation in callers {
        operation.answer(undone);
    }
}
