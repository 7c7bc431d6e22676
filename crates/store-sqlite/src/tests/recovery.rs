//! What a restart, a kill and a torn write leave behind.

use std::fs::OpenOptions as FileOptions;
use std::io::{Seek, SeekFrom, Write};

use super::*;
use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::GroupKey;
use tidegate_core::job::{Park, ParkScope, State};
use tidegate_store::Upkeep;

#[tokio::test]
async fn a_restart_rebuilds_ready_scheduled_running_and_finished_jobs() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut ids = vec![];
    for n in 0..6 {
        ids.push(enqueue(store, job(&n.to_string())).await);
    }
    let later = NewJob { run_at: Some(NOW.plus_ms(60_000)), ..job("6") };
    ids.push(enqueue(store, later).await);
    let claimed = claim(store, 4, NOW).await;
    let tickets: Vec<Ticket> = claimed.jobs.iter().map(|j| j.ticket).collect();
    settle(store, tickets[0], Outcome::Complete(Some(Payload::trusted("\"fine\""))), NOW).await;
    let failure = Failure::new(Category::InvalidInput, "BAD", "it can never work");
    settle(store, tickets[1], Outcome::Fail(failure), NOW).await;
    let snooze =
        Outcome::Snooze { until: NOW.plus_ms(5_000), reason: "later".into(), park: None, gate: None };
    settle(store, tickets[2], snooze, NOW).await;
    let park = Park {
        scope: ParkScope::Group(GroupKey::new("g").unwrap()),
        by: "operator".into(),
        reason: "a test".into(),
        until: None,
    };
    store.park(park, NOW).await.unwrap();
    let before = look(store, &ids).await;
    let states: Vec<State> = before.iter().map(|j| j.state).collect();
    let expected = [
        State::Completed,
        State::Dead,
        State::Scheduled,
        State::Running,
        State::Ready,
        State::Ready,
        State::Scheduled,
    ];
    assert_eq!(states, expected);
    let (queues, parks, kinds) = (store.queues(NOW).await, store.parks().await, store.kinds().await);

    let fixture = fixture.restart();
    let store = &fixture.store;
    assert_eq!(look(store, &ids).await, before);
    let after = store.queues(NOW).await.unwrap();
    // The rate of completions is not kept.
    let counts =
        |q: &tidegate_store::params::QueueView| (q.ready, q.scheduled, q.running, q.completed, q.dead);
    assert_eq!(
        after.iter().map(counts).collect::<Vec<_>>(),
        queues.unwrap().iter().map(counts).collect::<Vec<_>>()
    );
    assert_eq!(store.parks().await.unwrap(), parks.unwrap());
    assert_eq!(store.kinds().await.unwrap(), kinds.unwrap());
    // The lease from before still holds its job, and no settled one.
    assert_eq!(settle(store, tickets[0], Outcome::Release, NOW).await, Settled::Stale);
    let applied = settle(store, tickets[3], Outcome::Complete(None), NOW).await;
    assert_eq!(applied, Settled::Applied(State::Completed));
    let next = claim(store, 10, NOW).await;
    assert!(next.lease.unwrap().id > claimed.lease.unwrap().id);
    assert_eq!(next.jobs.iter().map(|j| j.id).collect::<Vec<_>>(), ids[4..6]);
}

async fn look(store: &SqliteStore, ids: &[JobId]) -> Vec<tidegate_core::job::Job> {
    let mut jobs = vec![];
    for id in ids {
        jobs.push(store.get(*id).await.unwrap().unwrap());
    }
    jobs
}

#[tokio::test]
async fn suspects_are_still_suspects_after_a_restart() {
    let fixture = Fixture::new().await;
    for n in 0..3 {
        enqueue(&fixture.store, job(&n.to_string())).await;
    }
    claim(&fixture.store, 3, NOW).await;
    let expired = NOW.plus_ms(LEASE_MS + 1);
    assert_eq!(fixture.store.advance(expired).await.unwrap().rescued, 3);
    let fixture = fixture.restart();
    // An innocent batch would get all three at once.
    assert_eq!(claim(&fixture.store, 10, expired).await.jobs.len(), 1);
}

#[tokio::test]
async fn whatever_was_acknowledged_survives_a_kill() {
    let fixture = Fixture::new().await;
    let mut ids = vec![];
    for n in 0..50 {
        ids.push(enqueue(&fixture.store, job(&n.to_string())).await);
    }
    let claimed = claim(&fixture.store, 10, NOW).await;
    for job in &claimed.jobs[..5] {
        settle(&fixture.store, job.ticket, Outcome::Complete(None), NOW).await;
    }
    let killed = fixture.killed();
    let store = open(killed.path());
    assert_eq!(look(&store, &ids).await, look(&fixture.store, &ids).await);
    assert_eq!(store.totals().await.unwrap(), fixture.store.totals().await.unwrap());
}

#[tokio::test]
async fn a_torn_last_write_costs_at_most_the_last_commit() {
    let fixture = Fixture::new().await;
    let mut ids = vec![];
    for n in 0..20 {
        ids.push(enqueue(&fixture.store, job(&n.to_string())).await);
    }
    for cut in [1, 23, 1_000, 8_192] {
        for garble in [false, true] {
            let killed = fixture.killed();
            let log = killed.path().join("tidegate.db-wal");
            let mut file = FileOptions::new().write(true).open(&log).unwrap();
            let length = file.metadata().unwrap().len();
            if garble {
                file.seek(SeekFrom::Start(length - cut)).unwrap();
                file.write_all(&vec![0xa5; cut as usize]).unwrap();
            } else {
                file.set_len(length - cut).unwrap();
            }
            drop(file);
            let store = open(killed.path());
            for id in &ids[..19] {
                assert!(
                    store.get(*id).await.unwrap().is_some(),
                    "{id} is missing, cut {cut}, garbled {garble}"
                );
            }
            assert_eq!(
                store.get(ids[19]).await.unwrap(),
                None,
                "the last commit was torn and must not be half there"
            );
            assert_eq!(store.totals().await.unwrap().ready, 19);
            enqueue(&store, job("20")).await;
        }
    }
}

#[tokio::test]
async fn a_log_left_by_a_dropped_store_is_used_by_the_next() {
    let fixture = Fixture::new().await;
    let id = enqueue(&fixture.store, job("1")).await;
    let path = fixture.dir.path().join("tidegate.db-wal");
    drop(fixture.store);
    assert!(std::fs::metadata(path).unwrap().len() > 0, "a drop is not a close");
    assert!(open(fixture.dir.path()).get(id).await.unwrap().is_some());
}
