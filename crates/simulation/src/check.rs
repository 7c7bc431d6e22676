//! What is checked after every call, and at the end.

use std::collections::{HashMap, HashSet};

use tidegate_conformance::kit::{group, json, kind, queue, worker};
use tidegate_conformance::referee::{Event, Violation};
use tidegate_core::failure::Category;
use tidegate_core::ids::{JobId, ProcessId, QueueName};
use tidegate_core::job::State;
use tidegate_core::retry::DeadReason;
use tidegate_store::params::{Claim, NewJob, Outcome, Settle, Settlement};

use crate::plane::Plane;
use crate::world::{GROUPS, QUEUES, World};

/// The process that probes the capacity at the end; no other has this number.
const PROBE: ProcessId = ProcessId(u64::MAX);

impl<P: Plane> World<P> {
    /// The store's own counts must be those of the referee.
    pub(crate) fn check_counts(&mut self) -> Result<(), Violation> {
        let now = self.now();
        let views = self.plane.queues(now).map_err(|e| Violation::Nonsense(e.to_string()))?;
        self.referee.observe(&Event::Seen(now))?;
        let mut counted: HashMap<&QueueName, [u64; 6]> = HashMap::with_capacity(QUEUES.len());
        for (id, job) in self.referee.jobs() {
            let slot = match (job.end, job.held) {
                (Some(State::Completed), _) => 2,
                (Some(State::Dead), _) => 3,
                (Some(_), _) => 4,
                (None, Some(_)) => 1,
                (None, None) if self.referee.waits(id) => 5,
                (None, None) => 0,
            };
            counted.entry(&job.queue).or_default()[slot] += 1;
        }
        for view in &views {
            let expected = counted.get(&view.name).copied().unwrap_or_default();
            let waiting = view.ready + view.scheduled;
            let found = [waiting, view.running, view.completed, view.dead, view.cancelled, view.blocked];
            let states = [
                State::Ready,
                State::Running,
                State::Completed,
                State::Dead,
                State::Cancelled,
                State::Blocked,
            ];
            for i in 0..6 {
                if found[i] != expected[i] {
                    return Err(Violation::WrongCount(view.name.clone(), found[i], states[i], expected[i]));
                }
            }
        }
        Ok(())
    }

    /// Everything ended, exactly once, and is stored so; only poison died of poison; all capacity is back.
    pub(crate) fn check_end(&mut self, poison: &HashSet<JobId>) -> Result<(), Violation> {
        let mut known: Vec<JobId> = self.referee.jobs().map(|(id, _)| id).collect();
        known.sort_unstable();
        for id in known {
            let stored = self.plane.get(id).map_err(|e| Violation::Nonsense(e.to_string()))?;
            self.referee.check_state(id, stored.as_ref().map(|job| job.state))?;
            let (Some(stored), Some(fate)) = (stored, self.referee.job(id)) else { continue };
            if fate.completions > 1 || (fate.completions == 1) != (stored.state == State::Completed) {
                return Err(Violation::FinishedTwice(id, State::Completed, stored.state));
            }
            let died_of_stalls =
                stored.dead.as_ref().is_some_and(|letter| letter.reason == DeadReason::Poison);
            if died_of_stalls && (!poison.contains(&id) || stored.lone_stalls != 3) {
                return Err(Violation::Nonsense(format!(
                    "{id} is innocent and died of {} stalls",
                    stored.lone_stalls
                )));
            }
            if poison.contains(&id) && stored.state == State::Completed {
                return Err(Violation::Nonsense(format!("{id} is poison and was completed")));
            }
            let of_another =
                stored.dead.as_ref().is_some_and(|letter| letter.reason == DeadReason::Dependency);
            if poison.contains(&id) && stored.state == State::Dead && !of_another {
                let letter = stored.dead.as_ref().map(|letter| letter.category);
                if letter != Some(Category::SystemFailure) {
                    return Err(Violation::Nonsense(format!("{id} is poison and died of {letter:?}")));
                }
                self.summary.poisoned += 1;
            }
            match stored.state {
                State::Completed => self.summary.ended[0] += 1,
                State::Dead => self.summary.ended[1] += 1,
                State::Cancelled => self.summary.ended[2] += 1,
                State::Blocked if self.referee.waits_for_the_dead(id) => self.summary.patient += 1,
                state => return Err(Violation::WrongState(id, State::Completed, state)),
            }
        }
        (0..QUEUES.len()).try_for_each(|i| self.check_capacity(i))
    }

    /// Fills a queue and claims: exactly what its limits allow must come.
    fn check_capacity(&mut self, i: usize) -> Result<(), Violation> {
        const EACH: usize = 8;
        self.rest(60_000);
        let mut jobs = vec![];
        for g in GROUPS {
            for _ in 0..EACH {
                let id = self.new_id();
                let mut job = NewJob::new(id, kind("plain"), json("0"));
                job.queue = Some(queue(QUEUES[i]));
                job.group = Some(group(g));
                jobs.push(job);
            }
        }
        self.judged(|plane, now| {
            let reply = plane.enqueue(jobs.clone(), now)?;
            Ok(((), Event::Enqueued(jobs, reply, now)))
        })?;
        let settings = self.queue_settings(i);
        let named = (GROUPS.len() - 1) * settings.group_concurrency.map_or(EACH, |n| EACH.min(n as usize));
        let mut expected = named + EACH;
        expected = expected.min(settings.concurrency.map_or(usize::MAX, |n| n as usize));
        expected = expected.min(settings.limiter.map_or(usize::MAX, |l| l.max as usize));
        let claimed = self.judged(|plane, now| {
            let claim = Claim {
                worker: worker("probe"),
                process: PROBE,
                queues: vec![(queue(QUEUES[i]), 1_000)],
                max: 1_000,
                lease_ms: 10_000,
                now,
            };
            let reply = plane.claim(claim.clone())?;
            Ok((reply.clone(), Event::Claimed(claim, reply)))
        })?;
        if claimed.jobs.len() != expected {
            let found = claimed.jobs.len();
            let lost = format!("queue {} is idle and runs {found} jobs, {expected} are allowed", QUEUES[i]);
            return Err(Violation::CapacityLost(lost));
        }
        self.judged(|plane, now| {
            let done = |j: &tidegate_store::params::ClaimedJob| Settlement {
                ticket: j.ticket,
                outcome: Outcome::Complete(None),
            };
            let settle = Settle { settlements: claimed.jobs.iter().map(done).collect(), now, seed: 0 };
            let reply = plane.settle(settle.clone())?;
            Ok(((), Event::Settled(settle, reply)))
        })?;
        Ok(())
    }
}
