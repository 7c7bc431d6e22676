//! What is left to be seen, in process: for all who share these gates.

use async_trait::async_trait;

use super::{InProcess, lock};
use crate::watched::{SNAPSHOT_KEPT, SNAPSHOTS, Snapshot};
use crate::{Gates, GatesError, Noticeboard};

#[async_trait]
impl Noticeboard for InProcess {
    async fn publish(&self, seen: &Snapshot) -> Result<(), GatesError> {
        let mut all = lock(&self.seen);
        if all.len() >= SNAPSHOTS && !all.contains_key(&seen.process) {
            let oldest = all.values().min_by_key(|s| s.at).map(|s| s.process.clone());
            oldest.map(|process| all.remove(&process));
        }
        all.insert(seen.process.clone(), seen.clone());
        Ok(())
    }

    async fn published(&self) -> Result<Vec<Snapshot>, GatesError> {
        let (mut all, now) = (lock(&self.seen), self.clock());
        all.retain(|_, s| s.at + SNAPSHOT_KEPT > now);
        let mut all: Vec<Snapshot> = all.values().cloned().collect();
        all.sort_by_key(|s| std::cmp::Reverse(s.at));
        Ok(all)
    }
}
