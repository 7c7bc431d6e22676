//! The gates that callers go through, and what they promise.

use tidegate_core::gates::config::{
    Breaker, LineSettings, Lock, Quota, QuotaCost, Reported, Slots, Smooth, Window,
};
use tidegate_core::gates::{Gate, GateSet, Kind, Part, Span, Unit};

/// Domains, in the order of their numbers.
pub const DOMAINS: [&str; 5] = ["shop", "flaky", "outage", "slots", "budget"];
/// How long after its admission a call may start, in microseconds.
pub const USE_BY: i64 = 50_000;
/// Quarantine of `shop`.
pub const QUARANTINE: i64 = 200_000;

/// `shop`: so many at a time,
pub const SLOTS: i64 = 12;
/// so many calls in every window
pub const WINDOW: (i64, i64) = (60, 500_000);
/// so much cost a second (milli points), and at once,
pub const SMOOTH: (i64, i64) = (200_000, 40_000);
/// the same for the provider's bucket,
pub const BUCKET: (i64, i64) = (220_000, 100_000);
/// and for each tenant so many at a time, and so much cost in every window.
pub const QUOTA: (i64, i64, i64) = (4, 80_000, 1_000_000);
/// `flaky`: failures that open the breaker, and probes.
pub const BREAKER: (usize, i64) = (5, 2);
/// `outage`: calls in every second, and at a time.
pub const OUTAGE: (i64, i64) = (200, 40);
/// `slots`: at a time.
pub const USED_SLOTS: i64 = 20;
/// `budget`: calls a second, and at once.
pub const BUDGET: (i64, i64) = (300, 20);

fn points(milli: i64) -> f64 {
    milli as f64 / 1_000.0
}

fn slots(limit: i64) -> Gate {
    let poll = Span::millis(200);
    Gate::new("slots", Kind::Slots(Slots { poll, ..Slots::of(limit as u32) }))
}

fn lock() -> Gate {
    let lock = Lock { poll: Span::millis(200) };
    Gate::new("lock", Kind::Lock(lock)).per(&[Part::Account]).only(&["bulk"])
}

fn window(max: i64, micros: i64) -> Gate {
    Gate::new("window", Kind::Window(Window { max, every: Span(micros), unit: Unit::Calls }))
}

/// The gates of a domain.
pub fn set(domain: usize) -> GateSet {
    let smooth = |rate, burst, unit| Kind::Smooth(Smooth { rate, every: Span::secs(1), burst, unit });
    let gates = match DOMAINS[domain] {
        "shop" => vec![
            slots(SLOTS),
            window(WINDOW.0, WINDOW.1),
            Gate::new("smooth", smooth(SMOOTH.0 / 1_000, SMOOTH.1 / 1_000, Unit::Cost)),
            Gate::new(
                "bucket",
                Kind::Reported(Reported {
                    capacity: points(BUCKET.1),
                    restore_per_s: points(BUCKET.0),
                    known: true,
                }),
            ),
            Gate::new(
                "quota",
                Kind::Quota(Quota {
                    slots: Some(QUOTA.0 as u32),
                    cost: Some(QuotaCost { max: points(QUOTA.1), every: Span(QUOTA.2) }),
                    hoarding: 100,
                }),
            )
            .per(&[Part::Tenant]),
            lock(),
        ],
        "flaky" => {
            let breaker = Breaker {
                failures: BREAKER.0 as u32,
                open: Span::millis(100),
                probes: BREAKER.1 as u32,
                ramp: Span(0),
                ..Breaker::default()
            };
            vec![Gate::new("breaker", Kind::Breaker(breaker)).per(&[Part::Subject])]
        }
        "outage" => vec![window(OUTAGE.0, 1_000_000), slots(OUTAGE.1), lock()],
        "slots" => vec![slots(USED_SLOTS)],
        _ => vec![Gate::new("rate", smooth(BUDGET.0, BUDGET.1, Unit::Calls))],
    };
    let quarantine = if domain == 0 { Span(QUARANTINE) } else { Span(0) };
    // The place of a dead waiter ends within poll and grace: less than the shortest lease that is asked for here.
    let line = LineSettings { grace: Span::millis(150), ..LineSettings::default() };
    GateSet { quarantine, line, ..GateSet::of(gates) }
}
