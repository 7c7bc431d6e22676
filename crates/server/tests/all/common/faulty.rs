//! A store in memory that counts what it is asked, and fails when it is told to.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use tidegate_core::codes;
use tidegate_core::ids::{JobId, KindName, LeaseId, QueueName};
use tidegate_core::job::{Job, Park, ParkScope, Priority, State};
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::time::Timestamp;
use tidegate_core::why::Why;
use tidegate_store::params::{
    Advanced, Beat, CancelJob, CancelReply, Claim, Claimed, Enqueued, Erase, Erased, JobQuery, KindView,
    NewJob, Page, QueueView, Report, Settle, Settled, Totals,
};
use tidegate_store::{Error, Feed, Jobs, MemoryStore, Registry, Result, Signals, Store, Upkeep};

#[derive(Default)]
pub(crate) struct FaultyStore {
    pub(crate) inner: MemoryStore,
    /// Jobs, queues and kinds cannot be reached; records can.
    pub(crate) away: AtomicBool,
    /// Calls that failed because of it.
    pub(crate) failed: AtomicUsize,
    /// Calls of `settings`, which health is asked by.
    pub(crate) settings: AtomicUsize,
    /// Pages searched.
    pub(crate) searches: AtomicUsize,
    /// Most jobs of a page of a search, however many were asked for, as when it looked at many rows for them.
    pub(crate) page: AtomicUsize,
}

impl FaultyStore {
    fn there(&self) -> Result<&MemoryStore> {
        if self.away.load(Ordering::SeqCst) {
            self.failed.fetch_add(1, Ordering::SeqCst);
            return Err(Error::new(codes::STORE_UNREACHABLE, "the database is away"));
        }
        Ok(&self.inner)
    }
}

#[async_trait]
impl Jobs for FaultyStore {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.there()?.enqueue(jobs, now).await
    }
    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.there()?.claim(claim).await
    }
    async fn settle(&self, settle: Settle) -> Result<Vec<Settled>> {
        self.there()?.settle(settle).await
    }
    async fn heartbeat(&self, leases: Vec<LeaseId>, now: Timestamp) -> Result<Vec<Beat>> {
        self.there()?.heartbeat(leases, now).await
    }
    async fn report(&self, reports: Vec<Report>, now: Timestamp) -> Result<Vec<bool>> {
        self.there()?.report(reports, now).await
    }
    async fn cancel(&self, cancel: CancelJob) -> Result<CancelReply> {
        self.there()?.cancel(cancel).await
    }
    async fn run_now(&self, id: JobId, now: Timestamp) -> Result<State> {
        self.there()?.run_now(id, now).await
    }
    async fn reprioritise(&self, id: JobId, priority: Priority, now: Timestamp) -> Result<()> {
        self.there()?.reprioritise(id, priority, now).await
    }
    async fn get(&self, id: JobId) -> Result<Option<Job>> {
        self.there()?.get(id).await
    }
    async fn search(&self, query: JobQuery) -> Result<Page> {
        self.searches.fetch_add(1, Ordering::SeqCst);
        let most = match self.page.load(Ordering::SeqCst) {
            0 => query.limit,
            most => query.limit.min(most),
        };
        self.there()?.search(JobQuery { limit: most, ..query }).await
    }
    async fn dependencies(
        &self,
        id: JobId,
        held: Option<tidegate_store::params::Ticket>,
        skip: u32,
        limit: usize,
    ) -> Result<tidegate_store::params::Dependencies> {
        self.there()?.dependencies(id, held, skip, limit).await
    }
    async fn why(&self, id: JobId, now: Timestamp) -> Result<Why> {
        self.there()?.why(id, now).await
    }
}

#[async_trait]
impl Registry for FaultyStore {
    async fn put_queue(&self, name: QueueName, settings: QueueSettings, now: Timestamp) -> Result<()> {
        self.there()?.put_queue(name, settings, now).await
    }
    async fn settings(&self) -> Result<Vec<(QueueName, QueueSettings)>> {
        self.settings.fetch_add(1, Ordering::SeqCst);
        self.there()?.settings().await
    }
    async fn ensure_queue(&self, name: QueueName, now: Timestamp) -> Result<()> {
        self.there()?.ensure_queue(name, now).await
    }
    async fn put_kind(&self, name: KindName, settings: KindSettings) -> Result<()> {
        self.there()?.put_kind(name, settings).await
    }
    async fn queues(&self, now: Timestamp) -> Result<Vec<QueueView>> {
        self.there()?.queues(now).await
    }
    async fn kinds(&self) -> Result<Vec<KindView>> {
        self.there()?.kinds().await
    }
    async fn park(&self, park: Park, now: Timestamp) -> Result<()> {
        self.there()?.park(park, now).await
    }
    async fn unpark(&self, scope: ParkScope, by: String, now: Timestamp) -> Result<bool> {
        self.there()?.unpark(scope, by, now).await
    }
    async fn parks(&self) -> Result<Vec<Park>> {
        self.there()?.parks().await
    }
}

tidegate_store::forward!(Versions, Letters, Schedules for FaultyStore: |store| store.there()?);
tidegate_store::forward!(Records for FaultyStore: |store| &store.inner);

#[async_trait]
impl Upkeep for FaultyStore {
    async fn advance(&self, now: Timestamp) -> Result<Advanced> {
        self.inner.advance(now).await
    }
    async fn prune(&self, limit: usize, now: Timestamp) -> Result<u64> {
        self.inner.prune(limit, now).await
    }
    async fn erase(&self, erase: Erase) -> Result<Erased> {
        self.there()?.erase(erase).await
    }
    async fn totals(&self) -> Result<Totals> {
        self.there()?.totals().await
    }
}

#[async_trait]
impl Store for FaultyStore {
    fn signals(&self) -> &Signals {
        self.inner.signals()
    }
    fn feed(&self) -> &Feed {
        self.inner.feed()
    }
    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
