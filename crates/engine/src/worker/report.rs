//! What a worker did.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a worker did between start and stop, in numbers of attempts.
///
/// ```
/// # #[derive(serde::Serialize, serde::Deserialize, tidegate::Job)] struct Ping;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
/// # let tide = tidegate::Tidegate::memory();
/// tide.enqueue(Ping).await?;
/// let worker = tidegate::Worker::new(&tide).handle(async |_: Ping, _| tidegate::done());
/// let report = worker.run_until_idle().await?;
/// assert_eq!((report.completed, report.failed), (1, 0));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Jobs completed.
    pub completed: u64,
    /// Attempts that failed, whatever followed.
    pub failed: u64,
    /// Of these, the ones that are tried again.
    pub retried: u64,
    /// Jobs that became dead letters.
    pub dead: u64,
    /// Times a job was put off.
    pub snoozed: u64,
    /// Times a job was put off because gates refused it.
    pub waited: u64,
    /// Jobs cancelled while this worker held them.
    pub cancelled: u64,
    /// Jobs given back without spending an attempt.
    pub released: u64,
    /// Outcomes refused because the lease was lost.
    pub stale_refused: u64,
    /// Handlers that panicked.
    pub panics: u64,
    /// Handlers that overran their timeout.
    pub timeouts: u64,
    /// Outcomes that could not be written before their lease was lost; these jobs run again.
    pub unsettled: u64,
}

impl fmt::Display for Report {
    /// One line for people: what was completed, and whatever else there was.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} completed", self.completed)?;
        for (count, what) in [
            (self.retried, "retried"),
            (self.dead, "dead"),
            (self.snoozed, "snoozed"),
            (self.waited, "put off by gates"),
            (self.cancelled, "cancelled"),
            (self.released, "released"),
            (self.stale_refused, "refused as stale"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// The report in the making.
#[derive(Default)]
pub(crate) struct Tally(Mutex<Report>);

impl Tally {
    pub(crate) fn change(&self) -> MutexGuard<'_, Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    #[test]
    fn a_report_names_what_there_was() {
        assert_eq!(Report::default().to_string(), "0 completed");
        let report = Report { completed: 4, dead: 1, waited: 3, ..Report::default() };
        assert_eq!(report.to_string(), "4 completed, 1 dead, 3 put off by gates");
    }
}
