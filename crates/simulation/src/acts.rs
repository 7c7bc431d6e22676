//! What everybody does when it is their turn.

use tidegate_conformance::kit::{connector, group, job_id, queue};
use tidegate_conformance::referee::Event;
use tidegate_core::failure::{Category, Failure as AttemptFailure};
use tidegate_core::ids::{JobId, QueueName};
use tidegate_core::job::{Park, ParkScope, Priority, State};
use tidegate_core::registry::{Limiter, QueueSettings};
use tidegate_store::params::{
    CancelJob, Claim, Claimed, Outcome, Recover, Report, Settle, Settled, Settlement,
};

use crate::actors::{Plan, Run};
use crate::plane::Plane;
use crate::world::{Caller, LEASE_MS, QUEUES, Step, World};

impl<P: Plane> World<P> {
    // ---- producers ----

    pub(crate) fn producer_sends(&mut self) -> Step {
        let Some(batch) = self.producer.outbox.front().cloned() else { return Ok(()) };
        let send = |plane: &mut P, now| {
            let reply = plane.enqueue(batch.clone(), now)?;
            Ok((reply.clone(), Event::Enqueued(batch, reply, now)))
        };
        if self.call(Caller::Producer, send)?.is_some() {
            self.producer.outbox.pop_front();
        }
        Ok(())
    }

    // ---- processes ----

    pub(crate) fn process_acts(&mut self, i: usize) -> Step {
        let real = self.real;
        let process = &mut self.processes[i];
        if process.asleep_until.is_some_and(|t| t > real) {
            return Ok(());
        }
        process.asleep_until = None;
        process.start_waiting(real);
        if process.runs.iter().any(|r| r.plan == Plan::Die && r.ends_at.is_some_and(|t| t <= real)) {
            // Beside a last chance this can only be a run whose lease was lost while the process slept. The store
            // cannot know that it goes on, so a worker must stop such runs itself.
            if self.fragile_process(i) {
                self.processes[i].runs.retain(|r| r.plan != Plan::Die);
                return Ok(());
            }
            self.kill(i);
            return Ok(());
        }
        let process = &self.processes[i];
        if !process.runs.is_empty() && process.beat_at <= real {
            return self.beat(i);
        }
        if self.scenario.weather && !self.healing && self.dice.one_in(60) && !self.fragile_process(i) {
            let pause = LEASE_MS / 2 + self.dice.below(2 * LEASE_MS as u64) as i64;
            self.processes[i].asleep_until = Some(real + pause);
            return Ok(());
        }
        let process = &self.processes[i];
        let finished = process.runs.iter().any(|r| r.ends_at.is_some_and(|t| t <= real));
        match self.dice.below(4) {
            0 if !process.runs.is_empty() && !self.healing => self.report(i),
            1 if process.room() > 0 => self.claim(i),
            _ if finished => self.settle(i),
            _ if process.room() > 0 => self.claim(i),
            _ => Ok(()),
        }
    }

    fn claim(&mut self, i: usize) -> Step {
        let process = &self.processes[i];
        let claim = Claim {
            worker: process.worker.clone(),
            process: process.id,
            queues: QUEUES.iter().map(|q| (queue(q), process.room())).collect(),
            max: process.room(),
            lease_ms: LEASE_MS,
            now: self.now(),
        };
        let hand_out = |plane: &mut P, _| {
            let reply = plane.claim(claim.clone())?;
            Ok((reply.clone(), Event::Claimed(claim, reply)))
        };
        let spared = |world: &Self, reply: &Claimed| reply.jobs.iter().any(|job| world.fragile(job.id));
        let Some(reply) = self.call_spared(Caller::Process(i), hand_out, spared)? else { return Ok(()) };
        self.wakeup = reply.next_wakeup;
        for job in reply.jobs {
            let plan = self.plan(job.id);
            let takes_ms = if self.dice.one_in(8) { 12_000 } else { 100 + self.dice.below(2_500) as i64 };
            let run = Run { ticket: job.ticket, job: job.id, plan, takes_ms, ends_at: None, cancel: false };
            self.processes[i].runs.push(run);
        }
        let beat_at = self.real + LEASE_MS / 3;
        self.processes[i].beat_at = self.processes[i].beat_at.min(beat_at).max(self.real);
        Ok(())
    }

    fn plan(&mut self, id: JobId) -> Plan {
        if self.poison.contains(&id) {
            return Plan::Die;
        }
        if self.healing {
            return Plan::Complete;
        }
        match self.dice.below(20) {
            0..=3 => Plan::Fail(Category::ALL[self.dice.below(4) as usize]),
            4 => Plan::Fail(Category::ALL[self.dice.below(11) as usize]),
            5 | 6 => {
                let park = self.dice.one_in(3).then(|| self.scope());
                Plan::Snooze(self.dice.below(8_000) as i64, park)
            }
            7 => Plan::Release,
            _ => Plan::Complete,
        }
    }

    fn settle(&mut self, i: usize) -> Step {
        let (real, now) = (self.real, self.now());
        let done: Vec<Run> =
            self.processes[i].runs.iter().filter(|r| r.ends_at.is_some_and(|t| t <= real)).cloned().collect();
        let outcome = |run: &Run| match &run.plan {
            _ if run.cancel => Outcome::Cancel,
            Plan::Complete | Plan::Die => Outcome::Complete(None),
            Plan::Fail(category) => Outcome::Fail(AttemptFailure::new(*category, "E", "by plan")),
            Plan::Snooze(ms, park) => Outcome::Snooze {
                until: now.plus_ms(*ms),
                reason: "by plan".into(),
                park: park.clone(),
                gate: None,
            },
            Plan::Release => Outcome::Release,
        };
        let settlements = done.iter().map(|r| Settlement { ticket: r.ticket, outcome: outcome(r) }).collect();
        let settle = Settle { settlements, now, seed: self.dice.next_u64() };
        let apply = |plane: &mut P, _| {
            let reply = plane.settle(settle.clone())?;
            Ok((reply.clone(), Event::Settled(settle, reply)))
        };
        // No reply: the process, if it lives, settles again and learns that it is too late.
        let Some(reply) = self.call(Caller::Process(i), apply)? else { return Ok(()) };
        self.summary.stale += reply.iter().filter(|s| **s == Settled::Stale).count() as u64;
        self.processes[i].runs.retain(|r| !done.iter().any(|d| d.ticket == r.ticket));
        Ok(())
    }

    fn beat(&mut self, i: usize) -> Step {
        let leases = self.processes[i].leases();
        let extend = |plane: &mut P, now| {
            let reply = plane.heartbeat(leases.clone(), now)?;
            Ok((reply.clone(), Event::Beaten(leases, reply, now)))
        };
        let Some(reply) = self.call(Caller::Process(i), extend)? else { return Ok(()) };
        self.processes[i].beat_at = self.real + LEASE_MS / 3;
        for beat in reply {
            // A good worker stops when its lease is lost; a stubborn one goes on and is refused.
            let stubborn = self.dice.one_in(2);
            let runs = &mut self.processes[i].runs;
            if beat.until.is_none() && !stubborn {
                runs.retain(|r| r.ticket.lease != beat.lease);
            }
            for run in runs
                .iter_mut()
                .filter(|r| r.ticket.lease == beat.lease && beat.cancel.contains(&r.ticket.seq))
            {
                run.cancel = true;
            }
        }
        Ok(())
    }

    fn report(&mut self, i: usize) -> Step {
        let tickets: Vec<_> = self.processes[i].runs.iter().map(|r| r.ticket).collect();
        let reports = tickets
            .iter()
            .map(|&ticket| Report { ticket, progress: Some((0.5, "half".into())), log: vec!["line".into()] })
            .collect();
        let keep = |plane: &mut P, now| {
            let reply = plane.report(reports, now)?;
            Ok(((), Event::Reported(tickets, reply, now)))
        };
        self.call(Caller::Process(i), keep).map(drop)
    }

    // ---- operators ----

    pub(crate) fn scope(&mut self) -> ParkScope {
        let g = group(["a", "b", "c"][self.dice.below(3) as usize]);
        match self.dice.below(4) {
            0 => ParkScope::Queue(queue(QUEUES[self.dice.below(3) as usize])),
            1 => ParkScope::Group(g),
            2 => ParkScope::Connector(connector("shop")),
            _ => ParkScope::GroupOnConnector(g, connector("shop")),
        }
    }

    fn some_job(&mut self) -> JobId {
        job_id(2 + self.dice.below(self.next_id.saturating_sub(1)))
    }

    pub(crate) fn operator_acts(&mut self) -> Step {
        let who = Caller::Operator;
        let id = self.some_job();
        match self.dice.below(9) {
            0 => {
                let cascade = self.dice.one_in(3);
                let ask = move |plane: &mut P, now| {
                    let reply = plane.cancel(CancelJob { id, note: "operator".into(), cascade, now })?;
                    let event = if cascade { Event::Cascaded } else { Event::Cancelled };
                    Ok(((), event(id, reply, now)))
                };
                self.call(who, ask).map(drop)
            }
            1 => {
                let hurry =
                    move |plane: &mut P, now| Ok(((), Event::RunNow(id, plane.run_now(id, now)?, now)));
                self.call(who, hurry).map(drop)
            }
            2 => {
                let priority = Priority::ALL[self.dice.below(4) as usize];
                let change = move |plane: &mut P, now| {
                    plane.reprioritise(id, priority, now)?;
                    Ok(((), Event::Seen(now)))
                };
                self.call(who, change).map(drop)
            }
            3 => {
                let scope = self.scope();
                let until =
                    self.dice.one_in(2).then(|| self.now().plus_ms(1 + self.dice.below(9_000) as i64));
                let stop = move |plane: &mut P, now| {
                    let by = "operator".to_owned();
                    plane.park(
                        Park { scope: scope.clone(), by: by.clone(), reason: "test".into(), until },
                        now,
                    )?;
                    Ok(((), Event::Parked(scope, by, until, now)))
                };
                // Refused if the store's clock is past its end already, and that is right.
                self.call(who, stop).map(drop)
            }
            4 | 5 => {
                let scope = self.scope();
                self.unpark(scope)
            }
            6 => {
                let i = 1 + self.dice.below(2) as usize;
                let mut settings = self.settings[i].clone();
                if i == 1 {
                    settings.concurrency = Some(1 + self.dice.below(4) as u32);
                    settings.group_concurrency = Some(1 + self.dice.below(3) as u32);
                } else {
                    settings.limiter = Some(Limiter { max: 2 + self.dice.below(4) as u32, per_ms: 5_000 });
                }
                self.put_queue(i, settings).map(drop)
            }
            7 => self.recover_one(),
            _ => {
                let upkeep = |plane: &mut P, now| {
                    plane.advance(now)?;
                    Ok(((), Event::Advanced(now)))
                };
                self.call(who, upkeep).map(drop)
            }
        }
    }

    pub(crate) fn unpark(&mut self, scope: ParkScope) -> Step {
        let free = move |plane: &mut P, now| {
            plane.unpark(&scope, "operator", now)?;
            Ok(((), Event::Unparked(scope, "operator".into(), now)))
        };
        self.call(Caller::Operator, free).map(drop)
    }

    fn recover_one(&mut self) -> Step {
        let dead =
            self.referee.jobs().filter(|(id, j)| j.end == Some(State::Dead) && !self.poison.contains(id));
        let Some(dead) = dead.map(|(id, _)| id).min() else { return Ok(()) };
        let letters = vec![Recover { dead, new_id: self.new_id() }];
        let revive = move |plane: &mut P, now| {
            let reply = plane.recover(letters.clone(), now)?;
            Ok(((), Event::Recovered(letters, reply, now)))
        };
        self.call(Caller::Operator, revive).map(drop)
    }

    /// Changes a queue. False: nobody knows whether it arrived.
    pub(crate) fn put_queue(&mut self, i: usize, settings: QueueSettings) -> Step<bool> {
        let name: QueueName = queue(QUEUES[i]);
        let change = move |plane: &mut P, now| {
            plane.put_queue(name.clone(), settings.clone(), now)?;
            Ok(((), Event::Queue(name, Box::new(settings), now)))
        };
        Ok(self.call(Caller::Operator, change)?.is_some())
    }
}
