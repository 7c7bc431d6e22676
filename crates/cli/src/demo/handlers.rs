//! The handlers of the demo: they wait a little, as a call to somebody's API would, and fare as drawn.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Context, Failure, Outcome, done, done_with};
use tidegate_core::seed::Seed;

use super::ledger::{Inside, Ledger, count};
use super::scenario::{BuildReport, Fate, MatchPayment, NOISY, Order, PARKED, SendInvoice, SyncCatalog};

/// Sends an invoice.
pub(crate) async fn send_invoice(job: SendInvoice, cx: Context, ledger: Arc<Ledger>) -> Outcome {
    billing(&job.0, &cx, &ledger).await
}

/// Matches a payment.
pub(crate) async fn match_payment(job: MatchPayment, cx: Context, ledger: Arc<Ledger>) -> Outcome {
    billing(&job.0, &cx, &ledger).await
}

async fn billing(order: &Order, cx: &Context, ledger: &Ledger) -> Outcome {
    let _inside = ledger.tenants.get(order.tenant).map(|t| Inside::new(&t.running));
    if cx.attempt() == 1 && order.fate != Fate::Busy {
        let waited = cx.now().since(cx.created_at());
        let special = order.tenant == NOISY || order.tenant == PARKED;
        ledger.waited(order.tenant, cx.priority(), special, waited);
    }
    fare(order, cx, ledger, 1..6).await
}

/// Pushes a product to a shop.
pub(crate) async fn sync_catalog(job: SyncCatalog, cx: Context, ledger: Arc<Ledger>) -> Outcome {
    fare(&job.0, &cx, &ledger, 5..30).await
}

/// Builds a report.
pub(crate) async fn build_report(job: BuildReport, cx: Context, ledger: Arc<Ledger>) -> Outcome {
    let _inside = Inside::new(&ledger.reports_running);
    cx.progress(0.1, "collecting rows").await?;
    fare(&job.0, &cx, &ledger, 5..20).await
}

async fn fare(order: &Order, cx: &Context, ledger: &Ledger, takes_ms: std::ops::Range<u64>) -> Outcome {
    if order.tenant == PARKED && ledger.park_holds.load(std::sync::atomic::Ordering::SeqCst) {
        count(&ledger.started_while_parked);
    }
    // Seeded by the order: the same job takes the same time in every run.
    let takes = takes_ms.start + Seed::new(order.order).below(takes_ms.end - takes_ms.start);
    tokio::time::sleep(Duration::from_millis(takes)).await;
    match order.fate {
        Fate::Flaky if cx.attempt() == 1 => {
            count(&ledger.retried);
            Err(Failure::server("HTTP_503", "the mail gateway is restarting"))
        }
        // A snooze spends no attempt, so the job's age tells the first run from the second.
        Fate::Busy if cx.now().since(cx.created_at()) < 400 => {
            count(&ledger.snoozed);
            cx.snooze("400ms", "the shop asked to come back later")
        }
        Fate::Hopeless => Err(Failure::invalid("NO_ADDRESS", "the customer has no address")),
        Fate::Endless => {
            cx.cancelled().await;
            Err(Failure::logic("STOPPED", "asked to stop"))
        }
        Fate::Fine | Fate::Flaky | Fate::Busy => {
            count(&ledger.done);
            if let Some(tally) = ledger.tenants.get(order.tenant) {
                count(&tally.done);
            }
            if order.order.is_multiple_of(10) { done_with(order.order) } else { done() }
        }
    }
}
