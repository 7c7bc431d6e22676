//! What is done before the lock is held: marks of completed jobs are written, others are followed.

use std::time::Duration;

use tidegate_core::job::State;
use tidegate_store::Upkeep as _;
use tidegate_store::params::ClaimedJob;

use super::*;

const MANY: usize = 150;

/// Somebody who hears nothing and does not look by itself.
fn deaf() -> PgOptions {
    PgOptions::new().listen(false).poll_every(Duration::from_mins(10))
}

async fn claim_many(store: &PgStore, now: Timestamp) -> Vec<ClaimedJob> {
    let claimed = claim(store, MANY as u32, now).await.jobs;
    assert_eq!(claimed.len(), MANY);
    claimed
}

fn all_completed(jobs: &[ClaimedJob], now: Timestamp) -> Settle {
    let complete = |job: &ClaimedJob| Settlement { ticket: job.ticket, outcome: Outcome::Complete(None) };
    Settle { settlements: jobs.iter().map(complete).collect(), now, seed: 1 }
}

/// Whoever deletes old jobs finds them by lists: every mark has to be on one, whoever made it and when.
async fn all_marks_are_listed(user: &User, n: i64) {
    let listed = "SELECT coalesce(sum(jobs), 0)::bigint FROM tidegate.finished";
    let marks = "SELECT count(*) FROM tidegate.done";
    assert_eq!((user.number(marks).await, user.number(listed).await), (n, n));
}

async fn filled(options: PgOptions) -> Fixture {
    let f = Fixture::with(options).await;
    f.store.enqueue((0..MANY).map(|_| job("1")).collect(), NOW).await.unwrap();
    f
}

#[tokio::test]
async fn marks_are_written_before_the_lock_is_held() {
    let f = filled(PgOptions::new()).await;
    let jobs = claim_many(&f.store, NOW).await;
    let (gate, user) = (f.user().await, f.user().await);
    gate.run("BEGIN; SELECT FROM tidegate.head WHERE one FOR UPDATE").await;
    let settling = tokio::spawn({
        let (store, settle) = (f.store.clone(), all_completed(&jobs, NOW));
        async move { store.settle(settle).await.unwrap() }
    });
    // Whoever waits for the lock has written into the table of marks.
    let written = "SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
         WHERE l.relation = 'tidegate.done'::regclass AND l.mode = 'RowExclusiveLock' AND a.wait_event_type = 'Lock'";
    let waits = async {
        while user.number(written).await == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), waits).await.expect("the marks are written ahead");
    gate.run("COMMIT").await;
    assert!(settling.await.unwrap().iter().all(|s| *s == Settled::Applied(State::Completed)));
    all_marks_are_listed(&user, MANY as i64).await;
}

#[tokio::test]
async fn marks_of_a_lost_lease_are_taken_back() {
    let f = filled(PgOptions::new()).await;
    let slow = f.another(deaf()).await;
    let jobs = claim_many(&slow, NOW).await;
    // The others take the jobs back; the slow one does not know yet.
    let later = NOW.plus_ms(LEASE_MS + 1);
    assert_eq!(f.store.advance(later).await.unwrap().rescued, MANY as u64);
    let settled = slow.settle(all_completed(&jobs, NOW)).await.unwrap();
    assert!(settled.iter().all(|s| *s == Settled::Stale));
    let user = f.user().await;
    all_marks_are_listed(&user, 0).await;
    assert_eq!(f.store.totals().await.unwrap().ready, MANY as u64);
    assert_eq!(slow.digest().await.unwrap(), f.store.digest().await.unwrap());
}

#[tokio::test]
async fn marks_of_what_a_crash_forgot_do_not_come_back_with_the_server() {
    let f = filled(PgOptions::new()).await;
    let jobs = claim_many(&f.store, NOW).await;
    // What a crash of the server does: tables without a log are empty, and the last claims are forgotten.
    let user = f.user().await;
    user.run("TRUNCATE tidegate.alive; DELETE FROM tidegate.leases").await;
    let settled = f.store.settle(all_completed(&jobs, NOW)).await.unwrap();
    assert!(settled.iter().all(|s| *s == Settled::Stale));
    all_marks_are_listed(&user, 0).await;
    assert_eq!(f.store.totals().await.unwrap().ready, MANY as u64);
}

#[tokio::test]
async fn marks_that_somebody_else_made_meanwhile_are_theirs() {
    let f = filled(PgOptions::new()).await;
    let slow = f.another(deaf()).await;
    let jobs = claim_many(&slow, NOW).await;
    let later = NOW.plus_ms(LEASE_MS + 1);
    f.store.advance(later).await.unwrap();
    let mut seen = vec![];
    // What a worker left behind runs alone at first.
    while seen.len() < MANY {
        let again = claim(&f.store, MANY as u32, later).await.jobs;
        assert!(!again.is_empty());
        f.store.settle(all_completed(&again, later)).await.unwrap();
        seen.extend(again);
    }
    let settled = slow.settle(all_completed(&jobs, NOW)).await.unwrap();
    assert!(settled.iter().all(|s| *s == Settled::Stale));
    all_marks_are_listed(&f.user().await, MANY as i64).await;
    let totals = slow.totals().await.unwrap();
    assert_eq!((totals.completed, totals.ready, totals.running), (MANY as u64, 0, 0));
    assert_eq!(slow.digest().await.unwrap(), f.store.digest().await.unwrap());
}

/// The mistake that the missing key is about: whoever has the lock would wait for marks whose writer waits for the lock.
/// With `CREATE UNIQUE INDEX … ON done (seq)` the server ends one of the two as a deadlock (40P01).
#[tokio::test]
async fn whoever_has_the_lock_does_not_wait_for_marks_of_the_same_jobs() {
    // Inside the lock, before its own mark: waits until it is let go.
    let held_up = PgOptions::new().instead(
        "done/insert",
        "INSERT INTO tidegate.done (seq, at, queue, attempt, state, result, letter)
         SELECT m.* FROM (SELECT pg_advisory_xact_lock('tidegate.done'::regclass::oid::bigint)) AS gate, unnest(
             $1::bigint[], $2::bigint[], $3::integer[], $4::integer[], $5::smallint[], $6::text[], $7::text[]) AS m",
    );
    let f = filled(held_up).await;
    let slow = f.another(deaf()).await;
    let jobs = claim_many(&slow, NOW).await;
    let later = NOW.plus_ms(LEASE_MS + 1);
    assert_eq!(f.store.advance(later).await.unwrap().rescued, MANY as u64);
    let again = claim(&f.store, MANY as u32, later).await.jobs;
    assert!(jobs.iter().any(|job| job.id == again[0].id));
    let (gate, user) = (f.user().await, f.user().await);
    let waits_for = async |what: &str| {
        let text = format!(
            "SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
             WHERE l.relation = 'tidegate.done'::regclass AND l.mode = 'RowExclusiveLock' AND a.wait_event IN ({what})"
        );
        let waits = async {
            while user.number(&text).await == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), waits).await.expect("it waits");
    };
    let settle = |store: &PgStore, jobs: &[ClaimedJob], now: Timestamp| {
        let (store, settle) = (store.clone(), all_completed(jobs, now));
        tokio::spawn(async move { store.settle(settle).await })
    };
    gate.run("SELECT pg_advisory_lock('tidegate.done'::regclass::oid::bigint)").await;
    let first = settle(&f.store, &again, later);
    waits_for("'advisory'").await;
    let second = settle(&slow, &jobs, NOW);
    waits_for("'transactionid', 'tuple'").await;
    gate.run("SELECT pg_advisory_unlock('tidegate.done'::regclass::oid::bigint)").await;
    let first = first.await.unwrap().expect("it does not wait for the other");
    assert!(first.iter().all(|s| *s == Settled::Applied(State::Completed)));
    assert!(second.await.unwrap().unwrap().iter().all(|s| *s == Settled::Stale));
    all_marks_are_listed(&user, again.len() as i64).await;
    assert_eq!(slow.digest().await.unwrap(), f.store.digest().await.unwrap());
}

#[tokio::test]
async fn somebody_who_is_far_behind_catches_up_before_it_holds_the_lock() {
    let f = Fixture::new().await;
    // Fails if many rows are asked for by somebody who holds the lock.
    let watched = deaf().instead(
        "log/after",
        "SELECT version, stamp, next_seq, next_lease, now, effects FROM tidegate.log
         WHERE version >= $1 AND 1 / (CASE WHEN $2::bigint > 100 AND EXISTS (
             SELECT FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
             WHERE l.pid = pg_backend_pid() AND c.relname = 'head' AND l.mode = 'RowShareLock'
         ) THEN 0 ELSE 1 END) = 1
         ORDER BY version LIMIT $2",
    );
    let other = f.another(watched).await;
    for _ in 0..120 {
        enqueue(&f.store, job("1")).await;
    }
    enqueue(&other, job("1")).await;
    assert_eq!(other.totals().await.unwrap().ready, 121);
    assert_eq!(other.digest().await.unwrap(), f.store.digest().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_compete_follow_each_other_and_lose_nothing() {
    let f = Fixture::new().await;
    f.store.enqueue((0..3_000).map(|_| job("1")).collect(), NOW).await.unwrap();
    let mut crew = tokio::task::JoinSet::new();
    for store in [f.store.clone(), f.another(PgOptions::new()).await, f.another(deaf()).await] {
        crew.spawn(async move {
            let mut completed = 0;
            loop {
                let jobs = claim(&store, MANY as u32, NOW).await.jobs;
                if jobs.is_empty() {
                    return (store, completed);
                }
                let settled = store.settle(all_completed(&jobs, NOW)).await.unwrap();
                assert!(settled.iter().all(|s| *s == Settled::Applied(State::Completed)));
                completed += jobs.len();
            }
        });
    }
    let mut completed = 0;
    let mut digests = vec![];
    while let Some(member) = crew.join_next().await {
        let (store, n) = member.unwrap();
        completed += n;
        digests.push(store);
    }
    assert_eq!(completed, 3_000);
    all_marks_are_listed(&f.user().await, 3_000).await;
    for store in digests {
        assert_eq!(store.digest().await.unwrap(), f.store.digest().await.unwrap());
    }
}
