//! Migrations.

use tidegate_core::codes;

use super::*;
use crate::migrate;

#[tokio::test]
async fn a_dry_run_says_what_is_to_be_done_and_does_nothing() {
    let (url, schema) = (postgres::url(), fresh_schema());
    let options = || PgOptions::new().schema(&schema).unwrap();
    let planned = migrate(&url, options(), true).await.unwrap();
    assert!(planned.iter().any(|s| s.name == "0001_init") && planned.iter().all(|s| !s.sql.is_empty()));
    let refused = PgStore::connect(&url, options().migrate(false), NOW).await.unwrap_err();
    assert_eq!(refused.code, codes::STORE_FAILED);
    assert_eq!(migrate(&url, options(), false).await.unwrap(), planned);
    assert_eq!(migrate(&url, options(), true).await.unwrap(), []);
    PgStore::connect(&url, options().migrate(false), NOW).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_together_migrate_once() {
    let (url, schema) = (postgres::url(), fresh_schema());
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (url, options) = (url.clone(), PgOptions::new().schema(&schema).unwrap());
        starts.spawn(async move { PgStore::connect(&url, options, NOW).await.map(drop) });
    }
    while let Some(started) = starts.join_next().await {
        started.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_unless_it_says_that_this_version_may_read_it() {
    let f = Fixture::new().await;
    let user = f.user().await;
    user.run("INSERT INTO tidegate.migrations (version, name, readable_from) VALUES (99, 'later', 1)").await;
    f.another(PgOptions::new()).await;
    user.run("UPDATE tidegate.migrations SET readable_from = 99 WHERE version = 99").await;
    let options = PgOptions::new().schema(&f.schema).unwrap();
    let refused = PgStore::connect(&f.url, options, NOW).await.unwrap_err();
    assert_eq!(refused.code, codes::STORE_NEWER);
}

#[tokio::test]
async fn a_function_that_was_changed_is_noticed_and_put_right() {
    let f = Fixture::new().await;
    let user = f.user().await;
    let functions = format!("{}_v1", f.schema);
    user.run(&format!(
        "DO $do$ DECLARE text text; BEGIN
             SELECT replace(pg_get_functiondef(p.oid), '1048576', '10') INTO text FROM pg_proc AS p
             WHERE p.pronamespace = '{functions}'::regnamespace AND p.proname = 'enqueue';
             EXECUTE text;
         END $do$"
    ))
    .await;
    user.refused("SELECT tidegate.enqueue('task', '\"longer than ten\"')").await;
    let options = || PgOptions::new().schema(&f.schema).unwrap();
    let steps = migrate(&f.url, options(), false).await.unwrap();
    assert_eq!(
        steps.iter().map(|s| s.name.clone()).collect::<Vec<_>>(),
        [format!("function {functions}.enqueue")]
    );
    user.enqueue("'task', '\"longer than ten\"'").await;
}

#[tokio::test]
async fn a_process_that_a_migration_leaves_behind_is_refused_before_it_writes() {
    let f = Fixture::new().await;
    enqueue(&f.store, job("1")).await;
    let user = f.user().await;
    user.run("UPDATE tidegate.head SET readable_from = 99").await;
    let refused = f.store.enqueue(vec![job("2")], NOW).await.unwrap_err();
    assert_eq!(refused.code, codes::STORE_NEWER);
    assert_eq!(user.number("SELECT count(*) FROM tidegate.jobs").await, 1);
    user.run("UPDATE tidegate.head SET readable_from = 0").await;
    while f.store.enqueue(vec![job("3")], NOW).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn processes_that_do_not_ask_yet_are_stopped_by_their_next_statement() {
    let (url, schema) = (postgres::url(), fresh_schema());
    let options = || PgOptions::new().schema(&schema).unwrap();
    let (client, _work) = options().reach(&url).unwrap().0.open(None).await.unwrap();
    let planned = migrate(&url, options(), true).await.unwrap();
    let before = planned.iter().take_while(|step| step.name != "0004_fence");
    for step in before {
        client.batch_execute(&step.sql).await.unwrap();
    }
    // What every transaction of versions 1 to 3 begins with.
    let follow = format!(
        "SELECT version, stamp, next_seq, next_lease, now, changes FROM \"{schema}\".log
         WHERE version >= $1 ORDER BY version LIMIT $2"
    );
    let follow = client.prepare(&follow).await.unwrap();
    assert_eq!(client.query(&follow, &[&0_i64, &1_i64]).await.unwrap().len(), 1);
    migrate(&url, options(), false).await.unwrap();
    client.query(&follow, &[&0_i64, &1_i64]).await.unwrap_err();
    PgStore::connect(&url, options().migrate(false), NOW).await.unwrap();
}
