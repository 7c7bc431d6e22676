//! The lane scheduler: which ready job runs next.
//!
//! A *lane* is (queue, group, connector, priority) and holds its ready jobs in order of arrival. Only lanes that
//! could run now are in the *active* set of their queue, ordered by (effective level, virtual time). A parked, full
//! or empty lane is not in it, so a claim costs the same whether ten or ten thousand groups are parked.
//!
//! Guarantees:
//! - a claim never exceeds the queue's concurrency, its limiter, a group's concurrency or a kind's;
//! - a lane covered by any park yields nothing;
//! - inside a level, lanes share by virtual time; an idle lane that wakes comes with the next claim;
//! - ageing: the level of a lane improves by one per `max_wait / 4` that its head, or an older job behind it, has waited.
//!
//! The scheduler is memory only. Stores rebuild it from their rows; virtual times start anew then.

mod active;
mod caution;
mod claims;
mod explain;
mod parks;
mod window;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use self::active::{ActiveSets, Caps};
pub use self::caution::GATE_PARK;
use self::caution::{Awaited, Caution};
pub use self::claims::{Appetite, Picked, SuspectPick, SuspectRoom};
pub use self::explain::{Glance, Shares};
use self::parks::scopes_of;
pub use self::window::Window;
use crate::hash::KeyMap;
use crate::ids::{ConnectorName, GroupKey, QueueName, Seq};
use crate::job::{Park, ParkScope, Priority};
use crate::leases::KindId;
use crate::limits::LANE_QUANTUM;
use crate::registry::{Limiter, QueueSettings};
use crate::time::Timestamp;

/// What comes behind all other lanes of its level is so far behind them in virtual time.
const BEHIND: u64 = 1 << 63;

/// Number of a queue in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QueueId(pub u32);

/// Number of a lane in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LaneId(pub u32);

/// What a lane is made of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LaneKey {
    /// The queue.
    pub queue: QueueId,
    /// The group.
    pub group: GroupKey,
    /// The API, if the kind names one.
    pub connector: Option<ConnectorName>,
    /// The priority.
    pub priority: Priority,
    /// The kind, if it has a limit or a retention of its own: its jobs then have lanes of their own. Told beside the key in a log of changes,
    /// whose form is older.
    #[serde(skip)]
    pub kind: Option<KindId>,
}

/// Why a queue yields nothing although it has ready jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// As many run as may.
    Concurrency {
        /// The limit.
        limit: u32,
    },
    /// As many were started in the window as may.
    Limiter {
        /// The limiter.
        limiter: Limiter,
        /// When the next start is allowed.
        free_at: Timestamp,
    },
}

#[derive(Debug)]
struct Queue {
    name: QueueName,
    settings: QueueSettings,
    running: u32,
    ready: u64,
    /// Those of them that were taken back from a dead worker.
    suspects: u64,
    parks: u32,
    window: Window,
    /// Share of workers that serve several queues.
    vtime: u64,
    /// Whether it had nothing to do since it was last visited.
    woken: bool,
    /// Virtual time of each level: what a lane that was always active would have got.
    level_now: [u64; 4],
    /// Jobs served on a level that have not moved its virtual time yet.
    level_rest: [u64; 4],
    active: ActiveSets,
}

impl Queue {
    /// Places free now: the smaller of concurrency and limiter.
    fn free(&self, now: Timestamp) -> u32 {
        if self.parks > 0 {
            return 0;
        }
        let slots = self.settings.concurrency.map_or(u32::MAX, |c| c.saturating_sub(self.running));
        match self.settings.limiter {
            Some(limiter) if slots > 0 => slots.min(self.window.free(limiter, now)),
            _ => slots,
        }
    }

    /// Virtual time at which a lane enters a level: it must not be punished for having been idle, nor rewarded.
    fn entry(&self, level: u8) -> u64 {
        self.level_now[usize::from(level - 1)].saturating_sub(u64::from(LANE_QUANTUM))
    }

    /// A lane of this level was served: time goes on for all of them, or lanes that come and go would keep the
    /// others waiting for ever.
    fn pass(&mut self, level: usize, vtime: u64, served: u32, caps: &Caps) {
        let lanes = self.active.at(level, caps).max(1);
        let served = self.level_rest[level] + u64::from(served);
        self.level_rest[level] = served % lanes;
        self.level_now[level] = self.level_now[level].max(vtime) + served / lanes;
    }
}

#[derive(Debug)]
struct Lane {
    key: LaneKey,
    group: GroupNo,
    ready: BTreeMap<Seq, Timestamp>,
    /// A job behind the head that has been ready for longer, not necessarily for longest: one that came back from a retry, a snooze or a
    /// worker that stopped is the head again, and the lane must not grow young by it.
    elder: Option<(Seq, Timestamp)>,
    /// Jobs whose process died while they ran. They run one at a time.
    suspects: BTreeMap<Seq, Suspect>,
    parks: u32,
    /// Ready jobs that gates of its connector had refused and that are awaited.
    awaited: u32,
    /// Scopes in which those that are awaited come first.
    behind: u32,
    vtime: [u64; 4],
    /// Level and position in the queue's active set.
    active: Option<(u8, u64)>,
    /// Position in the queue's set of suspects.
    suspect: Option<Seq>,
    age_at: Option<Timestamp>,
}

impl Lane {
    /// Level (from 0) and virtual time at which it is served. Where a claim of another process is followed, after a rebuild, the lane may
    /// not have aged yet: then it is served where it stands.
    fn place(&self) -> (usize, u64) {
        let level = self.active.map_or(self.key.priority.level(), |(level, _)| level);
        let level = usize::from(level - 1);
        (level, self.vtime[level])
    }

    /// Since when its head has been ready, or an elder behind it.
    fn since(&self) -> Option<Timestamp> {
        let (_, head) = self.ready.first_key_value()?;
        Some(self.elder.map_or(*head, |(_, at)| at.min(*head)))
    }

    /// Forgets the elder once it has been the head.
    fn forget_elder(&mut self) {
        let head = self.ready.first_key_value();
        self.elder =
            self.elder.filter(|(elder, at)| head.is_some_and(|(seq, since)| elder > seq && at < since));
    }
}

#[derive(Debug, Clone, Copy)]
struct Suspect {
    ready_at: Timestamp,
    /// One more stall and it is dead: it must run alone in its process, so that nobody else can be to blame.
    exclusive: bool,
}

/// Number of a group of a queue, for as long as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct GroupNo(u64);

#[derive(Debug, Default)]
struct Group {
    running: u32,
    lanes: BTreeSet<LaneId>,
}

/// Groups by a number that their lanes know: every job that starts or ends needs its group.
#[derive(Debug, Default)]
struct Groups {
    numbers: HashMap<(QueueId, GroupKey), GroupNo>,
    by_number: KeyMap<GroupNo, Group>,
    last: u64,
}

impl Groups {
    /// Adds a lane to its group.
    fn join(&mut self, key: &LaneKey, lane: LaneId) -> GroupNo {
        let next = GroupNo(self.last + 1);
        let number = *self.numbers.entry((key.queue, key.group.clone())).or_insert(next);
        self.last = self.last.max(number.0);
        self.by_number.entry(number).or_default().lanes.insert(lane);
        number
    }

    /// Takes a lane out of its group, which is gone with its last one unless something of it runs.
    fn leave(&mut self, key: &LaneKey, number: GroupNo, lane: LaneId) {
        let Some(group) = self.by_number.get_mut(&number) else { return };
        group.lanes.remove(&lane);
        if group.lanes.is_empty() && group.running == 0 {
            self.by_number.remove(&number);
            self.numbers.remove(&(key.queue, key.group.clone()));
        }
    }

    fn get(&self, number: GroupNo) -> Option<&Group> {
        self.by_number.get(&number)
    }

    fn get_mut(&mut self, number: GroupNo) -> Option<&mut Group> {
        self.by_number.get_mut(&number)
    }

    fn find(&self, queue: QueueId, group: &GroupKey) -> Option<&Group> {
        self.get(*self.numbers.get(&(queue, group.clone()))?)
    }
}

/// Whether a suspect must be alone in its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Exclusive(pub bool);

/// The scheduler.
#[derive(Debug, Default)]
pub struct Lanes {
    queues: KeyMap<QueueId, Queue>,
    queue_ids: HashMap<QueueName, QueueId>,
    lanes: KeyMap<LaneId, Lane>,
    lane_ids: HashMap<LaneKey, LaneId>,
    groups: Groups,
    lanes_of_group: HashMap<GroupKey, BTreeSet<LaneId>>,
    lanes_of_connector: HashMap<ConnectorName, BTreeSet<LaneId>>,
    parks: BTreeMap<(ParkScope, String), Park>,
    park_ends: BTreeSet<(Timestamp, ParkScope, String)>,
    ageing: BTreeSet<(Timestamp, LaneId)>,
    cautions: HashMap<ParkScope, Caution>,
    awaited: Awaited,
    caution_ends: BTreeSet<(Timestamp, ParkScope)>,
    caps: Caps,
}

impl Lanes {
    // ---- queues ----

    /// Adds a queue or changes its settings.
    pub fn put_queue(&mut self, id: QueueId, name: &QueueName, settings: &QueueSettings, now: Timestamp) {
        let parks = self.parks.keys().filter(|(s, _)| matches!(s, ParkScope::Queue(q) if q == name)).count();
        let queue = self.queues.entry(id).or_insert_with(|| Queue {
            name: name.clone(),
            settings: settings.clone(),
            running: 0,
            ready: 0,
            suspects: 0,
            parks: parks as u32,
            window: Window::default(),
            vtime: 0,
            woken: false,
            level_now: [0; 4],
            level_rest: [0; 4],
            active: ActiveSets::default(),
        });
        if settings.limiter != queue.settings.limiter && settings.limiter.is_none() {
            queue.window = Window::default();
        }
        queue.settings = settings.clone();
        self.queue_ids.insert(name.clone(), id);
        let lanes: Vec<LaneId> =
            self.lanes.iter().filter(|(_, l)| l.key.queue == id).map(|(id, _)| *id).collect();
        for lane in lanes {
            self.refresh(lane, now);
        }
    }

    /// Sets the limit of a kind, or lifts it. Holds for jobs in lanes of that kind.
    pub fn cap_kind(&mut self, kind: KindId, limit: Option<u32>) {
        self.caps.set(kind, limit);
    }

    /// The limiter's window of a queue, for keeping.
    pub fn window(&self, queue: QueueId) -> Option<&Window> {
        self.queues.get(&queue).map(|q| &q.window)
    }

    /// Restores the limiter's window of a queue.
    pub fn restore_window(&mut self, queue: QueueId, window: Window) {
        if let Some(q) = self.queues.get_mut(&queue) {
            q.window = window;
        }
    }

    /// Ready jobs of a queue.
    pub fn ready_count(&self, queue: QueueId) -> u64 {
        self.queues.get(&queue).map_or(0, |q| q.ready)
    }

    /// Running jobs of a queue.
    pub fn running_count(&self, queue: QueueId) -> u32 {
        self.queues.get(&queue).map_or(0, |q| q.running)
    }

    // ---- lanes ----

    /// The lane with this key, if it exists.
    pub fn find_lane(&self, key: &LaneKey) -> Option<LaneId> {
        self.lane_ids.get(key).copied()
    }

    /// Key of a lane.
    pub fn lane_key(&self, lane: LaneId) -> Option<&LaneKey> {
        self.lanes.get(&lane).map(|l| &l.key)
    }

    /// Adds a lane under a number of the store's choosing.
    pub fn add_lane(&mut self, id: LaneId, key: LaneKey) {
        let parks = |scope: ParkScope| self.closed_on(&scope) + self.parks_on(scope).count();
        let parks = scopes_of(&key).into_iter().map(parks).sum::<usize>();
        let behind = scopes_of(&key).iter().filter(|scope| self.is_behind(scope)).count();
        let group = self.groups.join(&key, id);
        self.lanes_of_group.entry(key.group.clone()).or_default().insert(id);
        if let Some(c) = &key.connector {
            self.lanes_of_connector.entry(c.clone()).or_default().insert(id);
        }
        self.lane_ids.insert(key.clone(), id);
        let lane = Lane {
            key,
            group,
            ready: BTreeMap::new(),
            elder: None,
            suspects: BTreeMap::new(),
            parks: parks as u32,
            awaited: 0,
            behind: behind as u32,
            vtime: [0; 4],
            active: None,
            suspect: None,
            age_at: None,
        };
        self.lanes.insert(id, lane);
    }

    /// Forgets a lane that no job uses any more.
    pub fn remove_lane(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.remove(&id) else { return };
        debug_assert!(lane.ready.is_empty() && lane.suspects.is_empty());
        if let Some(at) = lane.age_at {
            self.ageing.remove(&(at, id));
        }
        self.lane_ids.remove(&lane.key);
        self.groups.leave(&lane.key, lane.group, id);
        prune_index(&mut self.lanes_of_group, &lane.key.group, id);
        if let Some(c) = &lane.key.connector {
            prune_index(&mut self.lanes_of_connector, c, id);
        }
    }

    // ---- jobs ----

    /// A job became ready.
    pub fn add_ready(&mut self, lane: LaneId, seq: Seq, ready_at: Timestamp, now: Timestamp) {
        let Some(l) = self.lanes.get_mut(&lane) else { return };
        let head = l.ready.first_key_value().map(|(first, at)| (*first, *at));
        let leads = head.is_none_or(|(first, _)| seq < first);
        // Whichever of the two is behind the other from now on may be older than the one before it.
        let (before, behind) =
            if leads { (Some((seq, ready_at)), head) } else { (head, Some((seq, ready_at))) };
        let is_older =
            |at: Timestamp, than: Option<(Seq, Timestamp)>| than.is_none_or(|(_, since)| at < since);
        let elder = behind.filter(|(_, at)| is_older(*at, before) && is_older(*at, l.elder));
        l.elder = elder.or(l.elder);
        l.ready.insert(seq, ready_at);
        self.count_ready(lane, 1);
        if leads || elder.is_some() {
            self.refresh(lane, now);
        }
        self.is_back(lane, seq, now);
    }

    /// A suspect became ready again.
    pub fn add_suspect(
        &mut self,
        lane: LaneId,
        seq: Seq,
        exclusive: Exclusive,
        ready_at: Timestamp,
        now: Timestamp,
    ) {
        let Some(l) = self.lanes.get_mut(&lane) else { return };
        let new = l.suspects.insert(seq, Suspect { ready_at, exclusive: exclusive.0 }).is_none();
        if let Some(q) = self.queues.get_mut(&l.key.queue) {
            q.suspects += u64::from(new);
        }
        self.count_ready(lane, 1);
        self.refresh(lane, now);
    }

    /// Takes a ready job out, because it was cancelled, moved or erased. False if it is not ready in this lane.
    pub fn remove_ready(&mut self, lane: LaneId, seq: Seq, now: Timestamp) -> bool {
        let Some(l) = self.lanes.get_mut(&lane) else { return false };
        let suspect = l.ready.remove(&seq).is_none();
        if suspect && l.suspects.remove(&seq).is_none() {
            return false;
        }
        if l.elder.is_some_and(|(elder, _)| elder == seq) {
            l.elder = l.ready.range(seq..).next().map(|(next, at)| (*next, *at));
        }
        if let Some(q) = self.queues.get_mut(&l.key.queue) {
            q.ready -= 1;
            q.suspects -= u64::from(suspect);
        }
        self.refresh(lane, now);
        self.is_not_awaited(seq, now);
        true
    }

    /// Every lane.
    pub fn all(&self) -> impl Iterator<Item = (LaneId, &LaneKey)> {
        self.lanes.iter().map(|(id, lane)| (*id, &lane.key))
    }

    /// Ready jobs of a lane; suspects with how they must run.
    pub fn ready_in(&self, lane: LaneId) -> impl Iterator<Item = (Seq, Option<Exclusive>)> {
        let lane = self.lanes.get(&lane);
        let ordinary = lane.into_iter().flat_map(|l| l.ready.keys().map(|seq| (*seq, None)));
        let suspects = lane.into_iter().flat_map(|l| l.suspects.iter());
        ordinary.chain(suspects.map(|(seq, s)| (*seq, Some(Exclusive(s.exclusive)))))
    }

    /// Whether the job is ready in this lane.
    pub fn is_ready(&self, lane: LaneId, seq: Seq) -> bool {
        self.lanes.get(&lane).is_some_and(|l| l.ready.contains_key(&seq) || l.suspects.contains_key(&seq))
    }

    /// Whether the job is a suspect, ready in this lane, and when it became ready.
    pub fn suspect_since(&self, lane: LaneId, seq: Seq) -> Option<Timestamp> {
        self.lanes.get(&lane)?.suspects.get(&seq).map(|s| s.ready_at)
    }

    fn count_ready(&mut self, lane: LaneId, n: u64) {
        let Some(queue) = self.lanes.get(&lane).map(|l| l.key.queue) else { return };
        if let Some(q) = self.queues.get_mut(&queue) {
            q.woken |= q.ready == 0;
            q.ready += n;
        }
    }

    /// A job of this lane is running again after a restart.
    pub fn restore_running(&mut self, lane: LaneId, now: Timestamp) {
        self.shift_running(lane, true, now);
    }

    /// A running job of this lane ended, in whatever way: its places are free at once. Returns the queue, `None` if there
    /// is no such lane.
    pub fn finished(&mut self, lane: LaneId, now: Timestamp) -> Option<QueueId> {
        self.shift_running(lane, false, now)
    }

    fn shift_running(&mut self, lane: LaneId, up: bool, now: Timestamp) -> Option<QueueId> {
        let Lane { key, group, .. } = self.lanes.get(&lane)?;
        let shift = |n: &mut u32| *n = if up { *n + 1 } else { n.saturating_sub(1) };
        let queue_id = key.queue;
        let queue = self.queues.get_mut(&queue_id)?;
        shift(&mut queue.running);
        self.caps.shift(key.kind, 1, up);
        let limit = group_limit(&queue.settings, &key.group);
        let group = self.groups.get_mut(*group)?;
        let was = group.running;
        shift(&mut group.running);
        if limit.is_some_and(|limit| (was >= limit) != (group.running >= limit)) {
            for id in group.lanes.clone() {
                self.refresh(id, now);
            }
        }
        Some(queue_id)
    }

    // ---- time ----

    /// Whether a lane has waited long enough to rise, or a caution is over, or somebody has not come for long.
    pub fn ages(&self, now: Timestamp) -> bool {
        self.ageing.first().is_some_and(|(at, _)| *at <= now)
            || self.caution_end().is_some_and(|at| at <= now)
            || self.awaited.end().is_some_and(|at| at <= now)
    }

    /// Lets lanes rise that have waited long enough, and forgets cautions that are over and those who have not come.
    pub fn age(&mut self, now: Timestamp) {
        self.end_cautions(now);
        self.expire_awaited(now);
        while let Some(&(_, lane)) = self.ageing.first().filter(|(at, _)| *at <= now) {
            self.refresh(lane, now);
        }
    }

    /// The clock went back.
    pub fn rebase(&mut self, now: Timestamp) {
        self.forget_cautions(now);
        for queue in self.queues.values_mut() {
            queue.window.rebase(now);
        }
        let lanes: BTreeSet<LaneId> = self.lanes.keys().copied().collect();
        for lane in lanes {
            if let Some(l) = self.lanes.get_mut(&lane) {
                for at in l.ready.values_mut().chain(l.elder.as_mut().map(|(_, at)| at)) {
                    *at = (*at).min(now);
                }
            }
            self.refresh(lane, now);
        }
    }

    /// When a claim on these queues may find something that it would not find now.
    pub fn next_wakeup(&self, queues: &[(QueueId, u32)], now: Timestamp) -> Option<Timestamp> {
        let park = self.park_ends.first().map(|(at, _, _)| *at);
        let limiter = queues.iter().filter_map(|(id, _)| {
            let q = self.queues.get(id).filter(|q| q.ready > 0)?;
            // A window nobody looked at since may have been free for long: that is no reason to wake up.
            q.window.free_at(q.settings.limiter?).filter(|at| *at > now)
        });
        limiter.chain(park).chain(self.caution_end()).chain(self.awaited.end()).min()
    }

    // ---- keeping the active set true ----

    /// Recomputes whether and where a lane is active. Call after anything about the lane, its group or its parks
    /// changed.
    fn refresh(&mut self, id: LaneId, now: Timestamp) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(queue) = self.queues.get_mut(&lane.key.queue) else { return };
        let group = self.groups.get(lane.group);
        let full = group_limit(&queue.settings, &lane.key.group)
            .is_some_and(|limit| group.is_some_and(|g| g.running >= limit));
        let open = lane.parks == 0 && !full;

        let active = queue.active.of(lane.key.kind);
        let suspect = lane.suspects.first_key_value().map(|(s, _)| *s).filter(|_| open);
        if suspect != lane.suspect {
            active.move_suspect(lane.suspect, suspect, id);
            lane.suspect = suspect;
        }

        lane.forget_elder();
        let head = lane.since().filter(|_| open);
        if let Some((level, position)) = lane.active {
            active.remove(level, position, id);
        }
        let before = lane.active.take();
        let mut age_at = None;
        if let Some(head) = head {
            let base = lane.key.priority.level();
            let step = (queue.settings.max_wait_ms / 4).max(1);
            let risen = (now.since(head).max(0) / step).min(i64::from(base - 1)) as u8;
            let level = base - risen;
            if level > 1 {
                age_at = Some(head.plus_ms(step * (i64::from(risen) + 1)));
            }
            let at = usize::from(level - 1);
            let behind = lane.behind > 0 && lane.awaited == 0;
            if before.is_none_or(|(old, position)| old != level || (position >= BEHIND && !behind)) {
                lane.vtime[at] = lane.vtime[at].max(queue.entry(level));
            }
            let position = lane.vtime[at] + if behind { BEHIND } else { 0 };
            lane.active = Some((level, position));
            queue.active.of(lane.key.kind).insert(level, position, id);
        }
        if age_at != lane.age_at {
            if let Some(old) = lane.age_at {
                self.ageing.remove(&(old, id));
            }
            if let Some(new) = age_at {
                self.ageing.insert((new, id));
            }
            lane.age_at = age_at;
        }
    }
}

fn group_limit(settings: &QueueSettings, group: &GroupKey) -> Option<u32> {
    settings.group_concurrency.filter(|_| !group.is_none())
}

fn prune_index<K: std::hash::Hash + Eq>(index: &mut HashMap<K, BTreeSet<LaneId>>, key: &K, id: LaneId) {
    if let Some(lanes) = index.get_mut(key) {
        lanes.remove(&id);
        if lanes.is_empty() {
            index.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
