//! The store: handles that send operations to the writer, and searches and records to connections of their own.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::codes;
use tidegate_core::time::Timestamp;
use tidegate_pg::Address;
use tidegate_store::machine::Digest;
use tidegate_store::machine::standing::Stander;
use tidegate_store::params::{Claim, Claimed, Stood};
use tidegate_store::{Error, Feed, Result, Signals};
use tokio::sync::{mpsc, oneshot};

use crate::error::OrStore;
use crate::flusher::Flusher;
use crate::health::{self, PgHealth};
use crate::listener::Heard;
use crate::options::PgOptions;
use crate::readers::{For, Readers};
use crate::schema;
use crate::session::Session;
use crate::task::{Asking, Message, Operation, PgMachine, Task, Traits};
use crate::writer::{INBOX, Writer};

/// A store in a Postgres database, shared with other processes. Handles are cheap to clone; the last one that goes stops
/// the writer after what is queued. An operation whose caller goes away still takes effect.
#[derive(Debug, Clone)]
pub struct PgStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    inbox: mpsc::Sender<Message>,
    /// Numbers of claims that stood.
    standers: AtomicU64,
    readers: Mutex<Option<Arc<Readers>>>,
    heard: Arc<Heard>,
    options: PgOptions,
    signals: Signals,
    feed: Feed,
}

impl PgStore {
    /// Connects, brings the schema up to date unless the options say otherwise, and reads what there is.
    ///
    /// The URL is libpq's (`postgres://user:password@host:port/database?sslmode=…`); `schema=` and `pooled=true` in it
    /// mean what they mean in the options.
    pub async fn connect(url: &str, options: PgOptions, now: Timestamp) -> Result<Self> {
        let (address, options) = options.reach(url)?;
        if options.migrate {
            for step in schema::migrate_at(&address, &options, false).await? {
                tracing::info!(step = step.name, "Migrated the database.");
            }
        } else {
            schema::check(&address, &options).await?;
        }
        let origin = origin(&address, &options).await?;
        let (signals, feed, heard) = (Signals::default(), Feed::new(origin, 0), Arc::new(Heard::default()));
        let (inbox, queue) = mpsc::channel(INBOX);
        let (ready, started) = oneshot::channel();
        let start = {
            let (address, options, signals, feed) =
                (address.clone(), options.clone(), signals.clone(), feed.clone());
            let heard = heard.clone();
            move || serve(queue, ready, address, options, signals, feed, heard, now)
        };
        let thread = std::thread::Builder::new().name("tidegate-writer".into()).spawn(start);
        thread.map_err(|e| Error::internal(format!("starting the writer failed: {e}")))?;
        started.await.unwrap_or_else(|_| Err(closed()))?;
        let readers = Readers::start(address, options.clone(), heard.clone())?;
        let readers = Mutex::new(Some(Arc::new(readers)));
        let store = Self {
            inner: Arc::new(Inner {
                inbox,
                standers: AtomicU64::new(0),
                readers,
                heard,
                options,
                signals,
                feed,
            }),
        };
        // A clock that went back while nobody was here is noticed now, not with the first operation.
        let heard = store.inner.heard.clone();
        let beat = move |m: &mut PgMachine| m.heartbeat(vec![], now.plus_ms(heard.clock_ahead()));
        store.run(Traits { now: None, ..Traits::lease(1, now) }, beat).await?;
        Ok(store)
    }

    /// How the database is.
    pub async fn health(&self, now: Timestamp) -> Result<PgHealth> {
        let link = self.readers()?.link(For::Notes).await?;
        let inner = &self.inner;
        let (listens, wants) = (inner.heard.listens(), inner.options.listen);
        health::look(&link, listens, wants, inner.options.old_snapshot, now).await
    }

    /// What this process knows without looking at rows; equal in all processes that share a database. For tests.
    #[doc(hidden)]
    pub async fn digest(&self) -> Result<Digest> {
        self.run(Traits::memory(), |m| Ok(m.digest())).await
    }

    /// Runs an operation on the writer's thread and waits until it is durable.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        traits: Traits,
        operation: impl FnOnce(&mut PgMachine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (caller, answer) = oneshot::channel();
        self.send(Box::new(Task::new(traits, operation, caller)), answer).await
    }

    /// A claim that does not wait.
    pub(crate) async fn ask(&self, claim: Claim) -> Result<Claimed> {
        let (caller, answer) = oneshot::channel();
        self.send(Box::new(Asking::new(claim, caller)), answer).await
    }

    async fn send<T>(
        &self,
        operation: Box<dyn Operation>,
        answer: oneshot::Receiver<Result<T>>,
    ) -> Result<T> {
        self.inner.inbox.send(Message::Run(operation)).await.map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// A claim that stands with the writer until it finds something.
    pub(crate) async fn run_standing(&self, claim: Claim, leave: oneshot::Receiver<()>) -> Result<Stood> {
        let inbox = &self.inner.inbox;
        let number = self.inner.standers.fetch_add(1, Ordering::Relaxed);
        let (stander, handle) = Stander::new(claim);
        inbox.send(Message::Stand(number, Box::new(stander))).await.map_err(|_| closed())?;
        let withdraw = async { inbox.send(Message::Withdraw(number)).await.map_err(|_| closed()) };
        handle.wait(leave, withdraw, closed).await
    }

    /// As if the server had said it.
    #[cfg(test)]
    pub(crate) fn hear(&self, text: &str) {
        self.inner.heard.hear(text);
    }

    /// Connections beside the writer's.
    pub(crate) fn readers(&self) -> Result<Arc<Readers>> {
        lock(&self.inner.readers).clone().ok_or_else(closed)
    }

    /// Where signals are sent after a commit.
    pub(crate) fn channels(&self) -> &Signals {
        &self.inner.signals
    }

    /// How far the server's clock is ahead of ours.
    pub(crate) fn clock_ahead(&self) -> i64 {
        self.inner.heard.clock_ahead()
    }

    /// Where events are published.
    pub(crate) fn events(&self) -> &Feed {
        &self.inner.feed
    }

    /// Finishes what is queued and lets go of the connections.
    pub(crate) async fn shut(&self) -> Result<()> {
        if lock(&self.inner.readers).take().is_none() {
            return Ok(());
        }
        let (reply, answer) = oneshot::channel();
        self.inner.inbox.send(Message::Close(reply)).await.map_err(|_| closed())?;
        // Gone without an answer is closed as well.
        let _ = answer.await;
        Ok(())
    }
}

/// The writer's thread.
#[expect(clippy::too_many_arguments, reason = "the parts of a store, once")]
fn serve(
    queue: mpsc::Receiver<Message>,
    ready: oneshot::Sender<Result<()>>,
    address: Address,
    options: PgOptions,
    signals: Signals,
    feed: Feed,
    heard: Arc<Heard>,
    now: Timestamp,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => Rc::new(runtime),
        Err(e) => {
            let _ = ready.send(Err(Error::internal(format!("starting the writer failed: {e}"))));
            return;
        }
    };
    let poll = options.poll;
    let flusher = match Flusher::start(address.clone(), options.clone()) {
        Ok(flusher) => flusher,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let mut session = Session::new(runtime.clone(), address, options, feed, heard.clone());
    if let Err(error) = session.mend() {
        let _ = ready.send(Err(error));
        return;
    }
    if ready.send(Ok(())).is_err() {
        return;
    }
    Writer::new(queue, runtime, session, signals, heard, flusher, poll, now).run();
}

/// The number of this store, of which the numbers of its events are part.
async fn origin(address: &Address, options: &PgOptions) -> Result<u64> {
    let (client, _work) = address.open(None).await.or_store()?;
    let text = format!("SELECT value FROM {}.meta WHERE name = 'origin'", options.schema.quoted());
    let row = client.query_one(&text, &[]).await.or_store()?;
    Ok(row.try_get::<_, i64>(0).or_store()?.cast_unsigned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn closed() -> Error {
    Error::new(codes::STORE_CLOSED, "the store is closed")
}
