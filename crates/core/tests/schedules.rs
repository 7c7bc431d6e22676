//! Ticks of schedules against a walk over every minute, or every second, of a year. The walk knows nothing of how ticks are
//! found: it looks at what a zone's clock shows at each instant.

use std::collections::BTreeSet;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use tidegate_core::schedule::{Cron, ScheduleSettings, Tick, Zone};
use tidegate_core::time::Timestamp;

const ZONES: [&str; 5] =
    ["America/Sao_Paulo", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu"];

fn instant(text: &str) -> Timestamp {
    Timestamp(text.parse::<jiff::Timestamp>().expect("it is one").as_millisecond())
}

fn ticks(settings: &ScheduleSettings, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
    let times = settings.compile().expect("it is one").times;
    times.after(Tick::from(from)).map(|tick| tick.at).take_while(|at| *at <= to).collect()
}

/// What the documentation says, by looking at every step.
fn walk(cron: &str, zone: &str, from: Timestamp, to: Timestamp, step_ms: i64) -> Vec<Timestamp> {
    let (cron, zone) = (cron.parse::<Cron>().expect("it is one"), zone.parse::<Zone>().expect("it is one"));
    let zone: &TimeZone = zone.time_zone();
    let shown = |at: Timestamp| zone.to_datetime(jiff::Timestamp::from_millisecond(at.0).expect("it is one"));
    let step = jiff::SignedDuration::from_millis(step_ms);
    let mut seen: BTreeSet<DateTime> = BTreeSet::new();
    let mut found = vec![];
    let mut at = from;
    let mut before = shown(at);
    while at < to {
        at = at.plus_ms(step_ms);
        let now = shown(at);
        let mut named = cron.matches(now);
        if !cron.is_hourly() {
            // What the clock jumped over comes now; what it shows again has been.
            let mut missing = before.saturating_add(step);
            while missing < now {
                named |= cron.matches(missing) && !seen.contains(&missing);
                missing = missing.saturating_add(step);
            }
            if now < before.saturating_add(step) {
                seen.insert(before);
            }
            named &= !(cron.matches(now) && seen.contains(&now));
            seen.insert(now);
            // An overlap is no longer than a few hours.
            while seen.len() > 4 * 3_600 {
                seen.pop_first();
            }
        }
        if named {
            found.push(at);
        }
        before = now;
    }
    found
}

fn field(min: u32, max: u32) -> impl Strategy<Value = String> {
    let value = min..=max;
    let range = (min..=max, min..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    let step = (1..=(max - min)).prop_map(|n| format!("*/{n}"));
    let list = prop::collection::vec(min..=max, 1..4)
        .prop_map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    prop_oneof![
        3 => Just("*".to_owned()),
        4 => value.prop_map(|v| v.to_string()),
        1 => range,
        2 => step,
        1 => list,
    ]
}

fn expression() -> impl Strategy<Value = String> {
    (field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 7))
        .prop_map(|(m, h, d, mo, w)| format!("{m} {h} {d} {mo} {w}"))
}

fn years() -> impl Strategy<Value = i16> {
    // Sao Paulo had daylight saving time until 2019.
    prop_oneof![Just(2018), Just(2019), Just(2026), Just(2027)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    #[test]
    fn a_year_of_ticks_is_what_a_walk_over_its_minutes_finds(
        cron in expression(), zone in prop::sample::select(&ZONES[..]), year in years(),
    ) {
        let (from, to) = (instant(&format!("{year}-01-01T00:00:00Z")), instant(&format!("{}-01-01T00:00:00Z", year + 1)));
        let found = ticks(&ScheduleSettings::cron(&cron, zone), from, to);
        prop_assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "not ascending");
        prop_assert_eq!(found, walk(&cron, zone, from, to, 60_000), "{} in {}", cron, zone);
    }

    #[test]
    fn the_next_tick_does_not_depend_on_where_one_looks_from(
        cron in expression(), zone in prop::sample::select(&ZONES[..]), offsets in prop::collection::vec(0..31_000_000_000i64, 20),
    ) {
        let from = instant("2026-01-01T00:00:00Z");
        let times = ScheduleSettings::cron(&cron, zone).compile().expect("it is one").times;
        let all = ticks(&ScheduleSettings::cron(&cron, zone), from, instant("2028-01-01T00:00:00Z"));
        for offset in offsets {
            let at = from.plus_ms(offset);
            let next = times.next(Tick::from(at)).map(|tick| tick.at);
            prop_assert_eq!(all.iter().find(|tick| **tick > at).copied(), next.filter(|t| all.last() >= Some(t)));
        }
    }
}

#[test]
fn seconds_around_every_change_of_the_clock_are_what_a_walk_finds() {
    let changes = [
        ("America/New_York", "2026-03-08T07:00:00Z"),
        ("America/New_York", "2026-11-01T06:00:00Z"),
        ("Europe/Berlin", "2026-03-29T01:00:00Z"),
        ("Europe/Berlin", "2026-10-25T01:00:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
        ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
        ("America/Sao_Paulo", "2019-02-17T02:00:00Z"),
    ];
    for (zone, change) in changes {
        let (from, to) = (instant(change).plus_ms(-3 * 3_600_000), instant(change).plus_ms(3 * 3_600_000));
        for cron in
            ["*/7 * * * * *", "15 */10 1-3 * * *", "30 59 0,1,2,23 * * *", "0 0 0 * * *", "5 30 2 * * *"]
        {
            let found = ticks(&ScheduleSettings::cron(cron, zone), from, to);
            assert_eq!(found, walk(cron, zone, from, to, 1_000), "{cron} in {zone}");
        }
    }
}

fn on(cron: &str, zone: &str, from: &str, n: usize) -> Vec<String> {
    let times = ScheduleSettings::cron(cron, zone).compile().expect("it is one").times;
    times.after(Tick::from(instant(from))).take(n).map(|tick| tick.at.to_string()).collect()
}

#[test]
fn a_time_in_the_gap_comes_at_the_first_instant_after_it() {
    let found = on("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", 3);
    assert_eq!(found, ["2026-03-08T07:00:00.000Z", "2026-03-09T06:30:00.000Z", "2026-03-10T06:30:00.000Z"]);
    // Midnight itself is jumped over.
    let found = on("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", 2);
    assert_eq!(found, ["2018-11-04T03:00:00.000Z", "2018-11-05T02:00:00.000Z"]);
    // Half an hour, at Lord Howe.
    let found = on("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", 2);
    assert_eq!(found, ["2026-10-03T15:30:00.000Z", "2026-10-04T15:15:00.000Z"]);
    // All of them at once, and not again.
    let found = on("*/20 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 4);
    assert_eq!(
        found,
        [
            "2026-03-29T01:00:00.000Z",
            "2026-03-29T01:20:00.000Z",
            "2026-03-29T01:40:00.000Z",
            "2026-03-30T00:00:00.000Z"
        ]
    );
}

#[test]
fn a_time_that_comes_twice_is_taken_once() {
    let found = on("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", 2);
    assert_eq!(found, ["2026-11-01T05:30:00.000Z", "2026-11-02T06:30:00.000Z"]);
}

#[test]
fn a_schedule_of_every_hour_follows_the_hours_that_pass() {
    let found = on("30 * * * *", "America/New_York", "2026-11-01T04:00:00Z", 4);
    let halves = [
        "2026-11-01T04:30:00.000Z",
        "2026-11-01T05:30:00.000Z",
        "2026-11-01T06:30:00.000Z",
        "2026-11-01T07:30:00.000Z",
    ];
    assert_eq!(found, halves);
    let found = on("30 * * * *", "America/New_York", "2026-03-08T06:00:00Z", 2);
    assert_eq!(found, ["2026-03-08T06:30:00.000Z", "2026-03-08T07:30:00.000Z"]);
}

#[test]
fn an_interval_does_not_drift() {
    let anchored =
        ScheduleSettings { anchor: Some("2026-01-01T00:00:07Z".into()), ..ScheduleSettings::every("90s") };
    let (from, to) = (instant("2026-01-01T00:00:00Z"), instant("2026-02-01T00:00:00Z"));
    let found = ticks(&anchored, from, to);
    assert_eq!(found.len(), 29_760);
    for (n, at) in found.iter().enumerate() {
        assert_eq!(at.since(from), 7_000 + 90_000 * n as i64);
    }
    // Whatever the moment one asks from.
    let times = anchored.compile().expect("it is one").times;
    assert_eq!(times.next(Tick::from(found[100].plus_ms(-1))).expect("it is one").at, found[100]);
    assert_eq!(times.next(Tick::from(found[100])).expect("it is one").at, found[101]);
}

#[test]
fn new_rules_of_a_zone_do_not_bring_a_time_of_the_clock_again() {
    let times = ScheduleSettings::cron("0 9 * * *", "Europe/Berlin").compile().expect("it is one").times;
    // The cursor was left by rules under which the clock was an hour ahead: it showed nine at 06:00.
    let cursor = Tick {
        at: instant("2026-06-01T06:00:00Z"),
        wall: Some("2026-06-01T09:00".parse().expect("it is one")),
    };
    assert_eq!(times.next(cursor).expect("it is one").at, instant("2026-06-02T07:00:00Z"));
    assert_eq!(
        times.next(Tick::from(cursor.at)).expect("it is one").at,
        instant("2026-06-01T07:00:00Z"),
        "without the guard"
    );
}
