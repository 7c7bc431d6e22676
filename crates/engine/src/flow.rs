//! Jobs that wait for each other, enqueued in one commit.

use tidegate_core::ids::JobId;
use tidegate_store::params::Enqueued;

use crate::{Enqueue, Result, Tidegate};

/// A flow on its way into the store: jobs that wait for each other, all stored in one durable commit, or none.
///
/// ```
/// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Fetch { page: u32 }
/// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Merge;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
/// # let tide = tidegate::Tidegate::memory();
/// let mut flow = tide.flow();
/// let pages: Vec<_> = (0..3).map(|page| flow.add(tide.enqueue(Fetch { page }))).collect();
/// let merge = flow.add(tide.enqueue(Merge).after(pages));
/// flow.enqueue().await?;
/// assert_eq!(tide.job(merge).await?.unwrap().state, tidegate::State::Blocked);
/// # Ok(()) }
/// ```
#[must_use = "nothing is enqueued until `enqueue` is awaited"]
#[derive(Debug)]
pub struct Flow {
    tide: Tidegate,
    jobs: Vec<Enqueue>,
}

impl Flow {
    pub(crate) fn new(tide: Tidegate) -> Self {
        Self { tide, jobs: vec![] }
    }

    /// Adds a job, and says its id, for others to wait for.
    ///
    /// ```
    /// # fn example(tide: &tidegate::Tidegate, flow: &mut tidegate::Flow, one: tidegate::Enqueue, two: tidegate::Enqueue) {
    /// let first = flow.add(one);
    /// flow.add(two.after([first]));
    /// # }
    /// ```
    pub fn add(&mut self, job: Enqueue) -> JobId {
        let (job, id) = job.with_id(|| self.tide.mint().job_id(self.tide.now()));
        self.jobs.push(job);
        id
    }

    /// Stores all of the jobs, or none. Answers in the order in which they were added.
    ///
    /// ```
    /// # async fn example(flow: tidegate::Flow) -> tidegate::Result<()> {
    /// let jobs = flow.enqueue().await?;
    /// # Ok(()) }
    /// ```
    pub async fn enqueue(self) -> Result<Vec<Enqueued>> {
        crate::enqueue::many(&self.tide, self.jobs).await
    }
}
