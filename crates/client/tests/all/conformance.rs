//! The suite over a server: a remote store, HTTP, and the reference model behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::common::Running;
use async_trait::async_trait;
use tidegate_client::{RemoteOptions, RemoteStore};
use tidegate_conformance::kit::START;
use tidegate_conformance::{Differs, Harness};
use tidegate_core::gates::Room;
use tidegate_core::ids::{ConnectorName, JobId, KindName, LeaseId, QueueName, ScheduleName};
use tidegate_core::job::{Job, Park, ParkScope, Priority, State};
use tidegate_core::registry::{Document, KindSettings, QueueSettings, Version, VersionInfo};
use tidegate_core::schedule::TickEntry;
use tidegate_core::time::Timestamp;
use tidegate_core::why::Why;
use tidegate_server::{Clock, ServerRoles};
use tidegate_store::params::{
    Advanced, Applied, Apply, Beat, CancelJob, CancelReply, CauseQuery, Causes, Claim, Claimed, Enqueued,
    Erase, Erased, JobQuery, KindView, NewJob, Page, ProcessLetters, ProcessedLetters, PutSchedule,
    QueueView, Reauthorized, Record, Recover, Recovered, RefusedDocument, Report, Resolve, ScheduleChange,
    ScheduleView, Settle, Settled, Shelf, TickQuery, Totals,
};
use tidegate_store::{
    Feed, Jobs, Letters, MemoryStore, Records, Registry, Result, Schedules, Signals, Store, Upkeep, Versions,
};

/// A remote store whose server lives by the time of whoever calls.
struct Timed {
    remote: RemoteStore,
    /// The store behind the server, for what only a server does: let time pass and prune.
    behind: Arc<MemoryStore>,
    clock: Arc<AtomicI64>,
}

impl Timed {
    fn at(&self, now: Timestamp) -> &RemoteStore {
        self.clock.store(now.0, Ordering::SeqCst);
        &self.remote
    }
}

#[async_trait]
impl Jobs for Timed {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.at(now).enqueue(jobs, now).await
    }
    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.at(claim.now).claim(claim).await
    }
    async fn settle(&self, settle: Settle) -> Result<Vec<Settled>> {
        self.at(settle.now).settle(settle).await
    }
    async fn heartbeat(&self, leases: Vec<LeaseId>, now: Timestamp) -> Result<Vec<Beat>> {
        self.at(now).heartbeat(leases, now).await
    }
    // The server itself tells its store what its gates have said.
    async fn admitted(&self, jobs: Vec<(JobId, Room)>, now: Timestamp) -> Result<()> {
        self.behind.admitted(jobs, now).await
    }
    async fn turn(&self, jobs: Vec<JobId>, gate: ConnectorName, now: Timestamp) -> Result<()> {
        self.behind.turn(jobs, gate, now).await
    }
    async fn report(&self, reports: Vec<Report>, now: Timestamp) -> Result<Vec<bool>> {
        self.at(now).report(reports, now).await
    }
    async fn cancel(&self, cancel: CancelJob) -> Result<CancelReply> {
        self.at(cancel.now).cancel(cancel).await
    }
    async fn run_now(&self, id: JobId, now: Timestamp) -> Result<State> {
        self.at(now).run_now(id, now).await
    }
    async fn reprioritise(&self, id: JobId, priority: Priority, now: Timestamp) -> Result<()> {
        self.at(now).reprioritise(id, priority, now).await
    }
    async fn get(&self, id: JobId) -> Result<Option<Job>> {
        self.remote.get(id).await
    }
    async fn search(&self, query: JobQuery) -> Result<Page> {
        self.remote.search(query).await
    }
    async fn dependencies(
        &self,
        id: JobId,
        held: Option<tidegate_store::params::Ticket>,
        skip: u32,
        limit: usize,
    ) -> Result<tidegate_store::params::Dependencies> {
        self.remote.dependencies(id, held, skip, limit).await
    }
    async fn why(&self, id: JobId, now: Timestamp) -> Result<Why> {
        self.at(now).why(id, now).await
    }
}

#[async_trait]
impl Registry for Timed {
    async fn put_queue(&self, name: QueueName, settings: QueueSettings, now: Timestamp) -> Result<()> {
        self.at(now).put_queue(name, settings, now).await
    }
    async fn settings(&self) -> Result<Vec<(QueueName, QueueSettings)>> {
        self.remote.settings().await
    }
    async fn ensure_queue(&self, name: QueueName, now: Timestamp) -> Result<()> {
        self.at(now).ensure_queue(name, now).await
    }
    async fn put_kind(&self, name: KindName, settings: KindSettings) -> Result<()> {
        self.remote.put_kind(name, settings).await
    }
    async fn queues(&self, now: Timestamp) -> Result<Vec<QueueView>> {
        self.at(now).queues(now).await
    }
    async fn kinds(&self) -> Result<Vec<KindView>> {
        self.remote.kinds().await
    }
    async fn park(&self, park: Park, now: Timestamp) -> Result<()> {
        self.at(now).park(park, now).await
    }
    async fn unpark(&self, scope: ParkScope, by: String, now: Timestamp) -> Result<bool> {
        self.at(now).unpark(scope, by, now).await
    }
    async fn parks(&self) -> Result<Vec<Park>> {
        self.remote.parks().await
    }
}

#[async_trait]
impl Versions for Timed {
    async fn apply(&self, apply: Apply) -> Result<Applied> {
        self.at(apply.now).apply(apply).await
    }

    async fn refuse(&self, refused: RefusedDocument, now: Timestamp) -> Result<u64> {
        self.at(now).refuse(refused, now).await
    }

    async fn registry(&self) -> Result<Document> {
        self.remote.registry().await
    }

    async fn versions(&self, limit: usize) -> Result<Vec<VersionInfo>> {
        self.remote.versions(limit).await
    }

    async fn version(&self, number: u64) -> Result<Option<Version>> {
        self.remote.version(number).await
    }
}

#[async_trait]
impl Letters for Timed {
    async fn recover(&self, letters: Vec<Recover>, now: Timestamp) -> Result<Vec<Recovered>> {
        self.at(now).recover(letters, now).await
    }
    async fn resolve(&self, resolve: Resolve) -> Result<()> {
        self.at(resolve.now).resolve(resolve).await
    }
    async fn reauthorized(
        &self,
        letters: Vec<Reauthorized>,
        by: String,
        now: Timestamp,
    ) -> Result<Vec<Recovered>> {
        self.at(now).reauthorized(letters, by, now).await
    }
    async fn process_letters(&self, process: ProcessLetters) -> Result<ProcessedLetters> {
        // A client leaves what comes round to the server.
        let remote = self.at(process.now);
        if process.at_once {
            remote.process_letters(process).await
        } else {
            self.behind.process_letters(process).await
        }
    }
    async fn causes(&self, query: CauseQuery) -> Result<Causes> {
        self.remote.causes(query).await
    }
}

#[async_trait]
impl Schedules for Timed {
    async fn put_schedule(&self, put: PutSchedule) -> Result<ScheduleChange> {
        self.at(put.now).put_schedule(put).await
    }

    async fn delete_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<bool> {
        self.at(now).delete_schedule(name, now).await
    }

    async fn pause_schedule(&self, name: ScheduleName, by: String, now: Timestamp) -> Result<ScheduleView> {
        self.at(now).pause_schedule(name, by, now).await
    }

    async fn resume_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<ScheduleView> {
        self.at(now).resume_schedule(name, now).await
    }

    async fn run_schedule(&self, name: ScheduleName, now: Timestamp) -> Result<JobId> {
        self.at(now).run_schedule(name, now).await
    }

    async fn schedules(&self) -> Result<Vec<ScheduleView>> {
        self.remote.schedules().await
    }

    async fn schedule(&self, name: ScheduleName) -> Result<Option<ScheduleView>> {
        self.remote.schedule(name).await
    }

    async fn schedule_ticks(&self, query: TickQuery) -> Result<Vec<TickEntry>> {
        self.remote.schedule_ticks(query).await
    }
}

#[async_trait]
impl Upkeep for Timed {
    async fn advance(&self, now: Timestamp) -> Result<Advanced> {
        assert_eq!(self.at(now).advance(now).await?, Advanced::default(), "it is the server's business");
        self.behind.advance(now).await
    }
    async fn prune(&self, limit: usize, now: Timestamp) -> Result<u64> {
        assert_eq!(self.at(now).prune(limit, now).await?, 0, "it is the server's business");
        self.behind.prune(limit, now).await
    }
    async fn erase(&self, erase: Erase) -> Result<Erased> {
        self.at(erase.now).erase(erase).await
    }
    async fn totals(&self) -> Result<Totals> {
        self.remote.totals().await
    }
}

#[async_trait]
impl Records for Timed {
    async fn put_record(&self, record: Record, now: Timestamp) -> Result<()> {
        self.at(now).put_record(record, now).await
    }
    async fn records(&self, shelf: Shelf, now: Timestamp) -> Result<Vec<Record>> {
        self.at(now).records(shelf, now).await
    }
    async fn delete_record(&self, shelf: Shelf, key: String) -> Result<bool> {
        self.remote.delete_record(shelf, key).await
    }
}

#[async_trait]
impl Store for Timed {
    fn signals(&self) -> &Signals {
        self.remote.signals()
    }
    fn feed(&self) -> &Feed {
        self.remote.feed()
    }
    async fn close(&self) -> Result<()> {
        self.remote.close().await
    }
}

/// Cases that cannot apply to a server.
const EXEMPT: &[(&str, &str)] = &[
    ("a_process_counts_what_it_did", "what is done through a server is counted there"),
    (
        "a_standing_claim_hears_of_a_delay_that_was_set_later",
        "the long poll stays with the server until the delay is over by the server's clock, which stands still here",
    ),
    (
        "a_repeated_id_that_was_said_to_be_fresh_is_refused_and_harms_nothing",
        "a server takes no one's word for an id being fresh: the same job again is kept",
    ),
    (
        "recovering_under_an_id_that_is_taken_is_refused_and_harms_nothing",
        "the server makes the ids of recovered jobs",
    ),
];

struct Remote {
    store: Arc<Timed>,
    _server: Running,
}

async fn open() -> Remote {
    let (behind, clock) = (Arc::new(MemoryStore::new()), Arc::new(AtomicI64::new(START.0)));
    let server = Running::with(behind.clone(), |options| {
        options.clock = Clock::manual(clock.clone());
        options.roles = ServerRoles { api: true, maintenance: false };
    })
    .await;
    let remote =
        RemoteStore::connect(&server.url(), RemoteOptions::default()).await.expect("the server answers");
    Remote { store: Arc::new(Timed { remote, behind, clock }), _server: server }
}

#[async_trait]
impl Harness for Remote {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn restart(&mut self, now: Timestamp) {
        self.store.behind.restart(now).expect("rows in memory can be read");
    }

    fn differs(&self) -> Differs {
        Differs {
            // The server keeps its keys to itself.
            shelves: &[Shelf::Workers, Shelf::Orders],
            makes_ids: true,
            exempt: EXEMPT,
        }
    }
}

tidegate_conformance::suite!(remote, super::open);

#[test]
fn every_exemption_is_of_a_case_that_exists() {
    let suite = include_str!("../../../conformance/src/lib.rs");
    for (case, why) in EXEMPT {
        assert!(suite.contains(&format!(" {case},")), "{case} is no case");
        assert!(why.len() > 20, "{case} needs a reason");
    }
}
