//! What keeps the store in shape: promote, rescue, prune, erase. Each call does a bounded amount of work.

use tidegate_core::ids::Seq;
use tidegate_core::job::{Park, ScheduledBecause, State};
use tidegate_core::lanes::{GATE_PARK, LaneId, QueueId};
use tidegate_core::limits;
use tidegate_core::time::Timestamp;

use super::hints::Need;
use super::{Change, Machine, Place};
use crate::Result;
use crate::params::{Advanced, Erase, Erased};
use crate::rows::Rows;

/// Finished jobs of a kind whose age is looked at in one step.
const LOOK: usize = 256;

impl<R: Rows> Machine<R> {
    /// Ends parks, takes jobs from expired leases, tells those who wait for what has ended, promotes due jobs, fires schedules.
    pub fn advance(&mut self, now: Timestamp) -> Result<Advanced> {
        let now = self.tick(now)?;
        for park in self.memory.lanes.ended_parks(now) {
            self.end_park(park.scope, park.by)?;
        }
        if self.memory.lanes.ages(now) {
            self.change(Change::Aged)?;
        }
        let rescued = self.rescue(now)?;
        self.tell_more(now)?;
        let promoted = self.promote(now)?;
        let fired = self.fire(now)?;
        let known = &self.memory;
        let tick = known.timetable.next().map(|(at, _)| at);
        let more = (!known.untold.is_empty()).then_some(now);
        let times =
            [known.lanes.next_wakeup(&[], now), known.next_due, known.leases.next_expiry(), tick, more];
        Ok(Advanced { promoted, rescued, fired, next_wakeup: times.into_iter().flatten().min() })
    }

    fn rescue(&mut self, now: Timestamp) -> Result<u64> {
        if self.memory.leases.next_expiry().is_none_or(|t| t > now) {
            return Ok(0);
        }
        let expired = self.memory.leases.expired(now, limits::RESCUE_BATCH);
        self.hint_rescue(expired.iter().flat_map(|(jobs, _)| jobs))?;
        let mut rescued = 0;
        for (jobs, lone) in expired {
            for seq in jobs {
                self.stalled(seq, lone.is_some(), now)?;
                rescued += 1;
            }
        }
        Ok(rescued)
    }

    fn promote(&mut self, now: Timestamp) -> Result<u64> {
        if self.memory.next_due.is_none_or(|t| t > now) {
            return Ok(0);
        }
        let due = self.rows.take_due(now, limits::PROMOTE_BATCH)?;
        self.hint_rows(due.iter().map(|(_, seq)| *seq), Need::HeadAndState)?;
        for &(at, seq) in &due {
            let (home, tenant) = self.lane_and_tenant(seq)?;
            let state = self.state_of(seq)?;
            let lane = state.lane.unwrap_or(home);
            // Put off with its scope: one that was put off alone has nothing to do with parks.
            if state.because == Some(ScheduledBecause::Gate) && state.not_before.is_some() {
                self.open_to(lane, seq)?;
            }
            self.change(Change::Due { place: Place { seq, lane, tenant }, at })?;
        }
        self.due_left = true;
        self.settle_due()?;
        Ok(due.len() as u64)
    }

    /// A job comes back at the time that gates have told it. One that was refused since stands behind it in their line and was told a
    /// later time; if it parked the scope until then, the scope would stand still although the gates have room. After a restart it is
    /// not known which scope the job was refused: then the parks of all gates that cover it end, and it asks.
    fn open_to(&mut self, lane: LaneId, seq: Seq) -> Result<()> {
        let lanes = &self.memory.lanes;
        let refused = lanes.refused_to(lane, seq);
        let in_its_way = |p: &&Park| {
            p.by.starts_with(GATE_PARK) && (refused.is_empty() || refused.iter().any(|r| r.covers(&p.scope)))
        };
        let parks = lanes.parks_of(lane).into_iter().filter(in_its_way);
        let ended: Vec<_> = parks.map(|p| (p.scope.clone(), p.by.clone())).collect();
        ended.into_iter().try_for_each(|(scope, by)| self.end_park(scope, by))
    }

    /// Deletes up to `limit` finished jobs that are past their retention, and unique keys whose period is over. Returns how
    /// many of both.
    pub fn prune(&mut self, limit: usize, now: Timestamp) -> Result<u64> {
        let now = self.tick(now)?;
        // Neither may use up what the other needs.
        let expired = self.rows.expire_uniques(now, limit.div_ceil(2))?;
        let mut left = limit.saturating_sub(expired as usize);
        let queues: Vec<_> = self.memory.names.queues().map(|(_, id)| id).collect();
        let mut pruned = expired;
        let of_kinds = self.prune_kinds(left, now)?;
        pruned += of_kinds as u64;
        left -= of_kinds;
        for queue in queues {
            if left == 0 {
                break;
            }
            let Some((_, settings)) = self.memory.names.queue(queue) else { continue };
            let retention = settings.retention;
            let kept = self.memory.counts.get(&queue).map_or(0, |c| c.completed + c.cancelled);
            if kept == 0 {
                continue;
            }
            let excess = kept.saturating_sub(retention.count);
            let oldest = self.rows.oldest_done(queue, 1)?;
            if excess == 0 && oldest.first().is_none_or(|(at, _, _)| now.since(*at) <= retention.age_ms) {
                continue;
            }
            let over = |(i, (at, _, _)): &(usize, (Timestamp, Seq, State))| {
                (*i as u64) < excess || now.since(*at) > retention.age_ms
            };
            let oldest = self.rows.oldest_done(queue, left)?.into_iter().enumerate().take_while(over);
            let oldest: Vec<_> = oldest.map(|(_, (_, seq, state))| (seq, (queue, state))).collect();
            self.delete_finished(&oldest)?;
            pruned += oldest.len() as u64;
            left -= oldest.len();
        }
        let over = |(at, _, _): &(Timestamp, Seq, QueueId)| now.since(*at) > limits::DEAD_RETENTION_MS;
        let dead = self.rows.oldest_dead(left)?.into_iter().take_while(over);
        let dead: Vec<_> = dead.map(|(_, seq, queue)| (seq, (queue, State::Dead))).collect();
        self.delete_finished(&dead)?;
        self.tell_dependents(now)?;
        Ok(pruned + dead.len() as u64)
    }

    /// Deletes finished jobs of kinds that keep fewer than their queue. Returns how many.
    fn prune_kinds(&mut self, limit: usize, now: Timestamp) -> Result<usize> {
        let kinds = self.memory.names.kinds();
        let own: Vec<_> = kinds.filter_map(|(id, (_, s))| Some((id, s.retention?))).collect();
        let mut pruned = 0;
        for (kind, retention) in own {
            let Some(finished) = self.memory.finished.get(&kind).filter(|f| !f.is_empty()) else { continue };
            let excess = (finished.len() as u64).saturating_sub(retention.count) as usize;
            let oldest: Vec<Seq> = finished.oldest().take((limit - pruned).min(excess.max(LOOK))).collect();
            self.hint_rows(oldest.iter().copied(), Need::Everything)?;
            let mut over = vec![];
            for (i, seq) in oldest.into_iter().enumerate() {
                let Some(done) = self.rows.done(seq)? else { continue };
                if i >= excess && now.since(done.at) <= retention.age_ms {
                    break;
                }
                over.push((seq, (done.queue, done.state)));
            }
            self.delete_finished(&over)?;
            pruned += over.len();
        }
        Ok(pruned)
    }

    fn delete_finished(&mut self, jobs: &[(Seq, (QueueId, State))]) -> Result<()> {
        self.hint_rows(jobs.iter().map(|(seq, _)| *seq), Need::HeadAndState)?;
        self.hint_unlink(jobs.iter().map(|(seq, _)| *seq))?;
        jobs.iter().try_for_each(|(seq, finished)| self.delete(*seq, Some(*finished), false))
    }

    /// Erases a tenant's schedules and jobs, looking at a bounded number of rows. Running jobs lose their lease.
    pub fn erase(&mut self, erase: &Erase) -> Result<Erased> {
        let now = self.tick(erase.now)?;
        self.erase_schedules(&erase.tenant, now)?;
        // What was kept of its jobs may outlive them and the tenant's number.
        let mut kept = 0;
        if self.memory.edges > 0 {
            kept = self.rows.forget_kept(&erase.tenant, erase.scan)?;
            // Once: it takes a look at all that was kept.
            if erase.after <= Seq(0) {
                kept += self.rows.forget_unowned(&erase.tenant, erase.scan)?;
            }
        }
        let again = (kept > 0 && kept >= erase.scan as u64).then_some(erase.after);
        let Some(tenant) = self.memory.names.tenant_no(&erase.tenant) else {
            return Ok(Erased { erased: 0, next: again });
        };
        let (jobs, next): (Vec<Seq>, Option<Seq>) =
            self.rows.jobs_of_tenant(tenant, erase.after, erase.scan)?;
        self.hint_rows(jobs.iter().copied(), Need::Everything)?;
        self.hint_unlink(jobs.iter().copied())?;
        let erased = jobs.len() as u64;
        for seq in jobs {
            let finished = self.uproot(seq)?;
            self.delete(seq, finished, true)?;
        }
        self.tell_dependents(now)?;
        self.settle_due()?;
        Ok(Erased { erased, next: again.or(next) })
    }
}
