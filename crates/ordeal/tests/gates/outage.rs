//! Redis goes away in the middle of load, in nine ways. Nobody fails, locks never have two holders, and what is admitted
//! beyond the limit is bounded.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidegate_ordeal::gates::log::{Record, Seen, now};
use tidegate_ordeal::gates::referee::{above_rate, admissions, at_a_time, in_a_window};
use tidegate_ordeal::gates::worlds::OUTAGE;
use tidegate_testbed::proxy::{Proxy, Way};
use tidegate_testbed::redis::Server;

use crate::{Caller, called, record, soak, until};

const SECOND: i64 = 1_000_000;

struct World {
    server: Server,
    replica: Option<Server>,
    ways: Vec<Proxy>,
}

/// From when to when the backend was out of reach, and whose.
struct Outage {
    from: i64,
    to: i64,
    members: std::ops::Range<usize>,
}

fn wait(time: Duration) {
    std::thread::sleep(time);
}

impl World {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.server.pid().unwrap() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn all(&self, way: Way) {
        self.ways.iter().for_each(|proxy| proxy.set(way));
    }

    /// Something happens, lasts, and is over.
    fn during(&mut self, begin: impl FnOnce(&mut Self), end: impl FnOnce(&mut Self)) -> Outage {
        let from = now();
        begin(self);
        wait(Duration::from_secs(4));
        end(self);
        Outage { from, to: now(), members: 0..4 }
    }
}

fn cut_off(world: &mut World) -> Outage {
    world.during(|w| w.all(Way::Cut), |w| w.all(Way::Open))
}

fn killed(world: &mut World) -> Outage {
    world.during(|w| w.server.stop().unwrap(), |w| w.server.resume().unwrap())
}

fn paused(world: &mut World) -> Outage {
    world.during(|w| w.signal(Signal::STOP), |w| w.signal(Signal::CONT))
}

fn slowed(world: &mut World) -> Outage {
    let (mut from, mut to) = (0, 0);
    let steps = (1..=15).chain((0..15).rev());
    for step in steps {
        let delay = 200 * step;
        if delay >= 500 && from == 0 {
            from = now();
        }
        if delay >= 500 {
            to = now();
        }
        world.all(if delay == 0 { Way::Open } else { Way::Slow(Duration::from_millis(delay)) });
        wait(Duration::from_millis(300));
    }
    // From then on answers are quick, those that are still under way arrive.
    Outage { from, to: to + 300_000 + 500_000, members: 0..4 }
}

fn partitioned(world: &mut World) -> Outage {
    let outage = world.during(|w| w.ways[2].set(Way::Blocked), |w| w.ways[2].set(Way::Open));
    Outage { members: 2..3, ..outage }
}

fn full(world: &mut World) -> Outage {
    let set = |memory: &'static str| {
        move |w: &mut World| drop(w.server.command(&format!("CONFIG SET maxmemory {memory}")).unwrap())
    };
    world.during(set("1"), set("0"))
}

fn read_only(world: &mut World) -> Outage {
    let set =
        |of: &'static str| move |w: &mut World| drop(w.server.command(&format!("REPLICAOF {of}")).unwrap());
    world.during(set("127.0.0.1 1"), set("NO ONE"))
}

fn emptied(world: &mut World) -> Outage {
    // So fast that a client may only notice that it has a new connection.
    let from = now();
    world.server.stop().unwrap();
    world.server.resume().unwrap();
    Outage { from, to: now(), members: 0..4 }
}

fn failed_over(world: &mut World) -> Outage {
    let from = now();
    world.server.stop().unwrap();
    wait(Duration::from_secs(2));
    let replica = world.replica.as_ref().unwrap();
    replica.command("REPLICAOF NO ONE").unwrap();
    world.ways.iter().for_each(|proxy| proxy.lead_to(replica.port()));
    Outage { from, to: now(), members: 0..4 }
}

fn ordeal(what: &str, inflict: fn(&mut World) -> Outage) {
    let server = Server::start(&[]).unwrap();
    let replica = (what == "failed over").then(|| server.replica().unwrap());
    let ways = (0..4).map(|_| Proxy::to(server.port()).unwrap()).collect();
    let mut world = World { server, replica, ways };
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..4).map(|n| format!("c{n}")).collect();
    let callers: Vec<Caller> = world
        .ways
        .iter()
        .zip(&names)
        .map(|(way, name)| {
            let url = format!("fallback+redis://127.0.0.1:{}/", way.port());
            Caller::start(&url, dir.path(), name, "outage", 50)
        })
        .collect();
    called(dir.path(), &names, 150);
    let before = now();
    let outage = inflict(&mut world);
    let normal = |record: &Record, name: &String| {
        record.health.iter().rfind(|h| h.0 == *name).is_some_and(|h| h.1 && h.2 > outage.from)
    };
    let affected = || names[outage.members.clone()].iter();
    until("normal again", Duration::from_secs(30), || {
        let record = record(dir.path());
        affected().all(|name| normal(&record, name))
    });
    let calls = record(dir.path()).calls.len();
    until("calls after the outage", Duration::from_secs(30), || {
        record(dir.path()).calls.len() > calls + 3 * OUTAGE.0 as usize / 2
    });
    drop(callers);
    judge(what, &record(dir.path()), before, &outage, &affected().cloned().collect::<Vec<_>>());
}

fn judge(what: &str, record: &Record, before: i64, outage: &Outage, affected: &[String]) {
    let calls = || record.calls.iter();
    let (limit, slots) = OUTAGE;
    let change = |name: &String, normal: bool, from: i64| {
        record.health.iter().find(|h| h.0 == *name && h.1 == normal && h.2 >= from).map(|h| h.2)
    };
    let said =
        affected.iter().map(|name| change(name, false, outage.from).expect("it is said") - outage.from);
    let said = said.max().unwrap();
    let back = affected.iter().map(|name| record.health.iter().rfind(|h| h.0 == *name && h.1).unwrap().2);
    let normal = back.max().unwrap();
    let after = |c: &&Seen| c.start > normal + 3 * SECOND;
    let window = in_a_window(admissions(calls()), SECOND).most;
    let total = above_rate(admissions(calls()), limit).most / SECOND;
    let quiet = in_a_window(admissions(calls().filter(|c| c.start < before)), SECOND).most;
    let later = in_a_window(admissions(calls().filter(|c| c.start > normal)), SECOND).most;
    let at_once = at_a_time(calls(), 0).most;
    let at_once_later = at_a_time(calls().filter(after), 0).most;
    let lost = record.errors as f64 / (record.calls.len() + record.errors) as f64;
    let during = calls().filter(|c| (outage.from..outage.to).contains(&c.start)).count();
    println!(
        "{what}: {} calls, {during} during the outage of {:.1} s, {} failed ({:.2} %); said after {:.2} s, normal {:.2} s after \
         its end; most in a second {quiet} before, {window} in all, {later} after (limit {limit}), {total} above the rate in \
         all; slots {at_once} (limit {slots})",
        record.calls.len(),
        (outage.to - outage.from) as f64 / 1e6,
        record.errors,
        lost * 100.0,
        said as f64 / 1e6,
        (normal - outage.to) as f64 / 1e6,
    );
    for account in 0..6 {
        let bulk = calls().filter(|c| c.bulk && c.account == account);
        let holders = at_a_time(bulk, 0);
        assert!(holders.most <= 1, "{what}: account {account}: {holders:?} have the lock");
    }
    assert!(lost < 0.01, "{what}: {lost} of the calls failed");
    assert!(during > 0 || outage.to - outage.from < SECOND, "{what}: nobody went on");
    assert!(said <= 2 * SECOND, "{what}: said after {said} µs");
    assert!(normal - outage.to <= 5 * SECOND, "{what}: normal {} µs after its end", normal - outage.to);
    assert!(quiet <= limit && later <= limit, "{what}: {quiet} before and {later} after, of {limit}");
    assert!(window <= 2 * limit, "{what}: {window} in a second");
    // Over the whole outage: one limit's worth. Where only one process is cut off, its share comes on top for as long.
    let partial = if affected.len() == 4 { 0 } else { limit * (outage.to - outage.from) / SECOND / 4 };
    assert!(total <= 2 * limit + partial, "{what}: {total} above the rate");
    assert!(at_once <= 2 * slots, "{what}: {at_once} at a time");
    assert!(at_once_later <= slots, "{what}: {at_once_later} at a time afterwards");
}

macro_rules! outages {
    ($($name:ident: $what:literal, $inflict:ident, $always:literal;)*) => {$(
        #[test]
        fn $name() {
            if $always || soak() {
                ordeal($what, $inflict);
            }
        }
    )*};
}

outages! {
    calls_go_on_while_redis_is_dead: "killed", killed, true;
    calls_go_on_while_nobody_reaches_redis: "cut off", cut_off, false;
    calls_go_on_while_redis_is_paused: "paused", paused, false;
    calls_go_on_while_redis_gets_slower_and_slower: "slowed", slowed, false;
    calls_go_on_while_one_process_is_cut_off: "partitioned", partitioned, false;
    calls_go_on_while_redis_has_no_memory_left: "full", full, false;
    calls_go_on_while_redis_only_reads: "read only", read_only, false;
    calls_go_on_when_redis_comes_back_empty: "emptied", emptied, true;
    calls_go_on_when_a_replica_takes_over: "failed over", failed_over, false;
}
