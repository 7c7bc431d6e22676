//! How many jobs a claim may take, so that its answer stays within bounds.
//!
//! A claim names a number of jobs, and a payload may be a mebibyte: two thousand of those are an answer that no client
//! takes. What does not fit is given back at once. So that large payloads are not read only to be given back, the number
//! asked of the store follows what fitted: at once downwards, by doubling upwards.

use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_core::limits;
use tidegate_store::params::{Claimed, ClaimedJob};

/// Bytes of an answer for each job beside its payload and its trace: names, times, punctuation.
const AROUND: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Portion {
    /// Most bytes of an answer, unless one job alone has more.
    bytes: usize,
    /// Most jobs of the next claim.
    jobs: AtomicU32,
}

impl Portion {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes, jobs: AtomicU32::new(limits::MAX_CLAIM_BATCH as u32) }
    }

    /// Most jobs to ask the store for.
    pub(crate) fn most(&self) -> u32 {
        self.jobs.load(Ordering::Relaxed)
    }

    /// Takes out of what was claimed what does not fit into an answer.
    pub(crate) fn cut(&self, claimed: &mut Claimed) -> Vec<ClaimedJob> {
        let mut bytes = 0;
        let fitting = claimed.jobs.iter().take_while(|job| {
            bytes += size(job);
            bytes <= self.bytes
        });
        let fitting = fitting.count().max(1);
        if fitting < claimed.jobs.len() {
            self.jobs.store(fitting as u32, Ordering::Relaxed);
            return claimed.jobs.split_off(fitting);
        }
        // As many as were asked for (large claims may leave out an eighth), in half of the space: there is room for twice as many.
        let most = self.most();
        if claimed.jobs.len() >= (most - most / 8) as usize && bytes <= self.bytes / 2 {
            self.jobs.store(most.saturating_mul(2).min(limits::MAX_CLAIM_BATCH as u32), Ordering::Relaxed);
        }
        vec![]
    }
}

fn size(job: &ClaimedJob) -> usize {
    AROUND + job.payload.as_str().len() + job.trace.as_ref().map_or(0, String::len)
}
