//! Enqueueing with SQL, inside a user's transaction.

use std::time::{Duration, Instant};

use tidegate_core::codes;
use tidegate_core::job::{Priority, State};
use tidegate_store::Upkeep as _;

use super::*;

/// The job, once it is taken over.
async fn arrived(store: &PgStore, id: JobId) -> tidegate_core::job::Job {
    until(store, || async { store.get(id).await.unwrap().is_some() }).await;
    store.get(id).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_job_exists_when_its_users_transaction_commits_and_not_before() {
    let f = Fixture::new().await;
    let user = f.user().await;
    user.run("BEGIN").await;
    let id = user.enqueue("'task', '{\"n\": 1}'").await;
    enqueue(&f.store, job("1")).await;
    assert_eq!(f.store.get(id).await.unwrap(), None);
    user.run("COMMIT").await;
    let found = arrived(&f.store, id).await;
    assert_eq!((found.state, found.payload.as_str()), (State::Ready, "{\"n\": 1}"));
    assert_eq!(id.uuid().get_version_num(), 7);
    assert_eq!(claim(&f.store, 10, NOW).await.jobs.len(), 2);
}

#[tokio::test]
async fn a_transaction_that_is_rolled_back_leaves_nothing() {
    let f = Fixture::new().await;
    let user = f.user().await;
    user.run("BEGIN").await;
    user.enqueue("'task', '1'").await;
    user.run("ROLLBACK").await;
    let id = user.enqueue("'task', '2'").await;
    arrived(&f.store, id).await;
    assert_eq!(f.store.totals().await.unwrap().ready, 1);
}

#[tokio::test]
async fn everything_that_can_be_said_arrives() {
    let f = Fixture::new().await;
    f.store.ensure_queue(QueueName::new("other").unwrap(), NOW).await.unwrap();
    let user = f.user().await;
    let id = user
        .enqueue(
            "'task', '{}', queue => 'other', tenant => 'acme', group_key => 'g', priority => 'high', \
             delay => '1 hour', unique_key => 'it''s 100%', unique_scope => '2 days', on_conflict => 'replace', \
             max_attempts => 7, timeout => '90 s', id => '01890000-0000-7000-8000-000000000001', trace => 'tr'",
        )
        .await;
    let found = arrived(&f.store, id).await;
    assert_eq!(found.id.uuid().as_u128(), 0x0189_0000_0000_7000_8000_0000_0000_0001);
    assert_eq!((found.queue.as_str(), found.group.as_str()), ("other", "g"));
    assert_eq!(found.tenant.unwrap().as_str(), "acme");
    assert_eq!((found.priority, found.state), (Priority::High, State::Scheduled));
    assert_eq!((found.max_attempts, found.timeout_ms), (Some(7), 90_000));
    let unique = found.unique.unwrap();
    assert_eq!(unique.key.as_str(), "it's 100%");
    assert_eq!(unique.scope, tidegate_core::job::UniqueScope::PeriodMs(2 * 86_400_000));
    assert_eq!(found.trace.as_deref(), Some("tr"));
}

#[tokio::test]
async fn what_cannot_be_right_is_refused_where_it_is_said() {
    let f = Fixture::new().await;
    let user = f.user().await;
    for (arguments, code) in [
        ("'tusk', '1'", codes::UNKNOWN_KIND),
        ("'task', NULL", codes::INVALID_PAYLOAD),
        ("'task', to_jsonb(repeat('x', 1100000))", codes::INVALID_PAYLOAD),
        (&format!("'task', '{}1{}'", "[".repeat(65), "]".repeat(65)), codes::INVALID_PAYLOAD),
        ("'task', '1', queue => 'nowhere'", codes::UNKNOWN_QUEUE),
        ("'task', '1', tenant => 'no spaces'", codes::INVALID_NAME),
        ("'task', '1', group_key => '-x'", codes::INVALID_NAME),
        ("'task', '1', priority => 'urgent'", codes::INVALID_REQUEST),
        ("'task', '1', run_at => now() + interval '11 years'", codes::INVALID_TIME),
        ("'task', '1', timeout => '8 days'", codes::INVALID_TIME),
        ("'task', '1', max_attempts => 0", codes::INVALID_SETTING),
        ("'task', '1', unique_key => ''", codes::INVALID_NAME),
        ("'task', '1', unique_key => 'k', on_conflict => 'panic'", codes::INVALID_REQUEST),
    ] {
        let detail = user.refused(&format!("SELECT tidegate.enqueue({arguments})")).await;
        assert_eq!(detail, code.id, "{arguments}");
    }
    assert_eq!(user.number("SELECT count(*) FROM tidegate.inbox").await, 0);
    // As deep as is allowed, with as many more brackets in a text.
    let deep = format!("'task', '{}\"[[[\"{}'", "[".repeat(64), "]".repeat(64));
    let id = user.enqueue(&deep).await;
    assert_eq!(arrived(&f.store, id).await.state, State::Ready);
}

#[tokio::test]
async fn what_turns_out_not_to_be_acceptable_is_a_dead_letter() {
    let f = Fixture::new().await;
    let user = f.user().await;
    let deep = format!("{}1{}", "[".repeat(70), "]".repeat(70));
    // By hand: the function refuses it.
    let id = JobId::from_parts(1, 70);
    user.run(&format!(
        "INSERT INTO tidegate.inbox (job) VALUES
             (jsonb_build_object('id', '{}', 'kind', 'task', 'tenant', 'acme', 'payload', '{deep}'::jsonb))",
        id.uuid()
    ))
    .await;
    user.run("SELECT tidegate.enqueue('task', '1')").await;
    let found = arrived(&f.store, id).await;
    let letter = found.dead.expect("a letter");
    assert_eq!((found.state, letter.code.as_str()), (State::Dead, codes::INVALID_PAYLOAD.id));
    assert_eq!(found.tenant.unwrap().as_str(), "acme");
    let another = f.another(PgOptions::new()).await;
    assert_eq!(another.digest().await.unwrap(), f.store.digest().await.unwrap());
    assert_eq!(f.store.totals().await.unwrap().dead, 1);

    // An id that another job has: the letter has one of its own.
    let taken = enqueue(&f.store, job("1")).await;
    user.enqueue(&format!("'task', '2', id => '{}'", taken.uuid())).await;
    until(&f.store, || async { f.store.totals().await.unwrap().dead == 2 }).await;
    assert_eq!(f.store.get(taken).await.unwrap().unwrap().payload.as_str(), "1");
    // The same job sent again is the same job.
    user.enqueue(&format!("'task', '1', id => '{}'", taken.uuid())).await;
    let last = user.enqueue("'task', '3'").await;
    arrived(&f.store, last).await;
    let totals = f.store.totals().await.unwrap();
    assert_eq!((totals.ready, totals.dead), (3, 2));
}

#[tokio::test]
async fn a_row_that_breaks_a_rule_is_refused_once_and_holds_up_nobody() {
    let f = Fixture::new().await;
    let taken = enqueue(&f.store, job("1")).await;
    let user = f.user().await;
    // By hand, between two others: the id of another job, without a word that it was given. And what is no job at all.
    user.run(&format!(
        "BEGIN;
         SELECT tidegate.enqueue('task', '2');
         INSERT INTO tidegate.inbox (job) VALUES ('{{\"id\": \"{}\", \"kind\": \"task\", \"payload\": 3}}'), ('[]');
         SELECT tidegate.enqueue('task', '4');
         COMMIT",
        taken.uuid()
    ))
    .await;
    until(&f.store, || async { user.number("SELECT count(*) FROM tidegate.inbox").await == 0 }).await;
    let totals = f.store.totals().await.unwrap();
    assert_eq!((totals.ready, totals.dead), (3, 1));
    assert_eq!(f.store.get(taken).await.unwrap().unwrap().payload.as_str(), "1");
    // What comes later is taken as ever.
    let id = user.enqueue("'task', '5'").await;
    assert_eq!(arrived(&f.store, id).await.state, State::Ready);
}

#[tokio::test]
async fn a_row_that_breaks_a_rule_is_found_among_many_that_are_copied_meanwhile() {
    let f = Fixture::new().await;
    let taken = enqueue(&f.store, job("1")).await;
    let user = f.user().await;
    // Its copy fails long before the commit, and the look for the unique keys comes after that.
    user.run(&format!(
        "BEGIN;
         INSERT INTO tidegate.inbox (job) VALUES ('{{\"id\": \"{}\", \"kind\": \"task\", \"payload\": 3}}');
         SELECT tidegate.enqueue('task', n::text::jsonb, wake => false) FROM generate_series(1, 130) AS n;
         SELECT tidegate.enqueue('task', '0', unique_key => 'k' || n % 2) FROM generate_series(1, 10) AS n;
         SELECT tidegate.enqueue('task', '9');
         COMMIT",
        taken.uuid()
    ))
    .await;
    until(&f.store, || async { user.number("SELECT count(*) FROM tidegate.inbox").await == 0 }).await;
    let totals = f.store.totals().await.unwrap();
    assert_eq!((totals.ready, totals.dead), (1 + 130 + 2 + 1, 1));
    let other = f.another(PgOptions::new()).await;
    assert_eq!(other.digest().await.unwrap(), f.store.digest().await.unwrap());
}

#[tokio::test]
async fn whoever_connects_finds_what_is_in_the_inbox() {
    let f = Fixture::new().await;
    f.store.close().await.unwrap();
    let user = f.user().await;
    user.run(
        "SELECT tidegate.enqueue('task', n::text::jsonb, wake => false) FROM generate_series(1, 700) AS n",
    )
    .await;
    let late = f.another(PgOptions::new().listen(false).poll_every(Duration::from_mins(10))).await;
    assert_eq!(late.totals().await.unwrap().ready, 700);
}

#[tokio::test]
async fn a_full_queue_does_not_refuse_what_was_accepted_already() {
    let f = Fixture::new().await;
    let full = QueueSettings { max_ready: Some(1), ..QueueSettings::default() };
    f.store.put_queue(queue(), full, NOW).await.unwrap();
    enqueue(&f.store, job("1")).await;
    let user = f.user().await;
    let id = user.enqueue("'task', '2'").await;
    assert_eq!(arrived(&f.store, id).await.state, State::Ready);
}

#[tokio::test]
async fn an_open_transaction_delays_nobody() {
    let f = Fixture::new().await;
    let (slow, quick) = (f.user().await, f.user().await);
    slow.run("BEGIN").await;
    let late = slow.enqueue("'task', '1'").await;
    // Everything else goes on: other users, other jobs, settings.
    let began = Instant::now();
    for n in 0..5 {
        let id = quick.enqueue(&format!("'task', '{n}'")).await;
        arrived(&f.store, id).await;
    }
    enqueue(&f.store, job("1")).await;
    f.store.put_queue(queue(), QueueSettings::default(), NOW).await.unwrap();
    assert_eq!(claim(&f.store, 10, NOW).await.jobs.len(), 6);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(f.store.get(late).await.unwrap(), None);
    slow.run("COMMIT").await;
    arrived(&f.store, late).await;
}

/// A user's job commits after another that was enqueued later, between the moment when a process read the inbox and the
/// moment when it empties it. Returns how many jobs arrive in the end.
async fn late_commit(options: PgOptions) -> u64 {
    let f = Fixture::with(options).await;
    let (slow, quick, gate) = (f.user().await, f.user().await, f.user().await);
    // Whoever read the inbox must wait at the gate before it can empty it.
    gate.run("BEGIN; SELECT FROM tidegate.head WHERE one FOR UPDATE").await;
    slow.run("BEGIN").await;
    slow.enqueue("'task', '1'").await;
    quick.enqueue("'task', '2'").await;
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%tidegate.%'";
    let waits = quick.text(waits).replace(&format!("{}.", f.schema), &format!("{}\".head", f.schema));
    while quick.client.query_one(&waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
    slow.run("COMMIT").await;
    gate.run("COMMIT").await;
    let last = quick.enqueue("'task', '3'").await;
    arrived(&f.store, last).await;
    until(&f.store, || async { quick.number("SELECT count(*) FROM tidegate.inbox").await == 0 }).await;
    f.store.totals().await.unwrap().ready
}

#[tokio::test]
async fn jobs_that_commit_out_of_order_are_not_lost() {
    assert_eq!(late_commit(PgOptions::new()).await, 3);
}

/// The mistake that the test above is about: everything up to the last row that was read is taken to have been read.
#[tokio::test]
async fn deleting_up_to_the_last_row_would_lose_jobs() {
    let mistake = PgOptions::new().instead(
        "inbox/take",
        "WITH gone AS (
             DELETE FROM tidegate.inbox WHERE number <= (SELECT max(n) FROM unnest($2::bigint[]) AS u (n))
             RETURNING number, job::text AS job
         )
         SELECT job FROM gone JOIN unnest($1::bigint[], $2::bigint[]) AS read (xid, number) USING (number)",
    );
    assert_eq!(late_commit(mistake).await, 2);
}

#[tokio::test]
async fn a_payload_that_does_not_fit_its_kind_is_a_dead_letter_and_one_that_does_gets_its_defaults() {
    let f = Fixture::new().await;
    let schema = serde_json::json!({
        "type": "object", "additionalProperties": false, "required": ["order"],
        "properties": {"order": {"type": "integer"}, "copies": {"type": "integer", "default": 1}}
    });
    let mut settings = tidegate_core::registry::KindSettings::new(QueueName::new("other").unwrap());
    settings.schema = Some(serde_json::from_value(schema).unwrap());
    f.store.ensure_queue(settings.queue.clone(), NOW).await.unwrap();
    f.store.put_kind(tidegate_core::ids::KindName::new("invoice").unwrap(), settings).await.unwrap();
    let user = f.user().await;
    let good = user.enqueue("'invoice', '{\"order\": 7}'").await;
    let bad = user.enqueue("'invoice', '{\"order\": \"7\"}'").await;
    let (good, bad) = (arrived(&f.store, good).await, arrived(&f.store, bad).await);
    assert_eq!((good.state, good.payload.as_str()), (State::Ready, r#"{"order":7,"copies":1}"#));
    let letter = bad.dead.unwrap();
    assert_eq!((bad.state, letter.code.as_str()), (State::Dead, codes::INVALID_PAYLOAD.id));
    assert!(letter.message.contains("/order: expected integer, found string"), "{}", letter.message);
}
