//! What an operation does to the memory of a machine, in words that another machine understands.
//!
//! Where several processes share one set of rows, their commits have one order. Each commit keeps its changes, and the
//! other processes apply them with [`Machine::follow`](super::Machine::follow) instead of reading the rows again.
//!
//! - A change says what happened, never how it was decided: a claim is the jobs that were picked, not the question. A
//!   machine that was rebuilt from rows has other virtual times and would pick others.
//! - Changes are kept in a log that versions N and N−1 both read. So variants and fields are never reordered, changed or
//!   removed; new variants go to the end, and what an older version cannot read it answers by rebuilding from rows.
//! - Times are those of the machine that made the change: [`Change::Now`] comes before what happened at that time.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidegate_core::ids::{JobId, KindName, LeaseId, ProcessId, QueueName, Seq, TenantId, WorkerId};
use tidegate_core::job::{Park, ParkScope, State};
use tidegate_core::lanes::{Exclusive, LaneId, LaneKey, QueueId};
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::time::Timestamp;

use crate::rows::{KindId, TenantNo};
use crate::{Error, Result};

/// One change of a machine's memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// It is this late now.
    Now(Timestamp),
    /// The clock went back to this time: no lease, window or age may lie ahead of it.
    Rebased(Timestamp),
    /// Lanes that have waited long enough rise.
    Aged,
    /// A queue was added or changed.
    Queue(Box<QueueNamed>),
    /// A kind was added or changed.
    Kind(Box<KindNamed>),
    /// A tenant has a number.
    Tenant(TenantNo, TenantId),
    /// Nobody uses that number any more.
    TenantGone(TenantNo),
    /// A lane has a number.
    Lane(LaneId, Box<LaneKey>),
    /// Nobody uses that number any more.
    LaneGone(LaneId),
    /// A park was added or replaced.
    Parked(Box<Park>),
    /// A park was removed, or ended.
    Unparked(Box<(ParkScope, String)>),
    /// Jobs were stored.
    Stored(StoredJobs),
    /// A job has a state row from now on.
    HasState(Seq),
    /// A ready job was taken out of its lane.
    Withdrawn(Place),
    /// A job was put into a lane.
    Readied {
        /// The job, and the lane.
        place: Place,
        /// When it became ready.
        at: Timestamp,
        /// How it must run, if it is a suspect.
        suspect: Option<Exclusive>,
    },
    /// A job left the schedule for its lane.
    Due {
        /// The job, and the lane.
        place: Place,
        /// When it became ready.
        at: Timestamp,
    },
    /// A job of this queue left the schedule.
    Unscheduled(QueueId),
    /// The next scheduled job is due then. Said only where it does not follow from what was scheduled.
    NextDue(Option<Timestamp>),
    /// One more stored job uses this lane, having moved.
    LaneUsed(LaneId),
    /// One stored job less uses this lane, having moved on.
    LaneUnused(LaneId),
    /// A lease was granted.
    Leased(Box<Leased>),
    /// A lease ends then.
    Extended(LeaseId, Timestamp),
    /// A running job should stop.
    CancelAsked(Seq),
    /// A job is off its lease.
    LetGo {
        /// The job.
        seq: Seq,
        /// What became of it.
        fate: Fate,
    },
    /// A job that did not run was cancelled, having been taken out of its lane or off the schedule.
    Cancelled(Face),
    /// A job is gone, having been taken out of wherever it was.
    Deleted {
        /// The job.
        seq: Seq,
        /// The lane it was enqueued to.
        lane: LaneId,
        /// The lane it had moved to.
        moved: Option<LaneId>,
        /// Whose it was.
        tenant: Option<TenantNo>,
        /// Where it counted as finished.
        finished: Option<(QueueId, State)>,
    },
    /// A job that never ran is dead, having been taken out of its lane.
    Buried {
        /// The job.
        face: Face,
        /// Code of what was wrong with it.
        code: String,
    },
}

/// A queue with its number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in the rows")]
pub struct QueueNamed {
    pub id: QueueId,
    pub name: QueueName,
    #[serde(with = "as_json")]
    pub settings: QueueSettings,
}

/// A kind with its number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in the rows")]
pub struct KindNamed {
    pub id: KindId,
    pub name: KindName,
    #[serde(with = "as_json")]
    pub settings: KindSettings,
}

/// New jobs, alike but for their ids, with consecutive numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredJobs {
    /// Number of the first.
    pub first: Seq,
    /// Their kind.
    pub kind: KindId,
    /// Their lane.
    pub lane: LaneId,
    /// Whose they are.
    pub tenant: Option<TenantNo>,
    /// When they may run, if that is ahead.
    pub later: Option<Timestamp>,
    /// Their ids, in order.
    pub ids: Ids,
}

impl StoredJobs {
    /// Takes in the jobs that were stored next, if they are alike.
    fn absorb(&mut self, next: &Self) -> bool {
        let alike = self.kind == next.kind
            && self.lane == next.lane
            && self.tenant == next.tenant
            && self.later == next.later
            && self.first.0 + self.ids.as_slice().len() as i64 == next.first.0;
        if alike {
            self.ids.extend(next.ids.as_slice());
        }
        alike
    }
}

/// Ids of jobs: mostly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ids {
    /// One.
    One([JobId; 1]),
    /// Another number of them.
    Many(Vec<JobId>),
}

impl Ids {
    /// One id.
    pub fn one(id: JobId) -> Self {
        Self::One([id])
    }

    /// The ids.
    pub fn as_slice(&self) -> &[JobId] {
        match self {
            Self::One(one) => one,
            Self::Many(many) => many,
        }
    }

    fn extend(&mut self, more: &[JobId]) {
        if let Self::One([id]) = self {
            *self = Self::Many(vec![*id]);
        }
        if let Self::Many(many) = self {
            many.extend_from_slice(more);
        }
    }
}

impl Serialize for Ids {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Ids {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let many = Vec::deserialize(deserializer)?;
        Ok(<[JobId; 1]>::try_from(many).map_or_else(Self::Many, Self::One))
    }
}

/// A job in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The job.
    pub seq: Seq,
    /// The lane.
    pub lane: LaneId,
    /// Whose it is.
    pub tenant: Option<TenantNo>,
}

/// What people know a job by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Face {
    /// Its id.
    pub id: JobId,
    /// Its queue.
    pub queue: QueueId,
    /// Its kind.
    pub kind: KindId,
    /// Whose it is.
    pub tenant: Option<TenantNo>,
}

/// A lease that was granted now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// Its number.
    pub id: LeaseId,
    /// Who holds it.
    pub worker: WorkerId,
    /// In which process.
    pub process: ProcessId,
    /// Its length.
    pub length_ms: i64,
    /// `Some`: it holds one suspect.
    pub lone: Option<Exclusive>,
    /// The queues that the claim was for.
    pub queues: Vec<QueueId>,
    /// The jobs, in the order in which they were picked.
    pub jobs: Vec<LeasedJob>,
}

/// A job under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedJob {
    /// The job.
    pub seq: Seq,
    /// The lane it was picked from.
    pub from: LaneId,
    /// The lane it was enqueued to, if that is another one.
    pub home: Option<LaneId>,
    /// Its id.
    pub id: JobId,
    /// Its kind.
    pub kind: KindId,
    /// Whose it is.
    pub tenant: Option<TenantNo>,
    /// Number of this attempt.
    pub attempt: u32,
    /// Whether it has a unique key, to be freed when it is finished.
    pub unique: bool,
}

/// What became of a job that is off its lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// Completed.
    Completed,
    /// Cancelled.
    Cancelled,
    /// Dead.
    Dead {
        /// Code of the error.
        code: String,
    },
    /// Scheduled.
    Scheduled(Timestamp, Because),
    /// Ready.
    Ready {
        /// In this lane.
        lane: LaneId,
        /// How it must run, if it is a suspect.
        suspect: Option<Exclusive>,
        /// Why.
        because: Because,
    },
    /// It is erased; its handler should stop.
    Erased,
}

/// Why a job runs again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Because {
    /// It failed.
    Retry {
        /// Code of the error.
        code: String,
    },
    /// It was put off.
    Snooze,
    /// Its worker gave it back.
    Release,
    /// Its lease ran out.
    Stall,
}

/// Adds a change to those of the same commit.
pub(super) fn push(changes: &mut Vec<Change>, change: Change) {
    if let (Some(Change::Stored(last)), Change::Stored(next)) = (changes.last_mut(), &change)
        && last.absorb(next)
    {
        return;
    }
    changes.push(change);
}

/// The changes of a commit as a log keeps them.
pub fn encode(changes: &[Change]) -> Result<Vec<u8>> {
    postcard::to_stdvec(changes).map_err(|e| Error::internal(format!("changes cannot be encoded: {e}")))
}

/// Reads what [`encode`] wrote. An error if a newer version wrote it: rebuild from rows then.
pub fn decode(bytes: &[u8]) -> Result<Vec<Change>> {
    postcard::from_bytes(bytes).map_err(|e| Error::internal(format!("changes cannot be read: {e}")))
}

/// Settings are kept as JSON: they gain fields, and a format without names could not tell.
mod as_json {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&serde_json::to_string(value).map_err(S::Error::custom)?)
    }

    pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        serde_json::from_str(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}
