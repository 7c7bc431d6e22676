//! Waiting for work: one long poll for each worker that found nothing.
//!
//! The engine's producer claims, and when there is nothing it waits to be woken. So the poll claims at the server on the
//! worker's behalf; what it brings is laid out here, the worker is woken, and its next claim takes it. Nothing stays
//! laid out: jobs that the worker has no use for any more, because it stopped or filled up meanwhile, are given back at
//! once without spending an attempt.
//!
//! A poll that is under way is never broken off: the server may have handed out jobs already, and their lease would have
//! to run out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::ids::{QueueName, WorkerId};
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Claim, Claimed, ClaimedJob, Outcome, Settlement};
use tidegate_store::{Result, Signals};
use tidegate_wire::claims::{ClaimReply, ClaimRequest};
use tidegate_wire::settlements::{SettleReply, SettleRequest};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::call::{Call, Caller};
use crate::skew::{Sent, Skew};
use crate::tasks::Tasks;

/// A worker claims at least once a second while it waits; one that has not for this long is gone.
const GONE: Duration = Duration::from_secs(3);
/// How long jobs stay laid out for a worker that was woken for them.
const LAID_OUT: Duration = Duration::from_millis(100);
/// Time beyond the wait that the server has to answer.
const SLACK: Duration = Duration::from_secs(10);
/// How long giving back is tried; then the lease has to run out.
const GIVE_BACK: Duration = Duration::from_secs(10);

/// The polls of a store.
pub(crate) struct Polls {
    caller: Arc<Caller>,
    tasks: Arc<Tasks>,
    signals: Signals,
    skew: Arc<Skew>,
    watches: Mutex<HashMap<WorkerId, Watch>>,
}

/// What is known of a worker that waits.
struct Watch {
    /// What it asked for last, and when.
    claim: Claim,
    asked: Instant,
    polling: bool,
    brought: Vec<Brought>,
}

struct Brought {
    claimed: Claimed,
    /// Dropped when the jobs are taken.
    _taken: oneshot::Sender<()>,
}

impl Polls {
    pub(crate) fn new(
        caller: Arc<Caller>,
        tasks: Arc<Tasks>,
        signals: Signals,
        skew: Arc<Skew>,
    ) -> Arc<Self> {
        Arc::new(Self { caller, tasks, signals, skew, watches: Mutex::default() })
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<WorkerId, Watch>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether polls wait for work, so that nobody else need say that there is some.
    pub(crate) fn are_used(&self) -> bool {
        !self.watches().is_empty()
    }

    /// What a poll has brought for this worker, or what there is at the server now.
    pub(crate) async fn claim(self: &Arc<Self>, claim: Claim) -> Result<Claimed> {
        if let Some(brought) = self.take(&claim) {
            return Ok(brought);
        }
        let claimed = self.send(claim.clone(), None).await?;
        if claimed.jobs.is_empty() && self.signals.awaited() {
            self.watch(claim);
        }
        Ok(claimed)
    }

    /// What is laid out for this worker and fits what it asks for.
    fn take(self: &Arc<Self>, claim: &Claim) -> Option<Claimed> {
        let mut claimed = {
            let mut watches = self.watches();
            let watch = watches.get_mut(&claim.worker)?;
            watch.asked = Instant::now();
            if watch.brought.is_empty() {
                return None;
            }
            watch.brought.remove(0).claimed
        };
        let (fitting, rest) = fit(claimed.jobs, &claim.queues, claim.max);
        self.give_back(rest);
        if fitting.is_empty() {
            return None;
        }
        claimed.jobs = fitting;
        Some(claimed)
    }

    /// Sees to it that a poll is under way for a worker that found nothing.
    fn watch(self: &Arc<Self>, claim: Claim) {
        let worker = claim.worker.clone();
        let mut watches = self.watches();
        let watch = watches.entry(worker.clone()).or_insert_with(|| Watch {
            claim: claim.clone(),
            asked: Instant::now(),
            polling: false,
            brought: vec![],
        });
        watch.claim = claim;
        watch.asked = Instant::now();
        if !std::mem::replace(&mut watch.polling, true) {
            drop(watches);
            self.tasks.spawn(self.clone().poll(worker));
        }
    }

    /// Polls until there is something, or the worker is gone.
    async fn poll(self: Arc<Self>, worker: WorkerId) {
        let wait = self.caller.timeouts().poll;
        let mut backoff = Backoff::new();
        while let Some(claim) = self.next_poll(&worker) {
            let begun = Instant::now();
            match self.send(claim, Some(wait)).await {
                Ok(claimed) if !claimed.jobs.is_empty() => {
                    return self.lay_out(&worker, claimed).await;
                }
                // A server that does not wait is not asked in a loop.
                Ok(_) if begun.elapsed() >= wait / 2 => backoff = Backoff::new(),
                Ok(_) => tokio::time::sleep(backoff.pause()).await,
                Err(error) => {
                    tracing::debug!(code = %error.code, "waiting for work was not possible: {error}");
                    tokio::time::sleep(backoff.pause()).await;
                }
            }
        }
    }

    /// The next poll for a worker that still waits. Forgets one that does not.
    fn next_poll(&self, worker: &WorkerId) -> Option<Claim> {
        let mut watches = self.watches();
        let watch = watches.get_mut(worker)?;
        if watch.asked.elapsed() < GONE && self.signals.awaited() {
            return Some(watch.claim.clone());
        }
        watch.polling = false;
        if watch.brought.is_empty() {
            watches.remove(worker);
        }
        None
    }

    /// Lays jobs out for a worker and wakes it. What it does not take is given back.
    async fn lay_out(self: &Arc<Self>, worker: &WorkerId, claimed: Claimed) {
        let Some(lease) = claimed.lease else { return };
        let (taken, until_taken) = oneshot::channel();
        let refused = match self.watches().get_mut(worker) {
            Some(watch) => {
                watch.polling = false;
                if self.signals.awaited() {
                    watch.brought.push(Brought { claimed, _taken: taken });
                    None
                } else {
                    Some(claimed.jobs)
                }
            }
            None => Some(claimed.jobs),
        };
        if let Some(jobs) = refused {
            return self.release(jobs).await;
        }
        self.signals.work();
        let _ = tokio::time::timeout(LAID_OUT, until_taken).await;
        let left = {
            let mut watches = self.watches();
            let Some(watch) = watches.get_mut(worker) else { return };
            let place = watch.brought.iter().position(|b| b.claimed.lease.is_some_and(|l| l.id == lease.id));
            let left = place.map(|place| watch.brought.remove(place));
            if !watch.polling && watch.brought.is_empty() && watch.asked.elapsed() >= GONE {
                watches.remove(worker);
            }
            left
        };
        if let Some(left) = left {
            self.release(left.claimed.jobs).await;
        }
    }

    fn give_back(self: &Arc<Self>, jobs: Vec<ClaimedJob>) {
        if !jobs.is_empty() {
            let this = self.clone();
            self.tasks.spawn(async move { this.release(jobs).await });
        }
    }

    /// Gives jobs back without spending an attempt.
    async fn release(&self, jobs: Vec<ClaimedJob>) {
        tracing::debug!(jobs = jobs.len(), "jobs came for a worker that has no use for them and go back");
        let settle = |job: ClaimedJob| Settlement { ticket: job.ticket, outcome: Outcome::Release };
        let settlements = jobs.into_iter().map(settle);
        let now = Timestamp(0); // a release names no time
        let settlements = settlements.map(|s| tidegate_wire::settlements::Settlement::new(s, now)).collect();
        let sent = match Call::post("/v1/settlements", &SettleRequest { settlements }) {
            Ok(call) => self.caller.read::<SettleReply>(call.patient(GIVE_BACK)).await,
            Err(e) => Err(e),
        };
        if let Err(error) = sent {
            tracing::warn!(code = %error.code, "jobs could not be given back and wait for their lease to end: {error}");
        }
    }

    /// One claim at the server.
    async fn send(&self, claim: Claim, wait: Option<Duration>) -> Result<Claimed> {
        let request = ClaimRequest::new(claim, wait.map(|w| w.as_millis() as u64));
        let mut call = Call::post("/v1/claims", &request)?;
        if let Some(wait) = wait {
            call = call.within(wait + SLACK);
        }
        let sent = Sent::now();
        let reply: ClaimReply = self.caller.read(call).await?;
        self.skew.learn(sent, reply.now.0);
        Ok(reply.into())
    }
}

/// The jobs that there is room for, and the others.
fn fit(jobs: Vec<ClaimedJob>, queues: &[(QueueName, u32)], max: u32) -> (Vec<ClaimedJob>, Vec<ClaimedJob>) {
    let mut room: HashMap<&QueueName, u32> = queues.iter().map(|(name, n)| (name, *n)).collect();
    let mut left = max;
    jobs.into_iter().partition(|job| {
        let Some(room) = room.get_mut(&job.queue).filter(|n| **n > 0 && left > 0) else { return false };
        *room -= 1;
        left -= 1;
        true
    })
}
