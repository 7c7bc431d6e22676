//! What the tenants send: one big backlog at the start, and a steady trickle from everybody else.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Enqueue, Tidegate};
use tidegate_core::ids::UniqueKey;
use tidegate_core::job::{OnConflict, Unique, UniqueScope};
use tidegate_core::seed::Seed;
use tidegate_store::params::EnqueueOutcome;
use tokio::sync::watch;

use super::ledger::{Ledger, count};
use super::scenario::{
    BuildReport, Fate, MatchPayment, NOISY, Order, SendInvoice, SyncCatalog, TENANTS, draw_priority,
    quick_retry,
};
use crate::error::Result;

/// Jobs of the backlog in one commit.
const BACKLOG_BATCH: u64 = 2_000;
/// Time between two batches of the trickle.
const TICK: Duration = Duration::from_millis(50);

/// Sends the noisy tenant's backlog.
pub(crate) async fn backlog(tide: &Tidegate, ledger: &Ledger, jobs: u64) -> Result<()> {
    let mut seed = Seed::new(1);
    for first in (0..jobs).step_by(BACKLOG_BATCH as usize) {
        let batch: Vec<Enqueue> = (first..jobs.min(first + BACKLOG_BATCH))
            .map(|order| {
                let order = Order { order, tenant: NOISY, fate: Fate::draw(&mut seed) };
                tide.enqueue(SendInvoice(order)).tenant(TENANTS[NOISY].name).retry(quick_retry())
            })
            .collect();
        for one in tide.enqueue_many(batch).await? {
            ledger.acknowledge(one.id, Some(NOISY));
        }
    }
    let text =
        format!("{} drops {} invoices at once", TENANTS[NOISY].name, tidegate_core::why::grouped(jobs));
    ledger.event(tide.now(), text);
    Ok(())
}

/// Sends what the small tenants send, until told to stop.
pub(crate) async fn trickle(
    tide: Tidegate,
    ledger: Arc<Ledger>,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    let mut seed = Seed::new(2);
    let mut ticker = tokio::time::interval(TICK);
    let mut owed = [0_u64; TENANTS.len()];
    let mut order = 1_000_000_u64;
    loop {
        tokio::select! {
            _ = ticker.tick() => {}
            _ = stop.wait_for(|stopped| *stopped) => return Ok(()),
        }
        let mut batch = vec![];
        let mut owners = vec![];
        for (tenant, owed) in owed.iter_mut().enumerate() {
            *owed += u64::from(TENANTS[tenant].per_second) * TICK.as_millis() as u64;
            while *owed >= 1_000 {
                *owed -= 1_000;
                order += 1;
                batch.push(one(&tide, &mut seed, Order { order, tenant, fate: Fate::Fine }));
                owners.push(tenant);
            }
        }
        if !batch.is_empty() {
            for (reply, tenant) in tide.enqueue_many(batch).await?.into_iter().zip(owners) {
                ledger.acknowledge(reply.id, Some(tenant));
            }
        }
        report_twice(&tide, &ledger, order).await?;
    }
}

/// A job of one of the kinds, as a tenant would send it.
fn one(tide: &Tidegate, seed: &mut Seed, order: Order) -> Enqueue {
    let order = Order { fate: Fate::draw(seed), ..order };
    let tenant = TENANTS[order.tenant].name;
    let draft = match seed.below(100) {
        0..65 => tide.enqueue(SendInvoice(order)),
        65..80 => tide.enqueue(MatchPayment(order)),
        _ => tide.enqueue(SyncCatalog(order)),
    };
    draft.tenant(tenant).priority(draw_priority(seed)).retry(quick_retry())
}

/// The same report asked for twice under one key: one job.
async fn report_twice(tide: &Tidegate, ledger: &Ledger, order: u64) -> Result<()> {
    let tenant = order as usize % TENANTS.len();
    let key = UniqueKey::new(format!("report:{order}"))?;
    let report = || {
        let unique =
            Unique { key: key.clone(), scope: UniqueScope::PeriodMs(60_000), on_conflict: OnConflict::Keep };
        let order = Order { order, tenant, fate: Fate::Fine };
        tide.enqueue(BuildReport(order)).tenant(TENANTS[tenant].name).unique_with(unique)
    };
    let first = report().await?;
    ledger.acknowledge(first.id, Some(tenant));
    count(&ledger.duplicates_sent);
    let second = report().await?;
    if second.outcome == EnqueueOutcome::Kept && second.id == first.id {
        count(&ledger.duplicates_kept);
    } else {
        // Also an acknowledged job; that it should not exist is for the verdict to say.
        ledger.acknowledge(second.id, Some(tenant));
    }
    Ok(())
}
