//! The syncer: a thread that waits for the disk, so that the writer need not.
//!
//! The writer commits a group to the log without waiting and goes on; who relies on the change is handed over here and
//! answered once the disk has it. One wait serves every group handed over before it began. The log is one file,
//! written in order: when a group is on disk, so is every group before it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use tidegate_store::feed::JobEvent;
use tidegate_store::{Error, Feed, Result};

use crate::error::from_io;
use crate::writer::Operation;

/// What one commit leaves to do once it is on disk.
pub(crate) struct Batch {
    /// Answered then.
    pub(crate) callers: Vec<Box<dyn Operation>>,
    /// Published then: the number of the commit, and what happened.
    pub(crate) events: (u64, Vec<JobEvent>),
}

/// Commits the disk may be behind before the writer waits for it: a disk that hangs must not fill the memory.
const BEHIND: usize = 64;

/// Stands for the disk: held while it is synced. Tests hold it, or say what it answers, to see who waits.
pub(crate) type Disk = Arc<Mutex<Option<Error>>>;

/// The writer's end.
pub(crate) struct Syncer {
    /// `None`: nothing waits for the disk, for tests.
    batches: Option<mpsc::SyncSender<Batch>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    feed: Feed,
    /// Batches that are not on disk yet.
    waiting: AtomicUsize,
    /// Callers answered since the writer last asked: they may be back in a moment.
    answered: AtomicUsize,
    /// Why the log could not be synced. The system reports a lost write once; from then on nothing is answered well until
    /// the writer has put everything into the database file.
    failure: Mutex<Option<Error>>,
}

impl Syncer {
    /// Starts the thread for the log beside this database.
    pub(crate) fn start(database: &Path, waits: bool, disk: Disk, feed: Feed) -> Result<Self> {
        let shared = Arc::new(Shared {
            feed,
            waiting: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            failure: Mutex::new(None),
        });
        if !waits {
            return Ok(Self { batches: None, shared, thread: None });
        }
        let (batches, queue) = mpsc::sync_channel(BEHIND);
        let (log, theirs) = (log_of(database), shared.clone());
        let thread = std::thread::Builder::new()
            .name("tidegate-syncer".into())
            .spawn(move || serve(&log, &queue, &theirs, &disk))
            .map_err(|e| from_io("starting the syncer", &e))?;
        Ok(Self { batches: Some(batches), shared, thread: Some(thread) })
    }

    /// Where events are published.
    pub(crate) fn feed(&self) -> &Feed {
        &self.shared.feed
    }

    /// Answers these, and publishes their events, once everything committed so far is on disk.
    pub(crate) fn hand_over(&self, batch: Batch) {
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        let back = match &self.batches {
            Some(batches) => batches.send(batch).err().map(|e| e.0),
            None => Some(batch),
        };
        if let Some(batch) = back {
            self.shared.answer(vec![batch], None);
        }
    }

    /// Whether something committed is not on disk yet.
    pub(crate) fn is_behind(&self) -> bool {
        self.shared.waiting.load(Ordering::Acquire) > 0
    }

    /// Callers answered since this was last asked.
    pub(crate) fn take_answered(&self) -> usize {
        self.shared.answered.swap(0, Ordering::AcqRel)
    }

    /// Why the log could not be synced, if it could not: what is on disk is then unknown, and every commit fails until
    /// [`recovered`](Self::recovered).
    pub(crate) fn failure(&self) -> Option<Error> {
        self.shared.failure().clone()
    }

    /// Everything committed is in the database file, and that is on disk.
    pub(crate) fn recovered(&self) {
        self.shared.failure().take();
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.batches.take();
        if let Some(thread) = self.thread.take() {
            // It answers what it was given first. If it panicked, callers were told by their dropped replies.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn failure(&self) -> std::sync::MutexGuard<'_, Option<Error>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, batches: Vec<Batch>, failed: Option<&Error>) {
        let callers = batches.iter().map(|b| b.callers.len()).sum();
        self.answered.fetch_add(callers, Ordering::AcqRel);
        self.waiting.fetch_sub(batches.len(), Ordering::AcqRel);
        for Batch { callers, events: (commit, events) } in batches {
            match failed {
                None => self.feed.publish(commit, events),
                // What became of it is not known.
                Some(_) => self.feed.skip_to(commit),
            }
            for operation in callers {
                operation.answer(failed);
            }
        }
    }
}

fn serve(log: &Path, queue: &mpsc::Receiver<Batch>, shared: &Shared, disk: &Disk) {
    while let Ok(first) = queue.recv() {
        let mut batches = vec![first];
        batches.extend(queue.try_iter());
        // A commit of claims alone has nobody waiting for the disk; its events only keep their place in line.
        let somebody_waits = batches.iter().any(|b| !b.callers.is_empty());
        let failed = shared.failure().clone();
        let failed = failed.or_else(|| {
            if !somebody_waits {
                return None;
            }
            let mut disk = disk.lock().unwrap_or_else(PoisonError::into_inner);
            disk.take().or_else(|| sync(log).err())
        });
        if let Some(error) = &failed {
            // The writer must know before any caller comes back.
            *shared.failure() = Some(error.clone());
        }
        shared.answer(batches, failed.as_ref());
    }
}

/// The log of a database.
pub(crate) fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Waits until the log is on disk, whoever wrote it.
pub(crate) fn sync(log: &Path) -> Result<()> {
    let synced = File::open(log).and_then(|log| log.sync_data());
    synced.map_err(|e| from_io("syncing the write-ahead log", &e))
}
