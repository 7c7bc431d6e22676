//! Long polls wake up together and go through one by one.
//!
//! A wake-up says "there may be work", not for whom. If a thousand workers wait, a thousand claims per enqueue would be
//! asked of the store, nearly all in vain. So those that wake go through a turnstile; claims that come back empty spare
//! the rest theirs, until the next wake-up.
//!
//! One empty claim says nothing to other processes: a process that waits to run a suspect alone gets nothing although
//! there is work. Two processes that find nothing say enough.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::ids::{ProcessId, QueueName};
use tidegate_core::time::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Claims of woken waiters at a time: enough to be committed together, few enough to learn from.
const WIDTH: usize = 4;
/// Most queues remembered.
const MOST: usize = 16_384;

#[derive(Debug)]
pub(crate) struct Turnstile {
    turns: Semaphore,
    dry: Mutex<HashMap<QueueName, Found>>,
}

/// The last claims on a queue that found nothing, of two processes: the newest first.
type Found = (Dry, Option<Dry>);

/// A claim found nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dry {
    /// Whose it was.
    pub(crate) process: ProcessId,
    /// The newest wake-up it knew of.
    pub(crate) wakeup: u64,
    /// When it looked.
    pub(crate) at: Timestamp,
    /// When there may be something without a wake-up.
    pub(crate) next: Option<Timestamp>,
}

impl Dry {
    fn answers(&self, reason: Reason) -> bool {
        self.wakeup >= reason.wakeup && reason.due.is_none_or(|due| self.at >= due)
    }
}

/// Why somebody looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reason {
    /// For whom.
    pub(crate) process: ProcessId,
    /// The newest wake-up.
    pub(crate) wakeup: u64,
    /// The time that was waited for, if it was a time.
    pub(crate) due: Option<Timestamp>,
}

/// Whether to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// There may be something.
    Yes,
    /// Others looked; there may be something at `next`.
    InVain { next: Option<Timestamp> },
}

impl Turnstile {
    pub(crate) fn new() -> Self {
        Self { turns: Semaphore::new(WIDTH), dry: Mutex::default() }
    }

    /// Waits for its turn.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // Never closed.
        self.turns.acquire().await.ok()
    }

    /// Whether somebody else has just found nothing in these queues, for the same reason.
    pub(crate) fn look(&self, queues: &[(QueueName, u32)], reason: Reason) -> Look {
        let dry = self.lock();
        let mut next: Option<Timestamp> = None;
        for (queue, _) in queues {
            let Some((last, other)) = dry.get(queue) else { return Look::Yes };
            // Its own process found nothing, or two others did.
            let own =
                [Some(last), other.as_ref()].into_iter().flatten().find(|d| d.process == reason.process);
            let in_vain = match (own, other) {
                (Some(own), _) => own.answers(reason),
                (None, Some(other)) => last.answers(reason) && other.answers(reason),
                (None, None) => false,
            };
            if !in_vain {
                return Look::Yes;
            }
            next = [next, last.next].into_iter().flatten().min();
        }
        Look::InVain { next }
    }

    /// A claim on these queues found nothing.
    pub(crate) fn found_nothing(&self, queues: &[(QueueName, u32)], found: Dry) {
        let mut dry = self.lock();
        if dry.len() + queues.len() > MOST {
            dry.clear();
        }
        for (queue, most) in queues {
            // A queue of which nothing was asked says nothing.
            if *most > 0 {
                let before =
                    dry.get(queue).and_then(
                        |(last, other)| {
                            if last.process == found.process { *other } else { Some(*last) }
                        },
                    );
                dry.insert(queue.clone(), (found, before));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<QueueName, Found>> {
        self.dry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> (QueueName, u32) {
        (name.parse().unwrap(), 1)
    }

    fn woken(process: u64, wakeup: u64) -> Reason {
        Reason { process: ProcessId(process), wakeup, due: None }
    }

    const T1: Timestamp = Timestamp(1_000);
    const T2: Timestamp = Timestamp(2_000);

    fn dry(process: u64, wakeup: u64) -> Dry {
        Dry { process: ProcessId(process), wakeup, at: T1, next: Some(T2) }
    }

    #[test]
    fn an_empty_claim_spares_the_others_of_its_process_until_something_happens() {
        let turnstile = Turnstile::new();
        let (a, both) = (vec![queue("a")], vec![queue("a"), queue("b")]);
        assert_eq!(turnstile.look(&a, woken(7, 1)), Look::Yes);
        turnstile.found_nothing(&a, dry(7, 1));
        assert_eq!(turnstile.look(&a, woken(7, 1)), Look::InVain { next: Some(T2) });
        assert_eq!(turnstile.look(&both, woken(7, 1)), Look::Yes, "nobody looked into b");
        assert_eq!(turnstile.look(&a, woken(7, 2)), Look::Yes, "there was a wake-up since");
        let due = Reason { due: Some(T2), ..woken(7, 1) };
        assert_eq!(turnstile.look(&a, due), Look::Yes, "its time came since");
    }

    #[test]
    fn a_process_that_gets_nothing_keeps_nobody_else_from_looking_and_two_do() {
        let turnstile = Turnstile::new();
        let a = vec![queue("a")];
        for _ in 0..3 {
            turnstile.found_nothing(&a, dry(7, 1));
            assert_eq!(turnstile.look(&a, woken(8, 1)), Look::Yes, "7 may wait to run something alone");
        }
        turnstile.found_nothing(&a, dry(8, 1));
        assert_eq!(turnstile.look(&a, woken(9, 1)), Look::InVain { next: Some(T2) });
        turnstile.found_nothing(&a, dry(7, 2));
        assert_eq!(turnstile.look(&a, woken(9, 2)), Look::Yes, "8 has not looked since");
    }
}
