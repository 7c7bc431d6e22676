//! Dead letters: one that is recovered or settled, and all together: their processor, new grants, and what they died of.

use serde::{Deserialize, Serialize};
use tidegate_core::failure::Category;
use tidegate_core::ids::{JobId, KindName, QueueName, TenantId};
use tidegate_core::job::Resolution;
use tidegate_core::letters::Cause;
use tidegate_core::time::Timestamp;

/// Recover a dead letter as a new job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recover {
    /// The dead job.
    pub dead: JobId,
    /// Id of the job that takes its place, if it has none yet.
    pub new_id: JobId,
}

/// Reply to one recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovered {
    /// As this new job.
    As(JobId),
    /// It had been recovered before, as this job.
    Already(JobId),
    /// There is no such dead letter.
    NotDead,
    /// It was settled without running again.
    Resolved,
}

/// Settle a dead letter without running it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolve {
    /// The dead job.
    pub id: JobId,
    /// How.
    pub resolution: Resolution,
    /// By whom.
    pub by: String,
    /// Now.
    pub now: Timestamp,
}

/// A dead letter whose tenant has authorized again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reauthorized {
    /// The dead job.
    pub dead: JobId,
    /// Id of the job that takes its place; `None`: it is settled and does not run again.
    pub new_id: Option<JobId>,
}

/// Look at the next page of dead letters, if a run is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLetters {
    /// Time between two runs.
    pub every_ms: i64,
    /// Begin a run although none is due.
    pub at_once: bool,
    /// Now.
    pub now: Timestamp,
}

/// What the processor of dead letters did with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessedLetters {
    /// Letters that it looked at.
    pub looked_at: u64,
    /// Those that run again as new jobs.
    pub retried: u64,
    /// Those whose tenant was asked to authorize again.
    pub asked: u64,
    /// Those whose tenant was reminded.
    pub reminded: u64,
    /// Those that were given up.
    pub abandoned: u64,
    /// Those that stay for a person to look at, or wait for their tenant.
    pub left: u64,
    /// Those whose request a subscribing kind did not accept; they are among the ones that stay.
    pub refused: u64,
    /// Whether the run goes on with another page.
    pub more: bool,
    /// When the next run begins; the current one, while there is more.
    pub next_run: Option<Timestamp>,
}

impl ProcessedLetters {
    /// Adds what was done with the next page.
    pub fn add(&mut self, next: &Self) {
        self.looked_at += next.looked_at;
        self.retried += next.retried;
        self.asked += next.asked;
        self.reminded += next.reminded;
        self.abandoned += next.abandoned;
        self.left += next.left;
        self.refused += next.refused;
        self.more = next.more;
        self.next_run = next.next_run;
    }
}

/// Which letters to count by cause; all of them wait for review. Empty fields do not restrict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CauseQuery {
    /// In this queue.
    pub queue: Option<QueueName>,
    /// Of this kind.
    pub kind: Option<KindName>,
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// Most causes to return.
    pub limit: usize,
}

/// Letters that died of one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CauseView {
    /// Fingerprint; `None`: letters of an earlier version that the processor has not looked at.
    pub cause: Option<Cause>,
    /// How many wait for review.
    pub count: u64,
    /// When the first of them died.
    pub first_at: Timestamp,
    /// When the last of them died.
    pub last_at: Timestamp,
    /// One of them.
    pub example: JobId,
    /// Its kind; letters of one cause are of one kind.
    pub kind: KindName,
    /// Its queue.
    pub queue: QueueName,
    /// Queues in which they died.
    pub queues: u64,
    /// Its category.
    pub category: Category,
    /// Its code.
    pub code: String,
    /// Its message without what differs from one to the next.
    pub message: String,
}

/// Causes, those with most letters first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Causes {
    /// The causes.
    pub causes: Vec<CauseView>,
    /// Letters of other causes.
    pub other: u64,
    /// Letters in all.
    pub total: u64,
}
