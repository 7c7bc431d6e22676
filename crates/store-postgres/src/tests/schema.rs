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
