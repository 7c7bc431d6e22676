//! Many jobs at once: they are copied while the machine goes on with the next ones.

use super::*;

/// Several pieces, and a rest.
const MANY: usize = 1_000;

fn batch() -> Vec<NewJob> {
    (0..MANY).map(|_| NewJob { id_may_exist: false, ..job("1") }).collect()
}

#[tokio::test]
async fn a_large_batch_is_stored_whole() {
    let f = Fixture::new().await;
    let jobs = batch();
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    f.store.enqueue(jobs, NOW).await.unwrap();
    let stored = f.user().await.number("SELECT count(*) FROM tidegate.jobs").await;
    assert_eq!(stored, MANY as i64);
    let other = f.another(PgOptions::new()).await;
    let claimed: Vec<JobId> = claim(&other, MANY as u32, NOW).await.jobs.iter().map(|job| job.id).collect();
    assert_eq!(claimed, ids);
}

#[tokio::test]
async fn of_a_large_batch_with_an_id_that_exists_nothing_is_stored() {
    let f = Fixture::new().await;
    let (first, mut jobs) = (job("1"), batch());
    // In a piece that is copied long before the commit.
    jobs[3].id = enqueue(&f.store, first).await;
    f.store.enqueue(jobs, NOW).await.unwrap_err();
    let user = f.user().await;
    assert_eq!(user.number("SELECT count(*) FROM tidegate.jobs").await, 1);
    f.store.enqueue(batch(), NOW).await.unwrap();
    assert_eq!(user.number("SELECT count(*) FROM tidegate.jobs").await, 1 + MANY as i64);
    let other = f.another(PgOptions::new()).await;
    assert_eq!(other.digest().await.unwrap(), f.store.digest().await.unwrap());
}
