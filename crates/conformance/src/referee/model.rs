//! The referee's model: who holds what, and what ended.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use tidegate_core::ids::{ConnectorName, GroupKey, JobId, KindName, LeaseId, ProcessId, QueueName, Seq};
use tidegate_core::job::{OnDead, ParkScope, State};
use tidegate_core::registry::Limiter;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{
    Beat, CancelReply, Claim, Claimed, EnqueueOutcome, Enqueued, NewJob, Outcome, Recover, Recovered, Settle,
    Settled, Settlement, Ticket,
};

use super::{Event, Violation};

/// Stalls of its own lease after which a job is dead.
const LONE_STALLS: u32 = 3;
/// A step back that is taken as standing still.
const SLACK_MS: i64 = 1_000;

pub(super) type Verdict = Result<(), Violation>;

/// What the referee knows of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFate {
    /// Its queue.
    pub queue: QueueName,
    /// Its group.
    pub group: GroupKey,
    /// The lease that holds it.
    pub held: Option<LeaseId>,
    /// How it ended.
    pub end: Option<State>,
    /// Times it ended as completed.
    pub completions: u32,
    /// Times it was handed out.
    pub starts: u32,
    /// Whether its last lease stalled.
    pub suspect: bool,
    /// Stalls of leases of its own.
    pub lone_stalls: u32,
    /// Not to be started before the clock has shown this.
    earliest: Timestamp,
    cancel: bool,
    connector: Option<ConnectorName>,
    /// What it waits for.
    pub(super) after: Vec<JobId>,
    pub(super) on_dead: OnDead,
}

#[derive(Debug)]
struct Lease {
    process: ProcessId,
    until: Timestamp,
    length_ms: i64,
    lone: bool,
    exclusive: bool,
    jobs: BTreeMap<Seq, JobId>,
}

#[derive(Debug, Default)]
struct QueueRules {
    concurrency: Option<u32>,
    group_concurrency: Option<u32>,
    limiter: Option<Limiter>,
    starts: VecDeque<Timestamp>,
}

/// The judge.
#[derive(Debug, Default)]
pub struct Referee {
    pub(super) jobs: HashMap<JobId, JobFate>,
    /// Who waits, or waited, for a job.
    pub(super) children: HashMap<JobId, Vec<JobId>>,
    /// What dead jobs were recovered as.
    pub(super) recovered: HashMap<JobId, JobId>,
    leases: BTreeMap<LeaseId, Lease>,
    queues: HashMap<QueueName, QueueRules>,
    kinds: HashMap<KindName, QueueName>,
    connectors: HashMap<KindName, ConnectorName>,
    parks: HashMap<(ParkScope, String), Option<Timestamp>>,
    last_lease: Option<LeaseId>,
    now: Timestamp,
    /// The latest time ever seen.
    latest: Timestamp,
}

impl Referee {
    /// What is known of all jobs.
    pub fn jobs(&self) -> impl Iterator<Item = (JobId, &JobFate)> {
        self.jobs.iter().map(|(id, fate)| (*id, fate))
    }

    /// What is known of a job.
    pub fn job(&self, id: JobId) -> Option<&JobFate> {
        self.jobs.get(&id)
    }

    /// Says that jobs of a kind call this API, so that parks of it are judged.
    pub fn kind_calls(&mut self, kind: KindName, connector: ConnectorName) {
        self.connectors.insert(kind, connector);
    }

    /// Jobs of a queue that are held, by leases that nobody has taken back yet.
    pub fn running(&self, queue: &QueueName) -> u64 {
        self.jobs.values().filter(|j| j.held.is_some() && j.queue == *queue).count() as u64
    }

    /// Judges one event.
    pub fn observe(&mut self, event: &Event) -> Verdict {
        match event {
            Event::Queue(name, settings, now) => {
                self.tick(*now);
                let rules = self.queues.entry(name.clone()).or_default();
                rules.concurrency = settings.concurrency;
                rules.group_concurrency = settings.group_concurrency;
                // A longer window cannot know what had left the shorter one.
                if settings.limiter.map(|l| l.per_ms) != rules.limiter.map(|l| l.per_ms) {
                    rules.starts.clear();
                }
                rules.limiter = settings.limiter;
                Ok(())
            }
            Event::Kind(kind, queue) => {
                self.kinds.insert(kind.clone(), queue.clone());
                Ok(())
            }
            Event::Enqueued(jobs, reply, now) => self.enqueued(jobs, reply, *now),
            Event::Claimed(claim, reply) => self.claimed(claim, reply),
            Event::Settled(settle, reply) => self.settled(settle, reply),
            Event::Beaten(leases, reply, now) => self.beaten(leases, reply, *now),
            Event::Reported(tickets, reply, now) => {
                self.tick(*now);
                tickets.iter().zip(reply).try_for_each(|(ticket, applied)| {
                    match (self.holds(*ticket), applied) {
                        (false, true) => Err(Violation::StaleApplied(*ticket)),
                        (true, false) => Err(Violation::HolderRefused(*ticket)),
                        _ => Ok(()),
                    }
                })
            }
            Event::Cancelled(id, reply, now) => self.cancelled(*id, *reply, *now),
            Event::Cascaded(id, reply, now) => self.cascaded(*id, *reply, *now),
            Event::RunNow(id, state, now) => {
                self.tick(*now);
                if let Some(job) = self.jobs.get_mut(id).filter(|_| *state == State::Ready) {
                    job.earliest = job.earliest.min(self.latest);
                }
                Ok(())
            }
            Event::Recovered(letters, reply, now) => self.recovered(letters, reply, *now),
            Event::Parked(scope, by, until, now) => {
                self.tick(*now);
                self.parks.insert((scope.clone(), by.clone()), *until);
                Ok(())
            }
            Event::Unparked(scope, by, now) => {
                self.tick(*now);
                self.parks.remove(&(scope.clone(), by.clone()));
                Ok(())
            }
            Event::Advanced(now) => {
                self.tick(*now);
                self.take_back()
            }
            Event::Restarted(now) => {
                self.rebase(*now);
                Ok(())
            }
            Event::Seen(now) => {
                self.tick(*now);
                Ok(())
            }
        }
    }

    fn tick(&mut self, now: Timestamp) {
        if now >= self.now.plus_ms(-SLACK_MS) {
            self.now = self.now.max(now);
            self.latest = self.latest.max(now);
            return;
        }
        self.rebase(now);
    }

    fn rebase(&mut self, now: Timestamp) {
        // What had left its window by the old clock does not come back with the new one.
        for rules in self.queues.values_mut() {
            let per_ms = rules.limiter.map_or(0, |l| l.per_ms);
            rules.starts.retain(|at| self.now.since(*at) < per_ms);
        }
        self.now = now;
        self.latest = self.latest.max(self.now);
        for lease in self.leases.values_mut() {
            lease.until = lease.until.min(self.now.plus_ms(lease.length_ms));
        }
        for at in self.queues.values_mut().flat_map(|q| &mut q.starts) {
            *at = (*at).min(self.now);
        }
    }

    fn holds(&self, ticket: Ticket) -> bool {
        self.leases.get(&ticket.lease).is_some_and(|l| l.jobs.contains_key(&ticket.seq))
    }

    pub(super) fn end(&mut self, id: JobId, state: State) -> Verdict {
        let job = self.jobs.get_mut(&id).ok_or(Violation::NotClaimable(id, "is unknown"))?;
        if let Some(before) = job.end {
            return Err(Violation::FinishedTwice(id, state, before));
        }
        job.end = Some(state);
        job.completions += u32::from(state == State::Completed);
        self.pass_on(id)
    }

    /// Takes back every lease whose time is over, as each claim and each upkeep does.
    fn take_back(&mut self) -> Verdict {
        self.parks.retain(|_, until| until.is_none_or(|t| t > self.now));
        let over: Vec<LeaseId> =
            self.leases.iter().filter(|(_, l)| l.until <= self.now).map(|(id, _)| *id).collect();
        for id in over {
            let Some(lease) = self.leases.remove(&id) else { continue };
            for job_id in lease.jobs.into_values() {
                let Some(job) = self.jobs.get_mut(&job_id) else { continue };
                job.held = None;
                job.suspect = true;
                job.lone_stalls += u32::from(lease.lone && !job.cancel);
                let (cancel, dead) = (job.cancel, job.lone_stalls >= LONE_STALLS);
                if cancel {
                    self.end(job_id, State::Cancelled)?;
                } else if dead {
                    self.end(job_id, State::Dead)?;
                }
            }
        }
        Ok(())
    }

    fn enqueued(&mut self, jobs: &[NewJob], reply: &[Enqueued], now: Timestamp) -> Verdict {
        self.tick(now);
        if jobs.len() != reply.len() {
            return Err(Violation::Nonsense(format!("{} jobs, {} replies", jobs.len(), reply.len())));
        }
        // Jobs that wait are made after those that do not, so one may have found the key of a later one held.
        let mut pairs: Vec<_> = jobs.iter().zip(reply).collect();
        pairs.sort_by_key(|(_, reply)| reply.outcome != EnqueueOutcome::Created);
        let mut made = vec![];
        for (job, reply) in pairs {
            match reply.outcome {
                EnqueueOutcome::Created if reply.id != job.id || self.jobs.contains_key(&job.id) => {
                    return Err(Violation::Nonsense(format!(
                        "{} was made twice or under another id",
                        job.id
                    )));
                }
                EnqueueOutcome::Created => {
                    let queue = job.queue.as_ref().or_else(|| self.kinds.get(&job.kind)).cloned();
                    let queue =
                        queue.ok_or_else(|| Violation::Nonsense(format!("kind {} is unknown", job.kind)))?;
                    let group = job.group.clone().or_else(|| job.tenant.as_ref().map(GroupKey::from));
                    let fate = JobFate {
                        queue,
                        group: group.unwrap_or_else(GroupKey::none),
                        held: None,
                        end: None,
                        completions: 0,
                        starts: 0,
                        suspect: false,
                        lone_stalls: 0,
                        earliest: job.run_at.unwrap_or(Timestamp(0)),
                        cancel: false,
                        connector: self.connectors.get(&job.kind).cloned(),
                        after: job.after.clone(),
                        on_dead: job.on_dead,
                    };
                    self.jobs.insert(job.id, fate);
                    made.push(job.id);
                }
                EnqueueOutcome::Hastened => {
                    if let Some(job) = self.jobs.get_mut(&reply.id) {
                        job.earliest = Timestamp(0);
                    }
                }
                EnqueueOutcome::Kept | EnqueueOutcome::Replaced => {
                    if !self.jobs.contains_key(&reply.id) {
                        return Err(Violation::Lost(reply.id, "kept in a reply but was never made"));
                    }
                }
            }
        }
        self.follow(&made)
    }

    fn claimed(&mut self, claim: &Claim, reply: &Claimed) -> Verdict {
        self.tick(claim.now);
        self.take_back()?;
        if reply.jobs.len() > claim.max as usize {
            return Err(Violation::Greedy(claim.max, reply.jobs.len()));
        }
        let Some(granted) = reply.lease else {
            return if reply.jobs.is_empty() {
                Ok(())
            } else {
                Err(Violation::Nonsense("jobs without a lease".into()))
            };
        };
        if let Some(last) = self.last_lease.filter(|last| granted.id <= *last) {
            return Err(Violation::LeaseNotNew(granted.id, last));
        }
        self.last_lease = Some(granted.id);
        let mut lease = Lease {
            process: claim.process,
            until: self.now.plus_ms(claim.lease_ms),
            length_ms: claim.lease_ms,
            lone: false,
            exclusive: false,
            jobs: BTreeMap::new(),
        };
        for handed in &reply.jobs {
            if self.waits(handed.id) {
                return Err(Violation::NotClaimable(handed.id, "waits for another"));
            }
            let job = self
                .jobs
                .get_mut(&handed.id)
                .ok_or(Violation::NotClaimable(handed.id, "was never enqueued"))?;
            if job.end.is_some() {
                return Err(Violation::NotClaimable(handed.id, "was finished"));
            }
            if let Some(holder) = job.held {
                return Err(Violation::TwoHolders { job: handed.id, holder, new: granted.id });
            }
            if job.earliest > self.latest {
                return Err(Violation::NotClaimable(handed.id, "is put off"));
            }
            if !claim.queues.iter().any(|(q, room)| *q == job.queue && *room > 0) || handed.queue != job.queue
            {
                return Err(Violation::NotClaimable(handed.id, "is of another queue"));
            }
            if job.suspect {
                lease.lone = true;
                lease.exclusive = job.lone_stalls + 1 >= LONE_STALLS;
                if reply.jobs.len() > 1 {
                    return Err(Violation::SuspectShares(handed.id));
                }
            }
            job.held = Some(granted.id);
            job.starts += 1;
            lease.jobs.insert(handed.ticket.seq, handed.id);
            let covering = |scope: &ParkScope| match scope {
                ParkScope::Queue(q) => *q == job.queue,
                ParkScope::Group(g) => *g == job.group,
                ParkScope::Connector(c) => job.connector.as_ref() == Some(c),
                ParkScope::GroupOnConnector(g, c) => *g == job.group && job.connector.as_ref() == Some(c),
            };
            if self.parks.keys().any(|(scope, _)| covering(scope)) {
                return Err(Violation::NotClaimable(handed.id, "is parked"));
            }
        }
        self.check_process(&lease)?;
        self.check_limits(&lease)?;
        self.leases.insert(granted.id, lease);
        Ok(())
    }

    /// One suspect per process; a last chance has its process for itself.
    fn check_process(&self, new: &Lease) -> Verdict {
        let beside: Vec<&Lease> = self.leases.values().filter(|l| l.process == new.process).collect();
        let Some(first) = new.jobs.values().next() else { return Ok(()) };
        if new.lone && beside.iter().any(|l| l.lone) {
            return Err(Violation::TwoSuspects(new.process, *first));
        }
        if (new.exclusive && !beside.is_empty()) || beside.iter().any(|l| l.exclusive) {
            return Err(Violation::NotAlone(new.process, *first));
        }
        Ok(())
    }

    /// What was just handed out must not take a queue or a group over its limit, nor a window over its bound.
    fn check_limits(&mut self, new: &Lease) -> Verdict {
        let mut touched: HashSet<(QueueName, GroupKey)> = HashSet::new();
        for id in new.jobs.values() {
            let Some(job) = self.jobs.get(id) else { continue };
            touched.insert((job.queue.clone(), job.group.clone()));
            if let Some(rules) = self.queues.get_mut(&job.queue) {
                rules.starts.push_back(self.now);
            }
        }
        for (queue, group) in touched {
            let Some(rules) = self.queues.get_mut(&queue) else { continue };
            let held = |of: Option<&GroupKey>| {
                let fits =
                    |j: &&JobFate| j.held.is_some() && j.queue == queue && of.is_none_or(|g| j.group == *g);
                self.jobs.values().filter(fits).count()
            };
            if let Some(limit) = rules.concurrency.filter(|l| held(None) > *l as usize) {
                return Err(Violation::QueueOver(queue.clone(), held(None), limit));
            }
            if let Some(limit) =
                rules.group_concurrency.filter(|l| !group.is_none() && held(Some(&group)) > *l as usize)
            {
                let n = held(Some(&group));
                return Err(Violation::GroupOver(group, queue, n, limit));
            }
            let Some(limiter) = rules.limiter else {
                rules.starts.clear();
                continue;
            };
            rules.starts.retain(|at| self.now.since(*at) < limiter.per_ms);
            let n = rules.starts.len() as u32;
            if n > limiter.max {
                return Err(Violation::LimiterOver(queue, n, limiter.per_ms, limiter.max));
            }
        }
        Ok(())
    }

    fn settled(&mut self, settle: &Settle, reply: &[Settled]) -> Verdict {
        self.tick(settle.now);
        if settle.settlements.len() != reply.len() {
            return Err(Violation::Nonsense(format!(
                "{} settlements, {} replies",
                settle.settlements.len(),
                reply.len()
            )));
        }
        settle.settlements.iter().zip(reply).try_for_each(|(s, r)| self.settled_one(s, *r))
    }

    fn settled_one(&mut self, settlement: &Settlement, reply: Settled) -> Verdict {
        let Settlement { ticket, outcome } = settlement;
        let held = self.leases.get_mut(&ticket.lease).and_then(|l| l.jobs.remove(&ticket.seq));
        let id = match (held, reply) {
            (None, Settled::Stale) => return Ok(()),
            (None, _) => return Err(Violation::StaleApplied(*ticket)),
            (Some(_), Settled::Stale) => return Err(Violation::HolderRefused(*ticket)),
            (Some(id), _) => id,
        };
        if self.leases.get(&ticket.lease).is_some_and(|l| l.jobs.is_empty()) {
            self.leases.remove(&ticket.lease);
        }
        let Some(job) = self.jobs.get_mut(&id) else { return Ok(()) };
        job.held = None;
        job.suspect = false;
        job.earliest = Timestamp(0);
        if let Settled::Again(at) = reply {
            job.earliest = at;
        }
        let cancel = job.cancel;
        if let Outcome::Snooze { until, park: Some(scope), .. } = outcome
            && matches!(reply, Settled::Again(_))
            && !cancel
        {
            self.parks.insert((scope.clone(), "gate".into()), Some(*until));
        }
        match (outcome, reply) {
            (_, Settled::Applied(State::Completed)) if !matches!(outcome, Outcome::Complete(_)) => {
                Err(Violation::Nonsense(format!("{id} is completed though nobody completed it")))
            }
            (Outcome::Complete(_), Settled::Again(_) | Settled::Applied(State::Ready)) => {
                Err(Violation::Nonsense(format!("{id} was completed and is to run again")))
            }
            (_, Settled::Applied(state)) if state.is_final() => self.end(id, state),
            (_, Settled::Again(_) | Settled::Applied(_)) if cancel => {
                Err(Violation::Nonsense(format!("{id} was asked to stop and is to run again")))
            }
            _ => Ok(()),
        }
    }

    fn beaten(&mut self, leases: &[LeaseId], reply: &[Beat], now: Timestamp) -> Verdict {
        self.tick(now);
        for (id, beat) in leases.iter().zip(reply) {
            match (self.leases.get_mut(id), beat.until) {
                (Some(lease), Some(_)) => lease.until = lease.until.max(self.now.plus_ms(lease.length_ms)),
                (None, None) => {}
                (Some(_), None) => return Err(Violation::WrongBeat(*id, "lost", "held")),
                (None, Some(_)) => return Err(Violation::WrongBeat(*id, "held", "lost")),
            }
        }
        Ok(())
    }

    pub(super) fn cancelled(&mut self, id: JobId, reply: CancelReply, now: Timestamp) -> Verdict {
        self.tick(now);
        let Some(job) = self.jobs.get_mut(&id) else {
            return Err(Violation::Nonsense(format!("{id} was never enqueued and could be cancelled")));
        };
        match (reply, job.held, job.end) {
            (CancelReply::Requested, Some(_), None) => {
                job.cancel = true;
                Ok(())
            }
            (CancelReply::Cancelled, None, _) => self.end(id, State::Cancelled),
            (CancelReply::AlreadyFinished(state), _, Some(end)) if state == end => Ok(()),
            _ => Err(Violation::Nonsense(format!("{id} is {job:?}, a cancel was answered with {reply:?}"))),
        }
    }

    fn recovered(&mut self, letters: &[Recover], reply: &[Recovered], now: Timestamp) -> Verdict {
        self.tick(now);
        for (letter, reply) in letters.iter().zip(reply) {
            let Recovered::As(id) = reply else { continue };
            match self.jobs.get(&letter.dead) {
                Some(dead) if dead.end == Some(State::Dead) => {
                    let fate = JobFate {
                        held: None,
                        end: None,
                        completions: 0,
                        starts: 0,
                        suspect: false,
                        lone_stalls: 0,
                        earliest: Timestamp(0),
                        cancel: false,
                        ..dead.clone()
                    };
                    self.jobs.insert(*id, fate);
                    self.goes_on(letter.dead, *id);
                }
                _ => {
                    return Err(Violation::Nonsense(format!(
                        "{} was recovered but is not dead",
                        letter.dead
                    )));
                }
            }
        }
        Ok(())
    }

    /// Compares the store's word on a job with what the referee knows.
    pub fn check_state(&self, id: JobId, found: Option<State>) -> Verdict {
        let Some(job) = self.jobs.get(&id) else { return Ok(()) };
        let Some(found) = found else { return Err(Violation::Lost(id, "not to be found")) };
        match (job.end, job.held) {
            (Some(end), _) if end != found => Err(Violation::WrongState(id, end, found)),
            (None, Some(_)) if found != State::Running => {
                Err(Violation::WrongState(id, State::Running, found))
            }
            (None, None) => self.check_waiting(id, found),
            _ => Ok(()),
        }
    }
}
