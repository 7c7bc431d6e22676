//! Claimed jobs for unit tests.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::ids::{GroupKey, JobId, KindName, LeaseId, QueueName, Seq};
use tidegate_core::job::Priority;
use tidegate_core::payload::Payload;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{ClaimedJob, Ticket};

use super::lease::{Lease, Ledger};
use crate::Tidegate;
use crate::gates::GateDesk;

/// The `n`-th job, under a lease of its own.
pub(crate) fn claimed(n: i64, priority: Priority) -> (ClaimedJob, Arc<Lease>) {
    let tide = Tidegate::memory();
    let gates = GateDesk::new(tide.clone(), Duration::ZERO, 30_000, 1);
    let lease = Ledger::new(gates).add(LeaseId(1), 1, tokio::time::Instant::now(), tide);
    let job = ClaimedJob {
        ticket: Ticket { lease: LeaseId(1), seq: Seq(n) },
        id: JobId::from_parts(0, n as u128),
        queue: QueueName::new("q").expect("a name"),
        kind: KindName::new("k").expect("a name"),
        tenant: None,
        group: GroupKey::none(),
        connector: None,
        payload: Payload::trusted("null"),
        priority,
        attempt: 1,
        timeout_ms: 1_000,
        created_at: Timestamp(0),
        trace: None,
    };
    (job, lease)
}
