//! Tasks that outlive the request which started them, each accounted for.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

/// The tasks of a server.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<JoinSet<()>>);

impl Tasks {
    /// Starts a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut set = self.lock();
        while let Some(ended) = set.try_join_next() {
            report(ended);
        }
        set.spawn(task);
    }

    /// Waits for all of them, at most this long; then ends the rest.
    pub(crate) async fn finish(&self, within: Duration) {
        let mut set = std::mem::take(&mut *self.lock());
        let all = async {
            while let Some(ended) = set.join_next().await {
                report(ended);
            }
        };
        if tokio::time::timeout(within, all).await.is_err() {
            set.shutdown().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("a task of the server panicked: {error}");
    }
}
