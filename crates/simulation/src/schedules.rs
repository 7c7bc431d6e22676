//! A year of schedules in a second or two: three processes that die and come back, clocks that step, jobs that take long, fail or
//! never come back. Every tick must be fired exactly once, or skipped with a reason on record.
//!
//! What should have been is found by [`referee::Expected`], which walks over every minute and looks at what the zones' clocks show;
//! it shares no code with how ticks are found.

mod referee;
mod rows;
mod world;

pub use referee::{Expected, Referee};
pub use world::{Planned, Seen, run};

use tidegate_core::schedule::{Missed, Overlap, ScheduleSettings};

/// The schedules of S1 §1.2 and §2.1 with J12, those of §2.3 waiting for each other.
pub fn of_the_catalog() -> Vec<Planned> {
    let zone = "America/Sao_Paulo";
    let daily = |name: &str, cron: &str| Planned::new(name, ScheduleSettings::cron(cron, zone));
    let after = |name: &str, cron: &str, other: &str| {
        let mut planned = daily(name, cron);
        planned.settings.after = vec![super::schedules::world::name(other)];
        planned
    };
    vec![
        daily("daily-missions-assignment", "1 0 * * *"),
        daily("streak-check", "30 0 * * *"),
        daily("weekly-ranking-reset", "0 0 * * 0"),
        daily("daily-feature-aggregation", "0 1 * * *"),
        after("data-anonymization", "0 2 * * *", "daily-feature-aggregation"),
        daily("session-cleanup", "0 3 * * *"),
        daily("backup-database", "0 3 * * *"),
        daily("minor-detection-scan", "0 4 * * *"),
        after("community-graph-build", "15 4 * * *", "daily-feature-aggregation"),
        daily("age-revalidation-prompt", "0 8 * * *"),
        daily("age-data-cleanup", "0 2 * * 0"),
        daily("health-check", "0 * * * *"),
        daily("queue-metrics", "*/5 * * * *"),
    ]
}

/// Schedules in other zones, around the hours at which their clocks change, with every rule.
pub fn of_other_zones() -> Vec<Planned> {
    let zones = ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu"];
    let crons = ["30 2 * * *", "45 1 * * *", "0 0 * * *", "15 1-3 * * 1-5", "0 */6 * * *", "59 23 L * *"];
    let overlaps = [Overlap::Skip, Overlap::Queue, Overlap::Allow];
    let missed = [Missed::RunOnce, Missed::Skip, Missed::RunAll(3)];
    let mut all = vec![];
    for (z, zone) in zones.into_iter().enumerate() {
        for (c, cron) in crons.into_iter().enumerate() {
            let mut settings = ScheduleSettings::cron(cron, zone);
            settings.overlap = overlaps[(z + c) % 3];
            settings.missed = missed[(z + c / 2) % 3];
            settings.jitter = (c % 2 == 1).then(|| "20s".into());
            all.push(Planned::new(&format!("{}-{c}", zone.replace('/', "-")), settings));
        }
    }
    all
}
