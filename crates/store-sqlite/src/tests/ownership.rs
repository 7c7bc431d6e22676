use super::*;
use tidegate_core::codes;
use tidegate_store::params::JobQuery;

#[tokio::test]
async fn a_second_opener_is_told_who_owns_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let options = OpenOptions::new().url("http://127.0.0.1:7070");
    let first = options.open(dir.path(), NOW).unwrap();
    let refused = SqliteStore::open(dir.path(), NOW).unwrap_err();
    assert_eq!(refused.code, codes::STORE_OWNED);
    for part in [&format!("process {}", std::process::id()), "2025-11-13T", "http://127.0.0.1:7070"] {
        assert!(refused.detail.contains(part), "{refused}");
    }
    let other_handle = first.clone();
    drop(first);
    assert_eq!(SqliteStore::open(dir.path(), NOW).unwrap_err().code, codes::STORE_OWNED);
    drop(other_handle);
    SqliteStore::open(dir.path(), NOW).unwrap();
}

#[tokio::test]
async fn a_closed_store_lets_go_and_refuses_everything() {
    let fixture = Fixture::new().await;
    enqueue(&fixture.store, job("1")).await;
    fixture.store.close().await.unwrap();
    fixture.store.close().await.unwrap();
    let log = std::fs::metadata(fixture.dir.path().join("tidegate.db-wal"));
    assert!(log.map_or(0, |m| m.len()) == 0, "the log was not copied");
    assert_eq!(fixture.store.enqueue(vec![job("1")], NOW).await.unwrap_err().code, codes::STORE_CLOSED);
    assert_eq!(fixture.store.search(JobQuery::default()).await.unwrap_err().code, codes::STORE_CLOSED);
    let to = fixture.dir.path().join("copy.db");
    assert_eq!(fixture.store.backup(&to, |_, _| ()).unwrap_err().code, codes::STORE_CLOSED);
    open(fixture.dir.path());
}

#[test]
fn files_of_a_newer_version_or_another_program_are_refused() {
    for (pragma, code) in [("user_version = 99", codes::STORE_NEWER), ("application_id = 7", codes::CORRUPT)]
    {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()));
        let conn = rusqlite::Connection::open(dir.path().join("tidegate.db")).unwrap();
        conn.execute_batch(&format!("PRAGMA {pragma}")).unwrap();
        drop(conn);
        assert_eq!(SqliteStore::open(dir.path(), NOW).unwrap_err().code, code);
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("tidegate.db"),
        "not a database, but long enough to have a header".repeat(100),
    )
    .unwrap();
    assert_eq!(SqliteStore::open(dir.path(), NOW).unwrap_err().code, codes::CORRUPT);
}

#[test]
fn a_directory_that_cannot_be_made_is_a_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = SqliteStore::open(file.join("data"), NOW).unwrap_err();
    assert_eq!(refused.code, codes::STORE_FAILED);
    assert!(refused.detail.contains("creating"), "{refused}");
}
