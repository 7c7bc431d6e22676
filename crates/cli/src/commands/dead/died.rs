//! What the letters that a command is about to touch died of.

use std::collections::{BTreeSet, HashMap};

use tidegate_core::ids::QueueName;
use tidegate_core::job::Job;
use tidegate_core::letters::{Cause, shape};
use tidegate_store::params::{CauseView, Causes};

/// Causes that are told apart; letters of further ones are counted together.
const APART: usize = 1_000;
/// Causes that are shown.
const SHOWN: usize = 5;

/// Letters by cause, as they are found.
#[derive(Debug, Default)]
pub(crate) struct Died {
    found: HashMap<Option<Cause>, (CauseView, BTreeSet<QueueName>)>,
    other: u64,
}

impl Died {
    /// Counts a job, if it is dead.
    pub(crate) fn count(&mut self, job: &Job) {
        let Some(letter) = &job.dead else { return };
        let at = job.finished_at.unwrap_or(job.run_at);
        if self.found.len() >= APART && !self.found.contains_key(&letter.cause) {
            self.other += 1;
            return;
        }
        let (view, queues) = self.found.entry(letter.cause).or_insert_with(|| {
            let view = CauseView {
                cause: letter.cause,
                count: 0,
                first_at: at,
                last_at: at,
                example: job.id,
                kind: job.kind.clone(),
                queue: job.queue.clone(),
                queues: 0,
                category: letter.category,
                code: letter.code.clone(),
                message: shape(&letter.message),
            };
            (view, BTreeSet::new())
        });
        view.count += 1;
        (view.first_at, view.last_at) = (view.first_at.min(at), view.last_at.max(at));
        queues.insert(job.queue.clone());
    }

    /// The most frequent ones; `None` if no letter was counted.
    pub(crate) fn causes(self) -> Option<Causes> {
        let mut causes: Vec<CauseView> = self
            .found
            .into_values()
            .map(|(view, queues)| CauseView { queues: queues.len() as u64, ..view })
            .collect();
        let total = self.other + causes.iter().map(|cause| cause.count).sum::<u64>();
        causes.sort_by_key(|cause| (std::cmp::Reverse(cause.count), cause.cause));
        causes.truncate(SHOWN);
        let shown: u64 = causes.iter().map(|cause| cause.count).sum();
        (total > 0).then(|| Causes { causes, other: total - shown, total })
    }
}
