//! `TIDEGATE_HISTORIES` random histories over memory and SQLite, or the one of `TIDEGATE_SEED`.

use crate::common::{Memory, Sqlite};
use tidegate_conformance::differential;

const OPERATIONS: usize = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds() -> std::ops::Range<u64> {
    match number("TIDEGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TIDEGATE_HISTORIES").unwrap_or(40),
    }
}

#[tokio::test]
async fn memory_and_sqlite_answer_alike() {
    for seed in seeds() {
        let verdict = differential::compare(&mut Memory::open(), &mut Sqlite::open(), seed, OPERATIONS).await;
        verdict.unwrap_or_else(|mismatch| panic!("{mismatch}"));
    }
}

/// Nothing may depend on the order of a hash map: two stores of the same kind answer alike, too.
#[tokio::test]
async fn memory_and_memory_answer_alike() {
    for seed in seeds() {
        let verdict = differential::compare(&mut Memory::open(), &mut Memory::open(), seed, OPERATIONS).await;
        verdict.unwrap_or_else(|mismatch| panic!("{mismatch}"));
    }
}
