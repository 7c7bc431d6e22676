//! The memory of a machine, and the only place where it changes.
//!
//! Operations read what is [`Known`] and decide; what they decided is a [`Change`], and only [`Memory`] applies it. A
//! machine that follows another one applies the same changes with the same code, so the two cannot drift apart. The one
//! exception is a claim's pick, which chooses and takes at once; a follower takes what was picked.

mod finished;
mod jobs;

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::ops::Deref;

use tidegate_core::gates::Room;
use tidegate_core::hash::{KeyMap, KeySet};
use tidegate_core::ids::{Seq, TenantId};
use tidegate_core::job::State;
use tidegate_core::lanes::{Appetite, LaneId, LaneKey, Lanes, Picked, QueueId};
use tidegate_core::leases::Leases;
use tidegate_core::time::Timestamp;

pub(super) use self::finished::Finished;
use super::PendingSignals;
use super::change::{self, Change, Face, Leased};
use super::counts::Counts;
use super::names::NameBook;
use super::timetable::Timetable;
use crate::feed::{Happened, JobEvent};
use crate::meter::{Meter, Seen, SeenWhat};
use crate::rows::{KindId, ScheduleId, TenantNo, UntoldRow};
use crate::{Error, Result};

/// What a machine knows without looking at its rows.
#[derive(Debug)]
pub(super) struct Known {
    /// When the last change was made.
    pub(super) now: Timestamp,
    pub(super) lanes: Lanes,
    pub(super) leases: Leases,
    pub(super) names: NameBook,
    pub(super) timetable: Timetable,
    /// Jobs that have a state row.
    pub(super) with_state: KeySet<Seq>,
    pub(super) counts: KeyMap<QueueId, Counts>,
    pub(super) tenant_ready: KeyMap<(QueueId, TenantNo), u64>,
    /// Stored jobs per lane and per tenant, finished ones included: what nobody uses is forgotten.
    pub(super) lane_jobs: KeyMap<LaneId, u64>,
    pub(super) tenant_jobs: KeyMap<TenantNo, u64>,
    /// Finished jobs of kinds with lanes of their own.
    pub(super) finished: KeyMap<KindId, Finished>,
    pub(super) next_seq: i64,
    pub(super) next_lease: i64,
    pub(super) next_due: Option<Timestamp>,
    /// Jobs that others wait for, not finished or with those yet to be told, with how many edges.
    pub(super) dependents: KeyMap<Seq, u32>,
    /// Jobs that have ended, of whom those who wait have yet to be told.
    pub(super) untold: BTreeMap<Seq, UntoldRow>,
    /// Edges in all: where there are none, nobody looks for any.
    pub(super) edges: u64,
}

impl Known {
    pub(super) fn queue_of(&self, lane: LaneId) -> Result<QueueId> {
        let key = self.lanes.lane_key(lane);
        key.map(|key| key.queue).ok_or_else(|| Error::internal(format!("lane {} is missing", lane.0)))
    }

    /// A job of this lane is finished: its kind may keep fewer of them than its queue.
    pub(super) fn note_finished(&mut self, lane: LaneId, seq: Seq) {
        let Some(kind) = self.lanes.lane_key(lane).and_then(|key| key.kind) else { return };
        self.finished.entry(kind).or_default().insert(seq, self.now);
    }

    fn forget_finished(&mut self, lane: LaneId, seq: Seq) {
        let kind = self.lanes.lane_key(lane).and_then(|key| key.kind);
        if let Some(finished) = kind.and_then(|kind| self.finished.get_mut(&kind)) {
            finished.remove(seq);
        }
    }
}

/// The memory. Readable by everyone, changed by [`Memory::change`] and [`Memory::follow`].
#[derive(Debug)]
pub(super) struct Memory {
    known: Known,
    pub(super) signals: PendingSignals,
    /// Changes since they were last taken, if they are kept.
    changes: Option<Vec<Change>>,
    /// Events since they were last taken, if anybody watches.
    events: Option<Vec<JobEvent>>,
    /// What this machine did since it was last counted, if it is.
    seen: Option<Vec<Seen>>,
    /// Whether what is applied was done by another machine.
    following: bool,
}

impl Deref for Memory {
    type Target = Known;

    fn deref(&self) -> &Known {
        &self.known
    }
}

impl Memory {
    /// A memory of what was rebuilt from rows.
    pub(super) fn new(known: Known) -> Self {
        // What waits may have been waiting for this.
        let signals = PendingSignals { work: true, ..PendingSignals::default() };
        Self { known, signals, changes: None, events: None, seen: None, following: false }
    }

    pub(super) fn record(&mut self, on: bool) {
        self.changes = on.then(Vec::new);
    }

    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn watch(&mut self, on: bool) {
        if on != self.events.is_some() {
            self.events = on.then(Vec::new);
        }
    }

    pub(super) fn measure(&mut self) {
        self.seen.get_or_insert_default();
    }

    /// Counts what was done since the last time.
    pub(super) fn count_seen(&mut self, meter: &Meter) {
        let Some(seen) = &mut self.seen else { return };
        if !seen.is_empty() {
            let names = &self.known.names;
            let face = |s: &Seen| Some((names.queue(s.queue)?.0.as_str(), names.kind(s.kind)?.0.as_str()));
            let tenant = |s: &Seen| names.tenant(s.tenant?).map(TenantId::as_str);
            meter.count(seen, face, tenant);
            seen.clear();
        }
    }

    /// Notes something that this machine did.
    pub(super) fn saw(&mut self, face: Face, what: SeenWhat) {
        if let Some(seen) = self.seen.as_mut().filter(|_| !self.following) {
            seen.push(Seen { queue: face.queue, kind: face.kind, tenant: face.tenant, what });
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<JobEvent> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Applies a change made by this machine.
    pub(super) fn change(&mut self, now: Timestamp, change: Change) -> Result<()> {
        // A clock that went back says itself what time it is.
        if !matches!(change, Change::Rebased(_)) {
            self.pass_time(now);
        }
        self.apply(&change)?;
        self.keep(change);
        Ok(())
    }

    /// Picks jobs for a lease that [`grant`](Self::grant) then adds. Nothing changes if nothing is picked.
    pub(super) fn pick(&mut self, appetite: &Appetite<'_>, now: Timestamp) -> Vec<Picked> {
        self.known.lanes.claim(appetite, now)
    }

    /// Adds the lease over what was picked.
    pub(super) fn grant(&mut self, now: Timestamp, leased: Box<Leased>) -> Result<()> {
        self.pass_time(now);
        self.lease(&leased)?;
        self.keep(Change::Leased(leased));
        Ok(())
    }

    /// Applies changes made by another machine.
    pub(super) fn follow(&mut self, changes: &[Change]) -> Result<()> {
        self.following = true;
        let followed = changes.iter().try_for_each(|change| self.apply(change));
        self.following = false;
        followed
    }

    /// The time is a change like others, kept only together with something that happened.
    fn pass_time(&mut self, now: Timestamp) {
        if self.known.now != now {
            self.known.now = now;
            self.keep(Change::Now(now));
        }
    }

    fn keep(&mut self, change: Change) {
        if let Some(changes) = &mut self.changes {
            change::push(changes, change);
        }
    }

    fn apply(&mut self, change: &Change) -> Result<()> {
        let known = &mut self.known;
        let now = known.now;
        match change {
            Change::Now(now) => known.now = *now,
            Change::Rebased(now) => {
                known.now = *now;
                known.lanes.rebase(*now);
                for (lease, until) in known.leases.beyond(*now) {
                    must(known.leases.set_end(lease, until), "a lease is missing")?;
                }
            }
            Change::Aged => known.lanes.age(now),
            Change::Queue(queue) => {
                known.names.put_queue(queue.id, &queue.name, &queue.settings);
                known.lanes.put_queue(queue.id, &queue.name, &queue.settings, now);
                self.signals.work = true;
            }
            Change::Kind(kind) => {
                known.names.put_kind(kind.id, &kind.name, &kind.settings);
                known.lanes.cap_kind(kind.id, kind.settings.concurrency);
                self.signals.work = true;
            }
            Change::Tenant(no, name) => {
                must(known.names.tenant(*no).is_none(), "a tenant's number was used twice")?;
                known.names.put_tenant(*no, name);
            }
            Change::TenantGone(no) => {
                must(!known.tenant_jobs.contains_key(no), "a tenant that is gone has jobs")?;
                known.names.forget_tenant(*no);
            }
            Change::Lane(id, key) => {
                must(known.names.queue(key.queue).is_some(), "the queue of a lane is missing")?;
                must(known.lanes.lane_key(*id).is_none(), "a lane's number was used twice")?;
                known.names.put_lane(*id);
                known.lanes.add_lane(*id, (**key).clone());
            }
            Change::KindLane(id, key, kind) => {
                must(known.names.queue(key.queue).is_some(), "the queue of a lane is missing")?;
                must(known.lanes.lane_key(*id).is_none(), "a lane's number was used twice")?;
                known.names.put_lane(*id);
                known.lanes.add_lane(*id, LaneKey { kind: Some(*kind), ..(**key).clone() });
            }
            Change::Policies(policies) => known.names.policies = policies.0.clone(),
            Change::Version(number) => known.names.version = *number,
            Change::LaneGone(id) => {
                must(!known.lane_jobs.contains_key(id), "a lane that is gone has jobs")?;
                known.lanes.remove_lane(*id);
            }
            Change::Parked(park) => {
                known.lanes.park((**park).clone(), now);
                self.signals.work = true;
            }
            Change::Unparked(park) => {
                must(known.lanes.unpark(&park.0, &park.1, now).is_some(), "a park is missing")?;
                self.signals.work = true;
            }
            Change::Stored(jobs) => self.store(jobs)?,
            Change::HasState(seq) => must(known.with_state.insert(*seq), "a job had a state already")?,
            Change::Withdrawn(place) => {
                let queue = known.queue_of(place.lane)?;
                must(known.lanes.remove_ready(place.lane, place.seq, now), "a job is not ready")?;
                self.shift_tenant_ready(queue, place.tenant, false)?;
            }
            Change::Readied { place, at, suspect } => self.ready(*place, *at, *suspect)?,
            Change::Due { place, at } => {
                let queue = known.queue_of(place.lane)?;
                self.count(queue, State::Scheduled, false)?;
                self.ready(*place, *at, None)?;
            }
            Change::Unscheduled(place) => {
                let queue = known.queue_of(place.lane)?;
                self.signals.work |= known.lanes.comes_no_more(place.lane, place.seq, now);
                self.count(queue, State::Scheduled, false)?;
            }
            Change::NextDue(due) => {
                self.signals.work |= due.is_some_and(|at| known.next_due.is_none_or(|known| at < known));
                known.next_due = *due;
            }
            Change::LaneUsed(lane) => *known.lane_jobs.entry(*lane).or_default() += 1,
            Change::LaneUnused(lane) => take_one(&mut known.lane_jobs, *lane)?,
            Change::Leased(leased) => {
                self.take(leased)?;
                self.lease(leased)?;
            }
            Change::Extended(lease, until) => {
                must(known.leases.set_end(*lease, *until), "a lease is missing")?;
            }
            Change::AdmittedBefore(seq, n) => {
                return self.apply(&Change::Admitted(*seq, Room { shared: *n, own: *n }));
            }
            Change::Admitted(seq, room) => {
                if let Some(lane) = known.leases.running(*seq).map(|r| r.lane) {
                    known.lanes.admitted(lane, *seq, *room, now);
                }
                self.signals.work = true;
            }
            Change::Refused(seq, until, scope) => {
                if let Some(lane) = known.leases.running(*seq).map(|r| r.lane) {
                    known.lanes.refused(lane, scope, *seq, *until, now);
                }
            }
            Change::StoredBlocked(jobs) => self.store_blocked(jobs)?,
            Change::Linked { parents, edges } => {
                known.edges += edges;
                for parent in parents {
                    *known.dependents.entry(*parent).or_default() += 1;
                }
            }
            Change::Unlinked { parents } => {
                let left = known.edges.checked_sub(parents.len() as u64);
                known.edges = left.ok_or_else(|| torn("fewer edges than none"))?;
                for parent in parents {
                    // A finished one is not counted.
                    if let Entry::Occupied(mut n) = known.dependents.entry(*parent) {
                        *n.get_mut() -= 1;
                        if *n.get() == 0 {
                            n.remove();
                        }
                    }
                }
            }
            Change::Told(seq) => {
                let (waited, untold) = (known.dependents.remove(seq), known.untold.remove(seq));
                must(waited.is_some() || untold.is_some(), "nobody waits for a job")?;
            }
            Change::Untold { seq, row } => {
                known.untold.insert(*seq, *row);
                // Whoever looks at what is due tells the next.
                self.signals.work = true;
            }
            Change::Unblocked { place, later } => {
                let queue = known.queue_of(place.lane)?;
                self.count(queue, State::Blocked, false)?;
                match later {
                    Some(at) => self.scheduled(queue, *at)?,
                    None => self.ready(*place, now, None)?,
                }
            }
            Change::Unwaited(place) => {
                let queue = known.queue_of(place.lane)?;
                self.count(queue, State::Blocked, false)?;
            }
            Change::CancelAsked(seq) => {
                must(known.leases.request_cancel(*seq), "a job does not run")?;
                self.signals.cancels.extend(self.known.leases.running(*seq).map(|r| r.id));
            }
            Change::LetGo { seq, fate } => self.let_go(*seq, fate)?,
            Change::Cancelled(face) => {
                self.count(face.queue, State::Cancelled, true)?;
                self.event(*face, || Happened::Cancelled);
            }
            Change::Finished { seq, lane } => known.note_finished(*lane, *seq),
            Change::Buried { face, code } => {
                self.count(face.queue, State::Dead, true)?;
                self.event(*face, || Happened::Dead { code: code.clone() });
            }
            Change::Asked { face, again } => {
                self.event(*face, || Happened::Reauthorize { again: *again });
            }
            Change::Deleted { seq, lane, moved, tenant, finished } => {
                known.with_state.remove(seq);
                if finished.is_some_and(|(_, state)| state != State::Dead) {
                    known.forget_finished(*lane, *seq);
                }
                for lane in [Some(*lane), *moved].into_iter().flatten() {
                    take_one(&mut known.lane_jobs, lane)?;
                }
                if let Some(tenant) = tenant {
                    take_one(&mut known.tenant_jobs, *tenant)?;
                }
                if let Some((queue, state)) = finished {
                    self.count(*queue, *state, false)?;
                }
            }
            Change::Schedule(schedule) => {
                let before = known.timetable.next();
                known.timetable.put(schedule.id, &schedule.name, &schedule.spec, &schedule.state);
                self.alarm(before);
            }
            Change::ScheduleState { id, state } => {
                let before = known.timetable.next();
                must(known.timetable.set_state(*id, state), "a schedule is missing")?;
                self.alarm(before);
            }
            Change::ScheduleGone(id) => must(known.timetable.remove(*id), "a schedule is missing")?,
        }
        Ok(())
    }

    /// Sleepers must set their alarm anew if a schedule is to be looked at earlier than any was before.
    fn alarm(&mut self, before: Option<(Timestamp, ScheduleId)>) {
        let next = self.known.timetable.next();
        self.signals.work |= next.is_some_and(|(at, _)| before.is_none_or(|(before, _)| at < before));
    }

    fn count(&mut self, queue: QueueId, state: State, up: bool) -> Result<()> {
        let n = self.known.counts.entry(queue).or_default().of(state);
        let n = n.ok_or_else(|| torn("a state is not counted"))?;
        *n = if up { *n + 1 } else { n.checked_sub(1).ok_or_else(|| torn("fewer jobs than none"))? };
        Ok(())
    }

    fn shift_tenant_ready(&mut self, queue: QueueId, tenant: Option<TenantNo>, up: bool) -> Result<()> {
        let Some(tenant) = tenant else { return Ok(()) };
        if up {
            *self.known.tenant_ready.entry((queue, tenant)).or_default() += 1;
            return Ok(());
        }
        take_one(&mut self.known.tenant_ready, (queue, tenant))
    }
}

/// One job less; nothing is left of the last one.
fn take_one<K: std::hash::Hash + Eq>(counts: &mut KeyMap<K, u64>, key: K) -> Result<()> {
    let Entry::Occupied(mut n) = counts.entry(key) else {
        return Err(torn("fewer jobs than none"));
    };
    *n.get_mut() -= 1;
    if *n.get() == 0 {
        n.remove();
    }
    Ok(())
}

/// Memory and rows, or two memories, no longer say the same.
fn torn(what: &str) -> Error {
    Error::internal(format!("the memory does not fit the change: {what}"))
}

fn must(holds: bool, what: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(torn(what)) }
}
