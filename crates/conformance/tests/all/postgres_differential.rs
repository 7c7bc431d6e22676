//! `TIDEGATE_HISTORIES` random histories over memory and Postgres, or the one of `TIDEGATE_SEED`: with one store, and with
//! two stores on one database that take turns at random.

use crate::pg::{Pair, Steady, SteadyMemory};
use tidegate_conformance::differential;

const OPERATIONS: usize = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds() -> std::ops::Range<u64> {
    match number("TIDEGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TIDEGATE_HISTORIES").unwrap_or(40).div_ceil(4),
    }
}

#[tokio::test]
async fn memory_and_postgres_answer_alike() {
    for seed in seeds() {
        let mut memory = SteadyMemory::open(true);
        let mut postgres = Steady::open().await;
        let verdict = differential::compare(&mut memory, &mut postgres, seed, OPERATIONS).await;
        verdict.unwrap_or_else(|mismatch| panic!("{mismatch}"));
    }
}

#[tokio::test]
async fn memory_and_two_processes_that_share_a_database_answer_alike() {
    for seed in seeds() {
        let mut memory = SteadyMemory::open(false);
        let mut pair = Pair::open(seed).await;
        let verdict = differential::compare(&mut memory, &mut pair, seed, OPERATIONS).await;
        verdict.unwrap_or_else(|mismatch| panic!("{mismatch}"));
    }
}
