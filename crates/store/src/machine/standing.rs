//! Claims that stand and wait: a job is handed out in the same step that makes it ready.
//!
//! A worker that found nothing need not be woken to ask again. Its claim stands with whoever runs the machine, and is
//! tried again at the end of each group of operations after which a claim may find more than before.
//!
//! Where a claim needs a transaction of its own, one that is certain to find nothing stands without one (see
//! [`Machine::in_vain`]), and those who stand are asked beforehand whether one is worth it.
//!
//! Claims of the same queues stand in one line, first come, first served. If the first of a line finds nothing, the rest
//! of it is not tried, unless it was that worker's process that was held back.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_core::ids::QueueName;
use tidegate_core::time::Timestamp;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::Machine;
use crate::params::{Claim, Claimed, Stood};
use crate::rows::Rows;
use crate::traits::{sleep_until, wait_until};
use crate::{Error, Result};

/// A claim that stands, where the machine runs.
#[derive(Debug)]
pub struct Stander {
    claim: Claim,
    /// Told whenever it found nothing: the time at which it should be asked again without a signal.
    alarm: watch::Sender<Option<Timestamp>>,
    caller: oneshot::Sender<Result<Claimed>>,
    /// What it got, once it need not stand any longer.
    reply: Option<Result<Claimed>>,
}

/// The same claim, where its worker waits.
#[derive(Debug)]
pub struct StanderHandle {
    now: Timestamp,
    asked: Instant,
    lease_ms: i64,
    alarm: watch::Receiver<Option<Timestamp>>,
    answer: oneshot::Receiver<Result<Claimed>>,
}

impl Stander {
    /// A claim and its worker's end.
    pub fn new(claim: Claim) -> (Self, StanderHandle) {
        let (alarm, told) = watch::channel(None);
        let (caller, answer) = oneshot::channel();
        let (now, lease_ms) = (claim.now, claim.lease_ms);
        let handle = StanderHandle { now, asked: Instant::now(), lease_ms, alarm: told, answer };
        (Self { claim, alarm, caller, reply: None }, handle)
    }

    /// The caller's time.
    pub fn now(&self) -> Timestamp {
        self.claim.now
    }

    /// Most jobs it takes.
    pub fn max(&self) -> usize {
        self.claim.max as usize
    }

    /// Answers with what it got, or with what undid it.
    pub fn answer(self, undone: Option<&Error>) {
        let reply = match undone {
            Some(error) => Err(error.clone()),
            None => self.reply.unwrap_or_else(|| Ok(Claimed::default())),
        };
        // A worker that has gone away needs no answer.
        let _ = self.caller.send(reply);
    }

    /// Whether its worker still waits.
    fn waits(&self) -> bool {
        !self.caller.is_closed()
    }

    /// From now on it is asked by this time, not by that of the moment it began to stand: after a clock that went back, too.
    fn at(&mut self, now: Timestamp) -> &mut Self {
        self.claim.now = now;
        self
    }

    /// Claims. True if it need not stand any longer: something was granted, or it was refused.
    fn ask<R: Rows>(&mut self, machine: &mut Machine<R>) -> Result<bool> {
        match machine.claim(self.claim.clone()) {
            Ok(claimed) if claimed.jobs.is_empty() => {
                self.set_alarm(claimed.next_wakeup);
                return Ok(false);
            }
            Err(error) if !error.is_refusal() => return Err(error),
            reply => self.reply = Some(reply),
        }
        Ok(true)
    }

    /// Whether it would find nothing, which is then not asked for again before the time that is known.
    fn is_in_vain<R: Rows>(&self, machine: &Machine<R>) -> bool {
        let in_vain = machine.in_vain(&self.claim);
        if let Some(claimed) = &in_vain {
            self.set_alarm(claimed.next_wakeup);
        }
        in_vain.is_some()
    }

    fn set_alarm(&self, next: Option<Timestamp>) {
        self.alarm.send_if_modified(|at| std::mem::replace(at, next) != next);
    }

    /// What it got.
    pub fn granted(&self) -> Option<&Claimed> {
        self.reply.as_ref()?.as_ref().ok()
    }

    fn serves(&self, queues: &[QueueName]) -> bool {
        self.claim.queues.len() == queues.len() && self.claim.queues.iter().map(|(q, _)| q).eq(queues)
    }
}

impl StanderHandle {
    /// Waits for the answer, and until a time named by the store or `leave` to be over. `withdraw` tells whoever runs the
    /// machine to answer now: so that what was granted meanwhile is not lost, the answer is waited for.
    pub async fn wait(
        self,
        leave: oneshot::Receiver<()>,
        withdraw: impl Future<Output = Result<()>>,
        lost: impl Fn() -> Error,
    ) -> Result<Stood> {
        let Self { now, asked, lease_ms, mut alarm, mut answer } = self;
        let named = async {
            loop {
                let at = *alarm.borrow_and_update();
                tokio::select! {
                    () = sleep_until(at.map(|at| asked + wait_until(at, now))) => return,
                    changed = alarm.changed() => if changed.is_err() {
                        // It was answered, or is about to be.
                        std::future::pending::<()>().await;
                    },
                }
            }
        };
        let first = tokio::select! {
            biased;
            answer = &mut answer => Some(answer),
            _ = leave => None,
            () = named => None,
        };
        let claimed = if let Some(claimed) = first {
            claimed
        } else {
            withdraw.await?;
            answer.await
        };
        let claimed = claimed.unwrap_or_else(|_| Err(lost()))?;
        // The lease runs from the reading of the clock by which it was granted, which is the one this claim began with plus
        // the time since, or an older one.
        let granted = claimed.lease.map_or(0, |lease| lease.until.plus_ms(-lease_ms).since(now));
        let since = (asked + Duration::from_millis(granted.max(0) as u64)).min(Instant::now());
        Ok(Stood { claimed, since })
    }
}

/// All claims that stand.
#[derive(Debug, Default)]
pub struct Standing {
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    queues: Vec<QueueName>,
    standers: VecDeque<(u64, Stander)>,
}

impl Standing {
    /// Whether nobody stands.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// A new claim stands under this number. It is kept before it is tried, so that it is answered whatever happens.
    pub fn arrive<R: Rows>(
        &mut self,
        number: u64,
        stander: Stander,
        machine: &mut Machine<R>,
    ) -> Result<Option<Stander>> {
        let Some(stander) = self.stand(number, stander) else { return Ok(None) };
        Ok(if stander.ask(machine)? { self.withdraw(number) } else { None })
    }

    /// A new claim stands under this number, if it is certain to find nothing. Otherwise it is given back.
    pub fn arrive_in_vain<R: Rows>(
        &mut self,
        number: u64,
        stander: Stander,
        machine: &Machine<R>,
    ) -> Option<Stander> {
        if !stander.is_in_vain(machine) {
            return Some(stander);
        }
        self.stand(number, stander);
        None
    }

    /// A new claim stands under this number. It is tried when its turn comes.
    pub fn line_up(&mut self, number: u64, stander: Stander) {
        self.stand(number, stander);
    }

    fn stand(&mut self, number: u64, stander: Stander) -> Option<&mut Stander> {
        let known = self.lines.iter().position(|line| stander.serves(&line.queues));
        let at = known.unwrap_or_else(|| {
            let queues = stander.claim.queues.iter().map(|(q, _)| q.clone()).collect();
            self.lines.push(Line { queues, standers: VecDeque::new() });
            self.lines.len() - 1
        });
        let line = &mut self.lines[at].standers;
        line.push_back((number, stander));
        line.back_mut().map(|(_, stander)| stander)
    }

    /// Whether it is worth trying the claims that stand. The first of a line speaks for all of it.
    pub fn would_find<R: Rows>(&mut self, machine: &Machine<R>, now: Timestamp) -> bool {
        self.lines.retain_mut(|line| {
            line.standers.retain(|(_, stander)| stander.waits());
            !line.standers.is_empty()
        });
        let mut firsts = self.lines.iter_mut().filter_map(|line| line.standers.front_mut());
        firsts.any(|(_, stander)| !stander.at(now).is_in_vain(machine))
    }

    /// Tries the claims that stand, until they have got about so many jobs. `granted` gets each that found something, before the next
    /// is tried. Whether there may be more for those who stand.
    pub fn serve<R: Rows>(
        &mut self,
        machine: &mut Machine<R>,
        now: Timestamp,
        most: usize,
        mut granted: impl FnMut(Stander),
    ) -> Result<bool> {
        let (mut jobs, mut more) = (0, false);
        for line in &mut self.lines {
            let mut at = 0;
            while let Some((_, stander)) = line.standers.get_mut(at) {
                more = jobs >= most;
                if more {
                    break;
                }
                if !stander.waits() {
                    line.standers.remove(at);
                } else if stander.at(now).ask(machine)? {
                    jobs += stander.granted().map_or(0, |claimed| claimed.jobs.len());
                    line.standers.remove(at).into_iter().for_each(|(_, stander)| granted(stander));
                } else if machine.holds_back(stander.claim.process) {
                    at += 1;
                } else {
                    break;
                }
            }
        }
        self.lines.retain(|line| !line.standers.is_empty());
        Ok(more)
    }

    /// Takes the claim of this number out, if it still stands.
    pub fn withdraw(&mut self, number: u64) -> Option<Stander> {
        for line in &mut self.lines {
            if let Some(at) = line.standers.iter().position(|(n, _)| *n == number) {
                let found = line.standers.remove(at);
                self.lines.retain(|line| !line.standers.is_empty());
                return found.map(|(_, stander)| stander);
            }
        }
        None
    }

    /// Takes all out.
    pub fn take_all(&mut self) -> impl Iterator<Item = Stander> + use<> {
        std::mem::take(&mut self.lines).into_iter().flat_map(|line| line.standers).map(|(_, stander)| stander)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::ids::{JobId, KindName, ProcessId, WorkerId};
    use tidegate_core::payload::Payload;
    use tidegate_core::registry::{KindSettings, QueueSettings};

    use super::*;
    use crate::memory::MemoryRows;
    use crate::params::NewJob;

    const NOW: Timestamp = Timestamp(1_763_000_000_000);

    #[test]
    fn what_one_commit_hands_out_is_bounded_and_the_rest_is_told() {
        let queue: QueueName = "work".parse().unwrap();
        let kind: KindName = "task".parse().unwrap();
        let mut machine = Machine::open(MemoryRows::default(), NOW).unwrap();
        machine.put_queue(queue.clone(), QueueSettings::default(), NOW).unwrap();
        machine.put_kind(kind.clone(), KindSettings::new(queue.clone())).unwrap();
        let mut standing = Standing::default();
        let mut handles = Vec::new();
        for number in 0..5 {
            let claim = Claim {
                worker: WorkerId::new("w").unwrap(),
                process: ProcessId(1),
                queues: vec![(queue.clone(), 2)],
                max: 2,
                lease_ms: 30_000,
                now: NOW,
            };
            let (stander, handle) = Stander::new(claim);
            assert!(standing.arrive_in_vain(number, stander, &machine).is_none());
            handles.push(handle);
        }
        let payload = Payload::from_json_text("1", 1 << 20).unwrap();
        let job = |n| NewJob::new(JobId::from_parts(NOW.0.cast_unsigned(), n), kind.clone(), payload.clone());
        machine.enqueue((0..10).map(job).collect(), NOW).unwrap();
        let mut granted = 0;
        let mut serve = |most| standing.serve(&mut machine, NOW, most, |_| granted += 1).unwrap();
        assert!(serve(3), "two have got four jobs, and more stand");
        assert!(!serve(100));
        assert_eq!(granted, 5);
    }
}
