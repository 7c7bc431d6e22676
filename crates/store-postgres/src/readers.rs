//! Connections beside the writer's, for searches, records and health: they never hold it up.
//!
//! Their work is done by a thread of their own, which also runs the [`listener`](crate::listener). A connection is made
//! when it is first needed, and again when it was lost.

use std::sync::Arc;
use std::thread::JoinHandle;

use tidegate_core::codes;
use tidegate_pg::Address;
use tidegate_store::{Error, Result};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot};

use crate::link::Link;
use crate::listener::{Heard, listen};
use crate::options::PgOptions;
use crate::statements::READER;

/// What a connection is for; each has one, so that a long search delays no health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Search,
    Notes,
}

/// The connections.
#[derive(Debug)]
pub(crate) struct Readers {
    handle: Handle,
    address: Address,
    options: PgOptions,
    search: Mutex<Option<Arc<Link>>>,
    notes: Mutex<Option<Arc<Link>>>,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Readers {
    /// Starts the thread, and listens if that is wanted.
    pub(crate) fn start(address: Address, options: PgOptions, heard: Arc<Heard>) -> Result<Self> {
        let failed =
            |e: std::io::Error| Error::new(codes::INTERNAL, format!("starting a thread failed: {e}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let ear = options.listen.then(|| listen(address.clone(), options.clone(), heard));
        let serve = move || {
            runtime.block_on(async {
                let listening = async {
                    match ear {
                        Some(ear) => ear.await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = listening => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        };
        let thread =
            std::thread::Builder::new().name("tidegate-reader".into()).spawn(serve).map_err(failed)?;
        Ok(Self {
            handle,
            address,
            options,
            search: Mutex::new(None),
            notes: Mutex::new(None),
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// A connection for this.
    pub(crate) async fn link(&self, what: For) -> Result<Arc<Link>> {
        let place = match what {
            For::Search => &self.search,
            For::Notes => &self.notes,
        };
        let mut place = place.lock().await;
        if let Some(link) = place.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        let (address, options) = (self.address.clone(), self.options.clone());
        let open = async move {
            let link = Link::open(&address, &options, READER).await?;
            if !options.pooled {
                // Searches have as many plans as they have fields; each is planned for what it asks.
                link.batch("SET plan_cache_mode = force_custom_plan").await?;
            }
            Ok::<_, Error>(link)
        };
        let opened = self.handle.spawn(open).await;
        let closed = |_| Error::new(codes::STORE_CLOSED, "the store is closed");
        let link = Arc::new(opened.map_err(closed)??);
        *place = Some(link.clone());
        Ok(link)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It ends at once: nothing is waited for.
            let _ = thread.join();
        }
    }
}
