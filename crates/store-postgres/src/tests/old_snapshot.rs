//! A snapshot that somebody holds open: dead rows pile up, and what is done all the time must not walk over them.

use tidegate_store::Upkeep as _;

use super::*;
use crate::statements::{Sql, in_schema};

/// Pages that a statement touches.
async fn pages(user: &User, sql: Sql, params: &str) -> i64 {
    let (_, path, text) = Sql::ALL[sql as usize];
    let name = path.replace('/', "_");
    let schema = PgOptions::new().schema(&user.schema).unwrap().schema;
    user.run(&format!("DEALLOCATE ALL; PREPARE {name} AS {}", in_schema(text, &schema))).await;
    let params = if params.is_empty() { String::new() } else { format!("({params})") };
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {name}{params}");
    let plan: String = user
        .client
        .simple_query(&explain)
        .await
        .unwrap()
        .iter()
        .filter_map(|m| match m {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        })
        .collect();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let plan = &plan[0]["Plan"];
    plan["Shared Hit Blocks"].as_i64().unwrap() + plan["Shared Read Blocks"].as_i64().unwrap()
}

#[tokio::test]
async fn dead_rows_behind_an_old_snapshot_are_not_walked() {
    let f = Fixture::new().await;
    let retention = tidegate_core::registry::Retention { count: 0, age_ms: 1 };
    f.store.put_queue(queue(), QueueSettings { retention, ..QueueSettings::default() }, NOW).await.unwrap();
    let (holder, user) = (f.user().await, f.user().await);
    holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tidegate.jobs").await;

    let mut now = NOW;
    for _ in 0..40 {
        now = now.plus_ms(10);
        f.store.enqueue((0..50).map(|_| job("1")).collect(), now).await.unwrap();
        for _ in 0..10 {
            user.run("SELECT tidegate.enqueue('task', '1', wake => false)").await;
        }
        let later = |mut job: NewJob| {
            job.run_at = Some(now.plus_ms(1));
            job
        };
        f.store.enqueue((0..20).map(|_| later(job("1"))).collect(), now).await.unwrap();
        now = now.plus_ms(2);
        // One by one: each leaves a list of its own.
        for job in claim(&f.store, 500, now).await.jobs {
            settle(&f.store, job.ticket, Outcome::Complete(None), now).await;
        }
        f.store.prune(1_000, now.plus_ms(5)).await.unwrap();
    }
    let last = user.number("SELECT max(version) FROM tidegate.log").await;
    let xid = user.number("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint").await;
    user.run(&PgOptions::new().settings(false)).await;
    let found = [
        ("lock", pages(&user, Sql::HeadLock, "").await),
        ("log", pages(&user, Sql::LogAfter, &format!("{last}, 1000")).await),
        ("inbox", pages(&user, Sql::InboxLook, &format!("{xid}, 500")).await),
        ("due", pages(&user, Sql::DelayedDue, &format!("{0}, {0}, 1000", now.0)).await),
        ("next due", pages(&user, Sql::DelayedNext, &now.0.to_string()).await),
        ("oldest", pages(&user, Sql::FinishedOldest, &format!("1, {}, 0, 1000, 1000", now.0)).await),
    ];
    for (what, pages) in found {
        assert!(pages < 25, "{what} touched {pages} pages: {found:?}");
    }
    // From the first row that ever was, as a process that just started must, it is another matter.
    assert!(pages(&user, Sql::FinishedOldest, "1, 0, 0, 10000, 10000").await > 25);
    holder.run("COMMIT").await;
}
