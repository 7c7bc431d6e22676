//! Claim: within every limit and park, under one lease.

use std::collections::{HashMap, HashSet};

use tidegate_core::codes;
use tidegate_core::gates::Room;
use tidegate_core::ids::{JobId, LeaseId, ProcessId, QueueName, Seq};
use tidegate_core::job::UniqueScope;
use tidegate_core::lanes::{Appetite, Exclusive, LaneId, Picked, QueueId, SuspectPick};
use tidegate_core::limits;
use tidegate_core::time::Timestamp;

use super::hints::Need;
use super::{Change, Draining, Face, Leased, LeasedJob, Machine};
use crate::meter::SeenWhat;
use crate::params::{Beat, Claim, Claimed, ClaimedJob, GrantedLease, Ticket};
use crate::rows::{JobRow, LeaseRow, Rows};
use crate::{Error, Result};

/// What is known of jobs that gates have admitted.
#[derive(Debug)]
pub struct Asked {
    /// They were handed out with caution, because a gate has refused.
    pub ask: Vec<(JobId, Room)>,
    /// They do not run, as far as is known here.
    pub unknown: Vec<(JobId, Room)>,
}

impl<R: Rows> Machine<R> {
    /// Hands out jobs under one lease.
    pub fn claim(&mut self, claim: Claim) -> Result<Claimed> {
        let queues = self.asked_of(&claim)?;
        let foreseen = if cfg!(debug_assertions) { self.in_vain(&claim) } else { None };
        self.advance(claim.now)?;
        let now = self.last_now;
        let (picked, lone) = self.pick(&claim, &queues, now);
        let mut reply = Claimed { lease: None, jobs: vec![], next_wakeup: None };
        if !picked.is_empty() {
            reply = self.grant(&claim, &queues, &picked, lone)?;
            self.keep_starts(&picked, &queues, now)?;
        }
        reply.next_wakeup = self.wakeup(&queues, now);
        debug_assert!(foreseen.is_none_or(|foreseen| foreseen == reply), "a claim was not in vain");
        Ok(reply)
    }

    /// The queues of a claim, if there is nothing wrong with it.
    fn asked_of(&self, claim: &Claim) -> Result<Vec<(QueueId, u32)>> {
        if !limits::LEASE_MS.contains(&claim.lease_ms) {
            let detail = format!("a lease of {} ms; between 1 s and 1 h are allowed", claim.lease_ms);
            return Err(Error::new(codes::INVALID_TIME, detail));
        }
        let names: HashSet<&QueueName> = claim.queues.iter().map(|(name, _)| name).collect();
        if names.len() < claim.queues.len() {
            return Err(Error::new(codes::INVALID_REQUEST, "a queue is named twice in one claim"));
        }
        claim.queues.iter().map(|(name, room)| Ok((self.queue_id(name)?, *room))).collect()
    }

    /// The answer to a claim, if it is certain without looking at rows that it finds nothing, and nothing else is to be done by now.
    pub fn in_vain(&self, claim: &Claim) -> Option<Claimed> {
        // That a clock went back is for the claim to notice, and what is wrong with it for the claim to say.
        if !self.is_on_time(claim.now) {
            return None;
        }
        let now = claim.now.max(self.last_now);
        let queues = self.asked_of(claim).ok()?;
        if self.has_something_due(now) || self.memory.lanes.has_something_for(&queues, now) {
            return None;
        }
        let next_wakeup = self.wakeup(&queues, now);
        next_wakeup.is_none_or(|at| now < at).then_some(Claimed { lease: None, jobs: vec![], next_wakeup })
    }

    /// Which of these jobs ask: what gates say of the others that run changes nothing.
    pub fn that_ask(&self, jobs: Vec<(JobId, Room)>) -> Asked {
        let asking = if self.memory.lanes.is_cautious() { self.asking() } else { HashMap::new() };
        let (ask, mut unknown): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|(id, _)| asking.contains_key(id));
        let mut missing: HashSet<JobId> = unknown.iter().map(|(id, _)| *id).collect();
        let mut running = self.memory.leases.all_running();
        while !missing.is_empty()
            && let Some((_, running)) = running.next()
        {
            missing.remove(&running.id);
        }
        unknown.retain(|(id, _)| missing.contains(id));
        Asked { ask, unknown }
    }

    /// Jobs that were handed out with caution and have not been answered.
    fn asking(&self) -> HashMap<JobId, Seq> {
        let (lanes, leases) = (&self.memory.lanes, &self.memory.leases);
        lanes.asking().filter_map(|seq| Some((leases.running(seq)?.id, seq))).collect()
    }

    /// Gates have admitted these running jobs, and said how many more like each would pass: scopes that were handed out with
    /// caution may yield more. Changes no row.
    pub fn admitted(&mut self, jobs: &[(JobId, Room)], now: Timestamp) -> Result<()> {
        if !self.memory.lanes.is_cautious() {
            return Ok(());
        }
        self.tick(now)?;
        let asking = self.asking();
        for (id, room) in jobs {
            if let Some(seq) = asking.get(id) {
                self.change(Change::Admitted(*seq, *room))?;
            }
        }
        Ok(())
    }

    /// What the claim gets: one suspect, which is still where it was, or jobs taken out of their lanes.
    fn pick(
        &mut self,
        claim: &Claim,
        queues: &[(QueueId, u32)],
        now: Timestamp,
    ) -> (Vec<Picked>, Option<Exclusive>) {
        let max = claim.max.min(limits::MAX_CLAIM_BATCH as u32);
        if max == 0 || self.memory.leases.runs_exclusive(claim.process) {
            return (vec![], None);
        }
        let room = self.memory.leases.suspect_room(claim.process);
        let drains = match self.memory.lanes.find_suspect(queues, room, now) {
            SuspectPick::Run(picked, exclusive) => {
                self.draining.remove(&claim.process);
                self.memory.signals.keep = true;
                return (vec![picked], Some(exclusive));
            }
            SuspectPick::DrainFirst(lane, seq) => self.drain(claim, lane, seq, now),
            SuspectPick::Nothing => self.drains_for_another(claim.process, now),
        };
        if drains {
            return (vec![], None);
        }
        (self.memory.pick(&Appetite { queues, max }, now), None)
    }

    /// A suspect must run alone in this process. Its workers claim nothing for the length of a lease; if what they run
    /// takes longer than that, they go on with ordinary work for as long and try again.
    fn drain(&mut self, claim: &Claim, lane: LaneId, seq: Seq, now: Timestamp) -> bool {
        let fresh = Draining { lane, seq, until: now.plus_ms(claim.lease_ms), span_ms: claim.lease_ms };
        self.draining.retain(|_, d| now < d.until.plus_ms(2 * d.span_ms));
        let current = self.draining.entry(claim.process).or_insert(fresh);
        if current.seq != seq || now >= current.until.plus_ms(current.span_ms) {
            *current = fresh;
        }
        now < current.until
    }

    /// Whether this process drains for a suspect, which may be of a queue that the claiming worker does not serve.
    fn drains_for_another(&self, process: ProcessId, now: Timestamp) -> bool {
        self.draining
            .get(&process)
            .is_some_and(|d| now < d.until && self.memory.lanes.suspect_since(d.lane, d.seq).is_some())
    }

    /// Whether this process gets nothing because of a suspect, though others might.
    pub(super) fn holds_back(&self, process: ProcessId) -> bool {
        self.memory.leases.runs_exclusive(process) || self.drains_for_another(process, self.last_now)
    }

    fn grant(
        &mut self,
        claim: &Claim,
        queues: &[(QueueId, u32)],
        picked: &[Picked],
        lone: Option<Exclusive>,
    ) -> Result<Claimed> {
        let id = LeaseId(self.memory.next_lease);
        self.hint_rows(picked.iter().map(|p| p.seq), Need::JobAndState)?;
        let mut handed = Vec::with_capacity(picked.len());
        let mut jobs = Vec::with_capacity(picked.len());
        let seqs: Vec<Seq> = picked.iter().map(|p| p.seq).collect();
        let rows = self.rows.jobs(&seqs)?;
        if rows.len() != picked.len() {
            return Err(Error::internal("a job that is ready is missing"));
        }
        for (p, (_, row)) in picked.iter().zip(rows) {
            let (job, leased) = self.claimed_job(*p, row, id)?;
            let face = Face {
                id: leased.id,
                queue: self.queue_of(p.lane)?,
                kind: leased.kind,
                tenant: leased.tenant,
            };
            self.memory.saw(face, SeenWhat::Started { wait_ms: self.last_now.since(p.ready_at) });
            jobs.push(leased);
            handed.push(job);
        }
        let leased = Box::new(Leased {
            id,
            worker: claim.worker.clone(),
            process: claim.process,
            length_ms: claim.lease_ms,
            lone,
            queues: queues.iter().map(|(id, _)| *id).collect(),
            jobs,
        });
        match lone {
            Some(_) => self.change(Change::Leased(leased))?,
            None => self.memory.grant(self.last_now, leased)?,
        }
        let granted = self.memory.leases.get(id).ok_or_else(|| Error::internal("a lease is missing"))?;
        self.rows.put_lease(&LeaseRow::from(granted))?;
        Ok(Claimed {
            lease: Some(GrantedLease { id, until: granted.until }),
            jobs: handed,
            next_wakeup: None,
        })
    }

    /// The job as the worker gets it, and as the lease holds it.
    fn claimed_job(
        &mut self,
        picked: Picked,
        mut row: JobRow,
        lease: LeaseId,
    ) -> Result<(ClaimedJob, LeasedJob)> {
        let missing = || Error::internal(format!("a name of job {} is missing", picked.seq.0));
        let state = self.state_of(picked.seq)?;
        let attempt = state.failures + 1;
        let mut leased = LeasedJob {
            seq: picked.seq,
            from: picked.lane,
            // It has the same queue and group as the one it was picked from, and lives as long as the job does.
            home: (row.lane != picked.lane).then_some(row.lane),
            id: row.id,
            kind: row.kind,
            tenant: row.tenant,
            attempt,
            unique: false,
        };
        if let Some(unique) = row.extra.as_ref().and_then(|e| e.unique.as_ref()) {
            match unique.scope {
                UniqueScope::Pending => self.rows.delete_unique(row.kind, &unique.key, picked.seq)?,
                UniqueScope::PendingOrRunning => leased.unique = true,
                UniqueScope::PeriodMs(_) => {}
            }
        }
        let names = &self.memory.names;
        let key = self.memory.lanes.lane_key(picked.lane).ok_or_else(missing)?;
        let (kind, _) = names.kind(row.kind).ok_or_else(missing)?;
        let (queue, _) = names.queue(key.queue).ok_or_else(missing)?;
        let job = ClaimedJob {
            ticket: Ticket { lease, seq: picked.seq },
            id: row.id,
            queue: queue.clone(),
            kind: kind.clone(),
            tenant: row.tenant.and_then(|no| names.tenant(no).cloned()),
            group: key.group.clone(),
            connector: key.connector.clone(),
            payload: state.payload.unwrap_or(row.payload),
            priority: key.priority,
            attempt,
            timeout_ms: row.timeout_ms,
            created_at: row.created_at,
            ready_at: picked.ready_at,
            dependencies: row.extra.as_ref().and_then(|e| e.flow).map_or(0, |flow| flow.total),
            trace: row.extra.as_mut().and_then(|e| e.trace.take()),
            schedule: row.extra.and_then(|e| e.schedule),
        };
        Ok((job, leased))
    }

    /// Keeps the starts that limiters count, so that they survive a restart.
    fn keep_starts(&mut self, picked: &[Picked], queues: &[(QueueId, u32)], now: Timestamp) -> Result<()> {
        for (queue, _) in queues {
            let Some(limiter) = self.memory.names.queue(*queue).and_then(|(_, s)| s.limiter) else {
                continue;
            };
            let of_queue =
                |p: &&Picked| self.memory.lanes.lane_key(p.lane).is_some_and(|key| key.queue == *queue);
            let started = picked.iter().filter(of_queue).count() as u32;
            if started > 0 {
                self.memory.signals.keep = true;
                self.rows.add_starts(*queue, now, started)?;
                self.rows.drop_starts(*queue, now.plus_ms(-limiter.per_ms))?;
            }
        }
        Ok(())
    }

    /// When a claim on these queues may find something without a signal.
    fn wakeup(&self, queues: &[(QueueId, u32)], now: Timestamp) -> Option<Timestamp> {
        // Another queue's schedule or leases are no reason to come back.
        let any = |f: fn(&Self, QueueId) -> bool| queues.iter().any(|(id, _)| f(self, *id));
        let known = &self.memory;
        let due =
            known.next_due.filter(|_| any(|m, id| m.memory.counts.get(&id).is_some_and(|c| c.scheduled > 0)));
        let expiry = known.leases.next_expiry().filter(|_| any(|m, id| m.memory.lanes.running_count(id) > 0));
        let more = (!known.untold.is_empty()).then_some(now);
        let drained = self.draining.values().map(|d| d.until).filter(|t| *t > now).min();
        [known.lanes.next_wakeup(queues, now), due, expiry, drained, more].into_iter().flatten().min()
    }

    /// Extends leases.
    pub fn heartbeat(&mut self, leases: Vec<LeaseId>, now: Timestamp) -> Result<Vec<Beat>> {
        let now = self.tick(now)?;
        let mut beats = Vec::with_capacity(leases.len());
        for id in leases {
            let Some(until) = self.memory.leases.extended(id, now) else {
                beats.push(Beat { lease: id, until: None, cancel: vec![] });
                continue;
            };
            self.change(Change::Extended(id, until))?;
            self.rows.extend_lease(id, until)?;
            let asked = self.memory.leases.held(id).filter(|(_, running)| running.cancel_requested);
            beats.push(Beat { lease: id, until: Some(until), cancel: asked.map(|(seq, _)| seq).collect() });
        }
        Ok(beats)
    }
}
