//! Taking over what users enqueued with SQL, in transactions of their own.
//!
//! Such a transaction writes into the inbox alone. After it has committed, any process takes the row out and stores the
//! job, in one transaction. Rows commit in any order, so exactly the rows that were read are taken, never "all up to
//! here". Looking costs no lock, and does not begin at the first row that ever was but at the oldest transaction that
//! was still running when everything visible had been taken.

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::codes;
use tidegate_core::ids::{GroupKey, JobId, KindName, QueueName, TenantId};
use tidegate_core::job::{Priority, Unique};
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;
use tidegate_store::machine::PendingSignals;
use tidegate_store::params::NewJob;
use tidegate_store::{Error, Result};
use uuid::Uuid;

use crate::error::{OrStore, is_refusal};
use crate::session::{Kind, Session};
use crate::statements::Sql;
use crate::task::PgMachine;

/// Most rows and bytes taken over in one transaction, which holds up everybody's commits for that long.
const ROWS: i64 = 500;
const BYTES: usize = 4 << 20;

/// Where to look.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// All rows of earlier transactions are taken.
    from: i64,
    /// As far as is known since the memory was rebuilt last.
    rebuilds: u64,
    /// A row that cannot be stored: all rows are taken one by one until it is met, and it is refused then.
    suspicion: Option<Suspicion>,
}

/// Something among the rows made their transaction fail.
#[derive(Debug)]
struct Suspicion {
    error: Error,
    /// Rows to be taken one by one.
    left: usize,
    /// The row that failed alone.
    culprit: Option<(i64, i64)>,
}

/// What was taken over.
#[derive(Debug, Default)]
pub(crate) struct Promoted {
    pub(crate) signals: PendingSignals,
    /// Whether there is more.
    pub(crate) more: bool,
}

impl Drain {
    /// Takes over some rows, if there are any.
    pub(crate) fn run(&mut self, session: &mut Session, now: Timestamp) -> Result<Promoted> {
        if self.rebuilds != session.rebuilds() {
            (self.from, self.rebuilds) = (0, session.rebuilds());
        }
        let most = if self.suspicion.is_some() { 1 } else { ROWS };
        let found = session.ask(Sql::InboxLook, &[&self.from, &most])?;
        let (mut xids, mut numbers, mut bytes, mut oldest_running) = (vec![], vec![], 0, self.from);
        let mut more = found.len() as i64 == most;
        for row in &found {
            oldest_running = row.try_get(3).or_store()?;
            let Some(xid) = row.try_get::<_, Option<i64>>(0).or_store()? else { break };
            if bytes > BYTES {
                more = true;
                break;
            }
            bytes += row.try_get::<_, i32>(2).or_store()? as usize;
            xids.push(xid);
            numbers.push(row.try_get::<_, i64>(1).or_store()?);
        }
        if xids.is_empty() {
            self.from = oldest_running;
            self.suspicion = None;
            return Ok(Promoted::default());
        }
        session.begin(Kind::Write)?;
        let mut signals = session.start()?;
        session.dirty();
        let row = (xids[0], numbers[0]);
        let stored = self.store(session, &xids, &numbers, now);
        self.judge(row, xids.len(), stored.as_ref().err());
        let (taken, ours) = stored?;
        signals.work |= ours.work;
        signals.cancels.extend(ours.cancels);
        // Rows that somebody else holds are looked for again, later.
        Ok(Promoted { signals, more: more && taken > 0 })
    }
}

impl Drain {
    /// Takes rows and stores their jobs. Returns how many rows were taken.
    fn store(
        &self,
        session: &mut Session,
        xids: &[i64],
        numbers: &[i64],
        now: Timestamp,
    ) -> Result<(usize, PendingSignals)> {
        self.try_to_store(session, xids, numbers, now).map_err(|error| session.cause_of(error))
    }

    fn try_to_store(
        &self,
        session: &mut Session,
        xids: &[i64],
        numbers: &[i64],
        now: Timestamp,
    ) -> Result<(usize, PendingSignals)> {
        let taken = session.ask(Sql::InboxTake, &[&xids, &numbers])?;
        let refused = self.suspicion.as_ref().filter(|s| s.culprit == Some((xids[0], numbers[0])));
        for row in &taken {
            let text = row.try_get(0).or_store()?;
            match refused {
                Some(suspicion) => refuse(session.machine()?, text, &suspicion.error, now)?,
                None => promote(session.machine()?, text, now)?,
            }
        }
        Ok((taken.len(), session.commit(true, true)?.signals))
    }

    /// A row that breaks a rule of the database must not be tried for ever, nor keep others from being taken.
    fn judge(&mut self, row: (i64, i64), rows: usize, failed: Option<&Error>) {
        match (failed, &mut self.suspicion) {
            // A row that cannot even be refused.
            (Some(error), Some(suspicion)) if suspicion.culprit == Some(row) => {
                tracing::error!(
                    number = row.1,
                    "A row of the inbox can be neither taken nor refused: {error}"
                );
            }
            (Some(error), _) if error.code == codes::INTERNAL => {
                let culprit = (rows == 1).then_some(row);
                let left = self.suspicion.take().map_or(rows, |s| s.left).max(1);
                self.suspicion = Some(Suspicion { error: error.clone(), left, culprit });
            }
            (None, Some(suspicion)) if suspicion.left > 1 => {
                (suspicion.left, suspicion.culprit) = (suspicion.left - 1, None);
            }
            (None, Some(_)) => self.suspicion = None,
            _ => {}
        }
    }
}

/// Refuses a row that cannot be stored as it is: its job is a dead letter under an id of its own.
fn refuse(machine: &mut PgMachine, text: &str, refusal: &Error, now: Timestamp) -> Result<()> {
    let sent = serde_json::from_str::<Sent>(text).ok().and_then(Sent::into_job);
    tracing::error!(code = %refusal.code, "A row of the inbox could not be stored and was refused: {refusal}");
    let Some((job, _)) = sent else { return Ok(()) };
    bury(machine, NewJob { id: fresh_id(job.id, now), ..job }, refusal, now)
}

/// A row of the inbox.
#[derive(Debug, Deserialize)]
struct Sent {
    id: String,
    #[serde(default)]
    id_given: bool,
    kind: String,
    queue: Option<String>,
    tenant: Option<String>,
    group: Option<String>,
    priority: Option<Priority>,
    run_at: Option<i64>,
    timeout_ms: Option<i64>,
    max_attempts: Option<u32>,
    unique: Option<Box<RawValue>>,
    trace: Option<String>,
    payload: Box<RawValue>,
}

/// Stores the job of a row, as a dead letter if it is not acceptable.
fn promote(machine: &mut PgMachine, text: &str, now: Timestamp) -> Result<()> {
    let sent: Sent = match serde_json::from_str(text) {
        Ok(sent) => sent,
        Err(error) => {
            // Only somebody who writes into the table by hand can do this.
            let (line, column) = (error.line(), error.column());
            tracing::error!(line, column, "A row of the inbox could not be read and was dropped.");
            return Ok(());
        }
    };
    let Some((mut job, misfit)) = sent.into_job() else {
        tracing::error!("A row of the inbox has no acceptable kind or id and was dropped.");
        return Ok(());
    };
    let refusal = match misfit {
        Some(error) => error,
        None => match machine.admit(job.clone(), now) {
            Ok(_) => return Ok(()),
            Err(error) if is_refusal(&error) => error,
            Err(error) => return Err(error),
        },
    };
    if refusal.code == codes::DUPLICATE_ID {
        // Another job has its id; the letter needs one of its own.
        job.id = fresh_id(job.id, now);
    }
    bury(machine, job, &refusal, now)
}

/// Another id for a letter.
fn fresh_id(id: JobId, now: Timestamp) -> JobId {
    let mut dice = Seed::new((id.uuid().as_u128() as u64) ^ now.0.cast_unsigned());
    let random = u128::from(dice.next_u64()) << 64 | u128::from(dice.next_u64());
    JobId::from_parts(now.0.cast_unsigned(), random)
}

fn bury(machine: &mut PgMachine, job: NewJob, refusal: &Error, now: Timestamp) -> Result<()> {
    match machine.admit_dead(job, refusal, now) {
        Err(error) if is_refusal(&error) => {
            tracing::error!(code = %error.code, "A row of the inbox could not be kept: {error}");
            Ok(())
        }
        buried => buried.map(drop),
    }
}

impl Sent {
    /// The job, if it can be kept at all, and what is wrong with it.
    fn into_job(self) -> Option<(NewJob, Option<Error>)> {
        let (Ok(kind), Ok(id)) = (KindName::new(&self.kind), Uuid::parse_str(&self.id)) else {
            return None;
        };
        let mut wrong: Option<Error> = None;
        let mut note = |error: Error| {
            wrong.get_or_insert(error);
        };
        let payload = match Payload::from_json_text(self.payload.get(), limits::MAX_PAYLOAD_BYTES) {
            Ok(payload) => payload,
            Err(error) => {
                note(error.into());
                Payload::trusted("null")
            }
        };
        let mut job = NewJob::new(JobId::from_uuid(id), kind, payload);
        job.id_may_exist = self.id_given;
        job.queue = self.queue.map(QueueName::new).transpose().unwrap_or_else(|e| {
            note(e.into());
            None
        });
        job.tenant = self.tenant.map(TenantId::new).transpose().unwrap_or_else(|e| {
            note(e.into());
            None
        });
        job.group = self.group.map(GroupKey::new).transpose().unwrap_or_else(|e| {
            note(e.into());
            None
        });
        job.priority = self.priority;
        job.run_at = self.run_at.map(Timestamp);
        job.timeout_ms = self.timeout_ms;
        job.max_attempts = self.max_attempts;
        job.unique =
            self.unique.map(|text| serde_json::from_str::<Unique>(text.get())).transpose().unwrap_or_else(
                |_| {
                    note(Error::new(codes::INVALID_NAME, "the unique key is not acceptable"));
                    None
                },
            );
        job.trace = self.trace;
        Some((job, wrong))
    }
}
