//! A year of schedules. `TIDEGATE_SEEDS` sets how many years are lived through (a thousandth of it), `TIDEGATE_SEED` names one.

use tidegate_core::time::Timestamp;
use tidegate_simulation::from_env;
use tidegate_simulation::schedules::{of_other_zones, of_the_catalog, run};

fn seeds() -> std::ops::Range<u64> {
    match from_env("TIDEGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from_env("TIDEGATE_SEEDS").map_or(1, |n| n / 1_000).clamp(1, 20),
    }
}

fn instant(text: &str) -> Timestamp {
    Timestamp(text.parse::<jiff::Timestamp>().expect("a time").as_millisecond())
}

#[test]
fn every_tick_of_a_year_is_fired_once_or_skipped_with_a_reason() {
    let planned: Vec<_> = of_the_catalog().into_iter().chain(of_other_zones()).collect();
    for seed in seeds() {
        let started = std::time::Instant::now();
        // Sao Paulo had daylight saving time until 2019.
        let year = if seed % 2 == 0 { 2026 } else { 2018 };
        let (from, to) =
            (instant(&format!("{year}-01-01T00:00:00Z")), instant(&format!("{}-01-01T00:00:00Z", year + 1)));
        let seen = run(seed, &planned, from, to).unwrap_or_else(|failure| panic!("{failure}"));
        println!("seed {seed}, {year}, {:.1} s: {seen:?}", started.elapsed().as_secs_f64());
        assert!(seen.ticks > 120_000, "{} ticks", seen.ticks);
        assert!(seen.crashes > 500 && seen.steps > 200, "too little happened: {seen:?}");
        // Worlds in which nothing is skipped would prove little.
        for reason in ["missed", "overlap", "after"] {
            assert!(
                seen.skipped.get(reason).is_some_and(|n| *n > 0),
                "nothing was skipped for {reason}: {seen:?}"
            );
        }
        assert!(seen.fired as usize * 10 > seen.ticks * 6, "most are fired: {seen:?}");
    }
}
