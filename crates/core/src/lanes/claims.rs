//! Claims: picking jobs within every limit, and following the picks of another process.

use super::{Exclusive, Lane, LaneId, Lanes, Queue, QueueId, Suspect, group_limit};
use crate::ids::Seq;
use crate::limits::{LANE_QUANTUM, LANE_ROUND, LEAST_QUANTUM, WHOLE_ROUNDS_FROM};
use crate::time::Timestamp;

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

/// How far a visit moves the virtual time of a queue of weight 1, for each job.
const QUEUE_STEP: u64 = 1 << 20;

impl Lane {
    /// Jobs in one of its turns, next to so many lanes. Of an account of an API one: how many it takes is not known before one has asked,
    /// and a call takes so long that nobody sees what longer turns save.
    fn quantum(&self, lanes: u64) -> u64 {
        if self.key.connector.is_some() && lanes > 1 {
            return 1;
        }
        (LANE_ROUND / lanes.max(1)).clamp(LEAST_QUANTUM, u64::from(LANE_QUANTUM))
    }
}

impl Lanes {
    /// Picks jobs within every limit. What is picked counts as running from now on. A claim that picks nothing changes
    /// nothing.
    pub fn claim(&mut self, appetite: &Appetite<'_>, now: Timestamp) -> Vec<Picked> {
        let mut room: Vec<(QueueId, u32)> = appetite.queues.to_vec();
        if appetite.max == 0 || self.next_queue(&room, now).is_none() {
            return vec![];
        }
        let mut picked = Vec::with_capacity(appetite.max.min(1_024) as usize);
        self.level_queues(appetite.queues.iter().map(|(id, _)| *id));
        while (picked.len() as u32) < appetite.max {
            let Some(slot) = self.next_queue(&room, now) else { break };
            let (queue_id, queue_room) = &mut room[slot];
            let left = appetite.max - picked.len() as u32;
            let round = self.round(*queue_id);
            let taken = self.visit(*queue_id, left.min(*queue_room), now, &mut picked);
            *queue_room -= taken;
            if taken == 0 || self.is_whole(left - taken, appetite.max, *queue_id, round) {
                break;
            }
        }
        picked
    }

    /// Whether a claim on these queues would find a job or a suspect, or time has something to do for it first.
    pub fn has_something_for(&self, queues: &[(QueueId, u32)], now: Timestamp) -> bool {
        let suspect = |(id, left): &(QueueId, u32)| {
            let queue = self.queues.get(id).filter(|queue| *left > 0 && queue.free(now) > 0);
            queue.is_some_and(|queue| queue.active.first_suspect(&self.caps).is_some())
        };
        self.ages(now) || self.next_queue(queues, now).is_some() || queues.iter().any(suspect)
    }

    /// Which round of turns the next visit of a queue belongs to: level, number, and how many jobs a round has.
    fn round(&self, queue_id: QueueId) -> Option<(u8, u64, u64)> {
        let queue = self.queues.get(&queue_id)?;
        let (level, vtime, first) = queue.active.first(&self.caps)?;
        let lanes = queue.active.at(usize::from(level - 1), &self.caps);
        let quantum = self.lanes.get(&first)?.quantum(lanes);
        Some((level, vtime / quantum, if lanes > 1 { lanes * quantum } else { 0 }))
    }

    /// Whether a large claim of which so much is left is best ended here: several lanes have had their turns, and the next ones would be
    /// cut short. What was enqueued in turns then goes from one claim to the next without gaps.
    fn is_whole(&self, left: u32, max: u32, queue_id: QueueId, visited: Option<(u8, u64, u64)>) -> bool {
        if max < WHOLE_ROUNDS_FROM || left > max / 8 {
            return false;
        }
        let all_fit = self.queues.get(&queue_id).is_none_or(|q| q.ready <= u64::from(left));
        let Some(((level, round, _), (next_level, next, jobs))) = visited.zip(self.round(queue_id)) else {
            return false;
        };
        !all_fit && level == next_level && round < next && u64::from(left) < jobs
    }

    /// Does to the lanes what the claim of another process did: on these queues it picked these jobs, in this order.
    /// False if one of them is not ready here.
    #[must_use]
    pub fn take(
        &mut self,
        queues: impl Iterator<Item = QueueId> + Clone,
        picked: impl Iterator<Item = (LaneId, Seq)>,
        now: Timestamp,
    ) -> bool {
        self.level_queues(queues);
        // A visit that took less than a turn emptied or filled something, so the next one went elsewhere: the jobs
        // of one lane that stand together, a turn at a time, are the visits.
        let mut picked = picked.peekable();
        while let Some((lane_id, first)) = picked.next() {
            let turn = self.turn(lane_id);
            let Some(lane) = self.lanes.get_mut(&lane_id) else { return false };
            if lane.ready.remove(&first).is_none() {
                return false;
            }
            let mut k = 1;
            let cautious = !self.cautions.is_empty();
            let mut asking = Vec::from_iter(cautious.then_some(first));
            while k < turn
                && let Some((_, seq)) = picked.next_if(|(id, _)| *id == lane_id)
            {
                if lane.ready.remove(&seq).is_none() {
                    return false;
                }
                k += 1;
                asking.extend(cautious.then_some(seq));
            }
            self.serve(lane_id, k, now);
            self.ask(lane_id, asking.into_iter(), now);
        }
        true
    }

    /// Lets queues that woke start level with those they share this worker with: neither punished for having been
    /// idle, nor rewarded.
    fn level_queues(&mut self, queues: impl Iterator<Item = QueueId> + Clone) {
        let vtimes = |woken: bool| {
            let caps = &self.caps;
            let of = move |q: &&Queue| q.woken == woken && q.active.first(caps).is_some();
            queues.clone().filter_map(|id| self.queues.get(&id)).filter(of).map(|q| q.vtime)
        };
        let Some(start) = vtimes(false).min().or_else(|| vtimes(true).max()) else { return };
        for id in queues {
            let caps = &self.caps;
            if let Some(q) = self.queues.get_mut(&id).filter(|q| q.woken && q.active.first(caps).is_some()) {
                q.vtime = q.vtime.max(start);
                q.woken = false;
            }
        }
    }

    /// The queue to visit: best level first, then the smallest virtual time.
    fn next_queue(&self, room: &[(QueueId, u32)], now: Timestamp) -> Option<usize> {
        let mut best: Option<((u8, u64, QueueId), usize)> = None;
        for (slot, (id, left)) in room.iter().enumerate() {
            let Some(q) = self.queues.get(id).filter(|_| *left > 0) else { continue };
            let Some((level, _, _)) = q.active.first(&self.caps) else { continue };
            let rank = (level, q.vtime, *id);
            if best.as_ref().is_none_or(|(b, _)| rank < *b) && q.free(now) > 0 {
                best = Some((rank, slot));
            }
        }
        best.map(|(_, slot)| slot)
    }

    /// Most jobs of one visit: what is left of the lane's turn. With many lanes turns are shorter, so that a large claim comes to all of
    /// them: their jobs tend to have been enqueued in turns, and what lies together is then read and written together. For the same
    /// reason a turn that the end of a claim has cut short is finished by the next one: turns of all lanes end at the same virtual times,
    /// or lanes would get ever further out of step. Follows from the lanes alone, as whoever follows a claim has to find the same.
    fn turn(&self, lane_id: LaneId) -> u32 {
        let Some(lane) = self.lanes.get(&lane_id) else { return LANE_QUANTUM };
        let Some(queue) = self.queues.get(&lane.key.queue) else { return LANE_QUANTUM };
        let (level, vtime) = lane.place();
        let quantum = lane.quantum(queue.active.at(level, &self.caps));
        let turn = (quantum - vtime % quantum) as u32;
        // Where some are awaited, the others come in another visit, if there is room for them.
        if lane.awaited > 0 { turn.min(lane.awaited) } else { turn }
    }

    /// Takes up to what is left of its turn from the first active lane of a queue.
    fn visit(&mut self, queue_id: QueueId, most: u32, now: Timestamp, picked: &mut Vec<Picked>) -> u32 {
        let Some(queue) = self.queues.get(&queue_id) else { return 0 };
        let Some((_, _, lane_id)) = queue.active.first(&self.caps) else { return 0 };
        let may_ask = self.may_ask(lane_id);
        let turn = self.turn(lane_id);
        let Some(lane) = self.lanes.get_mut(&lane_id) else { return 0 };
        let group_free = group_limit(&queue.settings, &lane.key.group).map_or(u32::MAX, |limit| {
            let group = self.groups.get(lane.group);
            limit.saturating_sub(group.map_or(0, |g| g.running))
        });
        let kind_free = lane.key.kind.map_or(u32::MAX, |kind| self.caps.free(kind));
        let k = most
            .min(queue.free(now))
            .min(kind_free)
            .min(group_free)
            .min(may_ask)
            .min(turn)
            .min(lane.ready.len() as u32);
        for _ in 0..k {
            if let Some((seq, ready_at)) = lane.ready.pop_first() {
                picked.push(Picked { seq, lane: lane_id, ready_at });
            }
        }
        self.serve(lane_id, k, now);
        if may_ask < u32::MAX {
            let taken = picked.len() - k as usize;
            self.ask(lane_id, picked[taken..].iter().map(|p| p.seq), now);
        }
        k
    }

    /// A visit took this many jobs out of a lane: they run now, and virtual time goes on.
    fn serve(&mut self, lane_id: LaneId, k: u32, now: Timestamp) {
        let Some(lane) = self.lanes.get_mut(&lane_id) else { return };
        let Some(queue) = self.queues.get_mut(&lane.key.queue) else { return };
        let Some(group) = self.groups.get_mut(lane.group) else { return };
        let base = usize::from(lane.key.priority.level() - 1);
        let (here, vtime) = lane.place();
        queue.pass(here, vtime, k, &self.caps);
        self.caps.shift(lane.key.kind, k, true);
        lane.vtime[here] = vtime + u64::from(k);
        if here != base {
            lane.vtime[base] += u64::from(k);
        }
        queue.vtime += u64::from(k) * QUEUE_STEP / u64::from(queue.settings.weight);
        queue.ready -= u64::from(k);
        queue.running += k;
        if let Some(limiter) = queue.settings.limiter {
            queue.window.record(limiter, now, k);
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
    }

    /// Finds a suspect that may run, in a lease of its own. [`take_suspect`](Self::take_suspect) takes it.
    pub fn find_suspect(&self, queues: &[(QueueId, u32)], room: SuspectRoom, now: Timestamp) -> SuspectPick {
        if room == SuspectRoom::None {
            return SuspectPick::Nothing;
        }
        for (id, left) in queues {
            let Some(queue) = self.queues.get(id).filter(|_| *left > 0) else { continue };
            let Some((seq, lane)) = queue.active.first_suspect(&self.caps) else { continue };
            if queue.free(now) == 0 {
                continue;
            }
            let suspect = self.lanes.get(&lane).and_then(|l| l.suspects.get(&seq));
            let Some(&Suspect { ready_at, exclusive }) = suspect else { continue };
            if exclusive && room != SuspectRoom::Alone {
                return SuspectPick::DrainFirst(lane, seq);
            }
            return SuspectPick::Run(Picked { seq, lane, ready_at }, Exclusive(exclusive));
        }
        SuspectPick::Nothing
    }

    /// A suspect runs from now on. False if it is none that is ready here.
    #[must_use]
    pub fn take_suspect(&mut self, lane_id: LaneId, seq: Seq, now: Timestamp) -> bool {
        let Some(lane) = self.lanes.get_mut(&lane_id) else { return false };
        let Some(queue) = self.queues.get_mut(&lane.key.queue) else { return false };
        if lane.suspects.remove(&seq).is_none() {
            return false;
        }
        queue.ready -= 1;
        queue.suspects -= 1;
        if let Some(limiter) = queue.settings.limiter {
            queue.window.record(limiter, now, 1);
        }
        self.shift_running(lane_id, true, now);
        self.refresh(lane_id, now);
        true
    }
}
