//! What changes do to jobs, and the events they make.

use tidegate_core::ids::{JobId, Seq};
use tidegate_core::job::State;
use tidegate_core::lanes::{Exclusive, QueueId};
use tidegate_core::leases::{Lease, Running};
use tidegate_core::time::Timestamp;

use super::{Known, Memory, must};
use crate::feed::{Happened, Here, JobEvent};
use crate::machine::change::{Because, Face, Fate, Leased, Place, StoredJobs};
use crate::meter::{End, SeenWhat};
use crate::{Error, Result};

impl Memory {
    pub(super) fn store(&mut self, jobs: &StoredJobs) -> Result<()> {
        let StoredJobs { first, kind, lane, tenant, later, ref ids } = *jobs;
        let queue = self.take_in(jobs)?;
        for (seq, &id) in (first.0..).map(Seq).zip(ids.as_slice()) {
            let state = if let Some(at) = later {
                self.scheduled(queue, at)?;
                State::Scheduled
            } else {
                self.ready(Place { seq, lane, tenant }, self.known.now, None)?;
                State::Ready
            };
            self.event(Face { id, queue, kind, tenant }, || Happened::Enqueued { state });
        }
        Ok(())
    }

    /// Stores jobs that wait for others.
    pub(super) fn store_blocked(&mut self, jobs: &StoredJobs) -> Result<()> {
        let StoredJobs { kind, tenant, ref ids, .. } = *jobs;
        let queue = self.take_in(jobs)?;
        for &id in ids.as_slice() {
            self.count(queue, State::Blocked, true)?;
            self.event(Face { id, queue, kind, tenant }, || Happened::Enqueued { state: State::Blocked });
        }
        Ok(())
    }

    /// Counts stored jobs, wherever they are put. Returns their queue.
    fn take_in(&mut self, jobs: &StoredJobs) -> Result<QueueId> {
        let n = jobs.ids.as_slice().len() as u64;
        let queue = self.known.queue_of(jobs.lane)?;
        must(jobs.first.0 >= self.known.next_seq, "a number was used twice")?;
        self.known.next_seq = jobs.first.0 + n as i64;
        *self.known.lane_jobs.entry(jobs.lane).or_default() += n;
        if let Some(tenant) = jobs.tenant {
            *self.known.tenant_jobs.entry(tenant).or_default() += n;
        }
        if let Some(&id) = jobs.ids.as_slice().first() {
            let face = Face { id, queue, kind: jobs.kind, tenant: jobs.tenant };
            self.saw(face, SeenWhat::Enqueued(n));
        }
        Ok(queue)
    }

    pub(super) fn ready(&mut self, place: Place, at: Timestamp, suspect: Option<Exclusive>) -> Result<()> {
        let Place { seq, lane, tenant } = place;
        let now = self.known.now;
        let queue = self.known.queue_of(lane)?;
        match suspect {
            Some(exclusive) => self.known.lanes.add_suspect(lane, seq, exclusive, at, now),
            None => self.known.lanes.add_ready(lane, seq, at, now),
        }
        self.signals.work = true;
        self.shift_tenant_ready(queue, tenant, true)
    }

    pub(super) fn scheduled(&mut self, queue: QueueId, at: Timestamp) -> Result<()> {
        if self.known.next_due.is_none_or(|due| at < due) {
            self.known.next_due = Some(at);
            // Sleeping workers must set their alarm anew.
            self.signals.work = true;
        }
        self.count(queue, State::Scheduled, true)
    }

    /// Takes what another machine picked.
    pub(super) fn take(&mut self, leased: &Leased) -> Result<()> {
        let Known { lanes, now, .. } = &mut self.known;
        let taken = match (leased.lone, leased.jobs.as_slice()) {
            (Some(_), [job]) => lanes.take_suspect(job.from, job.seq, *now),
            (Some(_), _) => false,
            (None, jobs) => {
                lanes.take(leased.queues.iter().copied(), jobs.iter().map(|j| (j.from, j.seq)), *now)
            }
        };
        must(taken, "a claimed job is not ready")
    }

    pub(super) fn lease(&mut self, leased: &Leased) -> Result<()> {
        let now = self.known.now;
        must(leased.id.0 >= self.known.next_lease, "a lease number was used twice")?;
        self.known.next_lease = leased.id.0 + 1;
        for job in &leased.jobs {
            let queue = self.known.queue_of(job.from)?;
            self.shift_tenant_ready(queue, job.tenant, false)?;
            let face = Face { id: job.id, queue, kind: job.kind, tenant: job.tenant };
            let started = || Happened::Started { worker: leased.worker.clone(), attempt: job.attempt };
            self.event(face, started);
        }
        let running = leased.jobs.iter().map(|job| Running {
            lease: leased.id,
            id: job.id,
            kind: job.kind,
            tenant: job.tenant,
            lane: job.home.unwrap_or(job.from),
            attempt: job.attempt,
            unique: job.unique,
            cancel_requested: false,
        });
        let lease = Lease {
            id: leased.id,
            worker: leased.worker.clone(),
            process: leased.process,
            since: now,
            until: now.plus_ms(leased.length_ms),
            length_ms: leased.length_ms,
            lone: leased.lone,
            jobs: leased.jobs.iter().map(|job| job.seq).collect(),
        };
        self.known.leases.add(lease, running);
        Ok(())
    }

    pub(super) fn let_go(&mut self, seq: Seq, fate: &Fate) -> Result<()> {
        let now = self.known.now;
        let not_held = || Error::internal(format!("job {} is not running", seq.0));
        let (running, since) = self.known.leases.release(seq).ok_or_else(not_held)?;
        let Running { id, kind, tenant, lane: home, .. } = running;
        self.known.lanes.answered(home, seq, now);
        let queue = self.known.lanes.finished(home, now);
        let queue = queue.ok_or_else(|| Error::internal(format!("lane {} is missing", home.0)))?;
        // A freed place, or a process that is alone now, may let another job run.
        self.signals.work = true;
        let who = Face { id, queue, kind, tenant };
        if matches!(fate, Fate::Completed | Fate::Cancelled) {
            self.known.note_finished(home, seq);
        }
        let run_ms = now.since(since);
        if let Some(end) = end_of(fate) {
            if let Some(failed) = end.failed() {
                self.known.counts.entry(queue).or_default().rate.record(now, failed, run_ms);
            }
            let total_ms = (end == End::Completed).then(|| age_ms(id, now)).flatten();
            self.saw(who, SeenWhat::Ended { end, run_ms, total_ms });
        }
        match fate {
            Fate::Completed => {
                self.known.counts.entry(queue).or_default().completed += 1;
                self.event(who, || Happened::Completed);
            }
            Fate::Cancelled => {
                self.count(queue, State::Cancelled, true)?;
                self.event(who, || Happened::Cancelled);
            }
            Fate::Dead { code } => {
                self.count(queue, State::Dead, true)?;
                self.event(who, || Happened::Dead { code: code.clone() });
            }
            Fate::Scheduled(at, because) => {
                self.scheduled(queue, *at)?;
                self.event(who, || happened(because, *at));
            }
            Fate::Ready { lane, suspect, because } => {
                self.ready(Place { seq, lane: *lane, tenant }, now, *suspect)?;
                self.event(who, || happened(because, now));
            }
            Fate::Erased => self.signals.cancels.push(id),
        }
        Ok(())
    }

    pub(super) fn event(&mut self, face: Face, what: impl FnOnce() -> Happened) {
        let Some(events) = &mut self.events else { return };
        let Known { names, now, .. } = &self.known;
        // A job whose names are gone is gone as well.
        let (Some((queue, _)), Some((kind, _))) = (names.queue(face.queue), names.kind(face.kind)) else {
            return;
        };
        events.push(JobEvent {
            at: *now,
            id: face.id,
            queue: queue.clone(),
            kind: kind.clone(),
            tenant: face.tenant.and_then(|no| names.tenant(no).cloned()),
            here: Here(!self.following),
            what: what(),
        });
    }
}

/// How an attempt ended, as it is counted.
fn end_of(fate: &Fate) -> Option<End> {
    let of = |because: &Because| match because {
        Because::Retry { .. } => End::Retried,
        Because::Snooze => End::Snoozed,
        Because::Release => End::Released,
        Because::Stall => End::Stalled,
    };
    match fate {
        Fate::Completed => Some(End::Completed),
        Fate::Cancelled => Some(End::Cancelled),
        Fate::Dead { .. } => Some(End::Dead),
        Fate::Scheduled(_, because) | Fate::Ready { because, .. } => Some(of(because)),
        Fate::Erased => None,
    }
}

/// How long ago an id was made, if it says so.
fn age_ms(id: JobId, now: Timestamp) -> Option<i64> {
    let uuid = id.uuid();
    let made = (uuid.get_version_num() == 7).then(|| (uuid.as_u128() >> 80) as i64)?;
    // One that follows from what it names has no time of its own.
    Some(now.0 - made).filter(|age| made > 0 && *age >= 0)
}

fn happened(because: &Because, run_at: Timestamp) -> Happened {
    match because {
        Because::Retry { code } => Happened::Retry { run_at, code: code.clone() },
        Because::Snooze => Happened::Snoozed { run_at },
        Because::Release => Happened::Released,
        Because::Stall => Happened::Stalled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_without_a_time_has_no_age() {
        let now = Timestamp(1_763_000_000_000);
        let age = |made| age_ms(JobId::from_parts(made, 7), now);
        assert_eq!((age(0), age(1_762_999_999_000), age(1_763_000_000_001)), (None, Some(1_000), None));
    }
}
