//! Every statement uses the index its contract names: a plan that sorts or scans would pass every other test.

use super::*;
use crate::rows::sql;
use crate::schema;

#[test]
fn statements_use_the_indexes_they_name() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let conn = schema::open_reader(&dir.path().join("tidegate.db")).unwrap();
    for (text, expected) in [
        (sql!("done/oldest"), "USING INDEX done_by_queue (queue=?)"),
        (sql!("done/oldest_dead"), "USING INDEX done_dead"),
        (sql!("letters/pending"), "USING INDEX done_pending (at>?)"),
        (sql!("search/finished"), "done_rare (state=? AND rowid<?)"),
        (sql!("delayed/due"), "USING PRIMARY KEY (run_at<?)"),
        (sql!("delayed/delete_upto"), "USING PRIMARY KEY ((run_at,seq)<(?,?))"),
        (sql!("delayed/next"), "SCAN delayed"),
        (sql!("uniques/expire"), "uniques_expiring (expires>? AND expires<?)"),
        (sql!("edges/children"), "USING PRIMARY KEY (parent=?)"),
        (sql!("jobs/get_all"), "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)"),
        (sql!("jobs/find_all"), "sqlite_autoindex_jobs_1 (id=?)"),
        (sql!("jobs/whole"), "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)"),
        (sql!("jobs/whole"), "SEARCH d USING INTEGER PRIMARY KEY (rowid=?)"),
        (sql!("jobs/whole"), "SEARCH s USING INTEGER PRIMARY KEY (rowid=?)"),
        (sql!("search/listed"), "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)"),
        (sql!("edges/children_of"), "SEARCH e USING PRIMARY KEY (parent=?)"),
        (sql!("blocked/waiting"), "SEARCH b USING INTEGER PRIMARY KEY (rowid=?)"),
        (sql!("blocked/delete"), "SEARCH blocked USING INTEGER PRIMARY KEY (rowid=?)"),
        (sql!("edges/count_of"), "USING PRIMARY KEY (parent=?)"),
        (sql!("edges/parents"), "edges_by_child (child=?)"),
        (sql!("search/blocked"), "USING INTEGER PRIMARY KEY (rowid<?)"),
        (sql!("jobs/find"), "sqlite_autoindex_jobs_1 (id=?)"),
        (sql!("search/window"), "SEARCH j USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (sql!("search/newest"), "SEARCH jobs USING INTEGER PRIMARY KEY (rowid<?)"),
    ] {
        let plan = plan(&conn, text);
        assert!(plan.contains(expected), "{text}\n{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{text}\n{plan}");
        // What is read for an array comes in its order.
        let in_order = !text.contains("rarray") || text.contains("DELETE") || plan.starts_with("SCAN");
        assert!(in_order, "{text}\n{plan}");
    }
    // Causes are put in order by how many letters they have, which no index knows.
    let plan = plan(&conn, sql!("letters/causes"));
    assert!(plan.contains("SEARCH done USING COVERING INDEX done_cause (cause>?)"), "{plan}");
}

#[test]
fn searches_over_a_list_and_over_all_ask_the_same() {
    let conditions = |text: &'static str| {
        let from = text.find("  AND (?3 IS NULL").unwrap();
        text[from..].replace("ORDER BY j.seq DESC\n", "")
    };
    assert_eq!(conditions(sql!("search/window")), conditions(sql!("search/listed")));
}

#[test]
fn no_statement_is_parsed_again_for_other_values() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let settings = schema::WriterSettings { synchronous: false, max_pages: None };
    let writer = schema::open_writer(&dir.path().join("tidegate.db"), settings).unwrap();
    let reader = schema::open_reader(&dir.path().join("tidegate.db")).unwrap();
    for (conn, text) in [
        (&writer, sql!("edges/children")),
        (&writer, sql!("edges/parents")),
        (&writer, sql!("blocked/get")),
        (&writer, sql!("done/oldest")),
        (&writer, sql!("delayed/due")),
        (&writer, sql!("jobs/find")),
        (&reader, sql!("search/window")),
        (&reader, sql!("search/finished")),
    ] {
        let mut statement = conn.prepare(text).unwrap();
        for value in 0..100_i64 {
            let values = vec![value; statement.parameter_count()];
            let mut rows = statement.query(rusqlite::params_from_iter(values)).unwrap();
            while rows.next().unwrap().is_some() {}
        }
        assert_eq!(statement.get_status(rusqlite::StatementStatus::RePrepare), 0, "{text}");
    }
}

fn plan(conn: &rusqlite::Connection, text: &str) -> String {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
    let nothing = vec![rusqlite::types::Null; statement.parameter_count()];
    let lines =
        statement.query_map(rusqlite::params_from_iter(nothing), |row| row.get::<_, String>(3)).unwrap();
    lines.map(Result::unwrap).collect::<Vec<_>>().join("\n")
}
