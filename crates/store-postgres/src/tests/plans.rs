//! The plans of the hot statements, on full tables that were counted, as the writer's connection has them.

use super::*;
use crate::statements::{Sql, in_schema};

/// Statement, params, and the index that its plan must use.
const HOT: &[(Sql, &str, &str)] = &[
    (Sql::HeadLock, "", "head_pkey"),
    (Sql::LogAfter, "1, 1000", "log_pkey"),
    (Sql::LogNewest, "1, 3", "log_pkey"),
    (Sql::LogLast, "", "log_pkey"),
    (Sql::LogPrune, "0, 50000, 120, 256, 1000000", "log_pkey"),
    (Sql::JobsGet, "'{1,5}', '{3,5}'", "jobs_pkey"),
    (Sql::JobsHead, "'{1,5}', '{3,5}'", "jobs_pkey"),
    (Sql::JobsFind, "'{01890000-0000-7000-8000-000000000001}'", "jobs_id_key"),
    (Sql::JobsDelete, "'{1,5}', '{3,5}'", "jobs_pkey"),
    (Sql::JobsTenants, "5, 100", "jobs_pkey"),
    (Sql::StatesGet, "'{1,5}', '{3,5}'", "job_state_pkey"),
    (Sql::StatesDelete, "'{1,5}', '{3,5}'", "job_state_pkey"),
    (Sql::DoneGet, "'{1,5}', '{3,5}'", "done_by_seq"),
    (Sql::DonePutLetters, "'{1,2}', '{a,b}'", "done_by_seq"),
    (Sql::DoneDelete, "'{1,5}', '{3,5}'", "done_by_seq"),
    (Sql::DoneTakeBack, "'{1,5}', '{3,5}'", "done_by_seq"),
    (Sql::FinishedOldest, "1, 0, 0, 100, 100", "finished_pkey"),
    (Sql::FinishedFind, "'{1,2}', '{1,2}', '{1,2}', '{1,2}'", "finished_pkey"),
    (Sql::FinishedPut, "'{1}', '{4}', '{4}', '{1}', '{1}', '{2}', '{4,4}'", "finished_pkey"),
    (Sql::FinishedDelete, "'{1,2}', '{1,2}', '{1,2}'", "finished_pkey"),
    (Sql::DoneOldestDead, "100", "done_dead"),
    (Sql::LettersPending, "0, 0, 100", "done_pending"),
    (Sql::RoundsGet, "'letters'", "rounds_pkey"),
    (Sql::DelayedDue, "0, 5000, 1000", "delayed_pkey"),
    (Sql::DelayedNext, "5", "delayed_pkey"),
    (Sql::DelayedDelete, "'{1,2}', '{1,2}'", "delayed_pkey"),
    (Sql::LeasesExtend, "'{1,2}', '{1,2}'", "leases_pkey"),
    (Sql::LeasesDelete, "'{1,2}'", "leases_pkey"),
    (Sql::UniquesGet, "'{1,2}', '{a,b}'", "uniques_pkey"),
    (Sql::UniquesDelete, "'{1,2}', '{a,b}', '{1,2}'", "uniques_pkey"),
    (Sql::UniquesExpire, "500, 100", "uniques_expiring"),
    (Sql::SchedulesPutStates, "'{1,2}', '{a,b}'", "schedules_pkey"),
    (Sql::SchedulesDelete, "'{1,2}'", "schedules_pkey"),
    (Sql::TicksBefore, "5, 100, 10", "schedule_ticks_pkey"),
    (Sql::TicksDelete, "'{1,2}'", "schedule_ticks_pkey"),
    (Sql::EdgesChildren, "'{1,5}', '{3,5}'", "edges_pkey"),
    (Sql::EdgesCounts, "'{1,5}', '{3,5}'", "edges_pkey"),
    (Sql::EdgesParents, "'{1,5}', '{3,5}'", "edges_by_child"),
    // Either of its two indexes has both columns.
    (Sql::EdgesDelete, "'{1,2}', '{1,2}'", "using edges_"),
    (Sql::BlockedGet, "'{1,5}', '{3,5}'", "blocked_pkey"),
    (Sql::BlockedDelete, "'{1,5}', '{3,5}'", "blocked_pkey"),
    (Sql::KeptGet, "1", "kept_pkey"),
    (Sql::KeptForget, "'t7', 10", "kept_of_tenant"),
    (Sql::UntoldDelete, "'{1,2}'", "untold_pkey"),
    (Sql::KeptSweep, "'{1,2}'", "kept_pkey"),
    (Sql::InboxLook, "0, 500", "inbox_pkey"),
    (Sql::InboxTake, "'{1,2}', '{1,2}'", "inbox_pkey"),
];

const FILL: &str = "
    INSERT INTO tidegate.log (version, stamp, next_seq, next_lease, now, effects)
        SELECT n, n, n, n, n, '' FROM generate_series(100, 20000) AS n;
    INSERT INTO tidegate.jobs (seq, created_at, run_at, timeout_ms, id, kind, lane, payload)
        SELECT n, n, n, 1, gen_random_uuid(), 1, 1, '1' FROM generate_series(1, 20000) AS n;
    INSERT INTO tidegate.job_state (seq, lone_stalls, suspect, body)
        SELECT n, 0, false, '{}' FROM generate_series(1, 20000) AS n;
    INSERT INTO tidegate.done (seq, at, queue, attempt, state)
        SELECT n, n, n % 3, 1, 1 + n % 3 FROM generate_series(1, 20000) AS n;
    INSERT INTO tidegate.finished (queue, at, jobs, state, runs) SELECT n % 3, n, 1, 1, ARRAY[n, n] FROM generate_series(1, 20000) AS n;
    INSERT INTO tidegate.delayed (run_at, seq) SELECT n, n FROM generate_series(1, 20000) AS n;
    INSERT INTO tidegate.leases (id, process, since, until, length_ms, worker, jobs)
        SELECT n, 1, 1, 1, 1, 'w', '{1}' FROM generate_series(1, 20000) AS n;
    INSERT INTO tidegate.uniques (kind, key, seq, id, expires)
        SELECT 1, n::text, n, gen_random_uuid(), n FROM generate_series(1, 20000) AS n;
    INSERT INTO tidegate.schedules (id, name, spec, state)
        SELECT n, n, '{}', '{}' FROM generate_series(1, 20000) AS n;
    INSERT INTO tidegate.schedule_ticks (schedule, slot, no, body)
        SELECT n % 200, n, n, '{}' FROM generate_series(1, 20000) AS n;
    INSERT INTO tidegate.inbox (xid, job) SELECT n::text::xid8, '{}' FROM generate_series(1, 20000) AS n;
    INSERT INTO tidegate.edges (parent, child) SELECT n, n + 1 FROM generate_series(1, 20000) AS n;
    INSERT INTO tidegate.blocked (seq, open, on_dead) SELECT n, 1, 0 FROM generate_series(1, 20000) AS n;
    INSERT INTO tidegate.kept (seq, body, tenant) SELECT n, '{}', 't' || n FROM generate_series(1, 20000) AS n;
    INSERT INTO tidegate.untold (seq, id, ending) SELECT n, gen_random_uuid(), 1 FROM generate_series(1, 20000) AS n;
    ANALYZE tidegate.untold, tidegate.edges, tidegate.blocked, tidegate.kept, tidegate.log, tidegate.jobs, tidegate.job_state, tidegate.done, tidegate.finished, tidegate.delayed, tidegate.leases,
        tidegate.uniques, tidegate.inbox, tidegate.schedules, tidegate.schedule_ticks";

#[tokio::test]
async fn hot_statements_use_their_index_in_every_plan() {
    let f =
        Fixture::with(PgOptions::new().listen(false).poll_every(std::time::Duration::from_mins(10))).await;
    let options = PgOptions::new().schema(&f.schema).unwrap();
    let user = f.user().await;
    f.store.close().await.unwrap();
    user.run(FILL).await;
    user.run(&options.settings(false)).await;
    for mode in ["force_generic_plan", "force_custom_plan"] {
        user.run(&format!("SET plan_cache_mode = {mode}")).await;
        for (sql, params, index) in HOT {
            let (_, path, text) = Sql::ALL[*sql as usize];
            let name = format!("{}_{mode}", path.replace('/', "_"));
            let params = if params.is_empty() { String::new() } else { format!("({params})") };
            user.run(&format!("PREPARE {name} AS {}", in_schema(text, &options.schema))).await;
            let explain = format!("EXPLAIN EXECUTE {name}{params}");
            let plan: Vec<String> =
                user.client.query(&explain, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
            let plan = plan.join("\n");
            assert!(plan.contains(index), "{path} does not use {index} with {mode}:\n{plan}");
            assert!(!plan.contains("Seq Scan"), "{path} walks a table with {mode}:\n{plan}");
            let sorts = plan.contains("Sort") && !matches!(sql, Sql::InboxTake | Sql::TicksBefore);
            assert!(!sorts, "{path} sorts with {mode}:\n{plan}");
        }
    }
}

/// Finding letters: a list from the index of dead jobs, and the filter over what is listed.
#[tokio::test]
async fn letters_are_found_by_index() {
    let f = Fixture::new().await;
    let options = PgOptions::new().schema(&f.schema).unwrap();
    let user = f.user().await;
    f.store.close().await.unwrap();
    user.run(FILL).await;
    user.run(&options.settings(false)).await;
    user.run("SET plan_cache_mode = force_custom_plan").await;
    let numbers: Vec<String> = (1..=1_001).map(|n| n.to_string()).collect();
    let listed = format!(
        "'{{{}}}', 20001, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'pending_review', 4, 1001",
        numbers.join(",")
    );
    let finished = "2, 20001, 1001".to_owned();
    for (sql, params, indexes) in [
        (Sql::SearchFinished, finished, vec!["done_rare"]),
        (Sql::SearchListed, listed, vec!["jobs_pkey", "done_by_seq"]),
    ] {
        let (_, path, text) = Sql::ALL[sql as usize];
        let name = path.replace('/', "_");
        user.run(&format!("PREPARE {name} AS {}", in_schema(text, &options.schema))).await;
        let explain = format!("EXPLAIN EXECUTE {name}({params})");
        let plan: Vec<String> =
            user.client.query(&explain, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        assert!(indexes.iter().all(|index| plan.contains(index)), "{path}:\n{plan}");
        assert!(!plan.contains("Seq Scan"), "{path} walks a table:\n{plan}");
    }
}

#[tokio::test]
async fn searches_over_a_list_and_over_all_ask_the_same() {
    let of = |path: &str| {
        let (_, _, text) = Sql::ALL.iter().find(|(_, p, _)| *p == path).unwrap();
        let from = text.find("  AND ($3::text").unwrap();
        text[from..text.find("ORDER BY j.seq").unwrap()].to_owned()
    };
    assert_eq!(of("search/window"), of("search/listed"));
}

/// The mistake that the settings are about: left to itself, the planner walks a table that was small when it looked.
#[tokio::test]
async fn without_the_settings_a_plan_would_walk_the_table() {
    let f = Fixture::new().await;
    let options = PgOptions::new().schema(&f.schema).unwrap();
    f.store.close().await.unwrap();
    let user = f.user().await;
    user.run("INSERT INTO tidegate.done (seq, at, queue, attempt, state) VALUES (0, 0, 0, 1, 1); ANALYZE tidegate.done").await;
    let (_, _, text) = Sql::ALL[Sql::DoneGet as usize];
    let explain = format!(
        "EXPLAIN {}",
        in_schema(text, &options.schema).replace("$1", "'{1,5}'").replace("$2", "'{3,5}'")
    );
    let walks =
        |rows: Vec<tokio_postgres::Row>| rows.iter().any(|r| r.get::<_, String>(0).contains("Seq Scan"));
    assert!(walks(user.client.query(&explain, &[]).await.unwrap()));
    user.run(&options.settings(false)).await;
    assert!(!walks(user.client.query(&explain, &[]).await.unwrap()));
}
