//! A full disk, twice: a file that may not grow, and a real file system that is full where one can be mounted.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::*;
use tidegate_core::codes;
use tidegate_core::job::State;
use tidegate_store::Upkeep;

/// A place to keep a store that soon is full.
struct Disk {
    dir: TempDir,
    max_pages: Arc<AtomicU32>,
    mounted: bool,
}

impl Disk {
    /// A directory whose database may not grow beyond about 1 MB.
    fn capped() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, max_pages: Arc::new(AtomicU32::new(256)), mounted: false }
    }

    /// A file system of 2 MB, if this process may mount one.
    fn tiny() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=2200k", "tmpfs"]).arg(dir.path()).output();
        let mounted = mounted.is_ok_and(|out| out.status.success());
        mounted.then(|| Self { dir, max_pages: Arc::default(), mounted })
    }

    fn all() -> Vec<Self> {
        [Some(Self::capped()), Self::tiny()].into_iter().flatten().collect()
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn open(&self) -> SqliteStore {
        // A file system in memory syncs at no cost; on a real disk the tests would mostly wait.
        let mut options = OpenOptions::new().synchronous(self.mounted);
        options.max_pages = self.max_pages.clone();
        options.open(self.path(), NOW).unwrap()
    }

    /// Somebody frees space.
    fn free(&self) {
        self.max_pages.store(0, Ordering::Relaxed);
        if self.mounted {
            let freed = Command::new("mount").args(["-o", "remount,size=64m"]).arg(self.dir.path()).status();
            assert!(freed.unwrap().success());
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg(self.dir.path()).status();
        }
    }
}

/// Enqueues until the disk is full. Returns what was acknowledged.
async fn fill(store: &SqliteStore) -> BTreeSet<JobId> {
    let mut acknowledged = BTreeSet::new();
    loop {
        let new = job(&format!("\"{}\"", "x".repeat(200)));
        match store.enqueue(vec![new], NOW).await {
            Ok(replies) => acknowledged.extend(replies.into_iter().map(|r| r.id)),
            Err(error) => {
                assert_eq!(error.code, codes::STORE_FULL);
                assert!(error.detail.contains("full"), "{error}");
                return acknowledged;
            }
        }
        assert!(acknowledged.len() < 100_000, "the disk is never full");
    }
}

/// Tries again until the store works, as it does by itself.
async fn until_it_works(store: &SqliteStore) -> Claimed {
    let began = std::time::Instant::now();
    loop {
        match store.claim(claim_of(2_000, NOW)).await {
            Ok(claimed) => return claimed,
            Err(error) => assert_eq!(error.code, codes::STORE_FULL),
        }
        assert!(began.elapsed().as_secs() < 20, "the store did not recover");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_full_disk_is_a_clear_error_and_the_store_goes_on_once_there_is_room() {
    for disk in Disk::all() {
        let store = disk.open();
        register(&store).await;
        let acknowledged = fill(&store).await;
        assert!(acknowledged.len() > 100, "{}", acknowledged.len());
        disk.free();
        let mut claimed = until_it_works(&store).await;
        let mut seen = BTreeSet::new();
        while !claimed.jobs.is_empty() {
            for job in claimed.jobs {
                assert!(seen.insert(job.id), "{} was handed out twice", job.id);
                settle(&store, job.ticket, Outcome::Complete(None), NOW).await;
            }
            claimed = claim(&store, 2_000, NOW).await;
        }
        assert_eq!(seen, acknowledged);
        enqueue(&store, job("1")).await;
        store.close().await.unwrap();
        let conn = rusqlite::Connection::open(disk.path().join("tidegate.db")).unwrap();
        let verdict: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
    }
}

#[tokio::test]
async fn a_claim_that_cannot_be_stored_hands_out_nothing_and_loses_nothing() {
    for disk in Disk::all() {
        let store = disk.open();
        register(&store).await;
        let acknowledged = fill(&store).await;
        // The lease of this claim needs more pages than are left, after its jobs were taken in memory.
        let refused = store.claim(claim_of(2_000, NOW)).await.unwrap_err();
        assert_eq!(refused.code, codes::STORE_FULL);
        disk.free();
        let claimed = until_it_works(&store).await;
        assert_eq!(claimed.jobs.len(), acknowledged.len().min(2_000));
        let first = store.get(claimed.jobs[0].id).await.unwrap().unwrap();
        assert_eq!((first.state, Some(first.id)), (State::Running, acknowledged.first().copied()));
    }
}

#[tokio::test]
async fn what_was_acknowledged_before_the_disk_was_full_survives_a_restart() {
    let disk = Disk::capped();
    let store = disk.open();
    register(&store).await;
    let acknowledged = fill(&store).await;
    drop(store);
    disk.free();
    let store = disk.open();
    assert_eq!(store.totals().await.unwrap().ready, acknowledged.len() as u64);
}
