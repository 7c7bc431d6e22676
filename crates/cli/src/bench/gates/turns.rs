//! The loads that are held against each other, in turns: whatever else the machine does meanwhile hits all of them alike.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_gates::{Backend, GatesError, InProcess};

use super::load::{Load, Measured};
use super::{DOMAINS, WAITERS};

/// Slices of each measurement, at least.
const SLICES: u32 = 8;
/// Longest slice.
const LONGEST: Duration = Duration::from_secs(4);
/// A line that is older is filled anew before its next slice. Its places and the leases before it last for 30 s.
const STALE: Duration = Duration::from_secs(14);

/// Who calls.
#[derive(Clone, Copy)]
pub(super) enum Callers<'a> {
    /// So many at a time.
    Many(u64),
    /// One thread, without a runtime in between.
    Alone(&'a InProcess),
}

impl Callers<'_> {
    async fn call(self, load: &Load, lasts: Duration) -> Result<Measured, GatesError> {
        match self {
            Self::Many(callers) => load.run(callers, lasts).await,
            Self::Alone(gates) => load.run_alone(gates, lasts),
        }
    }
}

/// One domain, many domains, and one domain with a long line.
pub(super) struct Loads {
    one: Load,
    domains: Load,
    line: Load,
}

/// What callers of each load saw.
pub(super) struct Compared {
    pub(super) one: Measured,
    pub(super) domains: Measured,
    pub(super) line: Measured,
}

impl Loads {
    pub(super) async fn new(gates: &Arc<dyn Backend>) -> Result<Self, GatesError> {
        Ok(Self {
            one: Load::new(gates.clone(), "one", 1).await?,
            domains: Load::new(gates.clone(), "many", DOMAINS).await?,
            line: Load::new(gates.clone(), "line", 1).await?,
        })
    }

    /// The load of one domain.
    pub(super) fn one(&self) -> &Load {
        &self.one
    }

    /// Measures each load for this long, in slices that take turns.
    pub(super) async fn compare(&self, by: Callers<'_>, lasts: Duration) -> Result<Compared, GatesError> {
        by.call(&self.one, lasts / 4).await?;
        by.call(&self.domains, lasts / 2).await?;
        let slices = SLICES.max(lasts.div_duration_f64(LONGEST).ceil() as u32);
        let (slice, loads) = (lasts / slices, [&self.one, &self.line, &self.domains]);
        let (mut seen, mut filled) = ([const { Measured::new() }; 3], None::<Instant>);
        for n in 0..slices {
            if filled.is_none_or(|at| at.elapsed() > STALE) {
                filled = Some(Instant::now());
                self.line.fill(WAITERS).await?;
            }
            for at in 0..loads.len() {
                // There and back, so that nobody always comes first.
                let at = if n % 2 == 0 { at } else { loads.len() - 1 - at };
                seen[at].add(by.call(loads[at], slice).await?);
            }
            self.line.expect_waiters(WAITERS).await?;
        }
        let [one, line, domains] = seen;
        Ok(Compared { one, domains, line })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_load_is_measured_for_the_whole_time() {
        let gates = Arc::new(InProcess::new());
        let loads = Loads::new(&(gates.clone() as Arc<dyn Backend>)).await.unwrap();
        let lasts = Duration::from_millis(16);
        for by in [Callers::Alone(&gates), Callers::Many(2)] {
            let all = loads.compare(by, lasts).await.unwrap();
            for seen in [&all.one, &all.domains, &all.line] {
                assert!(seen.took() >= lasts && seen.per_s() > 0.0);
            }
        }
    }
}
