//! Enqueue: check everything, then store everything.

use std::collections::{HashMap, HashSet};

use tidegate_core::codes::{self, Code};
use tidegate_core::ids::{GroupKey, KindName, Seq, TenantId};
use tidegate_core::job::{OnConflict, Priority, ScheduledBecause, Unique, UniqueScope};
use tidegate_core::lanes::{LaneId, LaneKey, QueueId};
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::schema::{self, Misfit};
use tidegate_core::time::Timestamp;

use super::hints::Need;
use super::plan::{Plan, Waiting};
use super::{Change, Ids, Machine, Place, StoredJobs};
use crate::params::{EnqueueOutcome, Enqueued, NewJob};
use crate::rows::{BlockedRow, Flow, JobExtra, JobRow, KindId, LookUps, Reads, Rows, TenantNo, UniqueRow};
use crate::{Error, Result};

/// Where a new job is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Ready,
    Later,
    Blocked(BlockedRow),
}

/// A job that passed every check.
pub(super) struct Checked {
    pub(super) kind: KindId,
    pub(super) lane: LaneKey,
    pub(super) timeout_ms: i64,
    /// When it may run, if that is ahead.
    later: Option<Timestamp>,
    /// The stored job with the same id, which is the same job.
    pub(super) same: bool,
    /// The payload with the defaults of its kind, if some were missing.
    pub(super) filled: Option<Payload>,
}

/// The refusal of a payload that is not what its kind's should look like.
pub(super) fn unfit(kind: &KindName, misfits: &[Misfit]) -> Error {
    let why = schema::sentence(misfits);
    Error::new(codes::INVALID_PAYLOAD, format!("the payload does not fit kind `{kind}`: {why}"))
}

impl<R: Rows> Machine<R> {
    /// Stores all of the jobs, or none.
    pub fn enqueue(&mut self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>> {
        let now = self.tick(now)?;
        self.hint_enqueue(&jobs)?;
        let checked = self.check_batch(&jobs, now)?;
        let plan = self.plan(&jobs, &checked, now)?;
        self.check_room(&jobs, &checked, plan.as_ref(), now)?;
        let enqueued = match plan {
            Some(plan) => self.enqueue_flow(jobs, checked, plan, now)?,
            None => {
                let each = jobs.into_iter().zip(checked);
                each.map(|(job, checked)| self.enqueue_one(job, checked, None, now)).collect::<Result<_>>()?
            }
        };
        self.settle_due()?;
        Ok(enqueued)
    }

    /// The batch is going to look for ids and unique keys, and at the jobs that have them.
    fn hint_enqueue(&mut self, jobs: &[NewJob]) -> Result<()> {
        if !R::PREFETCHES || jobs.len() > limits::MAX_ENQUEUE_BATCH {
            return Ok(());
        }
        let key =
            |job: &NewJob| Some((self.memory.names.kind_id(&job.kind)?, job.unique.as_ref()?.key.clone()));
        let look_ups = LookUps {
            ids: jobs.iter().filter(|job| job.id_may_exist).map(|job| job.id).collect(),
            keys: jobs.iter().filter_map(key).collect(),
        };
        let outside = super::plan::outside(jobs);
        let look_ups = LookUps { ids: [look_ups.ids, outside.clone()].concat(), ..look_ups };
        self.hint_look_ups(&look_ups)?;
        let mut reads = Reads::default();
        for id in outside {
            let found = self.rows.find_job(id)?;
            reads.heads.extend(found);
            reads.done.extend(found);
            reads.counts.extend(found.filter(|_| self.memory.edges > 0));
        }
        let flow = jobs.iter().any(|job| !job.after.is_empty());
        for job in jobs.iter().filter(|job| job.id_may_exist) {
            let found = self.rows.find_job(job.id)?;
            reads.jobs.extend(found);
            reads.done.extend(found.filter(|_| flow));
        }
        // Who waits for a job whose key is taken waits for the one that holds it.
        let mut holders = LookUps::default();
        for job in jobs {
            let (Some(kind), Some(unique)) = (self.memory.names.kind_id(&job.kind), &job.unique) else {
                continue;
            };
            let keeps = unique.on_conflict == OnConflict::Keep;
            if keeps && !flow {
                continue;
            }
            let Some(holder) = self.rows.unique(kind, &unique.key)? else { continue };
            if !keeps {
                self.add_reads(&mut reads, holder.seq, Need::Everything);
            }
            if flow {
                holders.ids.push(holder.id);
                reads.done.push(holder.seq);
                reads.counts.extend((self.memory.edges > 0).then_some(holder.seq));
            }
        }
        self.hint_look_ups(&holders)?;
        self.hint(&reads)
    }

    fn check_batch(&mut self, jobs: &[NewJob], now: Timestamp) -> Result<Vec<Checked>> {
        if jobs.is_empty() || jobs.len() > limits::MAX_ENQUEUE_BATCH {
            let detail = format!(
                "a batch of {} jobs; between 1 and {} are allowed",
                jobs.len(),
                limits::MAX_ENQUEUE_BATCH
            );
            return Err(Error::new(codes::INVALID_BATCH, detail));
        }
        let mut checked = Vec::with_capacity(jobs.len());
        let mut ids = HashSet::with_capacity(if jobs.len() > 1 { jobs.len() } else { 0 });
        for (i, job) in jobs.iter().enumerate() {
            let place = |e: Error| {
                if jobs.len() == 1 {
                    e
                } else {
                    Error::new(e.code, format!("job {} of {}: {}", i + 1, jobs.len(), e.detail))
                }
            };
            if jobs.len() > 1 && !ids.insert(job.id) {
                return Err(place(Error::new(codes::INVALID_BATCH, format!("id {} comes twice", job.id))));
            }
            checked.push(self.check_one(job, now).map_err(place)?);
        }
        Ok(checked)
    }

    pub(super) fn check_one(&mut self, job: &NewJob, now: Timestamp) -> Result<Checked> {
        if let Some(same) = self.same_job(job)? {
            return Ok(same);
        }
        let refuse = |code: Code, detail: String| Err(Error::new(code, detail));
        let names = &self.memory.names;
        let Some(kind) = names.kind_id(&job.kind) else {
            let near =
                names.nearest_kind(&job.kind).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
            return refuse(codes::UNKNOWN_KIND, format!("kind `{}` is not registered{near}", job.kind));
        };
        let Some((_, settings)) = names.kind(kind) else {
            return Err(Error::internal("a kind has no settings"));
        };
        let queue = self.queue_id(job.queue.as_ref().unwrap_or(&settings.queue))?;
        if job.payload.as_str().len() > limits::MAX_PAYLOAD_BYTES {
            return refuse(
                codes::INVALID_PAYLOAD,
                format!("the payload has {} bytes", job.payload.as_str().len()),
            );
        }
        let filled = match &settings.schema {
            None => None,
            Some(schema) => schema.accept(&job.payload).map_err(|misfits| unfit(&job.kind, &misfits))?,
        };
        if let Some(run_at) = job.run_at
            && (run_at.0 < 0 || run_at.since(now) > limits::MAX_DELAY_MS)
        {
            return refuse(
                codes::INVALID_TIME,
                format!("it cannot run at {run_at}: at most ten years ahead"),
            );
        }
        let timeout_ms = job.timeout_ms.unwrap_or(settings.timeout_ms);
        if !(1..=limits::MAX_TIMEOUT_MS).contains(&timeout_ms) {
            return refuse(
                codes::INVALID_TIME,
                format!("a timeout of {timeout_ms} ms; between 1 ms and 7 days are allowed"),
            );
        }
        if job.max_attempts.is_some_and(|n| !(1..=limits::MAX_ATTEMPTS).contains(&n)) {
            return refuse(
                codes::INVALID_SETTING,
                format!("max_attempts must be between 1 and {}", limits::MAX_ATTEMPTS),
            );
        }
        if let Some(Err(why)) = job.retry.as_ref().map(tidegate_core::retry::RetryPolicy::check) {
            return refuse(codes::INVALID_SETTING, format!("retry: {why}"));
        }
        if job.trace.as_ref().is_some_and(|t| t.len() > limits::MAX_NOTE_BYTES) {
            return refuse(
                codes::INVALID_REQUEST,
                format!("trace has more than {} bytes", limits::MAX_NOTE_BYTES),
            );
        }
        if let Some(Unique { scope: UniqueScope::PeriodMs(ms), .. }) = &job.unique
            && !(1..=limits::MAX_DELAY_MS).contains(ms)
        {
            return refuse(
                codes::INVALID_TIME,
                format!("a unique period of {ms} ms; up to ten years are allowed"),
            );
        }
        let lane = LaneKey {
            queue,
            group: job
                .group
                .clone()
                .or_else(|| job.tenant.as_ref().map(GroupKey::from))
                .unwrap_or_else(GroupKey::none),
            connector: settings.connector.clone(),
            priority: job.priority.unwrap_or(settings.priority),
            kind: settings.has_own_lanes().then_some(kind),
        };
        let later = job.run_at.filter(|t| *t > now);
        Ok(Checked { kind, lane, timeout_ms, later, same: false, filled })
    }

    /// The same job, if it is stored under this id: whatever the registry says by now, it was accepted. An error if a different one
    /// is.
    fn same_job(&mut self, job: &NewJob) -> Result<Option<Checked>> {
        if !job.id_may_exist {
            return Ok(None);
        }
        let Some(kind) = self.memory.names.kind_id(&job.kind) else { return Ok(None) };
        let Some(seq) = self.rows.find_job(job.id)? else { return Ok(None) };
        let Some(row) = self.rows.job(seq)? else { return Ok(None) };
        if row.kind != kind || !self.is_same_payload(&job.payload, &row) {
            let detail = format!("job {} exists and is a different job", job.id);
            return Err(Error::new(codes::DUPLICATE_ID, detail));
        }
        let lane = self.memory.lanes.lane_key(row.lane).cloned();
        let lane = lane.ok_or_else(|| Error::internal(format!("lane {} is missing", row.lane.0)))?;
        Ok(Some(Checked { kind, lane, timeout_ms: row.timeout_ms, later: None, same: true, filled: None }))
    }

    /// Whether a payload is the one that this job was sent with: the stored one, or what the stored one was made of by filling in
    /// defaults.
    fn is_same_payload(&self, sent: &Payload, row: &JobRow) -> bool {
        if row.payload.is_same(sent) {
            return true;
        }
        match row.extra.as_ref().and_then(|extra| extra.sent.as_ref()) {
            Some(first) => sent.fingerprint() == *first,
            // Nothing was filled in. It is the same job if it would be stored as the same.
            None => {
                let schema = self.memory.names.kind(row.kind).and_then(|(_, kind)| kind.schema.as_ref());
                let filled = schema.and_then(|schema| schema.accept(sent).ok().flatten());
                filled.is_some_and(|filled| row.payload.is_same(&filled))
            }
        }
    }

    /// Refuses the batch if a queue or a tenant would have more ready jobs than it may.
    fn check_room(
        &mut self,
        jobs: &[NewJob],
        checked: &[Checked],
        plan: Option<&Plan>,
        now: Timestamp,
    ) -> Result<()> {
        let bounded = checked.iter().any(|c| {
            self.memory
                .names
                .queue(c.lane.queue)
                .is_some_and(|(_, s)| s.max_ready.is_some() || s.max_ready_per_tenant.is_some())
        });
        if !bounded {
            return Ok(());
        }
        let waits = plan.map_or(vec![], |plan| plan.waits(jobs, checked));
        let mut queues: HashMap<QueueId, u64> = HashMap::new();
        let mut tenants: HashMap<(QueueId, &TenantId), u64> = HashMap::new();
        for (i, (job, checked)) in jobs.iter().zip(checked).enumerate() {
            let waits = waits.get(i).copied().unwrap_or(false);
            let kept = checked.same || checked.later.is_some() || waits;
            if kept || (job.unique.is_some() && self.key_holder(checked.kind, job, now)?.is_some()) {
                continue;
            }
            let queue = checked.lane.queue;
            let Some((name, settings)) = self.memory.names.queue(queue) else { continue };
            let new = queues.entry(queue).or_default();
            *new += 1;
            if settings.max_ready.is_some_and(|max| self.memory.lanes.ready_count(queue) + *new > max) {
                let ready = self.memory.lanes.ready_count(queue);
                let detail = format!("queue `{name}` has {ready} ready jobs, as many as it may");
                return Err(Error::new(codes::QUEUE_FULL, detail));
            }
            let (Some(max), Some(tenant)) = (settings.max_ready_per_tenant, &job.tenant) else { continue };
            let no = self.memory.names.tenant_no(tenant);
            let ready = no.and_then(|no| self.memory.tenant_ready.get(&(queue, no))).copied().unwrap_or(0);
            let new = tenants.entry((queue, tenant)).or_default();
            *new += 1;
            if ready + *new > max {
                let detail =
                    format!("tenant `{tenant}` has {ready} ready jobs in queue `{name}`, as many as it may");
                return Err(Error::new(codes::QUEUE_FULL, detail));
            }
        }
        Ok(())
    }

    pub(super) fn enqueue_one(
        &mut self,
        mut job: NewJob,
        mut checked: Checked,
        waits: Option<&Waiting>,
        now: Timestamp,
    ) -> Result<Enqueued> {
        if checked.same {
            return Ok(Enqueued { id: job.id, outcome: EnqueueOutcome::Kept });
        }
        let sent = checked.filled.take().map(|filled| std::mem::replace(&mut job.payload, filled));
        if let Some(holder) = self.key_holder(checked.kind, &job, now)? {
            return self.resolve_conflict(&job, &checked, holder, now);
        }
        let lane = self.lane(checked.lane)?;
        let tenant = match &job.tenant {
            Some(name) => Some(self.tenant(name)?),
            None => None,
        };
        let seq = self.next_seq()?;
        let flow = waits.map(|w| Flow { total: w.parents.len() as u32, on_dead: job.on_dead });
        let extra = JobExtra {
            unique: job.unique,
            retry: job.retry,
            recovered_from: None,
            trace: job.trace,
            schedule: None,
            flow,
            lineage: None,
            sent: sent.map(|sent| sent.fingerprint()),
        };
        let extra = (extra != JobExtra::default()).then(|| Box::new(extra));
        let row = JobRow {
            id: job.id,
            kind: checked.kind,
            lane,
            tenant,
            created_at: now,
            run_at: checked.later.unwrap_or(now),
            timeout_ms: checked.timeout_ms,
            max_attempts: job.max_attempts,
            payload: job.payload,
            extra,
        };
        let start = match (waits, checked.later) {
            (Some(waits), later) if waits.open > 0 || waits.fatal.is_some() => {
                Start::Blocked(BlockedRow { open: waits.open, on_dead: job.on_dead, run_at: later })
            }
            (_, Some(_)) => Start::Later,
            (_, None) => Start::Ready,
        };
        self.insert(seq, &row, start)?;
        Ok(Enqueued { id: job.id, outcome: EnqueueOutcome::Created })
    }

    /// Stores a new job with its unique key.
    pub(super) fn insert(&mut self, seq: Seq, row: &JobRow, start: Start) -> Result<()> {
        self.rows.insert_job(seq, row)?;
        if let Some(unique) = row.extra.as_ref().and_then(|e| e.unique.as_ref()) {
            let expires = match unique.scope {
                UniqueScope::PeriodMs(ms) => Some(row.created_at.plus_ms(ms)),
                UniqueScope::Pending | UniqueScope::PendingOrRunning => None,
            };
            self.rows.put_unique(row.kind, &unique.key, UniqueRow { seq, id: row.id, expires })?;
        }
        let stored = StoredJobs {
            first: seq,
            kind: row.kind,
            lane: row.lane,
            tenant: row.tenant,
            later: (start == Start::Later).then_some(row.run_at),
            ids: Ids::one(row.id),
        };
        match start {
            Start::Ready => {}
            Start::Later => self.rows.delay(row.run_at, seq)?,
            Start::Blocked(blocked) => {
                self.rows.put_blocked(seq, &blocked)?;
                return self.change(Change::StoredBlocked(stored));
            }
        }
        self.change(Change::Stored(stored))
    }

    pub(super) fn key_holder(
        &mut self,
        kind: KindId,
        job: &NewJob,
        now: Timestamp,
    ) -> Result<Option<UniqueRow>> {
        let Some(unique) = &job.unique else { return Ok(None) };
        let holder = self.rows.unique(kind, &unique.key)?;
        Ok(holder.filter(|row| row.expires.is_none_or(|at| at > now)))
    }

    /// The key is taken: keep, replace or hasten. A job that runs or is finished is never touched (J2).
    fn resolve_conflict(
        &mut self,
        job: &NewJob,
        checked: &Checked,
        holder: UniqueRow,
        now: Timestamp,
    ) -> Result<Enqueued> {
        let kept = Enqueued { id: holder.id, outcome: EnqueueOutcome::Kept };
        let mode = job.unique.as_ref().map_or(OnConflict::Keep, |u| u.on_conflict);
        let seq = holder.seq;
        let settled = mode == OnConflict::Keep || self.memory.leases.running(seq).is_some();
        if settled || self.rows.done(seq)?.is_some() {
            return Ok(kept);
        }
        let Some(row) = self.rows.job(seq)? else { return Ok(kept) };
        let mut state = self.state_of(seq)?;
        if mode == OnConflict::Replace {
            if state.claimed {
                return Ok(kept);
            }
            state.payload = Some(job.payload.clone());
            self.put_state(seq, &state)?;
            return Ok(Enqueued { id: holder.id, outcome: EnqueueOutcome::Replaced });
        }
        let lane = state.lane.unwrap_or(row.lane);
        let current = self.memory.lanes.lane_key(lane).map_or(Priority::Low, |key| key.priority);
        if checked.lane.priority < current {
            self.move_to_priority(seq, &row, &mut state, checked.lane.priority)?;
        }
        let lane = state.lane.unwrap_or(row.lane);
        let run_at = state.run_at.unwrap_or(row.run_at);
        let wanted = checked.later.unwrap_or(now).max(state.not_before.unwrap_or(Timestamp(0)));
        if self.memory.lanes.is_ready(lane, seq) {
            return Ok(Enqueued { id: holder.id, outcome: EnqueueOutcome::Hastened });
        }
        if let Some(mut blocked) = self.waits(seq)? {
            // It may start sooner once it waits for nobody any more.
            if blocked.run_at.is_some_and(|at| wanted < at) {
                blocked.run_at = Some(wanted);
                // Where it is looked for once it is scheduled.
                state.run_at = Some(wanted);
                self.put_state(seq, &state)?;
                self.rows.put_blocked(seq, &blocked)?;
            }
        } else if wanted < run_at {
            self.undelay(seq, run_at)?;
            state.run_at = Some(wanted.max(now));
            state.because.get_or_insert(ScheduledBecause::Delay);
            self.put_state(seq, &state)?;
            if wanted > now {
                self.rows.delay(wanted, seq)?;
                // It stays on the schedule, and may be due next.
                self.due_left |= self.memory.next_due.is_none_or(|due| wanted < due);
            } else {
                self.change(Change::Due { place: Place { seq, lane, tenant: row.tenant }, at: now })?;
            }
        }
        Ok(Enqueued { id: holder.id, outcome: EnqueueOutcome::Hastened })
    }

    /// The number of a lane, new if it must be.
    pub(super) fn lane(&mut self, key: LaneKey) -> Result<LaneId> {
        if let Some(id) = self.memory.lanes.find_lane(&key) {
            return Ok(id);
        }
        let id = self.memory.names.next_lane();
        self.rows.put_lane(id, &key)?;
        self.change(match key.kind {
            None => Change::Lane(id, Box::new(key)),
            Some(kind) => Change::KindLane(id, Box::new(LaneKey { kind: None, ..key }), kind),
        })?;
        Ok(id)
    }

    pub(super) fn tenant(&mut self, name: &TenantId) -> Result<TenantNo> {
        if let Some(no) = self.memory.names.tenant_no(name) {
            return Ok(no);
        }
        let no = self.memory.names.next_tenant();
        self.rows.put_tenant(no, name)?;
        self.change(Change::Tenant(no, name.clone()))?;
        Ok(no)
    }
}
