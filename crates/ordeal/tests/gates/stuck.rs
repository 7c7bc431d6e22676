//! Never stuck: processes die at every step of the protocol; one lease (and quarantine) later everything is free again.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_core::gates::{Admission, Call, End, Holder, Outcome, Part, Target};
use tidegate_gates::{GateOperations, Gates, PgGates, PgGatesOptions, RedisGates, RedisOptions, admitted};
use tidegate_ordeal::gates::worlds::{QUARANTINE, SLOTS, set};
use tidegate_testbed::{postgres, redis};
use tokio::time::{Instant, sleep_until};

use crate::{Caller, soak};

const STEPS: u32 = 9;
/// The victims' lease, as they ask for it.
const LEASE: Duration = Duration::from_millis(400);

fn target(tenant: u32, bulk: bool) -> Arc<Target> {
    let target = Target::new("shop").unwrap().with(Part::Tenant, &format!("t{tenant}")).unwrap();
    let target = target.with(Part::Account, &format!("a{tenant}")).unwrap();
    Arc::new(if bulk { target.with(Part::Endpoint, "bulk").unwrap() } else { target })
}

fn call(round: u64, n: u32, bulk: bool) -> Call {
    // The tenants and accounts of the victims: their quotas and locks must be free as well.
    let holder = Holder::new(format!("check-{round}-{n}")).unwrap();
    let mut call = Call::new(target(n % STEPS, bulk), holder);
    call.place = false;
    call
}

/// Victims die at all steps; says how many were really killed, by step.
fn kill_at_every_step(url: &str, dir: &std::path::Path, killed: &mut BTreeMap<u32, u64>) -> Instant {
    let mut victims: Vec<(u32, Caller)> = (0..STEPS)
        .map(|step| (step, Caller::start(url, dir, &format!("v{step}"), &format!("die:{step}"), 1)))
        .collect();
    for (step, victim) in &mut victims {
        let status = victim.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "step {step}: {status}");
        *killed.entry(*step).or_default() += 1;
    }
    Instant::now()
}

/// All slots at once, and every lock.
async fn take_everything(gates: &dyn Gates, round: u64) {
    let mut permits = vec![];
    for n in 0..SLOTS as u32 {
        let bulk = n < STEPS;
        match gates.admit(None, &call(round, n, bulk)).await.unwrap() {
            Admission::Admitted(admitted) => permits.push(admitted.permit),
            other => panic!("round {round}: call {n} after one lease: {other:?}"),
        }
    }
    for permit in permits {
        gates.settle(None, &permit, &Outcome::of(End::Ok)).await.unwrap();
    }
}

async fn ordeal<G: Gates + GateOperations + 'static>(gates: G, url: &str, rounds: u64) {
    let gates = Arc::new(gates);
    gates.configure("shop", set(0)).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut killed = BTreeMap::new();
    for round in 0..rounds {
        // Every other round somebody else goes on calling meanwhile.
        let stop = Arc::new(AtomicBool::new(round % 2 == 0));
        let (calling, over) = (gates.clone(), stop.clone());
        let traffic = tokio::spawn(async move {
            for n in 0.. {
                if over.load(Ordering::Acquire) {
                    return n;
                }
                let mut call = call(round, 1_000 + n, false);
                call.target = target(77, false);
                call.place = true;
                if let Admission::Admitted(admitted) = admitted(&*calling, call).await.unwrap() {
                    // Slow enough to leave the rates room for what is asked for at the end.
                    tokio::time::sleep(Duration::from_millis(25)).await;
                    calling.settle(None, &admitted.permit, &Outcome::of(End::Ok)).await.unwrap();
                }
            }
            0
        });
        let died = kill_at_every_step(url, dir.path(), &mut killed);
        sleep_until(died + LEASE + Duration::from_micros(QUARANTINE as u64)).await;
        stop.store(true, Ordering::Release);
        let called = traffic.await.unwrap();
        assert!(round % 2 == 0 || called > 0, "there was no traffic");
        // Rates are not the question here: they have had time to refill.
        take_everything(&*gates, round).await;
    }
    println!("{} kills at {STEPS} steps: {killed:?}", killed.values().sum::<u64>());
}

fn rounds() -> u64 {
    if soak() { 200_u64.div_ceil(u64::from(STEPS)) } else { 2 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_is_free_again_one_lease_after_its_users_died() {
    let server = redis::Server::start(&[]).unwrap();
    let gates = RedisGates::connect(&server.url(), RedisOptions::default()).await.unwrap();
    ordeal(gates, &server.url(), rounds()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_is_free_again_one_lease_after_its_users_died() {
    let server = postgres::Server::start(&["max_connections=100"]).unwrap();
    let gates = PgGates::connect(&server.url(), PgGatesOptions::default()).await.unwrap();
    ordeal(gates, &server.url(), rounds()).await;
}
