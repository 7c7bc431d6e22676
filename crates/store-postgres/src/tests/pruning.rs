//! Deleting what is past its retention.

use tidegate_core::ids::{Seq, TenantId};
use tidegate_core::registry::Retention;
use tidegate_store::Upkeep as _;
use tidegate_store::params::Erase;

use super::*;

/// Enqueues and completes one job at this time.
async fn complete_one(store: &PgStore, now: Timestamp) {
    store.enqueue(vec![job("1")], now).await.unwrap();
    let claimed = claim(store, 1, now).await;
    settle(store, claimed.jobs[0].ticket, Outcome::Complete(None), now).await;
}

#[tokio::test]
async fn a_mark_that_came_late_is_found_although_the_walk_begins_behind_it() {
    let f = Fixture::new().await;
    let user = f.user().await;
    let kept = Retention { count: 1, age_ms: 3_600_000 };
    let settings = QueueSettings { retention: kept, ..QueueSettings::default() };
    f.store.put_queue(queue(), settings, NOW).await.unwrap();
    let at = |s: i64| NOW.plus_ms(s * 1_000);
    complete_one(&f.store, at(1)).await;
    complete_one(&f.store, at(2)).await;
    assert_eq!(f.store.prune(10, at(2)).await.unwrap(), 1, "the oldest is behind the walk now");
    // As if its caller had begun to wait for the lock fifty seconds ago.
    complete_one(&f.store, at(3)).await;
    for table in ["done", "finished"] {
        let late = at(3).plus_ms(-50_000).0;
        user.run(&format!("UPDATE tidegate.{table} SET at = {late} WHERE at = {}", at(3).0)).await;
    }
    assert_eq!(f.store.prune(10, at(4)).await.unwrap(), 1);
    complete_one(&f.store, at(70)).await;
    assert_eq!(f.store.prune(10, at(71)).await.unwrap(), 1);
    let left = format!("SELECT count(*) FROM tidegate.done WHERE at < {}", at(70).0);
    assert_eq!(user.number(&left).await, 0, "the late one was found in the end");
}

/// A queue that keeps no more than this many finished jobs.
async fn keeps(f: &Fixture, count: u64) {
    let retention = Retention { count, age_ms: 3_600_000 };
    f.store.put_queue(queue(), QueueSettings { retention, ..QueueSettings::default() }, NOW).await.unwrap();
}

/// Jobs that were enqueued together and are completed at this time, in one commit.
async fn complete_many(f: &Fixture, n: u32, now: Timestamp) {
    f.store.enqueue((0..n).map(|_| job("1")).collect(), now).await.unwrap();
    complete_ready(f, n, now).await;
}

async fn complete_ready(f: &Fixture, n: u32, now: Timestamp) {
    let done = |j: &tidegate_store::params::ClaimedJob| Settlement {
        ticket: j.ticket,
        outcome: Outcome::Complete(None),
    };
    let settlements = claim(&f.store, n, now).await.jobs.iter().map(done).collect();
    f.store.settle(Settle { settlements, now, seed: 1 }).await.unwrap();
}

/// Numbers of the marks that are there.
async fn marks(user: &User) -> Vec<i64> {
    let text = user.text("SELECT seq FROM tidegate.done ORDER BY seq");
    let rows = user.client.query(&text, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Runs of the lists that are there, oldest first.
async fn lists(user: &User) -> Vec<Vec<i64>> {
    let text = user.text("SELECT runs FROM tidegate.finished ORDER BY at, no");
    let rows = user.client.query(&text, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn jobs_that_lie_far_apart_are_on_several_lists() {
    let f = Fixture::new().await;
    let user = f.user().await;
    keeps(&f, 0).await;
    // Every second one is of a queue that nobody claims from: runs of one.
    let other = QueueName::new("other").unwrap();
    f.store.put_queue(other.clone(), QueueSettings::default(), NOW).await.unwrap();
    let aside = KindName::new("aside").unwrap();
    f.store.put_kind(aside.clone(), KindSettings::new(other)).await.unwrap();
    let jobs = (0..500).map(|i| {
        let mut job = job("1");
        if i % 2 == 1 {
            job.kind = aside.clone();
        }
        job
    });
    f.store.enqueue(jobs.collect(), NOW).await.unwrap();
    complete_ready(&f, 500, NOW.plus_ms(1)).await;
    let long: Vec<usize> = lists(&user).await.iter().map(|runs| runs.len() / 2).collect();
    assert_eq!(long, [120, 120, 10]);
    assert_eq!(f.store.prune(130, NOW.plus_ms(2)).await.unwrap(), 130);
    let long: Vec<usize> = lists(&user).await.iter().map(|runs| runs.len() / 2).collect();
    assert_eq!(long, [110, 10], "oldest first, whichever list they are on");
}

#[tokio::test]
async fn a_commit_leaves_one_list_which_gets_shorter_and_goes_with_its_last_job() {
    let f = Fixture::new().await;
    let user = f.user().await;
    keeps(&f, 0).await;
    // Many, whose marks are written before their turn, and few.
    complete_many(&f, 300, NOW).await;
    complete_many(&f, 2, NOW.plus_ms(1)).await;
    assert_eq!(lists(&user).await, [[1, 300], [301, 302]]);
    assert_eq!(f.store.prune(100, NOW.plus_ms(2)).await.unwrap(), 100);
    assert_eq!(marks(&user).await, (101..=302).collect::<Vec<_>>(), "the oldest are gone");
    assert_eq!(lists(&user).await, [[101, 300], [301, 302]]);
    assert_eq!(f.store.prune(201, NOW.plus_ms(3)).await.unwrap(), 201);
    assert_eq!((lists(&user).await, marks(&user).await), (vec![vec![302, 302]], vec![302]));
    assert_eq!(f.store.prune(10, NOW.plus_ms(4)).await.unwrap(), 1);
    assert_eq!(lists(&user).await, Vec::<Vec<i64>>::new());
}

#[tokio::test]
async fn lists_of_one_time_are_one_order_of_jobs() {
    let f = Fixture::new().await;
    let user = f.user().await;
    keeps(&f, 0).await;
    f.store.enqueue((0..4).map(|_| job("1")).collect(), NOW).await.unwrap();
    let claimed = claim(&f.store, 4, NOW).await;
    for i in [3, 1, 0, 2] {
        settle(&f.store, claimed.jobs[i].ticket, Outcome::Complete(None), NOW).await;
    }
    for left in [vec![2, 3, 4], vec![3, 4], vec![4], vec![]] {
        assert_eq!(f.store.prune(1, NOW.plus_ms(1)).await.unwrap(), 1);
        assert_eq!(marks(&user).await, left);
    }
    assert_eq!(lists(&user).await, Vec::<Vec<i64>>::new());
}

/// By the retention of its kind, and with its tenant: such jobs are not found by their lists.
#[tokio::test]
async fn a_job_that_is_deleted_otherwise_is_taken_off_its_list() {
    let f = Fixture::new().await;
    let user = f.user().await;
    let keeps = async |count: u64| {
        let retention = Some(Retention { count, age_ms: 3_600_000 });
        f.store.put_kind(kind(), KindSettings { retention, ..KindSettings::new(queue()) }).await.unwrap();
    };
    keeps(1).await;
    let of = |tenant: &str| NewJob { tenant: Some(TenantId::new(tenant).unwrap()), ..job("1") };
    let tenants = ["acme", "globex", "acme", "globex", "globex"];
    f.store.enqueue(tenants.map(of).into(), NOW).await.unwrap();
    complete_ready(&f, 5, NOW).await;
    assert_eq!(lists(&user).await, [[1, 5]]);
    let acme = Erase { tenant: TenantId::new("acme").unwrap(), after: Seq(0), scan: 1_000, now: NOW };
    f.store.erase(acme).await.unwrap();
    assert_eq!(lists(&user).await, [[2, 2, 4, 5]]);
    assert_eq!(f.store.prune(10, NOW.plus_ms(1)).await.unwrap(), 2);
    assert_eq!((lists(&user).await, marks(&user).await), (vec![vec![5, 5]], vec![5]));
    keeps(0).await;
    assert_eq!(f.store.prune(10, NOW.plus_ms(2)).await.unwrap(), 1);
    assert_eq!(lists(&user).await, Vec::<Vec<i64>>::new(), "nothing is left where a kind keeps nothing");
}

/// More than are read at once, and more of one time than are put into order.
#[tokio::test]
async fn many_short_lists_are_read_as_far_as_needed() {
    let f = Fixture::new().await;
    let user = f.user().await;
    keeps(&f, 0).await;
    complete_many(&f, 2_000, NOW).await;
    user.run(
        "DELETE FROM tidegate.finished;
         INSERT INTO tidegate.finished (queue, at, jobs, state, runs)
         SELECT queue, at - 1000 + seq / 700 * 700, 1, state, ARRAY[seq, seq] FROM tidegate.done ORDER BY seq DESC",
    )
    .await;
    assert_eq!(f.store.prune(1, NOW.plus_ms(1)).await.unwrap(), 1);
    assert_eq!(f.store.prune(699, NOW.plus_ms(2)).await.unwrap(), 699);
    let left = marks(&user).await;
    assert!(left.len() == 1_300 && left.iter().filter(|seq| **seq < 700).count() <= 1, "{left:?}");
    assert_eq!(f.store.prune(5_000, NOW.plus_ms(3)).await.unwrap(), 1_300);
    assert_eq!((lists(&user).await, marks(&user).await), (vec![], vec![]));
}

/// A schema as the version before lists left it.
async fn before_lists() -> (String, String, Client) {
    let (url, schema) = (postgres::url(), fresh_schema());
    let options = || PgOptions::new().schema(&schema).unwrap();
    let client = client(&url).await;
    let planned = crate::migrate(&url, options(), true).await.unwrap();
    for step in planned.iter().take_while(|step| step.name != "0010_finished") {
        client.batch_execute(&step.sql).await.unwrap();
    }
    (url, schema, client)
}

async fn all_lists(schema: &str, client: &Client) -> Vec<(i32, i64, i32, i16, Vec<i64>)> {
    let found =
        format!("SELECT queue, at, jobs, state, runs FROM {schema}.finished ORDER BY queue, at, state");
    let found = client.query(&found, &[]).await.unwrap();
    found.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4))).collect()
}

#[tokio::test]
async fn jobs_that_an_older_version_finished_are_on_lists_after_the_migration() {
    let (url, schema, client) = before_lists().await;
    let old = format!(
        "INSERT INTO {schema}.done (seq, at, queue, attempt, state) VALUES (1, 10, 1, 1, 1), (2, 10, 1, 1, 1),
         (3, 10, 1, 1, 2), (4, 10, 1, 1, 1), (5, 10, 2, 1, 1), (6, 11, 1, 1, 1), (7, 10, 1, 1, 3)"
    );
    client.batch_execute(&old).await.unwrap();
    crate::migrate(&url, PgOptions::new().schema(&schema).unwrap(), false).await.unwrap();
    assert_eq!(
        all_lists(&schema, &client).await,
        [
            (1, 10, 3, 1, vec![1, 2, 4, 4]),
            (1, 10, 1, 3, vec![7, 7]),
            (1, 11, 1, 1, vec![6, 6]),
            (2, 10, 1, 1, vec![5, 5])
        ]
    );
}

/// Until so many wait for a lock in this schema.
async fn waiting(user: &Client, schema: &str, n: i64) {
    let waits = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ '\\m{schema}\\M'"
    );
    for _ in 0..100_000 {
        if user.query_one(&waits, &[]).await.unwrap().get::<_, i64>(0) >= n {
            return;
        }
    }
    panic!("{n} should wait for a lock and do not");
}

/// An older process in the middle of its commit, with marks that nobody sees yet.
#[tokio::test]
async fn what_an_older_version_finishes_while_the_migration_begins_is_on_a_list() {
    let (url, schema, older) = before_lists().await;
    let begin = format!(
        "BEGIN; SELECT * FROM {schema}.head FOR UPDATE;
         INSERT INTO {schema}.done (seq, at, queue, attempt, state) VALUES (1, 10, 1, 1, 1)"
    );
    older.batch_execute(&begin).await.unwrap();
    let options = PgOptions::new().schema(&schema).unwrap();
    let migrating = tokio::spawn(async move { crate::migrate(&url, options, false).await });
    let user = client(&postgres::url()).await;
    waiting(&user, &schema, 1).await;
    older.batch_execute("COMMIT").await.unwrap();
    migrating.await.unwrap().unwrap();
    assert_eq!(all_lists(&schema, &user).await, [(1, 10, 1, 1, vec![1, 1])]);
}

/// One that has written its marks waits for its turn with them, and the migration has the turn and waits for the marks.
#[tokio::test]
async fn a_migration_and_an_older_process_that_wait_for_each_other_are_untangled() {
    let (url, schema, first) = before_lists().await;
    let turn = format!("SELECT * FROM {schema}.head FOR UPDATE");
    first.batch_execute(&format!("BEGIN; {turn}")).await.unwrap();
    let options = PgOptions::new().schema(&schema).unwrap();
    let migrating = tokio::spawn(async move { crate::migrate(&url, options, false).await });
    let user = client(&postgres::url()).await;
    waiting(&user, &schema, 1).await;
    let older = client(&postgres::url()).await;
    let mark = format!("INSERT INTO {schema}.done (seq, at, queue, attempt, state) VALUES (1, 10, 1, 1, 1)");
    older.batch_execute(&format!("BEGIN; {mark}")).await.unwrap();
    let text = turn.clone();
    let older = tokio::spawn(async move { (older.batch_execute(&text).await, older) });
    waiting(&user, &schema, 2).await;
    first.batch_execute("COMMIT").await.unwrap();
    let (had_turn, older) = older.await.unwrap();
    older.batch_execute("ROLLBACK").await.unwrap();
    migrating.await.unwrap().unwrap();
    assert_eq!(all_lists(&schema, &user).await, [], "the mark was never there");
    // Whichever of the two the server ended: an older process that has its turn again is told that it is too old.
    let from = user.query_one(&turn, &[]).await.unwrap().get::<_, i32>("readable_from");
    assert_eq!(from, crate::schema::VERSION, "{had_turn:?}");
}

/// Who dumps the database reads every table for as long as that takes, and shall hold up neither the migration nor, by it, anybody else.
#[tokio::test]
async fn a_migration_does_not_wait_for_readers_and_the_old_index_goes_when_there_are_none() {
    let (url, schema, reader) = before_lists().await;
    reader.batch_execute(&format!("BEGIN; SELECT count(*) FROM {schema}.done")).await.unwrap();
    let options = || PgOptions::new().schema(&schema).unwrap();
    let named = |steps: Vec<crate::Step>| steps.into_iter().map(|step| step.name).collect::<Vec<_>>();
    let drops = || "drop done_by_queue".to_owned();
    assert!(named(crate::migrate(&url, options(), true).await.unwrap()).contains(&drops()));
    let done = named(crate::migrate(&url, options(), false).await.unwrap());
    assert!(done.contains(&"0010_finished".to_owned()) && !done.contains(&drops()), "{done:?}");
    PgStore::connect(&url, options().migrate(false), NOW).await.expect("what is left is in nobody's way");
    reader.batch_execute("COMMIT").await.unwrap();
    assert_eq!(named(crate::migrate(&url, options(), false).await.unwrap()), [drops()]);
    assert_eq!(crate::migrate(&url, options(), true).await.unwrap(), []);
}

#[tokio::test]
async fn a_migration_that_fails_refuses_nobody() {
    let (url, schema, client) = before_lists().await;
    client.batch_execute(&format!("CREATE VIEW {schema}.finished AS SELECT 1")).await.unwrap();
    crate::migrate(&url, PgOptions::new().schema(&schema).unwrap(), false).await.unwrap_err();
    let from = client.query_one(&format!("SELECT readable_from FROM {schema}.head"), &[]).await.unwrap();
    assert_eq!(from.get::<_, i32>(0), 9, "who could use the schema can use it still");
}

/// Versions before these rows had an owner left it open.
#[tokio::test]
async fn what_an_earlier_version_kept_goes_with_the_tenant_it_may_be_of() {
    let f = Fixture::new().await;
    let user = f.user().await;
    let retention = Retention { count: 0, age_ms: 3_600_000 };
    f.store.put_queue(queue(), QueueSettings { retention, ..QueueSettings::default() }, NOW).await.unwrap();
    let of = |tenant: &str, after: Vec<JobId>| {
        let tenant = (!tenant.is_empty()).then(|| TenantId::new(tenant).unwrap());
        NewJob { tenant, after, ..job("1") }
    };
    let later = |tenant: &str| NewJob { run_at: Some(NOW.plus_ms(9_000_000)), ..of(tenant, vec![]) };
    let (mut done, mut readers) = (vec![], vec![]);
    for (whose, reader) in [("acme", ""), ("acme", "acme"), ("globex", "globex"), ("", "")] {
        let parent = enqueue(&f.store, of(whose, vec![])).await;
        let open = enqueue(&f.store, later(reader)).await;
        readers.push(enqueue(&f.store, of(reader, vec![parent, open])).await);
        done.push(parent);
    }
    for job in claim(&f.store, 10, NOW).await.jobs {
        let result = Payload::trusted("\"a secret\"");
        settle(&f.store, job.ticket, Outcome::Complete(Some(result)), NOW).await;
    }
    f.store.prune(100, NOW.plus_ms(1)).await.unwrap();
    user.run("UPDATE tidegate.kept SET tenant = NULL WHERE tenant <> ''").await;
    let seen = async |store: &PgStore| {
        let mut seen = vec![];
        for reader in [readers[0], readers[2], readers[3]] {
            let page = store.dependencies(reader, None, 0, 5).await.unwrap();
            seen.extend(page.jobs.into_iter().filter(|d| d.result.is_some()).map(|d| d.id));
        }
        seen
    };
    assert_eq!(seen(&f.store).await, [done[0], done[2], done[3]]);
    let erase =
        |tenant: &str| Erase { tenant: TenantId::new(tenant).unwrap(), after: Seq(0), scan: 1_000, now: NOW };
    f.store.erase(erase("nobody")).await.unwrap();
    assert_eq!(
        seen(&f.store).await,
        [done[2], done[3]],
        "it may have been anybody's: it is gone with the first"
    );
    f.store.erase(erase("acme")).await.unwrap();
    assert_eq!(seen(&f.store).await, [done[2], done[3]], "another tenant's job waits for it; it is nobody's");
    assert_eq!(user.number("SELECT count(*) FROM tidegate.kept").await, 2);
}
