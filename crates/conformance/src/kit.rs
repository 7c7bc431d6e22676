//! What a case needs to talk to a store briefly: a world with its own clock, ids and names.
//!
//! Helpers panic where a store refuses, because then the case has failed; what a case expects to be refused goes
//! through [`World::store`] and [`refused`].

use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::codes::Code;
use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::{
    ConnectorName, GroupKey, JobId, KindName, LeaseId, ProcessId, QueueName, TenantId, UniqueKey, WorkerId,
};
use tidegate_core::job::{Job, OnConflict, Park, ParkScope, Priority, State, Unique, UniqueScope};
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::retry::{Backoff, Jitter, RetryPolicy};
use tidegate_core::time::Timestamp;
use tidegate_core::why::{Cause, Why};
use tidegate_store::params::{
    Beat, CancelJob, CancelReply, Claim, Claimed, ClaimedJob, EnqueueOutcome, Enqueued, JobQuery, NewJob,
    Outcome, QueueView, Recover, Recovered, Settle, Settled, Settlement, Shelf, Ticket,
};
use tidegate_store::{Result, Store};

/// A backend under test. Each case gets an empty one of its own.
#[async_trait]
pub trait Harness: Send {
    /// The store as it is now.
    fn store(&self) -> Arc<dyn Store>;
    /// Ends the store and opens it again from what is durable.
    async fn restart(&mut self, now: Timestamp);
    /// Where it differs from other stores by design.
    fn differs(&self) -> Differs {
        Differs::default()
    }
}

/// Where a backend differs from other stores by design.
#[derive(Debug, Clone, Copy)]
pub struct Differs {
    /// Shelves whose records it hands out.
    pub shelves: &'static [Shelf],
    /// It makes the ids of recovered jobs itself.
    pub makes_ids: bool,
    /// Cases that do not apply, each with the reason.
    pub exempt: &'static [(&'static str, &'static str)],
}

impl Default for Differs {
    fn default() -> Self {
        Self { shelves: &Shelf::ALL, makes_ids: false, exempt: &[] }
    }
}

/// When every world begins: 2025-11-13.
pub const START: Timestamp = Timestamp(1_763_000_000_000);

/// A store with a clock.
pub struct World {
    harness: Box<dyn Harness>,
    /// The time of the next call.
    pub now: Timestamp,
    made: u64,
}

impl World {
    /// A world around an empty store, with queue `q` and kind `k` in it.
    pub async fn new(harness: impl Harness + 'static) -> Self {
        let world = Self { harness: Box::new(harness), now: START, made: 0 };
        world.queue("q", |_| ()).await;
        world.kind("k", "q", |_| ()).await;
        world
    }

    /// Whether a case applies; if not, the reason is printed.
    pub fn applies(&self, case: &str) -> bool {
        let reason = self.differs().exempt.iter().find(|(name, _)| *name == case);
        if let Some((_, why)) = reason {
            eprintln!("{case} does not apply: {why}");
        }
        reason.is_none()
    }

    /// Where the store differs from others by design.
    pub fn differs(&self) -> Differs {
        self.harness.differs()
    }

    /// The store, for calls that may be refused.
    pub fn store(&self) -> Arc<dyn Store> {
        self.harness.store()
    }

    /// Time passes.
    pub fn pass(&mut self, ms: i64) {
        self.now = self.now.plus_ms(ms);
    }

    /// The store ends and is opened again.
    pub async fn restart(&mut self) {
        self.harness.restart(self.now).await;
    }

    /// Adds or changes a queue: its settings are the defaults with these changes.
    pub async fn queue(&self, name: &str, change: impl FnOnce(&mut QueueSettings)) {
        let mut settings = QueueSettings::default();
        change(&mut settings);
        self.store().put_queue(queue(name), settings, self.now).await.expect("the queue is accepted");
    }

    /// Adds or changes a kind.
    pub async fn kind(&self, name: &str, in_queue: &str, change: impl FnOnce(&mut KindSettings)) {
        let mut settings = KindSettings::new(queue(in_queue));
        change(&mut settings);
        self.store().put_kind(kind(name), settings).await.expect("the kind is accepted");
    }

    /// A fresh id.
    pub fn id(&mut self) -> JobId {
        self.made += 1;
        job_id(self.made)
    }

    /// A job of kind `k` that is not enqueued yet.
    pub fn job(&mut self) -> NewJob {
        let id = self.id();
        NewJob::new(id, kind("k"), json(&format!("{{\"n\":{}}}", self.made)))
    }

    /// Enqueues one job that must be new.
    pub async fn add(&mut self, job: NewJob) -> JobId {
        let reply = self.enqueue(vec![job]).await;
        assert_eq!(reply[0].outcome, EnqueueOutcome::Created);
        reply[0].id
    }

    /// Enqueues a plain job of kind `k`.
    pub async fn add_one(&mut self) -> JobId {
        let job = self.job();
        self.add(job).await
    }

    /// Enqueues `n` jobs of kind `k`, changed one by one.
    pub async fn add_many(&mut self, n: usize, mut change: impl FnMut(usize, &mut NewJob)) -> Vec<JobId> {
        let jobs: Vec<NewJob> = (0..n)
            .map(|i| {
                let mut job = self.job();
                change(i, &mut job);
                job
            })
            .collect();
        let mut ids = vec![];
        for batch in jobs.chunks(limits::MAX_ENQUEUE_BATCH) {
            ids.extend(self.enqueue(batch.to_vec()).await.into_iter().map(|e| e.id));
        }
        ids
    }

    /// Enqueues jobs that must be accepted.
    pub async fn enqueue(&self, jobs: Vec<NewJob>) -> Vec<Enqueued> {
        self.store().enqueue(jobs, self.now).await.expect("the jobs are accepted")
    }

    /// A claim of process 1 on these queues, with room for `max` in each, and the default lease.
    pub fn claim_on(&self, queues: &[&str], max: u32) -> Claim {
        Claim {
            worker: worker("w1"),
            process: ProcessId(1),
            queues: queues.iter().map(|q| (queue(q), max)).collect(),
            max,
            lease_ms: limits::DEFAULT_LEASE_MS,
            now: self.now,
        }
    }

    /// Process 1 claims from `q`.
    pub async fn claim(&self, max: u32) -> Claimed {
        self.claim_with(self.claim_on(&["q"], max)).await
    }

    /// Another process claims from `q`.
    pub async fn claim_as(&self, process: u64, max: u32) -> Claimed {
        let mut claim = self.claim_on(&["q"], max);
        claim.process = ProcessId(process);
        claim.worker = worker(&format!("w{process}"));
        self.claim_with(claim).await
    }

    /// Claims exactly so.
    pub async fn claim_with(&self, claim: Claim) -> Claimed {
        let max = claim.max;
        let claimed = self.store().claim(claim).await.expect("a claim is answered");
        assert!(claimed.jobs.len() <= max as usize, "a claim yields at most what it asked for");
        assert_eq!(
            claimed.lease.is_some(),
            !claimed.jobs.is_empty(),
            "there is a lease exactly if there are jobs"
        );
        for job in &claimed.jobs {
            assert_eq!(Some(job.ticket.lease), claimed.lease.map(|l| l.id), "one claim is one lease");
        }
        claimed
    }

    /// Claims one job that must be there.
    pub async fn claim_one(&self) -> ClaimedJob {
        let mut claimed = self.claim(1).await;
        claimed.jobs.pop().expect("there is a job to claim")
    }

    /// Settles one attempt.
    pub async fn settle(&self, ticket: Ticket, outcome: Outcome) -> Settled {
        let settlements = vec![Settlement { ticket, outcome }];
        self.settle_all(settlements).await[0]
    }

    /// Settles attempts.
    pub async fn settle_all(&self, settlements: Vec<Settlement>) -> Vec<Settled> {
        let n = settlements.len();
        let settle = Settle { settlements, now: self.now, seed: 7 };
        let settled = self.store().settle(settle).await.expect("a settle is answered");
        assert_eq!(settled.len(), n, "every settlement is answered");
        settled
    }

    /// Completes a claimed job.
    pub async fn complete(&self, job: &ClaimedJob) -> Settled {
        self.settle(job.ticket, Outcome::Complete(None)).await
    }

    /// Completes a claimed job, which must be possible.
    pub async fn finish(&self, job: &ClaimedJob) {
        assert_eq!(self.complete(job).await, Settled::Applied(State::Completed));
    }

    /// Fails a claimed job.
    pub async fn fail(&self, job: &ClaimedJob, category: Category) -> Settled {
        self.settle(job.ticket, Outcome::Fail(Failure::new(category, "E_TEST", "it did not work"))).await
    }

    /// Kills a job for good: it is enqueued, claimed and fails permanently.
    pub async fn add_dead(&mut self) -> JobId {
        let id = self.add_one().await;
        let claimed = self.claim_one().await;
        assert_eq!(claimed.id, id, "the queue was empty before");
        assert_eq!(self.fail(&claimed, Category::InvalidInput).await, Settled::Applied(State::Dead));
        id
    }

    /// Kills a job for good while another one, older, waits in the same lane.
    pub async fn add_dead_beside(&mut self, waiting: JobId) -> JobId {
        let id = self.add_one().await;
        for job in self.claim(2).await.jobs {
            if job.id == waiting {
                self.settle(job.ticket, Outcome::Release).await;
            } else {
                assert_eq!(self.fail(&job, Category::InvalidInput).await, Settled::Applied(State::Dead));
            }
        }
        id
    }

    /// Recovers a dead letter that has not been recovered before, as this job if the store leaves that to us. Returns
    /// its id.
    pub async fn recover(&self, dead: JobId, new_id: JobId) -> JobId {
        let reply = self.store().recover(vec![Recover { dead, new_id }], self.now).await.expect("answered");
        let [Recovered::As(id)] = reply[..] else { panic!("it is recovered: {reply:?}") };
        assert!(self.differs().makes_ids || id == new_id);
        id
    }

    /// Snoozes a claimed job.
    pub async fn snooze(&self, job: &ClaimedJob, ms: i64, park: Option<ParkScope>) -> Settled {
        let until = self.now.plus_ms(ms);
        self.settle(job.ticket, Outcome::Snooze { until, reason: "not yet".into(), park, gate: None }).await
    }

    /// Sends one heartbeat.
    pub async fn beat(&self, lease: LeaseId) -> Beat {
        let mut beats = self.store().heartbeat(vec![lease], self.now).await.expect("a heartbeat is answered");
        assert_eq!(beats.len(), 1);
        beats.remove(0)
    }

    /// Promotes, rescues, ends parks.
    pub async fn advance(&self) {
        self.store().advance(self.now).await.expect("upkeep works");
    }

    /// Cancels a job.
    pub async fn cancel(&self, id: JobId) -> CancelReply {
        let cancel = CancelJob { id, note: "operator: not needed".into(), cascade: false, now: self.now };
        self.store().cancel(cancel).await.expect("a cancel is answered")
    }

    /// A job that must exist.
    pub async fn get(&self, id: JobId) -> Job {
        self.store().get(id).await.expect("a read is answered").expect("the job exists")
    }

    /// State of a job.
    pub async fn state(&self, id: JobId) -> State {
        self.get(id).await.state
    }

    /// Why a job is where it is; its sentence must not be empty.
    pub async fn why(&self, id: JobId) -> Why {
        let why = self.store().why(id, self.now).await.expect("every job has a why");
        assert!(why.sentence(self.now).ends_with('.'), "{}", why.sentence(self.now));
        why
    }

    /// Only the cause.
    pub async fn cause(&self, id: JobId) -> Cause {
        self.why(id).await.cause
    }

    /// Finds all jobs a query means, page by page.
    pub async fn find(&self, query: JobQuery) -> Vec<JobId> {
        let mut found = vec![];
        let mut query =
            JobQuery { limit: if query.limit == 0 { limits::MAX_PAGE } else { query.limit }, ..query };
        loop {
            let page = self.store().search(query.clone()).await.expect("a search is answered");
            found.extend(page.jobs.iter().map(|j| j.id));
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => return found,
            }
        }
    }

    /// A queue as people see it.
    pub async fn view(&self, name: &str) -> QueueView {
        let views = self.store().queues(self.now).await.expect("queues are listed");
        views.into_iter().find(|v| v.name.as_str() == name).expect("the queue exists")
    }

    /// Parks a scope, as the operator.
    pub async fn park(&self, scope: ParkScope, until: Option<Timestamp>) {
        self.park_by(scope, "operator", until).await;
    }

    /// Parks a scope.
    pub async fn park_by(&self, scope: ParkScope, by: &str, until: Option<Timestamp>) {
        let park = Park { scope, by: by.into(), reason: "month end".into(), until };
        self.store().park(park, self.now).await.expect("a park is accepted");
    }

    /// Removes the operator's park.
    pub async fn unpark(&self, scope: ParkScope) -> bool {
        self.store().unpark(scope, "operator".into(), self.now).await.expect("an unpark is answered")
    }

    /// Runs a claimed job's process to death: its lease expires and is rescued.
    pub async fn stall(&mut self) {
        self.pass(limits::DEFAULT_LEASE_MS + 1);
        self.advance().await;
    }
}

/// The code with which a call was refused.
pub fn refused<T: std::fmt::Debug>(reply: Result<T>) -> Code {
    reply.expect_err("this must be refused").code
}

/// A queue's name.
pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a valid queue name")
}

/// A kind's name.
pub fn kind(name: &str) -> KindName {
    KindName::new(name).expect("a valid kind name")
}

/// A tenant.
pub fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("a valid tenant")
}

/// A group.
pub fn group(name: &str) -> GroupKey {
    GroupKey::new(name).expect("a valid group")
}

/// A connector.
pub fn connector(name: &str) -> ConnectorName {
    ConnectorName::new(name).expect("a valid connector")
}

/// A worker.
pub fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("a valid worker name")
}

/// A payload.
pub fn json(text: &str) -> Payload {
    Payload::from_json_text(text, limits::MAX_PAYLOAD_BYTES).expect("a valid payload")
}

/// The id with this number.
pub fn job_id(n: u64) -> JobId {
    JobId::from_parts(START.0 as u64, u128::from(n))
}

/// A unique key with its rules.
pub fn unique(key: &str, scope: UniqueScope, on_conflict: OnConflict) -> Unique {
    Unique { key: UniqueKey::new(key).expect("a valid key"), scope, on_conflict }
}

/// A policy that tries again at once.
pub fn at_once(max_attempts: u32) -> RetryPolicy {
    RetryPolicy {
        max_attempts,
        backoff: Backoff::Immediate,
        jitter: Jitter::None,
        retry_on: vec![],
        no_retry_on: vec![],
    }
}

/// Ids of claimed jobs.
pub fn ids(claimed: &Claimed) -> Vec<JobId> {
    claimed.jobs.iter().map(|j| j.id).collect()
}

/// A change that sets the group.
pub fn in_group(name: &str) -> impl FnMut(usize, &mut NewJob) {
    let group = group(name);
    move |_, job| job.group = Some(group.clone())
}

/// A change that sets the priority.
pub fn with_priority(priority: Priority) -> impl FnMut(usize, &mut NewJob) {
    move |_, job| job.priority = Some(priority)
}
