//! Rest: a worker whose handlers lack what they need leaves the jobs to others.
//!
//! Its handlers give their jobs back, and it claims nothing of their queue for a while. Then it claims one job at a time, and after one of a kind
//! that lacks something nothing again, longer each time: whatever is claimed counts for the limiter of the queue, and costs others their turn. It is
//! over when an attempt of such a kind has come to an end of its own that began after the last one that lacked something.
//!
//! A claim chooses queues and cannot choose kinds: a queue rests as a whole.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::ids::{KindName, QueueName};
use tidegate_store::params::ClaimedJob;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The first rest and the longest.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// A lack of which nothing was seen for this long after it could have been: the jobs it was about are gone.
const FORGOTTEN: Duration = Duration::from_mins(1);

/// What a worker does not have.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    lacks: Mutex<HashMap<QueueName, Lack>>,
    /// Whether there is one: most attempts only look here.
    any: AtomicBool,
    /// Rung when a rest begins or ends: a claim that stands is one too many, or too small.
    pub(crate) changed: Notify,
}

/// What is lacking for jobs of a queue.
#[derive(Debug)]
struct Lack {
    /// Whose handlers lack something.
    kinds: Vec<KindName>,
    since: Instant,
    pause: Duration,
    /// When an attempt last found that out.
    noticed: Instant,
    /// End of the rest that began then: until it is over no job of these kinds is tried.
    until: Instant,
    /// The next claim.
    next: Instant,
}

/// What may be claimed of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claims {
    Any,
    One,
    NoneFor(Duration),
}

impl Rest {
    fn lacks(&self) -> MutexGuard<'_, HashMap<QueueName, Lack>> {
        self.lacks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn none(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// An attempt lacked something. Attempts that had begun when another found that out say nothing new.
    pub(crate) fn begin(&self, job: &ClaimedJob, began: Instant, reason: &str) {
        let now = Instant::now();
        let mut lacks = self.lacks();
        let first = !lacks.contains_key(&job.queue);
        let lack = lacks.entry(job.queue.clone()).or_insert_with(|| {
            tracing::warn!(queue = %job.queue, "{reason}; jobs stay where they are, and are claimed again when it works");
            Lack { kinds: vec![], since: now, pause: FIRST, noticed: now, until: now, next: now }
        });
        if !lack.kinds.contains(&job.kind) {
            tracing::debug!(kind = %job.kind, "not ready: {reason}");
            lack.kinds.push(job.kind.clone());
        }
        if first || began > lack.noticed {
            lack.noticed = now;
            lack.until = now + lack.pause;
            lack.next = lack.until;
            self.any.store(true, Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    /// An attempt ended by itself, and lacked nothing. One that had begun before says nothing, nor does one of another kind.
    pub(crate) fn end(&self, job: &ClaimedJob, began: Instant) {
        if self.none() {
            return;
        }
        let mut lacks = self.lacks();
        let Some(lack) =
            lacks.get_mut(&job.queue).filter(|l| began > l.noticed && l.kinds.contains(&job.kind))
        else {
            return;
        };
        lack.kinds.retain(|kind| *kind != job.kind);
        lack.next = lack.until;
        if lack.kinds.is_empty() {
            tracing::info!(queue = %job.queue, seconds = lack.since.elapsed().as_secs(), "it works again");
            self.remove(&mut lacks, &job.queue);
        }
        self.changed.notify_one();
    }

    fn remove(&self, lacks: &mut HashMap<QueueName, Lack>, queue: &QueueName) {
        lacks.remove(queue);
        self.any.store(!lacks.is_empty(), Ordering::Relaxed);
    }

    /// A job was claimed. One of a kind that lacks something will show whether it still does; the next may take its time.
    pub(crate) fn claimed(&self, job: &ClaimedJob) {
        if self.none() {
            return;
        }
        let now = Instant::now();
        if let Some(lack) = self.lacks().get_mut(&job.queue)
            && lack.next <= now
            && lack.kinds.contains(&job.kind)
        {
            lack.pause = (lack.pause * 2).min(LONGEST);
            lack.next = now + lack.pause;
        }
    }

    /// Whether this job need not be tried now.
    pub(crate) fn refuses(&self, job: &ClaimedJob) -> bool {
        let refused = |lack: &Lack| Instant::now() < lack.until && lack.kinds.contains(&job.kind);
        !self.none() && self.lacks().get(&job.queue).is_some_and(refused)
    }

    /// What may be claimed now.
    pub(crate) fn claims(&self, queue: &QueueName) -> Claims {
        if self.none() {
            return Claims::Any;
        }
        let now = Instant::now();
        let mut lacks = self.lacks();
        match lacks.get(queue).map(|lack| lack.next) {
            None => Claims::Any,
            Some(next) if now < next => Claims::NoneFor(next - now),
            Some(next) if now < next + FORGOTTEN => Claims::One,
            Some(_) => {
                self.remove(&mut lacks, queue);
                Claims::Any
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::job::Priority;
    use tokio::time::advance;

    use super::super::sample;
    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    fn job(kind: &str) -> ClaimedJob {
        let (mut job, _) = sample::claimed(1, Priority::Low);
        job.kind = KindName::new(kind).unwrap();
        job
    }

    fn claims(rest: &Rest) -> Claims {
        rest.claims(&job("print").queue)
    }

    /// The rest that is on; it passes.
    async fn rested(rest: &Rest) -> u128 {
        let Claims::NoneFor(left) = claims(rest) else { panic!("there is no rest") };
        advance(left).await;
        assert_eq!(claims(rest), Claims::One);
        left.as_millis()
    }

    /// One job of it is claimed, and lacks something.
    async fn tried_in_vain(rest: &Rest, job: &ClaimedJob) {
        rest.claimed(job);
        assert!(!rest.refuses(job), "it is to show something");
        let began = Instant::now();
        advance(MOMENT).await;
        rest.begin(job, began, "no printer");
    }

    #[tokio::test(start_paused = true)]
    async fn rests_grow_until_an_attempt_ends_otherwise() {
        let (rest, print) = (Rest::default(), job("print"));
        assert_eq!(claims(&rest), Claims::Any);
        let mut rests = vec![];
        for _ in 0..8 {
            tried_in_vain(&rest, &print).await;
            assert!(rest.refuses(&print) && !rest.refuses(&job("scan")));
            assert_eq!(rest.claims(&QueueName::new("elsewhere").unwrap()), Claims::Any);
            rests.push(rested(&rest).await);
        }
        assert_eq!(rests, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        rest.claimed(&print);
        rest.end(&print, Instant::now());
        assert_eq!(claims(&rest), Claims::Any);
        tried_in_vain(&rest, &print).await;
        assert_eq!(rested(&rest).await, 100);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_that_began_before_say_nothing() {
        let (rest, print) = (Rest::default(), job("print"));
        let early = Instant::now();
        tried_in_vain(&rest, &print).await;
        advance(MOMENT).await;
        // What was claimed together finds out together.
        rest.begin(&print, early, "no printer");
        assert_eq!(rested(&rest).await, 99);
        rest.end(&print, early);
        assert_eq!(claims(&rest), Claims::One);
        rest.end(&print, Instant::now());
        assert_eq!(claims(&rest), Claims::Any);
    }

    #[tokio::test(start_paused = true)]
    async fn each_kind_that_lacks_something_has_to_show_that_it_works() {
        let (rest, print, scan) = (Rest::default(), job("print"), job("scan"));
        tried_in_vain(&rest, &print).await;
        rested(&rest).await;
        rest.claimed(&scan);
        assert_eq!(claims(&rest), Claims::One, "nothing is known of it");
        rest.end(&scan, Instant::now());
        assert_eq!(claims(&rest), Claims::One);
        tried_in_vain(&rest, &scan).await;
        rested(&rest).await;
        rest.claimed(&print);
        assert_eq!(claims(&rest), Claims::NoneFor(2 * FIRST));
        rest.end(&print, Instant::now());
        assert_eq!(claims(&rest), Claims::One, "one works, and is not slowed down");
        rest.end(&scan, Instant::now());
        assert_eq!(claims(&rest), Claims::Any);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_takes_long_to_show_something_does_not_keep_the_others_for_ever() {
        let (rest, print) = (Rest::default(), job("print"));
        tried_in_vain(&rest, &print).await;
        rested(&rest).await;
        let began = Instant::now();
        let mut pauses = vec![];
        for _ in 0..4 {
            rest.claimed(&print);
            pauses.push(rested(&rest).await);
        }
        assert_eq!(pauses, [200, 400, 800, 1_600]);
        rest.end(&print, began);
        assert_eq!(claims(&rest), Claims::Any);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lack_whose_jobs_are_gone_is_forgotten() {
        let (rest, print) = (Rest::default(), job("print"));
        tried_in_vain(&rest, &print).await;
        rested(&rest).await;
        advance(FORGOTTEN).await;
        assert_eq!(claims(&rest), Claims::Any);
    }
}
