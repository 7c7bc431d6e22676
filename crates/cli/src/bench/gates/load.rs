//! Callers that ask and settle as fast as they can.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tidegate_core::gates::config::{Breaker, Reported, Slots, Smooth};
use tidegate_core::gates::{
    Admission, Call, End, Gate, GateSet, Holder, Kind, Outcome, Part, Permit, Points, Span, Target, Unit,
};
use tidegate_gates::{Backend, Gates as _, GatesError, InProcess, Note, RedisGates};
use tokio::task::JoinSet;

/// Gates of every admission.
pub(super) const GATES: usize = 4;
/// Slots of the gates: enough for a crowd.
const SLOTS: u32 = 2_000;
/// Callers that fill a line: gates that combine calls are not waited for one by one.
const FILLERS: u64 = 500;
/// Round trips are counted over this many admissions.
const COUNTED: u64 = 1_000;

/// Microseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Micros {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// What callers saw, in one run or in several.
pub(super) struct Measured {
    count: u64,
    took: Duration,
    /// How long decisions took.
    nanos: Vec<u64>,
}

impl Measured {
    pub(super) const fn new() -> Self {
        Self { count: 0, took: Duration::ZERO, nanos: Vec::new() }
    }

    /// Another run of the same load.
    pub(super) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.took += other.took;
        self.nanos.extend(other.nanos);
    }

    #[cfg(test)]
    pub(super) fn took(&self) -> Duration {
        self.took
    }

    /// Admissions per second.
    pub(super) fn per_s(&self) -> f64 {
        self.count as f64 / self.took.as_secs_f64()
    }

    /// From asking to the answer.
    pub(super) fn decision(&self) -> Micros {
        let mut nanos = self.nanos.clone();
        nanos.sort_unstable();
        let at =
            |share: f64| nanos.get((nanos.len() as f64 * share) as usize).map_or(0.0, |n| *n as f64 / 1e3);
        Micros { p50: at(0.5), p99: at(0.99) }
    }
}

/// Wide gates: everything passes, and all of them are asked.
fn set() -> GateSet {
    let rate = Smooth { rate: 10_000_000, every: Span::secs(1), burst: 1_000_000, unit: Unit::Calls };
    let bucket = Reported { capacity: 1_000_000.0, restore_per_s: 1_000_000.0, known: true };
    GateSet::of(vec![
        Gate::new("breaker", Kind::Breaker(Breaker::default())),
        Gate::new("rate", Kind::Smooth(rate)),
        Gate::new("points", Kind::Reported(bucket)),
        // Places last for longer than a line is used, see `turns.rs`.
        Gate::new("slots", Kind::Slots(Slots { poll: Span::secs(30), ..Slots::of(SLOTS) })),
    ])
}

/// Domains with gates, and callers.
pub(super) struct Load {
    gates: Arc<dyn Backend>,
    targets: Vec<Arc<Target>>,
    /// Holders are numbered, and never the same.
    holders: Arc<AtomicU64>,
}

/// A domain with these gates and without what an earlier run left behind.
pub(super) async fn fresh(gates: &dyn Backend, domain: &str, set: GateSet) -> Result<(), GatesError> {
    gates.configure(domain, set).await?;
    let note = Note { who: "tidegate bench".into(), why: "a run begins".into() };
    gates.clear(domain, false, note).await?;
    Ok(())
}

fn target(domain: &str) -> Result<Arc<Target>, GatesError> {
    let made = Target::new(domain).and_then(|t| t.with(Part::Tenant, "acme"));
    made.map(Arc::new).map_err(|e| GatesError::Corrupt(e.to_string()))
}

/// Everything should pass here; what did not is no measurement.
fn unexpected(reply: &Admission) -> GatesError {
    GatesError::Corrupt(format!("a call that should pass did not: {reply:?}"))
}

impl Load {
    pub(super) async fn new(gates: Arc<dyn Backend>, name: &str, domains: u64) -> Result<Self, GatesError> {
        let mut targets = Vec::new();
        for n in 0..domains {
            let domain = format!("bench-{name}-{n}");
            fresh(&*gates, &domain, set()).await?;
            targets.push(target(&domain)?);
        }
        // Another run of this program is another holder.
        let first = std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_micros() as u64);
        Ok(Self { gates, targets, holders: Arc::new(AtomicU64::new(first)) })
    }

    fn call(targets: &[Arc<Target>], n: u64) -> Call {
        Call {
            cost: Points(1),
            priority: 1,
            ..Call::new(targets[(n % targets.len() as u64) as usize].clone(), Holder::number(n))
        }
    }

    /// So many callers at a time.
    pub(super) async fn run(&self, callers: u64, lasts: Duration) -> Result<Measured, GatesError> {
        let mut tasks = JoinSet::new();
        let began = Instant::now();
        for _ in 0..callers {
            let (gates, targets, holders) = (self.gates.clone(), self.targets.clone(), self.holders.clone());
            tasks.spawn(async move {
                let outcome = Outcome { actual: Some(Points(1)), ..Outcome::of(End::Ok) };
                let mut times = Vec::new();
                while began.elapsed() < lasts {
                    let call = Self::call(&targets, holders.fetch_add(1, Ordering::Relaxed));
                    let asked = Instant::now();
                    let reply = gates.admit(None, &call).await?;
                    times.push(asked.elapsed().as_nanos() as u64);
                    let Admission::Admitted(admitted) = reply else { return Err(unexpected(&reply)) };
                    gates.settle(None, &admitted.permit, &outcome).await?;
                }
                Ok(times)
            });
        }
        let times: Vec<Vec<u64>> = tasks.join_all().await.into_iter().collect::<Result<_, _>>()?;
        let nanos = times.concat();
        Ok(Measured { count: nanos.len() as u64, took: began.elapsed(), nanos })
    }

    /// One thread, without a runtime in between.
    pub(super) fn run_alone(&self, gates: &InProcess, lasts: Duration) -> Result<Measured, GatesError> {
        let outcome = Outcome { actual: Some(Points(1)), ..Outcome::of(End::Ok) };
        let (mut count, mut times) = (0, Vec::new());
        let mut n = self.holders.load(Ordering::Relaxed);
        let began = Instant::now();
        while began.elapsed() < lasts {
            // One in a thousand is timed: to look at the clock costs as much as a gate.
            for i in 0..1_000 {
                n += 1;
                let call = Self::call(&self.targets, n);
                let before = (i == 500).then(Instant::now);
                let reply = gates.admit_now(None, &call)?;
                if let Some(before) = before {
                    times.push(before.elapsed().as_nanos() as u64);
                }
                let Admission::Admitted(admitted) = reply else { return Err(unexpected(&reply)) };
                gates.settle_now(None, &admitted.permit, &outcome)?;
                count += 1;
            }
        }
        self.holders.store(n + 1, Ordering::Relaxed);
        Ok(Measured { count, took: began.elapsed(), nanos: times })
    }

    /// Fills the line, which may be an old one: all slots are taken while low priorities ask, and then half of them are given back.
    pub(super) async fn fill(&self, waiters: u64) -> Result<(), GatesError> {
        for target in &self.targets {
            fresh(&*self.gates, target.domain(), set()).await?;
        }
        let mut permits = self.ask_all(u64::from(SLOTS), 1).await?;
        if permits.len() != SLOTS as usize || !self.ask_all(waiters, 4).await?.is_empty() {
            return Err(GatesError::Corrupt("the slots did not fill up".into()));
        }
        let mut settling = JoinSet::new();
        for permit in permits.drain(..permits.len() / 2) {
            let gates = self.gates.clone();
            settling.spawn(async move { gates.settle(None, &permit, &Outcome::of(End::Ok)).await.map(drop) });
        }
        settling.join_all().await.into_iter().collect()
    }

    /// Fails unless so many wait: a shorter line is another load, and its figure would be that of something else. A hundredth may be
    /// missing: those who are called do not come here, and are gone two seconds later.
    pub(super) async fn expect_waiters(&self, waiters: u64) -> Result<(), GatesError> {
        let mut waiting = 0;
        for target in &self.targets {
            // Places whose time is over go now.
            self.gates.expire(None, target.domain()).await?;
            let views = self.gates.inspect(None, target.domain(), 1).await?;
            waiting += views.iter().map(|view| u64::from(view.waiting)).sum::<u64>();
        }
        if waiting <= waiters && waiting * 100 >= waiters * 99 {
            return Ok(());
        }
        Err(GatesError::Corrupt(format!(
            "{waiting} wait where {waiters} should: the machine is too slow for this measurement"
        )))
    }

    /// So many calls of a priority, many at a time; the permits of those that passed.
    async fn ask_all(&self, calls: u64, priority: u8) -> Result<Vec<Permit>, GatesError> {
        let mut tasks = JoinSet::new();
        let left = Arc::new(AtomicU64::new(calls));
        for _ in 0..FILLERS {
            let (gates, targets) = (self.gates.clone(), self.targets.clone());
            let (holders, left) = (self.holders.clone(), left.clone());
            tasks.spawn(async move {
                let mut permits = Vec::new();
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                    let number = holders.fetch_add(1, Ordering::Relaxed);
                    let call = Call { priority, ..Self::call(&targets, number) };
                    match gates.admit(None, &call).await? {
                        Admission::Admitted(admitted) => permits.push(admitted.permit),
                        Admission::Wait(_) => {}
                        reply @ Admission::Refused(_) => return Err(unexpected(&reply)),
                    }
                }
                Ok(permits)
            });
        }
        let permits: Vec<Vec<Permit>> = tasks.join_all().await.into_iter().collect::<Result<_, _>>()?;
        Ok(permits.concat())
    }
}

/// Calls per second of a script that does nothing.
pub(super) async fn trivial(
    gates: &Arc<RedisGates>,
    callers: u64,
    lasts: Duration,
) -> Result<f64, GatesError> {
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for _ in 0..callers {
        let gates = gates.clone();
        tasks.spawn(async move {
            let mut count = 0u64;
            while began.elapsed() < lasts {
                gates.do_nothing().await?;
                count += 1;
            }
            Ok(count)
        });
    }
    let counts: Vec<u64> = tasks.join_all().await.into_iter().collect::<Result<_, GatesError>>()?;
    Ok(counts.iter().sum::<u64>() as f64 / began.elapsed().as_secs_f64())
}

/// Round trips of an admission, counted where commands are sent.
pub(super) async fn round_trips(gates: &Arc<RedisGates>) -> Result<f64, GatesError> {
    let load = Load::new(gates.clone(), "trips", 1).await?;
    let outcome = Outcome::of(End::Ok);
    let mut trips = 0;
    for n in 0..=COUNTED {
        let call = Load::call(&load.targets, load.holders.fetch_add(1, Ordering::Relaxed));
        let before = gates.round_trips();
        let reply = gates.admit(None, &call).await?;
        // The first one brings the settings.
        trips += if n == 0 { 0 } else { gates.round_trips() - before };
        let Admission::Admitted(admitted) = reply else { return Err(unexpected(&reply)) };
        gates.settle(None, &admitted.permit, &outcome).await?;
    }
    Ok(trips as f64 / COUNTED as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_has_become_shorter_is_no_measurement() {
        let gates: Arc<dyn Backend> = Arc::new(InProcess::new());
        let load = Load::new(gates.clone(), "line", 1).await.unwrap();
        load.fill(20).await.unwrap();
        load.expect_waiters(20).await.unwrap();
        let waiters = gates.waiters("bench-line-0", 1).await.unwrap();
        gates.cancel_wait(None, &waiters[0].target, &waiters[0].holder).await.unwrap();
        let error = load.expect_waiters(20).await.unwrap_err();
        assert!(error.to_string().contains("19 wait where 20 should"), "{error}");
        // Filled anew, it is as long as it should be, and not longer.
        load.fill(20).await.unwrap();
        load.expect_waiters(20).await.unwrap();
    }
}
