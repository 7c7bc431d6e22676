//! A backend that is watched: whatever is asked of it passes through, and what came of it is noted, in memory, bounded and cheap
//! (`docs/adr/0011-watching-gates.md`). Once a second, if anything was noted, the process leaves a snapshot with the backend, so
//! that everybody who asks sees what all processes have seen.
//!
//! - Per domain, the last used ones: numbers and durations, in all and lately; the same numbers per tenant, the busiest ones.
//! - The lives of the newest permits: [`Trace`].
//! - What is noted has no payload and no secret: targets, gates, numbers, holders.
//!
//! A permit counts as expired when its lease has ended and nobody settled it, by the book of the process that was given it.

mod domain;
mod histogram;
pub(crate) mod measure;
mod mermaid;
mod operations;
pub(crate) mod snapshot;
mod tally;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, BuildHasherDefault, RandomState};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::gates::{
    Admission, Call, Freed, Holder, KeyHasher, Micros, Outcome, Permit, Renewal, SECOND, Settled, Target,
};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use self::domain::{Answered, Domain};
pub use self::histogram::Histogram;
pub use self::mermaid::mermaid;
pub use self::snapshot::{
    DomainMetrics, DomainSeen, SNAPSHOT_BYTES, SNAPSHOT_KEPT, SNAPSHOTS, Snapshot, TenantSeen, TraceQuery,
    merge,
};
pub use self::tally::{Counts, Tally};
pub use self::trace::{EVENTS, Event, TRACES, Trace, What};
use crate::{Backend, Gates, GatesError, Health, Turn};

/// Domains that are noted; the one that was not used for longest goes.
pub const DOMAINS: usize = 256;
/// How often a snapshot is left.
const EVERY: Duration = Duration::from_secs(1);
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the backend's size is noted, and how often that is remembered: an hour.
const SIZED_EVERY: Micros = 60 * SECOND;
const SIZES: usize = 60;
/// Domains of which all traces are shown.
const FULLY_TRACED: usize = 16;

type Map<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gates of `B`, watched.
#[derive(Debug)]
pub struct Watched<B> {
    inner: Arc<Inner<B>>,
    /// Leaves snapshots; ends with this.
    _task: JoinSet<()>,
}

#[derive(Debug)]
struct Inner<B> {
    backend: B,
    process: String,
    since: Micros,
    domains: RwLock<Map<Box<str>, Domain>>,
    sizes: Mutex<VecDeque<(Micros, u64)>>,
    /// Time as it was last given, where it is (tests); 0 where the backend's clock goes.
    given: AtomicI64,
    changed: AtomicBool,
    bell: Notify,
}

impl<B: Backend + 'static> Watched<B> {
    /// Watches a backend. To be called inside a runtime.
    pub fn around(backend: B) -> Self {
        let random = RandomState::new().hash_one(std::process::id());
        let inner = Arc::new(Inner {
            process: format!("{}-{random:016x}", std::process::id()),
            since: backend.clock(),
            backend,
            domains: RwLock::default(),
            sizes: Mutex::default(),
            given: AtomicI64::new(0),
            changed: AtomicBool::new(false),
            bell: Notify::new(),
        });
        let (mut task, publishing) = (JoinSet::new(), inner.clone());
        task.spawn(async move { publishing.publish_for_ever().await });
        Self { inner, _task: task }
    }

    /// What this process has seen.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    /// The backend itself.
    pub fn backend(&self) -> &B {
        &self.inner.backend
    }
}

impl<B: Backend> Inner<B> {
    /// The time of an operation that was answered, and how long it took since `began`.
    fn answered(&self, given: Option<Micros>, began: Micros) -> Answered {
        let clock = self.backend.clock();
        if let Some(now) = given {
            self.given.store(now, Ordering::Relaxed);
        }
        Answered { now: given.unwrap_or(clock), took: (clock - began).max(0) }
    }

    /// The time where none is given.
    fn now(&self) -> Micros {
        match self.given.load(Ordering::Relaxed) {
            0 => self.backend.clock(),
            given => given,
        }
    }

    /// Notes something about a domain, and has it published.
    fn note(&self, domain: &str, now: Micros, note: impl FnOnce(&Domain)) {
        let domains = self.domains.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = domains.get(domain) {
            known.used.store(now, Ordering::Relaxed);
            note(known);
        } else {
            drop(domains);
            let mut domains = self.domains.write().unwrap_or_else(PoisonError::into_inner);
            if domains.len() >= DOMAINS && !domains.contains_key(domain) {
                let oldest = domains.iter().min_by_key(|(_, domain)| domain.used.load(Ordering::Relaxed));
                if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                    domains.remove(&oldest);
                }
            }
            let new = domains.entry(domain.into()).or_default();
            new.used.store(now, Ordering::Relaxed);
            note(new);
        }
        if !self.changed.load(Ordering::Relaxed) && !self.changed.swap(true, Ordering::AcqRel) {
            self.bell.notify_one();
        }
    }

    fn snapshot(&self) -> Snapshot {
        let now = self.now();
        let domains = self.domains.read().unwrap_or_else(PoisonError::into_inner);
        // With many domains few traces of each would find room, and none need be copied in vain.
        let traces = (FULLY_TRACED * TRACES / domains.len().max(1)).min(TRACES);
        let mut all: Vec<(Micros, DomainSeen)> = domains
            .iter()
            .map(|(name, domain)| (domain.used.load(Ordering::Relaxed), domain.seen(name, now, traces)))
            .collect();
        drop(domains);
        all.sort_by(|a, b| (b.0, &a.1.domain).cmp(&(a.0, &b.1.domain)));
        Snapshot {
            process: self.process.clone(),
            since: self.since,
            at: now,
            domains: all.into_iter().map(|(_, seen)| seen).collect(),
            memory: lock(&self.sizes).iter().copied().collect(),
            cut: false,
        }
    }

    async fn publish_for_ever(&self) {
        loop {
            self.bell.notified().await;
            tokio::time::sleep(EVERY).await;
            self.publish().await;
        }
    }

    /// Leaves a snapshot. One that fails is made good by the next.
    async fn publish(&self) {
        // Before looking: what is noted from here on is for the next one.
        self.changed.store(false, Ordering::Release);
        let publishing = async {
            self.note_size().await;
            self.backend.publish(&self.snapshot()).await
        };
        match tokio::time::timeout(PATIENCE, publishing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("What was seen of the gates was not published: {error}"),
            Err(_) => tracing::debug!("What was seen of the gates was not published in time"),
        }
    }

    async fn note_size(&self) {
        let now = self.now();
        let is_due = lock(&self.sizes).back().is_none_or(|(at, _)| *at + SIZED_EVERY <= now);
        if !is_due {
            return;
        }
        if let Ok(footprint) = self.backend.footprint().await {
            let mut sizes = lock(&self.sizes);
            sizes.push_back((now, footprint.bytes));
            if sizes.len() > SIZES {
                sizes.pop_front();
            }
        }
    }
}

#[async_trait]
impl<B: Backend + 'static> Gates for Watched<B> {
    async fn admit(&self, now: Option<Micros>, call: &Call) -> Result<Admission, GatesError> {
        let inner = &*self.inner;
        let began = inner.backend.clock();
        let reply = inner.backend.admit(now, call).await;
        let answered = inner.answered(now, began);
        match &reply {
            Ok(admission) => {
                inner.note(call.target.domain(), answered.now, |d| d.decided(answered, call, admission));
            }
            Err(GatesError::Unreachable(_)) => {
                inner.note(call.target.domain(), answered.now, |d| d.unanswered(answered, call));
            }
            // A call that is wrong is not one.
            Err(_) => {}
        }
        reply
    }

    async fn settle(
        &self,
        now: Option<Micros>,
        permit: &Permit,
        outcome: &Outcome,
    ) -> Result<Settled, GatesError> {
        let inner = &*self.inner;
        let settled = inner.backend.settle(now, permit, outcome).await?;
        let now = inner.answered(now, 0).now;
        inner.note(permit.target.domain(), now, |d| d.settled(now, permit, outcome, &settled));
        Ok(settled)
    }

    async fn renew(&self, now: Option<Micros>, permit: &Permit) -> Result<Renewal, GatesError> {
        let inner = &*self.inner;
        let renewal = inner.backend.renew(now, permit).await?;
        let now = inner.answered(now, 0).now;
        inner.note(permit.target.domain(), now, |d| d.renewed(now, permit, renewal));
        Ok(renewal)
    }

    async fn cancel_wait(
        &self,
        now: Option<Micros>,
        target: &Target,
        holder: &Holder,
    ) -> Result<Freed, GatesError> {
        let inner = &*self.inner;
        let freed = inner.backend.cancel_wait(now, target, holder).await?;
        let now = inner.answered(now, 0).now;
        inner.note(target.domain(), now, |d| d.cancelled(now, target, holder));
        Ok(freed)
    }

    async fn expire(&self, now: Option<Micros>, domain: &str) -> Result<Freed, GatesError> {
        self.inner.backend.expire(now, domain).await
    }

    fn clock(&self) -> Micros {
        self.inner.backend.clock()
    }

    fn generation(&self) -> u64 {
        self.inner.backend.generation()
    }

    fn health(&self) -> Option<Health> {
        self.inner.backend.health()
    }

    fn turn(&self, holder: &Holder) -> Turn {
        self.inner.backend.turn(holder)
    }
}
