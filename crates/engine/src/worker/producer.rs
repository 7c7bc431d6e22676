//! Claims jobs for the free slots. A claim that finds nothing stands with the store until there is something; it is
//! withdrawn when there is more room, when the worker lacks something, now and then to look at the settings again, and when the worker stops.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::codes::{self, Fault};
use tidegate_core::ids::QueueName;
use tidegate_core::limits;
use tidegate_core::registry::QueueSettings;
use tidegate_core::time::Timestamp;
use tidegate_core::why::grouped;
use tidegate_store::params::{Claim, Claimed, Outcome, QueueView, Settlement, Stood};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::Shared;
use super::desk::{Room, Waiting};
use super::memory::Level;
use super::rest::Claims;
use super::shutdown::Phase;
use crate::span::duration;
use crate::{Result, mint};

/// Longest time without a look at the store; settings are read again as often.
const POLL: Duration = Duration::from_secs(1);
/// Shortest wait for a time that the store named.
const SHORTEST: Duration = Duration::from_millis(1);
/// First and longest pause after a claim that failed.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// A wait for jobs to come due that is shorter than this needs no word.
const UNTOLD_WAIT_MS: i64 = 2_000;
/// Pause between two looks at memory while it is short.
const MEMORY_POLL: Duration = Duration::from_millis(250);

/// Claims until the worker stops or, if asked to, until nothing is left that could run by itself.
pub(crate) async fn run(shared: Arc<Shared>) -> Result<()> {
    let store = shared.tide.store();
    let work = store.signals().on_work();
    let phase = shared.phase.subscribe();
    let queues = Queues { settings: vec![], read_at: None };
    let mut producer = Producer {
        shared: &shared,
        work,
        phase,
        queues,
        dry: false,
        wakeup: None,
        backoff: BACKOFF.0,
        taken: 0,
        moved_at: Instant::now(),
        told: false,
    };
    producer.run().await
}

struct Producer<'a> {
    shared: &'a Shared,
    work: watch::Receiver<u64>,
    phase: watch::Receiver<Phase>,
    queues: Queues,
    /// The last claim found nothing, and nothing has happened since.
    dry: bool,
    wakeup: Option<Timestamp>,
    backoff: Duration,
    /// Jobs taken off the desk when it was last looked at, and since when that number stands still.
    taken: u64,
    moved_at: Instant,
    /// It was said what is waited for.
    told: bool,
}

/// What a claim needs to know of the worker's queues, in their order.
struct Queues {
    settings: Vec<Caps>,
    read_at: Option<Instant>,
}

#[derive(Clone, Copy, Default)]
struct Caps {
    /// Most jobs of it in this worker.
    worker: Option<u32>,
    /// It has a limiter or a limit over all workers: a claimed job takes a place, so it must start at once.
    strict: bool,
}

impl Producer<'_> {
    async fn run(&mut self) -> Result<()> {
        while *self.phase.borrow() == Phase::Working {
            let result = self.step().await;
            match result {
                Ok(Next::Again) => self.backoff = BACKOFF.0,
                Ok(Next::Wait(longest)) => {
                    self.backoff = BACKOFF.0;
                    self.wait(longest).await;
                }
                Ok(Next::Idle) => return Ok(()),
                Err(error)
                    if matches!(error.code.fault, Fault::Unreachable | Fault::Ours)
                        && error.code != codes::STORE_CLOSED =>
                {
                    if self.backoff == BACKOFF.0 {
                        tracing::error!(code = %error.code, "jobs cannot be claimed: {}; trying again", error.detail);
                    }
                    let pause = self.backoff;
                    self.backoff = (pause * 2).min(BACKOFF.1);
                    self.pause(pause).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn step(&mut self) -> Result<Next> {
        self.refresh().await?;
        self.give_back();
        if self.shared.memory.level() == Level::Stop {
            return Ok(Next::Wait(MEMORY_POLL));
        }
        if self.dry || self.shared.outbox.is_pressed() {
            return Ok(Next::Wait(POLL));
        }
        let room = self.shared.desk.room();
        let (queues, max) = appetite(&self.shared.queues, &self.queues.settings, &room);
        if max == 0 {
            let waits = self.shared.desk.ring_on_room(&room);
            return Ok(if waits { Next::Wait(POLL) } else { Next::Again });
        }
        // A queue without room is left out: it must be asked for as soon as there is.
        if queues.len() < self.shared.queues.len() && !self.shared.desk.ring_on_room(&room) {
            return Ok(Next::Again);
        }
        let (queues, rests) = self.rested(queues);
        let longest = rests.unwrap_or(POLL).min(POLL);
        if queues.is_empty() {
            return Ok(Next::Wait(longest));
        }
        let sum = queues.iter().fold(0u32, |sum, (_, n)| sum.saturating_add(*n));
        let claim = Claim {
            worker: self.shared.name.clone(),
            process: mint::process(),
            queues,
            max: max.min(sum),
            lease_ms: self.shared.lease_ms,
            now: self.shared.tide.now(),
        };
        let Stood { claimed, since } = if self.shared.until_idle {
            self.claim(claim).await?
        } else {
            self.stand(claim, longest).await?
        };
        self.wakeup = claimed.next_wakeup;
        if claimed.jobs.is_empty() && self.shared.until_idle {
            self.dry = true;
            return if rests.is_none() && self.is_idle().await? {
                Ok(Next::Idle)
            } else {
                Ok(Next::Wait(longest))
            };
        }
        self.deliver(claimed, since + duration(self.shared.lease_ms));
        Ok(Next::Again)
    }

    /// Leaves out what rests, and says for how long at least.
    fn rested(&self, mut queues: Vec<(QueueName, u32)>) -> (Vec<(QueueName, u32)>, Option<Duration>) {
        let mut shortest: Option<Duration> = None;
        queues.retain_mut(|(queue, most)| match self.shared.rest.claims(queue) {
            Claims::Any => true,
            Claims::One => {
                *most = 1;
                true
            }
            Claims::NoneFor(left) => {
                shortest = Some(shortest.map_or(left, |other| other.min(left)));
                false
            }
        });
        (queues, shortest)
    }

    /// Whoever is to end when there is nothing left must hear of it: this claim does not wait.
    async fn claim(&mut self, claim: Claim) -> Result<Stood> {
        self.work.mark_unchanged();
        let since = Instant::now();
        Ok(Stood { claimed: self.shared.tide.store().claim(claim).await?, since })
    }

    async fn stand(&mut self, claim: Claim, longest: Duration) -> Result<Stood> {
        let (stay, leave) = oneshot::channel();
        let mut standing = self.shared.tide.store().stand(claim, leave);
        tokio::select! {
            stood = &mut standing => return Ok(stood?),
            _ = self.phase.changed() => {}
            () = self.shared.desk.producer.notified() => {}
            () = self.shared.rest.changed.notified() => {}
            () = tokio::time::sleep(longest) => {}
        }
        drop(stay);
        Ok(standing.await?)
    }

    /// Puts claimed jobs on the desk; if the worker stopped meanwhile they go back at once.
    fn deliver(&self, claimed: Claimed, until: Instant) {
        let Some(granted) = claimed.lease else { return };
        let tide = self.shared.tide.clone();
        let lease = self.shared.ledger.add(granted.id, claimed.jobs.len(), until, tide);
        let places: HashMap<&QueueName, usize> = self.shared.queues.iter().zip(0..).collect();
        let jobs = claimed.jobs.into_iter().map(|job| {
            self.shared.rest.claimed(&job);
            let queue = places.get(&job.queue).copied().unwrap_or_default();
            let strict = self.queues.settings.get(queue).is_some_and(|c| c.strict);
            (Waiting { job, lease: lease.clone(), queue, cancelled: false }, strict)
        });
        let refused = self.shared.desk.put(jobs.collect());
        self.shared.release(refused);
    }

    /// Gives prefetched jobs back that found no slot since the last look: others can run them, and what is more
    /// important is claimed first when a slot comes free.
    fn give_back(&mut self) {
        let (waiting, _, taken) = self.shared.desk.counts();
        let moved = waiting == 0 || taken != self.taken;
        if !moved && self.moved_at.elapsed() < POLL {
            return;
        }
        if !moved {
            self.shared.release(self.shared.desk.give_back(taken));
        }
        self.taken = taken;
        self.moved_at = Instant::now();
    }

    /// Reads the queues' settings, now and then.
    async fn refresh(&mut self) -> Result<()> {
        if self.queues.read_at.is_some_and(|at| at.elapsed() < POLL) {
            return Ok(());
        }
        let known = self.shared.tide.store().settings().await?;
        self.queues.settings = self.shared.queues.iter().map(|name| caps(&known, name)).collect();
        self.queues.read_at = Some(Instant::now());
        Ok(())
    }

    async fn views(&self) -> Result<Vec<QueueView>> {
        Ok(self.shared.tide.store().queues(self.shared.tide.now()).await?)
    }

    /// Whether nothing runs here and nothing is left that could run without help from outside.
    async fn is_idle(&mut self) -> Result<bool> {
        let quiet = || {
            let (waiting, running, _) = self.shared.desk.counts();
            waiting == 0 && running == 0 && self.shared.outbox.is_empty()
        };
        if !self.shared.until_idle || !quiet() {
            return Ok(false);
        }
        let views = self.views().await?;
        let ours = || views.iter().filter(|v| self.shared.queues.contains(&v.name));
        if !nothing_left(ours(), self.wakeup) {
            let scheduled = ours().filter(|v| !is_paused(v)).map(|v| v.scheduled).sum();
            self.tell(scheduled);
            return Ok(false);
        }
        Ok(quiet() && !self.work.has_changed().unwrap_or(false))
    }

    /// Says once what a worker waits for that is to end when nothing is left: it seems to hang otherwise.
    fn tell(&mut self, scheduled: u64) {
        let Some(next) = self.wakeup.filter(|t| t.since(self.shared.tide.now()) >= UNTOLD_WAIT_MS) else {
            return;
        };
        if scheduled > 0 && !std::mem::replace(&mut self.told, true) {
            let jobs = if scheduled == 1 { "1 job is" } else { &format!("{} jobs are", grouped(scheduled)) };
            tracing::info!("{jobs} scheduled and waited for; the next look is at {next}");
        }
    }

    async fn wait(&mut self, longest: Duration) {
        let named = self.wakeup.map(|t| duration(t.since(self.shared.tide.now())).max(SHORTEST));
        let pause = if self.dry { named.unwrap_or(longest).min(longest) } else { longest };
        tokio::select! {
            _ = self.phase.changed() => {}
            _ = self.work.changed(), if self.dry => self.dry = false,
            () = self.shared.desk.producer.notified() => self.dry = false,
            () = self.shared.rest.changed.notified() => self.dry = false,
            () = tokio::time::sleep(pause) => self.dry = false,
        }
    }

    async fn pause(&mut self, pause: Duration) {
        tokio::select! {
            _ = self.phase.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

enum Next {
    Again,
    Wait(Duration),
    Idle,
}

fn caps(known: &[(QueueName, QueueSettings)], name: &QueueName) -> Caps {
    known.iter().find(|(n, _)| n == name).map_or_else(Caps::default, |(_, settings)| Caps {
        worker: settings.worker_concurrency,
        strict: settings.limiter.is_some() || settings.concurrency.is_some(),
    })
}

/// How much to claim from each queue, and in all.
fn appetite(names: &[QueueName], caps: &[Caps], room: &Room) -> (Vec<(QueueName, u32)>, u32) {
    let most = room.any.min(limits::MAX_CLAIM_BATCH as u32);
    let mut queues = Vec::with_capacity(names.len());
    for ((name, caps), held) in names.iter().zip(caps).zip(&room.held) {
        let open = if caps.strict { room.strict.min(most) } else { most };
        let open = caps.worker.map_or(open, |cap| open.min(cap.saturating_sub(*held)));
        if open > 0 {
            queues.push((name.clone(), open));
        }
    }
    let sum = queues.iter().fold(0u32, |sum, (_, n)| sum.saturating_add(*n));
    (queues, most.min(sum))
}

/// Whether nothing in these queues could run without help from outside: a paused queue stays as it is, a ready job that
/// a claim did not hand out needs help unless some time is named at which it could.
fn nothing_left<'a>(mut queues: impl Iterator<Item = &'a QueueView>, wakeup: Option<Timestamp>) -> bool {
    queues.all(|q| {
        let stuck = q.ready == 0 || wakeup.is_none();
        is_paused(q) || (q.scheduled == 0 && q.running == 0 && stuck)
    })
}

fn is_paused(queue: &QueueView) -> bool {
    queue.parks.iter().any(|p| p.until.is_none())
}

impl Shared {
    /// Gives jobs back that have not started, without spending an attempt.
    pub(super) fn release(&self, jobs: Vec<Waiting>) {
        for waiting in jobs {
            self.outbox.push(Settlement { ticket: waiting.job.ticket, outcome: Outcome::Release });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(n: usize) -> Vec<QueueName> {
        (0..n).map(|i| QueueName::new(format!("q{i}")).unwrap()).collect()
    }

    #[test]
    fn a_strict_queue_gets_free_slots_only_and_a_capped_one_what_its_cap_leaves() {
        let caps = [
            Caps::default(),
            Caps { strict: true, worker: None },
            Caps { strict: false, worker: Some(5) },
            Caps { strict: false, worker: Some(2) },
        ];
        let room = Room { any: 100, strict: 40, held: vec![0, 0, 3, 2], changes: 0 };
        let (queues, max) = appetite(&names(4), &caps, &room);
        let asked: Vec<(&str, u32)> = queues.iter().map(|(q, n)| (q.as_str(), *n)).collect();
        assert_eq!(asked, [("q0", 100), ("q1", 40), ("q2", 2)]);
        assert_eq!(max, 100);
        let (none, max) =
            appetite(&names(1), &caps[1..2], &Room { any: 5, strict: 0, held: vec![0], changes: 0 });
        assert!(none.is_empty() && max == 0);
    }
}
