//! Uses what is allowed: four processes over Redis with more to do than the gates let pass.

use std::time::Duration;

use tidegate_ordeal::gates::log::{Seen, now};
use tidegate_ordeal::gates::worlds::{BUDGET, USED_SLOTS};
use tidegate_testbed::redis::Server;

use crate::{Caller, called, record, soak};

/// Runs four processes for a while after all have begun; the calls, and from when to when.
fn run(plan: &str, calls: usize) -> (Vec<Seen>, i64, i64) {
    let (server, dir) = (Server::start(&[]).unwrap(), tempfile::tempdir().unwrap());
    let names: Vec<String> = (0..4).map(|n| format!("c{n}")).collect();
    let callers: Vec<Caller> =
        names.iter().map(|name| Caller::start(&server.url(), dir.path(), name, plan, 50)).collect();
    called(dir.path(), &names, 20);
    let from = now();
    let before = record(dir.path()).calls.len();
    crate::until("calls", Duration::from_mins(2), || record(dir.path()).calls.len() >= before + calls);
    let to = now();
    drop(callers);
    (record(dir.path()).calls, from, to)
}

fn least() -> f64 {
    // The machine of a normal test run is busy with others; the promise is judged alone, by `scripts/soak gates`.
    if soak() { 0.97 } else { 0.85 }
}

#[test]
fn four_processes_use_the_slots_they_may() {
    let (calls, from, to) = run("slots", if soak() { 1_500 } else { 300 });
    let used: i64 = calls.iter().map(|c| (c.end.unwrap_or(to).min(to) - c.start.max(from)).max(0)).sum();
    let share = used as f64 / (USED_SLOTS * (to - from)) as f64;
    println!("slots used: {:.2} % over {:.1} s", share * 100.0, (to - from) as f64 / 1e6);
    assert!(share >= least(), "{share}");
}

#[test]
fn four_processes_use_the_budget_they_have() {
    let (calls, from, to) = run("budget", if soak() { 4_500 } else { 900 });
    let used = calls.iter().filter(|c| (from..to).contains(&c.start)).count();
    let share = used as f64 / (BUDGET.0 as f64 * (to - from) as f64 / 1e6);
    println!("budget used: {:.2} % over {:.1} s", share * 100.0, (to - from) as f64 / 1e6);
    assert!(share >= least(), "{share}");
}
