//! What two machines over the same rows must have in common.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::ids::{KindName, LeaseId, QueueName, ScheduleName, Seq, TenantId};
use tidegate_core::job::Park;
use tidegate_core::lanes::{Exclusive, LaneId, LaneKey, QueueId, Shares, Window};
use tidegate_core::leases::{Lease, Running};
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::schedule::{ScheduleSpec, ScheduleState};
use tidegate_core::time::Timestamp;

use super::Machine;
use super::timetable::Scheduled;
use crate::rows::{KindId, Rows, ScheduleId, TenantNo, UntoldRow};

/// Sets and counts of a machine, in order. Machines that followed the same changes have the same digest, and so has one
/// that was rebuilt from their rows. Virtual times, ages and rates are not in it: a rebuild begins them anew.
#[derive(Debug, Clone, PartialEq)]
pub struct Digest {
    queues: BTreeMap<QueueId, QueueDigest>,
    kinds: BTreeMap<KindId, (KindName, KindSettings)>,
    tenants: BTreeMap<TenantNo, TenantDigest>,
    lanes: BTreeMap<LaneId, LaneDigest>,
    parks: Vec<Park>,
    leases: BTreeMap<LeaseId, Lease>,
    running: BTreeMap<Seq, Running>,
    with_state: Vec<Seq>,
    tenant_ready: BTreeMap<(QueueId, TenantNo), u64>,
    next_due: Option<Timestamp>,
    schedules: BTreeMap<ScheduleId, (ScheduleName, ScheduleSpec, ScheduleState)>,
    next_tick: Option<(Timestamp, ScheduleId)>,
    dependents: BTreeMap<Seq, u32>,
    edges: u64,
    untold: BTreeMap<Seq, UntoldRow>,
    /// Without their order: a mark can bear the time of its caller, a moment before the change.
    finished: BTreeMap<KindId, BTreeSet<Seq>>,
}

impl Eq for Digest {}

#[derive(Debug, Clone, PartialEq)]
struct QueueDigest {
    name: QueueName,
    settings: QueueSettings,
    ready: u64,
    running: u32,
    blocked: u64,
    scheduled: u64,
    completed: u64,
    dead: u64,
    cancelled: u64,
    starts: BTreeMap<Timestamp, u32>,
}

#[derive(Debug, Clone, PartialEq)]
struct TenantDigest {
    name: TenantId,
    jobs: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct LaneDigest {
    key: LaneKey,
    jobs: u64,
    group_running: u32,
    ready: Vec<(Seq, Option<Exclusive>)>,
}

impl<R: Rows> Machine<R> {
    /// What this machine must have in common with the others over the same rows.
    pub fn digest(&self) -> Digest {
        let known = &self.memory;
        let queue = |(name, id): (&QueueName, QueueId)| {
            let (_, settings) = known.names.queue(id)?;
            let counts = known.counts.get(&id);
            let mut starts = BTreeMap::new();
            for (at, n) in known.lanes.window(id).into_iter().flat_map(Window::starts) {
                *starts.entry(at).or_default() += n;
            }
            let digest = QueueDigest {
                name: name.clone(),
                settings: settings.clone(),
                ready: known.lanes.ready_count(id),
                running: known.lanes.running_count(id),
                blocked: counts.map_or(0, |c| c.blocked),
                scheduled: counts.map_or(0, |c| c.scheduled),
                completed: counts.map_or(0, |c| c.completed),
                dead: counts.map_or(0, |c| c.dead),
                cancelled: counts.map_or(0, |c| c.cancelled),
                starts,
            };
            Some((id, digest))
        };
        let lane = |(id, key): (LaneId, &LaneKey)| {
            let digest = LaneDigest {
                key: key.clone(),
                jobs: known.lane_jobs.get(&id).copied().unwrap_or(0),
                group_running: known.lanes.group_running(key.queue, &key.group),
                ready: known.lanes.ready_in(id).collect(),
            };
            (id, digest)
        };
        let tenant = |(no, name): (TenantNo, &TenantId)| {
            let jobs = known.tenant_jobs.get(&no).copied().unwrap_or(0);
            (no, TenantDigest { name: name.clone(), jobs })
        };
        let schedule =
            |(id, s): (ScheduleId, &Scheduled)| (id, (s.name.clone(), (*s.spec).clone(), s.state.clone()));
        // Who rebuilt it from rows does not know what it held before.
        let held = |lease: &Lease| {
            let jobs = known.leases.held(lease.id).map(|(seq, _)| seq).collect();
            Lease { jobs, ..lease.clone() }
        };
        let mut with_state: Vec<Seq> = known.with_state.iter().copied().collect();
        with_state.sort_unstable();
        Digest {
            queues: known.names.queues().filter_map(queue).collect(),
            kinds: known.names.kinds().map(|(id, kind)| (id, kind.clone())).collect(),
            tenants: known.names.tenants().map(tenant).collect(),
            lanes: known.lanes.all().map(lane).collect(),
            parks: known.lanes.parks().cloned().collect(),
            leases: known.leases.all().map(|lease| (lease.id, held(lease))).collect(),
            running: known.leases.all_running().map(|(seq, running)| (seq, *running)).collect(),
            with_state,
            tenant_ready: known.tenant_ready.iter().map(|(key, n)| (*key, *n)).collect(),
            next_due: known.next_due,
            schedules: known.timetable.all().map(schedule).collect(),
            next_tick: known.timetable.next(),
            dependents: known.dependents.iter().map(|(seq, n)| (*seq, *n)).collect(),
            edges: known.edges,
            untold: known.untold.clone(),
            finished: known
                .finished
                .iter()
                .filter(|(_, finished)| !finished.is_empty())
                .map(|(kind, finished)| (*kind, finished.oldest().collect()))
                .collect(),
        }
    }

    /// Virtual times and ages: the same in machines that were in step from the beginning.
    pub fn shares(&self) -> Shares {
        self.memory.lanes.shares()
    }
}
