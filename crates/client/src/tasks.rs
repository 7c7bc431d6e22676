//! Tasks that belong to a store: they end with it.

use std::sync::{Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::task::JoinSet;

#[derive(Debug)]
pub(crate) struct Tasks {
    runtime: Handle,
    set: Mutex<JoinSet<()>>,
}

impl Tasks {
    /// Tasks on the runtime of whoever asks.
    pub(crate) fn here() -> Self {
        Self { runtime: Handle::current(), set: Mutex::default() }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        // What has ended is forgotten, so that the set holds no more than what runs.
        while set.try_join_next().is_some() {}
        set.spawn_on(task, &self.runtime);
    }

    /// Ends them all.
    pub(crate) fn end(&self) {
        self.set.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}
