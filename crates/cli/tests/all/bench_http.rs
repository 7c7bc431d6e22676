//! `tidegate bench http`: its figures have the names that scripts rely on, nothing is lost, and its server ends with it.

use std::process::{Command, Stdio};

#[test]
fn the_benchmark_over_http_loses_nothing_and_leaves_no_server_behind() {
    let dir = tempfile::tempdir().unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["bench", "http", "--jobs", "1000", "--json"])
        .env("TMPDIR", dir.path())
        .env("TIDEGATE_STORE", "http://127.0.0.1:1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let figures: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    for key in ["enqueue_single_per_s", "enqueue_library_per_s", "process_per_s"] {
        assert!(figures[key].as_f64().unwrap() > 0.0, "{key}: {figures}");
    }
    let pickup = &figures["pickup_ms"];
    let [p50, p95, p99] = ["p50", "p95", "p99"].map(|p| pickup[p].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= p95 && p95 <= p99, "{pickup}");
    assert_eq!((figures["lost"].as_u64(), figures["duplicated"].as_u64()), (Some(0), Some(0)), "{figures}");
    // A server that still ran would hold its directory.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
