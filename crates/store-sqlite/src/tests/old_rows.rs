//! Rows that earlier versions left, and more of them than one look is for.

use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::{Seq, TenantId};
use tidegate_core::limits::MAX_SEARCH_SCAN;
use tidegate_core::registry::Retention;
use tidegate_store::Upkeep as _;
use tidegate_store::letters::{Grant, reauthorize};
use tidegate_store::params::{Erase, Recovered};

use super::*;
use crate::schema;

/// Versions before these rows had an owner left it open.
#[tokio::test]
async fn what_an_earlier_version_kept_goes_with_the_tenant_it_may_be_of() {
    let mut f = Fixture::new().await;
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
    let Fixture { store, dir } = f;
    drop(store);
    let conn = rusqlite::Connection::open(dir.path().join("tidegate.db")).unwrap();
    conn.execute("UPDATE kept SET tenant = NULL WHERE tenant <> ''", []).unwrap();
    drop(conn);
    f = Fixture { store: open(dir.path()), dir };
    let seen = async |store: &SqliteStore| {
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
}

/// What a letter died of was made from it by the file until version 7.
#[tokio::test]
async fn letters_of_version_7_are_counted_and_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.db");
    let mut conn = rusqlite::Connection::open(&path).unwrap();
    schema::migrate_to(&mut conn, 7).unwrap();
    let letter = |review: &str, cause: &str| {
        format!(
            "{{\"category\":\"INVALID_INPUT\",\"reason\":\"permanent\",\"code\":\"E\",\"message\":\"no\",\"review\":\"{review}\"{cause}}}"
        )
    };
    let cause = ",\"cause\":\"4f8d504e01ab9d43\"";
    let marks =
        [letter("pending_review", cause), letter("pending_review", ""), letter("manual_resolved", cause)];
    for (seq, letter) in marks.iter().enumerate() {
        let mark = "INSERT INTO done (seq, queue, state, at, attempt, letter) VALUES (?1, 1, 2, ?1, 1, ?2)";
        conn.execute(mark, rusqlite::params![seq as i64, letter]).unwrap();
    }
    conn.execute("INSERT INTO done (seq, queue, state, at, attempt) VALUES (9, 1, 1, 9, 1)", []).unwrap();
    let read = |conn: &rusqlite::Connection| {
        let mut statement = conn.prepare("SELECT cause FROM done ORDER BY seq").unwrap();
        let causes = statement.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
        causes.map(Result::unwrap).collect::<Vec<_>>()
    };
    let before = read(&conn);
    schema::migrate_to(&mut conn, schema::VERSION).unwrap();
    assert_eq!(read(&conn), before);
    assert_eq!(before, [Some("4f8d504e01ab9d43".into()), Some(String::new()), None, None]);
}

/// As many letters as a search looks at died since; those that wait for a grant are found behind them.
#[tokio::test]
#[ignore = "makes 200,000 letters: `scripts/soak letters` runs it"]
async fn a_grant_finds_letters_behind_all_that_one_search_looks_at() {
    let f = Fixture::new().await;
    let acme = TenantId::new("acme").unwrap();
    let die = async |new: NewJob, category| {
        let id = enqueue(&f.store, new).await;
        let ticket = claim(&f.store, 1, NOW).await.jobs[0].ticket;
        settle(&f.store, ticket, Outcome::Fail(Failure::new(category, "E", "no")), NOW).await;
        id
    };
    let waits = NewJob { tenant: Some(acme.clone()), ..job("1") };
    let waits = die(waits, Category::PermanentAuth).await;
    die(job("1"), Category::InvalidInput).await;
    let Fixture { store, dir } = f;
    drop(store);
    let conn = rusqlite::Connection::open(dir.path().join("tidegate.db")).unwrap();
    let copies = format!(
        "BEGIN;
         CREATE TEMP TABLE n AS WITH RECURSIVE c (n) AS (SELECT 3 UNION ALL SELECT n + 1 FROM c LIMIT {MAX_SEARCH_SCAN}) SELECT n FROM c;
         INSERT INTO jobs (seq, id, kind, lane, created_at, run_at, timeout_ms, payload)
             SELECT n.n, randomblob(16), j.kind, j.lane, j.created_at, j.run_at, j.timeout_ms, j.payload FROM n, jobs AS j WHERE j.seq = 2;
         INSERT INTO done (seq, queue, state, at, attempt, letter)
             SELECT n.n, d.queue, d.state, d.at, d.attempt, d.letter FROM n, done AS d WHERE d.seq = 2;
         UPDATE meta SET value = 1000000 WHERE name = 'reserved_seq';
         COMMIT;"
    );
    conn.execute_batch(&copies).unwrap();
    drop(conn);
    let store = open(dir.path());
    let grant = Grant { tenant: Some(acme), connector: None, kind: None };
    let new = job("1").id;
    let first = reauthorize(&store, &grant, None, "tokens", || Some(new), NOW).await.unwrap();
    assert_eq!(first.letters, [], "one request looks at so many and no more");
    assert!(first.next.is_some());
    let done = reauthorize(&store, &grant, first.next, "tokens", || Some(new), NOW).await.unwrap();
    assert_eq!(done.letters, [(waits, Recovered::As(new))]);
    assert!(done.next.is_none());
}
