//! A few threads with read-only connections, for searches: they never hold up the writer.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tidegate_core::codes;
use tidegate_store::{Error, Result};
use tokio::sync::{mpsc, oneshot};

use crate::error::from_io;
use crate::schema;

/// Connections; a search is short and there are two kinds of people: those on call and those with a dashboard.
const READERS: usize = 2;

/// Searches queued before callers wait.
const QUEUED: usize = 64;

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// The pool. Dropping it lets the threads end.
#[derive(Debug)]
pub(crate) struct Readers {
    jobs: mpsc::Sender<Job>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Opens the connections on a file that has a schema.
    pub(crate) fn start(path: &Path) -> Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>(QUEUED);
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = vec![];
        for _ in 0..READERS {
            let conn = schema::open_reader(path)?;
            let queue = queue.clone();
            let thread = std::thread::Builder::new()
                .name("tidegate-reader".into())
                .spawn(move || serve(&conn, &queue));
            threads.push(thread.map_err(|e| from_io("starting a reader", &e))?);
        }
        Ok(Self { jobs, threads })
    }

    /// The threads, which end when their work is done.
    pub(crate) fn stop(self) -> Vec<JoinHandle<()>> {
        self.threads
    }

    /// A place to send work to.
    pub(crate) fn sender(&self) -> Sender {
        Sender(self.jobs.clone())
    }
}

/// Sends work to the readers.
pub(crate) struct Sender(mpsc::Sender<Job>);

impl Sender {
    /// Runs a function on one of the connections.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |conn| {
            let _ = reply.send(read(conn));
        });
        let closed = || Error::new(codes::STORE_CLOSED, "the store is closed");
        self.0.send(job).await.map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(Error::internal("a search met a defect")))
    }
}

fn serve(conn: &Connection, queue: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        // One idle thread waits in the channel, the other for the lock: either way for work.
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        let Some(job) = job else { return };
        // A panic would cost a reader for good; its caller is told by the dropped reply.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(conn)));
    }
}
