//! A referee that sees when calls were admitted and when they ended, and nothing of the gates.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use tidegate_core::gates::config::{Slots, Window};
use tidegate_core::gates::{Admission, Call, End, Gate, GateSet, Holder, Kind, Outcome, Span, Target, Unit};
use tidegate_gates::{Backend, GatesError, admitted};
use tokio::task::JoinSet;

use super::load::fresh;

/// The limit of BullMQ's and Bottleneck's examples: so many in every second.
const MAX: i64 = 1_000;
const SECOND: i64 = 1_000_000;
const SLOTS: i64 = 20;
const CALLERS: u64 = 50;

/// A limit that more is wanted of than it allows.
#[derive(Debug, Serialize)]
pub(super) struct Limited {
    limit_per_s: i64,
    per_s: f64,
    /// Most admissions that any sliding second saw.
    worst_second: u64,
    /// Most that held one of the slots at a time.
    slots: i64,
    most_at_once: i64,
}

impl Limited {
    /// Admissions beyond what was allowed.
    pub(super) fn over(&self) -> u64 {
        self.worst_second.saturating_sub(self.limit_per_s as u64)
            + (self.most_at_once - self.slots).max(0) as u64
    }

    /// Share of what was allowed that was used.
    pub(super) fn utilisation(&self) -> f64 {
        self.per_s / self.limit_per_s as f64
    }
}

/// More is wanted than the gates allow, for this long.
pub(super) async fn watch(gates: &Arc<dyn Backend>, lasts: Duration) -> Result<Limited, GatesError> {
    let domain = "bench-referee";
    let window = Window { max: MAX, every: Span::secs(1), unit: Unit::Calls };
    let set = GateSet::of(vec![
        Gate::new("rate", Kind::Window(window)),
        Gate::new("slots", Kind::Slots(Slots::of(SLOTS as u32))),
    ]);
    fresh(&**gates, domain, set).await?;
    let target = Arc::new(Target::new(domain).map_err(|e| GatesError::Corrupt(e.to_string()))?);
    let first = std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_micros() as u64);
    let (holders, running, most) =
        (Arc::new(AtomicU64::new(first)), Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..CALLERS {
        let (gates, target, over) = (gates.clone(), target.clone(), over.clone());
        let (holders, running, most) = (holders.clone(), running.clone(), most.clone());
        tasks.spawn(async move {
            let mut instants = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let call = Call::new(target.clone(), Holder::number(holders.fetch_add(1, Ordering::Relaxed)));
                let Admission::Admitted(admitted) = admitted(&*gates, call).await? else { continue };
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                instants.push(admitted.permit.admitted_at);
                running.fetch_sub(1, Ordering::SeqCst);
                gates.settle(None, &admitted.permit, &Outcome::of(End::Ok)).await?;
            }
            Ok(instants)
        });
    }
    tokio::time::sleep(lasts).await;
    over.store(true, Ordering::Relaxed);
    let instants: Vec<Vec<i64>> = tasks.join_all().await.into_iter().collect::<Result<_, GatesError>>()?;
    let (worst_second, per_s) = judge(instants.concat());
    let most_at_once = most.load(Ordering::SeqCst);
    Ok(Limited { limit_per_s: MAX, per_s, worst_second, slots: SLOTS, most_at_once })
}

/// Most in any second, and how many per second between the first and the last.
fn judge(mut instants: Vec<i64>) -> (u64, f64) {
    instants.sort_unstable();
    let (mut first, mut worst) = (0, 0);
    for (n, at) in instants.iter().enumerate() {
        while at - instants[first] >= SECOND {
            first += 1;
        }
        worst = worst.max(n + 1 - first);
    }
    // Only whole seconds, so that a burst at the end does not count for more than its own.
    let span = instants.last().zip(instants.first()).map_or(0, |(last, first)| last - first);
    let seconds = span / SECOND;
    let counted = instants.iter().filter(|at| **at - instants[0] < seconds * SECOND).count();
    (worst as u64, counted as f64 / seconds.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_at_the_turn_of_a_second_are_seen() {
        let late = (0..1_000).map(|n| 999_000 + n);
        let early = (0..560).map(|n| 1_000_000 + n);
        assert_eq!(judge(late.clone().collect()).0, 1_000);
        assert_eq!(judge(late.chain(early).collect()).0, 1_560);
    }

    #[test]
    fn half_of_what_is_allowed_is_half_used() {
        let (worst_second, per_s) = judge((0..2_001).map(|n| n * 2_000).collect());
        let seen = Limited { limit_per_s: MAX, per_s, worst_second, slots: SLOTS, most_at_once: SLOTS + 1 };
        assert_eq!((seen.over(), seen.utilisation()), (1, 0.5));
    }
}
