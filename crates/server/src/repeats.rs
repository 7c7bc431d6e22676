//! Requests that are sent again because their answer was lost, and must not be done again.
//!
//! What was answered is remembered for a while, in memory: a server that ended meanwhile has forgotten it. That is enough
//! for what does no harm twice, as log lines; jobs have ids for this.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::codes;
use tidegate_store::{Error, Result};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::app::App;

/// How long an answer is remembered: longer than clients are patient.
const REMEMBERED: Duration = Duration::from_mins(2);
/// Most answers remembered; when there are more, those that are old enough go, and then all: none is worth more memory.
const MOST: usize = 16_384;

type Answered = Arc<OnceCell<Vec<bool>>>;

#[derive(Debug, Default)]
pub(crate) struct Repeats(Mutex<HashMap<(String, String), (Instant, Answered)>>);

impl Repeats {
    /// Does something, or returns what came of it when it was done under this name and key before. It goes on if nobody
    /// waits for it any more, and is forgotten if it fails.
    pub(crate) async fn once(
        &self,
        app: &Arc<App>,
        (scope, key): (&str, &str),
        work: impl Future<Output = Result<Vec<bool>>> + Send + 'static,
    ) -> Result<Vec<bool>> {
        let answered = self.answered(scope, key);
        let (tell, told) = tokio::sync::oneshot::channel();
        app.tasks.spawn(async move {
            let result = answered.get_or_try_init(|| work).await.cloned();
            // Nobody may wait any more.
            let _ = tell.send(result);
        });
        told.await.unwrap_or_else(|_| Err(Error::new(codes::SERVER_STOPPING, codes::SERVER_STOPPING.title)))
    }

    fn answered(&self, scope: &str, key: &str) -> Answered {
        let mut known = self.lock();
        let now = Instant::now();
        if known.len() >= MOST {
            known.retain(|_, (at, _)| now - *at < REMEMBERED);
            if known.len() >= MOST {
                known.clear();
            }
        }
        let entry = known.entry((scope.to_owned(), key.to_owned()));
        let (at, answered) = entry.or_insert_with(|| (now, Answered::default()));
        if now - *at >= REMEMBERED {
            (*at, *answered) = (now, Answered::default());
        }
        answered.clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), (Instant, Answered)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
