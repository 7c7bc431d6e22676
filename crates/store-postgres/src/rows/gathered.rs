//! What the machine wrote and was not sent yet. Later writes replace earlier ones, so each row is sent once.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tidegate_core::hash::KeySet;
use tidegate_core::ids::{JobId, KindName, LeaseId, QueueName, Seq, TenantId, UniqueKey};
use tidegate_core::job::{DeadLetter, Dependency, Park};
use tidegate_core::lanes::{LaneId, LaneKey, QueueId};
use tidegate_core::letters::Round;
use tidegate_core::policies::Policies;
use tidegate_core::registry::{KindSettings, QueueSettings, Version};
use tidegate_core::schedule::{ScheduleState, TickEntry};
use tidegate_core::time::Timestamp;
use tidegate_store::rows::{
    BlockedRow, DoneRow, JobRow, KindId, LeaseRow, ScheduleId, ScheduleRow, StateRow, TenantNo, UniqueRow,
    UntoldRow,
};

use super::finished::ListKey;

/// A write that keeps its place among the others of its kind.
#[derive(Debug)]
pub(super) enum NameWrite {
    Queue(QueueId, QueueName, QueueSettings),
    Kind(KindId, KindName, KindSettings),
    Park(Park),
    Unpark(tidegate_core::job::ParkScope, String),
    AddStarts(QueueId, Timestamp, u32),
    DropStarts(QueueId, Timestamp),
    Policies(Policies),
    Version(Box<Version>, usize),
    Round(Round),
}

/// Writes that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// In order of their numbers.
    pub(super) new_jobs: Vec<(Seq, JobRow)>,
    /// How many of them are on their way already.
    pub(super) copied: usize,
    /// New jobs, and bytes of their payloads, since it was last looked whether some can be.
    pub(super) unseen: (usize, usize),
    /// Numbers of the first `indexed` of them by id; made when somebody asks.
    ids: HashMap<JobId, Seq>,
    indexed: usize,
    pub(super) deleted_jobs: KeySet<Seq>,
    pub(super) states: BTreeMap<Seq, StateRow>,
    pub(super) done: BTreeMap<Seq, DoneRow>,
    /// Jobs completed or cancelled, by queue, time and state.
    pub(super) finished: BTreeMap<(QueueId, Timestamp, i16), Vec<Seq>>,
    /// Runs that are left of lists that are in the table; none: it is gone.
    pub(super) lists: BTreeMap<ListKey, Vec<(i64, i64)>>,
    /// Marks that were written ahead and are not true: gone before others are written.
    pub(super) unmarked: Vec<Seq>,
    /// Letters of jobs whose mark is in the table already.
    pub(super) letters: BTreeMap<Seq, DeadLetter>,
    pub(super) delayed: BTreeSet<(Timestamp, Seq)>,
    pub(super) undelayed: BTreeSet<(Timestamp, Seq)>,
    pub(super) leases: BTreeMap<LeaseId, LeaseRow>,
    pub(super) extended: BTreeMap<LeaseId, Timestamp>,
    pub(super) ended: BTreeSet<LeaseId>,
    pub(super) uniques: HashMap<(KindId, UniqueKey), Option<UniqueRow>>,
    /// Keys to be freed if these jobs hold them; before any is given away.
    pub(super) freed: HashSet<(KindId, UniqueKey, Seq)>,
    pub(super) lanes: BTreeMap<LaneId, Option<LaneKey>>,
    pub(super) tenants: BTreeMap<TenantNo, Option<TenantId>>,
    pub(super) names: Vec<NameWrite>,
    /// `None`: gone.
    pub(super) schedules: BTreeMap<ScheduleId, Option<ScheduleRow>>,
    /// Of schedules that are in the table already.
    pub(super) schedule_states: BTreeMap<ScheduleId, ScheduleState>,
    /// By schedule and slot.
    pub(super) ticks: BTreeMap<(ScheduleId, u64), TickEntry>,
    pub(super) linked: BTreeSet<(Seq, Seq)>,
    /// The same edges by who waits.
    pub(super) linked_to: BTreeSet<(Seq, Seq)>,
    pub(super) unlinked: BTreeSet<(Seq, Seq)>,
    /// Jobs of which nothing is to be kept if nobody waits for them any more.
    pub(super) swept: BTreeSet<Seq>,
    /// `None`: not blocked any more.
    pub(super) blocked: BTreeMap<Seq, Option<BlockedRow>>,
    pub(super) kept: BTreeMap<Seq, (Dependency, Option<TenantId>)>,
    /// `None`: told.
    pub(super) untold: BTreeMap<Seq, Option<UntoldRow>>,
}

impl Gathered {
    pub(crate) fn is_empty(&self) -> bool {
        self.new_jobs.is_empty()
            && self.deleted_jobs.is_empty()
            && self.states.is_empty()
            && self.done.is_empty()
            && self.finished.is_empty()
            && self.lists.is_empty()
            && self.unmarked.is_empty()
            && self.letters.is_empty()
            && self.delayed.is_empty()
            && self.undelayed.is_empty()
            && self.leases.is_empty()
            && self.extended.is_empty()
            && self.ended.is_empty()
            && self.uniques.is_empty()
            && self.freed.is_empty()
            && self.lanes.is_empty()
            && self.tenants.is_empty()
            && self.names.is_empty()
            && self.schedules.is_empty()
            && self.schedule_states.is_empty()
            && self.ticks.is_empty()
            && self.linked.is_empty()
            && self.unlinked.is_empty()
            && self.swept.is_empty()
            && self.blocked.is_empty()
            && self.kept.is_empty()
            && self.untold.is_empty()
    }

    pub(super) fn new_job(&self, seq: Seq) -> Option<&JobRow> {
        // Numbers grow, so the jobs are in order.
        let at = self.new_jobs.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        Some(&self.new_jobs[at].1)
    }

    pub(super) fn find(&mut self, id: JobId) -> Option<Seq> {
        for (seq, row) in &self.new_jobs[self.indexed..] {
            self.ids.insert(row.id, *seq);
        }
        self.indexed = self.new_jobs.len();
        self.ids.get(&id).copied().filter(|seq| !self.deleted_jobs.contains(seq))
    }

    pub(super) fn delay(&mut self, run_at: Timestamp, seq: Seq) {
        if !self.undelayed.remove(&(run_at, seq)) {
            self.delayed.insert((run_at, seq));
        }
    }

    pub(super) fn undelay(&mut self, run_at: Timestamp, seq: Seq) {
        if !self.delayed.remove(&(run_at, seq)) {
            self.undelayed.insert((run_at, seq));
        }
    }

    pub(super) fn link(&mut self, parent: Seq, child: Seq) {
        if !self.unlinked.remove(&(parent, child)) {
            self.linked.insert((parent, child));
            self.linked_to.insert((child, parent));
        }
    }

    pub(super) fn unlink(&mut self, parent: Seq, child: Seq) {
        self.linked_to.remove(&(child, parent));
        if !self.linked.remove(&(parent, child)) {
            self.unlinked.insert((parent, child));
        }
    }

    pub(super) fn end_lease(&mut self, id: LeaseId) {
        self.extended.remove(&id);
        if self.leases.remove(&id).is_none() {
            self.ended.insert(id);
        }
    }

    pub(super) fn extend_lease(&mut self, id: LeaseId, until: Timestamp) {
        match self.leases.get_mut(&id) {
            Some(row) => row.until = until,
            None => {
                self.extended.insert(id, until);
            }
        }
    }

    pub(super) fn remove_lane(&mut self, id: LaneId) {
        if !matches!(self.lanes.remove(&id), Some(Some(_))) {
            self.lanes.insert(id, None);
        }
    }

    pub(super) fn remove_tenant(&mut self, no: TenantNo) {
        if !matches!(self.tenants.remove(&no), Some(Some(_))) {
            self.tenants.insert(no, None);
        }
    }
}
