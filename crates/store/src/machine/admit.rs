//! Admit: jobs that were accepted elsewhere, in a transaction that has committed. They cannot be refused any more.

use tidegate_core::codes;
use tidegate_core::failure::Category;
use tidegate_core::ids::{GroupKey, JobId};
use tidegate_core::job::{DeadLetter, State};
use tidegate_core::lanes::LaneKey;
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::retry::DeadReason;
use tidegate_core::time::Timestamp;

use super::enqueue::Start;
use super::{Change, Face, Machine, Place};
use crate::params::{Enqueued, NewJob};
use crate::rows::{DoneRow, JobRow, Rows};
use crate::{Error, Result};

impl<R: Rows> Machine<R> {
    /// Stores a job that was let in already: a full queue is no reason to refuse it. Everything else is.
    pub fn admit(&mut self, job: NewJob, now: Timestamp) -> Result<Enqueued> {
        let now = self.tick(now)?;
        let checked = self.check_one(&job, now)?;
        let admitted = self.enqueue_one(job, checked, None, now)?;
        self.settle_due()?;
        Ok(admitted)
    }

    /// Stores a job that turned out not to be acceptable as a dead letter, with what was wrong with it. Its kind must
    /// exist; whatever else is wrong is left out.
    pub fn admit_dead(&mut self, job: NewJob, refusal: &Error, now: Timestamp) -> Result<JobId> {
        let now = self.tick(now)?;
        let unknown = || Error::new(codes::UNKNOWN_KIND, format!("kind `{}` is not registered", job.kind));
        let kind = self.memory.names.kind_id(&job.kind).ok_or_else(unknown)?;
        let (_, settings) = self.memory.names.kind(kind).ok_or_else(unknown)?;
        let (connector, priority, timeout_ms) =
            (settings.connector.clone(), settings.priority, settings.timeout_ms);
        let queue = job.queue.as_ref().and_then(|name| self.memory.names.queue_id(name));
        let queue = match queue {
            Some(queue) => queue,
            None => self.queue_id(&settings.queue.clone())?,
        };
        let group = job.group.or_else(|| job.tenant.as_ref().map(GroupKey::from));
        let lane = self.lane(LaneKey {
            queue,
            group: group.unwrap_or_else(GroupKey::none),
            connector,
            priority: job.priority.unwrap_or(priority),
            kind: None,
        })?;
        let tenant = job.tenant.as_ref().map(|name| self.tenant(name)).transpose()?;
        let too_large = job.payload.as_str().len() > limits::MAX_PAYLOAD_BYTES;
        let row = JobRow {
            id: job.id,
            kind,
            lane,
            tenant,
            created_at: now,
            run_at: now,
            timeout_ms,
            max_attempts: None,
            payload: if too_large { Payload::trusted("null") } else { job.payload },
            extra: None,
        };
        let seq = self.next_seq()?;
        self.insert(seq, &row, Start::Ready)?;
        self.change(Change::Withdrawn(Place { seq, lane, tenant }))?;
        let (category, reason) = (Category::InvalidInput, DeadReason::Permanent);
        let letter = DeadLetter::new(category, reason, refusal.code.id, refusal.detail.clone());
        let letter = self.compose(kind, None, letter)?;
        let done = DoneRow {
            queue,
            state: State::Dead,
            at: now,
            attempt: 0,
            result: None,
            letter: Some(Box::new(letter)),
        };
        self.rows.insert_done(seq, &done)?;
        let face = Face { id: job.id, queue, kind, tenant };
        self.change(Change::Buried { face, code: refusal.code.id.to_owned() })?;
        Ok(job.id)
    }
}
