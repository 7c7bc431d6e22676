//! Rows that several machines share. Everything is kept; what numbers to go on with comes from who wrote last.

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
    BlockedRow, ClaimRows, DoneRow, FlowRows, JobRow, JobRows, KindId, LeaseRow, LetterRows, NameRows, Names,
    Scanned, ScheduleId, ScheduleRow, ScheduleRows, StateRow, TenantNo, TimeRows, UniqueRow, UntoldRow,
    VersionRows,
};

/// Rows of the world. Clones are the same rows.
#[derive(Debug, Clone)]
pub(super) struct SharedRows(Arc<Mutex<Shared>>);

#[derive(Debug)]
struct Shared {
    rows: MemoryRows,
    position: Position,
}

impl SharedRows {
    pub(super) fn new(now: Timestamp) -> Self {
        let position = Position { next_seq: Seq(1), next_lease: LeaseId(1), now };
        Self(Arc::new(Mutex::new(Shared { rows: MemoryRows::default(), position })))
    }

    /// Where whoever wrote last stands.
    pub(super) fn position(&self) -> Position {
        self.lock().position
    }

    pub(super) fn set_position(&self, position: Position) {
        self.lock().position = position;
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JobRows for SharedRows {
    fn insert_job(&mut self, seq: Seq, row: &JobRow) -> Result<()> {
        self.lock().rows.insert_job(seq, row)
    }

    fn job(&mut self, seq: Seq) -> Result<Option<JobRow>> {
        self.lock().rows.job(seq)
    }

    fn head(&mut self, seq: Seq) -> Result<Option<(LaneId, Option<TenantNo>)>> {
        self.lock().rows.head(seq)
    }

    fn find_job(&mut self, id: JobId) -> Result<Option<Seq>> {
        self.lock().rows.find_job(id)
    }

    fn delete_job(&mut self, seq: Seq) -> Result<()> {
        self.lock().rows.delete_job(seq)
    }

    fn state(&mut self, seq: Seq) -> Result<Option<StateRow>> {
        self.lock().rows.state(seq)
    }

    fn put_state(&mut self, seq: Seq, row: &StateRow) -> Result<()> {
        self.lock().rows.put_state(seq, row)
    }

    fn jobs_of_tenant(
        &mut self,
        tenant: TenantNo,
        after: Seq,
        scan: usize,
    ) -> Result<(Vec<Seq>, Option<Seq>)> {
        self.lock().rows.jobs_of_tenant(tenant, after, scan)
    }

    fn reserved_seq(&mut self) -> Result<Seq> {
        Ok(self.lock().position.next_seq)
    }

    fn reserve_seq(&mut self, _upto: Seq) -> Result<()> {
        Ok(())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(Scanned)) -> Result<()> {
        self.lock().rows.scan(visit)
    }
}

impl TimeRows for SharedRows {
    fn delay(&mut self, run_at: Timestamp, seq: Seq) -> Result<()> {
        self.lock().rows.delay(run_at, seq)
    }

    fn undelay(&mut self, run_at: Timestamp, seq: Seq) -> Result<bool> {
        self.lock().rows.undelay(run_at, seq)
    }

    fn take_due(&mut self, now: Timestamp, limit: usize) -> Result<Vec<(Timestamp, Seq)>> {
        self.lock().rows.take_due(now, limit)
    }

    fn next_due(&mut self) -> Result<Option<Timestamp>> {
        self.lock().rows.next_due()
    }

    fn insert_done(&mut self, seq: Seq, row: &DoneRow) -> Result<()> {
        self.lock().rows.insert_done(seq, row)
    }

    fn done(&mut self, seq: Seq) -> Result<Option<DoneRow>> {
        self.lock().rows.done(seq)
    }

    fn put_letter(&mut self, seq: Seq, letter: &DeadLetter) -> Result<()> {
        self.lock().rows.put_letter(seq, letter)
    }

    fn oldest_done(&mut self, queue: QueueId, limit: usize) -> Result<Vec<(Timestamp, Seq, State)>> {
        self.lock().rows.oldest_done(queue, limit)
    }

    fn oldest_dead(&mut self, limit: usize) -> Result<Vec<(Timestamp, Seq, QueueId)>> {
        self.lock().rows.oldest_dead(limit)
    }
}

impl LetterRows for SharedRows {
    fn pending_letters(
        &mut self,
        after: Option<(Timestamp, Seq)>,
        limit: usize,
    ) -> Result<Vec<(Timestamp, Seq)>> {
        self.lock().rows.pending_letters(after, limit)
    }

    fn round(&mut self) -> Result<Option<Round>> {
        self.lock().rows.round()
    }

    fn put_round(&mut self, round: Round) -> Result<()> {
        self.lock().rows.put_round(round)
    }
}

impl ClaimRows for SharedRows {
    fn put_lease(&mut self, row: &LeaseRow) -> Result<()> {
        self.lock().rows.put_lease(row)
    }

    fn extend_lease(&mut self, id: LeaseId, until: Timestamp) -> Result<()> {
        self.lock().rows.extend_lease(id, until)
    }

    fn delete_lease(&mut self, id: LeaseId) -> Result<()> {
        self.lock().rows.delete_lease(id)
    }

    fn leases(&mut self) -> Result<Vec<LeaseRow>> {
        self.lock().rows.leases()
    }

    fn first_lease(&mut self) -> Result<LeaseId> {
        Ok(self.lock().position.next_lease)
    }

    fn unique(&mut self, kind: KindId, key: &UniqueKey) -> Result<Option<UniqueRow>> {
        self.lock().rows.unique(kind, key)
    }

    fn put_unique(&mut self, kind: KindId, key: &UniqueKey, row: UniqueRow) -> Result<()> {
        self.lock().rows.put_unique(kind, key, row)
    }

    fn delete_unique(&mut self, kind: KindId, key: &UniqueKey, seq: Seq) -> Result<()> {
        self.lock().rows.delete_unique(kind, key, seq)
    }

    fn expire_uniques(&mut self, now: Timestamp, limit: usize) -> Result<u64> {
        self.lock().rows.expire_uniques(now, limit)
    }
}

impl NameRows for SharedRows {
    fn names(&mut self) -> Result<Names> {
        self.lock().rows.names()
    }

    fn put_queue(&mut self, id: QueueId, name: &QueueName, settings: &QueueSettings) -> Result<()> {
        self.lock().rows.put_queue(id, name, settings)
    }

    fn put_kind(&mut self, id: KindId, name: &KindName, settings: &KindSettings) -> Result<()> {
        self.lock().rows.put_kind(id, name, settings)
    }

    fn put_tenant(&mut self, id: TenantNo, name: &TenantId) -> Result<()> {
        self.lock().rows.put_tenant(id, name)
    }

    fn delete_tenant(&mut self, id: TenantNo) -> Result<()> {
        self.lock().rows.delete_tenant(id)
    }

    fn put_lane(&mut self, id: LaneId, key: &LaneKey) -> Result<()> {
        self.lock().rows.put_lane(id, key)
    }

    fn delete_lane(&mut self, id: LaneId) -> Result<()> {
        self.lock().rows.delete_lane(id)
    }

    fn put_park(&mut self, park: &Park) -> Result<()> {
        self.lock().rows.put_park(park)
    }

    fn delete_park(&mut self, scope: &ParkScope, by: &str) -> Result<()> {
        self.lock().rows.delete_park(scope, by)
    }

    fn add_starts(&mut self, queue: QueueId, at: Timestamp, n: u32) -> Result<()> {
        self.lock().rows.add_starts(queue, at, n)
    }

    fn drop_starts(&mut self, queue: QueueId, upto: Timestamp) -> Result<()> {
        self.lock().rows.drop_starts(queue, upto)
    }
}

impl ScheduleRows for SharedRows {
    fn schedules(&mut self) -> Result<Vec<ScheduleRow>> {
        self.lock().rows.schedules()
    }

    fn put_schedule(
        &mut self,
        id: ScheduleId,
        name: &ScheduleName,
        spec: &ScheduleSpec,
        state: &ScheduleState,
    ) -> Result<()> {
        self.lock().rows.put_schedule(id, name, spec, state)
    }

    fn put_schedule_state(&mut self, id: ScheduleId, state: &ScheduleState) -> Result<()> {
        self.lock().rows.put_schedule_state(id, state)
    }

    fn delete_schedule(&mut self, id: ScheduleId) -> Result<()> {
        self.lock().rows.delete_schedule(id)
    }

    fn put_tick(&mut self, id: ScheduleId, entry: &TickEntry) -> Result<()> {
        self.lock().rows.put_tick(id, entry)
    }

    fn ticks(&mut self, id: ScheduleId, before: u64, limit: usize) -> Result<Vec<TickEntry>> {
        self.lock().rows.ticks(id, before, limit)
    }
}

impl FlowRows for SharedRows {
    fn add_edge(&mut self, parent: Seq, child: Seq) -> Result<()> {
        self.lock().rows.add_edge(parent, child)
    }

    fn move_edge(&mut self, from: Seq, to: Seq, child: Seq) -> Result<()> {
        self.lock().rows.move_edge(from, to, child)
    }

    fn drop_edges(&mut self, parents: &[Seq], child: Seq) -> Result<()> {
        self.lock().rows.drop_edges(parents, child)
    }

    fn children(&mut self, parent: Seq) -> Result<Vec<Seq>> {
        self.lock().rows.children(parent)
    }

    fn count_children(&mut self, parent: Seq) -> Result<u32> {
        self.lock().rows.count_children(parent)
    }

    fn parents(&mut self, child: Seq) -> Result<Vec<Seq>> {
        self.lock().rows.parents(child)
    }

    fn edges(&mut self) -> Result<(Vec<(Seq, u32)>, u64)> {
        self.lock().rows.edges()
    }

    fn blocked(&mut self, seq: Seq) -> Result<Option<BlockedRow>> {
        self.lock().rows.blocked(seq)
    }

    fn put_blocked(&mut self, seq: Seq, row: &BlockedRow) -> Result<()> {
        self.lock().rows.put_blocked(seq, row)
    }

    fn unblock(&mut self, jobs: &[Seq]) -> Result<()> {
        self.lock().rows.unblock(jobs)
    }

    fn keep(&mut self, seq: Seq, outcome: &Dependency, tenant: Option<&TenantId>) -> Result<()> {
        self.lock().rows.keep(seq, outcome, tenant)
    }

    fn forget_kept(&mut self, tenant: &TenantId, limit: usize) -> Result<u64> {
        self.lock().rows.forget_kept(tenant, limit)
    }

    fn put_untold(&mut self, seq: Seq, row: &UntoldRow) -> Result<()> {
        self.lock().rows.put_untold(seq, row)
    }

    fn told(&mut self, seq: Seq) -> Result<()> {
        self.lock().rows.told(seq)
    }

    fn untold(&mut self) -> Result<Vec<(Seq, UntoldRow)>> {
        self.lock().rows.untold()
    }

    fn kept(&mut self, seq: Seq) -> Result<Option<Dependency>> {
        self.lock().rows.kept(seq)
    }
}

impl VersionRows for SharedRows {
    fn put_policies(&mut self, policies: &Policies) -> Result<()> {
        self.lock().rows.put_policies(policies)
    }

    fn add_version(&mut self, version: &Version, keep: usize) -> Result<()> {
        self.lock().rows.add_version(version, keep)
    }

    fn versions(&mut self, limit: usize) -> Result<Vec<VersionInfo>> {
        self.lock().rows.versions(limit)
    }

    fn version(&mut self, number: u64) -> Result<Option<Version>> {
        self.lock().rows.version(number)
    }
}
