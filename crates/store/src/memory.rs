//! The reference model: the machine over rows in memory. It says what every other store must answer.

mod letters;
mod schedules;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tidegate_core::gates::Room;
use tidegate_core::ids::{ConnectorName, JobId, KindName, LeaseId, QueueName, Seq, TenantId, UniqueKey};
use tidegate_core::job::{DeadLetter, Dependency, Job, Park, ParkScope, Priority, State};
use tidegate_core::lanes::{LaneId, LaneKey, QueueId};
use tidegate_core::letters::Round;
use tidegate_core::limits;
use tidegate_core::policies::Policies;
use tidegate_core::registry::{Document, KindSettings, QueueSettings, Version, VersionInfo};
use tidegate_core::time::Timestamp;
use tidegate_core::why::Why;

use crate::machine::Machine;
use crate::params::{
    Advanced, Applied, Apply, Beat, CancelJob, CancelReply, CauseQuery, Causes, Claim, Claimed, Dependencies,
    Enqueued, Erase, Erased, JobQuery, KindView, NewJob, Page, ProcessLetters, ProcessedLetters, QueueView,
    Reauthorized, Record, Recover, Recovered, RefusedDocument, Report, Resolve, Settle, Settled, Shelf,
    Ticket, Totals,
};
use crate::rows::{
    BlockedRow, ClaimRows, DoneRow, End, FlowRows, JobRow, JobRows, KindId, LeaseRow, NameRows, Names,
    Scanned, ScannedState, ScheduleId, StateRow, Stored, TenantNo, TimeRows, UniqueRow, UntoldRow,
    VersionRows,
};
use crate::traits::{Jobs, Letters, Records, Registry, Store, Upkeep, Versions};
use crate::{Error, Feed, Result, Signals, served};

/// Lease numbers of one run.
const LEASES_PER_RUN: i64 = 1 << 40;

/// Rows in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryRows {
    jobs: BTreeMap<Seq, JobRow>,
    ids: HashMap<JobId, Seq>,
    states: HashMap<Seq, StateRow>,
    delayed: BTreeSet<(Timestamp, Seq)>,
    done: BTreeMap<Seq, DoneRow>,
    done_order: BTreeSet<(Timestamp, Seq)>,
    leases: BTreeMap<LeaseId, LeaseRow>,
    uniques: HashMap<(KindId, UniqueKey), UniqueRow>,
    queues: BTreeMap<QueueId, (QueueName, QueueSettings)>,
    kinds: BTreeMap<KindId, (KindName, KindSettings)>,
    tenants: BTreeMap<TenantNo, TenantId>,
    lanes: BTreeMap<LaneId, LaneKey>,
    parks: BTreeMap<(ParkScope, String), Park>,
    starts: BTreeMap<(QueueId, Timestamp), u32>,
    schedules: BTreeMap<ScheduleId, schedules::Kept>,
    edges: BTreeSet<(Seq, Seq)>,
    /// The same edges by who waits.
    edges_to: BTreeSet<(Seq, Seq)>,
    blocked: BTreeMap<Seq, BlockedRow>,
    kept: BTreeMap<Seq, (Dependency, Option<TenantId>)>,
    untold: BTreeMap<Seq, UntoldRow>,
    policies: Policies,
    versions: BTreeMap<u64, Version>,
    round: Option<Round>,
    reserved: i64,
    runs: i64,
}

impl JobRows for MemoryRows {
    fn insert_job(&mut self, seq: Seq, row: &JobRow) -> Result<()> {
        if self.ids.contains_key(&row.id) {
            return Err(Error::internal(format!("job {} exists", row.id)));
        }
        self.ids.insert(row.id, seq);
        self.jobs.insert(seq, row.clone());
        Ok(())
    }

    fn job(&mut self, seq: Seq) -> Result<Option<JobRow>> {
        Ok(self.jobs.get(&seq).cloned())
    }

    fn find_job(&mut self, id: JobId) -> Result<Option<Seq>> {
        Ok(self.ids.get(&id).copied())
    }

    fn delete_job(&mut self, seq: Seq) -> Result<()> {
        if let Some(row) = self.jobs.remove(&seq) {
            self.ids.remove(&row.id);
        }
        self.states.remove(&seq);
        if let Some(done) = self.done.remove(&seq) {
            self.done_order.remove(&(done.at, seq));
        }
        Ok(())
    }

    fn state(&mut self, seq: Seq) -> Result<Option<StateRow>> {
        Ok(self.states.get(&seq).cloned())
    }

    fn put_state(&mut self, seq: Seq, row: &StateRow) -> Result<()> {
        self.states.insert(seq, row.clone());
        Ok(())
    }

    fn jobs_of_tenant(
        &mut self,
        tenant: TenantNo,
        after: Seq,
        scan: usize,
    ) -> Result<(Vec<Seq>, Option<Seq>)> {
        let seen: Vec<_> =
            self.jobs.range(Seq(after.0 + 1)..).take(scan).map(|(s, r)| (*s, r.tenant)).collect();
        let next = if seen.len() == scan { seen.last().map(|(s, _)| *s) } else { None };
        Ok((seen.into_iter().filter(|(_, t)| *t == Some(tenant)).map(|(s, _)| s).collect(), next))
    }

    fn reserved_seq(&mut self) -> Result<Seq> {
        Ok(Seq(self.reserved))
    }

    fn reserve_seq(&mut self, upto: Seq) -> Result<()> {
        self.reserved = upto.0;
        Ok(())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(Scanned)) -> Result<()> {
        let delayed: BTreeSet<Seq> = self.delayed.iter().map(|(_, s)| *s).collect();
        let waiting: BTreeSet<Seq> = self.edges.iter().map(|(_, child)| *child).collect();
        for (seq, row) in &self.jobs {
            let stored = match self.done.get(seq) {
                Some(done) => Stored::Finished(done.state, done.at),
                None if delayed.contains(seq) => Stored::Delayed,
                None if self.blocked.contains_key(seq) => Stored::Blocked,
                None => Stored::Open,
            };
            let state = self.states.get(seq).map(|s| ScannedState {
                lane: s.lane,
                settled: s.settled,
                suspect: s.suspect,
                lone_stalls: s.lone_stalls,
                run_at: s.run_at,
            });
            visit(Scanned {
                seq: *seq,
                lane: row.lane,
                tenant: row.tenant,
                run_at: row.run_at,
                waits: waiting.contains(seq),
                stored,
                state,
            });
        }
        Ok(())
    }
}

impl TimeRows for MemoryRows {
    fn delay(&mut self, run_at: Timestamp, seq: Seq) -> Result<()> {
        self.delayed.insert((run_at, seq));
        Ok(())
    }

    fn undelay(&mut self, run_at: Timestamp, seq: Seq) -> Result<bool> {
        Ok(self.delayed.remove(&(run_at, seq)))
    }

    fn take_due(&mut self, now: Timestamp, limit: usize) -> Result<Vec<(Timestamp, Seq)>> {
        let due: Vec<_> = self.delayed.iter().take_while(|(at, _)| *at <= now).take(limit).copied().collect();
        for entry in &due {
            self.delayed.remove(entry);
        }
        Ok(due)
    }

    fn next_due(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.delayed.first().map(|(at, _)| *at))
    }

    fn insert_done(&mut self, seq: Seq, row: &DoneRow) -> Result<()> {
        self.done.insert(seq, row.clone());
        self.done_order.insert((row.at, seq));
        Ok(())
    }

    fn done(&mut self, seq: Seq) -> Result<Option<DoneRow>> {
        Ok(self.done.get(&seq).cloned())
    }

    fn put_letter(&mut self, seq: Seq, letter: &DeadLetter) -> Result<()> {
        if let Some(done) = self.done.get_mut(&seq) {
            done.letter = Some(Box::new(letter.clone()));
        }
        Ok(())
    }

    fn oldest_done(&mut self, queue: QueueId, limit: usize) -> Result<Vec<(Timestamp, Seq, State)>> {
        let of_queue = self.done_order.iter().filter_map(|(at, seq)| {
            let done = self.done.get(seq).filter(|d| d.queue == queue && d.state != State::Dead)?;
            Some((*at, *seq, done.state))
        });
        Ok(of_queue.take(limit).collect())
    }

    fn oldest_dead(&mut self, limit: usize) -> Result<Vec<(Timestamp, Seq, QueueId)>> {
        let dead = self.done_order.iter().filter_map(|(at, seq)| {
            let done = self.done.get(seq).filter(|d| d.state == State::Dead)?;
            Some((*at, *seq, done.queue))
        });
        Ok(dead.take(limit).collect())
    }
}

impl ClaimRows for MemoryRows {
    fn put_lease(&mut self, row: &LeaseRow) -> Result<()> {
        self.leases.insert(row.id, row.clone());
        Ok(())
    }

    fn extend_lease(&mut self, id: LeaseId, until: Timestamp) -> Result<()> {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.until = until;
        }
        Ok(())
    }

    fn delete_lease(&mut self, id: LeaseId) -> Result<()> {
        self.leases.remove(&id);
        Ok(())
    }

    fn leases(&mut self) -> Result<Vec<LeaseRow>> {
        Ok(self.leases.values().cloned().collect())
    }

    fn first_lease(&mut self) -> Result<LeaseId> {
        self.runs += 1;
        Ok(LeaseId(self.runs * LEASES_PER_RUN))
    }

    fn unique(&mut self, kind: KindId, key: &UniqueKey) -> Result<Option<UniqueRow>> {
        Ok(self.uniques.get(&(kind, key.clone())).copied())
    }

    fn put_unique(&mut self, kind: KindId, key: &UniqueKey, row: UniqueRow) -> Result<()> {
        self.uniques.insert((kind, key.clone()), row);
        Ok(())
    }

    fn delete_unique(&mut self, kind: KindId, key: &UniqueKey, seq: Seq) -> Result<()> {
        if self.uniques.get(&(kind, key.clone())).is_some_and(|row| row.seq == seq) {
            self.uniques.remove(&(kind, key.clone()));
        }
        Ok(())
    }

    fn expire_uniques(&mut self, now: Timestamp, limit: usize) -> Result<u64> {
        let over = |row: &UniqueRow| row.expires.is_some_and(|at| at <= now);
        let mut keys: Vec<_> =
            self.uniques.iter().filter(|(_, r)| over(r)).map(|(k, r)| (r.expires, k.clone())).collect();
        keys.sort();
        keys.truncate(limit);
        for (_, key) in &keys {
            self.uniques.remove(key);
        }
        Ok(keys.len() as u64)
    }
}

impl FlowRows for MemoryRows {
    fn add_edge(&mut self, parent: Seq, child: Seq) -> Result<()> {
        self.edges.insert((parent, child));
        self.edges_to.insert((child, parent));
        Ok(())
    }

    fn move_edge(&mut self, from: Seq, to: Seq, child: Seq) -> Result<()> {
        self.edges.remove(&(from, child));
        self.edges_to.remove(&(child, from));
        self.add_edge(to, child)
    }

    fn drop_edges(&mut self, parents: &[Seq], child: Seq) -> Result<()> {
        for parent in parents {
            self.edges.remove(&(*parent, child));
            self.edges_to.remove(&(child, *parent));
            if self.children(*parent)?.is_empty() {
                self.kept.remove(parent);
            }
        }
        Ok(())
    }

    fn children(&mut self, parent: Seq) -> Result<Vec<Seq>> {
        Ok(self.edges.range(of(parent)).map(|(_, child)| *child).collect())
    }

    fn count_children(&mut self, parent: Seq) -> Result<u32> {
        Ok(self.edges.range(of(parent)).count() as u32)
    }

    fn parents(&mut self, child: Seq) -> Result<Vec<Seq>> {
        Ok(self.edges_to.range(of(child)).map(|(_, parent)| *parent).collect())
    }

    fn edges(&mut self) -> Result<(Vec<(Seq, u32)>, u64)> {
        let mut unfinished: BTreeMap<Seq, u32> = BTreeMap::new();
        let open = |parent: &Seq| match self.untold.get(parent) {
            Some(untold) => untold.end != End::Purged,
            None => self.jobs.contains_key(parent) && !self.done.contains_key(parent),
        };
        for (parent, _) in self.edges.iter().filter(|(parent, _)| open(parent)) {
            *unfinished.entry(*parent).or_default() += 1;
        }
        Ok((unfinished.into_iter().collect(), self.edges.len() as u64))
    }

    fn blocked(&mut self, seq: Seq) -> Result<Option<BlockedRow>> {
        Ok(self.blocked.get(&seq).copied())
    }

    fn put_blocked(&mut self, seq: Seq, row: &BlockedRow) -> Result<()> {
        self.blocked.insert(seq, *row);
        Ok(())
    }

    fn unblock(&mut self, jobs: &[Seq]) -> Result<()> {
        for seq in jobs {
            self.blocked.remove(seq);
        }
        Ok(())
    }

    fn keep(&mut self, seq: Seq, outcome: &Dependency, tenant: Option<&TenantId>) -> Result<()> {
        self.kept.insert(seq, (outcome.clone(), tenant.cloned()));
        Ok(())
    }

    fn forget_kept(&mut self, tenant: &TenantId, limit: usize) -> Result<u64> {
        let of_tenant = self.kept.iter().filter(|(_, (_, owner))| owner.as_ref() == Some(tenant));
        let gone: Vec<Seq> = of_tenant.map(|(seq, _)| *seq).take(limit).collect();
        for seq in &gone {
            self.kept.remove(seq);
        }
        Ok(gone.len() as u64)
    }

    fn kept(&mut self, seq: Seq) -> Result<Option<Dependency>> {
        Ok(self.kept.get(&seq).map(|(outcome, _)| outcome.clone()))
    }

    fn put_untold(&mut self, seq: Seq, row: &UntoldRow) -> Result<()> {
        self.untold.insert(seq, *row);
        Ok(())
    }

    fn told(&mut self, seq: Seq) -> Result<()> {
        self.untold.remove(&seq);
        Ok(())
    }

    fn untold(&mut self) -> Result<Vec<(Seq, UntoldRow)>> {
        Ok(self.untold.iter().map(|(seq, row)| (*seq, *row)).collect())
    }
}

/// All edges of one job.
fn of(seq: Seq) -> std::ops::RangeInclusive<(Seq, Seq)> {
    (seq, Seq(i64::MIN))..=(seq, Seq(i64::MAX))
}

impl NameRows for MemoryRows {
    fn names(&mut self) -> Result<Names> {
        Ok(Names {
            queues: self.queues.iter().map(|(id, (n, s))| (*id, n.clone(), s.clone())).collect(),
            kinds: self.kinds.iter().map(|(id, (n, s))| (*id, n.clone(), s.clone())).collect(),
            tenants: self.tenants.iter().map(|(id, n)| (*id, n.clone())).collect(),
            lanes: self.lanes.iter().map(|(id, k)| (*id, k.clone())).collect(),
            parks: self.parks.values().cloned().collect(),
            starts: self.starts.iter().map(|((id, at), n)| (*id, *at, *n)).collect(),
            policies: self.policies.clone(),
            version: self.versions.keys().next_back().copied().unwrap_or(0),
        })
    }

    fn put_queue(&mut self, id: QueueId, name: &QueueName, settings: &QueueSettings) -> Result<()> {
        self.queues.insert(id, (name.clone(), settings.clone()));
        Ok(())
    }

    fn put_kind(&mut self, id: KindId, name: &KindName, settings: &KindSettings) -> Result<()> {
        self.kinds.insert(id, (name.clone(), settings.clone()));
        Ok(())
    }

    fn put_tenant(&mut self, id: TenantNo, name: &TenantId) -> Result<()> {
        self.tenants.insert(id, name.clone());
        Ok(())
    }

    fn delete_tenant(&mut self, id: TenantNo) -> Result<()> {
        self.tenants.remove(&id);
        Ok(())
    }

    fn put_lane(&mut self, id: LaneId, key: &LaneKey) -> Result<()> {
        self.lanes.insert(id, key.clone());
        Ok(())
    }

    fn delete_lane(&mut self, id: LaneId) -> Result<()> {
        self.lanes.remove(&id);
        Ok(())
    }

    fn put_park(&mut self, park: &Park) -> Result<()> {
        self.parks.insert((park.scope.clone(), park.by.clone()), park.clone());
        Ok(())
    }

    fn delete_park(&mut self, scope: &ParkScope, by: &str) -> Result<()> {
        self.parks.remove(&(scope.clone(), by.to_owned()));
        Ok(())
    }

    fn add_starts(&mut self, queue: QueueId, at: Timestamp, n: u32) -> Result<()> {
        *self.starts.entry((queue, at)).or_default() += n;
        Ok(())
    }

    fn drop_starts(&mut self, queue: QueueId, upto: Timestamp) -> Result<()> {
        self.starts.retain(|(q, at), _| *q != queue || *at > upto);
        Ok(())
    }
}

impl VersionRows for MemoryRows {
    fn put_policies(&mut self, policies: &Policies) -> Result<()> {
        self.policies = policies.clone();
        Ok(())
    }

    fn add_version(&mut self, version: &Version, keep: usize) -> Result<()> {
        self.versions.insert(version.info.number, version.clone());
        let alike = self.versions.values().rev().filter(|v| v.info.outcome == version.info.outcome);
        if let Some(oldest) = alike.map(|v| v.info.number).nth(keep) {
            self.versions.remove(&oldest);
        }
        Ok(())
    }

    fn versions(&mut self, limit: usize) -> Result<Vec<VersionInfo>> {
        Ok(self.versions.values().rev().take(limit).map(|v| v.info.clone()).collect())
    }

    fn version(&mut self, number: u64) -> Result<Option<Version>> {
        Ok(self.versions.get(&number).cloned())
    }
}

/// A store in memory: for tests, and as the specification of the others.
#[derive(Debug)]
pub struct MemoryStore {
    machine: Mutex<Option<Machine<MemoryRows>>>,
    records: Mutex<BTreeMap<(Shelf, String), Record>>,
    signals: Signals,
    feed: Feed,
    commits: AtomicU64,
    watching: AtomicBool,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        // Rows in memory cannot fail to be read.
        let machine = Machine::open(MemoryRows::default(), Timestamp(0)).ok();
        Self {
            machine: Mutex::new(machine),
            records: Mutex::default(),
            signals: Signals::default(),
            feed: Feed::new(0, 0),
            commits: AtomicU64::new(0),
            watching: AtomicBool::new(false),
        }
    }

    /// Forgets what a restart forgets and rebuilds it from the rows.
    pub fn restart(&self, now: Timestamp) -> Result<()> {
        let mut guard = self.lock();
        let machine = guard.take().ok_or_else(closed)?;
        *guard = Some(machine.reopen(now)?);
        self.watching.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Machine<MemoryRows>>> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes events while somebody follows.
    fn watch(&self, machine: &mut Machine<MemoryRows>) {
        let watched = self.feed.watched();
        if watched != self.watching.swap(watched, Ordering::Relaxed) {
            machine.watch(watched);
            self.feed.skip_to(self.commits.load(Ordering::Relaxed));
        }
    }

    /// One operation, then its signals.
    fn with<T>(&self, operation: impl FnOnce(&mut Machine<MemoryRows>) -> Result<T>) -> Result<T> {
        let mut guard = self.lock();
        let machine = guard.as_mut().ok_or_else(closed)?;
        self.watch(machine);
        machine.measure();
        let reply = operation(machine);
        let pending = machine.take_signals();
        machine.count_seen(self.feed.meter());
        // Published under the lock: events come in the order of the operations.
        self.feed.publish(self.commits.fetch_add(1, Ordering::Relaxed) + 1, machine.take_events());
        drop(guard);
        if pending.work {
            self.signals.work();
        }
        for id in pending.cancels {
            self.signals.cancel(id);
        }
        reply
    }
}

fn closed() -> Error {
    Error::new(tidegate_core::codes::STORE_CLOSED, "the store is closed")
}

#[async_trait]
impl Jobs for MemoryStore {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>> {
        self.with(|m| m.enqueue(jobs, now))
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.with(|m| m.claim(claim))
    }

    async fn settle(&self, settle: Settle) -> Result<Vec<Settled>> {
        self.with(|m| m.settle(settle))
    }

    async fn heartbeat(&self, leases: Vec<LeaseId>, now: Timestamp) -> Result<Vec<Beat>> {
        self.with(|m| m.heartbeat(leases, now))
    }

    async fn admitted(&self, jobs: Vec<(JobId, Room)>, now: Timestamp) -> Result<()> {
        self.with(|m| m.admitted(&jobs, now))
    }

    async fn turn(&self, jobs: Vec<JobId>, gate: ConnectorName, now: Timestamp) -> Result<()> {
        self.with(|m| m.turn(&jobs, &gate, now))
    }

    async fn report(&self, reports: Vec<Report>, now: Timestamp) -> Result<Vec<bool>> {
        self.with(|m| m.report(reports, now))
    }

    async fn cancel(&self, cancel: CancelJob) -> Result<CancelReply> {
        self.with(|m| m.cancel(cancel))
    }

    async fn run_now(&self, id: JobId, now: Timestamp) -> Result<State> {
        self.with(|m| m.run_now(id, now))
    }

    async fn reprioritise(&self, id: JobId, priority: Priority, now: Timestamp) -> Result<()> {
        self.with(|m| m.reprioritise(id, priority, now))
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>> {
        self.with(|m| m.get(id))
    }

    async fn search(&self, query: JobQuery) -> Result<Page> {
        self.with(|m| {
            let limit = query.limit.clamp(1, limits::MAX_PAGE);
            let before = query.cursor.unwrap_or(Seq(i64::MAX));
            let candidates: Vec<Seq> = m.rows_mut().jobs.range(..before).rev().map(|(s, _)| *s).collect();
            let mut page = Page::default();
            for seq in candidates {
                let Some(job) = m.view(seq)?.filter(|job| query.matches(job)) else { continue };
                if page.jobs.len() == limit {
                    page.next = page.jobs.last().and_then(|j| m.rows_mut().ids.get(&j.id).copied());
                    break;
                }
                page.jobs.push(job);
            }
            Ok(page)
        })
    }

    async fn dependencies(
        &self,
        id: JobId,
        _held: Option<Ticket>,
        skip: u32,
        limit: usize,
    ) -> Result<Dependencies> {
        self.with(|m| m.dependencies(id, skip, limit))
    }

    async fn why(&self, id: JobId, now: Timestamp) -> Result<Why> {
        let why = self.with(|m| m.why(id, now))?;
        Ok(served::confirmed(self, why, now).await)
    }
}

#[async_trait]
impl Registry for MemoryStore {
    async fn put_queue(&self, name: QueueName, settings: QueueSettings, now: Timestamp) -> Result<()> {
        self.with(|m| m.put_queue(name, settings, now))
    }

    async fn settings(&self) -> Result<Vec<(QueueName, QueueSettings)>> {
        self.with(Machine::settings)
    }

    async fn ensure_queue(&self, name: QueueName, now: Timestamp) -> Result<()> {
        self.with(|m| m.ensure_queue(name, now))
    }

    async fn put_kind(&self, name: KindName, settings: KindSettings) -> Result<()> {
        self.with(|m| m.put_kind(name, settings))
    }

    async fn queues(&self, now: Timestamp) -> Result<Vec<QueueView>> {
        self.with(|m| m.queues(now))
    }

    async fn kinds(&self) -> Result<Vec<KindView>> {
        self.with(Machine::kinds)
    }

    async fn park(&self, park: Park, now: Timestamp) -> Result<()> {
        self.with(|m| m.park(park, now))
    }

    async fn unpark(&self, scope: ParkScope, by: String, now: Timestamp) -> Result<bool> {
        self.with(|m| m.unpark(&scope, &by, now))
    }

    async fn parks(&self) -> Result<Vec<Park>> {
        self.with(Machine::parks)
    }
}

#[async_trait]
impl Versions for MemoryStore {
    async fn apply(&self, apply: Apply) -> Result<Applied> {
        self.with(|m| m.apply(apply))
    }

    async fn refuse(&self, refused: RefusedDocument, now: Timestamp) -> Result<u64> {
        self.with(|m| m.refuse(refused, now))
    }

    async fn registry(&self) -> Result<Document> {
        self.with(Machine::registry)
    }

    async fn versions(&self, limit: usize) -> Result<Vec<VersionInfo>> {
        self.with(|m| m.versions(limit))
    }

    async fn version(&self, number: u64) -> Result<Option<Version>> {
        self.with(|m| m.version(number))
    }
}

#[async_trait]
impl Letters for MemoryStore {
    async fn recover(&self, letters: Vec<Recover>, now: Timestamp) -> Result<Vec<Recovered>> {
        self.with(|m| m.recover(letters, now))
    }

    async fn resolve(&self, resolve: Resolve) -> Result<()> {
        self.with(|m| m.resolve(resolve))
    }

    async fn reauthorized(
        &self,
        letters: Vec<Reauthorized>,
        by: String,
        now: Timestamp,
    ) -> Result<Vec<Recovered>> {
        self.with(|m| m.reauthorized(letters, &by, now))
    }

    async fn process_letters(&self, process: ProcessLetters) -> Result<ProcessedLetters> {
        self.with(|m| m.process_letters(process))
    }

    async fn causes(&self, query: CauseQuery) -> Result<Causes> {
        self.with(|m| {
            let Some(filter) = m.cause_filter(&query) else { return Ok(Causes::default()) };
            let (rows, total) = m.rows_mut().causes(filter);
            m.describe_causes(rows, total)
        })
    }
}

#[async_trait]
impl Upkeep for MemoryStore {
    async fn advance(&self, now: Timestamp) -> Result<Advanced> {
        self.with(|m| m.advance(now))
    }

    async fn prune(&self, limit: usize, now: Timestamp) -> Result<u64> {
        self.with(|m| m.prune(limit, now))
    }

    async fn erase(&self, erase: Erase) -> Result<Erased> {
        self.with(|m| m.erase(&erase))
    }

    async fn totals(&self) -> Result<Totals> {
        self.with(Machine::totals)
    }
}

#[async_trait]
impl Records for MemoryStore {
    async fn put_record(&self, record: Record, now: Timestamp) -> Result<()> {
        record.check()?;
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.retain(|(shelf, _), r| *shelf != record.shelf || r.lives(now));
        records.insert((record.shelf, record.key.clone()), record);
        Ok(())
    }

    async fn records(&self, shelf: Shelf, now: Timestamp) -> Result<Vec<Record>> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let of_shelf = records.values().filter(|r| r.shelf == shelf && r.lives(now));
        Ok(of_shelf.take(limits::MAX_RECORDS).cloned().collect())
    }

    async fn delete_record(&self, shelf: Shelf, key: String) -> Result<bool> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(records.remove(&(shelf, key)).is_some())
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn signals(&self) -> &Signals {
        &self.signals
    }

    fn feed(&self) -> &Feed {
        &self.feed
    }

    async fn close(&self) -> Result<()> {
        self.lock().take();
        Ok(())
    }
}
