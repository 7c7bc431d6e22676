//! The lane scheduler: which ready job runs next.
//!
//! A *lane* is (queue, group, connector, priority) and holds its ready jobs in order of arrival. Only lanes that
//! could run now are in the *active* set of their queue, ordered by (effective level, virtual time). A parked, full
//! or empty lane is not in it, so a claim costs the same whether ten or ten thousand groups are parked.
//!
//! Guarantees:
//! - a claim never exceeds the queue's concurrency, its limiter or a group's concurrency;
//! - a lane covered by any park yields nothing;
//! - inside a level, lanes share by virtual time; an idle lane that wakes comes with the next claim;
//! - ageing: the level of a lane improves by one per `max_wait / 4` its head has waited.
//!
//! The scheduler is memory only. Stores rebuild it from their rows; virtual times start anew then.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::ids::{ConnectorName, GroupKey, QueueName, Seq};
use crate::job::{Park, ParkScope, Priority};
use crate::limits::LANE_QUANTUM;
use crate::registry::{Limiter, QueueSettings};
use crate::time::Timestamp;

/// Number of a queue in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(pub u32);

/// Number of a lane in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId(pub u32);

/// What a lane is made of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaneKey {
    /// The queue.
    pub queue: QueueId,
    /// The group.
    pub group: GroupKey,
    /// The API, if the kind names one.
    pub connector: Option<ConnectorName>,
    /// The priority.
    pub priority: Priority,
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

/// Starts within the last window, oldest first: exact, and bounded by the limiter's `max`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    starts: VecDeque<(Timestamp, u32)>,
    total: u32,
}

impl Window {
    /// A window with these starts, as a store kept them.
    pub fn from_starts(starts: impl IntoIterator<Item = (Timestamp, u32)>) -> Self {
        let mut window = Self::default();
        for (at, n) in starts {
            window.record(at, n);
        }
        window
    }

    /// The starts, oldest first.
    pub fn starts(&self) -> impl Iterator<Item = (Timestamp, u32)> + '_ {
        self.starts.iter().copied()
    }

    fn drop_old(&mut self, limiter: Limiter, now: Timestamp) {
        while let Some(&(at, n)) = self.starts.front() {
            if now.since(at) < limiter.per_ms {
                break;
            }
            self.starts.pop_front();
            self.total -= n;
        }
    }

    fn free(&mut self, limiter: Limiter, now: Timestamp) -> u32 {
        self.drop_old(limiter, now);
        limiter.max.saturating_sub(self.total)
    }

    /// When the next start is allowed, if not now.
    fn free_at(&self, limiter: Limiter) -> Option<Timestamp> {
        let mut over = (self.total + 1).checked_sub(limiter.max)?;
        for &(at, n) in &self.starts {
            if over == 0 {
                break;
            }
            if n >= over {
                return Some(at.plus_ms(limiter.per_ms));
            }
            over -= n;
        }
        None
    }

    fn record(&mut self, now: Timestamp, n: u32) {
        self.total += n;
        match self.starts.back_mut() {
            Some((at, k)) if *at >= now => *k += n,
            _ => self.starts.push_back((now, n)),
        }
    }

    /// The clock went back: nothing may lie ahead of it, or capacity would be held for longer than a window.
    fn rebase(&mut self, now: Timestamp) {
        for (at, _) in &mut self.starts {
            *at = (*at).min(now);
        }
    }
}

#[derive(Debug)]
struct Queue {
    name: QueueName,
    settings: QueueSettings,
    running: u32,
    ready: u64,
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
    /// Active lanes per level.
    active_at: [u64; 4],
    active: BTreeSet<(u8, u64, LaneId)>,
    /// Lanes whose suspects may run, by their first suspect.
    suspects: BTreeSet<(Seq, LaneId)>,
}

impl Queue {
    /// Places free now: the smaller of concurrency and limiter.
    fn free(&mut self, now: Timestamp) -> u32 {
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
    fn pass(&mut self, level: usize, vtime: u64, served: u32) {
        let lanes = self.active_at[level].max(1);
        let served = self.level_rest[level] + u64::from(served);
        self.level_rest[level] = served % lanes;
        self.level_now[level] = self.level_now[level].max(vtime) + served / lanes;
    }
}

#[derive(Debug)]
struct Lane {
    key: LaneKey,
    ready: BTreeMap<Seq, Timestamp>,
    /// Age of a head that an older job, back from a retry or a snooze, has moved to the second place: the lane must not
    /// grow young by it.
    passed_head: Option<Timestamp>,
    /// Jobs whose process died while they ran. They run one at a time.
    suspects: BTreeMap<Seq, Suspect>,
    parks: u32,
    vtime: [u64; 4],
    /// Position in the queue's active set.
    active: Option<(u8, u64)>,
    /// Position in the queue's set of suspects.
    suspect: Option<Seq>,
    age_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy)]
struct Suspect {
    ready_at: Timestamp,
    /// One more stall and it is dead: it must run alone in its process, so that nobody else can be to blame.
    exclusive: bool,
}

#[derive(Debug, Default)]
struct Group {
    running: u32,
    lanes: BTreeSet<LaneId>,
}

/// A job picked by a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Picked {
    /// The job.
    pub seq: Seq,
    /// Its lane.
    pub lane: LaneId,
    /// When it became ready.
    pub ready_at: Timestamp,
}

/// What a claimer may take.
#[derive(Debug)]
pub struct Appetite<'a> {
    /// The queues it serves, each with the most it takes from it.
    pub queues: &'a [(QueueId, u32)],
    /// Most jobs in all.
    pub max: u32,
}

/// Whether a process may run a suspect now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspectRoom {
    /// It runs one already.
    None,
    /// It runs other jobs.
    Shared,
    /// It runs nothing.
    Alone,
}

/// What a claim for a suspect found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspectPick {
    /// No suspect may run.
    Nothing,
    /// This one must run alone; the process has to finish what it runs first.
    DrainFirst(LaneId, Seq),
    /// This one, in a lease of its own.
    Run(Picked, Exclusive),
}

/// Whether a suspect must be alone in its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exclusive(pub bool);

/// The scheduler.
#[derive(Debug, Default)]
pub struct Lanes {
    queues: HashMap<QueueId, Queue>,
    queue_ids: HashMap<QueueName, QueueId>,
    lanes: HashMap<LaneId, Lane>,
    lane_ids: HashMap<LaneKey, LaneId>,
    groups: HashMap<(QueueId, GroupKey), Group>,
    lanes_of_group: HashMap<GroupKey, BTreeSet<LaneId>>,
    lanes_of_connector: HashMap<ConnectorName, BTreeSet<LaneId>>,
    parks: BTreeMap<(ParkScope, String), Park>,
    park_ends: BTreeSet<(Timestamp, ParkScope, String)>,
    ageing: BTreeSet<(Timestamp, LaneId)>,
}

/// Jobs of a lane that are looked at for the oldest one.
const HEADS: usize = 64;

const QUEUE_STEP: u64 = 1 << 20;

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
            parks: parks as u32,
            window: Window::default(),
            vtime: 0,
            woken: false,
            level_now: [0; 4],
            level_rest: [0; 4],
            active_at: [0; 4],
            active: BTreeSet::new(),
            suspects: BTreeSet::new(),
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

    /// What keeps the whole queue from starting a job now, parks aside.
    pub fn blocked(&self, queue: QueueId, now: Timestamp) -> Option<Blocked> {
        let q = self.queues.get(&queue)?;
        if let Some(limit) = q.settings.concurrency.filter(|&c| q.running >= c) {
            return Some(Blocked::Concurrency { limit });
        }
        let limiter = q.settings.limiter?;
        let free_at = q.window.free_at(limiter).filter(|t| *t > now)?;
        Some(Blocked::Limiter { limiter, free_at })
    }

    /// When the job that is `ahead` places behind the head may start as far as the limiter is concerned.
    pub fn limiter_allows(&self, queue: QueueId, ahead: u64, now: Timestamp) -> Option<Timestamp> {
        let q = self.queues.get(&queue)?;
        let limiter = q.settings.limiter?;
        let max = u64::from(limiter.max);
        let used = q
            .window
            .starts()
            .filter(|(at, _)| now.since(*at) < limiter.per_ms)
            .map(|(_, n)| u64::from(n))
            .sum::<u64>();
        let windows = (used.min(max) + ahead) / max;
        let base = q.window.starts().next().map_or(now, |(at, _)| at);
        Some(if windows == 0 { now } else { base.plus_ms(limiter.per_ms * windows as i64).max(now) })
    }

    /// The oldest ready job of a queue, by the time it became ready. Looks at the front of each lane.
    pub fn oldest_ready(&self, queue: QueueId) -> Option<Timestamp> {
        let heads = |lane: &Lane| {
            // Jobs that came back stand in front of older ones; a few looks find the oldest.
            let ready = lane.ready.values().take(HEADS).copied().min();
            let suspect = lane.suspects.first_key_value().map(|(_, s)| s.ready_at);
            ready.into_iter().chain(suspect).min()
        };
        self.lanes.values().filter(|l| l.key.queue == queue).filter_map(heads).min()
    }

    /// Groups of a queue that have ready jobs and are parked.
    pub fn parked_groups(&self, queue: QueueId) -> usize {
        let parked =
            |l: &&Lane| l.key.queue == queue && l.parks > 0 && !(l.ready.is_empty() && l.suspects.is_empty());
        self.lanes.values().filter(parked).map(|l| &l.key.group).collect::<BTreeSet<_>>().len()
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
        let parks = scopes_of(&key).into_iter().map(|scope| self.parks_on(scope).count()).sum::<usize>();
        self.groups.entry((key.queue, key.group.clone())).or_default().lanes.insert(id);
        self.lanes_of_group.entry(key.group.clone()).or_default().insert(id);
        if let Some(c) = &key.connector {
            self.lanes_of_connector.entry(c.clone()).or_default().insert(id);
        }
        self.lane_ids.insert(key.clone(), id);
        let lane = Lane {
            key,
            ready: BTreeMap::new(),
            passed_head: None,
            suspects: BTreeMap::new(),
            parks: parks as u32,
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
        let group_key = (lane.key.queue, lane.key.group.clone());
        if let Some(group) = self.groups.get_mut(&group_key) {
            group.lanes.remove(&id);
            if group.lanes.is_empty() && group.running == 0 {
                self.groups.remove(&group_key);
            }
        }
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
        let head_changes = head.is_none_or(|(first, _)| seq < first);
        if let Some((_, at)) = head.filter(|_| head_changes) {
            l.passed_head = Some(l.passed_head.map_or(at, |passed| passed.min(at)));
        }
        l.ready.insert(seq, ready_at);
        self.count_ready(lane, 1);
        if head_changes {
            self.refresh(lane, now);
        }
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
        l.suspects.insert(seq, Suspect { ready_at, exclusive: exclusive.0 });
        self.count_ready(lane, 1);
        self.refresh(lane, now);
    }

    /// Takes a ready job out, because it was cancelled, moved or erased. False if it is not ready in this lane.
    pub fn remove_ready(&mut self, lane: LaneId, seq: Seq, now: Timestamp) -> bool {
        let Some(l) = self.lanes.get_mut(&lane) else { return false };
        l.passed_head = None;
        if l.ready.remove(&seq).is_none() && l.suspects.remove(&seq).is_none() {
            return false;
        }
        if let Some(q) = self.queues.get_mut(&l.key.queue) {
            q.ready -= 1;
        }
        self.refresh(lane, now);
        true
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

    /// A running job of this lane ended, in whatever way: its places are free at once.
    pub fn finished(&mut self, lane: LaneId, now: Timestamp) {
        self.shift_running(lane, false, now);
    }

    fn shift_running(&mut self, lane: LaneId, up: bool, now: Timestamp) {
        let Some(key) = self.lanes.get(&lane).map(|l| l.key.clone()) else { return };
        let shift = |n: &mut u32| *n = if up { *n + 1 } else { n.saturating_sub(1) };
        let Some(queue) = self.queues.get_mut(&key.queue) else { return };
        shift(&mut queue.running);
        let limit = group_limit(&queue.settings, &key.group);
        let Some(group) = self.groups.get_mut(&(key.queue, key.group)) else { return };
        let was = group.running;
        shift(&mut group.running);
        if limit.is_some_and(|limit| (was >= limit) != (group.running >= limit)) {
            for id in group.lanes.clone() {
                self.refresh(id, now);
            }
        }
    }

    // ---- claims ----

    /// Picks jobs within every limit. What is picked counts as running from now on.
    pub fn claim(&mut self, appetite: &Appetite<'_>, now: Timestamp) -> Vec<Picked> {
        let mut picked = Vec::with_capacity(appetite.max.min(1_024) as usize);
        let mut room: Vec<(QueueId, u32)> = appetite.queues.to_vec();
        self.level_queues(appetite.queues);
        while (picked.len() as u32) < appetite.max {
            let Some(slot) = self.next_queue(&room, now) else { break };
            let (queue_id, queue_room) = &mut room[slot];
            let left = appetite.max - picked.len() as u32;
            let taken = self.visit(*queue_id, left.min(*queue_room), now, &mut picked);
            *queue_room -= taken;
            if taken == 0 {
                break;
            }
        }
        picked
    }

    /// Lets queues that woke start level with those they share this worker with: neither punished for having been
    /// idle, nor rewarded.
    fn level_queues(&mut self, queues: &[(QueueId, u32)]) {
        let vtimes = |woken: bool| {
            let of = move |q: &&Queue| q.woken == woken && !q.active.is_empty();
            queues.iter().filter_map(|(id, _)| self.queues.get(id)).filter(of).map(|q| q.vtime)
        };
        let Some(start) = vtimes(false).min().or_else(|| vtimes(true).max()) else { return };
        for (id, _) in queues {
            if let Some(q) = self.queues.get_mut(id).filter(|q| q.woken && !q.active.is_empty()) {
                q.vtime = q.vtime.max(start);
                q.woken = false;
            }
        }
    }

    /// The queue to visit: best level first, then the smallest virtual time.
    fn next_queue(&mut self, room: &[(QueueId, u32)], now: Timestamp) -> Option<usize> {
        let mut best: Option<((u8, u64, QueueId), usize)> = None;
        for (slot, (id, left)) in room.iter().enumerate() {
            let Some(q) = self.queues.get_mut(id).filter(|_| *left > 0) else { continue };
            let Some(&(level, _, _)) = q.active.first() else { continue };
            let rank = (level, q.vtime, *id);
            if best.as_ref().is_none_or(|(b, _)| rank < *b) && q.free(now) > 0 {
                best = Some((rank, slot));
            }
        }
        best.map(|(_, slot)| slot)
    }

    /// Takes up to a quantum from the first active lane of a queue.
    fn visit(&mut self, queue_id: QueueId, most: u32, now: Timestamp, picked: &mut Vec<Picked>) -> u32 {
        let Some(queue) = self.queues.get_mut(&queue_id) else { return 0 };
        let free = queue.free(now);
        let Some(&(level, vtime, lane_id)) = queue.active.first() else { return 0 };
        let Some(lane) = self.lanes.get_mut(&lane_id) else { return 0 };
        let Some(group) = self.groups.get_mut(&(queue_id, lane.key.group.clone())) else { return 0 };
        let group_free = group_limit(&queue.settings, &lane.key.group)
            .map_or(u32::MAX, |l| l.saturating_sub(group.running));
        let k = most.min(free).min(group_free).min(LANE_QUANTUM).min(lane.ready.len() as u32);
        lane.passed_head = None;
        for _ in 0..k {
            if let Some((seq, ready_at)) = lane.ready.pop_first() {
                picked.push(Picked { seq, lane: lane_id, ready_at });
            }
        }
        let here = usize::from(level - 1);
        let base = usize::from(lane.key.priority.level() - 1);
        queue.pass(here, vtime, k);
        lane.vtime[here] = vtime + u64::from(k);
        if here != base {
            lane.vtime[base] += u64::from(k);
        }
        queue.vtime += u64::from(k) * QUEUE_STEP / u64::from(queue.settings.weight);
        queue.ready -= u64::from(k);
        queue.running += k;
        if queue.settings.limiter.is_some() {
            queue.window.record(now, k);
        }
        group.running += k;
        let full = group_limit(&queue.settings, &lane.key.group).is_some_and(|l| group.running >= l);
        if full {
            for id in group.lanes.clone() {
                self.refresh(id, now);
            }
        } else {
            self.refresh(lane_id, now);
        }
        k
    }

    /// Picks one suspect, to run in a lease of its own.
    pub fn claim_suspect(
        &mut self,
        queues: &[(QueueId, u32)],
        room: SuspectRoom,
        now: Timestamp,
    ) -> SuspectPick {
        if room == SuspectRoom::None {
            return SuspectPick::Nothing;
        }
        for (id, left) in queues {
            let Some(queue) = self.queues.get_mut(id).filter(|_| *left > 0) else { continue };
            let Some(&(seq, lane_id)) = queue.suspects.first() else { continue };
            if queue.free(now) == 0 {
                continue;
            }
            let Some(lane) = self.lanes.get_mut(&lane_id) else { continue };
            let Some(&Suspect { ready_at, exclusive }) = lane.suspects.get(&seq) else { continue };
            if exclusive && room != SuspectRoom::Alone {
                return SuspectPick::DrainFirst(lane_id, seq);
            }
            lane.suspects.remove(&seq);
            queue.ready -= 1;
            if queue.settings.limiter.is_some() {
                queue.window.record(now, 1);
            }
            self.shift_running(lane_id, true, now);
            self.refresh(lane_id, now);
            return SuspectPick::Run(Picked { seq, lane: lane_id, ready_at }, Exclusive(exclusive));
        }
        SuspectPick::Nothing
    }

    // ---- parks ----

    /// Adds a park, or replaces the one of the same scope and owner.
    pub fn park(&mut self, park: Park, now: Timestamp) {
        self.unpark(&park.scope, &park.by, now);
        if let Some(until) = park.until {
            self.park_ends.insert((until, park.scope.clone(), park.by.clone()));
        }
        self.shift_parks(&park.scope, true, now);
        self.parks.insert((park.scope.clone(), park.by.clone()), park);
    }

    /// Removes a park; the others stay.
    pub fn unpark(&mut self, scope: &ParkScope, by: &str, now: Timestamp) -> Option<Park> {
        let park = self.parks.remove(&(scope.clone(), by.to_owned()))?;
        if let Some(until) = park.until {
            self.park_ends.remove(&(until, scope.clone(), by.to_owned()));
        }
        self.shift_parks(scope, false, now);
        Some(park)
    }

    fn shift_parks(&mut self, scope: &ParkScope, up: bool, now: Timestamp) {
        let shift = |n: &mut u32| *n = if up { *n + 1 } else { n.saturating_sub(1) };
        let lanes = match scope {
            ParkScope::Queue(name) => {
                if let Some(q) = self.queue_ids.get(name).and_then(|id| self.queues.get_mut(id)) {
                    shift(&mut q.parks);
                }
                return;
            }
            ParkScope::Group(g) | ParkScope::GroupOnConnector(g, _) => self.lanes_of_group.get(g),
            ParkScope::Connector(c) => self.lanes_of_connector.get(c),
        };
        for id in lanes.cloned().unwrap_or_default() {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            if let ParkScope::GroupOnConnector(_, c) = scope
                && lane.key.connector.as_ref() != Some(c)
            {
                continue;
            }
            shift(&mut lane.parks);
            self.refresh(id, now);
        }
    }

    /// All parks.
    pub fn parks(&self) -> impl Iterator<Item = &Park> {
        self.parks.values()
    }

    /// The parks that cover a lane.
    pub fn parks_of(&self, lane: LaneId) -> Vec<&Park> {
        let Some(key) = self.lane_key(lane) else { return vec![] };
        let queue = self.queues.get(&key.queue).map(|q| ParkScope::Queue(q.name.clone()));
        scopes_of(key).into_iter().chain(queue).flat_map(|scope| self.parks_on(scope)).collect()
    }

    /// The parks of exactly this scope.
    fn parks_on(&self, scope: ParkScope) -> impl Iterator<Item = &Park> {
        let first = (scope.clone(), String::new());
        self.parks.range(first..).take_while(move |((s, _), _)| *s == scope).map(|(_, park)| park)
    }

    /// Parks of a queue itself: pauses.
    pub fn parks_of_queue(&self, name: &QueueName) -> Vec<&Park> {
        self.parks.values().filter(|p| matches!(&p.scope, ParkScope::Queue(q) if q == name)).collect()
    }

    // ---- time ----

    /// Ends the parks whose time has come and lets lanes age. Returns the ended parks.
    pub fn advance(&mut self, now: Timestamp) -> Vec<Park> {
        let mut ended = vec![];
        while let Some((_, scope, by)) = self.park_ends.first().filter(|(until, _, _)| *until <= now).cloned()
        {
            ended.extend(self.unpark(&scope, &by, now));
        }
        while let Some(&(_, lane)) = self.ageing.first().filter(|(at, _)| *at <= now) {
            self.refresh(lane, now);
        }
        ended
    }

    /// The clock went back.
    pub fn rebase(&mut self, now: Timestamp) {
        for queue in self.queues.values_mut() {
            queue.window.rebase(now);
        }
        let lanes: BTreeSet<LaneId> = self.lanes.keys().copied().collect();
        for lane in lanes {
            if let Some(l) = self.lanes.get_mut(&lane) {
                for at in l.ready.values_mut() {
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
        limiter.chain(park).min()
    }

    // ---- explanations ----

    /// Running jobs and limit of the lane's group, if it has a limit.
    pub fn group_load(&self, lane: LaneId) -> Option<(u32, u32)> {
        let key = self.lane_key(lane)?;
        let limit = group_limit(&self.queues.get(&key.queue)?.settings, &key.group)?;
        Some((self.groups.get(&(key.queue, key.group.clone()))?.running, limit))
    }

    /// Running jobs of a group in a queue.
    pub fn group_running(&self, queue: QueueId, group: &GroupKey) -> u32 {
        self.groups.get(&(queue, group.clone())).map_or(0, |g| g.running)
    }

    /// Ready jobs that are served before this one: (of better level in the queue, in its own lane). Counts at most
    /// `bound` in its own lane.
    pub fn ahead(&self, lane: LaneId, seq: Seq, bound: usize) -> (u64, u64) {
        let Some(l) = self.lanes.get(&lane) else { return (0, 0) };
        let own = l.ready.range(..seq).take(bound).count() as u64;
        let level = l.active.map_or(l.key.priority.level(), |(level, _)| level);
        let better = self.queues.get(&l.key.queue).map_or(0, |q| {
            let lanes = q.active.iter().take_while(|(other, _, _)| *other < level).take(bound);
            lanes.filter_map(|(_, _, id)| self.lanes.get(id)).map(|l| l.ready.len() as u64).sum()
        });
        (better, own)
    }

    // ---- keeping the active set true ----

    /// Recomputes whether and where a lane is active. Call after anything about the lane, its group or its parks
    /// changed.
    fn refresh(&mut self, id: LaneId, now: Timestamp) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(queue) = self.queues.get_mut(&lane.key.queue) else { return };
        let group = self.groups.get(&(lane.key.queue, lane.key.group.clone()));
        let full = group_limit(&queue.settings, &lane.key.group)
            .is_some_and(|limit| group.is_some_and(|g| g.running >= limit));
        let open = lane.parks == 0 && !full;

        let suspect = lane.suspects.first_key_value().map(|(s, _)| *s).filter(|_| open);
        if suspect != lane.suspect {
            if let Some(old) = lane.suspect {
                queue.suspects.remove(&(old, id));
            }
            if let Some(new) = suspect {
                queue.suspects.insert((new, id));
            }
            lane.suspect = suspect;
        }

        let passed = lane.passed_head.unwrap_or(Timestamp(i64::MAX));
        let head = lane.ready.first_key_value().map(|(_, at)| passed.min(*at)).filter(|_| open);
        if let Some((level, vtime)) = lane.active {
            queue.active.remove(&(level, vtime, id));
            queue.active_at[usize::from(level - 1)] -= 1;
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
            if before.is_none_or(|(old, _)| old != level) {
                lane.vtime[at] = lane.vtime[at].max(queue.entry(level));
            }
            lane.active = Some((level, lane.vtime[at]));
            queue.active.insert((level, lane.vtime[at], id));
            queue.active_at[at] += 1;
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

/// The scopes, other than its queue, whose parks cover a lane.
fn scopes_of(key: &LaneKey) -> Vec<ParkScope> {
    let mut scopes = vec![ParkScope::Group(key.group.clone())];
    if let Some(c) = &key.connector {
        scopes.push(ParkScope::Connector(c.clone()));
        scopes.push(ParkScope::GroupOnConnector(key.group.clone(), c.clone()));
    }
    scopes
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
