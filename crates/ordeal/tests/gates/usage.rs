//! Uses what is allowed: four processes over Redis with more to do than the gates let pass. What they count themselves is what the
//! referee counts.

use std::time::Duration;

use tidegate_gates::watched::merge;
use tidegate_gates::{Gates, Noticeboard, RedisGates, RedisOptions};
use tidegate_ordeal::gates::log::{Seen, now};
use tidegate_ordeal::gates::worlds::{BUDGET, USED_SLOTS};
use tidegate_testbed::redis::Server;

use crate::{Caller, called, record, soak};

/// Runs four processes for a while after all have begun; the calls, and from when to when.
fn run(server: &Server, watched: bool, plan: &str, calls: usize) -> (Vec<Seen>, i64, i64) {
    let dir = tempfile::tempdir().unwrap();
    let gates = format!("{}{}", if watched { "watched+" } else { "" }, server.url());
    let names: Vec<String> = (0..4).map(|n| format!("c{n}")).collect();
    let mut callers: Vec<Caller> =
        names.iter().map(|name| Caller::start(&gates, dir.path(), name, plan, 50)).collect();
    called(dir.path(), &names, 20);
    let from = now();
    let before = record(dir.path()).calls.len();
    crate::until("calls", Duration::from_mins(2), || record(dir.path()).calls.len() >= before + calls);
    let to = now();
    callers.iter_mut().for_each(Caller::end);
    (record(dir.path()).calls, from, to)
}

fn least() -> f64 {
    // The machine of a normal test run is busy with others; the promise is judged alone, by `scripts/soak gates`.
    if soak() { 0.97 } else { 0.85 }
}

#[test]
fn four_processes_use_the_slots_they_may() {
    let (calls, from, to) =
        run(&Server::start(&[]).unwrap(), false, "slots", if soak() { 1_500 } else { 300 });
    let used: i64 = calls.iter().map(|c| (c.end.unwrap_or(to).min(to) - c.start.max(from)).max(0)).sum();
    let share = used as f64 / (USED_SLOTS * (to - from)) as f64;
    println!("slots used: {:.2} % over {:.1} s", share * 100.0, (to - from) as f64 / 1e6);
    assert!(share >= least(), "{share}");
}

#[test]
fn four_processes_use_the_budget_they_have_and_count_what_the_referee_counts() {
    let server = Server::start(&[]).unwrap();
    let (calls, from, to) = run(&server, true, "budget", if soak() { 4_500 } else { 900 });
    let used = calls.iter().filter(|c| (from..to).contains(&c.start)).count();
    let share = used as f64 / (BUDGET.0 as f64 * (to - from) as f64 / 1e6);
    println!("budget used: {:.2} % over {:.1} s", share * 100.0, (to - from) as f64 / 1e6);
    assert!(share >= least(), "{share}");
    agree(&server, &calls);
}

/// What the processes have counted and left, against what was seen from outside: within 5 %.
fn agree(server: &Server, calls: &[Seen]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let gates = runtime.block_on(RedisGates::connect(&server.url(), RedisOptions::default())).unwrap();
    let read = || {
        let all = runtime.block_on(gates.published()).unwrap();
        assert_eq!(all.len(), 4, "every process has left something");
        merge(&all, gates.clock()).remove(0)
    };
    crate::until("leases to lapse", Duration::from_secs(30), || read().held == 0);
    let (counted, seen) = (read().total, calls.len() as f64);
    let forgotten = calls.iter().filter(|c| c.end.is_none()).count() as f64;
    for (what, counted, seen) in [
        ("reserved", counted.reserved, seen),
        ("released", counted.released, seen - forgotten),
        ("expired", counted.expired, forgotten),
    ] {
        println!("{what}: {counted} counted, {seen} seen");
        assert!((counted as f64 - seen).abs() <= seen * 0.05, "{what}: {counted} counted, {seen} seen");
    }
    let tenants = read().tenants;
    for tenant in 0..5 {
        let seen = calls.iter().filter(|c| c.tenant == tenant).count() as f64;
        let name = format!("t{tenant}");
        let counted = tenants.iter().find(|t| t.tenant == name).map_or(0, |t| t.counts.reserved);
        assert!((counted as f64 - seen).abs() <= seen * 0.05, "{name}: {counted} counted, {seen} seen");
    }
}
