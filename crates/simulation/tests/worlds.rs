//! Many worlds: `TIDEGATE_SEEDS` of them, or the one of `TIDEGATE_SEED`.

use tidegate_conformance::kit::START;
use tidegate_simulation::faults::{Broken, Defect};
use tidegate_simulation::plane::Memory;
use tidegate_simulation::{Crash, Crashes, Scenario, Summary, World, from_env, run};

fn seeds() -> std::ops::Range<u64> {
    match from_env("TIDEGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from_env("TIDEGATE_SEEDS").unwrap_or(500),
    }
}

#[test]
fn every_promise_holds_whatever_crashes_and_whenever() {
    let started = std::time::Instant::now();
    let mut all = Summary::default();
    let mut worlds = 0u32;
    for seed in seeds() {
        let world = run(Scenario::stormy(seed)).unwrap_or_else(|failure| panic!("{failure}"));
        all.calls += world.calls;
        all.crashes += world.crashes;
        all.jobs += world.jobs;
        all.stale += world.stale;
        all.poisoned += world.poisoned;
        all.patient += world.patient;
        (0..3).for_each(|i| all.ended[i] += world.ended[i]);
        worlds += 1;
    }
    let rate = f64::from(worlds) / started.elapsed().as_secs_f64();
    println!("{worlds} worlds, {rate:.0} per second: {all:?}");
    let ended = all.ended.iter().sum::<u64>();
    assert_eq!(
        ended + all.patient,
        all.jobs,
        "every job has one end, or waits for the recovery of a dead one"
    );
    if worlds >= 100 {
        // Worlds in which nothing happens would prove nothing.
        assert!(all.crashes > 5 * u64::from(worlds), "{} crashes", all.crashes);
        assert!(all.stale > u64::from(worlds) / 4, "{} stale writes", all.stale);
        assert!(all.poisoned > u64::from(worlds) / 4, "{} poisoned", all.poisoned);
    }
}

#[test]
fn a_crash_at_any_single_call_breaks_no_promise() {
    let worlds = from_env("TIDEGATE_SEEDS").map_or(2, |n| (n / 250).clamp(2, 40));
    let mut tried = 0u64;
    for seed in 0..worlds {
        let undisturbed =
            run(Scenario::calm(seed, Crashes::Never)).unwrap_or_else(|failure| panic!("{failure}"));
        for call in 0..undisturbed.calls {
            for crash in Crash::ALL {
                let scenario = Scenario::calm(seed, Crashes::At(call, crash));
                run(scenario).unwrap_or_else(|failure| panic!("{failure}"));
                tried += 1;
            }
        }
    }
    println!("{tried} crash points in {worlds} worlds");
    assert!(tried > 500 * worlds, "{tried} crash points");
}

#[test]
fn a_seed_replays_the_same_world() {
    for seed in 0..100 {
        let scenario = Scenario { record: true, ..Scenario::stormy(seed) };
        let events = || {
            let world = World::new(Memory::open(START).expect("an empty store opens"), scenario);
            world.run().unwrap_or_else(|failure| panic!("{failure}")).1
        };
        let (one, two) = (events(), events());
        let differs = one.iter().zip(&two).position(|(a, b)| a != b);
        assert_eq!(
            differs,
            None,
            "seed {seed}: {:?} and {:?}",
            differs.map(|i| &one[i]),
            differs.map(|i| &two[i])
        );
        assert_eq!(one.len(), two.len());
    }
}

#[test]
fn the_referee_notices_every_defect() {
    for defect in Defect::ALL {
        let found = (0..60).find_map(|seed| {
            let plane = Broken::new(Memory::open(START).expect("an empty store opens"), defect);
            World::new(plane, Scenario::stormy(seed)).run().err()
        });
        let failure = found.unwrap_or_else(|| panic!("{defect:?} went unnoticed in 60 worlds"));
        println!("{defect:?}: seed {}, call {}: {}", failure.scenario.seed, failure.call, failure.violation);
    }
}
