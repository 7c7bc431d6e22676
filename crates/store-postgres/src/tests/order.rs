//! One order of all commits: what one process did is known to the next before it does anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_store::Upkeep as _;

use super::*;

/// Several processes enqueue and claim at once. Returns how many calls failed, how many jobs were claimed twice, and how
/// many were lost.
async fn contend(options: PgOptions) -> (usize, usize, usize) {
    const JOBS: usize = 40;
    let f = Fixture::new().await;
    let failed = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for process in 0..3_u64 {
        let store = f.another(options.clone()).await;
        let failed = failed.clone();
        tasks.spawn(async move {
            let mut claimed = vec![];
            for _ in 0..JOBS {
                let fresh = job("1");
                while store.enqueue(vec![NewJob { id_may_exist: true, ..fresh.clone() }], NOW).await.is_err()
                {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
                match store.claim(Claim { process: ProcessId(process), ..claim_of(2, NOW) }).await {
                    Ok(got) => claimed.extend(got.jobs.into_iter().map(|j| j.id)),
                    Err(_) => {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            claimed
        });
    }
    let mut all: Vec<JobId> = vec![];
    while let Some(claimed) = tasks.join_next().await {
        all.extend(claimed.unwrap());
    }
    let rest = claim(&f.store, 2_000, NOW).await;
    all.extend(rest.jobs.iter().map(|j| j.id));
    let held = all.len();
    all.sort_unstable_by_key(|id| id.uuid());
    all.dedup();
    assert_eq!(f.store.totals().await.unwrap().ready, 0);
    (failed.load(Ordering::Relaxed), held - all.len(), (3 * JOBS) - all.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_write_at_once_take_turns() {
    assert_eq!(contend(PgOptions::new()).await, (0, 0, 0));
}

/// The mistake that the test above is about: lock and read in one statement, whose snapshot is older than the lock. The
/// log's primary key keeps it from doing harm, at the price of a failed call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locking_and_reading_in_one_statement_would_miss_commits() {
    let mistake = PgOptions::new().instead("head/lock", "SELECT EXISTS (SELECT FROM tidegate.alive), 0").instead(
        "log/after",
        "WITH locked AS MATERIALIZED (SELECT one FROM tidegate.head WHERE one FOR UPDATE)
         SELECT version, stamp, next_seq, next_lease, now, effects
         FROM locked, LATERAL (SELECT * FROM tidegate.log WHERE version >= $1 ORDER BY version LIMIT $2) AS l",
    );
    let (failed, twice, _) = contend(mistake).await;
    assert!(failed > 0, "nothing was missed");
    assert_eq!(twice, 0, "the log's key lets only one of two commits with the same version through");
}
