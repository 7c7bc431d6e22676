//! What keeps the store in shape: promote, rescue, prune, erase. Each call does a bounded amount of work.

use tidegate_core::ids::Seq;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;

use super::Machine;
use crate::Result;
use crate::params::{Advanced, Erase, Erased};
use crate::rows::Rows;

impl<R: Rows> Machine<R> {
    /// Ends parks, takes jobs from expired leases, promotes due jobs.
    pub fn advance(&mut self, now: Timestamp) -> Result<Advanced> {
        let now = self.tick(now)?;
        for park in self.lanes.advance(now) {
            self.rows.delete_park(&park.scope, &park.by)?;
            self.signals.work = true;
        }
        let rescued = self.rescue(now)?;
        let promoted = self.promote(now)?;
        let next_wakeup = [self.lanes.next_wakeup(&[], now), self.next_due, self.leases.next_expiry()]
            .into_iter()
            .flatten()
            .min();
        Ok(Advanced { promoted, rescued, next_wakeup })
    }

    fn rescue(&mut self, now: Timestamp) -> Result<u64> {
        if self.leases.next_expiry().is_none_or(|t| t > now) {
            return Ok(0);
        }
        let mut rescued = 0;
        for lease in self.leases.expired(now) {
            for seq in lease.jobs {
                self.stalled(seq, lease.lone.is_some(), now)?;
                rescued += 1;
            }
        }
        Ok(rescued)
    }

    fn promote(&mut self, now: Timestamp) -> Result<u64> {
        if self.next_due.is_none_or(|t| t > now) {
            return Ok(0);
        }
        let due = self.rows.take_due(now, limits::PROMOTE_BATCH)?;
        for &(run_at, seq) in &due {
            let (mut lane, tenant) = self.lane_and_tenant(seq)?;
            lane = self.state_of(seq)?.lane.unwrap_or(lane);
            let queue = self.queue_of(lane)?;
            self.count(queue, tidegate_core::job::State::Scheduled, false);
            self.make_ready(seq, lane, tenant, run_at, None)?;
        }
        self.next_due = self.rows.next_due()?;
        Ok(due.len() as u64)
    }

    /// Deletes up to `limit` finished jobs that are past their retention, and unique keys whose period is over.
    pub fn prune(&mut self, limit: usize, now: Timestamp) -> Result<u64> {
        let now = self.tick(now)?;
        let mut left = limit;
        left -= (self.rows.expire_uniques(now, left)? as usize).min(left);
        let queues: Vec<_> = self.names.queues().map(|(_, id)| id).collect();
        let mut pruned = 0;
        for queue in queues {
            if left == 0 {
                break;
            }
            let Some((_, settings)) = self.names.queue(queue) else { continue };
            let retention = settings.retention;
            let kept = self.counts.get(&queue).map_or(0, |c| c.completed + c.cancelled);
            if kept == 0 {
                continue;
            }
            let excess = kept.saturating_sub(retention.count);
            let oldest = self.rows.oldest_done(queue, 1)?;
            if excess == 0 && oldest.first().is_none_or(|(at, _, _)| now.since(*at) <= retention.age_ms) {
                continue;
            }
            for (i, (at, seq, state)) in self.rows.oldest_done(queue, left)?.into_iter().enumerate() {
                if i as u64 >= excess && now.since(at) <= retention.age_ms {
                    break;
                }
                self.count(queue, state, false);
                self.delete(seq)?;
                pruned += 1;
                left -= 1;
            }
        }
        for (at, seq, queue) in self.rows.oldest_dead(left)? {
            if now.since(at) <= limits::DEAD_RETENTION_MS {
                break;
            }
            self.count(queue, tidegate_core::job::State::Dead, false);
            self.delete(seq)?;
            pruned += 1;
        }
        Ok(pruned)
    }

    /// Erases a tenant's jobs, looking at a bounded number of rows. Running jobs lose their lease.
    pub fn erase(&mut self, erase: &Erase) -> Result<Erased> {
        let now = self.tick(erase.now)?;
        let Some(tenant) = self.names.tenant_no(&erase.tenant) else { return Ok(Erased::default()) };
        let (jobs, next): (Vec<Seq>, Option<Seq>) =
            self.rows.jobs_of_tenant(tenant, erase.after, erase.scan)?;
        let erased = jobs.len() as u64;
        for seq in jobs {
            self.uproot(seq, now)?;
            self.delete(seq)?;
        }
        Ok(Erased { erased, next })
    }
}
