//! Long polls wake up together and go through one by one.
//!
//! A wake-up says "there may be work", not for whom. If a thousand workers wait, a thousand claims per enqueue would be
//! asked of the store, nearly all in vain. So those that wake go through a turnstile; the first whose claim comes back
//! empty spares the rest theirs, until the next wake-up.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::ids::QueueName;
use tidegate_core::time::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Claims of woken waiters at a time: enough to be committed together, few enough to learn from.
const WIDTH: usize = 4;
/// Most queues remembered.
const MOST: usize = 16_384;

#[derive(Debug)]
pub(crate) struct Turnstile {
    turns: Semaphore,
    dry: Mutex<HashMap<QueueName, Dry>>,
}

/// A claim on this queue found nothing.
#[derive(Debug, Clone, Copy)]
struct Dry {
    /// The newest wake-up it knew of.
    wakeup: u64,
    /// When it looked.
    at: Timestamp,
    /// When there may be something without a wake-up.
    next: Option<Timestamp>,
}

/// Why somebody looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reason {
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
            let Some(found) = dry.get(queue) else { return Look::Yes };
            if found.wakeup < reason.wakeup || reason.due.is_some_and(|due| found.at < due) {
                return Look::Yes;
            }
            next = [next, found.next].into_iter().flatten().min();
        }
        Look::InVain { next }
    }

    /// A claim on these queues found nothing.
    pub(crate) fn found_nothing(
        &self,
        queues: &[(QueueName, u32)],
        wakeup: u64,
        at: Timestamp,
        next: Option<Timestamp>,
    ) {
        let mut dry = self.lock();
        if dry.len() + queues.len() > MOST {
            dry.clear();
        }
        for (queue, most) in queues {
            // A queue of which nothing was asked says nothing.
            if *most > 0 {
                dry.insert(queue.clone(), Dry { wakeup, at, next });
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<QueueName, Dry>> {
        self.dry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_claim_spares_the_others_until_something_happens() {
        let turnstile = Turnstile::new();
        let queue = |name: &str| (name.parse::<QueueName>().unwrap(), 1);
        let (a, both) = (vec![queue("a")], vec![queue("a"), queue("b")]);
        let (t1, t2) = (Timestamp(1_000), Timestamp(2_000));
        let woken = |wakeup| Reason { wakeup, due: None };
        assert_eq!(turnstile.look(&a, woken(1)), Look::Yes);
        turnstile.found_nothing(&a, 1, t1, Some(t2));
        assert_eq!(turnstile.look(&a, woken(1)), Look::InVain { next: Some(t2) });
        assert_eq!(turnstile.look(&both, woken(1)), Look::Yes, "nobody looked into b");
        assert_eq!(turnstile.look(&a, woken(2)), Look::Yes, "there was a wake-up since");
        assert_eq!(turnstile.look(&a, Reason { wakeup: 1, due: Some(t2) }), Look::Yes, "its time came since");
    }
}
