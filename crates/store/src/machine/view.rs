//! Looking at jobs: everything known about one, and why it is where it is.

use std::collections::HashMap;

use tidegate_core::codes;
use tidegate_core::ids::{JobId, Seq};
use tidegate_core::job::{Held, Job, ScheduledBecause, State, Waits};
use tidegate_core::lanes::{Blocked, GATE_PARK, LaneId, QueueId};
use tidegate_core::time::Timestamp;
use tidegate_core::why::{Cause, Why};

use super::Machine;
use super::hints::Need;
use crate::params::JobQuery;
use crate::rows::{Candidate, DoneRow, Finished, JobRow, Rows, StateRow};
use crate::{Error, Result};

/// How far `why` counts in a job's own lane.
const AHEAD_BOUND: usize = 100_000;

impl<R: Rows> Machine<R> {
    /// Everything known about a job.
    pub fn get(&mut self, id: JobId) -> Result<Option<Job>> {
        match self.rows.find_job(id)? {
            Some(seq) => self.view(seq),
            None => Ok(None),
        }
    }

    /// Everything known about each of these jobs, but for those that are gone.
    pub fn views(&mut self, jobs: &[Seq]) -> Result<Vec<(Seq, Job)>> {
        self.hint_rows(jobs.iter().copied(), Need::Everything)?;
        let views = jobs.iter().map(|seq| Ok(self.look(*seq)?.map(|job| (*seq, job))));
        views.filter_map(Result::transpose).collect()
    }

    /// Everything known about a job, by its number.
    pub fn view(&mut self, seq: Seq) -> Result<Option<Job>> {
        self.hint_rows([seq].into_iter(), Need::Everything)?;
        self.look(seq)
    }

    /// Those that fit of the jobs that a reader found. What is finished is described as it was read, for nothing of it changes any more
    /// but its letter. The others are looked at: where they stand is in memory alone.
    pub fn look_at(&mut self, found: Vec<Candidate>, query: &JobQuery) -> Result<Vec<(Seq, Job)>> {
        let open = found.iter().filter_map(|candidate| match candidate {
            Candidate::Open(seq) => Some(*seq),
            Candidate::Finished(_) => None,
        });
        self.hint_rows(open, Need::Everything)?;
        let mut fit = Vec::with_capacity(found.len());
        for candidate in found {
            let (seq, job) = match candidate {
                Candidate::Open(seq) => (seq, self.look(seq)?),
                Candidate::Finished(finished) => {
                    let Finished { seq, job, state, done } = *finished;
                    let standing = (done.state, 0);
                    match self.describe(seq, job, state, Some(done), standing) {
                        Ok(job) => (seq, Some(job)),
                        // Pruned since then, and its lane with it; or damaged.
                        Err(_) => (seq, self.view(seq)?),
                    }
                }
            };
            fit.extend(job.filter(|job| query.matches(job)).map(|job| (seq, job)));
        }
        Ok(fit)
    }

    /// Jobs that a reader found by their ids, in the order of these.
    pub fn look_at_all(&mut self, found: Vec<Candidate>, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
        let found = self.look_at(found, &JobQuery::default())?;
        let jobs: HashMap<JobId, Job> = found.into_iter().map(|(_, job)| (job.id, job)).collect();
        Ok(ids.iter().map(|id| jobs.get(id).cloned()).collect())
    }

    fn look(&mut self, seq: Seq) -> Result<Option<Job>> {
        let Some(row) = self.rows.job(seq)? else { return Ok(None) };
        let stored = self.state_of(seq)?;
        let done = self.rows.done(seq)?;
        let state = match &done {
            Some(done) => done.state,
            None => self.unfinished(seq, &row, &stored)?,
        };
        let open = if state == State::Blocked { self.waits(seq)?.map_or(0, |row| row.open) } else { 0 };
        self.describe(seq, row, stored, done, (state, open)).map(Some)
    }

    /// A job with its state and the number of jobs that it still waits for, as people see it.
    fn describe(
        &self,
        seq: Seq,
        row: JobRow,
        stored: StateRow,
        done: Option<DoneRow>,
        (state, open): (State, u32),
    ) -> Result<Job> {
        let running = self.memory.leases.running(seq).copied();
        let lane = stored.lane.unwrap_or(row.lane);
        let missing = || Error::new(codes::CORRUPT, format!("a name of job {} is missing", row.id));
        let key = self.memory.lanes.lane_key(lane).ok_or_else(missing)?;
        let (queue, _) = self.memory.names.queue(key.queue).ok_or_else(missing)?;
        let (kind, kind_settings) = self.memory.names.kind(row.kind).ok_or_else(missing)?;
        let held = running.and_then(|r| {
            let lease = self.memory.leases.get(r.lease)?;
            Some(Held {
                lease: lease.id,
                worker: lease.worker.clone(),
                since: lease.since,
                until: lease.until,
                cancel_requested: r.cancel_requested,
            })
        });
        let attempt = match (&done, running) {
            (Some(done), _) => done.attempt,
            (None, Some(r)) => r.attempt,
            (None, None) => stored.failures,
        };
        let extra = row.extra.map(|e| *e).unwrap_or_default();
        Ok(Job {
            id: row.id,
            queue: queue.clone(),
            kind: kind.clone(),
            tenant: row.tenant.and_then(|no| self.memory.names.tenant(no).cloned()),
            group: key.group.clone(),
            connector: key.connector.clone(),
            // Whoever looks at a job sees no secrets; only the worker that runs it gets them.
            payload: kind_settings.shown(stored.payload.unwrap_or(row.payload)),
            priority: key.priority,
            state,
            created_at: row.created_at,
            run_at: stored.run_at.unwrap_or(row.run_at),
            scheduled_because: (state == State::Scheduled)
                .then(|| stored.because.unwrap_or(ScheduledBecause::Delay)),
            snooze_reason: stored.snooze_reason,
            attempt,
            max_attempts: row.max_attempts.or(kind_settings.max_attempts),
            timeout_ms: row.timeout_ms,
            retry: extra.retry.or_else(|| kind_settings.retry.clone()),
            unique: extra.unique,
            held,
            progress: stored.progress,
            log: stored.log,
            errors: stored.errors,
            snoozes: stored.snoozes,
            lone_stalls: stored.lone_stalls,
            result: done.as_ref().and_then(|d| d.result.clone()),
            finished_at: done.as_ref().map(|d| d.at),
            dead: done.and_then(|d| d.letter).map(|l| *l),
            recovered_from: extra.recovered_from,
            trace: extra.trace,
            waits: extra.flow.map(|flow| Waits { total: flow.total, open, on_dead: flow.on_dead }),
            schedule: extra.schedule,
        })
    }

    /// Why a job is where it is. Whether its queue is unserved is for the store to confirm, which knows who announced itself
    /// ([`confirmed`](crate::served::confirmed)).
    pub fn why(&mut self, id: JobId, now: Timestamp) -> Result<Why> {
        let now = now.max(self.last_now);
        let seq = self.find(id)?;
        let missing = || Error::internal(format!("job {id} is missing"));
        let job = self.view(seq)?.ok_or_else(missing)?;
        let (row, stored) = self.row_and_state(seq)?;
        let lane = stored.lane.unwrap_or(row.lane);
        let queue_id = self.queue_of(lane)?;
        let (_, queue) = self.memory.names.queue(queue_id).ok_or_else(missing)?;
        let policy = job.retry.as_ref().unwrap_or(&queue.retry);
        let last = job.errors.last();
        let of_category = last.filter(|_| job.retry.is_none());
        let of_category = of_category.and_then(|e| self.memory.names.policies.of_category(e.category));
        let allowed = of_category.as_deref().unwrap_or(policy).max_attempts;
        let max_attempts = job.max_attempts.unwrap_or(allowed).max(job.attempt);
        let finished = job.finished_at.unwrap_or(now);
        let (cause, expected_start) = match job.state {
            State::Blocked => {
                let blocked = self.waits(seq)?.ok_or_else(missing)?;
                let (jobs, dead) = self.open_dependencies(seq, blocked)?;
                let total = job.waits.map_or(blocked.open, |w| w.total);
                let after = blocked.run_at.filter(|at| *at > now);
                (Cause::Blocked { open: blocked.open, total, jobs, dead }, after)
            }
            State::Completed => (Cause::Completed { at: finished }, None),
            State::Cancelled => (Cause::Cancelled { at: finished, note: stored.cancel_note }, None),
            State::Dead => {
                (Cause::Dead { at: finished, letter: job.dead.clone().ok_or_else(missing)? }, None)
            }
            State::Running => {
                let held = job.held.as_ref().ok_or_else(missing)?;
                let cause = Cause::Running {
                    worker: held.worker.clone(),
                    since: held.since,
                    lease_until: held.until,
                    cancel_requested: held.cancel_requested,
                };
                (cause, None)
            }
            State::Scheduled => {
                let cause = match job.scheduled_because {
                    Some(ScheduledBecause::Retry) => {
                        Cause::Retry { next_attempt: job.attempt + 1, error: job.errors.last().cloned() }
                    }
                    Some(ScheduledBecause::Snooze | ScheduledBecause::Gate) => Cause::Snoozed {
                        reason: job.snooze_reason.clone().unwrap_or_default(),
                        times: job.snoozes,
                    },
                    Some(ScheduledBecause::Delay) | None => Cause::Delayed,
                };
                (cause, Some(job.run_at))
            }
            State::Ready => self.why_ready(seq, lane, queue_id, &job, now),
        };
        let due = job.state == State::Scheduled && job.run_at <= now;
        let waits_for_a_worker =
            due || matches!(cause, Cause::Next | Cause::Behind { .. } | Cause::Suspect { .. });
        Ok(Why {
            cause,
            queue: job.queue,
            priority: job.priority,
            expected_start,
            attempt: job.attempt,
            max_attempts,
            recovered_from: job.recovered_from,
            unserved: waits_for_a_worker && self.nobody_seen(queue_id, now),
        })
    }

    /// Whether nothing of a queue runs or has run a moment ago. Workers that do not announce themselves are seen by that alone.
    fn nobody_seen(&self, queue: QueueId, now: Timestamp) -> bool {
        let minute = self.memory.counts.get(&queue).map(|c| c.rate.last_minute(now));
        self.memory.lanes.running_count(queue) == 0 && minute.is_none_or(|m| m.completed + m.failed == 0)
    }

    fn why_ready(
        &self,
        seq: Seq,
        lane: LaneId,
        queue: QueueId,
        job: &Job,
        now: Timestamp,
    ) -> (Cause, Option<Timestamp>) {
        let mut parks: Vec<_> = self.memory.lanes.parks_of(lane).into_iter().cloned().collect();
        if !parks.is_empty() {
            // The one that ends last decides; no end is the latest end.
            parks.sort_by_key(|p| std::cmp::Reverse(p.until.unwrap_or(Timestamp(i64::MAX))));
            let last = parks.first();
            let until = last.and_then(|p| p.until);
            // Where gates let one after the other pass, a park's end is the turn of those before it.
            let by_gates = last.is_some_and(|p| p.by.starts_with(GATE_PARK));
            let ahead = if by_gates { self.memory.lanes.ahead(lane, seq, AHEAD_BOUND) } else { (0, 0) };
            let start = match ahead {
                (0, 0) => until,
                ahead => self
                    .after_those_ahead(ahead, queue, now)
                    .map(|at| until.map_or(at, |until| at.max(until))),
            };
            return (Cause::Parked { parks }, start);
        }
        if let Some((running, limit)) =
            self.memory.lanes.group_load(lane).filter(|(running, limit)| running >= limit)
        {
            return (Cause::GroupFull { group: job.group.clone(), running, limit }, None);
        }
        if let Some((running, limit)) =
            self.memory.lanes.kind_load(lane).filter(|(running, limit)| running >= limit)
        {
            return (Cause::KindFull { running, limit }, None);
        }
        let (higher, older) = self.memory.lanes.ahead(lane, seq, AHEAD_BOUND);
        match self.memory.lanes.blocked(queue, now) {
            Some(Blocked::Concurrency { limit }) => return (Cause::QueueFull { limit }, None),
            Some(Blocked::Limiter { limiter, free_at }) => {
                let start = self.memory.lanes.limiter_allows(queue, higher + older, now);
                return (Cause::Limited { limiter, free_at }, start);
            }
            None => {}
        }
        if self.memory.lanes.suspect_since(lane, seq).is_some() {
            return (Cause::Suspect { lone_stalls: job.lone_stalls }, None);
        }
        if higher + older == 0 {
            return (Cause::Next, None);
        }
        (Cause::Behind { higher, older }, self.after_those_ahead((higher, older), queue, now))
    }

    /// When a job starts that so many stand before, if its queue goes on as it did in the last minute.
    fn after_those_ahead(
        &self,
        (higher, older): (u64, u64),
        queue: QueueId,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let per_minute = self.memory.counts.get(&queue).map_or(0, |c| c.rate.last_minute(now).completed);
        let ms = ((higher + older) * 60_000).checked_div(per_minute)?;
        Some(now.plus_ms(ms.min(i64::MAX as u64) as i64))
    }
}
