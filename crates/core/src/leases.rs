//! Leases in memory: who runs what, until when. A lease covers a batch; fencing is per (lease, job).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::hash::KeyMap;
use crate::ids::{JobId, LeaseId, ProcessId, Seq, WorkerId};
use crate::lanes::{Exclusive, LaneId, SuspectRoom};
use crate::time::Timestamp;

/// Number of a kind in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KindId(pub u32);

/// Number of a tenant in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TenantNo(pub u32);

/// A lease over a batch of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its number.
    pub id: LeaseId,
    /// Who holds it.
    pub worker: WorkerId,
    /// In which process.
    pub process: ProcessId,
    /// Since when.
    pub since: Timestamp,
    /// When it expires.
    pub until: Timestamp,
    /// Its length, for heartbeats and for a clock that went back.
    pub length_ms: i64,
    /// Whether it holds one suspect, and whether that one must be alone in its process.
    pub lone: Option<Exclusive>,
    /// Jobs granted, in order. Those that are off it since are not taken out; see [`Leases::held`].
    pub jobs: Vec<Seq>,
}

/// A running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    /// The lease it is held under.
    pub lease: LeaseId,
    /// Its id.
    pub id: JobId,
    /// Its kind.
    pub kind: KindId,
    /// Whose it is.
    pub tenant: Option<TenantNo>,
    /// The lane it was enqueued to: its queue and group.
    pub lane: LaneId,
    /// Number of this attempt.
    pub attempt: u32,
    /// Whether the job has a unique key, to be freed when it is finished.
    pub unique: bool,
    /// Whether a cancel was asked for.
    pub cancel_requested: bool,
}

/// A lease, and how many of its jobs are still held.
#[derive(Debug)]
struct Live {
    lease: Lease,
    left: usize,
}

#[derive(Debug, Default)]
struct Process {
    leases: u32,
    lone: u32,
    exclusive: u32,
}

/// All live leases.
#[derive(Debug, Default)]
pub struct Leases {
    by_id: KeyMap<LeaseId, Live>,
    by_expiry: BTreeSet<(Timestamp, LeaseId)>,
    running: KeyMap<Seq, Running>,
    processes: KeyMap<ProcessId, Process>,
}

impl Leases {
    /// Adds a lease with what it holds: each of its jobs.
    pub fn add(&mut self, mut lease: Lease, running: impl IntoIterator<Item = (Seq, Running)>) {
        lease.jobs.sort_unstable();
        debug_assert!(lease.jobs.is_sorted_by(|a, b| a < b), "a lease holds a job once");
        self.by_expiry.insert((lease.until, lease.id));
        let process = self.processes.entry(lease.process).or_default();
        process.leases += 1;
        process.lone += u32::from(lease.lone.is_some());
        process.exclusive += u32::from(lease.lone == Some(Exclusive(true)));
        self.running.extend(running);
        let left = lease.jobs.len();
        self.by_id.insert(lease.id, Live { lease, left });
    }

    /// The lease with this number.
    pub fn get(&self, id: LeaseId) -> Option<&Lease> {
        self.by_id.get(&id).map(|live| &live.lease)
    }

    /// The jobs that a lease still holds, in order.
    pub fn held<'a>(&'a self, lease: &'a Lease) -> impl Iterator<Item = Seq> + 'a {
        lease.jobs.iter().copied().filter(|seq| self.holds(lease.id, *seq))
    }

    /// The running job, if it runs.
    pub fn running(&self, seq: Seq) -> Option<&Running> {
        self.running.get(&seq)
    }

    /// Every running job, in any order.
    pub fn all_running(&self) -> impl Iterator<Item = (Seq, &Running)> {
        self.running.iter().map(|(s, r)| (*s, r))
    }

    /// How many leases there are.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// Every lease.
    pub fn all(&self) -> impl Iterator<Item = &Lease> {
        self.by_id.values().map(|live| &live.lease)
    }

    /// Whether this lease holds this job: the fence.
    pub fn holds(&self, lease: LeaseId, seq: Seq) -> bool {
        self.running.get(&seq).is_some_and(|r| r.lease == lease)
    }

    /// Marks a running job as to be cancelled. False if it does not run.
    #[must_use]
    pub fn request_cancel(&mut self, seq: Seq) -> bool {
        self.running.get_mut(&seq).map(|r| r.cancel_requested = true).is_some()
    }

    /// Takes a job off its lease, which is gone with its last one. The second part is since when the lease held it.
    pub fn release(&mut self, seq: Seq) -> Option<(Running, Timestamp)> {
        let running = self.running.remove(&seq)?;
        let live = self.by_id.get_mut(&running.lease)?;
        live.left -= 1;
        let (since, left) = (live.lease.since, live.left);
        if left == 0 {
            self.drop_lease(running.lease);
        }
        Some((running, since))
    }

    fn drop_lease(&mut self, id: LeaseId) {
        let Some(Live { lease, .. }) = self.by_id.remove(&id) else { return };
        self.by_expiry.remove(&(lease.until, id));
        if let Some(p) = self.processes.get_mut(&lease.process) {
            p.leases -= 1;
            p.lone -= u32::from(lease.lone.is_some());
            p.exclusive -= u32::from(lease.lone == Some(Exclusive(true)));
            if p.leases == 0 {
                self.processes.remove(&lease.process);
            }
        }
    }

    /// When a lease would end if it were extended now; `None` if it is gone.
    pub fn extended(&self, id: LeaseId, now: Timestamp) -> Option<Timestamp> {
        let lease = self.get(id)?;
        Some(lease.until.max(now.plus_ms(lease.length_ms)))
    }

    /// Moves the end of a lease. False if it is gone.
    #[must_use]
    pub fn set_end(&mut self, id: LeaseId, until: Timestamp) -> bool {
        let Some(Live { lease, .. }) = self.by_id.get_mut(&id) else { return false };
        self.by_expiry.remove(&(lease.until, id));
        lease.until = until;
        self.by_expiry.insert((until, id));
        true
    }

    /// Leases that have expired by `now`, the first, and then as many as hold no more than `most` jobs together: the jobs that
    /// each still holds, and whether it holds one suspect.
    pub fn expired(&self, now: Timestamp, most: usize) -> Vec<(Vec<Seq>, Option<Exclusive>)> {
        let due = self.by_expiry.iter().take_while(|(until, _)| *until <= now);
        let mut jobs = 0;
        let room = |live: &&Live| {
            let first = jobs == 0;
            jobs += live.left;
            first || jobs <= most
        };
        let live = due.filter_map(|(_, id)| self.by_id.get(id)).take_while(room);
        live.map(|Live { lease, .. }| (self.held(lease).collect(), lease.lone)).collect()
    }

    /// When the next lease expires.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.by_expiry.first().map(|(until, _)| *until)
    }

    /// Whether this process may run a suspect now.
    pub fn suspect_room(&self, process: ProcessId) -> SuspectRoom {
        match self.processes.get(&process) {
            None => SuspectRoom::Alone,
            Some(p) if p.lone > 0 => SuspectRoom::None,
            Some(_) => SuspectRoom::Shared,
        }
    }

    /// Whether this process runs a job that must be alone.
    pub fn runs_exclusive(&self, process: ProcessId) -> bool {
        self.processes.get(&process).is_some_and(|p| p.exclusive > 0)
    }

    /// The clock went back: no lease may last longer than its length from now, or a dead worker's jobs would wait
    /// for as long as the clock jumped. The leases whose end has to move, and where to.
    pub fn beyond(&self, now: Timestamp) -> Vec<(LeaseId, Timestamp)> {
        let end = |lease: &Lease| now.plus_ms(lease.length_ms);
        self.all().filter(|l| l.until > end(l)).map(|l| (l.id, end(l))).collect()
    }
}
