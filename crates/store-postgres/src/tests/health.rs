//! What health says.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn health_describes_the_server_and_warns_of_what_somebody_should_see() {
    let f = Fixture::with(PgOptions::new().old_snapshot(Duration::from_secs(1))).await;
    while !f.store.health(NOW).await.unwrap().listening {
        tokio::task::yield_now().await;
    }
    let health = f.store.health(NOW).await.unwrap();
    assert!(health.server_version.split('.').next().unwrap().parse::<u32>().unwrap() >= 14);
    assert!(health.round_trip_ms > 0.0 && health.log_rows >= 2 && health.inbox_rows == 0);
    // The tests' clock stands still in another year.
    assert!(health.warnings.iter().any(|w| w.contains("ms apart")), "{:?}", health.warnings);
    let server_now = NOW.plus_ms(health.clock_ahead_ms);
    let health = f.store.health(server_now).await.unwrap();
    assert!(!health.warnings.iter().any(|w| w.contains("ms apart")), "{:?}", health.warnings);

    let user = f.user().await;
    for forgotten in [
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tidegate.jobs",
        "BEGIN; SELECT tidegate.enqueue('task', '1')",
    ] {
        user.run(forgotten).await;
        user.run("SELECT pg_sleep(1.5)").await;
        let health = f.store.health(server_now).await.unwrap();
        assert!(health.oldest_snapshot_s >= 1, "{forgotten}");
        assert!(health.warnings.iter().any(|w| w.contains("cleaning up")), "{:?}", health.warnings);
        user.run("ROLLBACK").await;
    }
}
