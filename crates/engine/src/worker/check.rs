//! What must be right before a worker starts: exactly one handler for every kind of its queues.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

use tidegate_core::codes;
use tidegate_core::ids::{KindName, QueueName};

use super::Worker;
use crate::handler::{Handler, Settings};
use crate::{Error, Result};

/// What the check found out.
pub(super) struct Checked {
    /// Queues to serve: those of the kinds, and those that were named.
    pub(super) queues: Vec<QueueName>,
}

/// Checks the handlers and registers their kinds. A worker that is refused has registered nothing.
pub(super) async fn handlers(worker: &Worker) -> Result<Checked> {
    let queues = fit(worker).await?;
    for handler in &worker.handlers {
        register(worker, handler).await?;
    }
    // Somebody may have registered another kind meanwhile.
    all_handled(worker, &queues).await?;
    Ok(Checked { queues: queues.into_iter().collect() })
}

/// Whether handlers, kinds and queues fit each other. Returns the queues to serve.
pub(super) async fn fit(worker: &Worker) -> Result<BTreeSet<QueueName>> {
    if let Some(wrong) = &worker.wrong {
        return Err(wrong.clone());
    }
    if worker.handlers.is_empty() {
        return Err(Error::handlers("the worker has no handlers"));
    }
    let mut kinds = HashSet::new();
    for handler in &worker.handlers {
        if !kinds.insert(&*handler.kind) {
            return Err(Error::handlers(format!("kind {} has two handlers", handler.kind)));
        }
    }
    let mut queues = BTreeSet::new();
    for handler in &worker.handlers {
        queues.insert(queue_of(worker, handler).await?);
    }
    known(worker, &queues).await?;
    queues.extend(worker.queues.iter().cloned());
    all_handled(worker, &queues).await?;
    Ok(queues)
}

async fn register(worker: &Worker, handler: &Handler) -> Result<()> {
    match (&handler.settings, &handler.kind) {
        (Settings::Typed(settings), Cow::Borrowed(kind)) => {
            worker.tide.ensure_kind(kind, *settings).await?;
        }
        (Settings::Typed(settings), Cow::Owned(kind)) => {
            worker.tide.put_kind(KindName::new(kind)?, settings()?).await?;
        }
        (Settings::Given(settings), kind) => {
            worker.tide.put_kind(KindName::new(kind)?, (**settings).clone()).await?;
        }
        (Settings::Registered, _) => {}
    }
    Ok(())
}

/// The queue of a handler's kind.
async fn queue_of(worker: &Worker, handler: &Handler) -> Result<QueueName> {
    let name = KindName::new(&handler.kind)?;
    let known = worker.tide.store().kinds().await?;
    let known = known.into_iter().find(|k| k.name == name).map(|k| k.settings);
    // A document of the registry decides where its kinds go.
    if let Some(managed) = known.as_ref().filter(|k| k.managed) {
        return Ok(managed.queue.clone());
    }
    match &handler.settings {
        Settings::Typed(settings) => Ok(settings()?.queue),
        Settings::Given(settings) => Ok(settings.queue.clone()),
        Settings::Registered => {
            let found = known.map(|k| k.queue);
            found.ok_or_else(|| Error::new(codes::UNKNOWN_KIND, format!("kind `{name}` is not registered")))
        }
    }
}

async fn all_handled(worker: &Worker, queues: &BTreeSet<QueueName>) -> Result<()> {
    let kinds: HashSet<&str> = worker.handlers.iter().map(|h| &*h.kind).collect();
    let registered = worker.tide.store().kinds().await?;
    let missing: Vec<&str> = registered
        .iter()
        .filter(|k| queues.contains(&k.settings.queue) && !kinds.contains(k.name.as_str()))
        .map(|k| k.name.as_str())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!(
        "no handler for {}, registered in a queue that this worker serves (a kind that is gone for good can be moved \
         away: `tidegate kinds set KIND --queue OTHER`)",
        missing.join(", ")
    );
    Err(Error::handlers(why))
}

/// The queues that were named exist, or come with the kinds.
async fn known(worker: &Worker, made: &BTreeSet<QueueName>) -> Result<()> {
    let named = worker.queues.iter().filter(|q| !made.contains(*q));
    let named: Vec<&QueueName> = named.collect();
    if named.is_empty() {
        return Ok(());
    }
    let registered = worker.tide.store().settings().await?;
    match named.into_iter().find(|q| !registered.iter().any(|(name, _)| name == *q)) {
        Some(queue) => Err(Error::new(codes::UNKNOWN_QUEUE, format!("queue {queue} is not registered"))),
        None => Ok(()),
    }
}
