//! `TIDEGATE_HISTORIES` runs of several workers over each store, or the one of `TIDEGATE_SEED`.

use crate::common::{Memory, Sqlite};
use tidegate_conformance::{Harness, properties};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

async fn all(mut open: impl FnMut() -> Box<dyn Harness>, runs: u64) {
    let seeds = number("TIDEGATE_SEED").map_or(0..runs, |seed| seed..seed + 1);
    for seed in seeds {
        let run = properties::run(open().as_mut(), seed, 500).await;
        run.unwrap_or_else(|broken| panic!("{broken}"));
    }
}

#[tokio::test]
async fn memory_keeps_every_promise_to_interleaved_workers() {
    all(|| Box::new(Memory::open()), number("TIDEGATE_HISTORIES").unwrap_or(40) * 10).await;
}

#[tokio::test]
async fn sqlite_keeps_every_promise_to_interleaved_workers() {
    all(|| Box::new(Sqlite::open()), number("TIDEGATE_HISTORIES").unwrap_or(40)).await;
}
