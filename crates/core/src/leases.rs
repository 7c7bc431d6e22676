//! Leases in memory: who runs what, until when. A lease covers a batch; fencing is per (lease, job).

use std::collections::{BTreeMap, BTreeSet};

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
    /// Jobs still held.
    pub jobs: BTreeSet<Seq>,
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

#[derive(Debug, Default)]
struct Process {
    leases: u32,
    lone: u32,
    exclusive: u32,
}

/// All live leases.
#[derive(Debug, Default)]
pub struct Leases {
    by_id: KeyMap<LeaseId, Lease>,
    by_expiry: BTreeSet<(Timestamp, LeaseId)>,
    running: BTreeMap<Seq, Running>,
    processes: KeyMap<ProcessId, Process>,
}

impl Leases {
    /// Adds a lease with what it holds.
    pub fn add(&mut self, lease: Lease, running: impl IntoIterator<Item = (Seq, Running)>) {
        self.by_expiry.insert((lease.until, lease.id));
        let process = self.processes.entry(lease.process).or_default();
        process.leases += 1;
        process.lone += u32::from(lease.lone.is_some());
        process.exclusive += u32::from(lease.lone == Some(Exclusive(true)));
        self.running.extend(running);
        self.by_id.insert(lease.id, lease);
    }

    /// The lease with this number.
    pub fn get(&self, id: LeaseId) -> Option<&Lease> {
        self.by_id.get(&id)
    }

    /// The running job, if it runs.
    pub fn running(&self, seq: Seq) -> Option<&Running> {
        self.running.get(&seq)
    }

    /// Every running job.
    pub fn all_running(&self) -> impl Iterator<Item = (Seq, &Running)> {
        self.running.iter().map(|(s, r)| (*s, r))
    }

    /// How many leases there are.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// Every lease.
    pub fn all(&self) -> impl Iterator<Item = &Lease> {
        self.by_id.values()
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
        let lease = self.by_id.get_mut(&running.lease)?;
        lease.jobs.remove(&seq);
        let since = lease.since;
        if lease.jobs.is_empty() {
            self.drop_lease(running.lease);
        }
        Some((running, since))
    }

    fn drop_lease(&mut self, id: LeaseId) {
        let Some(lease) = self.by_id.remove(&id) else { return };
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
        let lease = self.by_id.get(&id)?;
        Some(lease.until.max(now.plus_ms(lease.length_ms)))
    }

    /// Moves the end of a lease. False if it is gone.
    #[must_use]
    pub fn set_end(&mut self, id: LeaseId, until: Timestamp) -> bool {
        let Some(lease) = self.by_id.get_mut(&id) else { return false };
        self.by_expiry.remove(&(lease.until, id));
        lease.until = until;
        self.by_expiry.insert((until, id));
        true
    }

    /// Leases that have expired by `now`, with what they still hold: the first, and then as many as hold no more than
    /// `most` jobs together.
    pub fn expired(&self, now: Timestamp, most: usize) -> Vec<Lease> {
        let due = self.by_expiry.iter().take_while(|(until, _)| *until <= now);
        let mut jobs = 0;
        let room = |lease: &&Lease| {
            let first = jobs == 0;
            jobs += lease.jobs.len();
            first || jobs <= most
        };
        due.filter_map(|(_, id)| self.by_id.get(id)).take_while(room).cloned().collect()
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
        self.by_id.values().filter(|l| l.until > end(l)).map(|l| (l.id, end(l))).collect()
    }
}
