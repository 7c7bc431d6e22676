//! What must never be.

use tidegate_core::ids::{GroupKey, JobId, LeaseId, ProcessId, QueueName};
use tidegate_core::job::State;
use tidegate_store::params::Ticket;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Violation {
    /// Two valid leases at once.
    #[error("{job} was handed out under {new} while {holder} still holds it")]
    TwoHolders {
        /// The job.
        job: JobId,
        /// Who held it.
        holder: LeaseId,
        /// Who got it.
        new: LeaseId,
    },
    /// A write by somebody who lost the job.
    #[error("a write with {0:?} was applied although the lease does not hold the job")]
    StaleApplied(Ticket),
    /// A write by the holder was refused.
    #[error("a write with {0:?} was refused although the lease holds the job")]
    HolderRefused(Ticket),
    /// A heartbeat was answered wrongly.
    #[error("the heartbeat of {0} was answered with {1}, the lease is {2}")]
    WrongBeat(LeaseId, &'static str, &'static str),
    /// A job ended twice.
    #[error("{0} became {1} although it was finished as {2}")]
    FinishedTwice(JobId, State, State),
    /// A job came from nowhere or from the dead.
    #[error("{0} was handed out although it {1}")]
    NotClaimable(JobId, &'static str),
    /// A lease number was used again.
    #[error("{0} was given out after {1}")]
    LeaseNotNew(LeaseId, LeaseId),
    /// More of a queue run than may.
    #[error("queue {0} runs {1} jobs, {2} are allowed")]
    QueueOver(QueueName, usize, u32),
    /// More of a group run than may.
    #[error("group {0} of queue {1} runs {2} jobs, {3} are allowed")]
    GroupOver(GroupKey, QueueName, usize, u32),
    /// More starts in a window than may.
    #[error("queue {0} started {1} jobs within {2} ms, {3} are allowed")]
    LimiterOver(QueueName, u32, i64, u32),
    /// A claim yielded more than was asked for.
    #[error("a claim of at most {0} yielded {1}")]
    Greedy(u32, usize),
    /// A suspect was not alone in its lease.
    #[error("{0} is a suspect but shares its lease")]
    SuspectShares(JobId),
    /// Two suspects in one process.
    #[error("{0:?} runs two suspects, {1} among them")]
    TwoSuspects(ProcessId, JobId),
    /// A last chance that was not alone in its process.
    #[error("{0:?} runs other jobs beside {1}, which must be alone")]
    NotAlone(ProcessId, JobId),
    /// A job was lost.
    #[error("{0} was acknowledged and is {1}")]
    Lost(JobId, &'static str),
    /// A job is not where the referee knows it to be.
    #[error("{0} should be {1}, the store says {2}")]
    WrongState(JobId, State, State),
    /// The store's own counts are wrong.
    #[error("queue {0} counts {1} {2} jobs, the referee {3}")]
    WrongCount(QueueName, u64, State, u64),
    /// Places were not given back.
    #[error("{0}")]
    CapacityLost(String),
    /// A reply that fits no request.
    #[error("{0}")]
    Nonsense(String),
}
