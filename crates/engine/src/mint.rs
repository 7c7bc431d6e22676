//! New ids and seeds. Random in production, the same sequence each time in tests.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::ids::{JobId, ProcessId};
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;
use uuid::Uuid;

/// Step of splitmix64: consecutive states yield unrelated numbers.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where ids come from. One atomic step per id: asking the system for randomness for each job would cost more than
/// the rest of an enqueue.
#[derive(Debug)]
pub(crate) struct Mint {
    state: AtomicU64,
    /// Ids made so far. Its last bits come right after the time, so that ids of one process ascend: a store adds them
    /// at the end of its index, not all over the last pages.
    made: AtomicU64,
    /// Keeps ids of two mints apart although their states may meet.
    salt: u64,
}

impl Mint {
    pub(crate) fn random() -> Self {
        Self { state: AtomicU64::new(entropy()), made: AtomicU64::new(0), salt: entropy() }
    }

    #[cfg(feature = "testing")]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed), made: AtomicU64::new(0), salt: seed }
    }

    pub(crate) fn seed(&self) -> u64 {
        Seed::new(self.state.fetch_add(STEP, Ordering::Relaxed)).next_u64()
    }

    pub(crate) fn job_id(&self, now: Timestamp) -> JobId {
        let low = self.seed();
        let random = Seed::new(low ^ self.salt).next_u64();
        let ascending = self.made.fetch_add(1, Ordering::Relaxed);
        JobId::from_parts(now.0.max(0) as u64, (u128::from(ascending) << 64) | u128::from(random))
    }
}

fn entropy() -> u64 {
    let bits = Uuid::now_v7().as_u128();
    Seed::new((bits as u64) ^ ((bits >> 64) as u64)).next_u64()
}

/// The run of this process, the same for all workers in it.
pub(crate) fn process() -> ProcessId {
    static PROCESS: OnceLock<ProcessId> = OnceLock::new();
    *PROCESS.get_or_init(|| ProcessId(entropy()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_do_not_repeat() {
        let mint = Mint::random();
        let ids: HashSet<JobId> = (0..100_000).map(|_| mint.job_id(Timestamp(1_763_000_000_000))).collect();
        assert_eq!(ids.len(), 100_000);
        assert_eq!(process(), process());
    }

    #[test]
    fn ids_of_one_moment_ascend() {
        let mint = Mint::random();
        let ids: Vec<JobId> = (0..4_096).map(|_| mint.job_id(Timestamp(1_763_000_000_000))).collect();
        assert!(ids.is_sorted(), "a store adds them at the end of its index");
    }
}
