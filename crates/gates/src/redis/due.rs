//! What a task has still to do: each thing once, however often it was asked for.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Due<T> {
    things: Mutex<BTreeSet<T>>,
    added: Notify,
}

impl<T> Default for Due<T> {
    fn default() -> Self {
        Self { things: Mutex::default(), added: Notify::new() }
    }
}

impl<T: Ord> Due<T> {
    pub(super) fn add(&self, thing: T) {
        self.things.lock().unwrap_or_else(PoisonError::into_inner).insert(thing);
        self.added.notify_one();
    }

    /// Takes what there is; waits if there is nothing.
    pub(super) async fn take(&self) -> BTreeSet<T> {
        loop {
            let things = std::mem::take(&mut *self.things.lock().unwrap_or_else(PoisonError::into_inner));
            if !things.is_empty() {
                return things;
            }
            self.added.notified().await;
        }
    }
}
