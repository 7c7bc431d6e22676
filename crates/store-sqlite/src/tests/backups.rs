use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;

use super::*;
use crate::{backup, restore};
use tidegate_core::codes;
use tidegate_store::Upkeep;
use tokio::sync::watch;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_has_everything_acknowledged_before_it() {
    let fixture = Fixture::new().await;
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let (stop, stopped) = watch::channel(false);
    let count = watch::Sender::new(0);
    let mut writers = JoinSet::new();
    for _ in 0..4 {
        let (store, acknowledged, stopped) = (fixture.store.clone(), acknowledged.clone(), stopped.clone());
        let count = count.clone();
        writers.spawn(async move {
            while !*stopped.borrow() {
                let jobs = (0..50).map(|_| job(&format!("\"{}\"", "x".repeat(500)))).collect();
                let replies = store.enqueue(jobs, NOW).await.unwrap();
                acknowledged.lock().unwrap().extend(replies.into_iter().map(|r| r.id));
                count.send_modify(|n| *n += 1);
            }
        });
    }
    let mut grown = count.subscribe();
    grown.wait_for(|n| *n >= 300).await.unwrap();

    let to = fixture.dir.path().join("copy.db");
    let before = acknowledged.lock().unwrap().clone();
    let batches = *count.borrow();
    let (store, copy, counted) = (fixture.store.clone(), to.clone(), count.subscribe());
    let progress = tokio::task::spawn_blocking(move || {
        let mut seen = vec![];
        store.backup(&copy, |done, total| {
            seen.push((done, total));
            // Asked here and not afterwards: a copy that starts over with every commit would never end.
            assert!(seen.is_sorted() && seen[0].1 == total, "it started over: {seen:?}");
            // Not before somebody wrote in between, so that a copy that starts over would show.
            let now = *counted.borrow();
            while *counted.borrow() == now {
                std::thread::yield_now();
            }
        })?;
        Ok::<_, tidegate_store::Error>(seen)
    });
    let progress = progress.await.unwrap().unwrap();
    assert!(*count.borrow() > batches, "nothing was written meanwhile");
    stop.send(true).unwrap();
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }
    assert!(progress.len() > 1, "one step leaves no room for a write in between");

    let into = tempfile::tempdir().unwrap();
    let dir = into.path().join("restored");
    restore(&to, &dir, NOW).unwrap();
    let restored = open(&dir);
    for id in &before {
        assert!(restored.get(*id).await.unwrap().is_some(), "{id} is missing");
    }
    let kept = restored.totals().await.unwrap().ready;
    assert!(kept >= before.len() as u64 && kept <= acknowledged.lock().unwrap().len() as u64 + 4 * 50);
    // Leases handed out by the original after the backup mean nothing to the restored store.
    let theirs = claim(&fixture.store, 1, NOW).await.lease.unwrap().id;
    let ours = claim(&restored, 1, NOW).await.lease.unwrap().id;
    assert!(ours.0 > theirs.0 + (1 << 40));
}

#[tokio::test]
async fn backup_and_restore_refuse_what_would_overwrite_or_cannot_be_right() {
    let fixture = Fixture::new().await;
    enqueue(&fixture.store, job("1")).await;
    let dir = fixture.dir.path();
    let to = dir.join("copy.db");
    fixture.store.backup(&to, |_, _| ()).unwrap();
    let exists = fixture.store.backup(&to, |_, _| ()).unwrap_err();
    assert!(exists.detail.contains("exists"), "{exists}");
    assert_eq!(restore(&to, dir, NOW).unwrap_err().code, codes::STORE_OWNED);
    fixture.store.close().await.unwrap();
    let holds = restore(&to, dir, NOW).unwrap_err();
    assert!(holds.detail.contains("tidegate.db exists"), "{holds}");
    assert!(restore(&dir.join("nothing"), &dir.join("a"), NOW).is_err());

    let damaged = dir.join("damaged.db");
    let mut bytes = std::fs::read(&to).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8_192].fill(0xa5);
    std::fs::write(&damaged, bytes).unwrap();
    assert_eq!(restore(&damaged, &dir.join("b"), NOW).unwrap_err().code, codes::NOT_A_BACKUP);

    let newer = dir.join("newer.db");
    std::fs::copy(&to, &newer).unwrap();
    rusqlite::Connection::open(&newer).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    assert_eq!(restore(&newer, &dir.join("c"), NOW).unwrap_err().code, codes::STORE_NEWER);

    for failed in ["a", "b", "c"] {
        assert!(!dir.join(failed).join("tidegate.db").exists(), "{failed}");
    }
    let leftovers = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
    let leftovers: Vec<_> = leftovers.filter(|name| name.contains(".part")).collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[tokio::test]
async fn a_directory_can_be_backed_up_without_owning_it() {
    let fixture = Fixture::new().await;
    let id = enqueue(&fixture.store, job("1")).await;
    let to = fixture.dir.path().join("copy.db");
    backup(fixture.dir.path(), &to, |_, _| ()).unwrap();
    let into = tempfile::tempdir().unwrap();
    restore(&to, into.path(), NOW).unwrap();
    assert!(open(into.path()).get(id).await.unwrap().is_some());
    assert!(backup(into.path().join("none").as_path(), &to, |_, _| ()).is_err());
}
