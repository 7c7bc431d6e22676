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
    claimed_under(&Tidegate::memory(), 1, n, priority)
}

/// The `n`-th job of this store, under the lease with this number.
pub(crate) fn claimed_under(
    tide: &Tidegate,
    number: i64,
    n: i64,
    priority: Priority,
) -> (ClaimedJob, Arc<Lease>) {
    let gates = GateDesk::new(tide.clone(), None, Duration::ZERO, 30_000, 1);
    let lease = Ledger::new(gates).add(LeaseId(number), 1, tokio::time::Instant::now(), tide.clone());
    let job = ClaimedJob {
        ticket: Ticket { lease: LeaseId(number), seq: Seq(n) },
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
        ready_at: Timestamp(0),
        trace: None,
        dependencies: 0,
        schedule: None,
    };
    (job, lease)
}
