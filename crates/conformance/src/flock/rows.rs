//! Rows that several machines share, a long way off: counts the ways there, and minds who may go.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::ids::{JobId, KindName, LeaseId, QueueName, ScheduleName, Seq, TenantId, UniqueKey};
use tidegate_core::job::{DeadLetter, Dependency, Park, ParkScope, State};
use tidegate_core::lanes::{LaneId, LaneKey, QueueId};
use tidegate_core::letters::Round;
use tidegate_core::policies::Policies;
use tidegate_core::registry::{KindSettings, QueueSettings, Version, VersionInfo};
use tidegate_core::schedule::{ScheduleSpec, ScheduleState, TickEntry};
use tidegate_core::time::Timestamp;
use tidegate_store::Result;
use tidegate_store::machine::Position;
use tidegate_store::memory::MemoryRows;
use tidegate_store::rows::{
    BlockedRow, CauseFilter, CauseRow, ClaimRows, DoneRow, FlowRows, JobRow, JobRows, KindId, LeaseRow,
    LetterRows, LookUps, NameRows, Names, Reads, Scanned, ScheduleId, ScheduleRow, ScheduleRows, StateRow,
    TenantNo, TimeRows, UniqueRow, UntoldRow, VersionRows,
};

use crate::kit::START;

/// What may be done to the rows now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    Nothing,
    Read,
    Write,
}

/// The rows. Clones are the same rows.
#[derive(Debug, Clone)]
pub(super) struct FarRows(Arc<Mutex<Shared>>);

#[derive(Debug)]
struct Shared {
    rows: MemoryRows,
    position: Position,
    access: Access,
    /// What the operation has at hand: fetched or written.
    near: HashSet<Near>,
    trips: u32,
    /// Edges that were fetched since the beginning.
    edges: u64,
}

/// Something at hand, absent or not.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Near {
    /// A new job: nothing about it is elsewhere.
    New(Seq),
    Job(Seq),
    Head(Seq),
    State(Seq),
    Done(Seq),
    Id(JobId),
    Blocked(Seq),
    Children(Seq),
    Parents(Seq),
    Count(Seq),
    Key(KindId, UniqueKey),
}

impl Default for FarRows {
    fn default() -> Self {
        let position = Position { next_seq: Seq(1), next_lease: LeaseId(1), now: START };
        Self(Arc::new(Mutex::new(Shared {
            rows: MemoryRows::default(),
            position,
            access: Access::Nothing,
            near: HashSet::new(),
            trips: 0,
            edges: 0,
        })))
    }
}

impl FarRows {
    /// What may be done from now on. What was at hand is forgotten. Returns the ways there so far.
    pub(super) fn allow(&self, access: Access) -> u32 {
        let mut shared = self.lock();
        shared.access = access;
        shared.near.clear();
        std::mem::take(&mut shared.trips)
    }

    pub(super) fn edges_fetched(&self) -> u64 {
        self.lock().edges
    }

    pub(super) fn position(&self) -> Position {
        self.lock().position
    }

    pub(super) fn set_position(&self, position: Position) {
        self.lock().position = position;
    }

    pub(super) fn snapshot(&self) -> MemoryRows {
        self.lock().rows.clone()
    }

    pub(super) fn restore(&self, rows: MemoryRows) {
        self.lock().rows = rows;
    }

    /// Numbers of all jobs below this one, newest first.
    pub(super) fn jobs_before(&self, before: Seq) -> Result<Vec<Seq>> {
        let mut seqs = vec![];
        self.lock().rows.scan(&mut |job| seqs.push(job.seq))?;
        seqs.retain(|seq| *seq < before);
        seqs.reverse();
        Ok(seqs)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows, for a read of something.
    fn read(&self, near: &[Near]) -> MutexGuard<'_, Shared> {
        let mut shared = self.lock();
        assert!(shared.access >= Access::Read, "following or waiting, yet it reads rows");
        if !near.iter().any(|what| shared.near.contains(what)) {
            shared.trips += 1;
        }
        shared
    }

    /// The rows, for a write: those are gathered and need no way of their own.
    fn write(&self) -> MutexGuard<'_, Shared> {
        let shared = self.lock();
        assert!(shared.access == Access::Write, "it only looks, yet it writes rows");
        shared
    }
}

impl JobRows for FarRows {
    const PREFETCHES: bool = true;

    fn will_read(&mut self, reads: &Reads) -> Result<()> {
        let mut shared = self.read(&[]);
        let shared = &mut *shared;
        assert!(*reads != Reads::default(), "nothing to read is no reason to go");
        for seq in &reads.states {
            assert!(shared.rows.state(*seq)?.is_some(), "job {} has no state", seq.0);
        }
        for seq in reads.children.iter().filter(|seq| !shared.near.contains(&Near::Children(**seq))) {
            shared.edges += shared.rows.children(*seq)?.len() as u64;
        }
        for seq in reads.parents.iter().filter(|seq| !shared.near.contains(&Near::Parents(**seq))) {
            shared.edges += shared.rows.parents(*seq)?.len() as u64;
        }
        shared.near.extend(reads.jobs.iter().flat_map(|seq| [Near::Job(*seq), Near::Head(*seq)]));
        shared.near.extend(reads.heads.iter().map(|seq| Near::Head(*seq)));
        shared.near.extend(reads.states.iter().map(|seq| Near::State(*seq)));
        shared.near.extend(reads.done.iter().map(|seq| Near::Done(*seq)));
        shared.near.extend(reads.blocked.iter().map(|seq| Near::Blocked(*seq)));
        shared.near.extend(reads.children.iter().map(|seq| Near::Children(*seq)));
        shared.near.extend(reads.parents.iter().map(|seq| Near::Parents(*seq)));
        shared.near.extend(reads.counts.iter().map(|seq| Near::Count(*seq)));
        Ok(())
    }

    fn will_look_up(&mut self, look_ups: &LookUps) -> Result<()> {
        let mut shared = self.read(&[]);
        assert!(*look_ups != LookUps::default(), "nothing to look up is no reason to go");
        shared.near.extend(look_ups.ids.iter().map(|id| Near::Id(*id)));
        shared.near.extend(look_ups.keys.iter().map(|(kind, key)| Near::Key(*kind, key.clone())));
        Ok(())
    }

    fn insert_job(&mut self, seq: Seq, row: &JobRow) -> Result<()> {
        let mut shared = self.write();
        shared.near.extend([Near::New(seq), Near::Id(row.id)]);
        shared.rows.insert_job(seq, row)
    }

    fn job(&mut self, seq: Seq) -> Result<Option<JobRow>> {
        let mut shared = self.read(&[Near::New(seq), Near::Job(seq)]);
        shared.near.insert(Near::Job(seq));
        shared.rows.job(seq)
    }

    fn head(&mut self, seq: Seq) -> Result<Option<(LaneId, Option<TenantNo>)>> {
        self.read(&[Near::New(seq), Near::Job(seq), Near::Head(seq)]).rows.head(seq)
    }

    fn find_job(&mut self, id: JobId) -> Result<Option<Seq>> {
        let mut shared = self.read(&[Near::Id(id)]);
        shared.near.insert(Near::Id(id));
        shared.rows.find_job(id)
    }

    fn delete_job(&mut self, seq: Seq) -> Result<()> {
        self.write().rows.delete_job(seq)
    }

    fn state(&mut self, seq: Seq) -> Result<Option<StateRow>> {
        let mut shared = self.read(&[Near::New(seq), Near::State(seq)]);
        shared.near.insert(Near::State(seq));
        shared.rows.state(seq)
    }

    fn put_state(&mut self, seq: Seq, row: &StateRow) -> Result<()> {
        let mut shared = self.write();
        shared.near.insert(Near::State(seq));
        shared.rows.put_state(seq, row)
    }

    fn jobs_of_tenant(
        &mut self,
        tenant: TenantNo,
        after: Seq,
        scan: usize,
    ) -> Result<(Vec<Seq>, Option<Seq>)> {
        self.read(&[]).rows.jobs_of_tenant(tenant, after, scan)
    }

    fn reserved_seq(&mut self) -> Result<Seq> {
        Ok(self.lock().position.next_seq)
    }

    fn reserve_seq(&mut self, _upto: Seq) -> Result<()> {
        Ok(())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(Scanned)) -> Result<()> {
        self.read(&[]).rows.scan(visit)
    }
}

impl TimeRows for FarRows {
    fn delay(&mut self, run_at: Timestamp, seq: Seq) -> Result<()> {
        self.write().rows.delay(run_at, seq)
    }

    fn undelay(&mut self, run_at: Timestamp, seq: Seq) -> Result<bool> {
        self.write().rows.undelay(run_at, seq)
    }

    fn take_due(&mut self, now: Timestamp, limit: usize) -> Result<Vec<(Timestamp, Seq)>> {
        drop(self.read(&[]));
        self.write().rows.take_due(now, limit)
    }

    fn next_due(&mut self) -> Result<Option<Timestamp>> {
        self.read(&[]).rows.next_due()
    }

    fn insert_done(&mut self, seq: Seq, row: &DoneRow) -> Result<()> {
        let mut shared = self.write();
        shared.near.insert(Near::Done(seq));
        shared.rows.insert_done(seq, row)
    }

    fn done(&mut self, seq: Seq) -> Result<Option<DoneRow>> {
        let mut shared = self.read(&[Near::New(seq), Near::Done(seq)]);
        shared.near.insert(Near::Done(seq));
        shared.rows.done(seq)
    }

    fn put_letter(&mut self, seq: Seq, letter: &DeadLetter) -> Result<()> {
        self.write().rows.put_letter(seq, letter)
    }

    fn oldest_done(&mut self, queue: QueueId, limit: usize) -> Result<Vec<(Timestamp, Seq, State)>> {
        self.read(&[]).rows.oldest_done(queue, limit)
    }

    fn oldest_dead(&mut self, limit: usize) -> Result<Vec<(Timestamp, Seq, QueueId)>> {
        self.read(&[]).rows.oldest_dead(limit)
    }
}

impl FarRows {
    /// Letters by cause; a store of its own asks another connection for this.
    pub(super) fn causes(&self, filter: CauseFilter) -> (Vec<CauseRow>, u64) {
        self.lock().rows.causes(filter)
    }
}

impl LetterRows for FarRows {
    fn pending_letters(
        &mut self,
        after: Option<(Timestamp, Seq)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, Seq)>> {
        self.read(&[]).rows.pending_letters(after, limit)
    }

    fn round(&mut self) -> Result<Option<Round>> {
        self.read(&[]).rows.round()
    }

    fn put_round(&mut self, round: Round) -> Result<()> {
        self.write().rows.put_round(round)
    }
}

impl ClaimRows for FarRows {
    fn put_lease(&mut self, row: &LeaseRow) -> Result<()> {
        self.write().rows.put_lease(row)
    }

    fn extend_lease(&mut self, id: LeaseId, until: Timestamp) -> Result<()> {
        self.write().rows.extend_lease(id, until)
    }

    fn delete_lease(&mut self, id: LeaseId) -> Result<()> {
        self.write().rows.delete_lease(id)
    }

    fn leases(&mut self) -> Result<Vec<LeaseRow>> {
        self.read(&[]).rows.leases()
    }

    fn first_lease(&mut self) -> Result<LeaseId> {
        Ok(self.lock().position.next_lease)
    }

    fn unique(&mut self, kind: KindId, key: &UniqueKey) -> Result<Option<UniqueRow>> {
        self.read(&[Near::Key(kind, key.clone())]).rows.unique(kind, key)
    }

    fn put_unique(&mut self, kind: KindId, key: &UniqueKey, row: UniqueRow) -> Result<()> {
        let mut shared = self.write();
        shared.near.insert(Near::Key(kind, key.clone()));
        shared.rows.put_unique(kind, key, row)
    }

    fn delete_unique(&mut self, kind: KindId, key: &UniqueKey, seq: Seq) -> Result<()> {
        self.write().rows.delete_unique(kind, key, seq)
    }

    fn expire_uniques(&mut self, now: Timestamp, limit: usize) -> Result<u64> {
        drop(self.read(&[]));
        self.write().rows.expire_uniques(now, limit)
    }
}

impl FlowRows for FarRows {
    fn add_edge(&mut self, parent: Seq, child: Seq) -> Result<()> {
        self.write().rows.add_edge(parent, child)
    }

    fn move_edge(&mut self, from: Seq, to: Seq, child: Seq) -> Result<()> {
        self.write().rows.move_edge(from, to, child)
    }

    fn drop_edges(&mut self, parents: &[Seq], child: Seq) -> Result<()> {
        self.write().rows.drop_edges(parents, child)
    }

    fn children(&mut self, parent: Seq) -> Result<Vec<Seq>> {
        let mut shared = self.read(&[Near::New(parent), Near::Children(parent)]);
        let fetched = shared.near.insert(Near::Children(parent));
        let children = shared.rows.children(parent)?;
        shared.edges += if fetched { children.len() as u64 } else { 0 };
        Ok(children)
    }

    fn count_children(&mut self, parent: Seq) -> Result<u32> {
        let near = [Near::New(parent), Near::Children(parent), Near::Count(parent)];
        let mut shared = self.read(&near);
        shared.near.insert(Near::Count(parent));
        shared.rows.count_children(parent)
    }

    fn parents(&mut self, child: Seq) -> Result<Vec<Seq>> {
        let mut shared = self.read(&[Near::New(child), Near::Parents(child)]);
        let fetched = shared.near.insert(Near::Parents(child));
        let parents = shared.rows.parents(child)?;
        shared.edges += if fetched { parents.len() as u64 } else { 0 };
        Ok(parents)
    }

    fn edges(&mut self) -> Result<(Vec<(Seq, u32)>, u64)> {
        self.read(&[]).rows.edges()
    }

    fn blocked(&mut self, seq: Seq) -> Result<Option<BlockedRow>> {
        let mut shared = self.read(&[Near::New(seq), Near::Blocked(seq)]);
        shared.near.insert(Near::Blocked(seq));
        shared.rows.blocked(seq)
    }

    fn put_blocked(&mut self, seq: Seq, row: &BlockedRow) -> Result<()> {
        let mut shared = self.write();
        shared.near.insert(Near::Blocked(seq));
        shared.rows.put_blocked(seq, row)
    }

    fn unblock(&mut self, jobs: &[Seq]) -> Result<()> {
        self.write().rows.unblock(jobs)
    }

    fn keep(&mut self, seq: Seq, outcome: &Dependency, tenant: Option<&TenantId>) -> Result<()> {
        self.write().rows.keep(seq, outcome, tenant)
    }

    fn forget_kept(&mut self, tenant: &TenantId, limit: usize) -> Result<u64> {
        drop(self.read(&[]));
        self.write().rows.forget_kept(tenant, limit)
    }

    fn put_untold(&mut self, seq: Seq, row: &UntoldRow) -> Result<()> {
        self.write().rows.put_untold(seq, row)
    }

    fn told(&mut self, seq: Seq) -> Result<()> {
        self.write().rows.told(seq)
    }

    fn untold(&mut self) -> Result<Vec<(Seq, UntoldRow)>> {
        self.read(&[]).rows.untold()
    }

    fn kept(&mut self, seq: Seq) -> Result<Option<Dependency>> {
        self.read(&[]).rows.kept(seq)
    }
}

impl NameRows for FarRows {
    fn names(&mut self) -> Result<Names> {
        self.read(&[]).rows.names()
    }

    fn put_queue(&mut self, id: QueueId, name: &QueueName, settings: &QueueSettings) -> Result<()> {
        self.write().rows.put_queue(id, name, settings)
    }

    fn put_kind(&mut self, id: KindId, name: &KindName, settings: &KindSettings) -> Result<()> {
        self.write().rows.put_kind(id, name, settings)
    }

    fn put_tenant(&mut self, id: TenantNo, name: &TenantId) -> Result<()> {
        self.write().rows.put_tenant(id, name)
    }

    fn delete_tenant(&mut self, id: TenantNo) -> Result<()> {
        self.write().rows.delete_tenant(id)
    }

    fn put_lane(&mut self, id: LaneId, key: &LaneKey) -> Result<()> {
        self.write().rows.put_lane(id, key)
    }

    fn delete_lane(&mut self, id: LaneId) -> Result<()> {
        self.write().rows.delete_lane(id)
    }

    fn put_park(&mut self, park: &Park) -> Result<()> {
        self.write().rows.put_park(park)
    }

    fn delete_park(&mut self, scope: &ParkScope, by: &str) -> Result<()> {
        self.write().rows.delete_park(scope, by)
    }

    fn add_starts(&mut self, queue: QueueId, at: Timestamp, n: u32) -> Result<()> {
        self.write().rows.add_starts(queue, at, n)
    }

    fn drop_starts(&mut self, queue: QueueId, upto: Timestamp) -> Result<()> {
        self.write().rows.drop_starts(queue, upto)
    }
}

impl ScheduleRows for FarRows {
    fn schedules(&mut self) -> Result<Vec<ScheduleRow>> {
        self.read(&[]).rows.schedules()
    }

    fn put_schedule(
        &mut self,
        id: ScheduleId,
        name: &ScheduleName,
        spec: &ScheduleSpec,
        state: &ScheduleState,
    ) -> Result<()> {
        self.write().rows.put_schedule(id, name, spec, state)
    }

    fn put_schedule_state(&mut self, id: ScheduleId, state: &ScheduleState) -> Result<()> {
        self.write().rows.put_schedule_state(id, state)
    }

    fn delete_schedule(&mut self, id: ScheduleId) -> Result<()> {
        self.write().rows.delete_schedule(id)
    }

    fn put_tick(&mut self, id: ScheduleId, entry: &TickEntry) -> Result<()> {
        self.write().rows.put_tick(id, entry)
    }

    fn ticks(&mut self, id: ScheduleId, before: u64, limit: usize) -> Result<Vec<TickEntry>> {
        self.read(&[]).rows.ticks(id, before, limit)
    }
}

impl VersionRows for FarRows {
    fn put_policies(&mut self, policies: &Policies) -> Result<()> {
        self.write().rows.put_policies(policies)
    }

    fn add_version(&mut self, version: &Version, keep: usize) -> Result<()> {
        self.write().rows.add_version(version, keep)
    }

    fn versions(&mut self, limit: usize) -> Result<Vec<VersionInfo>> {
        self.read(&[]).rows.versions(limit)
    }

    fn version(&mut self, number: u64) -> Result<Option<Version>> {
        self.read(&[]).rows.version(number)
    }
}
