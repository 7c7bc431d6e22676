//! Every statement uses the index its contract names: a plan that sorts or scans would pass every other test.

use super::*;
use crate::rows::sql;
use crate::schema;

#[test]
fn statements_use_the_indexes_they_name() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let conn = schema::open_reader(&dir.path().join("tidegate.db")).unwrap();
    rusqlite::vtab::array::load_module(&conn).unwrap();
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
    assert!(plan.contains("SEARCH done USING INDEX done_cause (cause>?)"), "{plan}");
}

#[test]
fn no_statement_of_the_writer_is_parsed_again_for_other_values() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let settings = schema::WriterSettings { synchronous: false, max_pages: None };
    let conn = schema::open_writer(&dir.path().join("tidegate.db"), settings).unwrap();
    for text in [
        sql!("edges/children"),
        sql!("edges/parents"),
        sql!("blocked/get"),
        sql!("done/oldest"),
        sql!("delayed/due"),
        sql!("jobs/find"),
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
