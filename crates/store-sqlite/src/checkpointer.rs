//! The checkpointer: a thread that copies the log into the database file while the writer goes on.
//!
//! It copies what was in the log when it was asked. The writer copies the little that came meanwhile, after which the
//! log can begin anew.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use tidegate_store::Result;

use crate::error::from_io;
use crate::schema;

/// The writer's end.
pub(crate) struct Checkpointer {
    wake: Option<mpsc::SyncSender<()>>,
    busy: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread with a connection of its own.
    pub(crate) fn start(database: &Path) -> Result<Self> {
        let conn = schema::open_checkpointer(database)?;
        let (wake, woken) = mpsc::sync_channel::<()>(1);
        let busy = Arc::new(AtomicBool::new(false));
        let theirs = busy.clone();
        let run = move || {
            while woken.recv().is_ok() {
                let copied = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
                if let Err(error) = copied {
                    // Nothing is lost: the log has everything, and the writer tries itself before it grows too long.
                    tracing::warn!("Copying the write-ahead log failed, it is kept: {error}");
                }
                theirs.store(false, Ordering::Release);
            }
        };
        let thread = std::thread::Builder::new()
            .name("tidegate-checkpointer".into())
            .spawn(run)
            .map_err(|e| from_io("starting the checkpointer", &e))?;
        Ok(Self { wake: Some(wake), busy, thread: Some(thread) })
    }

    /// Whether it is copying.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Copies what is in the log now.
    pub(crate) fn start_copying(&self) {
        let Some(wake) = &self.wake else { return };
        if !self.busy.swap(true, Ordering::AcqRel) && wake.try_send(()).is_err() {
            self.busy.store(false, Ordering::Release);
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.wake.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
