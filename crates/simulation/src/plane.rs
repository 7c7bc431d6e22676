//! The store as the world sees it: synchronous, and able to be killed and opened again.

use tidegate_core::ids::{JobId, KindName, LeaseId, QueueName};
use tidegate_core::job::{Job, Park, ParkScope, Priority, State};
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::time::Timestamp;
use tidegate_store::machine::Machine;
use tidegate_store::memory::MemoryRows;
use tidegate_store::params::{
    Advanced, Beat, CancelJob, CancelReply, Claim, Claimed, Enqueued, NewJob, QueueView, Recover, Recovered,
    Report, Settle, Settled,
};
use tidegate_store::{Error, Result};

/// What the world asks of a store.
#[expect(missing_docs, reason = "the same operations as the store's traits")]
pub trait Plane {
    fn put_queue(&mut self, name: QueueName, settings: QueueSettings, now: Timestamp) -> Result<()>;
    fn put_kind(&mut self, name: KindName, settings: KindSettings) -> Result<()>;
    fn enqueue(&mut self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>>;
    fn claim(&mut self, claim: Claim) -> Result<Claimed>;
    fn settle(&mut self, settle: Settle) -> Result<Vec<Settled>>;
    fn heartbeat(&mut self, leases: Vec<LeaseId>, now: Timestamp) -> Result<Vec<Beat>>;
    fn report(&mut self, reports: Vec<Report>, now: Timestamp) -> Result<Vec<bool>>;
    fn cancel(&mut self, cancel: CancelJob) -> Result<CancelReply>;
    fn run_now(&mut self, id: JobId, now: Timestamp) -> Result<State>;
    fn reprioritise(&mut self, id: JobId, priority: Priority, now: Timestamp) -> Result<()>;
    fn park(&mut self, park: Park, now: Timestamp) -> Result<()>;
    fn unpark(&mut self, scope: &ParkScope, by: &str, now: Timestamp) -> Result<bool>;
    fn recover(&mut self, letters: Vec<Recover>, now: Timestamp) -> Result<Vec<Recovered>>;
    fn advance(&mut self, now: Timestamp) -> Result<Advanced>;
    fn queues(&mut self, now: Timestamp) -> Result<Vec<QueueView>>;
    fn get(&mut self, id: JobId) -> Result<Option<Job>>;
    /// Dies and is opened again from what is durable.
    fn restart(&mut self, now: Timestamp) -> Result<()>;
}

/// The machine over rows in memory.
#[derive(Debug)]
pub struct Memory {
    machine: Option<Machine<MemoryRows>>,
}

impl Memory {
    /// An empty store.
    pub fn open(now: Timestamp) -> Result<Self> {
        Ok(Self { machine: Some(Machine::open(MemoryRows::default(), now)?) })
    }

    fn machine(&mut self) -> Result<&mut Machine<MemoryRows>> {
        self.machine.as_mut().ok_or_else(|| Error::internal("the store could not be opened again"))
    }
}

impl Plane for Memory {
    fn put_queue(&mut self, name: QueueName, settings: QueueSettings, now: Timestamp) -> Result<()> {
        self.machine()?.put_queue(name, settings, now)
    }
    fn put_kind(&mut self, name: KindName, settings: KindSettings) -> Result<()> {
        self.machine()?.put_kind(name, settings)
    }
    fn enqueue(&mut self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.machine()?.enqueue(jobs, now)
    }
    fn claim(&mut self, claim: Claim) -> Result<Claimed> {
        self.machine()?.claim(claim)
    }
    fn settle(&mut self, settle: Settle) -> Result<Vec<Settled>> {
        self.machine()?.settle(settle)
    }
    fn heartbeat(&mut self, leases: Vec<LeaseId>, now: Timestamp) -> Result<Vec<Beat>> {
        self.machine()?.heartbeat(leases, now)
    }
    fn report(&mut self, reports: Vec<Report>, now: Timestamp) -> Result<Vec<bool>> {
        self.machine()?.report(reports, now)
    }
    fn cancel(&mut self, cancel: CancelJob) -> Result<CancelReply> {
        self.machine()?.cancel(cancel)
    }
    fn run_now(&mut self, id: JobId, now: Timestamp) -> Result<State> {
        self.machine()?.run_now(id, now)
    }
    fn reprioritise(&mut self, id: JobId, priority: Priority, now: Timestamp) -> Result<()> {
        self.machine()?.reprioritise(id, priority, now)
    }
    fn park(&mut self, park: Park, now: Timestamp) -> Result<()> {
        self.machine()?.park(park, now)
    }
    fn unpark(&mut self, scope: &ParkScope, by: &str, now: Timestamp) -> Result<bool> {
        self.machine()?.unpark(scope, by, now)
    }
    fn recover(&mut self, letters: Vec<Recover>, now: Timestamp) -> Result<Vec<Recovered>> {
        self.machine()?.recover(letters, now)
    }
    fn advance(&mut self, now: Timestamp) -> Result<Advanced> {
        self.machine()?.advance(now)
    }
    fn queues(&mut self, now: Timestamp) -> Result<Vec<QueueView>> {
        self.machine()?.queues(now)
    }
    fn get(&mut self, id: JobId) -> Result<Option<Job>> {
        self.machine()?.get(id)
    }
    fn restart(&mut self, now: Timestamp) -> Result<()> {
        let machine = self.machine.take().ok_or_else(|| Error::internal("the store is gone"))?;
        self.machine = Some(machine.reopen(now)?);
        Ok(())
    }
}
