//! Claimed jobs on their way to a worker. If they do not get there, they are given back at once instead of waiting for
//! their lease to end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_store::params::{Claimed, ClaimedJob, Outcome, Settle, Settlement, Ticket};
use tidegate_store::{Result, Store};

use crate::app::App;

/// Jobs that were claimed for somebody. Dropped before [`Delivery::arrived`], they are given back.
pub(crate) struct Delivery {
    app: Arc<App>,
    tickets: Vec<Ticket>,
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery").field("jobs", &self.tickets.len()).finish_non_exhaustive()
    }
}

impl Delivery {
    pub(crate) fn new<'a>(app: Arc<App>, jobs: impl Iterator<Item = &'a ClaimedJob>) -> Self {
        Self { app, tickets: jobs.map(|job| job.ticket).collect() }
    }

    /// They are the worker's now.
    pub(crate) fn arrived(mut self) {
        self.tickets.clear();
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let tickets = std::mem::take(&mut self.tickets);
        if tickets.is_empty() {
            return;
        }
        let app = self.app.clone();
        self.app.tasks.spawn(async move {
            tracing::debug!(
                jobs = tickets.len(),
                "jobs cannot reach the worker that they were claimed for; they are given back"
            );
            let settlements =
                tickets.into_iter().map(|ticket| Settlement { ticket, outcome: Outcome::Release });
            let settle = Settle { settlements: settlements.collect(), now: app.now(), seed: app.mint.seed() };
            if let Err(error) = app.store.settle(settle).await {
                // Their lease ends by itself.
                tracing::debug!(code = %error.code, "jobs could not be given back: {error}");
            }
        });
    }
}

type Claiming = Pin<Box<dyn Future<Output = Result<Claimed>> + Send>>;

/// A claim under way. If nobody waits for it any more, it goes on by itself and what it claims is given back.
pub(crate) struct Claim {
    app: Arc<App>,
    claiming: Option<Claiming>,
}

impl Claim {
    pub(crate) fn new(app: Arc<App>, claim: tidegate_store::params::Claim) -> Self {
        let store: Arc<dyn Store> = app.store.clone();
        Self { app, claiming: Some(Box::pin(async move { store.claim(claim).await })) }
    }
}

impl Future for Claim {
    type Output = Result<Claimed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(claiming) = &mut self.claiming else { return Poll::Pending };
        let result = std::task::ready!(claiming.as_mut().poll(cx));
        self.claiming = None;
        Poll::Ready(result)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(claiming) = self.claiming.take() else { return };
        let app = self.app.clone();
        self.app.tasks.spawn(async move {
            if let Ok(claimed) = claiming.await {
                drop(Delivery::new(app, claimed.jobs.iter()));
            }
        });
    }
}
