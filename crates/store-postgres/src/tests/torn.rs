//! Rows that do not say what the memory says: the commit fails, and nothing of it is kept.

use tidegate_core::job::State;
use tidegate_store::params::CancelJob;

use super::*;

#[tokio::test]
async fn a_job_that_is_not_on_the_schedule_where_it_should_be_fails_the_commit() {
    let f = Fixture::new().await;
    let later = NewJob { run_at: Some(NOW.plus_ms(60_000)), ..job("1") };
    let id = later.id;
    f.store.enqueue(vec![later], NOW).await.unwrap();
    let user = f.user().await;
    user.run("UPDATE tidegate.delayed SET run_at = run_at + 1").await;
    let cancel = || CancelJob { id, note: "not needed".into(), cascade: false, now: NOW };
    f.store.cancel(cancel()).await.unwrap_err();
    assert_eq!(f.store.get(id).await.unwrap().map(|job| job.state), Some(State::Scheduled));
    assert_eq!(user.number("SELECT count(*) FROM tidegate.done").await, 0);
    user.run("UPDATE tidegate.delayed SET run_at = run_at - 1").await;
    f.store.cancel(cancel()).await.unwrap();
    assert_eq!(user.number("SELECT count(*) FROM tidegate.delayed").await, 0);
}
