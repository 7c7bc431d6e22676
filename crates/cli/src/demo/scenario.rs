//! Who takes part in the demo: tenants of very different size, queues with different limits, kinds of jobs, and how
//! each job will fare. The fate of a job is drawn when it is enqueued, so a run can be judged afterwards.

use serde::{Deserialize, Serialize};
use tidegate::Job;
use tidegate_core::ids::QueueName;
use tidegate_core::job::Priority;
use tidegate_core::registry::{Limiter, QueueSettings};
use tidegate_core::retry::{Backoff, Jitter, RetryPolicy};
use tidegate_core::seed::Seed;

use crate::error::Result;

/// A customer and how busy it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tenant {
    /// Its name.
    pub(crate) name: &'static str,
    /// Jobs it enqueues per second.
    pub(crate) per_second: u32,
}

/// All tenants. The first one is noisy: it drops its whole backlog at the start.
pub(crate) const TENANTS: [Tenant; 8] = [
    Tenant { name: "megastore", per_second: 0 },
    Tenant { name: "acme", per_second: 200 },
    Tenant { name: "globex", per_second: 160 },
    Tenant { name: "initech", per_second: 120 },
    Tenant { name: "umbrella", per_second: 100 },
    Tenant { name: "hooli", per_second: 60 },
    Tenant { name: "wonka", per_second: 30 },
    Tenant { name: "stark", per_second: 10 },
];

/// Place of the noisy tenant in [`TENANTS`].
pub(crate) const NOISY: usize = 0;
/// Place of the tenant whose group is parked for a while.
pub(crate) const PARKED: usize = 2;
/// Backlog of the noisy tenant for each second that the demo lasts: more than it can have done in that time.
pub(crate) const BACKLOG_PER_SECOND: u64 = 1_500;

/// Queue of invoices and payments, limited per tenant.
pub(crate) const BILLING: &str = "billing";
/// Queue of calls to a shop API, limited per second.
pub(crate) const SHOPIFY: &str = "shopify-sync";
/// Queue of reports, one at a time.
pub(crate) const REPORTS: &str = "reports";
/// Queue whose workers die now and then.
pub(crate) const IMPORTS: &str = "imports";
/// All queues.
pub(crate) const QUEUES: [&str; 4] = [BILLING, SHOPIFY, REPORTS, IMPORTS];

/// Jobs of one tenant running in `billing` at a time.
pub(crate) const PER_TENANT: u32 = 8;
/// Starts per second in `shopify-sync`.
pub(crate) const SHOPIFY_STARTS: u32 = 200;

/// Settings of a queue.
pub(crate) fn settings(queue: &str) -> QueueSettings {
    let base = QueueSettings { max_wait_ms: 8_000, ..QueueSettings::default() };
    match queue {
        BILLING => QueueSettings { concurrency: Some(48), group_concurrency: Some(PER_TENANT), ..base },
        SHOPIFY => QueueSettings { limiter: Some(Limiter { max: SHOPIFY_STARTS, per_ms: 1_000 }), ..base },
        REPORTS => QueueSettings { concurrency: Some(1), ..base },
        _ => base,
    }
}

/// The name of a queue, checked.
pub(crate) fn queue(name: &str) -> Result<QueueName> {
    Ok(QueueName::new(name)?)
}

/// Three quick attempts: a demo has no time for minutes.
pub(crate) fn quick_retry() -> RetryPolicy {
    RetryPolicy {
        max_attempts: 3,
        backoff: Backoff::Fixed { delay_ms: 250 },
        jitter: Jitter::Equal,
        retry_on: vec![],
        no_retry_on: vec![],
    }
}

/// How a job will fare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fate {
    /// Works at once.
    Fine,
    /// The first attempt meets a server error, the next one works.
    Flaky,
    /// The provider asks to come back later, once.
    Busy,
    /// Can never work.
    Hopeless,
    /// Runs until it is told to stop.
    Endless,
}

impl Fate {
    /// Mostly fine, with the failures of an ordinary day.
    pub(crate) fn draw(seed: &mut Seed) -> Self {
        match seed.below(1_000) {
            0..40 => Self::Flaky,
            40..60 => Self::Busy,
            60..63 => Self::Hopeless,
            _ => Self::Fine,
        }
    }
}

/// Mostly medium, some of every other.
pub(crate) fn draw_priority(seed: &mut Seed) -> Priority {
    match seed.below(100) {
        0..5 => Priority::Critical,
        5..20 => Priority::High,
        20..90 => Priority::Medium,
        _ => Priority::Low,
    }
}

/// What every job of the demo carries.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Its number.
    pub(crate) order: u64,
    /// Place of its tenant in [`TENANTS`].
    pub(crate) tenant: usize,
    /// How it will fare.
    pub(crate) fate: Fate,
}

/// Sends an invoice.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "invoice.send", queue = "billing", timeout = "10s", description = "Sends one invoice")]
pub(crate) struct SendInvoice(pub(crate) Order);

/// Matches a payment with its invoice.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(
    kind = "payment.match",
    queue = "billing",
    timeout = "10s",
    description = "Matches a payment with its invoice"
)]
pub(crate) struct MatchPayment(pub(crate) Order);

/// Pushes a product to a shop.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(
    kind = "catalog.sync",
    queue = "shopify-sync",
    timeout = "10s",
    description = "Pushes one product to a shop"
)]
pub(crate) struct SyncCatalog(pub(crate) Order);

/// Builds a report.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "report.build", queue = "reports", timeout = "60s", description = "Builds one report")]
pub(crate) struct BuildReport(pub(crate) Order);

/// Reads an uploaded file.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "import.parse", queue = "imports", timeout = "10s", description = "Reads one uploaded file")]
pub(crate) struct ParseImport {
    /// The file.
    pub(crate) file: String,
    /// Whether it kills the process that reads it.
    pub(crate) cursed: bool,
}
