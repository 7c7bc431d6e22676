//! Never over: 200 tasks in 4 processes that are killed again and again.

use std::path::Path;

use tidegate_core::seed::Seed;
use tidegate_ordeal::gates::log::{Record, Seen};
use tidegate_ordeal::gates::referee::{
    above_rate, admissions, at_a_time, costs, in_a_window, probes, start_costs, starts,
};
use tidegate_ordeal::gates::worlds::{BREAKER, BUCKET, QUARANTINE, QUOTA, SLOTS, SMOOTH, USE_BY, WINDOW};
use tidegate_testbed::{postgres, redis};

use crate::{Caller, called, count, record, soak};

/// Runs callers, kills and restarts them at random, and returns when all that was asked for has happened.
fn storm(gates: &str, dir: &Path, kills: u64) {
    let names: Vec<String> = (0..4).map(|n| format!("c{n}")).collect();
    let start = |n: usize, life: u64| Caller::start(gates, dir, &format!("c{n}-{life}"), "over", 50);
    let mut callers: Vec<Caller> = (0..4).map(|n| start(n, 0)).collect();
    let mut lives = [0; 4];
    let mut random = Seed::new(count("TIDEGATE_SEED", 7));
    for _ in 0..kills {
        let victim = random.below(4) as usize;
        // It is killed in the middle of its work, not of its start.
        called(dir, &[format!("{}-{}", names[victim], lives[victim])], 20 + random.below(60) as usize);
        assert!(callers[victim].lives(), "a caller ended by itself");
        callers[victim].kill();
        lives[victim] += 1;
        callers[victim] = start(victim, lives[victim]);
    }
    let last: Vec<String> = (0..4).map(|n| format!("{}-{}", names[n], lives[n])).collect();
    called(dir, &last, 50);
    callers.iter_mut().for_each(Caller::kill);
}

/// Judges everything that was promised; what was found, in one line.
fn judge(what: &str, record: &Record) -> String {
    let of = |domain: i64| record.calls.iter().filter(move |c| c.domain == domain);
    let shop: Vec<&Seen> = of(0).collect();
    let shop = || shop.iter().copied();
    let slots = at_a_time(shop(), QUARANTINE);
    assert!(slots.most <= SLOTS, "{what}: {slots:?} of {SLOTS} slots");
    let window = in_a_window(admissions(shop()), WINDOW.1);
    assert!(window.most <= WINDOW.0, "{what}: {window:?} of {} in a window", WINDOW.0);
    let begun = in_a_window(starts(shop()), WINDOW.1 - USE_BY);
    assert!(begun.most <= WINDOW.0, "{what}: {begun:?} starts of {} in a window", WINDOW.0);
    let smooth = above_rate(costs(shop()), SMOOTH.0);
    assert!(smooth.most <= SMOOTH.1 * 1_000_000, "{what}: {smooth:?} above the smooth rate");
    let bucket = above_rate(costs(shop()), BUCKET.0);
    assert!(bucket.most <= BUCKET.1 * 1_000_000, "{what}: {bucket:?} above the bucket");
    for (rate, most) in [SMOOTH, BUCKET] {
        let begun = above_rate(start_costs(shop()), rate);
        let allowed = most * 1_000_000 + rate * USE_BY;
        assert!(begun.most <= allowed, "{what}: {begun:?} starts above a rate");
    }
    let (mut tenant_slots, mut tenant_cost) = (0, 0);
    for tenant in 0..5 {
        let own = || shop().filter(move |c| c.tenant == tenant);
        let live = at_a_time(own(), QUARANTINE);
        assert!(live.most <= QUOTA.0, "{what}: tenant {tenant} {live:?} of {} at a time", QUOTA.0);
        let cost = in_a_window(costs(own()), QUOTA.2);
        assert!(cost.most <= QUOTA.1, "{what}: tenant {tenant} {cost:?} of {} in a window", QUOTA.1);
        let begun = in_a_window(start_costs(own()), QUOTA.2 - USE_BY);
        assert!(begun.most <= QUOTA.1, "{what}: tenant {tenant} {begun:?} starts in a window");
        (tenant_slots, tenant_cost) = (tenant_slots.max(live.most), tenant_cost.max(cost.most));
    }
    for account in 0..6 {
        let holders = at_a_time(shop().filter(|c| c.bulk && c.account == account), QUARANTINE);
        assert!(holders.most <= 1, "{what}: account {account}: {holders:?} have the lock");
    }
    let mut subjects: Vec<i64> = of(1).map(|c| c.account).collect();
    subjects.dedup();
    let mut most = 0;
    for subject in &subjects {
        let calls: Vec<&Seen> = of(1).filter(|c| c.account == *subject).collect();
        let tried = probes(&calls, BREAKER.0, USE_BY);
        assert!(
            tried.most <= BREAKER.1,
            "{what}: {tried:?} probes through the breaker of {subject}: {calls:?}"
        );
        most = most.max(tried.most);
    }
    let dead = record.calls.iter().filter(|c| c.end.is_none()).count();
    format!(
        "{what}: {} calls, {dead} cut off; slots {} of {SLOTS}, window {} of {}, smooth {} of {}, bucket {} of {}, \
         tenant {tenant_slots} of {} at a time and {tenant_cost} of {}, probes {most} of {}, errors {}",
        record.calls.len(),
        slots.most,
        window.most,
        WINDOW.0,
        smooth.most / 1_000_000,
        SMOOTH.1,
        bucket.most / 1_000_000,
        BUCKET.1,
        QUOTA.0,
        QUOTA.1,
        BREAKER.1,
        record.errors,
    )
}

fn kills() -> u64 {
    if soak() { 60 } else { 3 }
}

#[test]
fn redis_never_admits_more_than_was_promised() {
    let (server, dir) = (redis::Server::start(&[]).unwrap(), tempfile::tempdir().unwrap());
    storm(&server.url(), dir.path(), kills());
    println!("{}", judge("redis", &record(dir.path())));
}

#[test]
fn postgres_never_admits_more_than_was_promised() {
    let (server, dir) =
        (postgres::Server::start(&["max_connections=100"]).unwrap(), tempfile::tempdir().unwrap());
    storm(&server.url(), dir.path(), kills());
    println!("{}", judge("postgres", &record(dir.path())));
}

#[test]
fn in_process_never_admits_more_than_was_promised() {
    let dir = tempfile::tempdir().unwrap();
    storm("process", dir.path(), kills());
    // Every life of a process has gates of its own.
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut own = Record::default();
        own.add("one", tidegate_ordeal::read(&path).unwrap()).unwrap();
        own.calls.sort_by_key(|c| c.start);
        println!("{}", judge("in process", &own));
    }
}

#[test]
fn the_judge_finds_a_log_that_was_falsified() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start("process", dir.path(), "c", "over", 50);
    called(dir.path(), &["c".into()], 150);
    caller.kill();
    let honest = record(dir.path());
    judge("honest", &honest);
    let first = *honest.calls.iter().find(|c| c.domain == 0).unwrap();
    let refused = |what: &str, calls: Vec<Seen>| {
        let falsified = Record { calls, ..Record::default() };
        let said = std::panic::catch_unwind(|| judge("false", &falsified)).expect_err(what);
        let said = said.downcast_ref::<String>().unwrap();
        assert!(said.contains(what), "{what}: {said}");
    };
    // Apart from what is false, calls are an hour apart and of tenants that nobody judges.
    let hour = 3_600_000_000;
    let apart =
        |n: i64| Seen { tenant: 90 + n, admitted: n * hour, start: n * hour, end: Some(n * hour), ..first };
    let together = |n: i64| Seen { start: first.start, end: first.end, ..apart(n) };
    refused("slots", (0..13).map(together).collect());
    let admitted = |n: i64| Seen { admitted: 5, cost: 0, ..apart(n) };
    refused("in a window", (0..61).map(admitted).collect());
    let started = |n: i64| Seen { start: n * 7_000, end: Some(n * 7_000), cost: 0, ..apart(n) };
    refused("starts of 60", (0..61).map(started).collect());
    refused("above the smooth rate", vec![Seen { cost: 40_001, ..apart(0) }]);
    refused("at a time", (0..5).map(|n| Seen { tenant: 3, ..together(n) }).collect());
    let costly = |n: i64| Seen { tenant: 3, cost: 30_000, admitted: n * 300_000, ..apart(n) };
    refused("tenant 3", (0..3).map(costly).collect());
    refused("have the lock", (0..2).map(|n| Seen { bulk: true, account: 5, ..together(n) }).collect());
    let fail = |start: i64| {
        let (end, failed) = (Some(start + 10), Some(start + 20));
        Seen { domain: 1, account: -1, start, end, failed, ..first }
    };
    refused("probes", (0..5).map(fail).chain((0..3).map(|n| fail(900_000 + n))).collect());
}
