//! Delivers tellings: claims their jobs like any worker, sends each to its channel, says what came of it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::{ProcessId, QueueName, WorkerId};
use tidegate_store::Result;
use tidegate_store::params::{Claim, ClaimedJob, Outcome, Settle, Settlement};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::channel;
use super::{Errand, Post, QUEUE};
use crate::outgoing::Client;

/// Tellings on their way at a time.
const TOGETHER: u32 = 8;
/// Longest time for one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Lease: longer than the patience.
const LEASE_MS: i64 = 30_000;
/// Pause while there is nothing to deliver, or the store does not answer.
const PAUSE: Duration = Duration::from_secs(2);

/// Delivers for as long as the server runs.
pub(crate) async fn deliver(post: Arc<Post>) {
    if post.settings.channels.is_empty() {
        // Nowhere to deliver to: others may have what this process was not given.
        return;
    }
    let client = match Client::new(true) {
        Ok(client) => client,
        Err(why) => {
            tracing::error!("alerts cannot be delivered: {why}");
            return;
        }
    };
    loop {
        match deliver_some(&post, &client).await {
            Ok(true) => {}
            Ok(false) => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                tracing::debug!(code = %error.code, "alerts could not be delivered: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Delivers what is there, or waits for it. False if nothing was ever to be told.
pub(super) async fn deliver_some(post: &Arc<Post>, client: &Client) -> Result<bool> {
    let queue: QueueName = QUEUE.parse()?;
    if !post.store.settings().await?.iter().any(|(name, _)| *name == queue) {
        return Ok(false);
    }
    let process = post.process;
    let claim = Claim {
        worker: WorkerId::new(format!("alerts-{process:x}"))?,
        process: ProcessId(process),
        queues: vec![(queue, TOGETHER)],
        max: TOGETHER,
        lease_ms: LEASE_MS,
        now: post.now(),
    };
    // Held until the claim comes back: dropping it would end the wait.
    let (_leave, left) = oneshot::channel();
    let claimed = post.store.stand(claim, left).await?.claimed;
    let mut runs = JoinSet::new();
    for job in claimed.jobs {
        let (post, client) = (post.clone(), client.clone());
        runs.spawn(async move {
            let outcome = run(&post, &client, &job).await;
            let settlements = vec![Settlement { ticket: job.ticket, outcome }];
            post.store.settle(Settle { settlements, now: post.now(), seed: post.mint.seed() }).await
        });
    }
    while let Some(ended) = runs.join_next().await {
        if let Ok(Err(error)) = ended {
            tracing::warn!(code = %error.code, "what came of an alert's delivery was not kept: {error}; it is told again");
        }
    }
    Ok(true)
}

async fn run(post: &Post, client: &Client, job: &ClaimedJob) -> Outcome {
    let failed = |category, code: &str, why: String| Outcome::Fail(Failure::new(category, code, why));
    let Ok(errand) = serde_json::from_str::<Errand>(job.payload.as_str()) else {
        return failed(Category::InvalidInput, "NO_TELLING", "the payload is no telling".into());
    };
    let known = post.settings.channels.get(&errand.channel);
    let request =
        known.and_then(|c| channel::request(c, &errand.channel, &errand.telling, &post.settings.runbooks));
    let Some(request) = request else {
        super::log(&errand.telling, &post.settings.runbooks);
        return Outcome::Complete(None);
    };
    // What goes wrong is said without the URL: it may carry a token.
    match tokio::time::timeout(PATIENCE, client.send(request)).await {
        Ok(Ok(answer)) if (200..300).contains(&answer.status) => Outcome::Complete(None),
        Ok(Ok(answer)) => {
            let why = format!("channel {} answered {}", errand.channel, answer.status);
            let mut failure = Failure::new(category(answer.status), format!("HTTP_{}", answer.status), why);
            let wait = answer.retry_after().and_then(|d| i64::try_from(d.as_millis()).ok());
            failure.retry_at = wait.map(|ms| post.now().plus_ms(ms));
            Outcome::Fail(failure)
        }
        Ok(Err(_)) => failed(
            Category::TransientNetwork,
            "UNREACHABLE",
            format!("channel {} cannot be reached", errand.channel),
        ),
        Err(_) => failed(
            Category::TransientNetwork,
            "TIMEOUT",
            format!("channel {} did not answer in time", errand.channel),
        ),
    }
}

/// A channel that says no today may be set right tomorrow: everything is tried again for as long as attempts last.
fn category(status: u16) -> Category {
    match status {
        429 => Category::TransientRateLimit,
        _ => Category::TransientServer,
    }
}
