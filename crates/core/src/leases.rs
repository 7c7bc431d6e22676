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
    /// Jobs granted, in order. Those that are off it since may be among them; see [`Leases::held`].
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

/// Jobs from which on a lease is large; one that holds a quarter of that no longer is. So large ones are no more than what runs,
/// divided by that quarter.
const LARGE: usize = 128;

/// A lease, and what it still holds.
#[derive(Debug)]
struct Live {
    lease: Lease,
    /// Its jobs, in the order of theirs; none for one that is off it.
    running: Vec<Option<Running>>,
    left: usize,
}

impl Live {
    fn place(&self, seq: Seq) -> Option<usize> {
        let place = self.lease.jobs.binary_search(&seq).ok()?;
        self.running[place].is_some().then_some(place)
    }

    fn running(&self, seq: Seq) -> Option<&Running> {
        self.running[self.place(seq)?].as_ref()
    }

    fn is_large(&self) -> bool {
        self.lease.jobs.len() >= LARGE
    }

    /// Forgets the jobs that are off it.
    fn shrink(&mut self) {
        let held: Vec<(Seq, Running)> = self.held().map(|(seq, running)| (seq, *running)).collect();
        self.lease.jobs = held.iter().map(|(seq, _)| *seq).collect();
        self.running = held.into_iter().map(|(_, running)| Some(running)).collect();
    }

    fn held(&self) -> impl Iterator<Item = (Seq, &Running)> {
        self.lease.jobs.iter().zip(&self.running).filter_map(|(seq, running)| Some((*seq, running.as_ref()?)))
    }
}

#[derive(Debug, Default)]
struct Process {
    leases: u32,
    lone: u32,
    exclusive: u32,
}

/// All live leases.
///
/// A job is kept with its lease and not in a table of all jobs: processes that share a store do for each job what all of them do, and
/// a claim's jobs next to each other are found in half the time of a hash (ADR 0007). Which lease a job is on is known of small
/// ones; of the large ones, which are few, each is asked, and first the one that was asked for last.
#[derive(Debug, Default)]
pub struct Leases {
    by_id: KeyMap<LeaseId, Live>,
    by_expiry: BTreeSet<(Timestamp, LeaseId)>,
    /// Jobs of small leases.
    single: KeyMap<Seq, LeaseId>,
    large: Vec<LeaseId>,
    /// The large one that a job was last taken off.
    latest: Option<LeaseId>,
    processes: KeyMap<ProcessId, Process>,
}

impl Leases {
    /// Adds a lease with what it holds: each of its jobs, in their order.
    pub fn add(&mut self, mut lease: Lease, running: impl IntoIterator<Item = Running>) {
        self.by_expiry.insert((lease.until, lease.id));
        let process = self.processes.entry(lease.process).or_default();
        process.leases += 1;
        process.lone += u32::from(lease.lone.is_some());
        process.exclusive += u32::from(lease.lone == Some(Exclusive(true)));
        let mut running: Vec<Option<Running>> = running.into_iter().map(Some).collect();
        debug_assert_eq!(lease.jobs.len(), running.len(), "each of its jobs");
        if !lease.jobs.is_sorted() {
            let mut order: Vec<(Seq, usize)> = lease.jobs.iter().copied().zip(0..).collect();
            // Claims go round the lanes: what is sorted already is not compared again.
            order.sort();
            running = order.iter().map(|(_, place)| running[*place]).collect();
            lease.jobs = order.into_iter().map(|(seq, _)| seq).collect();
        }
        debug_assert!(lease.jobs.is_sorted_by(|a, b| a < b), "a lease holds a job once");
        let live = Live { left: running.len(), lease, running };
        if live.is_large() {
            self.large.push(live.lease.id);
        } else {
            self.single.extend(live.lease.jobs.iter().map(|seq| (*seq, live.lease.id)));
        }
        self.by_id.insert(live.lease.id, live);
    }

    /// The lease with this number.
    pub fn get(&self, id: LeaseId) -> Option<&Lease> {
        self.by_id.get(&id).map(|live| &live.lease)
    }

    /// The jobs that a lease still holds, in order.
    pub fn held(&self, id: LeaseId) -> impl Iterator<Item = (Seq, &Running)> {
        self.by_id.get(&id).into_iter().flat_map(Live::held)
    }

    /// The running job, if it runs.
    pub fn running(&self, seq: Seq) -> Option<&Running> {
        self.by_id.get(&self.lease_of(seq)?)?.running(seq)
    }

    /// The running job, if this lease holds it: the fence.
    pub fn under(&self, lease: LeaseId, seq: Seq) -> Option<&Running> {
        self.by_id.get(&lease)?.running(seq)
    }

    /// The lease that a job is on.
    fn lease_of(&self, seq: Seq) -> Option<LeaseId> {
        let has = |id: &LeaseId| self.by_id.get(id).is_some_and(|live| live.place(seq).is_some());
        let large = || self.large.iter().rev().copied().find(has);
        self.latest.filter(has).or_else(|| self.single.get(&seq).copied()).or_else(large)
    }

    /// Every running job, in any order.
    pub fn all_running(&self) -> impl Iterator<Item = (Seq, &Running)> {
        self.by_id.values().flat_map(Live::held)
    }

    /// How many leases there are.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// Every lease.
    pub fn all(&self) -> impl Iterator<Item = &Lease> {
        self.by_id.values().map(|live| &live.lease)
    }

    /// Whether this lease holds this job.
    pub fn holds(&self, lease: LeaseId, seq: Seq) -> bool {
        self.under(lease, seq).is_some()
    }

    /// Marks a running job as to be cancelled. False if it does not run.
    #[must_use]
    pub fn request_cancel(&mut self, seq: Seq) -> bool {
        let live = self.lease_of(seq).and_then(|id| self.by_id.get_mut(&id));
        let running = live.and_then(|live| live.place(seq).and_then(|place| live.running[place].as_mut()));
        running.map(|r| r.cancel_requested = true).is_some()
    }

    /// Takes a job off its lease, which is gone with its last one. The second part is since when the lease held it.
    pub fn release(&mut self, seq: Seq) -> Option<(Running, Timestamp)> {
        let id = self.lease_of(seq)?;
        let live = self.by_id.get_mut(&id)?;
        let place = live.place(seq)?;
        let running = live.running[place].take()?;
        live.left -= 1;
        let (since, left) = (live.lease.since, live.left);
        if !live.is_large() {
            self.single.remove(&seq);
        } else if left <= LARGE / 4 {
            live.shrink();
            self.single.extend(live.lease.jobs.iter().map(|seq| (*seq, id)));
            self.no_longer_large(id);
        } else {
            self.latest = Some(id);
        }
        if left == 0 {
            self.drop_lease(id);
        }
        Some((running, since))
    }

    fn no_longer_large(&mut self, id: LeaseId) {
        self.large.retain(|large| *large != id);
        self.latest = self.latest.filter(|latest| *latest != id);
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
        live.map(|live| (live.held().map(|(seq, _)| seq).collect(), live.lease.lone)).collect()
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::seed::Seed;

    fn lease(id: i64, jobs: Vec<Seq>) -> Lease {
        Lease {
            id: LeaseId(id),
            worker: "w".parse().unwrap(),
            process: ProcessId(7),
            since: Timestamp(id),
            until: Timestamp(id + 1_000),
            length_ms: 1,
            lone: None,
            jobs,
        }
    }

    fn running(lease: i64, seq: Seq) -> Running {
        Running {
            lease: LeaseId(lease),
            id: JobId::from_parts(0, seq.0.cast_unsigned().into()),
            kind: KindId(1),
            tenant: None,
            lane: LaneId(1),
            attempt: 1,
            unique: false,
            cancel_requested: false,
        }
    }

    /// Claims of all sizes in any order, jobs that come off in any order and are claimed again while their first lease lives.
    #[test]
    fn a_job_is_on_the_lease_that_took_it_last_until_it_is_let_go() {
        let mut dice = Seed::new(11);
        let (mut leases, mut model) = (Leases::default(), BTreeMap::<Seq, Running>::new());
        let mut free: Vec<Seq> = (1..=2_000).map(Seq).collect();
        for number in 1..=400 {
            let most = [1, 3, LARGE - 1, LARGE, 600][dice.below(5) as usize].min(free.len());
            let jobs: Vec<Seq> =
                (0..most).map(|_| free.swap_remove(dice.below(free.len() as u64) as usize)).collect();
            if !jobs.is_empty() {
                model.extend(jobs.iter().map(|seq| (*seq, running(number, *seq))));
                leases.add(lease(number, jobs.clone()), jobs.iter().map(|seq| running(number, *seq)));
            }
            let all: Vec<Seq> = model.keys().copied().collect();
            if let Some(seq) = all.get(dice.below(2_500) as usize) {
                assert!(leases.request_cancel(*seq));
                model.get_mut(seq).unwrap().cancel_requested = true;
            }
            let backwards = dice.below(2) == 0;
            let mut ends: Vec<Seq> = all.into_iter().filter(|_| dice.below(3) == 0).collect();
            if backwards {
                ends.reverse();
            }
            for seq in ends {
                let was = model.remove(&seq).unwrap();
                assert!(leases.holds(was.lease, seq) && !leases.holds(LeaseId(was.lease.0 + 1), seq));
                assert_eq!(leases.release(seq), Some((was, Timestamp(was.lease.0))));
                assert_eq!(leases.running(seq), None, "it is off its lease");
                assert_eq!(leases.release(seq), None);
                free.push(seq);
            }
            assert_eq!(leases.all_running().map(|(seq, r)| (seq, *r)).collect::<BTreeMap<_, _>>(), model);
            assert!(model.iter().all(|(seq, r)| leases.running(*seq) == Some(r)));
            let held = leases.all().flat_map(|lease| leases.held(lease.id)).count();
            assert_eq!((held, leases.single.len() <= model.len()), (model.len(), true));
            assert!(leases.large.len() <= model.len() / (LARGE / 4), "large ones are few");
        }
        for seq in model.keys() {
            leases.release(*seq);
        }
        assert!(leases.by_id.is_empty() && leases.single.is_empty() && leases.large.is_empty());
        assert!(leases.by_expiry.is_empty() && leases.processes.is_empty() && leases.latest.is_none());
    }
}
