//! Several workers at once against a store, judged by the referee.
//!
//! Each worker is a small program of its own; one seed decides who moves next, so their calls interleave in every
//! way, and a failure replays. The referee is told every call and reply and uses none of the store's counters.

use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::ProcessId;
use tidegate_core::job::Priority;
use tidegate_core::registry::{KindSettings, Limiter, QueueSettings};
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;
use tidegate_store::Error;
use tidegate_store::params::{CancelJob, Claim, ClaimedJob, NewJob, Outcome, Settle, Settlement, Ticket};

use crate::kit::{Harness, START, group, job_id, json, kind, queue, worker};
use crate::referee::{Event, Referee, Violation};

const WORKERS: usize = 4;
const QUEUES: [&str; 2] = ["tight", "paced"];

/// A run in which a promise was broken.
#[derive(Debug, thiserror::Error)]
#[error("TIDEGATE_SEED={seed} broke a promise at step {step}: {violation}")]
pub struct Broken {
    /// The run; start it again to see the same.
    pub seed: u64,
    /// When it was noticed.
    pub step: usize,
    /// The promise.
    pub violation: Violation,
}

struct Run<'a> {
    harness: &'a mut dyn Harness,
    referee: Referee,
    log: Vec<Event>,
    dice: Seed,
    now: Timestamp,
    made: u64,
    held: Vec<Vec<ClaimedJob>>,
    /// Tickets of settled or lost jobs, tried again now and then.
    old: Vec<Ticket>,
}

/// Lets workers loose on a store for so many steps. Returns the log of events.
pub async fn run(harness: &mut dyn Harness, seed: u64, steps: usize) -> Result<Vec<Event>, Broken> {
    let mut run = Run {
        harness,
        referee: Referee::default(),
        log: vec![],
        dice: Seed::new(seed ^ 0x0f0f),
        now: START,
        made: 0,
        held: vec![vec![]; WORKERS],
        old: vec![],
    };
    let at = |step| move |violation| Broken { seed, step, violation };
    run.set_up().await.map_err(at(0))?;
    for step in 0..steps {
        run.step().await.map_err(at(step))?;
    }
    run.check_all().await.map_err(at(steps))?;
    Ok(run.log)
}

fn failed(error: &Error) -> Violation {
    Violation::Nonsense(format!("{}: {error}", error.code))
}

impl Run<'_> {
    fn observe(&mut self, event: Event) -> Result<(), Violation> {
        let verdict = self.referee.observe(&event);
        self.log.push(event);
        verdict
    }

    async fn set_up(&mut self) -> Result<(), Violation> {
        for (i, name) in QUEUES.into_iter().enumerate() {
            self.put_queue(i, 3, 2).await?;
            let settings = KindSettings::new(queue(name));
            self.harness.store().put_kind(kind(name), settings).await.map_err(|e| failed(&e))?;
            self.observe(Event::Kind(kind(name), queue(name)))?;
        }
        Ok(())
    }

    async fn put_queue(&mut self, i: usize, limit: u32, of_group: u32) -> Result<(), Violation> {
        let mut settings = QueueSettings { group_concurrency: Some(of_group), ..QueueSettings::default() };
        if i == 0 {
            settings.concurrency = Some(limit);
        } else {
            settings.limiter = Some(Limiter { max: limit, per_ms: 3_000 });
        }
        let put = self.harness.store().put_queue(queue(QUEUES[i]), settings.clone(), self.now).await;
        put.map_err(|e| failed(&e))?;
        self.observe(Event::Queue(queue(QUEUES[i]), Box::new(settings), self.now))
    }

    async fn step(&mut self) -> Result<(), Violation> {
        self.now = self.now.plus_ms(match self.dice.below(60) {
            0 => -(self.dice.below(20_000) as i64),
            1 => self.dice.below(8_000) as i64,
            _ => self.dice.below(300) as i64,
        });
        let w = self.dice.below(WORKERS as u64) as usize;
        match self.dice.below(20) {
            0..=4 => self.enqueue().await,
            5..=9 => self.claim(w).await,
            10..=14 => self.settle(w).await,
            15 => self.beat(w).await,
            16 => self.cancel().await,
            17 if self.dice.one_in(4) => {
                self.harness.restart(self.now).await;
                self.observe(Event::Restarted(self.now))
            }
            18 if self.dice.one_in(3) => {
                let (i, limit) = (self.dice.below(2) as usize, 1 + self.dice.below(4) as u32);
                let of_group = 1 + self.dice.below(2) as u32;
                self.put_queue(i, limit, of_group).await
            }
            19 => {
                self.harness.store().advance(self.now).await.map_err(|e| failed(&e))?;
                self.observe(Event::Advanced(self.now))
            }
            _ => Ok(()),
        }
    }

    async fn enqueue(&mut self) -> Result<(), Violation> {
        let n = 1 + self.dice.below(4);
        let jobs: Vec<NewJob> = (0..n)
            .map(|_| {
                self.made += 1;
                let name = QUEUES[self.dice.below(2) as usize];
                let mut job = NewJob::new(job_id(self.made), kind(name), json("1"));
                job.group = Some(group(["x", "y", ""][self.dice.below(3) as usize]));
                job.priority = Priority::from_level(1 + self.dice.below(4) as u8);
                job.run_at = self.dice.one_in(5).then(|| self.now.plus_ms(self.dice.below(4_000) as i64));
                job
            })
            .collect();
        let reply = self.harness.store().enqueue(jobs.clone(), self.now).await.map_err(|e| failed(&e))?;
        self.observe(Event::Enqueued(jobs, reply, self.now))
    }

    async fn claim(&mut self, w: usize) -> Result<(), Violation> {
        let claim = Claim {
            worker: worker(&format!("w{w}")),
            process: ProcessId(w as u64),
            queues: QUEUES.iter().map(|q| (queue(q), 4)).collect(),
            max: 1 + self.dice.below(4) as u32,
            lease_ms: 4_000,
            now: self.now,
        };
        let reply = self.harness.store().claim(claim.clone()).await.map_err(|e| failed(&e))?;
        self.held[w].extend(reply.jobs.iter().cloned());
        self.observe(Event::Claimed(claim, reply))
    }

    async fn settle(&mut self, w: usize) -> Result<(), Violation> {
        let n = self.dice.below(4).min(self.held[w].len() as u64) as usize;
        let mut tickets: Vec<Ticket> = self.held[w].drain(..n).map(|job| job.ticket).collect();
        if self.dice.one_in(3) && !self.old.is_empty() {
            tickets.push(self.old[self.dice.below(self.old.len() as u64) as usize]);
        }
        if self.dice.one_in(8) {
            tickets.extend(tickets.first().copied());
        }
        let settlements: Vec<Settlement> = tickets
            .iter()
            .map(|&ticket| {
                let outcome = match self.dice.below(8) {
                    0 => Outcome::Fail(Failure::new(Category::TransientServer, "E", "")),
                    1 => Outcome::Snooze {
                        until: self.now.plus_ms(2_000),
                        reason: String::new(),
                        park: None,
                        gate: None,
                    },
                    2 => Outcome::Release,
                    _ => Outcome::Complete(None),
                };
                Settlement { ticket, outcome }
            })
            .collect();
        self.old.extend(tickets);
        let settle = Settle { settlements, now: self.now, seed: self.dice.next_u64() };
        let reply = self.harness.store().settle(settle.clone()).await.map_err(|e| failed(&e))?;
        self.observe(Event::Settled(settle, reply))
    }

    async fn beat(&mut self, w: usize) -> Result<(), Violation> {
        let mut leases: Vec<_> = self.held[w].iter().map(|job| job.ticket.lease).collect();
        leases.dedup();
        let reply = self.harness.store().heartbeat(leases.clone(), self.now).await.map_err(|e| failed(&e))?;
        self.observe(Event::Beaten(leases, reply, self.now))
    }

    async fn cancel(&mut self) -> Result<(), Violation> {
        let id = job_id(1 + self.dice.below(self.made.max(1)));
        let cancel = CancelJob { id, note: String::new(), cascade: false, now: self.now };
        match self.harness.store().cancel(cancel).await {
            Ok(reply) => self.observe(Event::Cancelled(id, reply, self.now)),
            Err(e) if e.code == tidegate_core::codes::JOB_NOT_FOUND => self.observe(Event::Seen(self.now)),
            Err(e) => Err(failed(&e)),
        }
    }

    /// No job is lost: each is where the referee knows it to be.
    async fn check_all(&mut self) -> Result<(), Violation> {
        for n in 1..=self.made {
            let job = self.harness.store().get(job_id(n)).await.map_err(|e| failed(&e))?;
            self.referee.check_state(job_id(n), job.map(|job| job.state))?;
        }
        Ok(())
    }
}
