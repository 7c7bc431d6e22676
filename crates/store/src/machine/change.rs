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
use tidegate_core::gates::Room;
use tidegate_core::ids::{
    JobId, KindName, LeaseId, ProcessId, QueueName, ScheduleName, Seq, TenantId, WorkerId,
};
use tidegate_core::job::{Park, ParkScope, State};
use tidegate_core::lanes::{Exclusive, LaneId, LaneKey, QueueId};
use tidegate_core::policies::Policies;
use tidegate_core::registry::{KindSettings, QueueSettings};
use tidegate_core::schedule::{ScheduleSpec, ScheduleState};
use tidegate_core::time::Timestamp;

use crate::rows::{KindId, ScheduleId, TenantNo, UntoldRow};
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
    /// A job of this lane left the schedule.
    Unscheduled(Place),
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
    /// A gate has admitted a running job, and said how many more like it would pass; nobody writes it any more.
    AdmittedBefore(Seq, u32),
    /// A gate has refused this scope to a running job, which comes back then.
    Refused(Seq, Timestamp, Box<ParkScope>),
    /// A schedule was added or changed.
    Schedule(Box<ScheduleNamed>),
    /// A schedule stands here now.
    ScheduleState {
        /// Which.
        id: ScheduleId,
        /// Where.
        #[serde(with = "as_json")]
        state: Box<ScheduleState>,
    },
    /// A schedule is gone.
    ScheduleGone(ScheduleId),
    // Dependencies.
    /// Jobs were stored that wait for others.
    StoredBlocked(StoredJobs),
    /// Jobs have others that wait for them.
    Linked {
        /// Those that are not finished, once for each job that waits for it.
        parents: Vec<Seq>,
        /// How many edges were added.
        edges: u64,
    },
    /// Edges to a job that is deleted are gone.
    Unlinked {
        /// From these.
        parents: Vec<Seq>,
    },
    /// A job that others wait for is finished.
    Told(Seq),
    /// A job waits for no other any more.
    Unblocked {
        /// The job, and the lane.
        place: Place,
        /// When it may run, if that is ahead.
        later: Option<Timestamp>,
    },
    /// A job that waited for others does not: it is dead, cancelled or about to be deleted.
    Unwaited(Place),
    /// A lane of a kind with a limit of its own has a number.
    KindLane(LaneId, Box<LaneKey>, KindId),
    /// The registry has other retry policies.
    Policies(Box<PoliciesSet>),
    /// The registry's history has this last number.
    Version(u64),
    /// A job that did not run is among the finished ones of its kind, which has lanes of its own.
    Finished {
        /// The job.
        seq: Seq,
        /// The lane it was enqueued to.
        lane: LaneId,
    },
    /// A job has ended, of which those who wait for it are told later.
    Untold {
        /// The job.
        seq: Seq,
        /// How it ended.
        row: UntoldRow,
    },
    /// The tenant of a dead letter is asked to authorize again.
    Asked {
        /// The dead job.
        face: Face,
        /// Whether that was asked before.
        again: bool,
    },
    /// A gate has admitted a running job, and said how many more would pass.
    Admitted(Seq, Room),
}

/// A schedule with its number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in the rows")]
pub struct ScheduleNamed {
    pub id: ScheduleId,
    pub name: ScheduleName,
    #[serde(with = "as_json")]
    pub spec: ScheduleSpec,
    #[serde(with = "as_json")]
    pub state: ScheduleState,
}

/// Retry policies of the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoliciesSet(#[serde(with = "as_json")] pub Policies);

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
    if let (Some(Change::Stored(last)), Change::Stored(next))
    | (Some(Change::StoredBlocked(last)), Change::StoredBlocked(next)) = (changes.last_mut(), &change)
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

#[cfg(test)]
mod tests {
    use tidegate_core::ids::{ConnectorName, GroupKey};
    use tidegate_core::job::Priority;

    use super::*;

    /// Its place in the log's format, which never changes. A new variant gets the next number.
    fn number(change: &Change) -> u8 {
        match change {
            Change::Now(_) => 0,
            Change::Rebased(_) => 1,
            Change::Aged => 2,
            Change::Queue(_) => 3,
            Change::Kind(_) => 4,
            Change::Tenant(..) => 5,
            Change::TenantGone(_) => 6,
            Change::Lane(..) => 7,
            Change::LaneGone(_) => 8,
            Change::Parked(_) => 9,
            Change::Unparked(_) => 10,
            Change::Stored(_) => 11,
            Change::HasState(_) => 12,
            Change::Withdrawn(_) => 13,
            Change::Readied { .. } => 14,
            Change::Due { .. } => 15,
            Change::Unscheduled(_) => 16,
            Change::NextDue(_) => 17,
            Change::LaneUsed(_) => 18,
            Change::LaneUnused(_) => 19,
            Change::Leased(_) => 20,
            Change::Extended(..) => 21,
            Change::CancelAsked(_) => 22,
            Change::LetGo { .. } => 23,
            Change::Cancelled(_) => 24,
            Change::Deleted { .. } => 25,
            Change::Buried { .. } => 26,
            Change::AdmittedBefore(..) => 27,
            Change::Refused(..) => 28,
            Change::Schedule(_) => 29,
            Change::ScheduleState { .. } => 30,
            Change::ScheduleGone(_) => 31,
            Change::StoredBlocked(_) => 32,
            Change::Linked { .. } => 33,
            Change::Unlinked { .. } => 34,
            Change::Told(_) => 35,
            Change::Unblocked { .. } => 36,
            Change::Unwaited(_) => 37,
            Change::KindLane(..) => 38,
            Change::Policies(_) => 39,
            Change::Version(_) => 40,
            Change::Finished { .. } => 41,
            Change::Untold { .. } => 42,
            Change::Asked { .. } => 43,
            Change::Admitted(..) => 44,
        }
    }

    fn one_of_each() -> Vec<Change> {
        let (seq, lane, tenant, at) = (Seq(7), LaneId(3), Some(TenantNo(2)), Timestamp(1_763_000_000_000));
        let (queue, kind, id) = (QueueId(1), KindId(1), JobId::from_parts(1, 7));
        let place = Place { seq, lane, tenant };
        let scope = ParkScope::Connector(ConnectorName::new("api").unwrap());
        let group = GroupKey::new("g").unwrap();
        let key = LaneKey { queue, group, connector: None, priority: Priority::Low, kind: None };
        let mut policies = Policies::default();
        policies.named.insert("patient".into(), tidegate_core::retry::RetryPolicy::standard());
        let name = QueueName::new("q").unwrap();
        let job = LeasedJob { seq, from: lane, home: None, id, kind, tenant, attempt: 1, unique: true };
        let leased = Leased {
            id: LeaseId(9),
            worker: WorkerId::new("w").unwrap(),
            process: ProcessId(u64::MAX),
            length_ms: 30_000,
            lone: Some(Exclusive(true)),
            queues: vec![queue],
            jobs: vec![job],
        };
        let ready = Fate::Ready { lane, suspect: Some(Exclusive(false)), because: Because::Stall };
        let ids = Ids::Many(vec![id, JobId::from_parts(1, 8)]);
        let park = Park { scope: scope.clone(), by: "me".into(), reason: "why not".into(), until: Some(at) };
        let queue_named = QueueNamed { id: queue, name: name.clone(), settings: QueueSettings::default() };
        let kind_named =
            KindNamed { id: kind, name: KindName::new("k").unwrap(), settings: KindSettings::new(name) };
        let state = ScheduleState::new(at);
        let settings = tidegate_core::schedule::ScheduleSettings::cron("@daily", "UTC");
        let schedule = ScheduleNamed {
            id: ScheduleId(4),
            name: ScheduleName::new("s").unwrap(),
            spec: ScheduleSpec { kind: KindName::new("k").unwrap(), settings },
            state: state.clone(),
        };
        vec![
            Change::Now(at),
            Change::Rebased(at),
            Change::Aged,
            Change::Queue(Box::new(queue_named)),
            Change::Kind(Box::new(kind_named)),
            Change::Tenant(TenantNo(2), TenantId::new("t").unwrap()),
            Change::TenantGone(TenantNo(2)),
            Change::Lane(lane, Box::new(key.clone())),
            Change::LaneGone(lane),
            Change::Parked(Box::new(park)),
            Change::Unparked(Box::new((scope.clone(), "me".into()))),
            Change::Stored(StoredJobs { first: seq, kind, lane, tenant, later: Some(at), ids: ids.clone() }),
            Change::HasState(seq),
            Change::Withdrawn(place),
            Change::Readied { place, at, suspect: None },
            Change::Due { place, at },
            Change::Unscheduled(place),
            Change::NextDue(Some(at)),
            Change::LaneUsed(lane),
            Change::LaneUnused(lane),
            Change::Leased(Box::new(leased)),
            Change::Extended(LeaseId(9), at),
            Change::CancelAsked(seq),
            Change::LetGo { seq, fate: ready },
            Change::Cancelled(Face { id, queue, kind, tenant }),
            Change::Deleted { seq, lane, moved: None, tenant, finished: Some((queue, State::Dead)) },
            Change::Buried { face: Face { id, queue, kind, tenant }, code: "TG2004".into() },
            Change::AdmittedBefore(seq, 3),
            Change::Refused(seq, at, Box::new(scope)),
            Change::Schedule(Box::new(schedule)),
            Change::ScheduleState { id: ScheduleId(4), state: Box::new(state) },
            Change::ScheduleGone(ScheduleId(4)),
            Change::StoredBlocked(StoredJobs { first: seq, kind, lane, tenant, later: None, ids }),
            Change::Linked { parents: vec![seq], edges: 2 },
            Change::Unlinked { parents: vec![seq] },
            Change::Told(seq),
            Change::Unblocked { place, later: Some(at) },
            Change::Unwaited(place),
            Change::KindLane(lane, Box::new(key), kind),
            Change::Policies(Box::new(PoliciesSet(policies))),
            Change::Version(7),
            Change::Finished { seq, lane },
            Change::Untold { seq, row: UntoldRow { id, end: crate::rows::End::Gone } },
            Change::Asked { face: Face { id, queue, kind, tenant }, again: true },
            Change::Admitted(seq, Room { shared: 3, own: u32::MAX }),
        ]
    }

    #[test]
    fn every_change_survives_its_stored_form() {
        let all = one_of_each();
        assert_eq!(decode(&encode(&all).unwrap()).unwrap(), all);
        for change in all {
            let stored = encode(std::slice::from_ref(&change)).unwrap();
            assert_eq!(stored[1], number(&change), "{change:?} has another number in the log");
        }
    }

    #[test]
    fn a_change_of_a_newer_version_is_an_error() {
        assert!(decode(&[1, 42]).is_err());
        assert!(decode(&[1]).is_err(), "cut off");
    }

    #[test]
    fn jobs_stored_together_become_one_change() {
        let job = |n: i64, kind: u32| {
            let ids = Ids::one(JobId::from_parts(1, n as u128));
            let (lane, kind) = (LaneId(1), KindId(kind));
            Change::Stored(StoredJobs { first: Seq(n), kind, lane, tenant: None, later: None, ids })
        };
        let mut changes = vec![];
        for change in [job(1, 1), job(2, 1), job(3, 1), job(4, 2), job(6, 2)] {
            push(&mut changes, change);
        }
        let sizes: Vec<usize> = changes
            .iter()
            .map(|c| if let Change::Stored(jobs) = c { jobs.ids.as_slice().len() } else { 0 })
            .collect();
        assert_eq!(sizes, [3, 1, 1]);
    }
}
