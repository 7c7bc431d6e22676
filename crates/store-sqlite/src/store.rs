//! The store: handles that send operations to the writer and searches to the readers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tidegate_core::codes;
use tidegate_core::time::Timestamp;
use tidegate_store::machine::standing::Stander;
use tidegate_store::params::{Claim, Stood};
use tidegate_store::{Error, Feed, Result, Signals};
use tokio::sync::{mpsc, oneshot};

use crate::backup;
use crate::error::from_io;
use crate::owner::{Owner, Ownership};
use crate::readers::{self, Readers};
use crate::rows::SqliteRows;
use crate::schema::{self, WriterSettings};
use crate::syncer::{Disk, Syncer};
use crate::writer::{self, Desk, INBOX, Message, Operation, SqliteMachine, Task, Traits, UnderWay, Writer};

/// Name of the database in its data directory.
pub(crate) const DATABASE: &str = "tidegate.db";

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    url: Option<String>,
    synchronous: bool,
    /// Most pages the file may have, 0 for no bound: a full disk, for tests.
    pub(crate) max_pages: Arc<AtomicU32>,
    /// The disk, for tests that hold it up.
    pub(crate) disk: Disk,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { url: None, synchronous: true, max_pages: Arc::default(), disk: Disk::default() }
    }
}

impl OpenOptions {
    /// The defaults: durable, no address.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where this owner can be talked to; told to whoever tries to open the same directory.
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Whether a commit waits until the disk has it. Switch it off only where losing the last seconds is fine, as in
    /// simulations: a crash of the machine may then lose acknowledged jobs.
    #[must_use]
    pub fn synchronous(mut self, yes: bool) -> Self {
        self.synchronous = yes;
        self
    }

    /// Opens the store in this directory, creating both if need be, and takes ownership of it.
    pub fn open(&self, dir: impl AsRef<Path>, now: Timestamp) -> Result<SqliteStore> {
        let dir = dir.as_ref();
        fs::create_dir_all(dir).map_err(|e| from_io(&format!("creating {}", dir.display()), &e))?;
        let owner = Owner { pid: std::process::id(), since: now, url: self.url.clone() };
        let ownership = Ownership::take(dir, &owner)?;
        let path = dir.join(DATABASE);
        let open = {
            let (path, options) = (path.clone(), self.clone());
            move || {
                let settings = options.settings();
                Ok(SqliteRows::new(schema::open_writer(&path, settings)?, settings.synchronous))
            }
        };
        let signals = Signals::default();
        // One run counts its own commits: a follower of an earlier run is told of a gap.
        let feed = Feed::new(now.0 as u64, 0);
        let (inbox, queue) = mpsc::channel(INBOX);
        let syncer = Syncer::start(&path, self.synchronous, self.disk.clone(), feed.clone())?;
        let writer = Writer::new(signals.clone(), open, ownership, syncer, &path, now)?;
        let readers = Readers::start(&path)?;
        let desk = Arc::new(Mutex::new(Some(writer)));
        let theirs = desk.clone();
        let thread = std::thread::Builder::new().name("tidegate-writer".into());
        let thread = thread.spawn(move || writer::serve(&theirs, queue));
        let thread = thread.map_err(|e| from_io("starting the writer", &e))?;
        let inner = Inner {
            path,
            inbox: Some(inbox),
            desk,
            under_way: Arc::default(),
            readers: Mutex::new(Some(readers)),
            thread: Mutex::new(Some(thread)),
            signals,
            feed,
            standers: AtomicU64::new(0),
        };
        Ok(SqliteStore { inner: Arc::new(inner) })
    }

    fn settings(&self) -> WriterSettings {
        let pages = self.max_pages.load(Ordering::Relaxed);
        WriterSettings { synchronous: self.synchronous, max_pages: (pages > 0).then_some(pages) }
    }
}

/// A store in one SQLite file. Handles are cheap to clone; the last one that goes stops the writer after what is
/// queued. An operation whose caller goes away still takes effect.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    inbox: Option<mpsc::Sender<Message>>,
    desk: Desk,
    /// Operations that are not answered yet.
    under_way: Arc<AtomicUsize>,
    readers: Mutex<Option<Readers>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    signals: Signals,
    feed: Feed,
    /// The number of the next claim that stands.
    standers: AtomicU64,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.inbox.take();
        let readers = lock(&self.readers).take();
        // Joined so that files and lock are free when the last handle is gone. A thread that panicked has let go too.
        let writer = lock(&self.thread).take();
        for thread in readers.map(Readers::stop).into_iter().flatten().chain(writer) {
            let _ = thread.join();
        }
    }
}

impl SqliteStore {
    /// Opens the store in this directory with the defaults.
    pub fn open(dir: impl AsRef<Path>, now: Timestamp) -> Result<Self> {
        OpenOptions::new().open(dir, now)
    }

    /// Copies the store, as it is now, to a file that must not exist, while writes go on. Blocks until it is done;
    /// `progress` hears of pages done and pages in all.
    pub fn backup(&self, to: &Path, progress: impl FnMut(u64, u64)) -> Result<()> {
        if lock(&self.inner.readers).is_none() {
            return Err(closed());
        }
        backup::backup_file(&self.inner.path, to, progress)
    }

    /// Runs an operation on the writer's thread and waits until it is durable.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        traits: Traits,
        operation: impl FnOnce(&mut SqliteMachine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (caller, answer) = oneshot::channel();
        let (under_way, is_alone) = UnderWay::new(&self.inner.under_way);
        let mut task: Box<dyn Operation> = Box::new(Task::new(traits, operation, caller, under_way));
        let inbox = self.inner.inbox.as_ref().ok_or_else(closed)?;
        if traits.brief && is_alone {
            match writer::do_at_once(&self.inner.desk, task) {
                Ok(log_is_full) => {
                    if log_is_full {
                        // A full inbox means that the thread is busy and looks by itself.
                        let _ = inbox.try_send(Message::CopyLog);
                    }
                    return answer.await.unwrap_or_else(|_| Err(closed()));
                }
                Err(back) => task = back,
            }
        }
        inbox.send(Message::Run(task)).await.map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Leaves a claim with the writer until it gets something.
    pub(crate) async fn run_standing(&self, claim: Claim, leave: oneshot::Receiver<()>) -> Result<Stood> {
        let inbox = self.inner.inbox.as_ref().ok_or_else(closed)?;
        let number = self.inner.standers.fetch_add(1, Ordering::Relaxed);
        let (stander, handle) = Stander::new(claim);
        inbox.send(Message::Stand(number, Box::new(stander))).await.map_err(|_| closed())?;
        let withdraw = async { inbox.send(Message::Withdraw(number)).await.map_err(|_| closed()) };
        handle.wait(leave, withdraw, closed).await
    }

    /// Where searches are sent.
    pub(crate) fn readers(&self) -> Result<readers::Sender> {
        lock(&self.inner.readers).as_ref().map(Readers::sender).ok_or_else(closed)
    }

    /// Where signals are sent after a commit.
    pub(crate) fn channels(&self) -> &Signals {
        &self.inner.signals
    }

    /// What happened to jobs.
    pub(crate) fn events(&self) -> &Feed {
        &self.inner.feed
    }

    /// Operations that wait for the writer.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.inner.inbox.as_ref().map_or(0, |inbox| inbox.max_capacity() - inbox.capacity())
    }

    /// Finishes what is queued, copies the log into the file and lets go of the directory.
    pub(crate) async fn shut(&self) -> Result<()> {
        let Some(readers) = lock(&self.inner.readers).take() else { return Ok(()) };
        let (reply, answer) = oneshot::channel();
        let inbox = self.inner.inbox.as_ref().ok_or_else(closed)?;
        let close = Message::Close { readers: readers.stop(), reply };
        inbox.send(close).await.map_err(|_| closed())?;
        let closed = answer.await.unwrap_or_else(|_| Err(closed()));
        if let Some(thread) = lock(&self.inner.thread).take() {
            // It has answered as its last act.
            let _ = thread.join();
        }
        closed
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn closed() -> Error {
    Error::new(codes::STORE_CLOSED, "the store is closed")
}
