//! The beat: every process keeps one leased registration at the backend, and reads from the answer how many there are.
//!
//! It is an admission through a pool of its own domain, asked anew each time: one round trip that registers, counts, writes
//! (so it fails where writing fails) and measures. Nothing is added to the admissions of calls. Processes are ranked by
//! the time of their start, so that a new one takes nobody's rank.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::gates::config::Slots;
use tidegate_core::gates::{
    Admission, Call, Gate, GateSet, Holder, InvalidGates, Kind, Micros, Part, Points, SECOND, Target,
};

use super::share::Seat;
use super::{Cause, Inner, cause_of, lock};
use crate::{GateOperations, Gates, GatesError};

/// The domain in which processes register.
pub(crate) const PRESENCE: &str = "tidegate-presence";
/// Most processes.
const MOST: u32 = 100_000;
/// How long a registration lasts: longer than a stretched beat and its answer.
const LASTS: Micros = 6 * SECOND;
/// The number of processes is the highest of so many beats: after an outage others come back later.
const REMEMBERED: usize = 20;
/// Most processes among which a rank is looked for.
const RANKED: usize = 1_000;

/// How many processes there are, and which one this is.
#[derive(Debug)]
pub(super) struct Census {
    holder: Holder,
    target: Arc<Target>,
    ask: u64,
    counts: VecDeque<u32>,
    rank: u32,
    /// Beats since the rank was looked up.
    stale: usize,
}

impl Census {
    pub(super) fn new(now: Micros, random: u64) -> Result<Self, GatesError> {
        let named = |e: tidegate_core::ids::InvalidName| {
            GatesError::Invalid(InvalidGates {
                path: "presence".into(),
                problem: e.to_string(),
                hint: "report this".into(),
            })
        };
        Ok(Self {
            holder: Holder::new(format!("p-{now:019}-{random:016x}")).map_err(named)?,
            target: Arc::new(
                Target::new(PRESENCE).and_then(|t| t.with(Part::Endpoint, "all")).map_err(named)?,
            ),
            ask: 0,
            counts: VecDeque::new(),
            rank: 0,
            stale: REMEMBERED,
        })
    }

    pub(super) fn seat(&self) -> Seat {
        let processes = self.counts.iter().copied().max().unwrap_or(1).max(self.rank + 1);
        Seat { processes, rank: self.rank }
    }

    /// The next registration.
    fn next(&mut self) -> Call {
        self.ask += 1;
        let call = Call::new(self.target.clone(), self.holder);
        Call { ask: self.ask, lease: LASTS, place: false, cost: Points(0), ..call }
    }

    /// Whether the rank is to be looked up.
    fn counted(&mut self, count: u32) -> bool {
        let changed = self.counts.back() != Some(&count);
        self.counts.push_back(count);
        if self.counts.len() > REMEMBERED {
            self.counts.pop_front();
        }
        self.stale += 1;
        changed || self.stale >= REMEMBERED
    }

    fn ranked(&mut self, rank: u32) {
        (self.rank, self.stale) = (rank, 0);
    }
}

impl<B: Gates + GateOperations> Inner<B> {
    /// Makes the registry known to the backend, and registers.
    pub(super) async fn register(&self) -> Result<(), GatesError> {
        let pool = Gate::new("processes", Kind::Slots(Slots::of(MOST))).per(&[Part::Endpoint]);
        self.backend.configure(PRESENCE, GateSet::of(vec![pool])).await?;
        self.beat().await
    }

    /// Registers in a pool, and says how many are in it.
    async fn enter(&self, call: &Call) -> Result<Option<u32>, GatesError> {
        match self.backend.admit(None, call).await? {
            Admission::Admitted(admitted) => Ok(Some(MOST.saturating_sub(admitted.remaining))),
            // It is busy clearing away; that is an answer.
            Admission::Wait(_) | Admission::Refused(_) => Ok(None),
        }
    }

    async fn beat(&self) -> Result<(), GatesError> {
        let (call, holder) = {
            let mut census = lock(&self.census);
            (census.next(), census.holder)
        };
        let Some(count) = self.enter(&call).await? else { return Ok(()) };
        if !lock(&self.census).counted(count) {
            return Ok(());
        }
        let mut all: Vec<Holder> = self
            .backend
            .holders(PRESENCE, RANKED)
            .await?
            .into_iter()
            .filter(|view| view.target == call.target)
            .map(|view| view.holder)
            .collect();
        all.sort_unstable();
        if let Some(rank) = all.iter().position(|h| *h == holder) {
            lock(&self.census).ranked(rank as u32);
        }
        Ok(())
    }

    /// Says to the others that this process has no lock from another backend than this one, and hears how many say so.
    async fn say_clear(&self) {
        let (mono, generation) = (self.mono(), lock(&self.locks).generation());
        if !lock(&self.locks).awaits(mono) || self.all().iter().any(|d| d.has_old_locks(mono, generation)) {
            return;
        }
        let target = Target::new(PRESENCE).and_then(|t| t.with(Part::Endpoint, &format!("g-{generation:x}")));
        let (Ok(target), registration) = (target, lock(&self.census).next()) else { return };
        let Ok(holder) = Holder::new(registration.holder.as_str().replacen("p-", "c-", 1)) else { return };
        let call = Call { target: Arc::new(target), holder, ..registration };
        if let Ok(Some(count)) = self.ask(self.enter(&call)).await
            && self.backend.generation() == generation
        {
            lock(&self.locks).clear(self.mono(), count);
        }
    }

    /// Beats until the task is ended.
    pub(super) async fn beat_for_ever(&self) {
        let (slow, away) = (self.limits.slow as u64, self.limits.away as u64);
        loop {
            let pause = lock(&self.watch).pause();
            tokio::time::sleep(Duration::from_micros(pause as u64)).await;
            let was_away = self.is_away();
            let began = self.mono();
            let mut beat = std::pin::pin!(self.beat());
            let mut answer = tokio::time::timeout(Duration::from_micros(slow), &mut beat).await;
            if answer.is_err() {
                self.tell(|watch, now| watch.outstanding(now, now - began));
                answer = tokio::time::timeout(Duration::from_micros(away - slow), &mut beat).await;
            }
            match answer {
                Ok(Ok(())) => {
                    self.note_generation();
                    self.tell(|watch, now| watch.beat_answered(now, now - began));
                }
                Ok(Err(GatesError::Unreachable(e))) => {
                    let cause = cause_of(&*e);
                    self.tell(|watch, now| watch.beat_failed(now, cause));
                }
                Ok(Err(e)) => tracing::error!(error = %e, "gates: this process could not be registered"),
                Err(_) => self.tell(|watch, now| watch.beat_failed(now, Cause::Slow)),
            }
            if !self.is_away() {
                if was_away {
                    self.settle_up().await;
                }
                self.say_clear().await;
                let mono = self.mono();
                self.all().iter().for_each(|domain| {
                    domain.retire(mono);
                });
            }
            self.publish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_come_back_later_are_not_forgotten() {
        let mut census = Census::new(0, 7).unwrap();
        for count in [1, 4, 4] {
            census.counted(count);
        }
        census.ranked(2);
        assert_eq!(census.seat(), Seat { processes: 4, rank: 2 });
        for _ in 0..REMEMBERED - 1 {
            census.counted(1);
            assert_eq!(census.seat().processes, 4);
        }
        census.counted(1);
        assert_eq!(census.seat().processes, 3, "never fewer than the rank says");
    }

    #[test]
    fn a_rank_is_looked_up_when_the_number_changes_and_now_and_then() {
        let mut census = Census::new(0, 7).unwrap();
        assert!(census.counted(2));
        census.ranked(1);
        assert!(!census.counted(2));
        assert!(census.counted(3));
        census.ranked(1);
        assert_eq!((0..REMEMBERED).filter(|_| census.counted(3)).count(), 1);
    }
}
