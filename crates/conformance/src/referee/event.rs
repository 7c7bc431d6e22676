//! What the referee is told: calls with their replies.

use tidegate_core::ids::{JobId, KindName, LeaseId, QueueName};
use tidegate_core::job::{ParkScope, State};
use tidegate_core::registry::QueueSettings;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{
    Beat, CancelReply, Claim, Claimed, Enqueued, NewJob, Recover, Recovered, Settle, Settled, Ticket,
};

/// A call that the store answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A queue was added or changed.
    Queue(QueueName, Box<QueueSettings>, Timestamp),
    /// A kind was added.
    Kind(KindName, QueueName),
    /// Jobs were enqueued.
    Enqueued(Vec<NewJob>, Vec<Enqueued>, Timestamp),
    /// Jobs were handed out.
    Claimed(Claim, Claimed),
    /// Attempts were settled.
    Settled(Settle, Vec<Settled>),
    /// Leases were extended.
    Beaten(Vec<LeaseId>, Vec<Beat>, Timestamp),
    /// Handlers reported.
    Reported(Vec<Ticket>, Vec<bool>, Timestamp),
    /// A job was to be cancelled.
    Cancelled(JobId, CancelReply, Timestamp),
    /// A job was to be cancelled with those that wait for it.
    Cascaded(JobId, CancelReply, Timestamp),
    /// A job was to run now.
    RunNow(JobId, State, Timestamp),
    /// Dead letters were recovered.
    Recovered(Vec<Recover>, Vec<Recovered>, Timestamp),
    /// A scope was parked until then.
    Parked(ParkScope, String, Option<Timestamp>, Timestamp),
    /// A park was removed.
    Unparked(ParkScope, String, Timestamp),
    /// Upkeep ran.
    Advanced(Timestamp),
    /// The store was opened anew.
    Restarted(Timestamp),
    /// Any other call that told the store the time.
    Seen(Timestamp),
}
