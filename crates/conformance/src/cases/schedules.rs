//! Schedules: every tick is fired once, or skipped with a reason.

use tidegate_core::codes::{self, Code};
use tidegate_core::failure::Category;
use tidegate_core::ids::{JobId, ScheduleName, Seq};
use tidegate_core::job::State;
use tidegate_core::limits;
use tidegate_core::registry::{Document, Format};
use tidegate_core::schedule::{
    Decided, Missed, Overlap, ScheduleSettings, ScheduleSpec, SkipReason, TickEntry,
};
use tidegate_core::schema::Schema;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{
    Apply, Claim, ClaimedJob, Erase, NewJob, Outcome, PutSchedule, Recover, Recovered, ScheduleChange,
    ScheduleView, TickQuery, Wanted,
};

use crate::kit::{START, World, json, kind, tenant};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

fn refused<T: std::fmt::Debug>(reply: tidegate_store::Result<T>, code: Code) {
    assert_eq!(crate::kit::refused(reply), code);
}

pub(super) fn name(text: &str) -> ScheduleName {
    ScheduleName::new(text).expect("a name")
}

pub(super) async fn put(w: &World, schedule: &str, settings: ScheduleSettings) -> ScheduleChange {
    let spec = ScheduleSpec { kind: kind("k"), settings };
    let put = PutSchedule { name: name(schedule), spec, now: w.now };
    w.store().put_schedule(put).await.expect("the schedule is accepted")
}

pub(super) async fn view(w: &World, schedule: &str) -> ScheduleView {
    w.store().schedule(name(schedule)).await.expect("it is answered").expect("it is there")
}

/// The ledger, oldest first.
pub(super) async fn ledger(w: &World, schedule: &str) -> Vec<TickEntry> {
    let query = TickQuery { name: name(schedule), before: None, limit: 1_000 };
    let mut lines = w.store().schedule_ticks(query).await.expect("it is answered");
    lines.reverse();
    lines
}

/// Time passes, and somebody looks.
pub(super) async fn pass(w: &mut World, ms: i64) {
    w.pass(ms);
    w.store().advance(w.now).await.expect("upkeep is possible");
}

/// Claims what there is, and holds it for an hour.
async fn hold(w: &World) -> Vec<ClaimedJob> {
    let claim = Claim { lease_ms: HOUR, ..w.claim_on(&["q"], 10) };
    w.claim_with(claim).await.jobs
}

async fn hold_one(w: &World) -> ClaimedJob {
    let mut jobs = hold(w).await;
    assert_eq!(jobs.len(), 1);
    jobs.pop().expect("there is one")
}

pub(super) fn fired(entry: &TickEntry) -> Option<(Timestamp, JobId)> {
    match &entry.what {
        Decided::Fired { job, .. } => Some((entry.planned, *job)),
        Decided::Skipped { .. } => None,
    }
}

pub(super) fn skipped(entry: &TickEntry) -> Option<(Timestamp, SkipReason, Option<u64>)> {
    match &entry.what {
        Decided::Fired { .. } => None,
        Decided::Skipped { reason, count, .. } => Some((entry.planned, *reason, *count)),
    }
}

/// The next full minute after the beginning: it is 02:13:20.
const FIRST: Timestamp = Timestamp(START.0 + 40_000);

fn minute(n: i64) -> Timestamp {
    FIRST.plus_ms(n * MINUTE)
}

pub async fn a_tick_is_fired_once_when_its_time_has_come(w: &mut World) {
    assert_eq!(put(w, "s", ScheduleSettings::cron("* * * * *", "UTC")).await, ScheduleChange::Created);
    assert_eq!(view(w, "s").await.next, Some(FIRST));
    pass(w, 39_999).await;
    assert!(ledger(w, "s").await.is_empty(), "a moment too early");
    pass(w, 1).await;
    pass(w, 0).await;
    w.restart().await;
    pass(w, 5_000).await;
    let lines = ledger(w, "s").await;
    assert_eq!(lines.len(), 1);
    let (planned, job) = fired(&lines[0]).expect("it was fired");
    assert_eq!((planned, lines[0].at, lines[0].no), (FIRST, FIRST, 0));
    assert_eq!(view(w, "s").await.next, Some(minute(1)));
    let claimed = w.claim(10).await;
    assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [job]);
    assert_eq!(claimed.jobs[0].payload.as_str(), "{}");
    let run = claimed.jobs[0].schedule.clone().expect("it says what it is a run of");
    assert_eq!((run.schedule.as_str(), run.planned), ("s", FIRST));
    assert_eq!(w.get(job).await.schedule, Some(run));
    w.pass(1_000);
    w.finish(&claimed.jobs[0]).await;
    let Decided::Fired { late_ms: 0, by_hand: false, ended: Some(ended), .. } =
        ledger(w, "s").await[0].what.clone()
    else {
        panic!("{:?}", ledger(w, "s").await);
    };
    assert_eq!((ended.state, ended.at), (State::Completed, w.now));
    assert_eq!(view(w, "s").await.completed, Some(FIRST));
}

pub async fn a_claim_fires_what_is_due(w: &mut World) {
    put(w, "s", ScheduleSettings::every("1m")).await;
    w.pass(40_000);
    let job = w.claim_one().await;
    assert_eq!(fired(&ledger(w, "s").await[0]).map(|(_, id)| id), Some(job.id));
}

pub async fn the_store_says_when_the_next_tick_comes(w: &mut World) {
    let next = |w: &World| {
        let (store, now) = (w.store(), w.now);
        async move { store.advance(now).await.expect("upkeep is possible").next_wakeup }
    };
    assert_eq!(next(w).await, None);
    put(w, "s", ScheduleSettings { jitter: Some("30s".into()), ..ScheduleSettings::every("1h") }).await;
    let at = next(w).await.expect("there is something to wake up for");
    let planned = view(w, "s").await.next.expect("there is a next tick");
    assert!((0..30_000).contains(&at.since(planned)), "{at} for {planned}");
    w.store().pause_schedule(name("s"), "me".into(), w.now).await.expect("it can be paused");
    assert_eq!(next(w).await, None, "a paused schedule costs nothing");
}

pub async fn a_tick_during_a_run_is_skipped_unless_asked_otherwise(w: &mut World) {
    put(w, "s", ScheduleSettings::every("1m")).await;
    pass(w, 40_000).await;
    pass(w, MINUTE).await;
    let running = hold_one(w).await;
    pass(w, MINUTE).await;
    assert!(w.claim(10).await.jobs.is_empty());
    w.finish(&running).await;
    pass(w, MINUTE).await;
    let lines = ledger(w, "s").await;
    assert_eq!(lines.len(), 4);
    assert_eq!(skipped(&lines[1]), Some((minute(1), SkipReason::Overlap, Some(1))), "it waited");
    assert_eq!(skipped(&lines[2]), Some((minute(2), SkipReason::Overlap, Some(1))), "it ran");
    assert!(fired(&lines[3]).is_some());
    let Decided::Skipped { note, .. } = &lines[2].what else { panic!() };
    assert!(note.contains(&running.id.to_string()), "{note}");
}

pub async fn a_tick_during_a_run_can_wait_for_its_end(w: &mut World) {
    put(w, "s", ScheduleSettings { overlap: Overlap::Queue, ..ScheduleSettings::every("1m") }).await;
    pass(w, 40_000).await;
    let first = hold_one(w).await;
    pass(w, MINUTE).await;
    pass(w, MINUTE).await;
    assert!(w.claim(10).await.jobs.is_empty());
    assert_eq!(view(w, "s").await.waiting.len(), 2);
    w.restart().await;
    w.finish(&first).await;
    // In the same commit, one of those that wait.
    let second = w.claim(10).await;
    assert_eq!(second.jobs.len(), 1);
    w.fail(&second.jobs[0], Category::InvalidInput).await;
    let third = w.claim_one().await;
    w.finish(&third).await;
    assert!(w.claim(10).await.jobs.is_empty());
    let planned: Vec<_> = ledger(w, "s").await.iter().filter_map(fired).map(|(at, _)| at).collect();
    assert_eq!(planned, [minute(0), minute(1), minute(2)]);
}

pub async fn runs_can_overlap_up_to_a_bound(w: &mut World) {
    put(w, "s", ScheduleSettings { overlap: Overlap::Allow, ..ScheduleSettings::every("1s") }).await;
    for _ in 0..limits::MAX_OPEN_RUNS + 3 {
        pass(w, 1_000).await;
    }
    let lines = ledger(w, "s").await;
    assert_eq!(lines.iter().filter_map(fired).count(), limits::MAX_OPEN_RUNS);
    let full: Vec<_> = lines.iter().filter_map(skipped).map(|(_, reason, _)| reason).collect();
    assert_eq!(full, [SkipReason::Full; 3]);
    assert_eq!(w.claim(1_000).await.jobs.len(), limits::MAX_OPEN_RUNS);
}

pub async fn missed_ticks_are_made_up_for_as_asked(w: &mut World) {
    let allow =
        |missed| ScheduleSettings { overlap: Overlap::Allow, missed, ..ScheduleSettings::every("10m") };
    put(w, "skip", allow(Missed::Skip)).await;
    put(w, "once", allow(Missed::RunOnce)).await;
    put(w, "all", allow(Missed::RunAll(3))).await;
    // 02:13:20 and a bit more than an hour: 02:20 to 03:10 have passed, the last one four minutes ago.
    w.restart().await;
    pass(w, HOUR + MINUTE).await;
    let ten = |n: i64| Timestamp(START.0 + 400_000 + n * 10 * MINUTE);
    for (schedule, run, count) in [("skip", vec![], 6), ("once", vec![5], 5), ("all", vec![3, 4, 5], 3)] {
        let lines = ledger(w, schedule).await;
        assert_eq!(skipped(&lines[0]), Some((ten(0), SkipReason::Missed, Some(count))), "{schedule}");
        let planned: Vec<_> = lines.iter().filter_map(fired).map(|(at, _)| at).collect();
        assert_eq!(planned, run.into_iter().map(ten).collect::<Vec<_>>(), "{schedule}");
        assert_eq!(view(w, schedule).await.next, Some(ten(6)));
    }
}

pub async fn runs_that_are_made_up_for_come_one_after_the_other(w: &mut World) {
    put(w, "s", ScheduleSettings { missed: Missed::RunAll(3), ..ScheduleSettings::every("10m") }).await;
    pass(w, HOUR + MINUTE).await;
    for left in [2, 1, 0] {
        let job = w.claim(10).await.jobs.pop().expect("one at a time");
        assert_eq!(view(w, "s").await.waiting.len(), left);
        w.finish(&job).await;
    }
    assert!(w.claim(10).await.jobs.is_empty());
}

pub async fn a_clock_that_steps_fires_nothing_twice(w: &mut World) {
    let settings = ScheduleSettings {
        overlap: Overlap::Allow,
        missed: Missed::RunAll(100),
        ..ScheduleSettings::every("10m")
    };
    put(w, "s", settings).await;
    let honest = w.now;
    pass(w, HOUR).await;
    for step in [-HOUR, HOUR, -HOUR, 2 * HOUR, -2 * HOUR] {
        pass(w, step).await;
        w.restart().await;
        pass(w, MINUTE).await;
        pass(w, -MINUTE).await;
    }
    w.now = honest;
    pass(w, 3 * HOUR).await;
    let lines = ledger(w, "s").await;
    let planned: Vec<_> = lines.iter().filter_map(fired).map(|(at, _)| at).collect();
    let all: Vec<_> = (0..18).map(|n| Timestamp(START.0 + 400_000 + n * 10 * MINUTE)).collect();
    assert_eq!(planned, all);
    assert_eq!(lines.len(), all.len(), "and nothing is skipped");
}

pub async fn a_schedule_waits_for_others_of_the_same_day(w: &mut World) {
    // Days of Sao Paulo begin at 03:00 here.
    let zone = "America/Sao_Paulo";
    put(w, "aggregate", ScheduleSettings::cron("0 1 * * *", zone)).await;
    let after = vec![name("aggregate")];
    put(w, "graph", ScheduleSettings { after: after.clone(), ..ScheduleSettings::cron("15 4 * * *", zone) })
        .await;
    put(w, "weekly", ScheduleSettings { after, ..ScheduleSettings::cron("0 0 * * 0", zone) }).await;
    // It is 23:13:20 there; at 01:00 and at 04:15 they are due.
    pass(w, 5 * HOUR + 5 * MINUTE).await;
    let first = w.claim(10).await;
    assert_eq!(first.jobs.len(), 1, "the graph waits");
    assert_eq!(view(w, "graph").await.waiting.len(), 1);
    w.restart().await;
    w.pass(1_000);
    w.finish(&first.jobs[0]).await;
    let graph = w.claim_one().await;
    assert_eq!(fired(&ledger(w, "graph").await[0]).map(|(_, job)| job), Some(graph.id));
    w.finish(&graph).await;
    // The next day, all is done before.
    pass(w, 21 * HOUR).await;
    let second = w.claim_one().await;
    w.finish(&second).await;
    pass(w, 3 * HOUR + 20 * MINUTE).await;
    assert_eq!(w.claim(10).await.jobs.len(), 1);
}

pub async fn a_day_that_ends_without_the_other_is_skipped(w: &mut World) {
    put(w, "first", ScheduleSettings { missed: Missed::Skip, ..ScheduleSettings::cron("0 4 * * *", "UTC") })
        .await;
    let after = vec![name("first")];
    put(w, "second", ScheduleSettings { after, ..ScheduleSettings::cron("0 5 * * *", "UTC") }).await;
    // It is four, and then five.
    pass(w, 2 * HOUR - 800_000).await;
    let job = w.claim_one().await;
    w.fail(&job, Category::InvalidInput).await;
    pass(w, HOUR).await;
    assert_eq!(view(w, "second").await.waiting.len(), 1);
    let midnight = START.plus_ms(DAY - 2 * HOUR - 13 * MINUTE - 20_000);
    let wakes = w.store().advance(w.now).await.expect("upkeep is possible").next_wakeup;
    assert_eq!(wakes, Some(midnight), "the end of the day is waited for");
    w.now = midnight;
    pass(w, 0).await;
    let lines = ledger(w, "second").await;
    assert_eq!(skipped(&lines[0]).map(|(_, reason, _)| reason), Some(SkipReason::After));
    let Decided::Skipped { note, .. } = &lines[0].what else { panic!() };
    assert!(note.contains("`first`"), "{note}");
}

pub async fn a_recovered_run_counts_for_those_who_wait(w: &mut World) {
    put(w, "first", ScheduleSettings::cron("0 4 * * *", "UTC")).await;
    let after = vec![name("first")];
    put(w, "second", ScheduleSettings { after, ..ScheduleSettings::cron("0 5 * * *", "UTC") }).await;
    pass(w, 2 * HOUR).await;
    let dead = w.claim_one().await;
    w.fail(&dead, Category::InvalidInput).await;
    pass(w, HOUR).await;
    let new_id = w.id();
    let recovered =
        w.store().recover(vec![Recover { dead: dead.id, new_id }], w.now).await.expect("it is answered");
    assert!(matches!(recovered[..], [Recovered::As(_)]));
    let again = w.claim_one().await;
    w.finish(&again).await;
    assert_eq!(w.claim(10).await.jobs.len(), 1, "the second one runs");
    assert!(fired(&ledger(w, "second").await[0]).is_some());
}

pub async fn other_times_begin_when_they_are_set(w: &mut World) {
    put(w, "s", ScheduleSettings::every("10m")).await;
    pass(w, HOUR).await;
    let job = w.claim_one().await;
    w.finish(&job).await;
    let before = view(w, "s").await;
    // The same again, or the same times: it goes on where it was.
    assert_eq!(put(w, "s", ScheduleSettings::every("10m")).await, ScheduleChange::Unchanged);
    let other = ScheduleSettings { overlap: Overlap::Allow, ..ScheduleSettings::every("10m") };
    w.pass(2 * HOUR);
    assert_eq!(put(w, "s", other).await, ScheduleChange::Changed);
    assert_eq!(view(w, "s").await.decided_until, before.decided_until);
    pass(w, 0).await;
    let now = w.now;
    w.pass(HOUR);
    assert_eq!(put(w, "s", ScheduleSettings::every("15m")).await, ScheduleChange::Changed);
    let view = view(w, "s").await;
    assert!(view.next > Some(now.plus_ms(HOUR)), "what would have been is not owed");
    let edited: Vec<_> =
        ledger(w, "s").await.iter().filter_map(skipped).filter(|s| s.1 == SkipReason::Edited).collect();
    assert_eq!(edited.len(), 1, "what had passed under the old times is accounted for");
    assert_eq!(edited[0].2, Some(6));
}

pub async fn a_schedule_can_be_run_by_hand(w: &mut World) {
    put(
        w,
        "s",
        ScheduleSettings { payload: Some(serde_json::json!({"a": 1})), ..ScheduleSettings::every("1d") },
    )
    .await;
    let next = view(w, "s").await.next;
    let job = w.store().run_schedule(name("s"), w.now).await.expect("it runs");
    refused(w.store().run_schedule(name("s"), w.now).await, codes::WRONG_SCHEDULE_STATE);
    let claimed = w.claim_one().await;
    assert_eq!((claimed.id, claimed.payload.as_str()), (job, r#"{"a":1}"#));
    w.finish(&claimed).await;
    let again = w.store().run_schedule(name("s"), w.now).await.expect("it runs again");
    assert_ne!(again, job);
    assert_eq!(view(w, "s").await.next, next, "its own times stay");
    assert!(
        ledger(w, "s").await.iter().all(|line| matches!(line.what, Decided::Fired { by_hand: true, .. }))
    );
}

pub async fn runs_by_hand_are_bounded(w: &mut World) {
    put(w, "s", ScheduleSettings { overlap: Overlap::Allow, ..ScheduleSettings::every("1d") }).await;
    for _ in 0..limits::MAX_OPEN_RUNS {
        w.store().run_schedule(name("s"), w.now).await.expect("it runs");
    }
    refused(w.store().run_schedule(name("s"), w.now).await, codes::WRONG_SCHEDULE_STATE);
    let job = w.claim(1).await.jobs.pop().expect("there is one");
    w.finish(&job).await;
    w.store().run_schedule(name("s"), w.now).await.expect("there is room again");
}

pub async fn a_cancelled_run_is_over(w: &mut World) {
    put(w, "s", ScheduleSettings::every("1d")).await;
    let first = w.store().run_schedule(name("s"), w.now).await.expect("it runs");
    w.cancel(first).await;
    w.store().run_schedule(name("s"), w.now).await.expect("the first is over");
    w.restart().await;
    let running = w.claim_one().await;
    w.cancel(running.id).await;
    w.settle(running.ticket, Outcome::Cancel).await;
    w.store().run_schedule(name("s"), w.now).await.expect("the second is over");
    let ended: Vec<_> = ledger(w, "s")
        .await
        .into_iter()
        .map(|line| match line.what {
            Decided::Fired { ended, .. } => ended.map(|ended| ended.state),
            Decided::Skipped { .. } => panic!("nothing was skipped"),
        })
        .collect();
    assert_eq!(ended, [Some(State::Cancelled), Some(State::Cancelled), None]);
}

pub async fn erasing_a_tenant_takes_its_schedules(w: &mut World) {
    put(w, "theirs", ScheduleSettings { tenant: Some(tenant("acme")), ..ScheduleSettings::every("1m") })
        .await;
    put(w, "ours", ScheduleSettings { after: vec![name("theirs")], ..ScheduleSettings::every("1m") }).await;
    w.store().run_schedule(name("theirs"), w.now).await.expect("it runs");
    let erase = Erase { tenant: tenant("acme"), after: Seq(0), scan: 100, now: w.now };
    w.store().erase(erase).await.expect("it can be erased");
    w.restart().await;
    assert_eq!(w.store().schedule(name("theirs")).await.ok(), Some(None));
    pass(w, MINUTE).await;
    assert_eq!(w.claim(10).await.jobs.len(), 1, "what waited for it waits no longer");
}

pub async fn a_tick_that_waits_for_an_erased_schedule_waits_no_longer(w: &mut World) {
    put(
        w,
        "theirs",
        ScheduleSettings { tenant: Some(tenant("acme")), ..ScheduleSettings::cron("0 3 * * *", "UTC") },
    )
    .await;
    put(
        w,
        "ours",
        ScheduleSettings { after: vec![name("theirs")], ..ScheduleSettings::cron("0 4 * * *", "UTC") },
    )
    .await;
    pass(w, 2 * HOUR).await;
    assert_eq!(view(w, "ours").await.waiting.len(), 1);
    let erase = Erase { tenant: tenant("acme"), after: Seq(0), scan: 100, now: w.now };
    w.store().erase(erase).await.expect("it can be erased");
    assert!(view(w, "ours").await.waiting.is_empty());
    assert_eq!(w.claim(10).await.jobs.len(), 1, "it runs in the commit that erased the other");
}

pub async fn a_ledger_is_bounded_and_comes_in_pages(w: &mut World) {
    put(w, "s", ScheduleSettings::every("1s")).await;
    let kept = limits::MAX_TICKS_KEPT as usize;
    for _ in 0..kept + 50 {
        pass(w, 1_000).await;
    }
    let page = |before: Option<u64>, limit: usize| {
        let store = w.store();
        async move {
            let query = TickQuery { name: name("s"), before, limit };
            let lines = store.schedule_ticks(query).await.expect("it is answered");
            lines.into_iter().map(|line| line.no).collect::<Vec<_>>()
        }
    };
    let last = kept as u64 + 49;
    assert_eq!(page(None, 3).await, [last, last - 1, last - 2]);
    assert_eq!(page(Some(last - 2), 2).await, [last - 3, last - 4]);
    assert_eq!(page(None, 5_000).await.len(), kept);
    assert_eq!(page(Some(52), 10).await, [51, 50], "the oldest are gone");
}

pub async fn a_deleted_schedule_leaves_its_jobs(w: &mut World) {
    put(w, "s", ScheduleSettings::every("1m")).await;
    pass(w, 40_000).await;
    assert_eq!(w.store().delete_schedule(name("s"), w.now).await.ok(), Some(true));
    assert_eq!(w.store().delete_schedule(name("s"), w.now).await.ok(), Some(false));
    let query = TickQuery { name: name("s"), before: None, limit: 10 };
    refused(w.store().schedule_ticks(query).await, codes::SCHEDULE_NOT_FOUND);
    refused(w.store().run_schedule(name("s"), w.now).await, codes::SCHEDULE_NOT_FOUND);
    let job = w.claim_one().await;
    w.finish(&job).await;
    // The same name again is another schedule.
    put(w, "s", ScheduleSettings::every("1m")).await;
    assert!(ledger(w, "s").await.is_empty());
    pass(w, 10 * MINUTE).await;
    w.restart().await;
    assert_eq!(w.store().schedules().await.expect("it is answered").len(), 1);
}

pub async fn a_schedule_that_cannot_work_is_refused(w: &mut World) {
    let put = |of: &str, schedule: &str, settings: ScheduleSettings| {
        let spec = ScheduleSpec { kind: kind(of), settings };
        let (store, put) = (w.store(), PutSchedule { name: name(schedule), spec, now: w.now });
        async move { store.put_schedule(put).await }
    };
    refused(put("k", "s", ScheduleSettings::cron("0 0 * * 9", "UTC")).await, codes::INVALID_SCHEDULE);
    refused(put("k", "s", ScheduleSettings::cron("@daily", "Mars/Base")).await, codes::INVALID_SCHEDULE);
    refused(put("nobody", "s", ScheduleSettings::every("1m")).await, codes::UNKNOWN_KIND);
    let after = |other: &str| ScheduleSettings { after: vec![name(other)], ..ScheduleSettings::every("1m") };
    refused(put("k", "s", after("nobody")).await, codes::INVALID_SCHEDULE);
    assert!(put("k", "a", ScheduleSettings::every("1m")).await.is_ok());
    refused(put("k", "a", after("a")).await, codes::INVALID_SCHEDULE);
    assert!(put("k", "b", after("a")).await.is_ok());
    refused(put("k", "a", after("b")).await, codes::INVALID_SCHEDULE);
    refused(w.store().delete_schedule(name("a"), w.now).await, codes::WRONG_SCHEDULE_STATE);
    refused(w.store().pause_schedule(name("zz"), "me".into(), w.now).await, codes::SCHEDULE_NOT_FOUND);
    assert_eq!(w.store().schedule(name("s")).await.ok(), Some(None));
}

/// What every run would be refused for refuses the schedule; what its kind fills in need not be said.
pub async fn a_payload_that_does_not_fit_its_kind_refuses_the_schedule(w: &mut World) {
    let schema = serde_json::json!({
        "type": "object",
        "required": ["order"],
        "properties": {
            "order": {"type": "integer"},
            "copies": {"type": "integer", "default": 1},
            "pin": {"type": "integer", "x-secret": true}
        }
    });
    w.kind("invoice", "q", |k| k.schema = Schema::compile(&schema).ok()).await;
    let job = NewJob::new(w.id(), kind("invoice"), json("{}"));
    let put = |every: &str, payload: Option<serde_json::Value>| {
        let settings = ScheduleSettings { payload, ..ScheduleSettings::every(every) };
        let spec = ScheduleSpec { kind: kind("invoice"), settings };
        let (store, put) = (w.store(), PutSchedule { name: name("s"), spec, now: w.now });
        async move { store.put_schedule(put).await }
    };
    let enqueued = w.store().enqueue(vec![job], w.now).await.expect_err("the job does not fit");
    let error = put("10m", None).await.expect_err("nor does the schedule");
    assert_eq!((error.code, enqueued.code), (codes::INVALID_PAYLOAD, codes::INVALID_PAYLOAD));
    assert!(enqueued.detail.starts_with(&error.detail), "{enqueued} and {error}");
    assert!(error.detail.starts_with("the payload does not fit kind `invoice`: "), "{error}");
    refused(put("10m", Some(serde_json::json!({"order": "1"}))).await, codes::INVALID_PAYLOAD);
    assert_eq!(w.store().schedule(name("s")).await.ok(), Some(None));
    let whole = serde_json::json!({"order": 1, "pin": 4711});
    assert_eq!(put("10m", Some(whole)).await.ok(), Some(ScheduleChange::Created));
    // With its secret as it is shown, which would not fit.
    let shown = view(w, "s").await.settings.payload;
    assert_eq!(shown, Some(serde_json::json!({"order": 1, "pin": "***"})));
    assert_eq!(put("20m", shown).await.ok(), Some(ScheduleChange::Changed));
    let unfit = serde_json::json!({"order": null, "pin": "***"});
    refused(put("20m", Some(unfit)).await, codes::INVALID_PAYLOAD);
    pass(w, 400_000).await;
    let payload: serde_json::Value =
        serde_json::from_str(w.claim_one().await.payload.as_str()).expect("it is JSON");
    assert_eq!(payload, serde_json::json!({"order": 1, "pin": 4711, "copies": 1}));
}

/// Whoever takes the name of a retired schedule begins anew, not paused; the ledger goes on.
pub async fn a_schedule_in_the_place_of_a_retired_one_begins_anew(w: &mut World) {
    let apply = async |w: &World, text: &str| {
        let document = Document::parse(text, Format::Toml).unwrap_or_else(|problems| panic!("{problems:?}"));
        let wanted = Wanted::Document(Box::new(document));
        let source = "registry.toml".into();
        let apply = Apply { wanted, by: "ann".into(), source, dry_run: false, now: w.now };
        w.store().apply(apply).await.expect("the document is accepted");
    };
    let idle = "[queues.q]\n[kinds.nightly]\nqueue = \"q\"\n";
    apply(w, &format!("{idle}schedule = {{ every = \"10m\", payload = {{ a = 1 }} }}\n")).await;
    pass(w, 400_000).await;
    w.finish(&w.claim_one().await).await;
    w.store().pause_schedule(name("nightly"), "ana".into(), w.now).await.expect("it can be paused");
    apply(w, idle).await;
    w.pass(HOUR);
    assert_eq!(put(w, "nightly", ScheduleSettings::every("1h")).await, ScheduleChange::Created);
    w.restart().await;
    let there = view(w, "nightly").await;
    assert_eq!((there.paused, there.retired, there.document), (None, None, None));
    assert_eq!((there.settings, there.kind), (ScheduleSettings::every("1h"), kind("k")));
    assert!(there.created_at > START.plus_ms(HOUR), "{}", there.created_at);
    assert_eq!(ledger(w, "nightly").await.len(), 1, "its ledger stays");
    // It was 03:20; at four it runs.
    pass(w, 40 * MINUTE).await;
    let lines = ledger(w, "nightly").await;
    assert_eq!((lines.len(), lines[1].no, lines[1].planned), (2, 1, w.now));
    assert_eq!(w.claim_one().await.payload.as_str(), "{}");
}

pub async fn many_schedules_that_are_due_together_are_all_fired(w: &mut World) {
    let n = 60;
    for i in 0..n {
        put(w, &format!("s{i}"), ScheduleSettings::every("1m")).await;
    }
    pass(w, 40_000).await;
    assert_eq!(w.claim(1_000).await.jobs.len(), n);
    let times: Vec<_> = w.store().schedules().await.expect("it is answered").iter().map(|s| s.next).collect();
    assert_eq!(times, vec![Some(minute(1)); n]);
}

pub async fn a_single_time_comes_once(w: &mut World) {
    put(w, "s", ScheduleSettings::at("2025-11-13T00:00-03:00")).await;
    assert_eq!(view(w, "s").await.next, Some(Timestamp(1_763_002_800_000)));
    pass(w, HOUR).await;
    assert_eq!(view(w, "s").await.next, None);
    pass(w, DAY).await;
    assert_eq!(ledger(w, "s").await.iter().filter_map(fired).count(), 1);
}
