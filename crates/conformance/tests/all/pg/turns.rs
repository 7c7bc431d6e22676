//! Several stores on one database as one store: each call goes to one of them at random, and all read one clock.
//!
//! A process that only looked at the time tells nobody. So a reading that is slightly behind what another process saw is
//! not recognised as such, where one machine alone would take it to have stood still. The clock here does that for all
//! of them, and for the model that they are compared with.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tidegate_core::ids::{JobId, KindName, LeaseId, QueueName, ScheduleName};
use tidegate_core::job::{Job, Park, ParkScope, Priority, State};
use tidegate_core::registry::{Document, KindSettings, QueueSettings, Version, VersionInfo};
use tidegate_core::schedule::TickEntry;
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;
use tidegate_core::why::Why;
use tidegate_store::params::{
    Advanced, Applied, Apply, Beat, CancelJob, CancelReply, CauseQuery, Causes, Claim, Claimed, Enqueued,
    Erase, Erased, JobQuery, KindView, NewJob, Page, ProcessLetters, ProcessedLetters, PutSchedule,
    QueueView, Reauthorized, Recover, Recovered, RefusedDocument, Report, Resolve, ScheduleChange,
    ScheduleView, Settle, Settled, TickQuery, Totals,
};
use tidegate_store::{Feed, Jobs, Letters, Registry, Result, Schedules, Signals, Store, Upkeep, Versions};

/// The stores.
pub(crate) struct Turns {
    stores: Vec<Arc<dyn Store>>,
    clock: Mutex<(Seed, Timestamp)>,
    /// Whether claims say when to come back. A process knows for which suspects it makes room itself, and not for which
    /// others do; one that serves all workers comes back for all of them.
    wakeups: bool,
}

impl Turns {
    pub(crate) fn new(stores: Vec<Arc<dyn Store>>, seed: u64, wakeups: bool) -> Self {
        Self { stores, clock: Mutex::new((Seed::new(seed), Timestamp(0))), wakeups }
    }

    fn one(&self) -> &dyn Store {
        let any = self.clock.lock().expect("no panic").0.below(self.stores.len() as u64);
        self.stores[any as usize].as_ref()
    }

    /// The time as a call that only looks sees it.
    fn seen(&self, now: Timestamp) -> Timestamp {
        now.max(self.clock.lock().expect("no panic").1)
    }

    fn at(&self, now: Timestamp) -> Timestamp {
        let clock = &mut self.clock.lock().expect("no panic").1;
        let slightly = now.plus_ms(1_000) >= *clock;
        *clock = if slightly { (*clock).max(now) } else { now };
        *clock
    }
}

#[async_trait]
impl Jobs for Turns {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.one().enqueue(jobs, self.at(now)).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let claim = Claim { now: self.at(claim.now), ..claim };
        // A worker always asks the same process, which remembers for which suspect it makes room.
        let mut claimed = self.stores[claim.process.0 as usize % self.stores.len()].claim(claim).await?;
        claimed.next_wakeup = claimed.next_wakeup.filter(|_| self.wakeups);
        Ok(claimed)
    }

    async fn settle(&self, settle: Settle) -> Result<Vec<Settled>> {
        let settle = Settle { now: self.at(settle.now), ..settle };
        self.one().settle(settle).await
    }

    async fn heartbeat(&self, leases: Vec<LeaseId>, now: Timestamp) -> Result<Vec<Beat>> {
        self.one().heartbeat(leases, self.at(now)).await
    }

    async fn report(&self, reports: Vec<Report>, now: Timestamp) -> Result<Vec<bool>> {
        self.one().report(reports, self.at(now)).await
    }

    async fn cancel(&self, cancel: CancelJob) -> Result<CancelReply> {
        let cancel = CancelJob { now: self.at(cancel.now), ..cancel };
        self.one().cancel(cancel).await
    }

    async fn run_now(&self, id: JobId, now: Timestamp) -> Result<State> {
        self.one().run_now(id, self.at(now)).await
    }

    async fn reprioritise(&self, id: JobId, priority: Priority, now: Timestamp) -> Result<()> {
        self.one().reprioritise(id, priority, self.at(now)).await
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>> {
        self.one().get(id).await
    }

    async fn search(&self, query: JobQuery) -> Result<Page> {
        self.one().search(query).await
    }

    async fn dependencies(
        &self,
        id: JobId,
        held: Option<tidegate_store::params::Ticket>,
        skip: u32,
        limit: usize,
    ) -> Result<tidegate_store::params::Dependencies> {
        self.one().dependencies(id, held, skip, limit).await
    }
    async fn why(&self, id: JobId, now: Timestamp) -> Result<Why> {
        self.one().why(id, self.seen(now)).await
    }
}

#[async_trait]
impl Registry for Turns {
    async fn put_queue(&self, name: QueueName, settings: QueueSettings, now: Timestamp) -> Result<()> {
        self.one().put_queue(name, settings, self.at(now)).await
    }

    async fn settings(&self) -> Result<Vec<(QueueName, QueueSettings)>> {
        self.one().settings().await
    }

    async fn ensure_queue(&self, name: QueueName, now: Timestamp) -> Result<()> {
        self.one().ensure_queue(name, self.seen(now)).await
    }

    async fn put_kind(&self, name: KindName, settings: KindSettings) -> Result<()> {
        self.one().put_kind(name, settings).await
    }

    async fn queues(&self, now: Timestamp) -> Result<Vec<QueueView>> {
        self.one().queues(self.seen(now)).await
    }

    async fn kinds(&self) -> Result<Vec<KindView>> {
        self.one().kinds().await
    }

    async fn park(&self, park: Park, now: Timestamp) -> Result<()> {
        self.one().park(park, self.at(now)).await
    }

    async fn unpark(&self, scope: ParkScope, by: String, now: Timestamp) -> Result<bool> {
        self.one().unpark(scope, by, self.at(now)).await
    }

    async fn parks(&self) -> Result<Vec<Park>> {
        self.one().parks().await
    }
}

#[async_trait]
impl Versions for Turns {
    async fn apply(&self, apply: Apply) -> Result<Applied> {
        let apply = Apply { now: self.at(apply.now), ..apply };
        self.one().apply(apply).await
    }

    async fn refuse(&self, refused: RefusedDocument, now: Timestamp) -> Result<u64> {
        self.one().refuse(refused, self.at(now)).await
    }

    async fn registry(&self) -> Result<Document> {
        self.one().registry().await
    }

    async fn versions(&self, limit: usize) -> Result<Vec<VersionInfo>> {
        self.one().versions(limit).await
    }

    async fn version(&self, number: u64) -> Result<Option<Version>> {
        self.one().version(number).await
    }
}

#[async_trait]
impl Letters for Turns {
    async fn recover(&self, letters: Vec<Recover>, now: Timestamp) -> Result<Vec<Recovered>> {
        self.one().recover(letters, self.at(now)).await
    }

    async fn resolve(&self, resolve: Resolve) -> Result<()> {
        let resolve = Resolve { now: self.at(resolve.now), ..resolve };
        self.one().resolve(resolve).await
    }

    async fn reauthorized(
        &self,
        letters: Vec<Reauthorized>,
        by: String,
        now: Timestamp,
    ) -> Result<Vec<Recovered>> {
        self.one().reauthorized(letters, by, self.at(now)).await
    }

    async fn process_letters(&self, process: ProcessLetters) -> Result<ProcessedLetters> {
        let process = ProcessLetters { now: self.at(process.now), ..process };
        self.one().process_letters(process).await
    }

    async fn causes(&self, query: CauseQuery) -> Result<Causes> {
        self.one().causes(query).await
    }
}

#[async_trait]
impl Schedules for Turns {
    async fn put_schedule(&self, put: PutSchedule) -> Result<ScheduleChange> {
        let put = PutSchedule { now: self.at(put.now), ..put };
        self.one().put_schedule(put).await
    }

    async fn delete_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<bool> {
        self.one().delete_schedule(name, self.at(now)).await
    }

    async fn pause_schedule(&self, name: ScheduleName, by: String, now: Timestamp) -> Result<ScheduleView> {
        self.one().pause_schedule(name, by, self.at(now)).await
    }

    async fn resume_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<ScheduleView> {
        self.one().resume_schedule(name, self.at(now)).await
    }

    async fn run_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<JobId> {
        self.one().run_schedule(name, self.at(now)).await
    }

    async fn schedules(&self) -> Result<Vec<ScheduleView>> {
        self.one().schedules().await
    }

    async fn schedule(&self, name: ScheduleName) -> Result<Option<ScheduleView>> {
        self.one().schedule(name).await
    }

    async fn schedule_ticks(&self, query: TickQuery) -> Result<Vec<TickEntry>> {
        self.one().schedule_ticks(query).await
    }
}

#[async_trait]
impl Upkeep for Turns {
    async fn advance(&self, now: Timestamp) -> Result<Advanced> {
        self.one().advance(self.at(now)).await
    }

    async fn prune(&self, limit: usize, now: Timestamp) -> Result<u64> {
        self.one().prune(limit, self.at(now)).await
    }

    async fn erase(&self, erase: Erase) -> Result<Erased> {
        let erase = Erase { now: self.at(erase.now), ..erase };
        self.one().erase(erase).await
    }

    async fn totals(&self) -> Result<Totals> {
        // Refusals are counted by the process that refused.
        let mut totals = self.stores[0].totals().await?;
        for store in &self.stores[1..] {
            totals.stale_refused += store.totals().await?.stale_refused;
        }
        Ok(totals)
    }
}

tidegate_store::forward!(Records for Turns: |store| store.one());

#[async_trait]
impl Store for Turns {
    fn signals(&self) -> &Signals {
        self.stores[0].signals()
    }

    fn feed(&self) -> &Feed {
        self.stores[0].feed()
    }

    async fn close(&self) -> Result<()> {
        for store in &self.stores {
            store.close().await?;
        }
        Ok(())
    }
}
