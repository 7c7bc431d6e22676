//! Why a job waits, and how long lines are. Nothing here changes anything.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Blocked, Lane, LaneId, Lanes, Queue, QueueId, group_limit};
use crate::ids::{GroupKey, Seq};
use crate::time::Timestamp;

/// Jobs of a lane that are looked at for the oldest one.
const HEADS: usize = 64;

/// How long the lines of a queue are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Glance {
    /// When the oldest ready job became ready.
    pub oldest_ready: Option<Timestamp>,
    /// Groups that have ready jobs and are parked.
    pub parked_groups: usize,
}

/// Who is served when, as far as it does not follow from who is ready: virtual times and ages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shares {
    queues: BTreeMap<QueueId, QueueShare>,
    lanes: BTreeMap<LaneId, LaneShare>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct QueueShare {
    vtime: u64,
    woken: bool,
    level_now: [u64; 4],
    level_rest: [u64; 4],
    active: Vec<(u8, u64, LaneId)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct LaneShare {
    vtime: [u64; 4],
    ages: Vec<Timestamp>,
    elder: Option<(Seq, Timestamp)>,
}

impl Lanes {
    /// Who is served when. Equal for lanes that had the same history.
    pub fn shares(&self) -> Shares {
        let queue = |(id, q): (&QueueId, &Queue)| {
            let active = q.active.all().into_iter().collect();
            let Queue { vtime, woken, level_now, level_rest, .. } = *q;
            (*id, QueueShare { vtime, woken, level_now, level_rest, active })
        };
        let lane = |(id, l): (&LaneId, &Lane)| {
            let suspects = l.suspects.values().map(|s| s.ready_at);
            let ages = l.ready.values().copied().chain(suspects).collect();
            (*id, LaneShare { vtime: l.vtime, ages, elder: l.elder })
        };
        Shares {
            queues: self.queues.iter().map(queue).collect(),
            lanes: self.lanes.iter().map(lane).collect(),
        }
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
        let mut counted = q.window.starts().filter(|(at, _)| now.since(*at) < limiter.per_ms).peekable();
        let base = counted.peek().map_or(now, |(at, _)| *at);
        let used: u64 = counted.map(|(_, n)| u64::from(n)).sum();
        let windows = (used.min(max) + ahead) / max;
        Some(if windows == 0 { now } else { base.plus_ms(limiter.per_ms * windows as i64).max(now) })
    }

    /// How long lines are in every queue that has any, in one walk over the lanes: health asks every second.
    pub fn glance(&self) -> HashMap<QueueId, Glance> {
        let mut glances: HashMap<QueueId, (Glance, HashSet<&GroupKey>)> = HashMap::new();
        for lane in self.lanes.values() {
            // Jobs that came back stand in front of older ones; a few looks find the oldest.
            let ready = lane.ready.values().take(HEADS).copied().min();
            let suspect = lane.suspects.first_key_value().map(|(_, s)| s.ready_at);
            let Some(oldest) = ready.into_iter().chain(suspect).min() else { continue };
            let (glance, parked) = glances.entry(lane.key.queue).or_default();
            glance.oldest_ready = Some(glance.oldest_ready.map_or(oldest, |at| at.min(oldest)));
            if lane.parks > 0 {
                parked.insert(&lane.key.group);
            }
        }
        let count =
            |(glance, parked): (Glance, HashSet<&GroupKey>)| Glance { parked_groups: parked.len(), ..glance };
        glances.into_iter().map(|(queue, found)| (queue, count(found))).collect()
    }

    /// Jobs of a queue that were taken back from a dead worker and have not run since.
    pub fn stalled(&self, queue: QueueId) -> u64 {
        self.queues.get(&queue).map_or(0, |q| q.suspects)
    }

    /// Running jobs and limit of the lane's group, if it has a limit.
    pub fn group_load(&self, lane: LaneId) -> Option<(u32, u32)> {
        let key = self.lane_key(lane)?;
        let limit = group_limit(&self.queues.get(&key.queue)?.settings, &key.group)?;
        Some((self.groups.find(key.queue, &key.group)?.running, limit))
    }

    /// Running jobs and limit of the lane's kind, if it has a limit.
    pub fn kind_load(&self, lane: LaneId) -> Option<(u32, u32)> {
        self.caps.load(self.lane_key(lane)?.kind?)
    }

    /// Running jobs of a group in a queue.
    pub fn group_running(&self, queue: QueueId, group: &GroupKey) -> u32 {
        self.groups.find(queue, group).map_or(0, |g| g.running)
    }

    /// Ready jobs that are served before this one: (of better level in the queue, in its own lane). Counts at most
    /// `bound` in its own lane.
    pub fn ahead(&self, lane: LaneId, seq: Seq, bound: usize) -> (u64, u64) {
        let Some(l) = self.lanes.get(&lane) else { return (0, 0) };
        let own = l.ready.range(..seq).take(bound).count() as u64;
        let level = l.active.map_or(l.key.priority.level(), |(level, _)| level);
        let better = self.queues.get(&l.key.queue).map_or(0, |q| {
            let lanes = q.active.better(level, &self.caps, bound);
            lanes.iter().filter_map(|id| self.lanes.get(id)).map(|l| l.ready.len() as u64).sum()
        });
        (better, own)
    }
}
