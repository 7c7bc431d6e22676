//! Wake-ups inside a process: who waits for which holder's turn.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::gates::Holder;
use tokio::sync::Notify;

/// Those who wait in this process.
#[derive(Debug, Default, Clone)]
pub struct Turns {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// How many are registered: most wake-ups find none, and then take no lock.
    count: AtomicUsize,
    waiting: Mutex<HashMap<Holder, Arc<Notify>>>,
}

impl Turns {
    /// Registers for the wake-up of a holder.
    pub fn register(&self, holder: &Holder) -> Turn {
        let mut waiting = self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let notify = waiting.entry(*holder).or_default().clone();
        self.inner.count.store(waiting.len(), Ordering::Release);
        Turn { turns: self.clone(), holder: *holder, notify }
    }

    /// Wakes these, as far as they wait in this process. Those that do not come back.
    #[inline]
    pub fn wake(&self, holders: &[Holder]) -> Vec<Holder> {
        if holders.is_empty() {
            return Vec::new();
        }
        if self.inner.count.load(Ordering::Acquire) == 0 {
            return holders.to_vec();
        }
        let waiting = self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let there = |holder: &&Holder| waiting.get(holder).map(|turn| turn.notify_one()).is_none();
        holders.iter().filter(there).copied().collect()
    }

    /// Wakes everybody: wake-ups may have been missed.
    pub fn wake_all(&self) {
        if self.inner.count.load(Ordering::Acquire) > 0 {
            let waiting = self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.values().for_each(|turn| turn.notify_one());
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.inner.count.load(Ordering::Acquire)
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A registration; dropping it ends it.
#[must_use = "a turn that is dropped hears nothing"]
#[derive(Debug)]
pub struct Turn {
    turns: Turns,
    holder: Holder,
    notify: Arc<Notify>,
}

impl Turn {
    /// Where it is registered.
    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Waits until the holder is woken, or until this time has passed. True if woken.
    pub async fn wait(&self, at_most: Duration) -> bool {
        tokio::time::timeout(at_most, self.notify.notified()).await.is_ok()
    }

    /// Forgets a wake-up that came while nobody waited.
    pub(crate) fn forget(&self) {
        pin!(self.notify.notified()).as_mut().enable();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut waiting = self.turns.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Two of one holder share an entry; the last one takes it away (the map and this one remain).
        if waiting
            .get(&self.holder)
            .is_some_and(|n| Arc::ptr_eq(n, &self.notify) && Arc::strong_count(n) <= 2)
        {
            waiting.remove(&self.holder);
        }
        self.turns.inner.count.store(waiting.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    #[tokio::test]
    async fn whoever_does_not_wait_here_comes_back_and_the_others_are_woken() {
        let turns = Turns::default();
        let (here, elsewhere) = (Holder::number(1), Holder::number(2));
        assert_eq!(turns.wake(&[elsewhere]), [elsewhere]);
        let turn = turns.register(&here);
        assert_eq!(turns.wake(&[elsewhere, here]), [elsewhere]);
        assert!(turn.wait(LONG).await);
        drop(turn);
        assert_eq!(turns.wake(&[here]), [here]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_up_that_is_forgotten_wakes_nobody() {
        let turns = Turns::default();
        let turn = turns.register(&Holder::number(1));
        turns.wake(&[Holder::number(1)]);
        turn.forget();
        assert!(!turn.wait(LONG).await);
    }

    #[tokio::test]
    async fn everybody_is_woken_after_wake_ups_may_have_been_missed() {
        let turns = Turns::default();
        let waiting: Vec<Turn> = (0..3).map(|n| turns.register(&Holder::number(n))).collect();
        turns.wake_all();
        for turn in &waiting {
            assert!(turn.wait(LONG).await);
        }
    }
}
