//! New ids, random and derived.

use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};
use tidegate_core::ids::{JobId, ProcessId, WorkerId};
use tidegate_core::seed::Seed;
use tidegate_core::time::Timestamp;
use uuid::Uuid;

/// Step of splitmix64: consecutive states yield unrelated numbers.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where ids come from: one atomic step each.
#[derive(Debug)]
pub(crate) struct Mint {
    state: AtomicU64,
    /// Keeps ids of two mints apart although their states may meet.
    salt: u64,
}

impl Mint {
    pub(crate) fn random() -> Self {
        Self { state: AtomicU64::new(entropy()), salt: entropy() }
    }

    pub(crate) fn seed(&self) -> u64 {
        Seed::new(self.state.fetch_add(STEP, Ordering::Relaxed)).next_u64()
    }

    pub(crate) fn job_id(&self, now: Timestamp) -> JobId {
        let low = self.seed();
        let high = Seed::new(low ^ self.salt).next_u64();
        JobId::from_parts(now.0.max(0) as u64, (u128::from(high) << 64) | u128::from(low))
    }

    /// A short id under which the log says more.
    pub(crate) fn incident(&self) -> String {
        format!("inc_{:012x}", self.seed() >> 16)
    }
}

fn entropy() -> u64 {
    let bits = Uuid::now_v7().as_u128();
    Seed::new((bits as u64) ^ ((bits >> 64) as u64)).next_u64()
}

/// The id of the job at this place of a request with an idempotency key: the same for the same caller and key.
pub(crate) fn idempotent_id(scope: &str, key: &str, place: usize) -> JobId {
    // Lengths go in front, so that no two requests share their text.
    let text = format!("tidegate job\n{}:{scope}\n{}:{key}\n{place}", scope.len(), key.len());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Sha256::digest(text.as_bytes())[..16]);
    // Version 8 of UUIDs is for such.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    JobId::from_uuid(Uuid::from_bytes(bytes))
}

/// The process of a worker that named none: as long as it keeps its name it is the same.
pub(crate) fn process_of(worker: &WorkerId) -> ProcessId {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&Sha256::digest(worker.as_str().as_bytes())[..8]);
    ProcessId(u64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_ids_are_stable_and_apart() {
        let id = idempotent_id("key_a", "order-7", 0);
        assert_eq!(id, idempotent_id("key_a", "order-7", 0));
        assert_eq!(id.uuid().get_version_num(), 8);
        for other in [
            ("key_b", "order-7", 0),
            ("key_a", "order-8", 0),
            ("key_a", "order-7", 1),
            ("key_a\n", "order-7", 0),
        ] {
            assert_ne!(id, idempotent_id(other.0, other.1, other.2));
        }
    }
}
