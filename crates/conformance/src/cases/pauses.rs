//! Schedules that are paused: what a pause keeps back, and what becomes of it.

use tidegate_core::schedule::{Missed, Overlap, ScheduleSettings, SkipReason};
use tidegate_core::time::Timestamp;
use tidegate_store::params::ScheduleChange;

use super::schedules::{fired, ledger, name, pass, put, skipped, view};
use crate::kit::{START, World};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The full ten minutes after the beginning: it is 02:13:20.
fn ten(n: i64) -> Timestamp {
    Timestamp(START.0 + 400_000 + n * 10 * MINUTE)
}

async fn pause(w: &World, schedule: &str) {
    w.store().pause_schedule(name(schedule), "ana".into(), w.now).await.expect("it can be paused");
}

async fn resume(w: &World, schedule: &str) {
    w.store().resume_schedule(name(schedule), w.now).await.expect("it can be resumed");
}

async fn fires(w: &World, schedule: &str) -> Vec<Timestamp> {
    ledger(w, schedule).await.iter().filter_map(fired).map(|(at, _)| at).collect()
}

async fn skips(w: &World, schedule: &str) -> Vec<(Timestamp, SkipReason, Option<u64>)> {
    ledger(w, schedule).await.iter().filter_map(skipped).collect()
}

pub async fn a_paused_schedule_skips_what_comes_and_says_so(w: &mut World) {
    put(w, "s", ScheduleSettings::every("10m")).await;
    let paused = w.store().pause_schedule(name("s"), "ana".into(), w.now).await.expect("it can be paused");
    assert_eq!(paused.paused.map(|pause| pause.by), Some("ana".into()));
    assert_eq!(paused.next, None);
    pass(w, HOUR).await;
    w.restart().await;
    assert!(w.claim(10).await.jobs.is_empty());
    let resumed = w.store().resume_schedule(name("s"), w.now).await.expect("it can be resumed");
    assert_eq!(resumed.next, Some(Timestamp(START.0 + 400_000 + HOUR)));
    assert!(w.claim(10).await.jobs.is_empty(), "what has passed is not owed");
    let lines = ledger(w, "s").await;
    assert_eq!(skipped(&lines[0]).map(|(_, reason, n)| (reason, n)), Some((SkipReason::Paused, Some(6))));
    pass(w, 10 * MINUTE).await;
    assert_eq!(w.claim(10).await.jobs.len(), 1);
}

/// What nobody fired before a pause was missed; the pause has what came while it lasted.
pub async fn what_was_missed_before_a_pause_is_not_put_down_to_it(w: &mut World) {
    // Not late enough to be missed: it runs, and the next one finds it there.
    put(w, "soon", ScheduleSettings::every("5s")).await;
    w.pass(14_800);
    pause(w, "soon").await;
    resume(w, "soon").await;
    let lines = ledger(w, "soon").await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(fired(&lines[0]).map(|(at, _)| at), Some(START.plus_ms(5_000)));
    assert_eq!(skipped(&lines[1]), Some((START.plus_ms(10_000), SkipReason::Overlap, Some(1))));
    w.finish(&w.claim_one().await).await;
    assert_eq!(w.store().delete_schedule(name("soon"), w.now).await.ok(), Some(true));
    // 02:20 to 03:10 pass while nobody is there, 03:20 and 03:30 during the pause.
    put(w, "once", ScheduleSettings::every("10m")).await;
    put(w, "never", ScheduleSettings { missed: Missed::Skip, ..ScheduleSettings::every("10m") }).await;
    w.pass(HOUR + MINUTE);
    pause(w, "once").await;
    pause(w, "never").await;
    w.restart().await;
    w.pass(20 * MINUTE);
    resume(w, "once").await;
    resume(w, "never").await;
    for (schedule, run, missed) in [("once", vec![ten(5)], 5u64), ("never", vec![], 6)] {
        let lines = ledger(w, schedule).await;
        let skips: Vec<_> = lines.iter().filter_map(skipped).collect();
        let wanted = [(ten(0), SkipReason::Missed, Some(missed)), (ten(6), SkipReason::Paused, Some(2))];
        assert_eq!(skips, wanted, "{schedule}");
        let planned: Vec<_> = lines.iter().filter_map(fired).map(|(at, _)| at).collect();
        assert_eq!(planned, run, "{schedule}");
        assert_eq!(view(w, schedule).await.next, Some(ten(8)), "{schedule}");
    }
    assert_eq!(w.claim(10).await.jobs.len(), 1);
}

/// In time when the schedule was paused and long past when it is resumed, a tick is one that was missed.
pub async fn a_tick_that_a_pause_kept_back_is_as_late_as_the_resume(w: &mut World) {
    let nightly = |missed| ScheduleSettings { missed, ..ScheduleSettings::cron("0 3 * * *", "UTC") };
    put(w, "never", nightly(Missed::Skip)).await;
    put(w, "once", nightly(Missed::RunOnce)).await;
    let three = START.plus_ms(2_800_000);
    w.now = three.plus_ms(40_000);
    pause(w, "never").await;
    pause(w, "once").await;
    w.restart().await;
    w.pass(3 * DAY);
    resume(w, "never").await;
    resume(w, "once").await;
    let paused = (three.plus_ms(DAY), SkipReason::Paused, Some(3));
    assert_eq!(skips(w, "never").await, [(three, SkipReason::Missed, Some(1)), paused]);
    assert!(fires(w, "never").await.is_empty());
    assert_eq!(skips(w, "once").await, [paused]);
    assert_eq!(fires(w, "once").await, [three], "the newest of those that were missed");
    w.finish(&w.claim_one().await).await;
    // Three of them, all in time when they were kept back.
    let often = ScheduleSettings { overlap: Overlap::Allow, ..ScheduleSettings::every("10s") };
    let begun = w.now;
    put(w, "often", often).await;
    w.pass(35_000);
    pause(w, "often").await;
    w.pass(HOUR);
    resume(w, "often").await;
    assert_eq!(fires(w, "often").await, [begun.plus_ms(30_000)]);
    let missed = (begun.plus_ms(10_000), SkipReason::Missed, Some(2));
    let paused = (begun.plus_ms(40_000), SkipReason::Paused, Some(360));
    assert_eq!(skips(w, "often").await, [missed, paused]);
    assert_eq!(w.claim(10).await.jobs.len(), 1);
}

/// A paused schedule gets other times: what was missed before the pause and what came in it have their lines, and nothing runs.
pub async fn other_times_of_a_paused_schedule_leave_no_tick_without_a_line(w: &mut World) {
    put(w, "s", ScheduleSettings::every("10m")).await;
    // 02:20 to 03:10 pass while nobody is there, 03:20 and 03:30 during the pause.
    w.pass(HOUR + MINUTE);
    pause(w, "s").await;
    w.pass(20 * MINUTE);
    assert_eq!(put(w, "s", ScheduleSettings::every("15m")).await, ScheduleChange::Changed);
    w.restart().await;
    let edited = (ten(0), SkipReason::Edited, Some(6));
    let first = (ten(6), SkipReason::Paused, Some(2));
    assert_eq!(skips(w, "s").await, [edited, first]);
    assert!(view(w, "s").await.paused.is_some(), "it stays paused");
    // The new times come at 03:45 and at 04:00.
    w.pass(30 * MINUTE);
    resume(w, "s").await;
    let second = (ten(0).plus_ms(85 * MINUTE), SkipReason::Paused, Some(2));
    assert_eq!(skips(w, "s").await, [edited, first, second]);
    assert!(fires(w, "s").await.is_empty());
    assert!(w.claim(10).await.jobs.is_empty());
    assert_eq!(view(w, "s").await.next, Some(ten(0).plus_ms(115 * MINUTE)));
}
